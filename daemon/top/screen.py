"""The layout of the screen, and its table of workloads."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import set_cell_size
from rich.text import Text

from .blocks import Glyphs, age, head, heat, line, load, number, power, power_flow
from .view import View, WorkloadLine

# Title, width in cells, and rank: on a narrow screen the highest rank goes first.
_COLUMNS = (
    ("device", 6, 0),
    ("last run", 9, 0),
    ("p50 ms", 7, 0),
    ("p99 ms", 7, 3),
    ("per s", 7, 2),
    ("J each", 7, 0),
    ("J net", 7, 4),
    ("good", 8, 1),
)
_LEAST_NAME, _MOST_NAME = 18, 40
_SIDE_BY_SIDE = 76
_GAP = 2
_WIDEST_BLOCK = 80


@dataclass(frozen=True)
class ScreenState:
    """The values that the screen shows.

    Attributes:
        view: The last answer of the daemon.
        watts: Mean power of the module since the sample before.
        history: The same of earlier samples, oldest first.
        now_seconds: Wall time of the daemon.
        problem: Reason for an old answer; empty if it is the latest.
    """

    view: View
    url: str
    watts: float | None = None
    history: Sequence[float | None] = ()
    now_seconds: float = 0.0
    problem: str = ""


def draw(
    state: ScreenState, width: int, height: int | None, glyphs: Glyphs, foot: str = ""
) -> list[Text]:
    """Return the lines of a screen.

    Args:
        width: In cells.
        height: In lines; ``None`` for as many as there are.
        foot: The last line, if there is a height.
    """
    view = state.view
    lines = head(view, state.url, state.problem, width)
    if width >= _SIDE_BY_SIDE:
        half = min((width - _GAP) // 2, _WIDEST_BLOCK)
        right = power(view, state.watts, state.history, half, glyphs)
        lines += _join(load(view, half, glyphs), right, half, width)
    else:
        lines += load(view, width, glyphs)
        lines += power_flow(view, state.watts, state.history, width, glyphs)
    lines += [*heat(view, width, glyphs), Text(end="")]
    if height is None:
        return [*lines, *_workloads(state, width, 10_000, glyphs)]
    height -= 1 if foot else 0
    lines += _workloads(state, width, height - len(lines), glyphs)
    lines = lines[: max(0, height)]
    if foot:
        lines += [Text(end="")] * (height - len(lines))
        lines.append(line(width, (foot, "dim")))
    return lines


def _join(left: list[Text], right: list[Text], half: int, width: int) -> list[Text]:
    """Put two blocks side by side; rails below the left one are only counted."""
    if len(right) > len(left):
        hidden = len(right) - len(left) + 1
        right = [*right[: len(left) - 1], line(half, (f"and {hidden} more rails", "dim"))]
    right = right + [Text()] * (len(left) - len(right))
    rows = []
    for one, other in zip(left, right, strict=True):
        gap = " " * (half + _GAP - one.cell_len) if other else ""
        rows.append(line(width, one, gap, other))
    return rows


def _workloads(state: ScreenState, width: int, lines: int, glyphs: Glyphs) -> list[Text]:
    rows = state.view.rows
    if lines <= 0:
        return []
    if not rows:
        return [line(width, ("no workload is configured", "dim"))]
    columns = list(_COLUMNS)
    while columns and _LEAST_NAME + sum(cells + 1 for _, cells, _ in columns) > width:
        columns.remove(max(columns, key=lambda column: column[2]))
    name_cells = width - sum(cells + 1 for _, cells, _ in columns)
    name_cells = min(_MOST_NAME, max(_LEAST_NAME, name_cells))
    titles = [
        title.ljust(cells) if title == "device" else title.rjust(cells)
        for title, cells, _ in columns
    ]
    made = [line(width, (" ".join([set_cell_size("workload", name_cells), *titles]), "dim"))]
    # The flag of a simulation is shown once, above.
    notes = [
        row.ended or "  ".join(flag for flag in row.flags if flag != "simulated") for row in rows
    ]
    shows_notes = len(rows) + sum(map(bool, notes)) < lines
    for index, (row, note) in enumerate(zip(rows, notes, strict=True)):
        left = len(rows) - index
        if lines - len(made) <= 1 and left > 1:
            made.append(line(width, (f"{glyphs.more} {left} more workloads", "dim")))
            break
        cells = _cells(row, state.now_seconds, glyphs)
        style = "bold green" if row.is_active else "red" if row.ended else ""
        shown = " ".join(set_cell_size(cells[title], size) for title, size, _ in columns)
        made.append(line(width, (set_cell_size(row.workload, name_cells), style), " ", shown))
        if note and shows_notes:
            made.append(line(width, (f"  {note}", "yellow")))
    return made[:lines]


def _cells(row: WorkloadLine, now_seconds: float, glyphs: Glyphs) -> dict[str, str]:
    last = glyphs.absent
    if row.is_active:
        last = "running"
    elif row.ended:
        last = row.ended.partition(":")[0]
    elif row.finished_seconds is not None:
        last = age(now_seconds - row.finished_seconds)

    def milli(seconds: float | None) -> str:
        return number(None if seconds is None else seconds * 1e3, 7, glyphs)

    return {
        "device": row.device,
        "last run": last.rjust(9),
        "p50 ms": milli(row.p50_seconds),
        "p99 ms": milli(row.p99_seconds),
        "per s": number(row.throughput, 7, glyphs),
        "J each": number(row.joules, 7, glyphs),
        "J net": number(row.net_joules, 7, glyphs),
        "good": f"{row.good}/{row.runs}".rjust(8),
    }

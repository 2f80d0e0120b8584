"""The runs: one workload a line, and below it what is to be said of it, where there is room."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import set_cell_size
from rich.text import Text

from .blocks import Marks, age, head, heat, line, load, number, power, power_flow, sides
from .view import Row, View

_GAP = " "


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: Above it.
        width: In cells.
        rank: Those of a higher one go first where the screen is narrow.
    """

    title: str
    width: int
    rank: int = 0


_COLUMNS = (
    Column("device", 6),
    Column("last run", 9),
    Column("p50 ms", 7),
    Column("p99 ms", 7, 3),
    Column("per s", 7, 2),
    Column("J each", 7),
    Column("J net", 7, 4),
    Column("good", 8, 1),
)
_NAME_CELLS = (18, 40)


def runs(
    rows: Sequence[Row], now_seconds: float, width: int, lines: int, marks: Marks
) -> list[Text]:
    """Show workloads, those in flight first.

    Args:
        rows: The workloads.
        now_seconds: Wall time of the daemon.
        width: At most so wide.
        lines: At most so many.
        marks: What can be shown.
    """
    if lines <= 0:
        return []
    if not rows:
        return [line(width, ("no workload is configured", "dim"))]
    columns = list(_COLUMNS)
    least, most = _NAME_CELLS
    while columns and least + sum(one.width + 1 for one in columns) > width:
        columns.remove(max(columns, key=lambda one: one.rank))
    name_cells = min(most, max(least, width - sum(one.width + 1 for one in columns)))
    titles = (
        one.title.ljust(one.width) if one.title == "device" else one.title.rjust(one.width)
        for one in columns
    )
    made = [line(width, (_GAP.join((set_cell_size("workload", name_cells), *titles)), "dim"))]
    room = lines - 1
    notes = [_note(row) for row in rows]
    show_notes = len(rows) + sum(map(bool, notes)) <= room
    for number_, (row, note) in enumerate(zip(rows, notes, strict=True)):
        if room <= 1 and len(rows) - number_ > 1:
            left = len(rows) - number_
            made.append(line(width, (f"{marks.more} {left} more workloads", "dim")))
            break
        made.append(_row(row, columns, name_cells, now_seconds, width, marks))
        room -= 1
        if note and show_notes:
            made.append(line(width, (f"  {note}", "yellow")))
            room -= 1
    return made[:lines]


def _row(
    row: Row,
    columns: Sequence[Column],
    name_cells: int,
    now_seconds: float,
    width: int,
    marks: Marks,
) -> Text:
    last = marks.absent
    if row.is_active:
        last = "running"
    elif row.ended:
        last = row.ended.partition(":")[0]
    elif row.finished_seconds is not None:
        last = age(now_seconds - row.finished_seconds)
    cells = {
        "device": row.device,
        "last run": last.rjust(9),
        "p50 ms": number(_milli(row.p50_seconds), 7, marks),
        "p99 ms": number(_milli(row.p99_seconds), 7, marks),
        "per s": number(row.throughput, 7, marks),
        "J each": number(row.joules, 7, marks),
        "J net": number(row.net_joules, 7, marks),
        "good": f"{row.good}/{row.runs}".rjust(8),
    }
    shown = (set_cell_size(cells[one.title], one.width) for one in columns)
    style = "bold green" if row.is_active else "red" if row.ended else ""
    return line(width, (set_cell_size(row.workload, name_cells), style), _GAP, _GAP.join(shown))


def _note(row: Row) -> str:
    """Return what is to be said of the last run; that all is simulated is said once, above."""
    if row.ended:
        return row.ended
    return "  ".join(flag for flag in row.flags if flag != "simulated")


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


_SIDE_BY_SIDE = 76
_SCREEN_GAP = 2
_WIDEST_BLOCK = 80


@dataclass(frozen=True)
class Moment:
    """What is shown.

    Attributes:
        view: What the daemon told last.
        url: Where it is.
        watts: Mean power of the module since it was asked before.
        history: The same of earlier moments, oldest first.
        now_seconds: Wall time of the daemon.
        problem: Why it is not asked any more with success; empty where it is.
    """

    view: View
    url: str
    watts: float | None = None
    history: Sequence[float | None] = field(default=())
    now_seconds: float = 0.0
    problem: str = ""


def draw(
    moment: Moment, width: int, height: int | None, marks: Marks, foot: str = ""
) -> list[Text]:
    """Lay the screen out.

    Args:
        moment: What to show.
        width: Of the window, in cells.
        height: Of it, in lines; ``None`` for as many as are wanted.
        marks: What the terminal can show.
        foot: The last line, in a window.
    """
    view = moment.view
    lines = head(view, moment.url, moment.problem, width)
    if width >= _SIDE_BY_SIDE:
        half = min((width - _SCREEN_GAP) // 2, _WIDEST_BLOCK)
        left = load(view, half, marks)
        right = power(view, moment.watts, moment.history, half, marks)
        lines += _beside(left, right, half, width)
    else:
        lines += load(view, width, marks)
        lines += power_flow(view, moment.watts, moment.history, width, marks)
    lines += heat(view, width, marks)
    lines.append(Text(end=""))
    if height is None:
        return [*lines, *runs(view.rows, moment.now_seconds, width, 10_000, marks)]
    below = 1 if foot else 0
    lines += runs(view.rows, moment.now_seconds, width, height - below - len(lines), marks)
    lines = lines[: max(0, height - below)]
    if foot:
        lines += [Text(end="")] * (height - below - len(lines))
        lines.append(sides(width, [(foot, "dim")], ""))
    return lines


def _beside(left: list[Text], right: list[Text], half: int, width: int) -> list[Text]:
    """Set two blocks side by side; of the right one, what is beyond the left is told as a count."""
    rows = len(left)
    if len(right) > rows:
        hidden = len(right) - rows + 1
        right = [*right[: rows - 1], line(half, (f"and {hidden} more rails", "dim"))]
    made = []
    for index, text in enumerate(left):
        joined = text.copy()
        if index < len(right):
            joined.append(" " * (half + _SCREEN_GAP - text.cell_len))
            joined.append_text(right[index])
        joined.truncate(width, overflow="ellipsis")
        made.append(joined)
    return made

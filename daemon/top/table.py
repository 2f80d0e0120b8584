"""The runs: one workload a line, and below it what is to be said of it, where there is room."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import set_cell_size
from rich.text import Text

from .blocks import line
from .marks import Marks, age, number
from .view import Row

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

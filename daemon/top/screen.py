"""The whole screen: no line is wider than the window, and there are no more lines than it has."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from .blocks import head, heat, line, load, power, power_flow, sides
from .marks import Marks
from .table import runs
from .view import View

_SIDE_BY_SIDE = 76
_GAP = 2
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
        half = min((width - _GAP) // 2, _WIDEST_BLOCK)
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
    for number, text in enumerate(left):
        joined = text.copy()
        if number < len(right):
            joined.append(" " * (half + _GAP - text.cell_len))
            joined.append_text(right[number])
        joined.truncate(width, overflow="ellipsis")
        made.append(joined)
    return made

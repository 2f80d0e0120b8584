"""Bars, sparklines and numbers, each of a width that is known beforehand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

ABSENT = "–"


@dataclass(frozen=True)
class Marks:
    """What a terminal can show.

    Attributes:
        eighths: From nothing to full, for columns of a sparkline.
        full: A cell of a bar.
        rest: What is left of it.
        more: What stands for what was cut off.
        absent: What stands for what is not told.
    """

    eighths: str = " ▁▂▃▄▅▆▇█"
    full: str = "█"
    rest: str = "·"
    more: str = "…"
    absent: str = ABSENT


PLAIN = Marks(eighths=" .:-=+*%#", full="#", rest=".", more="~", absent="-")


def marks_of(encoding: str | None) -> Marks:
    """Return the marks that an encoding has."""
    return Marks() if (encoding or "").lower().replace("-", "").startswith("utf") else PLAIN


def bar(ratio: float | None, width: int, marks: Marks) -> str:
    """Return a load as a bar; blank where there is none to tell.

    >>> bar(0.5, 4, PLAIN)
    '##..'
    """
    if ratio is None:
        return " " * width
    full = round(min(max(ratio, 0.0), 1.0) * width)
    return marks.full * full + marks.rest * (width - full)


def sparkline(values: Sequence[float | None], width: int, marks: Marks) -> str:
    """Return the last values as columns from zero to their highest, newest at the right.

    >>> sparkline([8, None, 4, 8], 5, PLAIN)
    ' # =#'
    """
    shown = list(values)[-width:] if width > 0 else []
    top = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if v is None else column(v / top if top else 0, marks) for v in shown).rjust(
        width
    )


def column(ratio: float, marks: Marks) -> str:
    """Return a ratio as one character; what is above zero is never blank."""
    return marks.eighths[math.ceil(min(max(ratio, 0.0), 1.0) * (len(marks.eighths) - 1))]


def percent(ratio: float | None, marks: Marks) -> str:
    """Return a ratio in five cells."""
    return f"{marks.absent:>5}" if ratio is None else f"{ratio * 100:3.0f} %"


def clock(hertz: float | None) -> str:
    """Return a clock in eight cells, blank where there is none."""
    return " " * 8 if not hertz else f"{hertz / 1e6:4.0f} MHz"


def number(value: float | None, width: int, marks: Marks) -> str:
    """Return a number with three digits that count, or as many as it has before the point."""
    if value is None:
        return marks.absent.rjust(width)
    digits = 0 if value == 0 else 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits, 0), 4)}f}".rjust(width)


def age(seconds: float) -> str:
    """Return how long ago something was, in at most nine cells.

    >>> age(75), age(7300)
    ('75 s ago', '2 h ago')
    """
    for limit, unit, name in ((100, 1, "s"), (6000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(seconds, 0) / unit:.0f} {name} ago"
    return f"{min(seconds / 86400, 999):.0f} d ago"

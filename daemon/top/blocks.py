"""The parts of the screen: each a list of lines, none wider than it was asked to be."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from .view import View, Zone

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


_HIGH, _HIGHEST = 0.7, 0.9
_NEAR_CELSIUS, _AT_CELSIUS = 20.0, 8.0
_GIBI = 2**30
_RAIL_CELLS = 18


def line(width: int, *parts: tuple[str, str] | str) -> Text:
    """Return one line of styled parts, cut to a width."""
    made = Text(no_wrap=True, end="")
    for part in parts:
        text, style = (part, "") if isinstance(part, str) else part
        made.append(text, style)
    made.truncate(width, overflow="ellipsis")
    return made


def sides(width: int, left: Sequence[tuple[str, str] | str], right: str) -> Text:
    """Return a line with something at its right end, where that fits."""
    made = line(width, *left)
    room = width - made.cell_len - cell_len(right)
    if room >= 1:
        made.append(" " * room + right, "dim")
    return made


def head(view: View, url: str, problem: str, width: int) -> list[Text]:
    """Say what board this is, whether it is real, and how its sources are."""
    about = view.about
    names = [about.get("module") or about.get("board") or "board not known yet"]
    names += [about[key] for key in ("power_mode", "l4t") if about.get(key)]
    title: list[tuple[str, str] | str] = [("tegrascope", "bold"), "  " + "  ".join(names)]
    if view.is_simulated:
        title += ["  ", (" SIMULATED ", "black on yellow")]
    at = (
        ""
        if view.sample_seconds is None
        else time.strftime("%H:%M:%S", time.localtime(view.sample_seconds))
    )
    if problem:
        return [sides(width, title, at), line(width, (problem, "bold red"))]
    told: list[tuple[str, str] | str] = []
    for name, up in view.sources.items():
        told += [(f"{name} {'up' if up else 'DOWN'}", "" if up else "bold red"), "  "]
    return [sides(width, title, at), sides(width, told or [("no telemetry yet", "yellow")], url)]


def load(view: View, width: int, marks: Marks) -> list[Text]:
    """Show how busy GPU, DLA, memory and processor are."""
    cells = max(4, width - 6 - 16)
    lines = []
    for gauge in view.gauges:
        if gauge.is_off:
            told = f"{'off':>5} {' ' * 8}"
        elif gauge.note:
            told = f"{percent(gauge.ratio, marks)} {gauge.note:8}"
        else:
            told = f"{percent(gauge.ratio, marks)} {clock(gauge.hertz)}"
        ratio = None if gauge.is_off else gauge.ratio
        lines.append(_row(gauge.name, bar(ratio, cells, marks), told, width))
    online = [core for core in view.cores if core is not None]
    mean = sum(online) / len(online) if online else None
    # A core that idles is there: only one that is offline has no column.
    shown = "".join("x" if core is None else column(core or 1e-9, marks) for core in view.cores)
    told = f"{percent(mean, marks)} {clock(view.cpu_hertz)}"
    lines.append(_row("CPU", set_cell_size(shown, cells), told, width))
    for name, part in (("RAM", view.memory), ("swap", view.swap)):
        if part is None:
            lines.append(_row(name, " " * cells, percent(None, marks), width))
        else:
            used, total = part
            ratio = used / total if total else 0.0
            told = f"{used / _GIBI:5.1f} / {total / _GIBI:.1f} G"
            style = "green" if ratio < _HIGH else "yellow" if ratio < _HIGHEST else "red"
            lines.append(_row(name, bar(ratio, cells, marks), told, width, style))
    return lines


def _row(name: str, shown: str, told: str, width: int, style: str = "green") -> Text:
    return line(width, f"{name:5} ", (shown, style), " ", told)


def power(
    view: View, watts: float | None, history: Sequence[float | None], width: int, marks: Marks
) -> list[Text]:
    """Show the module's power with its last minutes, and each rail.

    Args:
        view: The moment.
        watts: Mean power of the module since the moment before.
        history: The same of moments before it, oldest first.
        width: At most so wide.
        marks: What can be shown.
    """
    room = width - _RAIL_CELLS - 10
    total = number(watts, 6, marks)
    lines = [
        line(
            width,
            (f"{'module':{_RAIL_CELLS}}", "bold"),
            (f"{total} W ", "bold"),
            (sparkline(history, max(0, room), marks), "cyan"),
        )
    ]
    most = max(view.rails.values(), default=0.0)
    for name, rail in view.rails.items():
        share = rail / most if most > 0 else 0.0
        shown = set_cell_size(name, _RAIL_CELLS)
        lines.append(
            line(
                width,
                f"{shown}{number(rail, 6, marks)} W ",
                (bar(share, max(0, room), marks), "cyan"),
            )
        )
    if not view.rails:
        lines.append(line(width, ("no rail is told", "dim")))
    return lines


def power_flow(
    view: View, watts: float | None, history: Sequence[float | None], width: int, marks: Marks
) -> list[Text]:
    """Show the same in two lines, where there is no room beside the load."""
    first = power(view, watts, history, width, marks)[0]
    rails = [(f"{name} {rail:.1f} W", "") for name, rail in view.rails.items()]
    return [first, *flow(rails, width, 2)]


def heat(view: View, width: int, marks: Marks) -> list[Text]:
    """Show each zone with the temperature at which the board shuts down, the fan and throttling."""
    parts = [_zone(zone) for zone in view.zones] or [("no zone is told", "dim")]
    told: list[tuple[str, str]] = []
    told += [(f"{name} {percent(ratio, marks).strip()}", "") for name, ratio in view.fans.items()]
    told += [
        (f"{kind} throttled {count}x", "bold yellow") for kind, count in view.throttling.items()
    ]
    return flow([*told, *parts] if view.throttling else [*parts, *told], width, 2)


def _zone(zone: Zone) -> tuple[str, str]:
    if zone.critical_celsius is None:
        return f"{zone.name} {zone.celsius:.1f} °C", ""
    left = zone.critical_celsius - zone.celsius
    style = "bold red" if left <= _AT_CELSIUS else "yellow" if left <= _NEAR_CELSIUS else ""
    return f"{zone.name} {zone.celsius:.1f}/{zone.critical_celsius:.0f} °C", style


def flow(parts: Sequence[tuple[str, str]], width: int, lines: int) -> list[Text]:
    """Set parts one behind the other, in at most so many lines; the rest is left out."""
    made: list[list[tuple[str, str] | str]] = [[]]
    used = 0
    for text, style in parts:
        cells = cell_len(text)
        if used and used + 2 + cells > width:
            if len(made) == lines:
                break
            made.append([])
            used = 0
        if used:
            made[-1].append("  ")
            used += 2
        made[-1].append((text, style))
        used += cells
    return [line(width, *one) for one in made if one]

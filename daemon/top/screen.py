"""The blocks of the screen: each a list of lines that are never wider than asked for."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ..terminal.numbers import ABSENT
from .view import View, WorkloadLine, Zone

Part = str | tuple[str, str] | Text


@dataclass(frozen=True)
class Glyphs:
    """Characters of a terminal.

    Attributes:
        eighths: From nothing to full, for the columns of a sparkline.
        full: A cell of a bar.
        rest: An empty cell of a bar.
        more: Mark of omitted text.
    """

    eighths: str = " ▁▂▃▄▅▆▇█"
    full: str = "█"
    rest: str = "·"
    more: str = "…"
    absent: str = ABSENT


ASCII = Glyphs(eighths=" .:-=+*%#", full="#", rest=".", more="~", absent="-")


def glyphs_of(encoding: str | None) -> Glyphs:
    """Return the characters that an encoding can represent."""
    return Glyphs() if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def bar(ratio: float | None, width: int, glyphs: Glyphs) -> str:
    """Return a load as a bar, blank if it is unknown.

    >>> bar(0.5, 4, ASCII)
    '##..'
    """
    if ratio is None:
        return " " * width
    full = round(min(max(ratio, 0.0), 1.0) * width)
    return glyphs.full * full + glyphs.rest * (width - full)


def sparkline(values: Sequence[float | None], width: int, glyphs: Glyphs) -> str:
    """Return the last values as columns from zero to their highest, newest at the right.

    >>> sparkline([8, None, 4, 8], 5, ASCII)
    ' # =#'
    """
    shown = list(values)[-width:] if width > 0 else []
    top = max((value for value in shown if value is not None), default=0.0) or 1.0
    cells = (" " if value is None else _column(value / top, glyphs) for value in shown)
    return "".join(cells).rjust(width)


def _column(ratio: float, glyphs: Glyphs) -> str:
    """Return a ratio as one character; a value above zero is never blank."""
    return glyphs.eighths[math.ceil(min(max(ratio, 0.0), 1.0) * (len(glyphs.eighths) - 1))]


def _percent(ratio: float | None, glyphs: Glyphs) -> str:
    return f"{glyphs.absent:>5}" if ratio is None else f"{ratio * 100:3.0f} %"


def _clock(hertz: float | None) -> str:
    return " " * 8 if not hertz else f"{hertz / 1e6:4.0f} MHz"


def number(value: float | None, width: int, glyphs: Glyphs) -> str:
    """Return a number with three significant digits, at most four of them decimals."""
    if value is None:
        return glyphs.absent.rjust(width)
    decimals = 0 if value == 0 else 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), 4)}f}".rjust(width)


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


def line(width: int, *parts: Part) -> Text:
    """Return one line of styled parts, cut to a width."""
    text = Text.assemble(*parts, no_wrap=True, end="")
    text.truncate(width, overflow="ellipsis")
    return text


def flow(parts: Sequence[tuple[str, str]], width: int, lines: int) -> list[Text]:
    """Return parts one after the other in at most so many lines; the rest is omitted."""
    rows: list[list[Part]] = [[]]
    used = 0
    for text, style in parts:
        cells = cell_len(text)
        if used and used + 2 + cells > width:
            if len(rows) == lines:
                break
            rows.append([])
            used = 0
        if used:
            rows[-1].append("  ")
            used += 2
        rows[-1].append((text, style))
        used += cells
    return [line(width, *row) for row in rows if row]


def head(view: View, url: str, problem: str, width: int) -> list[Text]:
    """Return two lines: the board and the time; the state of the sources, or the problem."""

    def sides(left: Sequence[Part], right: str) -> Text:
        text = line(width, *left)
        space = width - text.cell_len - cell_len(right)
        return text.append(" " * space + right, "dim") if space >= 1 else text

    about = view.about
    names = [about.get("module") or about.get("board") or "board not known yet"]
    names += [about[key] for key in ("power_mode", "l4t") if about.get(key)]
    title: list[Part] = [("tegrascope", "bold"), "  " + "  ".join(names)]
    if view.is_simulated:
        title += ["  ", (" SIMULATED ", "black on yellow")]
    at = ""
    if view.sample_seconds is not None:
        at = time.strftime("%H:%M:%S", time.localtime(view.sample_seconds))
    if problem:
        return [sides(title, at), line(width, (problem, "bold red"))]
    states: list[Part] = []
    for name, up in view.sources.items():
        states += [(f"{name} {'up' if up else 'DOWN'}", "" if up else "bold red"), "  "]
    return [sides(title, at), sides(states or [("no telemetry yet", "yellow")], url)]


def load(view: View, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the load of GPU, DLA, EMC, CPU and memory, in one line per unit."""
    cells = max(4, width - 6 - 16)

    def row(name: str, chart: str, text: str, style: str = "green") -> Text:
        return line(width, f"{name:5} ", (chart, style), " ", text)

    lines = []
    for gauge in view.gauges:
        text = f"{_percent(gauge.ratio, glyphs)} {gauge.note or _clock(gauge.hertz):8}"
        if gauge.is_off:
            text = f"{'off':>5} {' ' * 8}"
        ratio = None if gauge.is_off else gauge.ratio
        lines.append(row(gauge.name, bar(ratio, cells, glyphs), text))
    online = [core for core in view.cores if core is not None]
    mean = sum(online) / len(online) if online else None
    # An idle core is shown as the lowest column; only an offline core has none.
    shown = "".join("x" if core is None else _column(core or 1e-9, glyphs) for core in view.cores)
    text = f"{_percent(mean, glyphs)} {_clock(view.cpu_hertz)}"
    lines.append(row("CPU", set_cell_size(shown, cells), text))
    for name, memory in (("RAM", view.memory), ("swap", view.swap)):
        if memory is None:
            lines.append(row(name, " " * cells, _percent(None, glyphs)))
        else:
            used, total = memory
            ratio = used / total if total else 0.0
            text = f"{used / _GIBI:5.1f} / {total / _GIBI:.1f} G"
            style = "green" if ratio < _HIGH else "yellow" if ratio < _HIGHEST else "red"
            lines.append(row(name, bar(ratio, cells, glyphs), text, style))
    return lines


def power(
    view: View, watts: float | None, history: Sequence[float | None], width: int, glyphs: Glyphs
) -> list[Text]:
    """Return the module's power with its last minutes, and each rail, in one line per value.

    Args:
        watts: Mean power of the module since the sample before.
        history: The same of earlier samples, oldest first.
    """
    cells = max(0, width - _RAIL_CELLS - 10)

    def row(name: str, value: float | None, chart: str, style: str) -> Text:
        text = f"{set_cell_size(name, _RAIL_CELLS)}{number(value, 6, glyphs)} W "
        return line(width, (text, style), (chart, "cyan"))

    lines = [row("module", watts, sparkline(history, cells, glyphs), "bold")]
    most = max(view.rails.values(), default=0.0)
    for name, rail in view.rails.items():
        lines.append(row(name, rail, bar(rail / most if most > 0 else 0.0, cells, glyphs), ""))
    if not view.rails:
        lines.append(line(width, ("no rail is reported", "dim")))
    return lines


def power_flow(
    view: View, watts: float | None, history: Sequence[float | None], width: int, glyphs: Glyphs
) -> list[Text]:
    """Return the same in at most three lines, for a narrow window."""
    first = power(view, watts, history, width, glyphs)[0]
    rails = [(f"{name} {rail:.1f} W", "") for name, rail in view.rails.items()]
    return [first, *flow(rails, width, 2)]


def heat(view: View, width: int, glyphs: Glyphs) -> list[Text]:
    """Return zones with the temperature of the board's shutdown, fans and throttling."""
    zones = [_zone(zone) for zone in view.zones] or [("no zone is reported", "dim")]
    fans = [(f"{name} {_percent(ratio, glyphs).strip()}", "") for name, ratio in view.fans.items()]
    throttling = [
        (f"{kind} throttled {count}x", "bold yellow") for kind, count in view.throttling.items()
    ]
    return flow([*fans, *throttling, *zones] if throttling else [*zones, *fans], width, 2)


def _zone(zone: Zone) -> tuple[str, str]:
    if zone.critical_celsius is None:
        return f"{zone.name} {zone.celsius:.1f} °C", ""
    left = zone.critical_celsius - zone.celsius
    style = "bold red" if left <= _AT_CELSIUS else "yellow" if left <= _NEAR_CELSIUS else ""
    return f"{zone.name} {zone.celsius:.1f}/{zone.critical_celsius:.0f} °C", style


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

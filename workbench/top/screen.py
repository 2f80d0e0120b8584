"""The screen: blocks of lines that are never wider than asked for, drawn until a key ends it."""

import contextlib
import math
import os
import select
import signal
import sys
import termios
import textwrap
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...daemon.measure.run_text import ABSENT, digits
from ...daemon.terminal import age
from ...parsers import signals
from ...parsers.errors import UserError
from ...parsers.values import printable
from .client import DaemonClient, ScreenState, gauges_of

Part = str | tuple[str, str] | Text

_HIGH, _HIGHEST = 0.7, 0.9
_NEAR_CELSIUS, _AT_CELSIUS = 20.0, 8.0
# A lowest voltage is shown if it was below this share of the present one.
_DIP = 0.99
_GIBI = 2**30
_RAIL_CELLS = 18
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
_TALLEST = 5
_MEMORIES = (
    ("RAM", signals.RAM_USED, signals.RAM_TOTAL),
    ("swap", signals.SWAP_USED, signals.SWAP_TOTAL),
    ("VRAM", signals.GPU_MEMORY_USED, signals.GPU_MEMORY_TOTAL),
)
_BAD_OUTCOMES = ("failed", "timeout", "skipped")


@dataclass(frozen=True)
class Glyphs:
    """Characters of a terminal, and the charts and numbers that are made of them."""

    eighths: str = " ▁▂▃▄▅▆▇█"
    full: str = "█"
    rest: str = "·"
    more: str = "…"
    absent: str = ABSENT

    def bar(self, ratio: float | None, width: int) -> str:
        """Return a load as a bar, blank if it is unknown.

        >>> ASCII.bar(0.5, 4)
        '##..'
        """
        if ratio is None:
            return " " * width
        full = round(min(max(ratio, 0.0), 1.0) * width)
        return self.full * full + self.rest * (width - full)

    def column(self, ratio: float) -> str:
        """Return a ratio as one character; a value above zero is never blank."""
        return self.eighths[math.ceil(min(max(ratio, 0.0), 1.0) * (len(self.eighths) - 1))]

    def sparkline(self, values: Sequence[float | None], width: int) -> str:
        """Return the last values as columns from zero to their highest, newest at the right.

        >>> ASCII.sparkline([8, None, 4, 8], 5)
        ' # =#'
        """
        shown = list(values)[-width:] if width > 0 else []
        top = max((value for value in shown if value is not None), default=0.0) or 1.0
        cells = (" " if value is None else self.column(value / top) for value in shown)
        return "".join(cells).rjust(width)

    def percent(self, ratio: float | None) -> str:
        """Return a ratio in percent, in five cells."""
        return f"{self.absent:>5}" if ratio is None else f"{ratio * 100:3.0f} %"

    def number(self, value: float | None, width: int) -> str:
        """Return a number with three significant digits, at most four of them decimals."""
        return (self.absent if value is None else digits(value, most=4)).rjust(width)


ASCII = Glyphs(eighths=" .:-=+*%#", full="#", rest=".", more="~", absent="-")


def glyphs_of(encoding: str | None) -> Glyphs:
    """Return the characters that an encoding can represent."""
    return Glyphs() if (encoding or "").lower().replace("-", "").startswith("utf") else ASCII


def draw(
    state: ScreenState, width: int, height: int | None, glyphs: Glyphs, foot: str = ""
) -> list[Text]:
    """Return the lines of a screen of ``width`` cells, or all of them without a height.

    With a height the last line is ``foot``.
    """
    head = _head(state, width)
    lines = []
    heat = _heat(state, width, glyphs)
    if width >= _SIDE_BY_SIDE:
        half = min((width - _GAP) // 2, _WIDEST_BLOCK)
        left, right = _load(state, half, glyphs), _power(state, half, glyphs)
        lines += _side_by_side(left, right, half, width)
    else:
        rails = [(f"{name} {rail:.1f} W", "") for name, rail in state.rails.items()]
        module = _power(state, width, glyphs)[0]
        lines += _load(state, width, glyphs)
        # On a low screen the lines below these are left out first.
        place = len(gauges_of(state.values)) - 1
        lines[place:place] = [module, *heat[:1]]
        heat = heat[1:]
        lines += _flow(rails, width)
    lines += [*heat, *_supply(state, width)]
    lines += [*_processes(state, width), Text(end="")]
    rows = _rows(state, glyphs)
    if height is None:
        return head + lines + _workloads(rows, width, 10_000, glyphs)
    height -= bool(foot)
    # Titles and one workload at least, however low the screen is.
    kept = min(len(rows) + 1, max(3, height // 3))
    lines = head + lines[: max(0, height - len(head) - kept)]
    lines = (lines + _workloads(rows, width, height - len(lines), glyphs))[: max(0, height)]
    lines += _past(state, width, height - len(lines), glyphs)
    if foot:
        lines += [Text(end="")] * (height - len(lines))
        lines.append(_line(width, (foot, "dim")))
    return lines


def _line(width: int, *parts: Part) -> Text:
    """Return one line of styled parts, without control characters, cut to a width."""
    text = Text(no_wrap=True, end="")
    for part in parts:
        if isinstance(part, Text):
            text.append_text(part)
        else:
            words, style = (part, "") if isinstance(part, str) else part
            text.append(printable(words), style)
    text.truncate(width, overflow="ellipsis")
    return text


def _flow(parts: Sequence[tuple[str, str]], width: int) -> list[Text]:
    """Return parts one after the other in at most two lines; the rest is omitted."""
    rows: list[list[Part]] = [[]]
    used = 0
    for text, style in parts:
        cells = cell_len(text)
        if used and used + 2 + cells > width:
            if len(rows) == 2:
                break
            rows.append([])
            used = 0
        if used:
            rows[-1].append("  ")
            used += 2
        rows[-1].append((text, style))
        used += cells
    return [_line(width, *row) for row in rows if row]


def _head(state: ScreenState, width: int) -> list[Text]:
    """Return the board and the time; below, the state of the sources, or the whole problem."""

    def sides(left: Sequence[Part], right: str) -> Text:
        text = _line(width, *left)
        space = width - text.cell_len - cell_len(right)
        return text.append(" " * space + right, "dim") if space >= 1 else text

    board = state.status["board"]
    names = [board["module"] or board["name"] or "board not known yet"]
    names += [board[key] for key in ("power_mode", "l4t") if board[key]]
    title: list[Part] = [("tegrascope", "bold"), "  " + "  ".join(names)]
    if state.status["simulated"]:
        title += ["  ", (" SIMULATED ", "black on yellow")]
    at = ""
    if state.sample_seconds is not None:
        at = time.strftime("%H:%M:%S", time.localtime(state.sample_seconds))
    if state.problem:
        words = textwrap.wrap(state.problem, width, max_lines=3, placeholder=" …")
        return [sides(title, at), *(_line(width, (one, "bold red")) for one in words or [""])]
    sources: list[Part] = []
    for name, up in state.sources.items():
        sources += [(f"{name} {'up' if up else 'DOWN'}", "" if up else "bold red"), "  "]
    return [sides(title, at), sides(sources or [("no telemetry yet", "yellow")], state.url)]


def _load(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the load of GPU, DLA, EMC, CPU and memory, in one line per unit."""
    cells, values = max(4, width - 6 - 16), state.values
    lines: list[Text] = []

    def add(name: str, chart: str, text: str, style: str = "green") -> None:
        lines.append(_line(width, f"{name:5} ", (chart, style), " ", text))

    def clock(hertz: float | None) -> str:
        return " " * 8 if not hertz else f"{hertz / 1e6:4.0f} MHz"

    for gauge in gauges_of(values):
        text = f"{glyphs.percent(gauge.ratio)} {gauge.note or clock(gauge.hertz):8}"
        if gauge.is_off:
            text = f"{'off':>5} {' ' * 8}"
        add(gauge.name, glyphs.bar(None if gauge.is_off else gauge.ratio, cells), text)
    loads = signals.CPU_LOAD.by_label(values)
    cores = {*loads, *signals.CPU_ONLINE.by_label(values)}
    mean = sum(loads.values()) / len(loads) if loads else None
    # An idle core is shown as the lowest column; only an offline core has none.
    shown = "".join(
        glyphs.column(loads[core] or 1e-9) if core in loads else "x"
        for core in sorted(cores, key=lambda core: (len(core), core))
    )
    hertz = max(signals.CPU_FREQUENCY.by_label(values).values(), default=None)
    add("CPU", set_cell_size(shown, cells), f"{glyphs.percent(mean)} {clock(hertz)}")
    for name, *both in _MEMORIES:
        used, total = (values.get(signal.column()) for signal in both)
        if name == "VRAM" and total is None:  # only a desktop or server GPU has its own
            continue
        if used is None or total is None:
            add(name, " " * cells, glyphs.percent(None))
            continue
        ratio = used / total if total else 0.0
        style = "green" if ratio < _HIGH else "yellow" if ratio < _HIGHEST else "red"
        text = f"{used / _GIBI:5.1f} / {total / _GIBI:.1f} G"
        add(name, glyphs.bar(ratio, cells), text, style)
    return lines


def _power(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the module's power with its last minutes, and each rail, in one line per value."""
    cells = max(0, width - _RAIL_CELLS - 10)

    def row(name: str, value: float | None, chart: str, style: str) -> Text:
        text = f"{set_cell_size(name, _RAIL_CELLS)}{glyphs.number(value, 6)} W "
        return _line(width, (text, style), (chart, "cyan"))

    rails = state.rails
    most = max(rails.values(), default=0.0)
    lines = [row("module", state.watts, glyphs.sparkline(state.history, cells), "bold")]
    for name, watts in rails.items():
        lines.append(row(name, watts, glyphs.bar(watts / most if most > 0 else 0.0, cells), ""))
    return lines if rails else [*lines, _line(width, ("no rail is reported", "dim"))]


def _side_by_side(left: list[Text], right: list[Text], half: int, width: int) -> list[Text]:
    """Join two blocks; rails below the left one are only counted."""
    if len(right) > len(left):
        hidden = len(right) - len(left) + 1
        right = [*right[: len(left) - 1], _line(half, (f"and {hidden} more rails", "dim"))]
    right = right + [Text()] * (len(left) - len(right))
    return [
        _line(width, one, " " * (half + _GAP - one.cell_len) if other else "", other)
        for one, other in zip(left, right, strict=True)
    ]


def _heat(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return zones with the temperature of the board's shutdown, fans and throttling."""
    zones = []
    critical = state.status["trips"]
    for name, celsius in sorted(state.zones.items(), key=lambda zone: -zone[1]):
        left = critical.get(name, math.inf) - celsius
        style = "bold red" if left <= _AT_CELSIUS else "yellow" if left <= _NEAR_CELSIUS else ""
        limit = f"/{critical[name]:.4g}" if name in critical else ""
        zones.append((f"{name} {celsius:.1f}{limit} °C", style))
    zones = zones or [("no zone is reported", "dim")]
    speeds = signals.FAN_SPEED.by_label(state.values)
    fans = [(f"{name} {glyphs.percent(ratio).strip()}", "") for name, ratio in speeds.items()]
    throttling = [
        (f"{kind} throttled {count:.0f}x in all", "bold yellow")
        for kind, count in signals.THROTTLE_EVENTS.by_label(state.values).items()
        if count
    ]
    return _flow([*fans, *throttling, *zones] if throttling else [*zones, *fans], width)


def _supply(state: ScreenState, width: int) -> list[Text]:
    """Return the largest free block, and volts and amperes of the rails with a sensor."""
    block = state.values.get(signals.RAM_FREE_BLOCK.column())
    parts = [] if block is None else [(f"largest free block {block / 2**20:.4g} M", "")]
    amperes, limits, lowest = (
        signal.by_label(state.values)
        for signal in (signals.RAIL_AMPERES, signals.RAIL_LIMIT_WARNING, signals.RAIL_LOWEST_VOLTS)
    )
    for rail, volts in signals.RAIL_VOLTS.by_label(state.values).items():
        current = f" {amperes[rail]:.2f} A" if rail in amperes else ""
        is_near = amperes.get(rail, 0.0) >= _HIGHEST * limits.get(rail, math.inf)
        has_dipped = lowest.get(rail, volts) < _DIP * volts
        least = f" (lowest {lowest[rail]:.2f})" if has_dipped else ""
        parts.append((f"{rail} {volts:.2f} V{least}{current}", "yellow" if is_near else ""))
    return _flow(parts, width)


def _processes(state: ScreenState, width: int) -> list[Text]:
    """Return the processes with the most CPU time, then those with the most GPU memory.

    There are none if the daemon does not read them.
    """
    used = [one for one in state.status["processes"] if "cores" in one]
    on_gpu = signals.PROCESS_GPU_MEMORY.by_label(state.values)
    words = {
        one["name"]: f"{one['cores']:.2f} cores {(one['memory_bytes'] or 0) / 2**20:.0f} M"
        for one in sorted(used, key=lambda one: (-one["cores"], one["name"]))
    }
    for name, size in sorted(on_gpu.items(), key=lambda one: (-one[1], one[0])):
        words[name] = f"{words.get(name, '')} GPU {size / 2**20:.0f} M".lstrip()
    parts = [(f"{name} {each}", "") for name, each in words.items()]
    return _flow(parts, width) if parts else []


def _past(state: ScreenState, width: int, lines: int, glyphs: Glyphs) -> list[Text]:
    """Return charts of the last minutes for the free lines below the workloads, or none."""
    units = ("GPU", "DLA", "EMC", "hot")
    named = sorted(state.past.items(), key=lambda pair: (units.index(pair[0][:3]), pair[0]))
    shown = {name: values for name, values in named if any(values)}
    tall = min(_TALLEST, (lines - 1) // len(shown) - 1) if shown else 0
    if tall < 1:
        return []
    made = [Text(end="")]
    for name, values in shown.items():
        known = [value for value in values if value is not None]
        low, high = (0.0, 1.0) if name.endswith("%") else (min(known) - 1, max(known))
        unit = 100 if name.endswith("%") else 1
        words = f"{name}  now {digits(known[-1] * unit)}, highest {digits(max(known) * unit)}"
        made.append(_line(width, (words, "dim")))
        ratios = [None if v is None else (v - low) / (high - low) for v in values[-width:]]
        for row in reversed(range(tall)):
            cells = (
                " " if r is None or r * tall <= row else glyphs.column(r * tall - row)
                for r in ratios
            )
            made.append(_line(width, ("".join(cells).rjust(width), "cyan")))
    return made


@dataclass(frozen=True)
class _Row:
    """One workload: its cells by their title, and a note below them."""

    name: str
    cells: Mapping[str, str]
    style: str
    note: str


def _rows(state: ScreenState, glyphs: Glyphs) -> list[_Row]:
    """Return workloads with the results of their last good runs.

    Failing ones come first, then those in flight: a low screen shows one or two.
    """
    latest = {run["workload"]: run for run in reversed(state.runs)}
    rows: list[tuple[tuple[bool, bool, float], _Row]] = []
    for one in state.status["workloads"]:
        good, active = one["last_good"] or {}, one["active_run"]
        run = latest.get(one["workload"], {})
        is_bad = run.get("outcome") in _BAD_OUTCOMES
        notes = list(good.get("quality", ()))
        if good.get("joules_per_unit") is not None:
            notes.insert(0, f"{good['joules_per_unit']:.3g} J per {good['unit']}")
        if one["misses"]:
            notes.insert(0, f"{one['misses']} missed {one['deadline_seconds'] * 1e3:.4g} ms")
        if is_bad:
            notes = [f"{run['outcome']}: {run['reason'] or 'no reason given'}"]
        last = glyphs.absent
        if active:
            last = "running"
        elif is_bad:
            last = run["outcome"]
        elif good:
            last = age(state.now_seconds - good["ended"])
        p50, p99 = (
            seconds and seconds * 1e3 for seconds in map(good.get, ("p50_seconds", "p99_seconds"))
        )
        numbers = {
            "p50 ms": p50,
            "p99 ms": p99,
            "per s": good.get("throughput_per_second"),
            "J each": good.get("gross_joules_per_inference"),
            "J net": good.get("net_joules_per_inference"),
        }
        cells = {
            "device": one["device"],
            "last run": last.rjust(9),
            "good": f"{one['runs'].get('ok', 0)}/{sum(one['runs'].values())}".rjust(8),
            **{title: glyphs.number(number, 7) for title, number in numbers.items()},
        }
        style = "bold green" if active else "red" if is_bad else ""
        row = _Row(one["workload"], cells, style, "  ".join(notes))
        rows.append(((not is_bad, not active, -good.get("ended", 0.0)), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _workloads(rows: Sequence[_Row], width: int, lines: int, glyphs: Glyphs) -> list[Text]:
    if lines <= 0:
        return []
    if not rows:
        return [_line(width, ("no workload is configured", "dim"))]
    columns = list(_COLUMNS)
    while columns and _LEAST_NAME + sum(cells + 1 for _, cells, _ in columns) > width:
        columns.remove(max(columns, key=lambda column: column[2]))
    name_cells = width - sum(cells + 1 for _, cells, _ in columns)
    name_cells = min(_MOST_NAME, max(_LEAST_NAME, name_cells))
    titles = [
        title.ljust(cells) if title == "device" else title.rjust(cells)
        for title, cells, _ in columns
    ]
    made = [_line(width, (" ".join([set_cell_size("workload", name_cells), *titles]), "dim"))]
    shows_notes = len(rows) + sum(bool(row.note) for row in rows) < lines
    for index, row in enumerate(rows):
        left = len(rows) - index
        if lines - len(made) <= 1 and left > 1:
            made.append(_line(width, (f"{glyphs.more} {left} more workloads", "dim")))
            break
        shown = " ".join(set_cell_size(row.cells[title], size) for title, size, _ in columns)
        made.append(_line(width, (set_cell_size(row.name, name_cells), row.style), " ", shown))
        if row.note and shows_notes:
            made.append(_line(width, (f"  {row.note}", "yellow")))
    return made[:lines]


@dataclass
class _Poller:
    """Asks again and again in a thread, so that a slow daemon does not delay a key."""

    client: DaemonClient
    state: ScreenState
    interval_seconds: float
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        answer, wall_seconds, seconds = self.state, time.time(), time.monotonic()
        while not self.stopping.wait(self.interval_seconds):
            try:
                self.state = answer = self.client.ask()
                wall_seconds, seconds = time.time(), time.monotonic()
                continue
            except UserError as error:
                problem = error.message
            except Exception as error:  # an answer of another program
                problem = f"{self.client.url} does not answer as a daemon does ({error!r})"
            since = time.strftime("%H:%M:%S", time.localtime(wall_seconds))
            now = answer.now_seconds + time.monotonic() - seconds
            problem = f"stale since {since}: {problem}"
            self.state = replace(answer, now_seconds=now, problem=problem)


def watch(
    client: DaemonClient,
    first: ScreenState,
    interval_seconds: float,
    console: Console,
    glyphs: Glyphs,
) -> None:
    """Show the screen until ``q``, Ctrl-C or the end of the terminal."""
    poller = _Poller(client, first, interval_seconds)
    ended = threading.Event()

    def end(*_: object) -> None:
        # An exception could be raised inside a finaliser, which would lose it. A second signal may
        # have to interrupt a terminal that does not take the output.
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    shown: tuple[object, ...] = ()
    try:
        with _single_keys() as wait, Live(console=console, screen=True, auto_refresh=False) as live:
            threading.Thread(target=poller.run, name="poller", daemon=True).start()
            typed = ""
            while "q" not in typed.lower() and not ended.is_set():
                state = poller.state
                if shown != (state, console.size):
                    shown = state, console.size
                    lines = draw(state, console.width, console.height, glyphs, "q quits")
                    live.update(Text("\n").join(lines), refresh=True)
                typed = wait(0.1)
    except KeyboardInterrupt:
        pass
    finally:
        poller.stopping.set()


@contextlib.contextmanager
def _single_keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for some seconds and returns the keys typed meanwhile.

    Keys have no echo. The terminal is restored at the end. Without one, no key comes.
    """
    try:
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):
        yield lambda seconds: _read([], seconds)
        return
    try:
        tty.setcbreak(number)
        modes = termios.tcgetattr(number)
        # A suspended screen would leave the shell on a page without a cursor.
        modes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(number, termios.TCSANOW, modes)
        yield lambda seconds: _read([number], seconds)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _read(numbers: list[int], seconds: float) -> str:
    ready, _, _ = select.select(numbers, [], [], seconds)
    if not ready:
        return ""
    typed = os.read(ready[0], 64)
    # The end of input is the end of the terminal.
    return typed.decode(errors="replace") if typed else "q"

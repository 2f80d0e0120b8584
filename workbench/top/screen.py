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
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ...daemon.measure.run_text import ABSENT, digits
from ...daemon.terminal import age
from ...parsers import signals
from ...parsers.errors import UserError
from ...parsers.values import printable
from .client import DaemonClient, Gauge, ScreenState, Values, gauges_of

Part = str | tuple[str, str] | Text

_HIGH, _HIGHEST = 0.7, 0.9
_NEAR_CELSIUS, _AT_CELSIUS = 20.0, 8.0
# A lowest voltage is shown if it was below this share of the present one.
_DIP = 0.99
_GIBI = 2**30
_RAIL_CELLS = 18


class _Column(NamedTuple):
    """A column of the table of workloads; on a narrow screen the highest rank goes first."""

    title: str
    cells: int
    rank: int
    align: str = ">"

    @property
    def width(self) -> int:
        """Its cells and the space before them."""
        return self.cells + 1


_COLUMNS = (
    _Column("device", 6, rank=0, align="<"),
    _Column("last run", 9, rank=0),
    _Column("p50 ms", 7, rank=0),
    _Column("p99 ms", 7, rank=3),
    _Column("per s", 7, rank=2),
    _Column("J each", 7, rank=0),
    _Column("J net", 7, rank=4),
    _Column("good", 8, rank=1),
)
_LEAST_NAME, _MOST_NAME = 18, 40
_SIDE_BY_SIDE = 76
_GAP = 2
_WIDEST_BLOCK = 80
_MEMORIES = (
    ("RAM", signals.RAM_USED, signals.RAM_TOTAL),
    ("swap", signals.SWAP_USED, signals.SWAP_TOTAL),
    ("VRAM", signals.GPU_MEMORY_USED, signals.GPU_MEMORY_TOTAL),
)
# Numbers of the last good run: title of the column, key, and factor to the unit of the title.
_NUMBERS = (
    ("p50 ms", "p50_seconds", 1e3),
    ("p99 ms", "p99_seconds", 1e3),
    ("per s", "throughput_per_second", 1),
    ("J each", "gross_joules_per_inference", 1),
    ("J net", "net_joules_per_inference", 1),
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

    def percent(self, ratio: float | None) -> str:
        """Return a ratio in percent, in five cells."""
        if ratio is None:
            return f"{self.absent:>5}"
        return f"{ratio * 100:3.0f} %"

    def number(self, value: float | None, width: int) -> str:
        """Return a number with three significant digits, at most four of them decimals."""
        text = self.absent if value is None else digits(value, most=4)
        return text.rjust(width)


ASCII = Glyphs(eighths=" .:-=+*%#", full="#", rest=".", more="~", absent="-")


def glyphs_of(encoding: str | None) -> Glyphs:
    """Return the characters that an encoding can represent."""
    name = (encoding or "").lower().replace("-", "")
    return Glyphs() if name.startswith("utf") else ASCII


def draw(
    state: ScreenState, width: int, height: int | None, glyphs: Glyphs, foot: str = ""
) -> list[Text]:
    """Return the lines of a screen of ``width`` cells, or all of them without a height.

    With a height the last line is ``foot``.
    """
    head = _head(state, width)
    blocks = _blocks(state, width, glyphs)
    rows = _rows(state, glyphs)
    if height is None:
        return head + blocks + _workloads(rows, width, 10_000, glyphs)
    height -= bool(foot)
    # Titles and one workload at least, however low the screen is.
    workload_lines = min(len(rows) + 1, max(3, height // 3))
    lines = head + blocks[: max(0, height - len(head) - workload_lines)]
    lines = (lines + _workloads(rows, width, height - len(lines), glyphs))[: max(0, height)]
    if foot:
        lines += [Text(end="")] * (height - len(lines))
        lines.append(_line(width, (foot, "dim")))
    return lines


def _blocks(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the lines between head and workloads; a low screen leaves the last ones out."""
    heat = _heat(state, width, glyphs)
    if width >= _SIDE_BY_SIDE:
        half = min((width - _GAP) // 2, _WIDEST_BLOCK)
        left, right = _load(state, half, glyphs), _power(state, half, glyphs)
        lines = _side_by_side(left, right, half, width)
    else:
        lines = _load(state, width, glyphs)
        module = _power(state, width, glyphs)[0]
        # Power and heat are of more use on a low screen than EMC, CPU and memory below them.
        emc = len(gauges_of(state.values)) - 1
        lines[emc:emc] = [module, *heat[:1]]
        heat = heat[1:]
        rails = []
        for name, watts in state.rails.items():
            rails.append((f"{name} {watts:.1f} W", ""))
        lines += _flow(rails, width)
    return [*lines, *heat, *_supply(state, width), *_processes(state, width), Text(end="")]


def _line(width: int, *parts: Part) -> Text:
    """Return one line of styled parts, without control characters, cut to a width."""
    text = Text(no_wrap=True, end="")
    for part in parts:
        if isinstance(part, Text):
            text.append_text(part)
        elif isinstance(part, str):
            text.append(printable(part))
        else:
            words, style = part
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
    board = state.status["board"]
    names = [board["module"] or board["name"] or "board not known yet"]
    for key in ("power_mode", "l4t"):
        if board[key]:
            names.append(board[key])
    title: list[Part] = [("tegrascope", "bold"), "  " + "  ".join(names)]
    if state.status["simulated"]:
        title += ["  ", (" SIMULATED ", "black on yellow")]
    clock = ""
    if state.sample_seconds is not None:
        clock = time.strftime("%H:%M:%S", time.localtime(state.sample_seconds))
    lines = [_sides(title, clock, width)]
    if state.problem:
        words = textwrap.wrap(state.problem, width, max_lines=3, placeholder=" …")
        return lines + [_line(width, (line, "bold red")) for line in words or [""]]
    sources: list[Part] = []
    for name, is_up in state.sources.items():
        if is_up:
            sources += [f"{name} up", "  "]
        else:
            sources += [(f"{name} DOWN", "bold red"), "  "]
    return [*lines, _sides(sources or [("no telemetry yet", "yellow")], state.url, width)]


def _sides(left: Sequence[Part], right: str, width: int) -> Text:
    """Return a line with a text at its right end, unless that has no space."""
    text = _line(width, *left)
    space = width - text.cell_len - cell_len(right)
    if space >= 1:
        text.append(" " * space + right, "dim")
    return text


class _Bar(NamedTuple):
    """One unit of the load: its name, a chart of fixed width, and the numbers behind it."""

    name: str
    chart: str
    text: str
    style: str = "green"


def _load(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the load of GPU, DLA, EMC, CPU and memory, in one line per unit."""
    cells = max(4, width - 6 - 16)
    bars = [_gauge_bar(gauge, cells, glyphs) for gauge in gauges_of(state.values)]
    bars += [_cpu_bar(state.values, cells, glyphs), *_memory_bars(state.values, cells, glyphs)]
    lines = []
    for bar in bars:
        lines.append(_line(width, f"{bar.name:5} ", (bar.chart, bar.style), " ", bar.text))
    return lines


def _gauge_bar(gauge: Gauge, cells: int, glyphs: Glyphs) -> _Bar:
    if gauge.is_off:
        return _Bar(gauge.name, glyphs.bar(None, cells), f"{'idle':>5} {' ' * 8}")
    numbers = f"{glyphs.percent(gauge.ratio)} {gauge.note or _clock(gauge.hertz):8}"
    return _Bar(gauge.name, glyphs.bar(gauge.ratio, cells), numbers)


def _cpu_bar(values: Values, cells: int, glyphs: Glyphs) -> _Bar:
    """Return one column per core, the mean load and the highest clock."""
    loads = signals.CPU_LOAD.by_label(values)
    cores = {*loads, *signals.CPU_ONLINE.by_label(values)}
    chart = ""
    for core in sorted(cores, key=lambda core: (len(core), core)):
        if core in loads:
            # An idle core is the lowest column, so that no core looks as if it were absent.
            chart += glyphs.column(loads[core] or 1e-9)
        else:
            chart += "x"  # offline
    mean = sum(loads.values()) / len(loads) if loads else None
    hertz = max(signals.CPU_FREQUENCY.by_label(values).values(), default=None)
    return _Bar("CPU", set_cell_size(chart, cells), f"{glyphs.percent(mean)} {_clock(hertz)}")


def _clock(hertz: float | None) -> str:
    if not hertz:
        return " " * 8
    return f"{hertz / 1e6:4.0f} MHz"


def _memory_bars(values: Values, cells: int, glyphs: Glyphs) -> list[_Bar]:
    bars = []
    for name, used_signal, total_signal in _MEMORIES:
        used, total = values.get(used_signal.column()), values.get(total_signal.column())
        if name == "VRAM" and total is None:  # only a desktop or server GPU has its own
            continue
        if used is None or total is None:
            bars.append(_Bar(name, " " * cells, glyphs.percent(None)))
            continue
        ratio = used / total if total else 0.0  # a board without swap has 0 of 0
        text = f"{used / _GIBI:5.1f} / {total / _GIBI:.1f} G"
        bars.append(_Bar(name, glyphs.bar(ratio, cells), text, _memory_style(ratio)))
    return bars


def _memory_style(ratio: float) -> str:
    if ratio >= _HIGHEST:
        return "red"
    return "yellow" if ratio >= _HIGH else "green"


def _power(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the power of the module and of each rail, in one line per value."""
    cells = max(0, width - _RAIL_CELLS - 10)
    rows = [("module", state.watts, "", "bold")]
    most = max(state.rails.values(), default=0.0)
    for name, watts in state.rails.items():
        ratio = watts / most if most > 0 else 0.0
        rows.append((name, watts, glyphs.bar(ratio, cells), ""))
    lines = []
    for name, power, chart, style in rows:
        text = f"{set_cell_size(name, _RAIL_CELLS)}{glyphs.number(power, 6)} W "
        lines.append(_line(width, (text, style), (chart, "cyan")))
    if not state.rails:
        lines.append(_line(width, ("no rail is reported", "dim")))
    return lines


def _side_by_side(left: list[Text], right: list[Text], half: int, width: int) -> list[Text]:
    """Join two blocks; rails below the left one are only counted."""
    if len(right) > len(left):
        hidden = len(right) - len(left) + 1
        right = [*right[: len(left) - 1], _line(half, (f"and {hidden} more rails", "dim"))]
    right = right + [Text()] * (len(left) - len(right))
    lines = []
    for left_line, right_line in zip(left, right, strict=True):
        gap = ""
        if right_line:
            gap = " " * (half + _GAP - left_line.cell_len)
        lines.append(_line(width, left_line, gap, right_line))
    return lines


def _heat(state: ScreenState, width: int, glyphs: Glyphs) -> list[Text]:
    """Return zones with the temperature of the board's shutdown, fans and throttling."""
    zones = []
    trips = state.status["trips"]
    for name, celsius in sorted(state.zones.items(), key=lambda zone: -zone[1]):
        text = f"{name} {celsius:.1f}"
        if name in trips:
            text += f"/{trips[name]:.4g}"
        zones.append((f"{text} °C", _heat_style(trips.get(name, math.inf) - celsius)))
    zones = zones or [("no zone is reported", "dim")]
    fans = []
    for name, ratio in signals.FAN_SPEED.by_label(state.values).items():
        fans.append((f"{name} {glyphs.percent(ratio).strip()}", ""))
    throttling = []
    for kind, count in signals.THROTTLE_EVENTS.by_label(state.values).items():
        if count:
            throttling.append((f"{kind} throttled {count:.0f}x in all", "bold yellow"))
    if throttling:  # A narrow screen leaves the last parts out, and this one must be seen.
        return _flow([*fans, *throttling, *zones], width)
    return _flow([*zones, *fans], width)


def _heat_style(celsius_left: float) -> str:
    """Return the style of a temperature that is so far below the board's shutdown."""
    if celsius_left <= _AT_CELSIUS:
        return "bold red"
    return "yellow" if celsius_left <= _NEAR_CELSIUS else ""


def _supply(state: ScreenState, width: int) -> list[Text]:
    """Return the largest free block, and volts and amperes of the rails with a sensor."""
    values = state.values
    parts = []
    block = values.get(signals.RAM_FREE_BLOCK.column())
    if block is not None:
        parts.append((f"largest free block {block / 2**20:.4g} M", ""))
    amperes = signals.RAIL_AMPERES.by_label(values)
    limits = signals.RAIL_LIMIT_WARNING.by_label(values)
    lowest = signals.RAIL_LOWEST_VOLTS.by_label(values)
    for rail, volts in signals.RAIL_VOLTS.by_label(values).items():
        text = f"{rail} {volts:.2f} V"
        if lowest.get(rail, volts) < _DIP * volts:
            text += f" (lowest {lowest[rail]:.2f})"
        if rail in amperes:
            text += f" {amperes[rail]:.2f} A"
        is_near_limit = amperes.get(rail, 0.0) >= _HIGHEST * limits.get(rail, math.inf)
        style = "yellow" if is_near_limit else ""
        parts.append((text, style))
    return _flow(parts, width)


def _processes(state: ScreenState, width: int) -> list[Text]:
    """Return the processes with the most CPU time, then those with the most GPU memory.

    There are none if the daemon does not read them.
    """
    processes = [process for process in state.status["processes"] if "cores" in process]
    words: dict[str, str] = {}
    for process in sorted(processes, key=lambda process: (-process["cores"], process["name"])):
        memory_bytes = process["memory_bytes"] or 0
        words[process["name"]] = f"{process['cores']:.2f} cores {memory_bytes / 2**20:.0f} M"
    on_gpu = signals.PROCESS_GPU_MEMORY.by_label(state.values)
    for name, size in sorted(on_gpu.items(), key=lambda entry: (-entry[1], entry[0])):
        words[name] = f"{words.get(name, '')} GPU {size / 2**20:.0f} M".lstrip()
    parts = []
    for name, text in words.items():
        parts.append((f"{name} {text}", ""))
    return _flow(parts, width)


@dataclass(frozen=True)
class _Row:
    """One workload: its cells by their title, a note below them, and its place in the order."""

    name: str
    cells: Mapping[str, str]
    style: str
    note: str
    rank: tuple[bool, bool, float]


def _rows(state: ScreenState, glyphs: Glyphs) -> list[_Row]:
    """Return workloads with the results of their last good runs.

    Failing ones come first, then those in flight: a low screen shows one or two.
    """
    latest_runs = {run["workload"]: run for run in reversed(state.runs)}
    rows = []
    for workload in state.status["workloads"]:
        run = latest_runs.get(workload["workload"], {})
        rows.append(_row(workload, run, state.now_seconds, glyphs))
    return sorted(rows, key=lambda row: row.rank)


def _row(
    workload: Mapping[str, Any], run: Mapping[str, Any], now_seconds: float, glyphs: Glyphs
) -> _Row:
    """Return the row of a workload, of which ``run`` is the latest."""
    good = workload["last_good"] or {}
    is_bad = run.get("outcome") in _BAD_OUTCOMES
    style = ""
    last = glyphs.absent
    if workload["active_run"]:
        last, style = "running", "bold green"
    elif is_bad:
        last, style = run["outcome"], "red"
    elif good:
        last = age(now_seconds - good["ended"])
    cells = {
        "device": workload["device"],
        "last run": last.rjust(9),
        "good": f"{workload['runs'].get('ok', 0)}/{sum(workload['runs'].values())}".rjust(8),
    }
    for title, key, factor in _NUMBERS:
        number = good.get(key)
        if number is not None:
            number *= factor
        cells[title] = glyphs.number(number, 7)
    note = "  ".join(_notes(workload, good))
    if is_bad:
        note = f"{run['outcome']}: {run['reason'] or 'no reason given'}"
    rank = (not is_bad, not workload["active_run"], -good.get("ended", 0.0))
    return _Row(workload["workload"], cells, style, note, rank)


def _notes(workload: Mapping[str, Any], good: Mapping[str, Any]) -> list[str]:
    """Return misses of the deadline, energy per unit, and quality of the last good run."""
    notes = []
    if workload["misses"]:
        deadline_ms = workload["deadline_seconds"] * 1e3
        notes.append(f"{workload['misses']} missed {deadline_ms:.4g} ms")
    if good.get("joules_per_unit") is not None:
        notes.append(f"{good['joules_per_unit']:.3g} J gross per {good['unit']}")
    return [*notes, *good.get("quality", ())]


def _workloads(rows: Sequence[_Row], width: int, lines: int, glyphs: Glyphs) -> list[Text]:
    if lines <= 0:
        return []
    if not rows:
        return [_line(width, ("no workload is configured", "dim"))]
    columns, name_cells = _columns_within(width)
    titles = [set_cell_size("workload", name_cells)]
    for column in columns:
        titles.append(f"{column.title:{column.align}{column.cells}}")
    table = [_line(width, (" ".join(titles), "dim"))]
    notes = [row.note for row in rows if row.note]
    shows_notes = len(rows) + len(notes) < lines
    for index, row in enumerate(rows):
        left = len(rows) - index
        if lines - len(table) <= 1 and left > 1:
            table.append(_line(width, (f"{glyphs.more} {left} more workloads", "dim")))
            break
        cells = [set_cell_size(row.cells[column.title], column.cells) for column in columns]
        name = set_cell_size(row.name, name_cells)
        table.append(_line(width, (name, row.style), " ", " ".join(cells)))
        if row.note and shows_notes:
            table.append(_line(width, (f"  {row.note}", "yellow")))
    return table[:lines]


def _columns_within(width: int) -> tuple[list[_Column], int]:
    """Return the columns that a width has space for, and the cells that are left for the name."""
    columns = list(_COLUMNS)
    name_cells = width - sum(column.width for column in columns)
    while columns and name_cells < _LEAST_NAME:
        dispensable = max(columns, key=lambda column: column.rank)
        columns.remove(dispensable)
        name_cells += dispensable.width
    return columns, min(_MOST_NAME, max(_LEAST_NAME, name_cells))


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
    return typed.decode(errors="replace") or "q"

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

from ...parsers.errors import UserError
from ..terminal import ABSENT, age, digits
from .client import DaemonClient, ScreenState, Series, clean

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
    if width >= _SIDE_BY_SIDE:
        half = min((width - _GAP) // 2, _WIDEST_BLOCK)
        left, right = _load(state.page, half, glyphs), _power(state, half, glyphs)
        lines += _side_by_side(left, right, half, width)
    else:
        rails = [(f"{name} {rail:.1f} W", "") for name, rail in state.page.rails.items()]
        module = _power(state, width, glyphs)[0]
        lines += _load(state.page, width, glyphs)
        # On a low screen the lines below these are left out first.
        lines.insert(len(state.page.gauges) - 1, module)
        lines += _flow(rails, width)
    lines += [*_heat(state.page, width, glyphs), *_supply(state.page, width)]
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
    """Return one line of styled parts, cut to a width."""
    text = Text.assemble(*parts, no_wrap=True, end="")
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

    page = state.page
    about = next((labels for labels, _ in page.all("tegra_info")), {})
    names = [about.get("module") or about.get("board") or "board not known yet"]
    names += [about[key] for key in ("power_mode", "l4t") if about.get(key)]
    title: list[Part] = [("tegrascope", "bold"), "  " + "  ".join(names)]
    if about.get("simulated") == "true":
        title += ["  ", (" SIMULATED ", "black on yellow")]
    at = ""
    if page.sample_seconds is not None:
        at = time.strftime("%H:%M:%S", time.localtime(page.sample_seconds))
    if state.problem:
        words = textwrap.wrap(state.problem, width, max_lines=3, placeholder=" …")
        return [sides(title, at), *(_line(width, (one, "bold red")) for one in words or [""])]
    sources: list[Part] = []
    for name, up in page.sources.items():
        sources += [(f"{name} {'up' if up else 'DOWN'}", "" if up else "bold red"), "  "]
    return [sides(title, at), sides(sources or [("no telemetry yet", "yellow")], state.url)]


def _load(page: Series, width: int, glyphs: Glyphs) -> list[Text]:
    """Return the load of GPU, DLA, EMC, CPU and memory, in one line per unit."""
    cells = max(4, width - 6 - 16)
    lines: list[Text] = []

    def add(name: str, chart: str, text: str, style: str = "green") -> None:
        lines.append(_line(width, f"{name:5} ", (chart, style), " ", text))

    def clock(hertz: float | None) -> str:
        return " " * 8 if not hertz else f"{hertz / 1e6:4.0f} MHz"

    for gauge in page.gauges:
        text = f"{glyphs.percent(gauge.ratio)} {gauge.note or clock(gauge.hertz):8}"
        if gauge.is_off:
            text = f"{'off':>5} {' ' * 8}"
        add(gauge.name, glyphs.bar(None if gauge.is_off else gauge.ratio, cells), text)
    loads = page.by("tegra_cpu_utilization_ratio", "core")
    cores = {*loads, *page.by("tegra_cpu_online", "core")}
    mean = sum(loads.values()) / len(loads) if loads else None
    # An idle core is shown as the lowest column; only an offline core has none.
    shown = "".join(
        glyphs.column(loads[core] or 1e-9) if core in loads else "x"
        for core in sorted(cores, key=lambda core: (len(core), core))
    )
    hertz = max(page.by("tegra_cpu_frequency_hertz", "core").values(), default=None)
    add("CPU", set_cell_size(shown, cells), f"{glyphs.percent(mean)} {clock(hertz)}")
    memories = [("RAM", "tegra_ram"), ("swap", "tegra_swap"), ("VRAM", "tegra_gpu_memory")]
    for name, key in memories:
        used, total = (page.value(f"{key}_{kind}_bytes") for kind in ("used", "total"))
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

    rails = state.page.rails
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


def _heat(page: Series, width: int, glyphs: Glyphs) -> list[Text]:
    """Return zones with the temperature of the board's shutdown, fans and throttling."""
    zones = []
    critical = page.by("tegra_temperature_trip_celsius", "zone", kind="critical")
    for name, celsius in sorted(page.zones.items(), key=lambda zone: -zone[1]):
        left = critical.get(name, math.inf) - celsius
        style = "bold red" if left <= _AT_CELSIUS else "yellow" if left <= _NEAR_CELSIUS else ""
        limit = f"/{critical[name]:.0f}" if name in critical else ""
        zones.append((f"{name} {celsius:.1f}{limit} °C", style))
    zones = zones or [("no zone is reported", "dim")]
    speeds = page.by("tegra_fan_speed_ratio", "fan")
    fans = [(f"{name} {glyphs.percent(ratio).strip()}", "") for name, ratio in speeds.items()]
    throttling = [
        (f"{kind} throttled {count:.0f}x in all", "bold yellow")
        for kind, count in page.by("tegra_throttle_events_total", "kind").items()
        if count
    ]
    return _flow([*fans, *throttling, *zones] if throttling else [*zones, *fans], width)


def _supply(page: Series, width: int) -> list[Text]:
    """Return the largest free block, and volts and amperes of the rails with a sensor."""
    block = page.value("tegra_ram_largest_free_block_bytes")
    parts = [] if block is None else [(f"largest free block {block / 2**20:.4g} M", "")]
    amperes = page.by("tegra_rail_amperes", "rail")
    limits = page.by("tegra_rail_limit_amperes", "rail", kind="warning")
    lowest = page.by("tegra_rail_lowest_volts", "rail")
    for rail, volts in page.by("tegra_rail_volts", "rail").items():
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
    memory = state.page.by("tegra_process_resident_memory_bytes", "process")
    on_gpu = state.page.by("tegra_process_gpu_memory_bytes", "process")
    words = {
        name: f"{cores:.2f} cores {memory.get(name, 0.0) / 2**20:.0f} M"
        for name, cores in sorted(state.processes.items(), key=lambda one: (-one[1], one[0]))
    }
    for name, used in sorted(on_gpu.items(), key=lambda one: (-one[1], one[0])):
        words[name] = f"{words.get(name, '')} GPU {used / 2**20:.0f} M".lstrip()
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
    """Return workloads with the results of their last good runs, those in flight first."""
    page, prefix = state.page, "tegra_inference_last_run"
    latest = {run.get("workload"): run for run in reversed(state.runs)}
    rows: list[tuple[tuple[bool, float], _Row]] = []
    for labels, active in page.all("tegra_inference_run_active"):
        of = {key: labels.get(key, "") for key in ("workload", "device")}
        outcomes = page.by("tegra_inference_runs_total", "outcome", **of)
        joules = page.by(f"{prefix}_energy_joules_per_inference", "kind", **of)
        latency = page.by(f"{prefix}_latency_seconds", "quantile", **of)
        finished_seconds = page.value(f"{prefix}_timestamp_seconds", **of)
        run = latest.get(of["workload"], {})
        is_bad = run.get("outcome") in _BAD_OUTCOMES
        # The flag of a simulation is shown once, above.
        flags = page.by("tegra_inference_quality_flag", "flag", **of)
        note = "  ".join(flag for flag in flags if flag != "simulated")
        joules_each = f"{prefix}_energy_joules_per_unit"
        for labels, each in page.all(joules_each, kind="gross", **of):
            note = f"{each:.3g} J per {labels['unit']}  {note}".rstrip()
        missed = page.value("tegra_inference_deadline_misses_total", **of)
        if missed:
            limit = page.value("tegra_inference_deadline_seconds", **of) or 0.0
            note = f"{missed:.0f} missed {limit * 1e3:.4g} ms  {note}".rstrip()
        if is_bad:
            note = clean(f"{run['outcome']}: {run.get('reason') or 'no reason given'}")
        last = glyphs.absent
        if active:
            last = "running"
        elif is_bad:
            last = run["outcome"]
        elif finished_seconds is not None:
            last = age(state.now_seconds - finished_seconds)
        p50, p99 = (one and one * 1e3 for one in map(latency.get, ("0.5", "0.99")))
        numbers = {
            "p50 ms": p50,
            "p99 ms": p99,
            "per s": page.value(f"{prefix}_throughput_per_second", **of),
            "J each": joules.get("gross"),
            "J net": joules.get("net"),
        }
        cells = {
            "device": of["device"],
            "last run": last.rjust(9),
            "good": f"{outcomes.get('ok', 0):.0f}/{sum(outcomes.values()):.0f}".rjust(8),
            **{title: glyphs.number(number, 7) for title, number in numbers.items()},
        }
        style = "bold green" if active else "red" if is_bad else ""
        row = _Row(of["workload"], cells, style, note)
        rows.append(((not active, -(finished_seconds or 0.0)), row))
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

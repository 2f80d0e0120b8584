"""Checks of beliefs about the DLA: its driver, firmware, trace, and a model at work on it."""

import re

from .belief import (
    BeliefCheck,
    Checks,
    Decision,
    Evidence,
    Unseen,
    decide,
    listed,
    not_here,
    refuted,
    undecided,
)
from .telemetry import samples

CHECKS = Checks()

_COUNTER_MHZ = 31.25
_FIELDS = {
    "job_submit": ("class", "id", "fences", "ts"),
    "job_timestamps": ("job_id", "begin", "end"),
}
_PERCENT = re.compile(r"(?:100|\d{1,2})\.\d{4}")
_R36 = 36
_BUSY_OF_ROUND = r"bench\..*utilization\.dla0:ftrace\.mean_ratio$"


def _release(board: Evidence, least: int = 0) -> int:
    """Return the release, or raise ``Unseen`` for an unknown or an earlier one."""
    major = re.match(r"\d+", board.value("^l4t$") or "")
    if major is None or int(major[0]) < least:
        raise Unseen(not_here("this is believed of Jetson Linux", "use JetPack 6 or 7"))
    return int(major[0])


@CHECKS.needs("board", "load")
def active_dla_prints_load(board: Evidence, load: Evidence) -> Decision:
    """A line of tegrastats has a load of the core that works."""
    _release(board, _R36)
    cores, loads = 0, []
    for sample in samples(Evidence(lines=tuple(load.texts("^line$")))):
        cores += len(sample.dla)
        for dla in sample.dla:
            if dla.utilization_ratio is not None:
                loads.append(dla.utilization_ratio)
    if not cores:
        return undecided("no line has a DLA: tegrastats has to run as root")
    return decide(any(loads), f"{cores} values of cores, {len(loads)} of them with a load")


@CHECKS.needs("powered", "load")
def powered_time_grows(idle: Evidence, load: Evidence) -> Decision:
    """The file can be read without root, and the work adds seconds to it."""
    before = load.numbers_after("before /")
    after = load.numbers_after("after /")
    if load.status != 0 or not idle.paths(""):
        return undecided("the model did not run, or the file is not there")
    grown = 0.0
    for path, milliseconds in after.items():
        grown += (milliseconds - before.get(path, 0)) / 1000
    return decide(grown > 1, f"powered for {grown:.1f} s more after some seconds of work")


@CHECKS.needs("load")
def dla_used_flag(load: Evidence) -> Decision:
    """A run that used the DLA, as its powered time shows, has no flag of the contrary."""
    before = sum(map(int, load.texts("^before /")))
    grown = sum(map(int, load.texts("^after /"))) - before
    if load.status != 0 or grown < 1000:
        return undecided("the model did not run, or its powered time did not grow")
    flagged = bool(load.paths(r"flags\.dla_not_used$"))
    return decide(not flagged, f"powered for {grown / 1000:.1f} s; dla_not_used: {flagged}")


@CHECKS.needs("board", "events")
def trace_events(board: Evidence, events: Evidence) -> Decision:
    """Both events have the fields that the reader takes."""
    _release(board, _R36)
    missing = []
    for event, fields in _FIELDS.items():
        lines = [line for line in events.texts(f"/{event}/format$") if "print fmt" in line]
        printed = "\n".join(lines)
        for name in fields:
            if f"{name}=" not in printed:
                missing.append(f"{event}.{name}")
    return decide(not missing, f"fields that are not printed: {', '.join(missing) or 'none'}")


@CHECKS.needs("timer")
def counter_rate(timer: Evidence) -> Decision:
    """The kernel names the rate."""
    rate = re.search(r"at ([\d.]+)\s*MHz", "\n".join(timer.lines))
    if rate is None:
        return undecided("the kernel's log has no line of arch_timer: it may be too old")
    return decide(float(rate[1]) == _COUNTER_MHZ, f"the counter runs at {rate[1]} MHz")


def _percent(text: str) -> bool:
    return _PERCENT.fullmatch(text) is not None or text == "0"


@CHECKS.needs("board", "firmware", "load")
def utilization_rate_form(board: Evidence, idle: Evidence, load: Evidence) -> Decision:
    """The figure is percent, 0 while nothing works, more while something does, and new in R36."""
    rates = idle.texts("/utilization_rate$")
    if _release(board) < _R36:
        return decide(not rates, f"{len(rates)} files before R36")
    busy = load.texts("/utilization_rate$")
    if not busy:
        return undecided("the figure was not read under load")
    because = f"idle {', '.join(rates) or 'nothing'}, under load {', '.join(busy[:4])}"
    if not rates or not all(map(_percent, [*rates, *busy])):
        return refuted(because)
    return decide(max(map(float, rates)) == 0 and max(map(float, busy)) > 0, because)


@CHECKS.needs("trace")
def instance_removed(trace: Evidence) -> Decision:
    """The tracer is as before when the reader has ended."""
    if not trace.has("hello cores"):
        return undecided("the reader did not start")
    changed = []
    for path, text in trace.items("^before "):
        name = path.removeprefix("before ")
        if trace.value(f"^after {re.escape(name)}$") != text:
            changed.append(name)
    return decide(not changed, f"changed: {', '.join(changed) or 'nothing'}")


@CHECKS.needs("powered")
def powered_half_second(powered: Evidence) -> Decision:
    """The driver suspends a core half a second after its last task."""
    delays = powered.texts("/autosuspend_delay_ms$")
    if not delays:
        return undecided("the driver names no delay")
    return decide(set(delays) == {"500"}, f"it suspends after {listed(delays)} ms")


@CHECKS.needs("reader")
def reader_unit(reader: Evidence) -> Decision:
    """The unit that the socket starts greets."""
    return decide(reader.has("hello cores"), f"{len(reader.lines) - 2} lines of the unit")


def _traced(load: Evidence, name: str) -> tuple[float, float]:
    """Return a count of the trace and the number of tasks, or raise ``Unseen``."""
    why = "no task was traced: the reader needs root and JetPack 6"
    tasks = load.need("^trace submit$", why)
    if not tasks:
        raise Unseen(undecided(why))
    return load.need(f"^trace {name}$", why), tasks


@CHECKS.needs("load")
def trace_lines(load: Evidence) -> Decision:
    """No line of the trace is left over."""
    left, tasks = _traced(load, "unparsed")
    return decide(left == 0, f"{tasks:.0f} tasks; lines that cannot be read: {left:.0f}")


@CHECKS.needs("load")
def trace_ids(load: Evidence) -> Decision:
    """The end of a task has the number of its submission; two cores at once are not tried."""
    pairs, tasks = _traced(load, "after job_id")
    because = f"of {tasks:.0f} tasks, {pairs:.0f} have an end with their number"
    return refuted(because) if pairs < 0.9 * tasks else undecided(f"{because}; try both cores")


@CHECKS.needs("load")
def trace_process(load: Evidence) -> Decision:
    """Each submission names a process."""
    named, tasks = _traced(load, "process")
    return decide(named >= 0.9 * tasks, f"{named:.0f} of {tasks:.0f} tasks name their process")


@CHECKS.needs("load")
def no_event_lost(load: Evidence) -> Decision:
    """A lost event refutes it; a short run without one does not prove ten minutes."""
    lost, tasks = _traced(load, "lost")
    because = f"{tasks:.0f} tasks; the kernel dropped events {lost:.0f} times"
    return refuted(because) if lost else undecided(f"{because}; try ten minutes")


def _stamped(load: Evidence) -> Decision:
    """Return whether the mean time of a task is about the stage ``compute``."""
    tasks = _traced(load, "ended")[0]
    ticks = load.need("^trace busy ticks$", "no task has an end")
    compute = load.need(r"stages\.compute\.p50_seconds$", "the stage is not known")
    seconds = ticks / max(tasks, 1) / (1e6 * _COUNTER_MHZ)
    because = f"a task takes {1000 * seconds:.3f} ms, the stage compute {1000 * compute:.3f} ms"
    return decide(0.7 * compute <= seconds <= 1.1 * compute, because)


CHECKS["stamps_of_work"] = BeliefCheck(("load",), _stamped)
CHECKS["cudla_compute_time"] = BeliefCheck(("cudla",), _stamped)


@CHECKS.needs("root_work")
def busy_within_powered(work: Evidence) -> Decision:
    """Each round with a busy time has none beyond its powered time."""
    busy = work.paths(_BUSY_OF_ROUND)
    if not busy:
        return undecided("no round has a busy time")
    beyond = work.texts(r"bench\..*dla_beyond_powered_seconds\.")
    return decide(not beyond, f"{len(busy)} rounds; seconds beyond powered time: {listed(beyond)}")


@CHECKS.needs("root_work")
def foreign_work(work: Evidence) -> Decision:
    """The rounds beside a program on the other core have the flag."""
    if not work.paths(_BUSY_OF_ROUND):
        return undecided("no round has a busy time")
    flags = work.number(r"flags\.foreign_dla_activity$") or 0
    return decide(flags > 0, f"flagged rounds: {flags:.0f}")


@CHECKS.needs("root_work")
def window_on_dla(work: Evidence) -> Decision:
    """The window of a program has a load of its core, and energy."""
    if not work.has("^window"):
        return undecided("the window was not measured")
    loads = work.texts(r"^window\..*utilization\.dla0:\w+\.mean_ratio$")
    joules = work.number(r"^window\..*gross_joules$")
    because = f"loads of dla0: {listed(loads)}; energy: {joules} J"
    return decide(max(map(float, loads), default=0) > 0 and joules is not None, because)


@CHECKS.needs("root_work")
def firmware_in_key(work: Evidence) -> Decision:
    """The engine that root built has the version of the firmware."""
    versions = work.paths(r"^engines\..*machine_dla_firmware$")
    if not work.has("^engines"):
        return undecided("root built no engine")
    return decide(bool(versions), f"engines with a version of the firmware: {len(versions)}")

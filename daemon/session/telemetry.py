"""Samples come in: to the timeline, to the energy counters and to the snapshot."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING

from ... import __version__
from ...collectors.base import (
    SYSTEM_CLOCK,
    Clock,
    Companion,
    MachineFacts,
    PowerReader,
    Stamped,
)
from ...collectors.board.boards import find_rail_rule, is_tegra, read_board_facts
from ...collectors.lines.collector import LineCollector, Opening
from ...collectors.lines.companion import SILENCE_SECONDS
from ...collectors.lines.program import ProcessSource, SocketLines
from ...collectors.outages import OutageLog, failure_text
from ...collectors.simulator.physics import LoadBoard
from ...parsers.errors import UserError
from ...parsers.rails import RailRule, stated_sensors
from ...parsers.records import Sample, flatten, has_root_fields
from ...parsers.signals import (
    GPU_LOAD,
    GPU_LOAD_NVML,
    GPU_MEMORY_TOTAL,
    GPU_MEMORY_USED,
    LATE_SECONDS,
    MEMORY,
    NOT_ATTRIBUTED,
    PROCESS_GPU_MEMORY,
    SHARED,
    by_name,
    split,
)
from ..export.snapshot import LiveState, SourceState
from ..measure.report import Environment
from ..measure.running_energy import EnergyCounters
from ..measure.timeline import Timeline
from ..settings.config import Config, Processes, RootTrace, Telemetry

if TYPE_CHECKING:
    from ...collectors.processes.watch import ProcessWatch

# On a kernel without such a trace each try is a unit that fails.
_LONGEST_TRACE_PAUSE_SECONDS = 300.0


def open_telemetry(telemetry: Telemetry, load: LoadBoard, clock: Clock) -> LineCollector:
    """Return what makes samples of the configured source, or raise ``UserError``.

    ``load`` holds our own runs, for a simulated board.
    """
    opening = Opening(
        telemetry.interval,
        is_interval_set="interval" in telemetry.model_fields_set,
        load=load,
        clock=clock,
    )
    if telemetry.processes is not None:
        shown = telemetry.processes
        opening = dataclasses.replace(opening, top_processes=shown.top, process_names=shown.names)
    return telemetry.settings.open(opening)


def board_root(telemetry: Telemetry) -> Path | None:
    """Return the root directory of the kernel files of the board whose lines are read.

    ``None`` if the lines are of another machine, if this is not a Jetson (unless configured), or
    if the files are not to be read.
    """
    if not telemetry.settings.describes_this_board or telemetry.sysfs is False:
        return None
    if telemetry.sysfs == "auto" and not is_tegra():
        return None
    if telemetry.sysfs == "auto" or isinstance(telemetry.sysfs, bool):
        return Path("/")
    return Path(telemetry.sysfs)


def open_companions(telemetry: Telemetry, clock: Clock) -> list[Companion]:
    """Return the companions that are read with each line."""
    companions: list[Companion] = []
    # The files and the trace of this machine do not belong to the lines of another one.
    is_here = telemetry.settings.describes_this_board
    root = board_root(telemetry)
    if root is not None:
        from ...collectors.board.sysfs import RailCompanion, SysfsCompanion

        companions += [SysfsCompanion(root, clock=clock), RailCompanion(root, clock=clock)]
    if is_here and telemetry.dla_trace.is_asked_for:
        companions.append(_dla_trace(telemetry, clock))
    if is_here and telemetry.gpu_trace.is_asked_for:
        from ...collectors.gpu.contexts import GpuTraceCompanion
        from ...collectors.processes.names import ProcessNames

        source = _root_lines(telemetry.gpu_trace, GpuTraceCompanion.name, clock)
        name_of = ProcessNames(clock=clock).name
        companions.append(GpuTraceCompanion(source, name_of=name_of, clock=clock))
    if is_here and telemetry.memory.is_asked_for:
        companions.append(_memory(telemetry, clock))
    board = root
    if board is None and is_here:
        board = Path("/")
    if telemetry.settings is not telemetry.nvml and telemetry.nvml.is_read_beside(board):
        companions.append(_nvml(telemetry, clock))
    return companions


def power_opener(
    telemetry: Telemetry, collector: LineCollector, clock: Clock
) -> Callable[[Sequence[str]], PowerReader] | None:
    """Return what reads rails of the board beside its lines; ``None`` if nothing can."""
    root = board_root(telemetry)
    if collector.open_power is not None or root is None:
        return collector.open_power
    from ...collectors.board.supply import RailPower

    return partial(RailPower, root, clock=clock)


def _nvml(telemetry: Telemetry, clock: Clock) -> Companion:
    interval = telemetry.settings.interval_in_force(telemetry.interval)
    processes = telemetry.processes
    if processes is None:
        return telemetry.nvml.open_beside(interval, clock=clock)
    from ...collectors.processes.names import ProcessNames

    return telemetry.nvml.open_beside(
        interval,
        top=processes.top,
        names=processes.names,
        name_of=ProcessNames(clock=clock).name,
        clock=clock,
    )


def open_processes(telemetry: Telemetry, clock: Clock, live: LiveState) -> "ProcessWatch | None":
    """Return the watch of processes; ``None`` if it is off, or if the lines are recorded."""
    if telemetry.processes is None or telemetry.settings.is_recorded:
        return None
    from ...collectors.processes.watch import ProcessWatch

    return ProcessWatch(
        top=telemetry.processes.top,
        names=telemetry.processes.names,
        on_look=lambda found: live.update(processes=found),
        clock=clock,
    )


def _dla_trace(telemetry: Telemetry, clock: Clock) -> Companion:
    from ...collectors.dla.tasks import DlaTraceCompanion
    from ...collectors.processes.names import ProcessNames

    names = ProcessNames(clock=clock)
    settings = telemetry.dla_trace
    return DlaTraceCompanion(
        _root_lines(settings, DlaTraceCompanion.name, clock),
        counter_hertz=settings.counter_hertz,
        name_of=lambda task: names.name(task.process, task.thread),
        clock=clock,
    )


def _memory(telemetry: Telemetry, clock: Clock) -> Companion:
    from ...collectors.gpu.nvmap import FRESH_SECONDS, MemoryCompanion
    from ...collectors.processes.names import ProcessNames

    shown = telemetry.processes or Processes()
    return MemoryCompanion(
        _root_lines(telemetry.memory, MemoryCompanion.name, clock, FRESH_SECONDS),
        top=shown.top,
        names=shown.names,
        known=ProcessNames(clock=clock),
        clock=clock,
    )


def _root_lines(
    settings: RootTrace, name: str, clock: Clock, silence_seconds: float = SILENCE_SECONDS
) -> ProcessSource:
    """Return the lines of a reader that runs as root, by its socket or its command."""
    kind, argv = ProcessSource, settings.command
    if settings.socket is not None:
        kind, argv = SocketLines, (str(settings.socket),)
    assert argv is not None
    return kind(
        argv,
        interval_seconds=silence_seconds,
        name=name,
        clock=clock,
        silence_seconds=4 * silence_seconds,
        backoff_seconds=(0.5, _LONGEST_TRACE_PAUSE_SECONDS),
    )


def environment_of(
    telemetry: Telemetry | None, *, board: str | None, simulated: bool
) -> Environment:
    """Return the environment before there is any telemetry: the settings, and the board's files.

    Without a ``board``, its files or its rails identify it.
    """
    source: str | None = None
    root: Path | None = None
    averaging: float | None = None
    if telemetry is not None:
        source, root = telemetry.source, board_root(telemetry)
        averaging = telemetry.averaging
    facts = MachineFacts() if root is None else read_board_facts(root)
    return Environment(
        board=board or facts.board,
        module=facts.module,
        l4t=facts.l4t,
        jetpack=facts.jetpack,
        power_mode=facts.power_mode,
        clocks_locked=facts.clocks_locked,
        rail_sensors={**facts.rail_sensors, **stated_sensors(averaging)},
        telemetry_source=source,
        simulated=simulated,
        versions={"tegrascope": __version__, "python": python_version(), **facts.versions},
    )


def configured_board(config: Config) -> str | None:
    """Return the board that the configuration names."""
    if config.board is not None:
        return config.board.name
    return config.telemetry.settings.board_name


class LoadSource:
    """Decides whether the line or NVML gives the GPU load of a session.

    The line gives it if it has a percentage. NVML gives it from its first load on if no line had
    one so far, and if some lines in a row have none; then it does for the rest of the session,
    since a board that prints the percentage only at times would show too high a mean.
    """

    def __init__(self) -> None:
        self.is_nvml = False
        self._lacking: int | None = None  # lines in a row; None if no line had a percentage

    def apply(self, values: dict[str, float], by_nvml: float | None, *, is_newest: bool) -> bool:
        """Put the load in force into the values of a line; return whether NVML begins with it.

        ``by_nvml`` is its load at the newest line, which alone is compared; ``None`` without one.
        """
        column, is_first = GPU_LOAD.column(), False
        if column in values and not self.is_nvml:
            self._lacking = 0
        elif is_newest and by_nvml is not None and not self.is_nvml:
            if self._lacking is not None:
                self._lacking += 1
            self.is_nvml = is_first = self._lacking in (None, _LACKING_LINES)
        if self.is_nvml:
            values.pop(column, None)
            if by_nvml is not None:
                values |= {column: by_nvml, GPU_LOAD_NVML.column(): 1.0}
        return is_first


def _attribute_to_gpu(values: dict[str, float]) -> None:
    """Give the GPU its part of the memory that is not attributed, unless it has memory of its own.

    One source has the memory of the board, and another one may have that of the GPU.
    """
    rest = MEMORY.column(NOT_ATTRIBUTED)
    if rest not in values or GPU_MEMORY_TOTAL.column() in values:
        return
    used = values.get(GPU_MEMORY_USED.column())
    listed = PROCESS_GPU_MEMORY.by_label(values)
    if used is None and listed:  # On Thor NVML lists processes, and gives no total.
        used = sum(listed.values())
    if used is not None:
        values[MEMORY.column("gpu")] = used
        values[rest] = max(values[rest] - used, 0.0)


def _read(companion: Companion) -> tuple[Mapping[str, float], str | None]:
    """Return the values and the problem of a companion; its faults must not end telemetry."""
    try:
        return by_name(companion.columns()), companion.problem
    except Exception as error:
        _LOG.debug("%s", companion.name, exc_info=True)
        return {}, f"it failed ({failure_text(error)}): report it; the other sources continue"


_LOG = logging.getLogger(__name__)
# A line that is cut short has no load either.
_LACKING_LINES = 3
# Names may come from outside; this bounds the log.
_LOGGED_AT_MOST = 256


@dataclass
class TelemetryFeed:
    """One thread that takes samples from a source until it ends; then it has a ``problem``.

    Attributes:
        occupancy: Share of a range of time in which our own runs were in flight, by DLA core.
        rule: The board's rail rule; by default, found by the rails of the first sample that has
            any.
        companions: Read with each sample.
        on_crash: Called by the thread if it ends by an error of ours.
    """

    collector: LineCollector
    _: KW_ONLY
    timeline: Timeline
    energy: EnergyCounters
    live: LiveState
    occupancy: Callable[[int, int], Mapping[int, float]]
    rule: InitVar[RailRule | None] = None
    companions: Sequence[Companion] = ()
    on_crash: Callable[[Exception], object] = lambda _: None
    clock: Clock = SYSTEM_CLOCK
    problem: str | None = field(default=None, init=False)

    def __post_init__(self, rule: RailRule | None) -> None:
        self._stopping = False
        self._lines_until_sample = 0
        self._latest: Stamped[Sample] | None = None
        self._about: MachineFacts | None = None
        self._logged: set[str] = set()
        names = {companion.name for companion in self.companions}
        self._outages = {name: OutageLog(name, self.clock, log=_LOG) for name in names}
        self._columns_unknown = 0
        self._load_source = LoadSource()
        # An older state must not be shown over a newer one.
        self._showing = threading.Lock()
        self.energy.rule = rule
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def why(self) -> str | None:
        """Return why no samples come, if that is known."""
        parts = [self.collector.source.problem or self.problem]
        strange = self.collector.lines - self._lines_until_sample
        if strange:
            reasons = self.collector.unparsed
            most = max(reasons, key=reasons.__getitem__, default="")
            parts.append(f"the last {strange} line(s) are no samples (mostly: {most})")
        return "; ".join(filter(None, parts)) or None

    def start(self) -> None:
        """Start the companions and the thread."""
        self.refresh()
        for companion in self.companions:
            companion.start()
        self._thread.start()

    def stop(self) -> None:
        """End the source and wait for the thread."""
        self._stopping = True
        self.collector.stop()
        for companion in self.companions:
            companion.stop()
        if self._thread.ident is not None:  # a start that failed has not come so far
            self._thread.join(timeout=2.0)

    def refresh(self) -> None:
        """Show the counters of a source that gives no samples at present."""
        with self._showing:
            state = self._state()
            if (state,) != self.live.snapshot.sources:
                self.live.update(sources=(state,))

    def _run(self) -> None:
        try:
            for sample in self.collector.collect():
                self.take(sample)
            self.problem = f"{self.collector.source.name} has ended"
            if not self._stopping:
                _LOG.info("%s", self.problem)
        except UserError as error:
            self.problem = str(error)
            _LOG.error("%s", error)
        except Exception as error:
            self.problem = f"{self.collector.source.name} failed; see the log"
            _LOG.exception("telemetry stops")
            if not self._stopping:
                self.on_crash(error)

    def take(self, sample: Stamped[Sample]) -> None:
        """Take one sample; called by the thread, or by a caller without one.

        Only the newest sample of a read is shown, and only it gets the present columns of the
        companions.
        """
        is_newest = not sample.following
        self._lines_until_sample = self.collector.lines
        values = flatten(sample.value)
        if sample.late_seconds:
            values[LATE_SECONDS.column()] = sample.late_seconds
        further: Mapping[str, tuple[float, str]] = {}
        companions_up: Mapping[str, bool] = {}
        if is_newest:
            further, companions_up = self._read_companions()
        sources = self._add(values, further, is_newest=is_newest)
        if self.collector.about is not self._about:
            self._describe(self.collector.about)
        if self.energy.rule is None:
            self._find_rail_rule(sample.value)
        # The counters first: a waiter on the timeline may look at them at once.
        self.energy.feed(sample.monotonic_ns, values)
        if not self.timeline.append(sample.monotonic_ns, sample.wall_ns, values):
            if self.timeline.refused == 1:
                _LOG.warning("%s: a sample is not later than the one before", self.timeline.source)
            return
        if not is_newest:
            return
        begin_ns = sample.monotonic_ns
        if self._latest is not None:
            begin_ns = self._latest.monotonic_ns
        with self._showing:
            self._latest = sample
            self.live.update(
                sources=(self._state(),),
                rail_joules=self.energy.rails,
                rail_seconds=self.energy.rail_seconds,
                module_joules=self.energy.module_joules,
                module_seconds=self.energy.module_seconds,
                values=values,
                companions_up=companions_up,
                signal_sources=sources,
                dla_occupancy=self.occupancy(begin_ns, sample.monotonic_ns),
            )

    def _find_rail_rule(self, sample: Sample) -> None:
        rule = find_rail_rule(sample.rails)
        if rule is not None:
            self.energy.rule = rule
            if self.live.snapshot.environment.board is None:
                self.live.describe(board=rule.name)

    def _add(
        self,
        values: dict[str, float],
        further: Mapping[str, tuple[float, str]],
        *,
        is_newest: bool,
    ) -> dict[str, str]:
        """Add the columns of companions to those of a line; return the source of shared signals."""
        load, by = further.get(GPU_LOAD.column(), (None, ""))
        if self._load_source.apply(values, load, is_newest=is_newest):
            _LOG.info("the GPU load is that of %s, as the lines of this session lack it", by)
        line_source = self.collector.source.name
        origins = {GPU_LOAD.column(): line_source}
        if self._load_source.is_nvml:
            origins[GPU_LOAD.column()] = by
        for column, (value, companion) in further.items():
            if column not in values and column not in origins:
                values[column], origins[column] = value, companion
        _attribute_to_gpu(values)
        sources: dict[str, str] = {}
        for column in values:
            parts = split(column)
            if parts is None:
                continue
            signal = parts[0]
            if signal.family and signal in SHARED:
                sources[signal.family] = origins.get(column, line_source)
        return sources

    def _read_companions(self) -> tuple[dict[str, tuple[float, str]], dict[str, bool]]:
        """Return the columns of all companions and of which one, and which have no problem.

        The first companion that has a column wins.
        """
        values: dict[str, tuple[float, str]] = {}
        up: dict[str, bool] = {}
        for companion in reversed(self.companions):
            columns, problem = _read(companion)
            for column, value in columns.items():
                values[column] = (value, companion.name)
                if split(column) is None:  # for example an empty name where the row needs one
                    self._count_unknown(column, companion.name)
            up[companion.name] = problem is None
            source = companion.source
            # A source logs its own outages.
            if problem is None or source is None or problem != source.problem:
                self._outages[companion.name].note(problem)
        return values, up

    def _count_unknown(self, column: str, companion: str) -> None:
        """Count a value that no signal describes, and log each such column once."""
        self._columns_unknown += 1
        message = (
            f"{companion}: no signal has the column {column}: it gets no metric; declare it in "
            "parsers/signals.py"
        )
        if message not in self._logged and len(self._logged) < _LOGGED_AT_MOST:
            self._logged.add(message)
            _LOG.warning("%s", message)

    def _describe(self, about: MachineFacts | None) -> None:
        """Use the source's facts about the machine; the configuration has priority."""
        self._about = about
        if about is not None:
            known: Environment = self.live.snapshot.environment
            self.live.describe(
                board=known.board or about.board,
                module=known.module or about.module,
                l4t=known.l4t or about.l4t,
                jetpack=known.jetpack or about.jetpack,
                power_mode=about.power_mode,
                gpu_uuid=about.gpu_uuid,
                power_reading=about.power_reading,
                rail_sensors={**about.rail_sensors, **known.rail_sensors},
                versions={**known.versions, **about.versions},
            )
            if about.trips_celsius:
                self.live.update(trips_celsius=about.trips_celsius)

    def _state(self) -> SourceState:
        collector, lacks_root = self.collector, None
        if self._latest is not None and collector.shows_root_more:
            lacks_root = not has_root_fields(self._latest.value)
        return SourceState(
            name=collector.source.name,
            interval_seconds=collector.source.interval_seconds,
            latest=self._latest,
            samples=collector.samples,
            restarts=collector.source.restarts,
            backlog=collector.backlog,
            refused=self.timeline.refused,
            lines_unparsed=dict(collector.unparsed),
            tokens_unparsed=collector.tokens_unparsed,
            columns_unknown=self._columns_unknown,
            lacks_root=lacks_root,
        )

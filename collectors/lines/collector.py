"""Telemetry collectors: lines of a source become Samples, and other lines are counted.

``Arrivals`` determines when lines were printed: from their arrival and the seconds that they print.
"""

import logging
import os
import shutil
import statistics
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import Field, field_validator

from ...parsers.errors import ParseError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_records
from ...parsers.values import Section
from ..base import (
    SYSTEM_CLOCK,
    Clock,
    Companion,
    LineSource,
    MachineFacts,
    PowerReader,
    Stamped,
)
from ..outages import OutageLog, failure_text
from .program import ProcessSource, SocketSource, StreamSource

_LOG = logging.getLogger(__name__)


class LineCollector(ABC):
    """Samples of one source; its counts are written by one thread and may be read by any."""

    def __init__(self, source: LineSource, *, shows_root_more: bool = False) -> None:
        """Prepare; ``shows_root_more``: the program prints more fields when root runs it."""
        self.source = source
        self.shows_root_more = shows_root_more
        self.lines = self.samples = self.tokens_unparsed = self.backlog = 0
        self.about: MachineFacts | None = None
        self.companions: tuple[Companion, ...] = ()  # of the source itself
        # Reads rails of the source's own board beside its lines; ``None`` where it has none.
        self.open_power: Callable[[Sequence[str]], PowerReader] | None = None
        self._unparsed: Counter[str] = Counter()
        self._outage = OutageLog(source.name)

    @property
    def unparsed(self) -> dict[str, int]:
        """Lines that were not records, by reason; a copy."""
        return dict(self._unparsed)

    def collect(self) -> Iterator[Stamped[Sample]]:
        """Yield each record with its time, until the source ends or ``stop``."""
        block: list[Stamped[Sample]] = []
        arrived_ns = None
        for line in self.source.lines():
            if line.monotonic_ns != arrived_ns:  # the source dropped the rest of a read
                yield from self._take(block)
                block = []
            arrived_ns = line.monotonic_ns
            block += self._parse(line)
            if not line.following:
                yield from self._take(block)
                block = []
        yield from self._take(block)

    def _parse(self, line: Stamped[str]) -> Sequence[Stamped[Sample]]:
        try:
            samples = self._read(line)
        except ParseError as error:
            self._skip(error.reason)
            return ()
        except Exception as error:  # a line that nobody thought of must not end telemetry
            _LOG.debug("%s: %r", self.source.name, line.value, exc_info=True)
            self._outage.note(f"a line is left out: {failure_text(error)}")
            self._skip("fault")
            return ()
        self._outage.note(None)
        if samples:
            self.lines += 1
        for sample in samples:
            self.tokens_unparsed += len(sample.value.unparsed)
        return samples

    def _skip(self, reason: str) -> None:
        self.lines += 1
        self._unparsed[reason] += 1

    def _take(self, block: list[Stamped[Sample]]) -> Iterator[Stamped[Sample]]:
        """Yield the records of one read with their own times."""
        if len(block) > 1:
            if not self.backlog:
                _LOG.warning(
                    "%s: %d lines arrived together: their times are estimated (docs/sources.md)",
                    self.source.name,
                    len(block),
                )
            self.backlog += len(block)
        if not block:
            return
        following = len(block)
        for sample in self._timed(block):
            following -= 1
            self.samples += 1
            yield replace(sample, following=following)

    def _timed(self, block: Sequence[Stamped[Sample]]) -> Sequence[Stamped[Sample]]:
        """Return the records of one read with the time of each."""
        return block

    def stop(self) -> None:
        """End the source, and with it ``collect``; from another thread, and more than once."""
        self.source.stop()

    @abstractmethod
    def _read(self, line: Stamped[str]) -> Sequence[Stamped[Sample]]:
        """Return the records of a line; none if it is not to be counted."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of ``open``, next to the settings of the source."""

    interval_seconds: float
    is_interval_set: bool = False  # by a person
    load: object = None  # the ``LoadBoard`` with our own runs, for a simulated board
    top_processes: int = 10  # names of processes that are shown, if the source knows them
    process_names: Collection[str] = ()  # shown besides
    clock: Clock = SYSTEM_CLOCK


class SourceSettings(Section, ABC):
    """The settings of one telemetry source. The class describes the source, and opens it."""

    # Whether the lines are of this machine's board, as the files and traces of its kernel are.
    describes_this_board: ClassVar[bool] = False
    # Whether it never ends by itself while nothing is wrong.
    is_kept_alive: ClassVar[bool] = False
    is_simulated: ClassVar[bool] = False
    is_recorded: ClassVar[bool] = False

    @classmethod
    def is_available(cls, root: Path = Path("/")) -> bool:  # noqa: ARG003 - of the interface
        """Return whether the machine has it, so that it can be chosen without being named."""
        return False

    @property
    def problem(self) -> str | None:
        """Why the source cannot be chosen with these settings; ``None`` if it can."""
        return None

    @property
    def file(self) -> Path | None:
        """The file that the lines are read from, if they come from one."""
        return None

    @property
    def board_name(self) -> str | None:
        """The name of the board, if the settings determine it."""
        return None

    @abstractmethod
    def summary(self) -> str:
        """Return in a few words where the lines come from."""

    def interval_in_force(self, interval_seconds: float) -> float:
        """Return the interval of the lines, which may have another origin than ``interval``."""
        return interval_seconds

    @property
    def interval_hint(self) -> str:
        """How a person sets a short interval."""
        return "telemetry.interval: 103ms"

    @abstractmethod
    def open(self, opening: Opening) -> LineCollector:
        """Return what makes samples of the source, or raise ``UserError``."""


def tegrastats_command(
    interval_seconds: float, program: Sequence[str] = ("tegrastats",)
) -> list[str]:
    """Return the arguments that make tegrastats print a line per interval.

    >>> tegrastats_command(1.009)
    ['tegrastats', '--interval', '1009']
    """
    return [*program, "--interval", str(max(1, round(interval_seconds * 1000)))]


RECENT_STEPS = 31
FEWEST_PRINTED, RECENT_PRINTED = 60, 120
# The printed seconds must have met nearly every phase of the arrivals.
COVERED_SECONDS = 0.9
# Reading its sensors and a busy machine delay a line by less than the first. By more than the
# second it is another machine's clock that differs.
SHORTEST_LATENESS, LONGEST_LATENESS = 0.15, 10.0
# A busy machine takes so long to let a writer go on that waited.
WRITER_NS = 1_000_000_000
CLOCK_STEP_NS, CLOCK_SLEW = 50_000_000, 0.001
# Time zones differ by whole quarters of an hour.
_ZONE_SECONDS = 900
_EPOCH, _SECOND = datetime(1970, 1, 1), timedelta(seconds=1)


class Arrival(NamedTuple):
    """The latest time at which a line can have been printed, and how much earlier it may be."""

    monotonic_ns: int
    late_seconds: float


def seconds_behind(wall_ns: int, printed_ns: int) -> float:
    """Return how long after the second that a line prints it arrived, in any time zone.

    Both count from 1970, and ``printed_ns`` as if it were UTC.

    >>> seconds_behind(1_750_000_000_500_000_000, 1_750_007_200_000_000_000)
    0.5
    """
    half = _ZONE_SECONDS * 10**9 // 2
    return ((wall_ns - printed_ns + half) % (2 * half) - half) / 1e9


def usual_lateness(behind: Sequence[float]) -> float | None:
    """Return the lateness of a source by ``seconds_behind`` of its recent lines.

    A line is printed at any moment of its second, so the smallest difference is the lateness, if
    the lines met nearly the whole second; otherwise, and for too few lines, it is ``None``.
    """
    if len(behind) < FEWEST_PRINTED or max(behind) - min(behind) < COVERED_SECONDS:
        return None
    return min(behind)


def possible_lateness(behind: Sequence[float]) -> float:
    """Return how late the lines of a source may be, by ``seconds_behind`` of its recent lines.

    No line is printed before its second begins. So until the lateness is measured, the smallest
    difference is its upper limit, and one line that arrives soon after its second began is enough
    to know that the source is on time. The usual delay of a line, and the clock of another
    machine, count as 0.
    """
    latest = usual_lateness(behind)
    if latest is None:
        latest = min(behind, default=0.0)
    if SHORTEST_LATENESS < latest <= LONGEST_LATENESS:
        return latest
    return 0.0


class Arrivals:
    """Gives each line of a live source its own time.

    A line that arrives alone has its arrival as time. Lines of one read are a backlog: the last is
    stamped with the arrival, and the others lie back from it by the usual interval, which is the
    median of recent arrivals. Each may have been printed earlier: by one interval, since the last
    line may have waited so long, and by the time that the backlog leaves unexplained. A printed
    second limits both. Lateness that all recent lines have, or may have, is added.
    """

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=RECENT_STEPS)
        self._behind: deque[float] = deque(maxlen=RECENT_PRINTED)
        self._arrived_ns: int | None = None
        self._latest_ns: int | None = None  # the time of the latest line
        self._offset_ns = 0  # wall minus monotonic
        self._held_ns: int | None = None

    def times(
        self,
        arrived_ns: int,
        wall_ns: int,
        printed: Sequence[datetime | None],
        interval_seconds: float | None,
    ) -> list[Arrival]:
        """Return the times of the lines of one read; they increase, also from read to read.

        ``printed`` are the times that the lines print, and ``interval_seconds`` is the configured
        interval, which counts until there is another read.
        """
        self._note_read(arrived_ns, wall_ns, len(printed))
        times, late = self._spread(arrived_ns, len(printed), interval_seconds)
        times, late = self._limit_by_printed(times, late, printed)
        return self._increasing(times, late)

    def _spread(
        self, arrived_ns: int, count: int, interval_seconds: float | None
    ) -> tuple[list[int], list[float]]:
        """Return the times of a backlog by its arrival alone, and how much earlier each may be."""
        if self._steps:
            interval = statistics.median(self._steps)
        else:
            interval = (interval_seconds or 1.0) * 1e9
        whole = count * interval
        reach = whole
        if self._latest_ns is not None:
            reach = max(arrived_ns - self._latest_ns, 0)
        # A monotonic time is never below 0.
        step = min(interval, reach / count, arrived_ns / count)
        times = [arrived_ns - round(i * step) for i in reversed(range(count))]
        unsure = 0.0
        if count > 1:
            unsure = (interval + abs(reach - whole)) / 1e9
        late = [unsure] * count
        if self._held_ns is not None and reach < max(whole - interval / 2, WRITER_NS):
            late[0] = max(late[0], (times[0] - self._held_ns) / 1e9)
        # The writer waits with one more line while the pipe is full: it comes too soon.
        has_waited = count > 1 and reach > whole + interval
        self._held_ns = arrived_ns - round(unsure * 1e9) if has_waited else None
        return times, late

    def _limit_by_printed(
        self, times: list[int], late: list[float], printed: Sequence[datetime | None]
    ) -> tuple[list[int], list[float]]:
        """Return times and lateness within the seconds that the lines print."""
        usual = usual_lateness(self._behind)
        behind: list[float] = []
        for at_ns, printed_time in zip(times, printed, strict=True):
            if printed_time is not None:
                printed_ns = (printed_time - _EPOCH) // _SECOND * 10**9
                behind.append(seconds_behind(at_ns + self._offset_ns, printed_ns))
        if usual is not None and len(behind) == len(printed):
            over = [seconds - usual for seconds in behind]
            late, shifts = _limited(late, over)
            for index, shift in enumerate(shifts):
                times[index] -= round(shift * 1e9)
                behind[index] = over[index] + usual - shift
        self._behind.extend(behind)
        regular = possible_lateness(self._behind)
        return times, [seconds + regular for seconds in late]

    def _increasing(self, times: Sequence[int], late: Sequence[float]) -> list[Arrival]:
        """Return the arrivals of times, each later than the one before, also from read to read."""
        arrivals = []
        for at_ns, late_seconds in zip(times, late, strict=True):
            if self._latest_ns is not None:
                at_ns = max(at_ns, self._latest_ns + 1)
            self._latest_ns = at_ns
            arrivals.append(Arrival(at_ns, late_seconds))
        return arrivals

    def _note_read(self, arrived_ns: int, wall_ns: int, count: int) -> None:
        """Keep the time per line, and forget printed seconds if the wall clock was set."""
        offset_ns = wall_ns - arrived_ns
        if self._arrived_ns is not None:
            gap_ns = arrived_ns - self._arrived_ns
            self._steps.append(max(gap_ns / count, 1.0))
            if abs(offset_ns - self._offset_ns) > CLOCK_STEP_NS + CLOCK_SLEW * gap_ns:
                self._behind.clear()
        self._arrived_ns, self._offset_ns = arrived_ns, offset_ns


def _limited(late: Sequence[float], over: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return how late lines are at most, and by how much their times must be earlier.

    The time in a line's text is the second in which it was printed. The line was stamped ``over``
    seconds after the start of that second, less the lateness that is usual.
    """
    excess = max(over) - 1.0
    limited: list[float] = []
    shifts: list[float] = []
    for late_seconds, over_seconds in zip(late, over, strict=True):
        shift = 0.0
        if excess > SHORTEST_LATENESS and excess <= min(over):
            shift = excess  # all lines are too late, so all by as much
        elif excess > SHORTEST_LATENESS:
            shift = max(over_seconds - 1.0, 0.0)
        shifts.append(shift)
        if shift:
            limited.append(over_seconds - shift)
        else:
            limited.append(max(min(late_seconds, over_seconds), 0.0))
    return limited, shifts


class TegrastatsCollector(LineCollector):
    """Samples of tegrastats; the time of each is that of its line, also if several came at once."""

    def __init__(self, source: LineSource, *, shows_root_more: bool = False) -> None:
        super().__init__(source, shows_root_more=shows_root_more)
        self._arrivals = Arrivals()

    def _read(self, line: Stamped[str]) -> Sequence[Stamped[Sample]]:
        samples = parse_records(line.value)
        return [Stamped(line.monotonic_ns, line.wall_ns, sample) for sample in samples]

    def _timed(self, block: Sequence[Stamped[Sample]]) -> Sequence[Stamped[Sample]]:
        if not self.source.is_live:  # its lines are made at their time
            return block
        arrived_ns, wall_ns = block[-1].monotonic_ns, block[-1].wall_ns
        printed = [sample.value.time for sample in block]
        times = self._arrivals.times(arrived_ns, wall_ns, printed, self.source.interval_seconds)
        stamped = []
        for (at_ns, late_seconds), sample in zip(times, block, strict=True):
            line_wall_ns = wall_ns + at_ns - arrived_ns
            stamped.append(Stamped(at_ns, line_wall_ns, sample.value, 0, late_seconds))
        return stamped


class TegrastatsSettings(SourceSettings):
    """The tegrastats program."""

    describes_this_board = True
    is_kept_alive = True

    command: tuple[str, ...] = Field(("tegrastats",), min_length=1)  # --interval is added
    # Where a privileged unit prints tegrastats; null never asks it.
    socket: Path | None = Path("/run/tegrascope/tegrastats.sock")

    @field_validator("command", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(value.split()) if isinstance(value, str) else value

    @property
    def asks_socket(self) -> bool:
        """Whether the socket is tried first; not if the settings name only a command."""
        named = self.model_fields_set
        return self.socket is not None and ("socket" in named or "command" not in named)

    @classmethod
    def is_available(cls, root: Path = Path("/")) -> bool:  # noqa: ARG003 - on PATH or not
        """Return whether the program is on ``PATH``."""
        return shutil.which("tegrastats") is not None

    def summary(self) -> str:  # noqa: D102
        return " ".join(self.command)

    def interval_in_force(self, interval_seconds: float) -> float:
        """Return the interval of the privileged unit if it is known; its unit and ours read it."""
        text = os.environ.get("TEGRASTATS_INTERVAL_MS", "")
        if self.asks_socket and text.isascii() and text.isdigit() and int(text) > 0:
            return int(text) / 1000
        return interval_seconds

    @property
    def interval_hint(self) -> str:  # noqa: D102
        own = super().interval_hint
        if self.asks_socket:
            return f"{own} (for the service TEGRASTATS_INTERVAL_MS=103 in /etc/default/tegrascope)"
        return own

    def open(self, opening: Opening) -> TegrastatsCollector:
        """Return the samples of the privileged unit's socket or of a child."""
        interval, clock = opening.interval_seconds, opening.clock
        command = tegrastats_command(interval, self.command)
        source = ProcessSource(command, interval_seconds=interval, clock=clock)
        if self.socket is not None and self.asks_socket and os.geteuid() != 0:
            source = SocketSource(
                self.socket,
                command,
                interval_seconds=interval,
                socket_interval_seconds=self._unit_interval(opening),
                clock=clock,
            )
        return TegrastatsCollector(source, shows_root_more=True)

    def _unit_interval(self, opening: Opening) -> float:
        seconds = self.interval_in_force(opening.interval_seconds)
        own_ms, unit_ms = round(opening.interval_seconds * 1000), round(seconds * 1000)
        if opening.is_interval_set and own_ms != unit_ms:
            own = "telemetry.interval is %d ms, but root's tegrastats prints every %d ms: "
            where = "that is set by TEGRASTATS_INTERVAL_MS in /etc/default/tegrascope"
            _LOG.warning(own + where, own_ms, unit_ms)
        return seconds


class StreamSettings(SourceSettings):
    """Lines from standard input or a FIFO."""

    describes_this_board = True

    path: str = "-"  # standard input, else the path of a FIFO

    @property
    def file(self) -> Path | None:  # noqa: D102
        return None if self.path == "-" else Path(self.path)

    def summary(self) -> str:  # noqa: D102
        return "standard input" if self.path == "-" else f"lines from {self.path}"

    def open(self, opening: Opening) -> TegrastatsCollector:  # noqa: D102
        interval, clock = opening.interval_seconds, opening.clock
        return TegrastatsCollector(StreamSource(self.file, interval_seconds=interval, clock=clock))

"""Telemetry collectors: lines of a source become Samples, and other lines are counted."""

import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from ...parsers.errors import ParseError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
from ...parsers.values import Section
from ..base import SYSTEM_CLOCK, Clock, LineSource, Stamped
from .program import ProcessSource

MOST_REASONS = 16
OTHER_REASON = "other"

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class About:
    """Facts about the machine from the source; each may be missing.

    Attributes:
        module: Part number.
        power_reading: Kind of its power figures: ``instant``, or ``usage`` for NVML's own mean.
        versions: Version by library.
    """

    board: str | None = None
    module: str | None = None
    power_mode: str | None = None
    gpu_uuid: str | None = None
    power_reading: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class LineCollector(ABC):
    """Samples of one source, with the count of other lines.

    The counts are written by the thread that collects and may be read by any.
    """

    shows_root_more = False
    """Whether the program prints more fields when root runs it."""

    def __init__(self, source: LineSource) -> None:
        """Prepare; the source begins with ``collect``."""
        self.source = source
        self.lines = 0
        self.samples = 0
        self.tokens_unparsed = 0
        self.about: About | None = None
        self._unparsed: dict[str, int] = {}

    @property
    def unparsed(self) -> dict[str, int]:
        """Lines that were not records, by reason; a copy."""
        return self._unparsed.copy()

    def collect(self) -> Iterator[Stamped[Sample]]:
        """Yield each record with its time, until the source ends or ``stop``."""
        for line in self.source.lines():
            try:
                sample = self._read(line)
            except ParseError as error:
                self.lines += 1
                self._count(error.reason)
                continue
            if sample is None:
                continue
            self.lines += 1
            self.samples += 1
            self.tokens_unparsed += len(sample.value.unparsed)
            yield sample

    def stop(self) -> None:
        """End the source, and with it ``collect``; from another thread, and more than once."""
        self.source.stop()

    @abstractmethod
    def _read(self, line: Stamped[str]) -> Stamped[Sample] | None:
        """Return the record of a line, or None if it is not to be counted."""

    def _count(self, reason: str) -> None:
        if reason not in self._unparsed and len(self._unparsed) >= MOST_REASONS - 1:
            reason = OTHER_REASON
        self._unparsed[reason] = self._unparsed.get(reason, 0) + 1


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of ``open``, next to the settings of the source."""

    interval_seconds: float
    is_interval_set: bool = False  # by a person
    load: object = None  # the ``LoadBoard`` with our own runs, for a simulated board
    clock: Clock = SYSTEM_CLOCK


class SourceSettings(Section, ABC):
    """The settings of one telemetry source. The class describes the source, and opens it.

    Attributes:
        describes_this_board: Whether the lines are of this machine's board, so that the files and
            traces of its kernel belong to them.
        is_kept_alive: Whether it never ends by itself while nothing is wrong.
        is_simulated: Whether the lines are of a board that does not exist.
        is_recorded: Whether the lines were printed before.
    """

    describes_this_board: ClassVar[bool] = False
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


class TegrastatsCollector(LineCollector):
    """Samples of tegrastats; the time of each is that of its line."""

    def __init__(self, source: LineSource, *, shows_root_more: bool = False) -> None:
        """Prepare; the source begins with ``collect``."""
        super().__init__(source)
        self.shows_root_more = shows_root_more

    def _read(self, line: Stamped[str]) -> Stamped[Sample]:
        return Stamped(line.monotonic_ns, line.wall_ns, parse_line(line.value))


class TegrastatsSettings(SourceSettings):
    """The tegrastats program."""

    describes_this_board = True
    is_kept_alive = True

    command: tuple[str, ...] = Field(
        ("tegrastats",), min_length=1, description="program and arguments; --interval is added"
    )
    socket: Path | None = Field(
        Path("/run/tegrascope/tegrastats.sock"),
        description="where a privileged unit prints tegrastats; null never asks it",
    )

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

    def summary(self) -> str:
        """Return the command."""
        return " ".join(self.command)

    def open(self, opening: Opening) -> TegrastatsCollector:
        """Return the samples of the privileged unit's socket or of a child."""
        interval, clock = opening.interval_seconds, opening.clock
        command = tegrastats_command(interval, self.command)
        source: LineSource
        if self.socket is not None and self.asks_socket and os.geteuid() != 0:
            from .program import SocketSource

            source = SocketSource(
                self.socket,
                command,
                interval_seconds=interval,
                socket_interval_seconds=_unit_interval(opening),
                clock=clock,
            )
        else:
            source = ProcessSource(command, interval_seconds=interval, clock=clock)
        return TegrastatsCollector(source, shows_root_more=True)


def _unit_interval(opening: Opening) -> float:
    """Return the interval of the privileged unit; both units read one environment file."""
    text = os.environ.get("TEGRASTATS_INTERVAL_MS", "")
    if not (text.isascii() and text.isdigit() and int(text)):
        return opening.interval_seconds
    seconds = int(text) / 1000
    if opening.is_interval_set and opening.interval_seconds != seconds:
        _LOG.warning(
            "telemetry.interval is %g s, but root's tegrastats prints every %g s: that is set by "
            "TEGRASTATS_INTERVAL_MS in /etc/default/tegrascope",
            opening.interval_seconds,
            seconds,
        )
    return seconds

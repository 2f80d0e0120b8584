"""What every telemetry collector is: lines of a source become Samples, the rest is counted."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...parsers.errors import ParseError
from ...parsers.records import Sample
from ...parsers.tokenizer import read_line
from ..base import LineSource, Stamped

MOST_REASONS = 16
OTHER_REASON = "other"


@dataclass(frozen=True)
class About:
    """What a source says of the machine, where it says that at all.

    Attributes:
        board: Name of the board.
        module: Its part number.
        power_mode: The power budget in force.
        gpu_uuid: Which GPU of this machine is read.
        power_reading: What its power figures are: ``instant``, or ``usage`` for NVML's own mean.
        versions: Library to version.
    """

    board: str | None = None
    module: str | None = None
    power_mode: str | None = None
    gpu_uuid: str | None = None
    power_reading: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


class LineCollector(ABC):
    """Samples of one source, with the count of what was no sample.

    The counts are written by the thread that collects and may be read by any.

    Attributes:
        source: Where lines come from.
        lines: How many came.
        samples: How many of them were records.
        unparsed: How many were none, by reason: a few words, fit for a label.
        tokens_unparsed: Words inside records that were not understood.
        about: What the source said of the machine; ``None`` while it did not.
    """

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
        """Lines that were no record, by reason; a copy."""
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
        """Make a line a record with its time; ``None`` for a line that is not to be counted.

        Raises:
            ParseError: It is no record.
        """

    def _count(self, reason: str) -> None:
        if reason not in self._unparsed and len(self._unparsed) >= MOST_REASONS - 1:
            reason = OTHER_REASON
        self._unparsed[reason] = self._unparsed.get(reason, 0) + 1


def tegrastats_command(
    interval_seconds: float, program: Sequence[str] = ("tegrastats",)
) -> list[str]:
    """Return the arguments that make tegrastats print a line an interval.

    >>> tegrastats_command(1.009)
    ['tegrastats', '--interval', '1009']
    """
    return [*program, "--interval", str(max(1, round(interval_seconds * 1000)))]


class TegrastatsCollector(LineCollector):
    """Samples of tegrastats; the time of each is that of its line."""

    def _read(self, line: Stamped[str]) -> Stamped[Sample]:
        # Not ``parse_line``: what that remembers is a megabyte, and lines are few here.
        return Stamped(line.monotonic_ns, line.wall_ns, read_line(line.value))

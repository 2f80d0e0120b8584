"""Lines of any source become Samples; what cannot be read is counted."""

from collections.abc import Iterator, Sequence

from ..parsers.errors import ParseError
from ..parsers.records import Sample
from ..parsers.tokenizer import read_line
from .base import LineSource, Stamped

MOST_REASONS = 16
OTHER_REASON = "other"


def tegrastats_command(
    interval_seconds: float, program: Sequence[str] = ("tegrastats",)
) -> list[str]:
    """Return the arguments that make tegrastats print a line an interval.

    >>> tegrastats_command(1.009)
    ['tegrastats', '--interval', '1009']
    """
    return [*program, "--interval", str(max(1, round(interval_seconds * 1000)))]


class TegrastatsCollector:
    """Samples of one source, with the count of what was no sample.

    The counts are written by the thread that collects and may be read by any.

    Attributes:
        source: Where lines come from.
        lines: How many came.
        samples: How many of them were records.
        unparsed: How many were none, by reason: a few words, fit for a label.
        tokens_unparsed: Words inside records that were not understood.
    """

    def __init__(self, source: LineSource) -> None:
        """Prepare; the source begins with ``collect``."""
        self.source = source
        self.lines = 0
        self.samples = 0
        self.tokens_unparsed = 0
        self._unparsed: dict[str, int] = {}

    @property
    def unparsed(self) -> dict[str, int]:
        """Lines that were no record, by reason; a copy."""
        return self._unparsed.copy()

    def collect(self) -> Iterator[Stamped[Sample]]:
        """Yield each record with the stamp of its line, until the source ends or ``stop``."""
        for line in self.source.lines():
            self.lines += 1
            try:
                # Not ``parse_line``: what that remembers is a megabyte, and lines are few here.
                sample = read_line(line.value)
            except ParseError as error:
                self._count(error.reason)
                continue
            self.samples += 1
            self.tokens_unparsed += len(sample.unparsed)
            yield Stamped(line.monotonic_ns, line.wall_ns, sample)

    def stop(self) -> None:
        """End the source, and with it ``collect``; from another thread, and more than once."""
        self.source.stop()

    def _count(self, reason: str) -> None:
        if reason not in self._unparsed and len(self._unparsed) >= MOST_REASONS - 1:
            reason = OTHER_REASON
        self._unparsed[reason] = self._unparsed.get(reason, 0) + 1

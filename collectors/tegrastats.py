"""Lines of tegrastats, whatever source they come from, become Samples."""

from collections.abc import Sequence

from ..parsers.records import Sample
from ..parsers.tokenizer import read_line
from .base import Stamped
from .line_collector import LineCollector


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

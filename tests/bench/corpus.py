"""The recorded logs that may lie next to the checkout: both paths must read the same of them."""

from collections.abc import Iterator
from pathlib import Path

from tegrascope import ParseError, Sample, frames, parse_line
from tegrascope.collectors.lines.replay import read_lines

from .truth import faults, row_of

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "tegrastats"


def logs(corpus: Path = CORPUS) -> list[Path]:
    """Return every whole log; none where there is no corpus."""
    return sorted((corpus / "logs").rglob("*.log"))


def texts(log: Path) -> list[str]:
    """Return the lines of a log that look like records."""
    return [line for line in read_lines(log) if "RAM " in line]


def records(log: Path) -> Iterator[tuple[int, str, Sample]]:
    """Yield the records of a log: number of the line, the line, the Sample."""
    for number, line in enumerate(read_lines(log), 1):
        try:
            yield number, line, parse_line(line)
        except ParseError:
            continue


def compare() -> tuple[int, list[str]]:
    """Read all logs by both paths.

    Returns:
        How many records there are, and what is wrong.
    """
    count, wrong = 0, []
    for log in logs():
        rows = [row_of(sample, number) for number, _, sample in records(log)]
        wrong += [f"{log.name} {fault}" for fault in faults(frames.read_log([log], cores=1), rows)]
        count += len(rows)
    return count, wrong

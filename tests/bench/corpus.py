"""The recorded logs that may lie next to the checkout: both paths must read the same of them."""

from collections.abc import Iterator
from pathlib import Path

from tegrascope import ParseError, Sample, frames, parse_line
from tegrascope.collectors.lines.replay import LogFile

from .truth import faults, row_of

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "tegrastats"


def logs(corpus: Path = CORPUS) -> list[Path]:
    """Return every whole log; none where there is no corpus."""
    return sorted((corpus / "logs").rglob("*.log"))


def read_lines(log: Path) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a log, and whether each was cut off."""
    with LogFile(log) as opened:
        for line in opened.lines():
            yield line, opened.is_cut


def texts(log: Path) -> list[str]:
    """Return the lines of a log that look like records."""
    return [line for line, _ in read_lines(log) if "RAM " in line]


def records(log: Path) -> Iterator[tuple[int, str, Sample]]:
    """Yield the records of a log: number of the line, the line, the Sample."""
    for number, (line, is_cut) in enumerate(read_lines(log), 1):
        try:
            yield number, line, parse_line(line, is_cut=is_cut)
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

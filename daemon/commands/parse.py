"""``tegrascope parse``."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...collectors.lines.replay import LogFile
from ...parsers.errors import ParseError, UserError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
from ..terminal import open_output, progress
from . import Options

if TYPE_CHECKING:
    from ...parsers.tegrastats.bulk import Batch


@dataclass(slots=True)
class Tally:
    """Counts of lines, and the position in each file.

    >>> print(Tally(lines=3, records=1, skipped=Counter(noise=2), unparsed_words=1))
    3 lines: 1 records, 2 skipped (2 noise); 1 words not understood
    """

    lines: int = 0
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    unparsed_words: int = 0
    unreadable: int = 0
    moved: Callable[[int], None] = lambda _: None
    _positions: dict[int, int] = field(default_factory=dict)

    def add(self, batch: "Batch", log: int, position_bytes: int) -> None:
        """Count a batch of lines."""
        self.lines += batch.lines
        self.records += len(batch.line)
        self.skipped += batch.skipped
        self.unparsed_words += batch.unparsed_words
        self.move(log, position_bytes)

    def move(self, log: int, position_bytes: int) -> None:
        """Show how many bytes of all files are read."""
        self._positions[log] = position_bytes
        self.moved(sum(self._positions.values()))

    def fail(self, problem: UserError) -> None:
        """Count a file that cannot be read, or not to its end; the others are read."""
        self.unreadable += 1
        print(f"tegrascope: {problem}", file=sys.stderr)

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.items())
        skipped = f"{self.skipped.total()} skipped{f' ({reasons})' if reasons else ''}"
        words = f"; {self.unparsed_words} words not understood" if self.unparsed_words else ""
        return f"{self.lines} lines: {self.records} records, {skipped}{words}"


def run(arguments: argparse.Namespace) -> int:
    """Turn tegrastats lines into records, and print the counts."""
    paths = [None if name == "-" else Path(name) for name in arguments.files]
    with progress(paths, arguments.output) as moved:
        tally = Tally(moved=moved)
        if arguments.format == "jsonl":
            left_out = () if arguments.keep_lines else ("source_line",)
            with open_output(arguments.output) as output:
                for sample in _samples(paths, tally, keep_lines=arguments.keep_lines):
                    output.write(sample.model_dump_json(exclude=left_out) + "\n")
        elif arguments.keep_lines:
            raise UserError("--keep-lines needs records", "use it with -f jsonl")
        else:
            from ..tables.frames import read_tables, write_tables

            tables = read_tables(paths, arguments.files, counted=tally.add, failed=tally.fail)
            write_tables(tables, arguments.output, arguments.format)
    print(tally, file=sys.stderr)
    return 0 if tally.records and not tally.unreadable else 1


def _samples(paths: Sequence[Path | None], tally: Tally, *, keep_lines: bool) -> Iterator[Sample]:
    """Yield the records of all files."""
    for number, path in enumerate(paths):
        try:
            with LogFile(path) as log:
                for line in log.lines():
                    tally.lines += 1
                    if tally.lines % 1024 == 0:
                        tally.move(number, log.position_bytes)
                    try:
                        sample = parse_line(line, keep_line=keep_lines, is_cut=log.is_cut)
                    except ParseError as error:
                        tally.skipped[error.reason] += 1
                        continue
                    tally.records += 1
                    tally.unparsed_words += len(sample.unparsed)
                    yield sample
                tally.move(number, log.position_bytes)
        except UserError as problem:
            tally.fail(problem)


EXAMPLE = "tegrascope parse robot.log.gz | jq .rails\n  tegrastats | tegrascope parse -"


def add(option: Options) -> None:
    """Add the options."""
    words = "plain or gzip; - is standard input"
    option("files FILE", words, nargs="*", type=str, default=["-"])
    option.output("jsonl", "csv", "parquet", default="jsonl")
    option("--keep-lines", "keep each line in source_line")

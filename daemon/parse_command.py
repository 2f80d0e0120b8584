"""``tegrascope parse``."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..collectors.log_file import read_lines
from ..parsers.errors import Mendable, ParseError
from ..parsers.records import Sample
from ..parsers.tegrastats import parse_line
from .output import open_output


def parse(arguments: argparse.Namespace) -> int:
    """Turn tegrastats lines into records, and say how many were read."""
    samples = _Samples(arguments.files, keep_lines=arguments.keep_lines)
    if arguments.format == "jsonl":
        with open_output(arguments.output) as output:
            for sample in samples:
                output.write(sample.model_dump_json(exclude=samples.left_out) + "\n")
    else:
        from .frames import samples_frame, write_frame

        write_frame(samples_frame(samples), arguments.output, arguments.format)
    samples.tell()
    return 0 if samples.parsed and not samples.unreadable else 1


class _Samples:
    """The records of many files, counted as they go by; an unreadable file stops no other."""

    def __init__(self, files: list[str], *, keep_lines: bool) -> None:
        self.left_out = None if keep_lines else {"source_line"}
        self.parsed = 0
        self.unreadable = False
        self._keep_lines = keep_lines
        self._files = files
        self._lines = 0
        self._unparsed: Counter[str] = Counter()
        self._tokens = 0

    def __iter__(self) -> Iterator[Sample]:
        for name in self._files:
            try:
                for line in read_lines(None if name == "-" else Path(name)):
                    self._lines += 1
                    try:
                        sample = parse_line(line, keep_line=self._keep_lines)
                    except ParseError as error:
                        self._unparsed[error.reason] += 1
                        continue
                    self.parsed += 1
                    self._tokens += len(sample.unparsed)
                    yield sample
            except Mendable as error:
                self.unreadable = True
                print(f"tegrascope: {error}", file=sys.stderr)

    def tell(self) -> None:
        """Say on standard error what became of the lines."""
        skipped = ", ".join(f"{count} {reason}" for reason, count in self._unparsed.items())
        words = f"; {self._tokens} words not understood" if self._tokens else ""
        print(
            f"{self._lines} lines: {self.parsed} records, {self._unparsed.total()} skipped"
            f"{f' ({skipped})' if skipped else ''}{words}",
            file=sys.stderr,
        )

"""``tegrascope parse``."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...collectors.lines.log_file import LogFile
from ...parsers.errors import Mendable, ParseError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
from ..tally import Tally
from ..terminal.output import open_output
from ..terminal.progress import progress
from .common import Commands, add_command

_LINES_A_STEP = 1024


def parse(arguments: argparse.Namespace) -> int:
    """Turn tegrastats lines into records, and say how many were read."""
    paths = [None if name == "-" else Path(name) for name in arguments.files]
    tally = Tally()
    with progress(paths, arguments.output) as moved:
        if arguments.format == "jsonl":
            _write_lines(arguments, paths, tally, moved)
        else:
            _write_tables(arguments, paths, tally, moved)
    print(tally, file=sys.stderr)
    return 0 if tally.records and not tally.unreadable else 1


def _write_lines(
    arguments: argparse.Namespace,
    paths: Sequence[Path | None],
    tally: Tally,
    moved: Callable[[int], None],
) -> None:
    left_out = None if arguments.keep_lines else {"source_line"}
    with open_output(arguments.output) as output:
        for sample in _samples(paths, tally, moved, keep_lines=arguments.keep_lines):
            output.write(sample.model_dump_json(exclude=left_out) + "\n")


def _samples(
    paths: Sequence[Path | None], tally: Tally, moved: Callable[[int], None], *, keep_lines: bool
) -> Iterator[Sample]:
    """Yield the records of many files; an unreadable file stops no other."""
    for path in paths:
        before = tally.bytes_read
        try:
            with LogFile(path) as log:
                for line in log.lines():
                    tally.lines += 1
                    if tally.lines % _LINES_A_STEP == 0:
                        tally.bytes_read = before + log.position_bytes
                        moved(tally.bytes_read)
                    try:
                        sample = parse_line(line, keep_line=keep_lines)
                    except ParseError as error:
                        tally.skipped[error.reason] += 1
                        continue
                    tally.records += 1
                    tally.unparsed_words += len(sample.unparsed)
                    yield sample
                tally.bytes_read = before + log.position_bytes
        except Mendable as problem:
            _tell(tally, problem)


def _write_tables(
    arguments: argparse.Namespace,
    paths: Sequence[Path | None],
    tally: Tally,
    moved: Callable[[int], None],
) -> None:
    if arguments.keep_lines:
        raise Mendable("--keep-lines needs records", "use it with -f jsonl")
    from ..log_table import read_tables
    from ..table_file import write_tables

    def failed(problem: Mendable) -> None:
        _tell(tally, problem)

    tables = read_tables(paths, arguments.files, tally, failed=failed, moved=moved)
    write_tables(tables, arguments.output, arguments.format)


def _tell(tally: Tally, problem: Mendable) -> None:
    tally.unreadable += 1
    print(f"tegrascope: {problem}", file=sys.stderr)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "parse",
        "tegrascope parse robot.log.gz | jq .rails\n  tegrastats | tegrascope parse -",
    )
    parser.add_argument(
        "files", nargs="*", default=["-"], metavar="FILE", help="plain or gzip; - is standard input"
    )
    parser.add_argument("-f", "--format", choices=("jsonl", "csv", "parquet"), default="jsonl")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.add_argument("--keep-lines", action="store_true", help="keep each line in source_line")

    parser.set_defaults(command=parse)

"""``tegrascope parse``."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...collectors.lines.replay import LogFile, LogPath, log_path
from ...daemon.commands import Options
from ...daemon.outputs import check_output, open_output
from ...daemon.terminal import progress, progress_of_logs
from ...parsers.errors import ParseError, UserError
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_records
from ...parsers.values import printable

if TYPE_CHECKING:
    from ...parsers.tegrastats.bulk import Batch
    from ..tables.dataset import ParsedLog


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

    def add_log(self, log: "ParsedLog") -> None:
        """Count a log of a dataset."""
        self.lines += log.lines
        self.records += log.records
        self.skipped += log.skipped
        self.unparsed_words += log.unparsed_words
        if log.problem is not None:
            self.fail(log.problem)

    def move(self, log: int, position_bytes: int) -> None:
        """Show how many bytes of all files are read."""
        self._positions[log] = position_bytes
        self.moved(sum(self._positions.values()))

    def fail(self, problem: UserError) -> None:
        """Count a file that cannot be read, or not to its end; the others are read."""
        self.unreadable += 1
        print(f"tegrascope: {printable(str(problem))}", file=sys.stderr)

    def __str__(self) -> str:
        text = f"{self.lines} lines: {self.records} records, {self.skipped.total()} skipped"
        if self.skipped:
            reasons = [f"{count} {reason}" for reason, count in self.skipped.items()]
            text += f" ({', '.join(reasons)})"
        if self.unparsed_words:
            text += f"; {self.unparsed_words} words not understood"
        return text


def run(arguments: argparse.Namespace) -> int:
    """Turn tegrastats lines into records, and print the counts."""
    kind: Any = arguments.format
    if kind is None:
        kind = "dataset" if arguments.cluster else "jsonl"
    if arguments.cluster and kind != "dataset":
        arguments.misuse("--cluster writes a dataset; leave out -f")
    if kind == "dataset":
        return _write_dataset(arguments)
    paths = [None if name == "-" else log_path(name) for name in arguments.files]
    path = None if arguments.output is None else Path(arguments.output)
    check_output(path)
    if None in paths and sys.stdin.isatty():
        print("reads lines of tegrastats from the terminal; Ctrl-D ends them", file=sys.stderr)
    with progress(paths, path) as moved:
        tally = Tally(moved=moved)
        if kind == "jsonl":
            _write_records(paths, path, tally, keep_lines=arguments.keep_lines)
        elif arguments.keep_lines:
            arguments.misuse("--keep-lines needs records: use it with -f jsonl")
        else:
            _write_table(kind, paths, path, tally, arguments.files)
    return _finish(tally)


def _write_records(
    paths: Sequence[LogPath], output_path: Path | None, tally: Tally, *, keep_lines: bool
) -> None:
    """Write one record per line."""
    left_out = () if keep_lines else ("source_line",)
    with open_output(output_path) as output:
        for sample in _samples(paths, tally, keep_lines=keep_lines):
            output.write(sample.model_dump_json(exclude=left_out) + "\n")


def _write_table(
    kind: str,
    paths: Sequence[LogPath],
    output_path: Path | None,
    tally: Tally,
    names: Sequence[str],
) -> None:
    """Write one row per record, as CSV or Parquet."""
    from ..tables.log_tables import read_tables, write_log_csv

    tables = read_tables(paths, names, counted=tally.add, failed=tally.fail)
    if kind == "csv":
        write_log_csv(tables, output_path)
        return
    from ..tables.data_frames import write_log_parquet

    write_log_parquet(tables, output_path)


def _write_dataset(arguments: argparse.Namespace) -> int:
    """Turn logs into a dataset, here or on a cluster."""
    if arguments.output is None or "-" in arguments.files or arguments.keep_lines:
        arguments.misuse("a dataset needs -o, log files or URLs, and no --keep-lines")
    from ..tables.dataset import read_logs

    tally = Tally()
    with progress_of_logs() as moved:

        def finished(log: "ParsedLog", done: int, total: int) -> None:
            tally.add_log(log)
            moved(done, total)

        read_logs(arguments.files, arguments.output, cluster=arguments.cluster, finished=finished)
    return _finish(tally)


def _finish(tally: Tally) -> int:
    print(tally, file=sys.stderr)
    if not tally.records and not tally.unreadable:
        print("no line of tegrastats was found: is this what it prints?", file=sys.stderr)
    return 0 if tally.records and not tally.unreadable else 1


def _samples(paths: Sequence[LogPath], tally: Tally, *, keep_lines: bool) -> Iterator[Sample]:
    """Yield the records of all files."""
    for number, path in enumerate(paths):
        try:
            with LogFile(path) as log:
                for line in log.lines():
                    tally.lines += 1
                    if tally.lines % 1024 == 0:
                        tally.move(number, log.position_bytes)
                    try:
                        samples = parse_records(line, keep_line=keep_lines, is_cut=log.is_cut)
                    except ParseError as error:
                        tally.skipped[error.reason] += 1
                        continue
                    tally.records += len(samples)
                    for sample in samples:
                        tally.unparsed_words += len(sample.unparsed)
                        yield sample
                tally.move(number, log.position_bytes)
        except UserError as problem:
            tally.fail(problem)


EXAMPLE = """tegrascope parse robot.log.gz | jq .rails
  tegrastats | tegrascope parse -
  tegrascope parse --cluster tcp://scheduler:8786 's3://logs/*.gz' -o s3://tables/logs"""


def add(option: Options) -> None:
    """Add the options."""
    words = "plain or gzip, or a URL such as s3://…; - is standard input"
    option("files FILE", words, nargs="*", type=str, default=["-"])
    kinds = "jsonl", "csv", "parquet", "dataset"
    option("-f, --format", "default: jsonl, or dataset with --cluster", choices=kinds)
    option(
        "-o, --output FILE", "default: standard output; a directory or URL for a dataset", type=str
    )
    words = "read on this Dask cluster, into a dataset"
    option("--cluster ADDRESS", words)
    option("--keep-lines", "keep each line in source_line")

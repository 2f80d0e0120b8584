"""Output of a command: a file, standard output or a table; an error is one line."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...parsers.errors import UserError

GOOD, FAILED, USAGE, CHECK_SAYS_NO = 0, 1, 2, 3


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of cells below their titles, in columns as wide as their widest cell."""
    lines = [titles, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """Open a file to write text, or standard output without a path.

    Raises:
        BrokenPipeError: The reader of standard output closed it.
        UserError: The file cannot be written completely.
    """
    try:
        if path is None:
            yield standard_output()
        else:
            with path.open("w", encoding="utf-8", newline="\n") as output:
                yield output
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable(path, error) from None


def standard_output() -> TextIO:
    """Return standard output; raise UserError if the parent process closed it."""
    if sys.stdout is None:
        raise UserError("standard output is closed", "name a writable file with -o")
    return sys.stdout


def flush() -> None:
    """Write buffered output while an error can still be reported.

    Raises:
        BrokenPipeError: The reader of standard output closed it.
        UserError: It cannot be written.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard()
        raise unwritable(None, error) from None


def discard() -> None:
    """Send buffered output to the null device, so that it does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def unwritable(path: Path | None, error: OSError) -> UserError:
    """Return the error of an output, with its remedy."""
    where = "standard output" if path is None else path
    return UserError(f"{where}: {error.strerror or error}", "name a writable file with -o")


LONG_WORK_BYTES = 16 << 20


@contextmanager
def progress(paths: Sequence[Path | None], output: Path | None) -> Iterator[Callable[[int], None]]:
    """Show how much of some files has been read, if standard error is a terminal.

    Args:
        paths: The files; ``None`` is standard input, which has no known length.
        output: Destination of the results; a terminal that shows them gets no bar.

    Yields:
        A function that takes the number of bytes read so far.
    """
    total = sum(path.stat().st_size for path in paths if path is not None and path.is_file())
    shows_results = output is None and sys.stdout is not None and sys.stdout.isatty()
    if total < LONG_WORK_BYTES or shows_results or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.BarColumn(),
        rich.DownloadColumn(),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda completed: bar.update(task, completed=completed)

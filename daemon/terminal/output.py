"""Where a command writes: a file or standard output, and one line where that fails."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ...parsers.errors import Mendable


@contextmanager
def open_output(path: Path | None) -> Iterator[TextIO]:
    """Open a file to write text, or standard output where there is none.

    Raises:
        BrokenPipeError: The reader of standard output went away.
        Mendable: The file can't be written, or not to its end.
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
    """Return standard output.

    Raises:
        Mendable: Whoever started the program closed it.
    """
    if sys.stdout is None:
        raise Mendable("standard output is closed", "name a writable file with -o")
    return sys.stdout


def flush() -> None:
    """Write out what is left in standard output, while an error can still be told.

    Raises:
        BrokenPipeError: Its reader went away.
        Mendable: It can't be written.
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
    """Let what is left in standard output go nowhere, so that it fails no second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def unwritable(path: Path | None, error: OSError) -> Mendable:
    """Say what is wrong with an output, and what mends it."""
    where = "standard output" if path is None else path
    return Mendable(f"{where}: {error.strerror or error}", "name a writable file with -o")


GOOD, FAILED, USAGE, CHECK_SAYS_NO = 0, 1, 2, 3

"""The terminal of all commands: exit status, output, tables, progress, and waiting times."""

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..collectors.paths import is_file
from ..parsers.values import printable
from .outputs import unwritable

GOOD, FAILED, USAGE, CHECK_SAYS_NO, CHECK_CANNOT_SAY = 0, 1, 2, 3, 4
# EX_CONFIG of sysexits.h: systemd does not start the daemon again.
BAD_CONFIG = 78
LONG_WORK_BYTES = 16 << 20
_LARGE = ("", "k", "M", "G", "T", "P")


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of cells below their titles, in columns as wide as their widest cell."""
    lines: list[list[str]] = []
    widths = [0] * len(titles)
    for row in (titles, *rows):
        cells = [printable(cell) for cell in row]
        widths = [max(width, len(cell)) for width, cell in zip(widths, cells, strict=True)]
        lines.append(cells)
    for cells in lines:
        print("  ".join(map(str.ljust, cells, widths)).rstrip())


def open_standard_streams() -> bool:
    """Give each closed standard stream the null device; return whether errors can be seen.

    A supervisor may close them. Otherwise a socket or the database would get their numbers, and
    whatever is printed would be written into it. Standard error ends no work: see ``_Words``.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)
            if null != descriptor:
                os.close(null)
    can_see = sys.stderr is not None
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - as long as the process
    if sys.stderr is sys.__stderr__:  # and not what a caller put in its place
        words = io.BufferedWriter(_Words(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(words, errors="backslashreplace", line_buffering=True)
    return can_see


class _Words(io.FileIO):
    """Standard error, where words that cannot be written any more are dropped.

    Ctrl-C ends ``tee`` in ``tegrascope bench 2>&1 | tee log`` too, and a lost connection closes the
    terminal. Neither may take what was measured along.
    """

    def write(self, data: Any, /) -> int:
        """Write bytes; take them as written if nobody can read them."""
        try:
            return super().write(data) or 0
        except OSError:
            discard(2)
            return memoryview(data).nbytes


def flush() -> None:
    """Write buffered output while an error can still be reported.

    Raises:
        BrokenPipeError: The reader of standard output closed it.
        UserError: It cannot be written.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard()
        raise unwritable(None, error) from None


def discard(descriptor: int = 1) -> None:
    """Send buffered output to the null device, so that it does not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, descriptor)
    os.close(null)


@contextmanager
def progress(
    paths: Sequence[Path | str | None], output: Path | None
) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the bytes read so far, and shows them on a terminal.

    Args:
        paths: The files; a URL and standard input (``None``) have no known length.
        output: Destination of the results; a terminal that shows them gets no bar.
    """
    total = 0
    for path in paths:
        with suppress(OSError):  # reported where it is read
            if isinstance(path, Path) and is_file(path):
                total += path.stat().st_size
    shows_results = output is None and sys.stdout is not None and sys.stdout.isatty()
    if total < LONG_WORK_BYTES or shows_results or not sys.stderr.isatty():
        yield lambda _: None
        return
    with _bar("DownloadColumn", "TransferSpeedColumn") as moved:
        yield lambda completed: moved(completed, total)


@contextmanager
def progress_of_logs() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes how many logs of how many are done, as ``progress`` does."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    with _bar("MofNCompleteColumn") as moved:
        yield moved


@contextmanager
def _bar(*columns: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the done and the whole work; the columns are classes of rich."""
    from rich import progress as rich
    from rich.console import Console

    chosen = (getattr(rich, name)() for name in ("BarColumn", *columns, "TimeRemainingColumn"))
    with rich.Progress(*chosen, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def duration(value: float) -> str:
    """Format a waiting time.

    >>> duration(42), duration(150), duration(5400), duration(86400)
    ('42 s', '2 min 30 s', '1 h 30 min', '24 h')
    """
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s".removesuffix(" 0 s")
    return f"{whole // 3600} h {whole % 3600 // 60} min".removesuffix(" 0 min")


def age(seconds: float) -> str:
    """Return how long ago something was, in at most nine cells.

    >>> age(75), age(7300)
    ('75 s ago', '2 h ago')
    """
    for limit, unit, name in ((100, 1, "s"), (6000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{max(seconds, 0) / unit:.0f} {name} ago"
    return f"{min(seconds / 86400, 999):.0f} d ago"


def amount(count: int | None, unit: str) -> str:
    """Format a large count with three digits; an unknown one is empty.

    >>> amount(8_178_368_512, "FLOP"), amount(64, "B"), amount(None, "B")
    ('8.18 GFLOP', '64 B', '')
    """
    if count is None:
        return ""
    value, at = float(count), 0
    while value >= 999.5 and at < len(_LARGE) - 1:
        value, at = value / 1000, at + 1
    # Three digits: a value that rounds to 10.0 or to 100 has fewer decimals.
    decimals = 2
    if at == 0 or value >= 99.95:
        decimals = 0
    elif value >= 9.995:
        decimals = 1
    return f"{value:.{decimals}f} {_LARGE[at]}{unit}"

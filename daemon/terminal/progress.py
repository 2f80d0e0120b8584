"""A bar on the terminal, for work that takes long enough to wonder."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LONG_WORK_BYTES = 16 << 20


@contextmanager
def progress(paths: Sequence[Path | None], output: Path | None) -> Iterator[Callable[[int], None]]:
    """Show how much of some files has been read, where somebody is watching.

    Args:
        paths: The files; ``None`` is standard input, of which no end is known.
        output: Where results go; a bar would not do on a terminal that shows them.

    Yields:
        What is to be told, from time to time, how many bytes have been read.
    """
    total = sum(path.stat().st_size for path in paths if path is not None and path.is_file())
    shows_results = output is None and sys.stdout is not None and sys.stdout.isatty()
    if total < LONG_WORK_BYTES or shows_results or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda completed: bar.update(task, completed=completed)

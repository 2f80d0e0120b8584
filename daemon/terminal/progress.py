"""A progress bar for work that takes long."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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

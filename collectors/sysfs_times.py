"""Shows what each file of this board says, and how long it takes to say it.

``python -m tegrascope.collectors.sysfs_times [ROOT]``: for a board that nobody has seen yet.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .sysfs import FINDERS

_TIMES = 20


def told(root: Path) -> Iterator[str]:
    """Yield a line for each file: its slowest reading, its path, and its columns.

    Args:
        root: What stands for ``/``.
    """
    total_ns = 0
    for find in FINDERS:
        for reading in find(root):
            slowest_ns, columns = 0, dict[str, float]()
            for _ in range(_TIMES):
                begin_ns = time.monotonic_ns()
                text = reading.file.text()
                slowest_ns = max(slowest_ns, time.monotonic_ns() - begin_ns)
                columns.update(() if text is None else reading.take(text, begin_ns))
            reading.file.close()
            total_ns += slowest_ns
            values = " ".join(f"{name}={value:g}" for name, value in columns.items())
            yield f"{slowest_ns / 1e6:8.3f} ms  {reading.file.path}  {values or 'absent'}"
    yield f"{total_ns / 1e6:8.3f} ms  all together, each at its slowest of {_TIMES}"


def main(arguments: Sequence[str]) -> int:
    """Print it."""
    for line in told(Path(arguments[0] if arguments else "/")):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

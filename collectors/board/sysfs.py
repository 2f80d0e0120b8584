"""What the kernel says of a board beside tegrastats: one companion of the telemetry."""

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from ...parsers.signals import RAM_AVAILABLE
from ..base import SYSTEM_CLOCK, Clock
from .facts import find_power_mode
from .kernel_file import Reading
from .readers import find_clocks, find_fans, find_memory, find_powered
from .slow_files import DeadlineReader
from .thermal import find_alerts, find_cooling, find_over_current

Find = Callable[[Path], Iterator[Reading]]

FINDERS: tuple[Find, ...] = (
    find_powered,
    find_over_current,
    find_alerts,
    find_cooling,
    find_clocks,
    find_fans,
    find_power_mode,
    find_memory,
)
"""Where one is added. Rails are not among them: each reading of an INA3221 waits for a conversion,
and tegrastats reads them already."""

# A driver that is loaded late, or anew, is there after so long.
_LOOK_AGAIN_NS = 60 * 1_000_000_000
_TIMEOUT_SECONDS = 0.05
_GRACE_NS = 1_000_000_000
_STUCK_AT_MOST = 4


class SysfsCompanion:
    """Columns of some tens of small files, each of which may be absent, refuse, or never answer.

    They are read in a thread of their own, for a read of a broken driver can't be broken off:
    one that does not answer is left behind with its thread, and the others go on without it.

    Attributes:
        name: ``sysfs``.
    """

    name = "sysfs"

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        clock: Clock = SYSTEM_CLOCK,
        finders: Collection[Find] = FINDERS,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        """Name where to look; nothing is read before ``start``.

        Args:
            root: What stands for ``/``.
            timeout_seconds: How long ``columns`` waits at most.
        """
        self._root = root
        self._clock = clock
        self._finders = finders
        self._timeout_seconds = timeout_seconds
        self._reader: DeadlineReader | None = None
        self._stuck: set[Path] = set()
        self._late: tuple[Path, int] | None = None
        self._late_since_ns = 0
        self._stopped = threading.Event()
        self._found_any: bool | None = None

    @property
    def problem(self) -> str | None:
        """Why it gives nothing or not all, and what mends it."""
        if self._stuck:
            named = ", ".join(sorted(str(path) for path in self._stuck))
            return f"no answer from {named}: its driver hangs, see dmesg; it is left out"
        if self._found_any is False:
            return f"nothing of a Jetson under {self._root}: telemetry.sysfs: false does without"
        return None

    def start(self) -> None:
        """Begin to look for files."""
        self._begin()

    def columns(self) -> Mapping[str, float]:
        """Return what can be read now; nothing while a file keeps the reader waiting."""
        reader = self._reader
        if reader is None or self._stopped.is_set():
            return {}
        columns = reader.ask(self._timeout_seconds)
        if columns is None:
            self._judge(reader)
            return {}
        self._found_any = any(name != RAM_AVAILABLE.column() for name in columns)
        return columns

    def stop(self) -> None:
        """End the thread; a file that hangs keeps its own."""
        self._stopped.set()
        if self._reader is not None:
            self._reader.stop()

    def _judge(self, reader: DeadlineReader) -> None:
        """Leave a reader behind whose file is late, and late still when it was looked at again.

        Late once may be the whole process, which was stopped for a while.
        """
        late, now_ns = reader.late_at, self._clock.monotonic_ns()
        if late is None or late != self._late:
            self._late, self._late_since_ns = late, now_ns
        elif now_ns - self._late_since_ns >= _GRACE_NS and len(self._stuck) < _STUCK_AT_MOST:
            self._stuck.add(late[0])
            self._begin(reader)

    def _begin(self, left: DeadlineReader | None = None) -> None:
        """Read in a new thread, with what the one that is left behind had noted of other files."""
        if left is not None:
            left.leave()
        known = () if left is None else left.readings
        self._reader = DeadlineReader(self._root, self._find, known, self._clock, _LOOK_AGAIN_NS)
        self._reader.start()

    def _find(self) -> Iterator[Reading]:
        for find in self._finders:
            for reading in find(self._root):
                if reading.file.path not in self._stuck:
                    yield reading


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

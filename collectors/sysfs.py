"""What the kernel says of a board beside tegrastats: one companion of the telemetry."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from .base import SYSTEM_CLOCK, Clock
from .devfreq import find_clocks
from .fans import find_fans
from .host_memory import find_memory
from .patient_reader import PatientReader
from .power_domains import find_powered
from .power_mode import find_power_mode
from .readings import Reading
from .thermal import find_cooling
from .throttle_counters import find_alerts, find_over_current

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
_PATIENCE_SECONDS = 0.05
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
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """Name where to look; nothing is read before ``start``.

        Args:
            root: What stands for ``/``.
            clock: The time.
            finders: What to look for.
            patience_seconds: How long ``columns`` waits at most.
        """
        self._root = root
        self._clock = clock
        self._finders = finders
        self._patience_seconds = patience_seconds
        self._reader: PatientReader | None = None
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
        columns = reader.ask(self._patience_seconds)
        if columns is None:
            self._judge(reader)
            return {}
        self._found_any = any(name != _OF_ANY_HOST for name in columns)
        return columns

    def stop(self) -> None:
        """End the thread; a file that hangs keeps its own."""
        self._stopped.set()
        if self._reader is not None:
            self._reader.stop()

    def _judge(self, reader: PatientReader) -> None:
        """Leave a reader behind whose file is late, and late still when it was looked at again.

        Late once may be the whole process, which was stopped for a while.
        """
        late, now_ns = reader.late_at, self._clock.monotonic_ns()
        if late is None or late != self._late:
            self._late, self._late_since_ns = late, now_ns
        elif now_ns - self._late_since_ns >= _GRACE_NS and len(self._stuck) < _STUCK_AT_MOST:
            self._stuck.add(late[0])
            self._begin(reader)

    def _begin(self, left: PatientReader | None = None) -> None:
        """Read in a new thread, with what the one that is left behind had noted of other files."""
        if left is not None:
            left.leave()
        known = () if left is None else left.readings
        self._reader = PatientReader(self._root, self._find, known, self._clock, _LOOK_AGAIN_NS)
        self._reader.start()

    def _find(self) -> Iterator[Reading]:
        for find in self._finders:
            for reading in find(self._root):
                if reading.file.path not in self._stuck:
                    yield reading


_OF_ANY_HOST = "ram.available_bytes"

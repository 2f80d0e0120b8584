"""A private instance of the kernel's tracer, with the events of the DLA in it and nothing else.

The standard library alone: this runs as root. Nothing is written outside the instance, so that
whoever else traces the machine notices nothing.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from ..parsers.errors import Mendable

INSTANCE = "tegrascope"
EVENTS = ("job_submit", "job_timestamps")
_SYSTEM = "nvdla_ftrace"
_PLACES = ("sys/kernel/tracing", "sys/kernel/debug/tracing")
# Of each CPU. The usual size is ten times that, and an instance of its own takes it anew; the
# buffer is emptied many times a second.
_BUFFER_KB = "128"


def find_tracefs(root: Path = Path("/")) -> Path:
    """Return where the tracer's files are.

    Args:
        root: What stands for ``/``.

    Raises:
        Mendable: They are not mounted, this user may not look, or the kernel has no such events.
    """
    for place in _PLACES:
        try:
            found = (root / place / "instances").is_dir()
            known = found and (root / place / "events" / _SYSTEM).is_dir()
        except PermissionError as error:
            raise _for_root(root / place) from error
        if not found:
            continue
        if known:
            return root / place
        if not os.access(root / place / "events", os.X_OK):
            raise _for_root(root / place)
        raise Mendable(
            f"the kernel has no trace events of the DLA (no events/{_SYSTEM} in {root / place})",
            "they came with JetPack 6 (L4T R36); there, sudo modprobe nvhost-nvdla",
        )
    if os.geteuid() != 0:
        raise _for_root(root / _PLACES[0])
    raise Mendable(
        f"tracefs is not mounted at {root / _PLACES[0]}",
        f"sudo mount -t tracefs tracefs {root / _PLACES[0]}",
    )


class TraceInstance:
    """The instance, from its making to its removal; use it as a context manager.

    One that a crash left behind is taken over. Two readers of one trace would each get half of it,
    so the second one is refused.

    Attributes:
        pipe: Descriptor of ``trace_pipe``, which does not wait.
    """

    def __init__(
        self,
        tracefs: Path,
        *,
        make: Callable[[Path], None] = Path.mkdir,
        remove: Callable[[Path], None] = Path.rmdir,
    ) -> None:
        """Make it, and let events come in.

        Args:
            tracefs: Where the tracer's files are.
            make: Makes the directory, which the kernel fills with files.
            remove: Removes it, with all of them.

        Raises:
            Mendable: This user may not, or another reader has it.
        """
        self.pipe = -1
        self._path = tracefs / "instances" / INSTANCE
        self._remove = remove
        self._lock = -1
        try:
            with contextlib.suppress(FileExistsError):
                make(self._path)
            self._take()
            self._set_up()
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            self.pipe = os.open(self._path / "trace_pipe", flags)
        except PermissionError as error:
            self.end()
            raise _for_root(self._path) from error
        except OSError as error:
            self.end()
            raise _cannot(error) from error

    def __enter__(self) -> "TraceInstance":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop the events and remove the instance; more than once is harmless."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
        if self._lock < 0:
            return
        for event in EVENTS:
            with contextlib.suppress(OSError):
                self._write(f"events/{_SYSTEM}/{event}/enable", "0")
        # What can't be removed is silent, and the next start takes it over.
        with contextlib.suppress(OSError):
            self._remove(self._path)
        os.close(self._lock)
        self._lock = -1

    def _take(self) -> None:
        lock = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(self._path)) from error
        self._lock = lock

    def _set_up(self) -> None:
        self._write("tracing_on", "0")
        self._write("buffer_size_kb", _BUFFER_KB)
        self._write("trace_clock", "mono")  # this empties the buffer as well
        for event in EVENTS:
            self._write(f"events/{_SYSTEM}/{event}/enable", "1")
        self._write("tracing_on", "1")

    def _write(self, name: str, text: str) -> None:
        opened = os.open(self._path / name, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(opened, text.encode())
        finally:
            os.close(opened)


def find_cores(root: Path = Path("/")) -> list[int]:
    """Return the DLA cores that the kernel knows."""
    devices = (root / "sys/bus/platform/devices").glob("*.nvdla[0-9]")
    return sorted({int(device.name[-1]) for device in devices})


def _for_root(path: Path) -> Mendable:
    return Mendable(
        f"{path} is for root alone",
        "sudo, or systemctl enable --now tegrascope-dla-trace.socket",
    )


def _cannot(error: OSError) -> Mendable:
    if error.errno == errno.EBUSY:
        return Mendable(
            f"another program reads {error.filename}",
            "let the daemon have one reader: systemctl stop 'tegrascope-dla-trace@*'",
        )
    if error.errno == errno.EROFS:
        return Mendable(
            f"{error.filename} may not be written here",
            "give the unit ReadWritePaths=/sys/kernel/tracing/instances",
        )
    return Mendable(
        f"{error.filename}: {error.strerror}", "look at dmesg; is the kernel locked down?"
    )

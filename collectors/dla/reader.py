"""The DLA trace reader: a small program for root that prints what the DLA's driver traces.

It prints the lines of the kernel as they are, and some of its own, which begin with
``# tegrascope-dla``: the cores or why nothing can be read, a sign of life with the time up to
which all is printed, and on demand the firmware's own figure. Only the standard library is used.
"""

import argparse
import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ...parsers.dla import OWN_PREFIX, parse_trace_line
from ...parsers.errors import ParseError, UserError
from ..children.process import LineBuffer
from ..children.reader_program import (
    CLIENT_SECONDS,
    GATHER_SECONDS,
    print_lines,
    read_available,
    run_reader,
)
from ..paths import is_directory
from .tasks import DlaTasks

SYSTEM = "nvdla_ftrace"
EVENTS = ("job_submit", "job_timestamps")
_TRACEFS = "sys/kernel/tracing"
# Per CPU. The default is ten times that, for each instance; the buffer is emptied many times per
# second.
_BUFFER_KB = "128"


def find_tracefs(root: Path = Path("/"), system: str = SYSTEM) -> Path:
    """Return the directory of the tracer's files, or raise ``UserError``."""
    tracefs = root / _TRACEFS
    try:
        is_mounted = is_directory(tracefs / "instances")
        if is_mounted and is_directory(tracefs / "events" / system):
            return tracefs
    except PermissionError as error:
        raise _for_root(tracefs) from error
    if not is_mounted and os.geteuid() == 0:
        remedy = f"sudo mount -t tracefs tracefs {tracefs}"
        raise UserError(f"tracefs is not mounted at {tracefs}", remedy)
    if not os.access(tracefs / "events", os.X_OK):
        raise _for_root(tracefs)
    what = f"the kernel has no trace events of the DLA (no events/{system} in {tracefs})"
    remedy = "they came with JetPack 6 (L4T R36); there, sudo modprobe nvhost-nvdla"
    raise UserError(what, remedy)


class TraceInstance:
    """A private instance of the tracer; a context manager that removes it.

    One that a crash left behind is taken over. Two readers of one trace would each get half of it,
    so the second one is refused. ``pipe`` is the descriptor of ``trace_pipe``, which does not wait.
    """

    def __init__(
        self,
        tracefs: Path,
        *,
        system: str = SYSTEM,
        events: Sequence[str] = EVENTS,
        make: Callable[[Path], None] = Path.mkdir,
        remove: Callable[[Path], None] = Path.rmdir,
    ) -> None:
        """Make it and enable the events, or raise ``UserError``."""
        self.pipe = -1
        self._switches = [f"events/{system}/{event}/enable" for event in events]
        self._path = tracefs / "instances/tegrascope"
        self._remove = remove
        self._lock = -1
        try:
            with contextlib.suppress(FileExistsError):
                make(self._path)
            self._take()
            self._write("tracing_on", "0")
            self._write("buffer_size_kb", _BUFFER_KB)
            self._write("trace_clock", "mono")  # this empties the buffer as well
            # Lines name the process too, not only the thread. Kernels before 4.12 cannot.
            with contextlib.suppress(OSError):
                self._write("options/record-tgid", "1")
            for switch in self._switches:
                self._write(switch, "1")
            self._write("tracing_on", "1")
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
        for switch in self._switches:
            with contextlib.suppress(OSError):
                self._write(switch, "0")
        # An instance that cannot be removed has no events, and the next start takes it over.
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

    def _write(self, name: str, text: str) -> None:
        opened = os.open(self._path / name, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(opened, text.encode())
        finally:
            os.close(opened)


def find_cores(root: Path = Path("/")) -> list[int]:
    """Return the DLA cores that the kernel lists."""
    try:
        devices = list(root.glob("sys/bus/platform/devices/*.nvdla[0-9]"))
    except OSError:  # a driver goes away while its devices are listed
        return []
    return sorted({int(device.name[-1]) for device in devices})


def _for_root(path: Path) -> UserError:
    remedy = "sudo, or systemctl enable --now tegrascope-dla-trace.socket"
    return UserError(f"{path} is for root alone", remedy)


def _cannot(error: OSError) -> UserError:
    if error.errno == errno.EBUSY:
        remedy = "let the daemon have one reader: systemctl stop 'tegrascope-dla-trace@*'"
        return UserError(f"another program reads {error.filename}", remedy)
    if error.errno == errno.EROFS:
        remedy = "give the unit ReadWritePaths=/sys/kernel/tracing/instances"
        return UserError(f"{error.filename} may not be written here", remedy)
    what = f"{error.filename}: {error.strerror}"
    return UserError(what, "look at dmesg; is the kernel locked down?")


# A task takes milliseconds; one whose end was lost must not keep the DLA powered.
_IN_FLIGHT_NS = 2_000_000_000


class FirmwareReader:
    """The firmware's own figure of each core, read only while a task of it is in flight.

    Without a task the driver returns 0 and does not ask the firmware; a reading keeps the DLA
    powered for a while.
    """

    def __init__(self, root: Path, cores: Collection[int], every_ns: int) -> None:
        debug = root / "sys/kernel/debug"
        self._files = {core: debug / f"nvdla{core}/firmware/utilization_rate" for core in cores}
        self._every_ns = every_ns
        self._read_ns: dict[int, int] = {}
        self._tasks = DlaTasks()

    def take(self, lines: Collection[str]) -> None:
        """Note the tasks that begin and end."""
        for line in lines:
            with contextlib.suppress(ParseError):
                self._tasks.take(parse_trace_line(line))

    def read(self, now_ns: Callable[[], int]) -> list[str]:
        """Return a line for each core that has a task in flight and is due."""
        found = []
        for core, file in self._files.items():
            begin_ns = now_ns()
            due = begin_ns - self._read_ns.get(core, -self._every_ns) >= self._every_ns
            if not due or not self._tasks.in_flight(core, begin_ns, _IN_FLIGHT_NS):
                continue
            self._read_ns[core] = begin_ns
            with contextlib.suppress(OSError, UnicodeDecodeError):
                percent = file.read_text(encoding="ascii").strip()
                found.append(f"firmware core={core} percent={percent} at={_seconds(now_ns())}")
        return found


def follow(
    pipe: int,
    out: int,
    *,
    every_seconds: float,
    firmware: FirmwareReader | None = None,
    now_ns: Callable[[], int] = time.monotonic_ns,
    client_seconds: float = CLIENT_SECONDS,
) -> None:
    """Print events as they come, and a sign of life per period; raise UserError at their end.

    ``out`` does not block. A client that takes nothing for ``client_seconds`` is a ``UserError``.
    """
    every_ns = round(every_seconds * 1e9)
    buffer = LineBuffer()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(out, 0)  # its other end may close while there is nothing to print
    alive_ns = now_ns()
    while True:
        ready = dict(poll.poll(max(0, (alive_ns - now_ns()) // 1_000_000 + 1)))
        if out in ready:
            return
        begin_ns = now_ns()
        lines = buffer.feed(read_available(pipe))
        own = []
        if firmware is not None:
            firmware.take(lines)
            own = firmware.read(now_ns)
        if begin_ns >= alive_ns:
            own.append(f"alive at={_seconds(begin_ns)}")
            alive_ns = begin_ns + every_ns
        print_lines(out, [*lines, *(f"{OWN_PREFIX}{text}" for text in own)], client_seconds)
        if lines:
            time.sleep(GATHER_SECONDS)


def _seconds(ns: int) -> str:
    return f"{ns // 1_000_000_000}.{ns % 1_000_000_000:09}"


def main(
    argv: list[str] | None = None, *, system: str = SYSTEM, events: Sequence[str] = EVENTS
) -> int:
    """Print until asked to stop, or until the reader is gone."""
    parser = argparse.ArgumentParser(
        prog="tegrascope.collectors.dla.reader",
        description="Print what the driver of the DLA traces, as root; see docs/sources.md.",
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="what stands for /")
    parser.add_argument("--every", type=float, default=1.009, help="seconds between signs of life")
    parser.add_argument(
        "--firmware",
        action="store_true",
        help="ask the firmware too, while a task is in flight; each reading keeps the DLA on",
    )
    asked = parser.parse_args(argv)
    if not 0.01 <= asked.every <= 60:
        parser.error("--every is 0.01 to 60 seconds")

    def read(out: int) -> None:
        tracefs = find_tracefs(asked.root, system)
        with TraceInstance(tracefs, system=system, events=events) as instance:
            try:
                cores = find_cores(asked.root)
                print_lines(out, [f"{OWN_PREFIX}hello cores={','.join(map(str, cores))}"])
                every_ns = round(asked.every * 1e9)
                firmware = FirmwareReader(asked.root, cores, every_ns) if asked.firmware else None
                follow(instance.pipe, out, every_seconds=asked.every, firmware=firmware)
            finally:  # a second signal must not leave the instance behind
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)

    return run_reader("dla trace", read, lambda error: f"{OWN_PREFIX}unavailable {error}")


if __name__ == "__main__":
    sys.exit(main())

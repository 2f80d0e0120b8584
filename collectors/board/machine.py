"""The machine as commands examine it: each answer comes in bounded time, and none raises.

Nothing here changes the machine. The daemon does not import it: psutil costs one MiB of memory.
"""

import contextlib
import ctypes
import os
import platform
import selectors
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import SplitResult

import psutil

from ...parsers.errors import UserError
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..children.process import LineChild, Quiet
from ..http_peer import HttpPeer, PeerLimits, error_words
from ..paths import exists

_TEXT_BYTES, _PART_BYTES = 1 << 18, 1 << 16
_TIME_ERROR, _TIMEX_BYTES = 5, 512

There = Literal["there", "absent", "hidden"]


@dataclass(frozen=True)
class Answer:
    """The answer of a program or a server."""

    status: int | None  # of the exit or of HTTP; None if none came in time
    out: str
    message: str  # the last line of standard error, or why there is no status


class HostMemory(NamedTuple):
    """Memory of the machine; its fields are facts of ``doctor``."""

    total_bytes: int
    available_bytes: int
    swap_free_bytes: int


@dataclass(frozen=True)
class Machine:
    """The machine under a root directory, as this user sees it."""

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    clock: Clock = SYSTEM_CLOCK
    uid: int = field(default_factory=os.geteuid)
    architecture: str = field(default_factory=platform.machine)

    def at(self, path: str) -> Path:
        """Return where an absolute path lies."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """Return the text of a file without the NULs of the device tree; ``None`` if not read."""
        try:
            with self.at(path).open("rb") as file:
                data = file.read(_TEXT_BYTES)
        except OSError:
            return None
        return data.decode("utf-8", "replace").replace("\0", "\n").strip()

    def there(self, path: str) -> There:
        """Return whether a path exists, does not, or is hidden from this user."""
        try:
            self.at(path).stat()
        except PermissionError:
            return "hidden"
        except OSError:
            return "absent"
        return "there"

    def may(self, path: str, mode: int) -> bool:
        """Return whether this user may read, write or search a path (``os.R_OK`` …)."""
        return os.access(self.at(path), mode)

    def can_read(self, path: str) -> bool:
        """Return whether a path exists and this user may read it."""
        return self.there(path) == "there" and self.may(path, os.R_OK)

    def group_of(self, path: str) -> str:
        """Return the group that owns a path, by name where it has one."""
        try:
            return self.at(path).group()
        except OSError:
            return ""
        except KeyError:
            return str(self.at(path).stat().st_gid)

    def find(self, *patterns: str) -> list[str]:
        """Return the paths that match any of these patterns, sorted."""
        found = set[Path]()
        for pattern in patterns:
            with contextlib.suppress(OSError):
                found.update(self.root.glob(pattern.lstrip("/")))
        return sorted(f"/{one.relative_to(self.root)}" for one in found)

    def which(self, program: str) -> str | None:
        """Return the path of a program, by name or by path."""
        return shutil.which(program, path=self.environ.get("PATH", os.defpath))

    def run(self, argv: Sequence[str], seconds: float = 5.0) -> Answer:
        """Run a program to its end; its process group is killed after the timeout.

        It is killed too if it prints more than 256 KiB.
        """
        try:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env={**self.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            return Answer(None, "", f"{argv[0]}: {error.strerror}")
        until = time.monotonic() + seconds
        with child:
            try:
                out, errors = _outputs(child, until)
                child.wait(max(0.0, until - time.monotonic()))
            except (subprocess.TimeoutExpired, OverflowError) as error:
                with contextlib.suppress(OSError):
                    os.killpg(child.pid, signal.SIGKILL)
                # Not waited for any further: what holds a pipe open may be in the kernel.
                found = f"printed over {_TEXT_BYTES >> 10} KiB"
                if isinstance(error, subprocess.TimeoutExpired):
                    found = f"did not end within {seconds:g} s"
                return Answer(None, "", f"{argv[0]} {found}")
        return Answer(child.returncode, out, errors.strip().rpartition("\n")[2][:200])

    def lines(self, argv: Sequence[str], count: int, seconds: float) -> tuple[list[str], str]:
        """Return a program's first lines, and why there are fewer than ``count``; then end it."""
        found: list[str] = []
        until = time.monotonic() + seconds
        line: Stamped[str] | Quiet = Quiet.TIMEOUT
        try:
            with LineChild(argv, env=self.environ) as child:
                while len(found) < count and (left := until - time.monotonic()) > 0:
                    if not isinstance(line := child.read(left), Stamped):
                        break
                    found.append(line.value)
        except UserError as error:
            return found, error.message
        if len(found) == count:
            return found, ""
        if line is not Quiet.END:
            return found, f"printed {len(found)} line(s) in {seconds:g} s"
        words = f" ({child.last_words[-1][:200]})" if child.last_words else ""
        return found, f"ended with status {child.returncode}{words}"

    def package(self, name: str) -> str | None:
        """Return the version of an installed distribution, without importing it."""
        try:
            return metadata.version(name)
        except Exception:  # a broken one is reported where it is used
            return None

    def library(self, name: str) -> str | None:
        """Return the file of a shared library, ``cudla`` for libcudla.so, without opening it."""
        try:
            return find_library(name)
        except OSError:
            return None

    def memory(self) -> HostMemory | None:
        """Return the memory of this machine, whatever the root; ``None`` if it is unknown."""
        try:
            memory = psutil.virtual_memory()
            return HostMemory(memory.total, memory.available, psutil.swap_memory().free)
        except (OSError, ValueError):
            return None

    def free_bytes(self, path: Path) -> int | None:
        """Return what this user may still write below a directory, or its nearest parent."""
        try:
            nearest = next(one for one in (path, *path.parents) if exists(one))
            return psutil.disk_usage(str(nearest)).free
        except (OSError, StopIteration):
            return None

    def kernel_log(self) -> list[str] | None:
        """Return the messages of this machine's kernel; ``None`` where this user may not."""
        answer = self.run(("dmesg",))
        return answer.out.splitlines() if answer.status == 0 else None

    def is_synchronised(self) -> bool | None:
        """Return whether something disciplines the wall clock; ``None`` if it is unknown."""
        try:
            # An adjtimex with no mode set reads, and needs no right.
            state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        except (OSError, AttributeError):
            return None
        return None if state < 0 else bool(state != _TIME_ERROR)

    def socket_made_seconds(self, paths: Sequence[str]) -> float | None:
        """Return the wall time at which the oldest of these sockets was made."""
        times = []
        for path in map(self.at, paths):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK((found := path.lstat()).st_mode):
                    times.append(found.st_mtime)
        return min(times, default=None)

    def listens(self, path: str) -> bool:
        """Return whether a process listens on a Unix socket, without connecting to it."""
        for line in (self.text("/proc/net/unix") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 7 and fields[7] == path:
                with contextlib.suppress(ValueError):
                    return bool(int(fields[3], 16) & 0x10000)
        return False

    def get(self, host: str, port: int, path: str, seconds: float = 2.0) -> Answer:
        """Return the status and body of a page; without an answer no status, and the reason."""
        name = f"[{host}]" if ":" in host else host
        address = SplitResult("http", f"{name}:{port}", "", "", "")
        try:
            with HttpPeer(address, PeerLimits(seconds, body_bytes=_TEXT_BYTES)) as peer:
                answer = peer.ask("GET", path)
                body = peer.read().decode("utf-8", "replace")
                return Answer(answer.status, body, answer.reason)
        except ConnectionRefusedError:
            return Answer(None, "", "refused")
        except (OSError, HTTPException) as error:
            return Answer(None, "", error_words(error))


def _outputs(child: "subprocess.Popen[bytes]", until: float) -> tuple[str, str]:
    """Return all that a program prints on its two streams.

    Raises:
        subprocess.TimeoutExpired: A stream is still open at the monotonic time ``until``.
        OverflowError: It prints more than is read.
    """
    texts: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as streams:
        for stream in (child.stdout, child.stderr):
            assert stream is not None
            texts[stream.fileno()] = bytearray()
            streams.register(stream.fileno(), selectors.EVENT_READ)
        while streams.get_map():
            left = until - time.monotonic()
            ready = streams.select(max(0.0, left))
            if left <= 0:
                raise subprocess.TimeoutExpired(child.args, left)
            for key, _ in ready:
                part = os.read(key.fd, _PART_BYTES)
                texts[key.fd] += part
                if not part:
                    streams.unregister(key.fd)
            if max(map(len, texts.values())) > _TEXT_BYTES:
                raise OverflowError
    out, errors = (text.decode("utf-8", "replace") for text in texts.values())
    return out, errors


def cpu_busy_ratio(seconds: float, stopping: threading.Event) -> float | None:
    """Return the share of all cores that worked during some seconds, 0…1.

    ``stopping`` ends it early. ``None``: not reported.
    """
    try:
        psutil.cpu_percent()
        stopping.wait(seconds)
        return psutil.cpu_percent() / 100
    except (OSError, ValueError):
        return None

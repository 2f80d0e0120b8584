"""Built engines on disk, each found again by the digest of all that it was made from.

An engine is a program that the driver will run: it is read only from a directory that belongs to
this user and that no other user may write.
"""

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import NonNegativeInt, ValidationError

from ...parsers.errors import UserError
from ...parsers.inference.placement import Built, Circumstances
from ...parsers.records import Record
from ..board.boards import l4t_of
from ..board.readers import read_text
from ..files import open_regular, write_atomic
from ..models.files import BUILTIN_PREFIX, external_files, sha256_of
from ..paths import is_file

# Raised whenever what is built from the same parts changes, so that old engines are not used.
CACHE_VERSION = 1
LOG_LINES_KEPT = 400
# Endings of an engine's own files.
_SUFFIXES = (".plan", ".bad", ".lock", ".json", ".npz")
_DLA_FIRMWARE = "sys/kernel/debug/nvdla0/firmware/version"


class EngineFacts(Record):
    """Facts about a built engine."""

    key: str
    model: str
    parts: dict[str, str]
    plan_sha256: str
    plan_bytes: NonNegativeInt
    built_wall_ns: NonNegativeInt
    built: Built


class Sidecar(EngineFacts):
    """The facts with the log and the inspector's answer, kept next to the engine as JSON."""

    log: tuple[str, ...] = ()
    inspector: str | None = None


class BuiltEngine(NamedTuple):
    """An engine that was just built; ``inspector`` is the JSON of its inspector, if any."""

    plan: bytes
    built: Built
    log: tuple[str, ...] = ()
    inspector: str | None = None

    def under(self, circumstances: Circumstances) -> "BuiltEngine":
        """Return it with the circumstances of its build, and their notes."""
        notes = (*self.built.notes, *circumstances.notes)
        facts = {"circumstances": circumstances, "notes": notes}
        return self._replace(built=self.built.model_copy(update=facts))


class Entry(NamedTuple):
    """An engine in the cache."""

    sidecar: Sidecar
    plan: Path
    used_wall_ns: int


def model_digest(model: Path) -> str:
    """Return the digest of a model with all the files that hold its weights, which must exist."""
    digest = hashlib.sha256(sha256_of(model).encode())
    for path in external_files(model):
        digest.update(f" {path.name} {sha256_of(path)}".encode())
    return digest.hexdigest()


def engine_key(parts: Mapping[str, str]) -> str:
    """Return the key of an engine: the digest of all that it depends on.

    >>> engine_key({"model": "m", "sm": "8.7"}) == engine_key({"sm": "8.7", "model": "m"})
    True
    """
    text = json.dumps({**parts, "cache": str(CACHE_VERSION)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def plugin_parts(plugins: Sequence[str]) -> dict[str, str]:
    """Return the part of a key that names libraries of plug-ins, by their digests; none without.

    Raises:
        UserError: A library does not exist.
    """
    for path in plugins:
        if not is_file(Path(path)):
            raise UserError(
                f"there is no plug-in library {path}", "give its full path under plugins:"
            )
    if not plugins:
        return {}
    return {"plugins": " ".join(sha256_of(Path(path)) for path in plugins)}


def has_creators(plugin: str) -> bool:
    """Return whether a library exports its plug-ins for the registry of TensorRT to load.

    One that does not registers them itself when it is loaded.
    """
    exported = Path(plugin).read_bytes()
    return b"\0getCreators\0" in exported or b"\0getPluginCreators\0" in exported


class EngineCache:
    """The engines in one directory; any number of processes may use it at the same time."""

    def __init__(self, directory: Path) -> None:
        """Open the directory, or make it for this user alone; raise ``UserError`` if not safe."""
        self.directory = directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.stat()
        except OSError as error:
            raise UserError(
                f"engines cannot be kept in {directory} ({error.strerror})",
                "name a directory that you may write",
            ) from None
        if found.st_uid != os.geteuid():
            raise UserError(
                f"{directory} belongs to user {found.st_uid}, and engines are programs",
                "name a directory of your own for them",
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UserError(
                f"others may write to {directory}, and engines are programs",
                f"look at what is in it, then chmod go-w {directory}",
            )

    def plan_path(self, key: str) -> Path:
        """Return the file of the engine of a key."""
        return self.directory / f"{key}.plan"

    @contextmanager
    def lock(self, key: str, progress: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Keep other processes from building or removing the same engine; waits for its turn."""
        while True:
            path = self.directory / f"{key}.lock"
            with _open_lock(path) as file:
                if not try_lock(file):
                    progress("waits for another process, which builds or loads the same engine")
                    fcntl.flock(file, fcntl.LOCK_EX)
                # If it was pruned before it was locked, the name leads to another file now.
                is_current = False
                with suppress(FileNotFoundError):
                    is_current = os.path.samestat(path.stat(), os.fstat(file.fileno()))
                if is_current:
                    yield
                    return

    def read(self, key: str) -> tuple[bytes, Sidecar] | None:
        """Return the engine and its sidecar, or ``None`` if either is missing.

        An engine whose file is not as it was written is set aside, and counts as missing.
        """
        sidecar = _read_sidecar(self.directory / f"{key}.json")
        plan = self.plan_path(key)
        if sidecar is None or sidecar.key != key:
            return None
        try:
            content = plan.read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(content).hexdigest() != sidecar.plan_sha256:
            self.set_aside(key)
            return None
        with suppress(OSError):
            os.utime(plan)  # its age counts from its last use
        return content, sidecar

    def write(self, key: str, made: BuiltEngine, *, model: str, parts: Mapping[str, str]) -> None:
        """Keep an engine: whole or not at all, and the plan before its sidecar.

        It has no first outputs yet.
        """
        for old in self.directory.glob(f"{key}.outputs*"):
            old.unlink(missing_ok=True)
        sidecar = Sidecar(
            key=key,
            model=model,
            parts=dict(parts),
            plan_sha256=hashlib.sha256(made.plan).hexdigest(),
            plan_bytes=len(made.plan),
            built_wall_ns=time.time_ns(),
            built=made.built,
            log=_worth_keeping(made.log),
            inspector=made.inspector,
        )
        write_atomic(self.plan_path(key), made.plan)
        write_atomic(self.directory / f"{key}.json", sidecar.model_dump_json(indent=1).encode())

    def outputs_path(self, key: str, point: str) -> Path:
        """Return the file of an engine's first outputs at one point, which are removed with it.

        Args:
            point: The shapes of the inputs; each point has first outputs of its own.
        """
        digest = hashlib.sha256(point.encode()).hexdigest()
        return self.directory / f"{key}.outputs-{digest[:12]}.npz"

    def set_aside(self, key: str) -> None:
        """Keep an engine that does not load, for diagnosis, under another name."""
        plan = self.plan_path(key)
        with suppress(FileNotFoundError):
            plan.replace(plan.with_suffix(".plan.bad"))

    def entries(self) -> list[Entry]:
        """Return all engines, those used last first."""
        entries = []
        for sidecar in filter(None, map(_read_sidecar, self.directory.glob("*.json"))):
            plan = self.plan_path(sidecar.key)
            with suppress(OSError):
                entries.append(Entry(sidecar, plan, plan.stat().st_mtime_ns))
        return sorted(entries, key=lambda entry: -entry.used_wall_ns)

    def find(self, key: str) -> Entry:
        """Return the engine whose key begins so, or raise ``UserError`` if it is not just one."""
        found = [entry for entry in self.entries() if entry.sidecar.key.startswith(key)]
        if len(found) == 1:
            return found[0]
        if not found:
            raise UserError(
                f"no engine in {self.directory} has a key that begins with {key!r}",
                "take the key from tegrascope engines list",
            )
        names = ", ".join(entry.sidecar.key[:12] for entry in found)
        raise UserError(f"{key!r} begins the keys of {names}", "give more of the key")

    def remove(self, entry: Entry) -> int | None:
        """Remove an engine and return the bytes freed; ``None`` if a process is about to use it."""
        lock = self.directory / f"{entry.sidecar.key}.lock"
        with _open_lock(lock) as file:
            if not try_lock(file):
                return None
            freed = 0
            own = (entry.plan.with_suffix(suffix) for suffix in (".plan", ".plan.bad", ".json"))
            for path in (*own, *self.directory.glob(f"{entry.sidecar.key}.outputs*")):
                with suppress(FileNotFoundError):
                    freed += path.stat().st_size
                    path.unlink()
            lock.unlink(missing_ok=True)
        return freed

    def sweep(self) -> None:
        """Remove what belongs to no engine: what was set aside, and half-written files."""
        known = {entry.sidecar.key for entry in self.entries()}
        for path in self.directory.iterdir():
            key = path.name.partition(".")[0]
            is_stray = path.suffix in _SUFFIXES and key not in known
            is_old = path.suffix == ".part" and time.time() - path.stat().st_mtime > 3600
            with suppress(FileNotFoundError), (self.directory / f"{key}.lock").open("rb") as lock:
                is_stray = is_stray and try_lock(lock)
            if is_old or is_stray:
                path.unlink(missing_ok=True)


def _open_lock(path: Path) -> BinaryIO:
    """Open the lock of a key; a link that another user may have made is not followed."""
    return os.fdopen(open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW), "rb+")


def model_name(asked: str, model: Path) -> str:
    """Return the model as people call it: a built-in name, or the file's name."""
    return asked if asked.startswith(BUILTIN_PREFIX) else model.name


def machine_parts(*, is_dla: bool, root: Path = Path("/")) -> dict[str, str]:
    """Return the parts of a key that depend on the machine, as far as it has them.

    They are the release of Jetson Linux as ``36.4.3``, carrier and module as the device tree names
    them, and, for an engine for a DLA, the version of its firmware, which only root can read.
    """
    compatible = read_text(root / "proc/device-tree/compatible") or ""
    parts = {
        "machine_l4t": l4t_of(read_text(root / "etc/nv_tegra_release")),
        "machine_module": compatible.partition("\0")[0],
    }
    if is_dla:
        parts["machine_dla_firmware"] = read_text(root / _DLA_FIRMWARE)
    return {name: value for name, value in parts.items() if value}


def try_lock(lock: BinaryIO | int) -> bool:
    """Take the lock of a file unless another process has it; return whether it was taken."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_sidecar(path: Path) -> Sidecar | None:
    try:
        return Sidecar.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _worth_keeping(log: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines about layers, and the last ones."""
    lines = []
    for line in log[:-LOG_LINES_KEPT]:
        if "Layer]" in line or "Layer(" in line or "on DLA" in line:
            lines.append(line)
    return (*lines, *log[-LOG_LINES_KEPT:])

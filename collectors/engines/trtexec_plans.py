"""Engines that trtexec built: each a plan with a note, named for what it is made of."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import NonNegativeFloat, ValidationError

from ...parsers.errors import Mendable
from ...parsers.records import Record


class PlanNote(Record):
    """What is known of a plan, and cannot be read out of it.

    Attributes:
        log: Lines of its build that matter.
        inspector: The engine as the inspector tells it.
        tensorrt: Version that built it.
        build_seconds: Length of the build.
    """

    log: tuple[str, ...] = ()
    inspector: str | None = None
    tensorrt: str | None = None
    build_seconds: NonNegativeFloat | None = None


def plan_key(parts: Sequence[str]) -> str:
    """Return the SHA-256 of all that a plan depends on."""
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def plan_path(directory: Path, key: str) -> Path:
    """Return where the plan of a key is."""
    return directory / f"trtexec-{key[:32]}.plan"


def read_note(plan: Path) -> PlanNote | None:
    """Return the note beside a plan; ``None`` where either is missing or spoilt."""
    try:
        note = PlanNote.model_validate_json(plan.with_suffix(".json").read_bytes())
    except (OSError, ValidationError):
        return None
    return note if plan.is_file() else None


def keep(part: Path, plan: Path, note: PlanNote) -> None:
    """Put a plan and its note in their place; where the plan is, its note is."""
    text = plan.with_suffix(".json.part")
    with text.open("w", encoding="utf-8") as file:
        file.write(note.model_dump_json())
        file.flush()
        os.fsync(file.fileno())
    text.replace(plan.with_suffix(".json"))
    part.replace(plan)


@contextmanager
def locked(plan: Path) -> Iterator[None]:
    """Let one process at a time build a plan; whoever comes second waits for the first.

    Raises:
        Mendable: The directory cannot be written, or others may write in it: a plan is a program.
    """
    directory = plan.parent
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = directory.stat()
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            raise Mendable(
                f"others may write engines into {directory}",
                f"chown it to the user of this service, and chmod go-w {directory}",
            )
        lock = plan.with_suffix(".lock").open("wb")
    except OSError as error:
        raise Mendable(
            f"no engine can be kept in {directory} ({error.strerror})",
            "name another state directory",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Runs all probes within a time, keeps what they found, and goes on after a kill."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ... import __version__
from ...parsers.errors import UserError
from . import dla, inference, telemetry
from . import probes as steps
from .belief import DLA_REMEDY, BeliefCheck, Decision, Evidence, beliefs, verdict_of
from .probes import Absent, BoardAccess, Probe

CHECKS: Mapping[str, BeliefCheck] = {**telemetry.CHECKS, **dla.CHECKS, **inference.CHECKS}
TIME_OVER = "the time was over"
FULL_SECONDS, QUICK_SECONDS = 1200.0, 180.0
# A probe that would be cut to less is left out.
_SHORTEST_SECONDS = 5.0


def verdicts(found: Mapping[str, Evidence]) -> dict[str, Decision]:
    """Return the verdict of each belief, in the order of the page."""
    return {name: verdict_of(name, CHECKS, found) for name in beliefs()}


def lacks_time(found: Mapping[str, Evidence]) -> bool:
    """Return whether a probe was left out because the time was over."""
    return TIME_OVER in [evidence.missing for evidence in found.values()]


class SavedEvidence:
    """The evidence so far in a file, and the change of the board that is to be undone."""

    def __init__(self, directory: Path, board: str) -> None:
        """Read what an earlier run of this release on this board found."""
        self.directory = directory
        self.found: dict[str, Evidence] = {}
        self.restore: list[str] = []
        self._header = {"tegrascope": __version__, "board": board}
        with suppress(OSError, ValueError, KeyError, ValidationError):
            noted = json.loads((directory / "evidence.json").read_text(encoding="utf-8"))
            self.restore = list(map(str, noted["restore"]))
            if noted["header"] == self._header:
                self.found = _present(noted["found"])

    def save(self) -> None:
        """Replace the file; a kill leaves the old or the new one."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        document = {
            "header": self._header,
            "restore": self.restore,
            "found": {name: one.model_dump(mode="json") for name, one in self.found.items()},
        }
        new = self.directory / "evidence.json.new"
        new.write_text(json.dumps(document), encoding="utf-8")
        new.replace(self.directory / "evidence.json")

    def forget(self) -> None:
        """Remove all files of ours."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _present(noted: Mapping[str, Any]) -> dict[str, Evidence]:
    """Read evidence by probe; what was missing before may be there now, so it is left out."""
    present = {}
    for name, fields in noted.items():
        evidence = Evidence.model_validate(fields)
        if evidence.missing is None:
            present[name] = evidence
    return present


def root_list(quick: bool) -> list[str]:
    """Return what root is asked for, to be read before."""
    steps_of_root = []
    for probe in steps.probes().values():
        if probe.root and (probe.quick or not quick):
            steps_of_root.append(probe.about)
    return steps_of_root


def ask_sudo(board: BoardAccess) -> tuple[str, ...] | None:
    """Return what begins a command of root; a terminal is asked for the password once."""
    if board.machine.uid == 0:
        return ()
    path = board.machine.which("sudo")
    if path is None:
        return None
    if sys.stdin is not None and sys.stdin.isatty():
        subprocess.run([path, "-v"], check=False)
    if board.machine.run([path, "-n", "true"]).status != 0:
        return None
    return path, "-n"


def gather(
    board: BoardAccess,
    memory: SavedEvidence,
    *,
    quick: bool = False,
    changes: bool = False,
    seconds: float | None = None,
    probes: Mapping[str, Probe] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[str]:
    """Run every probe that has no evidence yet; yield the name of each before it runs.

    Args:
        changes: Whether a probe may change the board for a while.
        seconds: Limit of all together; by default that of the page.
    """
    if not seconds:
        seconds = QUICK_SECONDS if quick else FULL_SECONDS
    until = clock() + seconds
    board.found = memory.found
    undo(board, memory)
    memory.save()
    for name, probe in (probes or steps.probes()).items():
        if name in memory.found:
            continue
        left = until - clock()
        missing = _missing(board, probe, quick, changes, left)
        if missing is None:
            yield name
            memory.found[name] = _run(board, memory, name, probe, min(left, probe.seconds))
        else:
            memory.found[name] = missing.evidence
        memory.save()


def _missing(
    board: BoardAccess, probe: Probe, quick: bool, changes: bool, left: float
) -> Absent | None:
    """Return why a probe is left out, or None."""
    if quick and not probe.quick:
        return Absent("it takes minutes", "tegrascope prove, without --quick")
    return _lack(board, probe) or _refusal(board, probe, changes, left)


def _lack(board: BoardAccess, probe: Probe) -> Absent | None:
    """Return what a probe needs and this board does not have."""
    known = board.found.get("board", Evidence())
    if "tensorrt" in probe.needs and known.value("^tensorrt$") == "none":
        return Absent("there is no TensorRT", "tegrascope doctor names the package")
    if "dla" in probe.needs and known.number("^dla_cores$") == 0:
        return Absent("this board has no DLA", DLA_REMEDY)
    for path in probe.needs:
        if path.startswith("/") and not board.machine.find(path):
            return Absent(f"there is no {path}", probe.remedy)
    inputs = board.found.get("inputs", Evidence())
    if "inputs" in probe.needs and inputs.missing is not None:
        return Absent(inputs.missing, inputs.remedy)
    return None


def _refusal(board: BoardAccess, probe: Probe, changes: bool, left: float) -> Absent | None:
    """Return what does not allow a probe: the rights, an option, or the time that is left."""
    if probe.root and board.sudo is None:
        return board.no_root()
    if probe.changes and not changes:
        return Absent(f"{probe.changes}, which needs leave", "tegrascope prove --allow-changes")
    if left < _SHORTEST_SECONDS:
        return Absent(TIME_OVER, "tegrascope prove again: it goes on")
    return None


def _run(
    board: BoardAccess, memory: SavedEvidence, name: str, probe: Probe, seconds: float
) -> Evidence:
    board.work.mkdir(parents=True, exist_ok=True)
    if probe.changes:
        memory.restore = steps.restore(board)
        memory.save()
    try:
        return steps.gather(board, name, probe, seconds)
    except Absent as absent:
        return absent.evidence
    except UserError as error:
        return Evidence(missing="the program does not start", remedy=type(error).__name__)
    except (OSError, ValueError) as error:
        return Evidence(missing=f"the probe failed ({type(error).__name__})", remedy="report it")
    finally:
        undo(board, memory)


def undo(board: BoardAccess, memory: SavedEvidence) -> None:
    """Undo a change that is noted, also that of a run that was killed; it stays noted if it fails.

    Raises:
        UserError: Root is needed for it.
    """
    if not memory.restore:
        return
    command: Sequence[str] = memory.restore
    if board.sudo is None or board.machine.run([*board.sudo, *command], 60.0).status != 0:
        raise UserError("a change of the board is not undone", f"sudo {' '.join(command)}")
    memory.restore = []
    memory.save()

"""The board itself: model, release, container, power mode."""

import re
from collections.abc import Iterator

from .finding import Finding, Patient
from .modules import Board

_MODE = re.compile(r"pmode:\s*(\d+)")
_NAMED = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")


def check_board(patient: Patient) -> Iterator[Finding]:
    """Tell which board this is, and under what limits it runs."""
    board = patient.board
    yield judge_board(board)
    if board.container is not None:
        yield Finding(
            check="container",
            level="note",
            said=f"in a container ({board.container}): only what it was given can be seen",
        )
    if board.is_jetson:
        machine = patient.machine
        yield judge_power_mode(
            machine.text("/var/lib/nvpmodel/status"), machine.text("/etc/nvpmodel.conf") or ""
        )


def judge_board(board: Board) -> Finding:
    """Say which board this is."""
    facts = {
        "jetson": board.is_jetson,
        "model": board.model,
        "module": board.module,
        "l4t": board.l4t,
        "jetpack": board.jetpack,
    }
    if not board.is_jetson:
        return Finding(
            check="board",
            level="note",
            said="this is no Jetson: no tegrastats, no rails, no DLA",
            mend="tegrascope run --demo plays one; for a desktop GPU, telemetry: {source: nvml}",
            facts=facts,
        )
    release = "its release is not told" if board.l4t is None else f"Jetson Linux {board.l4t}"
    jetpack = "" if board.jetpack is None else f" (JetPack {board.jetpack})"
    name = board.model or board.module or "a Jetson of no known model"
    return Finding(check="board", level="good", said=f"{name}, {release}{jetpack}", facts=facts)


def judge_power_mode(status: str | None, conf: str) -> Finding:
    """Say in which power mode the board is, by nvpmodel's own files.

    Args:
        status: Text of its status file, as ``pmode:0002``; ``None`` where it has none.
        conf: Text of its configuration, which names the modes.
    """
    found = None if status is None else _MODE.search(status)
    if found is None:
        return Finding(
            check="power_mode", level="note", said="the power mode is not told", mend="nvpmodel -q"
        )
    number = int(found[1])
    names = {int(one): name for one, name in _NAMED.findall(conf)}
    name = names.get(number, f"mode {number}")
    facts = {"id": number, "name": names.get(number)}
    if name.startswith("MAXN"):
        return Finding(check="power_mode", level="good", said=f"power mode {name}", facts=facts)
    return Finding(
        check="power_mode",
        level="note",
        said=f"power mode {name}, not MAXN: figures hold for this mode",
        mend="sudo nvpmodel -m 0, if you want the other",
        facts=facts,
    )

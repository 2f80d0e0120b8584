"""Room: memory to build an engine, disk for the store, and a state directory that is ours."""

import os
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from .findings import Board, Finding, Patient, uses_tensorrt

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
            message=f"in a container ({board.container}): only what it was given can be seen",
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
            message="this is no Jetson: no tegrastats, no rails, no DLA",
            remedy="tegrascope run --demo plays one; for a desktop GPU, telemetry: {source: nvml}",
            facts=facts,
        )
    release = "its release is not told" if board.l4t is None else f"Jetson Linux {board.l4t}"
    jetpack = "" if board.jetpack is None else f" (JetPack {board.jetpack})"
    name = board.model or board.module or "a Jetson of no known model"
    return Finding(check="board", level="good", message=f"{name}, {release}{jetpack}", facts=facts)


def judge_power_mode(status: str | None, conf: str) -> Finding:
    """Say in which power mode the board is, by nvpmodel's own files.

    Args:
        status: Text of its status file, as ``pmode:0002``; ``None`` where it has none.
        conf: Text of its configuration, which names the modes.
    """
    found = None if status is None else _MODE.search(status)
    if found is None:
        return Finding(
            check="power_mode",
            level="note",
            message="the power mode is not told",
            remedy="nvpmodel -q",
        )
    number = int(found[1])
    names = {int(one): name for one, name in _NAMED.findall(conf)}
    name = names.get(number, f"mode {number}")
    facts = {"id": number, "name": names.get(number)}
    if name.startswith("MAXN"):
        return Finding(check="power_mode", level="good", message=f"power mode {name}", facts=facts)
    return Finding(
        check="power_mode",
        level="note",
        message=f"power mode {name}, not MAXN: figures hold for this mode",
        remedy="sudo nvpmodel -m 0, if you want the other",
        facts=facts,
    )


_FIRST_GOOD_YEAR = 2024
# Made by the first process and by udev in the first seconds of a boot, and never copied.
_EARLY_SOCKETS = (
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/systemd/journal/socket",
    "/run/udev/control",
)
_STEP_SECONDS = 120.0
_UNITS = ((86400.0 * 365.25, "years"), (86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def check_clocks(patient: Patient) -> Iterator[Finding]:
    """Look at the year, the kernel's word on synchronisation, and the first sockets of the boot."""
    machine, clock = patient.machine, patient.machine.clock
    wall_seconds, boot_seconds = clock.wall_ns() / 1e9, clock.boottime_ns() / 1e9
    yield judge_wall(wall_seconds)
    yield judge_synchronised(machine.is_synchronised())
    made = machine.socket_made_seconds(_EARLY_SOCKETS)
    # In a container these sockets are those of its own, later start.
    yield judge_step(None if patient.board.container else made, wall_seconds, boot_seconds)


def judge_wall(wall_seconds: float) -> Finding:
    """Say whether the wall clock can be right at all.

    Args:
        wall_seconds: Seconds since 1970.
    """
    now = datetime.fromtimestamp(max(0.0, wall_seconds), timezone.utc)
    facts = {"time": now.isoformat(timespec="seconds")}
    if now.year < _FIRST_GOOD_YEAR:
        return Finding(
            check="wall_clock",
            level="broken",
            message=f"the clock says {now:%Y-%m-%d}: it was not set since the board started",
            remedy="sudo timedatectl set-ntp true, and see that the network is there",
            facts=facts,
        )
    return Finding(
        check="wall_clock", level="good", message=f"{now:%Y-%m-%d %H:%M:%S} UTC", facts=facts
    )


def judge_synchronised(is_synchronised: bool | None) -> Finding:
    """Say whether something keeps the wall clock right."""
    facts = {"synchronised": is_synchronised}
    if is_synchronised:
        return Finding(
            check="clock_sync", level="good", message="the clock is kept in step", facts=facts
        )
    message = "nothing keeps the clock in step: times of runs may be wrong, their lengths are not"
    if is_synchronised is None:
        message = "the kernel does not say whether the clock is kept in step"
    return Finding(
        check="clock_sync",
        level="note",
        message=message,
        remedy="sudo timedatectl set-ntp true",
        facts=facts,
    )


def judge_step(made_seconds: float | None, wall_seconds: float, boot_seconds: float) -> Finding:
    """Say whether the wall clock was set since the board started.

    What was made in the first seconds of a boot bears the wall time of then. If the clock has run
    on undisturbed since, that is now less the time since boot.

    Args:
        made_seconds: Wall time of the oldest of those things; ``None`` where there are none.
        wall_seconds: Wall time now.
        boot_seconds: Time since boot, suspend included.
    """
    if made_seconds is None:
        return Finding(
            check="clock_step", level="note", message="nothing tells whether the clock was set"
        )
    step = wall_seconds - boot_seconds - made_seconds
    if abs(step) < _STEP_SECONDS:
        return Finding(
            check="clock_step",
            level="good",
            message="the clock was not set since the board started",
        )
    way = "forward" if step > 0 else "back"
    return Finding(
        check="clock_step",
        level="note",
        message=f"the clock was set {way} by {_length(abs(step))} since the board started: a run"
        " across that is flagged clock_step",
        remedy="a battery for the board's RTC, or start the service after time-sync.target",
        facts={"step_seconds": round(step)},
    )


def _length(seconds: float) -> str:
    """Return a length of time in the largest unit of which there is one.

    >>> _length(3700), _length(1.77e9)
    ('1 hour', '56 years')
    """
    for length, unit in _UNITS:
        if seconds >= length:
            count = round(seconds / length)
            return f"{count} {unit if count > 1 else unit[:-1]}"
    return f"{seconds:.0f} seconds"


_GIB = 1 << 30
# A rule of thumb that no board has confirmed: CUDA and TensorRT themselves, and for the model its
# weights as read, as converted, and in the tactics that are tried.
BUILD_BYTES, BUILD_TIMES_MODEL = 3 * _GIB, 4
# A year of runs, a week of telemetry, and a log that grows while somebody reads.
_DISK_BYTES = _GIB
_FIELD = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def check_room(patient: Patient) -> Iterator[Finding]:
    """Look at memory, swap, disk and the state directory."""
    meminfo = read_meminfo(patient.machine.text("/proc/meminfo") or "")
    needed = patient.wants_tensorrt or patient.board.is_jetson
    yield judge_memory(meminfo, _largest_model(patient), needed)
    database = patient.config.store.path
    directory = patient.state_dir if database is None else database.parent
    yield judge_disk(patient.machine.free_bytes(patient.machine.at(str(directory))), directory)
    yield judge_state(patient, directory)


def read_meminfo(text: str) -> dict[str, int]:
    """Read ``/proc/meminfo`` as bytes by name."""
    return {name: int(number) * 1024 for name, number in _FIELD.findall(text)}


def _largest_model(patient: Patient) -> int:
    sizes = [0]
    for workload in patient.config.workloads:
        if uses_tensorrt(workload) and workload.model:
            path = patient.machine.at(str(patient.state_dir / workload.model))
            if path.is_file():
                sizes.append(path.stat().st_size)
    return max(sizes)


def judge_memory(meminfo: dict[str, int], model_bytes: int, needed: bool) -> Finding:
    """Say whether an engine can be built in the memory and swap that are free.

    Args:
        meminfo: Bytes by name.
        model_bytes: The largest model that is to be built; 0 where none is known.
        needed: Whether anything is meant to be built here.
    """
    if "MemAvailable" not in meminfo:
        return Finding(
            check="memory", level="note", message="/proc/meminfo does not tell of memory"
        )
    memory, swap = meminfo["MemAvailable"], meminfo.get("SwapFree", 0)
    wanted = BUILD_BYTES + BUILD_TIMES_MODEL * model_bytes
    facts = {
        "available_bytes": memory,
        "swap_free_bytes": swap,
        "wanted_bytes": wanted,
        "total_bytes": meminfo.get("MemTotal"),
    }
    have = f"{memory / _GIB:.1f} GiB of memory and {swap / _GIB:.1f} GiB of swap are free"
    if memory + swap >= wanted or not needed:
        return Finding(check="memory", level="good", message=have, facts=facts)
    gib = max(1, round((wanted - memory - swap) / _GIB + 0.5))
    return Finding(
        check="memory",
        level="missing",
        message=f"{have}; to build an engine takes about {wanted / _GIB:.1f} GiB (rule of thumb)",
        remedy=f"sudo fallocate -l {gib}G /swapfile && sudo chmod 600 /swapfile && "
        "sudo mkswap /swapfile && sudo swapon /swapfile",
        facts=facts,
    )


def judge_disk(free_bytes: int | None, directory: Path) -> Finding:
    """Say whether the store has room to grow."""
    if free_bytes is None:
        return Finding(
            check="disk", level="note", message=f"how much is free in {directory} is not told"
        )
    facts = {"free_bytes": free_bytes, "directory": str(directory)}
    message = f"{free_bytes / _GIB:.1f} GiB are free for {directory}"
    if free_bytes >= _DISK_BYTES:
        return Finding(check="disk", level="good", message=message, facts=facts)
    return Finding(
        check="disk",
        level="broken" if free_bytes < 16 << 20 else "note",
        message=f"only {message}",
        remedy="shorten store.samples_retention, or name a roomier --state-dir",
        blocking=free_bytes < 16 << 20,
        facts=facts,
    )


def judge_state(patient: Patient, directory: Path) -> Finding:
    """Say whether the state directory can be written, by this user or by the service's own."""
    machine, path = patient.machine, str(directory)
    there = machine.there(path)
    facts = {"directory": path, "there": there == "there"}
    if there == "there" and machine.may(path, os.W_OK | os.X_OK):
        return Finding(check="state", level="good", message=f"{path} can be written", facts=facts)
    if there == "absent":
        parent = next(
            (one for one in directory.parents if machine.there(str(one)) == "there"), Path("/")
        )
        if machine.may(str(parent), os.W_OK | os.X_OK):
            return Finding(check="state", level="good", message=f"{path} will be made", facts=facts)
    elif machine.there("/run/systemd/system") == "there" and path.startswith("/var/lib/"):
        return Finding(
            check="state",
            level="note",
            message=f"{path} is the service's, which writes it; this user may not",
            remedy="sudo tegrascope doctor",
            facts=facts,
        )
    return Finding(
        check="state",
        level="broken",
        message=f"{path} cannot be written by this user",
        remedy=f'sudo install -d -o "$USER" {path}, or name another with --state-dir',
        blocking=True,
        facts=facts,
    )

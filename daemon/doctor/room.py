"""Room: memory to build an engine, disk for the store, and a state directory that is ours."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .finding import Finding, Patient

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
        if workload.engine in ("tensorrt", "trtexec") and workload.model:
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
        return Finding(check="memory", level="note", said="/proc/meminfo does not tell of memory")
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
        return Finding(check="memory", level="good", said=have, facts=facts)
    gib = max(1, round((wanted - memory - swap) / _GIB + 0.5))
    return Finding(
        check="memory",
        level="missing",
        said=f"{have}; to build an engine takes about {wanted / _GIB:.1f} GiB (rule of thumb)",
        mend=f"sudo fallocate -l {gib}G /swapfile && sudo chmod 600 /swapfile && "
        "sudo mkswap /swapfile && sudo swapon /swapfile",
        facts=facts,
    )


def judge_disk(free_bytes: int | None, directory: Path) -> Finding:
    """Say whether the store has room to grow."""
    if free_bytes is None:
        return Finding(
            check="disk", level="note", said=f"how much is free in {directory} is not told"
        )
    facts = {"free_bytes": free_bytes, "directory": str(directory)}
    said = f"{free_bytes / _GIB:.1f} GiB are free for {directory}"
    if free_bytes >= _DISK_BYTES:
        return Finding(check="disk", level="good", said=said, facts=facts)
    return Finding(
        check="disk",
        level="broken" if free_bytes < 16 << 20 else "note",
        said=f"only {said}",
        mend="shorten store.samples_retention, or name a roomier --state-dir",
        stops=free_bytes < 16 << 20,
        facts=facts,
    )


def judge_state(patient: Patient, directory: Path) -> Finding:
    """Say whether the state directory can be written, by this user or by the service's own."""
    machine, path = patient.machine, str(directory)
    there = machine.there(path)
    facts = {"directory": path, "there": there == "there"}
    if there == "there" and machine.may(path, os.W_OK | os.X_OK):
        return Finding(check="state", level="good", said=f"{path} can be written", facts=facts)
    if there == "absent":
        parent = next(
            (one for one in directory.parents if machine.there(str(one)) == "there"), Path("/")
        )
        if machine.may(str(parent), os.W_OK | os.X_OK):
            return Finding(check="state", level="good", said=f"{path} will be made", facts=facts)
    elif machine.there("/run/systemd/system") == "there" and path.startswith("/var/lib/"):
        return Finding(
            check="state",
            level="note",
            said=f"{path} is the service's, which writes it; this user may not",
            mend="sudo tegrascope doctor",
            facts=facts,
        )
    return Finding(
        check="state",
        level="broken",
        said=f"{path} cannot be written by this user",
        mend=f'sudo install -d -o "$USER" {path}, or name another with --state-dir',
        stops=True,
        facts=facts,
    )

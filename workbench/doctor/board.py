"""Board and power mode, clocks, memory, disk and the state directory, and the DLA."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from ...collectors.backends.build_turn import build_bytes
from ...collectors.board.boards import (
    jetpack_of,
    keeps_freed_pages,
    read_power_mode,
    read_power_modes,
)
from ...collectors.board.machine import HostMemory, Machine
from ...collectors.board.supply import find_over_current, find_rails
from ...collectors.gpu.nvml import NvmlSettings
from ...collectors.lines.collector import TegrastatsSettings
from ...collectors.paths import is_file
from ...parsers import signals
from ...parsers.nvpmodel import PowerMode, largest_mode, mode_of
from ...parsers.signals import Column, by_name
from ...parsers.values import version_numbers
from .findings import Check, Context, Finding, Level, docker, is_orin_nx, uses_tensorrt
from .software import DLA_TRACE, NVML_LINE, TEGRASTATS, check_socket

# Machines that cannot be a Jetson.
_OTHERS = {"x86_64": "a PC or a server (x86_64)", "i686": "a PC (i686)"}
# Jetson Linux of JetPack 6, the first whose Python (3.10) is new enough.
_FIRST_OWN_PYTHON = 36
# Jetson Linux of JetPack 7.0. NVIDIA names no TensorRT from there on with a DLA on Orin NX.
_FIRST_WITHOUT_DLA = 38


def check_board(context: Context) -> Iterator[Finding]:
    """Identify the board and its release, a container, and the power mode."""
    board, machine, jetpack = context.board, context.machine, jetpack_of(context.board.l4t)
    check = Check(
        "board",
        jetson=board.is_jetson,
        model=board.model,
        module=board.module,
        l4t=board.l4t,
        jetpack=jetpack,
    )
    if board.is_jetson:
        release = "unknown release"
        if board.l4t is not None:
            release = f"Jetson Linux {board.l4t}"
        if jetpack:
            release += f" (JetPack {jetpack})"
        name = board.model or board.module or "a Jetson of unknown model"
        yield check.good(f"{name}, {release}")
    else:
        name = _OTHERS.get(
            machine.architecture, f"no Jetson, by its files ({machine.architecture})"
        )
        remedy = "tegrascope run --demo simulates a board"
        if NvmlSettings.has_driver(machine.root):
            remedy = f"{NVML_LINE} reads its NVIDIA GPU; {remedy}"
        yield check.note(name, remedy)
    if board.l4t is not None and int(board.l4t.split(".")[0]) < _FIRST_OWN_PYTHON:
        message = (
            "this release's own Python is older than 3.10, so its TensorRT bindings do not fit"
            " this one; telemetry, pages, logs and inspect work"
        )
        yield Check("python").note(message, "backend: trtexec measures without the bindings")
    if board.container is not None:
        message = f"in a container ({board.container}): only what it was given is visible"
        yield Check("container").note(message)
        yield from _check_container(context)
    if board.is_jetson:
        mode = mode_of(machine.text("/var/lib/nvpmodel/status"))
        largest = largest_mode(read_power_modes(machine.root))
        yield judge_power_mode(mode, read_power_mode(machine.root), largest)
        supply: dict[Column, float] = {}
        for reading in (*find_over_current(machine.root), *find_rails(machine.root)):
            supply.update(reading.take(reading.file.text() or "", 0))
            reading.file.close()
        yield judge_supply(by_name(supply))


# What a container is given, and the argument for it. The nodes are those of the lists by which
# NVIDIA's container runtime mounts them (devices.csv, l4t.csv).
_GIVEN = (
    ("/dev/nvmap", "CUDA and the DLA cannot start", "--runtime", "nvidia"),
    ("/dev/nvhost-*", "CUDA and the DLA cannot start", "--runtime", "nvidia"),
    ("/sys/devices/*", "no clocks, fans, throttling, powered time", "-v", "/sys:/sys:ro"),
    (
        "/proc/device-tree/model",
        "the board is unknown",
        "--security-opt",
        "systempaths=unconfined",
    ),
    ("/etc/nv_tegra_release", "the release is unknown", "-v", ""),
    ("/var/lib/nvpmodel", "the power mode is unknown", "-v", ""),
    ("/etc/nvpmodel.conf", "the power modes have no names", "-v", ""),
)


def _check_container(context: Context) -> Iterator[Finding]:
    """Name, line by line, what a container was not given, with the argument that gives it."""
    machine, telemetry = context.machine, context.config.telemetry
    if not isinstance(telemetry.settings, TegrastatsSettings) or not context.board.may_be_jetson:
        return
    given = [*_GIVEN]
    if machine.uid == 0 and machine.there(TEGRASTATS.path) == "absent":
        debug = "/sys/kernel/debug"
        given.append((f"{debug}/*", "root's tegrastats prints less", "-v", f"{debug}:{debug}:ro"))
    lacks = [row for row in given if not machine.find(row[0])]
    # The second process of a machine is the kernel's own. Few containers see it.
    if telemetry.processes is not None and machine.text("/proc/2/comm") != "kthreadd":
        lacks.append(("/proc of the host", "its processes have no names", "--pid", "host"))
    for path, meaning, option, value in lacks:
        argument = docker(option, value or f"{path}:{path}:ro")
        yield Check("container_lacks", path=path).missing(f"no {path}: {meaning}", argument)
    if machine.there("/dev/nvmap") == "there" and not machine.may("/dev/nvmap", os.R_OK | os.W_OK):
        argument = docker("--group-add", machine.group_of("/dev/nvmap"))
        message = "this user cannot open /dev/nvmap: CUDA and the DLA cannot start"
        yield Check("container_lacks", path="/dev/nvmap").missing(message, argument)


def judge_power_mode(number: int | None, name: str | None, largest: PowerMode | None) -> Finding:
    """Report the power mode; any other than the largest of the board's own file limits clocks."""
    if number is None or name is None:
        return Check("power_mode").note("the power mode is unknown", "nvpmodel -q")
    check = Check("power_mode", id=number, name=None if name == f"mode {number}" else name)
    if largest is None:
        return check.note(f"power mode {name}; the largest is unknown", "nvpmodel -p --verbose")
    if number == largest.number:
        return check.good(f"power mode {name}, the largest")
    message = f"power mode {name}, not {largest.name}: figures hold for this mode"
    return check.note(message, f"sudo nvpmodel -m {largest.number}, if you want {largest.name}")


def judge_supply(columns: Mapping[str, float]) -> Finding:
    """Report rails and over-current alarms, and tell an alarm of a low voltage from the others."""
    rails = _rails_in_words(columns)
    counts = signals.THROTTLE_EVENTS.by_label(columns)
    alarms = [f"{kind} {count:.0f}" for kind, count in counts.items()]
    check = Check("supply", rails=rails, alarms=alarms)
    if not rails and not alarms:
        message = "neither sensors of the rails nor over-current alarms can be read"
        return check.note(message, "ls /sys/class/hwmon; in a container, mount /sys read-only")
    text = "; ".join([*rails, f"alarms since boot: {', '.join(alarms) or 'unknown'}"])
    meanings = signals.THROTTLE_UNDER_VOLTAGE.by_label(columns)
    for kind, count in counts.items():
        if count and meanings.get(kind):
            message = f"the supply voltage was too low: {kind} is the alarm for that; {text}"
            return check.broken(message, "use a stronger supply, or a shorter or thicker cable")
    if any(counts.values()) and not meanings:
        message = f"{text}; which of them means a low voltage is not known for this chip"
        return check.note(message, "compare the voltages under load with those of the idle board")
    if any(counts.values()):
        message = f"{text}; they mean high current, normal in a mode without a limit"
        return check.note(message, "if clocks matter, choose a power mode with a limit")
    return check.good(text)


def _rails_in_words(columns: Mapping[str, float]) -> list[str]:
    """Return voltage, current and limit of each rail, as far as they are known."""
    amperes = signals.RAIL_AMPERES.by_label(columns)
    limits = signals.RAIL_LIMIT_WARNING.by_label(columns)
    rails = []
    for rail, volts in signals.RAIL_VOLTS.by_label(columns).items():
        words = f"{rail} {volts:.2f} V"
        if rail in amperes:
            words += f", {amperes[rail]:.2f} A"
            if rail in limits:
                words += f" of {limits[rail]:.2f} A"
        rails.append(words)
    return rails


_FIRST_GOOD_YEAR = 2024
# Created by the first process and by udev in the first seconds of a boot, and never copied.
_EARLY_SOCKETS = (
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/systemd/journal/socket",
    "/run/udev/control",
)
_STEP_SECONDS = 120.0
_UNITS = ((86400.0 * 365.25, "year"), (86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


def check_clocks(context: Context) -> Iterator[Finding]:
    """Check the year, the synchronisation, and whether the clock was set since boot."""
    machine, clock = context.machine, context.machine.clock
    wall_seconds = clock.wall_ns() / 1e9
    yield judge_wall(wall_seconds)
    yield judge_synchronised(machine.is_synchronised())
    # In a container these sockets are those of its own, later start.
    created = None if context.board.container else machine.socket_made_seconds(_EARLY_SOCKETS)
    yield judge_step(created, wall_seconds, clock.boottime_ns() / 1e9)


def judge_wall(wall_seconds: float) -> Finding:
    """Report whether the wall clock (seconds since 1970) is plausible."""
    now = datetime.fromtimestamp(max(0.0, wall_seconds), timezone.utc)
    check = Check("wall_clock", time=now.isoformat(timespec="seconds"))
    if now.year >= _FIRST_GOOD_YEAR:
        return check.good(f"{now:%Y-%m-%d %H:%M:%S} UTC")
    message = f"the clock shows {now:%Y-%m-%d}: it was not set since the board started"
    return check.broken(message, "sudo timedatectl set-ntp true, and check the network")


def judge_synchronised(is_synchronised: bool | None) -> Finding:
    """Report whether the kernel's clock is synchronised."""
    check = Check("clock_sync", synchronised=is_synchronised)
    if is_synchronised:
        return check.good("the clock is synchronised")
    message = "the clock is not synchronised: times of runs may be wrong, their durations are not"
    if is_synchronised is None:
        message = "the kernel does not report whether the clock is synchronised"
    return check.note(message, "sudo timedatectl set-ntp true")


def judge_step(created_seconds: float | None, wall_seconds: float, boot_seconds: float) -> Finding:
    """Report whether the wall clock was set since the board started.

    A file of the first seconds of a boot has the wall time of that moment, ``created_seconds``. If
    the clock was not set since, this is now minus the time since boot, suspend included.
    """
    if created_seconds is None:
        return Check("clock_step").note("it is unknown whether the clock was set")
    step = wall_seconds - boot_seconds - created_seconds
    if abs(step) < _STEP_SECONDS:
        return Check("clock_step").good("the clock was not set since the board started")
    way = "forward" if step > 0 else "back"
    return Check("clock_step", step_seconds=round(step)).note(
        f"the clock was set {way} by {_length_in_words(abs(step))} since the board started: a run"
        " across that is flagged clock_step",
        "a battery for the board's RTC, or start the service after time-sync.target",
    )


def _length_in_words(seconds: float) -> str:
    """Return a time of a minute or more in its largest unit.

    >>> _length_in_words(86400), _length_in_words(150)
    ('1 day', '2 minutes')
    """
    length, unit = next(row for row in _UNITS if seconds >= row[0])
    count = round(seconds / length)
    return f"1 {unit}" if count == 1 else f"{count} {unit}s"


_GIB = 1 << 30
# A year of runs, a week of telemetry, and a log that grows during a read transaction.
_DISK_BYTES, _FULL_DISK_BYTES = _GIB, 16 << 20


def check_room(context: Context) -> Iterator[Finding]:
    """Check memory, swap, disk and the state directory."""
    machine, database = context.machine, context.config.store.path
    yield judge_memory(
        machine.memory(),
        _largest_model_bytes(context),
        context.needs_tensorrt,
        keeps_freed=keeps_freed_pages(machine.root),
    )
    directory = context.state_dir if database is None else database.parent
    yield judge_disk(machine.free_bytes(machine.at(str(directory))), directory)
    yield _check_state(machine, directory)


def _largest_model_bytes(context: Context) -> int:
    """Return the size of the largest model that TensorRT builds; 0 if there is none."""
    largest = 0
    for workload in context.config.workloads:
        if uses_tensorrt(workload) and workload.model:
            path = context.machine.at(str(context.state_dir / workload.model))
            if is_file(path):
                largest = max(largest, path.stat().st_size)
    return largest


def judge_memory(
    memory: HostMemory | None, model_bytes: int, needed: bool, *, keeps_freed: bool = False
) -> Finding:
    """Report whether an engine can be built in the free memory and swap, if one is ``needed``.

    ``model_bytes`` is the size of the largest model to build; 0 if unknown. A driver that
    ``keeps_freed`` pages has more than the kernel says.
    """
    if memory is None:
        return Check("memory").note("the size of the memory is unknown")
    wanted = build_bytes(model_bytes)
    free = memory.available_bytes + memory.swap_free_bytes
    check = Check("memory", wanted_bytes=wanted, **memory._asdict())
    have = (
        f"{memory.available_bytes / _GIB:.1f} GiB of memory and"
        f" {memory.swap_free_bytes / _GIB:.1f} GiB of swap are free"
    )
    if free >= wanted or not needed:
        return check.good(have)
    if keeps_freed:
        return check.note(
            f"{have}, and before JetPack 7.2 the driver keeps pages that programs freed",
            "look again after: sync && echo 3 | sudo tee /proc/sys/vm/drop_caches",
        )
    gib = max(1, round((wanted - free) / _GIB + 0.5))
    return check.missing(
        f"{have}; to build an engine takes about {wanted / _GIB:.1f} GiB (rule of thumb)",
        f"sudo fallocate -l {gib}G /swapfile && sudo chmod 600 /swapfile && "
        "sudo mkswap /swapfile && sudo swapon /swapfile",
    )


def judge_disk(free_bytes: int | None, directory: Path) -> Finding:
    """Report whether the store has space to grow."""
    if free_bytes is None:
        return Check("disk").note(f"the free space of {directory} is unknown")
    check = Check("disk", free_bytes=free_bytes, directory=str(directory))
    message = f"{free_bytes / _GIB:.1f} GiB are free for {directory}"
    if free_bytes >= _DISK_BYTES:
        return check.good(message)
    is_full = free_bytes < _FULL_DISK_BYTES
    remedy = "shorten store.samples_retention, or name a larger --state-dir"
    level: Level = "broken" if is_full else "note"
    return check.finding(level, f"only {message}", remedy, blocking=is_full)


def _check_state(machine: Machine, directory: Path) -> Finding:
    """Report whether this user can write the state directory, or only the service."""
    path = str(directory)
    there = machine.there(path)
    check = Check("state", directory=path, there=there == "there")
    if there == "there" and machine.may(path, os.W_OK | os.X_OK):
        return check.good(f"{path} is writable")
    if there == "absent":
        parent = directory.parent
        while machine.there(str(parent)) != "there" and parent != parent.parent:
            parent = parent.parent
        if machine.may(str(parent), os.W_OK | os.X_OK):
            return check.good(f"{path} will be created")
    elif machine.there("/run/systemd/system") == "there" and path.startswith("/var/lib/"):
        message = f"{path} is writable for the service, not for this user"
        return check.note(message, "sudo tegrascope doctor")
    remedy = f'sudo install -d -o "$USER" {path}, or name another with --state-dir'
    return check.broken(f"this user cannot write {path}", remedy, blocking=True)


_NODES = ("/dev/nvhost-ctrl-nvdla*", "/dev/nvhost-nvdla*", "/dev/nvdla*")
_POWER = tuple(f"/sys/devices/platform/{deep}*.nvdla*/power" for deep in ("", "*/", "*/*/"))
_TRACING = "/sys/kernel/tracing"
_EVENTS = f"{_TRACING}/events/nvdla_ftrace"
_FIRMWARE = "/sys/kernel/debug/nvdla0/firmware/utilization_rate"
_ERRORS = re.compile("error|fail|timeout|timed out", re.IGNORECASE)
_APT_RELEASE = re.compile(r"^[^#\n]*\br(\d+\.\d+)", re.MULTILINE)
_NO_DLA_AHEAD = "NVIDIA names no TensorRT of JetPack 7 with the DLA of Orin NX"
_READ_MESSAGES = "sudo dmesg | grep -i nvdla"


def check_dla(context: Context) -> Iterator[Finding]:
    """Check device nodes, driver messages, runtime power, trace events and firmware."""
    machine, board = context.machine, context.board
    nodes = machine.find(*_NODES)
    if not board.may_be_jetson and not nodes:
        return  # The first group names the machine: on a PC nobody misses a DLA.
    if not board.is_jetson and not nodes:
        yield Check("dla").note("no DLA: only Jetsons have one")
        return
    if board.dla_cores == 0 and not nodes:
        yield Check("dla", module_cores=0).note(f"{board.module} has no DLA, only its GPU")
        return
    yield _check_nodes(context, nodes)
    yield from _check_upgrade(context)
    yield judge_messages(machine.kernel_log())
    yield _check_runtime_power(machine)
    yield _check_events(context)
    yield check_socket(context, DLA_TRACE, context.config.telemetry.dla_trace.socket)
    yield _check_firmware(machine)


def _check_nodes(context: Context, nodes: list[str]) -> Finding:
    """Report whether programs of this user can use the DLA."""
    machine, cores = context.machine, context.board.dla_cores
    denied = [node for node in nodes if not machine.may(node, os.R_OK | os.W_OK)]
    check = Check("dla_nodes", nodes=nodes, shut=denied, module_cores=cores)
    if not nodes and context.board.container is not None:
        return check.missing(
            "this container was given no device node of the DLA",
            docker("--runtime", "nvidia"),
        )
    if not nodes:
        message = "no device node of the DLA: its driver is not loaded"
        return check.missing(message, f"sudo modprobe nvhost-nvdla; {_READ_MESSAGES}")
    if denied:
        group = machine.group_of(denied[0])
        message = f"this user cannot open {denied[0]} (group {group or 'unknown'})"
        if group in ("", "root"):
            return check.missing(message, "run as root")
        if context.board.container is not None:
            return check.missing(message, docker("--group-add", group))
        return check.missing(message, f'sudo usermod -aG {group} "$USER", and log in again')
    message = ", ".join(nodes)
    if cores is not None:
        message += f"; the module has {cores} core(s)"
    return check.good(message)


def _check_upgrade(context: Context) -> Iterator[Finding]:
    """Warn the owner of an Orin NX before a JetPack whose TensorRT has no DLA for it.

    Source:
        "Migrating TensorRT from 10.x to 11.x on Jetson/JetPack", edition of TensorRT 11.4.1.
    """
    machine, l4t = context.machine, context.board.l4t
    numbers = version_numbers(l4t or "0")
    if not is_orin_nx(context.board.module) or numbers[0] >= _FIRST_WITHOUT_DLA:
        return
    for path in machine.find("/etc/apt/sources.list.d/nvidia-l4t-apt-source.*"):
        for release in _APT_RELEASE.findall(machine.text(path) or ""):
            if version_numbers(release)[0] >= _FIRST_WITHOUT_DLA:
                check = Check("dla_upgrade", release=release, file=path)
                message = f"apt is set to Jetson Linux {release}: {_NO_DLA_AHEAD}"
                yield check.missing(message, f"name the release that you have, {l4t}, in {path}")
                return
    yield Check("dla_upgrade").note(f"before an upgrade: {_NO_DLA_AHEAD}", "stay on JetPack 6")


def judge_messages(records: Sequence[str] | None) -> Finding:
    """Report errors of the driver in the kernel's log; ``None`` if it cannot be read."""
    if records is None:
        message = "this user cannot read the driver's messages"
        return Check("dla_messages").note(message, _READ_MESSAGES)
    messages = [record for record in records if "nvdla" in record.lower()]
    errors = [message for message in messages if _ERRORS.search(message)]
    check = Check("dla_messages", messages=len(messages), complaints=len(errors))
    if not errors:
        return check.good("the driver reported no error")
    last = errors[-1].partition(";")[2] or errors[-1]
    message = f"the driver reported {len(errors)} error(s) since boot: {last[:120]}"
    return check.note(message, _READ_MESSAGES)


def _check_runtime_power(machine: Machine) -> Finding:
    """Report whether the powered time of the DLA can be read; this needs no root."""
    found = []
    for directory in machine.find(*_POWER):
        if machine.text(f"{directory}/runtime_active_time"):
            found.append(directory)
    if found:
        message = f"powered time of {len(found)} core(s) can be read"
        return Check("dla_power", directories=found).good(message)
    return Check("dla_power").missing(
        "no powered time of the DLA: sysfs does not show its runtime power",
        "in a container, mount /sys read-only; else check that the driver is loaded",
    )


def _check_events(context: Context) -> Finding:
    """Report whether the driver's trace events, the true busy time, can be read."""
    check, machine = Check("dla_events"), context.machine
    there = machine.there(_EVENTS)
    if there == "there" and machine.may(_EVENTS, os.R_OK | os.X_OK):
        return check.good("trace events of each DLA task can be read")
    is_denied = machine.there(_TRACING) == "there" and not machine.may(_TRACING, os.X_OK)
    if there != "absent" or is_denied:
        return check.note("only root may read the trace events of the DLA", DLA_TRACE.enable)
    if "tracefs" not in (machine.text("/proc/mounts") or ""):
        message = "tracefs is not mounted: no true busy time of the DLA"
        remedy = f"sudo mount -t tracefs nodev {_TRACING}"
        if context.board.container is not None:
            remedy = docker("-v", f"{_TRACING}:{_TRACING}")
        return check.missing(message, remedy)
    return check.missing(
        "this driver has no trace events of the DLA; Jetson Linux 36 and later have them",
        "use JetPack 6 or later; until then its powered time is the nearest figure",
    )


def _check_firmware(machine: Machine) -> Finding:
    """Report whether the load that the DLA's firmware measures can be read."""
    check = Check("dla_firmware")
    if machine.can_read(_FIRMWARE):
        return check.good("the firmware reports its load")
    if machine.there(_FIRMWARE) == "hidden":
        message = "only root may read the load that the firmware reports"
        return check.note(message, "sudo tegrascope doctor")
    return check.note("the firmware reports no load (it does from Jetson Linux 36 on, in debugfs)")

"""Board and power mode, clocks, memory, disk and the state directory."""

import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from ...collectors.board.boards import mode_of, read_power_mode
from ...collectors.board.machine import HostMemory, Machine
from .findings import Board, Check, Context, Finding, uses_tensorrt
from .service import DLA_TRACE, check_socket


def check_board(context: Context) -> Iterator[Finding]:
    """Identify the board and its limits."""
    board, machine = context.board, context.machine
    yield judge_board(board)
    if board.container is not None:
        message = f"in a container ({board.container}): only what it was given is visible"
        yield Check("container").finding("note", message)
    if board.is_jetson:
        mode = mode_of(machine.text("/var/lib/nvpmodel/status"))
        yield judge_power_mode(mode, read_power_mode(machine.root))


def judge_board(board: Board) -> Finding:
    """Name the board and its release."""
    check = Check(
        "board",
        jetson=board.is_jetson,
        model=board.model,
        module=board.module,
        l4t=board.l4t,
        jetpack=board.jetpack,
    )
    if not board.is_jetson:
        return check.finding(
            "note",
            "this is not a Jetson: no tegrastats, no rails, no DLA",
            "tegrascope run --demo simulates one; for a desktop GPU, telemetry: {source: nvml}",
        )
    release = "unknown release" if board.l4t is None else f"Jetson Linux {board.l4t}"
    jetpack = "" if board.jetpack is None else f" (JetPack {board.jetpack})"
    name = board.model or board.module or "a Jetson of unknown model"
    return check.finding("good", f"{name}, {release}{jetpack}")


def judge_power_mode(number: int | None, name: str | None) -> Finding:
    """Report the power mode; any other than MAXN limits the clocks."""
    if number is None or name is None:
        return Check("power_mode").finding("note", "the power mode is unknown", "nvpmodel -q")
    known = None if name == f"mode {number}" else name
    check = Check("power_mode", id=number, name=known)
    if name.startswith("MAXN"):
        return check.finding("good", f"power mode {name}")
    return check.finding(
        "note",
        f"power mode {name}, not MAXN: figures hold for this mode",
        "sudo nvpmodel -m 0, if you want MAXN",
    )


_FIRST_GOOD_YEAR = 2024
# Created by the first process and by udev in the first seconds of a boot, and never copied.
_EARLY_SOCKETS = (
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/systemd/journal/socket",
    "/run/udev/control",
)
_STEP_SECONDS = 120.0
_UNITS = ((86400.0 * 365.25, "years"), (86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def check_clocks(context: Context) -> Iterator[Finding]:
    """Check the year, the synchronisation, and whether the clock was set since boot."""
    machine, clock = context.machine, context.machine.clock
    wall_seconds, boot_seconds = clock.wall_ns() / 1e9, clock.boottime_ns() / 1e9
    yield judge_wall(wall_seconds)
    yield judge_synchronised(machine.is_synchronised())
    created = machine.socket_made_seconds(_EARLY_SOCKETS)
    # In a container these sockets are those of its own, later start.
    yield judge_step(None if context.board.container else created, wall_seconds, boot_seconds)


def judge_wall(wall_seconds: float) -> Finding:
    """Report whether the wall clock (seconds since 1970) is plausible."""
    now = datetime.fromtimestamp(max(0.0, wall_seconds), timezone.utc)
    check = Check("wall_clock", time=now.isoformat(timespec="seconds"))
    if now.year >= _FIRST_GOOD_YEAR:
        return check.finding("good", f"{now:%Y-%m-%d %H:%M:%S} UTC")
    return check.finding(
        "broken",
        f"the clock shows {now:%Y-%m-%d}: it was not set since the board started",
        "sudo timedatectl set-ntp true, and check the network",
    )


def judge_synchronised(is_synchronised: bool | None) -> Finding:
    """Report whether the kernel's clock is synchronised."""
    check = Check("clock_sync", synchronised=is_synchronised)
    if is_synchronised:
        return check.finding("good", "the clock is synchronised")
    message = "the clock is not synchronised: times of runs may be wrong, their durations are not"
    if is_synchronised is None:
        message = "the kernel does not report whether the clock is synchronised"
    return check.finding("note", message, "sudo timedatectl set-ntp true")


def judge_step(created_seconds: float | None, wall_seconds: float, boot_seconds: float) -> Finding:
    """Report whether the wall clock was set since the board started.

    A file of the first seconds of a boot has the wall time of that moment. If the clock was not
    set since, this is now minus the time since boot.

    Args:
        created_seconds: Wall time of the oldest such file; ``None`` if there is none.
        boot_seconds: Time since boot, suspend included.
    """
    if created_seconds is None:
        return Check("clock_step").finding("note", "it is unknown whether the clock was set")
    step = wall_seconds - boot_seconds - created_seconds
    if abs(step) < _STEP_SECONDS:
        message = "the clock was not set since the board started"
        return Check("clock_step").finding("good", message)
    way = "forward" if step > 0 else "back"
    return Check("clock_step", step_seconds=round(step)).finding(
        "note",
        f"the clock was set {way} by {_length(abs(step))} since the board started: a run"
        " across that is flagged clock_step",
        "a battery for the board's RTC, or start the service after time-sync.target",
    )


def _length(seconds: float) -> str:
    """Format a duration in the largest unit that fits.

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
# A year of runs, a week of telemetry, and a log that grows during a read transaction.
_DISK_BYTES, _FULL_DISK_BYTES = _GIB, 16 << 20


def check_room(context: Context) -> Iterator[Finding]:
    """Check memory, swap, disk and the state directory."""
    machine = context.machine
    yield judge_memory(machine.memory(), _largest_model(context), context.needs_tensorrt)
    database = context.config.store.path
    directory = context.state_dir if database is None else database.parent
    yield judge_disk(machine.free_bytes(machine.at(str(directory))), directory)
    yield judge_state(context, directory)


def _largest_model(context: Context) -> int:
    models = [work.model for work in context.config.workloads if uses_tensorrt(work) and work.model]
    paths = [context.machine.at(str(context.state_dir / model)) for model in models]
    return max((path.stat().st_size for path in paths if path.is_file()), default=0)


def judge_memory(memory: HostMemory | None, model_bytes: int, needed: bool) -> Finding:
    """Report whether an engine can be built in the free memory and swap.

    Args:
        model_bytes: Size of the largest model to build; 0 if unknown.
        needed: Whether an engine is to be built here at all.
    """
    if memory is None:
        return Check("memory").finding("note", "the size of the memory is unknown")
    wanted = BUILD_BYTES + BUILD_TIMES_MODEL * model_bytes
    free = memory.available_bytes + memory.swap_free_bytes
    check = Check("memory", wanted_bytes=wanted, **memory._asdict())
    have = (
        f"{memory.available_bytes / _GIB:.1f} GiB of memory and"
        f" {memory.swap_free_bytes / _GIB:.1f} GiB of swap are free"
    )
    if free >= wanted or not needed:
        return check.finding("good", have)
    gib = max(1, round((wanted - free) / _GIB + 0.5))
    return check.finding(
        "missing",
        f"{have}; to build an engine takes about {wanted / _GIB:.1f} GiB (rule of thumb)",
        f"sudo fallocate -l {gib}G /swapfile && sudo chmod 600 /swapfile && "
        "sudo mkswap /swapfile && sudo swapon /swapfile",
    )


def judge_disk(free_bytes: int | None, directory: Path) -> Finding:
    """Report whether the store has space to grow."""
    if free_bytes is None:
        return Check("disk").finding("note", f"the free space of {directory} is unknown")
    check = Check("disk", free_bytes=free_bytes, directory=str(directory))
    message = f"{free_bytes / _GIB:.1f} GiB are free for {directory}"
    if free_bytes >= _DISK_BYTES:
        return check.finding("good", message)
    is_full = free_bytes < _FULL_DISK_BYTES
    return check.finding(
        "broken" if is_full else "note",
        f"only {message}",
        "shorten store.samples_retention, or name a larger --state-dir",
        blocking=is_full,
    )


def judge_state(context: Context, directory: Path) -> Finding:
    """Report whether this user can write the state directory, or only the service."""
    machine, path = context.machine, str(directory)
    there = machine.there(path)
    check = Check("state", directory=path, there=there == "there")
    if there == "there" and machine.may(path, os.W_OK | os.X_OK):
        return check.finding("good", f"{path} is writable")
    if there == "absent":
        parents = (str(one) for one in directory.parents)
        parent = next((one for one in parents if machine.there(one) == "there"), "/")
        if machine.may(parent, os.W_OK | os.X_OK):
            return check.finding("good", f"{path} will be created")
    elif machine.there("/run/systemd/system") == "there" and path.startswith("/var/lib/"):
        return check.finding(
            "note",
            f"{path} is writable for the service, not for this user",
            "sudo tegrascope doctor",
        )
    return check.finding(
        "broken",
        f"this user cannot write {path}",
        f'sudo install -d -o "$USER" {path}, or name another with --state-dir',
        blocking=True,
    )


NODES = ("/dev/nvhost-ctrl-nvdla*", "/dev/nvhost-nvdla*", "/dev/nvdla*")
_POWER = tuple(f"/sys/devices/platform/{deep}*.nvdla*/power" for deep in ("", "*/", "*/*/"))
_TRACING = "/sys/kernel/tracing"
_EVENTS = f"{_TRACING}/events/nvdla_ftrace"
_FIRMWARE = "/sys/kernel/debug/nvdla0/firmware/utilization_rate"
_ERRORS = ("error", "fail", "timeout", "timed out")
_READ_MESSAGES = "sudo dmesg | grep -i nvdla"


def check_dla(context: Context) -> Iterator[Finding]:
    """Check device nodes, driver messages, runtime power, trace events and firmware."""
    machine, board = context.machine, context.board
    nodes = machine.find(*NODES)
    if not board.is_jetson and not nodes:
        yield Check("dla").finding("note", "no DLA: only Jetsons have one")
        return
    if board.dla_cores == 0 and not nodes:
        message = f"{board.module} has no DLA, only its GPU"
        yield Check("dla", module_cores=0).finding("note", message)
        return
    denied = [node for node in nodes if not machine.may(node, os.R_OK | os.W_OK)]
    group = machine.group_of(denied[0]) if denied else ""
    yield judge_nodes(nodes, denied, group, board.dla_cores, board.container is not None)
    yield judge_messages(machine.kernel_log())
    yield judge_runtime_power(machine, machine.find(*_POWER))
    yield judge_events(machine)
    yield check_socket(machine, DLA_TRACE, context.config.telemetry.dla_trace.socket)
    yield judge_firmware(machine)


def judge_nodes(
    nodes: Sequence[str],
    denied: Sequence[str],
    group: str,
    module_cores: int | None,
    is_container: bool,
) -> Finding:
    """Report whether programs of this user can use the DLA.

    Args:
        denied: The nodes that this user cannot open.
        group: Owner of the first of these.
        module_cores: Cores of a module of this kind; ``None`` if unknown.
    """
    check = Check("dla_nodes", nodes=list(nodes), shut=list(denied), module_cores=module_cores)
    if not nodes and is_container:
        return check.finding(
            "missing",
            "this container was given no device node of the DLA",
            "docker run --runtime nvidia …, or --device for each /dev/nvhost-*nvdla* node",
        )
    if not nodes:
        return check.finding(
            "missing",
            "no device node of the DLA: its driver is not loaded",
            f"sudo modprobe nvhost-nvdla; {_READ_MESSAGES}",
        )
    if denied:
        return check.finding(
            "missing",
            f"this user cannot open {denied[0]} (group {group or 'unknown'})",
            "run as root"
            if group in ("", "root")
            else f'sudo usermod -aG {group} "$USER", and log in again',
        )
    cores = "" if module_cores is None else f"; the module has {module_cores} core(s)"
    return check.finding("good", f"{', '.join(nodes)}{cores}")


def judge_messages(records: Sequence[str] | None) -> Finding:
    """Report errors of the driver in the kernel's log; ``None`` if it cannot be read."""
    if records is None:
        message = "this user cannot read the driver's messages"
        return Check("dla_messages").finding("note", message, _READ_MESSAGES)
    messages = [record for record in records if "nvdla" in record.lower()]
    errors = [one for one in messages if any(word in one.lower() for word in _ERRORS)]
    check = Check("dla_messages", messages=len(messages), complaints=len(errors))
    if not errors:
        return check.finding("good", "the driver reported no error")
    last = errors[-1].partition(";")[2] or errors[-1]
    message = f"the driver reported {len(errors)} error(s) since boot: {last[:120]}"
    return check.finding("note", message, _READ_MESSAGES)


def judge_runtime_power(machine: Machine, directories: Sequence[str]) -> Finding:
    """Report whether the powered time of the DLA can be read; this needs no root."""
    readable = [one for one in directories if machine.text(f"{one}/runtime_active_time")]
    if readable:
        return Check("dla_power", directories=readable).finding(
            "good", f"powered time of {len(readable)} core(s) can be read"
        )
    return Check("dla_power").finding(
        "missing",
        "no powered time of the DLA: sysfs does not show its runtime power",
        "in a container, mount /sys read-only; else check that the driver is loaded",
    )


def judge_events(machine: Machine) -> Finding:
    """Report whether the driver's trace events, the true busy time, can be read."""
    check = Check("dla_events")
    there = machine.there(_EVENTS)
    if there == "there" and machine.may(_EVENTS, os.R_OK | os.X_OK):
        return check.finding("good", "trace events of each DLA task can be read")
    is_denied = machine.there(_TRACING) == "there" and not machine.may(_TRACING, os.X_OK)
    if there != "absent" or is_denied:
        message = "only root may read the trace events of the DLA"
        return check.finding("note", message, DLA_TRACE.enable)
    if "tracefs" not in (machine.text("/proc/mounts") or ""):
        return check.finding(
            "missing",
            "tracefs is not mounted: no true busy time of the DLA",
            f"sudo mount -t tracefs nodev {_TRACING}",
        )
    return check.finding(
        "missing",
        "this driver has no trace events of the DLA; Jetson Linux 36 and later have them",
        "use JetPack 6 or later; until then its powered time is the nearest figure",
    )


def judge_firmware(machine: Machine) -> Finding:
    """Report whether the load that the DLA's firmware measures can be read."""
    check = Check("dla_firmware")
    if machine.can_read(_FIRMWARE):
        return check.finding("good", "the firmware reports its load")
    if machine.there(_FIRMWARE) == "hidden":
        message = "only root may read the load that the firmware reports"
        return check.finding("note", message, "sudo tegrascope doctor")
    return check.finding(
        "note", "the firmware reports no load (it does from Jetson Linux 36 on, in debugfs)"
    )

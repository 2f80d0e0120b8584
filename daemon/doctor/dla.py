"""The DLA: its cores, and which of its signals this user can read."""

import os
from collections.abc import Iterator, Sequence

from ...collectors.board.machine import Machine
from .findings import Check, Context, Finding
from .service import DLA_TRACE, check_socket

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

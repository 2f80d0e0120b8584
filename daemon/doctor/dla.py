"""The DLA: whether the module has one, and which of its signals this user may read."""

import os
from collections.abc import Iterator, Sequence

from ...collectors.board.machine import Machine
from .findings import Finding, Patient
from .service import DLA_TRACE, look_at_socket

NODES = ("/dev/nvhost-ctrl-nvdla*", "/dev/nvhost-nvdla*", "/dev/nvdla*")
_POWER = tuple(f"/sys/devices/platform/{deep}*.nvdla*/power" for deep in ("", "*/", "*/*/"))
_TRACING = "/sys/kernel/tracing"
_EVENTS = f"{_TRACING}/events/nvdla_ftrace"
_FIRMWARE = "/sys/kernel/debug/nvdla0/firmware/utilization_rate"
_COMPLAINTS = ("error", "fail", "timeout", "timed out")


def check_dla(patient: Patient) -> Iterator[Finding]:
    """Look for cores, device nodes, driver messages, runtime power, events and firmware."""
    machine, board = patient.machine, patient.board
    nodes = machine.find(*NODES)
    if not board.is_jetson and not nodes:
        yield Finding(check="dla", level="note", message="no DLA: only Jetsons have one")
        return
    if board.dla_cores == 0 and not nodes:
        yield Finding(
            check="dla",
            level="note",
            message=f"{board.module} has no DLA; its GPU is all there is",
            facts={"module_cores": 0},
        )
        return
    shut = [node for node in nodes if not machine.may(node, os.R_OK | os.W_OK)]
    group = machine.group_of(shut[0]) if shut else ""
    yield judge_nodes(nodes, shut, group, board.dla_cores, board.container is not None)
    yield judge_messages(machine.kernel_log())
    yield judge_runtime_power(machine, machine.find(*_POWER))
    yield judge_events(machine)
    configured = patient.config.telemetry.dla_trace.socket
    yield look_at_socket(machine, DLA_TRACE, configured, check="dla_trace")
    yield judge_firmware(machine)


def judge_nodes(
    nodes: Sequence[str],
    shut: Sequence[str],
    group: str,
    module_cores: int | None,
    is_container: bool,
) -> Finding:
    """Say whether programs of this user can reach the DLA.

    Args:
        nodes: Device nodes of it.
        shut: Those that this user may not open.
        group: Who owns the first of these.
        module_cores: Cores of a module of this kind; ``None`` where not known.
        is_container: Whether this is a container.
    """
    facts = {"nodes": list(nodes), "shut": list(shut), "module_cores": module_cores}
    if not nodes and is_container:
        return Finding(
            check="dla_nodes",
            level="missing",
            message="this container was given no device node of the DLA",
            remedy="docker run --runtime nvidia …, or --device for each /dev/nvhost-*nvdla* node",
            facts=facts,
        )
    if not nodes:
        return Finding(
            check="dla_nodes",
            level="missing",
            message="no device node of the DLA: its driver is not there",
            remedy="sudo modprobe nvhost-nvdla; sudo dmesg | grep -i nvdla",
            facts=facts,
        )
    if shut:
        own = group in ("", "root")
        return Finding(
            check="dla_nodes",
            level="missing",
            message=f"this user may not open {shut[0]} (of group {group or 'unknown'})",
            remedy="run as root" if own else f'sudo usermod -aG {group} "$USER", and log in again',
            facts=facts,
        )
    cores = "" if module_cores is None else f"; the module has {module_cores} core(s)"
    return Finding(
        check="dla_nodes", level="good", message=f"{', '.join(nodes)}{cores}", facts=facts
    )


def judge_messages(records: Sequence[str] | None) -> Finding:
    """Say whether the driver complained, as far as its messages can be read."""
    if records is None:
        return Finding(
            check="dla_messages",
            level="note",
            message="this user may not read the driver's messages",
            remedy="sudo dmesg | grep -i nvdla",
        )
    of_it = [record for record in records if "nvdla" in record.lower()]
    bad = [one for one in of_it if any(word in one.lower() for word in _COMPLAINTS)]
    facts = {"messages": len(of_it), "complaints": len(bad)}
    if bad:
        last = bad[-1].partition(";")[2] or bad[-1]
        return Finding(
            check="dla_messages",
            level="note",
            message=f"the driver complained {len(bad)} time(s) since boot: {last[:120]}",
            remedy="sudo dmesg | grep -i nvdla",
            facts=facts,
        )
    return Finding(
        check="dla_messages", level="good", message="the driver did not complain", facts=facts
    )


def judge_runtime_power(machine: Machine, directories: Sequence[str]) -> Finding:
    """Say whether the time for which the DLA was powered can be read; no root is needed."""
    readable = [
        one for one in directories if machine.text(f"{one}/runtime_active_time") is not None
    ]
    if readable:
        return Finding(
            check="dla_power",
            level="good",
            message=f"powered time of {len(readable)} core(s) can be read",
            facts={"directories": readable},
        )
    return Finding(
        check="dla_power",
        level="missing",
        message="no powered time of the DLA: sysfs does not show its runtime power",
        remedy="in a container, mount /sys read-only; else see that the driver is loaded",
    )


def judge_events(machine: Machine) -> Finding:
    """Say whether the driver's trace events, the true busy time, can be read."""
    there = machine.there(_EVENTS)
    if there == "there" and machine.may(_EVENTS, os.R_OK | os.X_OK):
        return Finding(
            check="dla_events", level="good", message="trace events of each DLA task can be read"
        )
    is_shut = machine.there(_TRACING) == "there" and not machine.may(_TRACING, os.X_OK)
    if there != "absent" or is_shut:
        return Finding(
            check="dla_events",
            level="note",
            message="only root may read the trace events of the DLA",
            remedy=DLA_TRACE.enable,
        )
    if "tracefs" not in (machine.text("/proc/mounts") or ""):
        return Finding(
            check="dla_events",
            level="missing",
            message="tracefs is not mounted: no true busy time of the DLA",
            remedy=f"sudo mount -t tracefs nodev {_TRACING}",
        )
    return Finding(
        check="dla_events",
        level="missing",
        message="this driver has no trace events of the DLA: Jetson Linux 36 and later have",
        remedy="take JetPack 6 or later; until then its powered time is the nearest figure",
    )


def judge_firmware(machine: Machine) -> Finding:
    """Say whether the load that the DLA's firmware tells can be read."""
    there = machine.there(_FIRMWARE)
    if there == "there" and machine.may(_FIRMWARE, os.R_OK):
        return Finding(check="dla_firmware", level="good", message="the firmware tells its load")
    if there == "hidden":
        return Finding(
            check="dla_firmware",
            level="note",
            message="only root may read the load that the firmware tells",
            remedy="sudo tegrascope doctor",
        )
    return Finding(
        check="dla_firmware",
        level="note",
        message="the firmware tells no load (it does from Jetson Linux 36 on, in debugfs)",
    )

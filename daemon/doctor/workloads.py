"""The configuration, and whether each of its workloads can run here."""

import os
from collections.abc import Iterator
from pathlib import Path

from ...collectors.machine import Machine
from ..config import Workload
from .finding import Finding, Patient
from .inference import TRTEXEC

_MEND_ONNXRUNTIME = "pip install 'tegrascope[onnx]'"


def check_workloads(patient: Patient) -> Iterator[Finding]:
    """Validate the configuration file, then look for what each workload needs."""
    yield judge_config(patient)
    for workload in patient.config.workloads:
        if not workload.is_window:
            yield _check_workload(patient, workload)


def judge_config(patient: Patient) -> Finding:
    """Say whether the configuration is good."""
    path = patient.config_path
    if path is None:
        return Finding(
            check="config",
            level="note",
            said="no configuration: telemetry alone, no runs",
            mend="tegrascope doctor -c FILE; the keys are in docs/configuration.md",
        )
    facts = {"path": str(path), "workloads": len(patient.config.workloads)}
    if patient.config_problems:
        more = len(patient.config_problems) - 1
        return Finding(
            check="config",
            level="broken",
            said=patient.config_problems[0] + (f" (and {more} more)" if more else ""),
            mend=f"tegrascope check-config {path}",
            stops=True,
            facts=facts | {"problems": list(patient.config_problems)},
        )
    advice = patient.config.advice()
    if advice:
        return Finding(
            check="config",
            level="note",
            said=f"{path} is good; {advice[0]}",
            facts=facts,
        )
    count = len(patient.config.workloads)
    return Finding(
        check="config", level="good", said=f"{path} is good, {count} workload(s)", facts=facts
    )


def _check_workload(patient: Patient, workload: Workload) -> Finding:
    lack = _what_lacks(patient, workload)
    facts = {"workload": workload.name, "device": workload.device, "backend": workload.engine}
    if lack is None:
        return Finding(
            check="workload",
            level="good",
            said=f"{workload.name} can run: {workload.engine} on {workload.device}",
            facts=facts,
        )
    said, mend = lack
    return Finding(
        check="workload",
        level="missing",
        said=f"{workload.name} cannot run: {said}",
        mend=mend,
        stops=True,
        facts=facts,
    )


def _what_lacks(patient: Patient, workload: Workload) -> tuple[str, str] | None:
    """Return what a workload needs and has not, and what mends it."""
    machine = patient.machine
    if workload.command is not None:
        program = workload.command[0]
        found = machine.which(program)
        return None if found else (f"{program} is not there", f"command: of {workload.name}")
    model = workload.model or ""
    if not model.startswith("builtin:") and not _is_readable(machine, patient, model):
        return f"{model} cannot be read", f"ls -l {model}; a path is best absolute"
    if workload.engine == "onnxruntime":
        names = ("onnxruntime", "onnxruntime-gpu")
        return None if any(map(machine.package, names)) else ("no onnxruntime", _MEND_ONNXRUNTIME)
    if workload.engine == "trtexec":
        path = workload.trtexec or TRTEXEC
        if machine.which(path) is None:
            return f"no {path}", "sudo apt install libnvinfer-bin, or name it with trtexec:"
        if workload.device.startswith("dla") and patient.board.dla_cores == 0:
            return f"{patient.board.module} has no DLA", "device: gpu"
        return None
    return _what_tensorrt_lacks(patient, workload)


def _what_tensorrt_lacks(patient: Patient, workload: Workload) -> tuple[str, str] | None:
    found = patient.tensorrt
    if found.problem is not None:
        return (
            f"TensorRT cannot be used ({found.problem})",
            found.mend or "see tensorrt, under inference",
        )
    if workload.device.startswith("dla"):
        core, cores = int(workload.device.removeprefix("dla")), found.dla_cores or 0
        if core >= cores:
            return f"TensorRT sees {cores} DLA core(s)", "see tensorrt_dla; or device: gpu"
    return None


def _is_readable(machine: Machine, patient: Patient, model: str) -> bool:
    path = Path(model)
    whole = str(path if path.is_absolute() else patient.state_dir / path)
    return machine.there(whole) == "there" and machine.may(whole, os.R_OK)

"""What inference needs: the CUDA driver, TensorRT and its DLA cores, trtexec, ONNX Runtime."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...collectors.backends.tensorrt_probe import Capabilities
from ...collectors.board.machine import Machine
from ...collectors.catalog import find_backend
from ..settings.config import Workload
from .findings import Board, Finding, Patient

_NUMBERS = re.compile(r"\d+")


def explain_dla(version: str) -> tuple[bool, str]:
    """Say what the documentation of a TensorRT says of the DLA.

    Args:
        version: As ``10.3.0``.

    Returns:
        Whether it has one on a module that has cores, and the words for it.

    >>> explain_dla("10.16.2")
    (False, 'TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)')
    >>> explain_dla("11.4.1")[0], explain_dla("10.3.0")[0]
    (True, True)
    """
    found = tuple(int(one) for one in _NUMBERS.findall(version)[:3])
    if found < (10, 8):
        return True, "TensorRT up to 10.7 has the DLA (JetPack 5 and 6)"
    if found < (11,):
        return False, "TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)"
    if found < (11, 4):
        return False, "TensorRT 11.0 to 11.3 have no DLA"
    if found < (11, 4, 1):
        return False, "TensorRT 11.4.0 has the DLA on Windows on Arm only"
    return True, "TensorRT 11.4.1 and later have the DLA of AGX Orin, for typed models"


def remedy_for_dla(module: str | None) -> str:
    """Say which TensorRT to take for the DLA of a module."""
    old = "JetPack 6 (TensorRT 8.6 to 10.7)"
    if module in ("AGX Xavier", "Xavier NX"):
        return "take JetPack 5, the last one for Xavier (TensorRT 8.5)"
    if module == "AGX Orin":
        return f"take {old}, or JetPack 7.2.2 and later with TensorRT 11.4.1"
    return f"take {old}"


TRTEXEC = "/usr/src/tensorrt/bin/trtexec"
_CUDA_SECONDS = 20.0
# In a child: a driver that is broken may take its process with it.
_ASK_CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
version, count = ctypes.c_int(), ctypes.c_int()
status = cuda.cuInit(0) or cuda.cuDriverGetVersion(ctypes.byref(version))
status = status or cuda.cuDeviceGetCount(ctypes.byref(count))
print("cuda", status, version.value, count.value)
"""
_TOLD = re.compile(r"^cuda (\d+) (\d+) (\d+)$", re.MULTILINE)
_CUDA_PYTHON = ("cuda-bindings", "cuda-python")
_FREES_THE_GIL = (12, 9)
# The newest that installs on the Python 3.8 of JetPack 5.
_OLD_CUDA_PYTHON = "cuda-python==11.8.2"


def check_inference(patient: Patient) -> Iterator[Finding]:
    """Look at each library that a back-end of ours uses."""
    machine = patient.machine
    needed = patient.wants_tensorrt or patient.board.is_jetson
    told = machine.run((sys.executable, "-I", "-c", _ASK_CUDA), _CUDA_SECONDS)
    yield judge_cuda(told.status, told.out, told.said, needed)
    found = patient.tensorrt
    yield judge_tensorrt(found, needed)
    if found.problem is None:
        yield judge_dla_cores(found, patient.board)
    versions = {name: machine.package(name) for name in _CUDA_PYTHON}
    yield judge_cuda_python(versions, patient.board.l4t, needed)
    path = next((one for one in (TRTEXEC, "trtexec") if machine.which(one)), None)
    yield judge_trtexec(path, needed)
    yield judge_onnxruntime(
        next(filter(None, map(machine.package, ("onnxruntime", "onnxruntime-gpu"))), None)
    )


def judge_cuda(status: int | None, out: str, message: str, needed: bool) -> Finding:
    """Say whether the CUDA driver answers.

    Args:
        status: Exit status of the child that asked; negative where it died of it.
        out: What it printed.
        message: Its last words.
        needed: Whether something here is meant to use it.
    """
    told = _TOLD.search(out)
    level = "missing" if needed else "note"
    remedy = "see that nvidia-smi works, or tegrastats on a Jetson; in a container --runtime nvidia"
    if told is None:
        absent = "libcuda.so.1" in message
        words = (
            "no CUDA driver" if absent else f"the CUDA driver does not answer: {message or status}"
        )
        return Finding.model_validate(
            {
                "check": "cuda_driver",
                "level": level if absent else "broken",
                "message": words,
                "remedy": remedy if needed or not absent else None,
            }
        )
    error, version, count = int(told[1]), int(told[2]), int(told[3])
    facts = {"error": error, "version": version, "devices": count}
    if error or not count:
        message = f"the CUDA driver is there and fails with error {error}"
        if not error:
            message = "the CUDA driver sees no device"
        return Finding(
            check="cuda_driver", level="broken", message=message, remedy=remedy, facts=facts
        )
    return Finding(
        check="cuda_driver",
        level="good",
        message=f"CUDA driver for CUDA {version // 1000}.{version % 1000 // 10}, {count} device(s)",
        facts=facts,
    )


def judge_tensorrt(found: Capabilities, needed: bool) -> Finding:
    """Say whether TensorRT can be used from this Python."""
    version = found.versions.get("tensorrt")
    facts = {"version": version, "device": found.device, "dla_cores": found.dla_cores}
    if found.problem is None:
        on = f" on {found.device}" if found.device else ""
        return Finding(
            check="tensorrt", level="good", message=f"TensorRT {version}{on}", facts=facts
        )
    return Finding.model_validate(
        {
            "check": "tensorrt",
            "level": "note" if not needed else "missing" if version is None else "broken",
            "message": f"no TensorRT: {found.problem}",
            "remedy": found.mend if needed else None,
            "facts": facts,
        }
    )


def judge_dla_cores(found: Capabilities, board: Board) -> Finding:
    """Say whether this TensorRT has the cores of this module, and why not."""
    version = found.versions.get("tensorrt", "")
    can, words = explain_dla(version)
    facts = {"cores": found.dla_cores, "module_cores": board.dla_cores, "documented": can}
    if found.dla_cores:
        return Finding(
            check="tensorrt_dla",
            level="good",
            message=f"TensorRT {version} sees {found.dla_cores} DLA core(s)",
            facts=facts,
        )
    if board.dla_cores == 0 or not board.is_jetson:
        return Finding(
            check="tensorrt_dla",
            level="note",
            message="TensorRT sees no DLA, as this machine has none",
            facts=facts,
        )
    if not can:
        return Finding(
            check="tensorrt_dla",
            level="missing",
            message=f"TensorRT {version} sees no DLA: {words}",
            remedy=remedy_for_dla(board.module),
            facts=facts,
        )
    return Finding(
        check="tensorrt_dla",
        level="missing",
        message=f"TensorRT {version} sees no DLA, though: {words}",
        remedy="look at dla_nodes above: the driver or its device nodes are missing",
        facts=facts,
    )


def judge_cuda_python(versions: Mapping[str, str | None], l4t: str | None, needed: bool) -> Finding:
    """Say which binding of CUDA there is, and whether it lets other threads run while it waits.

    Args:
        versions: Distribution to version; ``None`` where it is not installed.
        l4t: Release of Jetson Linux, which decides on the CUDA and so on the binding to take.
        needed: Whether something here is meant to use it.
    """
    name, version = next(((n, v) for n, v in versions.items() if v), (None, None))
    if name is None or version is None:
        return Finding.model_validate(
            {
                "check": "cuda_python",
                "level": "missing" if needed else "note",
                "message": "no cuda-python",
                "remedy": f"pip install '{_binding_of(l4t)}'" if needed else None,
            }
        )
    numbers = tuple(int(one) for one in re.findall(r"\d+", version)[:2])
    facts = {"distribution": name, "version": version, "frees_gil": numbers >= _FREES_THE_GIL}
    if numbers < _FREES_THE_GIL:
        return Finding(
            check="cuda_python",
            level="note",
            message=f"{name} {version} keeps Python's lock while it waits (12.9 and later do not);"
            " our lanes are processes, so none waits for another",
            facts=facts,
        )
    return Finding(check="cuda_python", level="good", message=f"{name} {version}", facts=facts)


def _binding_of(l4t: str | None) -> str:
    """Return the requirement that fits the CUDA of a release.

    >>> _binding_of("36.4.3"), _binding_of("35.6.0"), _binding_of("39.2")
    ('cuda-python<13', 'cuda-python==11.8.2', 'cuda-python>=13')
    """
    major = 0 if l4t is None else int(l4t.split(".")[0])
    if not major:
        return "cuda-python"
    return (
        "cuda-python>=13" if major >= 38 else "cuda-python<13" if major == 36 else _OLD_CUDA_PYTHON
    )


def judge_trtexec(path: str | None, needed: bool) -> Finding:
    """Say whether trtexec is there, the back-end without Python."""
    if path is not None:
        return Finding(check="trtexec", level="good", message=path, facts={"path": path})
    return Finding(
        check="trtexec",
        level="note",
        message="no trtexec (only backend: trtexec needs it)",
        remedy="sudo apt install libnvinfer-bin" if needed else None,
    )


def judge_onnxruntime(version: str | None) -> Finding:
    """Say whether ONNX Runtime is there, for lanes of the CPU."""
    if version is not None:
        return Finding(
            check="onnxruntime",
            level="good",
            message=f"ONNX Runtime {version}",
            facts={"version": version},
        )
    return Finding(
        check="onnxruntime",
        level="note",
        message="no ONNX Runtime (only workloads on the CPU need it)",
        remedy="pip install 'tegrascope[onnx]'",
    )


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
            message="no configuration: telemetry alone, no runs",
            remedy="tegrascope doctor -c FILE; the keys are in docs/configuration.md",
        )
    facts = {"path": str(path), "workloads": len(patient.config.workloads)}
    if patient.config_problems:
        more = len(patient.config_problems) - 1
        return Finding(
            check="config",
            level="broken",
            message=patient.config_problems[0] + (f" (and {more} more)" if more else ""),
            remedy=f"tegrascope check-config {path}",
            blocking=True,
            facts=facts | {"problems": list(patient.config_problems)},
        )
    advice = patient.config.advice()
    if advice:
        return Finding(
            check="config",
            level="note",
            message=f"{path} is good; {advice[0]}",
            facts=facts,
        )
    count = len(patient.config.workloads)
    return Finding(
        check="config", level="good", message=f"{path} is good, {count} workload(s)", facts=facts
    )


def _check_workload(patient: Patient, workload: Workload) -> Finding:
    lack = _what_lacks(patient, workload)
    backend = workload.backend_in_force
    facts = {"workload": workload.name, "device": workload.device, "backend": backend}
    if lack is None:
        return Finding(
            check="workload",
            level="good",
            message=f"{workload.name} can run: {backend} on {workload.device}",
            facts=facts,
        )
    message, remedy = lack
    return Finding(
        check="workload",
        level="missing",
        message=f"{workload.name} cannot run: {message}",
        remedy=remedy,
        blocking=True,
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
    backend = find_backend(workload.backend_in_force)
    if backend.program is not None:
        path = workload.trtexec or backend.program
        if machine.which(path) is None:
            return f"no {path}", backend.install
        if workload.device.startswith("dla") and patient.board.dla_cores == 0:
            return f"{patient.board.module} has no DLA", "device: gpu"
        return None
    if backend.uses_tensorrt:
        # The probe finds libraries that no package manager lists.
        return _what_tensorrt_lacks(patient, workload)
    if backend.packages and not any(map(machine.package, backend.packages)):
        return f"no {backend.packages[0]}", backend.install
    return None


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

"""Inference: the CUDA driver, TensorRT and its DLA cores, trtexec, ONNX Runtime; the workloads."""

import re
import sys
from collections.abc import Iterator, Mapping

from ...collectors.backends.tensorrt_probe import Capabilities
from ...collectors.board.machine import Answer
from ...collectors.catalog import find_backend
from ..settings.config import Workload
from .findings import Board, Check, Context, Finding


def explain_dla(version: str) -> tuple[bool, str]:
    """Return whether a TensorRT supports the DLA by its documentation, and a sentence about it.

    >>> explain_dla("10.16.2")
    (False, 'TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)')
    >>> explain_dla("11.4.1")[0], explain_dla("10.3.0")[0]
    (True, True)
    """
    numbers = _numbers(version)[:3]
    if numbers < (10, 8):
        return True, "TensorRT up to 10.7 has the DLA (JetPack 5 and 6)"
    if numbers < (11,):
        return False, "TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)"
    if numbers < (11, 4):
        return False, "TensorRT 11.0 to 11.3 have no DLA"
    if numbers < (11, 4, 1):
        return False, "TensorRT 11.4.0 has the DLA on Windows on Arm only"
    return True, "TensorRT 11.4.1 and later have the DLA of AGX Orin, for typed models"


def _remedy_for_dla(module: str | None) -> str:
    old = "JetPack 6 (TensorRT 8.6 to 10.7)"
    if module in ("AGX Xavier", "Xavier NX"):
        return "take JetPack 5, the last one for Xavier (TensorRT 8.5)"
    if module == "AGX Orin":
        return f"take {old}, or JetPack 7.2.2 and later with TensorRT 11.4.1"
    return f"take {old}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


TRTEXEC = "/usr/src/tensorrt/bin/trtexec"
_CUDA_SECONDS = 20.0
# In a child: a broken driver may crash its process.
_CUDA_PROGRAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
version, count = ctypes.c_int(), ctypes.c_int()
status = cuda.cuInit(0) or cuda.cuDriverGetVersion(ctypes.byref(version))
status = status or cuda.cuDeviceGetCount(ctypes.byref(count))
print("cuda", status, version.value, count.value)
"""
_CUDA_OUTPUT = re.compile(r"^cuda (\d+) (\d+) (\d+)$", re.MULTILINE)
_CUDA_PYTHON = ("cuda-bindings", "cuda-python")
_FREES_THE_GIL = (12, 9)


def check_inference(context: Context) -> Iterator[Finding]:
    """Check each library that a back-end uses."""
    machine, needed = context.machine, context.needs_tensorrt
    yield judge_cuda(
        machine.run((sys.executable, "-I", "-c", _CUDA_PROGRAM), _CUDA_SECONDS), needed
    )
    found = context.tensorrt
    yield judge_tensorrt(found, needed)
    if found.problem is None:
        yield judge_dla_cores(found, context.board)
    versions = {name: machine.package(name) for name in _CUDA_PYTHON}
    yield judge_cuda_python(versions, context.board.l4t, needed)
    path = next((one for one in (TRTEXEC, "trtexec") if machine.which(one)), None)
    if path is not None:
        yield Check("trtexec", path=path).finding("good", path)
    else:
        remedy = "sudo apt install libnvinfer-bin" if needed else None
        message = "no trtexec (only backend: trtexec needs it)"
        yield Check("trtexec").finding("note", message, remedy)
    version = machine.package("onnxruntime") or machine.package("onnxruntime-gpu")
    if version:
        yield Check("onnxruntime", version=version).finding("good", f"ONNX Runtime {version}")
    else:
        message = "no ONNX Runtime (only workloads on the CPU need it)"
        yield Check("onnxruntime").finding("note", message, "pip install 'tegrascope[onnx]'")


def judge_cuda(answer: Answer, needed: bool) -> Finding:
    """Report whether the CUDA driver works, by the answer of the child that called it.

    Args:
        needed: Whether inference on the GPU or DLA is expected here.
    """
    remedy = (
        "check that nvidia-smi works, or tegrastats on a Jetson; in a container --runtime nvidia"
    )
    output = _CUDA_OUTPUT.search(answer.out)
    if output is None:
        if "libcuda.so.1" in answer.message:
            return Check("cuda_driver").finding(
                "missing" if needed else "note", "no CUDA driver", remedy if needed else None
            )
        message = f"the CUDA driver does not answer: {answer.message or answer.status}"
        return Check("cuda_driver").finding("broken", message, remedy)
    error, version, count = map(int, output.groups())
    check = Check("cuda_driver", error=error, version=version, devices=count)
    if error:
        message = f"the CUDA driver exists and fails with error {error}"
        return check.finding("broken", message, remedy)
    if not count:
        return check.finding("broken", "the CUDA driver sees no device", remedy)
    release = f"{version // 1000}.{version % 1000 // 10}"
    return check.finding("good", f"CUDA driver for CUDA {release}, {count} device(s)")


def judge_tensorrt(found: Capabilities, needed: bool) -> Finding:
    """Report whether this Python can use TensorRT."""
    version = found.versions.get("tensorrt")
    check = Check("tensorrt", version=version, device=found.device, dla_cores=found.dla_cores)
    if found.problem is None:
        on = f" on {found.device}" if found.device else ""
        return check.finding("good", f"TensorRT {version}{on}")
    return check.finding(
        "note" if not needed else "missing" if version is None else "broken",
        f"no TensorRT: {found.problem}",
        found.remedy if needed else None,
    )


def judge_dla_cores(found: Capabilities, board: Board) -> Finding:
    """Report whether this TensorRT sees the cores of this module, and if not, why."""
    version = found.versions.get("tensorrt", "")
    is_documented, sentence = explain_dla(version)
    check = Check(
        "tensorrt_dla",
        cores=found.dla_cores,
        module_cores=board.dla_cores,
        documented=is_documented,
    )
    if found.dla_cores:
        return check.finding("good", f"TensorRT {version} sees {found.dla_cores} DLA core(s)")
    if board.dla_cores == 0 or not board.is_jetson:
        return check.finding("note", "TensorRT sees no DLA, as this machine has none")
    if not is_documented:
        message = f"TensorRT {version} sees no DLA: {sentence}"
        return check.finding("missing", message, _remedy_for_dla(board.module))
    return check.finding(
        "missing",
        f"TensorRT {version} sees no DLA, although {sentence}",
        "see dla_nodes above: the driver or its device nodes are missing",
    )


def judge_cuda_python(versions: Mapping[str, str | None], l4t: str | None, needed: bool) -> Finding:
    """Report the Python binding of CUDA, and whether its waits release the interpreter lock.

    Args:
        versions: Version of each distribution; ``None`` if it is not installed.
        l4t: Release of Jetson Linux, which determines CUDA and so the binding to install.
    """
    name, version = next(((n, v) for n, v in versions.items() if v), (None, None))
    if name is None or version is None:
        return Check("cuda_python").finding(
            "missing" if needed else "note",
            "no cuda-python",
            f"pip install '{_binding_of(l4t)}'" if needed else None,
        )
    releases_lock = _numbers(version)[:2] >= _FREES_THE_GIL
    check = Check("cuda_python", distribution=name, version=version, frees_gil=releases_lock)
    if releases_lock:
        return check.finding("good", f"{name} {version}")
    return check.finding(
        "note",
        f"{name} {version} keeps Python's lock while it waits (12.9 and later do not);"
        " each executor is a process of its own, so none waits for another",
    )


def _binding_of(l4t: str | None) -> str:
    """Return the requirement that fits the CUDA of a release.

    >>> _binding_of("36.4.3"), _binding_of("35.6.0"), _binding_of("39.2")
    ('cuda-python<13', 'cuda-python==11.8.2', 'cuda-python>=13')
    """
    if l4t is None:
        return "cuda-python"
    major = int(l4t.split(".")[0])
    if major >= 38:
        return "cuda-python>=13"
    # 11.8.2 is the newest that installs on the Python 3.8 of JetPack 5.
    return "cuda-python<13" if major == 36 else "cuda-python==11.8.2"


def check_workloads(context: Context) -> Iterator[Finding]:
    """Check the configuration file, then the requirements of each workload."""
    yield judge_config(context)
    for workload in context.config.workloads:
        if not workload.is_window:
            yield _check_workload(context, workload)


def judge_config(context: Context) -> Finding:
    """Report whether the configuration is valid."""
    path, problems = context.config_path, context.config_problems
    if path is None:
        return Check("config").finding(
            "note",
            "no configuration: telemetry alone, no runs",
            "tegrascope doctor -c FILE; the keys are in docs/configuration.md",
        )
    count = len(context.config.workloads)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        check = Check("config", path=str(path), workloads=count, problems=list(problems))
        remedy = f"tegrascope check-config {path}"
        return check.finding("broken", problems[0] + more, remedy, blocking=True)
    check = Check("config", path=str(path), workloads=count)
    advice = context.config.advice()
    if advice:
        return check.finding("note", f"{path} is good; {advice[0]}")
    return check.finding("good", f"{path} is good, {count} workload(s)")


def _check_workload(context: Context, workload: Workload) -> Finding:
    name, device, backend = workload.name, workload.device, workload.backend_in_force
    check = Check("workload", workload=name, device=device, backend=backend)
    lack = _find_lack(context, workload)
    if lack is None:
        return check.finding("good", f"{name} can run: {backend} on {device}")
    problem, remedy = lack
    return check.finding("missing", f"{name} cannot run: {problem}", remedy, blocking=True)


def _find_lack(context: Context, workload: Workload) -> tuple[str, str] | None:
    """Return the problem and remedy of the first requirement that is not met."""
    machine = context.machine
    if workload.command is not None:
        program = workload.command[0]
        if machine.which(program):
            return None
        return f"{program} does not exist", f"command: of {workload.name}"
    model = workload.model or ""
    if not model.startswith("builtin:") and not context.can_read(model):
        return f"{model} cannot be read", f"ls -l {model}; a path is best absolute"
    backend = find_backend(workload.backend_in_force)
    if backend.program is not None:
        path = workload.trtexec or backend.program
        if machine.which(path) is None:
            return f"no {path}", backend.install
        if workload.device.startswith("dla") and context.board.dla_cores == 0:
            return f"{context.board.module} has no DLA", "device: gpu"
    elif backend.uses_tensorrt:
        # The probe finds libraries that no package manager lists.
        found = context.tensorrt
        if found.problem is not None:
            remedy = found.remedy or "see tensorrt, under inference"
            return f"TensorRT cannot be used ({found.problem})", remedy
        core = workload.device.removeprefix("dla")
        cores = found.dla_cores or 0
        if core.isdecimal() and int(core) >= cores:
            return f"TensorRT sees {cores} DLA core(s)", "see tensorrt_dla; or device: gpu"
    elif backend.packages and not any(map(machine.package, backend.packages)):
        return f"no {backend.packages[0]}", backend.install
    return None

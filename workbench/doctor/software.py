"""Telemetry, the libraries for inference, the configured workloads, and the service."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ...collectors.backends.base import Backend
from ...collectors.backends.tensorrt_probe import Capabilities
from ...collectors.base import Stamped
from ...collectors.board.boards import find_rail_rule
from ...collectors.board.machine import Answer, Machine
from ...collectors.catalog import find_backend
from ...collectors.children.process import Quiet
from ...collectors.gpu.nvml import NvmlSettings, nvml_command
from ...collectors.lines.collector import TegrastatsSettings, tegrastats_command
from ...collectors.lines.program import LineSocket
from ...collectors.models.files import facts_of
from ...daemon.settings.config import Workload, split_listen
from ...parsers.errors import PIP_INSTALL, ParseError, UserError
from ...parsers.nvml import GpuFacts, parse_nvml_line
from ...parsers.rails import RailRule
from ...parsers.records import Sample
from ...parsers.tegrastats import parse_line
from ...parsers.values import DLAS, version_numbers
from .findings import Board, Check, Context, Finding, docker, is_orin_nx


class RootSocket(NamedTuple):
    """A socket of a systemd unit, which gives this user the lines of a reader that runs as root."""

    check: str
    unit: str
    path: str

    @property
    def enable(self) -> str:
        """The command that starts it now and at each boot."""
        return f"sudo systemctl enable --now {self.unit}"


TEGRASTATS = RootSocket("socket", "tegrascope-tegrastats.socket", "/run/tegrascope/tegrastats.sock")
DLA_TRACE = RootSocket("dla_trace", "tegrascope-dla-trace.socket", "/run/tegrascope/dla-trace.sock")


def check_socket(context: Context, socket: RootSocket, configured: Path | None) -> Finding:
    """Report whether a socket is served, and whether this user may connect.

    It makes no connection, for which systemd would start the unit.
    """
    machine, is_container = context.machine, context.board.container is not None
    path = str(configured or socket.path)
    there, can_write = machine.there(path), machine.may(path, os.W_OK)
    listens = machine.listens(path)
    check = Check(socket.check, path=path, there=there == "there", listens=listens, ours=can_write)
    if there == "absent":
        remedy = socket.enable
        if path != socket.path:
            remedy = f"sudo systemctl edit {socket.unit}, with [Socket] ListenStream={path}"
        if is_container:
            directory = Path(path).parent
            remedy = f"{docker('-v', f'{directory}:{directory}')}; on the host: {remedy}"
        return check.note(f"no {path}, which gives the values that only root sees", remedy)
    if there == "there" and not listens:
        remedy = f"sudo systemctl restart {socket.unit}"
        return check.broken(f"no process listens on {path}", remedy)
    if there == "hidden" or not can_write:
        message = f"{path} is for the service, not for this user"
        remedy = 'sudo usermod -aG tegrascope "$USER", and log in again'
        if is_container:
            remedy = docker("--group-add", machine.group_of(path))
        return check.note(message, remedy)
    return check.good(f"this user can connect to {path}")


_LINES, _INTERVAL_SECONDS = 3, 0.1
_SOCKET_SECONDS = 20.0
_UNIT_INTERVAL = re.compile(r'^TEGRASTATS_INTERVAL_MS="?([0-9]{1,6})', re.MULTILINE | re.ASCII)


def check_telemetry(context: Context) -> Iterator[Finding]:
    """Check the source that ``telemetry.source`` names; tegrastats runs for a moment."""
    telemetry = context.config.telemetry
    settings, check = telemetry.settings, Check("telemetry")
    if isinstance(settings, TegrastatsSettings):
        yield from _check_tegrastats(context, settings)
    elif isinstance(settings, NvmlSettings):
        gpu, problem = _ask_nvml(context.machine, settings)
        if gpu is not None:
            yield check.good(f"NVML reports GPU {settings.gpu}: {gpu.name}")
        else:
            message = f"NVML does not report GPU {settings.gpu}: {problem}"
            yield check.missing(message, _NVML_REMEDY, blocking=True)
    elif settings.is_simulated:
        yield check.note("telemetry is simulated, as configured")
    elif settings.file is None:
        yield check.note(f"telemetry is {settings.summary()}")
    elif context.machine.can_read(str(settings.file)):
        yield check.good(f"telemetry is {settings.file}")
    else:
        key = f"telemetry.{telemetry.source}.path"
        remedy = f"ls -l {settings.file}, or name another under {key}"
        yield check.missing(f"{settings.file} cannot be read", remedy, blocking=True)
    beside = telemetry.nvml
    is_thor = isinstance(settings, TegrastatsSettings) and context.board.module == "Thor"
    if settings is not beside and (beside.beside is True or (is_thor and beside.beside == "auto")):
        yield judge_nvml(*_ask_nvml(context.machine, beside, "--beside", "--processes"))


# What a configuration needs on a machine without tegrastats; ``doctor`` ends with it.
NVML_LINE, SIMULATOR_LINE = "telemetry: {source: nvml}", "telemetry: {source: simulator}"
_NVML_REMEDY = f"{PIP_INSTALL} nvidia-ml-py, and check that nvidia-smi works"
# How NVML's values are refused, of those that are read beside tegrastats.
_BESIDE = {
    "GPU load": ("utilization",),
    "power": ("power_instant", "power_usage"),
    "memory by process": ("compute_processes", "graphics_processes"),
}


def _ask_nvml(
    machine: Machine, settings: NvmlSettings, *options: str
) -> tuple[GpuFacts | None, str]:
    """Return what NVML says of a GPU and, if it gives no sample, why; asked in a child."""
    command = (*nvml_command(0.1, settings.gpu, *options), "--samples", "1")
    answer = machine.run(command, 15.0)
    if answer.status == 0:
        for line in answer.out.splitlines():
            with suppress(ParseError):
                record = parse_nvml_line(line)
                if isinstance(record, GpuFacts):
                    return record, ""
    return None, answer.message or "no sample"


def judge_nvml(gpu: GpuFacts | None, problem: str) -> Finding:
    """Report the values that NVML gives beside tegrastats; ``gpu`` is None if it gives none."""
    if gpu is None:
        message = f"no GPU load beside tegrastats: {problem}"
        return Check("nvml").missing(message, _NVML_REMEDY)
    gives, lacks = [], []
    for what, names in _BESIDE.items():
        if set(names) <= set(gpu.refused):
            lacks.append(what)
        else:
            gives.append(what)
    check = Check("nvml", gpu=gpu.name, gives=gives, lacks=lacks)
    if not gives:
        return check.note(f"NVML of {gpu.name} supports none of {', '.join(lacks)}: it is not read")
    message = f"NVML of {gpu.name} gives {', '.join(gives)} beside tegrastats"
    if lacks:
        return check.note(f"{message}; it does not support {', '.join(lacks)}: absent, not 0")
    return check.good(message)


def _check_tegrastats(context: Context, settings: TegrastatsSettings) -> Iterator[Finding]:
    machine, board, program = context.machine, context.board, settings.command
    path = machine.which(program[0])
    socket = check_socket(context, TEGRASTATS, settings.socket)
    sample_of_root: Sample | None = None
    if socket.level == "good" and settings.asks_socket:
        socket, sample_of_root = _ask_socket(context, socket)
    check = Check("tegrastats")
    if path is None and sample_of_root is not None:
        yield check.note(f"{program[0]} does not exist; lines come from the service's socket")
        yield judge_fields(sample_of_root, 0, True, board.dla_cores)
        yield socket
        yield judge_rails(sample_of_root, context.config.board)
        return
    if path is None and not board.may_be_jetson:
        yield _judge_other_machine(context, program[0])
        return
    if path is None:
        remedy = "tegrascope run --demo simulates a board"
        if board.container is not None:
            remedy = docker("-v", "/usr/bin/tegrastats:/usr/bin/tegrastats:ro")
        elif board.is_jetson:
            remedy = "sudo apt install nvidia-l4t-tools"
        message = f"{program[0]} does not exist: no telemetry"
        yield check.missing(message, remedy, blocking=True)
        yield socket
        return
    command = tegrastats_command(_INTERVAL_SECONDS, program)
    lines, problem = machine.lines(command, _LINES, context.telemetry_seconds)
    samples = []
    for line in lines:
        with suppress(ParseError):
            samples.append(parse_line(line))
    yield _judge_lines(path, lines, samples, problem)
    if samples:
        has_socket = bool(socket.facts["listens"]) and settings.asks_socket
        has_socket &= socket.level != "broken"
        yield judge_fields(samples[-1], machine.uid, has_socket, board.dla_cores)
        yield socket
        yield judge_rails(samples[-1], context.config.board)


def _judge_other_machine(context: Context, program: str) -> Finding:
    """Return the telemetry that a machine without tegrastats can have, and the line to write."""
    machine = context.machine
    message = f"telemetry.source is {program}, which this machine does not have"
    if not NvmlSettings.has_driver(machine.root):
        message += ", and there is no NVIDIA driver: only simulated telemetry"
        check = Check("telemetry", write=SIMULATOR_LINE)
        return check.missing(message, f"{SIMULATOR_LINE} in a file for -c", blocking=True)
    gpu, problem = _ask_nvml(machine, context.config.telemetry.nvml)
    remedy = f"{NVML_LINE} in a file for -c"
    if gpu is not None:
        check = Check("telemetry", write=NVML_LINE, gpu=gpu.name)
        return check.missing(f"{message}; NVML reports {gpu.name}", remedy, blocking=True)
    message += f"; an NVIDIA driver is here: {problem}"
    check = Check("telemetry", write=NVML_LINE, gpu=None)
    return check.missing(message, f"{_NVML_REMEDY}; then {remedy}", blocking=True)


def _ask_socket(context: Context, socket: Finding) -> tuple[Finding, Sample | None]:
    """Return the finding and the first sample of a socket that this user can connect to."""
    machine, path = context.machine, str(socket.facts["path"])
    interval = _UNIT_INTERVAL.search(machine.text("/etc/default/tegrascope") or "")
    seconds = context.telemetry_seconds
    if interval is not None:
        # Lines may come this far apart, in milliseconds, and the first one may just have passed.
        seconds = max(seconds, 2.5e-3 * int(interval[1]))
    until = time.monotonic() + min(seconds, _SOCKET_SECONDS)
    problem = f"gives no sample within {seconds:g} s"
    try:
        with LineSocket(machine.at(path)) as peer:
            while time.monotonic() < until:
                line = peer.read(max(until - time.monotonic(), 0))
                if line is Quiet.END:
                    problem = "is closed before it gives a sample"
                    break
                if isinstance(line, Stamped):
                    with suppress(ParseError):
                        return socket, parse_line(line.value)
    except UserError as error:
        problem = f"takes no connection ({error.message})"
    remedy = "journalctl -n 20 -u 'tegrascope-tegrastats@*'"
    return socket.model_copy(
        update={"level": "broken", "message": f"{path} {problem}", "remedy": remedy}
    ), None


def _judge_lines(
    path: str, lines: Sequence[str], samples: Sequence[Sample], problem: str
) -> Finding:
    """Report whether tegrastats prints lines that can be parsed, and all that were wanted."""
    unread = sum(len(sample.unparsed) for sample in samples)
    check = Check(
        "tegrastats", path=path, lines=len(lines), samples=len(samples), unread_words=unread
    )
    if not samples:
        message = f"{path} {problem}"
        if lines:
            message = f"{path} printed no line that is a sample: {lines[0][:60]!r}"
        remedy = f"{path} --interval 1000, and check its output"
        return check.broken(message, remedy, blocking=True)
    if problem:
        remedy = f"{path} --interval 100, and check why it does not continue"
        return check.note(f"{path} {problem}", remedy)
    if unread:
        remedy = f"timeout 5 {path} | tegrascope parse -, and send us the values of unparsed"
        return check.note(f"{path} runs; {unread} word(s) of its output are unknown", remedy)
    return check.good(f"{path} runs, and all of its output is understood")


def judge_fields(sample: Sample, uid: int, has_socket: bool, dla_cores: int | None) -> Finding:
    """Report the fields that only root's tegrastats prints: EMC, engines, DLA; and rails.

    ``uid`` ran tegrastats. ``has_socket``: the service gets root's lines from a socket.
    """
    fields = {"EMC": sample.emc is not None, "engines": bool(sample.engines)}
    if dla_cores != 0:
        fields["DLA"] = bool(sample.dla)
    fields["rails"] = bool(sample.rails)
    lacks = [name for name, is_there in fields.items() if not is_there]
    check = Check("root_fields", root=uid == 0, lacks=lacks)
    if not lacks:
        return check.good(f"it prints all fields that root sees: {', '.join(fields)}")
    if uid == 0:
        message = f"even as root it does not print {', '.join(lacks)}: absent, not 0"
        return check.note(message, "docs/fields.md says which boards print which of them")
    message = f"without root it does not print {', '.join(lacks)}"
    if has_socket:
        return check.good(f"{message}; the service gets the rest from its socket")
    return check.missing(
        f"{message}: absent, not 0 (docs/fields.md#without-root)", TEGRASTATS.enable
    )


def judge_rails(sample: Sample, configured: RailRule | None) -> Finding:
    """Report whether a rule is known by which the rails add up to the module."""
    names = sorted(sample.rails)
    if not names:
        return Check("rails").missing(
            "no rail is printed: no power, no energy",
            "as root, or by the socket; some carrier boards have no sensor: docs/fields.md#rails",
        )
    rule = configured or find_rail_rule(names)
    if rule is None:
        return Check("rails", rails=names).missing(
            f"rails of an unknown board ({', '.join(names)}): no module total",
            "name the board's rails under board: in the configuration; docs/fields.md#rails has"
            " those of other boards",
        )
    message = f"rails of {rule.name}; the module is {' + '.join(rule.total)}"
    return Check("rails", rails=names, rule=rule.name).good(message)


TRTEXEC = "/usr/src/tensorrt/bin/trtexec"
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
_CUDA_REMEDY = "check that nvidia-smi or tegrastats works; in a container --runtime nvidia"
_CUDA_PYTHON = ("cuda-bindings", "cuda-python")


def check_inference(context: Context) -> Iterator[Finding]:
    """Check each library that a back-end uses."""
    machine, needed = context.machine, context.needs_tensorrt
    child = machine.run((sys.executable, "-I", "-c", _CUDA_PROGRAM), 20.0)
    yield judge_cuda(child, needed, machine.environ.get(VISIBLE))
    found = context.tensorrt
    yield _judge_tensorrt(found, needed)
    if found.problem is None and context.board.may_be_jetson:
        yield judge_dla_cores(found, context.board)
    versions = {name: machine.package(name) for name in _CUDA_PYTHON}
    yield judge_cuda_python(versions, context.board.l4t, needed)
    yield _judge_trtexec(machine, needed)
    version = machine.package("onnxruntime") or machine.package("onnxruntime-gpu")
    if version:
        yield Check("onnxruntime", version=version).good(f"ONNX Runtime {version}")
    else:
        message = "no ONNX Runtime (only workloads on the CPU need it)"
        yield Check("onnxruntime").note(message, f"{PIP_INSTALL} onnxruntime")


def _judge_trtexec(machine: Machine, needed: bool) -> Finding:
    """Report where trtexec is."""
    for path in (TRTEXEC, "trtexec"):
        if machine.which(path):
            return Check("trtexec", path=path).good(path)
    remedy = "sudo apt install libnvinfer-bin" if needed else None
    return Check("trtexec").note("no trtexec (only backend: trtexec needs it)", remedy)


# The value hides GPUs from CUDA; without any, CUDA has an error of its own for that.
VISIBLE = "CUDA_VISIBLE_DEVICES"
_NO_DEVICE = 100


def judge_cuda(answer: Answer, needed: bool, visible: str | None = None) -> Finding:
    """Report whether the CUDA driver works, by the answer of the child that called it.

    ``visible`` is ``CUDA_VISIBLE_DEVICES`` of its environment; ``None`` if it is not set.
    """
    check, output = Check("cuda_driver"), _CUDA_OUTPUT.search(answer.out)
    if output is None and "libcuda.so.1" in answer.message:
        if not needed:
            return check.note("no CUDA driver")
        return check.missing("no CUDA driver", _CUDA_REMEDY)
    if output is None:
        message = f"the CUDA driver does not answer: {answer.message or answer.status}"
        return check.broken(message, _CUDA_REMEDY)
    error, version, count = map(int, output.groups())
    check = Check("cuda_driver", error=error, version=version, devices=count)
    if visible is not None and (error == _NO_DEVICE or (not error and not count)):
        message = f"{VISIBLE} is {visible!r}, which hides every GPU from CUDA"
        return check.broken(message, f"unset {VISIBLE}, or name a GPU in it")
    if error:
        return check.broken(f"the CUDA driver exists and fails with error {error}", _CUDA_REMEDY)
    if not count:
        return check.broken("the CUDA driver sees no device", _CUDA_REMEDY)
    release = f"{version // 1000}.{version % 1000 // 10}"
    return check.good(f"CUDA driver for CUDA {release}, {count} device(s)")


def _judge_tensorrt(capabilities: Capabilities, needed: bool) -> Finding:
    """Report whether this Python can use TensorRT."""
    version = capabilities.versions.get("tensorrt")
    check = Check(
        "tensorrt", version=version, device=capabilities.device, dla_cores=capabilities.dla_cores
    )
    if capabilities.problem is None:
        place = f" on {capabilities.device}" if capabilities.device else ""
        return check.good(f"TensorRT {version}{place}")
    message = f"no TensorRT: {capabilities.problem}"
    if not needed:
        return check.note(message)
    if version is None:
        return check.missing(message, capabilities.remedy)
    return check.broken(message, capabilities.remedy)


def judge_dla_cores(capabilities: Capabilities, board: Board) -> Finding:
    """Report whether this TensorRT sees the cores of this module, and if not, why."""
    version = capabilities.versions.get("tensorrt", "")
    is_documented, sentence = explain_dla(version)
    if is_orin_nx(board.module) and version_numbers(version) >= (11,):
        is_documented = False
    check = Check(
        "tensorrt_dla",
        cores=capabilities.dla_cores,
        module_cores=board.dla_cores,
        documented=is_documented,
    )
    if capabilities.dla_cores:
        return check.good(f"TensorRT {version} sees {capabilities.dla_cores} DLA core(s)")
    if board.dla_cores == 0 or not board.is_jetson:
        return check.note("TensorRT sees no DLA, as this machine has none")
    if is_documented:
        remedy = "see dla_nodes above: the driver or its device nodes are missing"
        return check.missing(f"TensorRT {version} sees no DLA, although {sentence}", remedy)
    remedy = "take JetPack 6 (TensorRT 8.6 to 10.7)"
    if board.module in ("AGX Xavier", "Xavier NX"):
        remedy = "take JetPack 5, the last one for Xavier (TensorRT 8.5)"
    elif board.module == "AGX Orin":
        remedy += ", or JetPack 7.2.2 and later with TensorRT 11.4.1"
    return check.missing(f"TensorRT {version} sees no DLA: {sentence}", remedy)


def explain_dla(version: str) -> tuple[bool, str]:
    """Return whether a TensorRT supports the DLA by its documentation, and a sentence about it.

    >>> explain_dla("10.16.2")
    (False, 'TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)')
    """
    numbers = version_numbers(version)[:3]
    if numbers < (10, 8):
        return True, "TensorRT up to 10.7 has the DLA (JetPack 5 and 6)"
    if numbers < (11,):
        return False, "TensorRT 10.8 to 10.16 have no DLA (JetPack 7.0 to 7.2.1)"
    if numbers < (11, 4):
        return False, "TensorRT 11.0 to 11.3 have no DLA"
    if numbers < (11, 4, 1):
        return False, "TensorRT 11.4.0 has the DLA on Windows on Arm only"
    return True, "TensorRT 11.4.1 and later have the DLA of AGX Orin only, for typed models"


def judge_cuda_python(versions: Mapping[str, str | None], l4t: str | None, needed: bool) -> Finding:
    """Report the Python binding of CUDA.

    ``versions`` are by distribution. ``l4t`` determines CUDA and so the binding to install.
    """
    for name, version in versions.items():
        if version:
            check = Check("cuda_python", distribution=name, version=version)
            return check.good(f"{name} {version}")
    if not needed:
        return Check("cuda_python").note("no cuda-python")
    return Check("cuda_python").missing("no cuda-python", f"{PIP_INSTALL} '{_binding_of(l4t)}'")


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
    if major == 36:
        return "cuda-python<13"
    # The newest that installs on the Python 3.8 of JetPack 5.
    return "cuda-python==11.8.2"


def check_workloads(context: Context) -> Iterator[Finding]:
    """Check the configuration file, then the requirements of each workload."""
    yield _judge_config(context)
    for workload in context.config.workloads:
        if workload.is_window:
            continue
        name, device, backend = workload.name, workload.device, workload.backend_in_force
        check = Check("workload", workload=name, device=device, backend=backend)
        lack = _find_lack(context, workload)
        if lack is None:
            yield check.good(f"{name} can run: {backend} on {device}")
        else:
            yield check.missing(f"{name} cannot run: {lack.problem}", lack.remedy, blocking=True)


def _judge_config(context: Context) -> Finding:
    path, problems = context.config_path, context.config_problems
    if path is None:
        return Check("config").note(
            "no configuration: telemetry alone, no runs",
            "tegrascope doctor -c FILE; the keys are in docs/configuration.md",
        )
    count = len(context.config.workloads)
    if problems:
        message = problems[0]
        if len(problems) > 1:
            message += f" (and {len(problems) - 1} more)"
        check = Check("config", path=str(path), workloads=count, problems=list(problems))
        return check.broken(message, f"tegrascope check-config {path}", blocking=True)
    check, advice = Check("config", path=str(path), workloads=count), context.config.advice()
    if advice:
        return check.note(f"{path} is good; {advice[0]}")
    return check.good(f"{path} is good, {count} workload(s)")


class _Lack(NamedTuple):
    """A requirement of a workload that is not met."""

    problem: str
    remedy: str


def _find_lack(context: Context, workload: Workload) -> _Lack | None:
    """Return the first requirement of a workload that is not met."""
    if workload.command is not None:
        program = workload.command[0]
        if context.machine.which(program):
            return None
        return _Lack(f"{program} does not exist", f"command: of {workload.name}")
    lack = _find_lack_of_files(context, workload)
    if lack is not None:
        return lack
    backend = find_backend(workload.backend_in_force)
    if backend.program is not None:
        return _find_lack_of_program(context, workload, backend)
    if backend.uses_tensorrt:
        return _find_lack_of_tensorrt(context, workload, backend)
    if backend.packages and not any(map(context.machine.package, backend.packages)):
        return _Lack(f"no {backend.packages[0]}", backend.install)
    return None


def _find_lack_of_files(context: Context, workload: Workload) -> _Lack | None:
    """Return which of a workload's own files cannot be used: its model or a plug-in."""
    machine = context.machine
    for model in filter(None, (workload.model, workload.head)):
        if model.startswith("builtin:"):
            continue
        path = str(context.state_dir / model)
        if not machine.can_read(path):
            return _Lack(f"{model} cannot be read", f"ls -l {model}; a path is best absolute")
        try:
            facts_of(machine.at(path))
        except UserError as error:
            return _Lack(error.message, error.remedy)
    for library in workload.plugins:
        if not machine.can_read(str(context.state_dir / library)):
            return _Lack(f"the plug-in library {library} cannot be read", f"ls -l {library}")
    return None


def _find_lack_of_program(
    context: Context, workload: Workload, backend: type[Backend]
) -> _Lack | None:
    """Return what a back-end lacks that runs a program of TensorRT."""
    path = workload.trtexec or backend.program or ""
    if context.machine.which(path) is None:
        return _Lack(f"no {path}", backend.install)
    # Such a program cannot be asked how many cores it sees, so the module decides.
    if workload.device in DLAS and context.board.dla_cores == 0:
        return _Lack(f"{context.board.module} has no DLA", "device: gpu")
    return None


def _find_lack_of_tensorrt(
    context: Context, workload: Workload, backend: type[Backend]
) -> _Lack | None:
    """Return what a back-end lacks that uses TensorRT's libraries."""
    # The probe finds libraries that no package manager lists.
    capabilities = context.tensorrt
    if capabilities.problem is not None:
        remedy = capabilities.remedy or "see tensorrt, under inference"
        return _Lack(f"TensorRT cannot be used ({capabilities.problem})", remedy)
    core, cores = workload.device.removeprefix("dla"), capabilities.dla_cores or 0
    if core.isdecimal() and int(core) >= cores:
        return _Lack(f"TensorRT sees {cores} DLA core(s)", "see tensorrt_dla; or device: gpu")
    if backend.library is not None and context.machine.library(backend.library) is None:
        return _Lack(f"no lib{backend.library}.so", backend.install)
    return None


_UNIT = "tegrascope.service"
_PROPERTIES = "LoadState,ActiveState,SubState,UnitFileState,NRestarts,Result"
_MANY_RESTARTS = 3
# The answers of an exporter that has a web configuration file.
_GUARDS = {
    (400, "Client sent an HTTP request to an HTTPS server.\n"): "TLS",
    (401, "Unauthorized\n"): "a password",
}


def check_service(context: Context) -> Iterator[Finding]:
    """Check the unit in systemd, and the daemon on the configured address."""
    machine, listen = context.machine, context.config.http.listen
    answer = None
    if machine.there("/run/systemd/system") == "there" and machine.which("systemctl"):
        command = ("systemctl", "show", _UNIT, f"--property={_PROPERTIES}", "--no-pager")
        answer = machine.run(command)
    yield judge_unit(answer)
    host, port = split_listen(listen)
    if port:
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        health = machine.get(local, port, "/healthz")
        ready = health
        if health.status == 200:
            ready = machine.get(local, port, "/readyz")
        yield judge_daemon(listen, health, ready)


def judge_unit(answer: Answer | None) -> Finding:
    """Report the state of the unit, by the answer of systemctl; ``None`` without systemd."""
    if answer is None:
        return Check("service").note("no systemd here")
    if answer.status != 0:
        return Check("service").note(f"systemd does not answer: {answer.message}")
    unit = {}
    for line in answer.out.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            unit[name] = value
    state, enabled = unit.get("ActiveState", "unknown"), unit.get("UnitFileState", "")
    count = unit.get("NRestarts", "")
    restarts = int(count) if count.isdecimal() else 0
    check = Check("service", state=state, enabled=enabled, restarts=restarts)
    if unit.get("LoadState") == "not-found":
        return check.note("the service is not installed", "sudo tegrascope service install")
    if state == "failed" or restarts >= _MANY_RESTARTS:
        why = f"{state} ({unit.get('Result', 'unknown')}), restarted {restarts} time(s)"
        remedy = f"journalctl -u {_UNIT} -n 50"
        return check.broken(f"the service is {why}", remedy, blocking=state == "failed")
    if state != "active":
        return check.note(f"the service is {state}", f"sudo systemctl enable --now {_UNIT}")
    if enabled not in ("enabled", "enabled-runtime", "alias", "static"):
        message = "the service runs, but does not start after a reboot"
        return check.note(message, f"sudo systemctl enable {_UNIT}")
    return check.good(f"the service runs, {restarts} restart(s)")


def judge_daemon(listen: str, health: Answer, ready: Answer) -> Finding:
    """Report whether a daemon listens, by the answers of ``/healthz`` and ``/readyz``."""
    check = Check("daemon", listen=listen, answers=health.status is not None)
    if health.status is None and health.message == "refused":
        return check.note(f"no daemon on {listen}; the port is free")
    guard = _GUARDS.get((health.status or 0, health.out))
    if guard is not None:
        message = f"the server on {listen} asks for {guard}, so its readiness is unknown here"
        remedy = "systemctl status tegrascope, or ask /readyz with curl: docs/http.md"
        return check.note(message, remedy)
    if health.status != 200 or health.out != "ok\n":
        message = f"{listen} is taken by another program ({health.message or health.status})"
        remedy = "name another port under http.listen, or --listen"
        return check.broken(message, remedy, blocking=True)
    if ready.status != 200:
        message = (ready.out.strip() or ready.message).splitlines()[0][:200]
        remedy = f"curl http://{listen}/readyz, and the findings above"
        message = f"the daemon on {listen} is not ready: {message}"
        return check.broken(message, remedy, blocking=True)
    return check.good(f"a daemon serves {listen} and is ready")

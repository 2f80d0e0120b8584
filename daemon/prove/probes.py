"""Gathers evidence of a board: each probe runs a program or reads files, and keeps clean lines."""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...collectors.board.boards import jetpack_of
from ...collectors.board.machine import Machine
from ...collectors.board.readers import clock_of, clocks_locked
from ...collectors.board.sysfs import FINDERS
from ...collectors.children.process import LineChild, Quiet
from ...collectors.children.program import python_child, start_tied
from ...collectors.lines.program import LineSocket
from ...parsers.dla import Ended, Lost, Submitted, parse_trace_line
from ...parsers.errors import ParseError, UserError
from ...parsers.signals import GPU_FREQUENCY
from ..doctor.findings import read_board
from ..doctor.software import TEGRASTATS
from .belief import Evidence
from .scrub import clean

ROOT_REMEDY = "run tegrascope prove where sudo works, or as root"
TRACING, FIRMWARE = "/sys/kernel/tracing", "/sys/kernel/debug/nvdla*/firmware"
_EVENTS = f"{TRACING}/events/nvdla_ftrace"
_MOST_LINES = 400
POWERED = "/sys/bus/platform/devices/*.nvdla*/power/runtime_active_time"


class Absent(Exception):  # noqa: N818 - it is an answer
    """This board cannot give the evidence; with the remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.evidence = Evidence(missing=reason, remedy=remedy)


@dataclass
class Board:
    """The board that is examined.

    Attributes:
        work: Directory of our own programs; it is removed at the end.
        tool: The command ``tegrascope``.
        sudo: What begins a command for root; ``None`` if that is not possible.
        line_seconds: Interval of tegrastats.
        found: The evidence so far.
    """

    machine: Machine
    work: Path
    tool: tuple[str, ...] = field(default_factory=lambda: python_child("tegrascope"))
    sudo: tuple[str, ...] | None = None
    line_seconds: float = 1.0
    found: dict[str, Evidence] = field(default_factory=dict)

    def start(self, argv: Sequence[str], seconds: float, *, root: bool = False) -> LineChild:
        """Start a program that ends with us, and after the seconds if root runs it; or raise."""
        if self.machine.which(argv[0]) is None:
            raise Absent(f"there is no {Path(argv[0]).name}", f"install {Path(argv[0]).name}")
        if root and self.sudo is None:
            raise Absent("only root may do this", ROOT_REMEDY)
        # sudo does not end with us, so root's programs have a time of their own.
        words = [*(self.sudo or ()), "timeout", f"{seconds:g}", *argv] if root else [*argv]
        program = self.machine.which(words[0]) or words[0]
        return start_tied([program, *words[1:]], {**self.machine.environ, "LC_ALL": "C"})

    def run(
        self, argv: Sequence[str], seconds: float, *, root: bool = False, most: int = _MOST_LINES
    ) -> Evidence:
        """Run a program until it ends, has printed ``most`` lines, or the time is over."""
        begin, lines, at = time.monotonic(), list[str](), list[float]()
        with self.start(argv, seconds, root=root) as child:
            while len(lines) < most and (left := begin + seconds + 5 * root - time.monotonic()) > 0:
                line = child.read(left)
                if isinstance(line, Quiet):
                    break
                lines.append(line.value)
                at.append(round(line.monotonic_ns / 1e9 - begin, 3))
        ended = len(lines) < most and left > 0
        return Evidence(
            lines=tuple(
                map(clean, [*lines, *(f"stderr: {one}" for one in child.last_words[-12:])])
            ),
            at_seconds=tuple(at),
            status=child.returncode if ended else None,
            seconds=round(time.monotonic() - begin, 3),
        )

    def text(self, argv: Sequence[str], seconds: float) -> tuple[str, int | None]:
        """Return the whole output of one of our commands, with its status."""
        lines: list[str] = []
        until, line = time.monotonic() + seconds, None
        with self.start([*self.tool, *argv], seconds) as child:
            while not isinstance(line, Quiet):
                line = child.read(max(0.0, until - time.monotonic()))
                if not isinstance(line, Quiet):
                    lines.append(line.value)
        return "\n".join(lines), child.returncode if line is Quiet.END else None

    def files(self, *patterns: str, root: bool = False) -> tuple[str, ...]:
        """Return ``path: text`` of each line of files that match, without private words."""
        if root:
            if self.sudo is None:
                raise Absent("only root may read this", ROOT_REMEDY)
            under = str(self.machine.root).rstrip("/")
            globs = " ".join(under + pattern for pattern in patterns)
            found = self.machine.run([*self.sudo, "sh", "-c", f"grep -H '' {globs}"], 10.0).out
            lines = [line.removeprefix(under).partition(":") for line in found.splitlines()]
            return tuple(clean(f"{path}: {text}") for path, _, text in lines[:_MOST_LINES])
        return tuple(
            clean(f"{path}: {line}")
            for path in self.machine.find(*patterns)
            for line in (self.machine.text(path) or "").splitlines()
        )[:_MOST_LINES]


Gather = Callable[[Board, float], Evidence]


@dataclass(frozen=True)
class Probe:
    """One piece of evidence.

    Attributes:
        about: What it does, for the list and the progress.
        seconds: The most that it may take.
        quick: Whether ``--quick`` has it too.
        needs: ``dla``, ``tensorrt`` or both.
        root: Whether it needs root.
        changes: What it changes for a while; then it needs ``--allow-changes``.
        restore: The command for root that undoes the change.
    """

    about: str
    seconds: float
    gather: Gather
    quick: bool = True
    needs: tuple[str, ...] = ()
    root: bool = False
    changes: str = ""
    restore: Callable[[Board], Sequence[str]] | None = None


def flatten(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each value of a JSON document."""
    if isinstance(document, dict | list):
        pairs = document.items() if isinstance(document, dict) else enumerate(document)
        for key, value in pairs:
            yield from flatten(value, f"{path}.{key}" if path else str(key))
    elif isinstance(document, float):
        yield path, f"{document:.7f}"
    else:
        yield path, " ".join(str(document).split())


def _json(keep: str, *arguments: str) -> Gather:
    """Return a gatherer that keeps some paths of the JSON document that our command prints."""

    def gather(board: Board, seconds: float) -> Evidence:
        begin = time.monotonic()
        text, status = board.text([*arguments, *_state(board, arguments)], seconds)
        with suppress(ValueError):
            pairs = flatten(json.loads(text[text.find("{") : text.rfind("}") + 1]))
            lines = [clean(f"{path}: {value}") for path, value in pairs if re.search(keep, path)]
            spent = round(time.monotonic() - begin, 3)
            return Evidence(lines=tuple(lines[:_MOST_LINES]), status=status, seconds=spent)
        return Evidence(status=status, lines=("no document: true",))

    return gather


def _command(*arguments: str) -> Gather:
    """Return a gatherer that keeps what our command prints."""
    return lambda board, seconds: board.run(
        [*board.tool, *arguments, *_state(board, arguments)], seconds
    )


def _state(board: Board, arguments: Sequence[str]) -> list[str]:
    own = {"bench": ["-o", str(board.work / "bench")], "engines": [], "run": [], "inspect": []}
    return [*own[name], "--state-dir", str(board.work)] if (name := arguments[0]) in own else []


def _files(*patterns: str, root: bool = False) -> Gather:
    def gather(board: Board, seconds: float) -> Evidence:  # noqa: ARG001
        return Evidence(lines=board.files(*patterns, root=root))

    return gather


def _board(board: Board, seconds: float) -> Evidence:  # noqa: ARG001
    """Note which board this is; a version of four numbers loses the last one."""
    found, machine = read_board(board.machine), board.machine
    facts = {
        "model": found.model,
        "module": found.module,
        "dla_cores": found.dla_cores,
        "l4t": found.l4t,
        "jetpack": jetpack_of(found.l4t),
        "container": found.container is not None,
        "clocks held": clocks_locked(machine.root),
        "root": machine.uid == 0,
        "python": ".".join(map(str, sys.version_info[:3])),
        "tensorrt": ".".join((machine.package("tensorrt") or "none").split(".")[:3]),
    }
    return Evidence(lines=tuple(clean(f"{name}: {value}") for name, value in facts.items()))


def _tegrastats(count: int, *, root: bool = False) -> Gather:
    def gather(board: Board, seconds: float) -> Evidence:  # noqa: ARG001
        interval = board.line_seconds
        argv = ["tegrastats", "--interval", str(max(1, round(interval * 1000)))]
        return board.run(argv, (count + 3) * interval, root=root, most=count)

    return gather


def _files_time(board: Board, seconds: float) -> Evidence:  # noqa: ARG001
    """Time one reading of all files of the companion, the best of several."""
    files = [one.file for find in FINDERS for one in find(board.machine.root)]
    took = []
    for _ in range(20):
        begin = time.perf_counter()
        for file in files:
            file.text()
        took.append(time.perf_counter() - begin)
    for file in files:
        file.close()
    return Evidence(lines=(f"files: {len(files)}", f"seconds: {sorted(took)[10]:.7f}"))


def _rail_times(board: Board, seconds: float) -> Evidence:  # noqa: ARG001
    """Time one reading of each rail's voltage, beside the settings of its sensor."""
    hwmon = "/sys/class/hwmon/hwmon*"
    lines = [*board.files(f"{hwmon}/name", f"{hwmon}/samples", f"{hwmon}/update_interval")]
    for path in board.machine.find(f"{hwmon}/in[123]_input"):
        begin = time.perf_counter()
        board.machine.text(path)
        lines.append(clean(f"{path} seconds: {time.perf_counter() - begin:.7f}"))
    return Evidence(lines=tuple(lines))


def _devfreq(board: Board, seconds: float) -> Evidence:  # noqa: ARG001
    """Note the devices with a clock, and which of them we take for the GPU's."""
    lines = []
    for path in board.machine.find("/sys/class/devfreq/*"):
        name = path.rpartition("/")[2]
        known = clock_of(name)
        is_gpu = known is not None and known[0] is GPU_FREQUENCY
        lines.append(clean(f"gpu {is_gpu}: {name}"))
    return Evidence(lines=tuple(lines))


def _nvpmodel(board: Board, seconds: float) -> Evidence:
    """Note the status file, the modes of the configuration, and the program's answer."""
    lines = board.files("/var/lib/nvpmodel/status", "/etc/nvpmodel.conf")
    try:
        asked = board.run(["nvpmodel", "-q"], seconds)
    except Absent:
        return Evidence(lines=lines)
    answers = tuple(f"asked: {line}" for line in asked.lines)
    return Evidence(lines=(*lines, *answers), status=asked.status)


def _timer(board: Board, seconds: float) -> Evidence:
    found = board.run(["dmesg"], seconds, root=True, most=100_000)
    lines = [line for line in found.lines if "arch_timer" in line and "running" in line]
    return Evidence(lines=tuple(lines[:3]), status=found.status)


_TRACER = (f"{TRACING}/tracing_on", f"{TRACING}/trace_clock")


def _trace(board: Board, seconds: float) -> Evidence:
    """Run the trace reader for a moment, with the state of the tracer before and after."""

    def state(when: str) -> list[str]:
        instances = board.files(f"{TRACING}/instances/*/tracing_on", root=True)
        return [
            *(f"{when} {line}" for line in board.files(*_TRACER, root=True)),
            f"{when} instances: {len(instances)}",
        ]

    before = state("before")
    reader = board.run(["tegrascope-dla-trace"], min(seconds, 3.0), root=True)
    hello = [line for line in reader.lines if "hello cores" in line][:1]
    return Evidence(lines=(*before, *hello, *state("after")), status=reader.status)


def _socket(board: Board, seconds: float) -> Evidence:
    """Read lines of the service's socket, and count its tegrastats after we closed it."""

    def count() -> int:
        return len(board.machine.run(["pgrep", "-x", "tegrastats"]).out.split())

    path, lines, before = board.machine.at(TEGRASTATS.path), list[str](), count()
    if board.machine.there(TEGRASTATS.path) == "absent":
        raise Absent("the socket of the service is not there", TEGRASTATS.enable)
    until = time.monotonic() + seconds - 4
    try:
        with LineSocket(path) as peer:
            while len(lines) < 3 and (left := until - time.monotonic()) > 0:
                if isinstance(line := peer.read(left), Quiet):
                    break
                lines.append(line.value)
    except UserError as error:
        raise Absent("the socket takes no connection from this user", error.remedy) from error
    time.sleep(3 * board.line_seconds)
    return Evidence(lines=(*map(clean, lines), f"before: {before}", f"after: {count()}"))


_FIGURES = (
    r"accelerators\.\d+\.(device|status|reason|flags\..*|outputs\.(verdict|relative_error|difference)"
    r"|built\.(placement\.(verdict|loadables)|layer_types\..*)|rounds|is_steady|profiled_seconds"
    r"|layers\.\d+\.(seconds|kind|place)|utilization\.gpu\.value|latency\.p50_seconds"
    r"|device_latency\.p50_seconds|(latency_seconds|net_joules_per_inference|gpu_freed)\.\w+)$"
    r"|^contention\.together\.\d+\.(status|lanes\.\d+\.(device|slowdown\.value))$"
)


def _load(board: Board, seconds: float) -> Evidence:
    """Run a model on the DLA and watch it: tegrastats, powered time, firmware and trace."""
    command = "bench --builtin resnet50 --precision fp16 --on dla0 --rounds 1 --telemetry none"
    command += " --duration 20 --baseline 1 --json"
    lines = [f"before {line}" for line in board.files(POWERED)]
    root, interval = board.sudo is not None, max(1, round(board.line_seconds * 1000))
    stats = ["tegrastats", "--interval", str(interval)]
    kept: dict[str, list[str]] = {"load": [], "line": [], "trace": []}
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        argv = [*board.tool, *command.split(), *_state(board, ["bench"])]
        children = {"load": stack.enter_context(board.start(argv, seconds))}
        children["line"] = stack.enter_context(board.start(stats, seconds, root=root))
        with suppress(Absent):
            reader = board.start(["tegrascope-dla-trace"], seconds, root=True)
            children["trace"] = stack.enter_context(reader)
        asked = 0.0
        while time.monotonic() < until:
            if root and time.monotonic() - asked > 5 * board.line_seconds:
                asked = time.monotonic()
                lines += board.files(f"{FIRMWARE}/utilization_rate", root=True)
            got = {name: child.read(0.05) for name, child in children.items()}
            for name, line in got.items():
                if not isinstance(line, Quiet):
                    kept[name].append(line.value)
            if got["load"] is Quiet.END:
                break
    lines += [f"after {line}" for line in board.files(POWERED)]
    shown = [line for line in kept["line"] if re.search(r"NVDLA\d\S* (?!off)", line)] or kept[
        "line"
    ]
    lines += [f"line: {line}" for line in shown[-20:]]
    with suppress(ValueError):
        document = "\n".join(kept["load"])
        pairs = flatten(json.loads(document[document.find("{") :]))
        lines += [f"{path}: {value}" for path, value in pairs if re.search(_FIGURES, path)]
    if "trace" in children:
        lines += _trace_counts(kept["trace"])
    return Evidence(lines=tuple(map(clean, lines)), status=children["load"].returncode)


def _trace_counts(lines: Sequence[str]) -> list[str]:
    """Return counts of a trace, whose own lines contain names of processes."""
    counts = dict.fromkeys(("lines", "unparsed", "submit", "after job_id", "process", "lost"), 0)
    submitted: set[int] = set()
    for line in lines:
        counts["lines"] += 1
        try:
            event = parse_trace_line(line)
        except ParseError:
            counts["unparsed"] += 1
            continue
        if isinstance(event, Submitted):
            submitted.add(event.task)
            counts["submit"] += 1
            counts["process"] += event.thread is not None
        elif isinstance(event, Ended):
            counts["after job_id"] += event.task in submitted
        counts["lost"] += isinstance(event, Lost)
    return [f"trace {name}: {count}" for name, count in counts.items()]


def _daemon(board: Board, seconds: float) -> Evidence:
    """Run the daemon beside its page, and note its memory and the time of its processor."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    argv = [*board.tool, "run", "--listen", address, *_state(board, ["run"])]
    lines: list[str] = []
    with board.start(argv, seconds) as child:
        begin = time.monotonic()
        while time.monotonic() - begin < seconds * board.line_seconds - 5:
            child.read(1.0 * board.line_seconds)
            board.machine.get("127.0.0.1", port, "/")
            board.machine.get("127.0.0.1", port, "/api/v1/status")
        status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
        stat = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8")
        fields = stat.rpartition(")")[2].split()
        spent = time.monotonic() - begin
        page = board.machine.get("127.0.0.1", port, "/metrics").out
    for key, name in (("VmRSS", "rss"), ("VmHWM", "hwm")):
        if found := re.search(rf"^{key}:\s*(\d+) kB", status, re.MULTILINE):
            lines.append(f"{name} bytes: {int(found[1]) * 1024}")
    if len(fields) > 12:
        ticks = int(fields[11]) + int(fields[12])
        lines.append(f"cpu ratio: {ticks / os.sysconf('SC_CLK_TCK') / spent:.7f}")
    for name in ("tegra_info", "tegra_gpu_frequency_hertz"):
        lines.append(f"{name}: {len(re.findall(rf'^{name}[{{ ]', page, re.MULTILINE))}")
    return Evidence(lines=tuple(map(clean, lines)), seconds=round(spent, 3))


def _wait_for_build(board: Board, seconds: float) -> Evidence:
    """Build twice at once; the later build has to wait."""
    argv = [*board.tool, "engines", "build", "builtin:resnet50", "--on", "gpu", "--again"]
    argv += _state(board, ["engines"])
    with board.start(argv, seconds) as first:
        first.read(3.0 * board.line_seconds)
        return board.run(argv, seconds)


def _trtexec(board: Board, seconds: float) -> Evidence:
    """Build for the DLA by trtexec, and count what its log and its inspector call the layers."""
    models = sorted(board.work.glob("models/*.onnx"))
    if not models:
        raise Absent("no engine of a model was built before", "tegrascope prove, without --quick")
    layers = board.work / "layers.json"
    options = "--fp16 --useDLACore=0 --allowGPUFallback --skipInference --verbose"
    argv = ["trtexec", f"--onnx={models[0]}", *options.split(), "--profilingVerbosity=detailed"]
    done = board.run([*argv, f"--exportLayerInfo={layers}"], seconds, most=200_000)
    words = {word: sum(word in line for line in done.lines) for word in ("DlaLayer", "GpuLayer")}
    lines = [f"{word}: {count}" for word, count in words.items()]
    with suppress(OSError):
        types = re.findall(r'"LayerType": "(\w+)"', layers.read_text(encoding="utf-8"))
        lines += [f"LayerType {name}: {types.count(name)}" for name in sorted(set(types))]
    return Evidence(lines=tuple(map(clean, lines)), status=done.status, seconds=done.seconds)


_UNIT = "tegrascope.service"


def _is_active(board: Board) -> bool:
    return board.machine.run(["systemctl", "is-active", _UNIT]).out.strip() == "active"


def _unit(board: Board, seconds: float) -> Evidence:
    """Start and stop the unit, with the time of each."""
    if board.machine.run(["systemctl", "cat", _UNIT]).status != 0:
        raise Absent("the unit is not installed", "sudo tegrascope service install")
    lines = []
    for action in ("start", "stop"):
        done = board.run(["systemctl", action, _UNIT], seconds / 2, root=True)
        lines += [f"{action} seconds: {done.seconds:.3f}", f"{action} status: {done.status}"]
    return Evidence(lines=tuple(lines))


_HWMON = "/sys/class/hwmon/hwmon*"
_RESNET = ("--builtin", "resnet50", "--precision", "fp16")
_BUILD = ("engines", "build", "builtin:resnet50", "--on")
_ONE_ROUND = ("--rounds", "2", "--duration", "12", "--baseline", "4", "--json")

# In the order in which they run: what is fast and needs nothing comes first.
PROBES: dict[str, Probe] = {
    "board": Probe("the board and its release", 10, _board),
    "hwmon": Probe(
        "sensors, fans and alarms",
        5,
        _files(
            *(f"{_HWMON}/{name}" for name in ("name", "in*_label", "in1_input", "curr1_input")),
            *(f"{_HWMON}/{name}" for name in ("oc*_event_cnt", "samples", "update_interval")),
            *(f"{_HWMON}/{name}" for name in ("shunt*_resistor", "pwm1")),
        ),
    ),
    "rail_times": Probe("the time of a reading of each rail", 30, _rail_times),
    "files_time": Probe("the time of a reading of all files", 10, _files_time),
    "thermal": Probe(
        "zones and their trips",
        5,
        _files(
            "/sys/class/thermal/thermal_zone*/type",
            "/sys/class/thermal/thermal_zone*/trip_point_*_type",
            "/sys/class/thermal/thermal_zone*/trip_point_*_temp",
        ),
    ),
    "devfreq": Probe("devices with a clock", 5, _devfreq),
    "nvpmodel": Probe("the power mode: nvpmodel -q", 10, _nvpmodel),
    "powered": Probe("powered time of the DLA", 5, _files(POWERED), needs=("dla",)),
    "tegrastats": Probe("lines of tegrastats", 30, _tegrastats(20)),
    "root_tegrastats": Probe("lines of tegrastats", 30, _tegrastats(20, root=True), root=True),
    "doctor": Probe(
        "tegrascope doctor",
        110,
        _json(
            r"^findings\.\d+\.(check|level|group|facts\.(module|l4t|jetpack|id|lacks\.\d+))$",
            "doctor",
            "--json",
        ),
    ),
    "events": Probe(
        "the format of the DLA's trace events",
        5,
        _files(f"{_EVENTS}/job_submit/format", f"{_EVENTS}/job_timestamps/format", root=True),
        needs=("dla",),
        root=True,
    ),
    "firmware": Probe(
        "the figures of the DLA's firmware",
        5,
        _files(f"{FIRMWARE}/utilization_rate", f"{FIRMWARE}/stat_window_size", root=True),
        needs=("dla",),
        root=True,
    ),
    "timer": Probe("the rate of the counter: dmesg", 10, _timer, root=True),
    "trace": Probe("the DLA's trace reader, for 3 s", 15, _trace, needs=("dla",), root=True),
    "socket": Probe("the socket of the service", 20, _socket),
    "venv": Probe(
        "the installed package",
        30,
        lambda board, seconds: board.run(
            [
                str(board.machine.at("/usr/lib/tegrascope/venv/bin/python")),
                "-c",
                "import numpy, tensorrt, cuda.bindings.runtime as c; print('ok')",
            ],
            seconds,
        ),
    ),
    "unit": Probe(
        "systemctl start and stop of tegrascope",
        60,
        _unit,
        root=True,
        changes="the unit tegrascope is started and stopped",
        restore=lambda board: ["systemctl", "start" if _is_active(board) else "stop", _UNIT],
    ),
    "daemon": Probe("tegrascope run, with its page", 60, _daemon, quick=False),
    "build_gpu": Probe(
        "an engine for the GPU", 180, _command(*_BUILD, "gpu"), quick=False, needs=("tensorrt",)
    ),
    "build_dla": Probe(
        "an engine for the DLA",
        180,
        _command(*_BUILD, "dla0", "--precision", "fp16"),
        quick=False,
        needs=("tensorrt",),
    ),
    "build_forbid": Probe(
        "an engine without fallback",
        180,
        _command(*_BUILD, "dla0", "--precision", "fp16", "--fallback", "forbid"),
        quick=False,
        needs=("tensorrt", "dla"),
    ),
    "load": Probe("the DLA at work", 120, _load, quick=False, needs=("tensorrt", "dla")),
    "bench": Probe(
        "a benchmark of GPU and DLA",
        240,
        _json(_FIGURES, "bench", *_RESNET, "--on", "gpu,dla0", "--layers", *_ONE_ROUND),
        quick=False,
        needs=("tensorrt",),
    ),
    "wait": Probe("two builds at once", 180, _wait_for_build, quick=False, needs=("tensorrt",)),
    "inspect": Probe(
        "inspect --verify",
        90,
        _json(
            r"^checks\.\d+\.(agreed|compared|differences\.\d+\.predicted)$",
            *("inspect", "builtin:resnet50", "--shape", "image:1x3x224x224", "--verify", "--json"),
        ),
        quick=False,
        needs=("tensorrt", "dla"),
    ),
    "standalone": Probe(
        "a loadable",
        120,
        _command(*_BUILD, "dla0", "--precision", "fp16", "--standalone"),
        quick=False,
        needs=("tensorrt", "dla"),
    ),
    "cudla": Probe(
        "a benchmark through cuDLA",
        120,
        _json(_FIGURES, "bench", *_RESNET, "--on", "dla0", "--backend", "cudla", *_ONE_ROUND),
        quick=False,
        needs=("tensorrt", "dla"),
    ),
    "trtexec": Probe("the log of trtexec", 180, _trtexec, quick=False, needs=("tensorrt", "dla")),
    "together": Probe(
        "two models together",
        240,
        _json(
            _FIGURES,
            *("bench", "builtin:resnet50", "builtin:mobilenet", "--contention"),
            *("--on", "gpu,dla0", "--rounds", "2", "--duration", "4", "--baseline", "1", "--json"),
        ),
        quick=False,
        needs=("tensorrt", "dla"),
    ),
}

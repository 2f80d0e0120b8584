"""Gathers evidence of a board: each probe runs a program or reads files, and keeps clean lines."""

import json
import os
import re
import shlex
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ...collectors.backends.base import BUILDS
from ...collectors.board.boards import find_rail_rule, jetpack_of
from ...collectors.board.machine import Machine
from ...collectors.board.power import SOCKET, PowerClient
from ...collectors.board.readers import clocks_locked, free_memory
from ...collectors.board.supply import RailPower
from ...collectors.board.sysfs import FINDERS
from ...collectors.children.process import LineChild, Quiet
from ...collectors.children.program import python_child, start_tied
from ...collectors.lines.collector import tegrastats_command
from ...collectors.lines.program import LineSocket
from ...collectors.paths import is_file
from ...daemon.session.second_series import SecondSeries
from ...parsers import nvpmodel
from ...parsers.dla import Ended, Lost, Submitted, parse_trace_line
from ...parsers.errors import PIP_INSTALL, ParseError, UserError
from ...parsers.records import Record
from ...parsers.tegrastats import parse_line
from ..doctor.findings import read_board
from ..doctor.software import DLA_TRACE, TEGRASTATS, TRTEXEC
from .belief import Evidence
from .scrub import clean

ROOT_REMEDY = "run tegrascope prove where sudo works, or as root"
_FIRMWARE = "/sys/kernel/debug/nvdla*/firmware"
_MOST_LINES, _MOST_OF_JSON = 400, 100_000
_GLANCE_SECONDS = 0.2
# After its time, timeout(1) ends a program of root, and sudo and its pipes end after that.
_ROOTS_DELAY = 5.0
_NVDLAS = ("/sys/bus/platform/devices/*.nvdla*", "/dev/nvhost-ctrl-nvdla*")
_POWERED = "/sys/bus/platform/devices/*.nvdla*/power/runtime_active_time"


class Absent(Exception):  # noqa: N818 - it is an answer
    """This board cannot give the evidence; with the remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.evidence = Evidence(missing=reason, remedy=remedy)


@dataclass
class BoardAccess:
    """The board that is examined.

    Attributes:
        work: Directory of our own programs; it is removed at the end.
        tool: The command ``tegrascope``.
        sudo: First words of a command for root; ``None`` if that is not possible.
        without_root: Whether the person asked to leave out what root does.
        line_seconds: Interval of tegrastats.
        found: The evidence so far.
    """

    machine: Machine
    work: Path
    tool: tuple[str, ...] = field(default_factory=lambda: python_child("tegrascope", name="prove"))
    sudo: tuple[str, ...] | None = None
    without_root: bool = False
    line_seconds: float = 1.0
    found: dict[str, Evidence] = field(default_factory=dict)

    def no_root(self) -> Absent:
        """Return why root's part is left out: root may be there, and not be wanted."""
        if self.without_root:
            return Absent("--no-sudo leaves out what root does", "run it without --no-sudo")
        return Absent("only root may do this", ROOT_REMEDY)

    def start(self, argv: Sequence[str], seconds: float, *, root: bool = False) -> LineChild:
        """Start a program that ends with us, and after the seconds if root runs it; or raise."""
        # Our own programs may be beside this Python, and its directory not on the path.
        name = Path(argv[0]).name
        beside = Path(sys.executable).with_name(name)
        program = self.machine.which(argv[0])
        if program is None and argv[0] == name and is_file(beside):
            program = str(beside)
        if program is None:
            raise Absent(f"there is no {name}", f"install {name}")
        words = [program, *argv[1:]]
        if root:
            if self.sudo is None:
                raise self.no_root()
            # sudo does not end with us, so root's programs have a time of their own.
            words = [*self.sudo, self.machine.which("timeout") or "timeout", f"{seconds:g}", *words]
        return start_tied(words, {**self.machine.environ, "LC_ALL": "C"})

    def run(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        root: bool = False,
        most: int = _MOST_LINES,
        keep: str = "",
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Evidence:
        """Run a program until it ends, has printed ``most`` lines, or the time is over.

        Args:
            keep: Paths of the JSON document that it prints, as a regular expression: only these
                values are kept.
            meanwhile: Called several times per second.
        """
        begin, lines, at = time.monotonic(), list[str](), list[float]()
        with self.start(argv, seconds, root=root) as child:
            # A program of root cannot be ended by us, so it is read to its end.
            limit_seconds = seconds + _ROOTS_DELAY if root else seconds
            has_ended = False
            while root or len(lines) < most:
                left = begin + limit_seconds - time.monotonic()
                if left <= 0:
                    break
                line = child.read(min(left, _GLANCE_SECONDS))
                meanwhile()
                if line is Quiet.END:
                    has_ended = True
                    break
                if isinstance(line, Quiet):
                    continue
                lines.append(line.value)
                at.append(round(line.monotonic_ns / 1e9 - begin, 3))
        if keep:
            lines, at = _figures(lines, keep), []
        for word in child.last_words[-12:]:
            lines.append(f"stderr: {word}")
        return Evidence(
            lines=tuple(map(clean, lines)),
            at_seconds=tuple(at),
            status=child.returncode if has_ended else None,
            seconds=round(time.monotonic() - begin, 3),
        )

    def files(self, *patterns: str, root: bool = False) -> tuple[str, ...]:
        """Return ``path: text`` of each line of files that match, without private words."""
        if root:
            if self.sudo is None:
                raise self.no_root()
            under = str(self.machine.root).rstrip("/")
            globs = " ".join(under + pattern for pattern in patterns)
            printed = self.machine.run([*self.sudo, "sh", "-c", f"grep -H '' {globs}"], 10.0).out
            lines = []
            for line in printed.splitlines()[:_MOST_LINES]:
                path, _, text = line.removeprefix(under).partition(":")
                lines.append(clean(f"{path}: {text}"))
            return tuple(lines)
        lines = []
        for path in self.machine.find(*patterns):
            for line in (self.machine.text(path) or "").splitlines():
                lines.append(clean(f"{path}: {line}"))
        return tuple(lines[:_MOST_LINES])


class Probe(Record):
    """A step that gathers evidence; ``probes.toml`` describes the fields and has the steps."""

    about: str
    seconds: float
    quick: bool = True
    needs: tuple[str, ...] = ()
    remedy: str = ""
    root: bool = False
    changes: str = ""
    files: tuple[str, ...] = ()
    run: str = ""
    watch: bool = False
    shell: str = ""
    keep: str = ""


@cache
def probes() -> dict[str, Probe]:
    """Return every step by name, in the order in which they run."""
    data = msgspec.toml.decode(Path(__file__).with_name("probes.toml").read_bytes())
    return {name: Probe.model_validate(fields) for name, fields in data.items()}


def gather(board: BoardAccess, name: str, probe: Probe, seconds: float) -> Evidence:
    """Return the evidence of a step, or raise ``Absent``."""
    if probe.shell:
        words = {
            "{tool}": shlex.join(board.tool),
            "{work}": shlex.quote(str(board.work)),
            "{bin}": str(Path(sys.executable).parent),
            "{root}": str(board.machine.root).rstrip("/"),
        }
        text = probe.shell
        for word, value in words.items():
            text = text.replace(word, value)
        printed = board.run(["sh", "-c", text], seconds, root=probe.root, keep=probe.keep)
        lines = board.files(*probe.files, root=probe.root)
        return printed.model_copy(update={"lines": (*lines, *printed.lines)})
    if probe.files:
        return Evidence(lines=board.files(*probe.files, root=probe.root))
    if probe.watch:
        return _watch(board, probe.run, seconds)
    if probe.run:
        return _command(board, probe.run, seconds, probe.keep, root=probe.root)
    return _FUNCTIONS[name](board, seconds)


def flatten(document: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path and text of each value of a JSON document."""
    under = f"{path}." if path else ""
    if isinstance(document, dict):
        for key, value in document.items():
            yield from flatten(value, f"{under}{key}")
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from flatten(value, f"{under}{number}")
    elif isinstance(document, float):
        yield path, f"{document:.10f}"
    else:
        yield path, " ".join(str(document).split())


def _own(board: BoardAccess, command: str) -> list[str]:
    """Return one of our own commands, which keeps its files in the directory of this work."""
    words = command.format(work=board.work).split()
    if words[0] == "bench":
        words += ["-o", str(board.work / "bench")]
    # doctor examines the directory of the installed service.
    if words[0] != "doctor":
        words += ["--state-dir", str(board.work)]
    return [*board.tool, *words]


def _command(
    board: BoardAccess,
    command: str,
    seconds: float,
    keep: str = "",
    *,
    root: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
) -> Evidence:
    """Run one of our own commands; of a JSON document, keep some paths."""
    argv = _own(board, command)
    most = _MOST_OF_JSON
    if "--json" not in argv:
        keep, most = "", _MOST_LINES
    elif not keep:
        keep = _FIGURES
    return board.run(argv, seconds, root=root, most=most, keep=keep, meanwhile=meanwhile)


def _figures(lines: Sequence[str], keep: str) -> list[str]:
    """Return ``path: value`` of a JSON document for the paths that match; none if it is not one."""
    text = "\n".join(lines)
    figures: list[str] = []
    with suppress(ValueError):
        pairs = flatten(json.loads(text[text.find("{") : text.rfind("}") + 1]))
        for path, value in pairs:
            if re.search(keep, path):
                figures.append(f"{path}: {value}")
    return figures


def _board(board: BoardAccess, seconds: float) -> Evidence:  # noqa: ARG001
    """Note which board this is; a version of four numbers loses the last one."""
    known, machine = read_board(board.machine), board.machine
    dla_cores = known.dla_cores
    # Whether an unknown module has a DLA, its files show.
    if dla_cores is None and not machine.find(*_NVDLAS):
        dla_cores = 0
    facts = {
        "model": known.model,
        "module": known.module,
        "dla_cores": dla_cores,
        "l4t": known.l4t,
        "jetpack": jetpack_of(known.l4t),
        "container": known.container is not None,
        "clocks held": clocks_locked(machine.root),
        "root": machine.uid == 0,
        "python": ".".join(map(str, sys.version_info[:3])),
        "cuda_python": machine.package("cuda-python"),
        "tensorrt": ".".join((machine.package("tensorrt") or "none").split(".")[:3]),
    }
    return Evidence(lines=tuple(clean(f"{name}: {value}") for name, value in facts.items()))


def _stats(board: BoardAccess) -> list[str]:
    return tegrastats_command(board.line_seconds)


def _tegrastats(board: BoardAccess, seconds: float, *, root: bool = False) -> Evidence:  # noqa: ARG001
    most = 20
    limit_seconds = (most + 3) * board.line_seconds
    if not root:
        limit_seconds += 5  # a busy machine starts it late
    return board.run(_stats(board), limit_seconds, root=root, most=most)


def _rails_beside(board: BoardAccess, seconds: float) -> Evidence:
    """Read the rails of the total beside the lines, as a run does, and time the readings."""
    rule = None
    for line in board.found.get("tegrastats", Evidence()).lines:
        with suppress(ParseError):
            rule = rule or find_rail_rule(parse_line(line).rails)
    if rule is None:
        raise Absent("the lines show no total of the rails", "use a Jetson that prints its rails")
    second = SecondSeries(partial(RailPower, board.machine.root))
    second.begin("prove", rule.total, board.line_seconds)
    try:
        printed = _tegrastats(board, seconds)
    finally:
        second.stop()
    count = second.readings
    if count == 0:
        remedy = "use a board with INA3221 or INA238"
        raise Absent("no sensor in /sys/class/hwmon measures all rails of the total", remedy)
    lines = (
        f"samples: {count}",
        f"seconds: {second.reading_seconds / count:.7f}",
        f"cpu seconds: {second.cpu_seconds / count:.7f}",
    )
    return printed.model_copy(update={"lines": (*printed.lines, *lines)})


def _files_time(board: BoardAccess, seconds: float) -> Evidence:  # noqa: ARG001
    """Time one reading of all files of the companion: the median of 20."""
    files = []
    for find in FINDERS:
        files += [reading.file for reading in find(board.machine.root)]
    took = []
    for _ in range(20):
        begin = time.perf_counter()
        for file in files:
            file.text()
        took.append(time.perf_counter() - begin)
    for file in files:
        file.close()
    return Evidence(lines=(f"files: {len(files)}", f"seconds: {sorted(took)[10]:.7f}"))


def _rail_times(board: BoardAccess, seconds: float) -> Evidence:  # noqa: ARG001
    """Time the fastest of three readings of each rail, beside the settings of its sensor."""
    hwmon = "/sys/class/hwmon/hwmon*"
    lines = [*board.files(f"{hwmon}/name", f"{hwmon}/samples", f"{hwmon}/update_interval")]
    for path in board.machine.find(f"{hwmon}/in[123]_input"):
        took = []
        for _ in range(3):  # a busy machine delays one of them
            begin = time.perf_counter()
            board.machine.text(path)
            took.append(time.perf_counter() - begin)
        lines.append(clean(f"{path} seconds: {min(took):.7f}"))
    return Evidence(lines=tuple(lines))


def _socket(board: BoardAccess, seconds: float, path: str, enable: str) -> Evidence:
    """Read lines of a socket of the service, and count tegrastats before and after."""

    def count() -> int:
        return len(board.machine.run(["pgrep", "-x", "tegrastats"]).out.split())

    lines, before = list[str](), count()
    if board.machine.there(path) == "absent":
        raise Absent("the socket of the service is not there", enable)
    until = time.monotonic() + seconds - 4
    try:
        with LineSocket(board.machine.at(path)) as peer:
            while len(lines) < 3 and time.monotonic() < until:
                line = peer.read(max(until - time.monotonic(), 0))
                if isinstance(line, Quiet):
                    break
                lines.append(line.value)
    except UserError as error:
        raise Absent("the socket takes no connection from this user", error.remedy) from error
    time.sleep(3 * board.line_seconds)
    return Evidence(lines=(*map(clean, lines), f"before: {before}", f"after: {count()}"))


_BUILDS = r"^engines\.\w+\.(is_cached|placement\.verdict|circumstances\.wanted_memory_bytes)$"
_FIGURES = (
    r"accelerators\.\d+\.(device|status|reason|flags\..*|outputs\.(verdict|relative_error)"
    r"|built\.(build_seconds|int8_scales|placement\.verdict|layer_types\..*)|profiled_seconds"
    r"|layers\.\d+\.(name|seconds|kind|place|flops)|utilization\.(gpu|dla\d:powered)\.value"
    r"|(latency|device_latency|stages\.compute)\.p50_seconds"
    r"|(latency_seconds|net_joules_per_inference|gpu_freed)\.\w+)$"
    r"|rounds\.\d+\.(measuring_share|outputs\.difference|telemetry\.sources\.gpu"
    r"|telemetry\.(dla_beyond_powered_seconds\..*|utilization\.dla0:ftrace\.mean_ratio))$"
    r"|^contention\.together\.\d+\.(status|lanes\.\d+\.(device|slowdown\.value))$"
)


def _watch(board: BoardAccess, command: str, seconds: float) -> Evidence:
    """Run a model on the DLA and watch it: tegrastats, powered time, firmware and trace."""
    lines = [f"before {line}" for line in board.files(_POWERED)]
    root = board.sudo is not None
    printed: dict[str, list[str]] = {"load": [], "line": [], "trace": []}
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        children = {"load": stack.enter_context(board.start(_own(board, command), seconds))}
        children["line"] = stack.enter_context(board.start(_stats(board), seconds, root=root))
        with suppress(Absent):
            reader = board.start(["tegrascope-dla-trace"], seconds, root=True)
            children["trace"] = stack.enter_context(reader)
        asked: float | None = None
        while time.monotonic() < until:
            is_due = asked is None or time.monotonic() - asked > 5 * board.line_seconds
            if root and is_due:
                asked = time.monotonic()
                lines += board.files(f"{_FIRMWARE}/utilization_rate", root=True)
            # All that is there is taken at once: a reader that waits for us would lose events.
            for name, child in reversed(children.items()):
                line = child.read(0.1 if name == "load" else 0)
                while not isinstance(line, Quiet):
                    printed[name].append(line.value)
                    line = child.read(0)
            if line is Quiet.END:  # of the load, which comes last
                break
    lines += [f"after {line}" for line in board.files(_POWERED)]
    busy = [line for line in printed["line"] if re.search(r"NVDLA\d\S{0,64} (?!off)", line)]
    lines += [f"line: {line}" for line in (busy or printed["line"])[-20:]]
    lines += _figures(printed["load"], _FIGURES)
    if "trace" in children:
        lines += _trace_counts(printed["trace"])
    return Evidence(lines=tuple(map(clean, lines)), status=children["load"].returncode)


def _trace_counts(lines: Sequence[str]) -> list[str]:
    """Return counts of a trace, whose own lines contain names of processes."""
    names = (
        "lines",
        "unparsed",
        "submit",
        "after job_id",
        "process",
        "lost",
        "ended",
        "busy ticks",
    )
    counts = dict.fromkeys(names, 0)
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
            counts["ended"] += 1
            counts["busy ticks"] += event.end_ticks - event.begin_ticks
        counts["lost"] += isinstance(event, Lost)
    return [f"trace {name}: {count}" for name, count in counts.items()]


def _daemon(board: BoardAccess, seconds: float) -> Evidence:
    """Run the daemon beside its page, and note its memory and the time of its processor."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    used: dict[float, float] = {}
    with board.start(_own(board, f"run --listen 127.0.0.1:{port}"), seconds) as child:
        begin, most = time.monotonic(), (seconds - 5) * board.line_seconds

        def watch(share: float, pages: Sequence[str] = ()) -> None:
            """Wait until a share of the time is over, and note the time of the processor."""
            while time.monotonic() - begin < share * most:
                if child.read(board.line_seconds) is Quiet.END:
                    raise Absent("the daemon ended", "tegrascope run prints the reason")
                for page in pages:
                    board.machine.get("127.0.0.1", port, page)
            fields = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
            used[time.monotonic()] = sum(map(int, fields.split()[11:13]))

        watch(0.3)
        watch(0.7)
        watch(1.0, ("/", "/api/v1/status"))
        status = Path(f"/proc/{child.pid}/status").read_text(encoding="utf-8")
    lines = []
    for key, name in (("VmRSS", "rss"), ("VmHWM", "hwm")):
        found = re.search(rf"^{key}:\s*(\d+) kB", status, re.MULTILINE)
        if found is not None:
            lines.append(f"{name} bytes: {int(found[1]) * 1024}")
    # Without the start of the daemon and without its page.
    (early, before), (late, after), _ = used.items()
    ratio = (after - before) / os.sysconf("SC_CLK_TCK") / (late - early)
    return Evidence(lines=(*lines, f"cpu ratio: {ratio:.7f}"), seconds=round(most, 3))


def _inputs(board: BoardAccess, seconds: float) -> Evidence:
    """Write models and inputs for later steps, and link TensorRT's own library of plug-ins."""
    board.work.mkdir(parents=True, exist_ok=True)
    settings = board.work / "nvml.yaml"
    settings.write_text("telemetry: {nvml: {beside: true}}\n", encoding="utf-8")
    libraries = list(map(board.machine.at, board.machine.find("/usr/lib/*/libnvinfer_plugin.so*")))
    package = find_spec("tensorrt")
    if package is not None:
        for folder in package.submodule_search_locations or ():
            libraries += Path(folder).glob("libnvinfer_plugin.so*")
    link = board.work / "plugin.so"
    link.unlink(missing_ok=True)
    if libraries:
        link.symlink_to(libraries[0])
    made = board.run(python_child(f"{__package__}.inputs", str(board.work), name="inputs"), seconds)
    if made.status != 0:
        raise Absent("the models were not made: numpy is missing", f"{PIP_INSTALL} numpy")
    return Evidence(lines=(f"plugin library: {bool(libraries)}",), status=made.status)


def _build_gpu(board: BoardAccess, seconds: float) -> Evidence:
    """Build an engine, and note how much less memory was free meanwhile."""
    free: list[int] = []

    def look() -> None:
        now = free_memory(board.machine.root)
        if now is not None:
            free.append(now)

    look()
    command, keep = "engines build builtin:resnet50 --on gpu --json", _BUILDS
    built = _command(board, command, seconds, keep, meanwhile=look)
    if not free:
        return built
    taken = f"taken MiB: {(free[0] - min(free)) / (1 << 20):.0f}"
    return built.model_copy(update={"lines": (*built.lines, taken)})


def _modes(board: BoardAccess, seconds: float) -> Evidence:
    """Ask the power unit for each mode; it restores the mode at the end of the connection."""

    def mode() -> str:
        answer = board.run(["nvpmodel", "-q"], seconds)
        return f"mode {nvpmodel.mode_in_answer(chr(10).join(answer.lines))}"

    lines = [f"before: {mode()}"]
    try:
        with closing(PowerClient(board.machine.at(str(SOCKET)))) as client:
            for known in nvpmodel.parse_modes(board.machine.text("/etc/nvpmodel.conf") or ""):
                try:
                    client.ask(f"mode {known.name}")
                    lines.append("answer: ok")
                except UserError as refusal:
                    lines.append(f"answer: {refusal.message}; {refusal.remedy}")
                    lines.append(f"refused in: {mode()}")
    except UserError as error:
        raise Absent("the power unit takes no connection", error.remedy) from error
    return Evidence(lines=tuple(map(clean, [*lines, f"after: {mode()}"])))


def _wait(board: BoardAccess, seconds: float) -> Evidence:
    """Begin two builds, and end them when the later one has printed whether it waits."""
    begin = time.monotonic()

    def read_until(child: LineChild, pattern: str) -> None:
        while not re.search(pattern, "\n".join(child.last_words)):
            has_time = time.monotonic() - begin < seconds
            if not has_time or child.read(_GLANCE_SECONDS) is Quiet.END:
                break

    build = _own(board, "engines build builtin:mobilenet --on gpu --again")
    with board.start([*build, "--precision", "fp16"], seconds) as first:
        read_until(first, BUILDS)
        with board.start([*build, "--precision", "fp32"], seconds) as later:
            read_until(later, f"waits for |{BUILDS}")
            lines = [f"stderr: {line}" for line in later.last_words]
            lines.append(f"first ended: {first.exited}")
    cleaned = tuple(map(clean, lines))
    return Evidence(lines=cleaned, seconds=round(time.monotonic() - begin, 3))


def _trtexec(board: BoardAccess, seconds: float) -> Evidence:
    """Build for the DLA by trtexec, and count what its log and its inspector call the layers."""
    models = sorted(board.work.glob("models/*.onnx"))
    if not models:
        raise Absent("no engine of a model was built before", "tegrascope prove, without --quick")
    layers = board.work / "layers.json"
    options = "--fp16 --useDLACore=0 --allowGPUFallback --skipInference --verbose"
    program = TRTEXEC if board.machine.which(TRTEXEC) else "trtexec"
    argv = [program, f"--onnx={models[0]}", *options.split(), "--profilingVerbosity=detailed"]
    done = board.run([*argv, f"--exportLayerInfo={layers}"], seconds, most=200_000)
    lines = []
    for word in ("DlaLayer", "GpuLayer"):
        logged = [line for line in done.lines if word in line]
        lines.append(f"{word}: {len(logged)}")
    with suppress(OSError):
        types = re.findall(r'"LayerType": "(\w+)"', layers.read_text(encoding="utf-8"))
        for name, count in sorted(Counter(types).items()):
            lines.append(f"LayerType {name}: {count}")
    return Evidence(lines=tuple(map(clean, lines)), status=done.status, seconds=done.seconds)


_UNIT = "tegrascope.service"


def restore(board: BoardAccess) -> list[str]:
    """Return the command for root that brings the unit back into its present state."""
    state = board.machine.run(["systemctl", "is-active", _UNIT]).out.strip()
    return ["systemctl", "start" if state == "active" else "stop", _UNIT]


_FUNCTIONS: dict[str, Callable[[BoardAccess, float], Evidence]] = {
    "board": _board,
    "rail_times": _rail_times,
    "files_time": _files_time,
    "tegrastats": _tegrastats,
    "rails_beside": _rails_beside,
    "root_tegrastats": partial(_tegrastats, root=True),
    "socket": partial(_socket, path=TEGRASTATS.path, enable=TEGRASTATS.enable),
    "reader": partial(_socket, path=DLA_TRACE.path, enable=DLA_TRACE.enable),
    "modes": _modes,
    "daemon": _daemon,
    "inputs": _inputs,
    "build_gpu": _build_gpu,
    "wait": _wait,
    "trtexec": _trtexec,
}

"""trtexec in a child process: TensorRT on boards whose interpreter has no bindings for it.

It builds an engine once and measures it by itself, warm-up included; ``place_zero`` places its
times on our clock.
"""

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Literal

from ...parsers.errors import BackendUnavailable, UnreadableError, UserError
from ...parsers.inference import trtexec as parser
from ...parsers.inference.calibration import CalibrationCache, release_number
from ...parsers.inference.events import Inferences, Order, Phase, PhaseName
from ...parsers.inference.layer_precisions import (
    check_allowed,
    expand,
    notes_of,
    read_back,
    recorded,
)
from ...parsers.inference.placement import Built, Int8Scales, layer_types, placement_of, wide_layers
from ..base import Stamped
from ..children.process import Quiet
from ..children.program import start_tied
from ..models.data_sets import is_data
from ..models.files import facts_of, node_names
from ..models.quantised import translate
from ..paths import is_file
from . import calibration, engine_cache
from .base import (
    BUILDS,
    SelfTimed,
    device_stages,
    input_shapes,
    lacks_operator,
    require_pure,
    too_new,
)
from .build_turn import clocks_now, turn_to_build
from .engine_cache import BuiltEngine, EngineCache

_DEFAULT_PROGRAM = "/usr/src/tensorrt/bin/trtexec"
_CHUNK = 1024
_LINES_AT_MOST = 4000
_POLL_SECONDS = 0.1
# The greatest delay between the print of a line and its stamp.
_PIPE_NS = 2_000_000
# A line for every ten inferences, of which there may be thousands.
_AVERAGE = "] Average on "
# Of its verbose lines, only those about layers are kept.
_VERBOSE = "[V] "
_OF_LAYERS = ("[DlaLayer]", "[GpuLayer]", "Layer(", "Layers Running on", "offloaded to DLA")
_NO_GRAPH = "without using cuda graph"
_DLA_GRAPH = "work of a DLA can't be captured"
_SPOILT_PLAN = ("deserialization failed", "invalid engine")
# Printed by every release after a model that its parser refused.
_NOT_PARSED = "failed to parse onnx file"
_NO_CUDA = (
    "cuda driver version is insufficient",
    "cuda initialization failure",
    "no cuda-capable device",
)
_NOTES = (
    "latencies are device times reported by trtexec",
    "idle was measured without the model: trtexec loads it for its run alone",
)


class Trtexec(SelfTimed):
    """One engine, built and run by trtexec."""

    devices = ("gpu", "dla0", "dla1")
    program = _DEFAULT_PROGRAM
    install = "sudo apt install libnvinfer-bin, or name it with trtexec:"
    uses_tensorrt = True
    builds = True

    def load(self, model: Path, order: Order) -> None:
        """Find trtexec and its options, and read the inputs of the model."""
        self.check_device(order)
        self._order, self._model = order, model
        self._program = find_program(order.program)
        self._help = self._read_help()
        if (version := parser.version_in(self._help.splitlines())) is not None:
            self.versions = {"tensorrt": version}
        self._offered = parser.options_in(self._help)
        self._plugin_parts = engine_cache.plugin_parts(order.plugins)
        exported = {path: engine_cache.has_creators(path) for path in order.plugins}
        plugins = parser.plugin_arguments(self._offered, exported)
        if plugins is None:
            raise UserError("this trtexec loads no plug-in libraries", "use backend: tensorrt")
        self._plugins = plugins
        self._facts = facts_of(model)
        # Each input is checked, and the shapes of the open ones are given to trtexec.
        inputs = self._facts.inputs
        self.input_shapes = input_shapes({given.name: given.shape for given in inputs}, order)
        self._shapes = {}
        for given in inputs:
            if given.is_open:
                self._shapes[given.name] = self.input_shapes[given.name]
        self._held = {}
        if order.layer_precisions:
            build = order.precision or parser.DEFAULT_PRECISION
            check_allowed(order.layer_precisions, build)
            self._held = expand(order.layer_precisions, node_names(model))
            parser.check_held(self._offered, build, self._held)

    def build(self) -> None:
        """Build the engine, unless the cache has it."""
        order, precision = self._order, self._order.precision
        directory = order.engine_directory or Path(order.model_directory) / "engines"
        self._cache = EngineCache(Path(directory))
        if order.calibration is not None:
            self._check_calibration(order.calibration)
        parts = self._key_parts()
        self._key = engine_cache.engine_key(parts)
        with self._cache.lock(self._key, self.progress):
            kept_engine = None if order.rebuild else self._cache.read(self._key)
            if kept_engine is None:
                with turn_to_build(
                    order.timeout_seconds, self.progress, model=self._model
                ) as circumstances:
                    self.progress(BUILDS)
                    made = self._compile()
                    circumstances = circumstances.model_copy(update={"clocks_hertz": clocks_now()})
                made = made.under(circumstances)
                name = engine_cache.model_name(order.model, self._model)
                self._cache.write(self._key, made, model=name, parts=parts)
                built = made.built
            else:
                built = kept_engine[1].built.model_copy(update={"is_cached": True})
        self._notes = (*_NOTES, *built.notes)
        refuses_graph = order.cuda_graph and not parser.launches_graph(order)
        self.built = built.model_copy(
            update={
                "requested_precision": precision,
                "fallback": None if order.dla_core is None else order.fallback,
                "why_no_graph": _DLA_GRAPH if refuses_graph else None,
                "streams": order.streams,
                "has_transfers": order.transfers,
                "notes": self._notes,
            }
        )
        if self.built.fallback == "require-pure":
            require_pure(engine_cache.model_name(order.model, self._model), self.built.placement)
        if precision in (None, "fp32") or parser.chooses_types(self._offered, precision):
            return
        if built.layer_types and precision not in built.layer_types:
            raise UserError(
                f"this TensorRT builds the model's own types, and none of them is {precision}",
                "export the model in it (builtin:resnet50-fp16 is), or leave precision away",
            )

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences]:
        """Run trtexec through warm-up and steady phase; yield inferences once it has ended.

        The begin of the steady phase is yielded twice: when it is due, and when it is known.
        """
        self._order = order
        with TemporaryDirectory(prefix="tegrascope-") as folder:
            file = Path(folder) / "times.json"
            plan = str(self._cache.plan_path(self._key))
            arguments = parser.run_arguments(self._offered, order, self._shapes, plan, str(file))
            child = _Execution([*self._program, *arguments, *self._plugins])
            yield self._edge("warm_up", "begin", child.started_ns)
            for due_ns in child.follow(stop, int(order.warm_up_seconds * 1e9)):
                yield self._edge("steady", "begin", due_ns)
            if child.returncode is None:
                return
            times = self._times_of(child, file)
        length_ns = max(map(add, times.start_ns, times.latency_ns))
        done_ns = child.done_ns or time.monotonic_ns()
        zero_ns, error_ns = place_zero(child.started_ns, child.began_ns, done_ns, length_ns)
        self._learn(child, error_ns)
        begin_ns = zero_ns + times.start_ns[0]
        yield self._edge("warm_up", "end", begin_ns)
        yield self._edge("steady", "begin", begin_ns, error_ns)
        for at in range(0, len(times.start_ns), _CHUNK):
            chunk = slice(at, at + _CHUNK)
            yield Inferences(
                run_id=order.run_id,
                start_ns=tuple(zero_ns + start for start in times.start_ns[chunk]),
                latency_ns=tuple(times.latency_ns[chunk]),
                stages_ns={
                    stage: tuple(times.stages_ns[stage][chunk]) for stage in device_stages(order)
                },
            )
        yield self._edge("steady", "end", zero_ns + length_ns, error_ns)

    def _read_help(self) -> str:
        child = _Execution([*self._program, "--help"]).finish()
        printed = "\n".join(child.lines)
        if child.returncode != 0 or "--onnx" not in printed:
            raise BackendUnavailable(
                f"{self._program[0]} does not answer --help as trtexec does ({child.reason})",
                "install TensorRT whole, or give the path of trtexec as trtexec: in the workload",
            )
        return printed

    def _key_parts(self) -> dict[str, str]:
        """Return all that an engine depends on; one plan serves both cores of a DLA."""
        is_dla = self._order.dla_core is not None
        order = self._order
        if is_dla:
            order = order.model_copy(update={"device": "dla0"})
        offered, shapes = self._offered, self._shapes
        arguments = parser.build_arguments(offered, order, shapes, "", "", "", self._held)
        precision = order.precision or parser.DEFAULT_PRECISION
        about = Path(self._program[0]).stat()
        return {
            "builder": "trtexec",
            "model": engine_cache.model_digest(self._model),
            "device": "dla" if is_dla else "gpu",
            "batch": str(order.batch),
            "precision": precision if parser.chooses_types(self._offered, precision) else "model",
            "arguments": " ".join(arguments),
            "program": " ".join(self._program),
            "program_file": f"{about.st_size} {about.st_mtime_ns}",
            **calibration.key_parts(order),
            **({"qdq": "translated"} if self._is_translated() else {}),
            **self._plugin_parts,
            "help": hashlib.sha256(self._help.encode()).hexdigest(),
            **engine_cache.machine_parts(is_dla=is_dla),
        }

    def _compile(self) -> BuiltEngine:
        """Build with trtexec, which writes the plan next to its place in the cache."""
        begin_ns = time.monotonic_ns()
        order = self._order
        part = self._cache.directory / f"{self._key}.{os.getpid()}.part"
        with TemporaryDirectory(prefix="tegrascope-") as folder:
            layers, model = Path(folder) / "layers.json", self._model
            cache: CalibrationCache | None = None
            notes: tuple[str, ...] = ()
            if self._is_translated():
                model = Path(folder) / model.name
                plain = translate(self._model)
                model.write_bytes(plain.model)
                notes = plain.notes
                cache = CalibrationCache(release=0, scales=plain.scales)
            elif order.calibration is not None:
                path = Path(order.calibration).expanduser()
                cache = calibration.read_cache(path)
                if cache.origin is not None:
                    words = f"{path.name} is of {cache.origin}, not of TensorRT"
                    notes = (f"{words}: its scales are used",)
            arguments = parser.build_arguments(
                self._offered,
                order,
                self._shapes,
                str(model),
                str(part),
                str(layers),
                self._held,
            )
            if cache is not None:
                scales = Path(folder) / "scales.cache"
                arguments.append(f"--calib={scales}")
                number = release_number(self.versions["tensorrt"])
                scales.write_text(calibration.text_for(cache, number))
            child = _Execution([*self._program, *arguments, *self._plugins])
            try:
                child.finish()
                if child.returncode != 0 or not is_file(part):
                    version = self.versions.get("tensorrt", "")
                    newer = None
                    if child.printed(_NOT_PARSED):
                        newer = too_new(self._model, version, child.reason)
                    raise newer or child.failure("build")
                plan = part.read_bytes()
            finally:
                part.unlink(missing_ok=True)
            inspector = None
            if is_file(layers):
                inspector = layers.read_text(encoding="utf-8", errors="replace")
        is_int8 = order.precision == "int8"
        held = read_back(inspector, self._held)
        built = Built(
            layer_types=layer_types(inspector),
            is_strongly_typed=not parser.chooses_types(self._offered, "fp16"),
            int8_scales=self._int8_scales() if is_int8 else None,
            wide_layers=wide_layers(inspector) if is_int8 else (),
            held_layers=recorded(held),
            placement=placement_of(child.lines, inspector, order.device),
            engine_key=self._key,
            engine_bytes=len(plan),
            build_seconds=(time.monotonic_ns() - begin_ns) / 1e9,
            notes=(*notes, *notes_of(held)),
        )
        return BuiltEngine(plan, built, child.lines, inspector)

    def _int8_scales(self) -> Int8Scales:
        """Return where the scales of an int8 engine come from."""
        if self._facts.is_quantised:
            return "explicit"
        return "dummy" if self._order.calibration is None else "calibrated"

    def _is_translated(self) -> bool:
        """Return whether a DLA gets the model without its Q/DQ nodes, which it would reject."""
        is_for_dla = self._facts.is_quantised and self._order.dla_core is not None
        is_int8 = self._order.precision == "int8" and "--calib" in self._offered
        return is_for_dla and is_int8 and "tensorrt" in self.versions

    def _check_calibration(self, path: str) -> None:
        """Raise ``UserError`` if trtexec cannot take the scales of this order."""
        calibration.check_request(
            self._model.name, self._order, is_quantised=self._facts.is_quantised
        )
        if is_data(Path(path).expanduser()):
            raise UserError("trtexec takes a calibration cache, not inputs", calibration.CALIBRATE)
        if "--calib" not in self._offered or "tensorrt" not in self.versions:
            raise UserError("this trtexec has no --calib", calibration.QUANTISE)

    def _times_of(self, child: "_Execution", file: Path) -> parser.ExportedTimes:
        """Read the exported times of those inferences that count."""
        if child.returncode != 0:
            if child.printed(*_SPOILT_PLAN):
                with self._cache.lock(self._key):
                    self._cache.set_aside(self._key)
                raise UserError(
                    f"the engine could not be loaded ({child.reason})",
                    "it was set aside, and the next run builds it anew",
                )
            raise child.failure("measure")
        try:
            queries = parser.parse_report(child.lines).queries
            with file.open(encoding="utf-8", errors="replace") as lines:
                return parser.parse_times(lines, queries, self._order.count)
        except (OSError, UnreadableError) as error:
            raise UserError(
                f"the times of trtexec cannot be read ({error})", f"try: {' '.join(child.argv)}"
            ) from error

    def _learn(self, child: "_Execution", error_ns: int) -> None:
        """Note the facts that only the run shows."""
        assert self.built is not None
        placed = f"its times are placed on our clock to within {error_ns / 1e6:.1f} ms"
        is_graph = parser.launches_graph(self._order)
        is_refused = is_graph and child.printed(_NO_GRAPH)
        facts: dict[str, object] = {
            "has_cuda_graph": is_graph and not is_refused,
            "context_bytes": parser.context_bytes_in(child.lines),
            "notes": (*self._notes, placed, *parser.parse_report(child.lines).warnings),
        }
        if is_refused:
            facts["why_no_graph"] = "its capture failed"
        self.built = self.built.model_copy(update=facts)

    def _edge(
        self,
        phase: PhaseName,
        edge: Literal["begin", "end"],
        at_ns: int,
        error_ns: int | None = None,
    ) -> Phase:
        run_id = self._order.run_id
        return Phase(run_id=run_id, phase=phase, edge=edge, at_ns=at_ns, uncertain_ns=error_ns)


class _Execution:
    """One run of trtexec; ``returncode`` is ``None`` before its end, or if it was stopped.

    Attributes:
        began_ns: When it printed that it begins to infer, or ``None``.
        done_ns: When it printed its counts, after its last inference, or ``None``.
        lines: Its output, without lines that nothing reads.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = tuple(argv)
        self.started_ns = time.monotonic_ns()
        self.began_ns: int | None = None
        self.done_ns: int | None = None
        self.lines: tuple[str, ...] = ()
        self.returncode: int | None = None

    def finish(self) -> "_Execution":
        """Run it to its end."""
        for _ in self.follow(Event(), 0):
            pass
        return self

    def follow(self, stop: Event, warm_up_ns: int) -> Iterator[int]:
        """Run it to its end, or until ``stop``; yield once, when its warm-up is due to be over."""
        lines: deque[str] = deque(maxlen=_LINES_AT_MOST)
        has_yielded = False
        with start_tied(self.argv) as child:
            while (line := child.read(_POLL_SECONDS)) is not Quiet.END:
                if stop.is_set():
                    return
                if isinstance(line, Stamped) and _matters(line.value):
                    lines.append(line.value)
                    message = parser.message_of(line.value)
                    if message.startswith("Starting inference"):
                        self.began_ns = line.monotonic_ns
                    elif message.startswith("Warmup completed") and self.done_ns is None:
                        self.done_ns = line.monotonic_ns
                if has_yielded or self.began_ns is None:
                    continue
                due_ns = self.began_ns + warm_up_ns
                if time.monotonic_ns() >= due_ns and self.done_ns is None:
                    has_yielded = True
                    yield due_ns
        self.lines = (*lines, *child.last_words)
        self.returncode = child.returncode

    @property
    def reason(self) -> str:
        """The error that it printed, or else its last line."""
        reason = parser.reason_in(self.lines)
        if reason is not None:
            return reason
        for message in map(parser.message_of, reversed(self.lines)):
            if message and not message.startswith("&&&&"):
                return message
        return f"exit status {self.returncode}, and no word"

    def printed(self, *signs: str) -> bool:
        """Return whether a line has one of these words, in small letters."""
        text = "\n".join(self.lines).lower()
        return any(sign in text for sign in signs)

    def failure(self, doing: Literal["build", "measure"]) -> UserError:
        """Return the error for a trtexec that failed."""
        if "Cannot create DLA engine" in self.reason:
            return BackendUnavailable(
                f"trtexec finds no such DLA ({self.reason})",
                "use device: gpu, or a board whose TensorRT supports its DLA",
            )
        if self.printed(*_NO_CUDA):
            return BackendUnavailable(
                f"trtexec finds no GPU ({self.reason})",
                "install the NVIDIA driver, and let this user open the devices of the GPU",
            )
        operator = parser.missing_operator(self.lines)
        if operator is not None and doing == "build":
            return lacks_operator("the model", operator)
        remedy = f"try: {' '.join(self.argv)}"
        return UserError(f"trtexec could not {doing} it ({self.reason})", remedy)


def find_program(program: Sequence[str]) -> tuple[str, ...]:
    """Return trtexec's full path and its first arguments, or raise ``BackendUnavailable``.

    Without an ordered program it is looked up where JetPack puts it, then along ``PATH``.
    """
    asked = program[0] if program else _DEFAULT_PROGRAM
    path = shutil.which(asked)
    if path is None and not program:
        path = shutil.which("trtexec")
    if path is None:
        raise BackendUnavailable(
            f"there is no trtexec at {asked}",
            "apt install libnvinfer-bin, or give its path as trtexec: in the workload",
        )
    return (str(Path(path).absolute()), *program[1:])


def place_zero(
    started_ns: int, began_ns: int | None, done_ns: int, length_ns: int
) -> tuple[int, int]:
    """Place trtexec's own zero on our clock.

    Its times count from a moment that it does not print. That moment lies after the line that
    announces the begin, and early enough that the last inference was complete when it printed
    that it is done. The middle of the two is taken, and half the distance is the uncertainty, plus
    the delay of a pipe and the six digits of a time. If the first line comes too late to be
    true (it was held back), or is missing, the start of the process stands for it.

    Returns:
        The zero and its uncertainty either way, both in nanoseconds.

    >>> place_zero(0, 1_000_000_000, 4_010_000_000, 3_000_000_000)
    (1005000000, 7005000)
    """
    latest_ns = done_ns - length_ns
    earliest_ns = started_ns
    if began_ns is not None and began_ns <= latest_ns + _PIPE_NS:
        earliest_ns = min(began_ns, latest_ns)
    half_ns = abs(latest_ns - earliest_ns) // 2
    rounding_ns = 10 ** len(str(length_ns // 1_000_000)) // 2
    return (earliest_ns + latest_ns) // 2, half_ns + _PIPE_NS + rounding_ns


def _matters(line: str) -> bool:
    if _VERBOSE in line[:64]:
        return any(sign in line for sign in _OF_LAYERS)
    return _AVERAGE not in line

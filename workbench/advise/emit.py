"""Files with which another program runs the models where ``advise`` placed them.

Each file has a comment on the result it comes from. What its program cannot do is refused.

Source:
    "Gst-nvinfer", DeepStream developer guide, and nvinfer's source: names of keys and of engines;
        ``model_config.proto`` of Triton; "TensorRT Execution Provider" of ONNX Runtime; "Export" of
        Ultralytics; "DLA Supported Layers and Restrictions", TensorRT documentation.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from pprint import pformat

from ... import __version__
from ...collectors.backends.base import input_shapes
from ...collectors.backends.calibration import CALIBRATE, QUANTISE, read_cache, text_for
from ...collectors.backends.trtexec import Trtexec
from ...collectors.board.boards import identify
from ...collectors.files import write_atomic
from ...collectors.models.data_sets import is_data
from ...collectors.models.files import (
    facts_of,
    find_model,
    metadata_of,
    node_names,
    read_graph_apart,
    sha256_of,
)
from ...daemon.measure.run_text import joules, rate, seconds, with_half
from ...daemon.outputs import unwritable
from ...parsers.errors import UserError
from ...parsers.inference import trtexec
from ...parsers.inference.calibration import release_number
from ...parsers.inference.events import InferenceSettings, Order
from ...parsers.inference.layer_precisions import expand
from ...parsers.inference.placement import Precision
from ...parsers.onnx import ModelFacts
from ...parsers.values import printable
from .choices import BenchSource, MeasuredOption, choices_of, modes_in
from .compose import Advice

# These run an engine that TensorRT built from an ONNX file.
_WITH_ENGINE = ("tensorrt", "trtexec", "simulated")
_ONE_SHAPE, _BY_TRTEXEC = "bench it with one shape", "use --emit trtexec"


@dataclass(frozen=True)
class _Placed:
    """A model where it was placed: its file, the shapes that were measured, and its settings.

    ``held`` are layers with a precision of their own.
    """

    name: str
    option: MeasuredOption
    order: Order
    precision: Precision
    model: Path
    facts: ModelFacts
    shapes: Mapping[str, tuple[int, ...]]
    held: Mapping[str, Precision]
    directory: Path

    @property
    def open_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs that the model leaves open."""
        return {one.name: self.shapes[one.name] for one in self.facts.inputs if one.is_open}

    @property
    def has_range(self) -> bool:
        """Whether the engine takes more than one shape."""
        return any(len(set(shape.range)) > 1 for shape in self.order.shapes.values())

    @property
    def is_typed(self) -> bool:
        """Whether TensorRT built the model's own types."""
        built = self.option.result.built
        return built is not None and built.is_strongly_typed is True

    @property
    def scales(self) -> Path | None:
        """The calibration cache that is written beside the file; ``None`` without."""
        if self.precision != "int8" or self.order.calibration is None:
            return None
        return self.directory / f"{self.name}.calibration"

    @property
    def tensorrt(self) -> str:
        """The version that built the engine; empty if it is unknown."""
        return self.option.source.result.versions.get("tensorrt", "")

    @property
    def comment(self) -> str:
        """The result that it comes from, as lines that begin with ``#``."""
        option, result = self.option, self.option.result
        path, source = option.source
        environment = source.environment
        day = datetime.fromtimestamp(source.ended_wall_ns / 1e9, timezone.utc)
        mode = option.settings.power_mode or environment.power_mode
        tensorrt = self.tensorrt and f"TensorRT {self.tensorrt}"
        machine = filter(None, (environment.board, mode, tensorrt))
        energy = with_half(result.net_joules_per_inference, joules)
        lines = [
            f"{self.name} on {option.words}, by advise of tegrascope {__version__}",
            f"result: {Path(path).absolute()}, {day:%Y-%m-%d %H:%M} UTC, {', '.join(machine)}",
            f"alone, with 95 % intervals: latency {with_half(result.latency_seconds, seconds)},"
            f" 99th percentile {seconds(option.latency_seconds)},"
            f" {with_half(result.throughput_per_second, rate)}, net energy per inference {energy}",
        ]
        if option.like is not None:
            lines.append(f"not measured on {option.device}: the figures are of {option.like}")
        if self.order.memory not in (None, "copy"):
            lines.append(
                f"measured with {self.order.memory} memory for inputs and outputs: a program that"
                " copies them takes another time"
            )
        if source.is_simulated:
            lines.append("SIMULATED: the figures are not of a board")
        return "".join(f"# {printable(line)}\n" for line in lines)


def emit(
    advice: Advice, sources: Sequence[BenchSource], target: str, directory: Path, models: Path
) -> list[Path]:
    """Write the files of all models of the chosen placement, or none, and return their paths.

    ``models`` is where built-in models are cached.

    Raises:
        UserError: The target cannot run a model as it was measured, a model is not the file that
            was measured, or a file cannot be written.
    """
    if advice.chosen is None:
        return []
    mode = advice.power_mode if modes_in(sources) else None
    choices = choices_of(advice.demands, sources, advice.minimise, mode)
    directory = directory.absolute()
    files: dict[Path, str] = {}
    for chosen in advice.chosen.models:
        for option in choices.by_name[chosen.name]:
            if (option.device, option.variant) != (chosen.device, chosen.variant):
                continue
            placed = _placed(chosen.name, option, directory, models)
            _check(placed, target)
            for path, text in _WRITERS[target](placed).items():
                files[path] = f"#!/bin/sh\n{text}" if path.suffix == ".sh" else text
            if placed.scales is not None and target != "ultralytics":
                files[placed.scales] = _scales_of(placed)
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text.encode(), 0o777 if path.suffix == ".sh" else 0o666)
    except OSError as error:
        raise unwritable(directory, error) from None
    return list(files)


def _placed(name: str, option: MeasuredOption, directory: Path, models: Path) -> _Placed:
    """Read the model of an option, or raise ``UserError``."""
    model = find_model(option.model.model, models).absolute()
    if option.model.model_sha256 not in (None, sha256_of(model)):
        raise UserError(f"{model} is not the file that was measured", "bench it again")
    facts, settings = facts_of(model), option.settings
    precision = settings.precision
    if precision is None:
        precision = "int8" if facts.is_quantised else trtexec.DEFAULT_PRECISION
    order = Order(
        run_id="emit",
        backend="trtexec",
        device=option.device,
        model_directory="",
        **{key: getattr(settings, key) for key in InferenceSettings.model_fields},
    ).model_copy(update={"precision": precision})
    held: Mapping[str, Precision] = {}
    if order.layer_precisions:
        held = expand(order.layer_precisions, node_names(model))
    shapes = input_shapes({given.name: given.shape for given in facts.inputs}, order)
    return _Placed(name, option, order, precision, model, facts, shapes, held, directory)


def _check(placed: _Placed, target: str) -> None:
    """Raise ``UserError`` if the target cannot run a model as it was measured."""
    for is_wrong, reason, remedy in (*_wrong_anywhere(placed), *_wrong_for(placed, target)):
        if is_wrong:
            raise UserError(f"{placed.name} on {placed.option.words}: {reason}", remedy)


def _wrong_anywhere(placed: _Placed) -> Iterator[tuple[bool, str, str]]:
    """Yield what no target can run: whether it is the case, the reason and the remedy."""
    order, result = placed.order, placed.option.result
    words = f"{result.backend} runs no engine of TensorRT"
    yield result.backend not in _WITH_ENGINE, words, "bench it with --backend tensorrt"
    words = "it needs plug-ins, which each program loads in its own way"
    yield bool(order.plugins), words, "write its file by hand"
    is_int8, is_quantised = placed.precision == "int8", placed.facts.is_quantised
    is_calibrated = order.calibration is not None
    if order.dla_core is not None:
        environment = placed.option.source.result.environment
        cores = identify(environment.module or "", environment.board or "")[1]
        is_absent = cores is not None and order.dla_core >= cores
        yield is_absent, f"{environment.board} has {cores} DLA cores", "bench it on this board"
        words = "a DLA computes in fp16 and int8 only"
        yield placed.precision == "fp32", words, "bench it with --precision fp16"
        yield placed.has_range, "a DLA takes one shape, not a range", _ONE_SHAPE
        words = "a DLA rejects its Q/DQ nodes, which the bench translated"
        is_translated = is_int8 and is_quantised and not placed.is_typed
        yield is_translated, words, f"remove them; {CALIBRATE}"
    if is_int8:
        words = "a calibration has no effect where TensorRT builds the model's own types"
        yield placed.is_typed and is_calibrated, words, QUANTISE
        has_scales = is_quantised or is_calibrated
        yield not has_scales, "its int8 scales are made up, and so are its outputs", CALIBRATE


def _wrong_for(placed: _Placed, target: str) -> Iterator[tuple[bool, str, str]]:
    """Yield what this target cannot run, like ``_wrong_anywhere``."""
    if target == "ultralytics":
        is_own = metadata_of(placed.model).get("author") == "Ultralytics"
        yield not is_own, "its metadata name no export of Ultralytics", _BY_TRTEXEC
    elif placed.scales is not None:
        is_data_set = is_data(Path(placed.order.calibration or "").expanduser())
        yield is_data_set, f"{target} takes a calibration cache, not inputs", CALIBRATE
    if target in ("ort", "ultralytics"):
        yield bool(placed.held), f"{target} takes no precision by layer", _BY_TRTEXEC
    if target in ("deepstream", "ultralytics"):
        yield placed.has_range, f"{target} takes one size of image, not a range", _ONE_SHAPE
    if target == "deepstream":
        is_wrong = placed.precision == "int8" and placed.scales is None
        yield is_wrong, "without a calibration file nvinfer builds int8 as fp16", _BY_TRTEXEC
        is_wrong = any(re.search(r"[:;]", name) for name in placed.held)
        yield is_wrong, "nvinfer takes no layer with a colon or semicolon", _BY_TRTEXEC


def _scales_of(placed: _Placed) -> str:
    """Return the calibration cache for the TensorRT that was measured: it ignores any other."""
    cache = read_cache(Path(placed.order.calibration or "").expanduser())
    release = release_number(placed.tensorrt) if placed.tensorrt else cache.release
    return text_for(cache, release)


# --- targets --------------------------------------------------------------------------------------


def _deepstream(placed: _Placed) -> dict[Path, str]:
    """Return the keys of nvinfer that place the model; those of its images are the user's."""
    order, core = placed.order, placed.order.dla_core
    unit = "gpu0" if core is None else f"dla{core}"
    keys: dict[str, object] = {
        "onnx-file": placed.model,
        # nvinfer gives this name to the engine that it builds.
        "model-engine-file": f"{placed.model}_b{order.batch}_{unit}_{placed.precision}.engine",
        "batch-size": order.batch,
        "network-mode": {"fp32": 0, "int8": 1, "fp16": 2}[placed.precision],
    }
    if core is not None:
        keys |= {"enable-dla": 1, "use-dla-core": core}
    if placed.scales is not None:
        keys["int8-calib-file"] = placed.scales
    for shape in placed.open_shapes.values():
        if len(shape) == 4 and shape[1] in (1, 3, 4):  # channels, height and width of an image
            keys["infer-dims"] = ";".join(map(str, shape[1:]))
    layers = []
    for name, precision in placed.held.items():
        # A DLA has no fp32.
        where = "gpu" if core is None or precision == "fp32" else "dla"
        layers.append(f"{name}:{precision}:{where}")
    if layers:
        keys["layer-device-precision"] = ";".join(layers)
    lines = ""
    for key, value in keys.items():
        # As GLib reads its key files.
        text = str(value).replace("\\", r"\\").replace("\n", r"\n")
        lines += f"{key}={text}\n"
    note = "# Add the keys of its images and outputs: net-scale-factor, parse-bbox-func-name ...\n"
    path = placed.directory / f"config_infer_{placed.name}.txt"
    return {path: f"{placed.comment}{note}[property]\n{lines}"}


def _trtexec(placed: _Placed, plan: Path | None = None) -> dict[Path, str]:
    """Return a script that builds the engine, and measures it once."""
    offered = {"--builderOptimizationLevel"}
    if not placed.is_typed:
        offered |= {"--fp16", "--int8", "--layerPrecisions"}
    options, order, held = frozenset(offered), placed.order, placed.held
    if held:
        trtexec.check_held(options, placed.precision, held)
    plan = plan or placed.directory / f"{placed.name}.engine"
    shapes, model = placed.open_shapes, str(placed.model)
    arguments = trtexec.build_arguments(options, order, shapes, model, str(plan), "", held)
    if placed.scales is not None:
        arguments.append(f"--calib={placed.scales}")
    commands = (["mkdir", "-p", str(plan.parent)], [Trtexec.program, *arguments])
    path = placed.directory / f"{placed.name}.trtexec.sh"
    return {path: placed.comment + "".join(f"{shlex.join(words)}\n" for words in commands)}


def _triton(placed: _Placed) -> dict[Path, str]:
    """Return a model of a repository, and the script that builds its plan."""
    folder, order = placed.directory / placed.name, placed.order
    graph = read_graph_apart(placed.model, {} if placed.has_range else placed.shapes)
    lines = [
        f"name: {_quoted(placed.name)}",
        'platform: "tensorrt_plan"',
        # The shapes have the batch: the server must not add one to an engine of one batch.
        "max_batch_size: 0",
    ]
    for kind, names in (("input", graph.inputs), ("output", graph.outputs)):
        for name in names:
            tensor = graph.tensor(name)
            if tensor.shape is None or tensor.dtype is None:
                raise UserError(f"{placed.model}: the shape of {name} is unknown", _BY_TRTEXEC)
            lengths = [length if isinstance(length, int) else -1 for length in tensor.shape]
            data = tensor.dtype.upper().replace("BFLOAT", "BF").replace("FLOAT", "FP")
            if data == "INT64" and placed.tensorrt.startswith("8."):
                data = "INT32"  # TensorRT has the longer type since 10.0, and narrowed it before
            words = f"name: {_quoted(name)} data_type: TYPE_{data} dims: {lengths}"
            lines.append(f"{kind} {{ {words} }}")
    group = f"count: {order.streams} kind: KIND_GPU"
    if order.dla_core is not None:
        group += f" secondary_devices {{ kind: KIND_NVDLA device_id: {order.dla_core} }}"
    lines.append(f"instance_group {{ {group} }}")
    text = placed.comment + "".join(f"{line}\n" for line in lines)
    return {folder / "config.pbtxt": text, **_trtexec(placed, folder / "1" / "model.plan")}


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _ultralytics(placed: _Placed) -> dict[Path, str]:
    """Return the command that exports the weights beside the model."""
    core = placed.order.dla_core
    text = placed.comment
    words = [
        *("yolo", "export", f"model={placed.model.with_suffix('.pt')}", "format=engine"),
        f"device={0 if core is None else f'dla:{core}'}",
        f"batch={placed.order.batch}",
    ]
    for shape in placed.shapes.values():
        words.append(f"imgsz={','.join(map(str, shape[2:]))}")
    if placed.precision == "fp16":
        words.append("half=True")
    if placed.precision == "int8":
        words.append("int8=True")
        text += "# Add data=: Ultralytics calibrates anew, so its scales are not those measured.\n"
        if core is not None:
            text += "# Releases that set dynamic=True for int8 cannot build it for a DLA.\n"
    return {placed.directory / f"{placed.name}.export.sh": f"{text}{shlex.join(words)}\n"}


_IGNORED_CORE = """\
# Releases up to at least 1.24 run every engine on core 0, whatever trt_dla_core is:
# https://github.com/microsoft/onnxruntime/issues/26680
"""


def _ort(placed: _Placed) -> dict[Path, str]:
    """Return the providers of a session of ONNX Runtime, as Python."""
    order, core = placed.order, placed.order.dla_core
    options: dict[str, object] = {
        "trt_fp16_enable": placed.precision != "fp32",
        "trt_int8_enable": placed.precision == "int8",
        "trt_engine_cache_enable": True,
        "trt_engine_cache_path": str(placed.directory),
    }
    if placed.scales is not None:
        options["trt_int8_calibration_table_name"] = placed.scales.name
        options["trt_int8_use_native_calibration_table"] = True
    if core is not None:
        options |= {"trt_dla_enable": True, "trt_dla_core": core}
    if order.optimization_level is not None:
        options["trt_builder_optimization_level"] = order.optimization_level
    for argument in trtexec.profile_arguments(order, placed.open_shapes):
        end, _, shapes = argument.removeprefix("--").partition("Shapes=")
        if shapes:
            options[f"trt_profile_{end}_shapes"] = shapes
    providers = [("TensorrtExecutionProvider", options), "CUDAExecutionProvider"]
    lines = (
        "# session = onnxruntime.InferenceSession(model, providers=providers)",
        f"model = {str(placed.model)!r}",
        f"providers = {pformat(providers, sort_dicts=False)}",
    )
    text = placed.comment + (_IGNORED_CORE if core else "")
    path = placed.directory / f"{placed.name}_ort.py"
    return {path: text + "".join(f"{line}\n" for line in lines)}


# By target: the path of each file, and its text.
_WRITERS: Mapping[str, Callable[[_Placed], dict[Path, str]]] = {
    "deepstream": _deepstream,
    "triton": _triton,
    "ultralytics": _ultralytics,
    "ort": _ort,
    "trtexec": _trtexec,
}
TARGETS = tuple(_WRITERS)

"""An ONNX model becomes a serialised TensorRT engine, by the API that 8.5 to 11 share.

The TensorRT module is an argument, and its optional names decide what differs between versions: so
a test can build with a fake one, and CI with a relative that builds without a GPU.
"""

import atexit
import ctypes
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.events import Order
from ...parsers.inference.layer_precisions import check_allowed, check_named, pattern_for
from ...parsers.inference.layers import names_marked
from ...parsers.inference.placement import Built, HeldLayer, Int8Scales, Precision
from ...parsers.inference.trtexec import cause_of, missing_operator
from ..files import write_atomic
from ..models.data_sets import InputSpec, Say
from ..models.files import facts_of, node_names
from ..models.quantised import translate
from .base import input_shapes, lacks_operator, too_new
from .calibration import QUANTISE, Calibration, check_request
from .engine_cache import BuiltEngine, has_creators

# The last lines of a build, and those about layers, are enough.
_LINES_AT_MOST = 4000
_LETTERS = {"INTERNAL_ERROR": "E", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}
# Of the verbose lines, only the layers of the finished engine are of use.
_KEPT_OF_VERBOSE = "Layer("
# TensorRT logs it as an error in each build after the first. The build goes on without the cache.
_NO_ERROR = "timing cache will not be used"
_NUMBER = re.compile(r"^\d{1,9}: ")
# Limits and the look behind it keep the search linear in a line that a foreign parser wrote.
_NOISE = re.compile(r"\(?\[?(?<![\w./])[\w./]{1,255}\.(?:cpp|h)::\S{1,255}?::\d{1,9}\]\)? ?")

# Types of inputs and outputs that numpy has, and its name of each.
DTYPES = {"FLOAT": "float32", "HALF": "float16"}
DTYPES |= {word: word.lower() for word in ("INT8", "INT32", "INT64", "BOOL", "UINT8")}
_HALF = ("HALF", "BF16")
_SCALED = ("FLOAT", *_HALF)
_QUANTISED = ("QUANTIZE", "DEQUANTIZE")
_WITHOUT_PRECISION = ("CAST", "CONSTANT", "SHAPE", *_QUANTISED)
_HELD_TYPES: Mapping[Precision, str] = {"fp32": "FLOAT", "fp16": "HALF", "int8": "INT8"}
# With no scales at all TensorRT builds no int8 engine; with these only its speed is valid.
_DUMMY_RANGE = 4.0
# How a model fixes its own precision, and how to make one of another.
_TYPED = {
    "fp32": "is typed fp32, and this TensorRT obeys a model's types",
    "fp16": "is typed in half precision",
    "int8": "is quantised by Q/DQ nodes",
}
_EXPORT = {
    "fp32": "export the model in fp32",
    "fp16": "export the model in fp16 (ModelOpt AutoCast does that)",
    "int8": QUANTISE,
}


class Prepared(NamedTuple):
    """A network with all that it is to be built with.

    The parser owns the weights, so it has to live as long as the network.
    """

    builder: Any
    network: Any
    parser: Any
    config: Any
    is_strongly_typed: bool
    int8_scales: Int8Scales | None
    notes: list[str]
    calibration: Calibration | None = None
    held_layers: tuple[HeldLayer, ...] = ()


class LogLines(deque[str]):
    """The last lines of the library, each with ``[E]``, ``[W]`` or ``[I]`` in front.

    The library may log from threads of its own; appending to a deque is safe from any.
    """

    def take(self, severity: str, message: str) -> None:
        """Keep one message; warnings and errors also go to standard error."""
        letter = _LETTERS.get(severity, "I")
        if letter == "V" and not message.startswith(_KEPT_OF_VERBOSE):
            return
        if letter == "E" and _NO_ERROR in message:
            letter = "I"
        for line in message.splitlines():
            self.append(f"[{letter}] {line}")
            if letter in "EW":
                print(f"TensorRT: [{letter}] {line}", file=sys.stderr)


@lru_cache(maxsize=4)
def logger_of(trt: Any) -> tuple[Any, LogLines]:
    """Return the one logger of this process for a TensorRT module, and the lines that it collects.

    TensorRT keeps the first logger that it is given for as long as the process lives.
    """
    lines = LogLines(maxlen=_LINES_AT_MOST)
    in_use = [True]
    atexit.register(in_use.clear)  # the library still logs while the interpreter is taken down

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            if not in_use:
                return
            try:
                lines.take(getattr(severity, "name", str(severity)), message)
            except Exception as error:  # it is called from C++, which an exception would end
                print(f"TensorRT: a line was lost ({error})", file=sys.stderr)

    return Logger(), lines


def reason_in(lines: Iterable[str]) -> str:
    """Return the error in a log that is the cause of a failure, without its place in the sources.

    >>> reason_in(["[I] begin", "[E] 4: [network.cpp::validate::3062] Error Code 4: No outputs."])
    'Error Code 4: No outputs.'
    """
    # A copy, since threads of the library may still append.
    errors = [line for line in tuple(lines) if line.startswith("[E]")]
    cause = cause_of([line.removeprefix("[E] ") for line in errors])
    if cause is None:
        return "its log gives no reason"
    return _NOISE.sub("", _NUMBER.sub("", cause)).strip()


def load_plugins(trt: Any, paths: Sequence[str]) -> None:
    """Register TensorRT's own plug-ins and those of libraries, before a model or engine is read.

    Raises:
        UserError: A library cannot be loaded.
    """
    logger, lines = logger_of(trt)
    if hasattr(trt, "init_libnvinfer_plugins"):
        trt.init_libnvinfer_plugins(logger, "")
    for path in paths:
        try:
            if has_creators(path) and has(trt, "IPluginRegistry.load_library"):
                is_loaded = trt.get_plugin_registry().load_library(path) is not None
            else:
                is_loaded = bool(ctypes.CDLL(path))
            reason = reason_in(lines)
        except OSError as error:
            is_loaded, reason = False, str(error)
        if not is_loaded:
            raise UserError(
                f"the plug-in library {path} cannot be loaded ({reason})",
                "build it for this TensorRT and for this processor",
            )


def has(trt: Any, name: str) -> bool:
    """Return whether a TensorRT module has an optional name, for example ``BuilderFlag.FP16``.

    A name does not depend on the hardware: those of the DLA are in every version.
    """
    owner, _, attribute = name.partition(".")
    return hasattr(getattr(trt, owner, None), attribute)


def check_inputs(model: Path, order: Order) -> None:
    """Raise ``UserError`` if the shapes of an order do not fit the inputs of an ONNX file.

    The builder checks them too, but it has to wait for other builds of the machine before.
    """
    input_shapes({one.name: one.shape for one in facts_of(model).inputs}, order)
    for name, asked in order.shapes.items():
        low, _, high = asked.range
        _check_range(name, low, high, order)


def _check_range(name: str, low: Sequence[int], high: Sequence[int], order: Order) -> None:
    if order.dla_core is not None and tuple(low) != tuple(high):
        raise UserError(
            f"a DLA takes one shape of input {name!r}, not a range",
            "leave min, opt and max out, or set device: gpu",
        )


class Builder:
    """Builds one model with one TensorRT module, as an order wants it.

    Which core of the DLA is decided only when the engine is loaded.
    """

    def __init__(self, trt: Any, model: Path, order: Order, say: Say = print) -> None:
        self._trt, self._model, self._order, self._say = trt, model, order, say
        self._is_dla = order.dla_core is not None
        self._is_loadable = order.engine_capability == "dla_standalone"
        self._logger, self._lines = logger_of(trt)

    def check(self) -> None:
        """Raise as ``build`` does if the model cannot be read, or not be built as ordered.

        It keeps nothing: a builder that waits for its turn must not hold a second model in memory.
        Memory that the other build takes is no reason to refuse.
        """
        self._lines.clear()
        with suppress(MemoryError, RuntimeError):
            self._read(self._new_builder())

    def build(self, timing_cache: Path | None = None) -> BuiltEngine:
        """Build an engine.

        Args:
            timing_cache: File in which TensorRT keeps how fast kernels were, for the next build.

        Raises:
            BackendUnavailable: A DLA is asked for and there is none.
            UserError: The model cannot be read, or not be built so.
        """
        begin_ns = time.monotonic_ns()
        made = self.prepare()
        calibration = made.calibration
        is_for_file = self._order.calibration_file is not None
        if calibration is not None and calibration.cache is None and not is_for_file:
            calibrated = self._calibrate(made, calibration)
            del made
            made = self.prepare(calibrated=calibrated)
        config, notes, scales = made.config, made.notes, made.int8_scales
        if self._order.optimization_level is not None:
            if has(self._trt, "IBuilderConfig.builder_optimization_level"):
                config.builder_optimization_level = self._order.optimization_level
            else:
                notes.append("this TensorRT has no optimisation levels: its own choice was built")
        keeps_timing = has(self._trt, "IBuilderConfig.create_timing_cache")
        if timing_cache is not None and keeps_timing:
            self._use_timing(timing_cache, config)
        serialised = made.builder.build_serialized_network(made.network, config)
        if made.calibration is not None:
            tensors, is_built = _scaled_tensors_of(made.network), serialised is not None
            made.calibration.finish(tensors, self._model.name, is_built=is_built)
            notes += made.calibration.notes
        if serialised is None:
            raise self._failed()
        if timing_cache is not None and keeps_timing:
            self._keep_timing(timing_cache, config)
        if scales == "dummy":
            notes.append("int8 scales are placeholders: speed is valid, outputs are not")
        built = Built(
            is_strongly_typed=made.is_strongly_typed,
            int8_scales=scales,
            held_layers=made.held_layers,
            build_seconds=(time.monotonic_ns() - begin_ns) / 1e9,
            notes=tuple(notes),
        )
        return BuiltEngine(bytes(serialised), built, tuple(self._lines))

    def _failed(self) -> UserError:
        device = "DLA" if self._is_dla else "GPU"
        what = f"TensorRT could not build {self._model.name} for the {device}"
        remedy = "see the worker's last lines, under worker_log in the record of the run"
        if self._is_loadable:
            remedy = "change layers that the DLA does not accept: a loadable has no fallback"
        elif self._is_dla and self._order.fallback == "forbid":
            remedy = "set fallback: allow to let such layers run on the GPU, or change the model"
        return UserError(f"{what} ({reason_in(self._lines)})", remedy)

    def _calibrate(self, made: Prepared, calibration: Calibration) -> Mapping[str, float]:
        """Return scales from inputs by the quickest build, or raise ``UserError``.

        The engine itself is built from these scales. While a calibrator works, TensorRT (8.6)
        chooses other kernels, so outputs would differ from those of an engine from the cache.
        """
        if has(self._trt, "IBuilderConfig.builder_optimization_level"):
            made.config.builder_optimization_level = 0
        is_built = made.builder.build_serialized_network(made.network, made.config) is not None
        calibration.finish(_scaled_tensors_of(made.network), self._model.name, is_built=is_built)
        if calibration.cache is None:
            raise self._failed()
        return calibration.cache.scales

    def prepare(
        self,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        calibrated: Mapping[str, float] | None = None,
    ) -> Prepared:
        """Read a model and set all that its engine depends on, except the optimisation.

        ``shapes`` are for inputs with open dimensions other than the batch, ``calibrated`` are
        scales from inputs. It raises as ``build``.
        """
        self._lines.clear()
        builder = self._new_builder()
        network, parser, own, is_strong = self._read(builder)
        notes: list[str] = []
        known_scales = calibrated
        if own == "int8" and self._is_dla and not is_strong:
            # Only from TensorRT 11 on does a DLA take the Q/DQ nodes themselves.
            translated = translate(self._model)
            del parser, network
            network, parser = self._parse_bytes(builder, translated.model)
            notes += translated.notes
            known_scales = translated.scales
        for given in _inputs_of(network):
            if shapes and given.name in shapes:
                given.shape = shapes[given.name]
        config = builder.create_builder_config()
        config.profiling_verbosity = self._trt.ProfilingVerbosity.DETAILED
        precision = self._order.precision or own or "fp16"
        scales = self._scales_of(precision, own)
        if not is_strong:
            self._set_precision(config, precision)
            if scales == "dummy":
                _set_dummy_ranges(network)
        held: tuple[HeldLayer, ...] = ()
        if self._order.layer_precisions:
            self._check_held(precision, is_strong=is_strong)
            held = self._hold_layers(config, network)
        if self._is_dla:
            notes.insert(0, self._set_dla(config, network))
        if self._is_loadable:
            self._set_loadable(config, network, None if is_strong else precision)
        inputs = self._fix_shapes(builder, config, network)
        calibration = None
        if scales == "calibrated" or known_scales is not None:
            calibration = Calibration(
                self._trt, self._model, self._order, inputs, self._say, known_scales
            )
            calibration.check(_scaled_tensors_of(network), self._model.name)
            config.int8_calibrator = calibration.calibrator
        return Prepared(
            builder, network, parser, config, is_strong, scales, notes, calibration, held
        )

    def _scales_of(self, precision: Precision, own: Precision | None) -> Int8Scales | None:
        """Return where the scales of int8 come from; ``None`` in another precision."""
        if precision != "int8":
            return None
        if own == "int8":
            return "explicit"
        return "dummy" if self._order.calibration is None else "calibrated"

    def _set_precision(self, config: Any, precision: Precision) -> None:
        """Let layers of a model that has no types in force run in a precision."""
        if precision in ("fp16", "int8"):
            # Layers without an int8 form run in half precision; a DLA has no other.
            config.set_flag(self._trt.BuilderFlag.FP16)
        if precision == "int8":
            config.set_flag(self._trt.BuilderFlag.INT8)

    def _check_held(self, precision: Precision, *, is_strong: bool) -> None:
        """Raise ``UserError`` if no layer can have a precision of its own, or not one asked for."""
        flag = f"BuilderFlag.{self._order.precision_constraints.upper()}_PRECISION_CONSTRAINTS"
        if is_strong or not has(self._trt, flag):
            raise UserError(
                f"{self._model.name} is built by its own types, so no layer has another one",
                "leave layer_precisions out, and give these layers their type in the model",
            )
        check_allowed(self._order.layer_precisions, precision)

    def _hold_layers(self, config: Any, network: Any) -> tuple[HeldLayer, ...]:
        """Set the precision of the layers that the order names, and return these.

        Raises:
            UserError: A name is neither that of a layer nor that of a node.
        """
        asked, flags = self._order.layer_precisions, self._trt.BuilderFlag
        constraints = self._order.precision_constraints.upper()
        config.set_flag(getattr(flags, f"{constraints}_PRECISION_CONSTRAINTS"))
        held: list[HeldLayer] = []
        # A node that is folded or constant is no layer, and holding it changes nothing.
        all_names = dict.fromkeys(node_names(self._model))
        for layer in layers_of(network):
            # From 8.6 on a layer has the mark of its node, of which it may be one of several.
            names = (layer.name, *names_marked(str(getattr(layer, "metadata", "") or "")))
            all_names |= dict.fromkeys(names)
            pattern = pattern_for(asked, names)
            if pattern is not None and _computes_numbers(layer):
                layer.precision = getattr(self._trt.DataType, _HELD_TYPES[asked[pattern]])
                held.append(HeldLayer(name=layer.name, asked=asked[pattern]))
        check_named(asked, all_names)
        return tuple(held)

    def _new_builder(self) -> Any:
        """Return a builder of TensorRT, which sees a DLA if the order needs one."""
        builder = self._trt.Builder(self._logger)
        if self._is_dla and builder.num_DLA_cores < 1:
            raise no_dla(0, 0, "")
        return builder

    def _read(self, builder: Any) -> tuple[Any, Any, Precision | None, bool]:
        """Return a model's network and parser, its own precision, and if its types are in force."""
        can_choose = has(self._trt, "BuilderFlag.FP16")
        network, parser = self._parse(builder, strongly=not can_choose)
        own = _own_precision(network) or (None if can_choose else "fp32")
        self._check_request(own)
        is_strong = not can_choose
        can_obey = has(self._trt, "NetworkDefinitionCreationFlag.STRONGLY_TYPED")
        if can_choose and can_obey and own == "fp16":
            del parser, network
            network, parser = self._parse(builder, strongly=True)
            is_strong = True
        return network, parser, own, is_strong

    def _check_request(self, own: Precision | None) -> None:
        """Raise if the model's own types, or the DLA, cannot give the precision asked for."""
        name, asked = self._model.name, self._order.precision
        if self._order.calibration is not None:
            check_request(name, self._order, is_quantised=own == "int8")
            if not hasattr(self._trt, "IInt8EntropyCalibrator2"):
                raise UserError(
                    f"TensorRT {self._trt.__version__} has no calibration, only models with"
                    " scales of their own",
                    QUANTISE,
                )
        if own is not None and asked not in (None, own):
            raise UserError(
                f"{name} {_TYPED[own]}, so it cannot run in {asked}",
                f"leave precision out, or {_EXPORT[asked or own]}",
            )
        if self._is_dla and (asked or own) == "fp32":
            raise UserError(
                f"{name} is to run in fp32, and a DLA computes in fp16 and int8 only",
                "set precision: fp16" if own is None else _EXPORT["fp16"],
            )

    def _parse(self, builder: Any, *, strongly: bool, model: Path | None = None) -> tuple[Any, Any]:
        known = self._trt.NetworkDefinitionCreationFlag
        flags = 0
        for name in ("EXPLICIT_BATCH", "STRONGLY_TYPED"):
            is_wanted = strongly or name != "STRONGLY_TYPED"
            if is_wanted and hasattr(known, name):
                flags |= 1 << int(getattr(known, name))
        network = builder.create_network(flags)
        parser = self._trt.OnnxParser(network, self._logger)
        if not parser.parse_from_file(str(model or self._model)):
            lines, count = tuple(self._lines), parser.num_errors
            reason = parser.get_error(count - 1).desc() if count > 0 else reason_in(lines)
            words = " ".join(reason.split())
            newer = too_new(self._model, str(self._trt.__version__), f"{_node_in(lines)}{words}")
            if newer is not None:
                raise newer
            if (operator := missing_operator((words, *lines))) is not None:
                raise lacks_operator(self._model.name, operator)
            raise UserError(
                f"TensorRT cannot read {self._model.name} ({_node_in(lines)}{words})",
                "export it with operations and an opset that this TensorRT supports",
            )
        return network, parser

    def _parse_bytes(self, builder: Any, content: bytes) -> tuple[Any, Any]:
        """Parse a model that stands in no file, under its own name in errors."""
        with TemporaryDirectory(prefix="tegrascope-") as folder:
            path = Path(folder) / self._model.name
            path.write_bytes(content)
            return self._parse(builder, strongly=False, model=path)

    def _set_dla(self, config: Any, network: Any) -> str:
        trt = self._trt
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = 0
        if config.DLA_core != 0 or config.default_device_type != trt.DeviceType.DLA:
            raise no_dla(0, 0, "")
        if self._order.fallback != "forbid":
            config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
        elif has(self._trt, "BuilderFlag.DIRECT_IO"):
            config.set_flag(trt.BuilderFlag.DIRECT_IO)
        able = sum(bool(config.can_run_on_DLA(layer)) for layer in layers_of(network))
        return f"TensorRT finds {able} of {network.num_layers} layers fit for the DLA"

    def _set_loadable(self, config: Any, network: Any, precision: Precision | None) -> None:
        """Ask for a loadable whose edges have a layout of the DLA that is documented.

        It takes half precision, or int8 at its inputs if built so, and gives half precision. The
        types of a strongly typed model (``None``) are its own.
        """
        trt = self._trt
        config.engine_capability = trt.EngineCapability.DLA_STANDALONE
        given = list(_inputs_of(network))
        for tensor in (*given, *map(network.get_output, range(network.num_outputs))):
            if precision is not None:
                is_int8 = precision == "int8" and tensor in given
                tensor.dtype = trt.DataType.INT8 if is_int8 else trt.DataType.HALF
            tensor.allowed_formats = 1 << int(trt.TensorFormat.DLA_LINEAR)

    def _fix_shapes(self, builder: Any, config: Any, network: Any) -> dict[str, InputSpec]:
        """Give open dimensions the shape or range that there will be; return the inputs."""
        types = {given.name: type_name(given.dtype) for given in _inputs_of(network)}
        declared = {given.name: open_shape(given.shape) for given in _inputs_of(network)}
        for given in _inputs_of(network):
            # Data of ours in it would be a shape that the model does not mean.
            if getattr(given, "is_shape_tensor", False):
                raise UserError(
                    f"input {given.name!r} is a shape, on which the sizes of other tensors depend",
                    "export the model with this shape as a constant",
                )
        shapes, profile = input_shapes(declared, self._order), None
        inputs = {}
        for name, shape in shapes.items():
            inputs[name] = InputSpec(DTYPES.get(types[name], "float32"), shape)
            if None not in declared[name]:
                continue
            low = usual = high = shape
            if name in self._order.shapes:
                low, usual, high = self._order.shapes[name].range
            _check_range(name, low, high, self._order)
            profile = profile or builder.create_optimization_profile()
            profile.set_shape(name, low, usual, high)
            if low != high and has(self._trt, "PreviewFeature.PROFILE_SHARING_0806"):
                # From 10 on, several streams may always use one range of shapes.
                sharing = self._trt.PreviewFeature.PROFILE_SHARING_0806
                config.set_preview_feature(sharing, True)
        if profile is not None:
            config.add_optimization_profile(profile)
            if hasattr(config, "set_calibration_profile"):
                config.set_calibration_profile(profile)
        return inputs

    def _use_timing(self, path: Path, config: Any) -> None:
        content = b""
        # Built again, it is to be measured again: the old times may be those of a busy machine.
        if not self._order.rebuild:
            with suppress(OSError):
                content = path.read_bytes()
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, False):
            self._lines.take("INFO", "the timing cache could not be used; an empty one is")
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def _keep_timing(self, path: Path, config: Any) -> None:
        """Write down the timing of this build; the build does not fail if that fails."""
        cache = config.get_timing_cache()
        try:
            if cache is not None:
                write_atomic(path, bytes(cache.serialize()))
        except OSError as error:
            self._lines.take("INFO", f"the timing cache could not be written ({error})")


def no_dla(core: int, cores: int, device: str) -> BackendUnavailable:
    """Return the refusal of a DLA that TensorRT does not see.

    TensorRT itself refuses nothing: asked for a DLA that is not there it builds for the GPU.
    """
    where = f" on {device}" if device else ""
    count = {0: "no DLA", 1: "1 DLA core"}.get(cores, f"{cores} DLA cores")
    return BackendUnavailable(
        f"TensorRT sees {count}{where}, so there is no dla{core}",
        "set device: gpu, or a core that there is; Orin NX, AGX Orin and Xavier have DLAs, and not"
        " every TensorRT supports them (10.7 was the last of 10; 11 does from 11.4.1 on)",
    )


def layers_of(network: Any) -> Iterator[Any]:
    """Yield the layers of a network."""
    return map(network.get_layer, range(network.num_layers))


def open_shape(shape: Iterable[int]) -> tuple[int | None, ...]:
    """Return a shape as TensorRT has it, with ``None`` for each open dimension."""
    return tuple(None if length < 0 else int(length) for length in shape)


def type_name(kind: Any) -> str:
    """Return the name of a member of one of the library's enumerations."""
    return str(getattr(kind, "name", kind)).rpartition(".")[2]


def _computes_numbers(layer: Any) -> bool:
    """Return whether a layer has a precision: constants, casts, integers and shapes have none."""
    if type_name(layer.type) in _WITHOUT_PRECISION:
        return False
    for at in range(layer.num_outputs):
        tensor = layer.get_output(at)
        if tensor is None or type_name(tensor.dtype) not in _SCALED:
            return False
        if getattr(tensor, "is_shape_tensor", False):
            return False
    return True


def _set_dummy_ranges(network: Any) -> None:
    """Give a scale to each tensor that has one in int8: without any, TensorRT builds no engine."""
    for tensor in _tensors_of(network):
        if type_name(tensor.dtype) in _SCALED:
            tensor.set_dynamic_range(-_DUMMY_RANGE, _DUMMY_RANGE)


def _own_precision(network: Any) -> Precision | None:
    """Return the precision that a model fixes by its own types, if it does."""
    if any(type_name(layer.type) in _QUANTISED for layer in layers_of(network)):
        return "int8"
    if any(type_name(tensor.dtype) in _HALF for tensor in _tensors_of(network)):
        return "fp16"
    return None


def _inputs_of(network: Any) -> Iterator[Any]:
    return map(network.get_input, range(network.num_inputs))


def _tensors_of(network: Any) -> Iterator[Any]:
    """Yield the inputs of a network and the outputs of its layers."""
    yield from _inputs_of(network)
    for layer in layers_of(network):
        for at in range(layer.num_outputs):
            tensor = layer.get_output(at)
            if tensor is not None:
                yield tensor


def _scaled_tensors_of(network: Any) -> Iterator[str]:
    """Yield the names of the tensors that have a scale in int8: not constants, nor integers."""
    constants = set()
    for layer in layers_of(network):
        if type_name(layer.type) == "CONSTANT":
            constants.add(layer.get_output(0).name)
    for tensor in _tensors_of(network):
        if type_name(tensor.dtype) in _SCALED and tensor.name not in constants:
            yield str(tensor.name)


def _node_in(lines: Sequence[str]) -> str:
    """Return the node at which the parser failed, which only its log names; or nothing.

    >>> _node_in(['[E] ModelImporter.cpp:140: While parsing node number 3 [Foo -> "y"]:'])
    'node 3 [Foo -> "y"]: '
    """
    for line in reversed(lines):
        node = line.partition("While parsing node number ")[2]
        if node:
            return f"node {node.rstrip(':')}: "
    return ""

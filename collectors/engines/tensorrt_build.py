"""An ONNX model becomes a serialised TensorRT engine, by the API that 8.5 to 11 share.

The TensorRT module is handed in, and what differs between versions is asked of its symbols: so a
test can build with a fake one, and CI with a relative that builds without a GPU.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...parsers.built import Fallback, Precision
from ...parsers.errors import Mendable
from ..engine_cache import write_whole
from .base import EngineUnavailable
from .inputs import input_shape
from .tensorrt_log import LogLines, reason_in

# With no scales at all TensorRT builds no int8 engine; with these its speed means something.
_DUMMY_RANGE = 4.0
_STRONGLY_TYPED = "NetworkDefinitionCreationFlag.STRONGLY_TYPED"
_HALF = ("HALF", "BF16")
_QUANTISED = ("QUANTIZE", "DEQUANTIZE")

# What is said of a model whose own types decide, and what makes it another.
_TYPED = {
    "fp32": "is typed fp32, and this TensorRT obeys a model's types",
    "fp16": "is typed in half precision",
    "int8": "is quantised by Q/DQ nodes",
}
_EXPORT = {
    "fp32": "export the model in fp32",
    "fp16": "export the model in fp16 (ModelOpt AutoCast does that)",
    "int8": "put Q/DQ nodes into the model (ModelOpt does that)",
}


@dataclass(frozen=True)
class BuildSpec:
    """What is to be built.

    Attributes:
        model: The ONNX file.
        device: The kind of device; which core of the DLA is decided when the engine is loaded.
        batch: Inputs an inference; the engine takes no other.
        precision: As asked for; ``None`` leaves it to what the model is.
        fallback: For layers that a DLA refuses.
        optimization_level: 0 to 5; ``None`` is TensorRT's own choice.
    """

    model: Path
    device: Literal["gpu", "dla"]
    batch: int = 1
    precision: Precision | None = None
    fallback: Fallback = "allow"
    optimization_level: int | None = None

    def parts(self) -> dict[str, str]:
        """Return what an engine built by it depends on, its model apart, for the cache's key.

        ``require-pure`` builds as ``allow`` does and then looks at what came of it.
        """
        fallback = {"require-pure": "allow"}.get(self.fallback, self.fallback)
        return {
            "device": self.device,
            "batch": str(self.batch),
            "precision": self.precision or "model",
            "fallback": fallback if self.device == "dla" else "none",
            "optimization_level": str(self.optimization_level),
        }


@dataclass(frozen=True)
class Plan:
    """A serialised engine, and how it came to be.

    Attributes:
        content: The engine.
        is_strongly_typed: Whether the model's own types were obeyed.
        int8_scales: Where the scales of an int8 engine are from.
        build_seconds: How long reading the model and building took.
        log: What TensorRT said.
        notes: What a person should know, a line each.
    """

    content: bytes
    is_strongly_typed: bool
    int8_scales: Literal["dummy", "explicit"] | None
    build_seconds: float
    log: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A network with all that it is to be built with.

    Attributes:
        builder: Of the library.
        network: The model.
        parser: What read it; it owns the weights, so it has to live as long as the network.
        config: Device, types and shapes.
        is_strongly_typed: Whether the model's own types are obeyed.
        int8_scales: Where the scales of an int8 engine are from.
        notes: What a person should know, a line each.
    """

    builder: Any
    network: Any
    parser: Any
    config: Any
    is_strongly_typed: bool
    int8_scales: Literal["dummy", "explicit"] | None
    notes: list[str]


class Builder:
    """Builds with one TensorRT module."""

    def __init__(self, trt: Any, symbols: Collection[str], logger: Any, lines: LogLines) -> None:
        """Take the module, and which of its optional symbols are there.

        Args:
            trt: The module.
            symbols: As ``tensorrt_probe.symbols_of`` tells them.
            logger: The process's logger for it.
            lines: What that collects.
        """
        self._trt = trt
        self._has = frozenset(symbols).__contains__
        self._logger = logger
        self._lines = lines

    def build(self, spec: BuildSpec, timing_cache: Path | None = None) -> Plan:
        """Build an engine.

        Args:
            spec: What to build.
            timing_cache: File in which TensorRT keeps how fast kernels were, for the next build.

        Raises:
            EngineUnavailable: A DLA is asked for and there is none.
            Mendable: The model cannot be read or built so; says why.
        """
        begin_ns = time.monotonic_ns()
        made = self.prepare(spec)
        config, notes, scales = made.config, made.notes, made.int8_scales
        if spec.optimization_level is not None:
            if self._has("IBuilderConfig.builder_optimization_level"):
                config.builder_optimization_level = spec.optimization_level
            else:
                notes.append("this TensorRT has no optimisation levels: its own choice was built")
        self._use_timing_cache(config, timing_cache)
        serialised = made.builder.build_serialized_network(made.network, config)
        if serialised is None:
            raise self._not_built(spec)
        self._keep_timing_cache(config, timing_cache)
        if scales == "dummy":
            notes.append("the scales are made up: its speed means something, its answers nothing")
        return Plan(
            content=bytes(serialised),
            is_strongly_typed=made.is_strongly_typed,
            int8_scales=scales,
            build_seconds=(time.monotonic_ns() - begin_ns) / 1e9,
            log=self._lines.all(),
            notes=tuple(notes),
        )

    def prepare(
        self, spec: BuildSpec, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> "Prepared":
        """Read a model and set all that an engine of it is built with, but for how long.

        Args:
            spec: What would be built.
            shapes: Of inputs whose dimensions the model leaves open, beside the batch.

        Raises:
            EngineUnavailable: A DLA is asked for and there is none.
            Mendable: The model cannot be read or built so; says why.
        """
        self._lines.clear()
        builder = self._trt.Builder(self._logger)
        if spec.device == "dla" and builder.num_DLA_cores < 1:
            raise no_dla(0, 0, "")
        network, parser, types = self._read(builder, spec)
        for at in range(network.num_inputs):
            given = network.get_input(at)
            if given.name in (shapes or {}):
                given.shape = (shapes or {})[given.name]
        notes: list[str] = []
        config = builder.create_builder_config()
        config.profiling_verbosity = self._trt.ProfilingVerbosity.DETAILED
        scales = self._set_precision(config, network, spec, types)
        self._set_device(config, network, spec, notes)
        self._fix_shapes(builder, config, network, spec)
        return Prepared(builder, network, parser, config, types.is_strong, scales, notes)

    def _read(self, builder: Any, spec: BuildSpec) -> "tuple[Any, Any, _Types]":
        """Read the model, with its own types in force where they have to be or can be."""
        can_choose = self._has("BuilderFlag.FP16")
        network, parser = self._parse(builder, spec.model, strongly=not can_choose)
        own = _own_precision(network)
        if not can_choose:
            own = own or "fp32"
        types = _Types(own, is_strong=not can_choose)
        self._check_request(spec, types)
        if can_choose and own == "fp16" and self._has(_STRONGLY_TYPED):
            del parser, network
            network, parser = self._parse(builder, spec.model, strongly=True)
            types = _Types(own, is_strong=True)
        return network, parser, types

    def _parse(self, builder: Any, model: Path, *, strongly: bool) -> tuple[Any, Any]:
        flags = 0
        wanted = ("EXPLICIT_BATCH", "STRONGLY_TYPED") if strongly else ("EXPLICIT_BATCH",)
        for name in wanted:
            if self._has(f"NetworkDefinitionCreationFlag.{name}"):
                flags |= 1 << int(getattr(self._trt.NetworkDefinitionCreationFlag, name))
        network = builder.create_network(flags)
        parser = self._trt.OnnxParser(network, self._logger)
        if not parser.parse_from_file(str(model)):
            said = [parser.get_error(at).desc() for at in range(parser.num_errors)]
            words = " ".join((said[-1] if said else reason_in(self._lines.all())).split())
            raise Mendable(
                f"TensorRT cannot read {model.name} ({_node_in(self._lines.all())}{words})",
                "export it with operations and an opset that this TensorRT knows",
            )
        return network, parser

    def _check_request(self, spec: BuildSpec, types: "_Types") -> None:
        """Refuse what the model's own types, or the DLA, cannot give."""
        name, own, asked = spec.model.name, types.own, spec.precision
        if own is not None and asked not in (None, own):
            raise Mendable(
                f"{name} {_TYPED[own]}, so it cannot run in {asked}",
                f"leave precision out, or {_EXPORT[asked or own]}",
            )
        if spec.device == "dla" and (asked or own) == "fp32":
            raise Mendable(
                f"{name} is to run in fp32, and a DLA computes in fp16 and int8 only",
                "set precision: fp16" if own is None else _EXPORT["fp16"],
            )

    def _set_precision(
        self, config: Any, network: Any, spec: BuildSpec, types: "_Types"
    ) -> Literal["dummy", "explicit"] | None:
        """Set the flags of a network whose types are free; return where int8 scales are from."""
        precision = spec.precision or types.own or "fp16"
        scales: Literal["dummy", "explicit"] | None = None
        if precision == "int8":
            scales = "explicit" if types.own == "int8" else "dummy"
        if types.is_strong:
            return scales
        flags = self._trt.BuilderFlag
        if precision in ("fp16", "int8"):
            # Layers that have no int8 form run in half precision; on a DLA they can in no other.
            config.set_flag(flags.FP16)
        if precision == "int8":
            config.set_flag(flags.INT8)
        if scales == "dummy":
            for tensor in _tensors(network):
                if _type_name(tensor.dtype) in ("FLOAT", *_HALF):
                    tensor.set_dynamic_range(-_DUMMY_RANGE, _DUMMY_RANGE)
        return scales

    def _set_device(self, config: Any, network: Any, spec: BuildSpec, notes: list[str]) -> None:
        trt = self._trt
        if spec.device == "gpu":
            return
        config.default_device_type = trt.DeviceType.DLA
        config.DLA_core = 0
        if config.DLA_core != 0 or config.default_device_type != trt.DeviceType.DLA:
            raise no_dla(0, 0, "")
        if spec.fallback == "forbid":
            if self._has("BuilderFlag.DIRECT_IO"):
                config.set_flag(trt.BuilderFlag.DIRECT_IO)
        else:
            config.set_flag(trt.BuilderFlag.GPU_FALLBACK)
        able = sum(
            bool(config.can_run_on_DLA(network.get_layer(at))) for at in range(network.num_layers)
        )
        notes.append(f"TensorRT finds {able} of {network.num_layers} layers fit for the DLA")

    def _fix_shapes(self, builder: Any, config: Any, network: Any, spec: BuildSpec) -> None:
        """Give a dynamic first dimension the one batch that there will be."""
        profile = None
        for at in range(network.num_inputs):
            given = network.get_input(at)
            declared = [None if length < 0 else int(length) for length in given.shape]
            shape = input_shape(given.name, declared, spec.batch)
            if None in declared:
                profile = profile or builder.create_optimization_profile()
                profile.set_shape(given.name, shape, shape, shape)
        if profile is not None:
            config.add_optimization_profile(profile)

    def _use_timing_cache(self, config: Any, path: Path | None) -> None:
        """Read what earlier builds measured; that it cannot be used is no failure."""
        if path is None or not self._has("IBuilderConfig.create_timing_cache"):
            return
        content = b""
        with suppress(OSError):
            content = path.read_bytes()
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, False):
            self._lines.take("INFO", "the timing cache could not be used; an empty one is")
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def _keep_timing_cache(self, config: Any, path: Path | None) -> None:
        if path is None or not self._has("IBuilderConfig.create_timing_cache"):
            return
        cache = config.get_timing_cache()
        if cache is not None:
            try:
                write_whole(path, bytes(cache.serialize()))
            except OSError as error:
                self._lines.take("INFO", f"the timing cache could not be written ({error})")

    def _not_built(self, spec: BuildSpec) -> Mendable:
        what = f"TensorRT could not build {spec.model.name} for the {spec.device.upper()}"
        mend = "the lines before it are in the worker's standard error"
        if spec.device == "dla" and spec.fallback == "forbid":
            mend = "set fallback: allow to let such layers run on the GPU, or change the model"
        return Mendable(f"{what} ({reason_in(self._lines.all())})", mend)


@dataclass(frozen=True)
class _Types:
    """What a model's tensors are by themselves.

    Attributes:
        own: The precision that the model fixes; ``None`` where it fixes none.
        is_strong: Whether TensorRT is to obey it to the letter.
    """

    own: Precision | None
    is_strong: bool


def no_dla(core: int, cores: int, device: str) -> EngineUnavailable:
    """Return the refusal of a DLA that TensorRT does not see.

    TensorRT itself refuses nothing: asked for a DLA that is not there it builds for the GPU.
    """
    where = f" on {device}" if device else ""
    count = "no DLA" if cores == 0 else f"{cores} DLA core{'s' * (cores > 1)}"
    return EngineUnavailable(
        f"TensorRT sees {count}{where}, so there is no dla{core}",
        "set device: gpu, or a core that there is; Orin NX, AGX Orin and Xavier have DLAs, and not"
        " every TensorRT supports them (10.7 was the last of 10; 11 does from 11.4.1 on)",
    )


def _node_in(lines: Sequence[str]) -> str:
    """Return the node that the parser stumbled over, which only its log tells; or nothing.

    >>> _node_in(['[E] ModelImporter.cpp:140: While parsing node number 3 [Foo -> "y"]:'])
    'node 3 [Foo -> "y"]: '
    """
    for line in reversed(lines):
        _, found, node = line.partition("While parsing node number ")
        if found:
            return f"node {node.rstrip(':')}: "
    return ""


def _own_precision(network: Any) -> Precision | None:
    """Return the precision that a model fixes by its own types, if it does."""
    kinds = {_type_name(network.get_layer(at).type) for at in range(network.num_layers)}
    if kinds.intersection(_QUANTISED):
        return "int8"
    if any(_type_name(tensor.dtype) in _HALF for tensor in _tensors(network)):
        return "fp16"
    return None


def _tensors(network: Any) -> Iterator[Any]:
    for at in range(network.num_inputs):
        yield network.get_input(at)
    for at in range(network.num_layers):
        layer = network.get_layer(at)
        outputs = (layer.get_output(place) for place in range(layer.num_outputs))
        yield from (tensor for tensor in outputs if tensor is not None)


def _type_name(kind: Any) -> str:
    """Return the name of a member of one of the library's enumerations."""
    return str(getattr(kind, "name", kind)).rpartition(".")[2]

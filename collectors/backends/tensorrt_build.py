"""An ONNX model becomes a serialised TensorRT engine, by the API that 8.5 to 11 share.

The TensorRT module is handed in, and what differs between versions is asked of its symbols: so a
test can build with a fake one, and CI with a relative that builds without a GPU.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from ...parsers.errors import BackendUnavailable, Mendable
from ..base import write_atomic
from .base import input_shape
from .tensorrt_network import (
    HALF,
    BuildSpec,
    LogLines,
    NetworkReader,
    Plan,
    Prepared,
    Types,
    reason_in,
    tensors_of,
    type_name,
)


class TimingCache:
    """The file; a build does not fail if it cannot be used or written."""

    def __init__(self, path: Path | None, has: Callable[[str], bool], lines: LogLines) -> None:
        """Take a place.

        Args:
            path: The file; ``None`` for none.
        """
        self._path = path if has("IBuilderConfig.create_timing_cache") else None
        self._lines = lines

    def use(self, config: Any) -> None:
        """Give a build what earlier builds measured."""
        if self._path is None:
            return
        content = b""
        with suppress(OSError):
            content = self._path.read_bytes()
        cache = config.create_timing_cache(content)
        if cache is None or not config.set_timing_cache(cache, False):
            self._lines.take("INFO", "the timing cache could not be used; an empty one is")
            config.set_timing_cache(config.create_timing_cache(b""), False)

    def keep(self, config: Any) -> None:
        """Write down what a build measured."""
        cache = None if self._path is None else config.get_timing_cache()
        if cache is None or self._path is None:
            return
        try:
            write_atomic(self._path, bytes(cache.serialize()))
        except OSError as error:
            self._lines.take("INFO", f"the timing cache could not be written ({error})")


# With no scales at all TensorRT builds no int8 engine; with these its speed means something.
_DUMMY_RANGE = 4.0


class Builder:
    """Builds with one TensorRT module."""

    def __init__(self, trt: Any, symbols: Collection[str], logger: Any, lines: LogLines) -> None:
        """Take the module, and which of its optional symbols are there.

        Args:
            symbols: As ``tensorrt_probe.symbols_of`` tells them.
        """
        self._trt = trt
        self._has = frozenset(symbols).__contains__
        self._logger = logger
        self._lines = lines
        self._reader = NetworkReader(trt, symbols, logger, lines)

    def build(self, spec: BuildSpec, timing_cache: Path | None = None) -> Plan:
        """Build an engine.

        Args:
            timing_cache: File in which TensorRT keeps how fast kernels were, for the next build.

        Raises:
            BackendUnavailable: A DLA is asked for and there is none.
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
        kept = TimingCache(timing_cache, self._has, self._lines)
        kept.use(config)
        serialised = made.builder.build_serialized_network(made.network, config)
        if serialised is None:
            raise self._not_built(spec)
        kept.keep(config)
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
    ) -> Prepared:
        """Read a model and set all that an engine of it is built with, but for how long.

        Args:
            shapes: Shapes of inputs whose dimensions, other than the batch, the model leaves open.

        Raises:
            BackendUnavailable: A DLA is asked for and there is none.
            Mendable: The model cannot be read or built so; says why.
        """
        self._lines.clear()
        builder = self._trt.Builder(self._logger)
        if spec.device == "dla" and builder.num_DLA_cores < 1:
            raise no_dla(0, 0, "")
        network, parser, types = self._reader.read(builder, spec)
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

    def _set_precision(
        self, config: Any, network: Any, spec: BuildSpec, types: Types
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
            for tensor in tensors_of(network):
                if type_name(tensor.dtype) in ("FLOAT", *HALF):
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

    def _not_built(self, spec: BuildSpec) -> Mendable:
        what = f"TensorRT could not build {spec.model.name} for the {spec.device.upper()}"
        mend = "the lines before it are in the worker's standard error"
        if spec.device == "dla" and spec.fallback == "forbid":
            mend = "set fallback: allow to let such layers run on the GPU, or change the model"
        return Mendable(f"{what} ({reason_in(self._lines.all())})", mend)


def no_dla(core: int, cores: int, device: str) -> BackendUnavailable:
    """Return the refusal of a DLA that TensorRT does not see.

    TensorRT itself refuses nothing: asked for a DLA that is not there it builds for the GPU.
    """
    where = f" on {device}" if device else ""
    count = "no DLA" if cores == 0 else f"{cores} DLA core{'s' * (cores > 1)}"
    return BackendUnavailable(
        f"TensorRT sees {count}{where}, so there is no dla{core}",
        "set device: gpu, or a core that there is; Orin NX, AGX Orin and Xavier have DLAs, and not"
        " every TensorRT supports them (10.7 was the last of 10; 11 does from 11.4.1 on)",
    )

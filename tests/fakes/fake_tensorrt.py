"""TensorRT as far as tegrascope uses it, with the surface of a given version.

What a version has not is not there: touching it raises, as the real bindings do. What it does
with a model is play: every ONNX node becomes a layer, and an inference copies the first input.
"""

import ctypes
import enum
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import onnx

from .fake_device import FakeDevice
from .models import simulated

KINDS = {
    "Conv": "CONVOLUTION",
    "QuantizeLinear": "QUANTIZE",
    "DequantizeLinear": "DEQUANTIZE",
    "Softmax": "SOFTMAX",
    "Identity": "IDENTITY",
    "Relu": "ACTIVATION",
    "Cast": "CAST",
}
# What the fake's DLA does not take; in its name too, so that a test can read it.
REFUSED_BY_DLA = {"SOFTMAX"}
REFUSED_BEFORE_11 = {"QUANTIZE", "DEQUANTIZE"}
TYPES = {
    onnx.TensorProto.FLOAT: "FLOAT",
    onnx.TensorProto.FLOAT16: "HALF",
    onnx.TensorProto.INT8: "INT8",
    onnx.TensorProto.INT32: "INT32",
    onnx.TensorProto.INT64: "INT64",
    onnx.TensorProto.BOOL: "BOOL",
    onnx.TensorProto.BFLOAT16: "BF16",
}
PRINTED = {"FLOAT": "FP32", "HALF": "FP16", "INT8": "Int8"}
SIZES = {"FLOAT": 4, "HALF": 2, "INT8": 1, "INT32": 4, "INT64": 8, "BOOL": 1, "BF16": 2}


def make_tensorrt(version: str, device: FakeDevice) -> types.ModuleType:
    """Return a module with the surface of a version: 8.5.2, 8.6.1, 10.3.0 or 11.4.1."""
    major, minor = (int(part) for part in version.split(".")[:2])
    release = (major, minor)
    module = types.ModuleType("tensorrt")
    module.__dict__["__version__"] = version

    builder_flags = ["GPU_FALLBACK", "DIRECT_IO", "TF32"]
    if major < 11:
        builder_flags += ["FP16", "INT8"]
        builder_flags += ["OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"]
    network_flags = ["EXPLICIT_BATCH"] if major < 11 else []
    if major >= 10:
        network_flags.append("STRONGLY_TYPED")
    severity = enum.Enum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"])
    data_type = enum.Enum("DataType", ["FLOAT", "HALF", "INT8", "INT32", "INT64", "BOOL", "BF16"])
    layer_type = enum.Enum("LayerType", sorted({*KINDS.values(), "OTHER"}))
    device_type = enum.Enum("DeviceType", ["GPU", "DLA"])
    verbosity = enum.Enum("ProfilingVerbosity", ["LAYER_NAMES_ONLY", "DETAILED", "NONE"])
    module.__dict__.update(
        BuilderFlag=enum.Enum("BuilderFlag", builder_flags),
        NetworkDefinitionCreationFlag=enum.IntEnum(
            "NetworkDefinitionCreationFlag", network_flags, start=0
        ),
        DataType=data_type,
        LayerType=layer_type,
        DeviceType=device_type,
        ProfilingVerbosity=verbosity,
        LayerInformationFormat=enum.Enum("LayerInformationFormat", ["ONELINE", "JSON"]),
        EngineCapability=enum.Enum("EngineCapability", ["STANDARD", "SAFETY", "DLA_STANDALONE"]),
        TensorFormat=enum.IntEnum("TensorFormat", {"LINEAR": 0, "CHW16": 4, "DLA_LINEAR": 9}),
        TensorIOMode=enum.Enum("TensorIOMode", ["NONE", "INPUT", "OUTPUT"]),
    )

    creators: set[str] = set()

    def registry() -> set[str]:
        """Return the plug-ins that were registered, also by libraries of this process."""
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        for path in {line.split()[-1] for line in maps.splitlines() if line.endswith(".so")}:
            if Path(path).parent.name == "plugins":
                found = re.findall(rb"registers:(\w+)", Path(path).read_bytes())
                creators.update(name.decode() for name in found)
        return creators

    def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
        assert isinstance(logger, ILogger)
        assert namespace == ""
        creators.add("EfficientNMS_TRT")
        return True

    class IPluginRegistry: ...

    if release >= (8, 6):

        def load_library(_: Any, path: str) -> object | None:
            found = re.findall(rb"exports:(\w+)", Path(path).read_bytes())
            creators.update(name.decode() for name in found)
            return object() if found else None

        IPluginRegistry.load_library = load_library  # type: ignore[attr-defined]
    module.__dict__["init_libnvinfer_plugins"] = init_libnvinfer_plugins
    module.__dict__["IPluginRegistry"] = IPluginRegistry
    module.__dict__["get_plugin_registry"] = IPluginRegistry

    class ILogger:
        Severity = severity
        ERROR = severity.ERROR

    class Logger(ILogger):
        def __init__(self, _: Any = None) -> None: ...
        def log(self, *_: Any) -> None: ...

    class IProfiler: ...

    class ITensor:
        def __init__(self, name: str, dtype: Any, shape: tuple[int, ...]) -> None:
            self.name, self.dtype, self.shape = name, dtype, shape
            self.dynamic_range: tuple[float, float] | None = None
            self.allowed_formats = 1
            self.is_shape_tensor = name.startswith("shape_")

    if major < 11:

        def set_dynamic_range(self: Any, low: float, high: float) -> bool:
            self.dynamic_range = (low, high)
            return True

        ITensor.set_dynamic_range = set_dynamic_range  # type: ignore[attr-defined]

        class IInt8EntropyCalibrator2:
            algorithm = "EntropyCalibration2"

        class IInt8MinMaxCalibrator:
            algorithm = "MinMaxCalibration"

        module.__dict__.update(
            IInt8EntropyCalibrator2=IInt8EntropyCalibrator2,
            IInt8MinMaxCalibrator=IInt8MinMaxCalibrator,
        )

    class Layer:
        def __init__(self, name: str, kind: Any, outputs: list[ITensor]) -> None:
            self.name, self.type, self.outputs = name, kind, outputs
            self.num_outputs = len(outputs)
            self.precision: Any = None
            if release >= (8, 6):
                self.metadata = f"[ONNX Layer: {name}]"

        def get_output(self, at: int) -> ITensor:
            return self.outputs[at]

    class Network:
        def __init__(self, flags: int) -> None:
            known = {name: 1 << at for at, name in enumerate(network_flags)}
            if release < (10, 0):
                assert flags & known["EXPLICIT_BATCH"], "8.x needs an explicit batch for ONNX"
            self.is_strong = bool(flags & known.get("STRONGLY_TYPED", 0)) or major >= 11
            self.inputs: list[ITensor] = []
            self.outputs: list[ITensor] = []
            self.layers: list[Layer] = []
            self.path, self.content = "", b""
            self.plugins: list[str] = []
            self.open_ended = False

        num_inputs = property(lambda self: len(self.inputs))
        num_layers = property(lambda self: len(self.layers))
        num_outputs = property(lambda self: len(self.outputs))

        def get_input(self, at: int) -> ITensor:
            return self.inputs[at]

        def get_output(self, at: int) -> ITensor:
            return self.outputs[at]

        def get_layer(self, at: int) -> Layer:
            return self.layers[at]

    class ParserError:
        def __init__(self, text: str) -> None:
            self.text = text

        def desc(self) -> str:
            return self.text

    class OnnxParser:
        def __init__(self, network: Network, logger: Any) -> None:
            self.network, self.logger = network, logger
            self.errors: list[ParserError] = []

        num_errors = property(lambda self: len(self.errors))

        def get_error(self, at: int) -> ParserError:
            return self.errors[at]

        def parse_from_file(self, path: str) -> bool:
            with open(path, "rb") as file:  # noqa: PTH123
                self.network.content = file.read()
            graph = onnx.load(path).graph
            self.network.path = path
            known = {}
            for value in (*graph.input, *graph.value_info, *graph.output):
                given = value.type.tensor_type
                shape = tuple(d.dim_value or -1 for d in given.shape.dim)
                kind = TYPES.get(given.elem_type, "FLOAT")  # 0 is a type that no one inferred
                known[value.name] = ITensor(value.name, data_type[kind], shape)
            for node in graph.node:
                if node.domain:
                    told = f"No importer registered for op: {node.op_type}. Attempting to import"
                    if major >= 10:
                        told = "Plugin not found with node attribute namespace: using it"
                    self.logger.log(severity.INFO, f"{told} as plugin.")
                    if node.op_type not in registry():
                        told = f'While parsing node number 1 [{node.op_type} -> "y"]:'
                        if major < 10:
                            told = f"could not find plugin: {node.op_type} version: 1"
                        self.logger.log(severity.ERROR, told)
                        self.errors.append(ParserError('"Plugin not found, are the plugin …"'))
                        return False
                    self.network.plugins.append(node.op_type)
                if node.op_type == "NonZero":
                    self.network.open_ended = True
                    known[node.output[0]].shape = (-1,) * len(known[node.output[0]].shape)
                if node.op_type == "Einsum":
                    self.errors.append(ParserError("No importer registered for op: Einsum"))
                    return False
                kind = layer_type[KINDS.get(node.op_type, "OTHER")]
                outputs = [
                    known.setdefault(name, ITensor(name, data_type.FLOAT, ()))
                    for name in node.output
                ]
                name = node.name or f"node_of_{node.output[0]}"
                self.network.layers.append(Layer(name, kind, outputs))
            weights = {weight.name for weight in graph.initializer}
            self.network.inputs = [known[v.name] for v in graph.input if v.name not in weights]
            self.network.outputs = [known[value.name] for value in graph.output]
            return True

    class Profile:
        def __init__(self) -> None:
            self.shapes: dict[str, tuple[Any, Any, Any]] = {}

        def set_shape(self, name: str, low: Any, best: Any, high: Any) -> None:
            self.shapes[name] = (low, best, high)

    class TimingCache:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def serialize(self) -> bytearray:
            return bytearray(self.content + b"k")

    class IBuilderConfig:
        _settable = {
            *("profiling_verbosity", "default_device_type", "DLA_core", "engine_capability"),
        }

        def __init__(self) -> None:
            put = super().__setattr__
            put("flags_set", set())
            put("profiles", [])
            put("cache", None)
            put("core", -1)
            put("int8_calibrator", None)
            put("default_device_type", device_type.GPU)
            put("engine_capability", module.__dict__["EngineCapability"].STANDARD)

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in self._settable:
                raise AttributeError(name)
            super().__setattr__(name, value)

        @property
        def DLA_core(self) -> int:
            return int(self.__dict__["core"])

        @DLA_core.setter
        def DLA_core(self, core: int) -> None:
            if core < device.dla_cores:  # else nothing happens, without a word
                self.__dict__["core"] = core

        def set_flag(self, flag: Any) -> None:
            assert isinstance(flag, module.__dict__["BuilderFlag"])
            self.__dict__["flags_set"].add(flag.name)

        def add_optimization_profile(self, profile: Profile) -> int:
            self.__dict__["profiles"].append(profile)
            return 0

        def set_calibration_profile(self, profile: Profile) -> bool:
            assert profile in self.__dict__["profiles"]
            self.__dict__["calibration_profile"] = profile
            return True

        def can_run_on_DLA(self, layer: Layer) -> bool:
            refused = REFUSED_BY_DLA if major >= 11 else {*REFUSED_BY_DLA, *REFUSED_BEFORE_11}
            return device.dla_cores > 0 and layer.type.name not in refused

        def create_timing_cache(self, content: bytes) -> TimingCache | None:
            return None if content.startswith(b"bad") else TimingCache(content)

        def set_timing_cache(self, cache: TimingCache | None, _ignore: bool) -> bool:
            if cache is None:
                raise TypeError("incompatible function arguments")
            self.__dict__["cache"] = cache
            return True

        def get_timing_cache(self) -> TimingCache | None:
            found: TimingCache | None = self.__dict__["cache"]
            return found

    if major < 11:
        IBuilderConfig._settable = {*IBuilderConfig._settable, "int8_calibrator"}
    if release >= (8, 6):
        IBuilderConfig._settable = {*IBuilderConfig._settable, "builder_optimization_level"}
        IBuilderConfig.builder_optimization_level = 3  # type: ignore[attr-defined]

    class Builder:
        max_DLA_batch_size = 268435456  # it says so without a DLA too

        def __init__(self, logger: Any) -> None:
            self.logger = logger

        num_DLA_cores = property(lambda _: device.dla_cores)

        def create_network(self, flags: int = 0) -> Network:
            return Network(flags)

        def create_builder_config(self) -> IBuilderConfig:
            return IBuilderConfig()

        def create_optimization_profile(self) -> Profile:
            return Profile()

        def build_serialized_network(
            self, network: Network, config: IBuilderConfig
        ) -> bytearray | None:
            device.calls.append("build_serialized_network")
            calibrator, scales = config.__dict__["int8_calibrator"], None
            if calibrator is not None and "INT8" in config.__dict__["flags_set"]:
                scales = _scales(network, calibrator, version)
                for tensor in _tensors(network) if scales else ():
                    tensor.dynamic_range = scales.get(tensor.name)
            held = _held(network, config)
            for layer in network.layers:
                for tensor in layer.outputs if held.get(layer.name, "INT8") != "INT8" else ():
                    if scales:
                        scales.pop(tensor.name, None)  # it is not rounded
            problem = _problem(network, config, major)
            if scales == {}:
                problem = "Calibration failure occurred with no scaling factors detected."
            if problem:
                self.logger.log(severity.ERROR, f"4: [network.cpp::validate::3062] {problem}")
                return None
            if config.engine_capability.name == "DLA_STANDALONE":
                return bytearray(_loadable(network, config))
            has_dla = config.DLA_core >= 0 and config.default_device_type is device_type.DLA
            on_dla = [x for x in network.layers if has_dla and config.can_run_on_DLA(x)]
            on_gpu = [x for x in network.layers if x not in on_dla]
            layers = []
            if has_dla:
                self.logger.log(severity.INFO, "---------- Layers Running on DLA ----------")
                if on_dla:
                    name = f"{{ForeignNode[{on_dla[0].name}...{on_dla[-1].name}]}}"
                    layers.append((name, "DLA", "HALF"))
                    self.logger.log(severity.INFO, f"[DlaLayer] {name}")
                self.logger.log(severity.INFO, "---------- Layers Running on GPU ----------")
                for layer in on_gpu:
                    self.logger.log(severity.INFO, f"[GpuLayer] {layer.type.name}: {layer.name}")
            self.logger.log(severity.VERBOSE, "a line that nobody needs")
            kind = "HALF" if "FP16" in config.__dict__["flags_set"] else None
            for layer in on_gpu:
                printed = kind or layer.outputs[0].dtype.name
                has_range = device.computes and layer.outputs[0].dynamic_range is not None
                if has_range or (scales and layer.outputs[0].name in scales):
                    printed = "INT8"
                printed = held.get(layer.name, printed)
                layers.append((layer.name, "CaskConvolution", printed))
            ranges = config.__dict__["profiles"][0].shapes if config.__dict__["profiles"] else {}
            if has_dla:
                assert all(low == high for low, _, high in ranges.values()), "one shape only"
            io = [
                (tensor.name, tensor.dtype.name, tensor.shape, mode)
                for mode, tensors in (("INPUT", network.inputs), ("OUTPUT", network.outputs))
                for tensor in tensors
            ]
            plan = {
                "version": version,
                "flags": sorted(config.__dict__["flags_set"]),
                "level": getattr(config, "builder_optimization_level", None),
                "strong": network.is_strong,
                "scales": scales,
                "model": network.content.hex() if device.computes else "",
                "ranges": sum(_has_range(tensor) for tensor in _tensors(network)),
                "ranges_of_shapes": ranges,
                "open_ended": network.open_ended,
                "io": io,
                "layers": layers,
                "plugins": network.plugins,
            }
            return bytearray(json.dumps(plan).encode())

    class Inspector:
        def __init__(self, engine: "ICudaEngine") -> None:
            self.engine = engine

        def get_engine_information(self, form: Any) -> str:
            assert form.name == "JSON"
            layers = []
            for name, kind, dtype in self.engine.plan["layers"]:
                told: dict[str, Any] = {"Name": name, "LayerType": kind, "Metadata": ""}
                if major < 11:
                    place = f"Channel major {PRINTED.get(dtype, dtype)} format"
                    told["Outputs"] = [{"Name": f"{name}:0", "Format/Datatype": place}]
                    told["Metadata"] = f"[ONNX Layer: {name}]\x1e[ONNX Layer: other]"
                else:
                    word = {"FLOAT": "Float", "HALF": "Half"}.get(dtype, dtype)
                    told["Outputs"] = [{"Name": f"{name}:0", "Format": "Linear", "DataType": word}]
                layers.append(told)
            edges = "Bindings" if major < 11 else "I/O Tensors"
            text = json.dumps({"Layers": layers, edges: []}, indent=1)
            return text.replace("\\u001e", "\x1e")  # 8.6 prints it raw, which is no JSON

    class ICudaEngine:
        def __init__(self, plan: dict[str, Any], logger: Any) -> None:
            self.plan, self.logger = plan, logger
            self._session: Any = None

        num_io_tensors = property(lambda self: len(self.plan["io"]))

        def session(self) -> Any:
            """Return what computes, made once; made-up ranges are those of +-4."""
            if self._session is None:
                content = bytes.fromhex(self.plan["model"])
                scales = self.plan["scales"]
                if scales is None and self.plan["ranges"]:
                    names = [tensor[0] for tensor in self.plan["io"]]
                    inner = [name for node in onnx.load_from_string(content).graph.node
                             for name in node.output]  # fmt: skip
                    scales = dict.fromkeys([*names, *inner], 4 / 127)
                if scales:
                    content = simulated(content, scales)
                import onnxruntime

                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = 1  # others would spin beside the tests
                self._session = onnxruntime.InferenceSession(content, options)
            return self._session

        def get_tensor_name(self, at: int) -> str:
            return str(self.plan["io"][at][0])

        def _io(self, name: str) -> Any:
            return next(tensor for tensor in self.plan["io"] if tensor[0] == name)

        def get_tensor_dtype(self, name: str) -> Any:
            return data_type[self._io(name)[1]]

        def get_tensor_format(self, name: str) -> Any:
            layouts = module.__dict__["TensorFormat"]
            return layouts[device.layouts.get(name, "LINEAR")]

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            return tuple(self._io(name)[2])

        def get_tensor_mode(self, name: str) -> Any:
            return module.__dict__["TensorIOMode"][self._io(name)[3]]

        def create_engine_inspector(self) -> Inspector:
            return Inspector(self)

        def create_execution_context(self) -> "IExecutionContext | None":
            if self.plan["open_ended"] and not self.plan["ranges_of_shapes"]:
                self.logger.log(severity.ERROR, "2: vector<bool>::_M_range_check")
                return None
            if "create_execution_context" in device.failing:
                return None
            device.contexts.append(IExecutionContext(self))
            return device.contexts[-1]

    if major < 11:
        ICudaEngine.device_memory_size = 1000  # type: ignore[attr-defined]
    if release >= (10, 3):
        ICudaEngine.device_memory_size_v2 = 2000  # type: ignore[attr-defined]

    class IExecutionContext:
        profiler: Any = None
        nvtx_verbosity: Any = verbosity.LAYER_NAMES_ONLY

        def __init__(self, engine: ICudaEngine) -> None:
            self.engine = engine
            self.shapes: dict[str, tuple[int, ...]] = {}
            self.addresses: dict[str, int] = {}
            self.has_run = False

        def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
            declared = self.engine.get_tensor_shape(name)
            low, _, high = self.engine.plan["ranges_of_shapes"].get(name, (declared,) * 3)
            self.shapes[name] = shape
            return len(shape) == len(low) and all(
                a <= b <= c for a, b, c in zip(low, shape, high, strict=True)
            )

        def get_tensor_shape(self, name: str) -> tuple[int, ...]:
            given = next(iter(self.shapes.values()), ())
            shape = self.shapes.get(name, self.engine.get_tensor_shape(name))
            if self.engine.plan["open_ended"]:
                return shape
            return tuple(given[at] if n == -1 else n for at, n in enumerate(shape))

        def set_tensor_address(self, name: str, address: int) -> bool:
            self.addresses[name] = address
            return True

        def execute_async_v3(self, handle: int) -> bool:
            assert isinstance(handle, int)
            if device.refuses_enqueue:
                return False
            if device.captured is not None:
                if self.has_run:  # else it would load modules, which ends a capture
                    device.captured.append(self._work)
            else:
                self._work()
            return True

        def _compute(self) -> None:
            names = [one[0] for one in self.engine.plan["io"] if one[3] == "OUTPUT"]
            given = {}
            for name, dtype, _, mode in self.engine.plan["io"]:
                if mode == "INPUT":
                    shape = self.get_tensor_shape(name)
                    size = int(numpy.prod(shape)) * SIZES[dtype]
                    data = ctypes.string_at(self.addresses[name], size)
                    given[name] = numpy.frombuffer(data, "f4").reshape(shape)
            for name, made in zip(names, self.engine.session().run(names, given), strict=True):
                if device.is_blind:
                    made[:, 4:] = 0
                data = numpy.ascontiguousarray(made).tobytes()
                ctypes.memmove(self.addresses[name], data, len(data))

        def _work(self) -> None:
            self._run()
            sides: dict[str, list[int]] = {"INPUT": [], "OUTPUT": []}
            for name, _, _, mode in self.engine.plan["io"]:
                sides[mode].append(self.addresses[name])
            device.work_on(sides["INPUT"], sides["OUTPUT"])

        def _run(self) -> None:
            device.calls.append("execute")
            self.has_run = True
            device.now_ns += device.compute_ns
            if device.computes:
                self._compute()
                return
            io = self.engine.plan["io"]
            source = next(tensor for tensor in io if tensor[3] == "INPUT")
            for name, dtype, _, mode in io:
                if mode == "OUTPUT":
                    size = int(numpy.prod(self.get_tensor_shape(name))) * SIZES[dtype]
                    device.move(self.addresses[name], self.addresses[source[0]], size)
                    device.now_ns -= device.copy_ns
                    if device.spoils:
                        ctypes.memset(self.addresses[name], 0, SIZES[dtype])
            if self.profiler is not None:
                for name, _, _ in self.engine.plan["layers"]:
                    self.profiler.report_layer_time(name, 0.1)

    class Runtime:
        def __init__(self, logger: Any) -> None:
            self.logger = logger
            self._core = -1

        num_DLA_cores = property(lambda _: device.dla_cores)

        @property
        def DLA_core(self) -> int:
            return self._core

        @DLA_core.setter
        def DLA_core(self, core: int) -> None:
            if core < device.dla_cores:
                self._core = core

        def deserialize_cuda_engine(self, content: bytes) -> ICudaEngine | None:
            device.calls.append("deserialize_cuda_engine")
            try:
                plan = json.loads(bytes(content))
            except ValueError:
                plan = {"version": "none"}
            if plan["version"] != version:
                self.logger.log(severity.ERROR, "1: Version tag does not match")
                return None
            for name in plan["plugins"]:
                if name not in registry():
                    self.logger.log(severity.ERROR, f"1: Cannot find plugin: {name}, version: 1")
                    return None
            return ICudaEngine(plan, self.logger)

    for made in (
        *(ILogger, Logger, IProfiler, ITensor, OnnxParser, IBuilderConfig, Builder),
        *(ICudaEngine, IExecutionContext, Runtime),
    ):
        setattr(module, made.__name__, made)
    return module


def _loadable(network: Any, config: Any) -> bytes:
    """Return what the fake cuDLA reads: a line for each tensor; rows are of 64 bytes."""
    profiles = config.__dict__["profiles"]
    fixed = profiles[0].shapes if profiles else {}
    batch = next(iter(fixed.values()))[1][0] if fixed else None
    lines = ["loadable"]
    for side, tensors in (("in", network.inputs), ("out", network.outputs)):
        for tensor in tensors:
            n, c, h, w = (batch if length == -1 else length for length in tensor.shape)
            width = SIZES[tensor.dtype.name]
            size = n * c * h * (-(-w * width // 64) * 64)
            kind = {"HALF": 2, "INT8": 4}[tensor.dtype.name]
            lines.append(f"{side} {tensor.name} {n} {c} {h} {w} {size} {kind} 1")
    return ("\n".join(lines) + "\n").encode()


def _tensors(network: Any) -> Iterator[Any]:
    yield from network.inputs
    for layer in network.layers:
        yield from layer.outputs


def _has_range(tensor: Any) -> bool:
    return tensor.dynamic_range is not None


def _held(network: Any, config: Any) -> dict[str, str]:
    """Return the layers whose precision was set, if the builder is to mind it."""
    constraints = {"OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"}
    if not constraints & config.__dict__["flags_set"]:
        return {}
    return {x.name: x.precision.name for x in network.layers if x.precision is not None}


def _problem(network: Any, config: Any, major: int) -> str | None:
    """Return why the real library would build nothing, in words like its own."""
    flags = config.__dict__["flags_set"]
    if network.is_strong and flags & {"FP16", "INT8"}:
        return "Error Code 4: precision flags and a strongly typed network"
    is_quantised = any(layer.type.name == "QUANTIZE" for layer in network.layers)
    is_calibrated = config.__dict__["int8_calibrator"] is not None
    if is_calibrated and config.__dict__["profiles"]:
        assert "calibration_profile" in config.__dict__, "needed with dynamic shapes"
    if (
        "INT8" in flags
        and not (is_quantised or is_calibrated)
        and not all(map(_has_range, _tensors(network)))
    ):
        return "Error Code 4: Calibrator is not set, and a tensor has no scale"
    if is_quantised and "INT8" not in flags and major < 11:
        return "Error Code 4: Q/DQ layers need the INT8 flag"
    has_half = any(tensor.dtype.name == "HALF" for tensor in _tensors(network))
    if has_half and not network.is_strong and "FP16" not in flags:
        return "Error Code 4: half precision needs the FP16 flag"
    if config.DLA_core >= 0 and config.default_device_type.name == "DLA":
        if major < 11 and not flags & {"FP16", "INT8"}:
            return "Error Code 4: a DLA needs FP16 or INT8"
        unfit = [layer.name for layer in network.layers if not config.can_run_on_DLA(layer)]
        if unfit and "GPU_FALLBACK" not in flags:
            return f"Error Code 4: {unfit[0]} is not supported on DLA and fallback is off"
    if config.engine_capability.name == "DLA_STANDALONE":
        if config.DLA_core < 0:
            return "Error Code 1: Applying DLA optimizations without DLA backend."
        if "DIRECT_IO" not in flags or "GPU_FALLBACK" in flags:
            return "Error Code 4: a loadable has no reformats and no fallback"
        edges = (*network.inputs, *network.outputs)
        if any(tensor.allowed_formats != 1 << 9 for tensor in edges):
            return "Error Code 4: a loadable needs formats of the DLA"
        if any(tensor.dtype.name not in ("HALF", "INT8") for tensor in edges):
            return "Error Code 4: a loadable has half precision or int8 at its edges"
    shaped = {name for profile in config.__dict__["profiles"] for name in profile.shapes}
    if any(-1 in tensor.shape and tensor.name not in shaped for tensor in network.inputs):
        return "Error Code 4: Network has dynamic inputs, but no optimization profile"
    return None


def _scales(network: Any, calibrator: Any, version: str) -> dict[str, float]:
    """Return the scale of each tensor: from a cache under the right header, or from the batches.

    Min-max takes the largest value of a tensor; entropy, here, the largest but for a thousandth.
    """
    major, minor, patch = map(int, version.split("."))
    number = (major * (1000 if major < 10 else 10000)) + minor * 100 + patch
    header = f"TRT-{number}-{calibrator.algorithm}"
    known = calibrator.read_calibration_cache()
    lines = known.decode().splitlines() if known is not None else []
    if lines and lines[0] == header:
        pairs = (line.rpartition(": ") for line in lines[1:])
        return {n: float(numpy.uint32(int(x, 16)).view("f4")) for n, _, x in pairs}
    share = 1.0 if calibrator.algorithm.startswith("MinMax") else 0.999
    largest: dict[str, float] = {}
    names = [tensor.name for tensor in network.inputs]
    while (addresses := calibrator.get_batch(names)) is not None:
        inputs = {}
        for tensor, address in zip(network.inputs, addresses, strict=True):
            shape = [calibrator.get_batch_size() if n == -1 else n for n in tensor.shape]
            size = int(numpy.prod(shape)) * SIZES[tensor.dtype.name]
            kind = {"FLOAT": "f4", "INT64": "i8", "INT32": "i4"}[tensor.dtype.name]
            data = ctypes.string_at(address, size)
            inputs[tensor.name] = numpy.frombuffer(data, kind).reshape(shape)
        for name, value in activations(network.path, inputs).items():
            most = float(numpy.quantile(numpy.abs(value), share))
            largest[name] = max(largest.get(name, 0.0), most)
    if not largest:
        return {}
    scales = {name: float(numpy.float32(most / 127)) for name, most in largest.items()}
    rows = [f"{n}: {numpy.float32(s).view('u4'):x}" for n, s in scales.items()]
    calibrator.write_calibration_cache(memoryview("\n".join([header, *rows, ""]).encode()))
    return scales


def activations(path: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return every tensor that is a number, by ONNX Runtime; a chain without weights copies."""
    import onnxruntime

    model = onnx.load(path)
    made = [name for node in model.graph.node for name in node.output]
    if any(node.op_type == "Conv" and len(node.input) == 1 for node in model.graph.node):
        return {**inputs, **dict.fromkeys(made, next(iter(inputs.values())))}
    outputs = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in made if n not in outputs)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return {**inputs, **dict(zip(made, session.run(made, inputs), strict=True))}


def install_tensorrt(modules: Any, module: types.ModuleType) -> None:
    """Put the fake where an import finds it."""
    modules.setitem(sys.modules, "tensorrt", module)

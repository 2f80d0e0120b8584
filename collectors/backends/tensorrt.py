"""TensorRT on GPU and DLA, by the API that its versions from 8.5 to 11 share.

An inference is a list of calls with fixed arguments, made in advance: between the clock's two
readings Python only goes through the list and compares the results with those of success.
"""

import ctypes
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ...parsers.errors import PIP_INSTALL, BackendUnavailable, UserError
from ...parsers.inference.events import Lengths, Order, StageName
from ...parsers.inference.layer_precisions import notes_of, read_back, recorded
from ...parsers.inference.layers import LayerProfile, read_layers
from ...parsers.inference.placement import (
    Built,
    group_dla_rows,
    layer_types,
    placement_of,
    wide_layers,
)
from ..board.boards import is_tegra
from ..board.memory import MemoryNeed, obtainable_memory
from ..models.files import facts_of, find_model
from . import calibration, engine_cache
from .base import (
    BUILDS,
    Inferring,
    check_pair,
    device_stages,
    input_shapes,
    make_input,
    require_pure,
)
from .build_turn import clocks_now, turn_to_build
from .cuda_runtime import Cuda, handle_of, is_watched, load_cuda
from .engine_cache import BuiltEngine, EngineCache
from .tensorrt_build import (
    DTYPES,
    Builder,
    check_inputs,
    load_plugins,
    logger_of,
    no_dla,
    open_shape,
    reason_in,
    type_name,
)
from .tensorrt_probe import MODULE, Capabilities, capabilities, import_tensorrt

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class BoundTensor:
    """An input or output of an engine, and its two buffers; ``size`` is in bytes."""

    def __init__(self, name: str, *, is_input: bool, kind: Any, shape: tuple[int, ...]) -> None:
        import numpy

        word = type_name(kind)
        if word not in DTYPES:
            side = "input" if is_input else "output"
            raise UserError(
                f"{side} {name!r} is of type {word}, which numpy has not",
                "export the model with inputs and outputs in fp32 or fp16",
            )
        self.name = name
        self.is_input = is_input
        self.dtype = numpy.dtype(DTYPES[word])
        self.shape = shape
        self.size = prod(shape) * self.dtype.itemsize
        self.on_device = self.on_host = 0

    def host_array(self) -> "NDArray[numpy.generic]":
        """Return the pinned buffer as an array; it is the buffer, not a copy."""
        return self.view(self.shape)

    def view(self, shape: tuple[int, ...]) -> "NDArray[numpy.generic]":
        """Return the pinned buffer as an array of a shape."""
        import numpy

        raw = memoryview((ctypes.c_byte * self.size).from_address(self.on_host)).cast("B")
        return numpy.frombuffer(raw, dtype=self.dtype).reshape(shape)


class EnginePart(NamedTuple):
    """An engine, and one of its contexts: all of a model, or its body, or its head."""

    engine: Any
    context: Any


class Slot:
    """Room for one inference in flight: a stream, its events and buffers, and a context per part.

    Attributes:
        infer: Runs one inference, which is complete when it returns.
        submit: Starts one; ``wait`` returns when it is complete.
        infer_timed: As ``infer``, with the events that ``stages_ns`` reads; ``submit_timed``
            likewise.
        why_no_graph: Why a graph that was asked for could not be captured.
    """

    infer: Callable[[], None]
    infer_timed: Callable[[], None]
    submit: Callable[[], None]
    submit_timed: Callable[[], None]
    wait: Callable[[], None]

    def __init__(self, cuda: Cuda, trt: Any, parts: Sequence[EnginePart], order: Order) -> None:
        """Make the buffers, fill the inputs, and give their addresses to the contexts, once.

        Whatever fails, what was made until then is released.
        """
        self._cuda, self._transfers = cuda, order.transfers
        self._memory = order.memory or "copy"
        self._contexts = [part.context for part in parts]
        # The calls that compute, by stage.
        self._computing: dict[StageName, Callable[[], Any]] = {}
        self._graphs: list[Any] = []
        self.why_no_graph: str | None = None
        self._tensors: list[BoundTensor] = []
        api, check = cuda.api, cuda.check
        with ExitStack() as made:
            self._stream = check(api.cudaStreamCreateWithFlags(api.cudaStreamNonBlocking))
            made.callback(api.cudaStreamDestroy, self._stream)
            self._handle = handle_of(self._stream)
            self._events = []
            self._stages = device_stages(order)
            for _ in range(len(self._stages) + 1):
                self._events.append(check(api.cudaEventCreateWithFlags(0)))
                made.callback(api.cudaEventDestroy, self._events[-1])
            spans = zip(self._events, self._events[1:], strict=False)
            self._elapsed = [partial(api.cudaEventElapsedTime, *ends) for ends in spans]
            self._bind(trt, parts, order, made)
            self._run_once(self._moves(is_input=True))
            self._make_calls()
            self._resources = made.pop_all()

    def _bind(self, trt: Any, parts: Sequence[EnginePart], order: Order, made: ExitStack) -> None:
        """Bind all tensors; one that the body makes and the head reads has one buffer for both."""
        inputs = [_inputs_of(trt, part.engine) for part in parts]
        if len(parts) > 1:
            forms = [_forms_of(part.engine) for part in parts]
            check_pair(forms[0], {name: forms[1][name] for name in inputs[1]})
        of_body = _tensor_names(parts[0].engine)
        declared = dict(inputs[0])
        for name, shape in inputs[-1].items():
            if name not in of_body:
                declared[name] = shape
        self.input_shapes = input_shapes(declared, order)
        shapes, bound = dict(self.input_shapes), dict[str, BoundTensor]()
        for part, read in zip(parts, inputs, strict=True):
            _set_shapes(part.context, {name: shapes[name] for name in read})
            for name in _tensor_names(part.engine):
                if name not in bound:
                    is_input = name in read
                    tensor = _bound_tensor(part, name, is_input=is_input, model=order.model)
                    self._allocate(tensor, made, has_host=is_input or name not in inputs[-1])
                    bound[name], shapes[name] = tensor, tensor.shape
                if not part.context.set_tensor_address(name, bound[name].on_device):
                    raise RuntimeError(f"TensorRT takes no buffer for {name!r}")
        for tensor in self._tensors:
            if tensor.is_input:
                tensor.host_array()[...] = make_input(tensor.name, tensor.dtype.name, tensor.shape)

    def _allocate(self, tensor: BoundTensor, made: ExitStack, *, has_host: bool = True) -> None:
        """Make the two buffers of a tensor, or that of the device alone, until ``made`` closes.

        Mapped and managed memory is one buffer for both.
        """
        api, check, size = self._cuda.api, self._cuda.check, max(1, tensor.size)
        if has_host:
            self._tensors.append(tensor)
        if has_host and self._memory == "mapped":
            tensor.on_host = int(check(api.cudaHostAlloc(size, api.cudaHostAllocMapped)))
            made.callback(api.cudaFreeHost, tensor.on_host)
            tensor.on_device = int(check(api.cudaHostGetDevicePointer(tensor.on_host, 0)))
            return
        if has_host and self._memory != "copy":
            tensor.on_device = int(check(api.cudaMallocManaged(size, api.cudaMemAttachGlobal)))
            made.callback(api.cudaFree, tensor.on_device)
            tensor.on_host = tensor.on_device
            return
        tensor.on_device = int(check(api.cudaMalloc(size)))
        made.callback(api.cudaFree, tensor.on_device)
        if has_host:
            # Pinned, so that the device copies from and to it.
            tensor.on_host = int(check(api.cudaHostAlloc(size, 0)))
            made.callback(api.cudaFreeHost, tensor.on_host)

    def use_graph(self) -> None:
        """Launch inferences as a CUDA graph from now on, or keep on enqueuing and note why.

        An inference must have run: what TensorRT does the first time only must not be captured.
        """
        graphs = []
        try:
            for context in self._contexts:
                graph = self._cuda.capture(self._stream, partial(self._enqueue, context))
                self._resources.callback(self._cuda.api.cudaGraphExecDestroy, graph)
                graphs.append(graph)
        except Exception as error:  # whatever it is, enqueuing works
            self.why_no_graph = " ".join(str(error).split())
            # Forget the error that a failed capture leaves behind, and check that enqueuing works.
            self._cuda.api.cudaGetLastError()
            self.infer()
            return
        self._graphs = graphs
        self._make_calls()

    def stages_ns(self) -> list[int]:
        """Return the device's time of each stage of the last timed inference."""
        return [round(self._cuda.check(elapsed()) * 1e6) for elapsed in self._elapsed]

    def inputs(self) -> "dict[str, NDArray[numpy.generic]]":
        """Return the inputs of the next inference."""
        return {t.name: t.host_array().copy() for t in self._tensors if t.is_input}

    def feed(self, inputs: "Mapping[str, NDArray[numpy.generic]]") -> None:
        """Fill the buffers of the inputs, on the device too."""
        for tensor in self._tensors:
            if tensor.is_input:
                tensor.host_array()[...] = inputs[tensor.name]
        self._run_once(self._moves(is_input=True))

    def outputs(self) -> "dict[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        if not self._transfers:
            self._run_once(self._moves(is_input=False))
        return {t.name: t.host_array().copy() for t in self._tensors if not t.is_input}

    def close(self) -> None:
        """Release everything; the context goes before its buffers."""
        self.infer = self.infer_timed = self.submit = self.submit_timed = self.wait = closed
        self._computing = {}
        self._contexts, self._elapsed, self._tensors = [], [], []
        self._resources.close()

    def profile(
        self, trt: Any, make_context: Callable[[], Any], count: int
    ) -> tuple[list[tuple[str, int]], int]:
        """Return mean nanoseconds by layer in the order of the engine, and the mean of their sum.

        Another context runs in this one's stream and buffers; its first inference does not count.
        """
        times: dict[str, list[float]] = {}
        reports: list[float] = []

        class Profiler(trt.IProfiler):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.IProfiler.__init__(self)

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                times.setdefault(layer_name, []).append(ms)
                reports.append(ms)

        context, profiler = make_context(), Profiler()
        context.profiler = profiler
        for tensor in self._tensors:
            if tensor.is_input:
                context.set_input_shape(tensor.name, tensor.shape)
            context.set_tensor_address(tensor.name, tensor.on_device)
        self._run_once(self._moves(is_input=True))
        for at in range(count + 1):
            self._enqueue(context)
            self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))
            if at == 0:
                times.clear()
                reports.clear()
        del context, profiler  # in this order
        rows = [(name, round(sum(spans) / count * 1e6)) for name, spans in times.items()]
        return rows, round(sum(reports) / count * 1e6)

    def repeat(self, stage: StageName, count: int) -> Callable[[], None]:
        """Return a call that runs one stage so often; the device is done when it returns."""
        if stage not in self._computing:
            return self._calls_of(self._moves(is_input=stage == "h2d") * count)[0]
        calls = [self._computing[stage]] * count
        if self._memory.startswith("managed"):
            # The last inference gave it back to the host.
            calls = [*self._moves(is_input=True), *calls]
        return self._calls_of(calls)[0]

    def _make_calls(self) -> None:
        """Make the calls of an inference, with events and without."""
        api = self._cuda.api
        computing = [partial(one.execute_async_v3, self._handle) for one in self._contexts]
        if self._graphs:
            computing = [partial(api.cudaGraphLaunch, one, self._stream) for one in self._graphs]
        names = [stage for stage in self._stages if stage not in ("h2d", "d2h")]
        self._computing = dict(zip(names, computing, strict=True))
        steps: list[Sequence[Callable[[], Any]]] = [[call] for call in computing]
        if "h2d" in self._stages:
            steps = [self._moves(is_input=True), *steps, self._moves(is_input=False)]
        begin, *ends = [partial(api.cudaEventRecord, one, self._stream) for one in self._events]
        calls: list[Callable[[], Any]] = []
        timed: list[Callable[[], Any]] = [begin]
        for step, end in zip(steps, ends, strict=True):
            calls += step
            timed += [*step, end]
        self.infer, self.submit, self.wait = self._calls_of(calls)
        self.infer_timed, self.submit_timed, _ = self._calls_of(timed)

    def _calls_of(self, calls: Sequence[Callable[[], Any]]) -> tuple[Callable[[], None], ...]:
        """Return a call that makes all of these and waits, one that makes them, and the wait."""
        api = self._cuda.api
        done = (api.cudaError_t.cudaSuccess,)
        good: list[Any] = [done] * len(calls)
        for at, call in enumerate(calls):
            if call in self._computing.values() and not self._graphs:
                good[at] = True  # TensorRT enqueued it
        synchronise = partial(api.cudaStreamSynchronize, self._stream)
        fail = self._fail

        def infer() -> None:
            answers = [call() for call in calls]
            # Compared while the device works: behind its end only what has to be.
            is_bad = answers != good
            end = synchronise()
            if is_bad or end != done:
                fail([*answers, end], [*good, done])

        def submit() -> None:
            answers = [call() for call in calls]
            if answers != good:
                fail(answers, good)

        def wait() -> None:
            answer = synchronise()
            if answer != done:
                fail([answer], [done])

        return infer, submit, wait

    def _moves(self, *, is_input: bool) -> list[Callable[[], Any]]:
        """Return the copies of all inputs to the device, or of all outputs from it.

        Mapped memory has none. Managed memory is handed over instead, inputs and outputs alike.
        """
        if self._memory == "mapped":
            return []
        if self._memory != "copy":
            calls: list[Callable[[], Any]] = []
            for tensor in self._tensors:
                given = (tensor.on_device, max(1, tensor.size), self._stream)
                calls += self._cuda.hand_over(*given, to_device=is_input)
            return calls
        api, kinds = self._cuda.api, self._cuda.api.cudaMemcpyKind
        copies: list[Callable[[], Any]] = []
        for tensor in self._tensors:
            if tensor.is_input != is_input:
                continue
            if is_input:
                ends = (tensor.on_device, tensor.on_host)
                kind = kinds.cudaMemcpyHostToDevice
            else:
                ends = (tensor.on_host, tensor.on_device)
                kind = kinds.cudaMemcpyDeviceToHost
            copies.append(partial(api.cudaMemcpyAsync, *ends, tensor.size, kind, self._stream))
        return copies

    def _run_once(self, calls: Sequence[Callable[[], Any]]) -> None:
        for call in calls:
            self._cuda.check(call())
        self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))

    def _enqueue(self, context: Any) -> None:
        if not context.execute_async_v3(self._handle):
            raise RuntimeError("TensorRT did not enqueue the inference")

    def _fail(self, answers: Sequence[Any], good: Sequence[Any]) -> None:
        """Raise for the first call that did not succeed."""
        for answer, wanted in zip(answers, good, strict=True):
            if answer == wanted:
                continue
            if wanted is not True:
                self._cuda.check(answer)
            # TensorRT returns only a failure; CUDA may have the reason.
            self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))
            self._cuda.check(self._cuda.api.cudaGetLastError())
            raise RuntimeError("TensorRT did not enqueue the inference; see its log")


def _tensor_names(engine: Any) -> list[str]:
    """Return the names of the inputs and outputs of an engine."""
    return [engine.get_tensor_name(at) for at in range(engine.num_io_tensors)]


def _set_shapes(context: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Give a context the shapes of its inputs; raise ``UserError`` if it does not take one."""
    for name, shape in shapes.items():
        if not context.set_input_shape(name, shape):
            raise UserError(
                f"the engine takes no {shape} for input {name!r}", "build it for this shape"
            )


def _bound_tensor(part: EnginePart, name: str, *, is_input: bool, model: str) -> BoundTensor:
    """Return a tensor of a part, at the shapes that its context has; it has no buffers yet."""
    shape = tuple(map(int, part.context.get_tensor_shape(name)))
    if min(shape, default=0) < 0:
        raise depends_on_data(name, Path(model))
    kind = part.engine.get_tensor_dtype(name)
    return BoundTensor(name, is_input=is_input, kind=kind, shape=shape)


def _inputs_of(trt: Any, engine: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the inputs of an engine by name; an open dimension is ``None``."""
    inputs = {}
    for name in _tensor_names(engine):
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            inputs[name] = open_shape(engine.get_tensor_shape(name))
    return inputs


def _forms_of(engine: Any) -> dict[str, str]:
    """Return type and layout of the inputs and outputs of an engine, in words."""
    forms = {}
    for name in _tensor_names(engine):
        layout = engine.get_tensor_format(name).name
        forms[name] = f"{type_name(engine.get_tensor_dtype(name))} {layout}"
    return forms


def _of_model(order: Order, model: Path) -> Order:
    """Return an order for a part of a model, with the shapes of its own inputs only."""
    own = {given.name for given in facts_of(model).inputs}
    shapes = {name: shape for name, shape in order.shapes.items() if name in own}
    return order.model_copy(update={"shapes": shapes})


def _of_head(order: Order, head: Path) -> Order:
    """Return the order for the head of a body: on the GPU, in fp16 if the body is in int8.

    Scales and precisions of layers are those of the body.
    """
    changes: dict[str, object] = {
        "device": "gpu",
        "model": str(head),
        "precision": "fp16" if order.precision == "int8" else order.precision,
        "calibration": None,
        "layer_precisions": {},
        "fallback": "allow",
    }
    return _of_model(order.model_copy(update=changes), head)


# Operators of ONNX whose outputs have as many elements as their inputs' values make.
_OPEN_ENDED = ("Compress", "NonMaxSuppression", "NonZero", "Unique")


def depends_on_data(output: str, model: Path) -> UserError:
    """Return the error for an output whose shape is known only after the inference."""
    found: set[str] = set()
    with suppress(UserError):
        found = {*facts_of(model).operators} & {*_OPEN_ENDED}
    names = ", ".join(sorted(found) or _OPEN_ENDED)
    return UserError(
        f"the shape of output {output!r} depends on the data ({names}), so it has no fixed buffer",
        "let the model end before that operator, or use one with a fixed number of results, as the"
        " plug-in EfficientNMS_TRT has",
    )


def closed() -> None:
    """Raise instead of an inference."""
    raise RuntimeError("the engine is closed")


class TensorRt(Inferring):
    """An ONNX model as an engine of TensorRT, in a slot for each of the order's streams.

    The first inference is enqueued by TensorRT. After it, ``infer`` is the first slot's own call,
    with nothing in between, as ``infer_timed`` is, and ``stages_ns``, which reads CUDA events.

    If the order has a head, that is a second engine on the GPU, in the same streams.
    """

    devices: ClassVar[tuple[str, ...]] = ("gpu", "dla0", "dla1")
    packages = ("tensorrt",)
    uses_tensorrt = True
    repeats_stages = True
    times_layers = True
    runs_heads = True
    chooses_memory = True
    builds = True
    slot_class: ClassVar[type[Slot]] = Slot

    built: Built
    cold_start_ns: dict[str, int]
    infer: Callable[[], None]
    infer_timed: Callable[[], None]
    stages_ns: Callable[[], Sequence[int]]

    def __init__(
        self,
        module: str = MODULE,
        machine: Path = Path("/"),
        ask: Callable[[str], Capabilities] = capabilities,
    ) -> None:
        """Import the libraries; touches no device."""
        self._trt: Any = import_tensorrt(module)
        self._cuda: Cuda = load_cuda()
        try:
            import numpy
        except ImportError as error:
            what = f"numpy cannot be imported ({error})"
            raise BackendUnavailable(what, f"{PIP_INSTALL} numpy") from error
        self._module = module
        self._ask = ask
        self._machine = machine
        self._logger, self._lines = logger_of(self._trt)
        self.versions = {"numpy": numpy.__version__}
        self._heads: list[TensorRt] = []
        self._runtime: Any = None
        self._engine: Any = None
        self.built = Built()
        self._free_bytes = 0
        self._peak_bytes: int | None = None
        self._can = Capabilities()
        self.cold_start_ns = {}
        self.slots: list[Slot] = []
        self.infer = self.infer_timed = closed

    def load(self, model: Path, order: Order) -> None:
        """Find out what this machine can do, and initialise the device."""
        self.check_device(order)
        with self._part("probe"):
            self._can = self._ask(self._module)
        self.versions = {**self._can.versions, **self.versions}
        if order.dla_core is not None and order.dla_core >= (self._can.dla_cores or 0):
            raise self._no_dla(order.dla_core)
        with self._part("cuda_init"):
            self._cuda.initialise()
        if order.memory == "managed" and not self._cuda.is_integrated():
            raise UserError(
                "this GPU has memory of its own, where managed memory is mostly slower than copies",
                "use memory copy or mapped, or managed-anyway",
            )
        self._free_bytes = self._cuda.free_bytes()
        self._plugin_parts = engine_cache.plugin_parts(order.plugins)
        load_plugins(self._trt, order.plugins)
        self._given = order
        self.assign(model, order)
        self.stages = device_stages(order)
        if order.head is not None:
            path = find_model(order.head, Path(order.model_directory))
            head = copy(self)  # Libraries and device are the same.
            head.assign(path, _of_head(order, path))
            self._heads = [head]
            self._order = _of_model(order, model)

    def assign(self, model: Path, order: Order) -> None:
        """Take a model and its order; nothing is built yet."""
        self._order, self._model = order, model
        self.cold_start_ns = dict(self.cold_start_ns)
        self.slots = []

    def build(self) -> None:
        """Find the engine in the cache or build it, and prepare as many slots as streams."""
        order = self._given
        self.obtain()
        if self.built.fallback == "require-pure":
            require_pure(self._model.name, self.built.placement)
        for head in self._heads:
            with self._part("head"):
                head.obtain()
            self._note_head(head.built)
        engines = (self, *self._heads)
        with self._part("context"):
            slots: list[list[EnginePart]] = []
            for _ in range(order.streams):
                slots.append([engine.make_part() for engine in engines])
        with self._part("buffers"):
            for parts in slots:
                self.slots.append(self.slot_class(self._cuda, self._trt, parts, order))
        self.input_shapes = self.slots[0].input_shapes
        self._look_at_memory()
        self._note(
            context_bytes=self._context_bytes(),
            has_cuda_graph=False,
            streams=order.streams,
            has_transfers=order.transfers and order.memory in (None, "copy"),
            memory=order.memory or "copy",
        )
        self.infer = self.infer_timed = self._first_infer
        self.stages_ns = self.slots[0].stages_ns

    def _note_head(self, head: Built) -> None:
        types = Counter(self.built.layer_types) + Counter(head.layer_types)
        notes = [f"head: {note}" for note in head.notes]
        self._note(
            head_engine_key=head.engine_key,
            layer_types=dict(types),
            notes=(*self.built.notes, *notes),
        )

    def _compare(self, need: MemoryNeed) -> None:
        """Tell whether the memory of a Jetson, or else that of the GPU, is enough."""
        free: int | None = self._cuda.free_bytes()
        if is_tegra(self._machine):
            free = obtainable_memory(self._machine)
        if free is None:
            return
        words = need.compare(free)
        self.progress(words)
        if need.size > free:
            print(f"warning: the engine {words}", file=sys.stderr)

    def _context_bytes(self) -> int | None:
        """Return the device memory of one context of the engine, by its newer or older name."""
        size = getattr(self._engine, "device_memory_size_v2", None)
        if size is None:
            size = getattr(self._engine, "device_memory_size", None)
        return size

    def make_part(self) -> EnginePart:
        """Return the engine with a new context."""
        return EnginePart(self._engine, self._make_context())

    def obtain(self) -> None:
        """Find the engine in the cache or build it, and load it."""
        if self._order.engine_directory is None:
            self._take(self._build(None), None)
            return
        cache = EngineCache(Path(self._order.engine_directory))  # scales are kept in it too
        if self._order.calibration_file is not None:
            # An engine whose calibration cache is asked for is only a step on the way.
            self._take(self._build(None), None)
        else:
            self._find_or_build(cache)

    def repeat(self, stage: StageName, count: int) -> Callable[[], None]:
        """Return a call that runs one stage so often, in the stream of the first slot."""
        return self.slots[0].repeat(stage, count)

    def inputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the inputs of the first slot, which are those of all."""
        return self.slots[0].inputs()

    def feed(self, inputs: "Mapping[str, NDArray[numpy.generic]]") -> None:
        """Take other inputs in every slot."""
        for slot in self.slots:
            slot.feed(inputs)

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        return self.slots[0].outputs()

    def profile(self, count: int) -> LayerProfile:
        """Return the mean time of each layer, of so many inferences in a context of their own."""
        if self._heads:
            raise UserError("layers of a body and its head are not timed", "bench each by itself")
        rows, total_ns = self.slots[0].profile(self._trt, self._make_context, count)
        return LayerProfile(
            inferences=count,
            total_ns=total_ns,
            layers_ns=group_dla_rows(rows, self.built.placement.dla_layers),
            layers=read_layers(self._inspect()),
        )

    def device_peak_bytes(self) -> int | None:
        """Return the largest fall of the device's free memory since CUDA was initialised."""
        if self.slots:
            self._look_at_memory()
        return self._peak_bytes

    def close(self) -> None:
        """Release contexts before the engine, and the engine before the runtime."""
        self.infer = self.infer_timed = closed
        slots, self.slots = self.slots, []
        for slot in slots:
            slot.close()
        for head in self._heads:
            head.close()
        self._engine = None
        self._runtime = None

    def _note(self, **facts: object) -> None:
        self.built = self.built.model_copy(update=facts)

    def _no_dla(self, core: int) -> BackendUnavailable:
        return no_dla(core, self._can.dla_cores or 0, self._can.device or "")

    def _find_or_build(self, cache: EngineCache) -> None:
        """Take the engine from the cache; build it if it is missing or does not load."""
        begin_ns = time.monotonic_ns()
        parts = self._key_parts()
        key = engine_cache.engine_key(parts)
        with cache.lock(key, self.progress):
            kept_engine = None if self._order.rebuild else cache.read(key)
            if kept_engine is not None:
                content, sidecar = kept_engine
                self.cold_start_ns["cache_load"] = time.monotonic_ns() - begin_ns
                contexts = (sidecar.built.context_bytes or 0) * self._order.streams
                self._compare(MemoryNeed(len(content) + contexts))
                if self._deserialise(content):
                    self.built = sidecar.built
                    self._note(is_cached=True, **self._request())
                    return
                # It is built again once: a failure then is not due to the cache.
                cache.set_aside(key)
                self.cold_start_ns.pop("cache_load")
                self.cold_start_ns.pop("deserialise")
            version = self._can.versions.get("tensorrt", "unknown")
            timing = f"timing-{self._module}-{version}-sm{self._can.compute_capability}.cache"
            made = self._take(self._build(cache.directory / timing), key)
            name = engine_cache.model_name(self._order.model, self._model)
            cache.write(key, made, model=name, parts=parts)

    def _build(self, timing_cache: Path | None) -> BuiltEngine:
        """Build when no other process of this machine does, and note the circumstances."""
        order = self._order
        check_inputs(self._model, order)
        builder = Builder(self._trt, self._model, order, self.progress)
        with turn_to_build(
            order.timeout_seconds, self.progress, self._machine, self._model, builder.check
        ) as circumstances:
            self.progress(BUILDS)
            free = self._cuda.free_bytes()
            made = builder.build(timing_cache)
            clocks = clocks_now(self._machine, self._cuda.pci_bus_id())
        if circumstances.waited_seconds:
            self.cold_start_ns["build_wait"] = round(circumstances.waited_seconds * 1e9)
        circumstances = circumstances.model_copy(
            update={"free_device_bytes": free, "clocks_hertz": clocks}
        )
        return made.under(circumstances)

    def _request(self) -> dict[str, object]:
        is_dla = self._order.dla_core is not None
        return {
            "requested_precision": self._order.precision,
            "fallback": self._order.fallback if is_dla else None,
        }

    def _take(self, made: BuiltEngine, key: str | None) -> BuiltEngine:
        """Load the engine that was just built; return it with all that is known of it."""
        if not self._deserialise(made.plan):
            raise UserError(
                f"TensorRT does not load the engine that it just built ({reason_in(self._lines)})",
                "send a report with the record of the run: it has the worker's last lines",
            )
        inspector = self._inspect()
        self.built = made.built
        asked = {layer.name: layer.asked for layer in made.built.held_layers}
        held = read_back(inspector, asked)
        self._note(
            held_layers=recorded(held),
            notes=(*made.built.notes, *notes_of(held)),
            layer_types=layer_types(inspector),
            wide_layers=wide_layers(inspector) if made.built.int8_scales else (),
            placement=placement_of(made.log, inspector, self._order.device),
            engine_key=key,
            engine_bytes=len(made.plan),
            context_bytes=self._context_bytes(),
            **self._request(),
        )
        return BuiltEngine(made.plan, self.built, made.log, inspector)

    def _inspect(self) -> str | None:
        """Return the JSON of the loaded engine's inspector, if there is one."""
        inspector = self._engine.create_engine_inspector()
        if inspector is None:
            return None
        form = self._trt.LayerInformationFormat.JSON
        return str(inspector.get_engine_information(form)) or None

    def _deserialise(self, content: bytes) -> bool:
        """Load an engine on the order's device; False where TensorRT does not."""
        with self._part("deserialise"):
            self._lines.clear()
            self._runtime = self._trt.Runtime(self._logger)
            core = self._order.dla_core
            if core is not None:
                self._runtime.DLA_core = core
                if self._runtime.DLA_core != core:
                    raise self._no_dla(core)
            self._engine = self._runtime.deserialize_cuda_engine(content)
        return self._engine is not None

    def _check_outputs(self) -> None:
        """Raise ``UserError`` if an output is open although no input is: it depends on the data.

        TensorRT may make no context for such an engine, and then speaks of something else.
        """
        engine, open_outputs = self._engine, []
        for name in _tensor_names(engine):
            if None in open_shape(engine.get_tensor_shape(name)):
                if engine.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT:
                    return
                open_outputs.append(name)
        if open_outputs:
            raise depends_on_data(open_outputs[0], self._model)

    def _make_context(self) -> Any:
        self._check_outputs()
        context = self._engine.create_execution_context()
        if context is None:
            raise UserError(
                f"TensorRT makes no context for the engine ({reason_in(self._lines)})",
                "free memory of the device, or set streams: 1 or a smaller batch",
            )
        if hasattr(context, "nvtx_verbosity"):
            # Built with detail for the inspector; while it runs, detail only costs time.
            levels = self._trt.ProfilingVerbosity
            context.nvtx_verbosity = levels.LAYER_NAMES_ONLY if is_watched() else levels.NONE
        return context

    def _first_infer(self) -> None:
        """Run the first inference as TensorRT enqueues it; then make the graph, if there is one."""
        for slot in self.slots:
            slot.infer_timed()
        if self._order.cuda_graph:
            with self._part("graph"):
                reason = self._use_graphs()
                self._note(has_cuda_graph=reason is None, why_no_graph=reason)
        self._look_at_memory()
        self.infer, self.infer_timed = self.slots[0].infer, self.slots[0].infer_timed

    def _use_graphs(self) -> str | None:
        """Launch all slots as CUDA graphs from now on; return the reason if one cannot be."""
        if self._order.dla_core is not None:
            return "a CUDA graph cannot hold work for a DLA"
        reason = None
        for slot in self.slots:
            slot.use_graph()
            reason = reason or slot.why_no_graph
        return reason

    def _key_parts(self) -> dict[str, str]:
        """Return all that an engine depends on; one engine serves both cores of a DLA."""
        versions, order = self._can.versions, self._order
        is_dla = order.dla_core is not None
        parts = {
            "model": engine_cache.model_digest(self._model),
            "device": "gpu",
            "batch": str(order.batch),
            "precision": order.precision or "model",
            "fallback": "none",
            "optimization_level": str(order.optimization_level),
            "module": self._module,
            "tensorrt": versions.get("tensorrt", ""),
            "cuda": versions.get("cuda-runtime", ""),
            "sm": self._can.compute_capability or "",
            "gpu": self._can.device or "",
            **calibration.key_parts(order),
            **self._plugin_parts,
            **engine_cache.machine_parts(is_dla=is_dla, root=self._machine),
        }
        if is_dla:
            parts["device"] = "dla"
            # "require-pure" builds as "allow" does and then checks the placement.
            parts["fallback"] = "forbid" if order.fallback == "forbid" else "allow"
            # A DLA's engine of a model with Q/DQ nodes is built without them.
            parts["qdq"] = "translated"
        if order.engine_capability != "standard":
            parts["engine_capability"] = order.engine_capability
        if order.layer_precisions:
            # In their order, of which the last pattern counts.
            parts["layer_precisions"] = json.dumps([*order.layer_precisions.items()])
            parts["precision_constraints"] = order.precision_constraints
        ranges = {name: shape.range for name, shape in sorted(order.shapes.items())}
        if ranges:
            parts["shapes"] = json.dumps(ranges)
            if self._takes_any_batch(ranges):
                parts["batch"] = "any"
        return parts

    def _takes_any_batch(self, ranges: Mapping[str, tuple[Lengths, Lengths, Lengths]]) -> bool:
        """Return whether an engine is for ranges of all open inputs, so for any batch in them."""
        for low, _, high in ranges.values():
            if low == high:
                return False
        for given in facts_of(self._model).inputs:
            if given.is_open and given.name not in ranges:
                return False
        return True

    def _look_at_memory(self) -> None:
        taken = max(0, self._free_bytes - self._cuda.free_bytes())
        self._peak_bytes = max(self._peak_bytes or 0, taken)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Time a part of the cold start."""
        begin_ns = time.monotonic_ns()
        yield
        self.cold_start_ns[name] = time.monotonic_ns() - begin_ns

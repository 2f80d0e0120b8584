"""One execution context of a TensorRT engine, with all that an inference in it needs, bound once.

An inference is a list of calls whose arguments never change. They are made in advance, so that
Python does as little as it can between the clock's two readings: go through the list, and compare
what the calls answered with what they answer when all is well.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ...parsers.errors import Mendable
from ...parsers.inference.events import StageName
from .base import input_shape, make_input
from .cuda_runtime import Cuda, handle_of

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

WITH_TRANSFERS: tuple[StageName, ...] = ("h2d", "compute", "d2h")
COMPUTE_ONLY: tuple[StageName, ...] = ("compute",)

_KINDS = {
    "FLOAT": ("tensor(float)", "float32"),
    "HALF": ("tensor(float16)", "float16"),
    "INT8": ("tensor(int8)", "int8"),
    "INT32": ("tensor(int32)", "int32"),
    "INT64": ("tensor(int64)", "int64"),
    "BOOL": ("tensor(bool)", "bool"),
    "UINT8": ("tensor(uint8)", "uint8"),
}


class BoundTensor:
    """An input or output of an engine, and its two buffers.

    Attributes:
        size: Bytes.
    """

    def __init__(self, name: str, *, is_input: bool, kind: Any, shape: tuple[int, ...]) -> None:
        import numpy

        word = str(getattr(kind, "name", kind)).rpartition(".")[2]
        if word not in _KINDS:
            raise Mendable(
                f"{'input' if is_input else 'output'} {name!r} is of type {word}, which numpy has"
                " not",
                "export the model with inputs and outputs in fp32 or fp16",
            )
        self.name = name
        self.is_input = is_input
        self.kind, dtype = _KINDS[word]
        self.dtype = numpy.dtype(dtype)
        self.shape = shape
        self.size = prod(shape) * self.dtype.itemsize
        self.on_device = 0
        self.on_host = 0

    def host_array(self) -> "NDArray[numpy.generic]":
        """Return the pinned buffer as an array; it is the buffer, not a copy."""
        import numpy

        raw = memoryview((ctypes.c_byte * self.size).from_address(self.on_host)).cast("B")
        return numpy.frombuffer(raw, dtype=self.dtype).reshape(self.shape)


class Slot:
    """Room for one inference in flight: a context, a stream, its events and its buffers.

    Attributes:
        infer: Runs one inference, which is complete when it returns.
        wait: Returns when it is complete.
        why_no_graph: Why none is, where one was asked for.
    """

    infer: Callable[[], None]
    submit: Callable[[], None]
    wait: Callable[[], None]

    def __init__(self, cuda: Cuda, context: Any, *, transfers: bool) -> None:
        """Take a context, and make the stream and the events for it."""
        self._cuda = cuda
        self._context = context
        self._transfers = transfers
        self._graph: Any = None
        self.has_graph = False
        self.why_no_graph: str | None = None
        self.tensors: list[BoundTensor] = []
        self._stream = cuda.stream()
        self._handle = handle_of(self._stream)
        self.stages = WITH_TRANSFERS if transfers else COMPUTE_ONLY
        self._events = [cuda.event() for _ in range(len(self.stages) + 1)]
        elapsed = cuda.api.cudaEventElapsedTime
        self._elapsed = [
            partial(elapsed, begin, end)
            for begin, end in zip(self._events, self._events[1:], strict=False)
        ]

    def bind(self, trt: Any, engine: Any, batch: int) -> None:
        """Make the buffers, fill the inputs, and tell the context of them, once for all."""
        names = [engine.get_tensor_name(at) for at in range(engine.num_io_tensors)]
        given = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        for name in given:
            declared = [None if n < 0 else int(n) for n in engine.get_tensor_shape(name)]
            shape = input_shape(name, declared, batch)
            if not self._context.set_input_shape(name, shape):
                raise Mendable(
                    f"the engine takes no {shape} for input {name!r}", "build it for this batch"
                )
        for name in names:
            shape = tuple(int(length) for length in self._context.get_tensor_shape(name))
            if min(shape, default=0) < 0:
                raise Mendable(
                    f"the shape of output {name!r} depends on the data",
                    "export the model without the operation that makes it so (NonZero, NMS …)",
                )
            kind = engine.get_tensor_dtype(name)
            tensor = BoundTensor(name, is_input=name in given, kind=kind, shape=shape)
            self.tensors.append(tensor)
            tensor.on_device = self._cuda.device_buffer(tensor.size)
            tensor.on_host = self._cuda.pinned_buffer(tensor.size)
            if tensor.is_input:
                tensor.host_array()[...] = make_input(name, tensor.kind, shape)
            if not self._context.set_tensor_address(name, tensor.on_device):
                raise RuntimeError(f"TensorRT takes no buffer for {name!r}")
        self._run_once([*self._copies_in()])
        self._make_calls()

    def use_graph(self) -> None:
        """Launch inferences as a CUDA graph from now on, or keep on enqueuing and say why.

        An inference must have run: what TensorRT does the first time only must not be captured.
        """
        try:
            self._graph = self._cuda.capture(self._stream, self._enqueue)
        except Exception as error:  # whatever it is, enqueuing works
            self.why_no_graph = " ".join(str(error).split())
            self._recover()
            return
        self.has_graph = True
        self._make_calls()

    def stages_ns(self) -> list[int]:
        """Return the device's time of each stage of the last inference."""
        return [round(self._cuda.check(elapsed()) * 1e6) for elapsed in self._elapsed]

    def outputs(self) -> "dict[str, NDArray[numpy.generic]]":
        """Return what the last inference gave."""
        if not self._transfers:
            self._run_once(self._copies_out())
        return {t.name: t.host_array().copy() for t in self.tensors if not t.is_input}

    def close(self) -> None:
        """Give everything back; the context goes before its buffers."""
        self._elapsed = []
        self.infer = self.submit = self.wait = _closed
        self._context = None
        self._cuda.release(
            graphs=[self._graph] if self._graph is not None else [],
            events=self._events,
            streams=[self._stream],
            device=[tensor.on_device for tensor in self.tensors if tensor.on_device],
            pinned=[tensor.on_host for tensor in self.tensors if tensor.on_host],
        )
        self._graph, self._events, self.tensors = None, [], []

    def run_with(self, context: Any) -> Callable[[], None]:
        """Return a call that runs another context in this one's stream and buffers, to its end."""
        for tensor in self.tensors:
            if tensor.is_input:
                context.set_input_shape(tensor.name, tensor.shape)
            context.set_tensor_address(tensor.name, tensor.on_device)

        def run() -> None:
            if not context.execute_async_v3(self._handle):
                raise RuntimeError("TensorRT did not enqueue the inference")
            self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))

        return run

    def _make_calls(self) -> None:
        """Make the list of calls of an inference, and what they answer when all is well."""
        api = self._cuda.api
        if self._graph is None:
            compute: Callable[[], Any] = partial(self._context.execute_async_v3, self._handle)
        else:
            compute = partial(api.cudaGraphLaunch, self._graph, self._stream)
        marks = [partial(api.cudaEventRecord, event, self._stream) for event in self._events]
        calls: list[Callable[[], Any]]
        if self._transfers:
            before, begin, end, after = marks
            calls = [before, *self._copies_in(), begin, compute, end, *self._copies_out(), after]
        else:
            begin, end = marks
            calls = [begin, compute, end]
        done = (api.cudaError_t.cudaSuccess,)
        good: list[Any] = [
            True if call is compute and self._graph is None else done for call in calls
        ]
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

        self.infer, self.submit, self.wait = infer, submit, wait

    def _copies_in(self) -> list[Callable[[], Any]]:
        copy, kind = self._cuda.api.cudaMemcpyAsync, self._cuda.host_to_device
        return [
            partial(copy, tensor.on_device, tensor.on_host, tensor.size, kind, self._stream)
            for tensor in self.tensors
            if tensor.is_input
        ]

    def _copies_out(self) -> list[Callable[[], Any]]:
        copy, kind = self._cuda.api.cudaMemcpyAsync, self._cuda.device_to_host
        return [
            partial(copy, tensor.on_host, tensor.on_device, tensor.size, kind, self._stream)
            for tensor in self.tensors
            if not tensor.is_input
        ]

    def _run_once(self, calls: Sequence[Callable[[], Any]]) -> None:
        for call in calls:
            self._cuda.check(call())
        self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))

    def _enqueue(self) -> None:
        if not self._context.execute_async_v3(self._handle):
            raise RuntimeError("TensorRT did not enqueue the inference")

    def _recover(self) -> None:
        """Forget the error that a failed capture leaves behind, and see that enqueuing works."""
        self._cuda.api.cudaGetLastError()
        self.infer()

    def _fail(self, answers: Sequence[Any], good: Sequence[Any]) -> None:
        """Raise for the first call that did not answer as it should."""
        for answer, wanted in zip(answers, good, strict=True):
            if answer == wanted:
                continue
            if wanted is not True:
                self._cuda.check(answer)
            # TensorRT says only that it failed; CUDA may know more.
            self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))
            self._cuda.check(self._cuda.api.cudaGetLastError())
            raise RuntimeError("TensorRT did not enqueue the inference; see its log")


def _closed() -> None:
    raise RuntimeError("the engine is closed")


def context_bytes(engine: Any) -> int | None:
    """Return the device memory of one context, under the newer name and then the older."""
    for name in ("device_memory_size_v2", "device_memory_size"):
        size = getattr(engine, name, None)
        if size is not None:
            return int(size)
    return None


def inspect(trt: Any, engine: Any) -> str | None:
    """Return the engine as its inspector prints it, JSON of the library's own; ``None`` if not."""
    make: Callable[[], Any] | None = getattr(engine, "create_engine_inspector", None)
    inspector = None if make is None else make()
    if inspector is None:
        return None
    return str(inspector.get_engine_information(trt.LayerInformationFormat.JSON)) or None


def profiler_of(trt: Any, times: dict[str, list[float]]) -> Any:
    """Return a profiler that gathers milliseconds by layer, in the order of the engine."""

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.setdefault(layer_name, []).append(ms)

    return Profiler()


def mean_ns(times: Mapping[str, Sequence[float]], count: int) -> list[tuple[str, int]]:
    """Return mean nanoseconds an inference by layer, in order."""
    return [(name, round(sum(spans) / count * 1e6)) for name, spans in times.items()]

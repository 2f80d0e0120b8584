"""One execution context of a TensorRT engine, with all that an inference in it needs, bound once.

An inference is a list of calls whose arguments never change. They are made in advance, so that
Python does as little as it can between the clock's two readings: go through the list, and compare
the results of the calls with those of success.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ...parsers.errors import UserError
from .base import device_stages, input_shape, make_input
from .cuda_runtime import Cuda, handle_of
from .tensorrt_build import type_name

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

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
    """An input or output of an engine, and its two buffers; ``size`` is in bytes."""

    def __init__(self, name: str, *, is_input: bool, kind: Any, shape: tuple[int, ...]) -> None:
        import numpy

        word = type_name(kind)
        if word not in _KINDS:
            side = "input" if is_input else "output"
            raise UserError(
                f"{side} {name!r} is of type {word}, which numpy has not",
                "export the model with inputs and outputs in fp32 or fp16",
            )
        self.name = name
        self.is_input = is_input
        self.kind, dtype = _KINDS[word]
        self.dtype = numpy.dtype(dtype)
        self.shape = shape
        self.size = prod(shape) * self.dtype.itemsize
        self.on_device = self.on_host = 0

    def host_array(self) -> "NDArray[numpy.generic]":
        """Return the pinned buffer as an array; it is the buffer, not a copy."""
        import numpy

        raw = memoryview((ctypes.c_byte * self.size).from_address(self.on_host)).cast("B")
        return numpy.frombuffer(raw, dtype=self.dtype).reshape(self.shape)


class Slot:
    """Room for one inference in flight: a context, a stream, its events and its buffers.

    Attributes:
        infer: Runs one inference, which is complete when it returns.
        wait: Returns when the submitted inference is complete.
        why_no_graph: Why a graph that was asked for could not be captured.
    """

    infer: Callable[[], None]
    submit: Callable[[], None]
    wait: Callable[[], None]

    def __init__(self, cuda: Cuda, context: Any, *, transfers: bool) -> None:
        self._cuda = cuda
        self._context = context
        self._transfers = transfers
        self._graph: Any = None
        self.why_no_graph: str | None = None
        self.tensors: list[BoundTensor] = []
        self._stream = cuda.stream()
        self._handle = handle_of(self._stream)
        self._events = [cuda.event() for _ in range(len(device_stages(transfers)) + 1)]
        elapsed = cuda.api.cudaEventElapsedTime
        self._elapsed = [
            partial(elapsed, begin, end)
            for begin, end in zip(self._events, self._events[1:], strict=False)
        ]

    def bind(self, trt: Any, engine: Any, batch: int) -> None:
        """Make the buffers, fill the inputs, and give their addresses to the context, once."""
        names = [engine.get_tensor_name(at) for at in range(engine.num_io_tensors)]
        given = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        for name in given:
            declared = [None if n < 0 else int(n) for n in engine.get_tensor_shape(name)]
            shape = input_shape(name, declared, batch)
            if not self._context.set_input_shape(name, shape):
                raise UserError(
                    f"the engine takes no {shape} for input {name!r}", "build it for this batch"
                )
        for name in names:
            shape = tuple(int(length) for length in self._context.get_tensor_shape(name))
            if min(shape, default=0) < 0:
                raise UserError(
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
        self._run_once(self._copies(is_input=True))
        self._make_calls()

    def use_graph(self) -> None:
        """Launch inferences as a CUDA graph from now on, or keep on enqueuing and note why.

        An inference must have run: what TensorRT does the first time only must not be captured.
        """
        try:
            self._graph = self._cuda.capture(self._stream, partial(self._enqueue, self._context))
        except Exception as error:  # whatever it is, enqueuing works
            self.why_no_graph = " ".join(str(error).split())
            # Forget the error that a failed capture leaves behind, and check that enqueuing works.
            self._cuda.api.cudaGetLastError()
            self.infer()
            return
        self._make_calls()

    def stages_ns(self) -> list[int]:
        """Return the device's time of each stage of the last inference."""
        return [round(self._cuda.check(elapsed()) * 1e6) for elapsed in self._elapsed]

    def outputs(self) -> "dict[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        if not self._transfers:
            self._run_once(self._copies(is_input=False))
        return {t.name: t.host_array().copy() for t in self.tensors if not t.is_input}

    def close(self) -> None:
        """Release everything; the context goes before its buffers."""
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
            self._enqueue(context)
            self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))

        return run

    def _make_calls(self) -> None:
        """Make the list of calls of an inference, and of their results on success."""
        api = self._cuda.api
        if self._graph is None:
            compute: Callable[[], Any] = partial(self._context.execute_async_v3, self._handle)
        else:
            compute = partial(api.cudaGraphLaunch, self._graph, self._stream)
        marks = [partial(api.cudaEventRecord, event, self._stream) for event in self._events]
        calls: list[Callable[[], Any]]
        if self._transfers:
            before, begin, end, after = marks
            copies_in, copies_out = self._copies(is_input=True), self._copies(is_input=False)
            calls = [before, *copies_in, begin, compute, end, *copies_out, after]
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

    def _copies(self, *, is_input: bool) -> list[Callable[[], Any]]:
        """Return the copies of all inputs to the device, or of all outputs from it."""
        copy = self._cuda.api.cudaMemcpyAsync
        calls: list[Callable[[], Any]] = []
        for tensor in self.tensors:
            if tensor.is_input == is_input:
                ends, kind = (tensor.on_host, tensor.on_device), self._cuda.device_to_host
                if is_input:
                    ends, kind = (tensor.on_device, tensor.on_host), self._cuda.host_to_device
                calls.append(partial(copy, *ends, tensor.size, kind, self._stream))
        return calls

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
    """Return the engine as JSON of its inspector; ``None`` without one."""
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

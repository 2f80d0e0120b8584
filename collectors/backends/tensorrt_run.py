"""One execution context of a TensorRT engine, with all that an inference in it needs, bound once.

An inference is a list of calls with fixed arguments, made in advance: between the clock's two
readings Python only goes through the list and compares the results with those of success.
"""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ...parsers.errors import UserError
from ...parsers.inference.events import Order, StageName
from .base import device_stages, input_shape, make_input
from .cuda_runtime import Cuda, handle_of
from .tensorrt_build import type_name

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_DTYPES = {"FLOAT": "float32", "HALF": "float16"}
_DTYPES |= {word: word.lower() for word in ("INT8", "INT32", "INT64", "BOOL", "UINT8")}


class _BoundTensor:
    """An input or output of an engine, and its two buffers; ``size`` is in bytes."""

    def __init__(self, name: str, *, is_input: bool, kind: Any, shape: tuple[int, ...]) -> None:
        import numpy

        word = type_name(kind)
        if word not in _DTYPES:
            side = "input" if is_input else "output"
            raise UserError(
                f"{side} {name!r} is of type {word}, which numpy has not",
                "export the model with inputs and outputs in fp32 or fp16",
            )
        self.name = name
        self.is_input = is_input
        self.dtype = numpy.dtype(_DTYPES[word])
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
        submit: Starts one; ``wait`` returns when it is complete.
        why_no_graph: Why a graph that was asked for could not be captured.
    """

    infer: Callable[[], None]
    submit: Callable[[], None]
    wait: Callable[[], None]
    _compute: Callable[[], Any]

    def __init__(self, cuda: Cuda, trt: Any, engine: Any, context: Any, order: Order) -> None:
        """Make the buffers, fill the inputs, and give their addresses to the context, once.

        Whatever fails, what was made until then is released.
        """
        self._cuda, self._context, self._transfers = cuda, context, order.transfers
        self._graph: Any = None
        self.why_no_graph: str | None = None
        self._tensors: list[_BoundTensor] = []
        api, check = cuda.api, cuda.check
        with ExitStack() as made:
            self._stream = check(api.cudaStreamCreateWithFlags(api.cudaStreamNonBlocking))
            made.callback(api.cudaStreamDestroy, self._stream)
            self._handle = handle_of(self._stream)
            self._events = []
            for _ in range(len(device_stages(order.transfers)) + 1):
                self._events.append(check(api.cudaEventCreateWithFlags(0)))
                made.callback(api.cudaEventDestroy, self._events[-1])
            spans = zip(self._events, self._events[1:], strict=False)
            self._elapsed = [partial(api.cudaEventElapsedTime, *ends) for ends in spans]
            self._bind(trt, engine, order.batch, made)
            self._run_once(self._copies(is_input=True))
            self._make_calls()
            self._resources = made.pop_all()

    def _bind(self, trt: Any, engine: Any, batch: int, made: ExitStack) -> None:
        api, check, context = self._cuda.api, self._cuda.check, self._context
        names = [engine.get_tensor_name(at) for at in range(engine.num_io_tensors)]
        given = [name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT]
        for name in given:
            declared = [None if n < 0 else int(n) for n in engine.get_tensor_shape(name)]
            shape = input_shape(name, declared, batch)
            if not context.set_input_shape(name, shape):
                raise UserError(
                    f"the engine takes no {shape} for input {name!r}", "build it for this batch"
                )
        for name in names:
            shape = tuple(int(length) for length in context.get_tensor_shape(name))
            if min(shape, default=0) < 0:
                raise UserError(
                    f"the shape of output {name!r} depends on the data",
                    "export the model without the operation that makes it so (NonZero, NMS …)",
                )
            kind = engine.get_tensor_dtype(name)
            tensor = _BoundTensor(name, is_input=name in given, kind=kind, shape=shape)
            self._tensors.append(tensor)
            tensor.on_device = int(check(api.cudaMalloc(max(1, tensor.size))))
            made.callback(api.cudaFree, tensor.on_device)
            # Pinned, so that the device copies from and to it.
            tensor.on_host = int(check(api.cudaHostAlloc(max(1, tensor.size), 0)))
            made.callback(api.cudaFreeHost, tensor.on_host)
            if tensor.is_input:
                tensor.host_array()[...] = make_input(name, tensor.dtype.name, shape)
            if not context.set_tensor_address(name, tensor.on_device):
                raise RuntimeError(f"TensorRT takes no buffer for {name!r}")

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
        self._resources.callback(self._cuda.api.cudaGraphExecDestroy, self._graph)
        self._make_calls()

    def stages_ns(self) -> list[int]:
        """Return the device's time of each stage of the last inference."""
        return [round(self._cuda.check(elapsed()) * 1e6) for elapsed in self._elapsed]

    def outputs(self) -> "dict[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        if not self._transfers:
            self._run_once(self._copies(is_input=False))
        return {t.name: t.host_array().copy() for t in self._tensors if not t.is_input}

    def close(self) -> None:
        """Release everything; the context goes before its buffers."""
        self.infer = self.submit = self.wait = closed
        self._context = None
        self._elapsed, self._tensors = [], []
        self._resources.close()

    def profile(
        self, trt: Any, make_context: Callable[[], Any], count: int
    ) -> list[tuple[str, int]]:
        """Return mean nanoseconds by layer, in the order of the engine.

        Another context runs in this one's stream and buffers; its first inference does not count.
        """
        times: dict[str, list[float]] = {}

        class Profiler(trt.IProfiler):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.IProfiler.__init__(self)

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                times.setdefault(layer_name, []).append(ms)

        context, profiler = make_context(), Profiler()
        context.profiler = profiler
        for tensor in self._tensors:
            if tensor.is_input:
                context.set_input_shape(tensor.name, tensor.shape)
            context.set_tensor_address(tensor.name, tensor.on_device)
        for at in range(count + 1):
            self._enqueue(context)
            self._cuda.check(self._cuda.api.cudaStreamSynchronize(self._stream))
            if at == 0:
                times.clear()
        del context, profiler  # in this order
        return [(name, round(sum(spans) / count * 1e6)) for name, spans in times.items()]

    def repeat(self, stage: StageName, count: int) -> Callable[[], None]:
        """Return a call that runs one stage so often; the device is done when it returns."""
        stages = {"h2d": self._copies(is_input=True), "d2h": self._copies(is_input=False)}
        return self._calls_of((stages | {"compute": [self._compute]})[stage] * count)[0]

    def _make_calls(self) -> None:
        """Make the calls of an inference."""
        api = self._cuda.api
        compute = self._compute = partial(self._context.execute_async_v3, self._handle)
        if self._graph is not None:
            compute = self._compute = partial(api.cudaGraphLaunch, self._graph, self._stream)
        marks = [partial(api.cudaEventRecord, event, self._stream) for event in self._events]
        before, *between, after = marks
        calls: list[Callable[[], Any]] = [before, compute, after]
        if self._transfers:
            begin, end = between
            copies_in, copies_out = self._copies(is_input=True), self._copies(is_input=False)
            calls = [before, *copies_in, begin, compute, end, *copies_out, after]
        self.infer, self.submit, self.wait = self._calls_of(calls)

    def _calls_of(self, calls: Sequence[Callable[[], Any]]) -> tuple[Callable[[], None], ...]:
        """Return a call that makes all of these and waits, one that makes them, and the wait."""
        api = self._cuda.api
        done = (api.cudaError_t.cudaSuccess,)
        enqueue = self._compute if self._graph is None else None
        good: list[Any] = [True if call is enqueue else done for call in calls]
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

    def _copies(self, *, is_input: bool) -> list[Callable[[], Any]]:
        """Return the copies of all inputs to the device, or of all outputs from it."""
        api, kinds = self._cuda.api, self._cuda.api.cudaMemcpyKind
        kind = kinds.cudaMemcpyHostToDevice if is_input else kinds.cudaMemcpyDeviceToHost
        return [
            partial(
                api.cudaMemcpyAsync,
                tensor.on_device if is_input else tensor.on_host,
                tensor.on_host if is_input else tensor.on_device,
                *(tensor.size, kind, self._stream),
            )
            for tensor in self._tensors
            if tensor.is_input == is_input
        ]

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


def closed() -> None:
    """Raise instead of an inference."""
    raise RuntimeError("the engine is closed")

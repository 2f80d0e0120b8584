"""TensorRT plans in the plainest loop, a truth that uses nothing of tegrascope."""

import ctypes
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy

# The counter steps every 100 ms. A reading takes milliseconds itself.
_POLL_SECONDS = 0.004


def call(answer: tuple[Any, ...]) -> Any:
    """Return the values of a call of the CUDA runtime; end the program if it failed."""
    error, *values = answer
    if int(error) != 0:
        sys.exit(f"CUDA returned {error}")
    return values[0] if values else None


class Plan:
    """A deserialised plan, and what TensorRT's inspector prints of its layers."""

    def __init__(self, path: Path) -> None:
        import tensorrt

        logger = tensorrt.Logger(tensorrt.Logger.ERROR)
        tensorrt.init_libnvinfer_plugins(logger, "")
        self._runtime = tensorrt.Runtime(logger)
        self.engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        text = self.engine.create_engine_inspector().get_engine_information(
            tensorrt.LayerInformationFormat.JSON
        )
        self.layers = json.loads(text, strict=False)["Layers"]

    def kinds(self) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Return name, types of inputs and types of outputs of each layer."""
        key = "Format/Datatype"
        return [
            (one["Name"], *(tuple(t[key] for t in one[ends]) for ends in ("Inputs", "Outputs")))
            for one in self.layers
        ]


class Slot:
    """One inference in flight: a context, a stream, pinned and device buffers, a CUDA graph."""

    def __init__(self, plan: Plan) -> None:
        import tensorrt
        from cuda.bindings import runtime as cuda

        self._cuda, engine = cuda, plan.engine
        self._context = engine.create_execution_context()
        self._stream = call(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}
        copies: list[tuple[bool, int, int, int]] = []
        for at in range(engine.num_io_tensors):
            name = engine.get_tensor_name(at)
            shape = tuple(engine.get_tensor_shape(name))
            dtype = numpy.dtype(tensorrt.nptype(engine.get_tensor_dtype(name)))
            size = int(numpy.prod(shape)) * dtype.itemsize
            on_device, on_host = call(cuda.cudaMalloc(size)), call(cuda.cudaHostAlloc(size, 0))
            self._context.set_tensor_address(name, int(on_device))
            memory = (ctypes.c_char * size).from_address(int(on_host))
            array = numpy.frombuffer(memory, dtype).reshape(shape)
            is_input = engine.get_tensor_mode(name) == tensorrt.TensorIOMode.INPUT
            (self.inputs if is_input else self.outputs)[name] = array
            copies.append((is_input, int(on_device), int(on_host), size))
        kinds = cuda.cudaMemcpyKind

        def work() -> None:
            for is_input, on_device, on_host, size in copies:
                if is_input:
                    kind = kinds.cudaMemcpyHostToDevice
                    call(cuda.cudaMemcpyAsync(on_device, on_host, size, kind, self._stream))
            self._context.execute_async_v3(int(self._stream))
            for is_input, on_device, on_host, size in copies:
                if not is_input:
                    kind = kinds.cudaMemcpyDeviceToHost
                    call(cuda.cudaMemcpyAsync(on_host, on_device, size, kind, self._stream))

        work()
        call(cuda.cudaStreamSynchronize(self._stream))
        mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        call(cuda.cudaStreamBeginCapture(self._stream, mode))
        work()
        graph = call(cuda.cudaStreamEndCapture(self._stream))
        self._ready = call(cuda.cudaGraphInstantiateWithFlags(graph, 0))
        self._begin_ns = 0

    def start(self) -> None:
        """Start an inference."""
        self._begin_ns = time.perf_counter_ns()
        self._cuda.cudaGraphLaunch(self._ready, self._stream)

    def wait(self) -> float:
        """Wait until the inference is complete; return its latency in seconds."""
        self._cuda.cudaStreamSynchronize(self._stream)
        return (time.perf_counter_ns() - self._begin_ns) / 1e9


class Measured(NamedTuple):
    """Median latency, inferences per second, mean power by the counter, mean load of the GPU."""

    latency_seconds: float
    per_second: float
    watts: float
    load: float


class Counter:
    """The GPU's own energy counter and load, read in a thread."""

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        self._ticks: list[tuple[float, float]] = []
        self._loads: list[tuple[float, float]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        last = None
        while True:
            joules = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu) / 1e3
            now = time.monotonic()
            if joules != last:
                self._ticks.append((now, joules))
                last = joules
            load = self._nvml.nvmlDeviceGetUtilizationRates(self._gpu).gpu / 100
            self._loads.append((now, load))
            time.sleep(_POLL_SECONDS)

    def watts(self, begin: float, end: float) -> float:
        """Return the mean power between the first and the last step of the counter in a time."""
        inside = [one for one in self._ticks if begin <= one[0] <= end]
        if len(inside) < 5:
            return float("nan")
        return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])

    def joules(self, begin: float, end: float) -> float:
        """Return the energy of a time, its edges between two steps of the counter."""
        at, joules = zip(*self._ticks, strict=True)
        edges = numpy.interp((begin, end), at, joules)
        return float(edges[1] - edges[0])

    def load(self, begin: float, end: float) -> float:
        """Return the mean load in a time."""
        return float(numpy.mean([load for at, load in self._loads if begin <= at <= end]))


def measure(plan: Plan, streams: int, counter: Counter, seconds: float) -> Measured:
    """Infer back to back, so many at once, for so long after 0.6 s of warm-up."""
    slots = [Slot(plan) for _ in range(streams)]
    for slot in slots:
        for array in slot.inputs.values():
            array[...] = numpy.random.RandomState(1).uniform(-1, 1, array.shape)
    latencies: list[float] = []
    begin = time.monotonic() + 0.6
    for slot in slots:
        slot.start()
    number = 0
    while (now := time.monotonic()) < begin + seconds:
        slot = slots[number % streams]
        latency = slot.wait()
        slot.start()
        number += 1
        if now >= begin:
            latencies.append(latency)
    end = time.monotonic()
    for slot in slots:
        slot.wait()
    rate = len(latencies) / (end - begin)
    median = float(numpy.median(latencies))
    return Measured(median, rate, counter.watts(begin, end), counter.load(begin + 0.3, end))


def outputs_of(plan: Plan, inputs: Any) -> Any:
    """Return the first output for each of so many inputs of a plan with one input."""
    slot = Slot(plan)
    (given,), results = slot.inputs.values(), []
    (answer, *_) = slot.outputs.values()
    for at in range(0, len(inputs), len(given)):
        some = inputs[at : at + len(given)]
        given[...] = 0
        given[: len(some)] = some
        slot.start()
        slot.wait()
        results.append(answer[: len(some)].copy())
    return numpy.concatenate(results)

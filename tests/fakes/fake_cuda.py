"""cuda-python as far as tegrascope uses it: codes in tuples, nothing raised, two sets of names."""

import enum
import sys
import types
import warnings
from typing import Any

from .fake_device import FakeDevice

NAMES = (
    *("cudaSuccess", "cudaErrorInvalidValue", "cudaErrorMemoryAllocation"),
    *("cudaErrorInsufficientDriver", "cudaErrorNoDevice", "cudaErrorIllegalAddress"),
    *("cudaErrorStreamCaptureUnsupported", "cudaErrorLaunchFailure"),
)


class cudaError_t(enum.IntEnum):
    """The codes; only the first has a number that anyone relies on."""

    _ignore_ = "at name"
    for at, name in enumerate(NAMES):
        vars()[name] = at


class cudaMemcpyKind(enum.IntEnum):
    """Directions of a copy."""

    cudaMemcpyHostToDevice = 1
    cudaMemcpyDeviceToHost = 2


class cudaStreamCaptureMode(enum.IntEnum):
    """Whose calls a capture watches."""

    cudaStreamCaptureModeGlobal = 0
    cudaStreamCaptureModeThreadLocal = 1


class Handle:
    """A stream, an event or a graph: the binding wraps an address in an object."""

    _next = 4096

    def __init__(self, kind: str) -> None:
        Handle._next += 16
        self.address = Handle._next
        self.kind = kind
        self.at_ns: int | None = None
        self.work: list[Any] = []

    def __int__(self) -> int:
        return self.address


class cudaMemLocationType(enum.IntEnum):
    """Where managed memory moves, from CUDA 13 on."""

    cudaMemLocationTypeDevice = 1
    cudaMemLocationTypeHost = 2


class cudaMemLocation:
    """A place of memory: a device by its number, or the host."""

    type: Any = None
    id = 0


class Properties:
    """Of a device; the name is bytes of a fixed length, as the binding gives it."""

    name = b"Fake Orin\0\0\0"
    major, minor = 8, 7

    def __init__(self, device: FakeDevice) -> None:
        self.integrated = int(device.is_integrated)
        self.concurrentManagedAccess = int(device.concurrent_managed_access)


def make_cuda(device: FakeDevice, name: str = "cuda.bindings.runtime") -> types.ModuleType:
    """Return a module with the runtime's calls, working on a fake device."""
    module = types.ModuleType(name)
    module.__dict__.update(
        cudaError_t=cudaError_t,
        cudaMemcpyKind=cudaMemcpyKind,
        cudaStreamCaptureMode=cudaStreamCaptureMode,
        cudaStreamNonBlocking=1,
        cudaHostAllocMapped=2,
        cudaMemAttachGlobal=1,
        cudaMemAttachHost=2,
        cudaCpuDeviceId=-1,
        cudaMemLocation=cudaMemLocation,
        cudaMemLocationType=cudaMemLocationType,
    )

    def call(function: Any) -> Any:
        """Add a call that answers as the library does, and fails where the test says so."""
        title = function.__name__

        def answer(*given: Any) -> tuple[Any, ...]:
            device.calls.append(title)
            if title == "cudaStreamSynchronize":
                device.wait()
            error = device.failing.get(title)
            if error is not None:
                device.last_error = error
                values = 0 if title in _WITHOUT_VALUE else 2 if title == "cudaMemGetInfo" else 1
                return (cudaError_t[error], *[None] * values)
            made = function(*given)
            values = () if made is None else made if isinstance(made, tuple) else (made,)
            return (cudaError_t.cudaSuccess, *values)

        setattr(module, title, answer)
        return answer

    def make(kind: str) -> Handle:
        handle = Handle(kind)
        device.things.add(f"{kind} {handle.address}")
        return handle

    def drop(handle: Handle) -> None:
        device.things.remove(f"{handle.kind} {handle.address}")

    @call
    def cudaSetDevice(_: int) -> None: ...
    @call
    def cudaFree(address: int) -> None:
        if address:
            device.release(address)

    @call
    def cudaFreeHost(address: int) -> None:
        device.release(address)

    @call
    def cudaGetErrorName(code: int) -> bytes:
        return cudaError_t(code).name.encode()

    @call
    def cudaGetErrorString(code: int) -> bytes:
        return f"what {cudaError_t(code).name} means".encode()

    @call
    def cudaGetDeviceProperties(_: int) -> Properties:
        return Properties(device)

    @call
    def cudaRuntimeGetVersion() -> int:
        return device.cuda_version

    @call
    def cudaDriverGetVersion() -> int:
        return 12060

    @call
    def cudaMemGetInfo() -> tuple[int, int]:
        return device.free_bytes, 16_000_000_000

    @call
    def cudaStreamCreateWithFlags(flags: int) -> Handle:
        assert flags == 1, "a blocking stream makes TensorRT synchronise the device"
        return make("stream")

    @call
    def cudaEventCreateWithFlags(_: int) -> Handle:
        return make("event")

    @call
    def cudaMalloc(size: int) -> int:
        return device.allocate(size, on_device=True)

    @call
    def cudaHostAlloc(size: int, flags: int) -> int:
        address = device.allocate(size, on_device=False)
        if flags & 2:
            device.owners[address] = "both"
        return address

    @call
    def cudaHostGetDevicePointer(address: int, flags: int) -> int:
        assert flags == 0
        assert device.owners[address] == "both"
        return address

    @call
    def cudaMallocManaged(size: int, flags: int) -> int:
        assert flags == 1
        address = device.allocate(size, on_device=True)
        device.owners[address] = "device"
        return address

    @call
    def cudaStreamAttachMemAsync(_: Handle, address: int, length: int, owner: int) -> None:
        assert length == 0, "only a whole allocation can be attached"
        assert device.owners[address] != "both"
        assert device.captured is None, "CUDA cannot capture it"
        device.owners[address] = {1: "device", 2: "host"}[owner]

    @call
    def cudaMemPrefetchAsync(address: int, size: int, place: Any, *others: Any) -> None:
        assert device.concurrent_managed_access, "an Orin refuses it"
        assert len(device.memory[address]) == size
        is_device = place == 0
        if device.cuda_version >= 13000:
            assert others[0] == 0
            is_device = place.type == cudaMemLocationType.cudaMemLocationTypeDevice
        assert isinstance(others[-1], Handle)
        device.owners[address] = "device" if is_device else "host"
        device.now_ns += device.copy_ns

    @call
    def cudaMemcpyAsync(to: int, source: int, size: int, _kind: int, _stream: Handle) -> None:
        device.move(to, source, size)

    @call
    def cudaMemcpy(to: int, source: int, size: int, kind: int) -> None:
        assert kind == cudaMemcpyKind.cudaMemcpyHostToDevice
        device.move(to, source, size)

    @call
    def cudaEventRecord(event: Handle, _: Handle) -> None:
        event.at_ns = device.now_ns

    @call
    def cudaEventElapsedTime(begin: Handle, end: Handle) -> float:
        assert begin.at_ns is not None
        assert end.at_ns is not None
        return (end.at_ns - begin.at_ns) / 1e6

    @call
    def cudaStreamSynchronize(_: Handle) -> None: ...
    @call
    def cudaStreamBeginCapture(_: Handle, mode: int) -> None:
        assert mode == cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        device.captured = []

    def cudaStreamEndCapture(_: Handle) -> tuple[Any, ...]:
        work, device.captured = device.captured, None
        if device.refuses_capture or not work:
            device.last_error = "cudaErrorStreamCaptureUnsupported"
            return cudaError_t.cudaErrorStreamCaptureUnsupported, None
        graph = make("graph")
        graph.work = work
        return cudaError_t.cudaSuccess, graph

    module.__dict__["cudaStreamEndCapture"] = cudaStreamEndCapture

    @call
    def cudaGraphInstantiateWithFlags(graph: Handle, flags: int) -> Handle:
        assert flags == 0
        ready = make("executable")
        ready.work = graph.work
        return ready

    @call
    def cudaGraphLaunch(ready: Handle, _: Handle) -> None:
        for work in ready.work:
            work()

    @call
    def cudaGraphDestroy(graph: Handle) -> None:
        drop(graph)

    @call
    def cudaGraphExecDestroy(ready: Handle) -> None:
        drop(ready)

    @call
    def cudaEventDestroy(event: Handle) -> None:
        drop(event)

    @call
    def cudaStreamDestroy(stream: Handle) -> None:
        drop(stream)

    def cudaGetLastError() -> tuple[Any, ...]:
        code, device.last_error = cudaError_t[device.last_error], "cudaSuccess"
        return (code,)

    module.__dict__["cudaGetLastError"] = cudaGetLastError
    return module


_WITHOUT_VALUE = {
    *("cudaSetDevice", "cudaFree", "cudaFreeHost", "cudaMemcpyAsync", "cudaEventRecord"),
    *("cudaStreamAttachMemAsync", "cudaMemPrefetchAsync"),
    *("cudaMemcpy", "cudaStreamSynchronize", "cudaStreamBeginCapture", "cudaGraphLaunch"),
}


def install_cuda(modules: Any, device: FakeDevice, *, old: bool = False) -> None:
    """Put the fake where an import finds it, under the new names or the old one.

    Args:
        modules: ``sys.modules``, or what puts items into it for one test.
        device: What it works on.
        old: As cuda-python up to 12.2: no ``cuda.bindings``.
    """
    setter = getattr(modules, "setitem", None)

    def put(name: str, module: Any) -> None:
        if setter is None:
            modules[name] = module
        else:
            setter(sys.modules, name, module)

    put("cuda", types.ModuleType("cuda"))
    if old:
        for name in ("cuda.bindings", "cuda.bindings.runtime", "cuda.bindings.utils"):
            put(name, None)
        put("cuda.cudart", make_cuda(device, "cuda.cudart"))
        return
    utils = types.ModuleType("cuda.bindings.utils")
    utils.__dict__["get_cuda_native_handle"] = lambda thing: thing.address
    put("cuda.bindings", types.ModuleType("cuda.bindings"))
    put("cuda.bindings.utils", utils)
    put("cuda.bindings.runtime", make_cuda(device))
    put("cuda.cudart", None)


def warn_of_the_old_name() -> None:
    """Do what ``cuda.cudart`` of 12.6 to 12.9 does on import."""
    warnings.warn("cuda.cudart is deprecated; use cuda.bindings.runtime", FutureWarning, 2)

"""The few calls of the CUDA runtime that an inference needs, over cuda-python old and new.

New is ``cuda.bindings.runtime`` (from 11.8.4 and 12.6.1 on), old is ``cuda.cudart``. Both answer a
tuple whose first item is an error code and raise nothing; ``Cuda.check`` is the one place that
turns a code into an exception.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ...parsers.errors import BackendUnavailable, DeviceLostError

_MODULES = ("cuda.bindings.runtime", "cuda.cudart")
_INSTALL = (
    "pip install cuda-python, of the major version of your CUDA (cuda-python<13 on JetPack 6)"
)
_NO_DRIVER = {
    *("cudaErrorInsufficientDriver", "cudaErrorNoDevice", "cudaErrorInitializationError"),
    *("cudaErrorStubLibrary", "cudaErrorSystemDriverMismatch", "cudaErrorSystemNotReady"),
    *("cudaErrorCompatNotSupportedOnDevice", "cudaErrorDevicesUnavailable"),
}
# After one of these the process can do nothing more with the device: only a new one can.
_FATAL = {
    *("cudaErrorAssert", "cudaErrorContained", "cudaErrorECCUncorrectable"),
    *("cudaErrorExternalDevice", "cudaErrorHardwareStackError", "cudaErrorIllegalAddress"),
    *("cudaErrorIllegalInstruction", "cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc"),
    *("cudaErrorLaunchFailure", "cudaErrorLaunchTimeout", "cudaErrorMisalignedAddress"),
    *("cudaErrorMpsClientTerminated", "cudaErrorTensorMemoryLeak"),
}


class CudaError(RuntimeError):
    """A call of the CUDA runtime failed.

    Attributes:
        name: Name of the code, such as ``cudaErrorMemoryAllocation``.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class CudaLostError(CudaError, DeviceLostError):
    """A failure after which this process cannot use the device any more."""


class Cuda:
    """The CUDA runtime of this process, on its first visible device.

    The methods here are for setting up and tearing down. The calls of each inference are
    taken from ``api`` and bound once by the caller.
    """

    def __init__(self, api: Any, name: str) -> None:
        self.api = api
        self.name = name
        self.host_to_device = api.cudaMemcpyKind.cudaMemcpyHostToDevice
        self.device_to_host = api.cudaMemcpyKind.cudaMemcpyDeviceToHost

    def check(self, answer: tuple[Any, ...]) -> Any:
        """Return what a call answered.

        Args:
            answer: The code, and what else the call returns.

        Returns:
            Nothing, the one value, or a tuple of several.

        Raises:
            CudaError: The code is one of failure; ``CudaLostError`` where it is beyond repair.
        """
        code, *values = answer
        if int(code) != 0:
            raise self.error(code)
        return values[0] if len(values) == 1 else tuple(values) or None

    def error(self, code: Any) -> CudaError:
        """Return the exception for a code, with the name and the text that CUDA has for it."""
        name, text = (
            told[1].decode() if int(told[0]) == 0 and told[1] else str(code)
            for told in (self.api.cudaGetErrorName(code), self.api.cudaGetErrorString(code))
        )
        return (CudaLostError if name in _FATAL else CudaError)(name, text)

    def initialise(self) -> None:
        """Make the context of this process on its first visible device.

        Raises:
            BackendUnavailable: The driver is missing, too old, or has no device.
        """
        try:
            self.check(self.api.cudaSetDevice(0))
            self.check(self.api.cudaFree(0))
        except CudaError as error:
            if error.name not in _NO_DRIVER:
                raise
            raise BackendUnavailable(
                f"CUDA finds no device it can use ({error})",
                "install an NVIDIA driver as new as your cuda-python, and look at nvidia-smi;"
                " in a container start it with the NVIDIA runtime",
            ) from None

    def device(self) -> tuple[str, str, bool]:
        """Return the device's name, its compute capability as ``8.7``, and if it is integrated."""
        told = self.check(self.api.cudaGetDeviceProperties(0))
        name = told.name.partition(b"\0")[0].decode(errors="replace")
        return name, f"{told.major}.{told.minor}", bool(told.integrated)

    def versions(self) -> dict[str, str]:
        """Return the versions of cuda-python, of the runtime in it and of the driver."""
        found = {"cuda-python": _installed_version()}
        for name, call in (
            ("cuda-runtime", self.api.cudaRuntimeGetVersion),
            ("cuda-driver", self.api.cudaDriverGetVersion),
        ):
            number = int(self.check(call()))
            found[name] = f"{number // 1000}.{number % 1000 // 10}"
        return {name: number for name, number in found.items() if number}

    def free_bytes(self) -> int:
        """Return the free memory of the device."""
        free, _ = self.check(self.api.cudaMemGetInfo())
        return int(free)

    def stream(self) -> Any:
        """Make a stream that does not wait for the default stream."""
        return self.check(self.api.cudaStreamCreateWithFlags(self.api.cudaStreamNonBlocking))

    def event(self) -> Any:
        """Make an event that keeps its time."""
        return self.check(self.api.cudaEventCreateWithFlags(0))

    def device_buffer(self, size: int) -> int:
        """Allocate memory of the device; return its address."""
        return int(self.check(self.api.cudaMalloc(max(1, size))))

    def pinned_buffer(self, size: int) -> int:
        """Allocate memory of the host that the device can copy from and to; return its address."""
        return int(self.check(self.api.cudaHostAlloc(max(1, size), 0)))

    def capture(self, stream: Any, work: Any) -> Any:
        """Make a graph of what ``work`` enqueues on a stream, ready to be launched.

        Only this thread's calls are watched, so that what another thread does with CUDA meanwhile
        neither fails nor comes into the graph.

        Raises:
            CudaError: It cannot be captured.
        """
        api = self.api
        mode = api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self.check(api.cudaStreamBeginCapture(stream, mode))
        try:
            work()
        finally:
            # Also what failed has to end, or the stream stays in capture for good.
            code, graph = api.cudaStreamEndCapture(stream)
        self.check((code,))
        try:
            return self.check(api.cudaGraphInstantiateWithFlags(graph, 0))
        finally:
            api.cudaGraphDestroy(graph)

    def release(self, *, graphs: Any, events: Any, streams: Any, device: Any, pinned: Any) -> None:
        """Give back all of these; what cannot be given back goes with the process."""
        api = self.api
        for call, things in (
            (api.cudaGraphExecDestroy, graphs),
            (api.cudaEventDestroy, events),
            (api.cudaStreamDestroy, streams),
            (api.cudaFree, device),
            (api.cudaFreeHost, pinned),
        ):
            for thing in things:
                call(thing)


def handle_of(thing: Any) -> int:
    """Return the address behind a stream, as TensorRT wants it.

    From cuda-python 13 on ``int()`` of such an object is deprecated; before 12.8 it is the
    only way.
    """
    try:
        native = import_module("cuda.bindings.utils").get_cuda_native_handle
    except (ImportError, AttributeError):
        return int(thing)
    return int(native(thing))


def load_cuda() -> Cuda:
    """Import cuda-python under the name that it has here; touches no device.

    Raises:
        BackendUnavailable: It is not installed, or lacks a library.
    """
    problem: ImportError | None = None
    for name in _MODULES:
        try:
            with warnings.catch_warnings():
                # The old name says on import that there is a new one.
                warnings.simplefilter("ignore", FutureWarning)
                return Cuda(import_module(name), name)
        except ModuleNotFoundError:
            continue
        except ImportError as error:
            problem = problem or error
    if problem is not None:
        raise BackendUnavailable(f"cuda-python cannot be imported ({problem})", _INSTALL)
    raise BackendUnavailable("cuda-python is not installed", _INSTALL)


def _installed_version() -> str:
    for package in ("cuda-bindings", "cuda-python"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return ""


# Nsight Systems sets them for the program that it starts; the second is how NVTX is told.
_WATCHED = ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH")


def is_watched(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a profiler listens to the ranges of this process."""
    return any(environment.get(name) for name in _WATCHED)


class Ranges:
    """Ranges of one process; they nest as their blocks do."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Import ``nvtx`` if a profiler listens and the package is there."""
        self._nvtx: Any = None
        if is_watched(environment):
            try:
                import nvtx
            except ImportError:
                return
            self._nvtx = nvtx

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Return a block that bears a name on the profiler's timeline."""
        if self._nvtx is None:
            return nullcontext()
        found: AbstractContextManager[Any] = self._nvtx.annotate(name, domain="tegrascope")
        return found

    def each(self, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Return a call that has a range of its own each time; unwatched, the call itself."""
        if self._nvtx is None:
            return call
        begin, end = self._nvtx.push_range, self._nvtx.pop_range

        def marked() -> None:
            begin(name)
            try:
                call()
            finally:
                end()

        return marked

"""The few calls of the CUDA runtime that an inference needs, over cuda-python old and new.

New is ``cuda.bindings.runtime`` (from 11.8.4 and 12.6.1 on), old is ``cuda.cudart``. Both return a
tuple whose first item is an error code and raise nothing; only ``Cuda.check`` turns a code into an
exception.
"""

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ...parsers.errors import PIP_INSTALL, BackendUnavailable, DeviceLostError

_INSTALL = (
    f"{PIP_INSTALL} cuda-python, of the major version of your CUDA (cuda-python<13 on JetPack 6)"
)
_NO_DRIVER = {
    *("cudaErrorInsufficientDriver", "cudaErrorNoDevice", "cudaErrorInitializationError"),
    *("cudaErrorStubLibrary", "cudaErrorSystemDriverMismatch", "cudaErrorSystemNotReady"),
    *("cudaErrorCompatNotSupportedOnDevice", "cudaErrorDevicesUnavailable"),
}
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# After one of these the process can do nothing more with the device: only a new one can.
_FATAL = {
    *("cudaErrorAssert", "cudaErrorContained", "cudaErrorECCUncorrectable"),
    *("cudaErrorExternalDevice", "cudaErrorHardwareStackError", "cudaErrorIllegalAddress"),
    *("cudaErrorIllegalInstruction", "cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc"),
    *("cudaErrorLaunchFailure", "cudaErrorLaunchTimeout", "cudaErrorMisalignedAddress"),
    *("cudaErrorMpsClientTerminated", "cudaErrorTensorMemoryLeak"),
}


class CudaError(RuntimeError):
    """A call of the CUDA runtime failed; ``name`` is that of the code."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class CudaLostError(CudaError, DeviceLostError):
    """A failure after which this process cannot use the device any more."""


def _text_in(answer: tuple[Any, bytes | None], otherwise: str) -> str:
    """Return the text of an answer, or another one if the call failed or has none."""
    failed, text = answer
    if int(failed) != 0 or not text:
        return otherwise
    return text.decode()


class Cuda:
    """The CUDA runtime of this process, on its first visible device.

    ``api`` is the module; callers bind the calls of an inference from it, once.
    """

    def __init__(self, api: Any, name: str) -> None:
        self.api = api
        self.name = name

    def check(self, answer: tuple[Any, ...]) -> Any:
        """Return the values of a call without its code: none, the only one, or a tuple of several.

        Raises:
            CudaError: The call failed; ``CudaLostError`` if this process lost the device.
        """
        code, *values = answer
        if int(code) != 0:
            name = _text_in(self.api.cudaGetErrorName(code), str(code))
            text = _text_in(self.api.cudaGetErrorString(code), str(code))
            if name in _FATAL:
                raise CudaLostError(name, text)
            raise CudaError(name, text)
        if len(values) == 1:
            return values[0]
        return tuple(values) or None

    def initialise(self) -> None:
        """Make the context of this process, or raise ``BackendUnavailable``."""
        try:
            self.check(self.api.cudaSetDevice(0))
            self.check(self.api.cudaFree(0))
        except CudaError as error:
            if error.name not in _NO_DRIVER:
                raise
            visible = os.environ.get(_VISIBLE)
            if visible is not None and error.name == "cudaErrorNoDevice":
                raise BackendUnavailable(
                    f"{_VISIBLE} is {visible!r}, which hides every GPU from CUDA",
                    f"unset {_VISIBLE}, or name a GPU in it",
                ) from None
            raise BackendUnavailable(
                f"CUDA finds no device it can use ({error})",
                "install an NVIDIA driver as new as your cuda-python, and look at nvidia-smi;"
                " in a container start it with the NVIDIA runtime",
            ) from None

    def device(self) -> tuple[str, str]:
        """Return the device's name, and its compute capability as ``8.7``."""
        found = self.check(self.api.cudaGetDeviceProperties(0))
        name = found.name.partition(b"\0")[0].decode(errors="replace")
        return name, f"{found.major}.{found.minor}"

    def is_integrated(self) -> bool:
        """Return whether the device shares one memory with the host."""
        return bool(self.check(self.api.cudaGetDeviceProperties(0)).integrated)

    def hand_over(
        self, address: int, size: int, stream: Any, *, to_device: bool
    ) -> list[Callable[[], Any]]:
        """Return the calls that give managed memory to the device, or back to the host.

        Source:
            "Effective Usage of Unified Memory on Tegra", CUDA for Tegra.
        """
        api = self.api
        found = self.check(api.cudaGetDeviceProperties(0))
        if not found.concurrentManagedAccess:
            # Orin and earlier: the host must not touch it while the device owns it. Global, because
            # TensorRT may use streams of its own too.
            owner = api.cudaMemAttachGlobal if to_device else api.cudaMemAttachHost
            return [partial(api.cudaStreamAttachMemAsync, stream, address, 0, owner)]
        if found.integrated:
            return []  # The hardware keeps it coherent, and it does not move.
        if int(self.check(api.cudaRuntimeGetVersion())) < 13000:
            device = 0 if to_device else api.cudaCpuDeviceId
            return [partial(api.cudaMemPrefetchAsync, address, size, device, stream)]
        kinds, place = api.cudaMemLocationType, api.cudaMemLocation()
        place.type = kinds.cudaMemLocationTypeHost
        if to_device:
            place.type = kinds.cudaMemLocationTypeDevice
        return [partial(api.cudaMemPrefetchAsync, address, size, place, 0, stream)]

    def versions(self) -> dict[str, str]:
        """Return the versions of cuda-python, of the runtime in it and of the driver."""
        found = {}
        for package in ("cuda-python", "cuda-bindings"):
            with suppress(PackageNotFoundError):
                found["cuda-python"] = version(package)
        for name, call in (
            ("cuda-runtime", self.api.cudaRuntimeGetVersion),
            ("cuda-driver", self.api.cudaDriverGetVersion),
        ):
            number = int(self.check(call()))
            found[name] = f"{number // 1000}.{number % 1000 // 10}"
        return found

    def pci_bus_id(self) -> str | None:
        """Return the address by which NVML knows the device; ``None`` if CUDA gives none."""
        try:
            return str(
                self.check(self.api.cudaDeviceGetPCIBusId(16, 0)).partition(b"\0")[0].decode()
            )
        except (CudaError, AttributeError):
            return None

    def free_bytes(self) -> int:
        """Return the free memory of the device."""
        free, _ = self.check(self.api.cudaMemGetInfo())
        return int(free)

    def capture(self, stream: Any, work: Any) -> Any:
        """Capture the calls that ``work`` enqueues on a stream as a graph, ready to be launched."""
        api = self.api
        # Only this thread's: CUDA calls of another thread neither fail nor come into the graph.
        mode = api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self.check(api.cudaStreamBeginCapture(stream, mode))
        try:
            work()
        finally:
            # A failed capture has to end too, or the stream stays in capture for good.
            code, graph = api.cudaStreamEndCapture(stream)
        self.check((code,))
        try:
            return self.check(api.cudaGraphInstantiateWithFlags(graph, 0))
        finally:
            api.cudaGraphDestroy(graph)


def handle_of(thing: Any) -> int:
    """Return the address behind a stream, as TensorRT wants it."""
    try:
        native = import_module("cuda.bindings.utils").get_cuda_native_handle
    except (ImportError, AttributeError):
        return int(thing)  # deprecated from cuda-python 13 on, and the only way before 12.8
    return int(native(thing))


def load_cuda() -> Cuda:
    """Import cuda-python, or raise ``BackendUnavailable``; touches no device."""
    what = ""
    for name in ("cuda.bindings.runtime", "cuda.cudart"):
        try:
            with warnings.catch_warnings():
                # On import, the old name warns that there is a new one.
                warnings.simplefilter("ignore", FutureWarning)
                return Cuda(import_module(name), name)
        except ModuleNotFoundError:
            continue
        except ImportError as error:
            what = what or f"cuda-python cannot be imported ({error})"
    raise BackendUnavailable(what or "cuda-python is not installed", _INSTALL)


# Nsight Systems sets these variables for the program that it starts; NVTX reads the second.
_WATCHED = ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH")


def is_watched(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether a profiler records the ranges of this process."""
    return any(environment.get(name) for name in _WATCHED)


class Ranges:
    """Ranges of one process on a profiler's timeline; they nest as their blocks do."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Import ``nvtx`` if a profiler records and the package is installed."""
        self._nvtx: Any = None
        if is_watched(environment):
            with suppress(ImportError):
                self._nvtx = import_module("nvtx")

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Return a block that has a name on the profiler's timeline."""
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

"""Standalone loadables of a DLA, run by cuDLA in its hybrid mode: tasks in a stream of CUDA.

TensorRT compiles the model to a loadable in place of an engine, or the model is a loadable already.
Copies and events are CUDA's, as for an engine. cuDLA's standalone mode needs buffers and fences of
NvSci, and its task statistics have no documented form: neither is used.

Source:
    "cuDLA API Reference Manual", CUDA Toolkit documentation of 11.4 to 13.4: calls, codes and
        structures; "DLA Runtime Configuration", TensorRT documentation: the layout DLA_LINEAR.
"""

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...parsers.errors import BackendUnavailable, DeviceLostError, UserError
from ...parsers.inference.events import Order
from ...parsers.inference.placement import Built, Placement
from ...parsers.values import DLAS
from .base import make_input
from .engine_cache import BuiltEngine
from .tensorrt import BoundTensor, EnginePart, Slot, TensorRt
from .tensorrt_probe import MODULE, Capabilities, capabilities

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_LIBRARIES = ("libcudla.so.1", "libcudla.so")
_INSTALL = "install cuDLA of your CUDA (on a Jetson: apt install cuda-cudla-12-6, or your version)"
_HYBRID = 0
_NUM_INPUTS, _NUM_OUTPUTS, _INPUTS, _OUTPUTS = range(4)
_PLANAR = 1  # the format NCHW
_TYPES = {1: "FLOAT", 2: "HALF", 3: "INT16", 4: "INT8", 5: "UINT8", 6: "UINT16"}
# Bytes to which a row of DLA_LINEAR is rounded up: on Orin, and on Xavier.
_ROW_BYTES = (64, 32)

_OUT_OF_RESOURCES, _CREATION_FAILED, _UNSUPPORTED = 2, 3, 13
_INCOMPATIBLE = 10
_HARDWARE = "the hardware of the DLA reports an error in a task"
STATUSES: Mapping[int, tuple[str, str]] = {
    1: ("cudlaErrorInvalidParam", "a parameter is wrong"),
    _OUT_OF_RESOURCES: ("cudlaErrorOutOfResources", "there are no resources left"),
    _CREATION_FAILED: ("cudlaErrorCreationFailed", "the handle of the DLA could not be made"),
    4: ("cudlaErrorInvalidAddress", "the memory is not registered"),
    5: ("cudlaErrorOs", "the operating system reports an error"),
    6: ("cudlaErrorCuda", "a call of CUDA failed"),
    7: ("cudlaErrorUmd", "the runtime of the DLA reports an error"),
    8: ("cudlaErrorInvalidDevice", "the handle of the DLA is not valid"),
    9: ("cudlaErrorInvalidAttribute", "the attribute is not valid"),
    _INCOMPATIBLE: ("cudlaErrorIncompatibleDlaSWVersion", "the DLA's runtime does not fit cuDLA"),
    11: ("cudlaErrorMemoryRegistered", "the memory is registered already"),
    12: ("cudlaErrorInvalidModule", "the loadable is not valid"),
    _UNSUPPORTED: ("cudlaErrorUnsupportedOperation", "the operation is not supported here"),
    14: ("cudlaErrorNvSci", "a call of NvSci failed"),
    0x40000001: ("cudlaErrorDlaErrInvalidInput", _HARDWARE),
    0x40000002: ("cudlaErrorDlaErrInvalidPreAction", _HARDWARE),
    0x40000003: ("cudlaErrorDlaErrNoMem", _HARDWARE),
    0x40000004: ("cudlaErrorDlaErrProcessorBusy", _HARDWARE),
    0x40000005: ("cudlaErrorDlaErrTaskStatusMismatch", _HARDWARE),
    0x40000006: ("cudlaErrorDlaErrEngineTimeout", _HARDWARE),
    0x40000007: ("cudlaErrorDlaErrDataMismatch", _HARDWARE),
    0x7FFFFFFF: ("cudlaErrorUnknown", "an unknown error"),
}
_FIRST_OF_HARDWARE = 0x40000001
# With one of these a loadable is damaged, or made for other software.
_OF_A_LOADABLE = ("cudlaErrorInvalidParam", "cudlaErrorInvalidModule", "cudlaErrorUmd")


class CudlaError(RuntimeError):
    """A call of cuDLA failed; ``name`` is that of the code."""

    def __init__(self, name: str, words: str, call: str) -> None:
        super().__init__(f"{call}: {name}, {words}")
        self.name = name


class CudlaLostError(CudlaError, DeviceLostError):
    """A task failed on the DLA: another process takes the next run."""


class TensorDescriptor(ctypes.Structure):
    """``cudlaModuleTensorDescriptor``; ``size`` is in bytes, padding included."""

    _fields_ = (
        ("name", ctypes.c_char * 81),
        *((name, ctypes.c_uint64) for name in ("size", "n", "c", "h", "w")),
        *((name, ctypes.c_uint8) for name in ("format", "type", "category")),
        *((name, ctypes.c_uint8) for name in ("pixel_format", "pixel_mapping")),
        ("stride", ctypes.c_uint32 * 8),
    )


class _Attribute(ctypes.Union):
    """``cudlaModuleAttribute``: a number, or where descriptors are to be written."""

    _fields_ = (("number", ctypes.c_uint32), ("descriptors", ctypes.POINTER(TensorDescriptor)))


class _TaskStructure(ctypes.Structure):
    """``cudlaTask``; in hybrid mode events to wait for and to signal are null."""

    _fields_ = (
        ("module", ctypes.c_void_p),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("num_outputs", ctypes.c_uint32),
        ("num_inputs", ctypes.c_uint32),
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("wait_events", ctypes.c_void_p),
        ("signal_events", ctypes.c_void_p),
    )


_HANDLE, _U32, _U64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
_OUT = ctypes.POINTER(ctypes.c_void_p)
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "cudlaGetVersion": (ctypes.POINTER(_U64),),
    "cudlaCreateDevice": (_U64, _OUT, _U32),
    "cudlaDestroyDevice": (_HANDLE,),
    "cudlaModuleLoadFromMemory": (_HANDLE, ctypes.c_char_p, ctypes.c_size_t, _OUT, _U32),
    "cudlaModuleUnload": (_HANDLE, _U32),
    "cudlaModuleGetAttributes": (_HANDLE, ctypes.c_int, ctypes.POINTER(_Attribute)),
    "cudlaMemRegister": (_HANDLE, _HANDLE, ctypes.c_size_t, _OUT, _U32),
    "cudlaMemUnregister": (_HANDLE, _HANDLE),
    "cudlaSubmitTask": (_HANDLE, ctypes.POINTER(_TaskStructure), _U32, _HANDLE, _U32),
    "cudlaGetLastError": (_HANDLE,),
}


def load_cudla(names: Sequence[str] = _LIBRARIES) -> ctypes.CDLL:
    """Open the first library of these names, or raise ``BackendUnavailable``."""
    library = None
    for name in names:
        with suppress(OSError):
            library = ctypes.CDLL(name)
            break
    if library is None:
        raise BackendUnavailable(f"{names[0]} cannot be opened", _INSTALL)
    for call, arguments in _SIGNATURES.items():
        function = getattr(library, call, None)
        if function is None:
            raise BackendUnavailable(f"this {names[0]} has no {call}", _INSTALL)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return library


def check(status: int, call: str) -> None:
    """Raise ``CudlaError`` for any code except success; one of the hardware loses the device."""
    if status != 0:
        name, words = STATUSES.get(status, (f"code {status}", "not in cuDLA's documentation"))
        if status >= _FIRST_OF_HARDWARE:
            raise CudlaLostError(name, words, call)
        raise CudlaError(name, words, call)


class Task:
    """A loadable on a core of the DLA, with buffers bound once.

    cuDLA takes one loadable per handle of a device, so each task has its own handle. It has the
    call of TensorRT's contexts that starts an inference.
    """

    def __init__(self, library: Any, core: int, content: bytes) -> None:
        """Load it; raise ``BackendUnavailable`` without a DLA that cuDLA can use."""
        self._library = library
        self._resources = ExitStack()
        # What the library reads while a task is submitted.
        self._kept: list[Any] = []
        self._device, self._module = ctypes.c_void_p(), ctypes.c_void_p()
        with ExitStack() as made:
            status = library.cudlaCreateDevice(core, ctypes.byref(self._device), _HYBRID)
            if status in (_CREATION_FAILED, _INCOMPATIBLE, _UNSUPPORTED):
                name, words = STATUSES[status]
                raise BackendUnavailable(
                    f"cuDLA has no dla{core} ({name}: {words})",
                    "run it on a board with a DLA, with cuDLA and DLA runtime of one JetPack",
                )
            check(status, "cudlaCreateDevice")
            made.callback(library.cudlaDestroyDevice, self._device)
            self._call(
                "cudlaModuleLoadFromMemory",
                *(self._device, content, len(content), ctypes.byref(self._module), 0),
            )
            made.callback(library.cudlaModuleUnload, self._module, 0)
            self.inputs = self._descriptors(_NUM_INPUTS, _INPUTS)
            self.outputs = self._descriptors(_NUM_OUTPUTS, _OUTPUTS)
            self._resources = made.pop_all()

    def register(self, address: int, size: int, made: ExitStack) -> int:
        """Make memory of CUDA known to the DLA until ``made`` closes; return its name for tasks."""
        registered = ctypes.c_void_p()
        self._call("cudlaMemRegister", self._device, address, size, ctypes.byref(registered), 0)
        made.callback(self._library.cudlaMemUnregister, self._device, registered)
        return registered.value or 0

    def bind(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Name the registered memory of all inputs and outputs, in the order of descriptors."""
        given = (ctypes.c_void_p * len(inputs))(*inputs)
        made = (ctypes.c_void_p * len(outputs))(*outputs)
        task = _TaskStructure(
            module=self._module,
            outputs=ctypes.cast(made, ctypes.POINTER(ctypes.c_void_p)),
            num_outputs=len(outputs),
            num_inputs=len(inputs),
            inputs=ctypes.cast(given, ctypes.POINTER(ctypes.c_void_p)),
        )
        self._kept = [given, made, task, ctypes.pointer(task)]

    def execute_async_v3(self, stream: int) -> bool:
        """Submit the task in a stream; it is complete when the stream is."""
        check(
            self._library.cudlaSubmitTask(self._device, self._kept[-1], 1, stream, 0),
            "cudlaSubmitTask",
        )
        return True

    def raise_if_failed(self) -> None:
        """Raise if a task that is complete failed on the DLA: only this call reports that."""
        self._call("cudlaGetLastError", self._device)

    def close(self) -> None:
        """Unload it and release the DLA; all its tasks must be complete."""
        self._resources.close()

    def _descriptors(self, number: int, kind: int) -> list[TensorDescriptor]:
        attribute = _Attribute()
        self._call("cudlaModuleGetAttributes", self._module, number, ctypes.byref(attribute))
        descriptors = (TensorDescriptor * attribute.number)()
        attribute.descriptors = ctypes.cast(descriptors, ctypes.POINTER(TensorDescriptor))
        self._call("cudlaModuleGetAttributes", self._module, kind, ctypes.byref(attribute))
        return list(descriptors)

    def _call(self, name: str, *arguments: Any) -> None:
        check(getattr(self._library, name)(*arguments), name)


class DlaTensor(BoundTensor):
    """An input or output of a loadable; ``is_raw`` if its layout is not that of DLA_LINEAR.

    Rows of DLA_LINEAR are padded, and the array shows them without padding. A raw tensor is one
    row of numbers as the DLA stores them.
    """

    def __init__(self, found: TensorDescriptor, *, is_input: bool) -> None:
        shape = tuple(map(int, (found.n, found.c, found.h, found.w)))
        word = _TYPES.get(found.type, f"code {found.type}")
        super().__init__(found.name.decode(), is_input=is_input, kind=word, shape=shape)
        self.size, width = int(found.size), self.dtype.itemsize
        rows = shape[0] * shape[1] * shape[2]
        self.is_raw = True
        self._stored: tuple[int, ...] = (self.size // width,)
        for unit in _ROW_BYTES:
            row_bytes = math.ceil(shape[3] * width / unit) * unit
            if found.format == _PLANAR and rows * row_bytes == self.size:
                self.is_raw = False
                self._stored = (*shape[:3], row_bytes // width)
                break
        if self.is_raw:
            self.shape = self._stored

    def host_array(self) -> "NDArray[numpy.generic]":
        """Return the pinned buffer as an array without padding; it is the buffer, not a copy."""
        stored = self.view(self._stored)
        if self.is_raw:
            return stored
        return stored[..., : self.shape[3]]


class LoadableSlot(Slot):
    """Room for one task in flight."""

    def _bind(self, trt: Any, parts: Sequence[EnginePart], order: Order, made: ExitStack) -> None:  # noqa: ARG002
        self.input_shapes = {}
        batch, task = order.batch, parts[0].context
        registered: dict[bool, list[int]] = {True: [], False: []}
        for is_input, side in ((True, task.inputs), (False, task.outputs)):
            for found in side:
                tensor = DlaTensor(found, is_input=is_input)
                if found.n != batch:
                    raise UserError(
                        f"the loadable has a batch of {found.n} in {tensor.name!r}, not {batch}",
                        f"set batch: {found.n}, or build it for this batch",
                    )
                self._allocate(tensor, made)
                if is_input:
                    self.input_shapes[tensor.name] = tensor.shape
                    kind = tensor.dtype.name
                    tensor.host_array()[...] = make_input(tensor.name, kind, tensor.shape)
                registered[is_input].append(task.register(tensor.on_device, tensor.size, made))
        task.bind(registered[True], registered[False])

    def _calls_of(self, calls: Sequence[Callable[[], Any]]) -> tuple[Callable[[], None], ...]:
        """Return the calls; those that wait raise if a task failed on the DLA."""
        infer, submit, wait = super()._calls_of(calls)
        raise_if_failed = self._contexts[0].raise_if_failed

        def infer_and_check() -> None:
            infer()
            raise_if_failed()

        def wait_and_check() -> None:
            wait()
            raise_if_failed()

        return infer_and_check, submit, wait_and_check

    def outputs(self) -> "dict[str, NDArray[numpy.generic]]":
        """Return the outputs, or none if an input or output is not real numbers in known places."""
        for tensor in self._tensors:
            if tensor.dtype.kind != "f" or getattr(tensor, "is_raw", False):
                return {}
        return super().outputs()


class Cudla(TensorRt):
    """An ONNX model as a standalone loadable, or a loadable that exists, in a slot per stream."""

    devices = DLAS
    library = "cudla"
    install = _INSTALL
    runs_loadables = True
    times_layers = False
    runs_heads = False
    chooses_memory = False  # Only device memory is known to be registered with a DLA.
    slot_class = LoadableSlot

    def __init__(
        self,
        module: str = MODULE,
        machine: Path = Path("/"),
        ask: Callable[[str], Capabilities] = capabilities,
        library: Any = None,
    ) -> None:
        """Open cuDLA, unless it is given, and import the libraries; touches no device."""
        self._library = load_cudla() if library is None else library
        super().__init__(module, machine, ask)
        self._tasks: list[Task] = []
        self._spare: Task | None = None
        self._content = b""

    def load(self, model: Path, order: Order) -> None:
        """Find out what this machine can do, and initialise the device."""
        # A loadable has no GPU to fall back to.
        changes = {"engine_capability": "dla_standalone", "fallback": "forbid"}
        super().load(model, order.model_copy(update=changes))
        version = ctypes.c_uint64()
        check(self._library.cudlaGetVersion(ctypes.byref(version)), "cudlaGetVersion")
        major, rest = divmod(version.value, 1_000_000)
        self.versions = {**self.versions, "cudla": f"{major}.{rest // 1000}.{rest % 1000}"}

    def close(self) -> None:
        """Release buffers before loadables, and loadables before the DLA."""
        super().close()
        tasks, self._tasks, self._spare = self._tasks, [], None
        for task in tasks:
            task.close()

    def obtain(self) -> None:
        """Read the model if it is a loadable; else find its loadable or build it."""
        if self._model.suffix == ".onnx":
            super().obtain()
            return
        content = self._model.read_bytes()
        if not self._deserialise(content):
            raise UserError(
                f"cuDLA does not load {self._model.name} ({self._lines[-1]})",
                "give an ONNX file, or a loadable that this board's TensorRT built",
            )
        self.built = Built(placement=_PURE, engine_bytes=len(content))

    def _take(self, made: BuiltEngine, key: str | None) -> BuiltEngine:
        taken = super()._take(made, key)
        self._note(placement=_PURE)
        return taken._replace(built=self.built)

    def _deserialise(self, content: bytes) -> bool:
        """Load a loadable on the order's core; False if cuDLA does not take it."""
        self._content = content
        with self._part("deserialise"):
            self._lines.clear()
            try:
                self._spare = self._open()
            except CudlaError as error:
                if error.name not in _OF_A_LOADABLE:
                    raise
                self._lines.append(f"[E] {error}")
                return False
        return True

    def _open(self) -> Task:
        self._tasks.append(Task(self._library, self._order.dla_core or 0, self._content))
        return self._tasks[-1]

    def _inspect(self) -> str | None:
        return None  # a loadable tells nothing of its layers

    def _make_context(self) -> Any:
        """Return the task that was loaded first, and then another for each further stream."""
        spare, self._spare = self._spare, None
        return self._open() if spare is None else spare


_PURE = Placement(verdict="pure_dla", loadables=1, dla_layers=("loadable",))

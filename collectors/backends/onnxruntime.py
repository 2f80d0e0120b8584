"""ONNX Runtime on the CPU, which runs anywhere."""

import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...parsers.errors import PIP_INSTALL, BackendUnavailable
from ...parsers.inference.events import Order
from ..board.memory import MemoryNeed
from ..board.readers import read_text
from ..models.files import external_files, facts_of, find_model, session_bytes_apart
from .base import Inferring, check_pair, input_shapes, make_input

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


# A worker with a session but no model: 1.32 with numpy 2.4 and Python 3.11 on an x86-64.
WORKER_BYTES = 39 << 20


class OnnxRuntime(Inferring):
    """A session of the CPU execution provider, with its inputs bound once.

    If the order has a head, another session runs what the first has made.
    """

    devices = ("cpu",)
    packages = ("onnxruntime", "onnxruntime-gpu")
    install = f"{PIP_INSTALL} onnxruntime"
    runs_heads = True

    def __init__(self) -> None:
        try:
            import numpy
            import onnxruntime
        except ModuleNotFoundError as error:
            raise BackendUnavailable(f"{error.name} is not installed", self.install) from error
        except ImportError as error:
            raise BackendUnavailable(
                f"onnxruntime cannot be imported ({error})",
                f"{PIP_INSTALL} --force-reinstall onnxruntime",
            ) from error
        self._library = onnxruntime
        self.versions = {"onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}
        self._session: Any = None
        self._binding: Any = None
        self._head: _Head | None = None
        self._stages_ns: tuple[int, ...] = ()
        self._inputs: dict[str, NDArray[numpy.generic]] = {}

    @classmethod
    def memory_need(cls, model: Path, order: Order, free: int) -> MemoryNeed | None:
        """Estimate it by the graph, if the package onnx can read it; not for a body and a head."""
        if order.head is not None:
            return None
        # To read the graph takes memory too, so what is certain without it is said without it.
        least = WORKER_BYTES
        for path in (model, *external_files(model)):
            least += path.stat().st_size
        if least > free:
            return MemoryNeed(least, "at least")
        declared = {given.name: given.shape for given in facts_of(model).inputs}
        size = session_bytes_apart(model, input_shapes(declared, order), _block())
        if size is None:
            return None
        return MemoryNeed(WORKER_BYTES + size)

    def load(self, model: Path, order: Order) -> None:
        """Read and optimise the model, and bind inputs of its own shapes and types."""
        self.check_device(order)
        self._session = self._open(model, order)
        self._binding = self._session.io_binding()
        inputs = {given.name: given for given in self._session.get_inputs()}
        if order.head is not None:
            path = find_model(order.head, Path(order.model_directory))
            self._head = _Head(self._open(path, order), self._session)
            self.stages = ("body", "head")
            inputs |= self._head.own_inputs
        declared = {name: given.shape for name, given in inputs.items()}
        self.input_shapes = input_shapes(declared, order)
        arrays = {}
        for name, shape in self.input_shapes.items():
            arrays[name] = make_input(name, inputs[name].type, shape)
        self.feed(arrays)
        for made in self._session.get_outputs():
            self._binding.bind_output(made.name)

    def _open(self, model: Path, order: Order) -> Any:
        """Return a session of a model."""
        options = self._library.SessionOptions()
        options.log_severity_level = 3  # errors only
        options.inter_op_num_threads = 1
        if order.threads is not None:
            options.intra_op_num_threads = order.threads
        # Threads that spin while they wait would draw power in the idle baseline, and would take
        # the cores of the other lanes.
        for threads in ("intra_op", "inter_op"):
            options.add_session_config_entry(f"session.{threads}.allow_spinning", "0")
        return self._library.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )

    def infer(self) -> None:
        """Run one inference; the CPU is done when this returns."""
        self._session.run_with_iobinding(self._binding)
        if self._head is not None:
            self._head.run(self._binding)

    def infer_timed(self) -> None:
        """Run one inference; with a head, keep the time of the body and of the head."""
        begin_ns = time.monotonic_ns()
        self._session.run_with_iobinding(self._binding)
        if self._head is not None:
            between_ns = time.monotonic_ns()
            self._head.run(self._binding)
            self._stages_ns = (between_ns - begin_ns, time.monotonic_ns() - between_ns)

    def stages_ns(self) -> Sequence[int]:
        """Return the time of body and head in the last timed inference."""
        return self._stages_ns

    def inputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the inputs that are bound."""
        return dict(self._inputs)

    def feed(self, inputs: "Mapping[str, NDArray[numpy.generic]]") -> None:
        """Bind other inputs."""
        self._inputs = dict(inputs)
        of_body = {given.name for given in self._session.get_inputs()}
        for name, array in self._inputs.items():
            if name in of_body:
                self._binding.bind_cpu_input(name, array)
            if self._head is not None and name in self._head.reads:
                self._head.binding.bind_cpu_input(name, array)

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        outputs = _outputs_of(self._session, self._binding)
        if self._head is None:
            return outputs
        for name in self._head.reads:
            outputs.pop(name, None)
        return outputs | _outputs_of(self._head.session, self._head.binding)

    def close(self) -> None:
        """Release the session, with its weights and its threads."""
        self._binding = self._head = None
        self._session = None


class _Head:
    """The session that continues another one, a body.

    Attributes:
        reads: Names of its inputs.
        own_inputs: Those that the body neither has nor makes, by name.
    """

    def __init__(self, session: Any, body: Any) -> None:
        """Bind the outputs; raise ``UserError`` if the head does not continue the body."""
        self.session = session
        self.binding = session.io_binding()
        inputs = {given.name: given for given in session.get_inputs()}
        of_body = {one.name: one.type for one in (*body.get_inputs(), *body.get_outputs())}
        check_pair(of_body, {name: given.type for name, given in inputs.items()})
        self.reads = set(inputs)
        self.own_inputs = {name: given for name, given in inputs.items() if name not in of_body}
        self._made = [made.name for made in body.get_outputs()]
        for made in session.get_outputs():
            self.binding.bind_output(made.name)

    def run(self, body: Any) -> None:
        """Run on what the binding of the body has just made, which is not copied."""
        for name, value in zip(self._made, body.get_outputs(), strict=True):
            if name in self.reads:
                self.binding.bind_ortvalue_input(name, value)
        self.session.run_with_iobinding(self.binding)


def _block(root: Path = Path("/")) -> int:
    """Return how many channels ONNX Runtime puts into a block on this processor; 1 for no blocks.

    Source:
        ``MlasNchwcGetBlockSize`` in ONNX Runtime: 16 with AVX-512, else 8 on an x86-64.
    """
    if platform.machine() != "x86_64":
        return 1
    return 16 if " avx512f " in (read_text(root / "proc/cpuinfo") or "") else 8


def _outputs_of(session: Any, binding: Any) -> "dict[str, NDArray[numpy.generic]]":
    names = [made.name for made in session.get_outputs()]
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))

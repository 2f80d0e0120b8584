"""ONNX Runtime on the CPU, which runs anywhere."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...parsers.errors import PIP_INSTALL, BackendUnavailable
from ...parsers.inference.events import Order
from .base import Inferring, input_shapes, make_input

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class OnnxRuntime(Inferring):
    """A session of the CPU execution provider, with its inputs bound once."""

    devices = ("cpu",)
    packages = ("onnxruntime", "onnxruntime-gpu")
    install = f"{PIP_INSTALL} onnxruntime"

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
        self._inputs: dict[str, NDArray[numpy.generic]] = {}

    def load(self, model: Path, order: Order) -> None:
        """Read and optimise the model, and bind inputs of its own shapes and types."""
        self.check_device(order)
        options = self._library.SessionOptions()
        options.log_severity_level = 3  # errors only
        options.inter_op_num_threads = 1
        if order.threads is not None:
            options.intra_op_num_threads = order.threads
        # Threads that spin while they wait would draw power in the idle baseline, and would take
        # the cores of the other lanes.
        for threads in ("intra_op", "inter_op"):
            options.add_session_config_entry(f"session.{threads}.allow_spinning", "0")
        self._session = self._library.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
        self._binding = self._session.io_binding()
        inputs = self._session.get_inputs()
        self.input_shapes = input_shapes({given.name: given.shape for given in inputs}, order)
        for given in inputs:
            shape = self.input_shapes[given.name]
            self._inputs[given.name] = make_input(given.name, given.type, shape)
        self.feed(self._inputs)
        for made in self._session.get_outputs():
            self._binding.bind_output(made.name)

    def infer(self) -> None:
        """Run one inference; the CPU is done when this returns."""
        self._session.run_with_iobinding(self._binding)

    def inputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the inputs that are bound."""
        return dict(self._inputs)

    def feed(self, inputs: "Mapping[str, NDArray[numpy.generic]]") -> None:
        """Bind other inputs."""
        self._inputs = dict(inputs)
        for name, array in self._inputs.items():
            self._binding.bind_cpu_input(name, array)

    def outputs(self) -> "Mapping[str, NDArray[numpy.generic]]":
        """Return the outputs of the last inference."""
        names = [made.name for made in self._session.get_outputs()]
        return dict(zip(names, self._binding.copy_outputs_to_cpu(), strict=True))

    def close(self) -> None:
        """Release the session, with its weights and its threads."""
        self._binding = None
        self._session = None

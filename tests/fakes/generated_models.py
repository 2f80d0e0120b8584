"""Model files for tests: the built-in ones, a detector and a transformer, each generated once."""

import fcntl
import math
from pathlib import Path
from typing import Any

from tegrascope.collectors.models.builtin import CLASSES, GraphBuilder, ensure_model
from tegrascope.collectors.models.files import BUILTIN_MODELS, SEED


class ExportedGraph(GraphBuilder):
    """Adds the kinds of nodes and constants that torch's exporter writes."""

    def divide(self, operation: str, name: str, inputs: list[str], **attributes: Any) -> list[str]:
        """Add a node with as many outputs as ``parts`` says."""
        outputs = [f"{name}.{part}" for part in range(attributes.pop("parts"))]
        self.add_node(operation, name, inputs, outputs, **attributes)
        return outputs

    def index(self, name: str, value: int) -> str:
        """Add a scalar integer."""
        return self.constant(name, value, "<i8")

    def integers(self, name: str, *values: int) -> str:
        """Add a vector of integers: a shape, the sizes of a split."""
        return self.constant(name, values, "<i8")

    def matrix(self, name: str, channels_in: int, channels_out: int) -> str:
        """Add the weights of a matrix product, inputs in the first dimension."""
        return self.uniform(name, (channels_in, channels_out), math.sqrt(3.0 / channels_in))

    def offsets(self, name: str, *shape: int) -> str:
        """Add small weights: biases, positions."""
        return self.uniform(name, shape, 0.05)


def ensure(name: str, directory: Path) -> Path:
    """Return the file of a model in a directory that processes share; generate it if missing."""
    if name in BUILTIN_MODELS:
        return ensure_model(name, directory)
    path = directory / f"{name}.onnx"
    directory.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            part = path.with_suffix(".part")
            part.write_bytes(_make(name))
            part.replace(path)
    return path


def _make(name: str) -> bytes:
    from tests.fakes import model_vit, model_yolo

    graph = ExportedGraph(SEED)
    if name == "vit-tiny":
        model_vit.add_vit(graph)
        side = model_vit.SIDE
        return graph.model(name, (side, side), "scores", (CLASSES,), opset=17)
    model_yolo.add_yololike(graph)
    side, places = model_yolo.SIDE, model_yolo.PLACES
    return graph.model(name, (side, side), "boxes", (4 + model_yolo.CLASSES, places))

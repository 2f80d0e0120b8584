"""Model files for tests: the built-in ones, a detector and a transformer, each generated once."""

import fcntl
import math
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from tegrascope.collectors.models.builtin import GraphBuilder, ensure_model
from tegrascope.collectors.models.files import BUILTIN_MODELS, SEED


class ExportedGraph(GraphBuilder):
    """Adds the kinds of nodes and constants that torch's exporter writes."""

    def divide(self, operation: str, name: str, inputs: list[str], **attributes: Any) -> list[str]:
        """Add a node with as many outputs as ``parts`` says."""
        outputs = [f"{name}.{part}" for part in range(attributes.pop("parts"))]
        self.nodes.append(helper.make_node(operation, inputs, outputs, name=name, **attributes))
        return outputs

    def index(self, name: str, value: int) -> str:
        """Add a scalar integer."""
        self.weights.append(numpy_helper.from_array(numpy.array(value, dtype="<i8"), name))
        return name

    def integers(self, name: str, *values: int) -> str:
        """Add a vector of integers: a shape, the sizes of a split."""
        self.weights.append(numpy_helper.from_array(numpy.array(values, dtype="<i8"), name))
        return name

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
            part.write_bytes(_make(name).SerializeToString(deterministic=True))
            part.replace(path)
    return path


def _make(name: str) -> onnx.ModelProto:
    from tests.fakes import model_vit, model_yolo

    graph = ExportedGraph(SEED)
    if name == "vit-tiny":
        model_vit.add_vit(graph)
        side, opset, shape = model_vit.SIDE, 17, ("scores", [1000])
    else:
        model_yolo.add_yololike(graph)
        places = model_yolo.PLACES
        side, opset, shape = model_yolo.SIDE, 13, ("boxes", [4 + model_yolo.CLASSES, places])
    kind = TensorProto.FLOAT
    image = helper.make_tensor_value_info("image", kind, ["batch", 3, side, side])
    output = helper.make_tensor_value_info(shape[0], kind, ["batch", *shape[1]])
    return helper.make_model(
        helper.make_graph(graph.nodes, name, [image], [output], graph.weights),
        producer_name="tegrascope",
        producer_version="1",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", opset)],
    )

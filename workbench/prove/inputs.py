"""Write the models and inputs of ``tegrascope prove``: small, with seeded weights.

``python -m tegrascope.workbench.prove.inputs DIRECTORY``
"""

import sys
from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from ...collectors.models.builtin import GraphBuilder

_SIDE = 64


def _plain(graph: GraphBuilder, last: str) -> str:
    return graph.add("Relu", "act", [graph.convolution("second", last, (16, 16, 3))])


def _softmax(graph: GraphBuilder, last: str) -> str:
    softmax = graph.add("Softmax", "soft", [graph.convolution("second", last, (16, 16, 3))], axis=1)
    return graph.convolution("third", softmax, (16, 16, 3))


def _plugin(graph: GraphBuilder, last: str) -> str:
    # A plug-in of NVIDIA's own library, in single precision.
    return graph.add("CustomGeluPluginDynamic", "gelu", [last], type_id=0, plugin_version="1")


def _unknown(graph: GraphBuilder, last: str) -> str:
    return graph.add("UnknownOperator", "unknown", [last])


def _quantised(graph: GraphBuilder, last: str) -> str:
    """Add a convolution with Q/DQ nodes: activations per tensor, weights per channel."""

    def pair(name: str, source: str, scale: float | list[float], axis: int) -> str:
        scales = graph.constant(f"{name}.scale", scale)
        zeros = numpy.zeros(numpy.shape(scale), numpy.int8)
        graph.weights.append(numpy_helper.from_array(zeros, f"{name}.zero"))
        for operation in ("QuantizeLinear", "DequantizeLinear"):
            ends = [source, scales, f"{name}.zero"]
            source = graph.add(operation, f"{name}.{operation}", ends, axis=axis)
        return source

    weight, bias = graph.weight_and_bias("second", (16, 16, 3, 3), 1.0)
    ends = [pair("in", last, 0.05, 1), pair("weight", weight, [0.002] * 16, 0), bias]
    last = graph.add("Conv", "second", ends, kernel_shape=[3, 3], pads=[1] * 4)
    return pair("out", graph.add("Relu", "act", [last]), 0.05, 1)


_MODELS = {
    "open": _plain,
    "softmax": _softmax,
    "plugin": _plugin,
    "unknown": _unknown,
    "quantised": _quantised,
}


def main(directory: Path) -> None:
    """Write all models, and inputs for ``builtin:mobilenet`` to calibrate with."""
    for name, add in _MODELS.items():
        graph = GraphBuilder(seed=1)
        last = graph.add("Relu", "first", [graph.convolution("stem", "image", (3, 16, 3))])
        graph.classifier(add(graph, last), 16)
        sides = ["height", "width"] if name == "open" else [_SIDE, _SIDE]
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, *sides])
        scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 1000])
        made = helper.make_model(
            helper.make_graph(graph.nodes, name, [image], [scores], graph.weights),
            ir_version=8,
            opset_imports=[helper.make_opsetid("", 13)],
        )
        onnx.save(made, directory / f"{name}.onnx")
    drawn = numpy.random.RandomState(1).random_sample((8, 3, 160, 160))
    numpy.save(directory / "inputs.npy", drawn.astype("<f4"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

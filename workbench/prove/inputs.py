"""Write the models and inputs of ``tegrascope prove``: small, with seeded weights.

``python -m tegrascope.workbench.prove.inputs DIRECTORY``
"""

import sys
from pathlib import Path

import numpy

from ...collectors.models.builtin import CLASSES, GraphBuilder

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
        zeros = graph.constant(f"{name}.zero", numpy.zeros(numpy.shape(scale)), "|i1")
        for operation in ("QuantizeLinear", "DequantizeLinear"):
            ends = [source, scales, zeros]
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
        sides: tuple[int | str, int | str] = (_SIDE, _SIDE)
        if name == "open":
            sides = ("height", "width")
        model = graph.model(name, sides, "scores", (CLASSES,))
        (directory / f"{name}.onnx").write_bytes(model)
    drawn = numpy.random.RandomState(1).random_sample((8, 3, 160, 160))
    numpy.save(directory / "inputs.npy", drawn.astype("<f4"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

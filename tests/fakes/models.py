"""Small ONNX models, made for a test."""

from pathlib import Path
from typing import Any

import numpy
import onnx

FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def write_chain(
    path: Path,
    *operations: str,
    shape: tuple[int | str, ...] = (1, 4),
    kind: int = FLOAT,
    opset: int = 13,
) -> Path:
    """Write a model whose nodes follow each other, each with one input and one output.

    An operation of another domain is ``DOMAIN:NAME``.
    """
    plain = [operation.rpartition(":") for operation in operations]
    names = ["given", *(f"t{at}" for at in range(1, len(operations))), "made"]
    nodes = [
        onnx.helper.make_node(
            operation, [source], [result], name=f"{operation.lower()}{at}", domain=domain
        )
        for at, ((domain, _, operation), source, result) in enumerate(
            zip(plain, names, names[1:], strict=False)
        )
    ]
    given, *inner, made = (
        onnx.helper.make_tensor_value_info(name, kind, list(shape)) for name in names
    )
    graph = onnx.helper.make_graph(nodes, "chain", [given], [made], value_info=inner)
    opsets = [onnx.helper.make_opsetid("", opset)]
    opsets += [onnx.helper.make_opsetid(domain, 1) for domain, _, _ in plain if domain]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets)
    path.write_bytes(model.SerializeToString())
    return path


CLASSES, FEATURES = 12, 16


def labelled_data(count: int, seed: int = 1) -> tuple["numpy.ndarray[Any, Any]", Any]:
    """Return inputs, shape (count, 16), and their classes: clouds around twelve points."""
    centres = numpy.random.RandomState(5).normal(size=(CLASSES, FEATURES)) * 40
    random = numpy.random.RandomState(seed)
    labels = random.randint(0, CLASSES, count)
    return (centres[labels] + random.normal(size=(count, FEATURES)) * 40).astype("f4"), labels


def write_classifier(path: Path, *, hidden: int = 96) -> Path:
    """Write a network that tells these classes apart: random features, then a fit.

    Its input is far above 4 and its hidden values are far below 0.1, as no made-up range expects.
    """
    inputs, labels = labelled_data(4000, seed=2)
    random = numpy.random.RandomState(3)
    first = random.normal(size=(FEATURES, hidden)).astype("f4") * numpy.float32(1e-4)
    shift = (random.normal(size=hidden) * 5e-3).astype("f4")
    features = numpy.maximum(inputs @ first + shift, 0)
    wanted = numpy.eye(CLASSES, dtype="f4")[labels]
    second = numpy.linalg.lstsq(features, wanted, rcond=1e-6)[0].astype("f4")
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            node("MatMul", ["given", "first"], ["summed"], name="fc1"),
            node("Add", ["summed", "shift"], ["shifted"], name="add1"),
            node("Relu", ["shifted"], ["hidden"], name="relu1"),
            node("MatMul", ["hidden", "second"], ["made"], name="fc2"),
        ],
        "classifier",
        [info("given", FLOAT, ["N", FEATURES])],
        [info("made", FLOAT, ["N", CLASSES])],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array in (("first", first), ("shift", shift), ("second", second))
        ],
        value_info=[info(name, FLOAT, ["N", hidden]) for name in ("summed", "shifted", "hidden")],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opset)
    path.write_bytes(model.SerializeToString())
    return path


def simulated(content: bytes, scales: "dict[str, float]") -> bytes:
    """Return a model with every scaled tensor, and every matrix by its own range, in int8."""
    made = onnx.load_from_string(content)
    graph = made.graph
    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    known = dict(scales)
    known |= {n: float(abs(a).max() / 127) for n, a in arrays.items() if a.ndim == 2}
    outputs = {value.name for value in graph.output}
    nodes = []
    for tensor, scale in known.items():
        graph.initializer.append(
            onnx.numpy_helper.from_array(numpy.array(scale or 1.0, "f4"), f"{tensor}.scale")
        )
        graph.initializer.append(
            onnx.numpy_helper.from_array(numpy.array(0, "i1"), f"{tensor}.zero")
        )
        ends = [f"{tensor}.scale", f"{tensor}.zero"]
        source = f"{tensor}.real" if tensor in outputs else tensor
        result = tensor if tensor in outputs else f"{tensor}.near"
        nodes.append(onnx.helper.make_node("QuantizeLinear", [source, *ends], [f"{tensor}.q"]))
        nodes.append(onnx.helper.make_node("DequantizeLinear", [f"{tensor}.q", *ends], [result]))
    for node in graph.node:
        node.input[:] = [f"{n}.near" if n in known and n not in outputs else n for n in node.input]
        node.output[:] = [f"{n}.real" if n in known and n in outputs else n for n in node.output]
    ordered, ready = [], {"given", *arrays} | {one.name for one in graph.initializer}
    waiting = [*graph.node, *nodes]
    while waiting:
        fit = [node for node in waiting if ready.issuperset(node.input)]
        ordered += fit
        ready |= {name for node in fit for name in node.output}
        waiting = [node for node in waiting if not ready.issuperset(node.output)]
    del graph.node[:]
    graph.node.extend(ordered)
    return bytes(made.SerializeToString())

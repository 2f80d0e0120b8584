"""Small ONNX models, made for a test."""

from pathlib import Path

import onnx

FLOAT, HALF = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def write_chain(
    path: Path, *operations: str, shape: tuple[int | str, ...] = (1, 4), kind: int = FLOAT
) -> Path:
    """Write a model whose nodes follow each other, each with one input and one output."""
    names = ["given", *(f"t{at}" for at in range(1, len(operations))), "made"]
    nodes = [
        onnx.helper.make_node(operation, [source], [result], name=f"{operation.lower()}{at}")
        for at, (operation, source, result) in enumerate(
            zip(operations, names, names[1:], strict=False)
        )
    ]
    given, *inner, made = (
        onnx.helper.make_tensor_value_info(name, kind, list(shape)) for name in names
    )
    graph = onnx.helper.make_graph(nodes, "chain", [given], [made], value_info=inner)
    opset = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=opset)
    path.write_bytes(model.SerializeToString())
    return path

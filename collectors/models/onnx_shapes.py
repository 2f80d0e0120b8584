"""Infer the shapes of an ONNX model, and compute its small constants on the way.

Exporters write ``Reshape`` to a shape that a chain of nodes computes. If the inputs have fixed
shapes, the chain is constant: TensorRT computes it once, and so does this module.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...parsers.onnx.graph import LONGEST_VALUES

if TYPE_CHECKING:
    import numpy
    import onnx

    # Constant tensors by name; None where the values are many or unknown.
    Constants = dict[str, numpy.ndarray | None]

Values = tuple[int | float | bool, ...]

# Operators that compute shapes, axes and limits; each is cheap and deterministic.
# fmt: off
_FOLDED = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape",
    "Div", "Equal", "Expand", "Flatten", "Floor", "Gather", "GatherND",
    "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min",
    "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Range",
    "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "ScatterND",
    "Shape", "Sign", "Size", "Slice", "Split", "Sqrt", "Squeeze",
    "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
})
# fmt: on
_RANDOM = ("Bernoulli", "Multinomial", "Random")  # beginnings of their names
# Each pass finds the shapes that follow from the constants of the pass before. A transformer needs
# one or two for each of its blocks.
_PASSES = 256


class ShapeError(ValueError):
    """A shape does not fit an input; ``fitting`` has those that do, as ``--shape`` takes them.

    An open length is a ``?``.
    """

    def __init__(self, words: str, inputs: Iterable["onnx.ValueInfoProto"]) -> None:
        super().__init__(words)
        shapes = []
        for one in inputs:
            lengths = (max(0, at.dim_value) for at in one.type.tensor_type.shape.dim)
            shapes.append(f"{one.name}:{'x'.join(str(n or '?') for n in lengths) or '?'}")
        self.fitting = " ".join(shapes)


def fix_inputs(model: "onnx.ModelProto", shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Replace open dimensions by numbers, also those of the same name in other inputs.

    Raises:
        ShapeError: The input does not exist, or has other dimensions.
    """
    weights = {one.name for one in model.graph.initializer}
    inputs = {one.name: one for one in model.graph.input if one.name not in weights}
    named: dict[str, int] = {}
    for name, wanted in shapes.items():
        if name not in inputs:
            words = f"no input is named {name!r} (it has {', '.join(inputs) or 'none'})"
            raise ShapeError(words, inputs.values())
        dimensions = inputs[name].type.tensor_type.shape.dim
        if dimensions and len(dimensions) != len(wanted):
            words = f"input {name!r} has {len(dimensions)} dimensions, not {len(wanted)}"
            raise ShapeError(words, (inputs[name],))
        if not dimensions:
            for _ in wanted:
                inputs[name].type.tensor_type.shape.dim.add()
        for dimension, length in zip(dimensions, wanted, strict=True):
            if dimension.HasField("dim_value") and dimension.dim_value not in (length, -1, 0):
                raise ShapeError(
                    f"input {name!r} is fixed to {dimension.dim_value} where {length} is given",
                    (inputs[name],),
                )
            if dimension.dim_param:
                named[dimension.dim_param] = length
            dimension.dim_value = length
    for one in model.graph.input:
        for dimension in one.type.tensor_type.shape.dim:
            # Some exporters write an open dimension as 0 or -1.
            if dimension.HasField("dim_value") and dimension.dim_value < 1:
                dimension.ClearField("dim_value")
            if dimension.dim_param in named:
                dimension.dim_value = named[dimension.dim_param]
    if shapes:
        # Shapes of other tensors in the file belong to the open shapes.
        del model.graph.value_info[:]
        for one in model.graph.output:
            one.type.tensor_type.ClearField("shape")


def infer(model: "onnx.ModelProto") -> tuple[dict[str, Values | None], str | None]:
    """Infer the shapes of all tensors, and store them in the model.

    Returns:
        Constant tensors, with their values if they are few and known; and the reason why some
        shapes are unknown, or None.
    """
    import onnx

    constants, problem = _weights(model), None
    found = onnx.ModelProto()
    found.CopyFrom(model)
    for _ in range(_PASSES):
        try:
            found = onnx.shape_inference.infer_shapes(found)
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
            problem = " ".join(str(error).split())[:200]
        if not _fold(found, constants) or problem is not None:
            break
        _replace_constants(found, constants)
    for of_model, of_found in (
        (model.graph.value_info, found.graph.value_info),
        (model.graph.output, found.graph.output),
    ):
        del of_model[:]
        of_model.extend(of_found)
    return {name: _values(values) for name, values in constants.items()}, problem


def _weights(model: "onnx.ModelProto") -> "Constants":
    from onnx import numpy_helper

    found: Constants = {}
    for one in model.graph.initializer:
        # Contents of large tensors and of those in other files are absent.
        held = not one.external_data and math.prod(one.dims) <= LONGEST_VALUES
        try:
            found[one.name] = numpy_helper.to_array(one) if held else None
        except (ValueError, TypeError):
            found[one.name] = None
    found.update((one.values.name, None) for one in model.graph.sparse_initializer)
    return found


def _replace_constants(model: "onnx.ModelProto", constants: "Constants") -> None:
    """Replace nodes with known results by constants, which inference can see."""
    from onnx import helper, numpy_helper

    for node in model.graph.node:
        values = constants.get(node.output[0]) if len(node.output) == 1 else None
        if values is not None and node.op_type != "Constant":
            made = helper.make_node(
                "Constant", [], list(node.output), value=numpy_helper.from_array(values)
            )
            node.CopyFrom(made)


def _fold(model: "onnx.ModelProto", constants: "Constants") -> bool:
    """Compute the nodes that read only constants; return whether anything new was found."""
    nodes = [
        node
        for node in model.graph.node
        if any(constants.get(name) is None for name in node.output)
    ]
    asked = {node.input[0] for node in nodes if node.op_type in ("Shape", "Size")}
    fixed = {
        info.name: [one.dim_value for one in info.type.tensor_type.shape.dim]
        for info in (*model.graph.value_info, *model.graph.input)
        if info.name in asked
        and info.type.tensor_type.HasField("shape")
        and all(one.HasField("dim_value") for one in info.type.tensor_type.shape.dim)
    }
    fixed |= {name: list(one.shape) for name, one in constants.items() if one is not None}
    fixed |= {one.name: list(one.dims) for one in model.graph.initializer}
    opsets = {one.domain: one.version for one in model.opset_import}
    before = _progress(constants)
    for node in nodes:
        if node.op_type in ("Shape", "Size") and node.input[0] in fixed and not node.domain:
            _fold_shape(node, fixed[node.input[0]], constants)
        elif _is_constant(node, constants):
            _fold_node(node, constants, opsets)
    return _progress(constants) > before


def _progress(constants: "Constants") -> int:
    return len(constants) + sum(values is not None for values in constants.values())


def _is_constant(node: "onnx.NodeProto", constants: "Constants") -> bool:
    if node.op_type.startswith(_RANDOM) or any(one.g.node or one.graphs for one in node.attribute):
        return False
    return all(name in constants for name in node.input if name)


def _fold_shape(node: "onnx.NodeProto", shape: list[int], constants: "Constants") -> None:
    import numpy

    cut = {one.name: one.i for one in node.attribute}
    found = shape[cut.get("start", 0) : cut.get("end", len(shape))]
    result = numpy.prod(shape) if node.op_type == "Size" else found
    constants[node.output[0]] = numpy.asarray(result, dtype=numpy.int64)


def _fold_node(node: "onnx.NodeProto", constants: "Constants", opsets: Mapping[str, int]) -> None:
    """Compute a node if it is small and of a kind that exporters compute shapes with."""
    known = {name: constants[name] for name in node.input if name}
    for name in node.output:
        constants.setdefault(name, None)
    if all(constants[name] is not None for name in node.output if name):
        return
    results: list[Any] | None = None
    if node.op_type == "Constant":
        results = _constant(node)
    elif (
        node.op_type in _FOLDED
        and not node.domain
        and all(values is not None for values in known.values())
        and _is_small(node, known)
    ):
        results = _run(node, known, opsets)
    for name, values in zip(node.output, results or [], strict=False):
        if name and getattr(values, "size", LONGEST_VALUES + 1) <= LONGEST_VALUES:
            constants[name] = values


def _is_small(node: "onnx.NodeProto", known: "Constants") -> bool:
    """Whether the result is small: nothing large is ever computed."""
    given = [known[name].ravel().tolist() for name in node.input if name]  # type: ignore[union-attr]
    if node.op_type == "Range":
        start, limit, step = (values[0] for values in given)
        return bool(step) and bool(abs((limit - start) / step) <= LONGEST_VALUES)
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        lengths = given[-1]
        factor = len(given[0]) if node.op_type == "Tile" else 1
        return bool(abs(math.prod(lengths) * factor) <= LONGEST_VALUES)
    return True


def _constant(node: "onnx.NodeProto") -> list[Any] | None:
    import numpy
    from onnx import helper, numpy_helper

    for one in node.attribute:
        if one.name == "value":
            held = math.prod(one.t.dims) <= LONGEST_VALUES and not one.t.external_data
            return [numpy_helper.to_array(one.t)] if held else None
        if one.name in ("value_int", "value_ints", "value_float", "value_floats"):
            dtype = numpy.int64 if "int" in one.name else numpy.float32
            return [numpy.asarray(helper.get_attribute_value(one), dtype=dtype)]
    return None


def _run(node: "onnx.NodeProto", known: "Constants", opsets: Mapping[str, int]) -> list[Any] | None:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    inputs, outputs = (
        [helper.make_value_info(name, helper.make_tensor_type_proto(1, None)) for name in names]
        for names in (known, filter(None, node.output))
    )
    graph = helper.make_graph([node], "constant", inputs, outputs)
    try:
        own = opsets.get("", opsets.get("ai.onnx", 13))
        return list(ReferenceEvaluator(graph, {"": own}).run(None, known))
    except Exception:
        # Any failure of its kernels leaves the value unknown, which the notes report.
        return None


def _values(found: "numpy.ndarray | None") -> Values | None:
    if found is None or found.dtype.kind not in "biuf":
        return None
    return tuple(found.ravel().tolist())

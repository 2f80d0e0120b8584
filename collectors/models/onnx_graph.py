"""Read an ONNX file as a graph: with shapes inferred, without weights.

``python -m tegrascope.collectors.models.onnx_graph MODEL SHAPES`` prints the graph or an error as
one JSON object. ``read_graph_apart`` runs it, because ONNX's inference of shapes may crash.

Exporters write ``Reshape`` to a shape that a chain of nodes computes. If the inputs have fixed
shapes, the chain is constant: TensorRT computes it once, and so does this module.
"""

import json
import math
import mmap
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from ...parsers.errors import UserError
from ...parsers.onnx import slim
from ...parsers.onnx.graph import LONGEST_VALUES, SUBGRAPH, Attribute, Graph, Node, Shape, Tensor
from ...parsers.onnx.memory import session_bytes
from ..children.bounded import limit_memory
from ..paths import is_file
from .files import INSTALL_ONNX, GraphAnswer, external_files

try:
    import numpy
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import helper, numpy_helper
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    print(GraphAnswer(problem="onnx is not installed", remedy=INSTALL_ONNX).model_dump_json())
    sys.exit()

_AGAIN = "export the model again"
# The largest models that are exported have some ten thousand nodes.
_MOST_NODES = 1_000_000
_MOST_BYTES = 256 << 20
# The first version of the format in which a model has to name its opsets.
_OPSETS_SINCE = 3
_NUMPY_NAMES = {"double": "float64", "float": "float32"}

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
# Those that bring all their inputs to one shape: that of three small ones may be large.
_BROADCAST = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    "Max", "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Where",
})
# fmt: on
_RANDOM = ("Bernoulli", "Multinomial", "Random")  # beginnings of their names
# Each pass finds the shapes that follow from the constants of the pass before. A transformer needs
# one or two for each of its blocks.
_PASSES = 256

# Constant tensors by name; None where the values are many or unknown.
Constants = dict[str, numpy.ndarray | None]
Values = tuple[int | float | bool, ...]


def read_graph(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Read a model; weights in other files must exist, but are not read.

    Args:
        shapes: Input to the length of each dimension, for inputs with open dimensions.

    Raises:
        UserError: The file does not exist, it is not an ONNX model, files with its weights are
            missing, or a shape does not fit.
    """
    model = _load(path)
    notes = list(_oddities(path, model))
    _fix_inputs(path, model, shapes or {})
    try:
        constants, problem = _infer(model)
        if problem is not None:
            notes.append(f"some shapes are unknown: {problem}")
        graph = _graph(model, constants, notes)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # For example a name that is not text: records reject what the library accepts.
        raise UserError(f"{path} cannot be read as ONNX", _AGAIN) from None
    return graph.model_copy(update={"notes": (*graph.notes, *_not_known(graph))})


def _oddities(path: Path, model: onnx.ModelProto) -> Iterator[str]:
    """Sort the nodes; yield a note for each harmless oddity, raise ``UserError`` for another."""
    opsets = _opsets(model)
    is_own = any(_domain(node.domain) == "" for node in model.graph.node)
    if is_own and "" not in opsets and model.ir_version >= _OPSETS_SINCE:
        raise UserError(f"{path} does not name the opset of its operators", _AGAIN)
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 0) > newest:
        yield f"the model has opset {opsets['']}; it is read as {newest}, the newest of this onnx"
    try:
        if _put_in_order(model.graph):
            yield "the nodes were not in an order in which they can run; they were sorted"
    except ValueError as error:
        raise UserError(f"{path} is not a valid graph: {error}", _AGAIN) from None


def _put_in_order(graph: onnx.GraphProto) -> bool:
    """Sort the nodes of a main graph in place; return whether any was moved.

    ONNX requires that each follows those it reads from, but not all tools keep that order, and
    TensorRT sorts too. Nodes that are in order already stay in their order.

    Raises:
        ValueError: An input has no name, or a tensor is made twice, read but never made, or
            depends on itself.
    """
    for value in graph.input:
        if not value.name:
            raise ValueError("an input has no name")
    given = set(_given(graph))
    makers = _makers(graph, given)
    sorter: TopologicalSorter[int] = TopologicalSorter()
    is_sorted = True
    for index, node in enumerate(graph.node):
        sorter.add(index)
        for name in _read_by(node):
            if name in makers:
                sorter.add(index, makers[name])
                is_sorted = is_sorted and makers[name] < index
            elif name not in given:
                raise ValueError(f"{_word(node)} reads {name!r}, which no node makes")
    if is_sorted:
        return False
    try:
        ordered = [graph.node[index] for index in sorter.static_order()]
    except CycleError as error:
        node = graph.node[min(error.args[1])]
        raise ValueError(f"{_word(node)} can never run: nodes wait for each other") from None
    copies = type(graph)(node=ordered)
    del graph.node[:]
    graph.node.extend(copies.node)
    return True


def _makers(graph: onnx.GraphProto, given: Collection[str]) -> dict[str, int]:
    """Return the index of the node that makes each tensor; raise ``ValueError`` if two do."""
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers:
                other = _word(graph.node[makers[name]])
                raise ValueError(f"{other} and {_word(node)} both make {name!r}")
            if name in given:
                raise ValueError(f"{_word(node)} makes {name!r}, which is an input or a weight")
            makers[name] = index
    return makers


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node and its subgraphs read from the main graph."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        yield from _free((attribute.g,) if attribute.HasField("g") else attribute.graphs)


def _free(graphs: Iterable[onnx.GraphProto]) -> Iterator[str]:
    """Yield the tensors of the outer graph that subgraphs read, or return as an output."""
    for graph in graphs:
        inside = set(_given(graph))
        read = [output.name for output in graph.output]
        for node in graph.node:
            inside.update(node.output)
            read += _read_by(node)
        for name in read:
            if name and name not in inside:
                yield name


def _given(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the inputs and weights of a graph."""
    for value in graph.input:
        yield value.name
    for weight in graph.initializer:
        yield weight.name
    for sparse in graph.sparse_initializer:
        yield sparse.values.name


def _word(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r}" if node.name else f"a {node.op_type}"


def _not_known(graph: Graph) -> Iterator[str]:
    """Yield a note if shapes are unknown that the inputs should determine, with the first node.

    Behind an open input only a tensor without any shape counts: open dimensions are as expected.
    """
    is_fixed = all(graph.tensor(name).is_fixed for name in graph.inputs)
    unknown: list[tuple[Node, Tensor]] = []
    for node in graph.nodes:
        for tensor in map(graph.tensor, filter(None, node.outputs)):
            is_known = tensor.is_fixed if is_fixed else tensor.shape is not None
            if not is_known and not tensor.is_constant:
                unknown.append((node, tensor))
    if not unknown:
        return
    # Nodes come after those that they read, so the inputs of the first one have shapes.
    first, tensor = unknown[0]
    domain = f" of {first.domain}" if first.domain else ""
    opset = graph.opsets.get(first.domain)
    if opset is not None:
        domain += f" (the model has opset {opset})"
    yield (
        f"the shapes of {len(unknown)} tensors are unknown; the first is {tensor.name}, of the"
        f" node {first.op} {first.name!r}{domain}; simplify the"
        " model first (onnxsim, or polygraphy surgeon sanitize --fold-constants)"
    )


def _load(path: Path) -> onnx.ModelProto:
    if not is_file(path):
        raise UserError(f"there is no model file {path}", "give an ONNX file")
    external_files(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            model = onnx.load_model_from_string(slim(data))
    except (DecodeError, ValueError):
        raise UserError(f"{path} cannot be read as ONNX", _AGAIN) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "make it readable") from None
    if not model.graph.node:
        raise UserError(f"{path} contains no node: it is not an ONNX model", _AGAIN)
    _check_names(path, model)
    _check_size(path, model)
    if not model.functions:
        return model
    # TensorRT inlines the model's own functions too.
    from onnx.inliner import inline_local_functions

    try:
        return inline_local_functions(model)
    except (RuntimeError, onnx.checker.ValidationError, ValueError) as error:
        words = " ".join(str(error).split())
        raise UserError(f"{path}: its functions cannot be inlined ({words})", _AGAIN) from None


def _check_names(path: Path, model: onnx.ModelProto) -> None:
    """Raise UserError if a name is not text: the library returns its bytes then."""
    names: list[object] = []
    nodes = [*model.graph.node]
    for opset in model.opset_import:
        names.append(opset.domain)
    for function in model.functions:
        names += (function.domain, function.name)
        nodes += function.node
    for node in _with_subgraphs(nodes):
        names += (node.op_type, node.domain, node.name, *node.input, *node.output)
    names += _given(model.graph)
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        names.append(info.name)
        for dimension in info.type.tensor_type.shape.dim:
            names.append(dimension.dim_param)
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{path} has a name that is not UTF-8 text", _AGAIN)


# Name of a function of the model: domain, name, overload.
_FunctionId = tuple[str, str, str]


class _Size(NamedTuple):
    """Nodes with those of subgraphs, and bytes, when each call is replaced by its function."""

    nodes: int
    bytes: int


def _check_size(path: Path, model: onnx.ModelProto) -> None:
    """Raise UserError if a model has too many nodes, or would have them with its functions inlined.

    It is counted before anything is inlined: 31 functions that each call the next one twice are
    2 KB, and 2^30 nodes.
    """
    try:
        size = _inlined_size(model)
    except CycleError:
        words = "its functions cannot be inlined (a function calls itself)"
        raise UserError(f"{path}: {words}", _AGAIN) from None
    if size.nodes > _MOST_NODES or size.bytes > _MOST_BYTES:
        inlined = " with its functions inlined" if model.functions else ""
        what = f"{path} has over {_MOST_NODES} nodes, or {_MOST_BYTES >> 20} MiB of them{inlined}"
        raise UserError(what, "export a smaller part of the model")


def _inlined_size(model: onnx.ModelProto) -> _Size:
    """Return the size of a model with its functions inlined, or raise ``CycleError``."""
    functions: dict[_FunctionId, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (_domain(function.domain), function.name, function.overload)
        functions[key] = function
    sorter: TopologicalSorter[_FunctionId] = TopologicalSorter()
    for key, function in functions.items():
        called = set(map(_called, _with_subgraphs(function.node)))
        sorter.add(key, *(called & functions.keys()))
    sizes: dict[_FunctionId, _Size] = {}
    for key in sorter.static_order():
        sizes[key] = _size_of(functions[key].node, sizes)
    return _size_of(model.graph.node, sizes)


def _size_of(nodes: Iterable[onnx.NodeProto], sizes: Mapping[_FunctionId, _Size]) -> _Size:
    """Return the size of nodes that call functions of known sizes.

    Beyond the limits it need not be exact, and the numbers would grow without end.
    """
    count = size_bytes = 0
    for node in nodes:
        size_bytes += node.ByteSize()  # with its subgraphs
        for inner in _with_subgraphs([node]):
            inlined = sizes.get(_called(inner), _Size(0, 0))
            count += 1 + inlined.nodes
            size_bytes += inlined.bytes
    return _Size(min(count, _MOST_NODES + 1), min(size_bytes, _MOST_BYTES + 1))


def _called(node: onnx.NodeProto) -> _FunctionId:
    return (_domain(node.domain), node.op_type, node.overload)


def _with_subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes and those of their subgraphs."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        for attribute in node.attribute:
            waiting.extend(attribute.g.node)
            for graph in attribute.graphs:
                waiting.extend(graph.node)


def _fix_inputs(path: Path, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Fix open dimensions, also those of the same name in other inputs, or raise ``UserError``."""
    inputs = _inputs_of(model)
    lengths: dict[str, int] = {}
    for name, wanted in shapes.items():
        if name not in inputs:
            words = f"no input is named {name!r} (it has {', '.join(inputs) or 'none'})"
            raise _misfit(path, words, inputs.values())
        lengths |= _fix_input(path, inputs[name], wanted)
    for value in model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            # Some exporters write an open dimension as 0 or -1.
            if dimension.HasField("dim_value") and dimension.dim_value < 1:
                dimension.ClearField("dim_value")
            if dimension.dim_param in lengths:
                dimension.dim_value = lengths[dimension.dim_param]
    if shapes:
        # Shapes of other tensors in the file belong to the open shapes.
        del model.graph.value_info[:]
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")


def _inputs_of(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return the inputs by name, without weights, which older files list among them."""
    inputs = {value.name: value for value in model.graph.input}
    for weight in model.graph.initializer:
        inputs.pop(weight.name, None)
    for sparse in model.graph.sparse_initializer:
        inputs.pop(sparse.values.name, None)
    return inputs


def _fix_input(path: Path, value: onnx.ValueInfoProto, wanted: tuple[int, ...]) -> dict[str, int]:
    """Give one input a shape; return the length of each dimension that had a name."""
    dimensions = value.type.tensor_type.shape.dim
    if not dimensions:
        for _ in wanted:
            dimensions.add()
    if len(dimensions) != len(wanted):
        words = f"input {value.name!r} has {len(dimensions)} dimensions, not {len(wanted)}"
        raise _misfit(path, words, (value,))
    lengths: dict[str, int] = {}
    for dimension, length in zip(dimensions, wanted, strict=True):
        own_length = dimension.dim_value if dimension.HasField("dim_value") else 0
        if own_length > 0 and own_length != length:
            words = f"input {value.name!r} is fixed to {own_length} where {length} is given"
            raise _misfit(path, words, (value,))
        if dimension.dim_param:
            lengths[dimension.dim_param] = length
        dimension.dim_value = length
    return lengths


def _misfit(path: Path, words: str, inputs: Iterable[onnx.ValueInfoProto]) -> UserError:
    """Return the error of a shape; the remedy has those that fit, an open length as ``?``."""
    shapes = []
    for value in inputs:
        dimensions = value.type.tensor_type.shape.dim
        lengths = [str(max(0, dimension.dim_value) or "?") for dimension in dimensions]
        shapes.append(f"{value.name}:{'x'.join(lengths) or '?'}")
    remedy = f"give --shape {' '.join(shapes)}" if shapes else "leave --shape out"
    if "?" in remedy:
        remedy += ", a number for each ?"
    return UserError(f"{path}: {words}", remedy)


def _infer(model: onnx.ModelProto) -> tuple[dict[str, Values | None], str | None]:
    """Infer the shapes of all tensors, and store them in the model.

    Returns:
        Constant tensors, with their values if they are few and known; and the reason why some
        shapes are unknown, or None.
    """
    constants, problem = _weights(model), None
    inferred = onnx.ModelProto()
    inferred.CopyFrom(model)
    for _ in range(_PASSES):
        try:
            inferred = onnx.shape_inference.infer_shapes(inferred)
        except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
            problem = " ".join(str(error).split())[:200]
        if not _fold(inferred, constants) or problem is not None:
            break
        _replace_constants(inferred, constants)
    for of_model, of_inferred in (
        (model.graph.value_info, inferred.graph.value_info),
        (model.graph.output, inferred.graph.output),
    ):
        del of_model[:]
        of_model.extend(of_inferred)
    numbers: dict[str, Values | None] = {}
    for name, array in constants.items():
        numbers[name] = None
        if array is not None and array.dtype.kind in "biuf":
            numbers[name] = tuple(array.ravel().tolist())
    return numbers, problem


def _weights(model: onnx.ModelProto) -> Constants:
    """Return the weights of a model, with the values of small ones."""
    weights: Constants = {}
    for weight in model.graph.initializer:
        weights[weight.name] = None
        # Contents of large tensors and of those in other files are absent.
        if not weight.external_data and math.prod(weight.dims) <= LONGEST_VALUES:
            with suppress(ValueError, TypeError):
                weights[weight.name] = numpy_helper.to_array(weight)
    for sparse in model.graph.sparse_initializer:
        weights[sparse.values.name] = None
    return weights


def _replace_constants(model: onnx.ModelProto, constants: Constants) -> None:
    """Replace nodes with known results by constants, which inference can see."""
    for node in model.graph.node:
        values = constants.get(node.output[0]) if len(node.output) == 1 else None
        if values is not None and node.op_type != "Constant":
            made = helper.make_node(
                "Constant", [], list(node.output), value=numpy_helper.from_array(values)
            )
            node.CopyFrom(made)


def _fold(model: onnx.ModelProto, constants: Constants) -> bool:
    """Compute the nodes that read only constants; return whether anything new was found."""
    nodes = [node for node in model.graph.node if _is_unknown(node, constants)]
    sized = _sized(model, nodes, constants)
    opsets = _opsets(model)
    before = _progress(constants)
    for node in nodes:
        if _asks_for_shape(node) and node.input[0] in sized and not node.domain:
            _fold_shape(node, sized[node.input[0]], constants)
        elif _is_constant(node, constants):
            _fold_node(node, constants, opsets)
    return _progress(constants) > before


def _is_unknown(node: onnx.NodeProto, constants: Constants) -> bool:
    """Return whether the values of any output of a node are unknown."""
    return any(constants.get(name) is None for name in node.output)


def _asks_for_shape(node: onnx.NodeProto) -> bool:
    return node.op_type in ("Shape", "Size")


def _sized(
    model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto], constants: Constants
) -> dict[str, list[int]]:
    """Return the shapes of constants, and of those tensors whose shape a node asks for."""
    asked = {node.input[0] for node in nodes if _asks_for_shape(node)}
    shapes: dict[str, list[int]] = {}
    for info in (*model.graph.value_info, *model.graph.input):
        tensor = info.type.tensor_type
        if info.name not in asked or not tensor.HasField("shape"):
            continue
        if all(dimension.HasField("dim_value") for dimension in tensor.shape.dim):
            shapes[info.name] = [dimension.dim_value for dimension in tensor.shape.dim]
    for name, array in constants.items():
        if array is not None:
            shapes[name] = list(array.shape)
    for weight in model.graph.initializer:
        shapes[weight.name] = list(weight.dims)
    return shapes


def _progress(constants: Constants) -> int:
    return len(constants) + sum(values is not None for values in constants.values())


def _is_constant(node: onnx.NodeProto, constants: Constants) -> bool:
    """Return whether a node has the same result each time: it reads only constants."""
    if node.op_type.startswith(_RANDOM):
        return False
    for attribute in node.attribute:
        if attribute.g.node or attribute.graphs:
            return False
    return all(name in constants for name in node.input if name)


_LARGEST_SIZE = 2**63 - 1  # of an int64


def _fold_shape(node: onnx.NodeProto, shape: list[int], constants: Constants) -> None:
    size = math.prod(shape)
    result: int | list[int] = size
    if node.op_type == "Shape":
        ends = {attribute.name: attribute.i for attribute in node.attribute}
        result = shape[ends.get("start", 0) : ends.get("end", len(shape))]
    elif size > _LARGEST_SIZE:
        return  # no runtime has such a tensor: its size stays unknown
    constants[node.output[0]] = numpy.asarray(result, dtype=numpy.int64)


def _fold_node(node: onnx.NodeProto, constants: Constants, opsets: Mapping[str, int]) -> None:
    """Compute a node if it is small and of a kind that exporters compute shapes with."""
    for name in node.output:
        constants.setdefault(name, None)
    if not any(constants[name] is None for name in node.output if name):
        return
    known = {name: constants[name] for name in node.input if name}
    results: list[Any] | None = None
    if node.op_type == "Constant":
        results = _constant(node)
    elif node.op_type in _FOLDED and not node.domain:
        has_values = all(values is not None for values in known.values())
        if has_values and _is_small(node, known):
            results = _run(node, known, opsets)
    for name, values in zip(node.output, results or [], strict=False):
        if name and getattr(values, "size", LONGEST_VALUES + 1) <= LONGEST_VALUES:
            constants[name] = values


def _is_small(node: onnx.NodeProto, known: Constants) -> bool:
    """Return whether the result is small: nothing large is ever computed."""
    # In the order of the inputs, which may name the same tensor a million times.
    inputs = [known[name] for name in node.input if name]
    if node.op_type == "Concat":
        return sum(array.size for array in inputs if array is not None) <= LONGEST_VALUES
    if node.op_type in _BROADCAST:
        shapes = [array.shape for array in known.values() if array is not None]
        try:
            return math.prod(numpy.broadcast_shapes(*shapes)) <= LONGEST_VALUES
        except ValueError:
            return False
    if node.op_type == "Range":
        # Python's numbers: those of numpy may overflow.
        start, limit, step = (array.item(0) for array in inputs if array is not None)
        return bool(step) and bool(abs((limit - start) / step) <= LONGEST_VALUES)
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        lengths = inputs[-1]
        assert lengths is not None
        size = math.prod(lengths.ravel().tolist())
        if node.op_type == "Tile" and inputs[0] is not None:
            size *= inputs[0].size
        return bool(abs(size) <= LONGEST_VALUES)
    return True


def _constant(node: onnx.NodeProto) -> list[Any] | None:
    """Return the value of a node ``Constant``, or ``None`` if it is large or not a number."""
    for attribute in node.attribute:
        if attribute.name == "value":
            if attribute.t.external_data or math.prod(attribute.t.dims) > LONGEST_VALUES:
                return None
            return [numpy_helper.to_array(attribute.t)]
        if attribute.name in ("value_int", "value_ints", "value_float", "value_floats"):
            dtype = numpy.int64 if "int" in attribute.name else numpy.float32
            return [numpy.asarray(helper.get_attribute_value(attribute), dtype=dtype)]
    return None


def _run(node: onnx.NodeProto, known: Constants, opsets: Mapping[str, int]) -> list[Any] | None:
    """Return the results of a node by the kernels of onnx, or ``None`` if one fails."""
    from onnx.reference import ReferenceEvaluator

    outputs = filter(None, node.output)
    graph = helper.make_graph([node], "constant", _untyped(known), _untyped(outputs))
    try:
        return list(ReferenceEvaluator(graph, {"": opsets.get("", 13)}).run(None, known))
    except Exception:
        # Any failure of its kernels leaves the value unknown, which the notes report.
        return None


def _untyped(names: Iterable[str]) -> list[onnx.ValueInfoProto]:
    """Return declarations of tensors; the evaluator does not look at their types."""
    kind = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    return [helper.make_value_info(name, kind) for name in names]


def _graph(
    model: onnx.ModelProto,
    constants: Mapping[str, Values | None],
    notes: Iterable[str],
) -> Graph:
    """Convert a model with inferred shapes; ``constants`` map a tensor to its values if few."""
    weights = {weight.name: weight for weight in model.graph.initializer}
    for sparse in model.graph.sparse_initializer:
        weights[sparse.values.name] = sparse.values
    tensors: dict[str, Tensor] = {}
    for info in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        kind = info.type.tensor_type
        tensors[info.name] = Tensor(
            name=info.name,
            dtype=_dtype(kind.elem_type),
            shape=_shape(kind.shape) if kind.HasField("shape") else None,
            is_constant=info.name in constants,
            values=constants.get(info.name),
        )
    for name, weight in weights.items():
        tensors[name] = Tensor(
            name=name,
            dtype=_dtype(weight.data_type),
            shape=tuple(weight.dims),
            is_constant=True,
            values=constants.get(name),
        )
    for name, values in constants.items():
        if name not in tensors:
            tensors[name] = Tensor(name=name, is_constant=True, values=values)
    return Graph(
        opsets=_opsets(model),
        inputs=tuple(_inputs_of(model)),
        outputs=tuple(value.name for value in model.graph.output),
        nodes=tuple(_node(index, node) for index, node in enumerate(model.graph.node)),
        tensors=tensors,
        notes=tuple(notes),
        image_size=_image_size(model),
    )


# The key of Ultralytics' exports: "[480, 640]", height and width, or one number for both.
_SIZE_KEY = "imgsz"
_SIZE_WORD = re.compile(r"\[?(\d{1,5})(?:, ?(\d{1,5}))?\]?", re.ASCII)


def _image_size(model: onnx.ModelProto) -> tuple[int, int] | None:
    """Return the height and width of images in the metadata of a model, or ``None``."""
    for entry in model.metadata_props:
        if entry.key != _SIZE_KEY or not isinstance(entry.value, str):
            continue
        size = _SIZE_WORD.fullmatch(entry.value)
        if size is not None and int(size[1]) and int(size[2] or 1):
            return int(size[1]), int(size[2] or size[1])
    return None


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {_domain(opset.domain): opset.version for opset in model.opset_import}


def _node(index: int, node: onnx.NodeProto) -> Node:
    attributes: dict[str, Attribute] = {}
    for attribute in node.attribute:
        value = _attribute(attribute)
        if value is not None:
            attributes[attribute.name] = value
    return Node(
        index=index,
        name=node.name or f"{node.op_type}_{index}",
        op=node.op_type,
        domain=_domain(node.domain),
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        attributes=attributes,
    )


def _attribute(attribute: onnx.AttributeProto) -> Attribute | None:
    kind = attribute.AttributeType.Name(attribute.type)
    if kind in ("GRAPH", "GRAPHS"):
        return SUBGRAPH
    if kind == "STRING":
        return attribute.s.decode(errors="replace")
    if kind == "STRINGS":
        return tuple(text.decode(errors="replace") for text in attribute.strings)
    if kind == "INT":
        return attribute.i
    if kind == "FLOAT":
        return attribute.f
    if kind == "INTS" and len(attribute.ints) <= LONGEST_VALUES:
        return tuple(attribute.ints)
    if kind == "FLOATS" and len(attribute.floats) <= LONGEST_VALUES:
        return tuple(attribute.floats)
    return None


def _shape(shape: onnx.TensorShapeProto) -> Shape:
    """Return a shape with the name of each open dimension, or ``None`` if it has no name."""
    lengths: list[int | str | None] = []
    for dimension in shape.dim:
        if dimension.HasField("dim_value"):
            lengths.append(dimension.dim_value)
        else:
            lengths.append(dimension.dim_param or None)
    return tuple(lengths)


def _dtype(number: int) -> str | None:
    """Return numpy's name of a type, or ``None`` if it is not given."""
    if not number:
        return None
    name = str(onnx.TensorProto.DataType.Name(number)).lower()
    return _NUMPY_NAMES.get(name, name)


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def main(arguments: list[str]) -> int:
    """Read a model and print the graph, its memory with blocks, or the error, as JSON."""
    path, shapes, most_bytes, *block = arguments
    with suppress(OSError):
        # If memory runs out, Linux is to end this process and not the one that asks.
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        file_bytes = Path(path).stat().st_size if is_file(Path(path)) else 0
        limit_memory(file_bytes + int(most_bytes))  # the file is mapped
        given = {name: tuple(lengths) for name, lengths in json.loads(shapes).items()}
        answer = GraphAnswer(graph=read_graph(Path(path), given))
        if block and answer.graph is not None:
            answer = GraphAnswer(session_bytes=session_bytes(answer.graph, int(block[0])))
    except UserError as error:
        answer = GraphAnswer(problem=error.message, remedy=error.remedy)
    except MemoryError:
        what = f"{path} takes over {int(most_bytes) >> 20} MiB of memory to read"
        answer = GraphAnswer(problem=what, remedy="export a smaller part of the model")
    # Escaped to ASCII: a name may contain any separator of lines.
    print(json.dumps(answer.model_dump(mode="json")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

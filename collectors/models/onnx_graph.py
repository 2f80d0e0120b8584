"""Read an ONNX file as a graph: with shapes inferred, without weights.

``python -m tegrascope.collectors.models.onnx_graph MODEL SHAPES`` prints the graph or an error as
one JSON object. ``read_graph_apart`` runs it, because ONNX's inference of shapes may crash.
"""

import json
import mmap
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING

from ...parsers.errors import UserError
from ...parsers.onnx.graph import LONGEST_VALUES, SUBGRAPH, Attribute, Graph, Node, Shape, Tensor
from ...parsers.onnx.inputs import slim
from ...parsers.records import Record
from ..children.program import ask_child, python_child
from .files import external_files

if TYPE_CHECKING:
    import onnx

_AGAIN = "export the model again"
_INSTALL = "pip install onnx onnxruntime"
_OWN_DOMAINS = ("", "ai.onnx")
# The first version of the format in which a model has to name its opsets.
_OPSETS_SINCE = 3
_NUMPY_NAMES = {"double": "float64", "float": "float32"}
_SECONDS = 600.0


class _Answer(Record):
    graph: Graph | None = None
    problem: str = ""
    remedy: str = ""


def read_graph_apart(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    seconds: float = _SECONDS,
    reader: Sequence[str] | None = None,
) -> Graph:
    """Read a model as ``read_graph`` does, in a child process that may take so many seconds.

    Args:
        reader: Command of the child, if it is not this module.

    Raises:
        UserError: As ``read_graph``; or the child crashed, or took too long.
    """
    given = json.dumps(dict(shapes or {}))
    command = [*(reader or python_child(__spec__.name)), str(path), given]
    answer = ask_child(command, _Answer, "onnx", f"to read {path}", seconds)
    if isinstance(answer, UserError):
        raise UserError(answer.message, "export the model again, or give other shapes")
    if answer.graph is None:
        raise UserError(answer.problem, answer.remedy)
    return answer.graph


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
    from .onnx_shapes import ShapeError, fix_inputs, infer

    try:
        fix_inputs(model, shapes or {})
    except ShapeError as error:
        remedy = f"give --shape {error.fitting}" if error.fitting else "leave --shape out"
        remedy += ", a number for each ?" if "?" in error.fitting else ""
        raise UserError(f"{path}: {error}", remedy) from None
    try:
        constants, problem = infer(model)
        if problem is not None:
            notes.append(f"some shapes are unknown: {problem}")
        graph = _graph(model, constants, notes)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        # For example a name that is not text: records reject what the library accepts.
        raise UserError(f"{path} cannot be read as ONNX", _AGAIN) from None
    return graph.model_copy(update={"notes": (*graph.notes, *_not_known(graph))})


def _oddities(path: Path, model: "onnx.ModelProto") -> Iterator[str]:
    """Sort the nodes; yield a note for each oddity that does not prevent reading.

    Raises:
        UserError: The nodes do not form a graph, or the file does not name its opset.
    """
    from onnx.defs import onnx_opset_version

    opsets = {_domain(one.domain): one.version for one in model.opset_import}
    is_own = any(_domain(node.domain) == "" for node in model.graph.node)
    if is_own and "" not in opsets and model.ir_version >= _OPSETS_SINCE:
        raise UserError(f"{path} does not name the opset of its operators", _AGAIN)
    newest = onnx_opset_version()
    if opsets.get("", 0) > newest:
        yield f"the model has opset {opsets['']}; it is read as {newest}, the newest of this onnx"
    try:
        if _put_in_order(model.graph):
            yield "the nodes were not in an order in which they can run; they were sorted"
    except ValueError as error:
        raise UserError(f"{path} is not a valid graph: {error}", _AGAIN) from None


def _put_in_order(graph: "onnx.GraphProto") -> bool:
    """Sort the nodes of a main graph in place; return whether any was moved.

    ONNX requires that each follows those it reads from, but not all tools keep that order, and
    TensorRT sorts too. Nodes that are in order already stay in their order.

    Raises:
        ValueError: An input has no name, or a tensor is made twice, read but never made, or
            depends on itself.
    """
    if not all(one.name for one in graph.input):
        raise ValueError("an input has no name")
    given = set(_given(graph))
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers:
                other = _word(graph.node[makers[name]])
                raise ValueError(f"{other} and {_word(node)} both make {name!r}")
            if name in given:
                raise ValueError(f"{_word(node)} makes {name!r}, which is an input or a weight")
            makers[name] = index
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for index, node in enumerate(graph.node):
        sorter.add(index)
        for name in _read_by(node):
            if name in makers:
                sorter.add(index, makers[name])
            elif name not in given:
                raise ValueError(f"{_word(node)} reads {name!r}, which no node makes")
    order = _sorted(sorter, graph)
    if order == list(range(len(order))):
        return False
    kept = type(graph)(node=[graph.node[index] for index in order])
    del graph.node[:]
    graph.node.extend(kept.node)
    return True


def _sorted(sorter: "TopologicalSorter[int]", graph: "onnx.GraphProto") -> list[int]:
    """Return indices in an order in which nodes can run, the smallest first where there is choice.

    Raises:
        ValueError: A node depends on itself.
    """
    try:
        sorter.prepare()
    except CycleError as error:
        node = graph.node[min(error.args[1])]
        raise ValueError(f"{_word(node)} can never run: nodes wait for each other") from None
    order: list[int] = []
    ready = list(sorter.get_ready())
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for index in sorter.get_ready():
            heappush(ready, index)
    return order


def _read_by(node: "onnx.NodeProto") -> Iterator[str]:
    """Yield the tensors that a node and its subgraphs read from the main graph."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        yield from _free((attribute.g,) if attribute.HasField("g") else attribute.graphs)


def _free(graphs: "Iterable[onnx.GraphProto]") -> Iterator[str]:
    for graph in graphs:
        inside = {name for node in graph.node for name in node.output}.union(_given(graph))
        # An output may be a tensor of the outer graph.
        names = [one.name for one in graph.output]
        names += [name for node in graph.node for name in _read_by(node)]
        yield from (name for name in names if name and name not in inside)


def _given(graph: "onnx.GraphProto") -> Iterator[str]:
    yield from (one.name for one in graph.input)
    yield from (one.name for one in graph.initializer)
    yield from (one.values.name for one in graph.sparse_initializer)


def _word(node: "onnx.NodeProto") -> str:
    return f"{node.op_type} {node.name!r}" if node.name else f"a {node.op_type}"


def _not_known(graph: Graph) -> Iterator[str]:
    """Yield a note if shapes are unknown although every input is fixed."""
    if not all(graph.tensor(name).is_fixed for name in graph.inputs):
        return
    made = (graph.tensor(name) for node in graph.nodes for name in node.outputs if name)
    names = [one.name for one in made if not one.is_fixed and not one.is_constant]
    if names:
        yield (
            f"the shapes of {len(names)} tensors are unknown; the first is {names[0]}; simplify the"
            " model first (onnxsim, or polygraphy surgeon sanitize --fold-constants)"
        )


def _load(path: Path) -> "onnx.ModelProto":
    if not path.is_file():
        raise UserError(f"there is no model file {path}", "give an ONNX file")
    try:
        import onnx
    except ModuleNotFoundError:
        raise UserError("onnx is not installed", _INSTALL) from None
    from google.protobuf.message import DecodeError

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
    if not model.functions:
        return model
    # TensorRT inlines the model's own functions too.
    from onnx.checker import ValidationError
    from onnx.inliner import inline_local_functions

    try:
        return inline_local_functions(model)
    except (RuntimeError, ValidationError, ValueError) as error:
        words = " ".join(str(error).split())
        raise UserError(f"{path}: its functions cannot be inlined ({words})", _AGAIN) from None


def _graph(
    model: "onnx.ModelProto",
    constants: Mapping[str, tuple[int | float | bool, ...] | None],
    notes: Iterable[str],
) -> Graph:
    """Convert a model with inferred shapes; ``constants`` map a tensor to its values if few."""
    weights = {one.name: one for one in model.graph.initializer}
    weights.update((one.values.name, one.values) for one in model.graph.sparse_initializer)
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
        opsets={_domain(one.domain): one.version for one in model.opset_import},
        inputs=tuple(one.name for one in model.graph.input if one.name not in weights),
        outputs=tuple(one.name for one in model.graph.output),
        nodes=tuple(_node(index, node) for index, node in enumerate(model.graph.node)),
        tensors=tensors,
        notes=tuple(notes),
    )


def _node(index: int, node: "onnx.NodeProto") -> Node:
    attributes = {one.name: _attribute(one) for one in node.attribute}
    return Node(
        index=index,
        name=node.name or f"{node.op_type}_{index}",
        op=node.op_type,
        domain=_domain(node.domain),
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        attributes={name: value for name, value in attributes.items() if value is not None},
    )


def _attribute(attribute: "onnx.AttributeProto") -> Attribute | None:
    kind = attribute.AttributeType.Name(attribute.type)
    if kind in ("GRAPH", "GRAPHS"):
        return SUBGRAPH
    if kind == "STRING":
        return attribute.s.decode(errors="replace")
    if kind == "STRINGS":
        return tuple(one.decode(errors="replace") for one in attribute.strings)
    if kind in ("INT", "FLOAT"):
        return attribute.i if kind == "INT" else attribute.f
    found = {"INTS": attribute.ints, "FLOATS": attribute.floats}.get(kind)
    return None if found is None or len(found) > LONGEST_VALUES else tuple(found)


def _shape(shape: "onnx.TensorShapeProto") -> Shape:
    return tuple(
        one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in shape.dim
    )


def _dtype(number: int) -> str | None:
    from onnx import TensorProto

    name = TensorProto.DataType.Name(number).lower() if number else None
    return _NUMPY_NAMES.get(name or "", name)


def _domain(domain: str) -> str:
    return "" if domain in _OWN_DOMAINS else domain


def main(arguments: list[str]) -> int:
    """Read a model and print the graph, or the error, as one JSON object."""
    path, shapes = arguments
    try:
        given = {name: tuple(lengths) for name, lengths in json.loads(shapes).items()}
        answer = _Answer(graph=read_graph(Path(path), given))
    except UserError as error:
        answer = _Answer(problem=error.message, remedy=error.remedy)
    # Escaped to ASCII: a name may contain any separator of lines.
    print(json.dumps(answer.model_dump(mode="json")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

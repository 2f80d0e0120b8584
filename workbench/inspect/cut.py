"""Cut a model in two: a body for the DLA, and a head for the GPU or the CPU.

The body is the largest part from the inputs on that the rules accept as a whole. Before both are
written, they are run after each other and compared with the original model.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...collectors.files import write_atomic
from ...collectors.models.files import external_files, read_graph_apart
from ...parsers.errors import PIP_INSTALL, BackendUnavailable, UserError, file_error
from ...parsers.onnx.graph import Graph, Node
from ...parsers.records import Ratio, Record
from ...parsers.values import some_of
from ..results.document import Block, Heading, Table, Text, print_document
from ..results.records import BODY, HEAD
from .equality import COMPARED_INPUTS, differences
from .judge import proposed_shape
from .rewrites import Rewrite, rewrite_of
from .rules import Inspection, JudgedNode

# The largest difference from the original that is accepted, as a share of the spread of a channel,
# or of its largest value if that is more.
LARGEST_ERROR = 1e-5
# Protobuf, the format of an ONNX file, ends here.
_MOST_BYTES = (1 << 31) - 1
# Of all inputs together, of which the comparison makes several.
_MOST_INPUT_BYTES = 256 << 20
# A smaller head is not worth a change of the model.
_ENOUGH = 0.99
# Layers that only move numbers. At the end of a body they are left to the head: in INT8, a
# concatenation there would force one scale on boxes and scores.
_MOVES = ("cast", "concatenation", "shuffle", "slice")
_ATTENTION = "fully-connected.constant-weights"
_WHOLE = "leave the model whole: TensorRT runs the nodes on the GPU that are not for the DLA"


class Rewritten(Record):
    """A node, the rule that it breaks, and the operators that replace it in the body."""

    name: str
    op: str
    rule: str
    instead: tuple[str, ...]


class Cut(Record):
    """A model in two parts, which were compared with the whole.

    Attributes:
        head: None if the body is the whole model.
        borders: Tensors that the body makes.
        stops: Nodes at which the body ends, with the rules that they break.
        loadables: Predicted loadables of the body.
        flops_ratio: Share of the model's known work in the body.
        uncounted: Nodes of the head whose work is unknown; with any, the share is an upper bound.
        attention: Nodes of the head that multiply two activations.
        inputs: Number of random inputs for which both were compared.
        largest_error: Largest difference, as a share of the spread of its channel, or of its
            largest value if that is more.
    """

    body: str
    head: str | None = None
    borders: tuple[str, ...]
    rewritten: tuple[Rewritten, ...] = ()
    stops: tuple[JudgedNode, ...] = ()
    loadables: NonNegativeInt
    flops_ratio: Ratio
    uncounted: NonNegativeInt = 0
    attention: tuple[str, ...] = ()
    inputs: PositiveInt
    largest_error: NonNegativeFloat


def cut_model(
    path: Path, graph: Graph, judge: Callable[[Graph], Inspection], directory: Path
) -> Cut:
    """Write the body and the head of a model to a directory, after a comparison with the whole.

    Args:
        graph: The model as ``read_graph`` returns it.
        judge: Judges a graph by the rules of one TensorRT, at one precision.

    Raises:
        UserError: No part of the model can be a body, or the parts do not equal the model.
        BackendUnavailable: onnxruntime is not installed.
    """
    with TemporaryDirectory(prefix="tegrascope-") as folder:
        scratch = Path(folder)
        whole = _trial(_load(path, graph), (), judge, scratch)
        trial = whole
        is_enough = whole.share(whole) >= _ENOUGH and not whole.uncounted
        rewrites = [] if is_enough else _rewrites(whole)
        while len(rewrites) != len(trial.rewrites):
            trial = _trial(whole.model, rewrites, judge, scratch)
            # Nodes behind the end of the body stay as they are.
            rewrites = [rewrite for rewrite in rewrites if trial.makes(rewrite.node.outputs[0])]
        stops = tuple(_stops(trial))
        if not trial.share(whole):
            raise _uncut(path, stops)
        _leave_moves(trial)
        pieces = _extract(trial, scratch)
        error = _compare(path, whole, trial, pieces)
        _publish(pieces, directory)
    nodes = [trial.inspection.nodes[index] for index in trial.body]
    rewritten = []
    for rewrite in trial.rewrites:
        node, operators = rewrite.node, tuple(new.op_type for new in rewrite.nodes)
        rule = whole.inspection.nodes[node.index].findings[0].rule
        rewritten.append(Rewritten(name=node.name, op=node.op, rule=rule, instead=operators))
    attention = []
    for judged in trial.rest:
        if any(finding.rule == _ATTENTION for finding in judged.findings):
            attention.append(judged.name)
    return Cut(
        body=str(directory / BODY),
        head=str(directory / HEAD) if len(pieces) > 1 else None,
        borders=trial.edges[1],
        rewritten=tuple(rewritten),
        stops=stops,
        loadables=len({node.loadable for node in nodes} - {None}),
        flops_ratio=trial.share(whole),
        uncounted=trial.uncounted,
        attention=tuple(attention),
        inputs=COMPARED_INPUTS,
        largest_error=error,
    )


# --- the model, and what of it is the body --------------------------------------------------------


class _Trial(NamedTuple):
    """A model with some nodes replaced, and the indices of its nodes that form the body."""

    model: Any
    rewrites: Sequence[Rewrite]
    graph: Graph
    inspection: Inspection
    body: set[int]

    def makes(self, name: str) -> bool:
        """Whether the body makes a tensor."""
        return self.graph.producers.get(name) in self.body

    @property
    def rest(self) -> list[JudgedNode]:
        """Return the nodes of the head that run at each inference."""
        rest = []
        for node in self.inspection.nodes:
            if node.index not in self.body and node.placement != "constant":
                rest.append(node)
        return rest

    def share(self, whole: "_Trial") -> float:
        """Return the share of the original's known work that is not in the head."""
        total = sum(cost.flops or 0 for cost in whole.inspection.cost_by_node.values())
        if not total:
            return 0.0
        costs = self.inspection.cost_by_node
        return 1 - sum(costs[node.index].flops or 0 for node in self.rest) / total

    @property
    def uncounted(self) -> int:
        """Return how many nodes of the head have no known work."""
        costs = self.inspection.cost_by_node
        return sum(costs[node.index].flops is None for node in self.rest)

    @property
    def edges(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the inputs of the body, the tensors that it makes, and the inputs of the head."""
        nodes = self.graph.nodes
        by_body = {name for index in self.body for name in nodes[index].inputs}
        by_head = {name for node in self.rest for name in nodes[node.index].inputs}
        outputs = [name for index in sorted(self.body) for name in nodes[index].outputs]
        made = tuple(name for name in outputs if name in by_head or name in self.graph.outputs)
        return (
            tuple(name for name in self.graph.inputs if name in by_body),
            made,
            tuple(name for name in (*self.graph.inputs, *made) if name in by_head),
        )


def _load(path: Path, graph: Graph) -> Any:
    """Return the model with its weights, in the form in which its graph was read."""
    import onnx
    from onnx.inliner import inline_local_functions

    _require_cuttable(path, graph)
    model = onnx.load(path)
    if model.graph.sparse_initializer:
        raise UserError(f"{path} cannot be cut: it has sparse weights", "export dense ones")
    if model.functions:
        model = inline_local_functions(model)
    for value in model.graph.input:
        if value.name in graph.inputs:
            kind, lengths = value.type.tensor_type.elem_type, graph.tensor(value.name).lengths
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind, lengths))
    return _with_nodes(model, *_fold_known(model, graph))


def _require_cuttable(path: Path, graph: Graph) -> None:
    """Raise an error unless a comparison is possible: sizes are known and not too large."""
    if find_spec("onnxruntime") is None:
        raise BackendUnavailable("onnxruntime is not installed", f"{PIP_INSTALL} onnxruntime")
    inputs = [graph.tensor(name) for name in graph.inputs]
    for tensor in inputs:
        if not tensor.is_fixed:
            what = f"{path} cannot be cut: input {tensor.name} has an open shape"
            raise UserError(what, f"fix it: {proposed_shape(tensor)}")
    if sum(tensor.size_bytes or 0 for tensor in inputs) > _MOST_INPUT_BYTES:
        what = f"{path} cannot be cut: its inputs are larger than 256 MiB"
        raise UserError(what, "give a smaller --shape")
    if sum(file.stat().st_size for file in (path, *external_files(path))) > _MOST_BYTES:
        raise _too_large(path)


def _fold_known(model: Any, graph: Graph) -> tuple[list[Any], list[Any]]:
    """Return the nodes in the order of the graph, and as weights what it knows the values of."""
    import numpy
    from onnx import numpy_helper

    nodes = []
    weights = []
    for node in sorted(model.graph.node, key=lambda node: graph.producers.get(_made(node), -1)):
        tensors = [graph.tensor(name) for name in node.output]
        if any(tensor.values is None or tensor.lengths is None for tensor in tensors):
            nodes.append(node)
            continue
        # Shapes and what is computed of them: the head could not ask the body for its shapes.
        for tensor in tensors:
            values = numpy.array(tensor.values, tensor.dtype).reshape(tensor.lengths or ())
            weights.append(numpy_helper.from_array(values, tensor.name))
    return nodes, weights


def _too_large(path: Path) -> UserError:
    return UserError(f"{path} cannot be cut: it is larger than 2 GiB", _WHOLE)


def _made(node: Any) -> str:
    return next(filter(None, node.output), "")


def _with_nodes(model: Any, nodes: Sequence[Any], weights: Iterable[Any]) -> Any:
    """Return a model with other nodes and further weights, and the shapes of all its tensors.

    Nodes that no output needs are left out.
    """
    changed = type(model)()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    changed.graph.initializer.extend(weights)
    # Before version 4, ONNX infers no shapes from weights that are not inputs too.
    changed.ir_version = max(4, model.ir_version)
    names = [[value.name for value in ends] for ends in (model.graph.input, model.graph.output)]
    return _part(changed, *names)


def _part(model: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """Return what a model needs to make some tensors of others, with shapes and metadata."""
    from google.protobuf.message import EncodeError
    from onnx import shape_inference
    from onnx.utils import Extractor

    try:
        extractor = Extractor(shape_inference.infer_shapes(model))
        part = extractor.extract_model([*inputs], [*outputs])
    except (EncodeError, ValueError, shape_inference.InferenceError) as error:
        words = " ".join(str(error).split())
        raise UserError(f"onnx cannot cut the model: {words}", _WHOLE) from None
    part.metadata_props.extend(model.metadata_props)  # Of detectors: the task and its classes.
    return part


def _rewrites(trial: _Trial) -> list[Rewrite]:
    """Return replacements for the nodes that the rules do not accept, where any are known."""
    weights = {weight.name: weight for weight in trial.model.graph.initializer}
    refused = [trial.graph.nodes[node.index] for node in trial.inspection.nodes if node.findings]
    rewrites = [rewrite_of(trial.graph, weights, node) for node in refused]
    return [rewrite for rewrite in rewrites if rewrite is not None]


def _trial(
    model: Any, rewrites: Sequence[Rewrite], judge: Callable[[Graph], Inspection], scratch: Path
) -> _Trial:
    """Replace nodes, and find the body of the result."""
    by_output = {rewrite.node.outputs[0]: rewrite for rewrite in rewrites}
    nodes: list[Any] = []
    weights: list[Any] = []
    for node in model.graph.node:
        rewrite = by_output.get(_made(node))
        nodes += [node] if rewrite is None else rewrite.nodes
        weights += () if rewrite is None else rewrite.weights
    changed = _with_nodes(model, nodes, weights)
    graph = read_graph_apart(_save(changed, scratch / "trial.onnx"))
    inspection = judge(graph)
    body: set[int] = set()
    for judged in inspection.nodes:
        if judged.placement in ("dla", "folded") and _is_fed(graph, judged.index, body):
            body.add(judged.index)
    return _Trial(changed, rewrites, graph, inspection, body)


def _is_fed(graph: Graph, index: int, body: set[int]) -> bool:
    """Whether all that a node reads is constant, an input of the model, or made by the body."""
    for tensor in graph.varying_inputs(graph.nodes[index]):
        if tensor.name not in graph.inputs and graph.producers.get(tensor.name) not in body:
            return False
    return True


def _leave_moves(trial: _Trial) -> None:
    """Take layers that only move numbers off the end of the body, unless it is the whole model."""
    if not trial.rest:
        return
    for index in sorted(trial.body, reverse=True):
        read = set[int]()
        for name in trial.graph.nodes[index].outputs:
            read.update(trial.graph.consumers.get(name, ()))
        if trial.inspection.nodes[index].layer in _MOVES and trial.body.isdisjoint(read):
            trial.body.remove(index)


def _stops(trial: _Trial) -> list[JudgedNode]:
    """Return the nodes that are not in the body though it makes all that they read."""
    rest = [node for node in trial.rest if node.findings]
    return [node for node in rest if _is_fed(trial.graph, node.index, trial.body)]


def _uncut(path: Path, stops: Sequence[JudgedNode]) -> UserError:
    """Return the error for a model without a body."""
    if not stops:
        return UserError(f"{path} cannot be cut: it has no work for the DLA", _WHOLE)
    [node, *_] = stops
    [finding, *_] = node.findings
    what = f"{path} cannot be cut: no work comes before {node.name} ({node.op}), which breaks"
    return UserError(f"{what} {finding.rule}: {finding.requirement}", finding.hint or _WHOLE)


def _extract(trial: _Trial, directory: Path) -> list[Path]:
    """Write the models of the body and, unless that is all, of the head; return the files."""
    of_body, made, of_head = trial.edges
    pieces = [_save(_part(trial.model, of_body, made), directory / BODY)]
    outputs = [name for name in trial.graph.outputs if name not in made]
    if outputs:
        pieces.append(_save(_part(trial.model, of_head, outputs), directory / HEAD))
    return pieces


def _save(model: Any, path: Path) -> Path:
    from google.protobuf.message import EncodeError

    try:
        path.write_bytes(model.SerializeToString())
    except EncodeError:
        raise _too_large(path) from None
    return path


def _publish(pieces: Sequence[Path], directory: Path) -> None:
    """Put files into a directory, each whole, in place of those of an earlier cut."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for piece in pieces:
            write_atomic(directory / piece.name, piece.read_bytes())
        if len(pieces) == 1:
            (directory / HEAD).unlink(missing_ok=True)
    except OSError as error:
        raise file_error(error, directory) from None


# --- the comparison -------------------------------------------------------------------------------


def _compare(path: Path, whole: _Trial, trial: _Trial, pieces: Sequence[Path]) -> float:
    """Return the largest difference between the pieces and the model.

    If it is too large, a ``UserError`` names the first replaced node at which they differ so much.
    """
    inputs = [trial.graph.tensor(name) for name in trial.graph.inputs]
    worst, where = max(differences(path, pieces, inputs).values()), "its outputs"
    if worst <= LARGEST_ERROR:
        return worst
    replaced: dict[str, Node] = {}
    for rewrite in trial.rewrites:
        replaced |= {name: rewrite.node for name in rewrite.node.outputs if trial.makes(name)}
    ends = sorted({*replaced, *trial.graph.outputs})
    before, after = (
        _save(_part(model, trial.graph.inputs, ends), pieces[0].with_name(name))
        for model, name in ((whole.model, "before.onnx"), (trial.model, "after.onnx"))
    )
    by_tensor = differences(before, [after], inputs)
    for name, node in replaced.items():
        if by_tensor[name] > LARGEST_ERROR:
            worst, where = by_tensor[name], f"{node.name} ({node.op})"
            break
    raise UserError(
        f"{path} cannot be cut: at {where} the parts differ by {worst:.1g} of a channel, more than"
        f" {LARGEST_ERROR:g}",
        f"cut the FP32 export if this one is in FP16; else {_WHOLE}",
    )


# --- in words -------------------------------------------------------------------------------------


def print_cut(model: str, cut: Cut) -> None:
    """Print what was changed, node by node, where the body ends and why, and its share."""
    head = "no head: the body is the whole model"
    if cut.head is not None:
        head = f"{cut.head}: the rest, for the GPU or the CPU"
    bound = f", at most: {cut.uncounted} node(s) are not counted" if cut.uncounted else ""
    blocks: list[Block] = [
        Heading(f"{model} · {cut.flops_ratio:.2%} of the work in the body{bound}"),
        Text(f"{cut.body}: for the DLA, in {cut.loadables} predicted loadable(s)"),
        Text(head),
        Text(f"the body makes {some_of(cut.borders)}"),
        Text(
            f"equal to the original for {cut.inputs} random inputs: largest difference"
            f" {cut.largest_error:.1g} of a channel; {LARGEST_ERROR:g} is accepted"
        ),
    ]
    if cut.rewritten:
        rows = [(node.name, node.op, node.rule, ", ".join(node.instead)) for node in cut.rewritten]
        table = Table(("node", "operator", "rule that it breaks", "instead"), rows, left=4)
        blocks += [Text("nodes that were replaced"), table]
    rows = []
    for stop in cut.stops:
        [finding, *_] = stop.findings
        rule = f"{finding.rule}: {finding.requirement}; {finding.found}"
        rows.append((stop.name, stop.op, rule, finding.hint or ""))
    if rows:
        table = Table(("node", "operator", "rule that it breaks", "remedy"), rows, left=4)
        blocks += [Text("the body ends before"), table]
    if cut.attention and cut.flops_ratio < _ENOUGH:
        reason = "attention multiplies two activations, which the DLA cannot, in"
        blocks += [Text(f"! {reason} {some_of(cut.attention)}: no body is larger")]
    print_document(blocks)

"""Cut a model in two: a body for the DLA, and a head for the GPU or the CPU.

The body is the largest part from the inputs on that the rules accept as a whole. Before both are
written, they are run after each other and compared with the original model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any, NamedTuple

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...collectors.backends.base import make_input
from ...collectors.files import write_atomic
from ...collectors.models.files import INSTALL_ONNX, external_files, read_graph_apart
from ...parsers.errors import BackendUnavailable, UserError, file_error
from ...parsers.onnx.graph import Graph
from ...parsers.records import Ratio, Record
from ...parsers.values import some_of
from ..results.document import Block, Heading, Table, Text, print_document
from .rewrites import Rewrite, rewrite_of
from .rules import Inspection, JudgedNode

BODY, HEAD = "body.onnx", "head.onnx"
# The largest difference from the original that is accepted, as a share of the spread of a channel,
# or of its largest value if that is more.
LARGEST_ERROR = 1e-5
# Deep networks amplify the rounding of FP32 to more than that: changing the order of sums, as ONNX
# Runtime does when it optimises a model, may change the outputs as much. A step of FP16 is a bound.
_LARGEST_ROUNDING = 2.0**-10
# Protobuf, the format of an ONNX file, ends here.
_MOST_BYTES = (1 << 31) - 1
# Of all inputs together, of which the comparison keeps several.
_MOST_INPUT_BYTES = 256 << 20
# Time limit for running one or both parts with all inputs.
_MOST_SECONDS = 300.0
# Over fewer inputs, the spread of a score that has one place in an output is too small a scale.
_INPUTS = 8
_IMAGE_RANK = 4
# Fields along a side of a random image.
_FIELDS = 8
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
        error_limit: Largest one that is accepted.
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
    error_limit: NonNegativeFloat


def cut_model(
    path: Path,
    graph: Graph,
    judge: Callable[[Graph], Inspection],
    directory: Path,
    *,
    inputs: int = _INPUTS,
) -> Cut:
    """Write the body and the head of a model to a directory, after a comparison with the whole.

    Args:
        graph: The model as ``read_graph`` returns it.
        judge: Judges a graph by the rules of one TensorRT, at one precision.
        inputs: Number of random inputs for the comparison.

    Raises:
        UserError: No part of the model can be a body, or the parts do not equal the model.
        BackendUnavailable: onnx or onnxruntime is not installed.
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
        error, limit = _compare(path, whole, trial, pieces, inputs)
        _publish(pieces, directory)
    nodes = [trial.inspection.nodes[index] for index in trial.body]
    rewritten = []
    for node, instead, _ in trial.rewrites:
        rule = whole.inspection.nodes[node.index].findings[0].rule
        operators = tuple(new.op_type for new in instead)
        rewritten.append(Rewritten(name=node.name, op=node.op, rule=rule, instead=operators))
    return Cut(
        body=str(directory / BODY),
        head=str(directory / HEAD) if len(pieces) > 1 else None,
        borders=trial.edges[1],
        rewritten=tuple(rewritten),
        stops=stops,
        loadables=len({node.loadable for node in nodes} - {None}),
        flops_ratio=trial.share(whole),
        uncounted=trial.uncounted,
        attention=tuple(node.name for node in trial.rest if _ATTENTION in _rules(node)),
        inputs=inputs,
        largest_error=error,
        error_limit=limit,
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
    _require_cuttable(path, graph)
    model = _read_model(path)
    nodes, weights = _fold_known(model, graph)
    _fix_input_shapes(model, graph)
    return _with_nodes(model, nodes, weights)


def _require_cuttable(path: Path, graph: Graph) -> None:
    """Raise an error unless the packages are installed, and sizes are known and not too large."""
    try:
        import onnx  # noqa: F401 - both are needed later
        import onnxruntime  # noqa: F401
    except ModuleNotFoundError as error:
        what = f"{error.name} is not installed"
        raise BackendUnavailable(what, f"{INSTALL_ONNX} onnxruntime") from None
    for name in graph.inputs:
        if not graph.tensor(name).is_fixed:
            what = f"{path} cannot be cut: input {name} has an open shape"
            raise UserError(what, f"fix it: --shape {name}:1x3x640x640")
    if sum(graph.tensor(name).size_bytes or 0 for name in graph.inputs) > _MOST_INPUT_BYTES:
        what = f"{path} cannot be cut: its inputs are larger than 256 MiB"
        raise UserError(what, "give a smaller --shape")
    if sum(file.stat().st_size for file in (path, *external_files(path))) > _MOST_BYTES:
        raise _too_large(path)


def _read_model(path: Path) -> Any:
    """Return the model of a file, without functions of its own."""
    import onnx
    from onnx.inliner import inline_local_functions

    model = onnx.load(path)
    if model.graph.sparse_initializer:
        raise UserError(f"{path} cannot be cut: it has sparse weights", "export dense ones")
    return inline_local_functions(model) if model.functions else model


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


def _fix_input_shapes(model: Any, graph: Graph) -> None:
    """Give the inputs of a model the shapes with which its graph was read."""
    from onnx import helper

    for value in model.graph.input:
        if value.name in graph.inputs:
            kind = value.type.tensor_type.elem_type
            lengths = graph.tensor(value.name).lengths
            value.CopyFrom(helper.make_tensor_value_info(value.name, kind, lengths))


def _too_large(path: Path) -> UserError:
    return UserError(f"{path} cannot be cut: it is larger than 2 GiB", _WHOLE)


def _made(node: Any) -> str:
    return next(filter(None, node.output), "")


def _with_nodes(model: Any, nodes: Sequence[Any], weights: Iterable[Any]) -> Any:
    """Return a model with other nodes and further weights, and the shapes of all its tensors.

    Nodes that no output needs are left out.
    """
    from onnx import helper

    weights = [*model.graph.initializer, *weights]
    graph = helper.make_graph(nodes, "cut", model.graph.input, model.graph.output, weights)
    # Before version 4, ONNX infers no shapes from weights that are not inputs too.
    version = max(4, model.ir_version)
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=version)
    made.metadata_props.extend(model.metadata_props)
    inputs = [value.name for value in graph.input]
    return _part(made, inputs, [value.name for value in graph.output])


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
    rewrites = []
    for judged in trial.inspection.nodes:
        if judged.findings:
            rewrite = rewrite_of(trial.graph, weights, trial.graph.nodes[judged.index])
            if rewrite is not None:
                rewrites.append(rewrite)
    return rewrites


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


def _rules(node: JudgedNode) -> list[str]:
    return [finding.rule for finding in node.findings]


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

# Arrays by name of a tensor, for each input.
_Results = Sequence[Mapping[str, Any]]


def _compare(
    path: Path, whole: _Trial, trial: _Trial, pieces: Sequence[Path], inputs: int
) -> tuple[float, float]:
    """Return the largest difference between the pieces and the model, and what is accepted.

    It raises ``UserError`` if the difference is larger, or if a node that was replaced differs from
    its replacement where both get the same.
    """
    given = [_inputs(trial.graph, seed) for seed in range(inputs)]
    _compare_nodes(path, whole, trial, given[:2], pieces[0].with_name("node.onnx"))
    outputs = trial.graph.outputs
    expected = _run([path], given)
    worst, limit = _difference(outputs, expected, _run(pieces, given)), LARGEST_ERROR
    if worst > limit:
        own = _difference(outputs, expected, _run([path], given, is_optimised=True))
        limit = max(limit, min(own, _LARGEST_ROUNDING))
    if worst > limit:
        raise _unequal(path, "its outputs", worst, limit, _WHOLE)
    return worst, limit


def _compare_nodes(
    path: Path, whole: _Trial, trial: _Trial, given: _Results, scratch: Path
) -> None:
    """Compare each node that was replaced with its replacement, for what it gets in the model."""
    from onnx.utils import Extractor

    inputs = [_read_by(rewrite, whole.graph) for rewrite in trial.rewrites]
    watched = [name for names in inputs for name in names]
    for rewrite in trial.rewrites:
        watched += rewrite.node.outputs
    before = _run([_watched(whole.model, watched, scratch)], given)
    extractor = Extractor(trial.model)
    for rewrite, names in zip(trial.rewrites, inputs, strict=True):
        outputs = rewrite.node.outputs
        piece = _save(extractor.extract_model(names, [*outputs]), scratch)
        error = _difference(outputs, before, _run([piece], before))
        if error > LARGEST_ERROR:
            name = f"{rewrite.node.name} ({rewrite.node.op})"
            raise _unequal(path, name, error, LARGEST_ERROR, "cut the FP32 export of the model")


def _read_by(rewrite: Rewrite, graph: Graph) -> list[str]:
    """Return the tensors of the model that a replacement reads."""
    read = dict.fromkeys(name for node in rewrite.nodes for name in node.input)
    own = {name for node in rewrite.nodes for name in node.output}
    varying = [name for name in read if name in graph.tensors and name not in own]
    return [name for name in varying if not graph.tensor(name).is_constant]


def _unequal(path: Path, where: str, error: float, limit: float, remedy: str) -> UserError:
    what = f"{path} cannot be cut: at {where} the parts differ by {error:.1g} of a channel"
    return UserError(f"{what}, more than {limit:.1g}", remedy)


def _inputs(graph: Graph, seed: int) -> dict[str, Any]:
    """Return random inputs; images have coarse fields, and other contrasts for other seeds.

    A network averages noise away, so that its outputs would hardly vary.
    """
    arrays = {}
    for name in graph.inputs:
        tensor = graph.tensor(name)
        lengths = tensor.lengths or ()
        drawn = lengths
        if len(lengths) == _IMAGE_RANK:
            drawn = (*lengths[:2], *[min(_FIELDS, length) for length in lengths[2:]])
        array: Any = make_input(name, tensor.dtype or "", drawn, seed)
        if array.dtype.kind == "f":
            array *= 2.0 ** (seed % 4 - 2)
        for axis, length in enumerate(lengths):
            repeated = array.repeat(-(-length // drawn[axis]), axis)
            array = repeated.take(range(length), axis)
        arrays[name] = array
    return arrays


def _run(pieces: Sequence[Path], given: _Results, *, is_optimised: bool = False) -> _Results:
    """Run models after each other, each with what is there before; return all tensors.

    It raises ``UserError`` if a model cannot run, or if they take more than 300 s.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    results = [dict(arrays) for arrays in given]
    run = onnxruntime.RunOptions()
    timer = Timer(_MOST_SECONDS, setattr, (run, "terminate", True))
    timer.daemon = True
    timer.start()
    for piece in pieces:
        try:
            session = onnxruntime.InferenceSession(
                str(piece), options, providers=["CPUExecutionProvider"]
            )
            names = [value.name for value in session.get_outputs()]
            for arrays in results:
                fed = {value.name: arrays[value.name] for value in session.get_inputs()}
                arrays |= zip(names, session.run(None, fed, run), strict=True)
        except Exception as error:  # onnxruntime has a class of its own for each failure
            timer.cancel()
            [line, *_] = str(error).splitlines() or [type(error).__name__]
            if run.terminate:
                line = f"it took more than {_MOST_SECONDS:g} s"
            what = f"onnxruntime cannot run {piece.name}, so the parts cannot be compared: {line}"
            raise UserError(what, _WHOLE) from None
    timer.cancel()
    return results


def _watched(model: Any, names: Iterable[str], path: Path) -> Path:
    """Save a model that also returns some of its tensors."""
    from onnx import ModelProto, ValueInfoProto

    watched = ModelProto()
    watched.CopyFrom(model)
    known = {value.name for value in (*model.graph.input, *model.graph.output)}
    for name in dict.fromkeys(names):
        if name not in known:
            watched.graph.output.append(ValueInfoProto(name=name))
    return _save(watched, path)


def _difference(names: Sequence[str], expected: _Results, given: _Results) -> float:
    """Return the largest difference of tensors, in sizes of its channel.

    The size is the spread over all inputs or, if that is more, the largest value. Images have their
    channels along the second axis; elsewhere, slices along each axis but the batch count.
    """
    import numpy

    worst = 0.0
    for name in names:
        both = [[arrays[name] for arrays in results] for results in (expected, given)]
        shapes = {array.shape for arrays in both for array in arrays}
        is_finite = all(_is_finite(array) for arrays in both for array in arrays)
        if len(shapes) > 1 or not is_finite:
            if not all(map(_is_equal, *both)):
                return float("inf")
            continue
        want, got = map(numpy.stack, both)
        if not want.size:  # Detectors may find nothing.
            continue
        want, off = want.astype("f8"), abs(got.astype("f8") - want)
        first = min(2, want.ndim - 1)  # behind the inputs and the batch
        for axis in [first] if want.ndim == _IMAGE_RANK + 1 else range(first, want.ndim):
            others = tuple(other for other in range(want.ndim) if other != axis)
            size = numpy.maximum(numpy.ptp(want, axis=others), abs(want).max(axis=others))
            # The smallest normal number of FP32: below it there are no steps to compare.
            shares = off.max(axis=others) / numpy.maximum(size, 2.0**-126)
            worst = max(worst, float(shares.max(initial=0.0)))
    return worst


def _is_finite(array: Any) -> bool:
    """Whether an array has real numbers only."""
    import numpy

    return array.dtype.kind == "f" and bool(numpy.isfinite(array).all())


def _is_equal(want: Any, got: Any) -> bool:
    import numpy

    return numpy.array_equal(want, got, equal_nan=want.dtype.kind == "f")


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
            f" {cut.largest_error:.1g} of a channel; {cut.error_limit:.1g} is accepted"
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

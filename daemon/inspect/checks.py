"""Compare a prediction with evidence: the builder of this machine, and engines that were built."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from ...collectors.backends.engine_cache import EngineCache
from ...parsers.errors import UserError
from ...parsers.inference.placement import LayerAnswer, LayerAnswers, Placement, placement_of
from ...parsers.onnx.graph import Graph
from ..store.history import History
from .rules import Disagreement, EvidenceCheck, Inspection

_Found = Literal["dla", "gpu"]

# TensorRT's parser marks the layers that it makes of a node, from 8.6 on; several are joined.
_MARK = "[ONNX Layer: "
_JOINT = "\x1e"
_NUMBERED = re.compile(r"(.+)_\d+")
_FUSED = re.compile(r"^(?:PWN\()+|\)+$")
_SUBGRAPH = re.compile(r"\{ForeignNode\[(.*)\.\.\.(.*)\]\}")
# Layers that hold a number or a shape do no work, wherever they are.
_HELPERS = frozenset({"CAST", "CONSTANT", "IDENTITY", "SHAPE"})
# Kinds of layer that only reformat, and operators without a kind.
_REFORMATS = ("cast", "shuffle", None)
_FORMS = (
    "give a run (tegrascope runs list), an engine (tegrascope engines list), a result.json of"
    " bench, or a build log"
)
_SHORTEST_KEY = 6
_DLA = ("dla0", "dla1")


def check_builder(graph: Graph, inspection: Inspection, answers: LayerAnswers) -> EvidenceCheck:
    """Compare a prediction with the builder's answers, layer by layer.

    A node fits the DLA if each of its layers does. Layers that hold a number or a shape do not
    count, and neither do nodes that are predicted to be folded or constant.
    """
    source = f"the builder of TensorRT {answers.tensorrt}" if answers.tensorrt else "TensorRT"
    check = partial(EvidenceCheck, kind="builder", source=source)
    if answers.problem is not None:
        return check(problem=answers.problem, remedy=answers.remedy)
    if not answers.dla_cores:
        count = f"it parses the model ({len(answers.layers)} layers)"
        return check(
            problem=f"{count}, but finds no DLA here, so its answers on the DLA have no meaning",
            remedy="run inspect --verify on a board that has a DLA",
        )
    names = _Names(graph)
    layers: defaultdict[int, list[LayerAnswer]] = defaultdict(list)
    for layer in answers.layers:
        if layer.kind not in _HELPERS and layer.on_dla is not None:
            for index in names.of_layer(layer):
                layers[index].append(layer)
    found: dict[int, _Found] = {}
    shown_by = {}
    for index, those in layers.items():
        fits = all(layer.on_dla for layer in those)
        found[index] = "dla" if fits else "gpu"
        shown_by[index] = [layer.name for layer in those if layer.on_dla is fits]
    return _compare(check, inspection, found, shown_by)


def check_engine(
    graph: Graph, inspection: Inspection, placement: Placement, source: str
) -> EvidenceCheck:
    """Compare a prediction with the placement of an engine's layers.

    A layer named after several nodes stands for each of them. A subgraph stands for the nodes
    between its first and its last, except those that another layer names. Nodes between the ends
    of two subgraphs that contradict each other are not compared. A reformat on the GPU stands for
    a node only if that node does the same work: a reshape, not a product with a reshape behind it.
    """
    check = partial(EvidenceCheck, kind="engine", source=source)
    if placement.verdict == "unknown":
        return check(
            problem="the placement of its layers is unknown",
            remedy="build it again with tegrascope engines build, which keeps the build log",
        )
    names = _Names(graph)
    named: defaultdict[int, set[_Found]] = defaultdict(set)
    between: defaultdict[int, set[_Found]] = defaultdict(set)
    shown_by: defaultdict[int, list[str]] = defaultdict(list)
    sides: tuple[tuple[_Found, tuple[str, ...]], ...] = (
        ("dla", placement.dla_layers),
        ("gpu", placement.gpu_layers),
    )
    for side, layers in sides:
        for layer in layers:
            ends = _SUBGRAPH.search(layer)
            for index in names.in_text(layer) if ends is None else names.between(*ends.groups()):
                (named if ends is None else between)[index].add(side)
                shown_by[index].append(layer)
    for layer in placement.reformat_layers:
        for index in names.in_text(layer, whole=True):
            if inspection.nodes[index].layer in _REFORMATS:
                named[index].add("gpu")
                shown_by[index].append(layer)
    found = {index: place for index, (place, *others) in (between | named).items() if not others}
    return _compare(partial(check, loadables=placement.loadables), inspection, found, shown_by)


def _compare(
    check: Callable[..., EvidenceCheck],
    inspection: Inspection,
    found: Mapping[int, _Found],
    shown_by: Mapping[int, Sequence[str]],
) -> EvidenceCheck:
    if not found:
        return check(
            loadables=None,
            problem="no layer has the name of a node of this model",
            remedy="check that it belongs to this model",
        )
    placed = [
        (node, found[node.index])
        for node in inspection.nodes
        if node.index in found and node.placement not in ("constant", "folded")
    ]
    differences = tuple(
        Disagreement(
            index=node.index,
            name=node.name,
            op=node.op,
            predicted=node.placement,
            found=place,
            layers=tuple(shown_by.get(node.index, ())),
            rules=tuple(finding.rule for finding in node.findings),
        )
        for node, place in placed
        if node.placement != place
    )
    answered = sum(node.placement == "unknown" for node, _ in placed)
    return check(
        compared=len(placed) - answered,
        agreed=len(placed) - len(differences),
        answered=answered,
        differences=differences,
    )


class _Names:
    """Maps the names that TensorRT uses to the nodes of a model."""

    def __init__(self, graph: Graph) -> None:
        self._nodes: defaultdict[str, list[int]] = defaultdict(list)
        for node in graph.nodes:
            # A parser names an unnamed node by its output.
            outputs = [f"node_of_{name}" for name in node.outputs if name]
            for name in dict.fromkeys((node.name, *outputs[:1])):
                self._nodes[name].append(node.index)

    def of_layer(self, layer: LayerAnswer) -> list[int]:
        """Return the nodes that a layer of the network was made of."""
        marked = [
            mark.removeprefix(_MARK).removesuffix("]")
            for mark in layer.marks.split(_JOINT)
            if mark.startswith(_MARK)
        ]
        return [index for name in marked or [layer.name] for index in self._of(name)]

    def in_text(self, layer: str, *, whole: bool = False) -> list[int]:
        """Return the nodes in the name of a layer of an engine: ``conv1 + relu1``, ``PWN(…)``.

        With ``whole``, every part of the name must be a node: ``conv1 + relu1 copy`` is none.
        """
        found = [self._of(layer)]
        if not found[0]:
            found = [self._of(_FUSED.sub("", part)) for part in re.split(r" \+ |, ", layer)]
        return [index for part in found for index in part] if all(found) or not whole else []

    def between(self, first: str, last: str) -> Sequence[int]:
        """Return the nodes from one to another, in the order of the model."""
        starts, ends = self.in_text(first), self.in_text(last)
        both = starts + ends
        return range(min(both), max(both) + 1) if starts and ends else ()

    def _of(self, name: str) -> list[int]:
        """Return the nodes of a name; a second layer of the same node has a number appended."""
        numbered = _NUMBERED.fullmatch(name)
        if name not in self._nodes and numbered is not None:
            name = numbered[1]
        return self._nodes.get(name, [])


class Evidence(NamedTuple):
    """The placement of an engine, the engine in words, and its model's digest if known."""

    placement: Placement
    source: str
    model_sha256: str | None = None


def find_evidence(name: str, state_dir: Path) -> Evidence:
    """Find a placement by a file, the beginning of an engine's key, or a part of a run's id.

    Raises:
        UserError: It does not exist, is ambiguous, or contains no placement on a DLA.
    """
    if Path(name).is_file():
        return _in_file(Path(name))
    found = _in_cache(name, state_dir / "engines") or _in_store(name, state_dir / "tegrascope.db")
    if found is None:
        raise UserError(f"there is no file, engine or run {name}", _FORMS)
    return found


def _in_file(path: Path) -> Evidence:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "name a readable file") from None
    try:
        document: Any = json.loads(text, strict=False)
    except ValueError:
        placement = placement_of(text.splitlines(), None, "dla0")
    else:
        built = next(_built_in(document), None)
        if built is not None:
            return Evidence(built, str(path), _digest(document))
        is_engine = isinstance(document, dict) and "Layers" in document
        placement = placement_of((), text, "dla0") if is_engine else Placement()
    if placement.verdict == "unknown" and not placement.dla_layers and not placement.gpu_layers:
        raise UserError(f"{path} contains no placement of layers on a DLA", _FORMS)
    return Evidence(placement, str(path))


def _in_cache(name: str, directory: Path) -> Evidence | None:
    if len(name) < _SHORTEST_KEY or not directory.is_dir():
        return None
    sidecars = (entry.sidecar for entry in EngineCache(directory).entries())
    found = next((one for one in sidecars if one.key.startswith(name)), None)
    if found is None:
        return None
    return Evidence(found.built.placement, f"engine {found.key[:12]} of {found.model}")


def _in_store(name: str, path: Path) -> Evidence | None:
    document = History(path).run(name) if path.is_file() else None
    if document is None:
        return None
    placement = next(_built_in(document), None)
    if placement is None:
        raise UserError(f"run {name} was not on a DLA, or has no record of its layers", _FORMS)
    source = f"run {document.get('run_id', name)} on {document.get('device')}"
    return Evidence(placement, source, _digest(document))


def _built_in(document: object) -> Iterator[Placement]:
    """Yield the placements of runs on a DLA, in a run's record or a comparison's result."""
    if isinstance(document, list):
        for one in document:
            yield from _built_in(one)
    elif isinstance(document, dict):
        built = document.get("built")
        if document.get("device") in _DLA and isinstance(built, Mapping):
            try:
                yield Placement.model_validate(built.get("placement"))
            except ValidationError:
                return
        for value in document.values():
            yield from _built_in(value)


def _digest(document: object) -> str | None:
    found = document.get("model_sha256") if isinstance(document, dict) else None
    return found if isinstance(found, str) else None

"""Predictions held against evidence: what TensorRT's builder answers, and what it built."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pydantic import NonNegativeInt

from ..inference.placement import Placement
from ..onnx.graph import Graph, Node
from ..records import Record
from .records import Check, Disagreement, Inspection

Found = Literal["dla", "gpu"]

# How the parser marks the layers that it makes of a node, from 8.6 on; several are joined.
_MARK = "[ONNX Layer: "
_JOINT = "\x1e"
_NUMBERED = re.compile(r"(?P<name>.+)_\d+")
_FUSED = re.compile(r"^(?:PWN\()+|\)+$")
_SUBGRAPH = re.compile(r"\{ForeignNode\[(?P<first>.*)\.\.\.(?P<last>.*)\]\}")
# What holds a number or a shape is no work, wherever it is.
_HELPERS = frozenset({"CAST", "CONSTANT", "IDENTITY", "SHAPE"})


class LayerAnswer(Record):
    """What the builder says of one layer that its parser made.

    Attributes:
        name: Of the layer.
        kind: Of the layer, ``CONVOLUTION``.
        marks: Where it comes from, as the library writes it: ``[ONNX Layer: conv1]``.
        on_dla: Whether it can run on the DLA; ``None`` where that means nothing.
    """

    name: str
    kind: str
    marks: str = ""
    on_dla: bool | None = None


class Answers(Record):
    """What the builder of this machine says of a model.

    Attributes:
        problem: Why it cannot be asked; ``None`` where it can.
        mend: What to do about it.
        tensorrt: Its version.
        dla_cores: How many it sees.
        layers: In its own order; all that it makes of the model.
    """

    problem: str | None = None
    mend: str | None = None
    tensorrt: str | None = None
    dla_cores: NonNegativeInt | None = None
    layers: tuple[LayerAnswer, ...] = ()


def check_builder(graph: Graph, inspection: Inspection, answers: Answers) -> Check:
    """Hold a prediction against the builder's answers, layer by layer.

    A node is fit for the DLA where each of its layers is. Layers that hold a number or a shape are
    left out, and so are nodes that the prediction has as folded or constant.

    Args:
        graph: The model.
        inspection: What is predicted.
        answers: What the builder says.
    """
    source = f"the builder of TensorRT {answers.tensorrt}" if answers.tensorrt else "TensorRT"
    if answers.problem is not None:
        return Check(kind="builder", source=source, problem=answers.problem, mend=answers.mend)
    if not answers.dla_cores:
        return Check(
            kind="builder",
            source=source,
            problem=f"it reads the model ({len(answers.layers)} layers), but sees no DLA here, and"
            " then says no to every layer: its answers would mean nothing",
            mend="inspect --verify on a board that has a DLA",
        )
    names = _Names(graph)
    layers: defaultdict[int, list[LayerAnswer]] = defaultdict(list)
    for layer in answers.layers:
        if layer.kind not in _HELPERS and layer.on_dla is not None:
            for index in names.of_layer(layer):
                layers[index].append(layer)
    found: dict[int, Found] = {
        index: "dla" if all(layer.on_dla for layer in those) else "gpu"
        for index, those in layers.items()
    }
    told = {
        index: tuple(layer.name for layer in those if layer.on_dla is (found[index] == "dla"))
        for index, those in layers.items()
    }
    return _check("builder", source, inspection, found, told)


def check_engine(graph: Graph, inspection: Inspection, placement: Placement, source: str) -> Check:
    """Hold a prediction against where the layers of an engine went.

    A name of several nodes stands for each of them, and one of a subgraph for what lies between its
    first and its last node. What is named by itself counts more than what lies between; what lies
    between two that contradict each other is not compared.

    Args:
        graph: The model.
        inspection: What is predicted.
        placement: Of the engine.
        source: What the engine is, in words.
    """
    if placement.verdict == "unknown":
        return Check(
            kind="engine",
            source=source,
            problem="nothing tells where its layers are",
            mend="build it anew with tegrascope engines build: the build log tells it",
        )
    names = _Names(graph)
    named: dict[int, set[Found]] = defaultdict(set)
    between: dict[int, set[Found]] = defaultdict(set)
    told: defaultdict[int, list[str]] = defaultdict(list)
    sides: tuple[tuple[Found, tuple[str, ...]], ...] = (
        ("dla", placement.dla_layers),
        ("gpu", placement.gpu_layers),
    )
    for side, layers in sides:
        for layer in layers:
            subgraph = _SUBGRAPH.search(layer)
            reached = named if subgraph is None else between
            indices = (
                names.in_text(layer) if subgraph is None else names.between(**subgraph.groupdict())
            )
            for index in indices:
                reached[index].add(side)
                told[index].append(layer)
    found: dict[int, Found] = {}
    for index in (*named, *between):
        places = named.get(index) or between[index]
        if len(places) == 1:
            found[index] = next(iter(places))
    check = _check(
        "engine", source, inspection, found, {at: tuple(one) for at, one in told.items()}
    )
    if check.problem is not None:
        return check
    return check.model_copy(update={"loadables": placement.loadables})


def _check(
    kind: Literal["builder", "engine"],
    source: str,
    inspection: Inspection,
    found: Mapping[int, Found],
    told: Mapping[int, Sequence[str]],
) -> Check:
    if not found:
        return Check(
            kind=kind,
            source=source,
            problem="none of its layers bears the name of a node of this model",
            mend="look whether it is of this model",
        )
    compared = agreed = answered = 0
    differences = []
    for node in inspection.nodes:
        place = found.get(node.index)
        if place is None or node.placement in ("constant", "folded"):
            continue
        if node.placement == "unknown":
            answered += 1
        else:
            compared += 1
            agreed += node.placement == place
        if node.placement != place:
            differences.append(
                Disagreement(
                    index=node.index,
                    name=node.name,
                    op=node.op,
                    predicted=node.placement,
                    found=place,
                    layers=tuple(told.get(node.index, ())),
                    rules=tuple(finding.rule for finding in node.findings),
                )
            )
    return Check(
        kind=kind,
        source=source,
        compared=compared,
        agreed=agreed,
        answered=answered,
        differences=tuple(differences),
    )


class _Names:
    """From the names that TensorRT uses to the nodes of a model."""

    def __init__(self, graph: Graph) -> None:
        self._nodes: defaultdict[str, list[int]] = defaultdict(list)
        for node in graph.nodes:
            for name in dict.fromkeys(_aliases(node)):
                self._nodes[name].append(node.index)

    def of_layer(self, layer: LayerAnswer) -> list[int]:
        """Return the nodes that a layer of the network was made of."""
        marked = [
            mark.removeprefix(_MARK).removesuffix("]")
            for mark in layer.marks.split(_JOINT)
            if mark.startswith(_MARK)
        ]
        return [index for name in marked or [layer.name] for index in self._of(name)]

    def in_text(self, layer: str) -> list[int]:
        """Return the nodes in the name of a layer of an engine: ``conv1 + relu1``, ``PWN(…)``."""
        if self._of(layer):
            return self._of(layer)
        parts = re.split(r" \+ |, ", layer)
        return [index for part in parts for index in self._of(_FUSED.sub("", part))]

    def between(self, first: str, last: str) -> Iterable[int]:
        """Return the nodes from one to another, in the order of the model."""
        ends = [index for name in (first, last) for index in self.in_text(name)]
        return range(min(ends), max(ends) + 1) if self.in_text(first) and self.in_text(last) else ()

    def _of(self, name: str) -> list[int]:
        """Return the nodes of a name; a second layer of the same node has a number behind it."""
        numbered = _NUMBERED.fullmatch(name)
        if name not in self._nodes and numbered is not None:
            name = numbered["name"]
        return self._nodes.get(name, [])


def _aliases(node: Node) -> list[str]:
    """Return what a parser may call a node; one without a name is called after its output."""
    made = next((name for name in node.outputs if name), None)
    return [node.name] if made is None else [node.name, f"node_of_{made}"]

"""NVIDIA's rules for the DLA as records, from ``rules.toml`` and ``operators.toml``."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt

from ...collectors.backends.tensorrt_probe import tensorrt_version
from ...parsers.errors import UsageError
from ...parsers.onnx.graph import Graph, Node, Tensor
from ...parsers.records import Record
from .records import Certainty

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Value = bool | int | float | str
Version = tuple[int, ...]
Precision = Literal["fp16", "int8"]
# Name of a measure to its values; None if the model does not determine them. A measure that a kind
# of layer does not have is absent.
Measures = dict[str, tuple[Value, ...] | None]

# The release of JetPack 6.1 and 6.2, which most boards with a DLA run.
_USUAL = "10.3"
_ANY_LAYER = "*"
_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)


class _Ranged(Record):
    """Valid for some releases of TensorRT: from ``since`` on, up to before ``until``."""

    since: str | None = None
    until: str | None = None

    def holds_for(self, version: Version) -> bool:
        after = self.since is None or version >= _numbers(self.since)
        return after and (self.until is None or version < _numbers(self.until))


class ReleaseLine(_Ranged):
    """Releases of TensorRT with the same rules; a strongly typed one keeps the model's types."""

    name: str
    jetpack: str
    is_strongly_typed: bool = False


class Supported(_Ranged):
    """Kinds of layer that the DLA has, and NVIDIA's page with the list."""

    layers: tuple[str, ...]
    page: str


class Rule(_Ranged):
    """One condition on one measure of a layer; ``rules.toml`` describes the fields."""

    id: str
    layers: tuple[str, ...]
    measure: str
    within: tuple[float, float] | None = None
    outside: tuple[float, float] | None = None
    one_of: tuple[Value, ...] | None = None
    none_of: tuple[Value, ...] | None = None
    pairs: tuple[tuple[int, int], ...] = ()
    when: dict[str, Value] = {}
    precisions: tuple[Precision, ...] = ()
    outcome: Literal["gpu", "unknown"] = "gpu"
    requirement: str
    hint: str | None = None
    page: str
    certainty: Certainty = "documented"

    def applies_to(self, layer: str, precision: Precision) -> bool:
        """Whether the rule concerns this kind of layer at this precision."""
        of_layer = layer in self.layers or _ANY_LAYER in self.layers
        return of_layer and (not self.precisions or precision in self.precisions)

    def accepts(self, values: tuple[Value, ...]) -> bool:
        """Whether the values of its measure satisfy the rule."""
        return values in self.pairs or all(map(self._accepts, values))

    def _accepts(self, value: Value) -> bool:
        if self.one_of is not None:
            return value in self.one_of
        if self.none_of is not None:
            return value not in self.none_of
        if isinstance(value, str):
            return False
        if self.within is not None:
            return self.within[0] <= value <= self.within[1]
        return self.outside is None or not self.outside[0] <= value <= self.outside[1]


class Operator(Record):
    """The TensorRT layer of an ONNX operator, None if the DLA never runs it, and a known remedy."""

    layer: str | None = None
    operation: str | None = None
    hint: str | None = None


class _File(Record):
    pages: dict[str, str]
    lines: tuple[ReleaseLine, ...] = Field(alias="line")
    limits: dict[str, PositiveInt]
    supported: tuple[Supported, ...]
    rules: tuple[Rule, ...] = Field(alias="rule")


@dataclass(frozen=True)
class RuleSet:
    """The rules of one line of TensorRT, the kinds of layer that the DLA has, and page titles."""

    line: ReleaseLine
    rules: tuple[Rule, ...]
    supported: frozenset[str]
    pages: Mapping[str, str]
    loadable_limit: int


def lines() -> tuple[ReleaseLine, ...]:
    """Return the releases of TensorRT that have a DLA, oldest first."""
    return _file().lines


def line_of(version: str) -> ReleaseLine | None:
    """Return the line of a release or of its own name; None if that release has no DLA.

    >>> line_of("10.7.0").name, line_of("11.4").name, line_of("10.13"), line_of("11.4.0")
    ('10.3', '11.4', None, None)
    """
    found = _numbers(version)
    named = (line for line in lines() if line.name == version)
    ranged = (line for line in lines() if found and line.holds_for(found))
    return next(named, None) or next(ranged, None)


@cache
def rules_of(name: str) -> RuleSet:
    """Return the rules of a release or a line; raise ``UsageError`` if it has no DLA."""
    line = line_of(name)
    if line is None:
        known = ", ".join(one.name for one in lines())
        raise UsageError(f"there is no TensorRT {name} with a DLA", f"name one of {known}")
    version = _numbers(line.since or line.name)
    file = _file()
    return RuleSet(
        line=line,
        rules=tuple(rule for rule in file.rules if rule.holds_for(version)),
        supported=frozenset(
            layer for group in file.supported if group.holds_for(version) for layer in group.layers
        ),
        pages=file.pages,
        loadable_limit=file.limits["loadables"],
    )


def choose_rules(asked: str | None, installed: str | None = None) -> tuple[RuleSet, str]:
    """Return the rules to judge by, and the reason for the choice.

    Args:
        asked: Release given on the command line; ``UsageError`` is raised if it has no DLA.
        installed: The machine's TensorRT; looked up by default.
    """
    if asked is not None:
        return rules_of(asked), "asked for"
    installed = installed or tensorrt_version()
    if installed is not None and line_of(installed) is not None:
        return rules_of(installed), f"TensorRT {installed} is installed here"
    why = "TensorRT is not installed here"
    if installed is not None:
        why = f"TensorRT {installed}, which is installed here, has no DLA"
    rules = rules_of(_USUAL)
    return rules, f"{why}; {rules.line.jetpack} have this one, --tensorrt names another"


def all_rules() -> tuple[Rule, ...]:
    """Return every rule of all lines."""
    return _file().rules


@cache
def operators() -> Mapping[str, Operator]:
    """Return what TensorRT makes of each known operator."""
    text = Path(__file__).with_name("operators.toml").read_text(encoding="utf-8")
    return {name: Operator.model_validate(one) for name, one in tomllib.loads(text).items()}


@cache
def _file() -> _File:
    text = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
    return _File.model_validate(tomllib.loads(text))


def _numbers(version: str) -> Version:
    """Return the leading numbers of a release: ``8.5.2.2-1+cuda11.4`` is 8.5.2.2."""
    found = _VERSION.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()


_PRODUCTS = frozenset({"Gemm", "MatMul"})
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
# Operators that do nothing if they keep the shape.
_SHAPED = frozenset({"Expand", "Flatten", "Pad", "Reshape", "Resize", "Tile", "Upsample"})


class Layer(NamedTuple):
    """A node as a layer: kind (``convolution``) and, for some kinds, operation (``max``)."""

    kind: str
    operation: str | None = None


def layer_of(graph: Graph, node: Node, operator: Operator) -> Layer | str | None:
    """Return the layer of a node that is not constant, or None if the DLA never has such a layer.

    For a folded node, which is not a layer of its own, return the reason.
    """
    why = _vanishes(graph, node, operator)
    if why is not None or operator.layer is None:
        return why
    # TensorRT converts a sum or a product with a constant to a Scale layer.
    has_constant = len(data_inputs(graph, node)) < sum(1 for name in node.inputs if name)
    is_linear = operator.operation in ("sum", "sub", "prod")
    if operator.layer == "elementwise" and is_linear and has_constant:
        return Layer("scale", operator.operation)
    return Layer(operator.layer, operator.operation)


# The DLA counts all dimensions before the last three as batch.
_IMAGE_DIMENSIONS = 3


def batch_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that are batch; the first one if the tensor is not an image.

    >>> batch_of((2, 3, 16, 32, 32)), batch_of((2, 10)), batch_of((10,))
    ((2, 3), (2,), ())
    """
    if len(shape) > _IMAGE_DIMENSIONS:
        return shape[:-_IMAGE_DIMENSIONS]
    return shape[:1] if len(shape) > 1 else ()


def data_inputs(graph: Graph, node: Node) -> list[Tensor]:
    """Return the inputs of a node that change with each inference."""
    found = [graph.tensor(name) for name in node.inputs if name]
    return [tensor for tensor in found if not tensor.is_constant]


def sole_consumer(graph: Graph, node: Node) -> Node | None:
    """Return the only reader of a node; None if there are several or it makes a model output."""
    readers = {reader for name in node.outputs for reader in graph.consumers.get(name, ())}
    if len(readers) != 1 or any(name in graph.outputs for name in node.outputs):
        return None
    return graph.nodes[readers.pop()]


def producer(graph: Graph, name: str) -> Node | None:
    """Return the node that makes a tensor; None for inputs and weights."""
    index = graph.producers.get(name)
    return None if index is None else graph.nodes[index]


def _vanishes(graph: Graph, node: Node, operator: Operator) -> str | None:
    if operator.layer == "identity":
        return "it changes nothing"
    before, after = graph.input(node, 0), graph.output(node)
    if before is None or after is None or operator.layer == "quantization":
        return None
    if node.op == "Cast" and before.dtype is not None and before.dtype == after.dtype:
        return "it changes nothing"
    if node.op == "Transpose" and node.integers("perm") == tuple(range(len(before.shape or ()))):
        return "it changes nothing" if before.shape is not None else None
    if node.op in _SHAPED and before.is_fixed and before.shape == after.shape:
        return "it changes nothing"
    source = producer(graph, before.name)
    if node.op == "BatchNormalization" and source is not None and source.op in _CONVOLUTIONS:
        return f"it is merged into {source.name}" if sole_consumer(graph, source) is node else None
    if operator.layer == "shuffle" and _is_flattened_pixel(graph, node, before, after):
        return "the matrix product after it accepts [N, C, 1, 1]"
    if operator.operation == "sum" and _is_bias_of_product(graph, node):
        return "it is the bias of the matrix product before it"
    return None


def _is_flattened_pixel(graph: Graph, node: Node, before: Tensor, after: Tensor) -> bool:
    """Whether it is ``[N, C, 1, 1]`` to ``[N, C]`` for a product; public builds do not cut it."""
    reader = sole_consumer(graph, node)
    if reader is None or reader.op not in _PRODUCTS or node.op == "Transpose":
        return False
    if before.shape is None or len(before.shape) != 4 or before.shape[2:] != (1, 1):
        return False
    return after.shape == before.shape[:2] and reader.inputs[0] == node.outputs[0]


def _is_bias_of_product(graph: Graph, node: Node) -> bool:
    data = data_inputs(graph, node)
    if len(data) != 1 or len(node.inputs) != 2:
        return False
    source = producer(graph, data[0].name)
    if source is None or source.op != "MatMul" or sole_consumer(graph, source) is not node:
        return False
    constants = [graph.tensor(name) for name in node.inputs if name != data[0].name]
    made, shape = graph.output(source), constants[0].shape if constants else None
    if len(data_inputs(graph, source)) != 1 or made is None or made.shape is None:
        return False
    return shape is not None and len(shape) == 1 and shape[0] in (1, made.shape[-1])

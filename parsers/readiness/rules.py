"""NVIDIA's rules for the DLA as records, read of ``rules.toml`` and ``operators.toml``."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt

from ..errors import Misused
from ..records import Record
from .records import Certainty

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Value = bool | int | float | str
Version = tuple[int, ...]
Precision = Literal["fp16", "int8"]

_ANY_LAYER = "*"
_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)


class _Ranged(Record):
    """What holds for some releases of TensorRT.

    Attributes:
        since: The first; ``None`` for all before.
        until: The first it does not hold for; ``None`` for all after.
    """

    since: str | None = None
    until: str | None = None

    def holds_for(self, version: Version) -> bool:
        """Whether a release is among them."""
        after = self.since is None or version >= _numbers(self.since)
        return after and (self.until is None or version < _numbers(self.until))


class Line(_Ranged):
    """Releases of TensorRT that have the DLA by the same rules.

    Attributes:
        name: As a person names it, ``10.3``.
        jetpack: What it came with.
        is_strongly_typed: Whether the model's own types are obeyed, and no flag changes them.
    """

    name: str
    jetpack: str
    is_strongly_typed: bool = False


class Supported(_Ranged):
    """Layers that the DLA has.

    Attributes:
        layers: Their kinds.
        page: Which page says so.
    """

    layers: tuple[str, ...]
    page: str


class Rule(_Ranged):
    """One condition on one measure of a layer.

    Attributes:
        id: Its name, ``convolution.kernel``.
        layers: Kinds of layer it holds for; ``*`` for all.
        measure: What is measured.
        within: Every number lies between these two.
        outside: No number does.
        one_of: Every value is one of these.
        none_of: No value is.
        pairs: Or the numbers, in order, are one of these.
        when: Other measures and their values, without which it is not asked.
        precisions: Where it holds; empty for everywhere.
        outcome: What becomes of a layer that breaks it.
        says: It in words.
        hint: What is known to help; that of the operator goes before it.
        page: Which page it is from.
        certainty: How sure it is.
    """

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
    says: str
    hint: str | None = None
    page: str
    certainty: Certainty = "documented"

    def concerns(self, layer: str, precision: Precision) -> bool:
        """Whether it is asked of a kind of layer at all."""
        of_layer = layer in self.layers or _ANY_LAYER in self.layers
        return of_layer and (not self.precisions or precision in self.precisions)

    def accepts(self, values: tuple[Value, ...]) -> bool:
        """Whether a measure keeps it."""
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
    """What TensorRT makes of an operator of ONNX.

    Attributes:
        layer: Kind of layer; ``None`` for what the DLA never has.
        operation: Which of the layer's operations.
        hint: What is known to help where it is refused.
    """

    layer: str | None = None
    operation: str | None = None
    hint: str | None = None


class _File(Record):
    pages: dict[str, str]
    lines: tuple[Line, ...] = Field(alias="line")
    limits: dict[str, PositiveInt]
    supported: tuple[Supported, ...]
    rules: tuple[Rule, ...] = Field(alias="rule")


@dataclass(frozen=True)
class RuleSet:
    """The rules of one line of TensorRT.

    Attributes:
        line: Which.
        rules: In the order of the file.
        supported: Kinds of layer that the DLA has.
        pages: Key of a page to its title.
        operators: Name of an ONNX operator to what becomes of it.
        loadable_limit: How many loadables a core takes at once.
    """

    line: Line
    rules: tuple[Rule, ...]
    supported: frozenset[str]
    pages: Mapping[str, str]
    operators: Mapping[str, Operator] = field(repr=False)
    loadable_limit: int = 16


def lines() -> tuple[Line, ...]:
    """Return the releases of TensorRT that have a DLA, oldest first."""
    return _file().lines


def line_of(version: str) -> Line | None:
    """Return the line of a release; ``None`` where it has no DLA.

    Args:
        version: As ``10.3.0``, or the name of a line.

    >>> line_of("10.7.0").name, line_of("11.4").name, line_of("10.13"), line_of("11.4.0")
    ('10.3', '11.4', None, None)
    """
    found = _numbers(version)
    named = (line for line in lines() if line.name == version)
    ranged = (line for line in lines() if found and line.holds_for(found))
    return next(named, None) or next(ranged, None)


@cache
def rules_of(name: str) -> RuleSet:
    """Return the rules of a line.

    Args:
        name: A release or a line, as ``line_of`` takes it.

    Raises:
        Misused: That TensorRT has no DLA, or none is named so.
    """
    line = line_of(name)
    if line is None:
        known = ", ".join(one.name for one in lines())
        raise Misused(f"there is no TensorRT {name} with a DLA", f"name one of {known}")
    version = _numbers(line.since or line.name)
    file = _file()
    return RuleSet(
        line=line,
        rules=tuple(rule for rule in file.rules if rule.holds_for(version)),
        supported=frozenset(
            layer for group in file.supported if group.holds_for(version) for layer in group.layers
        ),
        pages=file.pages,
        operators=operators(),
        loadable_limit=file.limits["loadables"],
    )


def all_rules() -> tuple[Rule, ...]:
    """Return every rule, of all lines."""
    return _file().rules


@cache
def operators() -> Mapping[str, Operator]:
    """Return what TensorRT makes of each operator that is known."""
    text = Path(__file__).with_name("operators.toml").read_text(encoding="utf-8")
    return {name: Operator.model_validate(one) for name, one in tomllib.loads(text).items()}


@cache
def _file() -> _File:
    text = Path(__file__).with_name("rules.toml").read_text(encoding="utf-8")
    return _File.model_validate(tomllib.loads(text))


def _numbers(version: str) -> Version:
    """Return the numbers of a release: those in front, so that ``8.5.2.2-1+cuda11.4`` is read."""
    found = _VERSION.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()

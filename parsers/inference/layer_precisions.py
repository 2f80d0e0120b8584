"""Precision by layer: which layers a setting names, and what the built engine made of it.

A setting is a map from names to precisions. A name is that of an ONNX node or of a layer of
TensorRT, and ``*`` in it stands for any text.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from glob import escape

from ..errors import UserError
from .layers import computes, ends_of_subgraph, names_in, read_layers
from .placement import HeldLayer, Precision

# The precisions that a build allows, besides that which it is asked for.
_ALLOWED: Mapping[Precision, tuple[Precision, ...]] = {
    "fp32": ("fp32",),
    "fp16": ("fp16", "fp32"),
    "int8": ("int8", "fp16", "fp32"),
}
# A record names so many: a pattern may hold all layers of a large model.
_MOST_RECORDED = 64


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> "re.Pattern[str]":
    """Return a regular expression of a pattern; the brackets of shells are plain text in it."""
    return re.compile(translate("*".join(map(escape, pattern.split("*")))))


def fits(pattern: str, name: str) -> bool:
    """Return whether a name is the pattern, in which each ``*`` stands for any text.

    >>> fits("model.22*", "model.22/cv2/Conv"), fits("*/Softmax", "a/Softmax_1")
    (True, False)
    """
    return _expression(pattern).match(name) is not None


def pattern_for(precisions: Mapping[str, Precision], names: Collection[str]) -> str | None:
    """Return the key that names a layer: a whole name before patterns, and of these the last.

    >>> pattern_for({"a": "fp16", "*": "fp32", "*b": "int8"}, ["a", "ab"])
    'a'
    """
    found = None
    for pattern in precisions:
        if pattern in names:
            return pattern
        if any(fits(pattern, name) for name in names):
            found = pattern
    return found


def check_allowed(precisions: Mapping[str, Precision], build: Precision) -> None:
    """Raise ``UserError`` if a build cannot compute in one of the precisions."""
    for name, precision in precisions.items():
        if precision not in _ALLOWED[build]:
            raise UserError(
                f"layer_precisions has {name} in {precision}, and a build of {build} has no"
                f" {precision}",
                f"set precision: {precision}, or name one of {', '.join(_ALLOWED[build])}",
            )


def expand(precisions: Mapping[str, Precision], nodes: Sequence[str]) -> dict[str, Precision]:
    """Return the precision of each node that is named, and of each other whole name.

    TensorRT makes layers of its own, which no node is named after: only ``*`` needs a node.

    Raises:
        UserError: A pattern fits no node.
    """
    check_named([name for name in precisions if "*" in name], nodes)
    asked = {name: precision for name, precision in precisions.items() if "*" not in name}
    for node in nodes:
        pattern = pattern_for(precisions, [node])
        if pattern is not None:
            asked[node] = precisions[pattern]
    return asked


def check_named(patterns: Iterable[str], names: Collection[str]) -> None:
    """Raise ``UserError`` if a pattern fits no name, with the names that come next to it."""
    from difflib import get_close_matches

    for pattern in patterns:
        if any(fits(pattern, name) for name in names):
            continue
        near = get_close_matches(pattern, names, n=3, cutoff=0.3)
        remedy = "the names are those of the model's nodes: tegrascope inspect MODEL --all"
        if near:
            remedy = f"did you mean {', '.join(near)}? {remedy}"
        raise UserError(f"layer_precisions names {pattern}, and no layer is named so", remedy)


def read_back(inspector: str | None, asked: Mapping[str, Precision]) -> tuple[HeldLayer, ...]:
    """Return the type in which each of these layers computes, by an engine's inspector.

    A layer is part of each layer of the engine that has its name or its node. What is inside a
    subgraph without detail, or no longer there, has no type.
    """
    found: dict[str, set[str]] = {name: set() for name in asked}
    for layer in read_layers(inspector):
        is_shown = ends_of_subgraph(layer.name) is None and computes(layer.name, layer.kind)
        if layer.precision is None or not is_shown:
            continue
        for name in {*layer.nodes, *names_in(layer.name)} & found.keys():
            found[name].add(layer.precision)
    held = []
    for name, precision in asked.items():
        shown = min(found[name] - {precision}, default=None)
        if shown is None and found[name]:
            shown = precision
        held.append(HeldLayer(name=name, asked=precision, found=shown))
    return tuple(held)


def recorded(held: Sequence[HeldLayer]) -> tuple[HeldLayer, ...]:
    """Return as many as a record names: those that differ, then those shown, then the others."""
    ordered = sorted(held, key=lambda layer: (layer.is_kept is not False, layer.found is None))
    return tuple(ordered[:_MOST_RECORDED])


def notes_of(held: Sequence[HeldLayer]) -> tuple[str, ...]:
    """Return what a person has to know of the layers that were held, in one note; none without."""
    if not held:
        return ()
    kept = sum(layer.is_kept is True for layer in held)
    hidden = sum(layer.is_kept is None for layer in held)
    words = f"layer_precisions: {kept} of {len(held)} layers compute as asked"
    if hidden:
        words += f", {hidden} are not shown (merged, or inside a subgraph)"
    for layer in held:
        if layer.is_kept is False:
            words += f"; {layer.name} computes in {layer.found}, not in {layer.asked}"
            break
    return (words,)

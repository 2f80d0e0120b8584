"""Layers of an engine: rows with their times, and tables of them for a terminal and a page."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ...daemon.measure.run_text import ABSENT, percent, seconds
from ...daemon.terminal import amount
from ...parsers.inference.layers import EngineLayer, LayerProfile, is_constant
from ...parsers.inference.placement import Placement
from .document import Block, Heading, Table, Text
from .records import AcceleratorResult, LayerRow

# A terminal shows so many, those that take longest first, with names of at most this length.
MOST_LAYERS = 15
_LONGEST_NAME = 60
_AGAIN = "″"
_YES_OR_NO = {True: "yes", False: "no", None: ABSENT}


def time_rows(profile: LayerProfile, placement: Placement | None) -> tuple[LayerRow, ...]:
    """Return the layers that a profiler timed, with the inspector's details of each.

    Constants are left out: a profiler lists them with a time of 0.
    """
    engine = {layer.name: layer for layer in profile.layers}
    lists = placement or Placement()
    places = {
        **dict.fromkeys(lists.reformat_layers, "reformat"),
        **dict.fromkeys(lists.gpu_layers, "gpu"),
        **dict.fromkeys(lists.dla_layers, "dla"),
    }
    whole = sum(profile.layers_ns.values())
    rows = []
    for name, time in profile.layers_ns.items():
        layer = engine.get(name) or EngineLayer(name=name)
        if is_constant(layer.name, layer.kind):
            continue
        timed = {"seconds": time / 1e9, "share": time / whole if whole else 0.0}
        details = {**layer.model_dump(), **timed, "place": places.get(name)}
        rows.append(LayerRow.model_validate(details))
    return tuple(rows)


# Words are aligned to the left, and numbers to the right.
_WORDS = ("layer", "on", "computes in", "format", "tensor cores", "fused nodes")
# The tactic is last, since a kernel's long name would push all else off the page.
_COLUMNS = (*_WORDS, "time", "share", "work", "bytes at least", "tactic")


def layer_table(layers: Sequence[EngineLayer], *, is_page: bool) -> Table:
    """Return a table of layers; those with times have columns for time and work too.

    A page has full names, tactics and nodes.
    """
    columns: dict[str, list[str]] = {title: [] for title in _COLUMNS}
    for layer in layers:
        for title, cell in _cells(layer, is_page=is_page).items():
            columns[title].append(cell)
    known, left = [], 0
    for title, column in columns.items():
        # A column of which no layer knows anything is left out.
        if set(column) <= {ABSENT, ""}:
            continue
        known.append(title)
        left += title in _WORDS
    rows = list(zip(*map(columns.__getitem__, known), strict=True))
    return Table(known, rows, left=left)


def _cells(layer: EngineLayer, *, is_page: bool) -> dict[str, str]:
    """Return the cells of a layer by column."""
    cells = dict.fromkeys(_COLUMNS, ABSENT)
    cells["layer"] = layer.name if is_page else _cut(layer.name)
    cells["computes in"] = layer.precision or ABSENT
    cells["format"] = _formats(layer)
    cells["tensor cores"] = _YES_OR_NO[layer.uses_tensor_cores]
    cells["fused nodes"] = _nodes(layer, is_page)
    if is_page:
        cells["tactic"] = layer.tactic or ABSENT
    if isinstance(layer, LayerRow):
        cells["on"] = layer.place or ABSENT
        cells["time"] = seconds(layer.seconds)
        cells["share"] = percent(layer.share)
        cells["work"] = amount(layer.flops, "FLOP")
        cells["bytes at least"] = amount(layer.edge_bytes, "B")
    return cells


def layer_blocks(results: Sequence[AcceleratorResult], *, is_page: bool) -> Iterator[Block]:
    """Yield the layers of each accelerator, those that take longest first.

    A page has all of them, and before them all accelerators side by side.
    """
    timed = [one for one in results if one.layers]
    if is_page and len(timed) > 1:
        yield Heading("Layers side by side", 3)
        yield Text(_SIDE_BY_SIDE, "under")
        yield side_by_side(timed)
    for one in timed:
        longest = sorted(one.layers, key=lambda row: -row.seconds)
        shown = longest if is_page else longest[:MOST_LAYERS]
        yield Heading(f"Layers on {one.device}", 3)
        yield Text(_sums(one), "under")
        yield layer_table(shown, is_page=is_page)
        if len(shown) < len(longest):
            left = longest[len(shown) :]
            share = percent(sum(row.share for row in left))
            yield Text(f"and {len(left)} more, {share} of the time: see the page or result.json")


def _sums(one: AcceleratorResult) -> str:
    """Return the sum of the rows beside the profiler's own total, and how to read them."""
    words = [
        f"{len(one.layers)} layers take {_time(one.layers)} in sum;"
        f" the profiler reported {seconds(one.profiled_seconds or 0.0)} per inference, in"
        f" {one.profiled_inferences} inferences of their own.",
        "Profiling slows inferences down: compare layers with each other, not with the latency.",
    ]
    if any(row.place == "dla" for row in one.layers):
        words.append("The time of a DLA's subgraph contains the copies around it.")
    return " ".join(words)


_SIDE_BY_SIDE = (
    "By ONNX node, in the order of the engine with most layers. A layer stands in the row of its"
    f" first nodes, with its whole time; {_AGAIN} marks further rows of the same layer."
)


# The layers of an accelerator that contain a node, by their places in its list.
_Places: TypeAlias = tuple[int, ...]


class _NodeGroup(NamedTuple):
    """Neighbouring nodes, and the layers that contain all of them, per accelerator."""

    nodes: list[str]
    places: tuple[_Places, ...]


def side_by_side(results: Sequence[AcceleratorResult]) -> Table:
    """Return a table of all accelerators by ONNX node.

    Neighbouring nodes that are in the same layers of every accelerator share a row. Layers without
    a node, which are reformats, are summed in the last row.
    """
    groups = _node_groups(results)
    rows = [[_few(group.nodes)] for group in groups]
    titles, rest = ["ONNX nodes"], ["without a node"]
    for number, one in enumerate(results):
        titles += [one.device, f"{one.device} time"]
        rest += _without_node(one)
        shown: set[int] = set()
        for row, group in zip(rows, groups, strict=True):
            row += _side(one, group.places[number], shown)
            shown.update(group.places[number])
    if set(rest[1:]) != {ABSENT}:
        rows.append(rest)
    return Table(titles, rows)


def _node_groups(results: Sequence[AcceleratorResult]) -> list[_NodeGroup]:
    """Return all nodes in the order of the engine with most layers, neighbours together."""
    places = [_places_by_node(one) for one in results]
    nodes: dict[str, None] = {}
    for one in sorted(results, key=lambda one: -len(one.layers)):
        nodes.update(dict.fromkeys(_places_by_node(one)))
    groups: list[_NodeGroup] = []
    for node in nodes:
        here = tuple(by_node.get(node, ()) for by_node in places)
        if groups and groups[-1].places == here:
            groups[-1].nodes.append(node)
        else:
            groups.append(_NodeGroup([node], here))
    return groups


def _places_by_node(one: AcceleratorResult) -> dict[str, _Places]:
    """Return the layers of each node, in the order in which the nodes first occur."""
    places: dict[str, _Places] = {}
    for place, row in enumerate(one.layers):
        for node in dict.fromkeys(row.nodes):
            places[node] = (*places.get(node, ()), place)
    return places


def _without_node(one: AcceleratorResult) -> list[str]:
    """Return number and time of the layers without a node."""
    rest = [row for row in one.layers if not row.nodes]
    if not rest:
        return [ABSENT, ABSENT]
    return [f"{len(rest)} layer{'s' * (len(rest) > 1)}", _time(rest)]


def _side(one: AcceleratorResult, places: _Places, shown: set[int]) -> list[str]:
    """Return what an accelerator does for a row of nodes: place and type, and the time."""
    new = [one.layers[place] for place in places if place not in shown]
    if not new:
        return [_AGAIN if places else ABSENT] * 2
    words: dict[str, None] = {}
    for row in new:
        words[_join(" ", row.place, row.precision)] = None
    return [_join(", ", *words) or ABSENT, _time(new)]


def _join(between: str, *words: str | None) -> str:
    """Return the known words in one."""
    return between.join(word for word in words if word)


def _time(rows: Sequence[LayerRow]) -> str:
    return seconds(sum(row.seconds for row in rows))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{names[0]} … {names[-1]} ({len(names)} nodes)"


def _nodes(layer: EngineLayer, is_page: bool) -> str:
    """Return the number of fused nodes; on a page their names too, unless the layer has them."""
    if len(layer.nodes) < 2:
        return ABSENT
    is_named = not is_page or all(node in layer.name for node in layer.nodes)
    return str(len(layer.nodes)) + ("" if is_named else f": {', '.join(layer.nodes)}")


def _formats(layer: EngineLayer) -> str:
    """Return the format, or both if the layer changes it; a change of type counts."""
    taken = _join(" ", layer.input_format, layer.input_type)
    given = _join(" ", layer.output_format, layer.output_type)
    if taken == given:
        return taken or ABSENT
    return _join(" → ", taken, given)


def _cut(name: str) -> str:
    """Shorten a long name in its middle, for a terminal."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[-half + 1 :]}"

"""Layers of an engine: rows with their times, and tables of them for a terminal and a page."""

from collections.abc import Iterator, Sequence

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
        details = layer.model_dump() | {"place": places.get(name), "seconds": time / 1e9}
        rows.append(LayerRow.model_validate(details | {"share": time / whole if whole else 0.0}))
    return tuple(rows)


def layer_table(layers: Sequence[EngineLayer], *, is_page: bool) -> Table:
    """Return a table of layers; those with times have columns for time and work too.

    A page has full names, tactics and nodes.
    """
    rows = [(layer, layer if isinstance(layer, LayerRow) else None) for layer in layers]
    cells = {
        "layer": [layer.name if is_page else _cut(layer.name) for layer in layers],
        "on": [ABSENT if row is None else row.place or ABSENT for _, row in rows],
        "computes in": [layer.precision or ABSENT for layer in layers],
        "format": [_formats(layer) for layer in layers],
        "tensor cores": [_YES_OR_NO[layer.uses_tensor_cores] for layer in layers],
        "fused nodes": [_nodes(layer, is_page) for layer in layers],
        "time": [seconds(row.seconds) if row else ABSENT for _, row in rows],
        "share": [percent(row.share) if row else ABSENT for _, row in rows],
        "work": [amount(row.flops, "FLOP") if row else ABSENT for _, row in rows],
        "bytes at least": [amount(row.edge_bytes, "B") if row else ABSENT for _, row in rows],
        # Last, since a kernel's long name would push all else off the page.
        "tactic": [layer.tactic or ABSENT for layer in layers] if is_page else [],
    }
    known = {title: column for title, column in cells.items() if set(column) - {ABSENT, ""}}
    left = sum(title in known for title in list(cells)[:6])
    return Table(list(known), list(zip(*known.values(), strict=True)), left=left)


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
        f"{len(one.layers)} layers take {seconds(sum(row.seconds for row in one.layers))} in sum;"
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


def side_by_side(results: Sequence[AcceleratorResult]) -> Table:
    """Return a table of all accelerators by ONNX node.

    Neighbouring nodes that are in the same layers of every accelerator share a row. Layers without
    a node, which are reformats, are summed in the last row.
    """
    order = sorted(results, key=lambda one: -len(one.layers))
    nodes = dict.fromkeys(node for one in order for row in one.layers for node in row.nodes)
    holders: list[dict[str, tuple[int, ...]]] = []
    for one in results:
        found: dict[str, tuple[int, ...]] = {}
        for at, row in enumerate(one.layers):
            for node in dict.fromkeys(row.nodes):
                found[node] = (*found.get(node, ()), at)
        holders.append(found)
    groups: list[tuple[list[str], tuple[tuple[int, ...], ...]]] = []
    for node in nodes:
        where = tuple(found.get(node, ()) for found in holders)
        if groups and groups[-1][1] == where:
            groups[-1][0].append(node)
        else:
            groups.append(([node], where))
    shown: list[set[int]] = [set() for _ in results]
    rows = []
    for names, where in groups:
        cells = [_few(names)]
        for one, indices, before in zip(results, where, shown, strict=True):
            cells += _side(one, indices, before)
            before.update(indices)
        rows.append(cells)
    rest = [[row for row in one.layers if not row.nodes] for one in results]
    if any(rest):
        rows.append(["without a node"])
        for left in rest:
            count = f"{len(left)} layer{'s' * (len(left) > 1)}"
            rows[-1] += [count, _time(left)] if left else [ABSENT] * 2
    titles = (title for one in results for title in (one.device, f"{one.device} time"))
    return Table(["ONNX nodes", *titles], rows)


def _side(one: AcceleratorResult, indices: Sequence[int], before: set[int]) -> list[str]:
    """Return what an accelerator does for a row of nodes: place and type, and the time."""
    new = [one.layers[at] for at in indices if at not in before]
    if not new:
        return [_AGAIN if indices else ABSENT] * 2
    words = dict.fromkeys(" ".join(filter(None, (row.place, row.precision))) for row in new)
    return [", ".join(filter(None, words)) or ABSENT, _time(new)]


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
    ends = (
        (layer.input_format, layer.input_type),
        (layer.output_format, layer.output_type),
    )
    words = [" ".join(filter(None, end)) for end in ends]
    return " → ".join(dict.fromkeys(filter(None, words))) or ABSENT


def _cut(name: str) -> str:
    """Shorten a long name in its middle, for a terminal."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[:half]}…{name[-half + 1 :]}"

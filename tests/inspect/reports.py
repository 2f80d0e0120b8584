"""Inspections of the four families, as text that a person reviews.

One line per broken rule, per part and per node. The text comes from the record, not from the
printed table, so that it does not depend on the library that draws tables.
"""

from collections.abc import Iterator
from pathlib import Path

from tegrascope.daemon.terminal import amount
from tegrascope.parsers.onnx.costs import NodeCost
from tegrascope.parsers.onnx.graph import Graph
from tegrascope.workbench.inspect.judge import inspect_graph
from tegrascope.workbench.inspect.report import heading, summary
from tegrascope.workbench.inspect.rules import Inspection, PartCost, rules_of

GOLDENS = Path(__file__).parent / "goldens"
# The usual release of TensorRT.
LINE = "10.3"


def report_of(name: str, graph: Graph) -> str:
    """Return the report of a model."""
    inspection = inspect_graph(
        graph, rules_of(LINE), model=f"builtin:{name}", reason="asked for", precision=None
    )
    return "".join(f"{text}\n" for text in _lines(inspection))


def golden_of(name: str) -> Path:
    """Return the file of a reviewed report."""
    return GOLDENS / f"{name}.txt"


def _lines(inspection: Inspection) -> Iterator[str]:
    costs = inspection.costs
    yield heading(inspection)
    yield summary(inspection)
    yield f"whole: {_cost(costs.total)}"
    shares = (costs.pointwise_ratio, costs.depthwise_ratio)
    yield "of the work, 1 x 1 and depthwise: {:.1%}, {:.1%}".format(*shares)
    for words, parts, prices in (
        ("loadable", inspection.loadables, costs.loadables),
        ("island", inspection.islands, costs.islands),
    ):
        for part, price in zip(parts, prices, strict=True):
            ends = f"{part.first} .. {part.last}"
            yield f"{words} {part.number}: {len(part.nodes)} nodes, {ends}: {_cost(price)}"
    for one in inspection.types:
        yield f"{one.precision}: {one.verdict}"
    for hint in inspection.alignment:
        empty = f"{hint.waste_ratio:.0%} empty"
        yield f"channels: {hint.name} {hint.channels} {hint.count} of {hint.multiple}, {empty}"
    for note in inspection.notes:
        yield f"note: {note}"
    for node, price in zip(inspection.nodes, costs.nodes, strict=True):
        where = {"dla": f"dla {node.loadable}", "gpu": f"gpu {node.island}"}.get(
            node.placement, node.placement
        )
        rules = [f"{one.rule}{'?' * one.is_open} ({one.found})" for one in node.findings]
        reason = [node.reason] if node.reason else []
        parts = [f"{node.op} {node.name}", node.layer or "-", where, _cost(price), *reason, *rules]
        yield " | ".join(parts)


def _cost(cost: NodeCost | PartCost) -> str:
    edge = [amount(cost.edge_bytes, "B at least")] if isinstance(cost, PartCost) else []
    parts = (amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B"), *edge)
    return ", ".join(part or "?" for part in parts)

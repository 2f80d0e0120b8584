"""Print an inspection in a terminal: verdict, broken rules, parts, remarks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TextIO

from ...daemon.terminal import amount
from ...parsers.onnx.costs import NodeCost
from ..results.document import Block, Heading, Table, Text, print_document
from .rules import (
    ConvolutionShare,
    Costs,
    Disagreement,
    EvidenceCheck,
    Inspection,
    JudgedNode,
    Part,
    PartCost,
    RuleFinding,
    shape_option,
)

_NAMED = 3
_SHOWN_ALIGNMENT = 5
_SHOWN_DIFFERENCES = 12
_COSTS = ("work", "moves", "FLOP/B")
_UNITS = {"dla": "the DLA's format", "tensor_core": "tensor cores"}
_VERDICTS = {
    "dla": "wholly on the DLA",
    "gpu": "nothing on the DLA",
    "mixed": "on the DLA and the GPU",
    "unknown": "no rule is broken, but some could not be evaluated",
}


def print_inspection(
    inspection: Inspection, *, shows_all: bool = False, stream: TextIO | None = None
) -> None:
    """Print an inspection; ``shows_all`` adds a line per node."""
    source = f"rules of TensorRT {inspection.tensorrt}: {inspection.tensorrt_reason}"
    blocks: list[Block] = list(map(Text, _first_lines(inspection)))
    blocks += [Heading(heading(inspection))]
    blocks += [Text(source), Text(summary(inspection))]
    if any(node.findings for node in inspection.nodes):
        blocks += [Text("broken rules; those with ? could not be evaluated")]
        blocks += [_rules(inspection.nodes)]
    if shows_all:
        blocks += [Text("nodes"), _nodes(inspection)]
    if inspection.loadables:
        blocks += [Text("predicted parts, in order"), _parts(inspection)]
    print_document([*blocks, *map(Text, _remarks(inspection))], stream)


def _first_lines(inspection: Inspection) -> Iterator[str]:
    """Yield what matters more than the verdict: that shapes are open, or whose shapes were used."""
    if inspection.remedy is not None:
        words = f"give {inspection.remedy}"
        if "?" in inspection.remedy:
            words += ", a number for each ?"
        yield f"{words}: the DLA has no open dimensions, so this result is of little use"
    for name, shape in inspection.assumed_shapes.items():
        option = shape_option(name, shape)
        yield f"{option}: the size of images in the file's metadata; give another one to change it"


def heading(inspection: Inspection) -> str:
    """Return the model, the build and the verdict."""
    build: str = inspection.precision
    if build == "int8" and inspection.allows_fp16:
        build = "int8 beside fp16"
    return f"{inspection.model} · {build} · {_VERDICTS[inspection.verdict]}"


def summary(inspection: Inspection) -> str:
    """Return counts of nodes by placement, and of loadables."""
    counts = Counter(node.placement for node in inspection.nodes)
    parts = [f"{counts['dla']} of {len(inspection.nodes)} nodes on the DLA"]
    if counts["gpu"]:
        parts.append(f"{counts['gpu']} on the GPU")
    for place in ("unknown", "folded", "constant"):
        if counts[place]:
            parts.append(f"{counts[place]} {place}")
    loadables = f"{len(inspection.loadables)} of {inspection.loadable_limit} loadables"
    return f"{', '.join(parts)}; {loadables}"


def intensity(flops_per_byte: float | None) -> str:
    """Format operations per byte; return nothing for None.

    >>> intensity(48.67), intensity(0.25), intensity(3866.4), intensity(None)
    ('48.7', '0.25', '3866', '')
    """
    if flops_per_byte is None:
        return ""
    if flops_per_byte < 999.5:
        return f"{flops_per_byte:.3g}"
    return f"{flops_per_byte:.0f}"  # :.3g would print an exponent


def _rules(nodes: Iterable[JudgedNode]) -> Table:
    nodes_by_finding: dict[RuleFinding, list[JudgedNode]] = {}
    for node in nodes:
        for finding in node.findings:
            nodes_by_finding.setdefault(finding, []).append(node)
    rows = []
    # Broken rules come before open ones.
    groups = sorted(
        nodes_by_finding.items(), key=lambda group: (group[0].is_open, group[1][0].index)
    )
    for finding, members in groups:
        operators = Counter(node.op for node in members).most_common()
        counted = ", ".join([f"{count} {op}" for op, count in operators])
        names = ", ".join([node.name for node in members])
        if len(members) > _NAMED:
            names = f"{members[0].name} … {members[-1].name}"
        mark = " ?" if finding.is_open else ""
        rule = f"{finding.rule}{mark}: {finding.requirement}\n{finding.found}"
        rows.append((f"{counted}\n{names}", rule, finding.hint or ""))
    return Table(("nodes", "rule, and what the model has instead", "remedy"), rows, left=3)


def _nodes(inspection: Inspection) -> Table:
    rows = []
    costs = inspection.cost_by_node
    for node in inspection.nodes:
        part = ""
        if node.loadable is not None:
            part = f"loadable {node.loadable}"
        elif node.island is not None:
            part = f"island {node.island}"
        place: str = node.placement
        if node.reason is not None:
            place = f"{place}: {node.reason}"
        cells = (str(node.index), node.name, node.op, node.layer or "", place, part)
        rows.append((*cells, *_price(costs.get(node.index))))
    return Table(("", "node", "operator", "layer", "runs on", "part", *_COSTS), rows, left=6)


def _parts(inspection: Inspection) -> Table:
    """Return loadables and islands by the place of their first node."""
    loadable_costs: Sequence[PartCost] = ()
    island_costs: Sequence[PartCost] = ()
    if inspection.costs is not None:
        loadable_costs, island_costs = inspection.costs.loadables, inspection.costs.islands
    rows_by_place = {}
    for part, cost in zip_longest(inspection.loadables, loadable_costs):
        rows_by_place[part.nodes[0]] = _part_row("loadable", part, cost)
    for part, cost in zip_longest(inspection.islands, island_costs):
        rows_by_place[part.nodes[0]] = _part_row("GPU island", part, cost)
    rows = [rows_by_place[place] for place in sorted(rows_by_place)]
    return Table(("part", "first", "last", "nodes", *_COSTS, "share"), rows, left=3)


def _part_row(kind: str, part: Part, cost: PartCost | None) -> Sequence[str]:
    share = ""
    if cost is not None and cost.flops_ratio is not None:
        share = f"{cost.flops_ratio:.1%}"
    cells = (f"{kind} {part.number}", part.first, part.last, str(len(part.nodes)))
    return (*cells, *_price(cost), share)


def _price(cost: NodeCost | PartCost | None) -> tuple[str, str, str]:
    """Return work, bytes and intensity; a sum that is a lower bound is marked as one."""
    if cost is None:
        return "", "", ""
    work, moved = amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B")
    if isinstance(cost, PartCost) and cost.uncounted:
        return work and f"≥ {work}", moved and f"≥ {moved}", ""
    return work, moved, intensity(cost.flops_per_byte)


def _remarks(inspection: Inspection) -> Iterator[str]:
    for readiness in inspection.types:
        yield f"{readiness.precision}: {readiness.verdict}: {readiness.message}"
    yield from _convolution_lines(inspection.convolutions)
    if inspection.costs is not None:
        yield from _cost_lines(inspection.costs)
    for hint in inspection.alignment[:_SHOWN_ALIGNMENT]:
        yield (
            f"channels: {hint.name} has {hint.count} {hint.channels} channel(s), padded to a "
            f"multiple of {hint.multiple} for {_UNITS[hint.unit]}: {hint.waste_ratio:.0%} empty"
        )
    more = len(inspection.alignment) - _SHOWN_ALIGNMENT
    if more > 0:
        yield f"channels: {more} more are uneven; --json lists them"
    for check in inspection.checks:
        yield from _check_lines(check)
    for note in inspection.notes:
        yield f"! {note}"


def _convolution_lines(share: ConvolutionShare) -> Iterator[str]:
    if not share.total:
        return
    kinds = {
        "are 1 × 1": share.pointwise,
        "depthwise": share.depthwise,
        "grouped": share.grouped,
        "dilated": share.dilated,
    }
    parts = []
    for kind, count in kinds.items():
        if count:
            parts.append(f"{count} ({100 * count / share.total:.0f} %) {kind}")
    line = f"convolutions: {share.total}"
    if parts:
        line += f", of which {', '.join(parts)}"
    yield line


def _cost_lines(costs: Costs) -> Iterator[str]:
    total = costs.total
    if total.flops is None:
        yield "costs: unknown, because shapes are open; --shape fixes them"
        return
    least = "at least " if total.uncounted else ""
    parts = [f"cost per inference: {least}{amount(total.flops, 'FLOP')} (a multiply-add is two)"]
    if total.moved_bytes is not None:
        parts.append(f"{amount(total.moved_bytes, 'B')} in {costs.precision} without fusion")
    if total.edge_bytes is not None:
        parts.append(f"{amount(total.edge_bytes, 'B')} at least")
    if total.flops_per_byte is not None and not total.uncounted:
        parts.append(f"{intensity(total.flops_per_byte)} FLOP/B")
    yield ", ".join(parts)
    if total.uncounted:
        yield f"! costs: {total.uncounted} node(s) with open shapes or rare operators are missing"
    shares = []
    if costs.pointwise_ratio:
        shares.append(f"{costs.pointwise_ratio:.1%} in 1 × 1 convolutions")
    if costs.depthwise_ratio:
        shares.append(f"{costs.depthwise_ratio:.1%} in depthwise convolutions")
    if shares:
        yield f"share of the work: {', '.join(shares)}"


def _check_lines(check: EvidenceCheck) -> Iterator[str]:
    if check.problem is not None:
        problem = f"! {check.source}: {check.problem}"
        yield f"{problem}: {check.remedy}" if check.remedy else problem
        return
    line = f"{check.source}: {check.agreed} of {check.compared} nodes are as predicted"
    if check.answered:
        line += f"; it places {check.answered} that the rules leave unknown"
    yield line
    if check.loadables is not None:
        yield f"{check.source}: {check.loadables} loadables"
    for difference in check.differences[:_SHOWN_DIFFERENCES]:
        yield _difference_line(difference)
    rest = len(check.differences) - _SHOWN_DIFFERENCES
    if rest > 0:
        yield f"  {rest} more; --json lists them"


def _difference_line(difference: Disagreement) -> str:
    line = f"  {difference.op} {difference.name}: predicted {difference.predicted}"
    if difference.rules:
        line += f" ({', '.join(dict.fromkeys(difference.rules))})"
    line += f", found {difference.found}"
    layers = [name for name in difference.layers if name != difference.name]
    if layers:
        line += f", by {layers[0]}"
    if len(layers) > 1:
        line += " …"
    return line

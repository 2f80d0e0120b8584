"""Print an inspection in a terminal: verdict, broken rules, parts, remarks."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TextIO

from ...daemon.terminal import amount
from ...parsers.onnx.costs import NodeCost
from ..results.document import Block, Heading, Table, Text, print_document
from .rules import (
    ConvolutionShare,
    Costs,
    EvidenceCheck,
    Inspection,
    JudgedNode,
    PartCost,
    RuleFinding,
)

_NAMED = 3
_SHOWN_ALIGNMENT = 5
_SHOWN_DIFFERENCES = 12
_COSTS = ("work", "moves", "FLOP/B")
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
    blocks: list[Block] = [Heading(heading(inspection))]
    blocks += [Text(source), Text(summary(inspection))]
    if any(one.findings for one in inspection.nodes):
        blocks += [Text("broken rules; those with ? could not be evaluated")]
        blocks += [_rules(inspection.nodes)]
    if shows_all:
        blocks += [Text("nodes"), _nodes(inspection)]
    if inspection.loadables:
        blocks += [Text("predicted parts, in order"), _parts(inspection)]
    print_document([*blocks, *map(Text, _remarks(inspection))], stream)


def heading(inspection: Inspection) -> str:
    """Return the model and the verdict."""
    return f"{inspection.model} · {inspection.precision} · {_VERDICTS[inspection.verdict]}"


def summary(inspection: Inspection) -> str:
    """Return counts of nodes by placement, and of loadables."""
    counts = Counter(one.placement for one in inspection.nodes)
    parts = [f"{counts['dla']} of {len(inspection.nodes)} nodes on the DLA"]
    parts += [f"{counts['gpu']} on the GPU"] if counts["gpu"] else []
    for place in ("unknown", "folded", "constant"):
        parts += [f"{counts[place]} {place}"] if counts[place] else []
    loadables = f"{len(inspection.loadables)} of {inspection.loadable_limit} loadables"
    return f"{', '.join(parts)}; {loadables}"


def intensity(flops_per_byte: float | None) -> str:
    """Format operations per byte; return nothing for None.

    >>> intensity(48.67), intensity(0.25), intensity(3866.4), intensity(None)
    ('48.7', '0.25', '3866', '')
    """
    if flops_per_byte is None:
        return ""
    return f"{flops_per_byte:.3g}" if flops_per_byte < 999.5 else f"{flops_per_byte:.0f}"


def _rules(nodes: Iterable[JudgedNode]) -> Table:
    found: dict[RuleFinding, list[JudgedNode]] = {}
    for one in nodes:
        for finding in one.findings:
            found.setdefault(finding, []).append(one)
    rows = []
    # Broken rules come before open ones.
    groups = sorted(found.items(), key=lambda group: (group[0].is_open, group[1][0].index))
    for finding, members in groups:
        counted = Counter(one.op for one in members).most_common()
        names = ", ".join(one.name for one in members)
        if len(members) > _NAMED:
            names = f"{members[0].name} … {members[-1].name}"
        mark = " ?" if finding.is_open else ""
        operators = ", ".join(f"{count} {op}" for op, count in counted)
        rule = f"{finding.rule}{mark}: {finding.requirement}\n{finding.found}"
        rows.append((f"{operators}\n{names}", rule, finding.hint or ""))
    return Table(("nodes", "rule, and what the model has instead", "remedy"), rows, left=3)


def _nodes(inspection: Inspection) -> Table:
    rows = []
    priced = {cost.index: cost for cost in inspection.costs.nodes} if inspection.costs else {}
    for one in inspection.nodes:
        part = "" if one.loadable is None else f"loadable {one.loadable}"
        if one.island is not None:
            part = f"island {one.island}"
        place = one.placement if one.reason is None else f"{one.placement}: {one.reason}"
        cells = (str(one.index), one.name, one.op, one.layer or "", place, part)
        rows.append((*cells, *_price(priced.get(one.index))))
    return Table(("", "node", "operator", "layer", "runs on", "part", *_COSTS), rows, left=6)


def _parts(inspection: Inspection) -> Table:
    costs, rows = inspection.costs, []
    groups = [
        *zip_longest(inspection.loadables, costs.loadables if costs else ()),
        *zip_longest(inspection.islands, costs.islands if costs else ()),
    ]
    for part, cost in sorted(groups, key=lambda group: group[0].nodes[0]):
        name = f"{'loadable' if part in inspection.loadables else 'GPU island'} {part.number}"
        share = "" if cost is None or cost.flops_ratio is None else f"{cost.flops_ratio:.1%}"
        rows.append((name, part.first, part.last, str(len(part.nodes)), *_price(cost), share))
    return Table(("part", "first", "last", "nodes", *_COSTS, "share"), rows, left=3)


def _price(cost: NodeCost | PartCost | None) -> tuple[str, str, str]:
    """Return work, bytes and intensity; a sum that is a lower bound is marked as one."""
    if cost is None:
        return "", "", ""
    least = "≥ " if isinstance(cost, PartCost) and cost.uncounted else ""
    work, moved = amount(cost.flops, "FLOP"), amount(cost.moved_bytes, "B")
    ratio = "" if least else intensity(cost.flops_per_byte)
    return least + work if work else "", least + moved if moved else "", ratio


def _remarks(inspection: Inspection) -> Iterator[str]:
    for one in inspection.types:
        yield f"{one.precision}: {one.verdict}: {one.message}"
    yield from _convolution_lines(inspection.convolutions)
    if inspection.costs is not None:
        yield from _cost_lines(inspection.costs)
    for hint in inspection.alignment[:_SHOWN_ALIGNMENT]:
        unit = "the DLA's format" if hint.unit == "dla" else "tensor cores"
        yield (
            f"channels: {hint.name} has {hint.count} {hint.channels} channel(s), padded to a "
            f"multiple of {hint.multiple} for {unit}: {hint.waste_ratio:.0%} empty"
        )
    more = len(inspection.alignment) - _SHOWN_ALIGNMENT
    if more > 0:
        yield f"channels: {more} more are uneven; --json lists them"
    for check in inspection.checks:
        yield from _check_lines(check)
    for note in inspection.notes:
        yield f"! {note}"


def _convolution_lines(share: ConvolutionShare) -> Iterator[str]:
    kinds = {
        "are 1 × 1": share.pointwise,
        "depthwise": share.depthwise,
        "grouped": share.grouped,
        "dilated": share.dilated,
    }
    parts = ", ".join(
        f"{count} ({100 * count / share.total:.0f} %) {kind}"
        for kind, count in kinds.items()
        if count
    )
    if share.total:
        yield f"convolutions: {share.total}" + (f", of which {parts}" if parts else "")


def _cost_lines(costs: Costs) -> Iterator[str]:
    total = costs.total
    if total.flops is None:
        yield "costs: unknown, because shapes are open; --shape fixes them"
        return
    least = "at least " if total.uncounted else ""
    parts = [
        f"cost per inference: {least}{amount(total.flops, 'FLOP')} (a multiply-add is two)",
        f"{amount(total.moved_bytes, 'B')} in {costs.precision} without fusion",
        f"{amount(total.edge_bytes, 'B')} at least",
        f"{intensity(total.flops_per_byte)} FLOP/B" if not total.uncounted else "",
    ]
    yield ", ".join(part for part in parts if part and not part.startswith(" "))
    if total.uncounted:
        yield f"! costs: {total.uncounted} node(s) with open shapes or rare operators are missing"
    shares = (("1 × 1", costs.pointwise_ratio), ("depthwise", costs.depthwise_ratio))
    kinds = [f"{ratio:.1%} in {kind} convolutions" for kind, ratio in shares if ratio]
    if kinds:
        yield f"share of the work: {', '.join(kinds)}"


def _check_lines(check: EvidenceCheck) -> Iterator[str]:
    if check.problem is not None:
        remedy = f": {check.remedy}" if check.remedy else ""
        yield f"! {check.source}: {check.problem}{remedy}"
        return
    more = f"; it places {check.answered} that the rules leave unknown" if check.answered else ""
    yield f"{check.source}: {check.agreed} of {check.compared} nodes are as predicted{more}"
    if check.loadables is not None:
        yield f"{check.source}: {check.loadables} loadables"
    for one in check.differences[:_SHOWN_DIFFERENCES]:
        rules = f" ({', '.join(dict.fromkeys(one.rules))})" if one.rules else ""
        names = [name for name in one.layers if name != one.name]
        layers = f", by {names[0]}{' …' if len(names) > 1 else ''}" if names else ""
        yield f"  {one.op} {one.name}: predicted {one.predicted}{rules}, found {one.found}{layers}"
    rest = len(check.differences) - _SHOWN_DIFFERENCES
    if rest > 0:
        yield f"  {rest} more; --json lists them"

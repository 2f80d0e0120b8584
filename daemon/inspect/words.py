"""What is said of an inspection, in words."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...parsers.readiness.cost_records import Costs
from ...parsers.readiness.records import ConvolutionShare, Finding, Inspection, Judged
from .amounts import amount, intensity

_NAMED = 3
_VERDICTS = {
    "dla": "wholly on the DLA",
    "gpu": "nothing on the DLA",
    "mixed": "on the DLA and the GPU",
    "unknown": "no rule is broken, and not all can be told",
}


@dataclass(frozen=True)
class Group:
    """Nodes that break one rule in one way.

    Attributes:
        finding: What each of them has.
        nodes: In the order of the model.
    """

    finding: Finding
    nodes: tuple[Judged, ...]

    @property
    def operators(self) -> str:
        """How many nodes of which operator, most of them first."""
        counted = Counter(one.op for one in self.nodes).most_common()
        return ", ".join(f"{count} {op}" for op, count in counted)

    @property
    def names(self) -> str:
        """The nodes, or the first and the last of many."""
        if len(self.nodes) <= _NAMED:
            return ", ".join(one.name for one in self.nodes)
        return f"{self.nodes[0].name} … {self.nodes[-1].name}"


def grouped(nodes: Iterable[Judged]) -> list[Group]:
    """Put nodes together that have the same finding; what is broken comes before what is open."""
    found: dict[Finding, list[Judged]] = {}
    for one in nodes:
        for finding in one.findings:
            found.setdefault(finding, []).append(one)
    groups = [Group(finding, tuple(members)) for finding, members in found.items()]
    return sorted(groups, key=lambda group: (group.finding.is_open, group.nodes[0].index))


def heading(inspection: Inspection) -> str:
    """Name the model and the verdict."""
    return f"{inspection.model} · {inspection.precision} · {_VERDICTS[inspection.verdict]}"


def summary(inspection: Inspection) -> str:
    """Count nodes by where they run, and the loadables."""
    places = [one.placement for one in inspection.nodes]
    parts = [
        f"{places.count('dla')} of {len(places)} nodes on the DLA",
        f"{places.count('gpu')} on the GPU",
        f"{places.count('unknown')} unknown",
        f"{places.count('folded')} folded",
        f"{places.count('constant')} constant",
    ]
    told = [one for one in parts if not one.startswith("0 ") or one is parts[0]]
    limit = inspection.loadable_limit
    return f"{', '.join(told)}; {len(inspection.loadables)} of {limit} loadables"


def share_words(share: ConvolutionShare) -> str:
    """Say of what kinds the convolutions are.

    >>> share_words(ConvolutionShare(total=4, pointwise=2, depthwise=1))
    'convolutions: 4, of which 2 (50 %) are 1 × 1, 1 (25 %) depthwise'
    """
    kinds = {
        "are 1 × 1": share.pointwise,
        "depthwise": share.depthwise,
        "grouped": share.grouped,
        "dilated": share.dilated,
    }
    told = [
        f"{count} ({100 * count / share.total:.0f} %) {kind}"
        for kind, count in kinds.items()
        if count
    ]
    return f"convolutions: {share.total}" + (f", of which {', '.join(told)}" if told else "")


def cost_words(costs: Costs) -> Iterator[str]:
    """Say what an inference costs, and which convolutions its work is in."""
    total = costs.total
    if total.flops is None:
        yield "costs: not known, for shapes are open; --shape fixes them"
        return
    least = "at least " if total.uncounted else ""
    parts = [
        f"costs of an inference: {least}{amount(total.flops, 'FLOP')} (a multiply-add is two)",
        f"{amount(total.moved_bytes, 'B')} in {costs.precision} if nothing were fused",
        f"{amount(total.edge_bytes, 'B')} at least",
        f"{intensity(total.flops_per_byte)} FLOP/B" if not total.uncounted else "",
    ]
    yield ", ".join(part for part in parts if part and not part.startswith(" "))
    if total.uncounted:
        why = "an open shape or a rare operator"
        yield f"! costs: {total.uncounted} node(s) are not counted: {why}"
    shares = (("1 × 1", costs.pointwise_ratio), ("depthwise", costs.depthwise_ratio))
    told = [f"{ratio:.1%} in {kind} convolutions" for kind, ratio in shares if ratio]
    if told:
        yield f"of the work: {', '.join(told)}"

"""Print an inspection in a terminal: verdict, broken rules, parts, remarks."""

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, TextIO

from ..terminal.numbers import amount
from .records import (
    AlignmentHint,
    ConvolutionShare,
    Costs,
    Disagreement,
    EvidenceCheck,
    Inspection,
    JudgedNode,
    NodeCost,
    Part,
    PartCost,
    RuleFinding,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_NAMED = 3
_SHOWN_ALIGNMENT = 5
_SHOWN_DIFFERENCES = 12
# Width of output that is not a terminal.
_WIDTH_OF_A_FILE = 160
_COSTS = ("work", "moves", "FLOP/B")
_RULE_COLUMNS = ("nodes", "rule, and what the model has instead", "remedy")
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
    from rich.console import Console

    console = Console(file=stream, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_OF_A_FILE
    _print(console, heading(inspection), style="bold")
    _print(console, f"rules of TensorRT {inspection.tensorrt}: {inspection.tensorrt_reason}")
    _print(console, summary(inspection))
    if any(one.findings for one in inspection.nodes):
        console.print(_rules(inspection.nodes))
    if shows_all:
        console.print(_nodes(inspection.nodes, inspection.costs))
    if inspection.loadables:
        console.print(_parts(inspection))
    for line in _remarks(inspection):
        _print(console, line)


def heading(inspection: Inspection) -> str:
    """Return the model and the verdict."""
    return f"{inspection.model} · {inspection.precision} · {_VERDICTS[inspection.verdict]}"


def summary(inspection: Inspection) -> str:
    """Return counts of nodes by placement, and of loadables."""
    places = [one.placement for one in inspection.nodes]
    counts = {
        "on the GPU": places.count("gpu"),
        "unknown": places.count("unknown"),
        "folded": places.count("folded"),
        "constant": places.count("constant"),
    }
    parts = [f"{places.count('dla')} of {len(places)} nodes on the DLA"]
    parts += [f"{count} {words}" for words, count in counts.items() if count]
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


def _rules(nodes: Iterable[JudgedNode]) -> "Table":
    found: dict[RuleFinding, list[JudgedNode]] = {}
    for one in nodes:
        for finding in one.findings:
            found.setdefault(finding, []).append(one)
    table = _table("broken rules; those with ? could not be evaluated", _RULE_COLUMNS)
    # Broken rules come before open ones.
    groups = sorted(found.items(), key=lambda group: (group[0].is_open, group[1][0].index))
    for finding, members in groups:
        counted = Counter(one.op for one in members).most_common()
        names = ", ".join(one.name for one in members)
        if len(members) > _NAMED:
            names = f"{members[0].name} … {members[-1].name}"
        mark = " ?" if finding.is_open else ""
        _add(
            table,
            f"{', '.join(f'{count} {op}' for op, count in counted)}\n{names}",
            f"{finding.rule}{mark}: {finding.requirement}\n{finding.found}",
            finding.hint or "",
        )
    return table


def _nodes(nodes: Iterable[JudgedNode], costs: Costs | None) -> "Table":
    titles = ("", "node", "operator", "layer", "runs on", "part", *_COSTS)
    table = _table("nodes", titles, right=_COSTS)
    priced = {cost.index: cost for cost in costs.nodes} if costs else {}
    for one in nodes:
        part = "" if one.loadable is None else f"loadable {one.loadable}"
        if one.island is not None:
            part = f"island {one.island}"
        place = one.placement if one.reason is None else f"{one.placement}: {one.reason}"
        cells = (str(one.index), one.name, one.op, one.layer or "", place, part)
        _add(table, *cells, *_price(priced.get(one.index)))
    return table


def _parts(inspection: Inspection) -> "Table":
    titles = ("part", "first", "last", "nodes", *_COSTS, "share")
    table = _table("predicted parts, in order", titles, right=("nodes", *_COSTS, "share"))
    costs = inspection.costs
    rows: list[tuple[str, Part, PartCost | None]] = []
    for kind, parts, prices in (
        ("loadable", inspection.loadables, costs.loadables if costs else ()),
        ("GPU island", inspection.islands, costs.islands if costs else ()),
    ):
        pairs = zip_longest(parts, prices)
        rows += [(f"{kind} {part.number}", part, cost) for part, cost in pairs]
    for name, part, cost in sorted(rows, key=lambda row: row[1].nodes[0]):
        style = "dim" if name.startswith("GPU") else None
        share = "" if cost is None or cost.flops_ratio is None else f"{cost.flops_ratio:.1%}"
        cells = (name, part.first, part.last, str(len(part.nodes)))
        _add(table, *cells, *_price(cost), share, style=style)
    return table


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
    if inspection.convolutions.total:
        yield share_words(inspection.convolutions)
    if inspection.costs is not None:
        yield from _cost_lines(inspection.costs)
    for hint in inspection.alignment[:_SHOWN_ALIGNMENT]:
        yield _alignment(hint)
    more = len(inspection.alignment) - _SHOWN_ALIGNMENT
    if more > 0:
        yield f"channels: {more} more are uneven; --json lists them"
    for check in inspection.checks:
        yield from _check_lines(check)
    for note in inspection.notes:
        yield f"! {note}"


def share_words(share: ConvolutionShare) -> str:
    """Return the kinds of convolutions, in words.

    >>> share_words(ConvolutionShare(total=4, pointwise=2, depthwise=1))
    'convolutions: 4, of which 2 (50 %) are 1 × 1, 1 (25 %) depthwise'
    """
    kinds = {
        "are 1 × 1": share.pointwise,
        "depthwise": share.depthwise,
        "grouped": share.grouped,
        "dilated": share.dilated,
    }
    parts = [
        f"{count} ({100 * count / share.total:.0f} %) {kind}"
        for kind, count in kinds.items()
        if count
    ]
    return f"convolutions: {share.total}" + (f", of which {', '.join(parts)}" if parts else "")


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


def _alignment(hint: AlignmentHint) -> str:
    unit = "the DLA's format" if hint.unit == "dla" else "tensor cores"
    return (
        f"channels: {hint.name} has {hint.count} {hint.channels} channel(s), padded to a multiple "
        f"of {hint.multiple} for {unit}: {hint.waste_ratio:.0%} empty"
    )


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
        yield _difference(one)
    rest = len(check.differences) - _SHOWN_DIFFERENCES
    if rest > 0:
        yield f"  {rest} more; --json lists them"


def _difference(one: Disagreement) -> str:
    rules = f" ({', '.join(dict.fromkeys(one.rules))})" if one.rules else ""
    names = [name for name in one.layers if name != one.name]
    layers = f", by {names[0]}{' …' if len(names) > 1 else ''}" if names else ""
    return f"  {one.op} {one.name}: predicted {one.predicted}{rules}, found {one.found}{layers}"


def _table(title: str, columns: Iterable[str], right: Container[str] = ()) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="dim", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def _add(table: "Table", *cells: str, style: str | None = None) -> None:
    """Add a row of plain text: a model's names may look like rich's markup."""
    from rich.text import Text

    table.add_row(*(Text(_printable(cell)) for cell in cells), style=style)


def _print(console: "Console", text: str, style: str | None = None) -> None:
    text = _printable(text)
    console.print(text, markup=False, style=style, soft_wrap=not console.is_terminal)


def _printable(text: str) -> str:
    r"""Escape control characters: a model's names may contain any.

    >>> _printable("Conv\x1b[31m")
    'Conv\\x1b[31m'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else ascii(one)[1:-1] for one in text)

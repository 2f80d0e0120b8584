"""The comparison of two results: figures, differences, causes, and what was not compared."""

from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from typing import Literal, NamedTuple, TextIO

from ... import __version__
from ...daemon.measure.figures import difference
from ...daemon.measure.report import Accelerator, Figure
from ...daemon.measure.run_text import (
    ABSENT,
    joules,
    percent,
    points,
    rate,
    seconds,
    shown,
    watts,
    with_half,
)
from ...daemon.measure.winner import judge
from ...parsers.records import Ratio, Record
from ..results.bench_page import SIMULATED_TITLE, Beside
from ..results.document import Block, Heading, Items, Table, Text, print_document
from ..results.published import board_words
from ..results.records import BenchResult
from .causes import Cause, CauseName, Cost, causes_of
from .sides import MeasuredContext, Side, pairs_of, published_side, refusal, sides_of

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[2] = 2
# Smaller differences are not explained: intervals do not contain what changes between sessions.
LEAST_DIFFERENCE = 0.02
# A difference without an interval is explained from here on: steady rounds lie within it.
LEAST_WITHOUT_INTERVAL = 0.05
# A larger difference from a published figure has its first cause in the table of bench.
LARGE_DIFFERENCE = 0.2

FigureName = Literal[
    "latency",
    "latency_p90",
    "latency_p99",
    "throughput",
    "net_energy",
    "gross_energy",
    "power",
    "gpu_load",
]
Verdict = Literal["better", "worse", "no_difference", "unclear"]


class _Kind(NamedTuple):
    """A figure; it is explained as a ``cost``, and can fail a gate, unless that is ``None``."""

    name: FigureName
    title: str
    show: Callable[[float], str]
    show_difference: Callable[[float], str]
    cost: Cost | None = None
    more_is_better: bool = False


FIGURES = (
    _Kind("latency", "latency p50", seconds, seconds, "inference"),
    _Kind("latency_p90", "latency p90", seconds, seconds),
    _Kind("latency_p99", "latency p99", seconds, seconds),
    _Kind("throughput", "throughput", rate, rate, "input", more_is_better=True),
    _Kind("net_energy", "energy per input, net", joules, joules, "energy"),
    _Kind("gross_energy", "energy per input, gross", joules, joules, "energy"),
    _Kind("power", "module power", watts, watts),
    _Kind("gpu_load", "GPU load", percent, points),
)
_PERCENTILES = frozenset({"latency_p90", "latency_p99"})


class Compared(Record):
    """A figure of both measurements.

    Attributes:
        difference: B less A, with its interval if both have one; ``ratio`` is B over A.
        verdict: Whether B is better; ``unclear`` without an interval.
        causes: In the order of their weight; empty if the difference is too small to explain.
        opposed: Causes with a known direction that work against the difference.
        is_unexplained: It is large enough, and nothing known differs that explains it.
    """

    figure: FigureName
    a: Figure
    b: Figure
    difference: Figure
    ratio: Figure | None = None
    verdict: Verdict
    causes: tuple[Cause, ...] = ()
    opposed: tuple[CauseName, ...] = ()
    is_unexplained: bool = False


class Pair(Record):
    """A model on an accelerator in both results; ``device_b`` differs with ``--across`` only."""

    model: str
    device: Accelerator
    device_b: Accelerator
    source_a: str
    source_b: str
    variant_a: str = ""
    variant_b: str = ""
    is_simulated: bool = False
    figures: tuple[Compared, ...]
    context_a: MeasuredContext
    context_b: MeasuredContext


class Refused(Record):
    """A measurement that was not compared, and the reason."""

    model: str
    device: Accelerator
    reason: str


class Comparison(Record):
    """The document of ``compare --json``.

    Attributes:
        limit: The share that ``--fail-if-worse`` allows. The figures in ``failures`` are surely
            worse by more.
        too_wide: Costs of which no figure can show whether it is worse by the limit.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    tegrascope: str = __version__
    pairs: tuple[Pair, ...] = ()
    refused: tuple[Refused, ...] = ()
    limit: Ratio | None = None
    failures: tuple[str, ...] = ()
    too_wide: tuple[str, ...] = ()


def compare(
    here: Sequence[Side], there: Sequence[Side], *, across: bool = False, limit: float | None = None
) -> Comparison:
    """Return the comparison of two results, each of at least one measurement.

    Args:
        here: Those of A; ``there`` has those of B.
        across: Whether different accelerators and boards may be compared.
        limit: A figure fails if its whole interval is worse by more than this share.
    """
    pairs: list[Pair] = []
    refused: list[Refused] = []
    for a, b in pairs_of(here, there):
        known = a or b
        assert known is not None
        reason = f"only in {known.label}"
        if a is not None and b is not None:
            reason = refusal(a, b, across=across) or ""
            if not reason:
                pairs.append(_pair(a, b))
                continue
        refused.append(Refused(model=known.name, device=known.device, reason=reason))
    found = Comparison(pairs=tuple(pairs), refused=tuple(refused))
    return found if limit is None else _gated(found, limit)


def _gated(found: Comparison, limit: float) -> Comparison:
    """Return a comparison with what fails a gate, and what is too uncertain for it."""
    refused = list(found.refused)
    failures: list[str] = []
    too_wide: list[str] = []
    for pair in found.pairs:
        gated = [one for one in pair.figures if _is_gated(one)]
        too_wide += _too_wide(pair, gated, limit)
        for one in gated:
            least, _ = _worse_by(one)
            if least > limit:
                title = f"{pair.model} on {pair.device}: {_KINDS[one.figure].title}"
                failures.append(f"{title} is worse by {percent(least)} or more")
        if not gated:
            reason = "no figure has an interval in both, so nothing is surely worse"
            refused.append(Refused(model=pair.model, device=pair.device, reason=reason))
    changes = {
        "refused": tuple(refused),
        "limit": limit,
        "failures": tuple(failures),
        "too_wide": tuple(too_wide),
    }
    return found.model_copy(update=changes)


def _too_wide(pair: Pair, gated: Sequence[Compared], limit: float) -> Iterator[str]:
    """Yield a sentence for each cost of which no figure can show a difference of the limit.

    A gate fails only if a whole interval is worse by more. With an interval of ± 75 % it passes
    whatever happens, and the gate is useless.
    """
    by_cost: dict[Cost | None, list[Compared]] = {}
    for one in gated:
        by_cost.setdefault(_KINDS[one.figure].cost, []).append(one)
    for figures in by_cost.values():
        if not all(_is_undecided(one, limit) for one in figures):
            continue
        names = " and ".join(_KINDS[one.figure].title for one in figures)
        most = min(_worse_by(one)[1] for one in figures)
        yield (
            f"{pair.model} on {pair.device}: {names} may be worse by up to {percent(most)}:"
            f" intervals too wide to see {percent(limit)}; bench with a longer --duration or"
            " more --rounds, or allow more"
        )


def _is_undecided(one: Compared, limit: float) -> bool:
    """Return whether a figure may be worse by more than a limit, and is too uncertain to tell.

    Close to the limit every figure is undecided. It is too uncertain if its interval is wider than
    the limit on each side.
    """
    least, most = _worse_by(one)
    return least <= limit < most and (most - least) / 2 > limit


_KINDS = {kind.name: kind for kind in FIGURES}


def _is_gated(one: Compared) -> bool:
    has_interval = one.ratio is not None and one.ratio.low is not None
    return _KINDS[one.figure].cost is not None and has_interval


def _worse_by(one: Compared) -> tuple[float, float]:
    """Return by how much B is worse, at least and at most, by the interval of the ratio."""
    assert one.ratio is not None and one.ratio.low is not None and one.ratio.high is not None
    if _KINDS[one.figure].more_is_better:
        return 1 - one.ratio.high, 1 - one.ratio.low
    return one.ratio.low - 1, one.ratio.high - 1


def _pair(a: Side, b: Side) -> Pair:
    kinds = [kind for kind in FIGURES if kind.name in a.figures and kind.name in b.figures]
    if kinds and kinds[0].name in _PERCENTILES:
        # A published percentile stands for the median.
        kinds[0] = kinds[0]._replace(cost="inference")
    return Pair(
        model=a.name,
        device=a.device,
        device_b=b.device,
        source_a=a.source,
        source_b=b.source,
        variant_a=a.variant,
        variant_b=b.variant,
        is_simulated=a.context.environment.simulated,
        figures=tuple(_compared(kind, a, b) for kind in kinds),
        context_a=a.context,
        context_b=b.context,
    )


def _compared(kind: _Kind, a: Side, b: Side) -> Compared:
    one, other = a.figures[kind.name], b.figures[kind.name]
    gap, ratio = difference(other, one), _ratio(other, one)
    assert gap is not None
    is_better = (gap.value > 0) == kind.more_is_better
    least = LEAST_DIFFERENCE
    lower = judge(gap)
    verdict: Verdict = "no_difference"
    if lower == "not_known":
        # Without an interval only equal figures do not differ.
        least = LEAST_WITHOUT_INTERVAL
        if gap.value:
            verdict = "unclear"
    elif lower != "no_difference":
        verdict = "better" if is_better else "worse"
    found = Compared(figure=kind.name, a=one, b=other, difference=gap, ratio=ratio, verdict=verdict)
    if kind.cost is None or ratio is None or verdict == "no_difference":
        return found
    size = max(ratio.value, 1 / ratio.value)
    if size < 1 + least:
        return found
    good, bad = a, b
    if is_better:
        good, bad = b, a
    causes = causes_of(good, bad, kind.cost)
    against = causes_of(bad, good, kind.cost)
    opposed = tuple(one.name for one in against if one.certainty != "possible")
    changes = {"causes": causes, "opposed": opposed, "is_unexplained": not causes}
    return found.model_copy(update=changes)


def _ratio(one: Figure, other: Figure) -> Figure | None:
    """Return one figure over another; ``None`` if they are not both above 0.

    The interval has every ratio r for which that of ``one - r * other`` contains 0.
    """
    if one.value <= 0 or other.value <= 0:
        return None
    ratio = one.value / other.value
    if one.half is None or other.half is None or other.half >= other.value:
        return Figure(value=ratio)
    product, square = one.value * other.value, other.value**2 - other.half**2
    root = sqrt(product**2 - square * (one.value**2 - one.half**2))
    return Figure(value=ratio, low=(product - root) / square, high=(product + root) / square)


def print_comparison(found: Comparison, stream: TextIO | None = None) -> None:
    """Print a table and the causes for each pair, and the measurements that were refused."""
    blocks: list[Block] = []
    for pair in found.pairs:
        blocks += [Text(f"A: {pair.source_a}"), Text(f"B: {pair.source_b}"), *_blocks(pair)]
    refused = [(f"{one.model} on {one.device}", one.reason) for one in found.refused]
    blocks.append(Items(refused, mark="not compared: "))
    blocks.append(_items(found.failures, "✗ "))
    blocks.append(_items(found.too_wide, "? "))
    print_document(blocks, stream)


def _items(sentences: Sequence[str], mark: str) -> Items:
    return Items([("", words) for words in sentences], mark=mark)


def _blocks(pair: Pair) -> Iterator[Block]:
    """Yield the table of a pair, and the causes of each difference."""
    on: str = pair.device
    if pair.device != pair.device_b:
        on = f"{pair.device} and {pair.device_b}"
    title = [f"{pair.model} on {on}"]
    for side, variant in (("A", pair.variant_a), ("B", pair.variant_b)):
        if variant:
            title.append(f"{side} {variant}")
    if pair.is_simulated:
        title.append(SIMULATED_TITLE)
    yield Heading(" · ".join(title))
    yield Table(["", "A", "B", "B − A", "B / A", "B is"], [_row(one) for one in pair.figures])
    title_by_causes: dict[tuple[str, ...], str] = {}
    for one in pair.figures:
        kind = _KINDS[one.figure]
        causes = tuple(
            f"{number}. {_sentence(cause)}" for number, cause in enumerate(one.causes, 1)
        )
        if one.is_unexplained:
            against = ""
            if one.opposed:
                against = f"; {', '.join(one.opposed)} would do the opposite"
            yield Text(f"{kind.title}: no known difference explains it{against}")
        elif causes in title_by_causes:
            yield Text(f"{kind.title}: as {title_by_causes[causes]}")
        elif causes:
            title_by_causes[causes] = kind.title
            yield Text(f"{kind.title}: {_change(one.b.value / one.a.value)} in B, because of")
            yield _items(causes, "  ")


def _row(one: Compared) -> tuple[str, ...]:
    kind, gap = _KINDS[one.figure], one.difference
    words = kind.show_difference(gap.value)
    if gap.low is not None and gap.high is not None:
        words += f" ({kind.show_difference(gap.low)} to {kind.show_difference(gap.high)})"
    ratio = shown(one.ratio, lambda ratio: f"{ratio.value:.3f}")
    verdict = ABSENT if one.verdict == "unclear" else one.verdict.replace("_", " ")
    if kind.cost is None and verdict in ("better", "worse"):
        verdict = "more" if gap.value > 0 else "less"
    cells = (with_half(one.a, kind.show), with_half(one.b, kind.show))
    return (kind.title, *cells, words, ratio, verdict)


def _change(ratio: float) -> str:
    return f"{percent(abs(ratio - 1))} {'more' if ratio >= 1 else 'less'}"


def _sentence(cause: Cause) -> str:
    doubt = " (possibly)" if cause.certainty == "possible" else ""
    return f"{cause.name}{doubt}: {cause.sentence}"


def beside_published(result: BenchResult) -> Iterator[Beside]:
    """Yield the nearest published result of each accelerator that was measured on a Jetson."""
    if result.is_simulated or not board_words(result.environment.board):
        return
    for own in sides_of("yours", "", result):
        other = published_side("published", own)
        if own.problem is not None or other is None:
            continue
        # Without a scheme: a page has no address that a browser could load.
        source = other.source.replace("https://", "")
        found = compare([other], [own], across=True)
        if found.refused:
            words = f"not compared: {found.refused[0].reason}; source: {source}"
            yield Beside(own.model, own.device, words)
            continue
        first = found.pairs[0].figures[0]
        kind = _KINDS[first.figure]
        words = f"{_against_published(first, other)}; source: {source}"
        yield Beside(own.model, own.device, words, kind.title, kind.show(first.a.value))


def _against_published(first: Compared, published: Side) -> str:
    """Return an own figure against a published one, and the first cause of a large difference."""
    show, context = _KINDS[first.figure].show, published.context
    conditions = (
        context.environment.board,
        context.environment.power_mode,
        context.built.requested_precision,
        f"batch {context.batch}",
    )
    about = ", ".join(condition for condition in conditions if condition)
    ratio = first.b.value / first.a.value
    words = f"published {show(first.a.value)} ({about}); yours {show(first.b.value)}:"
    words += f" {_change(ratio)}"
    if abs(ratio - 1) <= LARGE_DIFFERENCE:
        return words
    cause = _sentence(first.causes[0]) if first.causes else "no known difference"
    return f"{words}; first suspected cause: {cause}"

"""A sweep as a document: the best below a limit, the front as a table and a drawing, the rest."""

from collections.abc import Callable, Iterator, Sequence

from ...daemon.measure.report import Figure
from ...daemon.measure.run_text import (
    joules,
    percent,
    points,
    rate,
    seconds,
    shown,
    with_half,
)
from ...daemon.terminal import duration
from .document import Block, Front, Heading, Items, Mark, Table, Text
from .records import BenchSettings, GoalName, Sweep, SweepPoint, variant_of

_TITLES: dict[GoalName, str] = {
    "latency": "latency",
    "throughput": "throughput",
    "energy": "energy per input",
    "gpu_freed": "GPU freed",
}
_COLUMNS = ("p50", "p99", "inputs/s", "net per input", "GPU load", "GPU freed")
_ORDER = ("front", "above_limit", "dominated", "not_measured")


def joules_per_input(point: SweepPoint) -> Figure | None:
    """Return the net energy of an input of a batch."""
    net = point.result.net_joules_per_inference
    return None if net is None else net.times(1 / point.variant.batch)


def sweep_blocks(sweep: Sweep, base: BenchSettings, *, is_page: bool = False) -> list[Block]:
    """Return a sweep's answer; a page has the drawing and all points too."""
    titles = [_title(point, base) for point in sweep.points]
    blocks: list[Block] = [Text(_summary(sweep))]
    if base.latency_below_seconds is not None:
        blocks.append(Items(list(_best(sweep, base.latency_below_seconds, titles))))
    front = _front_of(sweep, titles) if is_page else None
    if front is not None:
        blocks += [Heading("The front", 3), Text(_ABOUT, "under"), front]
    blocks += _points_table(sweep, titles, _ORDER if is_page else ("front",))
    if not is_page:
        blocks += _dropped(sweep)
    blocks.append(Items(_reasons(sweep, titles), mark="! "))
    return blocks


def _points_table(sweep: Sweep, titles: Sequence[str], outcomes: Sequence[str]) -> Iterator[Table]:
    """Yield the table of the points with some outcomes, in their order, unless it is empty."""
    rows = []
    measure = _measure(sweep)
    for outcome in outcomes:
        for title, point in zip(titles, sweep.points, strict=True):
            if point.outcome == outcome:
                scores = [_score(point)] if measure else []
                rows.append((title, *_cells(point), *scores, _outcome(point, titles)))
    if rows:
        ends = frozenset({len(sweep.front) - 1}) if sweep.front else frozenset()
        names = [measure] if measure else []
        yield Table(("", *_COLUMNS, *names, "result"), rows, ends=ends)


def _dropped(sweep: Sweep) -> Iterator[Text]:
    """Yield how many points were measured and are not on the front, unless there are none."""
    gone = sum(point.result.status == "ok" for point in sweep.points) - len(sweep.front)
    if gone:
        yield Text(f"{gone} others were dropped; report.html has their figures.")


def _summary(sweep: Sweep) -> str:
    """Return how many points make the front, and how long that took."""
    goals = ", ".join(_TITLES[goal] for goal in sweep.goals)
    words = f"{len(sweep.front)} of {len(sweep.points)} points make the front of {goals}"
    if sweep.front:
        words += ": no other point surely beats them"
    if sweep.exhaustive_seconds:
        whole = duration(sweep.exhaustive_seconds)
        words += f". It took {duration(sweep.seconds)}; all rounds of all points take {whole}"
    return f"{words}."


def _reasons(sweep: Sweep, titles: Sequence[str]) -> list[tuple[str, str]]:
    """Return the points that are not on the front, those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for title, point in zip(titles, sweep.points, strict=True):
        reason = _reason(point, titles)
        if reason is not None:
            by_reason.setdefault(reason, []).append(title)
    return [(", ".join(points), reason) for reason, points in by_reason.items()]


def _reason(point: SweepPoint, titles: Sequence[str]) -> str | None:
    """Return why a point is not on the front, or None if it is."""
    if point.result.reason:
        return point.result.reason
    outputs = point.result.outputs
    if outputs is not None and outputs.verdict == "wrong":
        words = outputs.reason or "the reason is not known"
        if outputs.relative_error is not None and outputs.limit is not None:
            words += f"; relative error {outputs.relative_error:.2g}, limit {outputs.limit}"
        return f"its outputs are wrong ({words})"
    if point.outcome == "above_limit":
        return "its 99th percentile is above the limit"
    if point.outcome == "dominated" and point.dominated_by is not None:
        return f"surely worse than {titles[point.dominated_by]}"
    return None


def _title(point: SweepPoint, base: BenchSettings) -> str:
    return f"{point.result.device} {variant_of(point.variant.settings(base))}".strip()


def _best(sweep: Sweep, limit: float, titles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the best point at each goal below the limit, with those that may be as good."""
    label = f"99th percentile below {seconds(limit)}"
    if not sweep.best:
        yield label, "no point of the front is certainly below it"
    for goal, (first, *others) in sweep.best.items():
        point = sweep.points[first]
        figure: Figure | None = point.result.throughput_per_second
        show: Callable[[float], str] = rate
        if goal == "energy":
            figure, show = joules_per_input(point), joules
        words = f"{titles[first]} with {with_half(figure, show)}"
        if others:
            also = ", ".join(titles[n] for n in others)
            words += f"; this measurement cannot tell it from {also}"
        yield f"best {_TITLES[goal]}, {label}", words


def _measure(sweep: Sweep) -> str | None:
    """Return the name of the score of a task, if any point has one."""
    for point in sweep.points:
        outputs = point.result.outputs
        if outputs is not None and outputs.task is not None:
            return outputs.task.measure
    return None


def _score(point: SweepPoint) -> str:
    """Return the score of a point out of 100, as is usual."""
    outputs = point.result.outputs
    if outputs is None or outputs.task is None:
        return ""
    return f"{100 * outputs.task.score:.1f}"


def _cells(point: SweepPoint) -> tuple[str, ...]:
    one = point.result
    load = one.utilization.get("gpu")
    return (
        with_half(one.latency_seconds, seconds),
        shown(one.latency, lambda found: seconds(found.p99_seconds)),
        with_half(one.throughput_per_second, rate),
        with_half(joules_per_input(point), joules),
        shown(load, lambda figure: percent(figure.value)),
        shown(one.gpu_freed, lambda figure: points(figure.value)),
    )


def _outcome(point: SweepPoint, titles: Sequence[str]) -> str:
    """Return what became of a point, and after how many rounds it was dropped."""
    words: str = point.outcome
    if point.outcome == "above_limit":
        words = "above the limit"
    elif point.outcome == "dominated" and point.dominated_by is not None:
        words = f"worse than {titles[point.dominated_by]}"
    elif point.outcome == "not_measured":
        words = "wrong outputs" if "wrong_outputs" in point.result.flags else point.result.status
    if point.dropped_after is not None:
        words = f"{words}, after {point.dropped_after or 'no'} rounds"
    return words


# --- the front ----------------------------------------------------------------------------------

_ABOUT = (
    "Each mark is a point; the filled ones make the front, and the lines through them are 95 %"
    " intervals. Left and low is better. Accelerators differ in colour and shape."
)


def _front_of(sweep: Sweep, titles: Sequence[str]) -> Front | None:
    """Return latency against energy per input of all points, or time per input without energy."""
    has_energy = any(joules_per_input(point) for point in sweep.points)
    marks = []
    for title, point in zip(titles, sweep.points, strict=True):
        latency, each = point.result.latency_seconds, joules_per_input(point)
        if not has_energy:
            each = _seconds_per_input(point)
        if latency is not None and each is not None:
            is_front = point.outcome == "front"
            marks.append(Mark(title, point.result.device, latency, each, is_front))
    if not marks:
        return None
    if has_energy:
        return Front("Net energy per input", "J", marks)
    return Front("Time per input", "s", marks)


def _seconds_per_input(point: SweepPoint) -> Figure | None:
    speed = point.result.throughput_per_second
    if speed is None or speed.value <= 0:
        return None
    return Figure(value=1 / speed.value)

"""The inferences of a run that missed its deadline, and what was unusual at each of the last ones.

Unusual conditions are evidence and not proof: a cause that is not read can have the same time.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from ...parsers import signals
from ...parsers.inference.events import Stall
from ...parsers.inference.marks import STALLS_AT_MOST
from ...parsers.signals import Signal
from .blocks import WindowSlice
from .dla import LAG_NS
from .report import CAUSES, Cause, DeadlineReport, Miss, MissEvidence, Span
from .trace import RunTrace
from .utilization import NORMAL_CAPS, clock_figures

# Less unusual circumstances are not evidence.
_LEAST_WEIGHT = 0.1
# An assumption: even on a memory card a page fault rarely takes longer, and reading is not slower.
_FAULT_NS, _READ_BYTES_PER_SECOND = 2_000_000, 20e6
_SLOW_RATIO, _SLOW_WEIGHT = 1.1, 0.5
_CLOCK_RATIO = 0.99
# A foreign task is unusual if it kept a core busy for longer than this, and than twice the median.
_FOREIGN_SECONDS = 0.001
# Misses that follow each other closely have one cause, and count as one.
_BURST_NS, _BURSTS_AT_MOST = 1_000_000_000, 500
# With less time in which inferences were in time, nothing is known of what is usual then.
_LEAST_USUAL = 0.01
_DLA_SECONDS = (signals.DLA0_PROCESS_SECONDS, signals.DLA1_PROCESS_SECONDS)

Times = Sequence[tuple[int, int]]
_Spell = tuple[Cause, str, int, int, str]
"""Cause, its subject, begin, end, and a detail."""


class _Cover:
    """The union of spans of time, each with a detail."""

    def __init__(self, spans: Sequence[tuple[int, int, str]]) -> None:
        self._spans = sorted(spans)
        union: list[list[int]] = []
        for begin, end, _ in self._spans:
            if union and begin <= union[-1][1]:
                union[-1][1] = max(union[-1][1], end)
            else:
                union.append([begin, end])
        self._begins = [begin for begin, _ in union]
        self._ends = [end for _, end in union]
        self._sums = [0, *accumulate(end - begin for begin, end in union)]

    def until(self, at: int) -> int:
        """Return how much of the time before a moment is covered."""
        place = bisect_right(self._begins, at)
        beyond = max(0, self._ends[place - 1] - at) if place else 0
        return self._sums[place] - beyond

    def within(self, begin: int, end: int) -> int:
        """Return how much of a span is covered."""
        return self.until(end) - self.until(begin)

    def detail(self, begin: int, end: int) -> str | None:
        """Return the details of the parts that overlap a span, each once."""
        found = (what for a, b, what in self._spans if a < end and b > begin)
        return ", ".join(dict.fromkeys(found)) or None


@dataclass(frozen=True)
class _Circumstance:
    """When something was so that may delay an inference.

    ``contrast`` is 1 if inferences missed the deadline only then, and 0 if they did not miss it
    more often than at other times.
    """

    cause: Cause
    cover: _Cover
    contrast: float


def deadline_report(
    trace: RunTrace,
    window: Span,
    inferences: tuple[Sequence[int], Sequence[int]],
    samples: WindowSlice,
    others: Mapping[str, Sequence[Span]],
    workloads: Mapping[str, str],
) -> DeadlineReport | None:
    """Return the misses of a run; ``None`` if it has no deadline, or no inference with a time.

    Args:
        inferences: Start and latency of each, shape (n,), starts increasing.
        samples: Telemetry of the window with a neighbour on each side.
        others: Working phases of other runs, by run id.
        workloads: Their workloads, by run id.
    """
    starts, latencies = inferences
    if trace.deadline_seconds is None or not latencies:
        return None
    deadline_ns = round(trace.deadline_seconds * 1e9)
    late = [i for i, latency in enumerate(latencies) if latency > deadline_ns]
    missed = [(starts[i], starts[i] + latencies[i]) for i in late]
    in_time = [latency for latency in latencies if latency <= deadline_ns]
    usual_ns = median(in_time) if in_time else deadline_ns
    slow_ns = median(latencies) if len(late) > len(in_time) else 0
    circumstances = list(_circumstances(trace.device, samples, others, workloads, window, missed))
    stalls = {one.start_ns: one for one in trace.stalls}
    last = []
    for begin, end in missed[-STALLS_AT_MOST:]:
        found = [*_of_the_process(stalls.get(begin), max(end - begin - usual_ns, 1))]
        for one in circumstances:
            share = one.cover.within(begin, end) / (end - begin)
            found.append((one.cause, share * one.contrast, one.cover.detail(begin, end)))
        if end - begin <= _SLOW_RATIO * slow_ns:
            found.append(("too_slow", _SLOW_WEIGHT, None))
        evidence = [
            MissEvidence(cause=cause, weight=weight, detail=detail)
            for cause, weight, detail in found
            if weight >= _LEAST_WEIGHT
        ]
        evidence.sort(key=lambda one: (-round(one.weight, 2), CAUSES.index(one.cause)))
        latency = (end - begin) / 1e9
        last.append(Miss(start_ns=begin, latency_seconds=latency, evidence=tuple(evidence)))
    return DeadlineReport(
        deadline_seconds=trace.deadline_seconds,
        misses=max(len(late), trace.missed_inferences or 0),
        worst_lateness_seconds=max(0, max(latencies) - deadline_ns) / 1e9,
        last=tuple(last),
    )


def _of_the_process(
    stall: Stall | None, excess_ns: float
) -> Iterator[tuple[Cause, float, str | None]]:
    """Yield what a worker noted of its own process."""
    if stall is None:
        return
    if stall.continued:
        yield "stopped", 1.0, None
    if stall.major_faults:
        took_ns = stall.major_faults * _FAULT_NS + stall.read_bytes / _READ_BYTES_PER_SECOND * 1e9
        share = min(1.0, took_ns / excess_ns)
        what = f"{stall.major_faults} major, {stall.read_bytes / 1e6:.3g} MB read"
        yield "page_faults", share * (1 - stall.usual_fault_ratio), what
    if stall.waited_ns:
        share = min(1.0, stall.waited_ns / excess_ns)
        what = f"{stall.waited_ns / 1e6:.3g} ms"
        yield "waited_for_cpu", share * (1 - stall.usual_wait_ratio), what


def _circumstances(
    device: str,
    samples: WindowSlice,
    others: Mapping[str, Sequence[Span]],
    workloads: Mapping[str, str],
    window: Span,
    missed: Times,
) -> Iterator[_Circumstance]:
    """Yield what telemetry and schedule know of a window with misses."""
    late = _Cover([(*one, "") for one in missed])  # they overlap if several are in flight at once

    def is_in_time(begin: int, end: int) -> bool:
        return not late.within(begin, end)

    found: defaultdict[tuple[Cause, str], list[tuple[int, int, str]]] = defaultdict(list)
    for cause, subject, begin_ns, end_ns, detail in (
        *_throttled(samples),
        *_lowered(samples, device, is_in_time),
        *_foreign(samples, is_in_time),
        *_other_lanes(others, workloads),
    ):
        if begin_ns < window.end_ns and end_ns > window.begin_ns:
            found[cause, subject].append((begin_ns, end_ns, detail))
    whole_ns = window.end_ns - window.begin_ns
    late_ns = late.within(window.begin_ns, window.end_ns)
    has_usual = whole_ns - late_ns > _LEAST_USUAL * whole_ns
    covers = {key: _Cover(spans) for key, spans in found.items()}
    bursts = _bursts(missed)

    def contrast(cover: _Cover, of: Times) -> float:
        held_ns = cover.within(window.begin_ns, window.end_ns)
        then = sum(cover.within(begin, end) / (end - begin) for begin, end in of)
        # One more miss at another time, so that a single miss does not prove much.
        rate, other_rate = then / max(held_ns, 1), (len(of) - then + 1) / max(whole_ns - held_ns, 1)
        return max(0.0, (rate - other_rate) / (rate + other_rate))

    # Misses that one cause explains do not count against the others.
    left = bursts
    while covers:
        key = max(covers, key=lambda one: contrast(covers[one], left))
        cover = covers.pop(key)
        found_contrast = max(contrast(cover, left), contrast(cover, bursts))
        left = [one for one in left if cover.within(*one) < (one[1] - one[0]) / 2]
        yield _Circumstance(key[0], cover, found_contrast if has_usual else 1.0)


def _bursts(missed: Times) -> Times:
    """Return the first miss of each second, or evenly spaced ones if they are many."""
    found: list[tuple[int, int]] = []
    for one in missed:
        if not found or one[0] - found[-1][0] >= _BURST_NS:
            found.append(one)
    return found[:: len(found) // _BURSTS_AT_MOST + 1]


def _throttled(samples: WindowSlice) -> Iterator[_Spell]:
    """Yield the time between samples of which one shows throttling, or new events of it."""

    def of(signal: Signal) -> Iterator[tuple[str, Sequence[float]]]:
        columns = signal.by_label(samples.columns).items()
        return ((kind, column) for kind, column in columns if kind not in NORMAL_CAPS)

    for kind, column in of(signals.THROTTLE_EVENTS):
        for begin, before, end, after in samples.steps(column):
            if after > before:
                yield "throttled", kind, begin, end, kind
    for kind, column in of(signals.THROTTLE_ACTIVE):
        for begin, before, end, after in samples.steps(column):
            if before or after:
                yield "throttled", kind, begin, end, kind


def _lowered(
    samples: WindowSlice, device: str, is_in_time: Callable[[int, int], bool]
) -> Iterator[_Spell]:
    """Yield the time between samples of which one has a lower clock than while all was in time."""
    for name, (_, column) in clock_figures(samples.columns).items():
        if name not in (device, "emc"):
            continue
        steps = list(samples.steps(column))
        usual = [hertz for begin, _, end, hertz in steps if is_in_time(begin, end)]
        limit = _CLOCK_RATIO * median(usual) if usual else 0.0
        for begin, before, end, after in steps:
            if min(before, after) < limit:
                what = f"{name} {min(before, after) / 1e6:.0f} MHz"
                yield "clock_lowered", name, begin, end, what


def _foreign(samples: WindowSlice, is_in_time: Callable[[int, int], bool]) -> Iterator[_Spell]:
    """Yield the time between samples in which another program used a DLA more than usual.

    A task is counted when it has ended and its event has arrived, so it may have run earlier.
    """
    for signal in _DLA_SECONDS:
        for name, column in signal.by_label(samples.columns).items():
            if name == signals.OWN_PROCESS:
                continue
            subject = f"{name} on dla{signal.fixed['core']}"
            steps = list(samples.steps(column))
            usual = [b - a for begin, a, end, b in steps if is_in_time(begin, end)]
            limit = max(_FOREIGN_SECONDS, 2 * median(usual) if usual else 0.0)
            for begin, before, end, after in steps:
                if after - before > limit:
                    yield "foreign_dla_task", subject, begin - LAG_NS, end, subject


def _other_lanes(
    others: Mapping[str, Sequence[Span]], workloads: Mapping[str, str]
) -> Iterator[_Spell]:
    """Yield the time in which another run or window was at work."""
    for run_id, spans in others.items():
        name = workloads.get(run_id, "")
        for one in spans:
            yield "other_lane", name, one.begin_ns, one.end_ns, f"{name} run {run_id}".lstrip()

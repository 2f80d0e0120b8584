"""The inferences of a run that missed its deadline, and the flags that held at that time."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from ...parsers import signals
from .blocks import WindowSlice
from .report import DeadlineReport, Flag, Span
from .utilization import NORMAL_CAPS


def deadline_report(
    deadline_seconds: float | None,
    starts_ns: Sequence[int],
    latencies_ns: Sequence[int],
    samples: WindowSlice,
    others: Mapping[str, Sequence[Span]],
    counted_misses: int | None = None,
) -> DeadlineReport | None:
    """Return the misses of a run; ``None`` if it has no deadline, or no inference with a time.

    Args:
        deadline_seconds: Longest latency that is in time.
        starts_ns: Start of each inference, shape (n,), increasing.
        latencies_ns: Its duration, shape (n,).
        samples: Telemetry of the window with a neighbour on each side.
        others: Working phases of other runs, by run id.
        counted_misses: Misses that the application counted, if it did not send all times.
    """
    if deadline_seconds is None or not latencies_ns:
        return None
    deadline_ns = round(deadline_seconds * 1e9)
    misses = []
    for start, latency in zip(starts_ns, latencies_ns, strict=True):
        if latency > deadline_ns:
            misses.append((start, start + latency))
    return DeadlineReport(
        deadline_seconds=deadline_seconds,
        misses=max(len(misses), counted_misses or 0),
        worst_lateness_seconds=max(0, max(latencies_ns) - deadline_ns) / 1e9,
        flags_at_misses=_flags_at(misses, samples, others),
    )


def _flags_at(
    misses: Sequence[tuple[int, int]],
    samples: WindowSlice,
    others: Mapping[str, Sequence[Span]],
) -> tuple[Flag, ...]:
    """Return the flags whose own time is known and overlaps a miss; it need not be its cause."""
    flags: list[Flag] = []
    if _overlap(misses, _throttled(samples)):
        flags.append("throttled")
    if _overlap(misses, _at_work(others)):
        flags.append("overlapped")
    return tuple(flags)


def _overlap(misses: Sequence[tuple[int, int]], spans: Iterator[tuple[int, int]]) -> bool:
    """Return whether any miss overlaps any span; the misses are in the order of their start."""
    starts = [start for start, _ in misses]
    # Inferences in flight at once may end in another order than they start.
    longest = max((end - start for start, end in misses), default=0)
    for begin, end in spans:
        first = bisect_left(starts, begin - longest)
        last = bisect_left(starts, end)
        for _, missed_ns in misses[first:last]:
            if missed_ns > begin:
                return True
    return False


def _throttled(samples: WindowSlice) -> Iterator[tuple[int, int]]:
    """Yield the time between samples of which one shows throttling, or new events of it."""
    for kind, column in signals.THROTTLE_EVENTS.by_label(samples.columns).items():
        for begin, before, end, after in samples.steps(column):
            if after > before and kind not in NORMAL_CAPS:
                yield begin, end
    for kind, column in signals.THROTTLE_ACTIVE.by_label(samples.columns).items():
        for begin, before, end, after in samples.steps(column):
            if (before or after) and kind not in NORMAL_CAPS:
                yield begin, end


def _at_work(others: Mapping[str, Sequence[Span]]) -> Iterator[tuple[int, int]]:
    """Yield the working phases of other runs."""
    for spans in others.values():
        for span in spans:
            yield span.begin_ns, span.end_ns

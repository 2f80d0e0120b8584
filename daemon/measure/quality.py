"""The flags of a run: what its figures must not be taken for. Each is a pure function.

Two have a file of their own: ``phase_lock`` (``aliased``) and ``steadiness`` (``not_steady``).
"""

import cmath
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import get_args

from ...parsers.inference.placement import Placement
from .energy import interval_ns
from .run_report import Flag, Span

MINIMUM_SECONDS, MINIMUM_SAMPLES, MINIMUM_INFERENCES = 10.0, 100, 200
GAP_INTERVALS = 2.5
DRIFT_RATIO = 0.05
WALL_STEP_NS = 50_000_000
WALL_SLEW_RATIO = 0.001
SUSPEND_NS = 50_000_000
WITHHOLDING: frozenset[Flag] = frozenset({"insufficient_samples", "aliased", "overlapped"})


def insufficient_samples(seconds: float, samples: int, inferences: int | None) -> bool:
    """Rule 10: the steady window has 10 s, 100 samples and 200 inferences, all three.

    Args:
        seconds: Length of the window.
        samples: Samples in it.
        inferences: Inferences in it; ``None`` for a program that does not count them.
    """
    few = inferences is not None and inferences < MINIMUM_INFERENCES
    return seconds < MINIMUM_SECONDS or samples < MINIMUM_SAMPLES or few


def throttled(events: int | None) -> bool:
    """A throttle or over-current event was counted in the window; not counted is not known."""
    return bool(events)


def overlapping(window: Span, others: Mapping[str, Span]) -> tuple[str, ...]:
    """Rule 13: name the runs whose steady window overlaps this one's, in the order given.

    Windows that only touch do not overlap.
    """
    return tuple(
        run_id
        for run_id, other in others.items()
        if other.begin_ns < window.end_ns and window.begin_ns < other.end_ns
    )


def baseline_drift(difference_watts: float, uncertainty_watts: float, net_watts: float) -> bool:
    """Rule 8: idle power before and after differ, by so much that the net figure suffers.

    That is by more than is uncertain about both, and by more than a twentieth of the net power.
    Any run warms the board a little, and leakage follows: what is less than that widens the
    interval of the net energy and needs no flag.

    Args:
        difference_watts: After less before.
        uncertainty_watts: Half the 95 % interval of that difference.
        net_watts: Mean power of the window less the idle power.
    """
    return abs(difference_watts) > max(uncertainty_watts, DRIFT_RATIO * abs(net_watts))


def clock_step(times_ns: Sequence[int], wall_ns: Sequence[int]) -> bool:
    """Rule 1: the wall clock was set in the window, forwards or back, by more than 50 ms.

    Between neighbouring samples it may also run faster or slower by a thousandth: time daemons
    do that. Figures are unharmed, for they use the monotonic clock; wall times are not.

    Args:
        times_ns: shape (n,), CLOCK_MONOTONIC of the samples of the window and its neighbours.
        wall_ns: shape (n,), wall time of the same moments.
    """
    offsets = [wall - time for wall, time in zip(wall_ns, times_ns, strict=True)]
    return any(
        abs(offsets[i] - offsets[i - 1])
        > WALL_STEP_NS + WALL_SLEW_RATIO * (times_ns[i] - times_ns[i - 1])
        for i in range(1, len(offsets))
    )


def suspended(suspended_ns: int) -> bool:
    """Rule 1: the machine slept in the window.

    Args:
        suspended_ns: By how much CLOCK_BOOTTIME less CLOCK_MONOTONIC grew; two reads are never
            at once, so up to 50 ms is no sleep.
    """
    return suspended_ns > SUSPEND_NS


def telemetry_gap(times_ns: Sequence[int], window: Span) -> bool:
    """Samples are missing in the window or at an edge of it.

    That is so where two neighbours, one of them or both in the window, are more than 2.5 median
    intervals apart (two lines in a row were lost), or where no sample stands on or beyond an
    edge.

    Args:
        times_ns: shape (n,), rising, samples of the window and its neighbours.
        window: The steady window.
    """
    interval = interval_ns(times_ns)
    if interval is None or times_ns[0] > window.begin_ns or times_ns[-1] < window.end_ns:
        return True
    return any(
        b - a > GAP_INTERVALS * interval
        for a, b in pairwise(times_ns)
        if b > window.begin_ns and a < window.end_ns
    )


def fallback(device: str, placement: Placement | None) -> bool:
    """Layers that compute ran on the GPU although a DLA was asked for.

    Args:
        device: The lane.
        placement: Of the engine that ran; ``None`` and ``unknown`` raise nothing.
    """
    if placement is None or not device.startswith("dla"):
        return False
    return placement.verdict in ("mixed", "gpu_only") or bool(placement.gpu_layers)


def dla_not_used(device: str, placement: Placement | None, was_on: bool | None) -> bool:
    """Rule 6: a run that should have used the DLA left it idle.

    Either the engine holds nothing for it, or telemetry that tells of the core saw it off all
    along: the driver keeps a core powered for half a second after each task, so one that works
    is on in some sample, and its powered time grows.

    Args:
        device: The lane.
        placement: Of the engine that ran; ``None`` and ``unknown`` raise nothing.
        was_on: Whether the core was seen on in the steady window; ``None`` where nothing tells of
            it.
    """
    if not device.startswith("dla"):
        return False
    return was_on is False or (placement is not None and placement.verdict == "gpu_only")


def in_order(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """Return flags once each, in the order in which ``Flag`` names them."""
    raised = set(flags)
    return tuple(flag for flag in get_args(Flag) if flag in raised)


ALIAS_PROBABILITY = 0.01
ALIAS_HARMONICS = 3
ALIAS_SAMPLES = 10
SHORTEST_CYCLE_NS = 5_000_000


def cycle_phases(times_ns: Sequence[int], starts_ns: Sequence[int]) -> list[float]:
    """Return where in its inference cycle each sample fell, in turns from 0 to 1.

    A cycle is the time from one start to the next, as it was measured, so a period that wanders
    does no harm. Samples before the first and after the last start belong to none.

    >>> cycle_phases([5, 12, 39, 99], [10, 20, 40])
    [0.2, 0.95]
    """
    phases = []
    for time in times_ns:
        k = bisect_right(starts_ns, time) - 1
        if 0 <= k < len(starts_ns) - 1:
            phases.append((time - starts_ns[k]) / (starts_ns[k + 1] - starts_ns[k]))
    return phases


def rayleigh_probability(phases: Sequence[float], harmonic: int = 1) -> float:
    """Return how likely phases spread evenly around the circle would look so bunched.

    Rayleigh's test, with the first correction for a small number.

    Args:
        phases: shape (n,), in turns.
        harmonic: 2 finds phases in two opposite bunches, and so on.
    """
    n = len(phases)
    if n == 0:
        return 1.0
    z = abs(sum(cmath.rect(1, 2 * math.pi * harmonic * phase) for phase in phases)) ** 2 / n
    return min(max(math.exp(-z) * (1 + (2 * z - z * z) / (4 * n)), 0.0), 1.0)


def aliased(times_ns: Sequence[int], starts_ns: Sequence[int]) -> bool:
    """Rule 11: the samples keep step with the inferences.

    Sampling that meets every inference at the same moment sees that moment only, however long
    the run. The phases of the samples within the inference cycle are tested for bunching, at
    the cycle itself and at its half and third (samples at every one and a half cycles bunch
    twice); p below 0.01, shared among the three, is a flag.

    Rayleigh's test takes phases as independent. Those of samples that nearly keep step wander
    slowly, so far more than one run in a hundred is flagged there; and rightly, for such samples
    met some moments of the inference more often, and their mean is off by more than it seems.

    Fewer than ten phases tell nothing. Nor do cycles under 5 ms: a reading is older than its
    arrival by some milliseconds, more or less, and lasts about one itself, so it meets a short
    cycle anywhere. What bunches there is the arrival alone, since a line that arrives holds up
    the inference on the same processor.

    Args:
        times_ns: shape (n,), rising, samples of the window.
        starts_ns: shape (m,), rising, starts of the inferences.
    """
    cycles = len(starts_ns) - 1
    if cycles < 1 or starts_ns[-1] - starts_ns[0] < cycles * SHORTEST_CYCLE_NS:
        return False
    phases = cycle_phases(times_ns, starts_ns)
    if len(phases) < ALIAS_SAMPLES:
        return False
    lowest = min(rayleigh_probability(phases, h) for h in range(1, ALIAS_HARMONICS + 1))
    return lowest < ALIAS_PROBABILITY / ALIAS_HARMONICS

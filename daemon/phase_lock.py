"""Does the sampling keep step with the inferences? Then it sees one moment of each only."""

import cmath
import math
from bisect import bisect_right
from collections.abc import Sequence

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

"""Whether the samples of a window keep step with the work in it.

Words:

- beat: the slow cycle that samples show of a rhythm that they are too rare for.
- fold: a multiple of the sampling frequency, the first to third. A rhythm at a fold is met always
  at the same moment and looks constant; one near a fold looks slow, and the distance is the beat.
- half: a frequency near a fold, in half cycles per window away from it: half 3 is 1.5 cycles.
- line: strength of a rhythm in the starts of the inferences, from 0 to 1 (all at one moment of it).
- strict: a line above 0.9: the starts keep time like a clock.
- locked: a beat of at most 1.5 cycles in the window, with a share in the mean above 0.15: no mean
  removes it.

Example: samples every 100 ms, an inference every 33.4 ms. The work has 29.94 Hz, and the third fold
is 30 Hz, so the beat has 0.06 Hz, one cycle in 16.7 s. In the samples it looks so: three inferences
take 100.2 ms, so each sample comes 0.2 ms earlier in its inference than the sample before, at 0.0,
0.994, 0.988, 0.982 … of it. In a window of 15 s the samples see 0.9 of a cycle: most moments of an
inference once, and some not at all. The mean may be wrong, and the run is ``aliased``. In a window
of 150 s they see 9 cycles, and the mean is right. With an inference of 100/3 ms, every sample meets
the same moment, however long the window is.
"""

import cmath
import math
from bisect import bisect_right
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from .energy import Curve, inside
from .numerics import about_mean, differences, dot
from .report import Span

# docs/decisions/interval.md, "Rhythm of the starts"
# The conditions of the flag ``aliased``; docs/measurement.md has them for users.
ALIAS_PROBABILITY = 0.01
ALIAS_HARMONICS = 3
ALIAS_SAMPLES = 10
LOCKED = 0.15
SHORTEST_CYCLE_NS = 5_000_000
SLOWEST_BEAT = 1.5
# Multiples of the sampling frequency around which beats are looked for.
_FOLDS = 3
# A beat of fewer samples is scatter, which the readings show by themselves.
_SAMPLES_PER_BEAT, _FASTEST_BEAT = 16, 48
# Parts of a sampling interval: enough for its third multiple, with 16 parts per wave.
_PHASE_BINS = 48
# n·R² of uniform phases exceeds 3 in one case of twenty (Rayleigh).
_BY_CHANCE = 3.0
# Concentration of the moves from sample to sample, above which phases drift and do not jump.
_DRIFTS, _DRIFTS_SLOWLY = 0.25, 0.9
# The same for a lock: below, a phase is forgotten in two samples, which a wider interval covers.
_KEEPS_STEP = 0.5
_PARTS_OF_A_CYCLE = 4
# Samples follow a cycle that is longer than so many intervals.
_LONG_CYCLE = 4
# Magnitude of a harmonic in the starts, above which they keep a strict time.
_STRICT = 0.9
# Of ``shown_cycles``: frequencies tried per cycle, share of the variance that the wave explains at
# least, and cycles of a beat that slow change does not look like.
_PER_CYCLE, _SHOWN, _SLOW = 8, 0.5, 2.0
# Spread of waves, per square of their number, below which samples met one phase only.
_STILL = 1e-6
BATCHES = range(2, 17)


class Beat(NamedTuple):
    """A rhythm of the work that the samples turn into so many cycles in the window.

    Attributes:
        line: Magnitude of the rhythm in the starts of the inferences, 0 to 1.
        sampled: Magnitude of the same in the sample times.
        hertz: The harmonic of the starts that it belongs to, if they were timed and keep a strict
            time: their magnitude there is above 0.9.
    """

    cycles: float
    line: float
    sampled: float
    hertz: float | None = None

    @property
    def share(self) -> float:
        """Its share, 0 to 1, in the mean of the samples."""
        return self.line * self.sampled


def cycle_phases(times_ns: Sequence[int], starts_ns: Sequence[int]) -> list[float]:
    """Return the position of each sample in its inference cycle, in turns from 0 to 1.

    A cycle is the measured time from one start to the next, so a period that varies does no harm.
    Samples before the first and after the last start belong to no cycle.

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
    """Return the probability that uniform phases on the circle look so concentrated.

    Rayleigh's test, with the first correction for a small number.

    Args:
        phases: shape (n,), in turns.
        harmonic: 2 finds phases in two opposite groups, and so on.
    """
    n = len(phases)
    if n == 0:
        return 1.0
    z = n * _concentration(phases, harmonic) ** 2
    return min(max(math.exp(-z) * (1 + (2 * z - z * z) / (4 * n)), 0.0), 1.0)


def _concentration(phases: Sequence[float], harmonic: int = 1) -> float:
    """Return how concentrated phases in turns are, from 0 to 1."""
    turn = 2 * math.pi * harmonic
    return abs(sum(cmath.rect(1, turn * phase) for phase in phases)) / max(len(phases), 1)


def aliased(
    times_ns: Sequence[int], starts_ns: Sequence[int], beats: Sequence[Beat] | None = None
) -> bool:
    """Return whether the samples keep step with the inferences, or with batches of them.

    Samples that meet every inference at the same moment see only that moment, for any length of the
    run. The phases of the samples within the inference cycle are tested for concentration, at the
    cycle itself and at its half and third (samples at every one and a half cycles form two groups);
    p below 0.01, shared among the three, is a flag. Batches lock at any phase of an inference, so
    their rhythm is looked for in the starts themselves: a beat of at most 1.5 cycles in the window,
    which no mean removes.

    Rayleigh's test assumes independent phases, and only phases that are not can be concentrated by
    more than chance. So it counts where a phase follows from the one before: samples that nearly
    keep step saw some moments of the inference more often, and their mean is off by more than it
    seems. Where a phase is soon forgotten, one run in a hundred would look concentrated too. The
    scatter of the readings covers that, and the beats of ``folded_rhythm`` what it does not.

    Fewer than ten phases show nothing. Nor do cycles under 5 ms: a reading is some milliseconds
    older than its arrival and lasts about one, so it meets a short cycle anywhere. Only the arrival
    is concentrated there, because an arriving line delays the inference on the same processor.

    Args:
        times_ns: shape (n,), increasing, samples of the window.
        starts_ns: shape (m,), increasing, starts of the inferences.
        beats: Result of ``folded_rhythm``, if it is there already.
    """
    if beats is None:
        beats = folded_rhythm(times_ns, starts_ns)
    for beat in beats:
        if beat.cycles <= SLOWEST_BEAT and beat.share > LOCKED:
            return True
    cycles = len(starts_ns) - 1
    if cycles < 1 or starts_ns[-1] - starts_ns[0] < cycles * SHORTEST_CYCLE_NS:
        return False
    phases = cycle_phases(times_ns, starts_ns)
    if len(phases) < ALIAS_SAMPLES:
        return False
    moves = differences(phases)
    for harmonic in range(1, ALIAS_HARMONICS + 1):
        keeps_step = _concentration(moves, harmonic) > _KEEPS_STEP
        if (
            keeps_step
            and rayleigh_probability(phases, harmonic) < ALIAS_PROBABILITY / ALIAS_HARMONICS
        ):
            return True
    return False


def folded_rhythm(
    times_ns: Sequence[int], starts_ns: Sequence[int], miscount: int = 0
) -> list[Beat]:
    """Return the beats of a rhythm of the starts with the sampling, around three of its multiples.

    Power that follows the starts has a component at each frequency of their rhythm. Its share in
    the mean of the samples is the product of two magnitudes from 0 to 1, each of a Fourier sum:
    that of the starts and that of the sample times. Around each multiple of the sampling frequency
    the second is large, and a component there looks like slow change. Beats are looked for down to
    16 samples each. Single inferences may keep step at any multiple: where the samples' phases in
    their cycle drift and are more concentrated than by chance, that is a beat without a number of
    cycles. Phases that jump are concentrated by chance, which the scatter of the readings shows.

    Args:
        times_ns: shape (n,), increasing, samples of the window.
        starts_ns: shape (m,), increasing, starts of the inferences.
        miscount: Cycles that the window may hold more or fewer than it has starts: 1 where they are
            counted, because a cycle that an edge cuts counts fully or not at all. If the phase is
            almost constant, one miscounted cycle changes the drift noticeably. Every drift within
            one cycle is tried, and the most concentrated one is used.

    Returns:
        Empty for fewer than ten samples or starts, and for cycles longer than four samples, which
        the samples follow.
    """
    n = len(times_ns)
    if n < ALIAS_SAMPLES or len(starts_ns) < ALIAS_SAMPLES:
        return []
    first, last = times_ns[0], times_ns[-1]
    interval = (last - first) / (n - 1)
    within = [start for start in starts_ns if first <= start <= last]
    if last - first > _LONG_CYCLE * interval * len(within):
        return []
    # Starts that were spaced by a count alone keep a strict time that proves nothing.
    timed = _Timed([] if miscount else within)
    beats = _beats_near_folds(times_ns, within, timed)
    phases = cycle_phases(times_ns, starts_ns)
    moves = differences(phases)
    for harmonic in range(1, ALIAS_HARMONICS + 1):
        share = _concentration(phases, harmonic)
        steadiness = _concentration(moves, harmonic)
        if harmonic == 1 and steadiness > _DRIFTS_SLOWLY:
            share = max(share, _highest_concentration(phases, miscount))
        if steadiness > _DRIFTS and len(phases) * share * share > _BY_CHANCE:
            hertz = timed.strict_hertz(harmonic * timed.per_ns)
            beats.append(Beat(math.inf, 1.0, share, hertz))
    return beats


class _Timed:
    """Starts that were timed, and the harmonics of their mean frequency that they keep strictly.

    ``per_ns`` is that frequency, and 0 without starts.
    """

    def __init__(self, starts_ns: Sequence[int]) -> None:
        self.per_ns = 0.0
        if starts_ns:
            self.per_ns = (len(starts_ns) - 1) / (starts_ns[-1] - starts_ns[0])
        self._turns = [self.per_ns * (start - starts_ns[0]) for start in starts_ns]
        # Many beats belong to one harmonic, and each sum is over all starts.
        self._lines: dict[int, float] = {}

    def strict_hertz(self, per_ns: float) -> float | None:
        """Return the harmonic nearest to a frequency; ``None`` if it is not kept strictly."""
        if not self.per_ns:
            return None
        number = max(round(per_ns / self.per_ns), 1)
        if number not in self._lines:
            self._lines[number] = _concentration(self._turns, number)
        if self._lines[number] <= _STRICT:
            return None
        return number * self.per_ns * 1e9


def _beats_near_folds(
    times_ns: Sequence[int], starts_ns: Sequence[int], timed: _Timed
) -> list[Beat]:
    """Return the beats of the starts around each multiple of the sampling frequency.

    They are half a cycle in the window apart from each other.
    """
    n, first, length = len(times_ns), times_ns[0], times_ns[-1] - times_ns[0]
    interval = length / (n - 1)
    reach = math.ceil(max(SLOWEST_BEAT, min(n / _SAMPLES_PER_BEAT, _FASTEST_BEAT)))
    blocks = max(16, 4 * reach)
    halves = range(-2 * reach, 2 * reach + 1)
    started = _fold(starts_ns, first, interval, length, blocks)
    sampled = _fold(times_ns, first, interval, length, blocks)
    beats = []
    for fold in range(1, _FOLDS + 1):
        lines = _lines(started, fold, halves)
        responses = _lines(sampled, fold, halves)
        for half, line, response in zip(halves, lines, responses, strict=True):
            hertz = timed.strict_hertz(fold / interval + half / 2 / length)
            beats.append(Beat(abs(half) / 2, line, response, hertz))
    return beats


def _highest_concentration(phases: Sequence[float], miscount: int) -> float:
    """Return the concentration of slowly drifting phases, if the count may be off by so much."""
    highest = 0.0
    for quarter in range(-4 * miscount, 4 * miscount + 1):
        drift = quarter / 4 / len(phases)
        drifting = [phase + drift * i for i, phase in enumerate(phases)]
        highest = max(highest, _concentration(drifting))
    return highest


def _fold(
    times_ns: Sequence[int], first: int, interval: float, length: int, blocks: int
) -> list[list[int]]:
    """Count events by block of the window and by phase in the mean sampling interval."""
    counts = [[0] * _PHASE_BINS for _ in range(blocks)]
    for time in times_ns:
        since = time - first
        phase = since / interval % 1.0
        counts[min(int(since * blocks / length), blocks - 1)][int(phase * _PHASE_BINS)] += 1
    return counts


def _lines(counts: Sequence[Sequence[int]], fold: int, halves: Sequence[int]) -> list[float]:
    """Return the magnitudes of the Fourier sum at a fold plus each number of half cycles."""
    turn = 2 * math.pi * fold / _PHASE_BINS
    turns = [cmath.rect(1, turn * (bin_number + 0.5)) for bin_number in range(_PHASE_BINS)]
    sums: list[complex] = []
    events = 0
    for row in counts:
        row_sum = 0j
        for count, wave in zip(row, turns, strict=True):
            if count:
                row_sum += count * wave
                events += count
        sums.append(row_sum)
    # Half a cycle over b + 1/2 of so many blocks is an odd number of these steps.
    blocks = len(counts)
    steps = [cmath.rect(1, math.pi * k / (2 * blocks)) for k in range(4 * blocks)]
    odd = range(1, 2 * blocks, 2)
    magnitudes = []
    for half in halves:
        waves = [steps[half * block % len(steps)] for block in odd]
        magnitudes.append(abs(sum(map(mul, sums, waves))) / max(events, 1))
    return magnitudes


def sensor_times(window: Span, seconds: float | None) -> list[int]:
    """Return when a sensor that is updated each so many seconds was read in a window.

    The phase is unknown, but work that keeps step with the sensor is detected. ``None`` is a sensor
    that is read with each line.

    >>> sensor_times(Span(begin_ns=0, end_ns=250_000_000), 0.1)
    [0, 100000000, 200000000]
    """
    if seconds is None:
        return []
    return list(range(window.begin_ns, window.end_ns, round(seconds * 1e9)))


def beats_of_batches(times_ns: Sequence[int], window: Span, inferences: int | None) -> list[Beat]:
    """Return the beats that batches of 2 to 16 inferences would have with the samples.

    For inferences that were counted but not timed: whether they come in batches is not known, so a
    batch size that would come about once per sample is a reason to doubt. A batch that an edge cuts
    counts fully or not at all, so the window may hold one more or fewer: of these frequencies, the
    one that the samples follow most counts.
    """
    n = len(times_ns)
    if not evenly_spaced(window, inferences) or n < ALIAS_SAMPLES:
        return []
    length = times_ns[-1] - times_ns[0]
    beats = []
    for size in BATCHES:
        likely: list[Beat] = []
        for part in range(-_PARTS_OF_A_CYCLE, _PARTS_OF_A_CYCLE + 1):
            batches = (inferences or 0) / size + part / _PARTS_OF_A_CYCLE
            frequency = batches / (window.end_ns - window.begin_ns)
            cycles = abs(frequency - (n - 1) / length) * length
            if cycles < max(SLOWEST_BEAT, n / _SAMPLES_PER_BEAT):
                turns = [frequency * (t - times_ns[0]) for t in times_ns]
                likely.append(Beat(cycles, 1.0, _concentration(turns, 1)))
        if likely:
            beats.append(max(likely, key=lambda beat: beat.sampled))
    return beats


def evenly_spaced(window: Span, inferences: int | None, cycles: float | None = None) -> list[int]:
    """Return starts for inferences that were counted but not timed; none for cycles under 5 ms.

    ``cycles`` is how many fit into the window, if it is not their number.

    >>> evenly_spaced(Span(begin_ns=0, end_ns=90_000_000), 3)
    [0, 30000000, 60000000]
    """
    length = window.end_ns - window.begin_ns
    if not inferences or length < inferences * SHORTEST_CYCLE_NS:
        return []
    return [window.begin_ns + int(length * k / (cycles or inferences)) for k in range(inferences)]


def shown_cycles(curve: Curve, window: Span, inferences: int) -> float | None:
    """Return how many cycles of counted inferences the window holds, as the readings show it.

    The count gives it to one cycle, because one that an edge cuts counts fully or not at all. If
    power follows the inferences, a wave of their frequency fits the readings. The best of several
    frequencies must explain at least half of their variance. Slow change, such as heat, looks like
    a beat of less than two cycles in the window, so such a frequency shows nothing: ``None``.
    """
    positions, length = inside(curve.times_ns, window), window.end_ns - window.begin_ns
    times, watts = curve.times_ns[positions], curve.watts[positions]
    if len(times) < ALIAS_SAMPLES:
        return None
    apart = about_mean(watts)
    tried = []
    for step in range(-_PER_CYCLE, _PER_CYCLE + 1):
        cycles = inferences + step / _PER_CYCLE
        waves = waves_apart(times, cycles / length)[0]
        along = sum(map(mul, waves, apart))
        tried.append(((along.conjugate() * fitted(waves, along)).real, cycles))
    explained, cycles = max(tried)
    sampling = (len(times) - 1) * length / (times[-1] - times[0])
    beat = abs(cycles - round(cycles / sampling) * sampling)
    if beat <= _SLOW or explained <= _SHOWN * dot(apart, apart):
        return None
    return cycles


def waves_apart(times_ns: Sequence[int], per_ns: float) -> tuple[list[complex], complex]:
    """Return a wave of a frequency at some times less its mean, shape (n,), and that mean."""
    turn = 2 * math.pi * per_ns
    waves = [cmath.rect(1, turn * (time - times_ns[0])) for time in times_ns]
    mean = sum(waves) / len(waves)
    return [wave - mean for wave in waves], mean


def fitted(waves: Sequence[complex], along: complex) -> complex:
    """Return the factors of cosine and sine, by least squares, for products with both of them.

    They are 0 if the waves are still: samples at one phase show nothing.
    """
    cosines = [wave.real for wave in waves]
    sines = [wave.imag for wave in waves]
    of_cosines, of_sines, of_both = dot(cosines, cosines), dot(sines, sines), dot(cosines, sines)
    spread = of_cosines * of_sines - of_both * of_both
    if spread <= _STILL * len(waves) ** 2:
        return 0j
    cosine = of_sines * along.real - of_both * along.imag
    return complex(cosine, of_cosines * along.imag - of_both * along.real) / spread

"""Figures with 95 % intervals: of one run, the mean of several, and the difference of two."""

import statistics
from collections.abc import Iterable, Sequence
from math import hypot, sqrt
from typing import Literal, TypeVar

from .numerics import student
from .report import Energy, Figure, Interval, RailEnergy, RunReport

T = TypeVar("T")
Kind = Literal["gross", "net"]


def present(values: Iterable[T | None]) -> list[T]:
    """Return the values that are known."""
    return [value for value in values if value is not None]


def mean_of_rounds(
    values: Sequence[float], halves: Sequence[float | None] = (), floor: float = 0.0
) -> Figure | None:
    """Return the mean of an accelerator's rounds with its 95 % interval.

    Half of the interval is the larger of two: that of one round, on average, and that of the mean
    by the spread of the rounds and Student's distribution. Repetition does not narrow the first:
    the rounding and the delay of a sensor are the same in every round. It is at least ``floor``,
    the resolution of the instrument. ``halves`` are those of the rounds (``Figure.half``).

    >>> mean_of_rounds([10.0, 10.0], [0.2, 0.2])
    Figure(value=10.0, low=9.8, high=10.2)
    """
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    candidates = []
    known = present(halves)
    if len(known) == count:
        candidates.append(statistics.fmean(known))
    if count > 1:
        candidates.append(student(count - 1) * statistics.stdev(values) / sqrt(count))
    if not candidates:
        return Figure(value=mean)
    return Figure.around(mean, max(*candidates, floor))


def mean_of_most(figures: Sequence[Figure | None]) -> Figure | None:
    """Return the mean of the rounds that have a value, if those are more than half.

    One round in a hundred keeps step with its samples by chance, and its energy is withheld. If
    half of them are withheld, something is wrong.
    """
    known = present(figures)
    if 2 * len(known) <= len(figures):
        return None
    return mean_of_rounds([figure.value for figure in known], [figure.half for figure in known])


def mean_energy(figures: Sequence[Figure | None]) -> Figure | None:
    """Return ``mean_of_most`` of energies or powers, without an interval if one of them has none.

    A property that is unknown for one of them, such as the times of its readings, may be the same
    in all: their spread does not show it.
    """
    mean = mean_of_most(figures)
    if mean is None or all(figure.half is not None for figure in present(figures)):
        return mean
    return Figure(value=mean.value)


def is_vague(figure: Figure) -> bool:
    """Return whether a figure says nothing: its interval is wider than the figure itself."""
    return figure.half is not None and figure.half > abs(figure.value)


def telling(figures: Sequence[Figure | None]) -> list[Figure | None]:
    """Return figures of runs, with ``None`` in place of a vague one.

    The mean of the intervals is that of the mean. So one run on a machine that was too busy to read
    the power would hide what all others show. Where such runs are half of all, all stay.

    >>> good, vague = Figure.around(2.0, 0.1), Figure.around(1.8, 9.0)
    >>> telling([good, good, vague])[2], telling([good, vague])[1] is vague
    (None, True)
    """
    clear: list[Figure | None] = []
    for figure in figures:
        if figure is not None and is_vague(figure):
            figure = None
        clear.append(figure)
    if 2 * len(present(clear)) <= len(figures):
        return [*figures]
    return clear


def subtract(figure: Figure, other: Figure) -> Figure:
    """Return one figure less another, with an interval if both have one.

    Rounds of two accelerators are separate measurements, so their halves add in quadrature.
    """
    value = figure.value - other.value
    if figure.half is None or other.half is None:
        return Figure(value=value)
    return Figure.around(value, hypot(figure.half, other.half))


def difference(figure: Figure | None, other: Figure | None) -> Figure | None:
    """Return one figure less another as ``subtract`` does; None if one of them is unknown."""
    if figure is None or other is None:
        return None
    return subtract(figure, other)


def joules_of(
    energy: Energy | RailEnergy | None, kind: Kind, divisor: float = 1.0
) -> Figure | None:
    """Return an energy divided by ``divisor``, with its interval; ``None`` if it is not known.

    The value need not lie in the middle: a bound is added to the side on which the truth may lie.
    """
    value: float | None = getattr(energy, f"{kind}_joules", None)
    if value is None or not divisor:
        return None
    interval: Interval | None = getattr(energy, f"{kind}_interval", None)
    if interval is None:
        return Figure(value=value / divisor)
    return Figure(value=value / divisor, low=interval.low / divisor, high=interval.high / divisor)


def energy_of(report: RunReport, kind: Kind) -> Figure | None:
    """Return a run's energy per inference; ``None`` if it is withheld or not known."""
    value: float | None = getattr(report.energy, f"{kind}_joules_per_inference", None)
    if value is None:
        return None
    # Records of older releases have the interval of the whole energy only.
    interval: Interval | None = getattr(report.energy, f"{kind}_joules_per_inference_interval")
    if interval is None:
        return joules_of(report.energy, kind, report.inferences) or Figure(value=value)
    return Figure.limited(value, interval)


def mean_watts(report: RunReport) -> float | None:
    """Return the mean power of the module in the steady phase of a run."""
    window, energy = report.phases.get("steady"), report.energy
    if window is None or not window.seconds or energy is None or energy.gross_joules is None:
        return None
    return energy.gross_joules / window.seconds

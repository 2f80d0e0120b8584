"""The steady state of a board that still warms up: its temperature and its rate, forecast.

After a step of power, the temperature of a board is a sum of exponentials: the die follows within
seconds, the heat sink within minutes. Number and time constants are not known. So each set of one
to three constants of a grid is fitted by linear least squares, and the limit is the mean of all
fits, weighted by their marginal likelihood. This is Bayesian model averaging (Hoeting, Madigan,
Raftery and Volinsky, Statistical Science 14, 1999). The rate follows the temperature by a straight
line. Where a controller of clocks or fans holds the temperature, the last readings are
the forecast.

``python -m tests.truth.heat`` judges forecasts of boards whose end is known; docs/validation.md has
the result. This module needs numpy.
"""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np

from .records import Figure, Forecast

Array = np.ndarray[Any, np.dtype[Any]]

BINS = 50
# Clocks rise in the first seconds. A fan needs a moment after a step, a controller a longer one.
_BEGIN_SECONDS, _HELD_SECONDS, _LEAST_SECONDS = 4.0, 20.0, 45.0
# Where neighbouring residuals resemble each other, the fast exponentials are left out by a later
# begin.
_LATER_SECONDS, _WHITE = (0.0, 20.0, 50.0), 0.3
# The grid of time constants, and the least ratio of two of them.
_CONSTANTS = np.geomspace(2.0, 1800.0, 24)
_LEAST_RATIO = 4.0
# Spread of a constant between two of the grid.
_STEP = 0.3 * log(_CONSTANTS[1] / _CONSTANTS[0])
# Drift of the air in the room, in °C/s and in °C until the end; error of a rate.
_DRIFT, _AIR_CELSIUS, _RATE_RATIO = 0.0002, 1.0, 0.003
# An exponential with less of the rise is improbable.
_SHARE = 0.32
# Wider forecasts are withheld.
_MOST_CELSIUS, _MOST_RATE_RATIO = 2.5, 0.025
# A larger rise that is to come with a longer constant, or with a fan that may step, is a guess.
_LONGEST_SECONDS, _GUESSED_CELSIUS, _FAN_CELSIUS = 300.0, 2.0, 3.5


class HeatUp(NamedTuple):
    """The readings of a board since the start of the work.

    Attributes:
        seconds: Length.
        times: shape (n,), seconds of the readings of the zone's temperature, increasing.
        celsius: shape (n,), that temperature.
        ended: shape (m,), seconds at which the inferences ended, increasing.
        batch: Inputs of each.
        trip_celsius: Temperature at which the zone lowers clocks.
        since_seconds: When a fan last changed its speed by a step, or heat began to hold a clock.
        is_held: Whether heat holds a clock, or a fan speeds up and slows down.
        may_step: Whether a fan may turn faster, by a step.
        only_warms: Whether the board was cool before.
    """

    seconds: float
    times: Sequence[float]
    celsius: Sequence[float]
    ended: Sequence[float]
    batch: int = 1
    trip_celsius: float = 1000.0
    since_seconds: float = 0.0
    is_held: bool = False
    may_step: bool = False
    only_warms: bool = True


class _Limit(NamedTuple):
    """The limit of a series, half of its interval, and the mean of the slowest constants."""

    value: float
    half: float
    slowest: float
    correlation: float


def foresee(heat_up: HeatUp) -> Forecast:
    """Return the steady state that a heat-up leads to, or why it cannot be told."""
    begin = heat_up.since_seconds + (_HELD_SECONDS if heat_up.is_held else _BEGIN_SECONDS)
    readings = np.column_stack([heat_up.times, heat_up.celsius])
    limit = None
    for later in _LATER_SECONDS:
        inside = readings[readings[:, 0] >= begin + later]
        if heat_up.seconds - begin - later < _LEAST_SECONDS or len(inside) < BINS:
            break
        groups = np.array_split(inside, BINS)
        times, celsius = np.array([group.mean(axis=0) for group in groups]).T
        edges = [*(group[0, 0] for group in groups), heat_up.seconds]
        done = np.interp(edges, heat_up.ended, np.arange(len(heat_up.ended)))
        rates = heat_up.batch * np.diff(done) / np.diff(edges)
        if heat_up.is_held:
            return _narrow(heat_up, _held(celsius, _AIR_CELSIUS), _held(rates, 0.0))
        limit = _limit_of(times - times[0], celsius, only_warms=heat_up.only_warms)
        if limit.correlation < _WHITE:
            break
    if limit is None:
        reason = "too few readings since a fan or a clock changed"
        return Forecast(after_seconds=heat_up.seconds, reason=reason)
    reason = _why_not(heat_up, limit, celsius)
    if reason:
        return Forecast(after_seconds=heat_up.seconds, reason=reason)
    warmth = Figure.around(limit.value, limit.half)
    return _narrow(heat_up, warmth, _rate_at(limit, celsius, rates))


def _why_not(heat_up: HeatUp, limit: _Limit, celsius: Array) -> str:
    """Return why the board will not go on to its limit as it did so far; empty if it will."""
    if limit.value > celsius[-1] + _GUESSED_CELSIUS and limit.slowest > _LONGEST_SECONDS:
        return "the board warms too slowly to tell where it ends"
    if heat_up.may_step and limit.value + limit.half > celsius.max() + _FAN_CELSIUS:
        return "a fan may turn faster before the board is warm"
    if limit.value + limit.half / 3 > heat_up.trip_celsius:
        return f"heat will lower the clocks, at {heat_up.trip_celsius:.0f} °C"
    return ""


def _rate_at(limit: _Limit, celsius: Array, rates: Array) -> Figure:
    """Return the rate at a temperature, by the straight line through those of the heat-up."""
    warmth = celsius - celsius.mean()
    squares = max(warmth @ warmth, 1e-9)
    slope, ahead = warmth @ rates / squares, limit.value - celsius.mean()
    scatter = (rates - rates.mean() - slope * warmth).std()
    rate = float(rates.mean() + slope * ahead)
    error = 2 * scatter * sqrt(1 / BINS + ahead**2 / squares)
    return Figure.around(
        rate, float(np.linalg.norm([error, slope * limit.half, _RATE_RATIO * rate]))
    )


def _narrow(heat_up: HeatUp, celsius: Figure, rate: Figure) -> Forecast:
    """Return a forecast, or that it is not narrow enough."""
    forecast = Forecast(after_seconds=heat_up.seconds, celsius=celsius, rate_per_second=rate)
    if (celsius.half or 0.0) > _MOST_CELSIUS:
        reason = f"it could be {celsius.low:.0f} to {celsius.high:.0f} °C"
    elif (rate.half or 0.0) > _MOST_RATE_RATIO * rate.value:
        reason = f"it could be {rate.low:.4g} to {rate.high:.4g}/s"
    else:
        return forecast
    return Forecast(after_seconds=heat_up.seconds, reason=reason)


def _held(values: Array, floor: float) -> Figure:
    """Return the mean of the second half of a series that a controller holds."""
    early, late = values[: BINS // 2].mean(), values[BINS // 2 :].mean()
    half = max(floor, abs(late - early) + values.std() / 2)
    return Figure.around(float(late), float(half))


def _limit_of(times: Array, values: Array, *, only_warms: bool) -> _Limit:
    """Return the limit of a sum of exponentials."""
    offset, values = float(values[-1]), values - values[-1]
    # Of white noise, the variance of a second difference is six times that of a value.
    variance, correlation = max(float(np.diff(values, 2).var()) / 6, 1e-6), 0.0
    for _ in range(2):
        fits, residuals = _fit_all(times, values, variance, only_warms=only_warms)
        squares = float(residuals @ residuals) + 1e-9
        correlation = min(max(float(residuals[1:] @ residuals[:-1]) / squares, 0.0), 0.9)
        variance = max(squares / (BINS - 6), 1e-6) * (1 + correlation) / (1 - correlation)
    weights = np.exp(fits.weights - fits.weights.max())
    weights /= weights.sum()
    limit = weights @ fits.limits
    spread = weights @ (fits.deviations**2 + (fits.limits - limit) ** 2)
    half = 2 * sqrt(spread + (_AIR_CELSIUS / 2) ** 2)
    slowest = float(np.exp(weights @ np.log(fits.slowest)))
    return _Limit(offset + float(limit), half, slowest, correlation)


class _Fits(NamedTuple):
    """Of each set of constants the logarithm of its weight, the limit, and the slowest one."""

    weights: Array
    limits: Array
    deviations: Array
    slowest: Array


def _fit_all(
    times: Array, values: Array, variance: float, *, only_warms: bool
) -> tuple[_Fits, Array]:
    """Return the fits of all sets to values of a variance, and the residuals of the best.

    Columns are a constant, a drift, the exponentials, and how each changes with its constant. All
    have a normal prior of mean 0, so each fit is a ridge regression.
    """
    shapes = -np.exp(-times[:, None] / _CONSTANTS)
    tangents = shapes * times[:, None] / _CONSTANTS
    columns = np.column_stack([np.ones(BINS), times - times[-1], shapes, tangents])
    products, moments = columns.T @ columns / variance, columns.T @ values / variance
    rise = np.ptp(values) + 0.5
    fits, best, residuals = [], -np.inf, values
    for size in (1, 2, 3):
        used = _sets(size)
        precision = np.array([1e4, _DRIFT, *[rise] * size, *[rise * _STEP] * size]) ** -2.0
        matrix = products[used[:, :, None], used[:, None, :]] + np.diag(precision)
        inverse = np.linalg.inv(matrix)
        solution = (inverse @ moments[used][:, :, None])[:, :, 0]
        deviations = np.sqrt(np.diagonal(inverse, axis1=1, axis2=2))
        # The marginal likelihood, and each number of constants is as probable as another.
        weights = (solution * moments[used]).sum(axis=1) / 2 - np.linalg.slogdet(matrix)[1] / 2
        weights += np.log(precision).sum() / 2 - log(len(used))
        heights = solution[:, 2 : 2 + size]
        if only_warms:
            weights -= 1e3 * (heights < -deviations[:, 2 : 2 + size]).any(axis=1)
        shares = heights / (np.abs(heights).sum(axis=1, keepdims=True) + 1e-9)
        weights += 3 * np.log(shares**2 / (shares**2 + _SHARE**2) + 1e-6).sum(axis=1)
        place = int(weights.argmax())
        if weights[place] > best:
            best = float(weights[place])
            residuals = values - columns[:, used[place]] @ solution[place]
        slowest = _CONSTANTS[used[:, 1 + size] - 2]
        fits.append(_Fits(weights, solution[:, 0], deviations[:, 0], slowest))
    return _Fits(*map(np.concatenate, zip(*fits, strict=True))), residuals


@cache
def _sets(size: int) -> Array:
    """Return the columns of all sets of so many constants, with those of constant and drift."""
    places = np.array(list(combinations(range(len(_CONSTANTS)), size)))
    apart = np.diff(np.log(_CONSTANTS[places]), axis=1) >= log(_LEAST_RATIO)
    chosen = places[apart.all(axis=1)] + 2
    ones = np.ones((len(chosen), 1), int)
    return np.hstack([0 * ones, ones, chosen, chosen + len(_CONSTANTS)])

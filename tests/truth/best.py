"""The narrowest 95 % interval that an observer could state who knows the noise of the world.

Formula, for work of constant or steadily changing power (``formula``). The observer knows the
standard deviation σ and the memory τ of the wander, the steps of the sensor and the stamps of the
window. The course of the work's power and the lag of the readings are unknown. Half widths in
joules are ``1.96·√V + edges``, with

- ``edges = ΔP·(D/2 + Δ/6)``, ΔP the mean power of the work. A lag anywhere in 0..D moves the
  window by D/2 either way. Between the last reading outside and the first inside, Δ apart, power
  may step at the stamp or go in a straight line: at one edge this differs by ΔP·Δ/6 on average,
  either way by half of that;
- gross: ``V = T/Δ·v + T·Δ·w² + Σ T²·r``. v is the variance of the energy between two readings Δ
  apart, given both: ``v = 2σ²τ·(Δ - 2τ·tanh(Δ/2τ))`` for the exponential correlation. w is the
  noise of a reading, and r the variance of the rounding of a rail's mean, see ``rounding``;
- net: the same, and T² times the variance of the mean idle power of the window, predicted from the
  readings of both idle phases by generalised least squares with an unknown level (``idle_level``).

Everywhere else the best possible is measured (``measured``): half the width that holds 95 % of the
errors of a plain estimator in the windows of the cell. Its bias is included, since only an observer
who knows the heat could remove it. The estimator is the better of clipped trapezoids and of inner
readings held to the edges. The width is never less than the formula for work of the same power.
"""

import math
from functools import lru_cache

import numpy as np

from .board import MOST_LAG_SECONDS, Array
from .regimes import IDLE_SECONDS, TYPICAL_READ_SECONDS, Cell, Setup, Window

NORMAL_95 = 1.959964
_POSITIONS = 12


def formula(cell: Cell, setup: Setup, work_watts: float) -> tuple[float, float]:
    """Return half widths in joules of gross and net energy."""
    spacing = cell.interval_ms / 1000 + TYPICAL_READ_SECONDS
    seconds = float(cell.seconds)
    sigma, memory = setup.idle.wander_watts, setup.idle.memory_seconds
    bridge = 2 * sigma**2 * memory * (spacing - 2 * memory * math.tanh(spacing / 2 / memory))
    gross = seconds / spacing * bridge + seconds * spacing * setup.sensor.noise_watts**2
    net = gross
    for rail in setup.board.rails:
        spread = sigma * math.sqrt(rail.wander_share)
        # Power that moves along many levels of the sensor is dithered by its own course.
        moved = max(spread, rail.step_watts if cell.regime.family == "ramp" else 0.0)
        noise = setup.sensor.noise_watts * math.sqrt(rail.wander_share)
        alike = repeated(rail.step_watts, moved, noise, math.exp(-spacing / memory))
        window = rounding(rail.step_watts, moved, noise, seconds / spacing / alike)
        gross += seconds**2 * window
        net += seconds**2 * (
            window + idle_level(spread, memory, rail.step_watts, noise, spacing, seconds, alike)
        )
    edges = work_watts * (MOST_LAG_SECONDS / 2 + spacing / 6)
    return NORMAL_95 * math.sqrt(gross) + edges, NORMAL_95 * math.sqrt(net) + edges


def repeated(step: float, spread: float, noise: float, correlation: float) -> float:
    """Return how many readings in a row share one rounding error.

    Power that wanders slowly compared with the step of the sensor is rounded alike for a while. The
    rounding errors of readings k apart correlate as exp(-a(1 - ρ^k)), a = (2π·spread/step)², by the
    first harmonic of the error.
    """
    a = (2 * math.pi * spread / step) ** 2
    apart = np.arange(1, 200)
    white = math.exp(-((2 * math.pi * noise / step) ** 2))
    shared = white * np.exp(-a * (1 - correlation**apart)) - math.exp(-a)
    return 1 + 2 * float(np.sum(shared.clip(min=0))) / (1 - math.exp(-a))


def rounding(step: float, spread: float, noise: float, readings: float) -> float:
    """Return the variance of the rounding error of a mean of readings, at best.

    The mean over all positions θ of the level between two steps of ``1/(n/e(θ) + 12/step²)``: e is
    the variance that rounding adds to one reading for an observer who uses all the information in
    it (Fisher's, of a rounded normal reading), and an error is at most that of one rounding.
    """
    extra = rounded_extra(step, math.hypot(spread, noise))
    return float(np.mean(1 / (readings / extra + 12 / step**2)))


@lru_cache(maxsize=64)
def rounded_extra(step: float, spread: float) -> Array:
    """Return the variance that rounding adds to one reading, for positions between two steps."""
    levels = np.arange(-40, 41)
    found = []
    for position in (np.arange(_POSITIONS) + 0.5) / _POSITIONS:
        cuts = ((levels - 0.5 + position) * step) / spread
        density = np.exp(-(cuts**2) / 2) / math.sqrt(2 * math.pi)
        below = np.array([0.5 * (1 + math.erf(cut / math.sqrt(2))) for cut in cuts])
        share = np.diff(below)
        information = np.sum(np.diff(density)[share > 1e-12] ** 2 / share[share > 1e-12])
        found.append(max(spread**2 * (1 / max(float(information), 1e-9) - 1), step**2 / 1e6))
    return np.array(found)


@lru_cache(maxsize=64)
def idle_level(
    spread: float,
    memory: float,
    step: float,
    noise: float,
    spacing: float,
    seconds: float,
    alike: float,
) -> float:
    """Return the variance of a window's mean idle power, given the readings of both idle phases."""
    before = np.arange(-IDLE_SECONDS, 0.0, spacing)
    times = np.concatenate([before, seconds - before[::-1]])
    apart = np.abs(times[:, None] - times)
    shared = spread**2 * np.exp(-apart / memory)
    away = np.where(times < 0, -times, times - seconds)
    towards = spread**2 * memory / seconds * np.exp(-away / memory)
    towards *= 1 - math.exp(-seconds / memory)
    share = memory / seconds
    whole = 2 * spread**2 * share * (1 - share * (1 - math.exp(-seconds / memory)))
    variances = []
    for extra in rounded_extra(step, math.hypot(spread, noise)):
        matrix = shared + np.eye(len(times)) * (extra * alike + noise**2)
        weights = np.linalg.solve(matrix, np.stack([towards, np.ones(len(times))], axis=1))
        left = 1 - weights[:, 0].sum()
        known = whole - towards @ weights[:, 0] + left**2 / weights[:, 1].sum()
        # At worst the phases show the level as exactly as one rounded reading does.
        variances.append(min(float(known), whole + 2 * spread**2 + step**2 / 12))
    return float(np.mean(variances))


def plain(window: Window) -> tuple[float, float, float, float]:
    """Return energies by two plain estimators: gross and net by trapezoids, then by held edges.

    Times are those of printing, as a perfect reader would know them.
    """
    times, watts = window.lines.printed, window.lines.watts.sum(axis=0)
    begin, end = window.begin, window.end
    inside = (times > begin) & (times < end)
    sloped = _trapezoids(
        times[inside], watts[inside], begin, end, np.interp([begin, end], times, watts)
    )
    old = MOST_LAG_SECONDS + window.setup.sensor.averages_seconds
    inside = (times > begin + old) & (times < end)
    if not inside.any():
        held = sloped
    else:
        first, last = np.flatnonzero(inside)[[0, -1]]
        held = _trapezoids(times[inside], watts[inside], begin, end, watts[[first, last]])
    level = []
    for a, b in window.idle_phases:
        idle = watts[(times > a + old) & (times < b)]
        level.append(idle.mean() if len(idle) else np.nan)
    baseline = float(np.nanmean(level)) * (end - begin)
    return sloped, sloped - baseline, held, held - baseline


def _trapezoids(times: Array, watts: Array, begin: float, end: float, outer: Array) -> float:
    whole_times = np.concatenate([[begin], times, [end]])
    whole = np.concatenate([outer[:1], watts, outer[1:]])
    return float(np.sum(np.diff(whole_times) * (whole[1:] + whole[:-1]) / 2))


def measured(sloped: Array, held: Array, floor: float) -> float:
    """Return the half width that would hold 95 % of the errors of the better plain estimator."""
    spreads = [float(np.quantile(np.abs(e), 0.95)) for e in (sloped, held)]
    return max(min(spreads), floor)

"""How well a 5 % difference can be told at all: ``python -m tests.truth.likelihood``.

A bench on an AGX Orin whose idle power wanders: four ABBA rounds of 15 s per run, 4 W of work, B
draws more than A by some share. Readings are rounded to 0.4, 0.4 and 0.1 W. The wander is Markov,
so the exact likelihood of the rounded readings is that of a hidden Markov model, here on a fine
grid of the hidden power. Two likelihood-ratio tests of "B draws 5 % more" against "no difference":

- ``knows every parameter``: idle levels, power of A, noise, steps. By Neyman and Pearson no test
  has more power;
- ``knows the noise``: the level of each rail during A is unknown and fitted under both hypotheses.

Thresholds are those that 1 % of the benches without a difference exceed, so 2 % of them would name
a winner in a test for both directions.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .board import (
    AGX_ORIN,
    MOST_LAG_SECONDS,
    Array,
    Heat,
    Idle,
    Lines,
    Load,
    Power,
    Printing,
    Random,
    Sensor,
    print_lines,
)
from .regimes import IDLE_SECONDS, LEAD_SECONDS, TYPICAL_READ_SECONDS, back_to_back

WANDER = Idle(0.15, 0.8)
STATES, REACH = 61, 4.5
FITTED = np.linspace(-0.15, 0.15, 19)


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs of A and B with the lines around them; ``order`` says whose each span and load is."""

    power: Power
    lines: Lines
    order: str
    spans: tuple[tuple[float, float], ...]
    work_watts: float
    loads: tuple[Load, ...] = ()


def make_bench(
    random: Random,
    difference: float,
    *,
    rounds: int = 4,
    seconds: float = 15.0,
    watts: float = 4.0,
    interval: float = 0.103,
    drift: float = 0.0,
) -> Bench:
    """Return a bench in which B draws ``difference`` (a share) more than A.

    ``drift``: the share by which the work of both grows from the first run to the last.
    """
    order = "".join("AB" if number % 2 == 0 else "BA" for number in range(rounds))
    spans, loads, at = [], [], LEAD_SECONDS + IDLE_SECONDS
    for number, name in enumerate(order):
        grown = 1 + drift * number / (len(order) - 1)
        drawn = watts * grown * (1 + (difference if name == "B" else 0.0))
        spans.append((at, at + seconds))
        loads.append(back_to_back(random, at, at + seconds, (drawn, drawn)))
        at += seconds + IDLE_SECONDS
    power = Power(AGX_ORIN, at + LEAD_SECONDS, loads, WANDER, Heat(), random)
    lines = print_lines(power, Sensor(), Printing(interval), random)
    return Bench(power, lines, order, tuple(spans), watts, tuple(loads))


def readings(benches: Sequence[Bench], rail: int, name: str) -> Array:
    """Return the readings of a rail in the runs of one name, shape (benches, runs, n)."""
    found = []
    for bench in benches:
        runs = []
        for (begin, end), whose in zip(bench.spans, bench.order, strict=True):
            times = bench.lines.printed
            inside = (times > begin + MOST_LAG_SECONDS) & (times < end)
            if whose == name:
                runs.append(bench.lines.watts[rail][inside])
        found.append(runs)
    count = min(len(run) for runs in found for run in runs)
    return np.array([[run[:count] for run in runs] for runs in found])


def log_likelihood(watts: Array, levels: Array, spread: float, step: float, rho: float) -> Array:
    """Return the log-likelihood of rounded readings for levels of a rail.

    Shapes: ``watts`` (benches, runs, n), ``levels`` (benches, candidates); the result is (benches,
    candidates), summed over runs. Runs are far apart, so each begins with the stationary law.
    """
    states = np.linspace(-REACH, REACH, STATES) * spread
    width = states[1] - states[0]
    moves = np.exp(-((states - rho * states[:, None]) ** 2) / (2 * spread**2 * (1 - rho**2)))
    moves /= moves.sum(axis=1, keepdims=True)
    chance = np.exp(-(states**2) / 2 / spread**2)
    benches, runs, count = watts.shape
    law = np.broadcast_to(chance / chance.sum(), (benches, runs, levels.shape[1], STATES))
    total = np.zeros((benches, runs, levels.shape[1]))
    for i in range(count):
        # The part of each state's cell that would be rounded to this reading.
        middle = watts[:, :, i, None, None] - levels[:, None, :, None] - states
        seen = np.clip((step + width) / 2 - np.abs(middle), 0, min(step, width)) / width
        law = law * (seen + 1e-12)
        mass = law.sum(axis=-1)
        total += np.log(mass)
        law = (law / mass[..., None]) @ moves
    return total.sum(axis=1)


def ratios(benches: Sequence[Bench], difference: float) -> tuple[Array, Array]:
    """Return the log-likelihood ratios of both tests, one per bench."""
    rho = float(np.exp(-(0.103 + TYPICAL_READ_SECONDS) / WANDER.memory_seconds))
    known, fitted = np.zeros(len(benches)), np.zeros(len(benches))
    for number, rail in enumerate(AGX_ORIN.rails):
        spread = WANDER.wander_watts * rail.wander_share**0.5
        more = difference * benches[0].work_watts * rail.work_share
        exact = np.array([b.power.levels[number] + b.work_watts * rail.work_share for b in benches])

        def of(name: str, levels: Array, number: int = number, spread: float = spread) -> Array:
            watts = readings(benches, number, name)
            step = AGX_ORIN.rails[number].step_watts
            return log_likelihood(watts, levels, spread, step, rho)

        pair = of("B", np.stack([exact, exact + more], axis=1))
        known += pair[:, 1] - pair[:, 0]
        levels = exact[:, None] + FITTED
        a, b, shifted = of("A", levels), of("B", levels), of("B", levels + more)
        fitted += (a + shifted).max(axis=1) - (a + b).max(axis=1)
    return known, fitted


def powers(seed: int, benches: int, difference: float) -> dict[str, float]:
    """Return the share of benches in which each test finds the difference."""
    random = np.random.default_rng(seed)
    without = ratios([make_bench(random, 0.0) for _ in range(benches)], difference)
    with_it = ratios([make_bench(random, difference) for _ in range(benches)], difference)
    names = ("knows every parameter", "knows the noise")
    return {
        name: float(np.mean(there > np.quantile(null, 0.99)))
        for name, null, there in zip(names, without, with_it, strict=True)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the power of both tests."""
    parser = argparse.ArgumentParser(prog="tests.truth.likelihood", description=__doc__)
    parser.add_argument("--benches", type=int, default=200)
    parser.add_argument("--difference", type=float, action="append")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    for difference in given.difference or [0.05]:
        for name, power in powers(seed, given.benches, difference).items():
            print(f"{difference:.1%} of 4 W, {name}: found in {power:.1%} of {given.benches}")
    print(f"false winners 2 % in both directions; seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

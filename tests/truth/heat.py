"""Boards that warm up, with random physics: ``python -m tests.truth.heat``.

A board is a sum of one to three masses, drawn per world: the slowest time constant from 10 s to
30 min (log-uniform), each other 4 to 12 times as fast. The whole rise without leakage is 15 to
50 °C. Leakage grows with the temperature, which makes the rise 3 to 33 % larger, and slower. A
quarter has a fan of three steps with hysteresis, at random temperatures. Above a trip point the
clock falls by a step of 3 to 8 % per second, and it rises again below a hysteresis. The trip point
is at 0.75 to 2.6 times the rise, so that some throttle. A fifth has a power budget. Power and rate
go with random powers of the clock. Half of the boards are warm in part when the work begins. The
air drifts by up to 0.8 °C in waves of 30 to 90 min. The sensor has noise of 0.02 to 0.2 °C and
rounds to 1/32 °C (three of four), 0.5 °C or 1 °C. The rate has noise of 0.1 to 0.8 %.

The product sees the first five minutes, ten readings per second. The truth is the mean of ten
minutes that begin after 30 min, or after six times the slowest constant if that is later.
"""

import argparse
import secrets
import sys
import time
from dataclasses import dataclass

import numpy as np

from tegrascope.workbench.results.forecast import HeatUp, foresee

WORLDS = 100
SEEN_SECONDS = 300
STEP_SECONDS = 0.5
READINGS_PER_STEP = 5
SLOW_SECONDS = 600.0
LEAST_SHOWN, LEAST_RIGHT = 0.70, 0.95
RATE_RATIO, CELSIUS = 0.02, 2.0


@dataclass
class Boards:
    """Random boards, one per place of each array of shape (n,), (n, 2) or (n, 3)."""

    constants: np.ndarray
    resistance: np.ndarray
    air: np.ndarray
    idle: np.ndarray
    work: np.ndarray
    leak: np.ndarray
    power_of_clock: np.ndarray
    rate_of_clock: np.ndarray
    rate: np.ndarray
    trip: np.ndarray
    hysteresis: np.ndarray
    clock_step: np.ndarray
    has_fan: np.ndarray
    fan_on: np.ndarray
    fan_hysteresis: np.ndarray
    cooling: np.ndarray
    budget: np.ndarray
    drift: np.ndarray
    period: np.ndarray
    phase: np.ndarray
    noise: np.ndarray
    step: np.ndarray
    rate_noise: np.ndarray
    warm: np.ndarray
    slowest: np.ndarray


def log_uniform(random, low, high, size):
    return np.exp(random.uniform(np.log(low), np.log(high), size))


def draw_boards(random, n=WORLDS):
    uniform = random.uniform
    slow = log_uniform(random, 10.0, 1800.0, n)
    middle = slow / uniform(4, 12, n)
    constants = np.stack([slow, middle, middle / uniform(4, 12, n)], axis=1)
    masses = random.integers(1, 4, n)
    shares = random.dirichlet([4, 2, 2], n) * (np.arange(3) < masses[:, None])
    shares /= shares.sum(axis=1, keepdims=True)
    rise, gain, air = uniform(15, 50, n), uniform(0.03, 0.25, n), uniform(15, 40, n)
    idle, work = uniform(2, 8, n), uniform(5, 40, n)
    resistance = rise / (idle + work)
    leak = gain / resistance
    whole = rise / (1 - gain)
    slowest = np.empty(n)
    for i, size in enumerate(masses):
        part, each = resistance[i] * shares[i, :size], constants[i, :size]
        flow = np.outer(part / each, np.full(size, leak[i])) - np.diag(1 / each)
        slowest[i] = 1 / np.abs(np.linalg.eigvals(flow)).min()
    return Boards(
        constants=constants,
        resistance=resistance[:, None] * shares,
        air=air,
        idle=idle,
        work=work,
        leak=leak,
        power_of_clock=uniform(1.2, 3, n),
        rate_of_clock=uniform(0.6, 1, n),
        rate=log_uniform(random, 5.0, 300.0, n),
        trip=air + whole * uniform(0.75, 2.6, n),
        hysteresis=uniform(0.5, 3, n),
        clock_step=uniform(0.03, 0.08, n),
        has_fan=uniform(0, 1, n) < 0.25,
        fan_on=air[:, None] + whole[:, None] * np.sort(uniform(0.3, 0.95, (n, 2)), axis=1),
        fan_hysteresis=uniform(2, 8, n),
        cooling=np.stack([np.ones(n), uniform(0.7, 0.9, n), uniform(0.5, 0.7, n)], axis=1),
        budget=np.where(uniform(0, 1, n) < 0.2, (idle + work) * uniform(0.9, 1.1, n), np.inf),
        drift=uniform(0, 0.4, n),
        period=uniform(1800, 5400, n),
        phase=uniform(0, 2 * np.pi, n),
        noise=log_uniform(random, 0.02, 0.2, n),
        step=random.choice([1 / 32, 0.5, 1.0], n, p=[0.75, 0.15, 0.1]),
        rate_noise=log_uniform(random, 0.001, 0.008, n),
        warm=uniform(0, 0.3, n) * (uniform(0, 1, n) < 0.5),
        slowest=slowest,
    )


@dataclass
class Heated:
    """The first minutes of each board, shape (n, times), and the truth of its end, shape (n,)."""

    celsius: np.ndarray
    rate: np.ndarray
    fan: np.ndarray
    is_held: np.ndarray
    end_celsius: np.ndarray
    end_rate: np.ndarray


def heat(boards, random):
    n, rows = len(boards.air), np.arange(len(boards.air))
    warmth = boards.resistance * boards.idle[:, None]
    idle_celsius = boards.air + warmth.sum(axis=1)
    warmth[:, 0] += boards.warm * boards.resistance[:, 0] * boards.work
    lowered, fan = np.zeros(n, int), np.zeros(n, int)
    begin = np.maximum(1800.0, 6 * boards.slowest)
    end_celsius, end_rate, count = np.zeros((3, n))
    celsius, rates, fans, held = [], [], [], []
    swing = np.zeros(n)
    for number in range(int((begin.max() + 600) / STEP_SECONDS)):
        at = number * STEP_SECONDS
        wave = np.sin(2 * np.pi * at / boards.period + boards.phase) - np.sin(boards.phase)
        true = boards.air + boards.drift * wave + warmth.sum(axis=1)
        leaked = boards.leak * (true - idle_celsius)
        room = np.maximum((boards.budget - boards.idle - leaked) / boards.work, 0.05)
        clock = np.minimum(1 - lowered * boards.clock_step, room ** (1 / boards.power_of_clock))
        watts = boards.idle + leaked + boards.work * clock**boards.power_of_clock
        rate = boards.rate * clock**boards.rate_of_clock
        if at < SEEN_SECONDS:
            noise = random.normal(0, 1, (READINGS_PER_STEP, n)) * boards.noise
            celsius.extend(np.round((true + noise) / boards.step) * boards.step)
            swing = 0.5**0.5 * swing + 0.5**0.5 * random.normal(0, 1, n)
            rates.append(rate * (1 + boards.rate_noise * swing))
            fans.append(fan * boards.has_fan)
            held.append(lowered > 0)
        if number % 2 == 0:
            hot, cold = true > boards.trip, true < boards.trip - boards.hysteresis
            lowered = np.clip(lowered + hot.astype(int) - cold.astype(int), 0, 10)
            up = (fan < 2) & (true > boards.fan_on[rows, np.minimum(fan, 1)])
            fan = fan + up
            limit = boards.fan_on[rows, np.maximum(fan - 1, 0)] - boards.fan_hysteresis
            fan = fan - ((fan > 0) & (true < limit))
        better = np.where(boards.has_fan, boards.cooling[rows, fan], 1.0)
        resistance, constants = boards.resistance.copy(), boards.constants.copy()
        resistance[:, 0] *= better
        constants[:, 0] *= better
        share = 1 - np.exp(-STEP_SECONDS / constants)
        warmth = warmth + share * (resistance * watts[:, None] - warmth)
        counts = (at >= begin) & (at < begin + 600)
        end_celsius += counts * true
        end_rate += counts * rate
        count += counts
    seen = (np.array(each).T for each in (celsius, rates, fans, held))
    return Heated(*seen, end_celsius / count, end_rate / count)


def heat_up(boards, heated, place):
    """Return what the product sees of one board."""
    times = (np.arange(heated.celsius.shape[1]) + 0.5) * STEP_SECONDS / READINGS_PER_STEP
    edges = np.arange(heated.rate.shape[1] + 1) * STEP_SECONDS
    done = np.concatenate([[0.0], np.cumsum(heated.rate[place] * STEP_SECONDS)])
    ended = np.interp(np.arange(1, int(done[-1])), done, edges)
    steps = np.diff(heated.fan[place])
    held = [*np.flatnonzero(heated.is_held[place]), *np.flatnonzero(steps < 0)]
    since = 0.0
    if held:
        since = edges[min(held)]
    elif steps.any():
        since = edges[np.flatnonzero(steps)[-1] + 1]
    return HeatUp(
        seconds=float(SEEN_SECONDS),
        times=times,
        celsius=heated.celsius[place],
        ended=ended,
        trip_celsius=float(boards.trip[place]),
        since_seconds=since,
        is_held=bool(held),
        may_step=bool(boards.has_fan[place] and heated.fan[place, -1] < 2),
        only_warms=not steps.any(),
    )


@dataclass
class Judged:
    """A world: its slowest constant, whether a forecast was shown, and its errors."""

    place: int
    slowest: float
    reason: str | None
    rate_error: float = 0.0
    celsius_error: float = 0.0
    holds: bool = True

    @property
    def is_right(self):
        return abs(self.rate_error) <= RATE_RATIO and abs(self.celsius_error) <= CELSIUS


def judge(seed, worlds=WORLDS):
    random = np.random.default_rng(seed)
    boards = draw_boards(random, worlds)
    heated = heat(boards, random)
    judged = []
    for place in range(worlds):
        found = foresee(heat_up(boards, heated, place))
        one = Judged(place, float(boards.slowest[place]), found.reason)
        if found.celsius is not None and found.rate_per_second is not None:
            rate, celsius = heated.end_rate[place], heated.end_celsius[place]
            one.rate_error = found.rate_per_second.value / rate - 1
            one.celsius_error = found.celsius.value - celsius
            one.holds = (
                found.celsius.low <= celsius <= found.celsius.high
                and found.rate_per_second.low <= rate <= found.rate_per_second.high
            )
        judged.append(one)
    return judged


def shares(judged):
    """Return the share of quick worlds with a forecast, and the share of right forecasts."""
    quick = [one for one in judged if one.slowest <= SLOW_SECONDS]
    shown = [one for one in judged if one.reason is None]
    known = sum(one.reason is None for one in quick) / len(quick)
    return known, sum(one.is_right for one in shown) / len(shown)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args(argv)
    first = secrets.randbits(31) if arguments.seed is None else arguments.seed
    began, judged = time.monotonic(), []
    for seed in range(first, first + arguments.seeds):
        of_seed = judge(seed)
        judged += of_seed
        known, right = shares(of_seed)
        print(f"seed {seed}: shown {100 * known:.1f} %, right {100 * right:.1f} %", flush=True)
        for one in of_seed:
            if one.reason is None and not one.is_right:
                print(
                    f"  world {one.place}, {one.slowest:.0f} s: rate {100 * one.rate_error:+.1f} %,"
                    f" {one.celsius_error:+.1f} °C"
                )
    known, right = shares(judged)
    shown = [one for one in judged if one.reason is None]
    holds = sum(one.holds for one in shown) / len(shown)
    slow = sum(one.slowest > SLOW_SECONDS for one in shown)
    rate = sum(abs(one.rate_error) <= RATE_RATIO for one in shown) / len(shown)
    warm = sum(abs(one.celsius_error) <= CELSIUS for one in shown) / len(shown)
    print(
        f"{len(judged)} worlds in {time.monotonic() - began:.0f} s: shown in {100 * known:.1f} % of"
        f" those within {SLOW_SECONDS / 60:.0f} min; {len(shown)} shown, {slow} of them slower;"
        f" rate right in {100 * rate:.1f} %, temperature in {100 * warm:.1f} %, both in"
        f" {100 * right:.1f} %; both intervals hold the truth in {100 * holds:.1f} %"
    )
    reasons = {}
    for one in judged:
        if one.reason is not None and one.slowest <= SLOW_SECONDS:
            name = one.reason.partition(" be ")[0].partition(",")[0]
            reasons[name] = reasons.get(name, 0) + 1
    print(reasons)
    return int(known < LEAST_SHOWN or right < LEAST_RIGHT)


if __name__ == "__main__":
    sys.exit(main())

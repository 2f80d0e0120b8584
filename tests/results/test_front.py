"""Racing: in simulated worlds with a known front, what is dropped was not on it."""

import random
from collections.abc import Sequence
from itertools import product
from math import sqrt
from typing import NamedTuple

from tegrascope.daemon.measure.latency import distribution
from tegrascope.workbench.results.front import (
    Drop,
    Known,
    Race,
    estimate,
    goals_of,
    reading_of,
    tied,
)

from .bench_fakes import report

PASSES, LOOK = 4, 0.25  # rounds of each, and how long a look takes, in rounds
SIGN = {"latency": 1, "throughput": -1, "energy": 1, "gpu_freed": 1}
GOALS = ("latency", "energy", "gpu_freed")


class World(NamedTuple):
    """The true figures of each candidate, and how much of the work's power and speed drifts."""

    truth: list[dict[str, float]]
    drift: float
    noise: float
    random: random.Random


def make_world(seed: int) -> World:
    """A model on a GPU and a DLA: batch, streams and precision, with laws of a kind of board."""
    rng = random.Random(seed)
    fixed, each = rng.uniform(0.2, 1.5), rng.uniform(0.3, 4.0)  # ms per inference, per input
    idle, cost = rng.uniform(0.5, 2.5), rng.uniform(4.0, 20.0)  # W while it waits, mJ per input
    int8 = rng.uniform(0.45, 1.1)  # of fp16, in time and energy
    dla_time, dla_cost = rng.uniform(1.5, 6.0), rng.uniform(0.3, 1.2)
    fallback = rng.choice((0.0, 0.01, 0.2))
    axes = (
        ("gpu", "dla0"),
        (1, 2, 4, 8, 16)[: rng.randint(4, 5)],
        rng.choice(((1, 2), (1, 2, 4))),
        ("fp16", "int8"),
        rng.choice(((100,), (50, 100), (25, 50, 100))),
        rng.choice(((1.0,), (0.6, 1.0))),
    )
    truth = []
    for device, batch, streams, precision, share, clock in product(*axes):
        if device == "dla0" and share < 100:
            continue
        own = rng.uniform(0.97, 1.03)  # an engine has kernels of its own
        quick = int8 if precision == "int8" else 1.0
        work = each * batch * own * quick / clock
        # A small batch does not fill the whole GPU, so it loses less with a share of it.
        whole = min(1.0, 0.4 + batch / 8)
        work *= dla_time if device == "dla0" else max(1.0, 100 / share * whole)
        # Streams fill what the host leaves idle, and share the rest.
        gap = fixed * (0.3 + 0.7 / streams)
        seconds = (fixed + work if streams == 1 else gap / streams + work) / 1e3
        latency = streams * seconds
        joules = cost * own * quick * (0.5 + 0.5 * clock) / 1e3
        joules *= dla_cost if device == "dla0" else 1.0
        busy = work / (seconds * 1e3)
        truth.append(
            {
                "latency": latency,
                "throughput": batch / seconds,
                "energy": joules + idle * seconds / batch,
                "gpu_freed": min(0.99, busy) if device == "gpu" else fallback * busy,
                "p99": 1.08 * latency,
            }
        )
    return World(truth, rng.uniform(-0.02, 0.02), rng.uniform(0.002, 0.012), rng)


def measure(world: World, candidate: int, at: float, *, is_look: bool = False) -> dict[str, Known]:
    """Return the figures of a round at a time of the bench, from 0 to 1."""
    rng, true = world.random, world.truth[candidate]
    common = 1 + world.drift * at + rng.gauss(0, world.noise)
    sensor = 0.04 if is_look else 0.015  # half of an interval
    found = {}
    for name in ("latency", "energy", "p99"):
        found[name] = true[name] * common
    found["energy"] *= 1 + rng.gauss(0, sensor / 2)
    found["p99"] *= 1 + rng.gauss(0, 0.02)
    found["throughput"] = true["throughput"] / common
    found["gpu_freed"] = true["gpu_freed"] + rng.uniform(-0.005, 0.005)
    halves = {"latency": 0.003, "energy": sensor}
    return {
        name: Known(value, 0.005 if name == "gpu_freed" else halves.get(name, 0.0) * value)
        for name, value in found.items()
    }


class Raced(NamedTuple):
    """The front of a race, intervals as of an exhaustive bench, and the share of its time."""

    front: list[int]
    halves: list[dict[str, float]]
    share: float


def run_race(world: World, race: Race | None = None) -> Raced:
    count = len(world.truth)
    race = race or Race(count, goals_of(None, has_energy=True))
    spent = 0.0
    for _ in range(2):
        for one in race.left:
            race.add(one, measure(world, one, 0.0, is_look=True), is_look=True)
            spent += LOOK
        race.close()
    for number in range(PASSES):
        order = race.running if number % 2 == 0 else race.running[::-1]
        for place, one in enumerate(list(order)):
            race.add(one, measure(world, one, (number + place / len(order)) / PASSES))
            spent += 1
        race.close()
    every = [
        [measure(world, one, (number + one / count) / PASSES) for number in range(PASSES)]
        for one in range(count)
    ]
    halves = [{name: f.half for name, f in found.items()} for found in estimate(every)]
    return Raced(race.left, halves, spent / (PASSES * count))


def true_front(
    truth: list[dict[str, float]], among: Sequence[int], goals: tuple[str, ...]
) -> list[int]:
    """Compare every candidate with every other by its true figures."""
    return [
        one
        for one in among
        if not any(
            all(SIGN[g] * truth[other][g] <= SIGN[g] * truth[one][g] for g in goals)
            and any(SIGN[g] * truth[other][g] < SIGN[g] * truth[one][g] for g in goals)
            for other in among
        )
    ]


def is_missed(world: World, raced: Raced, one: int, goals: tuple[str, ...]) -> bool:
    """Whether no point that was found is as good within the interval of an exhaustive bench.

    For the load of the GPU, two points are within any interval: readings differ by as much.
    """
    least = {"gpu_freed": 0.02}

    def is_as_good(found: int) -> bool:
        return all(
            SIGN[g] * (world.truth[found][g] - world.truth[one][g])
            <= max(sqrt(2) * raced.halves[one][g], least.get(g, 0.0))
            for g in goals
        )

    return not any(map(is_as_good, raced.front))


def test_front_of_200_worlds_is_found_in_a_third_of_the_time():
    """A point is missed if it is better beyond the interval of a difference; the time is a mean."""
    shares, missed = [], []
    for seed in range(200):
        world = make_world(seed)
        raced = run_race(world)
        shares.append(raced.share)
        whole = true_front(world.truth, range(len(world.truth)), GOALS)
        missed += [(seed, one) for one in whole if is_missed(world, raced, one, GOALS)]
    assert missed == []
    assert sum(shares) / len(shares) <= 0.36


def test_below_a_limit_of_latency_the_best_throughput_and_energy_are_found():
    for seed in range(40):
        world = make_world(seed)
        limit = sorted(one["p99"] for one in world.truth)[len(world.truth) // 2]
        race = Race(len(world.truth), goals_of(limit, has_energy=True), limit)
        raced = run_race(world, race)
        below = [n for n, one in enumerate(world.truth) if one["p99"] <= 0.95 * limit]
        found = race.estimates()
        sure = [n for n in raced.front if race.meets(found[n])]
        assert all(world.truth[n]["p99"] <= 1.02 * limit for n in sure)
        for goal in ("throughput", "energy"):
            best, *others = tied(found, sure, goal)
            truth = [SIGN[goal] * one[goal] for one in world.truth]
            least = min(truth[n] for n in below)
            unsure = sqrt(2) * raced.halves[best][goal]
            assert min(truth[n] for n in (best, *others)) <= least + unsure, (seed, goal)


def test_equal_candidates_stay():
    race = Race(2, GOALS)
    for one in (0, 1, 1, 0):
        race.add(one, {"latency": Known(2e-3), "energy": Known(1.0), "gpu_freed": Known(0.5)})
    assert race.close() == []
    assert race.left == [0, 1]


def test_of_two_that_beat_each_other_within_the_margins_one_stays():
    race = Race(2, ("latency", "throughput"))
    race.add(0, {"latency": Known(1.0000), "throughput": Known(1.000)})
    race.add(1, {"latency": Known(1.0060), "throughput": Known(1.006)})
    for _ in range(4000):  # the spread vanishes
        race.add(0, {"latency": Known(1.0000), "throughput": Known(1.000)})
        race.add(1, {"latency": Known(1.0060), "throughput": Known(1.006)})
    dropped = race.close()
    assert (len(dropped), len(race.left)) == (1, 1)


def test_who_is_surely_on_the_front_needs_no_more_rounds():
    race = Race(3, GOALS)
    for _ in range(3):
        race.add(0, {"latency": Known(1e-3), "energy": Known(1.0), "gpu_freed": Known(0.9)})
        race.add(1, {"latency": Known(9e-3), "energy": Known(0.5), "gpu_freed": Known(0.1)})
        # It may be better than the first in all that counts, or as good.
        race.add(2, {"latency": Known(1e-3), "energy": Known(1.01), "gpu_freed": Known(0.9)})
        assert race.running == [0, 1, 2]
        assert race.close() == []
    assert race.running == [0, 2]
    assert race.left == [0, 1, 2]


def test_figure_that_only_one_has_drops_nobody():
    race = Race(2, GOALS)
    race.add(0, {"latency": Known(1e-3), "gpu_freed": Known(0.1)})
    race.add(1, {"latency": Known(9e-3), "gpu_freed": Known(0.9), "energy": Known(1.0)})
    assert race.close() == []


def test_candidate_above_the_limit_is_out_and_drops_nobody():
    race = Race(2, ("throughput",), 0.02)
    race.add(0, {"throughput": Known(500.0), "p99": Known(0.040)})
    race.add(1, {"throughput": Known(100.0), "p99": Known(0.010)})
    assert race.close() == [Drop(0)]
    assert race.left == [1]


def test_99th_percentile_of_few_inferences_is_not_sure():
    """One late inference of a look takes no candidate out."""
    times = [2_000_000] * 180 + [90_000_000] * 4
    late = report(ms=2.0).model_copy(update={"latency": distribution(times)})
    race = Race(1, ("throughput",), 0.02)
    race.add(0, reading_of(late, None), is_look=True)
    assert race.close() == []
    always = report(ms=30.0).model_copy(update={"latency": distribution([30_000_000] * 184)})
    race = Race(1, ("throughput",), 0.02)
    race.add(0, reading_of(always, None), is_look=True)
    assert race.close() == [Drop(0)]

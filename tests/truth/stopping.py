"""Benches that may stop early, in random worlds: ``python -m tests.truth.stopping``.

A bench has two candidates, A and B, on one board with one random work by the distribution of
``random_bench``. An inference of B takes 0, 2, 5 or 20 % longer and draws the same power, so its
latency and its net energy are that much higher. Rounds, passes and looks are those of the product's
plan (``RoundPlan``), and a pause of 1.3 s is before each round: the warm-up, the order and the last
sample. The latency of each round deviates by chance, by a standard deviation of 0.02 to 1 % that is
drawn per bench, log-uniform. A third of the benches is no worse than that; in a third, latency
drifts by up to 10 % either way and power grows by up to 20 % along the bench; in a third, the work
heats the board, and latency rises by up to 10 % with a time constant of 20 to 120 s.

At each look the product judges (``summarise``), and the bench stops when latency and energy are
answered. A winner is false if the candidates are equal, or if it is B. Beside that, fewer benches
of the fixed plan (``--rounds 4``) are drawn and judged likewise.
"""

import argparse
import multiprocessing
import secrets
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

import numpy as np

from tegrascope.workbench.bench.run import RoundPlan, in_turn
from tegrascope.workbench.bench.settings import (
    BRIEF_BASELINE,
    BRIEF_INTERVALS,
    BRIEF_ROUNDS,
    BRIEF_SECONDS,
    INTERVALS,
    SHORT_SECONDS,
)
from tegrascope.workbench.results.paired import power_of
from tegrascope.workbench.results.records import GoalName, ModelResult
from tegrascope.workbench.results.stopping import is_answered
from tegrascope.workbench.results.summary import Measured, Round, summarise

from .bench import DEVICES, Verdict
from .board import Random
from .pairing import run_live
from .random_bench import Conditions, Planned, drawn_difference, make_pair
from .worlds import World

DIFFERENCES = (0.0, 0.02, 0.05, 0.2)
KINDS = ("steady", "drift", "heat")
GOALS: tuple[GoalName, ...] = ("latency", "energy")
UNTIL = 0.03
PAUSE_SECONDS = 1.3
FIXED_ROUNDS = 4
SPREADS = (0.0002, 0.01)
MOST_DRIFT, MOST_GROWTH, SLOWNESS = 0.1, 0.2, (20.0, 120.0)
MOST_FALSE = 0.02
CHUNK = 4


@dataclass(frozen=True, slots=True)
class Judged:
    """What the product says of a bench when it ends.

    Attributes:
        seconds: By goal that has its right winner, when the look came that named it.
        known: The goals that have an interval.
        false: The goals that have a false winner.
        held: Whether the interval of the energies holds what was drawn; ``None`` without one.
        took: The seconds of the whole bench.
    """

    difference: float
    kind: str
    may_stop: bool
    seconds: dict[GoalName, float]
    known: frozenset[GoalName]
    false: frozenset[GoalName]
    held: bool | None
    took: float
    about: str


def plan_runs(random: Random, plan: RoundPlan, difference: float, kind: str) -> list[Planned]:
    """Return all rounds of a plan, in turns, with the latency of each."""
    shapes: list[tuple[str, float, float, float]] = []
    most = plan.most if plan.looks else plan.least
    for number in range(most):
        for name in in_turn("AB", number):
            if not plan.looks:
                shape = Planned(name)
                shapes.append((name, shape.work_seconds, shape.idle_seconds, shape.pause_seconds))
            elif number < plan.short:
                shapes.append((name, SHORT_SECONDS, 0.0, PAUSE_SECONDS))
            else:
                shapes.append((name, BRIEF_SECONDS, BRIEF_BASELINE, PAUSE_SECONDS))
    spread = np.exp(random.uniform(*np.log(SPREADS)))
    drift, slowness = random.uniform(-MOST_DRIFT, MOST_DRIFT), random.uniform(*SLOWNESS)
    ends = list(accumulate(work + 2 * idle + pause for _, work, idle, pause in shapes))
    runs = []
    for (name, work, idle, pause), at in zip(shapes, [0.0, *ends], strict=False):
        stretch = 1 + spread * random.standard_normal()
        if kind == "drift":
            stretch *= 1 + drift * at / ends[-1]
        if kind == "heat":
            stretch *= 1 + abs(drift) * (1 - np.exp(-at / slowness))
        if name == "B":
            stretch *= 1 + difference
        runs.append(Planned(name, work, idle, pause, float(stretch)))
    return runs


def judge_bench(order: tuple[int, int, bool]) -> Judged:
    """Judge the bench of a seed and a number, by the plan that may stop or by the fixed one."""
    seed, number, may_stop = order
    difference = DIFFERENCES[number % len(DIFFERENCES)]
    kind = KINDS[number // len(DIFFERENCES) % len(KINDS)]
    random = np.random.default_rng([seed, number, may_stop])
    plan = RoundPlan.of(FIXED_ROUNDS)
    intervals = INTERVALS
    if may_stop:
        plan, intervals = RoundPlan.of(BRIEF_ROUNDS, may_stop=True), BRIEF_INTERVALS
    planned = plan_runs(random, plan, difference, kind)
    growth = random.uniform(0, MOST_GROWTH) if kind == "drift" else 0.0
    runs = make_pair(random, planned, Conditions(growth, kind == "heat", intervals))
    done, at, named = 0, 0.0, dict[GoalName, float]()
    rounds: dict[str, list[Round]] = {"A": [], "B": []}
    result = ModelResult(model="truth")
    is_enough = False
    while plan.goes_on(done, is_enough):
        for place in (2 * done, 2 * done + 1):
            one = planned[place]
            rounds[one.name].append(_measure(runs[place], one.name, place, done < plan.short))
            at += one.seconds
        done += 1
        if done not in (plan.looks or (plan.least,)):
            continue
        result = _summary(rounds, plan.doubt_after(done))
        answered = []
        for goal in result.goals:
            if goal.goal not in GOALS:
                continue
            answered.append(is_answered(goal, UNTIL))
            if goal.winner == DEVICES["A"]:
                named.setdefault(goal.goal, at)
            else:
                named.pop(goal.goal, None)
        is_enough = all(answered) or not may_stop
    goals = {goal.goal: goal for goal in result.goals if goal.goal in GOALS}
    false = set()
    for name, goal in goals.items():
        if goal.winner == DEVICES["B"] or (goal.winner is not None and not difference):
            false.add(name)
    held = None
    if goals["energy"].interval is not None:
        whole = range(2 * plan.short, 2 * done)
        names = "".join(planned[place].name for place in whole)
        truth = drawn_difference([runs[place] for place in whole], "net", names)
        held = Verdict(goals["energy"], truth).holds
    return Judged(
        difference,
        kind,
        may_stop,
        named if difference else {},
        frozenset(name for name, goal in goals.items() if goal.interval is not None),
        frozenset(false),
        held,
        at,
        runs[0].about,
    )


def _measure(run: World, name: str, place: int, is_short: bool) -> Round:
    """Return a round as the product pairs it."""
    live = run_live(run, f"run{place}", run.second, DEVICES[name])
    nanoseconds = np.rint(run.setup.load.seconds * 1e9).astype(np.int64)
    power = None
    if not is_short:
        power = power_of(live.samples, live.report, live.rule, live.environment)
    latencies = array("q", nanoseconds.tobytes())
    return Round(live.report, latencies, power=power, is_short=is_short)


def _summary(rounds: dict[str, list[Round]], doubt: float) -> ModelResult:
    """Return the product's result of the rounds so far."""
    measured = [Measured(each[0].report, "ok", None, rounds=each) for each in rounds.values()]
    reports = sorted(
        (one.report for each in rounds.values() for one in each),
        key=lambda report: report.started_ns,
    )
    return summarise("truth", measured, reports, doubt)


def rows_of(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield a row of the table for each difference and goal."""
    for difference in DIFFERENCES:
        benches = [one for one in judged if one.difference == difference]
        for goal in GOALS:
            known = [one for one in benches if goal in one.known]
            times = [one.seconds[goal] for one in known if goal in one.seconds]
            false = sum(goal in one.false for one in benches)
            row = f"| {difference:.0%} | {goal} | {len(benches)} | {len(known)} | {len(times)} |"
            row += f" {false} |"
            row += f" {median(times):.0f} s |" if times else " – |"
            held = [one.held for one in known]
            yield row + (f" {held.count(True)} of {len(held)} |" if goal == "energy" else " |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the benches, print the tables, and return 1 if there are too many false winners."""
    parser = argparse.ArgumentParser(prog="tests.truth.stopping", description=__doc__)
    parser.add_argument("--benches", type=int, default=2000)
    parser.add_argument("--fixed", type=int, default=400, help="benches of the fixed plan")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    began = time.monotonic()
    print(f"seed {seed}, {given.benches} benches", flush=True)
    false_share = 0.0
    with multiprocessing.Pool(given.jobs) as pool:
        for may_stop, count in ((True, given.benches), (False, given.fixed)):
            judged: list[Judged] = []
            orders = [(seed, number, may_stop) for number in range(count)]
            for one in pool.imap(judge_bench, orders, chunksize=CHUNK):
                judged.append(one)
                if one.false:
                    words = f"{', '.join(one.false)}, {one.difference:.0%} apart, {one.kind}"
                    print(f"bench {len(judged) - 1}: false winner of {words}: {one.about}")
                if len(judged) % 100 == 0:
                    print(f"{len(judged)} benches, {time.monotonic() - began:.0f} s", flush=True)
            if not judged:
                continue
            false = sum(bool(one.false) for one in judged)
            took = median(one.took for one in judged)
            print("may stop early" if may_stop else f"--rounds {FIXED_ROUNDS}")
            print("| apart | goal | benches | known | right | false | median time | held |")
            print("\n".join(rows_of(judged)))
            print(f"false winners in {false} of {count}, median length {took:.0f} s", flush=True)
            if may_stop:
                false_share = false / count
    print(f"{time.monotonic() - began:.0f} s; seed {seed}")
    return int(false_share > MOST_FALSE)


if __name__ == "__main__":
    sys.exit(main())

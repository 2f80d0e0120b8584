"""Benches of the ground truth through the product: ``python -m tests.truth.bench``.

The world is that of ``likelihood``: an AGX Orin whose idle power wanders, two accelerators in ABBA
rounds; B draws more, or in an A/A bench the same. Printed is in how many benches each wins, and in
how many the interval of the difference holds the true one.
"""

import argparse
import os
import secrets
import sys
from array import array
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import stdev

import numpy as np

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.figures import energy_of, mean_energy
from tegrascope.daemon.measure.report import Device, Environment
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.measure.winner import MeanOfRuns, judge_runs
from tegrascope.parsers.inference.events import Inferences, Phase
from tegrascope.workbench.results.paired import power_of
from tegrascope.workbench.results.records import GoalResult, ModelResult
from tegrascope.workbench.results.summary import Measured, Round, summarise

from .likelihood import Bench, make_bench
from .pairing import ORIGIN_NS, WALL_NS
from .regimes import IDLE_SECONDS

DEVICES: dict[str, Device] = {"A": "gpu", "B": "dla0"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The product's verdict on the energy of a bench, and the true difference in joules."""

    goal: GoalResult
    truth: float

    @property
    def winner(self) -> str | None:
        """``A``, ``B`` or ``None``."""
        return next((name for name in DEVICES if DEVICES[name] == self.goal.winner), None)

    @property
    def holds(self) -> bool:
        """Whether the interval of the difference, of B less A, holds the truth."""
        interval = self.goal.interval
        if interval is None:
            return False
        # It is of the second in the sentence less the first.
        first = self.goal.sentence.split(" on ")[1]
        sign = 1 if first.startswith(DEVICES["A"]) else -1
        return interval.low <= sign * self.truth <= interval.high


def rounds_of(bench: Bench) -> "tuple[dict[str, list[Round]], float]":
    """Return the rounds of each as the product correlates them, and the true B less A in joules."""
    rule = find_rail_rule([rail.name for rail in bench.power.board.rails])
    environment = Environment()
    rounds: dict[str, list[Round]] = {"A": [], "B": []}
    joules: dict[str, list[float]] = {"A": [], "B": []}
    counts = {"A": 0, "B": 0}
    times = np.rint(bench.lines.arrived * 1e9).astype(np.int64) + ORIGIN_NS
    whole = WindowSlice(
        array("q", times.tobytes()),
        array("q", (times - ORIGIN_NS + WALL_NS).tobytes()),
        {
            f"rails.{rail.name}.instant_watts": array("d", bench.lines.watts[i].tobytes())
            for i, rail in enumerate(bench.power.board.rails)
        },
    )
    for number, (name, (begin, end)) in enumerate(zip(bench.order, bench.spans, strict=True)):
        trace = RunTrace(
            run_id=f"run{number}",
            workload=f"truth-{name}",
            backend="command",
            device=DEVICES[name],
            started_ns=_ns(begin - IDLE_SECONDS),
            started_wall_ns=WALL_NS,
            ended_ns=_ns(end + IDLE_SECONDS),
            outcome="ok",
        )
        spans = {
            "baseline_before": (begin - IDLE_SECONDS, begin),
            "steady": (begin, end),
            "baseline_after": (end, end + IDLE_SECONDS),
        }
        for phase, edges in spans.items():
            for edge, at in zip(("begin", "end"), edges, strict=True):
                event = Phase(run_id=trace.run_id, phase=phase, edge=edge, at_ns=_ns(at))
                assert trace.add(event)
        load = bench.loads[number]
        starts = (np.rint(load.starts * 1e9).astype(np.int64) + ORIGIN_NS).tolist()
        seconds = np.rint(load.seconds * 1e9).astype(np.int64).tolist()
        event = Inferences(run_id=trace.run_id, start_ns=starts, latency_ns=seconds)
        assert trace.add(event)
        cut = whole.around(trace.started_ns, trace.ended_ns)
        report = correlate(trace, cut, rule=rule, environment=environment)
        power = power_of(cut, report, rule, environment)
        rounds[name].append(Round(report, array("q", seconds), power=power))
        joules[name].append(bench.power.net(begin, end))
        counts[name] += len(starts)
    per_inference = {name: sum(joules[name]) / counts[name] for name in DEVICES}
    return rounds, per_inference["B"] - per_inference["A"]


def judge(bench: Bench) -> Verdict:
    """Return what the product makes of a bench."""
    rounds, truth = rounds_of(bench)
    goal = next(one for one in summary_of(rounds).goals if one.goal == "energy")
    return Verdict(goal, truth)


def summary_of(rounds: "dict[str, list[Round]]") -> ModelResult:
    """Return the product's result of the rounds of A and B."""
    measured = [
        Measured(each[0].report, "ok", None, rounds=each) for each in (rounds["A"], rounds["B"])
    ]
    reports = sorted(
        (one.report for each in rounds.values() for one in each),
        key=lambda report: report.started_ns,
    )
    return summarise("truth", measured, reports)


def answers_of(seed: int, *, difference: float, runs: int = 8) -> "tuple[list[str], float]":
    """Return the answers of the status page about energy after each run from the third on.

    They are those of ``judge_runs`` to A and B, in which B draws ``difference`` more; and the true
    difference of B less A, in joules.
    """
    random = np.random.default_rng(seed)
    rounds, truth = rounds_of(
        make_bench(random, difference, rounds=runs, seconds=10.1, interval=0.083)
    )
    answers = []
    for count in range(3, runs + 1):
        sides = []
        for name in DEVICES:
            figures = [energy_of(one.report, "net") for one in rounds[name][:count]]
            values = [figure.value for figure in figures if figure is not None]
            mean = mean_energy(figures)
            assert mean is not None
            sides.append(MeanOfRuns(mean, len(values), stdev(values)))
        answers.append(judge_runs(*sides).answer)
    return answers, truth


def _ns(seconds: float) -> int:
    return ORIGIN_NS + round(seconds * 1e9)


def verdict_of(seed: int, *, difference: float, drift: float = 0.0, rounds: int = 4) -> Verdict:
    """Return the verdict on one bench in which B draws ``difference`` (a share) more than A."""
    random = np.random.default_rng(seed)
    return judge(make_bench(random, difference, drift=drift, rounds=rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how often a difference is found, and how often one that is not there."""
    parser = argparse.ArgumentParser(prog="tests.truth.bench", description=__doc__)
    parser.add_argument("--benches", type=int, default=500)
    parser.add_argument("--difference", type=float, action="append")
    parser.add_argument("--drift", type=float, action="append")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, help="default: drawn now")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    seeds = range(seed, seed + given.benches)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for difference in given.difference or [0.0, 0.05]:
            for drift in given.drift or [0.0, 0.2]:
                bench = partial(verdict_of, difference=difference, drift=drift, rounds=given.rounds)
                found = list(pool.map(bench, seeds, chunksize=5))
                winners = [one.winner for one in found]
                print(
                    f"{difference:.1%} of 4 W, drift {drift:.0%}, {given.benches} benches:"
                    f" A wins in {winners.count('A')}, B in {winners.count('B')}, the interval"
                    f" holds the truth in {sum(one.holds for one in found)}",
                    flush=True,
                )
    print(f"seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Benches of two equal candidates in random worlds: ``python -m tests.truth.random_bench``.

A pair is one board with one random work, which both candidates do: work, rhythms, jobs beside,
sensor, printing, idle power, heat and clock are drawn once, by the distribution of ``worlds``. Four
rounds of each follow each other, A B B A A B B A, each of 15 s between idle phases of 8 s, and each
pass of two has an interval of its own, as in the product's bench. The course of the work is the
same in each round, as equal inputs make it; each inference is up to 4 % shorter by chance. Rhythms
within the work and jobs beside go on through all rounds.

The product judges each pair (``summarise``). A pair with a winner is a false winner. Net energy,
latency and throughput are goals of the product; gross energy is none, so its two figures are
compared as figures of a goal are. Equal candidates may draw unequal gross energy, because the idle
power of their rounds differs; so the energies that were drawn are compared with the intervals too.
"""

import argparse
import multiprocessing
import secrets
import sys
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tegrascope.daemon.measure.figures import difference
from tegrascope.daemon.measure.winner import judge
from tegrascope.workbench.bench.settings import BASELINE_SECONDS, INTERVALS, SHORTEST_SECONDS
from tegrascope.workbench.results.paired import power_of
from tegrascope.workbench.results.summary import Round

from . import worlds
from .bench import DEVICES, Verdict, summary_of
from .board import (
    AGX_ORIN,
    GRID_SECONDS,
    MOST_LAG_SECONDS,
    ORIN_NX,
    READ_SECONDS,
    Array,
    Lines,
    Random,
    Sensor,
    forgetting,
)
from .pairing import run_live
from .regimes import Setup, second_interval
from .worlds import Course, Register, World, load_cells

ORDER = "ABBAABBA"
PAUSE_SECONDS = 2.0
"""Between a run and the next, in which the program of the lines is started anew."""
SHORTER = 0.04
MOST_FALSE = 5
CHUNK = 5


@dataclass(frozen=True, slots=True)
class Planned:
    """A run of a bench: whose it is, and the seconds of its work and of each idle phase.

    ``stretch`` is by how much its inferences take longer than those of the pair, as a factor. In
    the pause between a run and the next the program of the lines may be started anew.
    """

    name: str
    work_seconds: float = SHORTEST_SECONDS
    idle_seconds: float = BASELINE_SECONDS
    pause_seconds: float = PAUSE_SECONDS
    stretch: float = 1.0

    @property
    def seconds(self) -> float:
        """From the begin of the run to that of the next one."""
        return 2 * self.idle_seconds + self.work_seconds + self.pause_seconds


@dataclass(frozen=True, slots=True)
class Conditions:
    """How the power of the work grows along all runs, whether it heats, and how it is sampled.

    ``intervals`` are those between lines, one per pass of two runs, in turn.
    """

    drift: float = 0.0
    heats: bool = False
    intervals: tuple[float, ...] = INTERVALS


EQUAL = tuple(map(Planned, ORDER))
USUAL = Conditions()


def make_pair(
    random: Random, runs: Sequence[Planned] = EQUAL, conditions: Conditions = USUAL
) -> list[World]:
    """Return the runs of a bench of two candidates; without ``runs`` of two equal ones."""
    long = max(run.work_seconds for run in runs)
    ends = worlds.LEAD_SECONDS + np.cumsum([run.seconds for run in runs])
    whole = float(ends[-1]) + worlds.LEAD_SECONDS
    begins = ends - [run.seconds - run.idle_seconds for run in runs]
    board = ORIN_NX if random.random() < 2 / 3 else AGX_ORIN
    count, cells = round(whole / GRID_SECONDS), round(long / GRID_SECONDS)
    edges = np.arange(count + 1) * GRID_SECONDS
    middles = (edges[1:] + edges[:-1]) / 2
    firsts = [round(begin / GRID_SECONDS) for begin in begins]

    watts = random.uniform(2, 10)
    once, _rhythm = worlds.draw_inferences(random, watts, 0.0, long)
    level_name, level = worlds.draw_level(random, middles[:cells], 0.0, long)
    loads, added, inside = [], np.zeros(count), np.zeros(count)
    for run, first, begin in zip(runs, firsts, begins, strict=True):
        shorter = 1 - SHORTER * random.random(len(once.seconds))
        seconds, starts = once.seconds * shorter * run.stretch, once.starts * run.stretch
        fits = starts + seconds <= run.work_seconds
        load = replace(once, seconds=seconds[fits], starts=starts[fits])
        cells = round(run.work_seconds / GRID_SECONDS)
        course: Array | float = watts
        if load.is_gated:
            course = 0.0
            if len(load.starts):
                course = load_cells(load, edges[: cells + 1])
        grown = 1 + conditions.drift * begin / whole
        added[first : first + cells] = course * level[:cells] * grown
        inside[first : first + cells] = 1
        end = begin + run.work_seconds
        loads.append(replace(load, begin=begin, end=end, starts=load.starts + begin))
    mean_work = float(added.sum() / inside.sum())
    about = [board.name, "gated" if once.is_gated else "", level_name]
    if random.random() < 0.45:
        within = worlds.draw_rhythm(random, mean_work, 0.0, whole)
        added = added + within.cells(edges) * inside
        about.append(f"within({np.diff(within.ticks).mean():.4f}s {within.watts:.2f}W)")
    foreign, kind = np.zeros(count), random.random()
    if kind < 0.25:
        beside = worlds.draw_rhythm(random, mean_work, 0.0, whole)
        foreign = beside.cells(edges)
        about.append(f"beside({np.diff(beside.ticks).mean():.4f}s {beside.watts:.2f}W)")
    elif kind < 0.30:
        at = random.choice(begins) + random.uniform(0, long)
        ends = at + random.uniform(0.2, 4)
        pulse = np.clip(np.minimum(edges[1:], ends) - np.maximum(edges[:-1], at), 0, None)
        added = added + pulse / GRID_SECONDS * random.uniform(0.5, 10) * inside
        about.append("once")
    if random.random() < 0.2 or conditions.heats:
        heat = forgetting(added, random.uniform(5, 30))
        added = added + random.uniform(0, 0.1) * (heat - heat[0])
        about.append("heat")
    idle_name, idle = worlds.draw_idle(random, board, count)
    power = Course(board, whole, idle, added, foreign)
    peak = float(np.max(power.rails[0][inside > 0]))
    low = float(np.mean(power.rails[0][middles < begins[0]]))
    limit = low + random.uniform(0.5, 0.95) * (peak - low)
    register = worlds.draw_register(random, limit, float(begins[0]), float(begins[-1] + long))
    about += [idle_name, register.kind + (f"({register.seconds:.3f}s)" if register.seconds else "")]

    printed = _printed(random, runs, conditions.intervals)
    lag = random.uniform(0, MOST_LAG_SECONDS)
    lines = Lines(printed, printed, worlds.read_register(power, register, printed - lag))
    part = worlds.read_register(power, Register(), printed - lag)[0]
    every = second_interval(conditions.intervals[0])
    second_times = np.arange(random.uniform(0, every), whole, every)
    second_times = second_times + random.uniform(0, 0.002, len(second_times))
    second = (second_times, worlds.read_register(power, register, second_times))
    steps: list[tuple[float, float]] = []
    if random.random() < 0.2:
        for _ in range(random.integers(1, 6)):
            size = worlds.log_uniform(random, 0.001, 10.0) * random.choice([-1, 1])
            steps.append((random.uniform(1, whole), float(size)))
        about.append("clock")
    averages = register.seconds if register.kind in ("forgets", "mean") else 0.0
    sensor = Sensor(averages_seconds=averages, states_averaging=register.kind != "slow")
    shares = (0.6, 0.3)[: len(board.contained)]
    parts = np.array([part * share for share in shares]).reshape(len(shares), len(printed))
    return [
        World(
            setup=Setup(load, idle_seconds=run.idle_seconds, board=board, sensor=sensor),
            power=power,
            lines=lines,
            begin=load.begin,
            end=load.end,
            register=register,
            second=second,
            steps=tuple(sorted(steps)),
            rhythms=(),
            parts=parts,
            about=" ".join(filter(None, about)),
            is_hidden=False,
            is_hidden_in_both=False,
            is_net_hidden=False,
        )
        for run, load in zip(runs, loads, strict=True)
    ]


def _printed(random: Random, runs: Sequence[Planned], intervals: Sequence[float]) -> Array:
    """Return when lines are printed; the program begins anew with each pass of two runs."""
    own = random.uniform(*READ_SECONDS) if random.random() < 0.5 else None
    lost = random.uniform(0.01, 0.05) if random.random() < 0.1 else 0.0
    passes, begin = [], worlds.LEAD_SECONDS
    for number, (one, other) in enumerate(zip(runs[::2], runs[1::2], strict=True)):
        interval, long = intervals[number % len(intervals)], one.seconds + other.seconds
        count = int(long / interval) + 2
        if own is None:
            reading = random.uniform(*READ_SECONDS, count)
        else:
            reading = own + random.uniform(-0.0005, 0.0005, count)
        steps = interval + reading
        steps[0] = random.uniform(0, steps[0])
        # The last pause of a pass is that of the start of the next program.
        pause = one.pause_seconds
        printed = begin - pause / 2 + np.cumsum(steps)
        printed = printed[printed < begin + long - 1.5 * pause]
        passes.append(printed[random.random(len(printed)) >= lost])
        begin += long
    return np.concatenate(passes)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the product says of a pair.

    ``winners`` has each goal that is known, and ``held`` whether the interval of a difference of
    energies holds the difference of what was drawn.
    """

    number: int
    about: str
    winners: dict[str, str | None]
    held: dict[str, bool]
    sentence: str


def drawn_difference(runs: Sequence[World], kind: str, order: str = ORDER) -> float:
    """Return by how much more B drew per inference than A, in joules."""
    joules, counts = dict.fromkeys(DEVICES, 0.0), dict.fromkeys(DEVICES, 0)
    for name, run in zip(order, runs, strict=True):
        joules[name] += getattr(run.power, kind)(run.begin, run.end)
        counts[name] += len(run.setup.load.starts)
    return joules["B"] / counts["B"] - joules["A"] / counts["A"]


def judge_pair(order: tuple[int, int]) -> Judged:
    """Judge the pair of a seed and a number."""
    seed, number = order
    runs = make_pair(np.random.default_rng([seed, number]))
    rounds: dict[str, list[Round]] = {"A": [], "B": []}
    for place, (name, run) in enumerate(zip(ORDER, runs, strict=True)):
        live = run_live(run, f"run{place}", run.second, DEVICES[name])
        nanoseconds = np.rint(run.setup.load.seconds * 1e9).astype(np.int64)
        power = power_of(live.samples, live.report, live.rule, live.environment)
        latencies = array("q", nanoseconds.tobytes())
        rounds[name].append(Round(live.report, latencies, power=power))
    result = summary_of(rounds)
    winners: dict[str, str | None] = {}
    held: dict[str, bool] = {}
    sentence = ""
    for goal in result.goals:
        if goal.interval is None:
            continue
        if goal.goal == "energy":
            verdict = Verdict(goal, drawn_difference(runs, "net"))
            winners["net energy"], held["net energy"] = verdict.winner, verdict.holds
            sentence = goal.sentence
        else:
            winners[goal.goal] = goal.winner
    gross = difference(*(one.gross_joules_per_inference for one in result.accelerators))
    if gross is not None and gross.low is not None and gross.high is not None:
        # It is of A less B.
        winners["gross energy"] = {"first": "A", "second": "B"}.get(judge(gross))
        held["gross energy"] = gross.low <= -drawn_difference(runs, "gross") <= gross.high
    return Judged(number, runs[0].about, winners, held, sentence)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the pairs, print the winners, and return 1 if there are too many."""
    parser = argparse.ArgumentParser(prog="tests.truth.random_bench", description=__doc__)
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    began = time.monotonic()
    print(f"seed {seed}, {given.pairs} pairs", flush=True)
    known, false, held = Counter[str](), Counter[str](), Counter[str]()
    with multiprocessing.Pool(given.jobs) as pool:
        orders = [(seed, number) for number in range(given.pairs)]
        for done, one in enumerate(pool.imap(judge_pair, orders, chunksize=CHUNK), 1):
            held.update(goal for goal, is_held in one.held.items() if is_held)
            for goal, winner in one.winners.items():
                known[goal] += 1
                if winner is not None:
                    false[goal] += 1
                    print(f"pair {one.number}: {goal}, {winner} wins: {one.about}", flush=True)
                    print(f"   {one.sentence}", flush=True)
            if done % 50 == 0:
                print(f"{done} pairs, {time.monotonic() - began:.0f} s: {dict(false)}", flush=True)
    for goal in sorted(known):
        words = f"{goal}: known in {known[goal]} pairs, false winners in {false[goal]}"
        if goal in held:
            words += f", the interval holds what was drawn in {held[goal]}"
        print(words)
    print(f"{time.monotonic() - began:.0f} s; seed {seed}")
    return int(false["net energy"] > MOST_FALSE or false["gross energy"] > MOST_FALSE)


if __name__ == "__main__":
    sys.exit(main())

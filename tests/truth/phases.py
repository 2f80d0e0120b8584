"""Energy by phase against the ground truth: ``python -m tests.truth.phases --runs 200``.

An application answers requests: a short phase with much power, a long one with less, and pauses.
Prints, for each world and phase, how many intervals hold the true energy, their median half width,
and how many figures are absent. The exit status is 1 if a required figure is missed.
"""

import argparse
import multiprocessing
import secrets
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import Timing
from tegrascope.daemon.measure.phases import phase_energy
from tegrascope.daemon.measure.report import PhaseEnergy, Span, WorkPhase

from .board import (
    AGX_ORIN,
    ORIN_NX,
    Board,
    Heat,
    Idle,
    Load,
    Power,
    Printing,
    Random,
    Sensor,
    print_lines,
)
from .campaign import CONFIDENCE, COVERAGE, not_below

NANOSECONDS = 1_000_000_000
LEAD_SECONDS = 3.0
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class World:
    """How long the phases of each answer take, in turn, and what they draw.

    Attributes:
        phases: Seconds, shortest and longest, and watts at begin and end, by name. A phase without
            a name is a pause that is not marked.
        methods: How each phase with a name must be measured; ``None`` for absent.
        uneven: Share by which the power of an occurrence may differ from that of the others.
    """

    phases: tuple[tuple[str, Range, Range], ...]
    methods: dict[str, str | None] = field(default_factory=dict)
    uneven: float = 0.0
    seconds: float = 60.0
    board: Board = ORIN_NX
    idle: Idle = field(default_factory=Idle)
    heat: Heat = field(default_factory=Heat)
    sensor: Sensor = field(default_factory=Sensor)
    printing: Printing = field(default_factory=Printing)


def answers(prefill: Range, decode: Range, pause: Range = (0.05, 0.4)) -> World:
    """Return a world of prefill with 14 W and decode with 7 W, both above idle."""
    return World(
        (("prefill", prefill, (14, 14)), ("decode", decode, (7, 7)), ("", pause, (0.5, 0.5))),
        {"prefill": "regression"},
    )


LLM = answers((0.1, 0.6), (0.5, 4.0))
LONG = replace(answers((1.5, 3.0), (2.0, 8.0)), methods={"prefill": "cut", "decode": "cut"})
SHORT = answers((0.03, 0.08), (0.1, 0.3))
WORLDS = {
    "long": LONG,
    "long-agx": replace(LONG, board=AGX_ORIN),
    "long-heat": replace(LONG, heat=Heat(0.15, 20.0)),
    "long-lag-varies": replace(LONG, sensor=Sensor(lag_varies=True)),
    "long-lost": replace(LONG, printing=Printing(burst=0.01), methods={}),
    "llm": LLM,
    "llm-30s": replace(LLM, seconds=30.0),
    "llm-300s": replace(LLM, seconds=300.0),
    "llm-agx": replace(LLM, board=AGX_ORIN),
    "llm-heat": replace(LLM, heat=Heat(0.15, 20.0)),
    "llm-wander": replace(LLM, idle=Idle(0.4, 3.0)),
    "llm-step": replace(LLM, idle=Idle(steps=((33.0, 0.7),))),
    "llm-lag-varies": replace(LLM, sensor=Sensor(lag_varies=True)),
    "llm-averaged-0.3s": replace(LLM, sensor=Sensor(averages_seconds=0.3)),
    "llm-lost": replace(LLM, printing=Printing(burst=0.02)),
    "llm-1009ms": replace(LLM, seconds=300.0, printing=Printing(1.009)),
    "llm-growing": replace(
        LLM, phases=(LLM.phases[0], ("decode", (0.5, 4.0), (6, 9)), LLM.phases[2])
    ),
    "llm-uneven": replace(LLM, uneven=0.3),
    "long-uneven": replace(LONG, uneven=0.3),
    "strict": World(
        (
            ("prefill", (0.2, 0.2), (14, 14)),
            ("decode", (0.8, 0.8), (6, 9)),
            ("", (0.13, 0.13), (0, 0)),
        )
    ),
    "unmarked": replace(LLM, phases=(*LLM.phases[:2], ("", (0.5, 3.0), (0, 0)))),
    "short": SHORT,
    "short-agx": replace(SHORT, board=AGX_ORIN),
    "short-lag-varies": replace(SHORT, sensor=Sensor(lag_varies=True)),
    "short-300s": replace(SHORT, seconds=300.0),
    "three": World(
        (
            ("pre", (0.1, 0.3), (3, 3)),
            ("infer", (0.2, 0.6), (12, 12)),
            ("post", (0.1, 0.2), (5, 5)),
        ),
        dict.fromkeys(("pre", "infer", "post"), "regression"),
    ),
    "tiny": replace(
        answers((0.002, 0.004), (0.005, 0.008), (0.001, 0.002)), methods={"prefill": None}
    ),
}


def make_phases(
    world: World, begin: float, random: Random
) -> tuple[list[Load], list[tuple[str, float, float]]]:
    """Return loads and marked phases of a window that begins with the first of them."""
    loads, marks, now = [], [], begin
    while now < begin + world.seconds:
        for name, seconds, watts in world.phases:
            end = now + random.uniform(*seconds)
            factor = 1 + random.uniform(-world.uneven, world.uneven)
            loads.append(Load(now, end, (watts[0] * factor, watts[1] * factor)))
            marks += [(name, now, end)] if name else []
            now = end
    return loads, marks


def measure(name: str, seed: int, number: int) -> dict[str, tuple[PhaseEnergy, float]]:
    """Return the figure of the product and the true energy of each phase."""
    world, random = WORLDS[name], np.random.default_rng([seed, number])
    begin = LEAD_SECONDS + random.uniform(0, 0.2)
    loads, marks = make_phases(world, begin, random)
    end = marks[-1][2]
    power = Power(world.board, end + 3.0, loads, world.idle, world.heat, random)
    lines = print_lines(power, world.sensor, world.printing, random)
    times = array("q", np.rint(lines.arrived * NANOSECONDS).astype(np.int64).tolist())
    rails = zip(world.board.rails, lines.watts, strict=True)
    columns = {f"rails.{rail.name}.instant_watts": array("d", watts) for rail, watts in rails}
    columns |= {
        f"rails.{name}.instant_watts": array("d", lines.watts[0]) for name in world.board.contained
    }
    rule = find_rail_rule([name.split(".")[1] for name in columns])
    assert rule is not None
    found = phase_energy(
        WindowSlice(times, times, columns),
        rule,
        Span(begin_ns=_ns(begin), end_ns=_ns(end)),
        [WorkPhase(name=name, begin_ns=_ns(a), end_ns=_ns(b)) for name, a, b in marks],
        Timing(averaging=world.sensor.averages_seconds),
    )
    truths = dict.fromkeys((name for name, _, _ in marks), 0.0)
    for name, a, b in marks:
        truths[name] += power.gross(a, b)
    return {one.name: (one, truths[one.name]) for one in found}


def _ns(seconds: float) -> int:
    return round(seconds * NANOSECONDS)


def judge(
    name: str,
    found: Sequence[dict[str, tuple[PhaseEnergy, float]]],
    confidence: float = CONFIDENCE,
) -> tuple[list[str], list[str]]:
    """Return a line with the figures of each phase, and the requirements that are missed."""
    lines, missed = [], []
    for phase in found[0]:
        every = [one[phase] for one in found]
        held, halves, errors = 0, [], []
        for one, truth in every:
            if one.gross_joules is None or one.gross_interval is None:
                continue
            low, high = one.gross_interval.low, one.gross_interval.high
            held += low <= truth <= high
            halves.append((high - low) / 2 / truth)
            errors.append(one.gross_joules / truth - 1)
        shown = len(halves)
        methods = {str(one.method) for one, _ in every}
        half, bias = (np.median(halves), np.mean(errors)) if shown else (np.nan, np.nan)
        lines.append(
            f"{name:18} {phase:8} {'+'.join(sorted(methods)):12} held {held} of {shown},"
            f" ± {half:.2%}, bias {bias:+.2%}, absent {len(every) - shown}"
        )
        wanted = WORLDS[name].methods.get(phase)
        if shown and not not_below(held, shown, COVERAGE, confidence):
            missed.append(f"{phase}: coverage {held} of {shown}")
        right = sum(one.method == wanted for one, _ in every)
        if phase in WORLDS[name].methods and not not_below(right, len(every), 0.9, confidence):
            missed.append(f"{phase}: {wanted} in {right} of {len(every)}")
    return lines, missed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all worlds, print their lines, and return 1 if a requirement is missed."""
    parser = argparse.ArgumentParser(prog="tests.truth.phases", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="of each world")
    parser.add_argument("--worlds", nargs="*", choices=WORLDS, default=[*WORLDS])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, help="default: drawn now")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.runs} runs of each world")
    has_missed = False
    with multiprocessing.Pool(given.jobs) as pool:
        for name in given.worlds:
            orders = [(name, seed, number) for number in range(given.runs)]
            lines, missed = judge(name, pool.starmap(measure, orders))
            print(*lines, *(f"MISSED: {each}" for each in missed), sep="\n", flush=True)
            has_missed |= bool(missed)
    return int(has_missed)


if __name__ == "__main__":
    sys.exit(main())

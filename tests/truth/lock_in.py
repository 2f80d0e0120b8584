"""Lock-in against the ground truth: ``python -m tests.truth.lock_in --runs 200``.

Prints, for each world, how many intervals hold the true energy of a piece, their median half width,
and how many figures were withheld. The exit status is 1 if a required figure is missed.
"""

import argparse
import multiprocessing
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tegrascope.daemon.measure.lock_in import RailReadings, lock_in, pattern
from tegrascope.daemon.measure.report import LockInReport
from tegrascope.daemon.measure.trace import OnStep

from .board import AGX_ORIN, Board, Heat, Idle, Load, Power, Printing, Rail, Sensor, print_lines
from .campaign import CONFIDENCE, COVERAGE, not_below

COARSE = Board("coarse", (Rail("VDD_IN", 0.4, 6.0, 1.0, 1.0),))
NANOSECONDS = 1_000_000_000
QUIET, COLD, SENSOR, PRINTING = Idle(0.15, 0.8), Heat(), Sensor(), Printing()


@dataclass(frozen=True, slots=True)
class World:
    """A piece of work and the board on which it runs.

    Attributes:
        watts: What the work adds, on average and within 5 %.
        duty: Share of each piece in which it draws power.
        is_known: Whether the averaging of the sensor is known.
        widest: Largest median half width, as a share of the truth; ``None`` without a goal.
        is_withheld: No figure may be shown, because the steps are too short for the sensor.
        is_application: Whether an application measures, by ``tegrascope.lock_in``.
    """

    watts: float
    piece: float = 0.002
    duty: float = 1.0
    seconds: float = 300.0
    board: Board = COARSE
    idle: Idle = QUIET
    heat: Heat = COLD
    sensor: Sensor = SENSOR
    printing: Printing = PRINTING
    is_known: bool = True
    widest: float | None = None
    is_withheld: bool = False
    is_application: bool = False


INFERENCE, STAGE = World(8.0, widest=0.015), World(0.5, widest=0.12)
WORLDS = {
    "inference": INFERENCE,
    "stage": STAGE,
    "inference-heat": replace(INFERENCE, heat=Heat(0.15, 20.0)),
    "stage-heat": replace(STAGE, heat=Heat(0.15, 20.0)),
    "inference-drift": replace(INFERENCE, idle=replace(QUIET, steps=((150.0, 0.7),))),
    "pulses-2ms": World(8.0, duty=0.5),
    "pulses-35ms": World(8.0, piece=0.035, duty=0.5),
    "lag-varies": replace(INFERENCE, sensor=Sensor(lag_varies=True), is_known=False),
    "late-0.2s": replace(STAGE, printing=Printing(late_seconds=0.2)),
    "late-0.4s": replace(INFERENCE, printing=Printing(late_seconds=0.4)),
    "lost-bursts": replace(INFERENCE, printing=Printing(burst=0.02)),
    "averaged-0.5s": World(8.0, sensor=Sensor(averages_seconds=0.5)),
    "averaged-1s": World(8.0, sensor=Sensor(averages_seconds=1.0)),
    "fitted-0.1s": World(0.5, sensor=Sensor(averages_seconds=0.1), is_known=False),
    "fitted-0.3s": World(8.0, sensor=Sensor(averages_seconds=0.3), is_known=False),
    "fitted-1s": World(8.0, sensor=Sensor(averages_seconds=1.0), is_known=False, is_withheld=True),
    "agx": World(8.0, board=AGX_ORIN),
    "agx-stage": World(0.5, board=AGX_ORIN),
    "agx-still": World(0.5, board=AGX_ORIN, idle=Idle(0.02, 0.8)),
    "1009ms": World(8.0, printing=Printing(1.009)),
    "60s": World(8.0, seconds=60.0),
    "application": World(8.0, is_application=True),
    "application-60s": World(8.0, piece=0.035, seconds=60.0, is_application=True),
}


def measure(name: str, seed: int, number: int) -> tuple[LockInReport | None, float]:
    """Return the figure of the product and the true energy of a piece, without its heat."""
    if WORLDS[name].is_application:
        from .application import measure as measure_application

        return measure_application(name, seed, number)
    world, random = WORLDS[name], np.random.default_rng([seed, number])
    averaging = world.sensor.averages_seconds
    known = averaging if world.is_known else None
    watts = world.watts * random.uniform(0.95, 1.05) / world.duty
    loads, steps, now = [], [], 2.0
    lengths = pattern(
        world.seconds, world.printing.interval, known or 0.0, int(random.integers(1 << 32))
    )
    for number, length in enumerate(lengths):
        if number % 2 == 0:
            now += length + random.uniform(0, 0.001)
            continue
        pieces = int(np.ceil(length / world.piece))
        starts = now + np.arange(pieces) * world.piece
        end = now + pieces * world.piece
        busy = np.full(pieces, world.piece * world.duty)
        loads.append(Load(now, end, (watts, watts), starts, busy, world.duty < 1))
        steps.append((now, end, pieces))
        now = end
    power = Power(world.board, now + 3.0, loads, world.idle, world.heat, random)
    lines = print_lines(power, world.sensor, world.printing, random)
    truth = sum(power.work(*step[:2]) for step in steps) / sum(step[2] for step in steps)
    rails = zip(lines.watts, world.board.rails, strict=True)
    found = lock_in(
        np.rint(lines.arrived * NANOSECONDS).astype(np.int64).tolist(),
        [RailReadings(watts.tolist(), rail.step_watts) for watts, rail in rails],
        [OnStep(round(a * NANOSECONDS), round(b * NANOSECONDS), n) for a, b, n in steps],
        known,
    )
    return found, truth


def judge(
    name: str,
    found: Sequence[tuple[LockInReport | None, float]],
    confidence: float = CONFIDENCE,
) -> tuple[str, list[str]]:
    """Return a line with the figures of a world, and the requirements that it misses."""
    world = WORLDS[name]
    shown = [(one, truth) for one, truth in found if one is not None and not one.problems]
    withheld, missed = len(found) - len(shown), []
    if world.is_withheld:
        missed = [f"{len(shown)} shown"] if shown else []
        return f"{name:16} withheld {withheld} of {len(found)}", missed
    figures = [(one.joules_per_piece, truth) for one, truth in shown]
    held = sum(abs(one.value - truth) <= one.half for one, truth in figures)
    half = float(np.median([one.half / truth for one, truth in figures] or [np.nan]))
    errors = np.array([one.value / truth - 1 for one, truth in figures])
    bias = f"{errors.mean():+.2%}" if len(errors) else "absent"
    if not not_below(held, len(shown), COVERAGE, confidence):
        missed.append(f"coverage {held} of {len(shown)}")
    if world.widest is not None and not half <= world.widest:
        missed.append(f"± {half:.1%}, widest {world.widest:.1%}")
    if not not_below(len(shown), len(found), 0.9, confidence):
        missed.append(f"withheld {withheld}")
    return (
        f"{name:16} held {held} of {len(shown)}, ± {half:.2%}, bias {bias}, withheld {withheld}",
        missed,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all worlds, print a line for each, and return 1 if a requirement is missed."""
    parser = argparse.ArgumentParser(prog="tests.truth.lock_in", description=__doc__)
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
            line, missed = judge(name, pool.starmap(measure, orders))
            print(line, *(f"MISSED: {each}" for each in missed), flush=True)
            has_missed |= bool(missed)
    return int(has_missed)


if __name__ == "__main__":
    sys.exit(main())

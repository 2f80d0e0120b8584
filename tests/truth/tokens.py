"""Joules per token against the truth of the simulated board: ``python -m tests.truth.tokens``.

A program prints tokens at random times, and the tokens of each run into a file of its own. It runs
as a workload does: by the worker, with telemetry of a simulated board in real time. The truth is
the exact energy of that board in the window, over the tokens in the file. 100 windows of 15 s on
ten boards take four minutes. The exit status is 1 if fewer than 93 % hold the truth.
"""

import argparse
import secrets
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from tegrascope.collectors.simulator.board import SimulatorSource, simulated_collector
from tegrascope.daemon.measure.report import Environment, RunReport
from tegrascope.daemon.session.executor import Executor
from tegrascope.daemon.session.session import InFlightRun, Job, Session, make_order
from tegrascope.daemon.settings.config import Workload

from .campaign import COVERAGE, not_below

BOARDS = ("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb")
PROGRAM = """#!{python}
import random, sys, time
chance, total, end = random.Random(), 0, time.monotonic() + {seconds}
while time.monotonic() < end:
    time.sleep(chance.uniform(0.01, 0.3))
    count = chance.randrange(1, 10)
    total += count
    print(chance.choice(["tegrascope: tokens=", "TEGRASCOPE tokens="]) + str(count), flush=True)
with open(sys.argv[1], "a") as file:
    file.write(str(total) + "\\n")
"""


def measure(folder: Path, number: int, windows: int, seed: int) -> list[tuple[RunReport, float]]:
    """Return reports of one board, each with the true joules per token."""
    chance = Random(f"{seed} {number}")
    program, counted = folder / f"llm{number}", folder / f"tokens{number}"
    session = Session(environment=Environment(simulated=True))
    name = BOARDS[number % len(BOARDS)]
    source = SimulatorSource(name, load=session.load, interval_seconds=0.103, seed=seed + number)
    session.attach(simulated_collector(source), devices=())
    session.start()
    executor, found = Executor("gpu"), []
    try:
        assert session.await_first_sample(60.0)
        for _ in range(windows):
            seconds = chance.uniform(3.0, 6.0)
            program.write_text(PROGRAM.format(python=sys.executable, seconds=seconds))
            program.chmod(0o755)
            counted.write_text("")
            workload = Workload.model_validate(
                {"name": "llm", "command": f"{program} {counted}", "unit": "token"}
                | {"baseline": 1.5, "duration": 15}
            )
            job = Job(workload)
            run = InFlightRun(session, job)
            executor.run(make_order(job, session), 120, run.take)
            run.end()
            session.await_telemetry(run.trace)
            report = run.pair()
            window = report.phases["steady"]
            truth = source.board.true_energy(window.begin_ns, window.end_ns).module_joules
            found.append((report, truth / sum(map(int, counted.read_text().split()))))
    finally:
        executor.close()
        session.stop()
    return found


def judge(found: Sequence[tuple[RunReport, float]]) -> tuple[int, int]:
    """Print each window; return how many intervals hold the truth, and how many are shown."""
    held = shown = 0
    for report, truth in found:
        energy = report.energy
        interval = None if energy is None else energy.joules_per_unit_interval
        flags = " ".join(report.quality)
        if energy is None or energy.joules_per_unit is None or interval is None:
            print(f"{truth:8.4f} J per token  withheld  {report.outcome} {report.reason} {flags}")
            continue
        shown += 1
        is_held = interval.low <= truth <= interval.high
        held += is_held
        print(
            f"{truth:8.4f} J per token  {energy.joules_per_unit:8.4f}"
            f" ({interval.low:.4f} to {interval.high:.4f})  {'held' if is_held else 'MISSED'}"
            f"  {report.units:.0f} tokens  {flags}"
        )
    return held, shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all windows; return 1 if too few hold the truth."""
    parser = argparse.ArgumentParser(prog="tests.truth.tokens", description=__doc__)
    parser.add_argument("--windows", type=int, default=100)
    parser.add_argument("--boards", type=int, default=10)
    parser.add_argument("--seed", type=int, help="default: drawn now")
    given = parser.parse_args(arguments)
    seed = secrets.randbits(31) if given.seed is None else given.seed
    each = -(-given.windows // given.boards)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.boards) as pool:
        parts = pool.map(
            lambda number: measure(Path(folder), number, each, seed), range(given.boards)
        )
        found = [one for part in parts for one in part]
    held, shown = judge(found)
    half = sorted(
        (i.high - i.low) / 2 / truth
        for report, truth in found
        if report.energy and (i := report.energy.joules_per_unit_interval)
    )
    middle = half[len(half) // 2] if half else float("nan")
    print(f"held {held} of {shown} shown, of {len(found)}; median ± {middle:.2%}; seed {seed}")
    is_good = not_below(held, shown, COVERAGE) and not_below(shown, len(found), 0.9)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())

"""A board whose lanes get in each other's way, with a truth that no bench is told.

Models on one accelerator share its time; those on different ones wait for memory: each slows the
others by its traffic. Time is virtual, telemetry is that of the simulated board, and pairing is the
product's own. The truth is another matter: jobs that come at their rates, served one by one, and
the energy that the board really took.
"""

import random
import threading
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.collectors.simulator.board import JumpClock, SimulatedBoard
from tegrascope.collectors.simulator.physics import LoadBoard, board_model
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.session import InFlightRun, Job, Session
from tegrascope.daemon.settings.config import Workload
from tegrascope.parsers.inference.events import Inferences, Phase
from tegrascope.parsers.records import flatten
from tegrascope.workbench.bench.run import Bench
from tegrascope.workbench.bench.settings import workload_of
from tegrascope.workbench.bench.workers import FinishedRun
from tegrascope.workbench.results.records import BenchResult, BenchSettings, ModelResult
from tegrascope.workbench.results.summary import Measured, Round, summarise

BOARD = "agx-orin-64gb"
SECOND = 1_000_000_000
INTERVAL_NS = 103_000_000
Active = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Nature:
    """What is so of a model on an accelerator: its time alone, and how much memory it takes."""

    seconds: float
    traffic: float = 0.0


Natures = Mapping[str, Mapping[str, Nature]]


def slower(natures: Natures, model: str, device: str, active: Active) -> float:
    """Return how many times as long a model takes beside others: the law of this world."""
    others = [one for one in active if one != (model, device)]
    sharing = 1 + sum(on == device for _, on in others)
    traffic = sum(natures[other][on].traffic for other, on in others if on != device)
    return sharing * (1 + traffic)


class World:
    """Plays the lanes and the telemetry of a bench, in virtual time."""

    was_cancelled = False

    def __init__(self, natures: Natures, seed: int = 0, **changes: object) -> None:
        self.natures = natures
        self.clock = JumpClock(monotonic_ns=1000 * SECOND)
        self.stopping = threading.Event()
        self.environment = Environment(board="AGX Orin", simulated=True, power_mode="MAXN")
        self._chance = random.Random(seed)
        begin_ns = self.clock.monotonic_ns()
        self.session = Session(
            clock=self.clock,
            environment=self.environment,
            timeline=Timeline(span_seconds=1e6),
        )
        self.session.energy.rule = find_rail_rule([rail.name for rail in board_model(BOARD).rails])
        self._board = SimulatedBoard(
            board_model(BOARD), self.session.load, begin_ns=begin_ns, seed=seed
        )
        self._printed_ns = begin_ns
        self.settings = BenchSettings.model_validate(
            {
                "models": [f"{name}.onnx" for name in natures],
                "devices": sorted({device for of in natures.values() for device in of}),
                "backend": "tensorrt",
                "duration_seconds": 12.0,
                "baseline_seconds": 6.0,
                "warm_up_seconds": 1.0,
                "rounds": 2,
                "contention": True,
                **changes,
            }
        )

    def bench(self) -> BenchResult:
        """Bench every model alone, then all of them together."""
        models = [self._alone(model) for model in self.settings.models]
        together = Bench(self.settings, self, Mute()).run_together(models)
        return BenchResult(
            tegrascope="0",
            started_wall_ns=0,
            ended_wall_ns=self.clock.wall_ns(),
            is_simulated=True,
            settings=self.settings,
            environment=self.environment,
            models=tuple(models),
            contention=together,
        )

    def _alone(self, model: str) -> ModelResult:
        entries, reports = [], []
        for device in self.natures[Path(model).stem]:
            workload = workload_of(self.settings, model, device)
            flown = [self.run_together([(workload, device)], 0.0)[0] for _ in range(2)]
            reports += [one.report for one in flown]
            rounds = [
                Round(one.report, one.trace.completed(one.report.phases["steady"])[1])
                for one in flown
            ]
            entries.append(Measured(flown[0].report, "ok", None, rounds=rounds))
        return summarise(model, entries, reports)

    def close(self) -> None: ...

    def run(self, workload: Workload, lane_name: str, _deadline: float) -> FinishedRun:
        """Get ready: what counts for nothing takes no time here."""
        flight = InFlightRun(self.session, Job(workload), lane_name)
        flight.end()
        flight.trace.finish("ok")
        return FinishedRun(flight.pair(), flight.trace, "ok")

    def run_together(
        self, flights: Sequence[tuple[Workload, str]], _deadline: float
    ) -> list[FinishedRun]:
        active = frozenset((_model(workload), workload.device) for workload, _ in flights)
        begun = [
            (workload, InFlightRun(self.session, Job(workload), lane_name))
            for workload, lane_name in flights
        ]
        for workload, flight in begun:
            for event in self._events(workload, flight, active):
                flight.take(event)
        workload = flights[0][0]
        seconds = 2 * workload.baseline + (workload.duration or 0.0)
        self._live(self.clock.monotonic_ns() + round((seconds + 0.5) * SECOND))
        flown = []
        for _, flight in begun:
            flight.end()
            flight.trace.finish("ok")
            flown.append(FinishedRun(flight.pair(), flight.trace, "ok"))
        return flown

    def _events(
        self, workload: Workload, flight: InFlightRun, active: Active
    ) -> list[Phase | Inferences]:
        run = {"run_id": flight.trace.run_id}
        idle_ns = self.clock.monotonic_ns()
        begin_ns = idle_ns + round(workload.baseline * SECOND)
        stop_ns = begin_ns + round((workload.duration or 0.0) * SECOND)
        name, device = _model(workload), workload.device
        usual = self.natures[name][device].seconds * slower(self.natures, name, device, active)
        starts, latencies, now = array("q"), array("q"), begin_ns
        while now < stop_ns:
            took = round(usual * self._chance.gauss(1, 0.05) * SECOND)
            starts.append(now)
            latencies.append(took)
            now += took
        end_ns = now + round(workload.baseline * SECOND)
        edges = (("baseline_before", idle_ns, begin_ns), ("steady", begin_ns, now))
        told: list[Phase | Inferences] = [
            Phase(phase=phase, edge=edge, at_ns=at_ns, **run)
            for phase, *span in (*edges, ("baseline_after", now, end_ns))
            for edge, at_ns in zip(("begin", "end"), span, strict=True)
        ]
        told.insert(3, Inferences(start_ns=tuple(starts), latency_ns=tuple(latencies), **run))
        return told

    def _live(self, until_ns: int) -> None:
        while True:
            reading_ns = round(self._chance.uniform(0.006, 0.022) * SECOND)
            at_ns = self._printed_ns + INTERVAL_NS + reading_ns
            if at_ns > until_ns:
                break
            self._printed_ns = at_ns
            wall_ns = at_ns + SECOND
            sample = self._board.read(at_ns - reading_ns, wall_ns)
            self.session.timeline.append(at_ns, wall_ns, flatten(sample))
        self.clock.wait(self.stopping, until_ns)


class Mute:
    """Is told how it goes on, and tells nobody."""

    def say(self, words: str) -> None: ...
    def begin(self, title: str, seconds_left: float) -> None: ...
    def end(self, outcome: str) -> None: ...


def _model(workload: Workload) -> str:
    return Path(workload.model or "").stem


# --- the truth ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """What a placement really does: watts above idle, and the worst latency of each model."""

    net_watts: float
    worst_seconds: Mapping[str, float]


def truths(
    natures: Natures, rates: Mapping[str, float], seconds: float = 20.0
) -> dict[tuple[str, ...], Truth]:
    """Return the truth of every placement of all models."""
    return {
        devices: truth(natures, dict(zip(natures, devices, strict=True)), rates, seconds)
        for devices in product(*natures.values())
    }


def truth(
    natures: Natures, on: Mapping[str, str], rates: Mapping[str, float], seconds: float
) -> Truth:
    """Let jobs come at their rates for a while, and count joules and milliseconds."""
    load = LoadBoard()
    worst = serve(natures, on, rates, seconds, load)
    end_ns = round(seconds * SECOND)
    joules = []
    for board_load in (load, LoadBoard()):
        board = SimulatedBoard(board_model(BOARD), board_load, begin_ns=0, most_pieces=1_000_000)
        joules.append(board.true_energy(SECOND, end_ns).module_joules)
    return Truth((joules[0] - joules[1]) / (seconds - 1), worst)


def serve(
    natures: Natures,
    on: Mapping[str, str],
    rates: Mapping[str, float],
    seconds: float,
    load: LoadBoard,
) -> dict[str, float]:
    """Serve jobs, each model one at a time; return the worst latency of each."""
    next_job = {name: (number + 1) * 0.0137 for number, name in enumerate(natures)}
    queues: dict[str, list[float]] = {name: [] for name in natures}
    left = dict.fromkeys(natures, 0.0)
    worst = dict.fromkeys(natures, 0.0)
    now = 0.0
    while now < seconds:
        active = frozenset((name, on[name]) for name in natures if queues[name])
        ends = {
            name: now + left[name] * slower(natures, name, device, active)
            for name, device in active
        }
        then = min([*ends.values(), *next_job.values()])
        for name in ends:
            left[name] -= (then - now) / slower(natures, name, on[name], active)
        now = then
        for name, end in ends.items():
            if end <= now:
                worst[name] = max(worst[name], now - queues[name].pop(0))
                left[name] = natures[name][on[name]].seconds
        for name in natures:
            if next_job[name] <= now:
                queues[name].append(now)
                next_job[name] += 1 / rates[name]
                if len(queues[name]) == 1:
                    left[name] = natures[name][on[name]].seconds
        for name in natures:
            was = (name, on[name]) in active
            if was != bool(queues[name]):
                load.set(on[name], float(bool(queues[name])), round(now * SECOND), name)
    for name in natures:
        # One that waits at the end has waited at least so long.
        if queues[name]:
            worst[name] = max(worst[name], now - queues[name][0])
    return worst

"""Energy by a board's counter: work in bursts, whose exact energy is a sum of rectangles."""

import math
import random
from array import array

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import Counted, Finished, Inferences, Phase

S = 1_000_000_000
RUN = "0190-run"
RULE = find_rail_rule(["GPU"])
ENVIRONMENT = Environment(power_reading="instant", telemetry_source="nvml")
TICK = 0.1
IDLE_WATTS, WORK_WATTS = 60.0, 480.0


class Board:
    """A GPU that draws one power in bursts and another between them.

    Energy is exact: idle power, and the part of each burst until a moment.
    """

    def __init__(self, begin, end, hertz, duty=0.4, added=WORK_WATTS - IDLE_WATTS):
        self.begin, self.end = begin, end
        self.cycle, self.duty, self.added = 1 / hertz, duty, added

    def busy_seconds(self, at):
        since = min(max(at, self.begin), self.end) - self.begin
        whole, rest = divmod(since, self.cycle)
        return whole * self.cycle * self.duty + min(rest, self.cycle * self.duty)

    def joules(self, at):
        return IDLE_WATTS * at + self.added * self.busy_seconds(at)

    def watts(self, at):
        is_inside = self.begin <= at < self.end
        is_busy = is_inside and (at - self.begin) % self.cycle < self.cycle * self.duty
        return IDLE_WATTS + self.added * is_busy

    def starts(self):
        return [
            self.begin + i * self.cycle for i in range(int((self.end - self.begin) / self.cycle))
        ]


def telemetry(board, begin, end, seed, interval=0.1):
    """Return what NVML shows: power and counter are renewed by the sensor every 100 ms."""
    chance = random.Random(seed)
    phase = chance.uniform(0, TICK)
    times, watts, counts, after = [], [], [], []
    at = begin + chance.uniform(0, interval)
    while at < end:
        read_after = chance.uniform(0.002, 0.006)
        times.append(round(at * S))
        watts.append(board.watts(math.floor((at - phase) / TICK) * TICK + phase))
        counts.append(board.joules(math.floor((at + read_after - phase) / TICK) * TICK + phase))
        after.append(read_after)
        at += interval + chance.uniform(0, 0.0005)
    columns = {
        "rails.GPU.instant_watts": array("d", watts),
        "rails.GPU.counter_joules": array("d", counts),
        "rails.GPU.counter_after_seconds": array("d", after),
        "rails.GPU.counter_read_seconds": array("d", [0.004] * len(times)),
    }
    stamps = array("q", times)
    return WindowSlice(stamps, stamps, columns)


def traced(board, work, begin=100.0, end=122.0, idle=4.0):
    """Return the trace of a run whose bursts are stamped, counted as units, or not counted."""
    edges = {
        "baseline_before": (begin - idle, begin),
        "steady": (begin, end),
        "baseline_after": (end, end + idle),
    }
    events = [
        Phase(run_id=RUN, phase=name, edge=edge, at_ns=round(at * S))
        for name, both in edges.items()
        for edge, at in zip(("begin", "end"), both, strict=True)
    ]
    made = RunTrace(
        run_id=RUN,
        workload="w",
        backend="command",
        device="gpu",
        started_ns=round((begin - 10) * S),
        started_wall_ns=0,
        ended_ns=round((end + 10) * S),
    )
    starts = tuple(round(at * S) for at in board.starts())
    if work == "stamped":
        latency = round(board.cycle * board.duty * S)
        events.insert(
            3, Inferences(run_id=RUN, start_ns=starts, latency_ns=(latency,) * len(starts))
        )
    if work == "units":
        made.unit = "token"
        events.append(Counted(run_id=RUN, units=64 * len(starts)))
    if work == "inferences":
        events.append(Counted(run_id=RUN, inferences=len(starts)))
    if work == "nothing":
        events.append(Counted(run_id=RUN))
    for event in [*events, Finished(run_id=RUN, outcome="ok")]:
        assert made.add(event)
    return made


@pytest.mark.parametrize("work", ["stamped", "units", "inferences", "nothing"])
@pytest.mark.parametrize("hertz", [7, 10, 20, 30, 60])
def test_bursts_are_published_as_the_counter_has_them(hertz, work):
    """The program starts up for 3.7 s of its window, as a program that is only counted does."""
    held = net_held = 0
    for seed in range(20):
        begin = 100.0 + random.Random(seed).uniform(0, 1)
        board = Board(begin + 3.7, begin + 22, hertz, duty=0.3 + 0.02 * seed)
        cut = telemetry(board, begin - 4.1, begin + 26.3, seed)
        made = traced(board, work, begin, begin + 22)
        report = correlate(made, cut, rule=RULE, environment=ENVIRONMENT)
        truth = board.joules(begin + 22) - board.joules(begin)
        energy = report.energy
        assert energy.gross_method == "counter"
        assert energy.gross_joules == pytest.approx(truth, rel=0.01)
        held += energy.gross_interval.low <= truth <= energy.gross_interval.high
        net_truth = truth - 22 * IDLE_WATTS
        net_held += energy.net_interval.low <= net_truth <= energy.net_interval.high
        assert energy.net_joules == pytest.approx(net_truth, rel=0.015)
        pieces = len(board.starts())
        if work == "units":
            assert energy.joules_per_unit == pytest.approx(truth / 64 / pieces, rel=0.01)
            assert energy.joules_per_unit_interval.low <= truth / 64 / pieces
            assert truth / 64 / pieces <= energy.joules_per_unit_interval.high
        if work in ("stamped", "inferences") and pieces >= 200:
            assert energy.gross_joules_per_inference == energy.gross_joules / report.inferences
    assert held == net_held == 20

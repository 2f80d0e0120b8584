"""Work that is counted and not timed: its count is no frequency, and may be off by one."""

import random
from array import array

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import Counted, Finished, Inferences, Phase

S = 1_000_000_000
RUN = "0190-run"
RULE = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])
IDLE_WATTS, ADDED_WATTS = 5.0, 10.0


class Pulses:
    """Power with a pulse at each start; its energy is a sum of rectangles."""

    def __init__(self, starts, seconds):
        self.starts, self.seconds = starts, seconds

    def joules(self, begin, end):
        """Return the exact energy between two moments."""
        busy = 0.0
        for start in self.starts:
            busy += max(min(start + self.seconds, end) - max(start, begin), 0.0)
        return IDLE_WATTS * (end - begin) + ADDED_WATTS * busy

    def watts(self, times):
        """Return the power at increasing moments."""
        found, i = [], 0
        for at in times:
            while i + 1 < len(self.starts) and self.starts[i + 1] <= at:
                i += 1
            is_busy = self.starts[i] <= at < self.starts[i] + self.seconds
            found.append(IDLE_WATTS + ADDED_WATTS * is_busy)
        return found

    def count(self, begin, end):
        return sum(begin <= start and start + self.seconds <= end for start in self.starts)


def report_of(pulses, begin, end, times, count, *, is_timed=False):
    watts = pulses.watts([at - 0.01 for at in times])
    rails = {"VDD_IN": watts, "VDD_CPU_GPU_CV": watts, "VDD_SOC": watts}
    stamps = array("q", (round(at * S) for at in times))
    columns = {f"rails.{name}.instant_watts": array("d", one) for name, one in rails.items()}
    made = RunTrace(
        run_id=RUN,
        workload="w",
        backend="recorded",
        device="gpu",
        started_ns=round(begin * S),
        started_wall_ns=0,
        ended_ns=round(end * S),
    )
    work = Counted(run_id=RUN, inferences=count)
    if is_timed:
        starts = [at for at in pulses.starts if begin <= at and at + pulses.seconds <= end]
        work = Inferences(
            run_id=RUN,
            start_ns=tuple(round(at * S) for at in starts),
            latency_ns=(round(pulses.seconds * S),) * len(starts),
        )
    for event in (
        Phase(run_id=RUN, phase="steady", edge="begin", at_ns=round(begin * S)),
        work,
        Phase(run_id=RUN, phase="steady", edge="end", at_ns=round(end * S)),
        Finished(run_id=RUN, outcome="ok"),
    ):
        assert made.add(event)
    return correlate(made, WindowSlice(stamps, stamps, columns), rule=RULE)


def test_batches_near_the_sampling_are_published_only_where_the_interval_holds():
    """Ten inferences of 30 to 40 ms each 1.0235 s; an edge cuts a batch and moves its count by one.

    A board reads in a time of its own, so its lines are about 1.023 s apart.
    """
    for seed in range(60):
        chance = random.Random(seed)
        reads = chance.uniform(0.008, 0.02)
        times = [100.0 + chance.uniform(0, 1)]
        while times[-1] < 226:
            times.append(times[-1] + 1.009 + reads + chance.uniform(-0.0005, 0.0005))
        first, starts = 99 + chance.uniform(0, 1), []
        for batch in range(130):
            at = first + 1.0235 * batch
            for _ in range(10):
                starts.append(at)
                at += 0.035 * chance.uniform(0.85, 1.15)
        pulses = Pulses(starts, 0.0297)
        begin = 101.5 + chance.uniform(0, 1)
        report = report_of(pulses, begin, begin + 120, times, pulses.count(begin, begin + 120))
        if report.energy.gross_joules_per_inference is not None:
            interval = report.energy.gross_interval
            assert interval.low <= pulses.joules(begin, begin + 120) <= interval.high, seed


@pytest.mark.parametrize("miscount", [-1, 0, 1])
@pytest.mark.parametrize("per_sample", [1, 2, 3])
def test_inferences_that_keep_step_are_aliased_though_their_count_is_off_by_one(
    per_sample, miscount
):
    """Each sample meets the same moment of an inference, and the count says otherwise."""
    cycle = 0.103 / per_sample
    for seed in range(6):
        chance = random.Random(seed)
        first = 99 + chance.uniform(0, 1)
        pulses = Pulses([first + cycle * i for i in range(round(35 / cycle))], cycle * 0.4)
        times = [99.5 + 0.103 * i + chance.gauss(0, 0.001) for i in range(320)]
        begin = 101 + chance.uniform(0, 1)
        cycles = round(25 / cycle)
        report = report_of(pulses, begin, begin + cycles * cycle, times, cycles + miscount)
        assert "aliased" in report.quality
        assert report.energy.gross_joules_per_inference is None


def test_few_counted_runs_are_aliased_where_nothing_keeps_step():
    flagged = 0
    for seed in range(60):
        chance = random.Random(seed)
        starts = [99.0]
        while starts[-1] < 130:
            starts.append(starts[-1] + chance.uniform(0.02, 0.04))
        pulses = Pulses(starts, 0.015)
        times = [99.5]
        while times[-1] < 129:
            times.append(times[-1] + 0.103 + chance.uniform(0, 0.01))
        report = report_of(pulses, 101, 126, times, pulses.count(101, 126))
        flagged += "aliased" in report.quality
    assert flagged <= 3


def test_energy_of_a_counted_inference_holds_one_more_or_fewer():
    chance = random.Random(4)
    times = [99.5 + 0.103 * i + chance.uniform(0, 0.02) for i in range(320)]
    pulses = Pulses([99 + 0.0873 * i for i in range(400)], 0.03)
    count = pulses.count(101, 126)
    counted = report_of(pulses, 101, 126, times, count)
    energy = counted.energy
    assert (counted.inferences_interval.low, counted.inferences_interval.high) == (
        count - 1,
        count + 1,
    )
    each = energy.gross_joules_per_inference_interval
    assert energy.gross_joules_per_inference == energy.gross_joules / count
    assert each.low == energy.gross_interval.low / (count + 1)
    assert each.high == energy.gross_interval.high / (count - 1)
    timed = report_of(pulses, 101, 126, times, count, is_timed=True)
    assert timed.inferences_interval is None
    each = timed.energy.gross_joules_per_inference_interval
    assert each.low == timed.energy.gross_interval.low / count

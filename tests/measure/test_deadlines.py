"""Misses of a deadline: each is counted, and the last ones have what was unusual at their time."""

import random
from array import array
from collections import Counter
from dataclasses import dataclass, field

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import Inferences, Phase, Stall

S, MS = 1_000_000_000, 1_000_000
DEADLINE_MS = 33


def report_of(latencies_ms, columns=None, others=None, stalls=(), device="dla0", count=None):
    """Return the report of inferences every 40 ms from 0 on, with a sample per second."""
    trace = RunTrace("r", "w", "tensorrt", device, 0, 0, deadline_seconds=DEADLINE_MS / 1e3)
    starts = tuple(i * 40 * MS for i in range(len(latencies_ms)))
    end_ns = (len(starts) + 2) * 40 * MS
    latency = tuple(round(one * MS) for one in latencies_ms)
    trace.add(Phase(run_id="r", phase="steady", edge="begin", at_ns=0))
    trace.add(Inferences(run_id="r", start_ns=starts, latency_ns=latency, stalls=stalls))
    trace.add(Phase(run_id="r", phase="steady", edge="end", at_ns=end_ns))
    trace.missed_inferences = count
    times = array("q", range(0, end_ns + S, S))
    found = {name: array("d", map(value, times)) for name, value in (columns or {}).items()}
    return correlate(trace, WindowSlice(times, times, found), others=others).deadline


def causes(report):
    return [miss.cause for miss in report.last]


def test_all_misses_are_counted_and_the_last_twenty_are_kept():
    found = report_of([20, 50] * 100)
    assert (found.misses, len(found.last)) == (100, 20)
    assert found.worst_lateness_seconds == pytest.approx(0.017)
    assert found.last[-1].start_ns == 199 * 40 * MS


def test_latency_equal_to_the_deadline_is_in_time():
    found = report_of([DEADLINE_MS] * 10)
    assert (found.misses, found.worst_lateness_seconds, found.last) == (0, 0, ())


def test_workload_without_a_deadline_has_no_misses():
    trace = RunTrace("r", "w", "b", "gpu", 0, 0)
    trace.begins["steady"], trace.ends["steady"] = 0, S
    trace.start_ns, trace.latency_ns = array("q", [0]), array("q", [S // 2])
    assert correlate(trace, None).deadline is None


def test_application_that_sends_some_times_counts_its_misses_itself():
    assert report_of([20] * 50, count=7).misses == 7


def test_miss_without_evidence_is_unknown():
    found = report_of([20] * 50 + [90] + [20] * 50)
    assert (causes(found), found.last[0].evidence) == (["unknown"], ())


def test_model_that_is_usually_beyond_the_deadline_is_too_slow():
    assert set(causes(report_of([40] * 50))) == {"too_slow"}


def test_neighbour_that_is_always_there_is_not_evidence():
    latencies = [20] * 50 + [90] + [20] * 49
    always = {"other": (Span(begin_ns=0, end_ns=100 * S),)}
    assert causes(report_of(latencies, others=always)) == ["unknown"]
    then = {"other": (Span(begin_ns=2 * S, end_ns=2 * S + 80 * MS),)}
    (miss,) = report_of(latencies, others=then).last
    assert (miss.cause, miss.evidence[0].detail) == ("other_lane", "run other")
    assert 0.8 < miss.evidence[0].weight < 80 / 90


@pytest.mark.parametrize(
    ("noted", "cause"),
    [
        ({"continued": 1, "major_faults": 40}, "stopped"),
        ({"major_faults": 400}, "page_faults"),
        ({"major_faults": 1, "read_bytes": 48_000_000}, "page_faults"),
        ({"waited_ns": 60 * MS, "major_faults": 1}, "waited_for_cpu"),
        ({"waited_ns": 2 * MS}, "unknown"),
        ({"major_faults": 400, "usual_fault_ratio": 0.95}, "unknown"),
    ],
)
def test_state_of_the_process_is_evidence(noted, cause):
    stall = Stall(start_ns=2 * S, **noted)
    assert causes(report_of([20] * 50 + [90] + [20] * 49, stalls=(stall,))) == [cause]


def test_inferences_in_flight_at_once_may_end_in_another_order():
    trace = RunTrace("r", "w", "tensorrt", "gpu", 0, 0, deadline_seconds=0.033)
    starts = [at * 10 * MS for at in range(600)]
    latency = [
        900 * MS if at == 200 else 50 * MS if at in (210, 220) else 20 * MS for at in range(600)
    ]
    trace.begins["steady"], trace.ends["steady"] = 0, 7 * S
    trace.start_ns, trace.latency_ns = array("q", starts), array("q", latency)
    times = array("q", range(0, 8 * S, S // 2))
    low = array("d", (6e8 if 2 * S < at <= 3 * S else 1.3e9 for at in times))
    found = correlate(trace, WindowSlice(times, times, {"gpu.frequency_hertz.0": low})).deadline
    assert [miss.start_ns for miss in found.last] == [2000 * MS, 2100 * MS, 2200 * MS]
    assert {miss.cause for miss in found.last} == {"clock_lowered"}
    assert found.last[0].evidence[0].detail == "gpu 600 MHz"


def test_throttling_and_a_foreign_task_name_their_kind_and_process():
    latencies = [20] * 50 + [90] + [20] * 149
    hot = {"throttle.gpu_thermal.active": lambda at: float(2 * S < at <= 3 * S)}
    (miss,) = report_of(latencies, hot).last
    assert (miss.cause, miss.evidence[0].detail) == ("throttled", "gpu_thermal")
    capped = {"throttle.sw_power_cap.active": lambda at: float(2 * S < at <= 3 * S)}
    assert causes(report_of(latencies, capped)) == ["unknown"]
    task = {"dla.0.process_seconds.trtexec": lambda at: 0.07 * (at > 2 * S)}
    (miss,) = report_of(latencies, task).last
    assert (miss.cause, miss.evidence[0].detail) == ("foreign_dla_task", "trtexec on dla0")
    own = {"dla.0.process_seconds.tegrascope": lambda at: 0.07 * (at > 2 * S)}
    assert causes(report_of(latencies, own)) == ["unknown"]


KINDS = ("throttled", "other_lane", "foreign_dla_task")


@dataclass
class World:
    """A minute of a camera at 25 images per second on DLA 0, with two planted stalls.

    A stall is ``throttled`` (the clock falls for seconds), ``other_lane`` (a run on another device
    that is heavy on memory) or ``foreign_dla_task`` (tasks of another program). There is more that
    does no harm: a light run on the GPU that comes and goes, short tasks of a second program, a
    normal power cap, waits for a CPU and single page faults.

    Attributes:
        stalls: Kind, begin and end of each.
        light: Begin and end of the harmless runs; ``short`` are the ends of the harmless tasks.
        tasks: Begin and end of the foreign tasks that hold the core.
    """

    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self):
        self.rng = rng = random.Random(self.seed)
        self.stalls = []
        for earliest in (4, 32):
            begin = rng.uniform(earliest, earliest + 18) * S
            self.stalls.append((rng.choice(KINDS), begin, begin + rng.uniform(1, 5) * S))
        self.light, at = [], rng.uniform(0, 8) * S
        while at < 60 * S:
            ends = at + rng.uniform(1, 6) * S
            self.light.append((int(at), int(ends)))
            at = ends + rng.uniform(2, 8) * S
        self.short = sorted(rng.uniform(0, 60) * S for _ in range(rng.randint(5, 200)))
        self.tasks = []
        for kind, at, end in self.stalls:
            while kind == "foreign_dla_task" and at < end:
                ends = at + rng.uniform(20, 120) * MS
                self.tasks.append((at, ends))
                at = ends + rng.uniform(20, 400) * MS
        self.slower = {"throttled": rng.uniform(1.7, 2.5), "other_lane": rng.uniform(1.7, 2.2)}

    def of(self, kind):
        return [(begin, end) for one, begin, end in self.stalls if one == kind]

    def holds(self, kind, at):
        return any(begin <= at < end for begin, end in self.of(kind))

    def planted(self, at):
        """Return the kind of the stall in which, or just after which, a time lies."""
        return next((kind for kind, _, end in self.stalls if at < end + S), None)

    def latency(self, start):
        """Return what an inference takes: 20 ms, and more in a stall."""
        took = 20 * MS * self.rng.gauss(1, 0.02)
        if any(a <= start < b for a, b in self.light):
            took *= 1.05
        for kind, factor in self.slower.items():
            for _, end in ((a, b) for a, b in self.of(kind) if a <= start < b):
                # What is left when the stall ends goes on at the usual speed.
                took += min(took, (end - start) / factor) * (factor - 1)
        for a, b in self.tasks:  # the core takes one task at a time
            if a < start + took and start < b:
                took += b - max(a, start)
        return int(took)

    def run(self):
        """Return the report of the run."""
        rng, starts, latencies, stalls, at = self.rng, [], [], [], 0
        while at < 60 * S:
            took = self.latency(at)
            starts.append(at)
            latencies.append(took)
            if took > DEADLINE_MS * MS:
                noted = {"waited_ns": rng.randint(0, 2 * MS), "major_faults": rng.random() < 0.1}
                usual = {"usual_wait_ratio": 0.02, "usual_fault_ratio": 0.05}
                stalls.append(Stall(start_ns=at, **noted, **usual))
            at += max(took, 40 * MS) + rng.randint(0, MS)
        trace = RunTrace("r", "w", "tensorrt", "dla0", 0, 0, deadline_seconds=DEADLINE_MS / 1e3)
        trace.add(Phase(run_id="r", phase="steady", edge="begin", at_ns=0))
        times = {"start_ns": tuple(starts), "latency_ns": tuple(latencies)}
        trace.add(Inferences(run_id="r", **times, stalls=tuple(stalls[-20:])))
        trace.add(Phase(run_id="r", phase="steady", edge="end", at_ns=at))
        runs = [("light", a, b) for a, b in self.light]
        runs += [("heavy", int(a), int(b)) for a, b in self.of("other_lane")]
        others = {f"{name}-{a}": (Span(begin_ns=a, end_ns=b),) for name, a, b in runs}
        names = {run: run.partition("-")[0] for run in others}
        made = correlate(trace, self.telemetry(at), others=others, workloads=names).deadline
        assert made.misses == sum(one > DEADLINE_MS * MS for one in latencies)
        return made

    def telemetry(self, end):
        """Return a sample about every second; a task is counted 20 ms after its end."""
        rng, times, at = self.rng, [], -S
        while at < end + S:
            at += 1_009 * MS + rng.randint(0, 5 * MS)
            times.append(at)
        hot = [self.holds("throttled", at) for at in times]
        clocks = [1.6e9 / (self.slower["throttled"] if one else 1) for one in hot]
        begun = [begin for begin, _ in self.of("throttled")]
        done = [(b - a, b + 20 * MS) for a, b in self.tasks]
        columns = {
            "throttle.gpu_thermal.active": [float(one) for one in hot],
            "throttle.gpu_thermal.events": [sum(one <= at for one in begun) for at in times],
            "throttle.sw_power_cap.active": [float(rng.random() < 0.5) for _ in times],
            "dla.0.frequency_hertz": clocks,
            "emc.frequency_hertz": [3.2e9 for _ in times],
            "gpu.frequency_hertz.0": [rng.choice([0.3e9, 1.3e9]) for _ in times],
            "dla.0.process_seconds.slam": [
                sum(took for took, seen in done if seen <= at) / S for at in times
            ],
            "dla.1.process_seconds.cron": [
                0.003 * sum(one + 20 * MS <= at for one in self.short) for at in times
            ],
        }
        stamps = array("q", times)
        return WindowSlice(stamps, stamps, {n: array("d", one) for n, one in columns.items()})


def test_planted_stalls_are_named_in_at_least_95_of_100():
    """A planted stall counts as named if each of its misses that were kept has its name."""
    named, planted, misses, wrong = Counter(), Counter(), Counter(), []
    first = random.randrange(10**6)
    seed = first
    while planted.total() < 100:
        world = World(seed)
        found = {}
        for miss in world.run().last:
            found.setdefault(world.planted(miss.start_ns), []).append(miss.cause)
        for kind, blamed in found.items():
            right = blamed.count(kind)
            planted[kind] += 1
            named[kind] += right == len(blamed)
            misses["named"] += right
            misses["all"] += len(blamed)
            if right < len(blamed):
                wrong.append((seed, kind, dict(Counter(blamed))))
        seed += 1
    print(f"seeds from {first}: {named.total()} of {planted.total()} stalls {dict(named)}")
    print(f"{misses['named']} of {misses['all']} misses; not named: {wrong}")
    assert named.total() >= 0.95 * planted.total(), wrong

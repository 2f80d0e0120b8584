"""Simulated accelerators: their paces are published, and a busy machine changes no figure."""

import statistics
import threading

import pytest
from msgspec.structs import replace

from tegrascope.collectors.backends.simulated import Simulated
from tegrascope.collectors.catalog import find_backend
from tegrascope.collectors.simulator.board import SimulatedBoard
from tegrascope.collectors.simulator.paces import all_paces, find_pace
from tegrascope.collectors.simulator.physics import LoadBoard, board_model
from tegrascope.collectors.simulator.plan import PlannedClock
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.events import (
    Counted,
    Finished,
    Inferences,
    InferenceSettings,
    Loaded,
    Order,
    Phase,
    Surroundings,
)
from tegrascope.workbench.results.published import published

S = 1_000_000_000
PACES = {f"{pace.model} {pace.device} {pace.precision}": pace for pace in all_paces()}


class SlowMachine:
    """A clock that goes on by itself only in waits, each of which takes far too long."""

    def __init__(self, late_ns=0):
        self.now_ns = 5 * S  # just booted
        self.late_ns = late_ns

    def monotonic_ns(self):
        return self.now_ns

    wall_ns = boottime_ns = monotonic_ns

    def wait(self, event, until_ns):
        self.now_ns = max(self.now_ns, until_ns) + self.late_ns
        return event.is_set()


def order(**changes):
    given = {"run_id": "r", "backend": "simulated", "device": "gpu", "model": "builtin:resnet50"}
    given |= {"model_directory": "/none", "duration_seconds": 10.0, "warm_up_seconds": 0.5}
    return Order.model_validate({**given, "baseline_seconds": 1.0, **changes})


def run(asked, machine, surroundings=(), heard=lambda _runner, _event: None):
    """Carry out an order; return the events with the machine's time at each."""
    events = []
    plan = PlannedClock(machine)
    kind = type("Here", (Simulated,), {"clock": plan})

    def tell(event):
        events.append((machine.now_ns, event))
        heard(runner, event)

    runner = Runner(
        lambda _: kind(),
        tell,
        threading.Event(),
        machine,
        lambda _: plan,
    )
    for one in surroundings:
        runner.take(one)
    runner.run(asked)
    now_ns, finished = events[-1]
    events[-1] = now_ns, finished.model_copy(update={"process_peak_bytes": None})
    return events


def latencies(events):
    return [ns for _, one in events if isinstance(one, Inferences) for ns in one.latency_ns]


@pytest.mark.parametrize("name", PACES)
def test_pace_is_a_published_result_of_the_board(name):
    pace = PACES[name]
    times = []
    for row in published():
        conditions = (row.title, row.device, row.precision, row.batch)
        wanted = (pace.title, pace.device, pace.precision, pace.batch)
        is_model = pace.model.replace("-", "") in (row.family, row.model)
        if conditions != wanted or not is_model or row.mode not in (None, "MAXN"):
            continue
        assert str(row.address).startswith(pace.address)
        seconds = row.latency_seconds
        statistic = row.statistic or "typical"
        if seconds is None:
            seconds = row.batch * (row.dla_cores or 1) / row.throughput_per_second
            statistic = "mean"
        assert statistic == pace.statistic
        times.append(seconds * 1e3)
    assert times == [pytest.approx(pace.milliseconds, rel=1e-6)]


@pytest.mark.parametrize("name", PACES)
def test_latencies_have_the_distribution_of_their_pace(name):
    pace = PACES[name]
    drawn = pace.latencies_ns("seed")
    some = sorted(next(drawn) for _ in range(600))
    percentiles = statistics.quantiles(some, n=100, method="inclusive")
    assert statistics.mean(some) == pytest.approx(pace.mean_ns, rel=0.002)
    assert percentiles[49] == pytest.approx(pace.p50_ns, rel=0.002)
    assert percentiles[98] == pytest.approx(pace.p99_ns, rel=0.01)
    if pace.statistic == "p90":
        assert percentiles[89] == pytest.approx(pace.milliseconds * 1e6, rel=0.002)
    assert pace.p99_ns / pace.p50_ns == pytest.approx(pace.tail)


def test_latencies_of_two_runs_come_in_different_orders():
    pace = PACES["resnet50 gpu fp16"]
    one, other = pace.latencies_ns("1"), pace.latencies_ns("2")
    first, second = [next(one) for _ in range(200)], [next(other) for _ in range(200)]
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize("late_ns", [0, S // 2, 3 * S])
def test_events_carry_the_planned_times_however_late_the_machine_is(late_ns):
    punctual, late = run(order(), SlowMachine()), run(order(), SlowMachine(late_ns))
    assert [event for _, event in late] == [event for _, event in punctual]
    finished = late[-1][1]
    assert isinstance(finished, Finished)
    assert finished.outcome == "ok"


def test_a_plan_is_told_ahead_of_its_time_and_ends_in_time():
    events = run(order(), SlowMachine())
    for now_ns, event in events:
        if isinstance(event, Phase):
            assert event.at_ns - S - S // 10 <= now_ns
    edges = [(now_ns, event.at_ns) for now_ns, event in events if isinstance(event, Phase)]
    assert all(now_ns <= at_ns for now_ns, at_ns in edges)
    assert events[-1][0] >= edges[-1][1]


def test_run_has_the_layers_and_units_of_its_pace():
    asked = order(device="dla0", model="model_gn", batch=32, precision="int8", unit="image")
    events = [event for _, event in run(asked, SlowMachine())]
    [loaded] = [event for event in events if isinstance(event, Loaded)]
    assert loaded.built.placement.verdict == "mixed"
    assert "InstanceNormalization_5" in loaded.built.placement.gpu_layers
    assert loaded.model_sha256 is None
    counted = sum(event.units for event in events if isinstance(event, Counted))
    inferences = sum(len(event.start_ns) for event in events if isinstance(event, Inferences))
    assert counted == 32 * inferences > 0


@pytest.mark.parametrize("fallback", ["forbid", "require-pure"])
def test_forbidden_fallback_fails_as_on_a_board(fallback):
    asked = order(device="dla0", model="model_gn", batch=32, fallback=fallback)
    finished = run(asked, SlowMachine())[-1][1]
    assert finished.outcome == "failed"
    assert "InstanceNormalization_5" in finished.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "vgg16.onnx"}, "no pace of vgg16 is known, so no accelerator"),
        ({"batch": 2}, "in any precision, batch 2: use gpu in fp16, batch 1, dla in fp16"),
        ({"precision": "int8"}, "on gpu in int8, batch 1"),
        (
            {"device": "gpu", "model": "model_gn", "batch": 32},
            "no pace of model_gn is known on gpu",
        ),
        ({"streams": 2}, "one inference at a time: leave streams out"),
        ({"shapes": {"image": [1, 3, 64, 64]}}, "own shapes: leave shapes out"),
        ({"device": "cpu"}, "simulated has no device 'cpu': use one of gpu, dla0, dla1"),
    ],
)
def test_what_has_no_pace_is_refused(changes, words):
    finished = run(order(**changes), SlowMachine())[-1][1]
    assert finished.outcome in ("failed", "skipped")
    assert words in finished.reason


def test_slowdown_holds_from_its_time_on():
    later = Surroundings(at_ns=10 * S, slowdown=2.0)
    events = run(order(baseline_seconds=0), SlowMachine(), [later])
    pace = find_pace("resnet50", "gpu", "fp16", 1)
    before, after = [], []
    for _, event in events:
        if isinstance(event, Inferences):
            for start, latency in zip(event.start_ns, event.latency_ns, strict=True):
                (after if start >= later.at_ns else before).append(latency)
    assert statistics.median(before) == pytest.approx(pace.p50_ns, rel=0.005)
    assert statistics.median(after) == pytest.approx(2 * pace.p50_ns, rel=0.005)


def test_work_waits_for_what_others_announce_for_the_same_time():
    """The daemon hears of all that begin at once, and tells each of the others half a second on."""
    machine = SlowMachine()

    def heard(runner, event):
        if isinstance(event, Phase) and (event.phase, event.edge) == ("steady", "begin"):
            machine.now_ns += S // 2
            runner.take(Surroundings(at_ns=event.at_ns, slowdown=2.0))

    slowed = latencies(run(order(), machine, heard=heard))
    pace = find_pace("resnet50", "gpu", "fp16", 1)
    assert statistics.median(slowed) == pytest.approx(2 * pace.p50_ns, rel=0.005)
    assert min(slowed[1:]) > 1.9 * pace.p50_ns


class Heard(list):
    """What a follower is told."""

    def hear(self, at_ns, slowdown):
        self.append((at_ns, round(slowdown, 3)))


def test_others_on_the_board_slow_a_lane_by_its_memory_and_its_turns():
    load, heard = LoadBoard(), Heard()
    load.belong_to(board_model("agx-orin-64gb"))
    load.set("dla0", 1.0, 0, "dla0")
    load.follow("dla0", "dla0", heard.hear)
    load.set("gpu", 1.0, 10, "gpu")
    load.set("dla0", 1.0, 20, "second")
    load.end("second", 30)
    load.end("gpu", 40)
    load.end("dla0", 50)
    load.set("gpu", 1.0, 60, "gpu")
    # The GPU takes 38 % of the bandwidth; and another on the same core takes every second turn.
    by_memory = round(1 + 0.3 * 0.38 / 0.62, 3)
    shared = pytest.approx(2 * by_memory, abs=0.002)
    assert heard[1:] == [(10, by_memory), (20, shared), (30, by_memory), (40, 1.0)]


def test_changes_that_were_announced_are_told_again_when_one_before_them_comes():
    load, heard = LoadBoard(), Heard()
    load.belong_to(board_model("agx-orin-64gb"))
    load.follow("gpu", "one", heard.hear)
    heard.clear()
    load.set("gpu", 0.5, 100, "two")
    load.set("gpu", 0.0, 200, "two")
    load.set("gpu", 0.25, 50, "three")
    assert dict(heard) == {50: 1.25, 100: 1.75, 200: 1.25}


def test_heat_holds_clocks_low_in_power_and_pace():
    load, heard = LoadBoard(), Heard()
    model = board_model("agx-orin-64gb")
    load.set("gpu", 1.0, 0, "gpu")
    load.follow("gpu", "gpu", heard.hear)
    hot = SimulatedBoard(replace(model, ambient_celsius=70.0), load, begin_ns=0)
    hot.advance(5 * S)
    cool_watts = hot.true_energy(S, 2 * S).module_joules
    at_ns = 5 * S
    while len(heard) == 1 and at_ns < 400 * S:
        at_ns += S // 10
        hot.advance(at_ns)
    assert [slowdown for _, slowdown in heard] == [1.0, round(1 / 0.7, 3)]
    sample = hot.read(at_ns + S // 10, 0)
    held_watts = 10 * hot.true_energy(at_ns, at_ns + S // 10).module_joules
    assert held_watts < 0.75 * cool_watts
    assert max(sample.gpu.frequency_hertz) <= 0.72 * 1_300_500_000


def test_a_load_that_was_announced_ends_with_its_holder():
    load = LoadBoard()
    load.set("gpu", 1.0, 100, "gpu")
    load.set("gpu", 0.0, 200, "gpu")
    load.set("gpu", 1.0, 300, "gpu")
    load.end("gpu", 150)
    assert load.busy_ratio("gpu", 100, 150) == 1
    assert load.busy_ratio("gpu", 150, 1000) == 0


def test_back_end_says_what_it_keeps_busy():
    settings = InferenceSettings()
    kind = find_backend("simulated")
    assert kind.loads("resnet50", "dla1", settings) == {"dla1": 1.0, "gpu": 0.01}
    assert kind.loads("unknown", "dla1", settings) == {}
    with pytest.raises(UserError):
        kind.check("unknown", "dla1", settings)
    assert find_backend("onnxruntime").loads("unknown", "cpu", settings) == {"cpu": 1.0}

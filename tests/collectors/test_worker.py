"""The worker: the run loop with a clock of its own, then the process as the daemon starts it."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy
import pytest

from tegrascope.collectors.backends.base import Inferring
from tegrascope.collectors.worker.run_loop import Runner, peak_bytes
from tegrascope.parsers.errors import BackendUnavailable, DeviceLostError, UserError
from tegrascope.parsers.inference.events import (
    Declined,
    Finished,
    Hello,
    Inferences,
    Loaded,
    Order,
    Phase,
    RunEvent,
    parse_run_event,
    render_event,
)
from tegrascope.parsers.inference.layers import LayerProfile
from tegrascope.parsers.inference.placement import Built
from tests.fakes.processes import PATIENCE_SECONDS, Stopwatch

TELL_NS = 50  # for an event, by the clock of the tests
PHASES = ["load", "warm_up", "baseline_before", "steady", "baseline_after"]


def make_order(run_id: str = "r1", **changes: object) -> Order:
    asked: dict[str, object] = {
        "run_id": run_id,
        "backend": "fake",
        "device": "cpu",
        "model": __file__,
        "model_directory": ".",
        "warm_up_seconds": 0.0,
    }
    if "count" not in changes and "duration_seconds" not in changes:
        asked["count"] = 5
    return Order.model_validate({**asked, **changes})


def phases(events: list[RunEvent]) -> list[Phase]:
    return [event for event in events if isinstance(event, Phase)]


def starts(events: list[RunEvent]) -> list[int]:
    return [at for event in events if isinstance(event, Inferences) for at in event.start_ns]


def latencies(events: list[RunEvent]) -> list[int]:
    return [ns for event in events if isinstance(event, Inferences) for ns in event.latency_ns]


def assert_well_formed(events: list[RunEvent]) -> None:
    """Hold what every run promises, however it ends."""
    ends = [isinstance(event, (Finished, Declined)) for event in events]
    assert ends.index(True) == len(events) - 1
    edges = phases(events)
    assert [edge.edge for edge in edges] == ["begin", "end"] * (len(edges) // 2)
    assert all(a.phase == b.phase for a, b in zip(edges[::2], edges[1::2], strict=True))
    assert [edge.at_ns for edge in edges] == sorted(edge.at_ns for edge in edges)
    began = starts(events)
    ended = [start + took for start, took in zip(began, latencies(events), strict=True)]
    if began:
        (begin,) = (e.at_ns for e in edges if (e.phase, e.edge) == ("steady", "begin"))
        (end,) = (e.at_ns for e in edges if (e.phase, e.edge) == ("steady", "end"))
        assert begin <= began[0]
        assert end == ended[-1]
        assert all(a <= b for a, b in zip(ended, began[1:], strict=False))


class FakeClock:
    """Time that passes only when somebody works or waits."""

    def __init__(self) -> None:
        self.now_ns = 1_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    wall_ns = boottime_ns = monotonic_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        self.now_ns = max(self.now_ns, until_ns)
        return event.is_set()


class FakeEngine(Inferring):
    """Takes the time it is told to take, and notes what is asked of it."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.builds = False
        self.engine_key: str | None = None
        self.stages: tuple[str, ...] = ()
        self.infer_ns: Iterator[int] = iter(lambda: 10_000_000, 0)
        self.failure: Exception | None = None
        self.after: dict[int, threading.Event] = {}
        clock.now_ns += 300

    def load(self, _model: Path, _order: Order) -> None:
        self.asked.append("load")
        self.clock.now_ns += 2_000
        if self.failure is not None:
            raise self.failure

    def build(self) -> None:
        self.asked.append("build")
        self.clock.now_ns += 7_000

    def infer(self) -> None:
        self.asked.append("infer")
        self.clock.now_ns += next(self.infer_ns)
        done = self.asked.count("infer")
        if done in self.after:
            self.after[done].set()

    def infer_timed(self) -> None:
        self.asked.append("timed")
        self.infer()

    def stages_ns(self) -> list[int]:
        return [1, 2]

    @property
    def cold_start_ns(self) -> dict[str, int]:
        return {"deserialise": 1_500} if "build" in self.asked else {}

    def inputs(self) -> dict[str, object]:
        return {"given": numpy.zeros((1, 3), "f4")}

    def feed(self, inputs: dict[str, object]) -> None:  # noqa: ARG002
        self.asked.append("feed")

    def outputs(self) -> dict[str, object]:
        return {"scores": numpy.array([[1.0, float(self.asked.count("infer"))]])}

    @property
    def built(self) -> Built | None:
        return Built(engine_bytes=7, engine_key=self.engine_key) if self.builds else None

    def device_peak_bytes(self) -> int | None:
        return 4096 if self.builds else None

    @property
    def versions(self) -> dict[str, str]:
        return {"fake": "1.0"}

    def close(self) -> None:
        self.asked.append("close")


class Bench:
    """A runner whose engines, clock and events a test can look at."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.stop = threading.Event()
        self.events: list[RunEvent] = []
        self.engines: list[FakeEngine] = []
        self.prepare = lambda _: None
        self.runner = Runner(self.make, self.tell, self.stop, self.clock)

    def make(self, name: str) -> FakeEngine:
        if name != "fake":
            raise BackendUnavailable(f"{name} is not installed", f"install {name}")
        engine = FakeEngine(self.clock)
        self.prepare(engine)
        self.engines.append(engine)
        return engine

    def tell(self, event: RunEvent) -> None:
        self.clock.now_ns += TELL_NS
        self.events.append(parse_run_event(render_event(event)))

    def run(self, **changes: object) -> list[RunEvent]:
        self.events = []
        self.runner.run(make_order(**changes))
        assert_well_formed(self.events)
        return self.events

    @property
    def used(self) -> list[list[str]]:
        return [engine.asked for engine in self.engines if engine.asked]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_outputs_of_the_last_inference_are_compared_with_the_first_run(bench, tmp_path):
    returned = []

    def prepare(engine: FakeEngine) -> None:
        engine.builds, engine.engine_key = True, "k"
        engine.outputs = lambda: returned.append(bench.clock.now_ns) or {"y": numpy.ones(3)}

    bench.prepare = prepare
    order = {"baseline_seconds": 2.0, "engine_directory": str(tmp_path)}
    events = bench.run(**order)
    assert events[-1].outputs.difference is None, "the first run"
    assert bench.run(**order)[-1].outputs == events[-1].outputs.model_copy(
        update={"difference": 0.0}
    )
    end = phases(events)[-1]
    assert end.phase == "baseline_after"
    assert returned[0] >= end.at_ns, "no copy of outputs falls into a phase that is measured"


def test_outputs_are_not_compared_without_a_kept_engine(bench, tmp_path):
    bench.prepare = lambda engine: setattr(engine, "builds", True)
    assert bench.run(engine_directory=str(tmp_path))[-1].outputs is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_goes_through_its_phases_in_order(bench):
    events = bench.run(baseline_seconds=2.0)
    assert [edge.phase for edge in phases(events) if edge.edge == "begin"] == PHASES
    loaded = next(at for at, event in enumerate(events) if isinstance(event, Loaded))
    assert [edge.phase for edge in phases(events[:loaded])][-1] == "warm_up"
    for name in ("baseline_before", "baseline_after"):
        begin, end = (edge.at_ns for edge in phases(events) if edge.phase == name)
        assert end - begin == 2_000_000_000


def test_cold_start_parts_are_timed_apart(bench):
    """Import, load, build and the first inference each have their own time."""

    def prepare(engine):
        engine.builds = True
        engine.infer_ns = iter([5_000_000, *[1_000_000] * 10])

    bench.prepare = prepare
    events = bench.run()
    (loaded,) = (event for event in events if isinstance(event, Loaded))
    assert loaded.cold_start_seconds == pytest.approx(
        {
            "import": 300e-9,
            "load": 2e-6,
            "build": 5.5e-6,
            "deserialise": 1.5e-6,
            "first_inference": 5e-3,
        }
    )
    assert loaded.built.engine_bytes == 7
    assert events[-1].device_peak_bytes == 4096
    assert loaded.versions["fake"] == "1.0"
    assert "python" in loaded.versions
    assert "build" in {edge.phase for edge in phases(events)}
    assert latencies(events) == [1_000_000] * 5


def test_a_second_run_finds_the_model_loaded(bench):
    first, second = bench.run(), bench.run()
    assert bench.used == [["load", *["infer"] * 11]]
    cold = [e.cold_start_seconds for e in [*first, *second] if isinstance(e, Loaded)]
    assert set(cold[0]) == {"import", "load", "first_inference"}
    assert cold[1] == {}


@pytest.mark.parametrize(
    "change", [{"batch": 2}, {"threads": 1}, {"device": "gpu"}, {"precision": "fp16"}]
)
def test_a_second_load_is_declined(bench, change):
    """Nothing of the run is begun, and the model that is loaded stays good for its own orders."""
    bench.run()
    assert bench.run(run_id="r2", **change) == [Declined(run_id="r2")]
    assert bench.run()[-1].outcome == "ok"
    assert len(bench.used) == 1


def test_a_model_that_changed_on_disk_is_declined(bench, tmp_path):
    model = tmp_path / "m.onnx"
    model.write_bytes(b"one")
    assert bench.run(model=str(model))[-1].outcome == "ok"
    model.write_bytes(b"another")
    assert isinstance(bench.run(model=str(model))[-1], Declined)
    assert len(bench.used) == 1


def test_a_count_is_kept_exactly(bench):
    """So many inferences are asked for, so many are measured, in lines of bounded length."""
    bench.prepare = lambda engine: setattr(engine, "infer_ns", iter(lambda: 1_000, 0))
    events = bench.run(count=2_500)
    sizes = [len(event.start_ns) for event in events if isinstance(event, Inferences)]
    assert sizes == [1024, 1024, 452]


def test_a_duration_ends_with_a_whole_inference(bench):
    """The last inference is the one under way when the time is over; about one line a second."""
    events = bench.run(duration_seconds=3.005)
    took = latencies(events)
    assert len(took) == 301
    assert set(took) == {10_000_000}, "telling is not part of any latency"
    assert sum(isinstance(event, Inferences) for event in events) == 4


def test_by_a_pattern_it_infers_in_every_second_step(bench):
    events = bench.run(duration_seconds=2.0, steps_seconds=(0.5, 0.3, 0.2, 0.4, 0.6))
    assert_well_formed(events)
    began = starts(events)
    assert len(began) == 70
    pauses = [b - a for a, b in pairwise(began) if b - a > 20_000_000]
    assert pauses == pytest.approx([210_000_000], abs=1000)


def test_stage_of_an_order_is_repeated_in_place_of_inferences(bench):
    asked = []

    def repeat(stage, count):
        asked.append((stage, count))
        return lambda: setattr(bench.clock, "now_ns", bench.clock.now_ns + 1_000_000)

    def prepare(engine):
        engine.stages, engine.repeat = ("h2d", "compute"), repeat

    bench.prepare = prepare
    events = bench.run(
        duration_seconds=1.0, steps_seconds=(0.5, 0.3, 0.2), stage="compute", repeats=4
    )
    assert_well_formed(events)
    assert asked == [("compute", 4)]
    assert set(latencies(events)) == {1_000_000}
    assert len(starts(events)) == 300
    assert not any(event.stages_ns for event in events if isinstance(event, Inferences))


def test_stage_that_cannot_be_repeated_alone_fails_the_run_in_one_line(bench):
    events = bench.run(duration_seconds=1.0, steps_seconds=(0.5, 0.3, 0.2), stage="h2d")
    assert (events[-1].outcome, events[-1].reason) == (
        "failed",
        "this back-end cannot repeat h2d alone: leave --stages out",
    )


def test_stages_stand_beside_the_latencies(bench):
    bench.prepare = lambda engine: setattr(engine, "stages", ("h2d", "compute"))
    (inferences,) = (event for event in bench.run() if isinstance(event, Inferences))
    assert inferences.stages_ns == {"h2d": (1,) * 5, "compute": (2,) * 5}


def test_of_short_inferences_the_device_times_one_in_5_ms(bench):
    """Its events would take a large part of each."""

    def prepare(engine):
        engine.stages = ("h2d", "compute")
        engine.infer_ns = iter(lambda: 50_000, 0)

    bench.prepare = prepare
    events = bench.run(count=1000)
    assert len(latencies(events)) == 1000
    stages = [event.stages_ns for event in events if isinstance(event, Inferences)]
    assert [len(times) for each in stages for times in each.values()] == [10, 10]
    (engine,) = bench.engines
    # The first inference of all warms up.
    assert [at for at, call in enumerate(engine.asked) if call == "timed"][:3] == [2, 103, 204]


def test_time_between_inferences_is_told(bench):
    """It is the worker's own: here the reading of the device's times and the printing."""

    def read_events():
        bench.clock.now_ns += 7_000
        return [1]

    def prepare(engine):
        engine.stages, engine.stages_ns = ("compute",), read_events
        engine.infer_ns = iter(lambda: 1_000_000, 0)

    bench.prepare = prepare
    events = bench.run(count=1500)
    first, second = [event for event in events if isinstance(event, Inferences)]
    timed = [len(event.stages_ns["compute"]) for event in (first, second)]
    # What follows the last inference of all is between no two.
    assert first.between_ns == 7_000 * timed[0]
    assert second.between_ns == 7_000 * timed[1] + TELL_NS
    assert len(first.start_ns) + len(second.start_ns) == 1500


def test_rests_of_a_pattern_are_not_between_inferences(bench):
    events = bench.run(duration_seconds=1.0, steps_seconds=(0.5, 0.3, 0.2))
    assert [e.between_ns for e in events if isinstance(e, Inferences)] == [0]


def test_a_device_without_events_times_none(bench):
    bench.run(count=1000)
    assert "timed" not in bench.engines[-1].asked


class FakeSlots(FakeEngine):
    """A device that has several inferences in flight, each as long as its test says."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.slots: list[FakeSlot] = []
        self.most = 0

    def load(self, model: Path, order: Order) -> None:
        super().load(model, order)
        self.slots = [FakeSlot(self, number) for number in range(order.streams)]

    @property
    def in_flight(self) -> int:
        return sum(slot.done_ns is not None for slot in self.slots)


class FakeSlot:
    """One slot of such a device; its stage takes as many nanoseconds as its number."""

    def __init__(self, engine: FakeSlots, number: int) -> None:
        self.engine = engine
        self.number = number
        self.done_ns: int | None = None

    def submit_timed(self) -> None:
        self.engine.asked.append("timed")
        self.submit()

    def submit(self) -> None:
        assert self.done_ns is None, "a slot that is not free"
        engine = self.engine
        engine.clock.now_ns += 100
        self.done_ns = engine.clock.now_ns + next(engine.infer_ns)
        engine.most = max(engine.most, engine.in_flight)

    def wait(self) -> None:
        engine = self.engine
        engine.asked.append("wait")
        assert self.done_ns is not None
        engine.clock.now_ns = max(engine.clock.now_ns, self.done_ns)
        self.done_ns = None
        done = engine.asked.count("wait")
        if done in engine.after:
            engine.after[done].set()

    def stages_ns(self) -> list[int]:
        return [self.number]


def run_in_slots(bench: Bench, prepare=lambda _: None, **changes: object) -> list[RunEvent]:
    """Run an order with an engine that has slots; latencies may overlap."""

    def make(_: str) -> FakeSlots:
        engine = FakeSlots(bench.clock)
        prepare(engine)
        bench.engines.append(engine)
        return engine

    bench.events = []
    Runner(make, bench.tell, bench.stop, bench.clock).run(make_order(**changes))
    return bench.events


def test_several_inferences_are_in_flight(bench):
    """Every slot is kept busy, and a latency is from its own start to its own completion."""
    events = run_in_slots(bench, streams=3, count=7)
    assert bench.engines[-1].most == 3
    assert len(latencies(events)) == 7
    # Each starts when the one before it has been enqueued, or a slot has come free.
    assert latencies(events)[0] == 10_000_100
    ends = [start + took for start, took in zip(starts(events), latencies(events), strict=True)]
    assert ends == sorted(ends)
    assert starts(events)[1] < ends[0]
    (end,) = (e.at_ns for e in phases(events) if (e.phase, e.edge) == ("steady", "end"))
    assert end == ends[-1]


def test_stage_is_repeated_without_the_slots(bench):
    def wait_a_millisecond():
        bench.clock.now_ns += 1_000_000

    def prepare(engine):
        engine.repeat = lambda *_: wait_a_millisecond

    events = run_in_slots(bench, prepare, streams=2, duration_seconds=0.1, stage="compute")
    assert set(latencies(events)) == {1_000_000}
    assert bench.engines[-1].most == 0


def test_in_slots_a_duration_ends_with_all_that_was_started(bench):
    """Nothing is started after its end, and nothing that was started is lost."""
    events = run_in_slots(bench, streams=2, duration_seconds=0.1)
    (begin,) = (e.at_ns for e in phases(events) if (e.phase, e.edge) == ("steady", "begin"))
    assert all(start < begin + 100_000_000 + 10_000_200 for start in starts(events))
    assert bench.engines[-1].in_flight == 0
    assert len(latencies(events)) == 20


def test_in_slots_a_stop_drains_what_is_in_flight(bench):
    """A cancelled run keeps what was complete, and leaves nothing on the device."""
    events = run_in_slots(
        bench, lambda engine: setattr(engine, "after", {4: bench.stop}), streams=2, count=100
    )
    assert events[-1].outcome == "cancelled"
    assert len(latencies(events)) == 5
    assert bench.engines[-1].in_flight == 0


def test_in_slots_stages_are_those_of_the_slot(bench):
    events = run_in_slots(
        bench, lambda engine: setattr(engine, "stages", ("compute",)), streams=3, count=7
    )
    (inferences,) = (event for event in events if isinstance(event, Inferences))
    # Only of the first in 5 ms: of the three that start at once, one.
    assert inferences.stages_ns == {"compute": (0, 0, 0)}
    assert bench.engines[-1].asked.count("timed") == 3


def test_in_slots_the_time_between_is_that_of_this_thread(bench):
    """From the end of one inference to the start of the next in its place."""

    def prepare(engine):
        engine.stages, engine.infer_ns = ("compute",), iter(lambda: 10_000_000, 0)

    tell = bench.tell

    def print_slowly(event):
        tell(event)
        if isinstance(event, Inferences):
            bench.clock.now_ns += 500_000 - TELL_NS

    bench.tell = print_slowly
    events = run_in_slots(bench, prepare, streams=2, duration_seconds=2.0)
    found = [event for event in events if isinstance(event, Inferences)]
    # The clock of this device moves only while it infers, or while the worker prints.
    assert [event.between_ns for event in found] == [0, 500_000, 0]


def test_an_engine_without_slots_runs_one_at_a_time(bench):
    assert len(latencies(bench.run(streams=4, count=3))) == 3


def test_what_was_not_built_is_no_build(bench):
    """An engine from the cache has a cache_load, and all of the phase's rest is in it."""

    class Cached(FakeEngine):
        @property
        def cold_start_ns(self):
            return {"cache_load": 4_000} if "build" in self.asked else {}

    def make(_: str) -> Cached:
        engine = Cached(bench.clock)
        engine.builds = True
        return engine

    Runner(make, bench.tell, bench.stop, bench.clock).run(make_order())
    (loaded,) = (event for event in bench.events if isinstance(event, Loaded))
    assert loaded.cold_start_seconds["cache_load"] == pytest.approx(7e-6)
    assert "build" not in loaded.cold_start_seconds


def test_the_first_inference_is_told_without_what_follows_it(bench):
    """A graph that is made after it is a part of its own."""

    class Graphed(FakeEngine):
        @property
        def cold_start_ns(self):
            return {"graph": 4_000_000} if "infer" in self.asked else {}

    Runner(lambda _: Graphed(bench.clock), bench.tell, bench.stop, bench.clock).run(make_order())
    (loaded,) = (event for event in bench.events if isinstance(event, Loaded))
    parts = loaded.cold_start_seconds
    assert (parts["first_inference"], parts["graph"]) == pytest.approx((6e-3, 4e-3))


def test_layers_are_timed_after_all_else(bench, tmp_path):
    """The pass is in no phase, and the same order needs no new load."""
    bench.run()
    engine = bench.engines[0]
    told = []

    def profile(count: int) -> LayerProfile:
        told.append([edge.phase for edge in phases(bench.events)][-1])
        return LayerProfile(inferences=count, total_ns=51, layers_ns={"conv": 50})

    engine.profile = profile
    bench.run(profile_file=str(tmp_path / "layers.json"))
    assert told == ["steady"]
    assert len(bench.used) == 1
    written = LayerProfile.model_validate_json((tmp_path / "layers.json").read_text())
    assert (written.inferences, written.total_ns, written.layers_ns) == (50, 51, {"conv": 50})


def test_a_back_end_without_layers_says_so(bench, tmp_path):
    finished = bench.run(profile_file=str(tmp_path / "layers.json"))[-1]
    assert (finished.outcome, "cannot time a layer" in finished.reason) == ("failed", True)


def test_a_lost_device_ends_the_worker(bench):
    """Its run fails with the reason; nothing of it is released, since that may hang."""
    assert not bench.runner.has_lost_device
    bench.prepare = lambda engine: setattr(engine, "failure", DeviceLostError("cudaErrorX: gone"))
    assert bench.run()[-1].reason == "DeviceLostError: cudaErrorX: gone"
    assert bench.runner.has_lost_device
    assert bench.used == [["load"]]


def test_outputs_are_written_where_they_are_asked_for(bench, tmp_path):
    bench.run()
    bench.run(outputs_file=str(tmp_path / "gpu.npz"))
    assert len(bench.used) == 1
    with numpy.load(tmp_path / "gpu.npz") as outputs:
        assert outputs["arr_0"].shape == (8, 2)
        assert outputs["arr_0"][:, 0].tolist() == [1.0] * 8
        assert len(set(outputs["arr_0"][:, 1])) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.npz"]


def test_warm_up_lasts_as_long_as_asked(bench):
    """A device that is steady from the start is warmed up for the time given, not longer."""
    events = bench.run(warm_up_seconds=2.0)
    begin, end = (edge.at_ns for edge in phases(events) if edge.phase == "warm_up")
    assert 2e9 <= end - begin < 2.1e9


def test_warm_up_waits_for_a_steady_device(bench):
    """While latency still falls, warm-up goes on."""
    falling = iter([*(40_000_000 - i * 250_000 for i in range(120)), *[10_000_000] * 999])
    bench.prepare = lambda engine: setattr(engine, "infer_ns", falling)
    events = bench.run(warm_up_seconds=1.0)
    begin, end = (edge.at_ns for edge in phases(events) if edge.phase == "warm_up")
    assert 1.1e9 < end - begin <= 3.1e9


def test_warm_up_gives_up(bench):
    """A device that never gets steady is warmed up for three times the time given."""
    restless = (10_000_000 * (1 + (i // 20) % 2) for i in range(10_000))
    bench.prepare = lambda engine: setattr(engine, "infer_ns", restless)
    events = bench.run(warm_up_seconds=1.0)
    begin, end = (edge.at_ns for edge in phases(events) if edge.phase == "warm_up")
    assert 3e9 <= end - begin < 3.1e9


@pytest.mark.parametrize(
    ("failure", "outcome", "reason"),
    [
        (BackendUnavailable("no libcuda", "install it"), "skipped", "no libcuda: install it"),
        (UserError("bad batch", "set batch: 1"), "failed", "bad batch: set batch: 1"),
        (RuntimeError("first line\nsecond"), "failed", "RuntimeError: first line"),
        (RuntimeError(), "failed", "RuntimeError:"),
    ],
)
def test_a_failure_is_an_outcome_with_a_reason(bench, failure, outcome, reason):
    bench.prepare = lambda engine: setattr(engine, "failure", failure)
    finished = bench.run()[-1]
    assert (finished.outcome, finished.reason) == (outcome, reason)
    is_unavailable = isinstance(failure, BackendUnavailable)
    assert finished.skip_reason == ("unavailable" if is_unavailable else None)
    assert bench.used == [["load", "close"]]
    bench.prepare = lambda _: None
    assert isinstance(bench.run()[-1], Declined)


def test_inferences_before_a_failure_are_told(bench):
    """A run that fails half-way keeps what it measured."""
    bench.prepare = lambda engine: setattr(engine, "infer_ns", iter([1_000_000] * 4))
    events = bench.run()
    assert len(latencies(events)) == 3
    assert events[-1].outcome == "failed"


@pytest.mark.parametrize("changes", [{"count": 3, "duration_seconds": 1.0}, {"count": None}])
def test_an_order_names_count_or_duration(bench, changes):
    """Both or neither is refused."""
    finished = bench.run(**changes)[-1]
    assert finished.outcome == "failed"
    assert "count" in finished.reason


def test_a_stop_ends_a_run_between_two_inferences(bench):
    """A cancelled run keeps its phases whole and what it measured."""
    bench.prepare = lambda engine: setattr(engine, "after", {4: bench.stop})
    events = bench.run(duration_seconds=60.0, baseline_seconds=1.0)
    assert events[-1].outcome == "cancelled"
    assert len(latencies(events)) == 3
    assert phases(events)[-1].phase == "steady"


def test_a_stop_ends_a_baseline(bench):
    """Waiting is cut short too."""
    bench.prepare = lambda engine: setattr(engine, "after", {1: bench.stop})
    events = bench.run(baseline_seconds=1.0)
    assert events[-1].outcome == "cancelled"
    assert phases(events)[-1].phase == "baseline_before"


def test_peak_memory_is_none_where_linux_does_not_tell(tmp_path):
    """Unknown is absent."""
    assert peak_bytes(tmp_path / "none") is None
    assert peak_bytes() > 1 << 20


# From here on the worker is a process, started as the daemon starts it.

NOISY = """
import os, sys, time
from tegrascope.collectors.backends.base import Inferring
class Noisy(Inferring):
    def load(self, model, order):
        print("a library says hello")
        os.write(1, b'{"event": "hello", "pid": 1, "python": "noise"}\\n')
        os.system("echo a child says hello; cat")
        self.seconds = float(order.device)
    def infer(self):
        print("noise")
        time.sleep(self.seconds)
    def close(self): print("bye")
"""
NOISY_MAIN = (
    "import sys; from tegrascope.collectors.worker.child import main; "
    "sys.exit(main(['--lane', 'test'], {'noisy': 'noisy_engine:Noisy'}))"
)


class Child:
    """A worker, spoken to over its pipes."""

    def __init__(self, *command: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.said = b""
        self.readers = [threading.Thread(target=read) for read in (self.read, self.listen)]
        for reader in self.readers:
            reader.start()
        assert isinstance(self.next(), Hello)

    def read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.decode())
        self.lines.put(None)

    def listen(self) -> None:
        self.said = self.process.stderr.read()

    def send(self, line: str) -> None:
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def next(self) -> RunEvent | None:
        line = self.lines.get(timeout=PATIENCE_SECONDS)
        return None if line is None else parse_run_event(line)

    def until_finished(self) -> list[RunEvent]:
        events: list[RunEvent] = []
        while not events or not isinstance(events[-1], (Finished, Declined)):
            event = self.next()
            assert event is not None, "the worker went away"
            events.append(event)
        return events

    def wait_for_phase(self, name: str) -> list[RunEvent]:
        events: list[RunEvent] = []
        while not events or getattr(events[-1], "phase", None) != name:
            events.append(self.next())
        return events

    def run(self, order: Order) -> list[RunEvent]:
        self.send(render_event(order))
        events = self.until_finished()
        assert_well_formed(events)
        return events

    def end(self) -> int:
        """Close its standard input; return its exit status."""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        status = self.process.wait(PATIENCE_SECONDS)
        for reader in self.readers:
            reader.join(PATIENCE_SECONDS)
        self.process.stdout.close()
        self.process.stderr.close()
        return status


@pytest.fixture
def child():
    child = Child("-m", "tegrascope.collectors.worker.child", "--lane", "cpu")
    yield child
    child.process.kill()
    child.end()


@pytest.fixture
def noisy(tmp_path):
    (tmp_path / "noisy_engine.py").write_text(NOISY)
    child = Child("-c", NOISY_MAIN, PYTHONPATH=str(tmp_path))
    yield child
    child.process.kill()
    child.end()


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


def onnx_order(cache: Path, run_id: str = "r1", **changes: object) -> Order:
    asked = {
        "backend": "onnxruntime",
        "model": "builtin:mobilenet",
        "model_directory": str(cache),
        "threads": 1,
    }
    return make_order(run_id, **{**asked, **changes})


@pytest.fixture
def _onnx():
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")


@pytest.mark.usefixtures("_onnx")
def test_a_real_model_runs_in_a_real_process(child, cache):
    """A built-in model goes through every phase; again at once, and not at another batch."""
    began_ns = time.monotonic_ns()
    events = child.run(
        onnx_order(cache, duration_seconds=1.3, warm_up_seconds=0.1, baseline_seconds=0.1)
    )
    assert [edge.phase for edge in phases(events) if edge.edge == "begin"] == PHASES
    assert began_ns < phases(events)[0].at_ns < phases(events)[-1].at_ns < time.monotonic_ns()
    begin, end = (edge.at_ns for edge in phases(events) if edge.phase == "steady")
    assert end - begin >= 1.3e9
    assert starts(events)[-2] < begin + 1.3e9
    assert events[-1].outcome == "ok"
    assert events[-1].process_peak_bytes > 20 << 20
    (loaded,) = (event for event in events if isinstance(event, Loaded))
    assert len(loaded.model_sha256) == 64
    assert {"python", "onnxruntime"} <= set(loaded.versions)
    assert set(loaded.cold_start_seconds) == {"import", "load", "first_inference"}

    again = child.run(onnx_order(cache, "r2", count=7, batch=1))
    assert len(latencies(again)) == 7
    assert {event.run_id for event in again} == {"r2"}
    (loaded,) = (event for event in again if isinstance(event, Loaded))
    assert loaded.cold_start_seconds == {}

    batch = child.run(onnx_order(cache, "r3", count=3, batch=2, device="dla0"))
    assert batch == [Declined(run_id="r3")]
    assert child.end() == 0


@pytest.mark.usefixtures("_onnx")
def test_bad_orders_end_and_the_next_one_runs(child, cache, tmp_path):
    """A broken model, a missing one, a back-end that is not there: each has its outcome."""
    finished = child.run(onnx_order(cache, model="/nowhere/m.onnx"))[-1]
    assert (finished.outcome, "/nowhere/m.onnx" in finished.reason) == ("failed", True)
    finished = child.run(onnx_order(cache, backend="tensorrt"))[-1]
    assert (finished.skip_reason, "tensorrt" in finished.reason) == ("unavailable", True)
    child.send("what is this")
    child.send(json.dumps({"run_id": "r8", "model": 7}))
    assert [(e.run_id, e.outcome) for e in child.until_finished()] == [("r8", "failed")]
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    finished = child.run(onnx_order(cache, model=str(broken)))[-1]
    assert finished.outcome == "failed"
    assert "INVALID" in finished.reason.upper()
    assert "\n" not in finished.reason
    assert child.run(onnx_order(cache, "r9")) == [Declined(run_id="r9")]
    child.end()
    assert b"Traceback" in child.said
    assert b"what is this" in child.said


def test_a_library_cannot_disturb_the_protocol(noisy):
    order = render_event(make_order(backend="noisy", device="0.001"))
    noisy.send(order + "\n" + order.replace("r1", "r2"))
    for run_id in ("r1", "r2"):
        events = noisy.until_finished()
        assert_well_formed(events)
        assert {event.run_id for event in events} == {run_id}
        assert events[-1].outcome == "ok"
    assert noisy.end() == 0
    for said in (b"a library says hello", b'"python": "noise"', b"a child says hello"):
        assert said in noisy.said


def test_without_its_device_the_worker_ends(tmp_path):
    """The run has its outcome first; the lane then starts another process for the next."""
    lost = NOISY.replace('print("noise")', "raise Lost('cudaErrorIllegalAddress: gone')")
    head = "from tegrascope.parsers.errors import DeviceLostError as Lost\n"
    (tmp_path / "noisy_engine.py").write_text(head + lost)
    child = Child("-c", NOISY_MAIN, PYTHONPATH=str(tmp_path))
    finished = child.run(make_order(backend="noisy", device="0"))[-1]
    assert (finished.outcome, "cudaErrorIllegalAddress" in finished.reason) == ("failed", True)
    assert child.process.wait(PATIENCE_SECONDS) == 1
    assert child.end() == 1
    assert b"bye" not in child.said


def test_without_a_daemon_the_worker_ends(noisy):
    """The end of standard input ends the process, even in the middle of an inference."""
    noisy.send(render_event(make_order(backend="noisy", device="60", duration_seconds=60)))
    noisy.wait_for_phase("warm_up")
    watch = Stopwatch()
    noisy.end()
    assert watch.seconds < 2


def test_a_terminate_cancels_the_run_and_all_that_wait(noisy):
    """SIGTERM gives every order an outcome and a good exit status; SIGINT is ignored."""
    order = make_order(backend="noisy", device="0.01", duration_seconds=60)
    noisy.send(render_event(order))
    noisy.send(render_event(order.model_copy(update={"run_id": "r2"})))
    events = noisy.wait_for_phase("steady")
    noisy.process.send_signal(signal.SIGINT)
    events.append(noisy.next())  # it infers on
    noisy.process.send_signal(signal.SIGTERM)
    events += noisy.until_finished()
    assert_well_formed(events)
    assert events[-1].outcome == "cancelled"
    assert len(latencies(events)) > 3
    assert [(e.run_id, e.outcome) for e in noisy.until_finished()] == [("r2", "cancelled")]
    assert noisy.next() is None
    assert noisy.process.wait(PATIENCE_SECONDS) == 0


def test_a_terminate_is_heard_inside_a_library(noisy):
    """A library that does not return keeps neither the outcome nor the process."""
    noisy.send(render_event(make_order(backend="noisy", device="60")))
    noisy.wait_for_phase("warm_up")
    noisy.process.send_signal(signal.SIGTERM)
    assert noisy.until_finished()[-1].outcome == "cancelled"
    assert noisy.process.wait(PATIENCE_SECONDS) == 0


def test_an_idle_worker_ends_at_once(child):
    """SIGTERM without a run is a quiet end."""
    child.process.terminate()
    assert child.process.wait(PATIENCE_SECONDS) == 0
    assert child.next() is None


def test_nothing_heavy_is_imported_before_an_order():
    """The worker and what the daemon takes from it import no library of inference."""
    code = (
        "import sys, tegrascope.collectors.worker.child, tegrascope.collectors.models.files; "
        "print({'numpy', 'onnx', 'onnxruntime', 'tensorrt', 'cuda'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

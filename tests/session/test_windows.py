"""Windows that applications mark: each becomes an honest run, or is refused in one line."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.session import FAR_OFF_NS, RunTimes, Session
from tegrascope.daemon.session.windows import (
    OPEN_AT_MOST,
    WAITING_AT_MOST,
    RefusedMarkError,
    WindowKeeper,
)
from tegrascope.daemon.settings.config import Workload
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.inference.marks import TIMES_AT_MOST
from tegrascope.parsers.rails import RailRule

S, MS = 1_000_000_000, 1_000_000
NOW = 7200 * S
RULE = RailRule(name="test", rails=("VDD_IN",), total=("VDD_IN",), step={"default": 0.04})


class SetClock:
    """A clock that stands where a test puts it."""

    def __init__(self) -> None:
        self.now_ns = NOW
        self.asleep_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + 10**18

    def boottime_ns(self) -> int:
        return self.now_ns + self.asleep_ns

    def wait(self, event: threading.Event, _until_ns: int) -> bool:
        return event.is_set()


class Desk:
    """A keeper over ten minutes of 10 W, of which the last one is still to come."""

    def __init__(self, directory: Path) -> None:
        self.clock = SetClock()
        self.store = Store(directory / "runs.db")
        timeline = Timeline()
        for number in range(6000):
            at_ns = NOW - 540 * S + number * 100 * MS
            timeline.append(at_ns, at_ns + 10**18, {"rails.VDD_IN.instant_watts": 10.0})
        self.session = Session(
            clock=self.clock,
            store=self.store,
            timeline=timeline,
            model_directory=directory,
            engine_directory=directory,
        )
        self.session.energy.rule = RULE
        self.live = self.session.live
        self.live.set_workloads({"detector": "dla0", "camera": "gpu"}, {}, {"camera": 0.006})
        workloads = [
            Workload(name="detector", backend="window", device="dla0", batch=2),
            Workload(name="camera", backend="window", timeout=30, deadline="6ms"),
            Workload(name="tokens", backend="window", unit="token"),
            Workload(name="scheduled", model="m", device="cpu"),
        ]
        self.keeper = WindowKeeper(self.session, lambda: workloads)

    def post(self, **document: object) -> "dict[str, Any]":
        return self.keeper.take(json.dumps(document).encode())

    def refused(self, **document: object) -> RefusedMarkError:
        with pytest.raises(RefusedMarkError) as raised:
            self.post(**document)
        assert "\n" not in str(raised.value)
        return raised.value

    def whole(self, **changes: object) -> "dict[str, Any]":
        return {
            "workload": "detector",
            "begin_ns": NOW - 120 * S,
            "end_ns": NOW - 60 * S,
            **changes,
        }

    def runs(self) -> "dict[str, dict[str, Any]]":
        """Pair all that waits, and return what is in the store."""
        self.keeper.start()
        self.keeper.stop(timeout_seconds=60)
        return {run["run_id"]: run for run in History(self.store.path).runs()}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.keeper.stop()
    made.store.close()


def timed(count: int, begin_ns: int) -> "dict[str, list[int]]":
    every_ns = 20_300_000  # out of step with the samples
    return {
        "start_ns": [begin_ns + number * every_ns for number in range(count)],
        "latency_ns": [5 * MS + number % 7 for number in range(count)],
    }


def test_units_of_an_application_are_counted_and_kept(desk):
    """The unit is that of the configuration, or the application's own if there is none."""
    unit = {"tokens": {"unit": "token"}}
    desk.live.set_workloads({"tokens": "gpu", "detector": "dla0"}, unit)
    run = desk.post(**desk.whole(workload="tokens", units=600.5, inferences=20))["run_id"]
    earlier = {"begin_ns": NOW - 300 * S, "end_ns": NOW - 240 * S}
    own = desk.post(**desk.whole(unit="frame", units=3070, **earlier))["run_id"]
    earlier = {"begin_ns": NOW - 400 * S, "end_ns": NOW - 340 * S}
    none = desk.post(**desk.whole(units=3070, **earlier))["run_id"]
    runs = desk.runs()
    assert (runs[run]["unit"], runs[run]["units"]) == ("token", 600.5)
    energy = runs[run]["energy"]
    assert energy["joules_per_unit"] == pytest.approx(600 / 600.5)
    assert runs[own]["unit"] == "frame"
    assert runs[own]["energy"]["joules_per_unit"] == pytest.approx(600 / 3070)
    assert runs[none].get("units") is None
    states = desk.live.snapshot.workloads
    assert (states["tokens"].units, states["tokens"].inferences) == (600.5, 20)


def phases(*marks):
    keys = ("name", "begin_ns", "end_ns")
    return [dict(zip(keys, (name, NOW - a * S, NOW - b * S), strict=True)) for name, a, b in marks]


def test_phases_of_an_application_have_their_energy(desk):
    marks = phases(("prefill", 120, 110), ("decode", 110, 80), ("prefill", 79, 60))
    marks[1]["units"] = 500
    run = desk.post(**desk.whole(inferences=307, phases=marks))["run_id"]
    report = desk.runs()[run]
    assert report["work_phases"] == marks
    prefill, decode = report["energy"]["phases"]
    assert (prefill["name"], prefill["count"], prefill["seconds"]) == ("prefill", 2, 29.0)
    assert prefill["gross_joules"] == pytest.approx(290)
    assert (decode["method"], decode["joules_per_unit"]) == ("cut", pytest.approx(0.6))


@pytest.mark.parametrize(
    "marks",
    [
        [("a", 130, 110)],
        [("a", 100, 50)],
        [("a", 110, 90), ("b", 95, 80)],
        [("a", 90, 80), ("b", 110, 100)],
        [("a", 100, 110)],
        [(f"a{i}", 100 - i, 99 - i) for i in range(9)],
    ],
)
def test_phases_that_cannot_be_are_refused(desk, marks):
    refused = desk.refused(**desk.whole(phases=phases(*marks)))
    assert refused.status == 400
    assert "phases" in str(refused)


def test_name_of_a_phase_is_checked(desk):
    refused = desk.refused(**desk.whole(phases=phases(("Pre Fill", 100, 90))))
    assert refused.status == 400
    assert "phases.0.name" in str(refused)


def test_unit_that_is_not_the_configured_one_is_refused(desk):
    refused = desk.refused(event="begin", workload="tokens", unit="frame")
    assert refused.status == 409
    assert "tokens is configured for the unit token, not frame" in str(refused)
    assert desk.refused(event="begin", workload="tokens", unit="Tok").status == 400
    assert desk.refused(**desk.whole(units=-1)).status == 400


def test_misses_of_an_application_are_counted(desk):
    """It learns the deadline at the begin; it may count more misses than its times show."""
    told = desk.post(event="begin", workload="camera", begin_ns=NOW - 100 * S)
    assert told["deadline_seconds"] == 0.006
    assert desk.post(event="begin", workload="detector")["deadline_seconds"] is None
    times = timed(100, NOW - 99 * S)
    times["latency_ns"][50] = 20 * MS
    # Clients of older releases also send the state of their process.
    stall = {"start_ns": times["start_ns"][50], "major_faults": 900}
    end = {"event": "end", "run_id": told["run_id"], "end_ns": NOW - 60 * S}
    desk.post(**end, inferences=300, misses=4, stalls=[stall], **times)
    deadline = desk.runs()[told["run_id"]]["deadline"]
    assert (deadline["misses"], deadline["worst_lateness_seconds"]) == (4, pytest.approx(0.014))
    assert desk.live.snapshot.workloads["camera"].misses.count == 4
    assert desk.live.snapshot.workloads["detector"].misses.count == 0


def test_more_misses_than_inferences_are_refused(desk):
    assert "misses is 4" in str(desk.refused(**desk.whole(inferences=3, misses=4)))


def test_window_told_afterwards_is_a_run(desk):
    """One call after the fact is paired like a run: counted, timed, with its energy."""
    stages = {"pre": [MS] * 10, "compute": [4 * MS] * 2900}
    told = desk.whole(inferences=3000, stages_ns=stages, **timed(2900, NOW - 119 * S))
    run_id = desk.post(**told)["run_id"]
    run = desk.runs()[run_id]
    assert (run["outcome"], run["workload"], run["device"]) == ("ok", "detector", "dla0")
    assert (run["backend"], run["batch"], run["inferences"]) == ("window", 2, 3000)
    assert run["energy"]["gross_joules"] == pytest.approx(600)
    assert run["energy"]["gross_joules_per_inference"] == pytest.approx(0.2)
    assert "net_joules" not in run["energy"]
    assert run["throughput_per_second"] == pytest.approx(100)
    assert run["latency"]["count"] == 2900
    assert run["stages"]["pre"]["count"] == 10
    assert "device_latency" not in run  # the host timed it
    assert run["started_wall_ns"] == NOW - 120 * S + 10**18
    state = desk.live.snapshot.workloads["detector"]
    assert (state.inferences, sum(state.latency.counts), dict(state.runs)) == (
        3000,
        2900,
        {"ok": 1},
    )


def test_window_without_a_count_has_no_share(desk):
    """Where nobody counted there is energy, and none per inference."""
    run_id = desk.post(**desk.whole())["run_id"]
    run = desk.runs()[run_id]
    assert run["inferences"] == 0
    assert run["energy"]["gross_joules"] == pytest.approx(600)
    assert "gross_joules_per_inference" not in run["energy"]
    assert "insufficient_samples" not in run["quality"]


def test_begin_and_end_are_stamped_here(desk):
    """Who has no monotonic clock at hand, as a shell, marks begin and end by asking."""
    answer = desk.post(event="begin", workload="detector")
    assert answer["timeout_seconds"] == 600
    assert answer["enough"] == {"seconds": pytest.approx(11), "inferences": 200}
    state = desk.live.snapshot.workloads["detector"]
    assert state.active_run == answer["run_id"]
    desk.clock.now_ns += 30 * S
    desk.clock.asleep_ns = S
    assert desk.post(event="end", run_id=answer["run_id"], inferences=307) == {
        "run_id": answer["run_id"]
    }
    run = desk.runs()[answer["run_id"]]
    assert run["phases"]["steady"] == {"begin_ns": NOW, "end_ns": NOW + 30 * S}
    assert run["energy"]["gross_joules_per_inference"] == pytest.approx(300 / 307)
    assert "suspended" in run["quality"]
    assert desk.live.snapshot.workloads["detector"].active_run is None


def test_failed_window_keeps_what_is_known(desk):
    """A failure that the application tells is the run's, with its reason and its energy."""
    run_id = desk.post(**desk.whole(outcome="failed", reason="camera gone"))["run_id"]
    run = desk.runs()[run_id]
    assert (run["outcome"], run["reason"]) == ("failed", "camera gone")
    assert run["energy"]["gross_joules"] > 0


def test_open_window_overlaps_from_its_begin_on(desk):
    """A run that ends meanwhile sees the window that is open, and the window names that run."""
    desk.session.times.set_work("lane-run", "load", NOW + S, NOW + 5 * S)
    begun = desk.post(event="begin", workload="detector")["run_id"]
    assert desk.session.times.others("lane-run")[begun][0].end_ns == FAR_OFF_NS
    desk.clock.now_ns += 20 * S
    desk.post(event="end", run_id=begun, inferences=1000)
    run = desk.runs()[begun]
    assert run["overlapping_runs"] == ["lane-run"]
    assert "overlapped" in run["quality"]
    assert "gross_joules_per_inference" not in run["energy"]


def test_window_that_nobody_ends_is_closed_as_failed(desk):
    """An application that died leaves a failed run after the timeout; an end comes too late."""
    early = desk.post(event="begin", workload="camera")["run_id"]
    long = desk.post(event="begin", workload="camera", timeout_seconds=120)["run_id"]
    desk.clock.now_ns += 31 * S
    desk.keeper.tick()
    late = desk.refused(event="end", run_id=early)
    assert (late.status, "timeout" in str(late)) == (404, True)
    others = desk.session.times.others("")
    assert others[early][0].end_ns < others[long][0].end_ns == FAR_OFF_NS
    run = desk.runs()[early]
    assert run["outcome"] == "failed"
    assert run["reason"] == "the application did not end it within 30 s"


def test_end_of_the_daemon_cancels_what_is_open(desk):
    """A window that is open when the daemon is told to stop is recorded as cancelled."""
    begun = desk.post(event="begin", workload="detector")["run_id"]
    run = desk.runs()[begun]
    assert (run["outcome"], run["reason"]) == ("cancelled", "the daemon is stopping")
    assert desk.refused(event="begin", workload="detector").status == 503


def test_death_of_the_daemon_fails_what_is_open(desk, tmp_path):
    """A window that was open when the daemon died is a failed run of the next one."""
    begun = desk.post(event="begin", workload="detector")["run_id"]
    Store(tmp_path / "runs.db", is_daemon=True).close()
    run = History(tmp_path / "runs.db").run(begun)
    assert run is not None
    assert (run["outcome"], run["reason"]) == ("failed", "the daemon ended during it")


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"workload": "ghost"}, 404, "configured are: detector, camera"),
        ({"workload": "scheduled"}, 404, "no workload scheduled with backend: window"),
        ({"workload": "x" * 10_000}, 404, "no workload xxx"),
        ({"device": "gpu"}, 409, "configured for dla0, not for gpu"),
        ({"device": "tpu"}, 400, "device: "),
        ({"begin_ns": NOW + S, "end_ns": NOW + 2 * S}, 400, "2 s in the future"),
        ({"end_ns": NOW + 1}, 400, "in the future: times are nanoseconds of CLOCK_MONOTONIC"),
        ({"begin_ns": NOW - 3601 * S}, 400, "telemetry of one hour"),
        ({"begin_ns": NOW - 50 * S}, 400, "10 s before it begins"),
        ({"begin_ns": -1}, 400, "begin_ns: "),
        ({"end_ns": 10**30}, 400, "end_ns: "),
        ({"inferences": -1}, 400, "inferences: "),
        ({"inferences": 1, **timed(2, NOW - 100 * S)}, 400, "inferences is 1, and 2 are timed"),
        ({"start_ns": [NOW]}, 400, "go together"),
        (timed(1, NOW - 121 * S), 400, "start_ns.0: this inference is not wholly in the window"),
        ({"start_ns": [NOW - 61 * S], "latency_ns": [2 * S]}, 400, "not wholly in the window"),
        ({"start_ns": [1 << 63], "latency_ns": [1]}, 400, "start_ns.0: "),
        ({"start_ns": [0] * (TIMES_AT_MOST + 1)}, 400, "start_ns: "),
        ({"stages_ns": {"sleep": [1]}}, 400, "stages_ns.sleep"),
        ({"outcome": "great"}, 400, "outcome: "),
        ({"reason": "a" * 401}, 400, "reason: "),
        ({"inferrences": 3}, 400, "inferrences: "),
        ({"event": "pause"}, 400, "it is begin, end, or left out"),
        ({"event": "begin", "workload": "detector"}, 400, "end_ns: "),
        ({"event": "end", "run_id": "0193"}, 400, "workload: "),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(desk, change, status, words):
    """No mark that could not be paired honestly is taken, and each is told why in one line."""
    refusal = desk.refused(**desk.whole(**change))
    assert refusal.status == status
    assert words in str(refusal)
    assert len(str(refusal)) < 500
    assert desk.runs() == {}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'"begin"'])
def test_what_is_no_object_is_refused(desk, body):
    """Whatever bytes are posted, they are answered as no JSON object."""
    with pytest.raises(RefusedMarkError) as raised:
        desk.keeper.take(body)
    assert raised.value.status == 400


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"begin_ns": NOW - 1}, "before the begin"),
        ({"begin_ns": NOW + 8 * S, "end_ns": NOW + 7 * S}, "before it begins"),
        ({"end_ns": NOW + 11 * S}, "in the future"),
        (timed(1, NOW + 2 * S) | {"begin_ns": NOW + 3 * S}, "not wholly"),
    ],
)
def test_end_that_is_refused_leaves_the_window_open(desk, change, words):
    """A wrong end can be mended: the window is still there to be ended rightly."""
    begun = desk.post(event="begin", workload="detector")["run_id"]
    desk.clock.now_ns += 10 * S
    assert words in str(desk.refused(event="end", run_id=begun, **change))
    desk.post(event="end", run_id=begun, begin_ns=NOW + 2 * S, end_ns=NOW + 9 * S)
    steady = desk.runs()[begun]["phases"]["steady"]
    assert steady == {"begin_ns": NOW + 2 * S, "end_ns": NOW + 9 * S}


def test_window_ends_once(desk):
    """The second end of a window finds none."""
    begun = desk.post(event="begin", workload="detector")["run_id"]
    desk.post(event="end", run_id=begun)
    assert desk.refused(event="end", run_id=begun).status == 404


def test_thousand_windows_at_once_cost_a_bounded_place(desk):
    """Of a thousand windows posted at once some are taken, the others told to come again."""
    refused = taken = 0
    for _ in range(1000):
        try:
            desk.post(**desk.whole(inferences=10))
            taken += 1
        except RefusedMarkError as error:
            assert error.status == 503
            refused += 1
    assert (taken, refused) == (WAITING_AT_MOST, 1000 - WAITING_AT_MOST)
    assert len(desk.runs()) == WAITING_AT_MOST
    assert desk.keeper._waiting == 0


def test_open_windows_are_bounded(desk):
    """Who begins and never ends is told so, and the place is free again after the timeout."""
    for _ in range(OPEN_AT_MOST):
        desk.post(event="begin", workload="camera")
    assert desk.refused(event="begin", workload="camera").status == 503
    desk.clock.now_ns += 31 * S
    desk.keeper.tick()
    desk.post(event="begin", workload="camera")


def test_flood_of_windows_does_not_push_out_an_open_one():
    """However many windows come and go, a run that is still going on is known to overlap."""
    times = RunTimes()
    times.set_work("open", "steady", 1)
    for number in range(5000):
        times.set_work(str(number), "steady", number, number + 1)
    assert "open" in times.others("")
    assert len(times.others("")) < 2000


def test_failure_of_ours_fails_one_window_only(desk, monkeypatch, caplog):
    """A fault in pairing is logged, its window a failed run, and the next one is paired."""
    real = desk.session.pair
    lost = desk.post(**desk.whole())["run_id"]
    kept = desk.post(**desk.whole())["run_id"]

    def pair(trace):
        if trace.run_id == lost and trace.begins:
            raise ZeroDivisionError
        return real(trace)

    monkeypatch.setattr(desk.session, "pair", pair)
    runs = desk.runs()
    assert runs[kept]["outcome"] == "ok"
    assert runs[lost]["reason"] == "the daemon itself failed on it; see its log"
    assert lost in caplog.text


def test_lock_in_without_a_known_rail_rule_is_refused_before_it_begins(desk):
    desk.session.energy.rule = None
    refusal = desk.refused(event="begin", workload="camera", lock_in_seconds=60)
    assert refusal.status == 409
    assert "rails that add up to the module are not known: name them under board:" in str(refusal)


def test_lock_in_of_a_simulated_board_is_refused(desk):
    desk.live.describe(simulated=True)
    refusal = desk.refused(event="begin", workload="camera", lock_in_seconds=60)
    assert "a simulated board does not follow on- and off-steps" in str(refusal)


@pytest.mark.parametrize(
    ("planned", "steps"),
    [
        ({}, [[NOW, NOW + S, 1]]),
        ({"lock_in_seconds": 20}, [[NOW - 1, NOW + S, 1]]),
        ({"lock_in_seconds": 20}, [[NOW, NOW + 11 * S, 1]]),
        ({"lock_in_seconds": 20}, [[NOW + 2 * S, NOW + 2 * S, 1]]),
        ({"lock_in_seconds": 20}, [[NOW + S, NOW + 2 * S, 0]]),
        ({"lock_in_seconds": 20}, [[NOW + S, NOW + 3 * S, 1], [NOW + 2 * S, NOW + 4 * S, 1]]),
        ({"lock_in_seconds": 20}, [["now", NOW + S, 1]]),
        ({"lock_in_seconds": 20}, [[NOW, NOW + S]]),
    ],
)
def test_on_steps_that_are_not_in_order_within_a_lock_in_are_refused(desk, planned, steps):
    begun = desk.post(event="begin", workload="camera", **planned)
    assert ("steps_seconds" in begun) == bool(planned)
    desk.clock.now_ns += 10 * S
    refusal = desk.refused(event="end", run_id=begun["run_id"], on_steps=steps)
    assert refusal.status == 400
    assert str(refusal).startswith("on_steps")


def test_lock_in_of_work_that_draws_no_power_is_zero(desk):
    """The desk's board draws 10 W whatever happens."""
    begun = desk.post(event="begin", workload="camera", lock_in_seconds=30)
    steps, now_ns = [], NOW
    for number, seconds in enumerate(begun["steps_seconds"][:-1]):
        end_ns = now_ns + round(seconds * 1e9)
        if number % 2:
            steps.append([now_ns, end_ns, 100])
        now_ns = end_ns
    desk.clock.now_ns = now_ns
    desk.post(event="end", run_id=begun["run_id"], on_steps=steps)
    found = desk.runs()[begun["run_id"]]["lock_in"]
    assert found["problems"] == []
    energy = found["joules_per_piece"]
    assert energy["low"] < 0 < energy["high"] < 0.001
    assert found["on_watts"] == pytest.approx(10)

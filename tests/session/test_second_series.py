"""A second series of the power of the module: read in windows only, at an interval of its own."""

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tegrascope.collectors.simulator.board import JumpClock
from tegrascope.daemon.measure.run_text import run_line
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.session.second_series import SecondSeries, second_interval_ms
from tegrascope.daemon.session.session import InFlightRun, Job, Session
from tegrascope.daemon.settings.config import Telemetry, Workload
from tegrascope.parsers.inference.events import Phase
from tegrascope.parsers.signals import RAIL_POWER, Column
from tests.fakes.board_tree import sensor, write_board
from tests.fakes.processes import until

S, MS = 1_000_000_000, 1_000_000
COLUMN = RAIL_POWER.column("VDD_IN")


def test_no_work_is_in_step_with_lines_and_second_series():
    for ms in itertools.chain(range(10, 1200), range(1200, 10_000, 7)):
        second = second_interval_ms(ms)
        assert 83 <= second < 93 if ms < 400 else 211 <= second < 230
        for repeats in range(1, 13):
            in_lines = repeats * ms / second
            # Three cycles in the hundred samples that a window has at least.
            assert 100 * abs(in_lines - round(in_lines)) >= 3


class Rails:
    """A reader whose readings take some time of a clock, and may fail."""

    def __init__(self, clock: JumpClock) -> None:
        self.clock = clock
        self.problem: str | None = None
        self.reads = self.opened = self.closed = 0
        self.seconds = 0.0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def open(self, rails: Sequence[str]) -> "Rails":
        assert rails == ["VDD_IN"]
        self.opened += 1
        return self

    def read(self, _planned_ns: int) -> "tuple[int, Mapping[Column, float]] | None":
        self.may_answer.wait(300)
        self.reads += 1
        begin_ns = self.clock.monotonic_ns()
        self.clock.wait(threading.Event(), begin_ns + round(self.seconds * 1e9))
        if self.problem is not None:
            return None
        return begin_ns, {(RAIL_POWER, "VDD_IN"): float(self.reads)}

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def made() -> "Iterator[Callable[[], tuple[SecondSeries, Rails, JumpClock]]]":
    series: list[tuple[SecondSeries, Rails]] = []

    def make() -> "tuple[SecondSeries, Rails, JumpClock]":
        clock = JumpClock()
        rails = Rails(clock)
        second = SecondSeries(rails.open, clock=clock)
        series.append((second, rails))
        return second, rails, clock

    yield make
    for second, rails in series:
        rails.may_answer.set()
        second.stop()


def read_until(
    second: SecondSeries, rails: Rails, clock: JumpClock, run: str, seconds: float
) -> None:
    """Open a window, and end it at a time of the clock."""
    end_ns = clock.monotonic_ns() + round(seconds * 1e9)
    rails.may_answer.clear()  # or the clock would be beyond the end
    second.begin(run, ["VDD_IN"], 1.009)
    second.end(run, end_ns)
    rails.may_answer.set()
    assert until(lambda: rails.closed == rails.opened)


def test_thread_reads_in_windows_only_with_a_neighbour_behind(made):
    second, rails, clock = made()
    read_until(second, rails, clock, "a", 10.0)
    assert rails.opened == 1
    assert rails.reads == 48 + 1  # each 211 ms, with the edge, and the neighbour
    cut = second.cut(1 * S, 9 * S)
    assert list(cut.columns) == [COLUMN]
    assert {late - early for early, late in itertools.pairwise(cut.times_ns)} == {211 * MS}
    assert cut.times_ns[0] < 1 * S < cut.times_ns[1]
    assert cut.times_ns[-2] < 9 * S < cut.times_ns[-1]

    clock.wait(threading.Event(), 3600 * S)
    assert rails.reads == second.readings == 49
    read_until(second, rails, clock, "b", 2.0)
    assert rails.opened == 2
    # The last reading of the window before is no neighbour.
    assert second.cut(3600 * S, 3602 * S).times_ns[0] == 3600 * S
    assert second.cpu_seconds > 0


def test_windows_that_overlap_have_one_thread(made):
    second, rails, _ = made()
    rails.may_answer.clear()
    second.begin("a", ["VDD_IN"], 1.009)
    second.begin("b", ["VDD_IN"], 0.103)
    second.end("a", 1 * S)
    second.end("b", 2 * S)
    second.end("never begun", 9 * S)
    rails.may_answer.set()
    assert until(lambda: rails.closed == 1)
    assert rails.opened == 1
    assert 2 * S < second.cut(0, 9 * S).times_ns[-1] <= 2 * S + 211 * MS


def test_at_most_an_hour_is_kept(made):
    second, rails, clock = made()
    read_until(second, rails, clock, "a", 5000.0)
    kept = second.cut(0, 5001 * S).times_ns
    assert 3600 <= (kept[-1] - kept[0]) / S < 3615


@pytest.mark.parametrize("fault", ["problem", "slow"])
def test_reason_of_a_missing_series_is_logged_once(made, caplog, fault):
    caplog.set_level(logging.INFO)
    second, rails, clock = made()
    if fault == "problem":
        rails.problem = "no sensor measures VDD_IN"
    else:
        rails.seconds = 0.12
    for run in ("a", "b"):
        read_until(second, rails, clock, run, 60.0)
    assert rails.reads == 10
    reasons = {"problem": rails.problem, "slow": "a reading takes more than 106 ms, half"}
    assert caplog.text.count("there is no second series of readings: ") == 1
    assert reasons[fault] in caplog.text


def test_reading_that_fails_now_and_then_is_left_out(made):
    second, rails, clock = made()
    real = rails.read

    def read(planned_ns: int) -> "tuple[int, Mapping[Column, float]] | None":
        if rails.reads % 3 == 1:
            rails.reads += 1
            raise OSError("the bus is busy")
        return real(planned_ns)

    rails.read = read
    read_until(second, rails, clock, "a", 10.0)
    assert (rails.reads, second.readings) == (49, 33)
    assert second.problem is None


def test_late_readings_do_not_come_in_a_bundle(made):
    second, rails, clock = made()
    rails.seconds = 0.3
    read_until(second, rails, clock, "a", 60.0)
    cut = second.cut(0, 60 * S)
    assert {late - early for early, late in itertools.pairwise(cut.times_ns)} == {422 * MS}


@pytest.fixture
def opened() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def start(**telemetry: object) -> Session:
        session = Session()
        sessions.append(session)
        session.open(Telemetry.model_validate({"interval": "103ms", **telemetry}))
        session.start()
        assert session.await_first_sample(60)
        assert until(lambda: session.timeline.interval_seconds)
        return session

    yield start
    for session in sessions:
        session.stop()


def measure(session: Session, *, beside: bool) -> RunTrace:
    """Carry out a run of a second, as its worker reports it; by itself it has no second series."""
    run = InFlightRun(session, Job(Workload(name="w", model="m", device="cpu")))
    begin_ns = session.clock.monotonic_ns()
    if beside:
        run.take(Phase(run_id=run.trace.run_id, phase="steady", edge="begin", at_ns=begin_ns))
    assert until(lambda: session.timeline.wait_past(begin_ns + 1 * S, 0.1))
    if not beside:
        run.trace.begins["steady"] = begin_ns
    end_ns = session.clock.monotonic_ns()
    run.take(Phase(run_id=run.trace.run_id, phase="steady", edge="end", at_ns=end_ns))
    run.end()
    session.await_telemetry(run.trace)
    run.trace.finish("ok", None)
    return run.trace


PRINTING = """#!/bin/sh
while sleep 0.1; do
  echo 'RAM 1/7 (lfb 1x4MB) VDD_IN 7775mW/7775mW VDD_CPU_GPU_CV 9mW/9mW VDD_SOC 9mW/9mW' || exit
done
"""


@pytest.mark.parametrize("has_sensor", [True, False])
def test_files_of_the_board_whose_lines_are_read_give_the_second_series(
    opened, tmp_path, has_sensor
):
    program = tmp_path / "tegrastats"
    program.write_text(PRINTING)
    program.chmod(0o755)
    files = sensor("orin-nano") if has_sensor else {}
    session = opened(
        source="tegrastats",
        tegrastats={"command": [str(program)]},
        sysfs=str(write_board(tmp_path / "root", files)),
    )
    trace = measure(session, beside=True)
    report = session.pair(trace)
    assert report.energy.sampling_series == 1 + has_sensor
    seconds = report.phases["steady"].seconds
    assert report.energy.gross_joules == pytest.approx(7.775 * seconds)


def test_run_on_a_simulated_board_has_two_series(opened):
    """Without readings beside its lines, the report says what one series cannot see."""
    simulated = opened(source="simulator")
    two = simulated.pair(measure(simulated, beside=True))
    assert two.energy.sampling_series == 2
    assert "in step" not in run_line(two)
    assert until(lambda: "second series" not in [thread.name for thread in threading.enumerate()])
    one = simulated.pair(measure(simulated, beside=False))
    assert one.energy.sampling_series == 1
    assert "ms cannot be seen" in run_line(one)

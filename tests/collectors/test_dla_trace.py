"""The companion: what the reader prints becomes columns, and silence becomes absence."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.dla.tasks import DlaTraceCompanion
from tegrascope.collectors.lines.program import ProcessSource, SocketLines
from tegrascope.parsers.signals import by_name
from tests.fakes.processes import until
from tests.fakes.tracefs import make_instance, make_kernel

HERTZ = 31_250_000
S = 1_000_000_000
HELLO = "# tegrascope-dla hello cores=0,1"


class Clock:
    """Stands still until it is set."""

    now_ns = 100 * S

    def monotonic_ns(self) -> int:
        return self.now_ns


class Silent:
    """A source without a line."""

    problem: str | None = None

    def lines(self) -> Iterator[Stamped[str]]:
        return iter(())

    def stop(self) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trace(clock: Clock) -> DlaTraceCompanion:
    return DlaTraceCompanion(Silent(), clock=clock)  # type: ignore[arg-type]


def task(core: int, number: int, begin: float, end: float) -> "tuple[str, str]":
    """Return the two lines of a task; the counter stood at 0 when the clock did."""
    ticks = [round(at * HERTZ) for at in (begin - 0.001, begin, end)]
    return (
        f"x-1 [000] ..... {begin:.6f}: job_submit: 15880000.nvdla{core} class=f{3 + core} "
        f"id={number} fences=0 ts={ticks[0]}",
        f"k-2 [001] ..... {end:.6f}: job_timestamps: job_id={number} begin={ticks[1]} "
        f"end={ticks[2]}",
    )


def test_counts_until_now_come_with_each_look(trace, clock):
    """Seconds and tasks only grow; the ratio is of the time since the look before."""
    assert trace.columns() == {}
    trace.take(HELLO, clock.now_ns)
    idle = {"dla.0.busy_seconds": 0, "dla.0.tasks": 0, "dla.1.busy_seconds": 0, "dla.1.tasks": 0}
    assert by_name(trace.columns()) == idle
    for line in task(1, 7, 100.2, 100.7):
        trace.take(line, clock.now_ns)
    clock.now_ns += 2 * S
    assert by_name(trace.columns()) == pytest.approx(
        {
            "dla.0.busy_seconds": 0,
            "dla.0.tasks": 0,
            "dla.0.busy_ratio": 0,
            "dla.1.busy_seconds": 0.5,
            "dla.1.tasks": 1,
            "dla.1.busy_ratio": 0.25,
            "dla.1.process_seconds.x": 0.5,
        }
    )
    assert trace.problem is None


def test_silence_is_absence(trace, clock):
    """A reader that says nothing, not even that it is alive, has no figures, and no stale ones."""
    trace.take(HELLO, clock.now_ns)
    clock.now_ns += 6 * S
    assert trace.columns() == {}
    trace.take("# tegrascope-dla alive at=106.0", clock.now_ns)
    assert "dla.0.busy_ratio" not in by_name(trace.columns())
    clock.now_ns += S
    assert by_name(trace.columns())["dla.0.busy_ratio"] == 0


def test_firmware_is_told_once(trace, clock):
    """A reading belongs to the interval in which it was made; without one there is no column."""
    trace.take(HELLO, clock.now_ns)
    trace.take("# tegrascope-dla firmware core=1 percent=12.5 at=100.0", clock.now_ns)
    assert by_name(trace.columns())["dla.1.firmware_ratio"] == 0.125
    assert "dla.1.firmware_ratio" not in by_name(trace.columns())


def test_what_did_not_go_by_the_book_is_counted(trace, clock):
    """Lost events, lines that are not understood, and the gap that a restart leaves."""
    begun, ended = task(0, 1, 100.0, 100.5)
    for line in (HELLO, begun, "CPU:3 [LOST 12 EVENTS]", "noise", HELLO, ended):
        trace.take(line, clock.now_ns)
    found = {
        name: n for name, n in by_name(trace.columns()).items() if name.startswith("dla.trace.")
    }
    assert found == {
        "dla.trace.lost": 12,
        "dla.trace.unparsed": 1,
        "dla.trace.gap": 1,
        "dla.trace.unmatched": 1,
    }


def test_wrong_counter_withholds_the_figures(clock):
    """Busy times that are wrong by a factor are not published; what mends it is said."""
    trace = DlaTraceCompanion(Silent(), counter_hertz=24e6, clock=clock)  # type: ignore[arg-type]
    trace.take(HELLO, clock.now_ns)
    for second in range(100, 160):
        for line in task(0, second, second, second + 0.5):
            trace.take(line, clock.now_ns)
    assert trace.columns() == {}
    assert trace.problem is not None
    assert "31.25 MHz" in trace.problem
    assert "telemetry.dla_trace.counter_hertz" in trace.problem


def test_board_without_a_dla_says_so(trace, clock):
    """Tracing what is not there is a setting to be taken out."""
    trace.take("# tegrascope-dla hello cores=", clock.now_ns)
    assert trace.columns() == {}
    assert "no DLA" in (trace.problem or "")


def test_real_reader_feeds_it(tmp_path: Path):
    """Kernel to columns through the real program, kept alive like tegrastats; then it all ends."""
    tracefs = make_kernel(tmp_path)
    make_instance(tracefs / "instances/tegrascope")
    reader = [sys.executable, "-m", "tegrascope.collectors.dla.reader", "--root", str(tmp_path)]
    source = ProcessSource(reader, interval_seconds=1.0, name="ftrace", silence_seconds=60.0)
    trace = DlaTraceCompanion(source)
    with (tracefs / "instances/tegrascope/trace_pipe").open("r+b", buffering=0) as kernel:
        for line in task(0, 1, 7.0, 7.25):
            kernel.write(f"{line}\n".encode())
        trace.start()
        assert until(lambda: by_name(trace.columns()).get("dla.0.tasks"))
        seen = by_name(trace.columns())
        trace.stop()
    assert seen["dla.0.busy_seconds"] == pytest.approx(0.25)
    assert seen["dla.1.tasks"] == 0


def test_reader_without_a_trace_is_heard(trace, clock):
    """What the reader says of itself stands on the page, until it has begun after all."""
    trace.take("# tegrascope-dla unavailable no tracefs: mount it", clock.now_ns)
    assert (trace.problem, trace.columns()) == ("no tracefs: mount it", {})
    trace.take(HELLO, clock.now_ns)
    assert trace.problem is None


def test_privileged_unit_is_heard_by_its_socket(tmp_path: Path):
    """Lines come from whoever answers the socket; without one it is said which unit to start."""
    path = tmp_path / "dla-trace.sock"
    trace = DlaTraceCompanion(
        SocketLines(
            [str(path)],
            interval_seconds=1.0,
            name="ftrace",
            silence_seconds=200,
            backoff_seconds=(0.01, 0.05),
        )
    )
    trace.start()
    assert until(lambda: trace.problem is not None)
    assert "systemctl enable --now tegrascope-dla-trace.socket" in (trace.problem or "")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with listener.accept()[0] as unit:
            unit.sendall(f"{HELLO}\n".encode())
            assert until(trace.columns)
            assert by_name(trace.columns())["dla.1.tasks"] == 0
            assert trace.problem is None
            trace.stop()


def test_missing_reader_is_a_problem_and_no_crash():
    """A command that is not there is told with what mends it, and telemetry goes on."""
    trace = DlaTraceCompanion(
        ProcessSource(["/no/such/reader"], interval_seconds=1.0, name="ftrace")
    )
    trace.start()
    assert until(lambda: trace.problem is not None)
    assert trace.columns() == {}
    assert "/no/such/reader was not found" in (trace.problem or "")
    trace.stop()

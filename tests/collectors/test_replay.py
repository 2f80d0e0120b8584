"""A replayed log takes the time that it took, divided by the speed, whatever its clock did."""

import gzip
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.collectors.lines.replay import MOST_LINES_A_SECOND, LogTimes, ReplaySource
from tegrascope.parsers.errors import UserError
from tests.fakes.processes import Stopwatch

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "tegrastats" / "logs"


class FakeClock:
    """A clock that only goes on when somebody waits."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + 10**18

    boottime_ns = monotonic_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        self.now_ns = max(self.now_ns, until_ns)
        return event.is_set()


def at(seconds: float, used: int = 1) -> str:
    """Print a record of some second of the 18th of May."""
    rest = int(seconds)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"05-18-2026 {clock} RAM {used}/7620MB"


def times(lines: list[str], interval_seconds: float = 1.0) -> list[float]:
    timed = list(LogTimes(interval_seconds).times(lines))
    assert [line.line for line in timed] == lines
    return [line.seconds for line in timed]


def replayed(path: Path, speed: float | None, **options) -> list[tuple[float, str]]:
    clock = FakeClock()
    lines = list(ReplaySource(path, speed, clock=clock, **options).lines())
    first = lines[0].monotonic_ns
    assert all(line.wall_ns - line.monotonic_ns == 10**18 for line in lines)
    return [((line.monotonic_ns - first) / 1e9, line.value) for line in lines]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_one_line_a_second():
    """The simplest log, with the second that is skipped every few minutes."""
    assert times([at(10), at(11), at(12), at(14), at(15)]) == [0, 1, 2, 4, 5]


def test_lines_of_one_second_are_spread_over_it():
    """Up to the next different second, also where that is two seconds away."""
    log = [at(10), at(10), at(11), at(11), at(11), at(11), at(13), at(13)]
    assert times(log) == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    assert times([at(5), at(5), at(5), at(5)]) == [0, 0.25, 0.5, 0.75]


def test_an_epoch_prefix_is_exact():
    """The recorder's stamp counts, and not the second that is printed."""
    log = [f"{seconds}::{at(7)}" for seconds in (1750865666.25, 1750865666.5, 1750865667.75)]
    assert times(log) == [0, 0.25, 1.5]


@pytest.mark.parametrize("jump", [-3600, -5, 3600, 11])
def test_a_clock_that_was_set_never_stalls(jump):
    """A step back or a long one forward counts as the usual interval."""
    log = [at(7200 + n) for n in range(10)] + [at(7210 + jump + n) for n in range(10)]
    assert times(log) == list(range(20))
    log = [f"{7200 + n / 2}::x" for n in range(10)] + [
        f"{7205 + jump + n / 2}::x" for n in range(9)
    ]
    assert times(log) == [n / 2 for n in range(19)]


def test_a_log_without_times_has_its_nominal_interval():
    """R32 prints none; what is no record comes along with the line before."""
    log = ["Mon May 18", "RAM 1/2MB", "RAM 2/2MB", "^C", "RAM 2/2MB"]
    assert times(log, 0.5) == [0, 0, 0.5, 0.5, 1.0]


def test_noise_comes_along_with_the_line_before_it():
    """It neither takes time nor breaks up the second in which it stands."""
    log = ["date", at(1), "noise", at(1), "", at(3), "cut RAM 1/2MB", "end"]
    assert times(log) == [0, 0, 0, 1, 1, 2, 2, 2]


def test_a_clock_that_stands_still_costs_no_memory():
    """Look-ahead has a limit, and time does not run away meanwhile."""

    def log():
        for n in range(5 * MOST_LINES_A_SECOND):
            assert n - taken <= MOST_LINES_A_SECOND
            yield at(1)

    taken = 0
    for line in LogTimes().times(log()):
        taken += 1
        assert line.seconds <= 1
    assert taken == 5 * MOST_LINES_A_SECOND


@given(
    st.lists(
        st.one_of(
            st.integers(0, 90000).map(at),
            st.text(),
            st.floats(0, 9e9).map(lambda seconds: f"{seconds:.3f}::RAM 1/2MB"),
        )
    )
)
def test_times_never_fall_and_no_line_is_lost(log):
    """Whatever the log holds, and no gap is longer than the longest believed step."""
    before = 0.0
    for seconds in times(log):
        assert 0 <= seconds - before <= 10 + 1e-9
        before = seconds


@pytest.mark.parametrize("speed", [0.5, 1.0, 60.0])
def test_replay_takes_the_recorded_time_divided_by_the_speed(tmp_path, speed):
    """From the first line to the last, without drift."""
    path = write(tmp_path / "log", [at(n) for n in range(1000)])
    lines = replayed(path, speed)
    assert len(lines) == 1000
    assert lines[-1][0] == pytest.approx(999 / speed, abs=1e-6)
    assert lines[1][0] == pytest.approx(1 / speed, abs=1e-6)


def test_a_slow_reader_delays_no_later_line(tmp_path):
    """Lines are due on an absolute schedule."""
    clock = FakeClock()
    lines = ReplaySource(write(tmp_path / "log", [at(n) for n in range(6)]), clock=clock).lines()
    first = next(lines).monotonic_ns
    clock.now_ns += 2_500_000_000
    assert [(line.monotonic_ns - first) / 1e9 for line in lines] == [2.5, 2.5, 3, 4, 5]


def test_at_once_does_not_wait(tmp_path):
    """Without a speed there is no pause, and no interval to speak of."""
    lines = replayed(write(tmp_path / "log", [at(n) for n in range(100)]), None)
    assert {seconds for seconds, _ in lines} == {0.0}


def test_the_interval_is_that_of_the_replay(tmp_path):
    """It is the recorded one divided by the speed, once it is known."""
    source = ReplaySource(write(tmp_path / "log", [at(n) for n in range(50)]), 4, clock=FakeClock())
    assert source.interval_seconds is None
    assert len(list(source.lines())) == 50
    assert source.interval_seconds == 0.25
    assert (source.name, source.is_live, source.restarts) == ("replay", False, 0)


def test_gzip_is_known_by_its_first_bytes(tmp_path):
    """Whatever the name says; odd bytes are kept readable."""
    path = tmp_path / "log.txt"
    path.write_bytes(gzip.compress(f"{at(1)}\n{at(2)}".encode() + b"\xff\n"))
    assert replayed(path, 1.0) == [(0.0, at(1)), (1.0, at(2) + "\\xff")]


def test_last_word_without_its_newline_is_not_replayed(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(f"{at(1)}\n{at(2)} GPU 463/4")
    assert replayed(path, 1.0) == [(0.0, at(1)), (1.0, at(2) + " GPU")]


def test_a_log_that_is_cut_off_gives_what_it_has(tmp_path, caplog):
    """Half a gzip file ends early and says so; it takes nobody with it."""
    path = tmp_path / "log.gz"
    whole = gzip.compress(os.urandom(200_000).hex().encode() + b"\n")
    path.write_bytes(whole[: len(whole) // 2])
    source = ReplaySource(path, None)
    assert list(source.lines())
    assert "copy it again" in source.problem
    assert len(caplog.records) == 1


def test_what_cannot_be_replayed_is_refused(tmp_path):
    """A person gets one sentence with what mends it."""
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b but no gzip")
    for path, what in [("none", "not there"), (".", "directory"), ("bad.gz", "cannot be read")]:
        with pytest.raises(UserError, match=what):
            ReplaySource(tmp_path / path)
    for speed in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="replays nothing"):
            ReplaySource(write(tmp_path / "log", []), speed)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a named pipe: read it with telemetry"):
        ReplaySource(tmp_path / "pipe")


def test_an_empty_log_ends_at_once(tmp_path):
    """No lines, no error."""
    assert list(ReplaySource(write(tmp_path / "log", [])).lines()) == []


def test_stop_ends_a_replay_that_waits(tmp_path):
    """With the real clock, long before the next line is due."""
    source = ReplaySource(write(tmp_path / "log", [at(0), at(9)]))
    lines = source.lines()
    next(lines)
    stopper = threading.Timer(0.02, source.stop)
    watch = Stopwatch()
    stopper.start()
    assert list(lines) == []
    assert watch.seconds < 1
    stopper.join()


@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the corpus beside the checkout")
@pytest.mark.parametrize("speed", [1.0, 10.0])
@pytest.mark.parametrize(
    ("name", "seconds", "within"),
    [
        ("agxorin64-r36-root.log", 2023, 2),
        ("orinnano-r36-nonroot-multiworkload.log", 1809, 2),
        ("orinnano-r36-root-trt-vlm.log", 72, 1),
        ("agxxavier32-r35-root-yolact.log", 43, 1.5),
        ("nano-r32-root-eval.log", 113, 0.001),
        ("pairs/orinnx_16gb-root-readall.log", 1.0018, 0.001),
        ("tx2-r28-nonroot-then-root.log", 2659, 0.001),
    ],
)
def test_real_logs_take_their_time(name, seconds, within, speed):
    """Public logs replay in the time between their first line and their last."""
    lines = replayed(CORPUS / name, speed)
    assert lines[-1][0] * speed == pytest.approx(seconds, abs=within)

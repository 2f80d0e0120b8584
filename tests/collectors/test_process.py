"""Children end when told, take their families with them, and come back when they die."""

import errno
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK, Stamped
from tegrascope.collectors.children.process import LONGEST_LINE, LineBuffer, LineChild, Quiet
from tegrascope.collectors.lines.program import ProcessSource
from tegrascope.parsers.errors import UserError
from tests.fakes.processes import Stopwatch, children, is_running, until


def python(program: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-u", "-c", program]


def shell(program: str) -> list[str]:
    return ["/bin/sh", "-c", program]


def open_descriptors() -> set[str]:
    listed = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            listed.add(f"{link.name} {link.readlink()}")
        except FileNotFoundError:
            continue
    return listed


@pytest.fixture(autouse=True)
def no_leak() -> Iterator[None]:
    """No test leaves a descriptor open or a child unreaped."""
    descriptors, processes = open_descriptors(), children()
    yield
    assert open_descriptors() <= descriptors
    assert children() <= processes  # those of other files' session fixtures


def read_line(child: LineChild) -> str:
    line = child.read(60)
    assert isinstance(line, Stamped), line
    return line.value


def test_lines_arrive_stamped_and_the_end_is_told():
    """Each line bears the time of its newline, lines of one read share it, then comes the end."""
    before = time.monotonic_ns()
    with LineChild(shell("printf 'one\\ntwo\\n\\nhalf'")) as child:
        lines = [child.read(60) for _ in range(4)]
        assert child.read(60) is Quiet.END
    assert [line.value for line in lines[:3]] == ["one", "two", ""]
    assert lines[3] is Quiet.END
    assert before < lines[0].monotonic_ns == lines[2].monotonic_ns < time.monotonic_ns()
    assert abs(lines[0].wall_ns - time.time_ns()) < 60e9
    assert child.returncode == 0


def test_a_line_in_two_pieces_bears_the_time_of_its_newline():
    """The stamp is that of the second piece, which brings the newline."""
    with LineChild(shell("printf fir; read word; echo $word"), stdin=True) as child:
        assert child.read(0.05) is Quiet.TIMEOUT
        second_piece_ns = time.monotonic_ns()
        assert child.send("st")
        line = child.read(60)
    assert line.value == "first"
    assert line.monotonic_ns > second_piece_ns


def test_a_timeout_is_no_end():
    """A silent child gives a timeout, and the line that comes later is read."""
    with LineChild(["cat"], stdin=True) as child:
        assert child.read(0) is Quiet.TIMEOUT
        assert child.read(0.01) is Quiet.TIMEOUT
        assert child.send("hällo")
        assert read_line(child) == "hällo"


def test_deadline_in_a_hundred_years_can_be_waited_for():
    with LineChild(["sh", "-c", "sleep 0.1; echo late"]) as child:
        assert child.read(100 * 365 * 86_400).value == "late"


def test_reading_ends_when_another_thread_wakes_it():
    """A wake ends the read that waits, and one that comes early ends the next read, once."""
    with LineChild(["cat"], stdin=True) as child:
        child.wake()
        child.wake()
        assert child.read(60) is Quiet.WOKEN
        assert child.read(0) is Quiet.TIMEOUT
        thread = threading.Timer(0.02, child.wake)
        thread.start()
        assert child.read() is Quiet.WOKEN
        thread.join()
    child.wake()


def test_a_flood_does_not_drown_a_wake():
    """A child that never stops printing is woken from as well."""
    with LineChild(["yes"]) as child:
        read_line(child)
        child.wake()
        assert Quiet.WOKEN in {child.read(60) for _ in range(1 << 17)}


def test_what_is_no_line_cannot_be_sent():
    """A newline inside is an error; a dead child and one without input are no success."""
    with LineChild(["cat"], stdin=True) as child:
        with pytest.raises(ValueError, match="one line"):
            child.send("a\nb")
        os.kill(child.pid, signal.SIGKILL)
        assert until(lambda: child.exited)
        assert child.read(60) is Quiet.END
        assert not child.send("anybody?")
    assert child.returncode == -signal.SIGKILL
    with LineChild(["true"]) as child:
        assert not child.send("no input")


def test_a_child_that_does_not_read_is_not_waited_for_for_ever():
    """Sending gives up when the pipe stays full."""
    with LineChild(["sleep", "600"], stdin=True) as child:
        assert not child.send("x" * 1_000_000, timeout_seconds=0.05)


def test_closed_input_ends_a_polite_child():
    """A program that reads its input to the end goes by itself."""
    with LineChild(["cat"], stdin=True) as child:
        child.close_input()
        assert child.read(60) is Quiet.END
        assert until(lambda: child.exited)
    assert child.returncode == 0


def test_last_words_are_kept_and_bounded():
    """The tail of standard error is kept: twenty lines, 4 KiB, however chatty the child was."""
    program = "import sys\nfor n in range(30000): print('word', n, file=sys.stderr)\nprint('done')"
    with LineChild(python(program)) as child:
        assert read_line(child) == "done"
        assert child.read(60) is Quiet.END
    assert child.last_words == tuple(f"word {n}" for n in range(29960, 30000))
    with LineChild(python("import sys; sys.stderr.write('x' * 100000)")) as child:
        assert child.read(60) is Quiet.END
    assert [len(words) for words in child.last_words] == [8192]


def test_bytes_that_are_no_text_are_kept_readable():
    """Invalid UTF-8 becomes an escape, valid UTF-8 beside it stays."""
    with LineChild(shell("printf 'a\\377\\303\\244\\n'")) as child:
        assert read_line(child) == "a\\xffä"


def test_a_line_without_end_costs_no_memory():
    """It is cut at 64 KiB, what follows its newline is read as usual."""
    buffer = LineBuffer()
    for _ in range(100):
        assert buffer.feed(b"y" * 10_000) == []
    cut, next_line = buffer.feed(b"\nnext\n")
    assert (cut, next_line) == ("y" * LONGEST_LINE, "next")
    assert LineBuffer(longest=4).feed(b"123456\n12\n") == ["1234", "12"]


@pytest.mark.parametrize(
    ("argv", "options", "what"),
    [
        (["no-such-program-here"], {}, "was not found"),
        (["/etc/passwd"], {}, "may not be executed"),
        (["true"], {"cwd": Path("/no/such/place")}, "is not a directory"),
    ],
)
def test_a_child_that_cannot_start_says_what_mends_it(argv, options, what):
    """A person can end these failures, so they name the value and the way out."""
    with pytest.raises(UserError, match=what) as caught:
        LineChild(argv, **options)
    assert caught.value.remedy


def test_environment_and_directory_are_passed(tmp_path):
    """The child sees exactly the environment that was given."""
    with LineChild(shell("echo $WORD; pwd"), env={"WORD": "yes"}, cwd=tmp_path) as child:
        assert [read_line(child), read_line(child)] == ["yes", str(tmp_path)]


def test_the_whole_family_ends():
    """A grandchild that holds the pipe and ignores SIGTERM is gone when ``end`` returns."""
    program = "(trap '' TERM; echo up; while :; do sleep 600; done) & echo $!; exec sleep 600"
    with LineChild(shell(program)) as child:
        printed = {read_line(child), read_line(child)} - {"up"}
        grandchild = int(printed.pop())
        assert is_running(grandchild)
        watch = Stopwatch()
        child.end(grace_seconds=0.1)
        assert watch.seconds < 1
    assert until(lambda: not is_running(grandchild))
    assert child.read() is Quiet.END


def test_a_grandchild_with_the_pipe_does_not_hide_the_end():
    """When the child itself is gone its last line is read, and then comes the end."""
    with LineChild(shell("sleep 600 & echo $!")) as child:
        grandchild = int(read_line(child))
        assert child.read(60) is Quiet.END
        assert is_running(grandchild)
    assert until(lambda: not is_running(grandchild))
    assert child.returncode == 0


def test_without_a_pidfd_the_end_is_seen_too(monkeypatch):
    """Kernels before 5.3 have none; the child is then looked after four times a second."""
    monkeypatch.delattr(os, "pidfd_open")
    with LineChild(shell("sleep 600 & echo $!")) as child:
        grandchild = int(read_line(child))
        assert child.read(60) is Quiet.END
    assert until(lambda: not is_running(grandchild))


def test_a_child_that_closed_its_output_ends_by_itself():
    """Its exit status is its own: the signal waits until it had the time to exit."""
    with LineChild(shell("exec >&-; sleep 0.1; exit 7")) as child:
        assert child.read(60) is Quiet.END
        child.end(grace_seconds=60)
    assert child.returncode == 7


def test_a_child_that_ignores_sigterm_is_killed():
    """The grace is what it gets, not a second more."""
    with LineChild(shell("trap '' TERM; echo ready; while :; do sleep 600; done")) as child:
        assert read_line(child) == "ready"
        watch = Stopwatch()
        child.end(grace_seconds=0.05)
        assert watch.seconds < 1
    assert child.returncode == -signal.SIGKILL


# --- the source ---------------------------------------------------------------------------------


class QuickClock(type(SYSTEM_CLOCK)):
    """The real clock, but a pause is only noted down."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Note the pause and go on."""
        self.pauses.append((until_ns - time.monotonic_ns()) / 1e9)
        return event.is_set()


def source_of(program: str, clock=None, **options) -> ProcessSource:
    # Silence is that of a program that hangs, and not of a starved one.
    options = {"silence_seconds": 60.0, **options}
    return ProcessSource(
        shell(program), interval_seconds=0.05, clock=clock or QuickClock(), **options
    )


PRINTS_ITS_PID = "while :; do echo $$; sleep 0.01; done"


def test_a_killed_program_comes_back():
    """After SIGKILL it is started again, counted, and the lines go on."""
    source = source_of(PRINTS_ITS_PID)
    lines = source.lines()
    first = int(next(lines).value)
    assert (source.restarts, source.problem) == (0, None)
    os.kill(first, signal.SIGKILL)
    second = next(int(line.value) for line in lines if int(line.value) != first)
    assert is_running(second)
    assert (source.restarts, source.problem) == (1, None)
    lines.close()
    assert not is_running(second)


def test_a_silent_program_is_started_again(caplog):
    """Nothing printed for the set time: it is ended and started again, and the log says why."""
    caplog.set_level(logging.WARNING)
    source = source_of("echo $$; exec sleep 600", silence_seconds=0.5)
    lines = source.lines()
    first = int(next(lines).value)
    second = int(next(lines).value)
    assert first != second
    assert not is_running(first)
    assert source.restarts >= 1
    assert "printed nothing for 0.5 s" in caplog.text
    assert len(caplog.records) == 1
    lines.close()


def test_silence_is_five_intervals_but_two_seconds_at_least():
    """A short interval does not make a slow start a failure."""
    for interval, silence in [(0.1, 2.0), (1.009, 5.045)]:
        source = ProcessSource(["x"], interval_seconds=interval)
        assert source.silence_seconds == pytest.approx(silence)


def test_pauses_double_up_to_their_limit_and_the_last_words_are_logged(caplog):
    """A program that dies at once is tried ever more slowly; all its deaths are one line of log."""
    clock = QuickClock()
    source = source_of("echo sorry >&2; exit 3", clock, backoff_seconds=(50.0, 300.0))
    stopper = threading.Thread(
        target=lambda: until(lambda: len(clock.pauses) >= 5) and source.stop()
    )
    stopper.start()
    assert list(source.lines()) == []
    stopper.join()
    # They are measured from start to start.
    for pause, most in zip(clock.pauses, [50, 100, 200, 300, 300], strict=False):
        assert most - 45 < pause <= most
    assert source.restarts >= 4
    assert "ended with status 3 (sorry)" in source.problem
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_lines_come_back_within_ten_seconds():
    """No pause is over five seconds, and silence that lasted as long is not followed by another."""
    clock = QuickClock()
    source = source_of("exit 1", clock)
    stopper = threading.Thread(
        target=lambda: until(lambda: len(clock.pauses) >= 9) and source.stop()
    )
    stopper.start()
    assert list(source.lines()) == []
    stopper.join()
    assert 4 < max(clock.pauses) <= 5
    clock = QuickClock()
    source = source_of("exec sleep 600", clock, silence_seconds=0.3, backoff_seconds=(0.01, 0.3))
    stopper = threading.Thread(
        target=lambda: until(lambda: len(clock.pauses) >= 7) and source.stop()
    )
    stopper.start()
    assert list(source.lines()) == []
    stopper.join()
    assert max(clock.pauses) < 0.02


def test_an_outage_is_one_line_of_log_at_each_end(tmp_path, caplog):
    """Whatever the program does meanwhile; the second has its length."""
    caplog.set_level(logging.INFO)
    tries = tmp_path / "tries"
    program = (
        f"echo >>{tries}; n=$(wc -l <{tries}); [ $n = 1 ] && echo first && exit; "
        "[ $n -lt 6 ] && exit $n; while :; do echo back; sleep 0.01; done"
    )
    source = source_of(program, SYSTEM_CLOCK, backoff_seconds=(0.01, 0.1))
    lines = source.lines()
    begin = next(lines).monotonic_ns
    end = next(lines).monotonic_ns
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert until(lambda: next(lines) and len(caplog.records) > 1)
    (told,) = (record.getMessage() for record in caplog.records if record.levelname == "INFO")
    assert told == f"tegrastats: lines come again, after {(end - begin) / 1e9:.1f} s without"
    for _ in range(20):
        next(lines)
    assert len(caplog.records) == 2
    lines.close()


def test_a_steady_program_makes_the_pause_short_again():
    """A death after a long good time is not held against the program."""
    clock = QuickClock()
    program = "for n in 1 2 3; do echo $$; sleep 0.01; done"
    source = source_of(program, clock, steady_seconds=0.005, backoff_seconds=(50.0, 300.0))
    lines = source.lines()
    for _ in range(12):
        next(lines)
    lines.close()
    assert clock.pauses == pytest.approx([50] * len(clock.pauses), abs=30)
    assert len(clock.pauses) == 3


def test_a_program_that_is_not_there_is_told_once_and_tried_again(tmp_path, caplog):
    """Telemetry can be installed later; until then the problem says what mends it."""
    program = tmp_path / "tegrastats"
    clock = QuickClock()
    source = ProcessSource([str(program)], interval_seconds=1, clock=clock)

    def install() -> None:
        assert until(lambda: len(clock.pauses) >= 3)
        assert "was not found: install it" in source.problem
        ready = program.with_suffix(".new")
        ready.write_text("#!/bin/sh\nwhile :; do echo here; sleep 0.01; done\n")
        ready.chmod(0o755)
        ready.rename(program)

    installer = threading.Thread(target=install)
    installer.start()
    lines = source.lines()
    assert next(lines).value == "here"
    installer.join()
    assert source.problem is None
    assert source.restarts == 0
    assert len([r for r in caplog.records if "was not found" in r.getMessage()]) == 1
    lines.close()


def test_lack_of_descriptors_ends_no_source(monkeypatch, caplog):
    """It is an outage like another one: logged once, and over when there are some again."""
    real, left = os.eventfd, [OSError(errno.EMFILE, "Too many open files")] * 3

    def eventfd(*arguments: int) -> int:
        if left:
            raise left.pop()
        return real(*arguments)

    monkeypatch.setattr(os, "eventfd", eventfd)
    source = ProcessSource(shell("echo one"), interval_seconds=1.0, backoff_seconds=(0.001, 0.01))
    lines = source.lines()
    assert next(lines).value == "one"
    source.stop()
    assert list(lines) == []
    assert len([one for one in caplog.messages if "Too many open files" in one]) == 1


def test_stop_ends_the_lines_and_the_program_at_once():
    """From another thread, in less than a second, also while the program is silent."""
    source = source_of("echo $$; exec sleep 600", SYSTEM_CLOCK, silence_seconds=60)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(source.lines()))
    reader.start()
    assert until(lambda: seen)
    watch = Stopwatch()
    source.stop()
    source.stop()
    reader.join(60)
    assert watch.seconds < 1
    assert not reader.is_alive()
    assert all(not is_running(int(line.value)) for line in seen)


def test_stop_ends_a_pause():
    """A source that waits before its next try ends at once too."""
    source = ProcessSource(["no-such-program-here"], interval_seconds=1, backoff_seconds=(60, 60))
    reader = threading.Thread(target=lambda: list(source.lines()))
    reader.start()
    assert until(lambda: source.problem is not None)
    source.stop()
    reader.join(60)
    assert not reader.is_alive()

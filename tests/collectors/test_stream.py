"""Lines that somebody pipes in, until the end or until told to stop."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from tegrascope.collectors.lines.program import StreamSource
from tegrascope.parsers.errors import UserError


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that plays standard input."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "tegrastats.fifo"
    os.mkfifo(path)
    return path


def test_standard_input_is_read_to_its_end(pipe):
    """Lines come stamped, the last one needs no newline, and the end ends the source."""
    reader, writer = pipe
    source = StreamSource(stdin_fd=reader, interval_seconds=1.0)
    before = time.monotonic_ns()
    lines = source.lines()
    os.write(writer, b"one\ntwo\nth")
    assert next(lines).value == "one"
    os.write(writer, b"ree")
    os.close(writer)
    rest = list(lines)
    assert [line.value for line in rest] == ["two", "three"]
    assert before < rest[0].monotonic_ns <= rest[1].monotonic_ns < time.monotonic_ns()
    assert (source.name, source.is_live, source.restarts) == ("stream", True, 0)
    assert source.interval_seconds == 1.0


def test_standard_input_that_is_a_file_is_read_too(tmp_path):
    """``tegrascope … < file`` works."""
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n")
    with path.open("rb") as log:
        assert [line.value for line in StreamSource(stdin_fd=log.fileno()).lines()] == ["a", "b"]


def test_a_silent_input_can_be_stopped(pipe):
    """Stop ends a read that waits, and a source that has not begun."""
    reader, writer = pipe
    source = StreamSource(stdin_fd=reader)
    lines = source.lines()
    os.write(writer, b"one\n")
    assert next(lines).value == "one"
    stopper = threading.Timer(0.02, source.stop)
    stopper.start()
    assert list(lines) == []
    stopper.join()
    assert list(source.lines()) == []
    source.stop()
    os.close(writer)


def test_a_named_pipe_waits_for_its_next_writer(fifo):
    """Each writer's whole lines are read; a line that a writer left unfinished is dropped."""
    source = StreamSource(fifo)
    lines = source.lines()

    def write_twice() -> None:
        fifo.write_bytes(b"first\nunfin")
        while source.restarts == 0 and not never.wait(0.005):
            pass
        fifo.write_bytes(b"second\n")

    never = threading.Event()
    writer = threading.Thread(target=write_twice)
    writer.start()
    assert next(lines).value == "first"
    assert next(lines).value == "second"
    writer.join()
    stopper = threading.Timer(0.02, source.stop)
    stopper.start()
    assert list(lines) == []
    stopper.join()
    assert source.restarts == 2


def test_a_named_pipe_without_writer_can_be_stopped(fifo):
    """Nobody ever opened the other end: stop works all the same."""
    source = StreamSource(fifo)
    stopper = threading.Timer(0.02, source.stop)
    stopper.start()
    assert list(source.lines()) == []
    stopper.join()
    assert source.restarts == 0


def test_a_named_pipe_that_was_removed_is_waited_for(fifo):
    """It is told as a problem, and reading goes on when the pipe is there again."""

    class Clock:
        def monotonic_ns(self):
            return time.monotonic_ns()

        wall_ns = boottime_ns = monotonic_ns

        def wait(self, event, until_ns):
            assert until_ns > time.monotonic_ns()
            problems.append(source.problem)
            os.mkfifo(fifo)
            writer.start()
            return event.is_set()

    problems: list[str | None] = []
    source = StreamSource(fifo, clock=Clock())
    writer = threading.Thread(target=lambda: fifo.write_bytes(b"again\n"))
    removing = os.open(fifo, os.O_RDWR)
    lines = source.lines()
    os.write(removing, b"once\n")
    assert next(lines).value == "once"
    fifo.unlink()
    os.close(removing)
    assert next(lines).value == "again"
    writer.join()
    lines.close()
    assert len(problems) == 1
    assert "mkfifo" in problems[0]
    assert source.problem is None


@pytest.mark.parametrize(
    ("name", "remedy"), [("missing", "mkfifo"), ("file", "replay"), ("directory", "")]
)
def test_what_is_no_named_pipe_is_refused(tmp_path, name, remedy):
    """Whoever wrote the path is told what to do."""
    (tmp_path / "file").write_text("RAM 1/2MB\n")
    (tmp_path / "directory").mkdir()
    with pytest.raises(UserError) as caught:
        StreamSource(tmp_path / name)
    assert name in caught.value.message
    assert remedy in caught.value.remedy

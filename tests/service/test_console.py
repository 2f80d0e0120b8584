"""Output to a terminal, to a pipe, and to a reader that has gone."""

import io
import json
import logging
import os
import pty
import struct
import termios
from collections.abc import Iterator
from datetime import datetime
from fcntl import ioctl

import pytest

from tegrascope.daemon.commands.run import Console


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """Give the root logger back as it was."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


@pytest.fixture
def terminal():
    """Make a terminal; return the program's end, and a way to read what it was sent."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w")

    def read() -> str:
        stream.write("\0")  # the end; a terminal may hand over what it has in pieces
        stream.flush()
        sent = b""
        while not sent.endswith(b"\0"):
            sent += os.read(ours, 65536)
        return sent[:-1].decode().replace("\r\n", "\n")

    yield stream, read, ours
    stream.close()
    os.close(ours)


def screen(sent: str) -> "list[str]":
    """Return the lines that are to be seen: CR and erase begin a line anew."""
    return [line.rpartition("\r\x1b[K")[2] for line in sent.split("\n")]


def test_terminal_keeps_one_status_line(root, terminal):
    """Log lines go above the status line, which is redrawn whole and gone at the end."""
    stream, read, _ = terminal
    console = Console(stream)
    root.info("one")
    console.show("idle")
    root.warning("two %s", "words")
    console.show("running")
    console.close()
    root.info("last")
    first, second, third, rest = screen(read())
    assert first.endswith("INFO one")
    assert second.endswith("WARNING two words")
    assert third.endswith("INFO last")
    assert rest == ""


@pytest.mark.parametrize(("columns", "shown"), [(20, 19), (0, 79), (500, 120)])
@pytest.mark.usefixtures("root")
def test_status_line_fits(terminal, columns, shown):
    """It is cut to the terminal, also to one that does not know how wide it is."""
    stream, read, ours = terminal
    ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    Console(stream).show("x" * 120)
    assert screen(read()) == ["x" * shown]


@pytest.mark.usefixtures("root")
def test_status_line_keeps_how_to_leave(terminal):
    """A line of 100 letters on a terminal of 80 loses its middle."""
    stream, read, ours = terminal
    ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    Console(stream).show(f"running {'x' * 80} · Ctrl-C ends")
    (shown,) = screen(read())
    assert len(shown) == 79
    assert shown.endswith("x… · Ctrl-C ends")


def test_pipe_gets_plain_lines(root, monkeypatch):
    """A pipe gets neither escape codes nor a status line."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    stream = io.StringIO()
    console = Console(stream)
    root.info("one")
    root.error("two\nlines")
    console.close()
    lines = stream.getvalue().splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["INFO one", "ERROR two", ""]
    assert lines[-1] == "lines"


def test_journal_gets_no_stamp(root, monkeypatch):
    """The journal has a time of its own."""
    monkeypatch.setenv("JOURNAL_STREAM", "8:1234")
    stream = io.StringIO()
    Console(stream)
    root.info("one")
    assert stream.getvalue() == "INFO one\n"


def test_json_has_one_object_per_record(root, terminal):
    """A collector of logs reads time, level, logger and message, also of an error with a trace."""
    stream, read, _ = terminal
    console = Console(stream, as_json=True)
    logging.getLogger("tegrascope.x").warning("said \x1b[2J\x9b31m\n%s µ", "more")
    try:
        raise ValueError("of the value")
    except ValueError:
        root.exception("failed")
    console.close()
    first, second = (json.loads(line) for line in read().splitlines())
    assert datetime.fromisoformat(first.pop("time")).tzinfo is not None
    assert first == {
        "level": "warning", "logger": "tegrascope.x", "message": "said \x1b[2J\x9b31m\nmore µ",
    }  # fmt: skip
    assert (second["level"], second["message"]) == ("error", "failed")
    assert "ValueError: of the value" in second["exception"]


@pytest.mark.parametrize(("level", "logged"), [("debug", 4), ("info", 3), ("error", 1)])
def test_level_is_the_least_that_is_logged(root, level, logged):
    """What is less severe is not printed."""
    stream = io.StringIO()
    Console(stream, level=level)
    for each in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        root.log(each, "one")
    assert stream.getvalue().count("one") == logged


def test_run_logs_as_it_is_asked_to(start):
    """The daemon itself: every line of standard error is a JSON object."""
    daemon = start("telemetry: {source: simulator}", "--log-format", "json")
    assert daemon.url
    messages = [json.loads(line)["message"] for line in [*daemon.log]]
    assert any(message.startswith("tegrascope ") for message in messages)


def test_worker_cannot_write_to_the_terminal(root):
    """Control characters in what somebody else said are shown, not obeyed."""
    stream = io.StringIO()
    Console(stream)
    root.info("worker said \x1b[2J\x07\r\x9b31m µ")
    assert "worker said \\x1b[2J\\x07\\x0d\\x9b31m µ\n" in stream.getvalue()


def test_log_without_a_reader_is_not_an_error(root):
    """When the reader of the log is gone, who logs goes on, and nothing is left to fail at exit."""
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    Console(stream)
    os.close(reader)
    root.info("one")
    root.error("two")
    stream.close()


def test_closed_log_is_no_error(root):
    """Nor does a stream that is closed stop who logs."""
    stream = io.StringIO()
    Console(stream)
    stream.close()
    root.info("one")


def _throw_away(stream: "io.TextIOWrapper") -> None:
    # What is left in its buffer can't be written, so a plain close would complain.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    stream.close()


def test_terminal_that_is_gone_is_no_error(root):
    """A closed terminal ends neither the log nor the status line."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w")
    console = Console(stream)
    os.close(ours)
    root.info("one")
    console.show("idle")
    console.close()
    _throw_away(stream)

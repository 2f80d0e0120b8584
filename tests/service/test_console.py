"""Output to a terminal, to a pipe, and to a reader that has gone."""

import io
import json
import logging
import os
import pty
from collections.abc import Iterator
from datetime import datetime

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


def test_pipe_gets_plain_lines(root, monkeypatch):
    """A pipe gets no escape codes."""
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
    """Nor does a closed terminal stop who logs."""
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w")
    Console(stream)
    os.close(ours)
    root.info("one")
    _throw_away(stream)

"""The progress bar is shown on a terminal only."""

import io
import sys

import pytest

from tegrascope.daemon.terminal import LONG_WORK_BYTES, progress


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


@pytest.fixture
def log(tmp_path):
    """A log that is long, and empty on the disk."""
    log = tmp_path / "a.log"
    with log.open("wb") as file:
        file.truncate(LONG_WORK_BYTES)
    return log


def shown(monkeypatch, paths, output, *, err, out=None):
    """Return standard error after half of the work."""
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdout", out or io.StringIO())
    with progress(paths, output) as moved:
        moved(LONG_WORK_BYTES // 2)
    return err.getvalue()


def test_long_work_on_a_terminal_shows_a_bar(monkeypatch, log):
    monkeypatch.setenv("TERM", "xterm")
    assert "/16.8 MB" in shown(monkeypatch, [log], None, err=Terminal())


@pytest.mark.parametrize("case", ["a pipe", "short", "results on the terminal", "standard input"])
def test_other_work_shows_no_bar(monkeypatch, log, tmp_path, case):
    short = tmp_path / "short.log"
    short.write_text("RAM 1/2MB\n")
    paths = {"short": [short], "standard input": [None]}.get(case, [log])
    err = io.StringIO() if case == "a pipe" else Terminal()
    out = Terminal() if case == "results on the terminal" else None
    assert shown(monkeypatch, paths, None, err=err, out=out) == ""

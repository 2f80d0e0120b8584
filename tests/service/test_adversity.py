"""The whole daemon among bad neighbours: ill-timed signals, lost readers, rivals, strangers."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.processes import PATIENCE_SECONDS, until

QUIET = "telemetry: {source: simulator, interval: 100ms}\n"
RUNNING = QUIET + (
    "workloads: [{name: w, model: 'builtin:mobilenet', device: cpu, threads: 1, baseline: 0s,"
    " warm_up: 0s, duration: 600s, every: 3000s}]\n"
)
QUICK = QUIET + (
    "workloads: [{name: w, model: 'builtin:mobilenet', device: cpu, threads: 1, baseline: 0s,"
    " warm_up: 0s, count: 5, every: 500ms}]\n"
)


class Program:
    """``tegrascope run`` whose standard error is whatever the test wants it to be."""

    def __init__(self, directory: Path, config: str, stderr: "int | None" = None) -> None:
        (directory / "tegrascope.yaml").write_text(config)
        self.state = directory / "state"
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tegrascope", "run", "-c", "tegrascope.yaml"),
                *("--listen", "127.0.0.1:0", "--state-dir", str(self.state)),
            ],
            stderr=subprocess.PIPE if stderr is None else stderr,
            cwd=directory,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )

    def wait_for(self, what: Callable[[], object]) -> None:
        assert until(lambda: what() or self.process.poll() is not None)
        assert self.process.poll() is None

    def end(self) -> "tuple[int, str]":
        """Wait for its end; return its status and what it said."""
        said = self.process.communicate(timeout=PATIENCE_SECONDS)[1]
        return self.process.returncode, "" if said is None else said.decode()


@pytest.fixture
def program(tmp_path):
    made: list[Program] = []

    def start(config: str, stderr: "int | None" = None) -> Program:
        made.append(Program(tmp_path, config, stderr))
        return made[-1]

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def runs(state: Path) -> "list[dict[str, object]]":
    """Return the runs of the store after the daemon has ended."""
    told = subprocess.run(
        [sys.executable, "-m", "tegrascope", "runs", "export", "--state-dir", str(state)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_the_start_ends_it_cleanly(program, number):
    """Asked to end before it serves, the daemon ends as if it had served, with status 0."""
    daemon = program(RUNNING)
    daemon.wait_for((daemon.state / "tegrascope.db.lock").exists)
    daemon.process.send_signal(number)
    status, said = daemon.end()
    assert status == 0
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
    assert [run["outcome"] for run in runs(daemon.state)] in ([], ["cancelled"])


def test_reload_during_the_start_does_not_kill(start):
    """A SIGHUP that comes too early is heeded when the daemon serves."""
    daemon = start(QUIET)
    lock = daemon.config.parent / "state" / "tegrascope.db.lock"
    assert until(lock.exists)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda: any("reloaded: 0 workload(s)" in line for line in daemon.log))
    assert daemon.get("healthz") == "ok\n"


def test_impatience_costs_no_record(start):
    """Five more SIGTERMs and Ctrl-C while it ends: it still ends well, with the run on record."""
    daemon = start(RUNNING)
    daemon.wait_for(lambda: daemon.metric("tegra_inferences_total"))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTERM):
        daemon.process.send_signal(number)
        time.sleep(0.05)  # spread over the end, wherever each may meet it
    assert daemon.stop() < 3
    assert daemon.process.returncode == 0
    assert not any("Traceback" in line for line in daemon.log)
    (run,) = runs(daemon.config.parent / "state")
    assert run["outcome"] == "cancelled"


def test_lost_reader_of_the_log_stops_nothing(program):
    """``tegrascope run 2>&1 | head -3``: the daemon goes on measuring when head is gone."""
    daemon = program(QUICK)
    assert daemon.process.stderr is not None
    url = ""
    for _ in range(3):
        found = re.search(r"page +(http://\S+/)", daemon.process.stderr.readline().decode())
        url = found[1] if found else url
    daemon.process.stderr.close()
    daemon.process.stderr = None

    def good() -> int:
        with urllib.request.urlopen(f"{url}api/v1/runs", timeout=60) as answer:
            return sum(run["outcome"] == "ok" for run in json.load(answer)["runs"])

    daemon.wait_for(lambda: good() >= 3)
    daemon.process.terminate()
    assert daemon.end()[0] == 0


def test_terminal_shows_whole_lines(program):
    """On a terminal: what runs and where, then log lines."""
    ours, theirs = pty.openpty()
    daemon = program(QUICK, theirs)
    os.close(theirs)
    sent = b""
    while sent.count(b"w on cpu: ok") < 2:
        sent += os.read(ours, 65536)
    daemon.process.send_signal(signal.SIGINT)
    try:
        while data := os.read(ours, 65536):
            sent += data
    except OSError:  # the terminal's other end is gone
        pass
    os.close(ours)
    assert daemon.end()[0] == 0
    *lines, last = sent.decode().split("\r\n")
    stamped = re.compile(r"\d\d:\d\d:\d\d (INFO|WARNING) \S?.*")
    assert all(stamped.fullmatch(line) for line in lines), lines
    assert [line.split()[2] for line in lines[1:7]] == [
        *("page", "metrics", "runs", "telemetry", "state", "workloads"),
    ]
    assert last == ""


def test_second_daemon_is_one_line(program):
    """A rival on the same state directory ends at once; the first one's run is not touched."""
    first = program(RUNNING)
    first.wait_for((first.state / "token").exists)
    second = program(RUNNING)
    status, said = second.end()
    assert status == 1
    assert said.count("\n") == 1
    assert f"in use by another tegrascope (process {first.process.pid})" in said
    first.process.terminate()
    assert first.end()[0] == 0
    assert {run["outcome"] for run in runs(first.state)} <= {"cancelled"}


def test_missing_replay_is_one_line(program):
    """A log that is not there ends the start with one line, at once."""
    status, said = program(
        "telemetry: {source: replay, replay: {path: /nonexistent/some.log}}"
    ).end()
    assert status == 1
    assert said.count("\n") == 1
    assert "/nonexistent/some.log" in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/1.1 404"),
        (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP\r\n\r\n",
            b"HTTP/1.1 200",
        ),
        (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            b"HTTP/1.1 200",
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"HTTP/1.1 400"),
    ],
    ids=["http2", "h2c", "websocket", "tls"],
)
def test_protocols_that_are_left_out_leave_no_trace(strangers, words, answer):
    """HTTP/2, WebSocket and TLS clients get an answer of HTTP/1.1."""
    host, port = strangers.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as peer:
        peer.sendall(words)
        assert peer.recv(12) == answer
    strangers.wait_for(lambda: strangers.metric("tegrascope_source_up") == 1)
    assert not any("Traceback" in line or "ERROR" in line for line in strangers.log)


@pytest.fixture
def strangers(start):
    """A daemon that has its first sample."""
    daemon = start(QUIET)
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    return daemon

"""tegrastats from a socket: preferred, connected again, and done without where it can't be had."""

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK, Stamped
from tegrascope.collectors.children.process import Quiet
from tegrascope.collectors.lines.program import (
    MISSING_SOCKET_SECONDS,
    MUTE_SOCKET_SECONDS,
    LineSocket,
    SocketSource,
)
from tegrascope.parsers.errors import UserError
from tests.fakes.processes import Stopwatch, until


class Server:
    """What systemd does: each connection gets what a helper prints, until one is enough."""

    def __init__(self, path: Path, serve: Callable[[socket.socket, int], None]) -> None:
        self.accepted = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self._serve = serve
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._one, args=(peer, self.accepted), daemon=True).start()

    def _one(self, peer: socket.socket, number: int) -> None:
        with peer, contextlib.suppress(OSError):  # the source has had enough of it
            self._serve(peer, number)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)


class QuickClock(type(SYSTEM_CLOCK)):
    """The real clock, a pause of which is short, and half a minute can be put ahead."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.ahead_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:  # noqa: ARG002
        return event.wait(0.005)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def start(serve: Callable[[socket.socket, int], None]) -> Server:
        made.append(Server(tmp_path / "lines.sock", serve))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture
def clock() -> QuickClock:
    return QuickClock()


@pytest.fixture
def source(tmp_path: Path, clock: QuickClock) -> Iterator[SocketSource]:
    """Root's lines from the socket, ``own`` from the program in its place."""
    program = "while :; do echo own; sleep 0.005; done"
    made = SocketSource(
        tmp_path / "lines.sock",
        ["/bin/sh", "-c", program],
        interval_seconds=0.01,
        socket_interval_seconds=0.02,
        silence_seconds=1.0,  # of helpers that hang, and not of starved ones
        clock=clock,
    )
    yield made
    made.stop()


def talk(peer: socket.socket, number: int) -> None:
    while True:
        peer.sendall(f"root {number}\n".encode())
        time.sleep(0.005)


def first_of(lines: Iterator[Stamped[str]], text: str) -> str:
    """Return the next line that begins so; at most a thousand others come before it."""
    for _, line in zip(range(1000), lines, strict=False):
        if line.value.startswith(text):
            return line.value
    raise AssertionError(f"no {text} in a thousand lines")


def test_socket_comes_first(serving, source):
    """Where it gives lines, the program is not run, and its own interval counts."""
    serving(talk)
    lines = source.lines()
    assert [next(lines).value for _ in range(5)] == ["root 1"] * 5
    assert (source.is_privileged, source.interval_seconds) == (True, 0.02)
    assert (source.restarts, source.problem, source.name) == (0, None, "tegrastats")
    lines.close()


def test_line_is_whole_and_stamped_at_its_newline(serving, tmp_path):
    """What comes in pieces is one line, stamped when its last piece came."""
    go = threading.Event()

    def in_pieces(peer: socket.socket, _: int) -> None:
        peer.sendall(b"RAM 1/")
        go.wait(60)
        peer.sendall(b"2MB\nhalf a li")

    serving(in_pieces)
    with_line = LineSocket(tmp_path / "lines.sock")
    assert with_line.read(0.05) is Quiet.TIMEOUT
    before_ns = time.monotonic_ns()
    go.set()
    line = with_line.read(60)
    assert isinstance(line, Stamped)
    assert (line.value, line.monotonic_ns > before_ns) == ("RAM 1/2MB", True)
    assert with_line.read(60) is Quiet.END
    with_line.end()


def test_closed_connection_is_made_again(serving, source, caplog):
    """The helper is killed: one line of log, one restart, and lines of the next helper."""

    def two_lines(peer: socket.socket, number: int) -> None:
        if number > 1:
            talk(peer, number)
        peer.sendall(b"root 1\nroot 1\n")

    serving(two_lines)
    lines = source.lines()
    assert first_of(lines, "root 2") == "root 2"
    assert (source.restarts, source.is_privileged, source.problem) == (1, True, None)
    (told,) = (record.message for record in caplog.records)
    assert "was closed by the other end" in told
    lines.close()


def test_silent_connection_is_made_again(serving, source):
    """A helper that hangs is left for another one."""

    def hang(peer: socket.socket, number: int) -> None:
        peer.sendall(b"root 1\n")
        if number == 1:
            peer.recv(1)
        talk(peer, number)

    serving(hang)
    lines = source.lines()
    assert first_of(lines, "root 2")
    lines.close()


@pytest.mark.parametrize("why", ["is not there", "takes no connection", "is not for this user"])
def test_without_the_socket_the_program_runs_and_it_is_said(tmp_path, source, caplog, why):
    """No socket, nobody behind it, no permission: lines come all the same, and less is claimed."""
    path = tmp_path / "lines.sock"
    if why == "takes no connection":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    if why == "is not for this user":
        if os.geteuid() == 0:
            pytest.skip("root may connect anywhere; tests/systemd asks as another user")
        with socket.socket(socket.AF_UNIX) as shut:
            shut.bind(str(path))
        path.chmod(0)
    lines = source.lines()
    assert next(lines).value == "own"
    assert (source.is_privileged, source.interval_seconds) == (False, 0.01)
    (told,) = (record.message for record in caplog.records if record.levelno == logging.WARNING)
    assert "runs without root" in told
    assert why in told
    lines.close()


def test_connection_without_a_line_is_not_tried_over_and_over(serving, source, caplog):
    """Root's unit has no tegrastats: one try, and then our own for half a minute."""
    server = serving(lambda peer, _: peer.close())
    lines = source.lines()
    assert {next(lines).value for _ in range(20)} == {"own"}
    assert server.accepted == 1
    assert "runs without root, and shows less" in caplog.text
    lines.close()


@pytest.mark.parametrize("own", ["is absent", "fails"])
def test_program_that_gives_no_line_is_not_said_to_run(serving, tmp_path, caplog, own):
    """Neither of the two has lines: both reasons stay, also after the next try of the socket."""
    server = serving(lambda peer, _: peer.close())
    clock = QuickClock()
    path = tmp_path / "lines.sock"
    argv = ["/bin/false"] if own == "fails" else [str(tmp_path / "none")]
    source = SocketSource(
        path, argv, interval_seconds=0.01, socket_interval_seconds=0.02, clock=clock
    )
    reader = threading.Thread(target=lambda: list(source.lines()))
    reader.start()
    reason = "/bin/false ended with status 1" if own == "fails" else f"{tmp_path}/none"

    def is_complete() -> bool:
        found = source.problem or ""
        return reason in found and f"{path} was closed by the other end" in found

    def is_tried(times: int) -> bool:
        # Again and again: the source may plan its pause after the clock was set forward.
        clock.ahead_ns += round(MUTE_SOCKET_SECONDS[1] * 1e9)
        return server.accepted >= times

    try:
        assert until(is_complete)
        for tries in (2, 3):
            assert until(lambda tries=tries: is_tried(tries))
            assert until(is_complete)
    finally:
        source.stop()
        reader.join(60)
    assert "runs without root" not in caplog.text
    assert reason in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2


def test_socket_that_comes_later_takes_over_without_a_gap(serving, source, clock):
    """The program is read until the socket prints: a mute connection is only a candidate."""
    lines = source.lines()
    assert next(lines).value == "own"
    server = serving(lambda peer, number: peer.recv(1) if number == 1 else talk(peer, number))
    clock.ahead_ns = round(MISSING_SOCKET_SECONDS * 1e9)
    assert {next(lines).value for _ in range(20)} == {"own"}  # it is there, and mute
    assert server.accepted == 1
    clock.ahead_ns += round(MUTE_SOCKET_SECONDS[0] * 1e9) // 2
    assert {next(lines).value for _ in range(20)} == {"own"}
    assert server.accepted == 1
    clock.ahead_ns += round(MUTE_SOCKET_SECONDS[0] * 1e9) // 2
    assert first_of(lines, "root") == "root 2"
    assert (source.is_privileged, source.interval_seconds) == (True, 0.02)
    lines.close()


def test_helper_that_ends_after_a_takeover_is_connected_again_at_once(serving, source, clock):
    lines = source.lines()
    assert next(lines).value == "own"
    serving(lambda peer, number: peer.sendall(b"root 1\n") if number == 1 else talk(peer, number))
    clock.ahead_ns = round(MISSING_SOCKET_SECONDS * 1e9)
    assert first_of(lines, "root") == "root 1"
    assert next(lines).value == "root 2"
    lines.close()


def test_socket_without_lines_is_not_tried_every_minute(serving, source, clock, caplog):
    """Each connection to a unit without tegrastats is a line of the journal."""
    source.silence_seconds = 60.0
    server = serving(lambda peer, _: peer.close())
    lines = source.lines()
    for _ in range(4 * 60):
        next(lines)
        clock.ahead_ns += 60 * 10**9
    assert 20 <= server.accepted <= 30
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2
    lines.close()


def test_stop_ends_both(serving, source):
    """Told to end while it waits for a line, it does at once."""
    serving(lambda peer, _: (peer.sendall(b"root\n"), peer.recv(1)))
    started = threading.Event()
    reader = threading.Thread(target=lambda: [started.set() for _ in source.lines()])
    reader.start()
    assert started.wait(60)
    assert source.is_privileged
    watch = Stopwatch()
    source.stop()
    reader.join(60)
    assert watch.seconds < 1
    assert not reader.is_alive()


def test_refusal_says_what_to_do(tmp_path):
    """No socket: the error has the command that makes one."""
    with pytest.raises(UserError, match=r"enable --now tegrascope-tegrastats\.socket"):
        LineSocket(tmp_path / "tegrastats.sock")

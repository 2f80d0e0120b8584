"""Power modes: what the board had is restored, however the client or the unit ends."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tegrascope.collectors.board.power import (
    PowerClient,
    PowerModes,
    ProgramOutput,
    StateFile,
    serve,
)
from tegrascope.parsers.errors import UserError
from tests.fakes.processes import PATIENCE_SECONDS, until

CONF = """
< POWER_MODEL ID=0 NAME=15W >
< POWER_MODEL ID=1 NAME=25W >
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< POWER_MODEL ID=3 NAME=7W >
"""
REFUSAL = (
    "NVPM WARN: Reboot required for changing to this power mode: 3\n"
    "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:\nNVPM ERROR: bad input!\n"
)


class Cut(BaseException):
    """The power goes."""


class Board:
    """A played board: nvpmodel sets its mode, and jetson_clocks its clocks."""

    def __init__(self, mode: int, *, locked: bool = False) -> None:
        self.mode, self.locked, self.calls = mode, locked, 0
        self.set: list[int] = []
        self.on_call = lambda _number: None  # called before and after each change

    def run(self, *argv: str) -> ProgramOutput:
        program, *words = argv
        self.calls += 1
        if words == ["-q"]:
            return ProgramOutput(
                0, f"NVPM WARN: fan mode is not set!\nNV Power Mode: X\n{self.mode}\n"
            )
        self.on_call(self.calls)
        if words[:1] == ["-m"]:
            if words[1] == "3":
                return ProgramOutput(255, REFUSAL)
            self.mode, self.locked = int(words[1]), False
            self.set.append(self.mode)
        elif program == "jetson_clocks" and words[:1] == ["--store"]:
            Path(words[1]).write_text(str(self.locked))
        elif program == "jetson_clocks" and words[:1] == ["--restore"]:
            self.locked = Path(words[1]).read_text() == "True"
        elif program == "jetson_clocks":
            self.locked = True
        self.on_call(self.calls)
        return ProgramOutput(0, "")


@pytest.fixture
def modes_of(tmp_path):
    (tmp_path / "nvpmodel.conf").write_text(CONF)

    def make(board: Board) -> PowerModes:
        return PowerModes(StateFile(tmp_path), tmp_path / "nvpmodel.conf", board.run)

    return make


class Unit:
    """The served socket, in a thread."""

    def __init__(self, path: Path, modes: PowerModes, **options: float) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._stop, self._wake = os.pipe()
        arguments = (self._listener, modes, self._stop)
        self._thread = threading.Thread(
            target=serve, args=arguments, kwargs={"idle_seconds": 999, **options}
        )
        self._thread.start()

    def ask_to_end(self) -> None:
        os.write(self._wake, b"x")

    def end(self) -> None:
        self.ask_to_end()
        self._thread.join()
        self._listener.close()


@pytest.fixture
def unit_of(tmp_path, modes_of):
    made = []

    def make(board: Board, **options: float) -> Unit:
        made.append(Unit(tmp_path / "power.sock", modes_of(board), **options))
        return made[-1]

    yield make
    for unit in made:
        unit.end()


def test_mode_is_set_by_name_or_number_and_restored(modes_of):
    board = Board(0)
    modes = modes_of(board)
    assert modes.answer("mode 25W") == "ok mode=1 name=25W clocks=off found=0"
    assert modes.answer("mode 2") == "ok mode=2 name=MAXN_SUPER clocks=off found=0"
    assert modes.answer("restore") == "ok mode=0 name=15W clocks=off found=0"
    assert board.set == [1, 2, 0]
    assert not modes.has_changed


def test_mode_in_force_is_not_set_again(modes_of):
    board = Board(1)
    assert modes_of(board).answer("mode 1").startswith("ok mode=1")
    assert board.set == []


def test_clocks_end_with_their_mode_and_are_restored_as_found(modes_of):
    board = Board(0, locked=True)
    modes = modes_of(board)
    assert "clocks=off" in modes.answer("mode 1")
    assert not board.locked
    assert "clocks=on" in modes.answer("clocks on")
    assert board.locked
    assert "clocks=off" in modes.answer("mode 2")
    assert not board.locked
    modes.answer("restore")
    assert (board.mode, board.locked) == (0, True)


@pytest.mark.parametrize(
    "line", ["mode 7", "mode ../x", "mode", "mode 1 2", "reboot", "", "clocks"]
)
def test_nothing_but_modes_of_the_file_is_run(modes_of, line):
    board = Board(0)
    modes = modes_of(board)
    assert modes.answer(line).startswith("error ")
    assert board.set == []
    assert not modes.has_changed


def test_mode_that_needs_a_reboot_is_refused_and_the_mode_stays(modes_of):
    board = Board(1)
    modes = modes_of(board)
    assert modes.answer("mode 7W").startswith("error power mode 7W needs a reboot: leave it out")
    assert board.mode == 1
    assert modes.answer("mode 2").startswith("ok")
    modes.answer("restore")
    assert board.mode == 1


# Sends requests as fast as they are answered, until it is killed.
CLIENT = """
import itertools, socket, sys
at = socket.socket(socket.AF_UNIX); at.connect(sys.argv[1]); lines = at.makefile()
for word in itertools.cycle(sys.argv[2:]):
    at.sendall(word.encode() + b"\\n"); lines.readline()
"""


def is_free(path: Path) -> bool:
    """Whether a second connection is answered: the first one is over then. It restores nothing."""
    with socket.socket(socket.AF_UNIX) as second:
        second.connect(str(path))
        second.sendall(b"show\n")
        return second.recv(4096).startswith(b"ok")


def test_mode_is_restored_after_100_kills_at_random_moments(tmp_path, unit_of):
    """SIGKILL hits the client before, in and after changes of the board."""
    rng, board = random.Random(0), Board(0)
    unit, state = unit_of(board), StateFile(tmp_path)
    moments = set()
    for number in range(100):
        board.mode, board.locked = found = rng.choice((0, 1, 2)), rng.random() < 0.5
        requests = [f"mode {n}" for n in rng.sample((0, 1, 2), 3)] + ["clocks on", "clocks off"]
        rng.shuffle(requests)
        command = (sys.executable, "-I", "-S", "-c", CLIENT, str(unit.path), *requests)
        with subprocess.Popen(command) as child:
            begun, after = board.calls, rng.randint(1, 40)
            killed = threading.Event()

            def kill(calls: int, pid=child.pid, until_calls=begun + after, killed=killed) -> None:
                if calls >= until_calls and not killed.is_set():
                    killed.set()
                    os.kill(pid, signal.SIGKILL)
                    moments.add((board.mode, board.locked))

            board.on_call = kill
            child.wait()
        board.on_call = lambda _: None
        assert until(lambda: is_free(unit.path))
        assert state.read() is None
        assert (board.mode, board.locked) == found, number
    assert len(moments) == 6


def test_a_client_is_served_alone(unit_of):
    unit = unit_of(Board(0))
    first = PowerClient(unit.path)
    assert first.ask("mode 1")["name"] == "25W"
    second = PowerClient(unit.path)
    with pytest.raises(UserError, match="another program sets power modes: wait for its end"):
        second.ask("mode 2")
    with pytest.raises(UserError, match=r"no power mode 9: use 15W \(0\), 25W"):
        first.ask("mode 9")
    second.close()
    first.close()


def connect(unit: Unit) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(PATIENCE_SECONDS)
    client.connect(str(unit.path))
    return client


def test_a_client_that_does_not_read_loses_its_connection_and_its_mode(unit_of):
    board = Board(0)
    unit = unit_of(board, send_seconds=0.1)
    with connect(unit) as deaf:
        deaf.sendall(b"mode 1\n")
        assert until(lambda: board.mode == 1)
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while True:
                deaf.sendall(500 * b"show\n")
    assert until(lambda: is_free(unit.path))
    assert board.mode == 0


def test_silent_clients_delay_nobody(unit_of):
    """Each is refused without a word of its own, and the first one is served meanwhile."""
    unit = unit_of(Board(0), refusal_seconds=PATIENCE_SECONDS)
    first = PowerClient(unit.path)
    silent = []
    for _ in range(40):
        silent.append(connect(unit))
        assert silent[-1].recv(4096).startswith(b"error another program sets power modes")
    assert first.ask("mode 1")["name"] == "25W"
    for client in silent:
        client.close()
    first.close()


def test_end_does_not_wait_for_lines_that_are_not_begun(unit_of):
    """SIGTERM comes while a client has sent many requests at once."""

    class Asked(Board):
        def run(self, *argv: str) -> ProgramOutput:
            if self.calls == 5:
                unit.ask_to_end()
            return super().run(*argv)

    board = Asked(0)
    unit = unit_of(board)
    with connect(unit) as client:
        client.sendall(700 * b"show\n")
        unit.end()
    assert board.calls < 20


def test_without_the_unit_the_remedy_enables_it(tmp_path):
    with pytest.raises(UserError, match="enable --now tegrascope-power"):
        PowerClient(tmp_path / "power.sock")


def test_mode_is_restored_after_a_power_cut_at_any_call(tmp_path, modes_of):
    """Wherever the power goes, the next start of the unit restores what was found."""
    whole = Board(1)
    for line in ("mode 2", "clocks on", "mode 0", "restore"):
        modes_of(whole).answer(line)
    for moment in range(1, 2 * whole.calls):
        board, seen = Board(1), []

        def cut(_number: int, seen=seen, moment=moment) -> None:
            seen.append(_number)
            if len(seen) == moment:
                raise Cut

        board.on_call = cut
        modes = modes_of(board)
        try:
            for line in ("mode 2", "clocks on", "mode 0", "restore"):
                modes.answer(line)
        except Cut:
            pass
        board.on_call = lambda _: None
        assert modes_of(board).answer("restore").startswith("ok mode=1"), moment
        assert board.mode == 1
        assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["state", "state.1f2e3d4c.part", "nothing"])
def test_first_write_that_was_torn_leaves_the_mode_alone(tmp_path, modes_of, name):
    """The state is on the disk before the board is changed: torn, it has nothing to restore."""
    (tmp_path / name).write_text("1234 {mode")
    board = Board(2)
    modes = modes_of(board)
    assert modes.answer("restore").startswith("ok mode=2")
    assert board.set == []
    assert modes.answer("mode 1").startswith("ok mode=1 name=25W clocks=off found=2")


# --- the program itself, with programs in place of NVIDIA's ---------------------------------------

NVPMODEL = """#!/bin/sh
cd "$BOARD"
[ "$1" = -q ] && { echo "NV Power Mode: X"; cat mode; exit; }
if [ "$2" = 3 ]; then
  echo "NVPM WARN: Reboot required for changing to this power mode: 3"
  read -r answer && echo "$answer" >>rebooted
  exit 255
fi
echo "$2" >mode
"""


PASS_SOCKET = 'exec 3<&0 </dev/null; exec "$@"'


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Start the program as systemd does, with a socket as descriptor 3."""
    (tmp_path / "nvpmodel").write_text(NVPMODEL)
    (tmp_path / "nvpmodel").chmod(0o755)
    (tmp_path / "mode").write_text("1\n")
    (tmp_path / "nvpmodel.conf").write_text(CONF)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("BOARD", str(tmp_path))
    monkeypatch.setenv("LISTEN_FDS", "1")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "power.sock"))
    listener.listen()
    children = []

    def start() -> "subprocess.Popen[bytes]":
        module = ("-m", "tegrascope.collectors.board.power")
        where = ("--state-dir", str(tmp_path), "--conf", str(tmp_path / "nvpmodel.conf"))
        children.append(
            subprocess.Popen(
                [
                    "sh",
                    "-c",
                    'exec 3<&0 </dev/null; exec "$@"',
                    "sh",
                    sys.executable,
                    *module,
                    *where,
                ],
                stdin=listener,
                stderr=subprocess.DEVNULL,
            )
        )
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.wait()
    listener.close()


def test_program_restores_at_sigterm_and_after_its_own_kill(tmp_path, program):
    mode = tmp_path / "mode"
    child, client = program(), PowerClient(tmp_path / "power.sock")
    assert client.ask("mode 2")["mode"] == "2"
    with pytest.raises(UserError, match="power mode 7W needs a reboot"):
        client.ask("mode 7W")
    assert not (tmp_path / "rebooted").exists()
    child.kill()
    child.wait()
    client.close()
    assert mode.read_text() == "2\n"
    child = program()  # as systemd does, or the next boot
    until(lambda: mode.read_text() == "1\n")
    client = PowerClient(tmp_path / "power.sock")
    client.ask("mode 0")
    child.terminate()
    assert child.wait() == 0
    client.close()
    assert mode.read_text() == "1\n"

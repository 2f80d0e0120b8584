"""The power unit: a small program for root that sets power modes, and restores what it found.

A client sends lines over a socket and gets one line for each. Before the first change the mode that
was found is written to a state file. It is restored when the client asks for it, when its
connection ends, however it ended, and when the unit starts and the file is there: after a power
cut or a crash. Only the standard library is used.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ...parsers.errors import UserError
from ...parsers.nvpmodel import PowerMode, find_mode, mode_in_answer, parse_modes, wants_reboot
from ..children.bounded import run_bounded
from ..files import read_regular, sync_directory, write_atomic
from ..paths import exists

SOCKET = Path("/run/tegrascope/power.sock")
STATE = Path("/var/lib/tegrascope-power")
_NVPMODEL, _CLOCKS = "nvpmodel", "jetson_clocks"
# nvpmodel waits for a lock that a desktop's indicator may hold.
_PROGRAM_SECONDS = 60.0
_LONGEST_LINE = 200
_ANSWER_CHARACTERS = 4096
_STATE_BYTES, _CONF_BYTES = 4096, 1 << 18
# Without a client and without anything to restore the unit ends; systemd keeps the socket.
_IDLE_SECONDS = 10.0
# A client that is refused has so long to read its answer, and a client that is served to take one.
_REFUSAL_SECONDS = 1.0
_SEND_SECONDS = 1.0
_REFUSED_AT_MOST = 16
# A restore that failed is tried again after ever longer pauses.
_LONGEST_PAUSE_SECONDS = 3600.0
_WORDS = "mode NAME, clocks on, clocks off, restore or show"


class ProgramOutput(NamedTuple):
    """The exit status and the output of a program."""

    status: int
    text: str


def run_program(*argv: str) -> ProgramOutput:
    """Run a program with an empty standard input, so that no question is ever answered with yes."""
    try:
        done = run_bounded(argv, _PROGRAM_SECONDS, joins_errors=True)
    except FileNotFoundError:
        raise UserError(f"{argv[0]} was not found", "apt install nvidia-l4t-nvpmodel") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{argv[0]}: {error}", f"run sudo {' '.join(argv)} by hand") from None
    return ProgramOutput(done.returncode, done.stdout.decode("utf-8", "replace"))


class FoundMode(NamedTuple):
    """The mode before the first change; ``locked``: the unit has fixed the clocks."""

    mode: int
    locked: bool = False


class StateFile:
    """The state, in a file that is written whole or not at all, also in a power cut."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "state"

    def read(self) -> FoundMode | None:
        """Return the state; ``None`` if nothing was changed."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(read_regular(self._path, _STATE_BYTES))
            return FoundMode(int(content["mode"]), bool(content["locked"]))
        return None

    def write(self, found: FoundMode) -> None:
        """Write it to the disk."""
        write_atomic(self._path, json.dumps(found._asdict()).encode("ascii"))

    def delete(self) -> None:
        """Delete it, on the disk too."""
        self._path.unlink(missing_ok=True)
        sync_directory(self.directory)


class PowerModes:
    """Sets modes and clocks by NVIDIA's programs; ``run`` runs one of them."""

    def __init__(
        self,
        state: StateFile,
        conf: Path = Path("/etc/nvpmodel.conf"),
        run: Callable[..., ProgramOutput] = run_program,
        clocks: Path | None = None,
    ) -> None:
        """Prepare; ``clocks`` is a directory that a boot empties, as it resets the clocks."""
        self._state, self._conf, self._run = state, conf, run
        directory = clocks or state.directory
        # Clocks as they were found, and as they were in the mode in which they were fixed.
        self._found_clocks = directory / "clocks.found"
        self._mode_clocks = directory / "clocks.mode"

    def answer(self, line: str) -> str:
        """Carry out one line, and return ``ok …`` or ``error …``."""
        try:
            match line.split():
                case ["mode", word]:
                    self.set_mode(word)
                case ["clocks", "on"]:
                    self._lock_clocks()
                case ["clocks", "off"]:
                    self._unlock_clocks()
                case ["restore"]:
                    self.restore()
                case ["show"]:
                    pass
                case _:
                    raise UserError(f"{line[:40]!r} is not a request", f"send {_WORDS}")
            return self._show()
        except UserError as error:
            return f"error {' '.join(str(error).split())}"
        except OSError as error:
            return f"error {error.filename}: {error.strerror}: look at the journal of the unit"

    def set_mode(self, word: str) -> None:
        """Enter a mode of the board's own file, or raise ``UserError``."""
        modes = self._modes()
        mode = find_mode(modes, word)
        if mode is None:
            known = ", ".join(f"{one.name} ({one.number})" for one in modes)
            raise UserError(f"{self._conf} has no power mode {word}", f"use {known or 'another'}")
        if self._current() != mode.number:
            self._begin()
            self._unlock_clocks()
            self._enter(mode.number, mode.name)

    def restore(self) -> None:
        """Restore what was found; without a state file there is nothing to do."""
        found = self._state.read()
        if found is not None:
            self._unlock_clocks()
            if self._current() != found.mode:
                self._enter(found.mode, f"mode {found.mode}")
            self._restore_clocks(self._found_clocks)
        self._state.delete()
        self._found_clocks.unlink(missing_ok=True)

    @property
    def has_changed(self) -> bool:
        """Whether there is something to restore."""
        return self._state.read() is not None

    def _begin(self) -> FoundMode:
        """Write down what the board has, unless that was done; return it."""
        found = self._state.read()
        if found is None:
            found = FoundMode(self._current())
            self._store_clocks(self._found_clocks)
            self._state.write(found)
        return found

    def _enter(self, number: int, name: str) -> None:
        answer = self._run(_NVPMODEL, "-m", str(number))
        if self._current() == number:
            return
        if wants_reboot(answer.text):
            remedy = f"leave it out, or sudo nvpmodel -m {number}, reboot, and bench there"
            raise UserError(f"power mode {name} needs a reboot", remedy)
        words = " ".join(answer.text.split())[-200:] or f"status {answer.status}"
        raise UserError(f"power mode {name} was not set ({words})", f"sudo nvpmodel -m {number}")

    def _lock_clocks(self) -> None:
        found = self._begin()
        if not found.locked:
            if not self._store_clocks(self._mode_clocks):
                raise UserError(f"{_CLOCKS} does not store the clocks", f"sudo {_CLOCKS} --show")
            self._state.write(found._replace(locked=True))
            if self._run(_CLOCKS).status:
                raise UserError(f"{_CLOCKS} failed", f"sudo {_CLOCKS}")

    def _unlock_clocks(self) -> None:
        found = self._state.read()
        if found is not None and found.locked:
            self._restore_clocks(self._mode_clocks)
            self._state.write(found._replace(locked=False))

    def _restore_clocks(self, file: Path) -> None:
        if exists(file):
            self._run(_CLOCKS, "--restore", str(file))

    def _store_clocks(self, file: Path) -> bool:
        # It asks before it writes over a file.
        file.unlink(missing_ok=True)
        with contextlib.suppress(UserError):
            return self._run(_CLOCKS, "--store", str(file)).status == 0 and exists(file)
        return False

    def _current(self) -> int:
        answer = self._run(_NVPMODEL, "-q")
        mode = mode_in_answer(answer.text)
        if mode is None:
            raise UserError("nvpmodel does not report the power mode", "sudo nvpmodel -q")
        return mode

    def _modes(self) -> list[PowerMode]:
        try:
            return parse_modes(read_regular(self._conf, _CONF_BYTES).decode("utf-8", "replace"))
        except OSError as error:
            raise UserError(f"{self._conf}: {error.strerror}", "only a Jetson has one") from None

    def _show(self) -> str:
        now, found = self._current(), self._state.read()
        name = next((one.name for one in self._modes() if one.number == now), str(now))
        locked = found is not None and found.locked
        return (
            f"ok mode={now} name={name} clocks={'on' if locked else 'off'}"
            f" found={now if found is None else found.mode}"
        )


class _Connection:
    """The client that is served, and the bytes that it sent."""

    def __init__(self, accepted: socket.socket, send_seconds: float) -> None:
        # A peer that does not read must not hold the unit: then ``send`` fails.
        accepted.settimeout(send_seconds)
        self.socket = accepted
        self._bytes = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def has_line(self) -> bool:
        return b"\n" in self._bytes

    def receive(self) -> bool:
        """Take bytes that are there; return whether the client is still one to be served."""
        try:
            data = self.socket.recv(4096)
        except OSError:
            return False
        self._bytes += data
        return bool(data) and (self.has_line or len(self._bytes) <= _LONGEST_LINE)

    def next_line(self) -> str:
        line, _, self._bytes = self._bytes.partition(b"\n")
        return line.decode("utf-8", "replace")

    def send(self, text: str) -> bool:
        """Send a line; return whether the client took it in time."""
        try:
            self.socket.sendall(f"{text}\n".encode())
        except OSError:
            return False
        return True


class _Refused:
    """Clients that came while another one is served: each has its answer, and is soon closed.

    A socket that is closed with unread data loses the answer too, so their requests are read until
    they end the connection, for a second at most. Nobody waits for them.
    """

    def __init__(self) -> None:
        self._until_ns: dict[socket.socket, int] = {}

    def add(self, accepted: socket.socket, until_ns: int) -> None:
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            accepted.sendall(b"error another program sets power modes: wait for its end\n")
            accepted.shutdown(socket.SHUT_WR)  # its next request is not answered
        self._until_ns[accepted] = until_ns
        if len(self._until_ns) > _REFUSED_AT_MOST:
            self._close(next(iter(self._until_ns)))

    def waiting(self) -> list[socket.socket]:
        return list(self._until_ns)

    def look(self, ready: Sequence[object], now_ns: int) -> None:
        """Drop what they sent, and close those that have ended or had their time."""
        for client, until_ns in list(self._until_ns.items()):
            data = b"nothing yet"
            if client in ready:
                try:
                    data = client.recv(4096)
                except OSError:
                    data = b""
            if not data or now_ns >= until_ns:
                self._close(client)

    def close(self) -> None:
        for client in self.waiting():
            self._close(client)

    def _close(self, client: socket.socket) -> None:
        client.close()
        del self._until_ns[client]


class _Server:
    """Answers one client at a time, and refuses the others."""

    def __init__(
        self,
        listener: socket.socket,
        modes: PowerModes,
        *,
        send_seconds: float,
        refusal_seconds: float,
        log: Callable[[str], object],
    ) -> None:
        self._listener = listener
        self._modes = modes
        self._send_seconds = send_seconds
        self._refusal_seconds = refusal_seconds
        self._log = log
        self._client: _Connection | None = None
        self._refused = _Refused()

    def serve(self, stop: int, idle_seconds: float) -> None:
        """Answer until ``stop`` is readable, or idle with nothing to restore."""
        pause_seconds = idle_seconds
        self._restore()
        while True:
            ready = self._wait(stop, pause_seconds)
            if stop in ready:
                break
            is_idle = self._client is None and not ready and not self._refused.waiting()
            self._refused.look(ready, time.monotonic_ns())
            if is_idle:
                if not self._modes.has_changed:
                    break
                self._restore()
                pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            if self._listener in ready:
                self._accept()
            if self._client is not None and not self._take_turn(self._client, ready):
                self._client.socket.close()
                self._client = None
                self._restore()
        if self._client is not None:
            self._client.socket.close()
        self._refused.close()
        self._restore()

    def _wait(self, stop: int, pause_seconds: float) -> Sequence[object]:
        """Return what can be read, at the latest after the time that the state allows."""
        refused = self._refused.waiting()
        waiting: list[socket.socket | int | _Connection] = [stop, self._listener, *refused]
        timeout: float | None = pause_seconds
        if refused:
            timeout = min(self._refusal_seconds, pause_seconds)
        elif self._client is not None:
            timeout = None
        if self._client is not None:
            if self._client.has_line:
                timeout = 0.0
            else:
                waiting.append(self._client)
        ready, _, _ = select.select(waiting, [], [], timeout)
        return ready

    def _accept(self) -> None:
        """Take a new client, or refuse it while there is one."""
        accepted, _ = self._listener.accept()
        if self._client is None:
            self._client = _Connection(accepted, self._send_seconds)
        else:
            until_ns = time.monotonic_ns() + round(self._refusal_seconds * 1e9)
            self._refused.add(accepted, until_ns)

    def _take_turn(self, client: _Connection, ready: Sequence[object]) -> bool:
        """Answer a line, or read what has come; return whether the client is still there."""
        if client.has_line:
            line = client.next_line()
            text = self._modes.answer(line)
            self._log(f"{line[:40]!r}: {text}")
            return client.send(text)
        if client in ready:
            return client.receive()
        return True

    def _restore(self) -> None:
        if not self._modes.has_changed:
            return
        answer = self._modes.answer("restore")
        if answer.startswith("error"):
            self._log(answer)


def serve(
    listener: socket.socket,
    modes: PowerModes,
    stop: int,
    *,
    idle_seconds: float = _IDLE_SECONDS,
    send_seconds: float = _SEND_SECONDS,
    refusal_seconds: float = _REFUSAL_SECONDS,
    log: Callable[[str], object] = lambda _: None,
) -> None:
    """Serve one client at a time, until ``stop`` is readable, or idle with nothing to restore.

    One line is answered at a time: between two of them, ``stop`` is looked at and other clients are
    refused. A client that does not read its answers loses its connection. The board is restored at
    the end of each connection and of the program.
    """
    server = _Server(
        listener, modes, send_seconds=send_seconds, refusal_seconds=refusal_seconds, log=log
    )
    server.serve(stop, idle_seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the socket that systemd passes; return 1 if something is left to restore."""
    parser = argparse.ArgumentParser(
        prog="tegrascope.collectors.board.power",
        description="Set power modes for clients of a socket, and restore them; see"
        " docs/service.md. systemd starts it.",
    )
    parser.add_argument("--state-dir", type=Path, default=STATE, help="default: %(default)s")
    parser.add_argument(
        "--conf", type=Path, default=Path("/etc/nvpmodel.conf"), help="default: %(default)s"
    )
    asked = parser.parse_args(argv)
    if os.environ.get("LISTEN_FDS") != "1":
        parser.error("systemd has to pass a socket: systemctl enable --now tegrascope-power.socket")
    stop, wake = os.pipe()
    os.set_blocking(wake, False)
    # A handler would interrupt nvpmodel; a number in a pipe waits for its end.
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    clocks = Path(os.environ.get("RUNTIME_DIRECTORY", asked.state_dir))
    modes = PowerModes(StateFile(asked.state_dir), asked.conf, clocks=clocks)
    with socket.socket(fileno=3) as listener:
        serve(listener, modes, stop, log=lambda words: print(words, file=sys.stderr, flush=True))
    return 1 if modes.has_changed else 0


class PowerClient:
    """The connection of a program that sets power modes; at its end they are restored."""

    def __init__(self, path: Path = SOCKET, seconds: float = 4 * _PROGRAM_SECONDS) -> None:
        """Connect, or raise ``UserError``."""
        enable = "sudo systemctl enable --now tegrascope-power.socket"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(seconds)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            if isinstance(error, PermissionError):
                remedy = 'sudo usermod -aG tegrascope "$USER", and log in again'
                raise UserError(f"{path} is not for this user", remedy) from None
            raise UserError(f"no power unit listens on {path}", enable) from None
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def ask(self, line: str) -> dict[str, str]:
        """Send a line and return the answer's fields, or raise ``UserError``."""
        try:
            self._socket.sendall(f"{line}\n".encode())
            answer = self._lines.readline(_ANSWER_CHARACTERS)
        except OSError:
            answer = ""
        kind, _, words = answer.strip().partition(" ")
        if kind != "ok":
            message, _, remedy = words.rpartition(": ")
            what = message or words or "the power unit does not answer"
            raise UserError(what, remedy or "journalctl -u tegrascope-power")
        return dict(word.partition("=")[::2] for word in words.split())

    def close(self) -> None:
        """Ask for what was found, and end the connection, which restores it too."""
        with contextlib.suppress(UserError):
            self.ask("restore")
        self._lines.close()
        self._socket.close()


if __name__ == "__main__":
    sys.exit(main())

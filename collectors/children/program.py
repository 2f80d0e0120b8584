"""A program in the foreground: its streams, its signals and its status are its own."""

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from pydantic import ValidationError

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.records import Record
from ..base import SYSTEM_CLOCK, Clock
from .bounded import run_bounded
from .process import LineChild, cannot_start

# 3.10 has no ``-P``; there the script itself removes its directory from the path.
_SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()
_PACKAGE = Path(__file__).absolute().parents[2]
_SCRIPT = Path(__file__).absolute().with_name("tegrascope_child.py")

# A program may run for minutes, and the worker be killed meanwhile: Linux is asked to end the
# child with it (PR_SET_PDEATHSIG, SIGKILL), which a process can only ask for itself.
_GOES_WITH_US = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"
    "if os.getppid() != int(sys.argv[1]):\n"
    "    sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


def python_child(module: str, *arguments: str, name: str | None = None) -> tuple[str, ...]:
    """Return the command that runs a module of ours as a child.

    ``-m`` would put the current directory in front of the path of imports, where a file may have
    the name of a module of ours or of the standard library. So a script of ours runs the module.
    Its path of imports is ours in absolute entries, without the current directory.

    Args:
        name: Name in a list of processes, behind ``tegrascope-``; by default, the module's name.
    """
    path = _path_of_imports()
    if _PACKAGE.name == "tegrascope" and str(_PACKAGE.parent) not in path:
        path.append(str(_PACKAGE.parent))  # run from where it lies, without an installation
    shown = f"tegrascope-{name or module.rpartition('.')[2]}"
    child = (sys.executable, *_SAFE_PATH, str(_SCRIPT), shown, module, os.pathsep.join(path))
    return (*child, *arguments)


def _path_of_imports() -> list[str]:
    """Return our path of imports in absolute entries, without the current directory."""
    try:
        current = Path.cwd()
    except OSError:  # it was removed, so nothing can be imported from it or below it
        return [entry for entry in dict.fromkeys(sys.path) if Path(entry).is_absolute()]
    entries = [str(current / entry) for entry in sys.path if entry]
    return [entry for entry in dict.fromkeys(entries) if entry != str(current)]


def start_tied(argv: Sequence[str], env: Mapping[str, str] = {}) -> LineChild:
    """Start a program that ends with this thread, whatever ends it."""
    tied = [sys.executable, "-I", "-S", "-c", _GOES_WITH_US, str(os.getpid()), *argv]
    return LineChild(tied, env={**os.environ, **env})


def find_executable(name: str) -> Path:
    """Return the full path of a program, or raise ``BackendUnavailable``."""
    path = shutil.which(os.path.expanduser(name))  # noqa: PTH111 - a Path would lose its ./
    if path is None:
        remedy = "install it, or give its full path as command:"
        raise BackendUnavailable(f"there is no program {name}", remedy)
    return Path(path).absolute()


DRIVER = "look at nvidia-smi, or tegrastats on a Jetson: the NVIDIA driver must work first"
_Answer = TypeVar("_Answer", bound=Record)
# The graph of the largest model that is read, a million nodes, has some hundreds of megabytes.
_ANSWER_BYTES = 1 << 29


def ask_child(
    command: Sequence[str], kind: type[_Answer], library: str, question: str, seconds: float
) -> _Answer | UserError:
    """Run a child to its end and return the record that it prints.

    An error is returned, not raised, because for most callers it is a finding.
    """
    try:
        done = run_bounded(command, seconds, most_bytes=_ANSWER_BYTES)
    except subprocess.TimeoutExpired:
        return UserError(f"{library} gave no answer in {seconds:g} s when asked {question}", DRIVER)
    except OSError as error:
        what = f"the child that asks {library} {question} failed ({error})"
        return UserError(what, "see that Python can be run")
    for line in reversed(done.stdout.decode("utf-8", "replace").splitlines()):
        try:
            return kind.model_validate_json(line)
        except ValidationError:
            continue  # a library may have printed after it
    code = done.returncode
    how = f"by signal {-code}" if code < 0 else f"by status {code}"
    what = f"{library} ended the process that asked {question}, {how}"
    error_output = done.stderr.decode("utf-8", "replace").strip()
    if error_output:
        what += f"; its last words: {error_output.splitlines()[-1].strip()[:200]}"
    return UserError(what, DRIVER)


# What a terminal sends to everybody in the foreground, so the program has it already.
_OF_A_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
# What Python ignores and a program does not expect to be ignored.
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ)
_COPY_MS = 200
_LINE_AT_MOST = 4096
# How a kernel marks a signal of its own making, as that of a terminal is, among those of kill(2).
_SI_KERNEL = 0x80


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended; times are CLOCK_MONOTONIC."""

    begin_ns: int
    end_ns: int
    status: int  # as a shell has it: its own, or 128 and the signal that ended it
    by_signal: signal.Signals | None = None


class SignalRelay:
    """Passes on process signals to a program, except a terminal's Ctrl-C, which it has already.

    To be entered in the main thread, before any other thread is started: later threads leave
    these signals to the relay.
    """

    def __init__(self) -> None:
        self.interrupted = threading.Event()
        self.number: int | None = None
        self._lock = threading.RLock()  # SIGTERM may come while the main thread holds it
        self._pid: int | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._pass_on, name="signals", daemon=True)
        self._mask_before: set[int] = set()

    def __enter__(self) -> "SignalRelay":
        self._mask_before = set(signal.pthread_sigmask(signal.SIG_BLOCK, _OF_A_TERMINAL))
        self._handler_before = signal.getsignal(signal.SIGTERM)
        # A signal that is ignored here is ignored by the program, as it would be without us.
        if self._handler_before != signal.SIG_IGN:
            signal.signal(signal.SIGTERM, self._send)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, signal.SIGHUP)
        self._thread.join()
        signal.signal(signal.SIGTERM, self._handler_before)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)

    def run(
        self,
        argv: Sequence[str],
        clock: Clock = SYSTEM_CLOCK,
        read_line: Callable[[str], None] | None = None,
        env: Mapping[str, str] = {},
    ) -> ProgramEnd:
        """Run a program to its end on our own streams and in our process group, or raise.

        Its environment is ours with ``env``. Processes that it leaves behind go on, as under a
        shell. With ``read_line``, its standard output is a pipe, from which lines are read and all
        is copied to ours until its end. The error is ``CannotStartError``.
        """
        if read_line is None:
            return self._run(argv, clock, env)
        with _Copy(read_line) as copy:
            return self._run(argv, clock, env, ((os.POSIX_SPAWN_DUP2, copy.theirs, 1),))

    def _run(
        self,
        argv: Sequence[str],
        clock: Clock,
        env: Mapping[str, str],
        streams: Sequence[tuple[int, ...]] = (),
    ) -> ProgramEnd:
        with self._lock:
            begin_ns = clock.monotonic_ns()
            try:
                self._pid = pid = os.posix_spawnp(
                    argv[0],
                    list(argv),
                    {**os.environ, **env},
                    file_actions=streams,
                    setsigmask=self._mask_before,
                    setsigdef=_DEFAULTS,
                )
            except (OSError, ValueError) as error:
                raise cannot_start(argv[0], error) from None
            if self.number is not None:  # it came a moment too early, and is meant for the program
                os.kill(pid, self.number)
        # It stays a zombie until no signal can be sent to it any more, so its number stays its own.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        end_ns = clock.monotonic_ns()
        with self._lock:
            self._pid = None
            _, waited = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(waited)
        if code >= 0:
            return ProgramEnd(begin_ns, end_ns, code)
        return ProgramEnd(begin_ns, end_ns, 128 - code, signal.Signals(-code))

    def _send(self, number: int, _: FrameType | None = None) -> None:
        with self._lock:
            if self._pid is not None:
                os.kill(self._pid, number)
                return
        self.number = number
        self.interrupted.set()

    def _pass_on(self) -> None:
        while True:
            heard = signal.sigwaitinfo(_OF_A_TERMINAL)
            if self._closed:
                return
            if heard.si_code != _SI_KERNEL or self._pid is None:
                self._send(heard.si_signo)


class _Copy:
    """Copies a program's output to our standard output, and reads its lines, in a thread."""

    def __init__(self, read_line: Callable[[str], None]) -> None:
        self._ours, self.theirs = os.pipe()
        self._read_line = read_line
        self._has_ended = False
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)

    def __enter__(self) -> "_Copy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended = True
        os.close(self.theirs)
        self._thread.join()

    def _copy(self) -> None:
        ready = select.poll()
        ready.register(self._ours, select.POLLIN)
        line, left = b"", 2
        # A process that the program leaves behind may go on writing. One read empties a pipe.
        while left > 0:
            # Asked before the pipe is looked at, or the last lines could be missed.
            has_ended = self._has_ended
            is_ready = bool(ready.poll(_COPY_MS))
            left -= has_ended
            if not is_ready:
                if has_ended:
                    break
                continue
            data = os.read(self._ours, 65536)
            if not data:
                break
            *lines, line = (line + data).split(b"\n")
            for text in lines:
                self._read_line(text.decode(errors="replace"))
            line = line[-_LINE_AT_MOST:]
            try:
                while data:
                    data = data[os.write(1, data) :]
            except OSError:
                break  # nobody reads ours, which the program learns as it closes
        self._read_line(line.decode(errors="replace"))
        os.close(self._ours)

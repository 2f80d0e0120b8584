"""A program in the foreground: its streams, its signals and its status are its own."""

import errno
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from ...parsers.errors import Mendable
from ..base import SYSTEM_CLOCK, Clock

# What a terminal sends to everybody in the foreground, so the program has it already.
_OF_A_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
# What Python ignores and a program does not expect to be ignored.
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ)
# How a kernel marks a signal of its own making, as that of a terminal is, among those of kill(2).
_SI_KERNEL = 0x80


class CannotStart(Mendable):
    """The program does not start; 127 if it was not found, 126 if it cannot be executed."""

    def __init__(self, status: int, what: str, mend: str) -> None:
        super().__init__(what, mend)
        self.status = status


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
            signal.signal(signal.SIGTERM, self._terminate)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, signal.SIGHUP)
        self._thread.join()
        signal.signal(signal.SIGTERM, self._handler_before)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)

    def run(self, argv: Sequence[str], clock: Clock = SYSTEM_CLOCK) -> ProgramEnd:
        """Run a program to its end on our own streams and in our process group, or raise.

        Processes that it leaves behind go on, as under a shell. The error is ``CannotStart``.
        """
        with self._lock:
            begin_ns = clock.monotonic_ns()
            self._pid = pid = self._spawn(argv)
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

    def _spawn(self, argv: Sequence[str]) -> int:
        try:
            return os.posix_spawnp(
                argv[0], list(argv), os.environ, setsigmask=self._mask_before, setsigdef=_DEFAULTS
            )
        except (OSError, ValueError) as error:
            raise _cannot_start(argv[0], error) from None

    def _terminate(self, number: int, _: FrameType | None) -> None:
        self._send(number)

    def _send(self, number: int) -> None:
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


def _cannot_start(program: str, error: Exception) -> CannotStart:
    if isinstance(error, FileNotFoundError):
        return CannotStart(127, f"{program} was not found", "install it, or give its full path")
    if isinstance(error, PermissionError):
        return CannotStart(126, f"{program} may not be executed", f"chmod +x {program}")
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        mend = "begin it with #! and its interpreter, or put that before it"
        return CannotStart(126, f"{program} is not a program", mend)
    return CannotStart(126, f"{program!r} does not start ({error})", "try it by hand")

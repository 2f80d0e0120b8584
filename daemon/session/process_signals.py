"""SIGTERM, SIGINT and SIGHUP, from the first moment of the process to its last.

asyncio has handlers only while its loop runs. A signal before or after would end the process
immediately, leave children behind and lose the record of a run.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType

END = (signal.SIGTERM, signal.SIGINT)
RELOAD = (signal.SIGHUP,)


# A start takes a second or two. After this it hangs, as on a file system that does not answer.
_START_SECONDS = 10.0


class Signals:
    """Remembers signals until an action is set.

    Example: ``signals = Signals()`` before the start, ``signals.call(END, stop)`` after it. A start
    that does not come so far within some seconds of a signal that ends is ended by SIGALRM.
    """

    def __init__(self, start_seconds: float = _START_SECONDS) -> None:
        """Install the handlers; call it in the main thread."""
        # A supervisor may have blocked them, and its children inherit that.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._start_seconds = start_seconds
        self._early: set[int] = set()
        self._actions: dict[int, Callable[[], object]] = {}
        for number in (*END, *RELOAD):
            signal.signal(number, self._take)

    def call(self, numbers: tuple[signal.Signals, ...], action: Callable[[], object]) -> None:
        """Call an action at each signal from now on, and now if one has already arrived."""
        if not set(END).isdisjoint(numbers):
            signal.setitimer(signal.ITIMER_REAL, 0)
        early = not self._early.isdisjoint(numbers)
        self._early.difference_update(numbers)
        for number in numbers:
            self._actions[number] = action
        if early:
            action()

    def ignore(self) -> None:
        """Ignore all of them from now on, also while the interpreter shuts down."""
        for number in (*END, *RELOAD):
            signal.signal(number, signal.SIG_IGN)

    def _take(self, number: int, _: FrameType | None) -> None:
        action = self._actions.get(number)
        if action is not None:
            action()
            return
        self._early.add(number)
        if number in END:
            # The kernel ends the process then, whatever Python does. No thread is started here: the
            # handler may have interrupted the start of another one.
            signal.setitimer(signal.ITIMER_REAL, self._start_seconds)
            with contextlib.suppress(OSError):
                name = signal.Signals(number).name
                text = f"{name}: the start ends within {self._start_seconds:g} s\n"
                os.write(2, text.encode())

"""SIGTERM, SIGINT and SIGHUP, from the first moment of the process to its last.

The handlers of asyncio are there only while its loop runs. A signal before or after would end the
process half-way: with children that nobody ends, and a run that nobody records.
"""

import signal
from collections.abc import Callable
from types import FrameType

END = (signal.SIGTERM, signal.SIGINT)
RELOAD = (signal.SIGHUP,)


class Signals:
    """Remembers a signal until somebody wants to know of it."""

    def __init__(self) -> None:
        """Take the signals over; belongs to the main thread."""
        self._early: set[int] = set()
        self._actions: dict[int, Callable[[], object]] = {}
        for number in (*END, *RELOAD):
            signal.signal(number, self._take)

    def call(self, numbers: tuple[signal.Signals, ...], action: Callable[[], object]) -> None:
        """Have an action called at each signal from now on, and now if one came already."""
        early = not self._early.isdisjoint(numbers)
        self._early.difference_update(numbers)
        for number in numbers:
            self._actions[number] = action
        if early:
            action()

    def ignore(self) -> None:
        """Do nothing at any of them from now on, nor while the interpreter takes itself apart."""
        for number in (*END, *RELOAD):
            signal.signal(number, signal.SIG_IGN)

    def _take(self, number: int, _: FrameType | None) -> None:
        action = self._actions.get(number)
        if action is None:
            self._early.add(number)
        else:
            action()

"""SIGTERM, SIGINT and SIGHUP, from the first moment of the process to its last.

asyncio has handlers only while its loop runs. A signal before or after would end the process
immediately, leave children behind and lose the record of a run.
"""

import signal
from collections.abc import Callable
from types import FrameType

END = (signal.SIGTERM, signal.SIGINT)
RELOAD = (signal.SIGHUP,)


class Signals:
    """Remembers signals until an action is set."""

    def __init__(self) -> None:
        """Install the handlers; call it in the main thread."""
        self._early: set[int] = set()
        self._actions: dict[int, Callable[[], object]] = {}
        for number in (*END, *RELOAD):
            signal.signal(number, self._take)

    def call(self, numbers: tuple[signal.Signals, ...], action: Callable[[], object]) -> None:
        """Call an action at each signal from now on, and now if one has already arrived."""
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
        if action is None:
            self._early.add(number)
        else:
            action()

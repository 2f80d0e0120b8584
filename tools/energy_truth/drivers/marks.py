"""The marks of a user's program, for a driver of one tool in that tool's own environment.

The driver says ``ready`` when its tool is set up, waits for the world to begin, and prints one line
of JSON. Only the standard library is used.
"""

import json
import os
import time
from pathlib import Path

_POLL_SECONDS = 0.005


class Window:
    """The window of a live world: the work begins when the tool has begun to measure.

    >>> window = Window()  # doctest: +SKIP
    >>> window.wait()  # doctest: +SKIP
    >>> window.work()  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._origin = Path(os.environ["ENERGY_TRUTH_ORIGIN"])
        self._release = Path(os.environ["ENERGY_TRUTH_RELEASE"])
        self._begin_seconds = float(os.environ["ENERGY_TRUTH_BEGIN"])
        self._end_seconds = float(os.environ["ENERGY_TRUTH_END"])
        self._begin_ns = self._end_ns = 0

    def wait(self) -> None:
        """Say that the tool is ready, and return when the world has come to its work.

        The world stands still there until ``work``, however long the tool takes to begin.
        """
        print("ready", flush=True)
        while not self._origin.exists():
            time.sleep(_POLL_SECONDS)
        origin_ns = int(self._origin.read_text(encoding="ascii"))
        _sleep_until(origin_ns + round(self._begin_seconds * 1e9))

    def work(self) -> None:
        """Let the world go on and do its work: the marks are the first and the last moment."""
        self._begin_ns = time.monotonic_ns()
        fresh = self._release.with_suffix(".new")
        fresh.write_text(str(self._begin_ns), encoding="ascii")
        fresh.replace(self._release)
        seconds = self._end_seconds - self._begin_seconds
        _sleep_until(self._begin_ns + round(seconds * 1e9))
        self._end_ns = time.monotonic_ns()

    def answer(self, joules: float | None, reason: str = "") -> None:
        """Print the figure that the tool published, or why it has none."""
        answer = {"joules": joules, "begin_ns": self._begin_ns, "end_ns": self._end_ns}
        print(json.dumps(answer | {"reason": reason}), flush=True)


def _sleep_until(at_ns: int) -> None:
    time.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))

"""``tegrascope.lock_in`` finds the energy of a short piece of an application's own work.

The application repeats the piece in the on-steps of a random pattern, and does nothing in its
off-steps. The daemon plans the steps, because their lengths depend on its sensor. It also compares
the power of the steps.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from .client import ODD_ANSWER, WINDOWS_PATH, ApiClient, RefusedError, whole_characters

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.25


class LockIn:
    """A pattern of on- and off-steps; one thread uses it, and nothing else runs meanwhile.

    Attributes:
        result: After the block, ``lock_in`` of the run's report as a dictionary: the mean energy of
            a piece in saturated operation, or why there is none.
    """

    result: dict[str, Any]

    def __init__(
        self,
        name: str,
        seconds: float = 300.0,
        *,
        url: str | None = None,
        token_file: "str | os.PathLike[str] | None" = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare; nothing is sent before the block begins.

        Args:
            name: A workload of the daemon's configuration with ``backend: window``.
            seconds: Length of the pattern.
            url, token_file: As of ``tegrascope.window``.
            now_ns: The clock of the steps, CLOCK_MONOTONIC; ``sleep`` waits on it.
        """
        self.result = {}
        self._begin = {"event": "begin", "workload": name, "lock_in_seconds": seconds}
        self._seconds = seconds
        self._client = ApiClient(url, token_file)
        self._now_ns, self._sleep = now_ns, sleep
        self._run_id = ""
        self._left: Iterator[float] = iter(())
        self._on_steps: list[tuple[int, int, int]] = []
        self._begin_ns = self._until_ns = self._pieces = 0

    def __enter__(self) -> "LockIn":
        """Ask the daemon for a pattern; raise ``UserError`` if no figure could come of it."""
        answer = self._client.post(WINDOWS_PATH, json.dumps(self._begin).encode())
        try:
            self._run_id, steps = str(answer["run_id"]), list(map(float, answer["steps_seconds"]))
            # The application sleeps for as long as the steps say.
            if not 0 <= sum(steps) <= 2 * self._seconds or min(steps, default=0.0) < 0:
                raise ValueError("the steps are longer than the pattern")
        except ODD_ANSWER as error:
            raise self._client.odd_answer(error) from None
        self._left = iter(steps)
        return self

    def on(self) -> bool:
        """Return True to run one more piece, which must be complete at the next call.

        An off-step passes within the call. False ends the pattern.
        """
        now_ns = self._now_ns()
        if self._until_ns:
            self._pieces += 1
            if now_ns < self._until_ns:
                return True
            self._on_steps.append((self._begin_ns, now_ns, self._pieces))
            self._until_ns = self._pieces = 0
        off, on = next(self._left, 0.0), next(self._left, 0.0)
        if on == 0.0:
            return False
        self._sleep(off)
        self._begin_ns = self._now_ns()
        self._until_ns = self._begin_ns + round(on * 1e9)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        # An on-step that was left in its middle does not count.
        end_ns = self._on_steps[-1][1] if self._on_steps else self._now_ns()
        mark = {"event": "end", "run_id": self._run_id, "end_ns": end_ns}
        mark |= {"on_steps": self._on_steps}
        if kind is not None:
            outcome = "failed" if issubclass(kind, Exception) else "cancelled"
            mark |= {
                "outcome": outcome,
                "reason": whole_characters(f"{kind.__name__}: {error}")[:400],
            }
        body = json.dumps(mark).encode()
        try:
            _patiently(503, lambda: self._client.post(WINDOWS_PATH, body))
            if kind is None:
                path = f"/api/v1/runs/{self._run_id}"
                self.result = _patiently(404, lambda: self._client.get(path)).get("lock_in", {})
        except ODD_ANSWER as odd:
            if kind is None:
                raise self._client.odd_answer(odd) from None
        except Exception:
            if kind is None:  # otherwise the application's own error is raised
                raise


lock_in = LockIn


def _patiently(status: int, ask: Callable[[], Any]) -> Any:
    """Return the daemon's answer; ask again while it refuses with this status."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except RefusedError as error:
            if error.status != status or time.monotonic() > until:
                raise
        time.sleep(_LOOK_SECONDS)

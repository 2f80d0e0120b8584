"""``tegrascope.window``: an application's own inference, marked so that the daemon pairs it.

Nothing here waits for a network while an inference runs: marks are noted in memory, and a thread
of its own tells the daemon of them, a window at a time. Without a daemon it costs as little.
"""

import atexit
import os
from collections.abc import Callable
from functools import partial, wraps
from threading import Thread
from time import monotonic_ns
from types import TracebackType
from typing import ParamSpec, TypeVar

from ...parsers.errors import Mendable
from .client import ApiClient
from .marks import STAGES, Notebook
from .reporter import Teller

_STOP_SECONDS = 5.0

P = ParamSpec("P")
R = TypeVar("R")


def window(
    name: str,
    device: str | None = None,
    *,
    batch: int | None = None,
    period: float | None = None,
    url: str | None = None,
    token_file: "str | os.PathLike[str] | None" = None,
    strict: bool = False,
) -> "Window":
    """Mark an application's own inference, so that the daemon pairs it like a run.

    Args:
        name: A workload of the daemon's configuration with ``backend: window``.
        device: Where it runs, if it is to be held against the configuration.
        batch: Inputs an inference; the configuration's where it is not said.
        period: Seconds after which a window that goes on is told and the next one begins; as long
            as energy per inference takes, unless said otherwise.
        url: Of the daemon; else ``TEGRASCOPE_URL``, else its usual address on this machine.
        token_file: The daemon's; else ``TEGRASCOPE_TOKEN_FILE``, else where it is usually kept.
        strict: Raise where the daemon does not take it; else there is one warning in the log
            ``tegrascope.window``, and the application goes on.

    Returns:
        A window that begins with its ``with`` block.

    >>> with window("detector", device="dla0", url="http://127.0.0.1:9") as marks:
    ...     for frame in range(3):
    ...         with marks.stage("pre"):
    ...             image = [frame] * 3
    ...         with marks.inference():
    ...             found = sum(image)
    >>> marks.inferences
    3
    """
    return Window(
        name,
        device,
        batch=batch,
        period=period,
        url=url,
        token_file=token_file,
        strict=strict,
    )


class Window:
    """What ``window`` returns; every method may be called from any thread."""

    def __init__(
        self,
        name: str,
        device: str | None = None,
        *,
        batch: int | None = None,
        period: float | None = None,
        url: str | None = None,
        token_file: "str | os.PathLike[str] | None" = None,
        strict: bool = False,
    ) -> None:
        """Prepare; nothing is told before ``start``. See ``window``."""
        self.name = name
        self._words = {"workload": name, "device": device, "batch": batch}
        self._period = period
        self._where = (url, token_file)
        self._strict = strict
        self._notebook = Notebook()
        self._teller: Teller | None = None
        self._thread: Thread | None = None
        self._pid = 0

    @property
    def inferences(self) -> int:
        """Inferences so far."""
        return self._notebook.total

    def start(self) -> "Window":
        """Begin, as the ``with`` block does; for a service that has none.

        Raises:
            Mendable: The daemon does not take it, and this is ``strict``.
        """
        if self._thread is None:
            begin_ns = monotonic_ns()
            self._notebook.take()  # what was noted before is of no window
            teller = Teller(ApiClient(*self._where), self._notebook, self._words, self._period)
            if self._strict:
                teller.opened = teller.begin(begin_ns)
            self._teller, self._pid = teller, os.getpid()
            self._thread = Thread(
                target=teller.run, args=(begin_ns,), name="tegrascope-window", daemon=True
            )
            self._thread.start()
            atexit.register(self.stop)
        return self

    def stop(self, outcome: str = "ok", reason: str | None = None) -> None:
        """End, and tell what is left to tell; happens at the interpreter's exit, too.

        Args:
            outcome: ``ok``, ``failed`` or ``cancelled``.
            reason: Why, where it is not ``ok``.

        Raises:
            Mendable: The daemon did not take all of it, and this is ``strict``.
        """
        thread, teller = self._thread, self._teller
        if thread is None or teller is None or os.getpid() != self._pid:
            return  # a forked child has the object, and neither the thread nor a say
        self._thread = None
        atexit.unregister(self.stop)
        teller.ending = (outcome, None if reason is None else reason[:400])
        teller.stopping.set()
        teller.wake.set()
        thread.join(_STOP_SECONDS)
        if self._strict and teller.problem is not None:
            raise teller.problem

    def __enter__(self) -> "Window":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, Exception):
            self.stop()  # who is told to end, or ends, has not failed
            return
        try:
            self.stop("failed", f"{kind.__name__}: {error}")
        except Mendable:
            return  # it is in the log; the application's own error is the one to be heard

    def inference(self) -> "Timed":
        """Return what times and counts one inference, as a ``with`` block or a decorator.

        One that raises is not counted: it did not complete.
        """
        return Timed(self.record)

    def stage(self, name: str) -> "Timed":
        """Return what times one stage, as a ``with`` block or a decorator.

        Args:
            name: ``pre``, ``compute`` (``inference`` is the same) or ``post``.
        """
        if name not in STAGES:
            raise ValueError(f"no stage is called {name!r}: use pre, compute or post")
        return Timed(partial(self._record_stage, STAGES[name]))

    def record(self, start_ns: int, end_ns: int) -> None:
        """Note an inference that was timed elsewhere, by ``time.monotonic_ns()``."""
        if self._notebook.inference(start_ns, end_ns):
            self._wake()

    def count(self, inferences: int = 1) -> None:
        """Note inferences that were complete by now and that nobody timed."""
        if self._notebook.counted(inferences, monotonic_ns()):
            self._wake()

    def _record_stage(self, stage: str, start_ns: int, end_ns: int) -> None:
        self._notebook.stage(stage, end_ns - start_ns)

    def _wake(self) -> None:
        """Let the teller begin a window, if it waits for the first mark of one."""
        if self._teller is not None:
            self._teller.wake.set()


class Timed:
    """Times the block or the function that it stands before."""

    __slots__ = ("_note", "_start_ns")

    def __init__(self, note: Callable[[int, int], None]) -> None:
        """Take what is to be told start and end of it."""
        self._note = note
        self._start_ns = 0

    def __enter__(self) -> None:
        self._start_ns = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self._note(self._start_ns, monotonic_ns())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Time every call of a function."""
        note = self._note

        @wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            with Timed(note):
                return function(*args, **kwargs)

        return timed

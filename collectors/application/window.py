"""``tegrascope.window``: an application's own inference, marked so that the daemon pairs it.

No inference waits for the network: marks are kept in memory, and a thread of its own reports them
to the daemon, one window at a time. Without a daemon it costs as little.
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
from .reporter import BUSY_SECONDS, RETRY_SECONDS, STAGES, MarkBuffer, Reporter

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
        device: Its device, if it is to be checked against the configuration.
        batch: Inputs an inference; the configuration's where it is not said.
        period: Seconds after which a window that goes on is told and the next one begins; as long
            as energy per inference takes, unless said otherwise.
        url: Address of the daemon; else ``TEGRASCOPE_URL``, else its usual address on this machine.
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
    """The result of ``window``; every method may be called from any thread."""

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
        retry_seconds: float = RETRY_SECONDS,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        """Prepare; nothing is reported before ``start``. See ``window``."""
        self.name = name
        self._fields = {"workload": name, "device": device, "batch": batch}
        self._period = period
        self._where = (url, token_file)
        self._strict = strict
        self._pauses = (retry_seconds, busy_seconds)
        self._marks = MarkBuffer()
        self._reporter: Reporter | None = None
        self._thread: Thread | None = None
        self._pid = 0

    @property
    def inferences(self) -> int:
        """Inferences so far."""
        return self._marks.total

    def start(self) -> "Window":
        """Begin, as the ``with`` block does; for a service that has none.

        Raises:
            Mendable: The daemon does not take it, and this is ``strict``.
        """
        if self._thread is None:
            begin_ns = monotonic_ns()
            self._marks.take()  # earlier marks belong to no window
            reporter = Reporter(
                ApiClient(*self._where),
                self._marks,
                self._fields,
                self._period,
                retry_seconds=self._pauses[0],
                busy_seconds=self._pauses[1],
            )
            if self._strict:
                reporter.opened = reporter.begin(begin_ns)
            self._reporter, self._pid = reporter, os.getpid()
            self._thread = Thread(
                target=reporter.run, args=(begin_ns,), name="tegrascope-window", daemon=True
            )
            self._thread.start()
            atexit.register(self.stop)
        return self

    def stop(self, outcome: str = "ok", reason: str | None = None) -> None:
        """End, and report what is left; also called when the interpreter exits.

        Args:
            outcome: ``ok``, ``failed`` or ``cancelled``.
            reason: Why, where it is not ``ok``.

        Raises:
            Mendable: The daemon did not take all of it, and this is ``strict``.
        """
        thread, reporter = self._thread, self._reporter
        if thread is None or reporter is None or os.getpid() != self._pid:
            return  # a forked child has the object, but not the thread
        self._thread = None
        atexit.unregister(self.stop)
        reporter.ending = (outcome, None if reason is None else reason[:400])
        reporter.stopping.set()
        reporter.wake.set()
        thread.join(_STOP_SECONDS)
        if self._strict and reporter.problem is not None:
            raise reporter.problem

    def __enter__(self) -> "Window":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, Exception):
            self.stop()  # an application that is asked to end has not failed
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
        """Add an inference that was timed elsewhere, by ``time.monotonic_ns()``."""
        if self._marks.inference(start_ns, end_ns):
            self._wake()

    def count(self, inferences: int = 1) -> None:
        """Count inferences that are complete by now and have no times."""
        if self._marks.counted(inferences, monotonic_ns()):
            self._wake()

    def _record_stage(self, stage: str, start_ns: int, end_ns: int) -> None:
        self._marks.stage(stage, end_ns - start_ns)

    def _wake(self) -> None:
        """Let the reporter begin a window, if it waits for the first mark."""
        if self._reporter is not None:
            self._reporter.wake.set()


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

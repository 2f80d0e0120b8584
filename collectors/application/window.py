"""``tegrascope.window`` marks an application's own inference, so that the daemon measures it.

No inference waits for the network. Marks are kept in memory, and a thread reports them to the
daemon, one window at a time. Without a daemon the cost is the same.
"""

import atexit
import os
from collections.abc import Callable
from functools import partial, wraps
from threading import Thread
from time import monotonic_ns
from types import TracebackType
from typing import ParamSpec, TypeVar

from ...parsers.errors import UserError
from .client import ApiClient
from .reporter import BUSY_SECONDS, RETRY_SECONDS, STAGES, MarkBuffer, Reporter

_STOP_SECONDS = 5.0

P = ParamSpec("P")
R = TypeVar("R")


class Window:
    """Marks of an application's own inference; the daemon pairs them with telemetry like a run.

    A window begins with its ``with`` block. Every method may be called from any thread.

    >>> with window("detector", device="dla0", url="http://127.0.0.1:9") as marks:
    ...     for frame in range(3):
    ...         with marks.stage("pre"):
    ...             image = [frame] * 3
    ...         with marks.inference():
    ...             found = sum(image)
    >>> marks.inferences
    3
    """

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
        """Prepare; nothing is reported before ``start``.

        Args:
            name: A workload of the daemon's configuration with ``backend: window``.
            device: Device of the inference, to be checked against the configuration.
            batch: Inputs per inference; default: that of the configuration.
            period: Seconds after which a long window is reported and the next one begins; default:
                as long as energy per inference requires.
            url: Address of the daemon; default: ``TEGRASCOPE_URL``, else the usual one on this
                machine.
            token_file: The daemon's token; default: ``TEGRASCOPE_TOKEN_FILE``, else its usual path.
            strict: Raise if the daemon does not accept a window. Otherwise there is one warning in
                the log ``tegrascope.window``, and the application continues.
            retry_seconds: Pause after a begin that failed.
            busy_seconds: Pause after status 503.
        """
        self.name = name
        self._strict = strict
        self._marks = MarkBuffer()
        self._make_reporter: Callable[[], Reporter] = lambda: Reporter(
            ApiClient(url, token_file),
            self._marks,
            {"workload": name, "device": device, "batch": batch},
            period,
            retry_seconds=retry_seconds,
            busy_seconds=busy_seconds,
        )
        self._reporter: Reporter | None = None
        self._thread: Thread | None = None
        self._pid = 0

    @property
    def inferences(self) -> int:
        """Inferences so far."""
        return self._marks.total

    def start(self) -> "Window":
        """Begin, as the ``with`` block does.

        Raises:
            UserError: The window is ``strict``, and the daemon does not accept it.
        """
        if self._thread is None:
            begin_ns = monotonic_ns()
            self._marks.take()  # earlier marks belong to no window
            reporter = self._make_reporter()
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
        """End, and report the remaining marks; also called when the interpreter exits.

        Args:
            outcome: ``ok``, ``failed`` or ``cancelled``.
            reason: Why, unless ``ok``.

        Raises:
            UserError: The window is ``strict``, and the daemon did not accept all of it.
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
            self.stop()  # a process signal is not a failure
            return
        try:
            self.stop("failed", f"{kind.__name__}: {error}")
        except UserError:
            return  # it is in the log; the application's own error is raised

    def inference(self) -> "Timed":
        """Return a ``with`` block or decorator that times and counts one inference.

        An inference that raises is not counted.
        """
        return Timed(self.record)

    def stage(self, name: str) -> "Timed":
        """Return a ``with`` block or decorator that times one stage.

        ``name`` is ``pre``, ``compute`` (``inference`` is the same) or ``post``.
        """
        if name not in STAGES:
            raise ValueError(f"{name!r} is not a stage: use pre, compute or post")
        return Timed(partial(self._record_stage, STAGES[name]))

    def record(self, start_ns: int, end_ns: int) -> None:
        """Add an inference that was timed elsewhere, by ``time.monotonic_ns()``."""
        if self._marks.inference(start_ns, end_ns):
            self._wake()

    def count(self, inferences: int = 1) -> None:
        """Count completed inferences without times."""
        if self._marks.counted(inferences, monotonic_ns()):
            self._wake()

    def _record_stage(self, stage: str, start_ns: int, end_ns: int) -> None:
        self._marks.stage(stage, end_ns - start_ns)

    def _wake(self) -> None:
        """Let the reporter begin a window, if it waits for the first mark."""
        if self._reporter is not None:
            self._reporter.wake.set()


window = Window


class Timed:
    """Times a block, or each call of a function."""

    __slots__ = ("_note", "_start_ns")

    def __init__(self, note: Callable[[int, int], None]) -> None:
        """Set the function that gets start and end."""
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

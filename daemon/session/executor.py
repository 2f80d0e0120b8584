"""One worker process per device, killed after the timeout of a run.

A driver that hangs or crashes takes down the worker. The next run starts another one, and so does
a run that the worker declines because it cannot use its loaded model for this order.

Who is who, for one device::

    daemon, one process
      scheduler (thread)       submits the jobs that are due (daemon/service/scheduler.py)
      ExecutorThread (thread)  takes the next job of its device from RunQueues
        Executor               the daemon's side of the worker: sends orders, reads events (here)
          |  pipes: orders down, events up, one JSON object per line
    worker, one process        collectors/worker/child.py; the first run starts it
      Inbox (thread)           reads orders and SIGTERM
      Runner (main thread)     carries out orders one by one with a back-end (run_loop.py)

Besides, the daemon has its main thread (HTTP) with those that make its answers, the threads for
housekeeping, telemetry and windows, one for each companion that reads by itself, such as the kernel
files, and one that reads the rails while a run is measured. ``bench`` and ``engines`` use an
``Executor`` without scheduler and queues.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ...collectors.base import SYSTEM_CLOCK, Clock, Stamped
from ...collectors.board.memory import obtainable_memory
from ...collectors.catalog import find_backend
from ...collectors.children.process import LineChild, Quiet
from ...collectors.children.program import python_child
from ...collectors.http_peer import Secrets
from ...collectors.models.files import BUILTIN_PREFIX, builtin_path
from ...collectors.paths import is_file
from ...parsers.errors import ParseError, UserError
from ...parsers.inference import events
from ..settings.file import ConfigError, read_text

_LOG = logging.getLogger(__name__)
_START_SECONDS = 60.0


def worker_command(device: str) -> tuple[str, ...]:
    """Return the command of the worker of a device, without its options."""
    return python_child("tegrascope.collectors.worker.child", name=f"worker {device}")


class Executor:
    """The worker of one device; ``run`` belongs to one thread, ``cancel`` to any."""

    def __init__(
        self,
        device: str,
        *,
        argv: tuple[str, ...] | None = None,
        cwd: Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
        free_memory: Callable[[], int | None] = obtainable_memory,
    ) -> None:
        """Prepare; the first run starts the worker: ``argv`` and ``--lane DEVICE``.

        ``argv`` replaces ``worker_command``.
        """
        self.device = device
        self._cwd = cwd
        command = worker_command(device) if argv is None else argv
        self._argv = (*command, "--lane", device)
        self._clock = clock
        self._free_memory = free_memory
        self._child: LineChild | None = None
        self._process = events.Process()
        self._secrets = Secrets()  # of the present order
        self._lock = threading.Lock()
        self._surroundings: str | None = None
        self._cancelled = threading.Event()

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        child = self._child
        return None if child is None else child.pid

    def cancel(self) -> None:
        """End the run in flight, and all later ones, as ``cancelled``."""
        self._cancelled.set()
        with self._lock:
            if self._child is not None:
                self._child.wake()

    def tell(self, surroundings: events.Surroundings) -> None:
        """Tell the worker how other work on a simulated board slows it; from any thread."""
        line = events.render_event(surroundings)
        with self._lock:
            self._surroundings = line
            if self._child is not None:
                self._child.send(line)

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end()

    def run(
        self,
        order: events.Order,
        timeout_seconds: float,
        on_event: Callable[[events.RunEvent], None],
    ) -> events.Finished:
        """Run an order and wait for its end; the worker is killed after the timeout.

        ``on_event`` is called in this thread. The worker cannot cause an exception here. The last
        event, which is returned too, is the worker's own or is made here in its place. API keys of
        the order are masked in its ``reason`` and ``worker_log``, since these are logged, stored
        and shown.
        """
        self._secrets = _secrets_of(order)
        until_ns = self._clock.monotonic_ns() + int(timeout_seconds * 1e9)
        finished = self._run(order, until_ns, timeout_seconds, on_event)
        covered: dict[str, object] = {
            "worker_log": tuple(map(self._secrets.cover, finished.worker_log))
        }
        if finished.reason is not None:
            covered["reason"] = self._secrets.cover(finished.reason)
        finished = finished.model_copy(update=covered)
        on_event(finished)
        return finished

    def _run(
        self,
        order: events.Order,
        until_ns: int,
        timeout_seconds: float,
        on_event: Callable[[events.RunEvent], None],
    ) -> events.Finished:
        """Give the order to a worker, and to another one if the first declines it.

        ``until_ns`` holds for both together, and ``timeout_seconds`` is the configured time.
        """
        if self._child is not None and (self._child.exited or self._process != order.process):
            self.close()
        self._process = order.process
        is_new = self._child is None
        if is_new:
            begin_ns = self._clock.monotonic_ns()
            self._look_at_memory(order, on_event)
            # Reading the graph is no part of the run, so its time limit begins behind that.
            until_ns += self._clock.monotonic_ns() - begin_ns
            refusal = self._start(order.run_id, self._seconds_until(until_ns))
            if refusal is not None:
                return refusal
        child = self._child
        if child is None:
            return _cancelled(order.run_id)
        timed_order = order.model_copy(update={"timeout_seconds": self._seconds_until(until_ns)})
        if not child.send(events.render_event(timed_order)):
            return self._bury(child, order.run_id, "does not take orders")
        surroundings = self._surroundings
        if surroundings is not None:  # another worker may have been told of them
            child.send(surroundings)
        finished = self._follow(child, order.run_id, until_ns, timeout_seconds, on_event)
        if finished is not None:
            return finished
        if is_new:
            return self._bury(child, order.run_id, "declines its first order")
        # It cannot use its loaded model for this order: another worker gets the order.
        self.close()
        return self._run(order, until_ns, timeout_seconds, on_event)

    def _seconds_until(self, until_ns: int) -> float:
        return max(0.0, (until_ns - self._clock.monotonic_ns()) / 1e9)

    def _follow(
        self,
        child: LineChild,
        run_id: str,
        until_ns: int,
        timeout_seconds: float,
        on_event: Callable[[events.RunEvent], None],
    ) -> events.Finished | None:
        """Pass on the events of a run until its end; return None if the worker declines it."""
        phase = "start"
        while True:
            line = child.read(self._seconds_until(until_ns))
            if isinstance(line, Stamped):
                event = _read_event(line.value, run_id)
                if event is None:
                    continue
                if isinstance(event, events.Declined):
                    return None
                if isinstance(event, events.Finished):
                    if event.outcome == "ok":
                        return event
                    return event.model_copy(update={"worker_log": child.last_words})
                on_event(event)
                if isinstance(event, events.Phase):
                    phase = event.phase
            elif line is Quiet.TIMEOUT:
                self.close()
                reason = f"no end after {timeout_seconds:g} s, in phase {phase}; worker killed"
                return _ended(run_id, "timeout", reason, child.last_words)
            elif line is Quiet.END:
                return self._bury(child, run_id, f"ended in phase {phase}")
            elif self._cancelled.is_set():
                self.close()
                return _cancelled(run_id)

    def _look_at_memory(
        self, order: events.Order, on_event: Callable[[events.RunEvent], None]
    ) -> None:
        """Tell whether the memory that a new worker takes can be had, as far as it is known."""
        free = self._free_memory()
        model = Path(order.model)
        if order.model.startswith(BUILTIN_PREFIX):
            name = order.model.removeprefix(BUILTIN_PREFIX)
            model = builtin_path(name, Path(order.model_directory))
        # What fails here fails in the worker too, which then says why.
        with contextlib.suppress(UserError, OSError, RuntimeError):
            model = (self._cwd or Path()) / model.expanduser()
            if free is None or not is_file(model):
                return
            need = find_backend(order.backend).memory_need(model, order, free)
            if need is None:
                return
            words = need.compare(free)
            if need.size > free:
                _LOG.warning("%s: the worker %s", self.device, words)
            else:
                on_event(events.Progress(run_id=order.run_id, doing=words))

    def _start(self, run_id: str, left_seconds: float) -> events.Finished | None:
        """Start a worker and wait for its first message; return the error, if any."""
        try:
            argv = (*self._argv, "--process", self._process.model_dump_json(exclude_defaults=True))
            child = LineChild(argv, stdin=True, cwd=self._cwd, clock=self._clock)
        except Exception as error:  # any error ends this run only, not the executor
            return _ended(run_id, "failed", f"the worker does not start: {error}")
        with self._lock:
            self._child = child
            if self._cancelled.is_set():
                child.wake()
        seconds = min(_START_SECONDS, left_seconds)
        got = child.read(seconds)
        if got is Quiet.WOKEN:
            self.close()
            return _cancelled(run_id)
        if got is Quiet.TIMEOUT:
            self.close()
            reason = f"the worker printed nothing for {seconds:.3g} s; worker killed"
            return _ended(run_id, "timeout", reason)
        if not isinstance(got, Stamped):
            return self._bury(child, run_id, "printed nothing")
        return None

    def _bury(self, child: LineChild, run_id: str, what: str) -> events.Finished:
        """Close a worker that ended by itself, and return the end of its run."""
        self.close()
        if child.returncode is not None and child.returncode < 0:
            what += f", by signal {-child.returncode}"
        elif child.returncode is not None:
            what += f", with status {child.returncode}"
        words = f"; its last words: {child.last_words[-1]}" if child.last_words else ""
        words = self._secrets.cover(words)
        _LOG.warning("%s: the worker %s%s", self.device, what, words)
        return _ended(run_id, "failed", f"the worker {what}{words}", child.last_words)


def _read_event(line: str, run_id: str) -> events.RunEvent | None:
    """Return the event of a line, or None if the line has none of this run."""
    try:
        event = events.parse_run_event(line)
    except ParseError:
        return None
    if isinstance(event, events.Hello) or event.run_id != run_id:
        return None
    return event


def _ended(
    run_id: str, outcome: events.Outcome, reason: str, worker_log: tuple[str, ...] = ()
) -> events.Finished:
    """Return the last event of a run whose worker did not print it."""
    return events.Finished(run_id=run_id, outcome=outcome, reason=reason, worker_log=worker_log)


def _cancelled(run_id: str) -> events.Finished:
    return _ended(run_id, "cancelled", "the daemon is stopping")


def _secrets_of(order: events.Order) -> Secrets:
    """Return the keys of the servers that an order asks; a file that cannot be read has none."""
    keys: list[str] = []
    for access in (order.server, order.scrape):
        if access is not None and access.api_key_file is not None:
            with contextlib.suppress(ConfigError, RuntimeError):  # also: no home directory
                keys += read_text(Path(access.api_key_file).expanduser()).split()
    return Secrets(keys)

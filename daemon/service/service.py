"""Connects the parts of the daemon; starts, reloads and stops them; reports to systemd."""

import asyncio
import contextlib
import logging
import os
import queue
import shutil
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.board.boards import read_power_mode
from ...collectors.board.readers import clocks_locked, read_trips
from ...collectors.paths import is_directory
from ...parsers.errors import UserError
from ..measure.timeline import SealedBlock, Timeline
from ..session.executor import Executor
from ..session.process_signals import END, RELOAD, Signals
from ..session.session import Job, Session
from ..session.telemetry import board_root, configured_board, environment_of, open_telemetry
from ..session.windows import WindowKeeper
from ..settings.config import Config, Workload, boot_id
from ..store.history import History
from ..store.store import Store
from ..web.application import Serving, make_app
from ..web.authentication import Gate, host_names, read_token, write_token
from ..web.server import serve, url_of
from ..web.troubles import TroubleWatch
from .device_thread import ExecutorThread, RunQueues
from .scheduler import Guard, Now, Refusal, Scheduler

if TYPE_CHECKING:
    from ..web.web_config import WebRules

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Periods:
    """How often the service does its regular work, in nanoseconds."""

    tick_ns: int = 1_000_000_000  # sealed blocks, windows beyond their timeout, the watchdog
    prune_ns: int = 3600 * 1_000_000_000
    retry_ns: int = 5 * 1_000_000_000  # of data that the store could not write
    facts_ns: int = 10 * 1_000_000_000  # power mode and clock locks can change at any time
    schedule_ns: int = 10 * 1_000_000_000  # at most, since the wall clock may be set at any time


def notify_systemd(*assignments: str) -> None:
    """Send assignments such as ``READY=1`` to systemd, if it wants them and can be reached."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        if address.startswith("@"):
            address = "\0" + address[1:]
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel,
            contextlib.suppress(OSError),
        ):
            channel.sendto("\n".join(assignments).encode(), address)


def watchdog_seconds() -> float | None:
    """Return systemd's watchdog limit for this process, or ``None``."""
    limit, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if pid not in (None, str(os.getpid())) or not limit.isdecimal() or int(limit) == 0:
        return None
    return int(limit) / 1e6


class Watchdog:
    """Reset by the housekeeping thread, so that a hang of that thread is detected."""

    def __init__(self, seconds: float | None, send: Callable[..., object] = notify_systemd) -> None:
        self._period_ns = None if seconds is None else round(seconds / 2 * 1e9)
        self._send = send
        self._fed_ns: int | None = None
        self._status = ""
        self._had_telemetry = False

    def look(self, now_ns: int, *, telemetry: str | None, status: str) -> None:
        """Reset the watchdog if it is time and all is well; send the status if it changed.

        ``telemetry`` is why new samples of this machine are missing; ``None`` if they are not, or
        if the source may end by itself.
        """
        if telemetry is None:
            self._had_telemetry = True
        if status != self._status:
            self._status = status
            self._send(f"STATUS={status}")
        if self._period_ns is None or (telemetry and self._had_telemetry):
            return
        if self._fed_ns is None or now_ns - self._fed_ns >= self._period_ns:
            self._fed_ns = now_ns
            self._send("WATCHDOG=1")


class Service:
    """The daemon. ``load_config`` reads the configuration at a reload, unless it is built in."""

    def __init__(
        self,
        config: Config,
        state_dir: Path,
        listener: socket.socket,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rules: "WebRules | None" = None,
        periods: Periods | None = None,
        limitation: str | None = None,
    ) -> None:
        """Open the store and create the parts; nothing runs before ``start``.

        ``state_dir`` has runs, models and the token. ``rules`` are those of the web configuration.
        ``limitation`` is a sentence on what this configuration leaves out, for the page.
        While its disk is full or read-only, the daemon works without it.

        Raises:
            UserError: The state directory is not for this user, or another daemon has it.
        """
        self.config = config
        self.limitation = limitation
        self.url = url_of(listener, tls=rules is not None and rules.has_tls)
        self.load_config: Callable[[], Config] | None = None
        self._listener, self._rules, self._state_dir = listener, rules, state_dir
        self._periods, self._clock = periods or Periods(), clock
        self._stopping = threading.Event()
        self._replan = threading.Event()
        self._planning = threading.Lock()
        self._reloading = threading.Lock()
        self._sealed: queue.SimpleQueue[SealedBlock] = queue.SimpleQueue()
        database = config.store.path or state_dir / "tegrascope.db"
        self._token_file = config.http.token_file or state_dir / "token"
        self._token, self._token_problem = read_token(self._token_file)
        self._store = Store(database, boot_id(), is_daemon=True)
        self._history = History(database, may_be_missing=True, on_damage=self._store.suspect)
        otlp = None
        if config.otlp is not None:
            from ..export.otlp import OtlpExport

            otlp = OtlpExport(config.otlp, lambda: self.live, clock=clock)
        self._otlp = otlp
        self.session = Session(
            clock=clock,
            timeline=Timeline(on_sealed=self._sealed.put),
            store=self._store,
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
            limits=config.limits,
            on_crash=lambda error: self._lose("telemetry", error),
            on_report=otlp.add if otlp else lambda _: None,
            companions=(otlp,) if otlp else (),
        )
        self.live = self.session.live
        self.windows = WindowKeeper(self.session, lambda: self.config.workloads)
        self._executor_threads: dict[str, ExecutorThread] = {}
        self._queues = RunQueues()
        self._run_guard = Guard(lambda: self.live.snapshot, self._clock.monotonic_ns)
        self._board_root: Path | None = None
        self._scheduler = Scheduler((), self._now())
        self._watchdog = Watchdog(watchdog_seconds())
        self._troubles = TroubleWatch()
        self._reloaded = ""
        self._failure: str | None = None  # of a vital thread
        self._end_serving: Callable[[], object] = lambda: None
        self._threads: list[threading.Thread] = []

    def start(self, greet: Callable[[], None] = lambda: None) -> None:
        """Start telemetry, workers, schedule and housekeeping; ``greet`` is called before a run.

        A source that can't be opened raises ``UserError``; call ``stop`` then.
        """
        self._start_telemetry(self.config)
        self._plan(self.config)
        self.windows.start()
        greet()
        for name, loop in (("scheduler", self._schedule), ("housekeeping", self._keep_house)):
            thread = threading.Thread(
                target=self._run_vital, args=(name, loop), name=name, daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _run_vital(self, name: str, loop: Callable[[], None]) -> None:
        """Run a loop that ends only with the daemon."""
        try:
            loop()
        except Exception as error:
            _LOG.exception("the %s thread failed", name)
            self._lose(name, error)

    def _lose(self, name: str, error: Exception) -> None:
        """End the daemon, because it would go on without one of its vital threads."""
        reason = f"{type(error).__name__} {error}".strip()[:200]
        self._failure = f"the {name} thread failed ({reason})"
        self._end_serving()

    def run(self, signals: Signals) -> None:
        """Serve until SIGTERM or SIGINT, or until a vital thread fails, which is a ``UserError``.

        SIGHUP calls ``reload``.
        """
        try:
            asyncio.run(self._serve(signals))
        except Exception as error:
            _LOG.exception("the HTTP thread failed")
            self._lose("HTTP", error)
        finally:
            signals.ignore()
        if self._failure is not None:
            raise UserError(self._failure, "start the daemon again, and report the log's traceback")

    async def _serve(self, signals: Signals) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stopped.set)

        signals.call(END, end)
        self._end_serving = end
        if self._failure is not None:  # from before
            end()
        signals.call(RELOAD, lambda: threading.Thread(target=self.reload, daemon=True).start())
        serving = Serving(
            live=self.live,
            timeline=self.session.timeline,
            history=self._history,
            not_stored=self._store.waiting,
            clock=self._clock,
            problem=self.problem,
            note=self.note,
            troubles=self._troubles,
            rule=lambda: self.session.energy.rule,
            next_due=lambda: {workload.name: due_ns for workload, due_ns in self.planned()},
            start_run=self.start_run,
            mark_window=self.windows.take,
            token=self._token,
            compatibility=self.config.http.compatibility,
        )
        notify_systemd("READY=1", f"STATUS={self.status()}")
        http = self.config.http
        names = host_names(http.listen, http.hosts)
        gate = Gate(make_app(serving), self._rules, self._token, self._clock, names)
        try:
            await serve(gate, self._listener, stopped.wait, self._rules)
        finally:
            signals.ignore()  # while the loop can still be stopped

    def stop(self) -> None:
        """End everything in under three seconds; a run in flight is recorded as cancelled."""
        notify_systemd("STOPPING=1")
        self._stopping.set()
        self._replan.set()
        # So that parts started by a reload are stopped too; a file that hangs is not waited for.
        if self._reloading.acquire(timeout=1.0):
            self._reloading.release()
        for executor_thread in self._executor_threads.values():
            executor_thread.cancel()
        self.session.stop()
        self.windows.stop()
        for executor_thread in self._executor_threads.values():
            executor_thread.join(2.0)
        for thread in self._threads:
            thread.join(timeout=0.5)
        if self._otlp is not None:
            self._otlp.close()
        self.session.timeline.seal()
        self._write_blocks()
        self._store.close()
        self._listener.close()

    def reload(self) -> None:
        """Read the configuration again; if it has errors, the old one stays in force."""
        if self.load_config is None:
            _LOG.warning("nothing to reload: the configuration is built in")
            return
        with self._reloading:
            if self._stopping.is_set():
                return
            notify_systemd("RELOADING=1")
            try:
                config = self.load_config()
                if self._stopping.is_set():
                    return
                self._apply(config)
            except UserError as error:
                problems = getattr(error, "problems", (str(error),))
                _LOG.error("reload refused, the old configuration stays: %s", "; ".join(problems))
                self._reloaded = "the last reload was refused"
            except Exception:
                _LOG.exception("reload failed")
                self._reloaded = "the last reload failed; see the log"
            else:
                _LOG.info("reloaded: %d workload(s)", len(self.config.workloads))
                self._reloaded = ""
            notify_systemd("READY=1", f"STATUS={self.status()}")

    def _apply(self, config: Config) -> None:
        """Bring a checked configuration into force."""
        old = self.config
        if (old.telemetry, old.board) != (config.telemetry, config.board):
            self._start_telemetry(config)
        for section in ("http", "store", "otlp"):
            if getattr(old, section) != getattr(config, section):
                _LOG.warning("%s: changed; it comes into force at the next start", section)
        if old.workloads != config.workloads:
            self._plan(config)
        self.live.update(limits=config.limits)
        self.config = config

    def start_run(self, name: str) -> str:
        """Run a configured workload now and return the run's id, or raise ``UserError``."""
        workloads = {workload.name: workload for workload in self.config.workloads}
        if name not in workloads:
            known = ", ".join(workloads) or "none"
            raise UserError(f"no workload {name}", f"configured are: {known}")
        workload = workloads[name]
        if workload.is_window:
            raise UserError(f"{name} is run by its own application", "see POST /api/v1/windows")
        job = Job(workload)
        refusal = self._executor_threads[workload.device].submit(job)
        if refusal is not None:
            raise UserError(f"{name} does not run: {refusal}", "try again later")
        return job.run_id

    def problem(self) -> str | None:
        """Return why the daemon is not ready (telemetry before the store), or ``None``."""
        problem = self._failure or self._telemetry_problem()
        store_problem = self._store.problem  # once: another thread may clear it
        if problem is None and store_problem is not None:
            return f"the store does not write: {store_problem}"
        return problem

    def note(self) -> str | None:
        """Return the limitations of a daemon that is ready, or ``None``."""
        notes = [self.limitation, self._store.note]
        if self._history.unreadable:
            notes.append(f"{self._history.unreadable} stored run(s) cannot be read and are skipped")
        if any(source.lacks_root for source in self.live.snapshot.sources):
            notes.append(
                "tegrastats shows no DLA, EMC and engines, as without root: "
                "systemctl enable --now tegrascope-tegrastats.socket"
            )
        if self._token_problem is not None:
            notes.append(f"calls that change state are refused: no token, {self._token_problem}")
        return "; ".join(filter(None, notes)) or None

    def status(self) -> str:
        """Return the state in one line, for ``systemctl status``."""
        parts = (self.problem(), self.note(), self._reloaded)
        return "; ".join((f"serving {self.url}", *filter(None, parts)))

    def _telemetry_problem(self) -> str | None:
        now_ns = self._clock.monotonic_ns()
        for source in self.live.snapshot.sources:
            if not source.is_fresh(now_ns):
                problem = f"no fresh sample from {source.name}"
                why = self.session.why()
                if why is not None:
                    problem = f"{problem}: {why}"
                return problem
        return None

    def planned(self) -> list[tuple[Workload, int]]:
        """Return each scheduled workload with the time of its next run, soonest first."""
        return self._scheduler.planned()

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ns(), self._clock.wall_ns(), self.session.suspended_ns())

    def _start_telemetry(self, config: Config) -> None:
        # A source that can't be opened raises before anything is changed.
        collector = open_telemetry(config.telemetry, self.session.load, self._clock)
        self.session.stop()
        root = self._board_root = board_root(config.telemetry)
        self.live.update(
            environment=environment_of(
                config.telemetry,
                board=configured_board(config),
                simulated=not collector.source.is_live,
            ),
            trips_celsius={} if root is None else read_trips(root),
            values={},
            companions_up={},
        )
        self.session.open(config.telemetry, config.board, self._executor_threads, collector)
        self.session.start()

    def _plan(self, config: Config) -> None:
        workloads = tuple(workload for workload in config.workloads if not workload.is_window)
        for workload in workloads:
            if workload.device not in self._executor_threads:
                cwd = self._state_dir if is_directory(self._state_dir) else None
                executor = Executor(workload.device, cwd=cwd, clock=self._clock)
                thread = ExecutorThread(
                    executor, self.session, self._queues, self._refusal, self._run_guard.ran
                )
                thread.start()
                self._executor_threads[workload.device] = thread
        self.live.set_workloads(
            {workload.name: workload.device for workload in config.workloads},
            {workload.name: workload.labels for workload in config.workloads},
            {workload.name: workload.deadline for workload in config.workloads},
        )
        with self._planning:
            self._scheduler.replan(workloads, self._now())
        for thread in self._executor_threads.values():
            thread.keep(workloads)
        self._replan.set()

    def _refusal(self, workload: Workload) -> Refusal | None:
        return self._run_guard.refusal(workload, self.config.guards)

    def _schedule(self) -> None:
        while not self._stopping.is_set():
            now = self._now()
            with self._planning:
                jobs = self._scheduler.due(now)
            for job in jobs:
                self._executor_threads[job.workload.device].submit(job)
            for name, count in self._scheduler.missed.items():
                _LOG.warning("%s: %d run(s) missed", name, count)
                self.live.skipped("missed", count)
            self._scheduler.missed.clear()
            next_ns = self._scheduler.next_ns()
            look_ns = now.monotonic_ns + self._periods.schedule_ns
            if next_ns is not None:
                look_ns = min(look_ns, next_ns)
            self._clock.wait(self._replan, look_ns)
            self._replan.clear()

    def _keep_house(self) -> None:
        next_ns = self._clock.monotonic_ns()
        periods = self._periods
        chores: dict[Callable[[], None], int] = {
            self._look_at_board: periods.facts_ns,
            self._prune: periods.prune_ns,
            self._store.flush: periods.retry_ns,
            self._limit_store: periods.retry_ns,
            self._write_token: periods.retry_ns,
        }
        done_ns = dict.fromkeys(chores, next_ns)
        self._prune()
        while not self._clock.wait(self._stopping, next_ns):
            now_ns = self._clock.monotonic_ns()
            next_ns = max(next_ns + periods.tick_ns, now_ns)
            self._write_blocks()
            self.windows.tick()
            self.session.refresh()
            self.live.update(
                store_free_bytes=_free_bytes(self._store.path.parent),
                store_write_errors=self._store.write_errors,
                store_problem=self._store.problem,
                store_damages=self._store.damages,
                store_runs_lost=self._store.runs_lost,
                store_runs_unreadable=self._history.unreadable,
            )
            for chore, period_ns in chores.items():
                if now_ns - done_ns[chore] > period_ns:
                    done_ns[chore] = now_ns
                    chore()
            # Also where no page asks: a reader is told since when a trouble is there.
            self._troubles.look(self.live.snapshot, now_ns, self._clock.wall_ns())
            telemetry_problem: str | None = None
            if self.config.telemetry.settings.is_kept_alive:
                telemetry_problem = self._telemetry_problem()
            self._watchdog.look(
                self._clock.monotonic_ns(),
                telemetry=telemetry_problem,
                status=self.status(),
            )

    def _look_at_board(self) -> None:
        if self._board_root is not None:
            mode, locked = read_power_mode(self._board_root), clocks_locked(self._board_root)
            self.live.describe(power_mode=mode, clocks_locked=locked)

    def _write_blocks(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._store.add_block(self._sealed.get_nowait())

    def _prune(self) -> None:
        store = self.config.store
        samples_ns, runs_ns = int(store.samples_retention * 1e9), int(store.runs_retention * 1e9)
        self._store.prune(self._clock.wall_ns(), samples_ns, runs_ns)

    def _limit_store(self) -> None:
        if self.config.store.max_bytes is not None:
            self._store.limit(self.config.store.max_bytes)

    def _write_token(self) -> None:
        """Write a token that the disk refused; until then, no client can have it."""
        if self._token_problem is not None:
            try:
                self._token_problem = write_token(self._token_file, self._token)
            except OSError as error:
                self._token_problem = f"{self._token_file}: {error.strerror}"


def _free_bytes(directory: Path) -> int | None:
    """Return the free space for a user without privileges, or ``None``."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None

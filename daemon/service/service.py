"""Connects the parts of the daemon; starts, reloads and stops them; reports to systemd."""

import asyncio
import contextlib
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.board.boards import read_power_mode
from ...collectors.board.readers import clocks_locked, read_trips
from ...collectors.lines.collector import LineCollector
from ...parsers.errors import UserError
from ..measure.timeline import SealedBlock, Timeline
from ..session.executor import Executor
from ..session.process_signals import END, RELOAD, Signals
from ..session.session import Job, Session
from ..session.telemetry import board_root, configured_board, environment_of, open_telemetry
from ..session.windows import WindowKeeper
from ..settings.config import Config, boot_id, new_run_id
from ..store.history import History
from ..store.store import Owner, Store
from ..web.answers import Serving
from ..web.application import make_app
from ..web.authentication import Gate, host_names, read_token
from ..web.server import serve, url_of
from ..web.web_config import WebRules
from .scheduler import Due, ExecutorThread, Now, Scheduler
from .systemd import Watchdog, notify_systemd, watchdog_seconds

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Periods:
    """How often the service does its regular work, in nanoseconds.

    Attributes:
        tick_ns: Housekeeping: sealed blocks, windows beyond their timeout, the watchdog.
        prune_ns: Deletion of old runs and samples.
        retry_ns: Writing of runs that the store could not write.
        facts_ns: Reading of the power mode and clock locks, which can change at any time.
        schedule_ns: Longest sleep of the scheduler, because a wall clock may be set at any time.
    """

    tick_ns: int = 1_000_000_000
    prune_ns: int = 3600 * 1_000_000_000
    retry_ns: int = 5 * 1_000_000_000
    facts_ns: int = 10 * 1_000_000_000
    schedule_ns: int = 10 * 1_000_000_000


class Service:
    """The daemon. ``load_config`` reads the configuration at a reload, unless it is built in."""

    def __init__(
        self,
        config: Config,
        state_dir: Path,
        listener: socket.socket,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rules: WebRules | None = None,
        periods: Periods | None = None,
    ) -> None:
        """Open the store and create the parts; nothing runs before ``start``.

        Args:
            config: The configuration.
            state_dir: Directory of runs, models and the token.
            listener: Bound socket of the server.
            rules: The web configuration file, if there is one.

        Raises:
            UserError: The state directory can't be written.
        """
        self.config = config
        self.url = url_of(listener, tls=rules is not None and rules.has_tls)
        self.load_config: Callable[[], Config] | None = None
        self._listener = listener
        self._rules = rules
        self._periods = periods or Periods()
        self._state_dir = state_dir
        self._clock = clock
        self._stopping = threading.Event()
        self._replan = threading.Event()
        self._planning = threading.Lock()
        self._reloading = threading.Lock()
        self._sealed: queue.SimpleQueue[SealedBlock] = queue.SimpleQueue()
        database = config.store.path or state_dir / "tegrascope.db"
        self._token = read_token(config.http.token_file or state_dir / "token")
        self._owner = Owner(database)
        try:
            self._store = Store(database, boot_id())
        except UserError:
            self._owner.release()
            raise
        self.session = Session(
            clock=clock,
            timeline=Timeline(on_sealed=self._sealed.put),
            store=self._store,
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
            limits=config.limits,
        )
        self.live = self.session.live
        self.windows = WindowKeeper(self.session, lambda: self.config.workloads)
        self._runners: dict[str, ExecutorThread] = {}
        self._board_root: Path | None = None
        self._scheduler = Scheduler((), self._now())
        self._watchdog = Watchdog(watchdog_seconds())
        self._reloaded = ""
        self._threads: list[threading.Thread] = []

    def start(self, greet: Callable[[], None] = lambda: None) -> None:
        """Start telemetry, workers, schedule and housekeeping; ``greet`` is called before a run.

        Raises:
            UserError: The source can't be opened or the store can't be written; call ``stop`` then.
        """
        for run_id in self._store.recover():
            _LOG.warning("run %s was in flight when the daemon died: closed as failed", run_id)
        self._start_telemetry(self.config, self._open_telemetry(self.config))
        self._plan(self.config)
        self.windows.start()
        greet()
        for name, loop in (("scheduler", self._schedule), ("housekeeping", self._keep_house)):
            thread = threading.Thread(target=loop, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def run(self, signals: Signals) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP calls ``reload``."""
        try:
            asyncio.run(self._serve(signals))
        finally:
            signals.ignore()

    async def _serve(self, signals: Signals) -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        signals.call(END, lambda: loop.call_soon_threadsafe(stopped.set))
        signals.call(RELOAD, lambda: threading.Thread(target=self.reload, daemon=True).start())
        serving = Serving(
            live=self.live,
            timeline=self.session.timeline,
            history=History(self._store.path),
            clock=self._clock,
            problem=self.problem,
            note=self.note,
            rule=lambda: self.session.energy.rule,
            start_run=self.start_run,
            mark_window=self.windows.take,
            token=self._token,
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
        with self._reloading:  # so that parts started by a reload are stopped too
            pass
        for runner in self._runners.values():
            runner.cancel()
        self.session.stop()
        self.windows.stop()
        for runner in self._runners.values():
            runner.join(timeout_seconds=2.0)
        for thread in self._threads:
            thread.join(timeout=0.5)
        self.session.timeline.seal()
        self._write_blocks()
        self._store.close()
        self._owner.release()
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
                self._take(self.load_config())
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

    def _take(self, config: Config) -> None:
        """Bring a checked configuration into force."""
        old = self.config
        other_source = (old.telemetry, old.board) != (config.telemetry, config.board)
        collector = self._open_telemetry(config) if other_source else None
        for section in ("http", "store"):
            if getattr(old, section) != getattr(config, section):
                _LOG.warning("%s: changed; it comes into force at the next start", section)
        if collector is not None:
            self._start_telemetry(config, collector)
        if old.workloads != config.workloads:
            self._plan(config)
        self.live.update(limits=config.limits)
        self.config = config

    def start_run(self, name: str) -> str:
        """Run a configured workload now and return the run's id, or raise ``UserError``."""
        workload = next((one for one in self.config.workloads if one.name == name), None)
        if workload is None:
            known = ", ".join(one.name for one in self.config.workloads) or "none"
            raise UserError(f"no workload {name}", f"configured are: {known}")
        if workload.is_window:
            raise UserError(f"{name} is run by its own application", "see POST /api/v1/windows")
        job = Job(new_run_id(), workload, None)
        refusal = self._runners[workload.device].submit(job)
        if refusal is not None:
            raise UserError(f"{name} does not run: {refusal}", "try again later")
        return job.run_id

    def problem(self) -> str | None:
        """Return why the daemon is not ready (telemetry first, then the store), or ``None``."""
        store = self._store.problem
        return self._telemetry_problem() or (store and f"the store does not write: {store}")

    def note(self) -> str | None:
        """Return a limitation of a daemon that is ready, or ``None``."""
        if any(source.lacks_root for source in self.live.snapshot.sources):
            return (
                "tegrastats shows no DLA, EMC and engines, as without root: "
                "systemctl enable --now tegrascope-tegrastats.socket"
            )
        return None

    def status(self) -> str:
        """Return the state in one line, for ``systemctl status``."""
        parts = (self.problem(), self.note(), self._reloaded)
        return "; ".join((f"serving {self.url}", *filter(None, parts)))

    def _telemetry_problem(self) -> str | None:
        now_ns = self._clock.monotonic_ns()
        for source in self.live.snapshot.sources:
            if not source.is_fresh(now_ns):
                why = self.session.why()
                return f"no fresh sample from {source.name}" + (f": {why}" if why else "")
        return None

    def _look_after_watchdog(self) -> None:
        kept_alive = self.config.telemetry.settings.is_kept_alive
        self._watchdog.look(
            self._clock.monotonic_ns(),
            telemetry=self._telemetry_problem() if kept_alive else None,
            store_wants_restart=self._store.wants_restart,
            status=self.status(),
        )

    def planned(self) -> list[Due]:
        """Return the next run of each scheduled workload."""
        return self._scheduler.planned()

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ns(), self._clock.wall_ns())

    def _open_telemetry(self, config: Config) -> LineCollector:
        return open_telemetry(config.telemetry, self.session.load, self._clock)

    def _start_telemetry(self, config: Config, collector: LineCollector) -> None:
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
        self.session.open(config.telemetry, config.board, self._runners, collector)
        self.session.start()

    def _plan(self, config: Config) -> None:
        workloads = tuple(one for one in config.workloads if not one.is_window)
        for workload in workloads:
            if workload.device not in self._runners:
                executor = Executor(workload.device, cwd=self._state_dir, clock=self._clock)
                runner = ExecutorThread(executor, self.session)
                runner.start()
                self._runners[workload.device] = runner
        self.live.set_workloads(
            {one.name: one.device for one in config.workloads},
            {one.name: one.labels for one in config.workloads},
        )
        with self._planning:
            self._scheduler.replan(workloads, self._now())
        for runner in self._runners.values():
            runner.keep(workloads)
        self._replan.set()

    def _schedule(self) -> None:
        while not self._stopping.is_set():
            now = self._now()
            with self._planning:
                found = self._scheduler.due(now)
            for due in found:
                self._runners[due.workload.device].submit(
                    Job(new_run_id(), due.workload, due.due_ns)
                )
            self._note_missed()
            next_ns = self._scheduler.next_ns()
            look_ns = now.monotonic_ns + self._periods.schedule_ns
            self._clock.wait(self._replan, look_ns if next_ns is None else min(look_ns, next_ns))
            self._replan.clear()

    def _note_missed(self) -> None:
        for name, count in self._scheduler.missed.items():
            _LOG.warning("%s: %d run(s) missed", name, count)
            self.live.skipped("missed", count)
        self._scheduler.missed.clear()

    def _keep_house(self) -> None:
        next_ns = pruned_ns = retried_ns = facts_ns = self._clock.monotonic_ns()
        self._prune()
        while not self._clock.wait(self._stopping, next_ns):
            now_ns = self._clock.monotonic_ns()
            next_ns = max(next_ns + self._periods.tick_ns, now_ns)
            self._write_blocks()
            self.windows.tick()
            self.session.refresh()
            self.live.update(
                store_write_errors=self._store.write_errors,
                store_problem=self._store.problem,
                store_free_bytes=_free_bytes(self._store.path.parent),
            )
            if now_ns - facts_ns > self._periods.facts_ns:
                facts_ns = now_ns
                self._look_at_board()
            if now_ns - pruned_ns > self._periods.prune_ns:
                pruned_ns = now_ns
                self._prune()
            if now_ns - retried_ns > self._periods.retry_ns:
                retried_ns = now_ns
                self._store.flush()
            self._look_after_watchdog()

    def _look_at_board(self) -> None:
        root = self._board_root
        if root is not None:
            mode, locked = read_power_mode(root), clocks_locked(root)
            self.live.describe(power_mode=mode, clocks_locked=locked)

    def _write_blocks(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._store.add_block(self._sealed.get_nowait())

    def _prune(self) -> None:
        store = self.config.store
        samples_ns, runs_ns = int(store.samples_retention * 1e9), int(store.runs_retention * 1e9)
        self._store.prune(self._clock.wall_ns(), samples_ns, runs_ns)


def _free_bytes(directory: Path) -> int | None:
    """Return the free space for a user without privileges, or ``None``."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize

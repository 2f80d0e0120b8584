"""Output of the daemon for a person at a terminal; elsewhere, plain log lines."""

import contextlib
import json
import logging
import os
import sys
import threading
from datetime import datetime, timezone
from typing import TextIO

from ... import __version__
from ...collectors.base import Clock
from ...parsers.values import printable
from ..settings.config import Workload
from .service import Service


class _JsonFormatter(logging.Formatter):
    """One JSON object per record, as log collectors read it."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told)


class Console(logging.Handler):
    """Prints log lines and, on a terminal, one status line below them."""

    def __init__(
        self, stream: TextIO = sys.stderr, *, level: str = "info", as_json: bool = False
    ) -> None:
        """Handle the log of the whole process, from a level on."""
        super().__init__(level.upper())
        self._stream = stream
        self._watched = stream.isatty() and not as_json
        self._status = ""
        # The journal adds its own time stamps.
        stamp = "" if "JOURNAL_STREAM" in os.environ else "%(asctime)s "
        plain = logging.Formatter(f"{stamp}%(levelname)s %(message)s", "%H:%M:%S")
        self.setFormatter(_JsonFormatter() if as_json else plain)
        self._as_json = as_json
        root = logging.getLogger()
        root.addHandler(self)
        root.setLevel(level.upper())

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line above the status line."""
        line = self.format(record)
        if not self._as_json:
            line = printable(line)  # a worker's output may have escapes; JSON has none
        self._write(f"\r\033[K{line}\n{self._status}" if self._watched else f"{line}\n")

    def _write(self, text: str) -> None:
        # The reader may be gone (a pipe into head, a closed terminal); the daemon continues.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def show(self, status: str) -> None:
        """Replace the status line, cut to the width of the terminal."""
        with self.lock or threading.RLock():
            width = 80
            with contextlib.suppress(OSError, ValueError):
                width = os.get_terminal_size(self._stream.fileno()).columns or width
            self._status = _cut(status, width - 1)
            self._write(f"\r\033[K{self._status}")

    def follow(self, service: Service, stopping: threading.Event, clock: Clock) -> None:
        """Update the status line until the daemon stops; return at once without a terminal."""
        next_ns = clock.monotonic_ns()
        while self._watched and not clock.wait(stopping, next_ns):
            next_ns += 1_000_000_000
            self.show(status_line(service, clock.monotonic_ns()))

    def close(self) -> None:
        """Restore the terminal."""
        with self.lock or threading.RLock():
            if self._watched and self._status:
                self._status = ""
                self._write("\r\033[K")
        super().close()


def _cut(status: str, width: int) -> str:
    """Cut the middle, because the end says how to leave.

    >>> _cut("running resnet50 · next mobilenet · Ctrl-C ends", 30)
    'running resnet5… · Ctrl-C ends'
    """
    head, dot, end = status.rpartition(" · ")
    room = width - len(dot + end) - 1
    if len(status) <= width or not dot or room < 1:
        return status[:width]
    return f"{head[:room]}…{dot}{end}"


def status_line(service: Service, now_ns: int) -> str:
    """Return one line about the present runs and the next one."""
    states = service.live.snapshot.workloads.values()
    active = [state.workload for state in states if state.active_run]
    parts = [f"running {', '.join(active)}" if active else "idle"]
    soon = next((due for due in service.planned() if due.workload.name not in active), None)
    if soon is not None:
        seconds = max(0, round((soon.due_ns - now_ns) / 1e9))
        parts.append(f"next {soon.workload.name} in {seconds} s")
    parts.append("Ctrl-C ends")
    return " · ".join(parts)


def first_screen(service: Service, state_dir: os.PathLike[str]) -> list[str]:
    """Return the first lines for a person: page, sources, workloads."""
    config, telemetry = service.config, service.config.telemetry
    heading = f"tegrascope {__version__}"
    if service.live.snapshot.environment.simulated:
        heading += " · simulated: these figures are of no real board"
    lines = [
        heading,
        f"  page       {service.url}",
        f"  metrics    {service.url}metrics",
        f"  runs       {service.url}api/v1/runs",
        f"  telemetry  {telemetry.settings.summary()}, every {telemetry.interval:g} s",
        f"  state      {os.fspath(state_dir)}",
    ]
    if not config.workloads:
        lines.append("  workloads  none: telemetry only (add workloads: to the configuration)")
    for number, workload in enumerate(config.workloads):
        parts = (workload.name, workload.device, workload.backend_in_force, _start_of(workload))
        lines.append(f"  {'workloads' if number == 0 else '':10} {' · '.join(parts)}")
    return lines


def _start_of(workload: Workload) -> str:
    if workload.every is not None:
        first = f", first after {workload.offset:g} s" if workload.offset else ""
        return f"every {workload.every:g} s{first}"
    if workload.cron is not None:
        return f"cron {workload.cron}"
    return "marked by its application" if workload.is_window else "on demand"

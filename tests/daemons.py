"""A real daemon in a process of its own, started as a user starts it."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.processes import PATIENCE_SECONDS, Stopwatch

# What a daemon takes on newer Pythons beyond its limit on 3.11. The interpreter of 3.14 alone takes
# 2 MiB more, with the same libraries imported 5.5 MiB, and the daemon 7 MiB; on Debian's 3.13 the
# daemon takes 1.5 MiB more.
MORE_MIB = 0
if sys.version_info >= (3, 13):
    MORE_MIB = 2
if sys.version_info >= (3, 14):
    MORE_MIB = 8


class Daemon:
    """``tegrascope run`` on a free port; its log is in ``log``."""

    def __init__(
        self, config: Path, state_dir: Path, *arguments: str, within: Sequence[str] = ()
    ) -> None:
        self.config = config
        self.state_dir = state_dir
        self.log: list[str] = []
        self.process = subprocess.Popen(
            [
                *within,
                *(sys.executable, "-m", "tegrascope", "run", "-c", str(config)),
                *("--listen", "127.0.0.1:0", "--state-dir", str(state_dir), *arguments),
            ],
            stderr=subprocess.PIPE,
            text=True,
            cwd=state_dir.parent,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self._url = ""
        self._told = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            found = re.search(r"page +(https?://\S+/)", line)
            if found:
                self._url = found[1]
                self._told.set()
        self._told.set()

    @property
    def address(self) -> str:
        """Host and port, as Prometheus wants a target."""
        return self.url.removeprefix("http://").rstrip("/")

    @property
    def url(self) -> str:
        """Where the page is; waits for the daemon to say so."""
        assert self._told.wait(PATIENCE_SECONDS), self.log
        assert self._url, self.log
        return self._url

    def get(self, path: str, **headers: str) -> str:
        """Return the body of a page, whatever its status."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def json(self, path: str) -> Any:
        """Return a page of the API."""
        return json.loads(self.get(path))

    def metric(self, series: str, page: "str | None" = None) -> float | None:
        """Return the value of the first series whose text begins so, of a page or of a new one."""
        for line in (page or self.get("metrics")).splitlines():
            if line.startswith(series):
                return float(line.rpartition(" ")[2])
        return None

    def runs(self, **match: str) -> list[dict[str, Any]]:
        """Return finished runs, newest first, whose fields are as asked."""
        found = self.json("api/v1/runs")["runs"]
        return [run for run in found if all(run.get(key) == match[key] for key in match)]

    def wait_for(self, what: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Return what a question is answered, as soon as the answer is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                answer = what()
            except (OSError, http.client.HTTPException):
                answer = None  # no connection, no answer, or a process that is gone
            if answer:
                return answer
            assert self.process.poll() is None, self.log
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds} s in vain; the log: {self.log}")

    def children(self) -> dict[str, int]:
        """Return the daemon's child processes: command line to pid."""
        found = {}
        for path in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            pids = ""
            with contextlib.suppress(OSError):  # a thread that has just ended
                pids = path.read_text()
            for pid in pids.split():
                with contextlib.suppress(OSError):  # and a child
                    words = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                    found[words.strip()] = int(pid)
        return found

    def child(self, word: str) -> int | None:
        """Return the child whose command line holds a word."""
        return next((pid for line, pid in self.children().items() if word in line), None)

    def stop(self, number: int = signal.SIGTERM) -> float:
        """End the daemon; return how many seconds it took, as a ``Stopwatch`` counts them."""
        watch = Stopwatch()
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(PATIENCE_SECONDS / 2)
        took = watch.seconds
        self._reader.join(60)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return took


def until_measured(run_once: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Repeat a run until its energy is known, and return its record.

    A busy machine may lose the samples around a run. Then its energy is withheld, and its flag says
    so.
    """
    for _ in range(10):
        run = run_once()
        if "gross_joules" in run.get("energy", {}):
            return run
        assert "telemetry_gap" in run["quality"], run
    raise AssertionError(f"no energy in ten runs, the last one: {run}")


@pytest.fixture
def start(tmp_path: Path, model_cache: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons from the text of a configuration; they share one state directory.

    A ``conftest.py`` imports this.
    ``within`` is a program that runs the daemon, as ``unshare`` does.
    """
    state = tmp_path / "state"
    state.mkdir()
    (state / "models").symlink_to(model_cache)
    started: list[Daemon] = []

    def begin(config: str, *arguments: str, within: Sequence[str] = ()) -> Daemon:
        path = tmp_path / "tegrascope.yaml"
        path.write_text(config)
        started.append(Daemon(path, state, *arguments, within=within))
        return started[-1]

    yield begin
    for daemon in started:
        daemon.stop(signal.SIGKILL)

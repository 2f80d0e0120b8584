"""Servers in processes of their own; each picks a free port itself and says which in its log."""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.fakes.processes import PATIENCE_SECONDS

Answer = TypeVar("Answer")

LISTENING = re.compile(r'msg="?Listening on"? address=\S*?:(\d+)')


def needs(package: str, *programs: str) -> pytest.MarkDecorator:
    """Mark tests that are skipped where a program is not installed."""
    return pytest.mark.skipif(
        not all(map(shutil.which, programs)),
        reason=f"{package} is not installed: apt install {package}",
    )


needs_prometheus = needs("prometheus", "prometheus", "promtool")
needs_alertmanager = needs("prometheus-alertmanager", "prometheus-alertmanager", "amtool")


def wait_for(
    what: Callable[[], Answer], seconds: float = PATIENCE_SECONDS, told: object = ""
) -> Answer:
    """Return what a question is answered, as soon as the answer is true.

    Args:
        what: The question; an ``OSError`` of it is no answer.
        seconds: After which it is an error that there is none.
        told: What the error shows.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            answer = what()
        except OSError:
            answer = None  # type: ignore[assignment]
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s in vain; {told}")


class Server:
    """A program that serves HTTP on loopback.

    Attributes:
        port: Where; the same after ``restart``.
        log: The file with all that it printed.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        opener: urllib.request.OpenerDirector | None = None,
        scheme: str = "http",
    ) -> None:
        """Start it.

        Args:
            command: Program and arguments but for ``--web.listen-address``.
            log: Where its output goes.
            opener: How it is asked, where that takes a certificate or a password.
            scheme: ``https`` where its own web configuration wants it.
        """
        self._opener = opener or urllib.request.build_opener()
        self._scheme = scheme
        self.log = log
        self.port = 0
        self._command = command
        self._start()

    def _start(self) -> None:
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [*self._command, f"--web.listen-address=127.0.0.1:{self.port}"],
                stdout=log,
                stderr=log,
            )
        try:
            self.port = wait_for(lambda: self._listens(begin), told=self.log)
            wait_for(lambda: self.get("-/ready"), told=self.log)
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def _listens(self, begin: int) -> int | None:
        text = self.log.read_text(encoding="utf-8")[begin:]
        assert self.process.poll() is None, text
        found = LISTENING.search(text)
        return None if found is None else int(found[1])

    @property
    def address(self) -> str:
        """Host and port, as a target of a configuration."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where it is asked."""
        return f"{self._scheme}://{self.address}/"

    def get(self, path: str, **parameters: str) -> str:
        """Return the body of a page.

        Raises:
            OSError: It does not answer, or with an error.
        """
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with self._opener.open(url, timeout=60) as answer:
            return str(answer.read().decode())

    def json(self, path: str, **parameters: str) -> Any:
        """Return a page, read as JSON."""
        return json.loads(self.get(path, **parameters))

    def post(self, path: str) -> None:
        """Ask for something to be done, as ``-/reload``."""
        request = urllib.request.Request(self.url + path, method="POST")
        with self._opener.open(request, timeout=60):
            pass

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        """Start it again after ``stop``: same port, same data."""
        self._start()

"""A simulated fleet in a process of its own, a target that counts its scrapes, and remote write."""

import http.server
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from .servers import wait_for

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class SimulatedFleet:
    """The simulated fleet on a free port.

    Attributes:
        address: Host and port.
        url: Where it is, with a slash at its end.
    """

    def __init__(self, count: int, log: Path, seconds: float = 60.0) -> None:
        self.log = log
        with log.open("w") as told:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tools.fleet"),
                    *("--size", str(count), "--listen", "127.0.0.1:0"),
                ],
                stderr=told,
                cwd=Path(__file__).parents[2],
                env={**os.environ, "PYTHONWARNINGS": "error"},
            )
        try:
            wait_for(lambda: f"all {count} devices" in self._told(), seconds, log)
        except BaseException:
            self.stop()
            raise
        found = re.search(r"targets +(http://(\S+)/)sd", self._told())
        assert found is not None, self._told()
        self.url, self.address = found[1], found[2]

    def _told(self) -> str:
        assert self.process.poll() is None, self.log.read_text()
        return self.log.read_text()

    def get(self, path: str, **headers: str) -> str:
        """Return the body of a page."""
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def stop(self) -> int:
        """End it, and return its status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class PageTarget:
    """A target whose page is made anew for each scrape.

    Attributes:
        pages: How many were made until now.
        address: Host and port.
    """

    def __init__(self, make: Callable[[], str], content_type: str = "text/plain") -> None:
        self.pages = 0
        target = self

        class Handler(http.server.BaseHTTPRequestHandler):
            """Make a page, and count it."""

            def do_GET(self) -> None:
                target.pages += 1
                body = make().encode()
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


class CountingTarget(PageTarget):
    """A device's page with one more counter: how often this page was scraped."""

    def __init__(self, page: str) -> None:
        def make() -> str:
            asked = urllib.request.Request(page, headers={"Accept": OPENMETRICS})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                text = answer.read().decode().removesuffix("# EOF\n")
            return f"{text}# TYPE scrapes counter\nscrapes_total {self.pages}\n# EOF\n"

        super().__init__(make, f"{OPENMETRICS}; charset=utf-8")

    @property
    def scrapes(self) -> int:
        """How often it was scraped until now."""
        return self.pages


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFleet]:
    """Six simulated devices."""
    made = SimulatedFleet(6, tmp_path_factory.mktemp("fleet") / "fleet.log")
    yield made
    made.stop()


def write_request(labels: Mapping[str, str], value: float, wall_ms: int) -> bytes:
    """Return one sample as a remote write of Prometheus has it: protobuf in snappy."""
    import struct

    pairs = b"".join(
        _bytes(1, _bytes(1, name.encode()) + _bytes(2, text.encode()))
        for name, text in sorted(labels.items())
    )
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(wall_ms)
    plain = _bytes(1, pairs + _bytes(2, sample))
    # Snappy's block format without any compression: the length, then one literal of up to 64 kB.
    return _varint(len(plain)) + b"\xf4" + struct.pack("<H", len(plain) - 1) + plain


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)

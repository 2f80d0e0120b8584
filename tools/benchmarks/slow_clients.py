"""What slow clients cost the daemon, and whether it goes on working: memory, scrapes, samples.

Four kinds of clients, the same number of each, connect to the daemon's port: silent ones; ones that
send a byte of a header per second; over TLS, ones that stop in the middle of the handshake, and
ones that finish it and then send a byte per second. Meanwhile the page is scraped, each time over
a connection of its own. The daemon runs the simulated board at ten samples per second.

    python tools/benchmarks/slow_clients.py          # plain and TLS, half a minute each
    python tools/benchmarks/slow_clients.py --clients 4000 --kind TLS
"""

import argparse
import json
import re
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

HEADER = b"GET /metrics HTTP/1.1\r\nX-Slow: "
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
CONFIG = """telemetry: {source: simulator, interval: 100ms, simulator: {seed: 3}}
workloads:
- {name: short, command: "true", device: cpu, every: 5s, baseline: 0s, duration: 1s}
"""
# As systemd starts it.
LIMITED = ("sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh")


@dataclass
class Daemon:
    """The daemon and how it is reached."""

    pid: int
    address: tuple[str, int]
    context: "ssl.SSLContext | None"

    def memory(self, what: str) -> float:
        """Return ``VmRSS`` or ``VmHWM`` in MiB."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        return int(dict(line.split(":", 1) for line in text.splitlines())[what].split()[0]) / 1024

    def get(self, path: str) -> bytes:
        """Return an answer, asked for over a new connection."""
        peer = (
            HTTPConnection(*self.address, timeout=30)
            if self.context is None
            else HTTPSConnection(*self.address, timeout=30, context=self.context)
        )
        with closing(peer):
            peer.request("GET", path)
            return peer.getresponse().read()

    def samples(self) -> float:
        """Return the number of samples since the start."""
        found = re.search(rb"^tegrascope_samples_total\S* (\S+)", self.get("/metrics"), re.M)
        return float(found[1]) if found else 0.0


@dataclass
class Scrapes:
    """Scrapes while the clients are there."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def scrape(self, daemon: Daemon) -> None:
        """Scrape once."""
        begin = time.perf_counter()
        try:
            daemon.get("/metrics")
        except (OSError, HTTPException):
            self.failed += 1
        self.seconds.append(time.perf_counter() - begin)


class SlowClients:
    """Connections that send a byte per second, or nothing."""

    def __init__(self, daemon: Daemon, stack: ExitStack) -> None:
        self._daemon = daemon
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._stack = stack

    def __len__(self) -> int:
        """Return how many are connected."""
        return len(self._selector.get_map())

    def add(self, number: int) -> None:
        """Connect one of the kinds."""
        peer: socket.socket = socket.create_connection(self._daemon.address, timeout=10)
        over_tls, drips = self._daemon.context is not None, number % 2 == 1
        with suppress(OSError):
            if over_tls and number % 4 == 3:
                assert self._daemon.context is not None
                peer = self._daemon.context.wrap_socket(peer, server_hostname="localhost")
                peer.sendall(HEADER)
            elif drips:
                peer.sendall(HELLO if over_tls else HEADER)
        peer.setblocking(False)
        self._stack.enter_context(peer)
        if peer.fileno() >= 0:
            self._selector.register(peer, selectors.EVENT_READ, drips)

    def go_on(self, seconds: float) -> None:
        """Note disconnections for a while, then send a byte on each connection that drips."""
        until = time.monotonic() + seconds
        while len(self) and (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    gone = not key.fileobj.recv(4096)
                except (BlockingIOError, ssl.SSLWantReadError):
                    gone = False
                except OSError:
                    gone = True
                if gone:
                    self._selector.unregister(key.fileobj)
        for key in [*self._selector.get_map().values()]:
            if key.data:
                assert isinstance(key.fileobj, socket.socket)
                with suppress(OSError):
                    key.fileobj.send(b"x")


@contextmanager
def started(kind: str) -> Iterator[Daemon]:
    """Start the daemon, with TLS or without."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "tegrascope.yaml").write_text(CONFIG)
        arguments: tuple[str, ...] = ()
        context = None
        if kind == "TLS":
            _make_certificate(folder)
            (folder / "web.yml").write_text(
                "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
            )
            arguments = ("--web.config.file", str(folder / "web.yml"))
            context = ssl.create_default_context(cafile=folder / "server.pem")
        command = [
            *(*LIMITED, sys.executable, "-m", "tegrascope", "run", "-c"),
            *(str(folder / "tegrascope.yaml"), "--listen", "127.0.0.1:0"),
            *("--state-dir", str(folder / "state"), *arguments),
        ]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/")
        assert process.stderr is not None
        try:
            found = None
            for line in process.stderr:
                found = re.search(r"page +https?://(\S+):([0-9]+)/", line)
                if found:
                    break
            if found is None:
                sys.exit("slow_clients.py: the daemon did not start")
            yield Daemon(process.pid, (found[1], int(found[2])), context)
        finally:
            process.terminate()
            process.communicate()


def _make_certificate(folder: Path) -> None:
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-keyout", folder / "server.key", "-out", folder / "server.pem"),
        ],
        check=True,
        capture_output=True,
    )


def measure(kind: str, count: int) -> None:
    """Print a row."""
    with started(kind) as daemon, ExitStack() as stack:
        while not (samples := daemon.samples()):
            time.sleep(0.1)
        time.sleep(5.0)
        before, runs = daemon.memory("VmRSS"), _runs(daemon)
        samples, begin = daemon.samples(), time.monotonic()
        clients, scrapes = SlowClients(daemon, stack), Scrapes()
        for number in range(count):
            clients.add(number)
            if number % 50 == 49:
                scrapes.scrape(daemon)
        connected = time.monotonic()
        while len(clients) and time.monotonic() < connected + 60:
            scrapes.scrape(daemon)
            clients.go_on(1.0)
        gone = time.monotonic() - connected
        time.sleep(max(0.0, begin + 15 - time.monotonic()))
        rate = (daemon.samples() - samples) / (time.monotonic() - begin)
        more = f"{daemon.memory('VmHWM') - before:8.1f}{daemon.memory('VmRSS') - before:8.1f}"
        slowest = max(scrapes.seconds) * 1000
        print(
            f"{kind:6}{count:8d}{before:8.1f}{more}{len(scrapes.seconds):8d}{scrapes.failed:8d}"
            f"{slowest:9.0f} ms{gone:8.1f} s{rate:9.2f}{_runs(daemon) - runs:6d}",
            flush=True,
        )


def _runs(daemon: Daemon) -> int:
    return len(json.loads(daemon.get("/api/v1/runs?limit=1000"))["runs"])


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1100, help="default: %(default)s")
    parser.add_argument("--kind", choices=("plain", "TLS"), help="default: both, one by one")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(
        f"{'':6}{'clients':>8}{'RSS':>8}{'+peak':>8}{'+after':>8}{'scrapes':>8}{'failed':>8}"
        f"{'slowest':>12}{'all gone':>10}{'samples/s':>9}{'runs':>6}"
    )
    for kind in (arguments.kind,) if arguments.kind else ("plain", "TLS"):
        measure(kind, arguments.clients)
    print("\nRSS in MiB: before the clients, and how much more at most and after they are gone.")


if __name__ == "__main__":
    main()

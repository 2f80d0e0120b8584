"""How long a scrape takes: tegrascope's page beside node_exporter's, in turns, on one machine.

Both serve plain HTTP on the loopback. A client keeps its connection, as Prometheus does, and asks
again as soon as it has its answer; one thread plays them all, and times each scrape from the first
byte of the question to the last of the answer. The daemon runs the simulated board of the demo, and
``--runs`` its workloads too.

    python tools/benchmarks/scrape.py                     # half a minute
    python tools/benchmarks/scrape.py --scrapes 2000 --runs
"""

import argparse
import gzip
import os
import platform
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

CLIENTS = (1, 16)
QUESTION = b"\r\n".join(
    (
        b"GET /metrics HTTP/1.1",
        b"Host: localhost",
        b"Accept-Encoding: gzip",
        b"Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
        b"User-Agent: scrape.py\r\n\r\n",
    )
)
TELEMETRY = "telemetry: {source: simulator, simulator: {seed: 3}}\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)


@dataclass
class Exporter:
    """One of the two.

    Attributes:
        name: Of the program.
        process: It.
        address: Where its page is.
        seconds: Of each scrape, by the number of clients.
    """

    name: str
    process: "subprocess.Popen[str]"
    address: tuple[str, int]
    seconds: dict[int, list[float]] = field(default_factory=lambda: {one: [] for one in CLIENTS})

    def memory(self, what: str) -> float:
        """Return ``VmRSS`` or ``VmHWM`` in MiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(dict(line.split(":", 1) for line in text.splitlines())[what].split()[0]) / 1024

    def page(self) -> bytes:
        """Return the page, unpacked."""
        with Client(self.address) as client:
            client.ask()
            while not client.take():
                pass
            return gzip.decompress(client.body) if client.body[:2] == b"\x1f\x8b" else client.body


class Client:
    """A connection that asks for the page, again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.peer = socket.create_connection(address, timeout=30)
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin = 0.0
        self.body = b""
        self._got = b""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def ask(self) -> None:
        """Send the question."""
        self._got = b""
        self.begin = time.perf_counter()
        self.peer.sendall(QUESTION)

    def take(self) -> bool:
        """Take what has come; say whether the answer is whole."""
        data = self.peer.recv(1 << 20)
        if not data:
            raise ConnectionError("the exporter closed the connection")
        self._got += data
        head, blank, body = self._got.partition(b"\r\n\r\n")
        if not blank:
            return False
        if not head.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"the exporter answered {head[:40]!r}")
        length = _LENGTH.search(head + b"\r\n")
        if length is None:  # chunks, of which the last is empty
            whole = body.endswith(b"0\r\n\r\n")
            self.body = b"".join(_chunks(body)) if whole else b""
            return whole
        self.body = body
        return len(body) >= int(length[1])


def _chunks(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, rest = body.partition(b"\r\n")
        count = int(size, 16)
        yield rest[:count]
        body = rest[count + 2 :]


def scrape(exporter: Exporter, clients: int, count: int) -> list[float]:
    """Return the seconds of so many scrapes by so many clients at once."""
    took: list[float] = []
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(clients):
            client = stack.enter_context(Client(exporter.address))
            selector.register(client.peer, selectors.EVENT_READ, client)
            client.ask()
        while len(took) < count:
            for key, _ in selector.select():
                if key.data.take():
                    took.append(time.perf_counter() - key.data.begin)
                    key.data.ask()
    return took[:count]


@contextmanager
def tegrascope(*, runs: bool) -> Iterator[Exporter]:
    """Start the daemon."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "tegrascope.yaml"
        config.write_text(TELEMETRY)
        what = ("--demo",) if runs else ("-c", str(config))
        command = [sys.executable, "-m", "tegrascope", "run", *what]
        process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0", "--state-dir", f"{directory}/state"],
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert process.stderr is not None
        try:
            found = None
            for line in process.stderr:
                found = re.search(r"page +http://(\S+):([0-9]+)/", line)
                if found:
                    break
            if found is None:
                sys.exit("scrape.py: the daemon did not start")
            yield Exporter("tegrascope", process, (found[1], int(found[2])))
        finally:
            process.terminate()
            process.communicate()


@contextmanager
def node_exporter() -> Iterator[Exporter]:
    """Start the neighbour, with the collectors that it has by default."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    process = subprocess.Popen(
        ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{address[1]}"],
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        for _ in range(200):
            try:
                socket.create_connection(address, 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield Exporter("node_exporter", process, address)
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    """Scrape in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scrapes", type=int, default=500, help="of each (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="of turns (default: %(default)s)")
    parser.add_argument("--runs", action="store_true", help="run the demo's workloads meanwhile")
    arguments = parser.parse_args()
    each = max(1, arguments.scrapes // arguments.rounds)
    with ExitStack() as stack:
        exporters = [stack.enter_context(tegrascope(runs=arguments.runs))]
        if shutil.which("prometheus-node-exporter"):
            exporters.append(stack.enter_context(node_exporter()))
        else:
            print("without node_exporter: apt install prometheus-node-exporter", file=sys.stderr)
        while b"tegra_ram_used_bytes" not in exporters[0].page():
            time.sleep(0.1)
        time.sleep(2)
        for _ in range(arguments.rounds):
            for clients in CLIENTS:
                for exporter in exporters:
                    exporter.seconds[clients] += scrape(exporter, clients, each)
        tell(exporters)
    return 0


def tell(exporters: list[Exporter]) -> None:
    """Print what was measured."""
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, CPython", end=" ")
    print(f"{platform.python_version()}, {len(exporters[0].seconds[1])} scrapes each, in turns\n")
    columns = [f"{count:2d} client(s): p50, p99" for count in CLIENTS]
    print(f"{'':14}{columns[0]:>24}{columns[1]:>24}{'series':>8}{'bytes':>8}{'RSS':>7}{'peak':>7}")
    for one in exporters:
        page = one.page()
        series = sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))
        print(f"{one.name:14}", end="")
        for clients in CLIENTS:
            cut = quantiles(one.seconds[clients], n=100)
            print(f"{cut[49] * 1000:13.2f} {cut[98] * 1000:7.2f} ms", end="")
        print(f"{series:8d}{len(page):8d}{one.memory('VmRSS'):7.1f}{one.memory('VmHWM'):7.1f}")
    print("\nRSS and peak: resident MiB of the process itself, at the end and at most.")


if __name__ == "__main__":
    sys.exit(main())

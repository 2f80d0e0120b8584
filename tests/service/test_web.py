"""A real daemon with 1,100 slow clients, and with clients over TLS."""

import contextlib
import http.client
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tegrascope
from tegrascope.collectors.application.client import ApiClient
from tegrascope.parsers.errors import UserError
from tests.daemons import MORE_MIB
from tests.fakes.processes import PATIENCE_SECONDS, Stopwatch, until
from tests.monitoring.servers import needs_prometheus

from ..web.web_files import make_pair, needs_openssl, tls, users

PEERS = 1100
CONFIG = """
telemetry: {source: simulator, interval: 200ms, simulator: {seed: 3}}
workloads:
- {name: outside, backend: window, device: external}
"""
# As systemd starts it.
SOFT_LIMIT = ("sh", "-c", 'ulimit -Sn 1024 && exec "$@"', "sh")


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow this process as many sockets as the clients need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = PEERS + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"needs {needed} open files: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def scrape(daemon: Any, context: "ssl.SSLContext | None") -> None:
    """Request the page over a new connection, which takes less than ten seconds."""
    watch = Stopwatch()
    where = urllib.parse.urlsplit(daemon.url)
    peer = (
        http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        if context is None
        else http.client.HTTPSConnection(where.hostname, where.port, timeout=60, context=context)
    )
    with closing(peer):
        peer.request("GET", "/metrics")
        answer = peer.getresponse()
        assert answer.status == 200
        assert b"tegrascope_build_info" in answer.read()
    assert watch.seconds < 10


def files_of(daemon: Any) -> int:
    return sum(1 for _ in Path(f"/proc/{daemon.process.pid}/fd").iterdir())


def memory_of(daemon: Any, field: str) -> int:
    """Return a field of the daemon's memory in KiB."""
    text = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(dict(line.split(":", 1) for line in text.splitlines())[field].split()[0])


@needs_openssl
@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(("kind", "most_mib"), [("plain", 32), ("TLS", 64)])
def test_1100_slow_clients_cost_little_and_stop_nothing(start, tmp_path, kind, most_mib):
    """Half of them send a byte per second, half nothing; all are disconnected after 10 s."""
    context, greeting, arguments = None, b"GET /metrics HT", ()
    if kind == "TLS":
        make_pair(tmp_path, "server")
        (tmp_path / "web.yml").write_text(tls())
        context = ssl.create_default_context(cafile=tmp_path / "server.pem")
        greeting = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        arguments = ("--web.config.file", str(tmp_path / "web.yml"))
    daemon = start(CONFIG, *arguments, within=SOFT_LIMIT)
    where = urllib.parse.urlsplit(daemon.url)
    scrape(daemon, context)
    before = memory_of(daemon, "VmRSS")
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for number in range(PEERS):
            peer = stack.enter_context(
                socket.create_connection((where.hostname, where.port), timeout=60)
            )
            if number % 2:
                peer.send(greeting)
            selector.register(peer, selectors.EVENT_READ)
            if number % 100 == 99:
                scrape(daemon, context)
        until = time.monotonic() + PATIENCE_SECONDS
        while selector.get_map() and time.monotonic() < until:
            scrape(daemon, context)
            assert files_of(daemon) < 200
            for key, _ in selector.select(1.0):
                with contextlib.suppress(ConnectionError):
                    if key.fileobj.recv(4096):
                        continue
                selector.unregister(key.fileobj)
            for key in [*selector.get_map().values()][::2]:
                with contextlib.suppress(ConnectionError):
                    key.fileobj.send(b"T")
        assert not selector.get_map()
    assert memory_of(daemon, "VmHWM") < before + most_mib * 1024
    scrape(daemon, context)
    assert not [line for line in daemon.log if "rror" in line]


@pytest.fixture
def guarded(start, tmp_path, monkeypatch) -> Any:
    """A daemon with TLS and a user, and the environment for its own clients."""
    make_pair(tmp_path, "server")
    (tmp_path / "web.yml").write_text(tls() + users())
    daemon = start(CONFIG + f"http: {{web_config_file: {tmp_path / 'web.yml'}}}\n")
    monkeypatch.setenv("TEGRASCOPE_URL", daemon.url)
    monkeypatch.setenv("TEGRASCOPE_CA_FILE", str(tmp_path / "server.pem"))
    monkeypatch.setenv("TEGRASCOPE_TOKEN_FILE", str(tmp_path / "state" / "token"))
    return daemon


@needs_openssl
def test_own_clients_reach_a_guarded_daemon(guarded, monkeypatch, tmp_path):
    """Windows, ``exec`` and tables work over TLS, by the token alone or by a password."""
    assert guarded.url.startswith("https://")
    with tegrascope.window("outside", device="external", strict=True, period=0.2) as marks:
        marks.count(1)
    command = [sys.executable, "-m", "tegrascope", "exec", "--workload", "outside"]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", "print('hello')"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=180,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "outside on external: ok" in done.stderr
    client = ApiClient(guarded.url.replace("https://", "https://prom:pw@"))
    assert until(lambda: len(client.get("/api/v1/runs")["runs"]) >= 2)
    found = client.get("/api/v1/runs")["runs"]
    assert {run["workload"] for run in found} == {"outside"}
    assert memory_of(guarded, "VmRSS") < (56 + MORE_MIB) * 1024
    (tmp_path / "another").write_text("another\n")
    monkeypatch.setenv("TEGRASCOPE_TOKEN_FILE", str(tmp_path / "another"))
    with pytest.raises(UserError, match="does not take this token"):
        ApiClient(guarded.url).post("/api/v1/windows", b"{}")


@needs_openssl
@needs_prometheus
def test_prometheus_scrapes_a_guarded_daemon(guarded, monitoring, tmp_path):
    """A real Prometheus with ``scheme: https``, a CA and a password sees the target up."""
    target = urllib.parse.urlsplit(guarded.url).netloc
    common = {
        "scheme": "https",
        "tls_config": {"ca_file": str(tmp_path / "server.pem")},
        "static_configs": [{"targets": [target]}],
    }
    jobs = [
        {"job_name": name, "basic_auth": {"username": "prom", "password": password}, **common}
        for name, password in (("good", "pw"), ("wrong", "no"))
    ]
    settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    prometheus = monitoring.prometheus(settings)
    refused = "server returned HTTP status 401 Unauthorized"

    def health() -> "dict[str, tuple[str, str]]":
        targets = prometheus.ask("targets")["activeTargets"]
        return {one["labels"]["job"]: (one["health"], one["lastError"]) for one in targets}

    guarded.wait_for(lambda: health() == {"good": ("up", ""), "wrong": ("down", refused)})


@needs_openssl
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "tls_server_confg: {}",
            "web.yml:1: tls_server_confg: unknown key; did you mean tls_server",
        ),
        (tls(name="none"), "web.yml:1: tls_server_config.cert_file: none.pem: No such file"),
    ],
)
def test_bad_file_is_refused_at_the_start(tmp_path, text, said):
    (tmp_path / "web.yml").write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tegrascope", "run", "--web.config.file", "web.yml"),
            *("--listen", "127.0.0.1:0", "--state-dir", "state"),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=180,
        check=False,
    )
    assert done.returncode == 78
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr

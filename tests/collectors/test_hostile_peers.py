"""Every client that reads a peer over HTTP ends with one clear line, whatever the peer sends."""

import itertools
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

import pytest

from tegrascope.collectors.application.client import ApiClient
from tegrascope.collectors.application.lock_in import lock_in
from tegrascope.collectors.application.window import window
from tegrascope.collectors.board.machine import Machine
from tegrascope.collectors.http_peer import (
    HttpPeer,
    OversizeError,
    PeerLimits,
    Secrets,
    header_secrets,
)
from tegrascope.daemon.export.otlp_sender import Sender
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.events import Order
from tegrascope.workbench.tables.frames import served_runs
from tegrascope.workbench.top.client import DaemonClient
from tests.export.test_otlp import a_page
from tests.fakes.hostile_peer import MODES, HostilePeer
from tests.fakes.worker_runs import finished, run
from tests.web.web_files import make_pair, needs_openssl

SECONDS = 0.3
# What the clients may read, and what the two ends of a connection may keep beyond that.
LARGEST_BYTES, BUFFERED_BYTES = 16 << 20, 16 << 20


def _api(peer: HostilePeer) -> str:
    client = ApiClient(
        peer.url, timeout_seconds=SECONDS, whole_seconds=SECONDS, largest_bytes=LARGEST_BYTES
    )
    with pytest.raises(UserError) as caught:
        client.get("/api/v1/status")
    return str(caught.value)


def _top(peer: HostilePeer) -> str:
    client = ApiClient(
        peer.url, timeout_seconds=SECONDS, whole_seconds=SECONDS, largest_bytes=LARGEST_BYTES
    )
    with pytest.raises(UserError) as caught:
        DaemonClient(client).ask()
    return str(caught.value)


def _scrape(peer: HostilePeer) -> str:
    return _of_worker("counter", unit="token", scrape={"url": peer.url, "timeout": SECONDS})


def _server(peer: HostilePeer) -> str:
    server = {"url": peer.url, "timeout": SECONDS, "model": "small", "max_tokens": 4}
    return _of_worker("openai", count=1, server=server)


def _of_worker(backend: str, **more: object) -> str:
    order = {
        "run_id": "r1",
        "backend": backend,
        "device": "external",
        "model_directory": ".",
        **({} if "count" in more else {"duration_seconds": 0.1}),
        **more,
    }
    end = finished(run(Order.model_validate(order)))
    assert end.outcome == "failed"
    return end.reason


def _otlp(peer: HostilePeer) -> str:
    sender = Sender({"endpoint": peer.url, "instance": "r", "attempt_seconds": SECONDS})
    end, problem, _ = sender.send(a_page())
    assert end is None
    return problem


def _doctor(peer: HostilePeer) -> str:
    address = urlsplit(peer.url)
    answer = Machine().get(address.hostname, address.port, "/healthz", SECONDS)
    # An answer of any status and text is a finding of its own; its length is bounded.
    assert len(answer.out) <= 1 << 18
    return f"{peer.url} {answer.status or answer.message}"


CLIENTS: dict[str, Callable[[HostilePeer], str]] = {
    "API": _api,
    "top": _top,
    "scrape": _scrape,
    "server": _server,
    "OTLP": _otlp,
    "doctor": _doctor,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", CLIENTS)
def test_client_of_a_hostile_peer_ends_with_one_line(client, mode):
    """It names the peer, holds no control character, and reads no more than its bound."""
    with HostilePeer(mode) as peer:
        problem = CLIENTS[client](peer)
    assert not peer.gave_up
    assert peer.sent_bytes <= LARGEST_BYTES + BUFFERED_BYTES
    assert peer.url in problem
    assert problem.isprintable()
    assert len(problem) < 600
    assert "Traceback" not in problem


ODD_DOCUMENTS = (
    b"3",
    b"null",
    b"[]",
    b"{}",
    b'"text"',
    b'{"status": 1, "runs": 3, "workloads": {"a": 1}, "time": "now", "run_id": [], "enough": 1}',
    b'{"runs": [3], "workloads": [[]], "time": Infinity, "run_id": 1, "steps_seconds": [-1, "a"]}',
    b'{"runs": [{"run_id": {}}], "run_id": 1, "steps_seconds": [1e300], "enough": {"seconds": []}}',
    b'{"runs": {"run_id": 1}, "run_id": 1, "steps_seconds": [NaN], "timeout_seconds": -1}',
)


def _read_top(url: str, _: object) -> None:
    DaemonClient(ApiClient(url)).ask()


def _read_runs(url: str, _: object) -> None:
    list(served_runs(url))


def _read_window(url: str, token: object) -> None:
    window("w", url=url, token_file=token, strict=True).start()


def _read_lock_in(url: str, token: object) -> None:
    with lock_in("w", 5.0, url=url, token_file=token):
        pass


@pytest.mark.parametrize("document", ODD_DOCUMENTS)
@pytest.mark.parametrize("read", [_read_top, _read_runs, _read_window, _read_lock_in])
def test_document_of_another_shape_is_an_error_with_the_address(tmp_path, read, document):
    token = tmp_path / "token"
    token.write_text("secret\n")
    with _Echo(b"200 OK", document) as url:
        with pytest.raises(UserError, match="does not answer as a daemon") as caught:
            read(url, token)
        assert url in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_daemon_that_never_ends_its_runs_is_an_error():
    """Each page is full of runs that nobody has seen."""
    numbers = itertools.count()

    def page() -> bytes:
        runs = [{"run_id": str(next(numbers)), "started_wall_ns": 5} for _ in range(1000)]
        return json.dumps({"runs": runs}).encode()

    with _Echo(b"200 OK", page) as url, pytest.raises(UserError, match="over 2500 runs"):
        list(served_runs(url, most_runs=2500))


def test_values_that_the_screen_cannot_show_are_an_error_with_the_address():
    answer = {"workloads": [], "time": 5, "runs": [], "samples": [], "total_rails": []}
    body = json.dumps({**answer, "sources": [{"up": True}], "companions": 3}).encode()
    with _Echo(b"200 OK", body) as url:
        argv = (sys.executable, "-m", "tegrascope", "top", "--once", "--url", url)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tegrascope: {url} does not answer as a daemon")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("document", [b"[]", b'{"run_id": "r1"}'])
def test_exec_with_an_odd_daemon_runs_its_program_and_says_so(tmp_path, document):
    token = tmp_path / "token"
    token.write_text("secret\n")
    with _Echo(b"200 OK", document) as url:
        where = ("--url", url, "--token-file", str(token))
        argv = (sys.executable, "-m", "tegrascope", "exec", "--workload", "w", *where)
        done = subprocess.run(
            (*argv, "--", "sh", "-c", "exit 7"), capture_output=True, text=True, check=False
        )
    assert done.returncode == 7
    assert "does not answer as a daemon of this version does" in done.stderr
    assert "Traceback" not in done.stderr


def test_redirect_takes_no_secret_elsewhere(tmp_path):
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer SECRETKEY\n")
    with HostilePeer("redirect") as peer:
        settings = {"endpoint": peer.url, "instance": "r", "attempt_seconds": SECONDS}
        Sender({**settings, "headers_file": str(file)}).send(a_page())
        assert len(peer.requests) == 1


@needs_openssl
@pytest.mark.parametrize("mode", ["endless body", "endless 100", "drip of header", "drip of body"])
def test_bounds_hold_over_tls(tmp_path, monkeypatch, mode):
    make_pair(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    monkeypatch.setenv("TEGRASCOPE_CA_FILE", str(tmp_path / "server.pem"))
    with HostilePeer(mode, context) as peer:
        problem = _api(peer)
    assert not peer.gave_up
    assert "timed out" in problem or "more than" in problem


def test_server_that_never_begins_tls_is_an_error():
    with HostilePeer("drip of body") as peer:
        url = peer.url.replace("http:", "https:")
        client = ApiClient(url, timeout_seconds=SECONDS, whole_seconds=SECONDS)
        with pytest.raises(UserError, match=url):
            client.get("/")
    assert not peer.gave_up


def test_host_name_that_cannot_be_resolved_is_an_error_of_the_connection():
    peer = HttpPeer(urlsplit(f"http://{'a' * 70}.example"), PeerLimits(SECONDS))
    with pytest.raises(OSError, match="is not a host name"):
        peer.ask("GET", "/")


@pytest.mark.parametrize("mode", ["endless 100", "endless header"])
def test_header_has_a_bound_of_its_own(mode):
    """From 3.14 on, Python itself counts interim answers."""
    limits = PeerLimits(seconds=60, header_bytes=4096, body_bytes=1 << 30)
    with (
        HostilePeer(mode) as server,
        HttpPeer(urlsplit(server.url), limits) as peer,
        pytest.raises((OversizeError, HTTPException), match=r"4 KiB of header|interim"),
    ):
        peer.ask("GET", "/")


def test_secrets_are_covered_in_each_form_that_a_peer_may_repeat():
    secrets = Secrets(['a/b "c', "abc"])
    assert secrets.cover('a/b "c, a%2Fb%20%22c, a/b \\"c, abc') == f"{'[secret], ' * 3}abc"
    assert secrets.cover_bytes(b'x a/b "c') == b"x [secret]"
    basic = header_secrets({"Authorization": "Basic dXNlcjpwYXNzd29yZA==", "X-Scope-OrgID": "lab"})
    text = "dXNlcjpwYXNzd29yZA== user:password password lab"
    assert basic.cover(text) == "[secret] [secret] [secret] lab"


def test_key_that_a_server_repeats_is_in_no_event(tmp_path):
    """It is covered in errors, in events of a stream and in lines of a page."""
    key = tmp_path / "key"
    key.write_text("SECRETKEY\n")
    error = b'data: {"error": {"message": "' + b"x" * 195 + b'SECRETKEY is bad"}}\n\n'
    bodies = {
        "openai": (b"401 No", b"the key SECRETKEY is bad"),
        "openai event": (b"200 OK", error),
        "counter": (b"401 SECRETKEY", b"the key SECRETKEY is bad"),
        "counter page": (b"200 OK", b'done{key="SECRETKEY"} SECRETKEY\n'),
    }
    for name, (status, body) in bodies.items():
        with _Echo(status, body) as url:
            access: dict[str, Any] = {"url": url, "timeout": 5.0, "api_key_file": str(key)}
            if name.startswith("openai"):
                reason = _of_worker("openai", count=1, server={**access, "model": "m"})
            else:
                scrape = {**access, "metric": "done"}
                reason = _of_worker("counter", unit="token", scrape=scrape)
        assert "SECRET" not in reason, name


def test_token_and_password_that_a_daemon_repeats_are_not_shown(tmp_path):
    token = tmp_path / "token"
    token.write_text("SECRETTOKEN\n")
    body = json.dumps({"error": "SECRETTOKEN and hunter2222 are bad"}).encode()
    with _Echo(b"409 Conflict", body) as url:
        where = url.replace("http://", "http://user:hunter2222@")
        with pytest.raises(UserError, match=r"\[secret\] and \[secret\] are bad") as caught:
            ApiClient(where, token).post("/api/v1/runs", b"{}")
    assert "SECRETTOKEN" not in str(caught.value)


class _Echo:
    """A server that answers each request with one status, and one body or the next one."""

    def __init__(self, status: bytes, body: "bytes | Callable[[], bytes]") -> None:
        from http.server import BaseHTTPRequestHandler, HTTPServer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                code, _, reason = status.partition(b" ")
                self.send_response(int(code), reason.decode())
                data = body if isinstance(body, bytes) else body()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_begin_of_a_body_does_not_count_as_header():
    """One read of the connection may have both, and reads are larger on newer Pythons."""
    body = b"x" * 200_000
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + body)

        thread = threading.Thread(target=serve)
        thread.start()
        limits = PeerLimits(seconds=60, header_bytes=256, body_bytes=1 << 20)
        with HttpPeer(urlsplit(f"http://127.0.0.1:{server.getsockname()[1]}"), limits) as peer:
            assert peer.ask("GET", "/").status == 200
            assert peer.read() == body
        thread.join()

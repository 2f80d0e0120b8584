"""The page over real sockets: slow clients, floods, wrong requests, and a store that is gone."""

import gc
import gzip
import http.client
import json
import logging
import select
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.windows import BODY_AT_MOST
from tegrascope.daemon.web.application import ENDPOINTS
from tegrascope.daemon.web.authentication import host_names
from tegrascope.daemon.web.server import ConnectionLimits
from tests.fakes.processes import PATIENCE_SECONDS, Stopwatch, until
from tests.store.test_store import report

from .page_server import TOKEN, Server, until_closed

S = 1_000_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


def scrapes(server: Server) -> float:
    """Scrape; return the seconds that it took, less than ten. Prometheus gives up after ten."""
    watch = Stopwatch()
    status, _, page = server.ask("GET", "/metrics")
    assert status == 200
    assert b"tegrascope_build_info" in page
    took = watch.seconds
    assert took < 10
    return took


def test_slow_clients_are_disconnected_and_scrapes_go_on(tmp_path):
    """120 clients that send a byte now and then and ten silent ones delay no scrape."""
    server = Server(tmp_path, limits=ConnectionLimits(header_seconds=2.0))
    peers = [server.connect(b"GET /metrics HT" if number > 10 else b"") for number in range(130)]
    left, until = set(peers), time.monotonic() + PATIENCE_SECONDS
    took = [scrapes(server)]  # the least counts, since the machine may be busy too
    while left and time.monotonic() < until:
        took.append(scrapes(server))
        for peer in select.select(left, [], [], 0.5)[0]:
            left.discard(peer)
        for peer in left:
            try:
                peer.send(b"T")
            except ConnectionError:
                continue
    for peer in peers:
        peer.close()
    server.stop()
    assert not left
    assert min(took) < 2


@pytest.mark.parametrize(
    "flood",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: robot\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: robot\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: robot\r\n" + b"A: b\r\n" * 2_000_000,
        b"GET / HTTP/1.1\r\nHost: robot\r\nX: " + b"a" * 17_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: robot\r\n\r\n",
    ],
    ids=["url", "header", "headers", "at-once", "tls", "no-host", "raw-bytes"],
)
def test_floods_and_nonsense_are_refused(server, flood, caplog):
    """A header that is too long, or no HTTP, gets a status or nothing; the log stays quiet."""
    peer = server.connect()
    try:
        peer.sendall(flood)
    except ConnectionError:
        peer.close()
    else:
        told = until_closed(peer)
        assert told == b"" or told.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431"))
    scrapes(server)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "upgrade",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ],
    ids=["h2c", "websocket"],
)
def test_upgrades_are_answered_in_http_1(server, upgrade):
    """A client that asks for HTTP/2 or WebSocket gets the page over HTTP/1.1."""
    ask = b"GET /healthz HTTP/1.1\r\nHost: robot\r\n" + upgrade
    with server.connect(ask + b"\r\n") as peer:
        for _ in range(2):
            answer = http.client.HTTPResponse(peer)
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"ok\n")
            peer.sendall(b"GET /healthz HTTP/1.1\r\nHost: robot\r\n\r\n")


def test_http_2_without_asking_is_refused(server, caplog):
    told = until_closed(server.connect(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
    assert told.startswith(b"HTTP/1.1 4")
    scrapes(server)
    assert not caplog.records


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/metrics/triton", 404),
        ("GET", "/metrics/%00%ff", 404),
        ("GET", "/%00%ff", 404),
        ("GET", "/api/v1/runs/%00%ff", 404),
        ("GET", "/api/v1/runs/" + "0" * 5000, 404),
        ("GET", "/api/v1/runs?before=1e12", 400),
        ("GET", "/api/v1/samples?since=1e12", 400),
        ("GET", "/api/v1/samples?since=nan", 400),
        ("GET", "/api/v1/series?since=0", 400),
        ("GET", "/api/v1/series?step=0", 400),
        ("GET", "/api/v1/series?until=inf", 400),
        ("GET", "/api/v1/summaries?limit=0", 400),
        ("GET", "/static/", 404),
        ("GET", "/static/live.js", 404),
        ("DELETE", "/metrics", 405),
        ("PUT", "/api/v1/runs", 405),
    ],
)
def test_errors_are_json(server, method, path, status):
    told, headers, text = server.ask(method, path)
    assert told == status
    assert headers["content-type"] == "application/json"
    assert json.loads(text)["error"]
    assert "location" not in headers


def test_head_has_no_body(server):
    status, headers, body = server.ask("HEAD", "/metrics")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000


@pytest.mark.parametrize("path", ["/", "/runs/0199"])
def test_status_page_has_a_policy_and_an_etag(server, path):
    """The page has its policy; with its ETag it is not sent again."""
    status, headers, text = server.ask("GET", path)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert text.startswith(b"<!DOCTYPE html>")
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'sha256-")
    again = server.ask("GET", path, **{"If-None-Match": headers["etag"]})
    assert (again[0], again[2]) == (304, b"")


@pytest.mark.parametrize("path", ["/", "/runs/0199", "/api/v1/series", "/api/v1/summaries"])
def test_status_page_is_the_same_compressed(server, path):
    server.timeline.append(S, time.time_ns(), {"gpu.utilization_ratio": 0.5})
    where = f"{path}?until=9e8&since=899999900" if "series" in path else path
    _, headers, packed = server.ask("GET", where, **{"Accept-Encoding": "br, gzip"})
    assert headers["content-encoding"] == "gzip"
    assert headers["x-content-type-options"] == "nosniff"
    assert gzip.decompress(packed) == server.ask("GET", where)[2]


def test_metric_page_is_compressed_on_request(server):
    _, headers, packed = server.ask("GET", "/metrics", **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    plain = server.ask("GET", "/metrics")[2]
    assert gzip.decompress(packed).splitlines()[:5] == plain.splitlines()[:5]
    assert len(packed) < len(plain) / 2


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Bearer s\xe4cret", "Basic secret"]
)
def test_only_the_token_starts_a_run(server, given):
    assert server.post(b'{"workload": "w"}', Authorization=given)[0] == 401
    assert server.asked == []
    assert server.post(b'{"workload": "w"}') == (202, {"run_id": "0193"})


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, 'the body is {"workload": NAME}; Invalid JSON: EOF while parsing'),
        (b"{", 400, "Invalid JSON: EOF while parsing"),
        (b"\xff", 400, "the body is not UTF-8"),
        (b"[" * 15_000, 400, "Invalid JSON: recursion limit exceeded"),
        (b"[3]", 400, "should be an object"),
        (b'{"workload": 3}', 400, "should be a valid string"),
        (b'{"workload": "\\u001b[31m"}', 404, "no workload '\\x1b[31m'"),
        (b"a" * 200_000, 413, "at most"),
        (b'{"workload": "none"}', 404, "no workload 'none'; configured are: w, odd, busy"),
        (b'{"workload": "busy"}', 409, "its device is busy"),
    ],
)
def test_bad_bodies_are_refused(server, body, status, words, caplog):
    told, answer = server.post(body)
    assert told == status
    assert words in answer["error"]
    assert not caplog.records


@pytest.mark.parametrize(
    "body",
    [
        b'{"event": "begin", "workload": "\\ud800"}',
        b'{"event": "end", "run_id": "\\uDFFF"}',
        b'{"event": "end", "phases": [{"\\uD83Dx": 1}]}',
        b'{"workload": "\xed\xa0\x80"}',
        b'{"workload": "w"}'.decode().encode("utf-16"),
    ],
)
def test_body_with_half_a_character_is_refused_by_every_route(server, body, caplog):
    """An answer, the log or the store could not hold it."""
    paths = [one.path for one in ENDPOINTS if one.body is not None]
    assert len(paths) >= 2
    for path in paths:
        status, answer = server.post(body, path)
        assert status == 400
        assert "not UTF-8" in answer["error"] or "half a character" in answer["error"]
    assert (server.asked, server.marked) == ([], [])
    assert not caplog.records


@pytest.mark.parametrize("body", [b'{"a": "\\ud83d\\ude00"}', b'{"a": "\\\\ud800"}', b"\\ud800"])
def test_body_with_whole_characters_or_none_reaches_its_route(server, body):
    assert server.post(body, "/api/v1/windows") == (202, {"run_id": "0194"})


@pytest.mark.parametrize("text", ["%ED%A0%80", "%FF", "%00", "%F0%9F%98%80", "%5Cud800"])
def test_no_text_of_an_address_is_an_error_of_the_daemon(server, text, caplog):
    addresses = (
        f"/api/v1/runs?workload={text}",
        f"/api/v1/runs?limit={text}",
        f"/api/v1/runs?{text}={text}",
        f"/api/v1/runs/{text}",
        f"/metrics/{text}",
        f"/{text}",
    )
    for address in addresses:
        status, _, answer = server.ask("GET", address)
        assert status in (200, 400, 404)
        assert json.loads(answer)
    assert not caplog.records


@pytest.mark.parametrize("path", ["/nothing", "/api/v1/runs/none", "/api/v1/run"])
def test_not_found_names_the_paths(server, path):
    """A mistyped path is answered with those that exist."""
    told = json.loads(server.ask("GET", path)[2])
    assert {"/metrics", "/api/v1/runs", "/api/v1/samples", "/"} <= set(told["paths"])


def test_only_the_token_marks_a_window(server):
    for given in ("", "Bearer wrong"):
        assert server.post(b"{}", "/api/v1/windows", Authorization=given)[0] == 401
    assert server.marked == []
    assert server.post(b"{}", "/api/v1/windows") == (202, {"run_id": "0194"})


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"a" * BODY_AT_MOST, 202), (b"a" * (BODY_AT_MOST + 1), 413), (b"full", 503), (b"odd", 500)],
)
def test_windows_are_accepted_or_refused_by_status(server, body, status):
    """A body of one MiB is accepted and one byte more is not."""
    told, headers, text = server.ask("POST", "/api/v1/windows", body, **TOKEN)
    assert told == status
    assert json.loads(text)["run_id" if status == 202 else "error"]
    assert headers["retry-after"] == ("1" if status == 503 else None)
    scrapes(server)


def test_concurrent_marks_are_limited(server):
    """Four clients may send a mark at once; the fifth gets 503, and scrapes go on."""
    head = b"POST /api/v1/windows HTTP/1.1\r\nHost: robot\r\nAuthorization: Bearer secret\r\n"
    peers = [server.connect(head + b"Content-Length: 100\r\n\r\n{") for _ in range(4)]
    wait_for(lambda: server.post(b"{}", "/api/v1/windows")[0] == 503)
    scrapes(server)
    for peer in peers:
        peer.close()
    wait_for(lambda: server.post(b"{}", "/api/v1/windows")[0] == 202)


def test_slow_body_ends_in_408(tmp_path):
    server = Server(tmp_path, body_seconds=0.2)
    head = b"POST /api/v1/runs HTTP/1.1\r\nHost: robot\r\nAuthorization: Bearer secret\r\n"
    told = until_closed(server.connect(head + b"Content-Length: 100\r\n\r\n{"))
    server.stop()
    assert told.startswith(b"HTTP/1.1 408")


def test_client_that_leaves_is_not_an_error(server, caplog):
    head = b"POST /api/v1/runs HTTP/1.1\r\nHost: robot\r\nAuthorization: Bearer secret\r\n"
    server.connect(head + b"Content-Length: 100\r\n\r\n{").close()
    scrapes(server)
    server.stop()
    assert not caplog.records


def test_own_failure_is_answered_and_logged(server, caplog):
    """The client gets a JSON 500, the log a traceback."""
    status, answer = server.post(b'{"workload": "odd"}')
    assert status == 500
    assert "log" in answer["error"]
    server.stop()  # the answer may arrive before the line
    (record,) = (record for record in caplog.records if record.name.startswith("tegrascope"))
    assert record.exc_info
    assert record.getMessage() == "POST /api/v1/runs failed"


@pytest.mark.parametrize(
    "path",
    [f"/api/v1/{n}" for n in ("runs", "runs/x", "summaries", "bands", "models")],
)
def test_unreadable_store_is_503(server, path):
    """The API answers 503 without its database; the page goes on."""
    server.store.path.unlink()
    status, _, text = server.ask("GET", path)
    assert status == 503
    assert "store" in json.loads(text)["error"]
    scrapes(server)


@pytest.mark.parametrize("text", [b"\xff", b"3", b"{}", b'{"run_id":"bad"'])
def test_unreadable_row_hides_no_other_run(server, text):
    server.store.finish(report("good"))
    server.store.finish(report("bad"))
    with closing(sqlite3.connect(server.store.path)) as other, other:
        other.execute("UPDATE runs SET report = CAST(? AS TEXT) WHERE run_id = 'bad'", (text,))
    for path in ("runs", "summaries"):
        status, _, answer = server.ask("GET", f"/api/v1/{path}")
        runs = [run["run_id"] for run in json.loads(answer)["runs"]]
        assert (status, runs) == (200, ["good"])
    status, _, answer = server.ask("GET", "/api/v1/bands")
    assert (status, [row[0] for row in json.loads(answer)["bands"]]) == (200, ["good"])
    for path in ("models", "samples?since=0"):
        assert server.ask("GET", f"/api/v1/{path}")[0] == 200
    assert server.ask("GET", "/api/v1/runs/good")[0] == 200
    assert server.ask("GET", "/api/v1/runs/bad")[0] == 404


def test_unreadable_store_hides_no_telemetry_in_memory(server):
    server.timeline.append(S, S, {"rails.VDD_IN.instant_watts": 1.0})
    server.store.path.unlink()
    status, _, text = server.ask("GET", "/api/v1/samples?since=0")
    assert (status, len(json.loads(text)["samples"])) == (200, 1)
    status, _, text = server.ask("GET", "/api/v1/series?since=0&until=10")
    assert (status, len(json.loads(text)["parts"])) == (200, 1)


def test_run_that_is_in_memory_only_is_shown_as_not_stored(server):
    with closing(sqlite3.connect(server.store.path)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert not server.store.finish(report("r1"))
        other.rollback()
    for query, count in (("", 1), ("?workload=w", 1), ("?workload=x", 0)):
        _, _, text = server.ask("GET", f"/api/v1/runs{query}")
        answer = json.loads(text)
        assert (answer["runs"], len(answer["not_stored"])) == ([], count)
    status, _, text = server.ask("GET", "/api/v1/runs/r1")
    run = json.loads(text)
    assert (status, run["run_id"], run["stored"]) == (200, "r1", False)
    away = server.store.path.rename(server.store.path.with_name("away.db"))
    status, _, text = server.ask("GET", "/api/v1/runs")
    answer = json.loads(text)
    assert (status, answer["runs"], len(answer["not_stored"])) == (200, [], 1)
    away.rename(server.store.path)
    server.store.flush()
    answer = json.loads(server.ask("GET", "/api/v1/runs")[2])
    assert ([run["run_id"] for run in answer["runs"]], answer["not_stored"]) == (["r1"], [])
    assert "stored" not in json.loads(server.ask("GET", "/api/v1/runs/r1")[2])


def fill(timeline: Timeline, samples: int = 20_000) -> None:
    values = {f"rails.VDD_{number}.instant_watts": 1.0 for number in range(30)}
    for number in range(1, samples + 1):
        timeline.append(number * S, number * S, values)


def slow_reader(server: Server) -> socket.socket:
    """Request all samples and read nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    peer.connect(server.address)
    peer.sendall(b"GET /api/v1/samples?since=0&limit=36000 HTTP/1.1\r\nHost: robot\r\n\r\n")
    return peer


def wait_for(what: Callable[[], object]) -> None:
    assert until(what)


def test_concurrent_readers_are_limited_and_their_end_is_noticed(server):
    """Eight clients may read samples at a time; the ninth gets 503 until one has left."""
    fill(server.timeline)

    def one() -> int:
        return server.ask("GET", "/api/v1/samples?since=19999&limit=1")[0]

    assert one() == 200
    peers = [slow_reader(server) for _ in range(8)]
    wait_for(lambda: one() == 503)
    scrapes(server)
    for peer in peers:
        peer.close()
    wait_for(lambda: one() == 200)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_slow_clients_do_not_delay_the_end(server):
    fill(server.timeline)
    half = b"POST /api/v1/runs HTTP/1.1\r\nHost: robot\r\nAuthorization: Bearer secret\r\n"
    peers = [slow_reader(server) for _ in range(3)]
    peers += [server.connect(half + b"Content-Length: 9\r\n\r\n{"), server.connect(b"GET /me")]
    scrapes(server)
    assert server.stop() < 3
    for peer in peers:
        peer.close()
    gc.collect()  # what was not sent to the slow readers is dropped here, and not in another test


def test_client_that_leaves_frees_its_connection(tmp_path):
    server = Server(tmp_path, limits=ConnectionLimits(connections=4))
    with closing(http.client.HTTPConnection(*server.address, timeout=60)) as idle:
        idle.request("GET", "/healthz")
        assert idle.getresponse().read() == b"ok\n"
        for number in range(100):
            peer = server.connect(b"GET /healthz HTTP/1.1\r\nHost: robot\r\n\r\n" * (number % 3))
            if number % 2:
                peer.shutdown(socket.SHUT_WR)
                until_closed(peer)
            else:
                peer.close()
                scrapes(server)
        own = idle.sock.getsockname()
        idle.request("GET", "/healthz")
        assert idle.getresponse().read() == b"ok\n"
        assert idle.sock.getsockname() == own
    server.stop()


def test_at_the_limit_the_client_that_is_silent_longest_is_disconnected(tmp_path):
    server = Server(tmp_path, limits=ConnectionLimits(connections=4))
    with ExitStack() as stack:
        silent, busy, idle, half = (stack.enter_context(server.connect()) for _ in range(4))
        wait_until_answered(busy, b"GET /healthz HTTP/1.1\r\nHost: robot\r\n\r\n")
        head = b"POST /api/v1/runs HTTP/1.1\r\nHost: robot\r\nAuthorization: Bearer secret\r\n"
        busy.sendall(head + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        assert b"100 Continue" in busy.recv(1000)
        wait_until_answered(idle, b"GET /healthz HTTP/1.1\r\nHost: robot\r\n\r\n")
        for gone in (silent, half, idle):
            peer = stack.enter_context(server.connect())
            wait_until_answered(peer, b"GET /healthz HTTP/1.1\r\nHost: robot\r\n\r\n")
            assert until_closed(gone) == b""
        busy.sendall(b"{" * 9)
        assert busy.recv(1000).startswith(b"HTTP/1.1 400")
    server.stop()


def wait_until_answered(peer: socket.socket, question: bytes) -> None:
    peer.sendall(question)
    answer = http.client.HTTPResponse(peer)
    answer.begin()
    assert answer.status == 200
    answer.read()


def test_idle_client_is_kept_and_a_slow_one_is_not(tmp_path):
    """A scraper keeps its connection; a client that sends a byte now and then does not."""
    server = Server(tmp_path, limits=ConnectionLimits(header_seconds=0.5))
    with closing(http.client.HTTPConnection(*server.address, timeout=60)) as client:
        for _ in range(3):
            client.request("GET", "/metrics")
            port = client.sock.getsockname()[1]
            assert client.getresponse().read()
            assert client.sock.getsockname()[1] == port
            assert until_closed(server.connect(b"GET /")) == b""
        client.sock.sendall(b"GET /")  # the header of a later request has the same time
        assert until_closed(client.sock) == b""
    server.stop()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("robot", 200),
        ("ROBOT.:9754", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:9754", 200),
        ("localhost:9754", 200),
        ("robot:", 200),
        ("app.localhost", 421),
        ("evil.localhost:9754", 421),
        ("[::1].evil.example", 421),
        ("[::1]evil.example:9754", 421),
        ("[robot]", 421),
        ("robot:9754:evil.example", 421),
        ("robot:evil.example", 421),
        ("robot@evil.example", 421),
        ("::1", 421),
        ("robot.evil.example", 421),
        ("evil.example:9754", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_other_host_names_are_refused(server, host, status):
    """A page of another site whose name points to this address can't read anything."""
    told, _, text = server.ask("GET", "/metrics", Host=host)
    assert told == status
    if status == 421:
        assert text.decode() == f"'{host}' is not a name of this daemon; add it to http.hosts\n"


def test_names_of_the_daemon_are_its_own_and_configured_ones():
    names = host_names("board.lan:9754", ["Robot.Example."])
    assert {"localhost", "board.lan", "robot.example", socket.gethostname().lower()} <= names


def test_status_line_has_a_reason_phrase(server):
    """Prometheus shows the reason phrase next to a target that is down."""
    peer = server.connect(b"GET /none HTTP/1.1\r\nHost: robot\r\nConnection: close\r\n\r\n")
    assert until_closed(peer).startswith(b"HTTP/1.1 404 Not Found\r\n")


def test_reader_that_stops_reading_is_disconnected(tmp_path):
    server = Server(tmp_path, limits=ConnectionLimits(unread_seconds=0.5))
    fill(server.timeline)
    peers = [slow_reader(server) for _ in range(8)]
    ask = "/api/v1/samples?since=19999&limit=1"
    wait_for(lambda: server.ask("GET", ask)[0] == 503)
    wait_for(lambda: server.ask("GET", ask)[0] == 200)
    for peer in peers:
        peer.close()
    server.stop()

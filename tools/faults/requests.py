"""Hostile requests to the daemon's own server, with the right token."""

import contextlib
import json
import random
import re
import socket
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from .daemon import Daemon
from .kinds import Act, Kind, answers, is_quiet, stays_small

_DEEP = b"[" * 100_000
BODIES: Mapping[str, bytes] = {
    "surrogate": b'{"event":"begin","workload":"\\ud800"}',
    "surrogate as id": b'{"event":"end","run_id":"\\ud800"}',
    "surrogate as name": b'{"workload":"\\ud800"}',
    "NaN": b'{"event":"begin","workload":"w","time":NaN}',
    "long number": b'{"event":"end","inferences":' + b"1" * 5000 + b"}",
    "deep JSON": b'{"event":' + _DEEP,
    "not UTF-8": b'{"event":"\xff"}',
    "NUL": b'{"event":"begin\\u0000","workload":"w"}',
    "empty": b"",
    "of 2 MB": b'{"event":"' + b"x" * (2 << 20) + b'"}',
    "with many keys": json.dumps({f"k{n}": n for n in range(20_000)}).encode(),
}
# Whole requests; TOKEN and HOST are put in.
REQUESTS: Mapping[str, bytes] = {
    "negative length": b"POST /api/v1/runs HTTP/1.1\r\nHOST\r\nTOKEN\r\nContent-Length: -5\r\n\r\n",
    "two lengths": b"POST /api/v1/runs HTTP/1.1\r\nHOST\r\nTOKEN\r\nContent-Length: 5\r\n"
    b"Content-Length: 6\r\n\r\n{}{}{}",
    "broken chunk": b"POST /api/v1/runs HTTP/1.1\r\nHOST\r\nTOKEN\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "long path": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHOST\r\n\r\n",
    "many headers": b"GET /metrics HTTP/1.1\r\nHOST\r\n" + b"x-a: b\r\n" * 20_000 + b"\r\n",
    "NUL in the path": b"GET /api/v1/runs/\0 HTTP/1.1\r\nHOST\r\n\r\n",
    "surrogate in the path": b"GET /api/v1/runs/%ED%A0%80 HTTP/1.1\r\nHOST\r\n\r\n",
    "odd numbers": b"GET /api/v1/series?since=nan&until=1e999&step=-0 HTTP/1.1\r\nHOST\r\n\r\n",
    "garbage": bytes(range(256)) * 100,
    "500 pipelined": b"GET /metrics HTTP/1.1\r\nHOST\r\n\r\n" * 500,
}


def send(daemon: Daemon, request: bytes) -> str | None:
    """Send a request, and return what is wrong with the answer."""
    address = urlsplit(daemon.url)
    with (
        contextlib.suppress(OSError),
        socket.create_connection((address.hostname or "", address.port or 0), timeout=5) as client,
    ):
        client.sendall(request)
        status = re.match(rb"HTTP/1.1 (\d+)", client.recv(65536))
        if status and int(status[1]) >= 500 and int(status[1]) != 503:
            return f"the answer is {int(status[1])}"
    return None  # to end the connection is an answer too


def ask(request: bytes) -> Act:
    """Return what sends a whole request."""

    def act(daemon: Daemon, _: random.Random) -> str | None:
        host = f"Host: {urlsplit(daemon.url).netloc}".encode()
        token = f"Authorization: Bearer {daemon.token()}".encode()
        return send(daemon, request.replace(b"HOST", host).replace(b"TOKEN", token))

    return act


def post(body: bytes) -> Act:
    """Return what sends a body to both paths that take one."""

    def act(daemon: Daemon, chance: random.Random) -> str | None:
        length = b"Content-Length: %d" % len(body)
        for path in (b"runs", b"windows"):
            head = b"POST /api/v1/" + path + b" HTTP/1.1\r\nHOST\r\nTOKEN\r\n" + length
            if wrong := ask(head + b"\r\n\r\n" + body)(daemon, chance):
                return f"{path.decode()}: {wrong}"
        return None

    return act


def crowd(count: int, data: bytes) -> Act:
    """Return what opens connections, sends a little over each, and keeps them for a while."""

    def act(daemon: Daemon, _: random.Random) -> None:
        address = urlsplit(daemon.url)
        with contextlib.ExitStack() as stack:
            for _number in range(count):
                with contextlib.suppress(OSError):
                    client = socket.create_connection(
                        (address.hostname or "", address.port or 0), timeout=2
                    )
                    stack.enter_context(client)
                    client.sendall(data)
            time.sleep(3)

    return act


_RULES = (is_quiet, stays_small, answers)
KINDS = (
    *(Kind(f"body {what}", post(body), _RULES) for what, body in BODIES.items()),
    *(Kind(f"request with {what}", ask(request), _RULES) for what, request in REQUESTS.items()),
    Kind("300 silent clients", crowd(300, b""), _RULES),
    Kind("300 clients with half a request", crowd(300, b"GET /metrics HTTP/1.1\r\nHost:"), _RULES),
)

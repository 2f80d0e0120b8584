"""A server that answers every request in one hostile way, over plain sockets."""

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from tests.fakes.processes import PATIENCE_SECONDS

# Shorter than any time-out of a read, so that only a bound of the whole answer ends it.
_DRIP_SECONDS = 0.02
_MOST_BYTES = 64 << 20
_OK = b"HTTP/1.1 200 OK\r\n"
_OPEN_END = _OK + b"Content-Type: text/plain\r\n\r\n"
_EVENTS = _OK + b"Content-Type: text/event-stream\r\n\r\n"
_BLOCK = b"x 1\n" * 16_384


def _with_length(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = (b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body), b"", body)
    return b"\r\n".join(lines)


def _forever(part: bytes, first: bytes = b"") -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield first
        while True:
            yield part

    return parts


def _once(*given: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(given)


_CHUNK = b"10000\r\n" + _BLOCK + b"\r\n"
# As fast as the client reads.
_FLOODS = {
    "endless body": _forever(_BLOCK, _OPEN_END),
    "endless chunks": _forever(_CHUNK, _OK + b"Transfer-Encoding: chunked\r\n\r\n"),
    "endless error": _forever(_BLOCK, b"HTTP/1.1 500 Oops\r\n\r\n"),
    "endless line": _forever(b"x" * 65_536, _OPEN_END),
    "endless header": _forever(b"X-Filler: " + b"y" * 1000 + b"\r\n", _OK),
    "endless header line": _forever(b"y" * 65_536, _OK + b"X-Filler: "),
    "endless 100": _forever(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless trailers": _forever(
        b"X-Filler: " + b"y" * 1000 + b"\r\n", _OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    ),
}
# A small part at a time.
_DRIPS = {
    "drip of body": _forever(b"x", _OPEN_END),
    "drip of announced body": _forever(b"x", _OK + b"Content-Length: 10000\r\n\r\n"),
    "drip of chunks": _forever(b"1\r\nx\r\n", _OK + b"Transfer-Encoding: chunked\r\n\r\n"),
    "drip of header": _forever(b"y", _OK + b"X-Filler: "),
    "drip of 100": _forever(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "drip of pings": _forever(b": ping\n\n", _EVENTS),
    "drip of empty choices": _forever(b'data: {"choices": []}\n\n', _EVENTS),
    "drip of error": _forever(b"x", b"HTTP/1.1 503 Busy\r\n\r\n"),
    "silence": _once(),
}
# An answer that ends.
_ANSWERS = {
    "gzip bomb": _once(_with_length(gzip.compress(bytes(32 << 20)), b"Content-Encoding: gzip")),
    "huge length": _once(_OK + b"Content-Length: 99999999999999\r\n\r\n"),
    "huge chunk": _once(_OK + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffff\r\nx"),
    "endless digits": _once(_OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"),
    "negative length": _once(_OK + b"Content-Length: -1\r\n\r\nx"),
    "short body": _once(_OK + b"Content-Length: 10\r\n\r\nx"),
    "broken chunk": _once(_OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n"),
    "redirect": _once(
        _with_length(b"", b"Location: http://127.0.0.1:1/other", status=b"302 Found")
    ),
    "garbage": _once(b"\x00\xff\xfe\x1b[2J nonsense\r\n\r\n"),
    "garbage body": _once(_with_length(bytes(range(256)) * 20)),
    "deep JSON": _once(_with_length(b"[" * 60_000, b"Content-Type: application/json")),
    "status 999": _once(_with_length(b"", status=b"999 \x1b[2J")),
    "status text": _once(b"HTTP/1.1 abc OK\r\n\r\n"),
    "nothing": _once(b""),
    "many headers": _once(_OK + b"X: y\r\n" * 5000 + b"\r\n"),
}
MODES = (*_FLOODS, *_DRIPS, *_ANSWERS, "reset")


class HostilePeer:
    """Serves one mode on a free port of the loopback until it is closed.

    Attributes:
        requests: What came, one request each, as bytes.
        sent_bytes: Bytes of answers that the operating system took.
        gave_up: Whether a client was still there after a time, or a number of bytes, at which every
            client must have left.
    """

    def __init__(self, mode: str, tls: "ssl.SSLContext | None" = None) -> None:
        self.requests: list[bytes] = []
        self.sent_bytes = 0
        self.gave_up = False
        self._mode, self._tls = mode, tls
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def __enter__(self) -> "HostilePeer":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._accepting, *self._threads):
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(PATIENCE_SECONDS)
        if self._tls is not None:
            client = self._tls.wrap_socket(client, server_side=True)
        with client, suppress(OSError):
            self.requests.append(client.recv(65_536))
            if self._mode == "reset":
                # Closing with a linger of zero sends a reset.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                return
            if self._mode in _DRIPS:
                self._drip(client)
                return
            for part in {**_FLOODS, **_ANSWERS}[self._mode]():
                self._send(client, part)
                if self.sent_bytes > _MOST_BYTES:
                    self.gave_up = True
                    return
            client.shutdown(socket.SHUT_WR)

    def _drip(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        parts = _DRIPS[self._mode]()
        for _ in range(round(PATIENCE_SECONDS / _DRIP_SECONDS)):
            self._send(client, next(parts, b""))
            if self._closed.wait(_DRIP_SECONDS) or _is_gone(client):
                return
        self.gave_up = True

    def _send(self, client: socket.socket, part: bytes) -> None:
        client.sendall(part)
        self.sent_bytes += len(part)


def _is_gone(client: socket.socket) -> bool:
    """Return whether the client closed its side, without waiting for it."""
    client.setblocking(False)
    try:
        return client.recv(65_536) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    finally:
        client.settimeout(PATIENCE_SECONDS)

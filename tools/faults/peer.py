"""A peer of the daemon that misbehaves: OTLP receiver, metrics page and model server in one."""

import contextlib
import gzip
import json
import os
import socket
import struct
import threading
from collections.abc import Callable

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
_CHUNKS = b"transfer-encoding: chunked\r\n\r\n"
# No answer goes on after this, so that a fault ends by itself.
MOST_SECONDS = 8.0


class Peer:
    """Serves on loopback as ``mode`` says, until the process ends.

    Attributes:
        good_pages: Requests that were answered well.
        secrets: Requests that came to another address with a header for this one.
    """

    def __init__(self) -> None:
        self.mode = "good"
        self.good_pages = 0
        self._changed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def play(self, mode: str) -> None:
        """Answer otherwise from now on; answers in progress end."""
        self.mode = mode
        self._changed.set()
        self._changed = threading.Event()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            client.settimeout(MOST_SECONDS)
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    return
                head += data
            head, _, body = head.partition(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    while len(body) < int(line[15:]):
                        body += client.recv(65536)
            if self.mode == "good":
                self.good_pages += 1
                client.sendall(_good(head))
            else:
                MODES[self.mode](client, self._changed)


def _good(head: bytes) -> bytes:
    if b"/chat/completions" in head:
        choice = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
        text = f"data: {json.dumps(choice)}\n\n" * 2 + "data: [DONE]\n\n"
        media = "text/event-stream"
    elif head.startswith(b"GET"):
        text, media = "# TYPE tokens_total counter\ntokens_total 1\n", "text/plain"
    else:
        text, media = "", "application/x-protobuf"
    lines = f"content-type: {media}\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\n" + lines.encode() + text.encode()


Answer = Callable[[socket.socket, threading.Event], object]


def _once(data: bytes) -> Answer:
    return lambda client, _: client.sendall(data)


def _for_ever(head: bytes, piece: bytes, every: float) -> Answer:
    def answer(client: socket.socket, changed: threading.Event) -> None:
        client.sendall(head)
        for _ in range(int(MOST_SECONDS / max(every, 0.001))):
            if changed.wait(every):
                break
            client.sendall(piece)

    return answer


def _hang(_: socket.socket, changed: threading.Event) -> None:
    changed.wait(MOST_SECONDS)


def _reset(client: socket.socket, _: threading.Event) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _with_length(head: bytes, body: bytes) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


_CHUNK = b"10000\r\n" + b"x" * 65536 + b"\r\n"
_BOMB = gzip.compress(bytes(200 << 20))
_LONG = b'tokens_total{a="' + b"x" * (8 << 20) + b'"} 1\n'
MODES: dict[str, Answer] = {
    "silent": _hang,
    "closes": _once(b""),
    "resets": _reset,
    "garbage": _once(os.urandom(5000)),
    "garbage as answer": _once(_with_length(_HEAD, os.urandom(5000))),
    "endless": _for_ever(_HEAD + _CHUNKS, _CHUNK, 0.001),
    "endless error": _for_ever(b"HTTP/1.1 400 Bad\r\n" + _CHUNKS, _CHUNK, 0.001),
    "gzip bomb": _once(_with_length(_HEAD + b"content-encoding: gzip\r\n", _BOMB)),
    "drips": _for_ever(_HEAD + b"content-length: 1000\r\n\r\n", b"x", 0.3),
    "drips its header": _for_ever(_HEAD + b"x-a: ", b"x", 0.3),
    "endless header": _for_ever(_HEAD, b"x-a: " + b"x" * 60_000 + b"\r\n", 0.001),
    "continues for ever": _for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.1),
    "redirects": _once(b"HTTP/1.1 302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"),
    "redirects to a file": _once(
        b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n"
    ),
    "429 for years": _once(b"HTTP/1.1 429 Wait\r\nretry-after: 1000000000\r\n\r\n"),
    "503 with nonsense": _once(b"HTTP/1.1 503 Wait\r\nretry-after: -5\r\n\r\n"),
    "deep JSON": _once(_with_length(_HEAD, b"data: " + b"[" * 200_000 + b"\n\n")),
    "NaN": _once(_with_length(_HEAD, b'tokens_total NaN\ndata: {"choices": NaN}\n\n')),
    "a line of 8 MB": _once(_with_length(_HEAD, _LONG)),
    "many series": _once(
        _with_length(_HEAD, b"".join(b'tokens_total{a="%d"} 1\n' % n for n in range(200_000)))
    ),
    "many headers": _once(_HEAD + b"x-a: b\r\n" * 5000 + b"content-length: 0\r\n\r\n"),
    "negative length": _once(_HEAD + b"content-length: -5\r\n\r\nx"),
    "broken chunk": _once(_HEAD + _CHUNKS + b"zz\r\nx\r\n"),
    "status 999": _once(b"HTTP/1.1 999 \xff\r\ncontent-length: 0\r\n\r\n"),
}

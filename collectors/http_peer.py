"""One HTTP request to a peer that may be broken or hostile: its answer has bounds.

Every client of the package reads through this module: the API client, the back-ends that ask a
server, the OTLP sender and the checks of ``doctor``. ``http.client`` alone bounds only the time of
one read, so a peer that sends a byte per second, or ``100 Continue`` for ever, holds its client.

Standard library only: applications that infer import the API client.
"""

import base64
import io
import json
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote

if TYPE_CHECKING:
    from ssl import SSLContext

_PART_BYTES = 64 * 1024
# Of the reader of an answer. The default of Python 3.14 is larger than the bound of a header.
_BUFFER_BYTES = 8192
_WORDS_BYTES = 4096
# A shorter text is in many words that are no secret.
_SHORTEST_SECRET, _SHORTEST_KEY = 4, 8
_COVER = "[secret]"
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class PeerLimits:
    """Bounds of one request and its answer.

    Attributes:
        seconds: From the connection to the last byte of the answer. ``HttpPeer.renew`` starts it
            again.
        silent_seconds: Longest time without a byte; ``None`` leaves ``seconds`` alone to decide.
        header_bytes: Status line and header of the answer, and of interim answers before it, such
            as ``100 Continue``.
        body_bytes: The rest, with the lengths of its chunks.
    """

    seconds: float
    silent_seconds: float | None = None
    header_bytes: int = 64 * 1024
    body_bytes: int = 64 * 1024


class OversizeError(HTTPException):
    """A part of the answer, its header or its body, is longer than its bound."""

    def __init__(self, part: str, at_most: int) -> None:
        size = f"{at_most >> 20} MiB" if at_most >= 1 << 20 else f"{at_most >> 10} KiB"
        super().__init__(f"more than {size} of {part}")


class Secrets:
    """Our own secrets, which a peer may repeat in its answer: they are covered wherever it goes.

    >>> Secrets(["sk-1234"]).cover("401: the key sk-1234 is wrong")
    '401: the key [secret] is wrong'
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        """Take the secrets; a value of fewer than four characters is not covered."""
        forms = set[str]()
        for value in values:
            if len(value) >= _SHORTEST_SECRET:
                # A server may repeat the address, or a document, that has it.
                forms |= {value, quote(value, safe=""), json.dumps(value)[1:-1]}
        self._forms = sorted(forms, key=len, reverse=True)

    def cover(self, text: str) -> str:
        """Return the text without a secret."""
        for form in self._forms:
            text = text.replace(form, _COVER)
        return text

    def cover_bytes(self, data: bytes) -> bytes:
        """Return the bytes without a secret."""
        for form in self._forms:
            data = data.replace(form.encode(), _COVER.encode())
        return data


def header_secrets(headers: Mapping[str, str]) -> Secrets:
    """Return the secrets in headers of a request: of ``Authorization``, also without its scheme.

    Any other header with a value of eight characters or more may be a key too.
    """
    values = []
    for name, value in headers.items():
        if name.lower() in ("authorization", "proxy-authorization"):
            scheme, _, credentials = value.partition(" ")
            values += [value, credentials]
            if scheme.lower() == "basic":
                with suppress(ValueError):
                    pair = base64.b64decode(credentials, validate=True).decode()
                    values += [pair, pair.partition(":")[2]]
        elif len(value) >= _SHORTEST_KEY:
            values.append(value)
    return Secrets(values)


_NO_SECRETS = Secrets()


def error_words(error: Exception, secrets: Secrets = _NO_SECRETS) -> str:
    r"""Return the reason of a failed request as one line that a terminal can show.

    >>> error_words(HTTPException("not\r\nHTTP \x1b[2J"))
    'not HTTP ?[2J'
    """
    # An ``OSError`` as text begins with its number.
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(words, secrets)


def one_line(words: str, secrets: Secrets = _NO_SECRETS) -> str:
    """Return text of a peer as one short line that a terminal can show, without our secrets."""
    # Covered before it is cut: the first half of a secret would not be found.
    line = " ".join(secrets.cover(words).split())[:_SHOWN_CHARACTERS]
    return "".join(letter if letter.isprintable() else "?" for letter in line)


class HttpPeer:
    """One request to a peer, over a connection of its own; no proxy, no redirect, no cookies.

    Every method raises ``TimeoutError`` after the time of the limits, and ``OSError`` or
    ``HTTPException`` if the peer breaks off or does not speak HTTP.

    >>> limits = PeerLimits(seconds=5.0)
    >>> with HttpPeer(urlsplit("http://127.0.0.1:9754"), limits) as peer:  # doctest: +SKIP
    ...     response = peer.ask("GET", "/readyz")
    ...     print(response.status, peer.read())
    200 b'ready'
    """

    def __init__(
        self, address: SplitResult, limits: PeerLimits, context: "SSLContext | None" = None
    ) -> None:
        """Prepare; nothing is sent before ``connect`` or ``ask``.

        Args:
            address: Scheme, host and port of a URL; its path is not used.
            context: For ``https``; by default, the authorities that the system trusts.
        """
        host = address.hostname or ""
        port = address.port or (443 if address.scheme == "https" else 80)
        self._limits = limits
        self._deadline = _Deadline(limits)
        self._socket: Any = None
        self._response: HTTPResponse | None = None
        self._context = context
        self._http: HTTPConnection
        if address.scheme == "https":
            from ssl import create_default_context

            self._context = context or create_default_context()
            self._http = HTTPSConnection(host, port, context=self._context)
        else:
            self._http = HTTPConnection(host, port)

    def __enter__(self) -> "HttpPeer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Connect, and start the time of the request."""
        self._deadline.start()
        self._socket = _connected(self._http.host, self._http.port, self._deadline)
        if self._context is not None:
            self._socket.settimeout(self._deadline.next_read())
            self._socket = self._context.wrap_socket(self._socket, server_hostname=self._http.host)
        # The connection and its response read and write through this object only.
        self._http.sock = self._limited = _LimitedSocket(self._socket, self._limits, self._deadline)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> HTTPResponse:
        """Send the request and return the answer, of which the header is read."""
        if self._socket is None:
            self.connect()
        self._http.request(method, path, body, dict(headers))
        self._response = self._http.getresponse()
        self._limited.allow_body()
        return self._response

    def read(self) -> bytes:
        """Return the whole body of the answer."""
        assert self._response is not None
        length = self._response.getheader("Content-Length", "")
        if length.isdecimal() and int(length[:20]) > self._limits.body_bytes:
            raise OversizeError("body", self._limits.body_bytes)
        body = bytearray()
        # In parts: a read of the announced length would reserve all of it at once.
        while part := self._response.read1(_PART_BYTES):
            body += part
        is_chunked = self._response.getheader("Transfer-Encoding") is not None
        if length and not is_chunked and length != str(len(body)):
            raise IncompleteRead(bytes(body))
        return bytes(body)

    def read_line(self) -> bytes:
        """Return the next line of the body, or nothing at its end."""
        assert self._response is not None
        return self._response.readline(self._limits.body_bytes)

    def read_words(self) -> str:
        """Return the first words of an answer, for an error message; empty if there are none."""
        assert self._response is not None
        words = bytearray()
        with suppress(OSError, HTTPException):
            while len(words) < _WORDS_BYTES and (part := self._response.read1(_WORDS_BYTES)):
                words += part
        return " ".join(words.decode("utf-8", "replace").split())

    def renew(self) -> None:
        """Start the time again, because the peer made progress."""
        self._deadline.start()

    def close(self) -> None:
        """Close the connection; a request under way in another thread fails."""
        if self._socket is not None:  # which a response may keep open beyond its connection
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                self._socket.close()
        self._http.close()
        if self._response is not None:
            self._response.close()


class _Deadline:
    def __init__(self, limits: PeerLimits) -> None:
        self._limits = limits
        self._until = 0.0
        self.start()

    def start(self) -> None:
        self._until = time.monotonic() + self._limits.seconds

    def next_read(self) -> float:
        """Return how long the next read or write may take, or raise ``TimeoutError``."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        silent = self._limits.silent_seconds
        return left if silent is None else min(left, silent)


def _connected(host: str, port: int, deadline: _Deadline) -> socket.socket:
    """Return a socket that is connected to the first address of a host that accepts."""
    problem = OSError(f"{host} has no address")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part of the name is empty or too long
        raise OSError(f"{host[:80]} is not a host name") from None
    for family, kind, protocol, _, address in addresses:
        peer = socket.socket(family, kind, protocol)
        try:
            peer.settimeout(deadline.next_read())
            peer.connect(address)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return peer
        except OSError as error:
            peer.close()
            problem = error
    raise problem


class _LimitedSocket:
    """The part of a socket that ``http.client`` uses, with a deadline and a number of bytes."""

    def __init__(self, connected: socket.socket, limits: PeerLimits, deadline: _Deadline) -> None:
        self._connected, self._limits, self._deadline = connected, limits, deadline
        self._reader: _LimitedReader | None = None

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._connected.settimeout(self._deadline.next_read())
            rest = rest[self._connected.send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:  # noqa: ARG002 - http.client asks for "rb"
        raw = self._connected.makefile("rb", buffering=0)
        self._reader = _LimitedReader(raw, self._connected, self._deadline)
        # The last read of the header may have the begin of the body, up to a whole buffer.
        self._reader.allow("header", self._limits.header_bytes, spare=_BUFFER_BYTES)
        return io.BufferedReader(self._reader, _BUFFER_BYTES)

    def allow_body(self) -> None:
        assert self._reader is not None
        self._reader.allow("body", self._limits.body_bytes)

    def close(self) -> None:
        self._connected.close()


class _LimitedReader(io.RawIOBase):
    """Bytes of a connection, up to a number of them and a deadline."""

    def __init__(self, raw: Any, connected: socket.socket, deadline: _Deadline) -> None:
        super().__init__()
        self._raw, self._connected, self._deadline = raw, connected, deadline
        self._part, self._at_most, self._left = "", 0, 0

    def allow(self, part: str, at_most: int, spare: int = 0) -> None:
        """Set how many more bytes of one part of the answer may come, and of what follows it."""
        self._part, self._at_most, self._left = part, at_most, at_most + spare

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connected.settimeout(self._deadline.next_read())
        # One byte beyond the bound shows that there is more.
        count: int | None = self._raw.readinto(memoryview(buffer)[: self._left + 1])
        if count is not None:
            self._left -= count
        if self._left < 0:
            raise OversizeError(self._part, self._at_most)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

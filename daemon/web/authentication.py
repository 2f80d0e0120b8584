"""Checks before the application: host names, passwords and the token."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import math
import os
import secrets
import socket
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TypeVar

import bcrypt
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...collectors.base import Clock, write_atomic
from ...parsers.errors import UserError
from ..settings.config import split_listen
from ..settings.file import ConfigError
from .web_config import WebConfig, WebRules

_REMEMBERED_AT_MOST = 1024
# bcrypt reads no further, and Go's truncates there silently.
_LONGEST_PASSWORD = 72

K = TypeVar("K")
V = TypeVar("V")


def read_token(path: Path) -> str:
    """Return the secret for calls that change state; it is made at the first start."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, f"{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "name a writable --state-dir") from None
    except UnicodeDecodeError:
        token = ""
    if not token:  # every request would carry it
        raise UserError(f"{path}: holds no token", f"rm {path}, and another one is made")
    return token


def carries_token(headers: Mapping[str, str], token: str) -> bool:
    """Return whether a request has the secret, as bearer or, next to a password, in a header."""
    given = headers.get("x-tegrascope-token")
    if given is None:
        given = headers.get("authorization", "").removeprefix("Bearer ")
    return hmac.compare_digest(given.encode(), token.encode())


def host_names(listen: str, configured: Collection[str]) -> frozenset[str]:
    """Return the host names of the daemon: its machine's, the listen address, and configured."""
    own = socket.gethostname()
    names = ("localhost", split_listen(listen)[0], own, f"{own.partition('.')[0]}.local")
    return frozenset(name.rstrip(".").lower() for name in (*names, *configured))


def is_known_host(header: str, names: Collection[str]) -> bool:
    """Return whether a ``Host`` header is an IP address or a known name.

    A page of another site can let its own name point to this address (DNS rebinding); a browser
    still sends that name.

    >>> [is_known_host(host, {"robot"}) for host in ("robot:9754", "[::1]:9754", "evil.example")]
    [True, True, False]
    """
    before, _, rest = header.partition("[")
    host = rest.partition("]")[0] if rest and not before else header.partition(":")[0]
    host = host.rstrip(".").lower()
    with suppress(ValueError):
        return bool(ip_address(host))
    return host in names or host.endswith(".localhost")


class TokenBucket:
    """Allow ``burst`` requests at once and one more after each interval."""

    def __init__(self, burst: int, interval_seconds: float, now_seconds: float) -> None:
        self._burst, self._interval = float(burst), interval_seconds
        self._tokens, self._at_seconds = self._burst, now_seconds

    def take(self, now_seconds: float) -> bool:
        """Take a token if one is left; the time is of a clock that never goes back."""
        came = (now_seconds - self._at_seconds) / self._interval
        self._tokens = min(self._burst, self._tokens + came)
        self._at_seconds = now_seconds
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def give_back(self) -> None:
        """Return the token that was taken last."""
        self._tokens += 1.0


@dataclass(frozen=True)
class AttemptLimit:
    """Wrong passwords per address: ``burst`` at once, then one per interval."""

    burst: int = 10
    interval_seconds: float = 5.0
    addresses: int = 1024


@dataclass
class _Address:
    attempts: TokenBucket
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)


class Passwords:
    """Verify passwords against bcrypt hashes and remember the results.

    bcrypt is slow on purpose: 60 ms at a cost of 10. One password at a time is verified, in a
    thread. An address has at most one in the queue, so a guesser delays another client by one.
    """

    def __init__(
        self,
        clock: Clock,
        limit: AttemptLimit = AttemptLimit(),
        verify: Callable[[bytes, bytes], bool] = bcrypt.checkpw,
    ) -> None:
        self._clock, self._limit, self._verify = clock, limit, verify
        self._key = os.urandom(32)
        self._results: OrderedDict[bytes, bool] = OrderedDict()  # by a digest with the random key
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def refusal(self, header: str, users: Mapping[str, str], client: str) -> int | None:
        """Return None if an ``Authorization`` header has a user and the right password.

        Args:
            header: The header's value; may be empty.
            users: Names and hashes in force; a password is verified again under a new hash.
            client: The client's IP address.

        Returns:
            Else the status of the answer: 401, or 429 after too many wrong passwords.
        """
        credentials = read_credentials(header)
        if credentials is None:
            return 401
        user, password = credentials
        hashed = users.get(user.decode("utf-8", "replace"))
        # An unknown user takes as long as a known one, so that the time does not reveal names.
        against = (hashed or max(users.values(), key=_cost)).encode()
        parts = repr((user, password, against)).encode()
        key = hashlib.blake2b(parts, key=self._key).digest()
        right = self._remembered(key)
        if right is None:
            address = self._address(client)
            async with address.verifying:
                right = self._remembered(key)  # by another request of this address
                if right is None:
                    if not address.attempts.take(self._seconds()):
                        return 429
                    async with self._one_at_a_time:
                        verified = await asyncio.to_thread(
                            self._verify, password[:_LONGEST_PASSWORD], against
                        )
                    right = verified and hashed is not None
                    _put(self._results, key, right, _REMEMBERED_AT_MOST)
                    if right:
                        address.attempts.give_back()
        return None if right else 401

    def _remembered(self, key: bytes) -> bool | None:
        if key in self._results:
            self._results.move_to_end(key)
        return self._results.get(key)

    def _address(self, client: str) -> _Address:
        with suppress(ValueError):
            number = ip_address(client)
            if isinstance(number, IPv6Address):  # a host has 2^64 of them
                client = str(number.ipv4_mapped or number.packed[:8].hex())
        found = self._addresses.pop(client, None)
        if found is None:
            limit = self._limit
            found = _Address(TokenBucket(limit.burst, limit.interval_seconds, self._seconds()))
        _put(self._addresses, client, found, self._limit.addresses)
        return found

    def _seconds(self) -> float:
        return self._clock.monotonic_ns() / 1e9


def _put(table: OrderedDict[K, V], key: K, value: V, at_most: int) -> None:
    """Put a value at the end; the oldest one leaves a full table."""
    table[key] = value
    if len(table) > at_most:
        table.popitem(last=False)


def read_credentials(header: str) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization`` header, or None.

    >>> read_credentials("Basic cHJvbTpwdw==")
    (b'prom', b'pw')
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        return None
    user, colon, password = text.partition(b":")
    return (user, password) if colon else None


def _cost(hashed: str) -> int:
    return int(hashed.split("$")[2])


class Gate:
    """Check host and user before an application, and add the configured headers."""

    def __init__(
        self,
        app: ASGIApp,
        rules: WebRules | None,
        token: str,
        clock: Clock,
        names: Collection[str],
        limit: AttemptLimit = AttemptLimit(),
    ) -> None:
        """Guard ``app``; the token replaces a password, and ``names`` are of ``host_names``."""
        self._app, self._rules, self._token, self._names = app, rules, token, names
        self._passwords = Passwords(clock, limit)
        self._later = {"retry-after": str(math.ceil(limit.interval_seconds))}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application answer it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # Over TLS the certificate already ties the client to a name of this machine.
        if host and scope["scheme"] == "http" and not is_known_host(host, self._names):
            text = f"{host[:100]!a} is not a name of this daemon; add it to http.hosts"
            await _refuse(421, text)(scope, receive, send)
        elif self._rules is None:
            await self._app(scope, receive, send)
        else:
            try:
                config = self._rules.current()
            except ConfigError:
                await _refuse(500, "Internal Server Error")(scope, receive, send)
            else:
                await self._answer(config, headers, scope, receive, send)

    async def _answer(
        self, config: WebConfig, headers: Headers, scope: Scope, receive: Receive, send: Send
    ) -> None:
        app: ASGIApp = self._app
        if config.basic_auth_users and not carries_token(headers, self._token):
            client = (scope.get("client") or ("",))[0]
            given = headers.get("authorization", "")
            status = await self._passwords.refusal(given, config.basic_auth_users, client)
            if status == 401:
                app = _refuse(401, "Unauthorized", {"www-authenticate": "Basic"})
            elif status is not None:
                app = _refuse(status, "Too Many Wrong Passwords", self._later)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in config.http_server_config.headers.items():
                    found.setdefault(name, value)  # the status page has a policy of its own
            await send(message)

        await app(scope, receive, send_with_headers)


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(f"{text}\n", status, headers)

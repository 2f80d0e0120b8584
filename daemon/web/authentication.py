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
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...collectors.base import Clock, write_atomic
from ...collectors.paths import exists
from ...parsers.errors import UserError
from ..settings.config import split_listen
from ..settings.file import ConfigError

if TYPE_CHECKING:
    from .web_config import WebRules

_REMEMBERED_AT_MOST = 1024
_INTERVAL_SECONDS = 5
# bcrypt reads no further, and Go's truncates there silently.
_LONGEST_PASSWORD = 72


def read_token(path: Path) -> tuple[str, str | None]:
    """Return the secret for calls that change state; it is made at the first start.

    A new secret that cannot be written is returned with the reason: then no other process has it.
    """
    try:
        if not exists(path):
            token = secrets.token_urlsafe(32)
            if problem := write_token(path, token):
                return token, problem
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "name a writable --state-dir") from None
    except UnicodeDecodeError:
        token = ""
    if not token:  # every request would carry it
        raise UserError(f"{path}: holds no token", f"rm {path}, and another one is made")
    return token, None


def write_token(path: Path, token: str) -> str | None:
    """Write the secret for its user alone, or return why the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, f"{token}\n".encode(), mode=0o600)
    except (PermissionError, NotADirectoryError, FileExistsError):
        raise  # a wrong place, which a person named
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


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


@dataclass
class _Address:
    """Attempts of one address: each one takes an interval of the time before ``free_ns``."""

    free_ns: float = -math.inf
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    return bcrypt.checkpw(password, hashed)


class Passwords:
    """Verify passwords against bcrypt hashes and remember the results.

    An address may send ``burst`` wrong ones at once, then one per interval.
    bcrypt is slow on purpose: 60 ms at a cost of 10. One password at a time is verified, in a
    thread. An address has at most one in the queue, so a guesser delays another client by one.
    """

    def __init__(
        self,
        clock: Clock,
        verify: Callable[[bytes, bytes], bool] = _matches,
        burst: int = 10,
        interval_seconds: int = _INTERVAL_SECONDS,
    ) -> None:
        self._clock, self._verify = clock, verify
        self._burst, self._interval_ns = burst, interval_seconds * 10**9
        self._key = os.urandom(32)
        # The oldest entry comes first in both.
        self._results: dict[bytes, bool] = {}  # by a digest with the random key
        self._addresses: dict[str, _Address] = {}
        self._one_at_a_time = asyncio.Lock()

    async def refusal(self, header: str, users: Mapping[str, str], client: str) -> int | None:
        """Return None if an ``Authorization`` header has a user and the right password.

        Else it is the status of the answer: 401, or 429 after too many wrong passwords.

        Args:
            users: Names and hashes in force; a password is verified again under a new hash.
            client: The client's IP address.
        """
        credentials = _read_credentials(header)
        if credentials is None:
            return 401
        user, password = credentials
        hashed = users.get(user.decode("utf-8", "replace"))
        # An unknown user takes as long as a known one, so that the time does not reveal names.
        costliest = max(users.values(), key=lambda one: int(one.split("$")[2]))
        against = (hashed or costliest).encode()
        parts = repr((user, password, against)).encode()
        key = hashlib.blake2b(parts, key=self._key).digest()
        right = self._remembered(key)
        if right is None:
            address = self._address(client)
            async with address.verifying:
                right = self._remembered(key)  # by another request of this address
                if right is None:
                    now_ns = self._clock.monotonic_ns()
                    unused_ns = max(address.free_ns, now_ns - self._burst * self._interval_ns)
                    if unused_ns + self._interval_ns > now_ns:
                        return 429
                    address.free_ns = unused_ns + self._interval_ns
                    async with self._one_at_a_time:
                        verified = await asyncio.to_thread(
                            self._verify, password[:_LONGEST_PASSWORD], against
                        )
                    right = verified and hashed is not None
                    self._results[key] = right
                    _drop_oldest(self._results)
                    if right:  # a right one is not counted
                        address.free_ns -= self._interval_ns
        return None if right else 401

    def _remembered(self, key: bytes) -> bool | None:
        if key in self._results:
            self._results[key] = self._results.pop(key)
        return self._results.get(key)

    def _address(self, client: str) -> _Address:
        with suppress(ValueError):
            number = ip_address(client)
            if isinstance(number, IPv6Address):  # a host has 2^64 of them
                client = str(number.ipv4_mapped or number.packed[:8].hex())
        found = self._addresses[client] = self._addresses.pop(client, _Address())
        _drop_oldest(self._addresses)
        return found


def _drop_oldest(table: dict[Any, Any]) -> None:
    if len(table) > _REMEMBERED_AT_MOST:
        del table[next(iter(table))]


def _read_credentials(header: str) -> tuple[bytes, bytes] | None:
    """Return user and password of an ``Authorization`` header, or None."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        return None
    user, colon, password = text.partition(b":")
    return (user, password) if colon else None


class Gate:
    """Check host and user before an application, and add the configured headers."""

    def __init__(
        self,
        app: ASGIApp,
        rules: "WebRules | None",
        token: str,
        clock: Clock,
        names: Collection[str],
    ) -> None:
        """Guard ``app``; the token replaces a password, and ``names`` are of ``host_names``."""
        self._app, self._rules, self._token, self._names = app, rules, token, names
        self._passwords = Passwords(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application answer it."""
        app, headers = self._app, Headers(scope=scope)
        host = headers.get("host", "")
        # Over TLS the certificate already ties the client to a name of this machine.
        if host and scope["scheme"] == "http" and not is_known_host(host, self._names):
            text = f"{host[:100]!a} is not a name of this daemon; add it to http.hosts"
            app = _refuse(421, text)
        elif self._rules is not None:
            try:
                config = self._rules.current()
            except ConfigError:
                app = _refuse(500, "Internal Server Error")
            else:
                app = await self._choose(config.basic_auth_users, headers, scope)
                send = _adding(config.http_server_config.headers, send)
        await app(scope, receive, send)

    async def _choose(self, users: Mapping[str, str], headers: Headers, scope: Scope) -> ASGIApp:
        if not users or carries_token(headers, self._token):
            return self._app
        client = (scope.get("client") or ("",))[0]
        status = await self._passwords.refusal(headers.get("authorization", ""), users, client)
        if status is None:
            return self._app
        if status == 401:
            return _refuse(401, "Unauthorized", {"www-authenticate": "Basic"})
        later = {"retry-after": str(_INTERVAL_SECONDS)}
        return _refuse(status, "Too Many Wrong Passwords", later)


def _refuse(status: int, text: str, headers: dict[str, str] | None = None) -> ASGIApp:
    return PlainTextResponse(f"{text}\n", status, headers)


def _adding(headers: Mapping[str, str], send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            found = MutableHeaders(scope=message)
            for name, value in headers.items():
                found.setdefault(name, value)  # the status page has a policy of its own
        await send(message)

    return send_with_headers

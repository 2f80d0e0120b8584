"""Checks before the application: host names, passwords and the token."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import math
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...collectors.base import Clock
from ...collectors.files import open_regular, write_atomic
from ...collectors.paths import exists
from ...parsers.errors import UserError
from ..settings.config import split_listen
from ..settings.file import ConfigError

if TYPE_CHECKING:
    from .web_config import WebRules

# A name, an IPv4 address, or an IPv6 address in brackets, each with or without a port.
_HOST = re.compile(r"(?:\[([^][]+)\]|([^][:]+))(?::[0-9]*)?")
_LOG = logging.getLogger(__name__)
_WRITE_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_REMEMBERED_AT_MOST = 1024
_INTERVAL_SECONDS = 5
# bcrypt reads no further, and Go's truncates there silently.
_LONGEST_PASSWORD = 72


_TOKEN_BYTES = 4096


def _read_private(path: Path) -> bytes:
    """Return the content of a file that only this user and root may write.

    Another user who can write into the directory could have put it there, or a link in its place.

    Raises:
        OSError: It cannot be read, or it is a link, a FIFO or too large.
        UserError: It belongs to another user, or others may write it.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(_TOKEN_BYTES + 1)
    again = f"rm {path}, and another one is made"
    if status.st_uid not in (0, os.geteuid()):
        raise UserError(f"{path}: belongs to the user {status.st_uid}, who knows it", again)
    mode = stat.S_IMODE(status.st_mode)
    if mode & _WRITE_OF_OTHERS:
        raise UserError(f"{path}: others may write it (mode {mode:04o})", again)
    if mode & stat.S_IROTH:
        _LOG.warning("%s: everybody may read it (mode %04o): chmod o= %s", path, mode, path)
    if len(content) > _TOKEN_BYTES:
        raise UserError(f"{path}: is larger than {_TOKEN_BYTES} bytes", again)
    return content


def read_token(path: Path) -> tuple[str, str | None]:
    """Return the secret for calls that change state; it is made at the first start.

    A new secret that cannot be written is returned with the reason: then no other process has it.
    """
    try:
        # A link whose target is missing is not an absent file: nothing is written through it.
        if not exists(path) and not path.is_symlink():
            token = secrets.token_urlsafe(32)
            if problem := write_token(path, token):
                return token, problem
        token = _read_private(path).decode("ascii").strip()
    except PermissionError as error:
        raise UserError(f"{path}: {error.strerror}", "name a writable --state-dir") from None
    except OSError as error:
        remedy = f"remove {path}, or name another --state-dir"
        raise UserError(f"{path}: {error.strerror}", remedy) from None
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
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    in_brackets, plain = match[1], match[2]
    host = (in_brackets or plain).rstrip(".").lower()
    with suppress(ValueError):
        return bool(ip_address(host))
    return in_brackets is None and host in names


@dataclass
class _Address:
    """Attempts of one address: each one takes an interval of the time before ``free_ns``."""

    free_ns: float = -math.inf
    waiting: int = 0
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Check(NamedTuple):
    """A password that is to be verified against a hash; ``key`` is for its result."""

    key: bytes
    password: bytes
    against: bytes
    is_known_user: bool


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    return bcrypt.checkpw(password, hashed)


class Passwords:
    """Verify passwords against bcrypt hashes and remember the results.

    An address may send ``burst`` wrong ones at once, then one per interval.
    bcrypt is slow on purpose: 60 ms at a cost of 10. One password at a time is verified, in a
    thread. An address has at most one in the queue, so a guesser delays another client by one.

    Beyond its burst, an address waits in the slow lane. Otherwise guessers could lock out everybody
    who shares their address: behind a proxy, that is everybody. The slow lane verifies one password
    at a time, in the order of arrival, with a share of one core only. So guesses beyond the burst
    cost a tenth of one core, from however many addresses they come, and a right password waits for
    those that came before it. The check goes on after its client has left, so its next request is
    answered at once. A wrong password gets 429 in the slow lane, as one that is not verified.
    """

    def __init__(
        self,
        clock: Clock,
        verify: Callable[[bytes, bytes], bool] = _matches,
        burst: int = 10,
        interval_seconds: int = _INTERVAL_SECONDS,
        slow_share: float = 0.1,
        waiting_at_most: tuple[int, int] = (40, 256),
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        core_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """Prepare.

        Args:
            verify: Tells whether a password has a hash.
            burst: Wrong passwords that an address may send at once.
            interval_seconds: Time after which it may send one more.
            slow_share: Share of one core that the slow lane may use.
            waiting_at_most: Requests of one address, and of all addresses, that wait.
            sleep: Waits between two passwords of the slow lane.
            core_ns: Returns how long the calling thread has used a core.
        """
        self._clock, self._verify = clock, verify
        self._burst, self._interval_ns = burst, interval_seconds * 10**9
        self._key = os.urandom(32)
        # The oldest entry comes first in both.
        self._results: dict[bytes, bool] = {}  # by a digest with the random key
        self._addresses: dict[str, _Address] = {}
        self._one_at_a_time = asyncio.Lock()
        self._slow_share, self._sleep, self._core_ns = slow_share, sleep, core_ns
        self._slow_lane = asyncio.Lock()
        self._slow_lane_free_ns = 0
        self._waiting_at_most = waiting_at_most
        self._waiting = 0

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
        if right is not None:
            return None if right else 401
        address = self._address(client)
        at_most, all_at_most = self._waiting_at_most
        if address.waiting >= at_most or self._waiting >= all_at_most:
            return 429
        address.waiting += 1
        self._waiting += 1
        try:
            async with address.verifying:
                right = self._remembered(key)  # by another request of this address
                if right is not None:
                    return None if right else 401
                check = _Check(key, password[:_LONGEST_PASSWORD], against, hashed is not None)
                return await self._in_turn(check, address)
        finally:
            address.waiting -= 1
            self._waiting -= 1

    async def _in_turn(self, check: _Check, address: _Address) -> int | None:
        """Verify a password within the burst of its address, or beyond it in the slow lane."""
        now_ns = self._clock.monotonic_ns()
        unused_ns = max(address.free_ns, now_ns - self._burst * self._interval_ns)
        if unused_ns + self._interval_ns <= now_ns:
            address.free_ns = unused_ns + self._interval_ns
            is_right, _ = await self._is_right(check)
            if not is_right:
                return 401
            address.free_ns -= self._interval_ns  # a right one is not counted
            return None
        async with self._slow_lane:
            rest_ns = self._slow_lane_free_ns - self._clock.monotonic_ns()
            if rest_ns > 0:
                await self._sleep(rest_ns / 1e9)
            is_right, cost_ns = await self._is_right(check)
            rest_ns = round(cost_ns * (1 / self._slow_share - 1))
            self._slow_lane_free_ns = self._clock.monotonic_ns() + rest_ns
        return None if is_right else 429

    async def _is_right(self, check: _Check) -> tuple[bool, int]:
        """Verify a password when no other is verified, and remember the result.

        The second value is the time that it took of a core, in nanoseconds. The wall time would be
        longer on a busy machine, and so would the queue.
        """

        def verify() -> tuple[bool, int]:
            begin_ns = self._core_ns()
            verified = self._verify(check.password, check.against)
            return verified, self._core_ns() - begin_ns

        async with self._one_at_a_time:
            verified, cost_ns = await asyncio.to_thread(verify)
        is_right = verified and check.is_known_user
        self._results[check.key] = is_right
        _drop_oldest(self._results)
        return is_right, cost_ns

    def _remembered(self, key: bytes) -> bool | None:
        if key in self._results:
            self._results[key] = self._results.pop(key)
        return self._results.get(key)

    def _address(self, client: str) -> _Address:
        with suppress(ValueError):
            number = ip_address(client)
            if isinstance(number, IPv6Address):  # a host has 2^64 of them
                client = str(number.ipv4_mapped or number.packed[:8].hex())
        address = self._addresses.pop(client, _Address())
        self._addresses[client] = address  # at the end, as the latest
        _drop_oldest(self._addresses)
        return address


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
            answer_headers = MutableHeaders(scope=message)
            for name, value in headers.items():
                answer_headers.setdefault(name, value)  # the status page has a policy of its own
        await send(message)

    return send_with_headers

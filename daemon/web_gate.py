"""Stands before the application and asks the web configuration file who may enter."""

from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..collectors.base import Clock
from .rate_limit import TokenBucket
from .secret import carries_token
from .settings.file import ConfigError
from .web_rules import WebRules

if TYPE_CHECKING:
    from .basic_auth import Passwords

_BASIC = {"www-authenticate": "Basic"}


class WebGate:
    """Limits the rate, sets headers, and lets in users and who has the token."""

    def __init__(self, app: ASGIApp, rules: WebRules, token: str, clock: Clock) -> None:
        """Stand before an application.

        Args:
            app: What is served.
            rules: The file in force.
            token: Secret for calls that change state; who has it may read as well.
            clock: For the rate.
        """
        self._app = app
        self._rules = rules
        self._token = token
        self._clock = clock
        self._bucket = TokenBucket()
        self._passwords: Passwords | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application answer it."""
        if scope["type"] != "http":
            return
        try:
            config = await self._rules.current()
        except ConfigError:
            await _refuse(500, "Internal Server Error")(scope, receive, send)
            return
        if not self._bucket.take(config.rate_limit, self._clock.monotonic_ns() / 1e9):
            await _refuse(429, "Too Many Requests")(scope, receive, send)
            return
        extra = config.http_server_config.headers

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in extra.items():
                    headers.setdefault(name, value)  # the status page has a policy of its own
            await send(message)

        app: ASGIApp = self._app
        if not await self._may_enter(Headers(scope=scope), config.basic_auth_users):
            app = _refuse(401, "Unauthorized", _BASIC)
        await app(scope, receive, send_with_headers if extra else send)

    async def _may_enter(self, headers: Headers, users: dict[str, str]) -> bool:
        if not users or carries_token(headers, self._token):
            return True
        if self._passwords is None:
            from .basic_auth import Passwords

            self._passwords = Passwords()
        return await self._passwords.accept(headers.get("authorization", ""), users)


def _refuse(status: int, said: str, headers: dict[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(f"{said}\n", status, headers)

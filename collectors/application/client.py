"""Client of the daemon's API that needs only the standard library.

Applications that infer import it, so it stays small: no pydantic, and only our error types.
"""

import base64
import json
import os
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ...parsers.errors import UserError

DEFAULT_URL = "http://127.0.0.1:9754"
# Meaning and remedy of plain answers from outside the API.
_PLAIN_ANSWERS = {
    421: "it does not know this host name; list it under http.hosts in its configuration",
    429: "too many wrong passwords; ask less often",
    500: "see its log: its web configuration file may have become bad",
}
_USE_TLS = "give the address as https:// if it serves TLS"


class UnreachableError(UserError):
    """No daemon answers."""


class RefusedError(UserError):
    """The daemon refuses the request."""

    def __init__(self, status: int, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.status = status


class ApiClient:
    """Connection to one daemon; each request opens a new one."""

    def __init__(
        self,
        url: str | None = None,
        token_file: "str | os.PathLike[str] | None" = None,
        *,
        timeout_seconds: float = 3.0,
    ) -> None:
        """Set the address and the paths of the token.

        With TLS, ``TEGRASCOPE_CA_FILE`` names the authority of the daemon's certificate if the
        system does not know it, and ``TEGRASCOPE_CERT_FILE`` and ``TEGRASCOPE_KEY_FILE`` the
        client's own certificate if the daemon requires one.

        Args:
            url: Address, such as ``https://user:password@robot:9754``; default:
                ``TEGRASCOPE_URL``, else the usual address on this machine.
            token_file: The secret for calls that change state; default:
                ``TEGRASCOPE_TOKEN_FILE``, else the first readable one of the usual paths.
        """
        given_url = (url or os.environ.get("TEGRASCOPE_URL") or DEFAULT_URL).rstrip("/")
        self._address = read_address(given_url)
        self.url = self._address.url if self._address else given_url
        self._timeout_seconds = timeout_seconds
        given = token_file or os.environ.get("TEGRASCOPE_TOKEN_FILE")
        self._token_files = token_files() if given is None else [Path(given)]
        self._accepted_token: str | None = None

    def get(self, path: str, read: Callable[[bytes], Any] = json.loads) -> Any:
        """Return the answer to a request, decoded by ``read``.

        A token that the daemon accepted before is sent again, because readers may need a password.

        Raises:
            UserError: The address is not valid, or TLS can't be set up.
            UnreachableError: The daemon does not answer, or ``read`` raises ``ValueError``.
            RefusedError: The daemon refuses.
        """
        return self._request("GET", path, None, self._accepted_token, read)

    def post(self, path: str, body: bytes) -> Any:
        """Change the daemon's state and return its answer.

        Raises:
            UserError: As for ``get``. ``UnreachableError`` also if no token can be read.
        """
        token = self._token()
        answer = self._request("POST", path, body, token, json.loads)
        self._accepted_token = token
        return answer

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        token: str | None,
        read: Callable[[bytes], Any],
    ) -> Any:
        address = self._address
        if address is None:
            raise UserError(
                f"{self.url} is not the address of a daemon", f"give one like {DEFAULT_URL}"
            )
        headers: dict[str, str] = {}
        if address.authorization is not None:
            headers["Authorization"] = address.authorization
        if token is not None and headers:  # the password takes the token's usual header
            headers["X-Tegrascope-Token"] = token
        elif token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection = self._connect(address)
        try:
            connection.request(method, address.path + path, body, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
            document = read(text) if status < 400 else None
        except (OSError, HTTPException, ValueError) as error:
            problem = f"no tegrascope daemon answers at {self.url} "
            problem += f"({error or type(error).__name__})"
            raise UnreachableError(problem, _remedy(error)) from None
        finally:
            connection.close()
        if status == 401:
            raise self._unauthorized(address, token)
        if status >= 400:
            raise self._refused(status, text)
        return document

    def _refused(self, status: int, text: bytes) -> UserError:
        """Return the error of an answer from the API, or from a server in front of it."""
        try:
            document = json.loads(text)
            reason = str(document.get("error") or "") if isinstance(document, dict) else ""
        except ValueError:
            if status not in _PLAIN_ANSWERS:
                problem = f"no tegrascope daemon answers at {self.url} (status {status})"
                return UnreachableError(problem, _USE_TLS)
            reason = _PLAIN_ANSWERS[status]
        return RefusedError(status, f"{self.url} answers {status}", reason or "see its log")

    def _unauthorized(self, address: "Address", token: str | None) -> RefusedError:
        remedy = "put user and password into the address: TEGRASCOPE_URL=https://USER:PASSWORD@HOST"
        problem = "wants a user and a password"
        if token is not None:
            problem = "does not take this token"
            remedy = "name the daemon's own token file in TEGRASCOPE_TOKEN_FILE"
        elif address.authorization is not None:
            problem = "does not take this user and password"
        return RefusedError(401, f"{self.url} {problem}", remedy)

    def _connect(self, address: "Address") -> HTTPConnection:
        if not address.is_tls:
            return HTTPConnection(address.host, address.port, timeout=self._timeout_seconds)
        import ssl
        from http.client import HTTPSConnection

        environment = os.environ.get
        try:
            context = ssl.create_default_context(cafile=environment("TEGRASCOPE_CA_FILE"))
            own = environment("TEGRASCOPE_CERT_FILE")
            if own:
                context.load_cert_chain(own, environment("TEGRASCOPE_KEY_FILE"), password="")
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.url}: TLS can't be set up ({error})",
                "name PEM files in TEGRASCOPE_CA_FILE, TEGRASCOPE_CERT_FILE and "
                "TEGRASCOPE_KEY_FILE, or unset them",
            ) from None
        return HTTPSConnection(
            address.host, address.port, timeout=self._timeout_seconds, context=context
        )

    def _token(self) -> str:
        for path in self._token_files:
            try:
                token = path.read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                continue
            if token.isprintable():
                return token
        tried = ", ".join(map(str, self._token_files))
        raise UnreachableError(
            f"no token can be read in {tried}",
            "name the daemon's token file in TEGRASCOPE_TOKEN_FILE, and let this user read it",
        )


def _remedy(error: Exception) -> str:
    """Return the remedy of an error without an answer of the daemon."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "name the authority of its certificate in TEGRASCOPE_CA_FILE"
    if isinstance(error, ValueError):  # the answer is not JSON: it may be a TLS message
        return _USE_TLS
    return "start it with tegrascope run, or name its address in TEGRASCOPE_URL"


class Address(NamedTuple):
    """The address of a daemon; ``authorization`` is user and password as a header."""

    url: str
    is_tls: bool
    host: str
    port: int
    path: str
    authorization: str | None


def read_address(url: str) -> Address | None:
    """Return the parts of a daemon's address, or None if it is not valid.

    >>> read_address("https://prom:p%40w@robot/x")[:5]
    ('https://robot/x', True, 'robot', 443, '/x')
    """
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        is_tls = parts.scheme == "https"
        port = parts.port or (443 if is_tls else 80)
    except ValueError:
        return None
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return Address(shown.geturl(), is_tls, parts.hostname, port, parts.path, authorization)


def token_files() -> list[Path]:
    """Return the usual paths of the token: that of this user's daemon, then the service's."""
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, as in a container
        home = "/var/lib"
    found = [Path(home) / "tegrascope/token", Path("/var/lib/tegrascope/token")]
    return list(dict.fromkeys(found))

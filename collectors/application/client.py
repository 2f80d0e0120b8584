"""The daemon's API, for a program that has nothing but the standard library.

Imported by applications that infer, so it is small: no pydantic, nothing of ours but
the errors.
"""

import base64
import json
import os
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from ...parsers.errors import Mendable

DEFAULT_URL = "http://127.0.0.1:9754"
# What the daemon's gate answers in plain words, and what ends it.
_BEFORE_THE_API = {
    421: "it does not know this host name; list it under http.hosts in its configuration",
    429: "its rate_limit, or too many wrong passwords; ask less often",
    500: "see its log: its web configuration file may have become bad",
}


class UnreachableError(Mendable):
    """No daemon answers."""


class RefusedError(Mendable):
    """The daemon answers that it will not."""

    def __init__(self, status: int, what: str, mend: str) -> None:
        super().__init__(what, mend)
        self.status = status


class ApiClient:
    """Speaks to one daemon, a connection for each question."""

    def __init__(
        self,
        url: str | None = None,
        token_file: "str | os.PathLike[str] | None" = None,
        *,
        timeout_seconds: float = 3.0,
    ) -> None:
        """Name the daemon.

        For a daemon with TLS, ``TEGRASCOPE_CA_FILE`` names the authority of its certificate where
        the system does not know it, and ``TEGRASCOPE_CERT_FILE`` and ``TEGRASCOPE_KEY_FILE`` what
        this client shows of itself where that is asked for.

        Args:
            url: Address, such as ``https://user:password@robot:9754``; else
                ``TEGRASCOPE_URL``, else its usual address on this machine.
            token_file: The secret for calls that change state; else ``TEGRASCOPE_TOKEN_FILE``,
                else the first that can be read in the directories where a daemon keeps it.
        """
        given_url = (url or os.environ.get("TEGRASCOPE_URL") or DEFAULT_URL).rstrip("/")
        self._address = read_address(given_url)
        self.url = self._address.url if self._address else given_url
        self._timeout_seconds = timeout_seconds
        given = token_file or os.environ.get("TEGRASCOPE_TOKEN_FILE")
        self._token_files = token_files() if given is None else [Path(given)]
        self._taken_token: str | None = None

    def get(self, path: str, read: Callable[[bytes], Any] = json.loads) -> Any:
        """Return an answer of the API.

        A daemon that took the token once is shown it again: it may want a password of readers.

        Args:
            path: Path of the request, from the first slash on.
            read: Decodes the answer; its ``ValueError`` means that another server answered.

        Raises:
            Mendable: The address is none, or TLS can't be set up.
            UnreachableError: No daemon answers.
            RefusedError: It has no such answer.
        """
        return self._ask("GET", path, None, self._taken_token, read)

    def post(self, path: str, body: bytes) -> Any:
        """Change the daemon's state; return its answer.

        Raises:
            Mendable: The address is none, or TLS can't be set up.
            UnreachableError: No daemon answers, or no token can be read.
            RefusedError: It will not.
        """
        token = self._token()
        answer = self._ask("POST", path, body, token)
        self._taken_token = token
        return answer

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        token: str | None,
        read: Callable[[bytes], Any] = json.loads,
    ) -> Any:
        address = self._address
        if address is None:
            raise Mendable(
                f"{self.url} is not the address of a daemon", f"give one like {DEFAULT_URL}"
            )
        headers: dict[str, str] = {}
        if address.authorization is not None:
            headers["Authorization"] = address.authorization
        if token is not None and headers:  # the password has the token's usual place
            headers["X-Tegrascope-Token"] = token
        elif token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connection = self._connect(address)
        try:
            connection.request(method, address.before + path, body, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
            document = read(text) if status < 400 else None
        except (OSError, HTTPException, ValueError) as error:
            raise UnreachableError(
                f"no tegrascope daemon answers at {self.url} ({error or type(error).__name__})",
                _mend(error),
            ) from None
        finally:
            connection.close()
        if status == 401:
            raise self._unknown_here(token)
        if status >= 400:
            raise self._refused(status, text)
        return document

    def _refused(self, status: int, text: bytes) -> Mendable:
        """Return what an answer says that is none, of the API or of who stands before it."""
        try:
            document = json.loads(text)
            said = str(document.get("error") or "") if isinstance(document, dict) else ""
        except ValueError:
            if status not in _BEFORE_THE_API:
                mend = "give the address as https:// if it serves TLS"
                what = f"no tegrascope daemon answers at {self.url} (status {status})"
                return UnreachableError(what, mend)
            said = _BEFORE_THE_API[status]
        return RefusedError(status, f"{self.url} answers {status}", said or "see its log")

    def _unknown_here(self, token: str | None) -> RefusedError:
        if token is not None:
            mend = "name the daemon's own token file in TEGRASCOPE_TOKEN_FILE"
            return RefusedError(401, f"{self.url} does not take this token", mend)
        mend = "put user and password into the address: TEGRASCOPE_URL=https://USER:PASSWORD@HOST"
        if self._address is not None and self._address.authorization is not None:
            return RefusedError(401, f"{self.url} does not take this user and password", mend)
        return RefusedError(401, f"{self.url} wants a user and a password", mend)

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
            raise Mendable(
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


def _mend(error: Exception) -> str:
    """Say what ends a failure to reach the daemon."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "name the authority of its certificate in TEGRASCOPE_CA_FILE"
    if isinstance(error, ValueError):  # words where JSON should be, such as of TLS
        return "give the address as https:// if it serves TLS"
    return "start it with tegrascope run, or name its address in TEGRASCOPE_URL"


class Address(NamedTuple):
    """The address of a daemon.

    Attributes:
        authorization: User and password as a header; ``None`` without.
    """

    url: str
    is_tls: bool
    host: str
    port: int
    before: str
    authorization: str | None


def read_address(url: str) -> Address | None:
    """Read the address of a daemon; ``None`` where it is none.

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
    """Return where a daemon keeps its token: that of this user's own, then the service's."""
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, as in a container
        home = "/var/lib"
    found = [Path(home) / "tegrascope/token", Path("/var/lib/tegrascope/token")]
    return list(dict.fromkeys(found))

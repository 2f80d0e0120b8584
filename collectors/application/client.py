"""Client of the daemon's API that needs only the standard library.

Applications that infer import it, so it stays small: no pydantic, and only our error types.
"""

import base64
import json
import os
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from ...parsers.errors import UserError
from ..files import read_regular
from ..http_peer import HttpPeer, OversizeError, PeerLimits, error_words, header_secrets
from ..paths import own_state_dir

if TYPE_CHECKING:
    from ssl import SSLContext

DEFAULT_URL = "http://127.0.0.1:9754"
WINDOWS_PATH = "/api/v1/windows"
# Meaning and remedy of plain answers from outside the API.
_PLAIN_ANSWERS = {
    421: "it does not know this host name; list it under http.hosts in its configuration",
    429: "too many wrong passwords; ask less often",
    500: "see its log: its web configuration file may have become bad",
}
_PASSWORD = "put user and password into the address: TEGRASCOPE_URL=https://USER:PASSWORD@HOST"
_USE_TLS = "give the address as https:// if it serves TLS"
# A whole answer may take as many times the longest silence.
_SILENCES = 10
# A thousand runs, or an hour of samples, of a board with all its signals.
_LARGEST_BYTES = 64 * 2**20
_SHOWN_CHARACTERS = 1000
# The daemon writes 44 bytes; a person may write a longer secret.
_TOKEN_BYTES = 4096


# What reading a document of another shape than ours raises.
ODD_ANSWER = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)


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
        whole_seconds: float | None = None,
        largest_bytes: int = _LARGEST_BYTES,
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
            timeout_seconds: Longest time without a byte of the answer.
            whole_seconds: Longest time of a request and its whole answer; default: ten times
                ``timeout_seconds``.
            largest_bytes: Longest answer.
        """
        self.url = (url or os.environ.get("TEGRASCOPE_URL") or DEFAULT_URL).rstrip("/")
        self._address = _split(self.url)
        if self._address is not None:  # the password is not shown
            host = self._address.netloc.rpartition("@")[2]
            self.url = self._address._replace(netloc=host).geturl()
        self._limits = PeerLimits(
            seconds=whole_seconds or _SILENCES * timeout_seconds,
            silent_seconds=timeout_seconds,
            body_bytes=largest_bytes,
        )
        given = token_file or os.environ.get("TEGRASCOPE_TOKEN_FILE")
        self._token_files = token_files() if given is None else [Path(given)]
        self._accepted_token: str | None = None

    def get(self, path: str, read: Callable[[bytes], Any] = json.loads) -> Any:
        """Return the answer to a request, decoded by ``read``, or raise ``UserError``.

        A token that the daemon accepted before is sent again, because readers may need a password.
        An answer for which ``read`` raises ``ValueError`` is not one of a daemon.
        """
        return self._request("GET", path, None, self._accepted_token, read)

    def post(self, path: str, body: bytes) -> Any:
        """Change the daemon's state with our token, and return its answer as ``get`` does."""
        token = self._token()
        answer = self._request("POST", path, body, token, json.loads)
        self._accepted_token = token
        return answer

    def odd_answer(self, error: Exception) -> UserError:
        """Return the error of a document that has another shape than a daemon's; see ODD_ANSWER."""
        what = f"{self.url} does not answer as a daemon of this version does"
        why = f"{type(error).__name__}: {error_words(error)}"
        return UserError(f"{what} ({why})", "use the same release on both sides")

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
            what = f"{self.url} is not the address of a daemon"
            raise UserError(what, f"give one like {DEFAULT_URL}")
        headers: dict[str, str] = {}
        if address.username is not None:
            pair = f"{unquote(address.username)}:{unquote(address.password or '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        if token is not None and headers:  # the password takes the token's usual header
            headers["X-Tegrascope-Token"] = token
        elif token is not None:
            headers["Authorization"] = f"Bearer {token}"
        secrets = header_secrets(headers)
        context = self._tls() if address.scheme == "https" else None
        try:
            with HttpPeer(address, self._limits, context) as peer:
                answer = peer.ask(method, address.path + path, body, headers)
                status, text = answer.status, peer.read()
            document = read(text) if status < 400 else None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            why = error_words(error, secrets)
            raise self._unreachable(why, _remedy(error)) from None
        if status == 401:
            problem, remedy = "wants a user and a password", _PASSWORD
            if token is not None:
                problem = "does not take this token"
                remedy = "name the daemon's own token file in TEGRASCOPE_TOKEN_FILE"
            elif address.username is not None:
                problem = "does not take this user and password"
            raise RefusedError(401, f"{self.url} {problem}", remedy)
        if status >= 400:
            raise self._refused(status, secrets.cover_bytes(text))
        return document

    def _refused(self, status: int, text: bytes) -> UserError:
        """Return the error of an answer from the API, or from a server in front of it."""
        try:
            document = json.loads(text)
            reason = str(document.get("error") or "") if isinstance(document, dict) else ""
        except (ValueError, RecursionError):
            if status not in _PLAIN_ANSWERS:
                return self._unreachable(f"status {status}", _USE_TLS)
            reason = _PLAIN_ANSWERS[status]
        reason = reason[:_SHOWN_CHARACTERS]
        return RefusedError(status, f"{self.url} answers {status}", reason or "see its log")

    def _unreachable(self, why: object, remedy: str) -> UnreachableError:
        return UnreachableError(f"no tegrascope daemon answers at {self.url} ({why})", remedy)

    def _tls(self) -> "SSLContext":
        """Return how TLS is set up, or raise ``UserError``."""
        import ssl

        environment = os.environ.get
        try:
            context = ssl.create_default_context(cafile=environment("TEGRASCOPE_CA_FILE"))
            own = environment("TEGRASCOPE_CERT_FILE")
            if own:
                context.load_cert_chain(own, environment("TEGRASCOPE_KEY_FILE"), password="")
        except (OSError, ValueError) as error:
            remedy = (
                "name PEM files in TEGRASCOPE_CA_FILE, TEGRASCOPE_CERT_FILE and "
                "TEGRASCOPE_KEY_FILE, or unset them"
            )
            raise UserError(f"{self.url}: TLS can't be set up ({error})", remedy) from None
        return context

    def _token(self) -> str:
        for path in self._token_files:
            try:
                token = read_regular(path, _TOKEN_BYTES).decode("ascii").strip()
            except (OSError, ValueError):
                continue
            if token.isprintable():
                return token
        tried = ", ".join(map(str, self._token_files))
        remedy = "name the daemon's token file in TEGRASCOPE_TOKEN_FILE, and let this user read it"
        raise UnreachableError(f"no token can be read in {tried}", remedy)


def _remedy(error: Exception) -> str:
    """Return the remedy of an error without an answer of the daemon."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "name the authority of its certificate in TEGRASCOPE_CA_FILE"
    if isinstance(error, OversizeError):
        return "it is another program, or ask for less at once"
    if isinstance(error, (ValueError, RecursionError)):  # not JSON: it may be a TLS message
        return _USE_TLS
    return "start it with tegrascope run, or name its address in TEGRASCOPE_URL"


def whole_characters(text: str) -> str:
    r"""Return text that JSON can hold: a daemon refuses half a character.

    An error with the name of a file may have one, where the name is not UTF-8.

    >>> print(whole_characters("a\udcff"))
    a\udcff
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _split(url: str) -> SplitResult | None:
    """Return the parts of a daemon's address, or None if it is not valid."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if is_valid else None


def token_files() -> list[Path]:
    """Return the usual paths of the token: that of this user's daemon, then the service's."""
    directories = dict.fromkeys((own_state_dir(), Path("/var/lib/tegrascope")))
    return [directory / "token" for directory in directories]

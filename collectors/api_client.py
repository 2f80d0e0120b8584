"""The daemon's API, for a program that has nothing but the standard library.

Imported by applications beside their inference, so it is small: no pydantic, nothing of ours but
the errors.
"""

import json
import os
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..parsers.errors import Mendable

DEFAULT_URL = "http://127.0.0.1:9754"


class UnreachableError(Mendable):
    """No daemon answers."""


class RefusedError(Mendable):
    """The daemon answers that it will not.

    Attributes:
        status: Of HTTP.
    """

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

        Args:
            url: Where it is; else ``TEGRASCOPE_URL``, else its usual address on this machine.
            token_file: The secret for calls that change state; else ``TEGRASCOPE_TOKEN_FILE``,
                else the first that can be read in the directories where a daemon keeps it.
            timeout_seconds: For each step of an answer.
        """
        self.url = (url or os.environ.get("TEGRASCOPE_URL") or DEFAULT_URL).rstrip("/")
        self._timeout_seconds = timeout_seconds
        given = token_file or os.environ.get("TEGRASCOPE_TOKEN_FILE")
        self._token_files = token_files() if given is None else [Path(given)]

    def get(self, path: str, read: Callable[[bytes], Any] = json.loads) -> Any:
        """Return an answer of the API.

        Args:
            path: Of the question, from the first slash on.
            read: What makes an answer of the bytes; a ``ValueError`` of it is no answer.

        Raises:
            Mendable: The address is none.
            UnreachableError: No daemon answers.
            RefusedError: It has no such answer.
        """
        return self._ask("GET", path, None, {}, read)

    def post(self, path: str, body: bytes) -> Any:
        """Change the daemon's state; return its answer.

        Raises:
            Mendable: The address is none.
            UnreachableError: No daemon answers, or no token can be read.
            RefusedError: It will not.
        """
        return self._ask("POST", path, body, {"Authorization": f"Bearer {self._token()}"})

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        read: Callable[[bytes], Any] = json.loads,
    ) -> Any:
        host, port, before = self._address()
        connection = HTTPConnection(host, port, timeout=self._timeout_seconds)
        try:
            connection.request(method, before + path, body, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
            document = (read if status < 400 else json.loads)(text)
        except (OSError, HTTPException, ValueError) as error:
            raise UnreachableError(
                f"no tegrascope daemon answers at {self.url} ({error or type(error).__name__})",
                "start it with tegrascope run, or name its address in TEGRASCOPE_URL",
            ) from None
        finally:
            connection.close()
        if status == 401:
            mend = "name the daemon's own token file in TEGRASCOPE_TOKEN_FILE"
            raise RefusedError(status, f"{self.url} does not take this token", mend)
        if status >= 400:
            said = document.get("error") if isinstance(document, dict) else None
            raise RefusedError(status, f"{self.url} answers {status}", str(said or "see its log"))
        return document

    def _address(self) -> tuple[str, int, str]:
        """Return host, port and what stands before each path."""
        try:
            parts = urlsplit(self.url)
            if parts.scheme == "http" and parts.hostname:
                return parts.hostname, parts.port or 80, parts.path
        except ValueError:
            pass
        raise Mendable(f"{self.url} is no address of a daemon", f"give one like {DEFAULT_URL}")

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


def token_files() -> list[Path]:
    """Return where a daemon keeps its token: that of this user's own, then the service's."""
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, as in a container
        home = "/var/lib"
    found = [Path(home) / "tegrascope/token", Path("/var/lib/tegrascope/token")]
    return list(dict.fromkeys(found))

"""One HTTP connection to the server of a model; every failure is one line with its address."""

import http.client
import json
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from ...parsers.errors import UserError, file_error
from ...parsers.inference.servers import ServerAccess
from ...parsers.values import printable
from ..paths import is_file

LARGEST_BYTES = 16 * 2**20
_PART_BYTES = 65536
_SHOWN_CHARACTERS = 200


class Connection:
    """Sends one request at a time; it follows no redirect and uses no proxy."""

    def __init__(self, endpoint: ServerAccess) -> None:
        """Read the key; nothing is sent yet."""
        parts = urlsplit(endpoint.url)
        self.url, self._timeout = endpoint.url, endpoint.timeout
        self._path = parts.path
        self._query = f"?{parts.query}" if parts.query else ""
        is_plain = parts.scheme == "http"
        kind = http.client.HTTPConnection if is_plain else http.client.HTTPSConnection
        self._http = kind(parts.hostname or "", parts.port, timeout=endpoint.timeout)
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._headers = {"User-Agent": "tegrascope", "Accept": "text/plain, application/json"}
        if endpoint.api_key_file is not None:
            self._headers["Authorization"] = f"Bearer {_read_key(endpoint.api_key_file)}"

    def get(self) -> tuple[bytes, int, int]:
        """Return the whole answer, and when its request left and its last byte came."""
        with self._failures():
            self._connect()
            sent_ns = time.monotonic_ns()
            response = self._ask("GET", "", None, {})
            body = bytearray()
            while part := response.read1(_PART_BYTES):
                body += part
                if len(body) > LARGEST_BYTES:
                    raise self.problem(f"answers with more than {LARGEST_BYTES >> 20} MiB")
                if time.monotonic_ns() - sent_ns > self._timeout * 1e9:
                    raise TimeoutError
            length = response.getheader("Content-Length")
            if length is not None and length != str(len(body)):
                raise http.client.IncompleteRead(bytes(body))
            came_ns = time.monotonic_ns()
            self.close()
            return bytes(body), sent_ns, came_ns

    def post(self, below: str, document: object) -> Generator[tuple[int, bytes], None, None]:
        """Send a document; yield when the request left, and then each line and when it came."""
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        with self._failures():
            self._connect()
            yield time.monotonic_ns(), b""
            response, size = self._ask("POST", below, body, headers), 0
            while line := response.readline(_PART_BYTES * 16):
                yield time.monotonic_ns(), line
                size += len(line)
                if size > LARGEST_BYTES:
                    raise self.problem(f"answers with more than {LARGEST_BYTES >> 20} MiB")

    def close(self) -> None:
        """Close it; a request under way in another thread fails."""
        if self._socket is not None:  # which a response may hold beyond its connection
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._http.close()
        if self._response is not None:
            self._response.close()

    def _connect(self) -> None:
        """Connect anew: a server may close an idle connection at any time."""
        self.close()
        self._http.connect()
        self._socket = self._http.sock

    def _ask(
        self, method: str, below: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request; return an answer of status 200, or raise."""
        path = f"{self._path.rstrip('/')}{below}" if below else self._path or "/"
        self._http.request(method, path + self._query, body, {**self._headers, **headers})
        self._response = response = self._http.getresponse()
        if response.status == http.client.OK:
            return response
        where = response.getheader("Location")
        if where is not None and 300 <= response.status < 400:
            raise self.problem(f"redirects to {printable(where, _SHOWN_CHARACTERS)}", "give that")
        words = response.read1(_PART_BYTES).decode("utf-8", "replace")
        raise self.problem(
            f"answers {response.status} {printable(response.reason, 40)}"
            + (f" ({printable(' '.join(words.split()), _SHOWN_CHARACTERS)})" if words else "")
        )

    def problem(self, what: str, remedy: str = "see the log of the server") -> UserError:
        """Return the error of this server."""
        return UserError(f"{self.url} {what}", remedy)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise ``UserError`` in place of an error of the connection, which is closed then."""
        try:
            yield
            return
        except TimeoutError:
            found = self.problem(f"does not answer within {self._timeout:g} s", "see timeout:")
        except http.client.HTTPException as error:
            words = printable(str(error) or type(error).__name__, _SHOWN_CHARACTERS)
            found = self.problem(f"breaks off or does not answer as HTTP ({words})")
        except OSError as error:
            reason = printable(error.strerror or str(error), _SHOWN_CHARACTERS)
            found = self.problem(f"cannot be reached ({reason})", "start the server")
        except UserError as error:
            found = error
        self.close()
        raise found from None


def read_lines(path: str, key: str) -> list[str]:
    """Return the lines of a file that are not blank, or raise ``UserError``, with its key."""
    file = Path(path).expanduser()
    try:
        is_small = is_file(file) and file.stat().st_size <= LARGEST_BYTES
        found = file.read_text(encoding="utf-8").splitlines() if is_small else []
    except UnicodeDecodeError:
        found = []
    except OSError as error:
        raise file_error(error, path) from None
    if lines := [line.strip() for line in found if line.strip()]:
        return lines
    what = f"{key}: {path} is not a file with lines of text, of at most {LARGEST_BYTES >> 20} MiB"
    raise UserError(what, "name another")


def _read_key(path: str) -> str:
    """Return the only line of a file with a key."""
    key, *more = read_lines(path, "api_key_file")
    if more or not all(32 < ord(sign) < 127 for sign in key):
        raise UserError(f"api_key_file: {path} is not one line with a key", "write the key alone")
    return key

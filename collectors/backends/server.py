"""One HTTP connection to the server of a model; every failure is one line with its address."""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.client import OK, HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from ...parsers.errors import UserError, file_error
from ...parsers.inference.servers import ServerAccess
from ...parsers.values import printable
from ..http_peer import HttpPeer, OversizeError, PeerLimits, Secrets
from ..paths import is_file

LARGEST_BYTES = 16 * 2**20
_SHOWN_CHARACTERS = 200


class Connection:
    """Sends one request at a time; it follows no redirect and uses no proxy.

    An answer is bounded in bytes. It is bounded in time by ``timeout``, which ``renew`` starts
    again. The key is covered in all that the server sends.
    """

    def __init__(self, endpoint: ServerAccess) -> None:
        """Read the key; nothing is sent yet."""
        self.url, self._timeout = endpoint.url, endpoint.timeout
        self._address = urlsplit(endpoint.url)
        self._limits = PeerLimits(seconds=endpoint.timeout, body_bytes=LARGEST_BYTES)
        self._context = None
        if self._address.scheme == "https":
            from ssl import create_default_context

            self._context = create_default_context()
        self._peer: HttpPeer | None = None
        self._headers = {"User-Agent": "tegrascope", "Accept": "text/plain, application/json"}
        self._secrets = Secrets()
        if endpoint.api_key_file is not None:
            key = _read_key(endpoint.api_key_file)
            self._headers["Authorization"] = f"Bearer {key}"
            self._secrets = Secrets([key])

    def get(self) -> tuple[bytes, int, int]:
        """Return the whole answer, and when its request left and its last byte came."""
        with self._failures():
            peer = self._connect()
            sent_ns = time.monotonic_ns()
            self._ask(peer, "GET", "", None, {})
            body = peer.read()
            came_ns = time.monotonic_ns()
            self.close()
            return self._secrets.cover_bytes(body), sent_ns, came_ns

    def post(self, below: str, document: object) -> Generator[tuple[int, bytes], None, None]:
        """Send a document; yield when the request left, and then each line and when it came."""
        body = json.dumps(document).encode()
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        with self._failures():
            peer = self._connect()
            yield time.monotonic_ns(), b""
            self._ask(peer, "POST", below, body, headers)
            while line := peer.read_line():
                yield time.monotonic_ns(), self._secrets.cover_bytes(line)

    def renew(self) -> None:
        """Start the time of the answer again: a part of it came that is output."""
        if self._peer is not None:
            self._peer.renew()

    def close(self) -> None:
        """Close it; a request under way in another thread fails."""
        if self._peer is not None:
            self._peer.close()

    def _connect(self) -> HttpPeer:
        """Connect anew: a server may close an idle connection at any time."""
        self.close()
        self._peer = peer = HttpPeer(self._address, self._limits, self._context)
        peer.connect()
        return peer

    def _ask(
        self, peer: HttpPeer, method: str, below: str, body: bytes | None, headers: dict[str, str]
    ) -> HTTPResponse:
        """Send a request; return an answer of status 200, or raise."""
        path = self._address.path
        if below:
            path = path.rstrip("/") + below
        target = path or "/"
        if self._address.query:
            target += f"?{self._address.query}"
        response = peer.ask(method, target, body, {**self._headers, **headers})
        if response.status == OK:
            return response
        where = response.getheader("Location")
        if where is not None and 300 <= response.status < 400:
            raise self.problem(f"redirects to {self._shown(where)}", "use it as url")
        answer = f"answers {response.status} {printable(response.reason, 40)}"
        words = self._shown(peer.read_words())
        if words:
            answer += f" ({words})"
        raise self.problem(answer)

    def _shown(self, words: str) -> str:
        # Covered before it is cut: the first half of a key would not be found.
        return printable(self._secrets.cover(words), _SHOWN_CHARACTERS)

    def problem(self, what: str, remedy: str = "see the log of the server") -> UserError:
        """Return the error of this server."""
        return UserError(f"{self.url} {self._secrets.cover(what)}", self._secrets.cover(remedy))

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise ``UserError`` in place of an error of the connection, which is closed then."""
        try:
            yield
            return
        except TimeoutError:
            failure = self.problem(f"does not answer within {self._timeout:g} s", "see timeout:")
        except OversizeError as error:
            failure = self.problem(f"answers with {error}")
        except HTTPException as error:
            words = self._shown(str(error) or type(error).__name__)
            failure = self.problem(f"breaks off or does not answer as HTTP ({words})")
        except OSError as error:
            reason = self._shown(error.strerror or str(error))
            failure = self.problem(f"cannot be reached ({reason})", "start the server")
        except UserError as error:
            failure = error
        self.close()
        raise failure from None


def read_lines(path: str, key: str) -> list[str]:
    """Return the lines of a file that are not blank, or raise ``UserError``, with its key."""
    file, text = Path(path).expanduser(), ""
    try:
        if is_file(file) and file.stat().st_size <= LARGEST_BYTES:
            text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        pass
    except OSError as error:
        raise file_error(error, path) from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines:
        return lines
    what = f"{key}: {path} is not a file with lines of text, of at most {LARGEST_BYTES >> 20} MiB"
    raise UserError(what, "name another")


def _read_key(path: str) -> str:
    """Return the only line of a file with a key."""
    key, *more = read_lines(path, "api_key_file")
    if more or not all(32 < ord(sign) < 127 for sign in key):
        raise UserError(f"api_key_file: {path} is not one line with a key", "write the key alone")
    return key

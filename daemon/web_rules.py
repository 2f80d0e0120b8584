"""The web configuration file in force: it is read again for each request and connection."""

import asyncio
import logging
from typing import TYPE_CHECKING

from .settings.file import ConfigError
from .web_config import WebConfig
from .web_file import WebFile, parse_web_file, read_bytes

if TYPE_CHECKING:
    from ssl import SSLContext

_LOG = logging.getLogger(__name__)


class WebRules:
    """What the file says now.

    A bad file refuses every request until it is mended, as node_exporter does: what no longer says
    who may read does not let in whom it let in before.

    Attributes:
        has_tls: Whether the page is served over TLS, from start to end.
    """

    def __init__(self, file: WebFile) -> None:
        """Take the file as it was read at the start.

        Raises:
            ConfigError: A certificate that it names is not there, or is none.
        """
        self.has_tls = file.config.has_tls
        self._path = file.path
        self._text: bytes | None = file.text
        self._read: WebFile | ConfigError = file
        self._reading = asyncio.Lock()
        self._context: tuple[bytes, dict[str, bytes], SSLContext] | None = None
        self._told = ""
        if self.has_tls:
            from .tls import read_in_small_pieces

            read_in_small_pieces()
            self._make_context(file)

    async def current(self) -> WebConfig:
        """Return what the file says.

        Raises:
            ConfigError: It is not to be used; that was logged.
        """
        try:
            config = (await self._current()).config
        except ConfigError as error:
            self._tell(error)
            raise
        if not self.has_tls:
            self._tell(None)
        return config

    async def context(self) -> "tuple[SSLContext, WebConfig]":
        """Return what a new connection over TLS is served with.

        Raises:
            ConfigError: The file, or one that it names, is not to be used; that was logged.
        """
        try:
            file = await self._current()
            if not file.config.has_tls:
                said = "is gone; a restart takes TLS away, or bring it back"
                raise file.said.problem(("tls_server_config",), said)
            context = self._make_context(file)
        except ConfigError as error:
            self._tell(error)
            raise
        self._tell(None)
        return context, file.config

    async def _current(self) -> WebFile:
        try:
            if read_bytes(self._path) != self._text:
                async with self._reading:
                    text = read_bytes(self._path)
                    if text != self._text:
                        await self._take(text)
        except ConfigError as error:
            self._read, self._text = error, None
        if isinstance(self._read, ConfigError):
            # Without what it gathered on its way the last time, which would grow for ever.
            raise self._read.with_traceback(None)
        return self._read

    async def _take(self, text: bytes) -> None:
        try:
            file = await asyncio.to_thread(parse_web_file, text, self._path)
        except ConfigError as error:
            self._read, self._text = error, text
            return
        if file.config.has_tls and not self.has_tls:
            _LOG.warning("%s: TLS comes into force at the next start", self._path)
        else:
            _LOG.info("%s: changed, and taken", self._path)
        self._read, self._text = file, text

    def _make_context(self, file: WebFile) -> "SSLContext":
        from .tls import make_context, read_pems

        pems = read_pems(file.said)
        if self._context is None or self._context[:2] != (file.text, pems):
            self._context = (file.text, pems, make_context(file.said, pems))
        return self._context[2]

    def _tell(self, error: ConfigError | None) -> None:
        """Log what is wrong once, and that it no longer is."""
        problem = error.problems[0] if error is not None else ""
        if problem and problem != self._told:
            _LOG.error("every request is refused until this is mended: %s", problem)
        elif self._told and not problem:
            _LOG.info("%s: requests are answered again", self._path)
        self._told = problem

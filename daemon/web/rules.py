"""The web configuration file in force, read again for each request and connection, and its TLS."""

import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ..settings.file import ConfigError, SettingsFile, read_settings, read_text
from .config_file import CIPHER_SUITES, CURVES, TlsServer, WebConfig

_SECTION = "tls_server_config"
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_LOG = logging.getLogger(__name__)


class WebRules:
    """The file's current content.

    A bad file refuses every request until it is corrected, as in node_exporter: access must not
    be granted by a file that is no longer there.

    Attributes:
        config: The content at the start.
        has_tls: Whether TLS is served, from start to end.
    """

    def __init__(self, path: Path) -> None:
        """Read the file and its certificates.

        Raises:
            ConfigError: One of them can't be read, or has a key or value that is not valid.
        """
        self._path = path
        self._text: str | None = read_text(path)
        self._file = read_settings(self._text, path, WebConfig)
        self.config = self._file.settings
        self.has_tls = self.config.has_tls
        self._context: tuple[object, Mapping[str, bytes], ssl.SSLContext] | None = None
        self._section = self.config.tls_server_config
        self._problem = ""
        if self.has_tls:
            self._make_context(self._file)

    def current(self) -> WebConfig:
        """Return the file's content.

        Raises:
            ConfigError: It is not usable; that is logged.
        """
        with self._logging(is_all=not self.has_tls):
            return self._current().settings

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection.

        Raises:
            ConfigError: The file, or one that it names, is not usable; that is logged.
        """
        with self._logging(is_all=True):
            file = self._current()
            if not file.settings.has_tls:
                raise file.problem((_SECTION,), "is gone; a restart ends TLS, or bring it back")
            return self._make_context(file)

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client's certificate, already verified, has one of the wanted names."""
        wanted = self._section.client_allowed_sans if self.has_tls else None
        found = (certificate or {}).get("subjectAltName", ())
        return wanted is None or any(_name(kind, name) in wanted for kind, name in found)

    def _current(self) -> SettingsFile[WebConfig]:
        before, self._text = self._text, None  # a file with an error is read again
        text = read_text(self._path)
        if text != before:
            self._file = read_settings(text, self._path, WebConfig)
            if self._file.settings.has_tls and not self.has_tls:
                _LOG.warning("%s: TLS comes into force at the next start", self._path)
            else:
                _LOG.info("%s: changed, and in force", self._path)
        self._text = text
        return self._file

    def _make_context(self, file: SettingsFile[WebConfig]) -> ssl.SSLContext:
        pems = read_pems(file)
        if self._context is None or self._context[:2] != (file, pems):
            self._context = (file, pems, make_context(file, pems))
            self._section = file.settings.tls_server_config
        return self._context[2]

    @contextmanager
    def _logging(self, *, is_all: bool) -> Iterator[None]:
        """Log a problem once, and its end if all has been read without one."""
        try:
            yield
        except ConfigError as error:
            if self._problem != error.problems[0]:
                self._problem = error.problems[0]
                _LOG.error("every request is refused until this is corrected: %s", self._problem)
            raise
        if is_all and self._problem:
            _LOG.info("%s: requests are answered again", self._path)
            self._problem = ""


def read_pems(file: SettingsFile[WebConfig]) -> dict[str, bytes]:
    """Return ``cert``, ``key`` and ``client_ca`` as far as given; paths are relative to the file.

    Raises:
        ConfigError: A file can't be read.
    """
    pems = {}
    section = file.settings.tls_server_config
    for name in ("cert", "key", "client_ca"):
        inline, path = getattr(section, name), getattr(section, f"{name}_file")
        if inline:
            pems[name] = inline.encode()
        elif path:
            try:
                pems[name] = (file.path.parent / path).read_bytes()
            except OSError as error:
                said = f"{path}: {error.strerror}; name a PEM file that this user may read"
                raise file.problem((_SECTION, f"{name}_file"), said) from None
    return pems


def make_context(file: SettingsFile[WebConfig], pems: Mapping[str, bytes]) -> ssl.SSLContext:
    """Return the TLS context of a section.

    Raises:
        ConfigError: A PEM is not valid, or key and certificate do not belong together.
    """
    section = file.settings.tls_server_config
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = _VERSIONS["TLS13" if section.only_tls13 else section.min_version]
    context.maximum_version = _VERSIONS[section.max_version]
    suites = [CIPHER_SUITES[name] for name in section.cipher_suites if name in CIPHER_SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    if not section.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    for name in section.curve_preferences:
        context.set_ecdh_curve(CURVES[name])
    _load_pair(context, file, pems)
    if "client_ca" in pems:
        try:
            context.load_verify_locations(cadata=pems["client_ca"].decode())
        except (ssl.SSLError, ValueError) as error:
            said = f"holds no certificate of an authority ({_reason(error)})"
            raise file.problem((_SECTION, _key_of(section, "client_ca")), said) from None
    context.verify_mode = _VERIFY[section.client_auth_type]
    return context


def _load_pair(
    context: ssl.SSLContext, file: SettingsFile[WebConfig], pems: Mapping[str, bytes]
) -> None:
    section = file.settings.tls_server_config

    def refuse() -> str:
        raise file.problem(
            (_SECTION, _key_of(section, "key")),
            "the key is locked with a passphrase; openssl pkey -in LOCKED -out OPEN unlocks it",
        )

    with _as_path(pems["cert"]) as cert, _as_path(pems["key"]) as key:
        try:
            context.load_cert_chain(cert, key, password=refuse)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise file.problem(
                (_SECTION, _key_of(section, "cert")),
                f"no certificate, or not that of the key ({_reason(error)}); "
                "name a PEM file of the server's certificate, and of its key in key_file",
            ) from None


@contextmanager
def _as_path(pem: bytes) -> Iterator[Path]:
    """Make bytes a file for OpenSSL, in memory: a key must not reach another disk."""
    with os.fdopen(os.memfd_create("tegrascope-pem"), "wb") as file:
        file.write(pem)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _name(kind: str, name: str) -> str | None:
    if kind == "IP Address":  # OpenSSL writes out all of an IPv6 address
        return str(ip_address(name))
    return name if kind in ("DNS", "email", "URI") else None


def _key_of(section: TlsServer, name: str) -> str:
    return name if getattr(section, name) else f"{name}_file"


def _reason(error: Exception) -> str:
    said = str(getattr(error, "reason", None) or error)
    return said.partition(" (_ssl")[0].removeprefix("[SSL] ").lower().replace("_", " ")

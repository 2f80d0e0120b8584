"""The web configuration file in force, read again for each request and connection, and its TLS."""

import logging
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ..settings.file import ConfigError, SettingsFile, read_settings
from .config_file import CIPHER_SUITES, CURVES, TlsServer, WebConfig

_SECTION = "tls_server_config"
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_LOG = logging.getLogger(__name__)


def read_web_file(path: Path) -> SettingsFile[WebConfig]:
    """Read and validate the file, but not the files that it names.

    Raises:
        ConfigError: It can't be read, or has a key or value that is wrong or not supported.
    """
    return _parse(_read(path), path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(path, [f"{path}: {error.strerror}; name a YAML file"]) from None


def _parse(text: bytes, path: Path) -> SettingsFile[WebConfig]:
    try:
        return read_settings(text.decode(), path, WebConfig)
    except UnicodeDecodeError:
        raise ConfigError(path, [f"{path}: is not UTF-8 text; name a YAML file"]) from None


class WebRules:
    """The file's current content.

    A bad file refuses every request until it is corrected, as in node_exporter: access must not
    be granted by a file that is no longer there.

    Attributes:
        has_tls: Whether TLS is served, from start to end.
        config: The content at the start.
    """

    def __init__(self, path: Path) -> None:
        """Read the file and its certificates.

        Raises:
            ConfigError: One of them is wrong; a start is refused.
        """
        self._path = path
        self._text: bytes | None = _read(path)
        self._file: SettingsFile[WebConfig] | ConfigError = _parse(self._text, path)
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
        try:
            config = self._current().settings
        except ConfigError as error:
            self._log(error)
            raise
        if not self.has_tls:
            self._log(None)
        return config

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection.

        Raises:
            ConfigError: The file, or one that it names, is not usable; that is logged.
        """
        try:
            file = self._current()
            if not file.settings.has_tls:
                raise file.problem((_SECTION,), "is gone; a restart ends TLS, or bring it back")
            context = self._make_context(file)
        except ConfigError as error:
            self._log(error)
            raise
        self._log(None)
        return context

    def admits(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client's certificate, already verified, has one of the wanted names."""
        wanted = self._section.client_allowed_sans if self.has_tls else None
        found = (certificate or {}).get("subjectAltName", ())
        return wanted is None or any(_name(kind, name) in wanted for kind, name in found)

    def _current(self) -> SettingsFile[WebConfig]:
        try:
            text = _read(self._path)
        except ConfigError as error:
            self._file, self._text = error, None
        else:
            if text != self._text:
                self._text = text
                self._take(text)
        if isinstance(self._file, ConfigError):
            raise self._file.with_traceback(None)  # it would grow with each request
        return self._file

    def _take(self, text: bytes) -> None:
        try:
            self._file = file = _parse(text, self._path)
        except ConfigError as error:
            self._file = error
            return
        if file.settings.has_tls and not self.has_tls:
            _LOG.warning("%s: TLS comes into force at the next start", self._path)
        else:
            _LOG.info("%s: changed, and in force", self._path)

    def _make_context(self, file: SettingsFile[WebConfig]) -> ssl.SSLContext:
        pems = read_pems(file)
        if self._context is None or self._context[:2] != (file, pems):
            self._context = (file, pems, make_context(file, pems))
            self._section = file.settings.tls_server_config
        return self._context[2]

    def _log(self, error: ConfigError | None) -> None:
        """Log a problem once, and its end."""
        problem = error.problems[0] if error is not None else ""
        if problem and problem != self._problem:
            _LOG.error("every request is refused until this is corrected: %s", problem)
        elif self._problem and not problem:
            _LOG.info("%s: requests are answered again", self._path)
        self._problem = problem


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

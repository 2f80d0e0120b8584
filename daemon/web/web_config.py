"""The web configuration file of Prometheus' exporters, and the TLS that it configures.

The exporter toolkit documents the keys. A key or value that this daemon does not support is an
error, so that no operator relies on it.
"""

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from ...collectors.files import read_regular
from ..settings.file import ConfigError, SettingsFile, read_settings, read_text

_SECTION = "tls_server_config"
_PEM_BYTES = 1 << 20
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
# The headers that the format allows, and their values if these are fixed.
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_BCRYPT = re.compile(r"\$2[abxy]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}", re.ASCII)

_LOG = logging.getLogger(__name__)


def _read_hash(value: object) -> str:
    """Accept a bcrypt hash; any other value may be a password, so no error repeats it."""
    if not isinstance(value, str) or not _BCRYPT.fullmatch(value):
        raise ValueError(
            "this is not a bcrypt hash of a password; htpasswd -nBC 10 '' | tr -d ':\\n' makes one"
        )
    return value


# Values that the format has and this daemon does not offer, and why.
_REFUSED_VALUES = {
    **dict.fromkeys(("TLS10", "TLS11"), "is broken and not offered here; say TLS12 or TLS13"),
    **dict.fromkeys(
        ("RequestClientCert", "RequireClientCert", "RequireAnyClientCert"),
        "takes certificates without verification, which this daemon cannot; "
        "say VerifyClientCertIfGiven or RequireAndVerifyClientCert",
    ),
}


def _is_offered(value: object) -> object:
    if isinstance(value, str) and value in _REFUSED_VALUES:
        raise ValueError(f"{value} {_REFUSED_VALUES[value]}")
    return value


def _refuse(_: object) -> None:
    raise ValueError("this daemon does not support this key of the format; remove it")


class WebSection(BaseModel):
    """Base of the sections; a key without a value counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


Version = Annotated[Literal["TLS12", "TLS13"], BeforeValidator(_is_offered)]
ClientAuth = Annotated[
    Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"],
    BeforeValidator(_is_offered),
]
Unsupported = Annotated[None, BeforeValidator(_refuse)]


class TlsServer(WebSection):
    """``tls_server_config:``; paths of PEM files are relative to the file."""

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    client_auth_type: ClientAuth = "NoClientCert"
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cert: Unsupported = None
    key: Unsupported = None
    client_ca: Unsupported = None
    client_allowed_sans: Unsupported = None
    cipher_suites: Unsupported = None
    prefer_server_cipher_suites: Unsupported = None
    curve_preferences: Unsupported = None

    @model_validator(mode="after")
    def _fits(self) -> "TlsServer":
        if not self.model_fields_set:
            return self
        for name in ("cert_file", "key_file"):
            if not getattr(self, name):
                raise ValueError(f"TLS needs {name}, the path of a PEM file")
        verifies = self.client_auth_type != "NoClientCert"
        if self.client_ca_file and not verifies:
            raise ValueError(
                "client_ca_file has no effect without client_auth_type: RequireAndVerifyClientCert"
            )
        if verifies and not self.client_ca_file:
            raise ValueError(f"{self.client_auth_type} needs client_ca_file to verify them with")
        if self.min_version > self.max_version:
            raise ValueError(f"min_version {self.min_version} is above max_version")
        return self


class HttpServer(WebSection):
    """``http_server_config:``."""

    http2: bool = False
    headers: dict[str, str] = {}

    @field_validator("http2")
    @classmethod
    def _is_off(cls, value: bool) -> bool:
        if value:
            raise ValueError("this daemon speaks HTTP/1.1 only; leave it out, or say false")
        return value

    @field_validator("headers", mode="before")
    @classmethod
    def _may_be_set(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        for name, text in value.items():
            allowed = _HEADERS.get(name)
            if allowed is None:
                known = ", ".join(_HEADERS)
                raise ValueError(f"no header can be set that is called {name}; known are {known}")
            if allowed and text not in allowed:
                raise ValueError(f"{name} is {' or '.join(allowed)}, not {text!r}")
            if not isinstance(text, str) or not text.isascii() or not text.isprintable():
                raise ValueError(f"{name} is one line of ASCII")
        return {name: text for name, text in value.items() if text}


class WebConfig(WebSection):
    """The whole file."""

    tls_server_config: TlsServer = TlsServer()
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: dict[str, Annotated[str, BeforeValidator(_read_hash)]] = Field({}, repr=False)
    rate_limit: Unsupported = None

    @property
    def has_tls(self) -> bool:
        """Whether any key asks for TLS."""
        return bool(self.tls_server_config.model_fields_set)


class WebRules:
    """The file in force; it is read again for each request and each connection.

    A bad file refuses every request until it is corrected, as in node_exporter: access must not
    be granted by a file that is no longer there. Whether TLS is served holds until the end.
    """

    def __init__(self, path: Path) -> None:
        """Read the file and its certificates, or raise ``ConfigError``."""
        self._path = path
        self._text = read_text(path)
        self._file = read_settings(self._text, path, WebConfig)
        self.has_tls = self._file.settings.has_tls
        self._context: tuple[object, ssl.SSLContext] | None = None
        self._problem = ""
        if self.has_tls:
            self._make_context(self._file)

    def current(self) -> WebConfig:
        """Return the file's content, or log why it is not usable and raise ``ConfigError``."""
        with self._logging(is_all=not self.has_tls):
            return self._read().settings

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection, or log and raise as ``current``."""
        with self._logging(is_all=True):
            file = self._read()
            if not file.settings.has_tls:
                raise file.problem((_SECTION,), "is gone; a restart ends TLS, or bring it back")
            return self._make_context(file)

    def _read(self) -> SettingsFile[WebConfig]:
        text = read_text(self._path)
        if text != self._text:
            self._file, self._text = read_settings(text, self._path, WebConfig), text
            if self._file.settings.has_tls and not self.has_tls:
                _LOG.warning("%s: TLS comes into force at the next start", self._path)
            else:
                _LOG.info("%s: changed, and in force", self._path)
        return self._file

    def _make_context(self, file: SettingsFile[WebConfig]) -> ssl.SSLContext:
        pems = []
        for name in ("cert_file", "key_file", "client_ca_file"):
            path = getattr(file.settings.tls_server_config, name)
            try:
                pems.append(read_regular(file.path.parent / path, _PEM_BYTES) if path else b"")
            except OSError as error:
                text = f"{path}: {error.strerror}; name a PEM file that this user may read"
                raise file.problem((_SECTION, name), text) from None
        if self._context is None or self._context[0] != (file, pems):
            self._context = ((file, pems), _make_context(file))
        return self._context[1]

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


def _make_context(file: SettingsFile[WebConfig]) -> ssl.SSLContext:
    section, folder = file.settings.tls_server_config, file.path.parent
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.minimum_version = _VERSIONS[section.min_version]
    context.maximum_version = _VERSIONS[section.max_version]

    def refuse() -> str:
        raise file.problem(
            (_SECTION, "key_file"),
            "the key is locked with a passphrase; openssl pkey -in LOCKED -out OPEN unlocks it",
        )

    try:
        context.load_cert_chain(folder / section.cert_file, folder / section.key_file, refuse)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise file.problem(
            (_SECTION, "cert_file"),
            f"no certificate, or not that of the key ({_reason(error)}); "
            "name a PEM file of the server's certificate, and of its key in key_file",
        ) from None
    if section.client_ca_file:
        try:
            context.load_verify_locations(folder / section.client_ca_file)
        except (OSError, ValueError) as error:
            text = f"holds no certificate of an authority ({_reason(error)})"
            raise file.problem((_SECTION, "client_ca_file"), text) from None
    context.verify_mode = _VERIFY[section.client_auth_type]
    return context


def _reason(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.partition(" (_ssl")[0].removeprefix("[SSL] ").lower().replace("_", " ")

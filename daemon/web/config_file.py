"""The keys of the web configuration file of Prometheus' exporters.

The exporter toolkit documents them. A key or value that this daemon can't honour is an error here,
so that no operator relies on it.
"""

import re
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)

# Go's names, as far as newer releases of Go offer them, and OpenSSL's.
CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
# Of TLS 1.3; these are always offered there, whatever the file has, as in Go.
TLS13_SUITES = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
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
_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)", re.ASCII)


def read_interval(value: object) -> float:
    """Read a duration as Go prints it, in seconds; 0 means none.

    Raises:
        ValueError: It is not a duration, or has no unit: Go would take nanoseconds.

    >>> read_interval("1m30s"), read_interval(0)
    (90.0, 0.0)
    """
    if value in (0, "0"):
        return 0.0
    if not isinstance(value, str) or not value or _DURATION_PART.sub("", value):
        raise ValueError("a time has its unit, like 100ms, 1s or 1m30s; 0 is no limit")
    return sum(
        float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(value)
    )


def _read_hash(value: object) -> str:
    """Accept a bcrypt hash; any other value may be a password, so no error repeats it."""
    if not isinstance(value, str) or not _BCRYPT.fullmatch(value):
        raise ValueError(
            "this is not a bcrypt hash of a password; htpasswd -nBC 10 '' | tr -d ':\\n' makes one"
        )
    return value


def _read_version(value: object) -> object:
    if value in ("TLS10", "TLS11"):
        raise ValueError(f"{value} is broken and not offered here; say TLS12 or TLS13")
    return value


def _read_client_auth(value: object) -> object:
    if value in ("RequestClientCert", "RequireClientCert", "RequireAnyClientCert"):
        raise ValueError(
            f"{value} takes certificates without verification, which this daemon cannot; "
            "say VerifyClientCertIfGiven or RequireAndVerifyClientCert"
        )
    return value


def _known(value: object, names: Collection[str], what: str) -> object:
    if isinstance(value, str) and value not in names:
        raise ValueError(f"no {what} {value}; known are {', '.join(names)}")
    return value


class WebSection(BaseModel):
    """Base of the sections; a key without a value counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _is_absent(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


Version = Annotated[Literal["TLS12", "TLS13"], BeforeValidator(_read_version)]
Suite = Annotated[
    str,
    BeforeValidator(lambda name: _known(name, (*CIPHER_SUITES, *TLS13_SUITES), "cipher suite")),
]
Curve = Annotated[str, BeforeValidator(lambda name: _known(name, CURVES, "curve"))]


class TlsServer(WebSection):
    """``tls_server_config:``; PEM, as the path of a file or in the file itself."""

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""
    cert: str = Field("", repr=False)
    key: str = Field("", repr=False)
    client_ca: str = ""
    client_auth_type: Annotated[
        Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"],
        BeforeValidator(_read_client_auth),
    ] = "NoClientCert"
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"
    cipher_suites: tuple[Suite, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[Curve, ...] = ()

    @property
    def only_tls13(self) -> bool:
        """Whether no suite is left for TLS 1.2."""
        return bool(self.cipher_suites) and TLS13_SUITES.issuperset(self.cipher_suites)

    @field_validator("curve_preferences", mode="before")
    @classmethod
    def _is_one(cls, value: object) -> object:
        if isinstance(value, list) and len(value) > 1:
            raise ValueError("this daemon can be held to one curve, not to an order; name one")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "TlsServer":
        if not self.model_fields_set:
            return self
        for name in ("cert", "key", "client_ca"):
            if getattr(self, name) and getattr(self, f"{name}_file"):
                raise ValueError(f"{name} and {name}_file are both there; leave one out")
        for name in ("cert", "key"):
            if not getattr(self, name) and not getattr(self, f"{name}_file"):
                raise ValueError(f"TLS needs {name}_file, the path of a PEM file")
        has_ca = bool(self.client_ca or self.client_ca_file)
        if has_ca and self.client_auth_type == "NoClientCert":
            raise ValueError(
                "client_ca_file has no effect without client_auth_type: RequireAndVerifyClientCert"
            )
        if not has_ca and self.client_auth_type != "NoClientCert":
            raise ValueError(f"{self.client_auth_type} needs client_ca_file to verify them with")
        required = self.client_auth_type == "RequireAndVerifyClientCert"
        if self.client_allowed_sans is not None and not (required and self.client_allowed_sans):
            raise ValueError(
                "client_allowed_sans is a list of names, and needs "
                "client_auth_type: RequireAndVerifyClientCert"
            )
        if self.min_version > self.max_version:
            raise ValueError(f"min_version {self.min_version} is above max_version")
        if self.only_tls13 and self.max_version == "TLS12":
            raise ValueError("cipher_suites has none of TLS 1.2, and max_version is TLS12")
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
            _known(name, _HEADERS, "header can be set that is called")
            allowed = _HEADERS.get(name, ())
            if allowed and text not in allowed:
                raise ValueError(f"{name} is {' or '.join(allowed)}, not {text!r}")
            if not isinstance(text, str) or not text.isascii() or not text.isprintable():
                raise ValueError(f"{name} is one line of ASCII")
        return {name: text for name, text in value.items() if text}


class RateLimit(WebSection):
    """``rate_limit:``, ``burst`` requests at once and one more after each interval."""

    interval: Annotated[float, BeforeValidator(read_interval)] = 0.0
    burst: PositiveInt = 1

    @model_validator(mode="after")
    def _has_burst(self) -> "RateLimit":
        if self.interval and "burst" not in self.model_fields_set:
            raise ValueError("burst is missing: how many requests may come at once")
        return self


class WebConfig(WebSection):
    """The whole file."""

    tls_server_config: TlsServer = TlsServer()
    http_server_config: HttpServer = HttpServer()
    basic_auth_users: dict[str, Annotated[str, BeforeValidator(_read_hash)]] = Field({}, repr=False)
    rate_limit: RateLimit = RateLimit()

    @property
    def has_tls(self) -> bool:
        """Whether any key asks for TLS."""
        return bool(self.tls_server_config.model_fields_set)

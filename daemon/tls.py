"""TLS as the web configuration file asks for it; loads OpenSSL, so imported when needed."""

import os
import ssl
from asyncio import sslproto
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from .settings.file import SettingsFile
from .web_config import CIPHER_SUITES, CURVES, TlsServer, WebConfig

# Asyncio holds so much of a connection ready to be read into, 256 KiB unless told otherwise, and
# that of each peer that says a word: it would let a hundred of them double the daemon.
_READ_BYTES = 16 * 1024

_SECTION = "tls_server_config"
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


def read_in_small_pieces() -> None:
    """Have a TLS connection take little memory; before the first of them."""
    sslproto.SSLProtocol.max_size = _READ_BYTES


def read_pems(file: SettingsFile[WebConfig]) -> dict[str, bytes]:
    """Return certificate, key and authority as they are at this moment.

    Args:
        file: Relative paths in it are relative to itself.

    Returns:
        Of ``cert``, ``key`` and ``client_ca`` what is given, as PEM.

    Raises:
        ConfigError: A file can't be read.
    """
    pems = {}
    for name in ("cert", "key", "client_ca"):
        inline, path = (
            getattr(file.settings.tls_server_config, one) for one in (name, f"{name}_file")
        )
        if inline:
            pems[name] = inline.encode()
        elif path:
            try:
                pems[name] = (file.path.parent / path).read_bytes()
            except OSError as error:
                said = f"{path}: {error.strerror}; name a PEM file that this user may read"
                raise file.problem((_SECTION, f"{name}_file"), said) from None
    return pems


def make_context(file: SettingsFile[WebConfig], pems: dict[str, bytes]) -> ssl.SSLContext:
    """Return what a connection is served with.

    Raises:
        ConfigError: A PEM is none, or key and certificate do not belong together.
    """
    section = file.settings.tls_server_config
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    lowest = "TLS13" if section.only_tls13 else section.min_version
    context.minimum_version = _VERSIONS[lowest]
    context.maximum_version = _VERSIONS[section.max_version]
    _choose(context, section)
    _load_pair(context, file, pems)
    if "client_ca" in pems:
        try:
            context.load_verify_locations(cadata=pems["client_ca"].decode())
        except (ssl.SSLError, ValueError) as error:
            said = f"holds no certificate of an authority ({_reason(error)})"
            raise file.problem((_SECTION, _key_of(section, "client_ca")), said) from None
    context.verify_mode = _VERIFY[section.client_auth_type]
    return context


def allows(section: TlsServer, certificate: dict[str, Any] | None) -> bool:
    """Say whether a client's certificate, verified already, has one of the names asked for."""
    wanted = section.client_allowed_sans
    if wanted is None:
        return True
    found = (certificate or {}).get("subjectAltName", ())
    return any(_name(kind, name) in wanted for kind, name in found)


def _name(kind: str, name: str) -> str | None:
    if kind in ("DNS", "email", "URI"):
        return name
    if kind == "IP Address":  # OpenSSL writes out all of an IPv6 address
        return str(ip_address(name))
    return None


def _choose(context: ssl.SSLContext, section: TlsServer) -> None:
    suites = [CIPHER_SUITES[name] for name in section.cipher_suites if name in CIPHER_SUITES]
    if suites:
        context.set_ciphers(":".join(suites))
    if section.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    for name in section.curve_preferences:
        context.set_ecdh_curve(CURVES[name])


def _load_pair(
    context: ssl.SSLContext, file: SettingsFile[WebConfig], pems: dict[str, bytes]
) -> None:
    section = file.settings.tls_server_config

    def refuse() -> str:
        raise file.problem(
            (_SECTION, _key_of(section, "key")),
            "the key is locked with a passphrase that nobody can give; "
            "openssl pkey -in LOCKED -out OPEN unlocks it",
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
    """Make bytes a file for OpenSSL, in memory: a key belongs on no disk that it was not on."""
    number = os.memfd_create("tegrascope-pem")
    with os.fdopen(number, "wb") as file:
        file.write(pem)
        file.flush()
        yield Path(f"/proc/self/fd/{number}")


def _key_of(section: TlsServer, name: str) -> str:
    return name if getattr(section, name) else f"{name}_file"


def _reason(error: Exception) -> str:
    said = str(getattr(error, "reason", None) or error)
    return said.partition(" (_ssl")[0].removeprefix("[SSL] ").lower().replace("_", " ")

"""Certificates, keys and web configuration files, as an operator would make them."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import bcrypt
import pytest

PASSWORD = "pw"

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed: apt install openssl"
)


@cache
def hashed(password: str = PASSWORD) -> str:
    """Return the hash of a password as ``htpasswd -B`` makes it, at the least cost."""
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def make_pair(directory: Path, name: str, *names: str) -> None:
    """Make ``NAME.pem`` and ``NAME.key``, a certificate of its own authority for some names."""
    subjects = ",".join(names or ("IP:127.0.0.1", "DNS:localhost"))
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName={subjects}"),
            *("-keyout", f"{directory / name}.key", "-out", f"{directory / name}.pem"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )


def tls(*more: str, name: str = "server") -> str:
    """Return the section of a server's TLS, with more keys."""
    keys = (f"cert_file: {name}.pem", f"key_file: {name}.key", *more)
    return f"tls_server_config: {{{', '.join(keys)}}}\n"


def users(password: str = PASSWORD) -> str:
    """Return the section of one user, ``prom``."""
    return f"basic_auth_users: {{prom: '{hashed(password)}'}}\n"

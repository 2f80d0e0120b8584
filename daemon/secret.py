"""The secret for calls that change state."""

import contextlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from ..parsers.errors import Mendable


def read_token(path: Path) -> str:
    """Return the secret for calls that change state, made at the first start."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path)
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise Mendable(f"{path}: {error.strerror}", "name a writable --state-dir") from None
    except UnicodeDecodeError:
        token = ""
    if not token:  # it would let everybody in
        raise Mendable(f"{path}: holds no token", f"rm {path}, and another one is made")
    return token


def carries_token(headers: Mapping[str, str], token: str) -> bool:
    """Say whether a request brings the secret.

    Args:
        headers: ``Authorization: Bearer TOKEN``; or ``X-Tegrascope-Token: TOKEN``, where a password
            takes that place.
        token: What it is.
    """
    given = headers.get("x-tegrascope-token")
    if given is None:
        given = headers.get("authorization", "").removeprefix("Bearer ")
    return hmac.compare_digest(given.encode(), token.encode())


def _make(path: Path) -> None:
    """Write a new secret whole or not at all, whatever the disk or the power does meanwhile."""
    half = path.with_name(f"{path.name}.half")
    try:
        half.unlink(missing_ok=True)
        half.touch(mode=0o600)
        with half.open("w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise

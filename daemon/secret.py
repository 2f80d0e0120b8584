"""The secret for calls that change state."""

import secrets
from pathlib import Path

from ..parsers.errors import Mendable


def read_token(path: Path) -> str:
    """Return the secret for calls that change state, made at the first start."""
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(32) + "\n", encoding="ascii")
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise Mendable(f"{path}: {error.strerror}", "name a writable --state-dir") from None
    except UnicodeDecodeError:
        token = ""
    if not token:  # it would let everybody in: a disk that was full, or a power cut, leaves this
        raise Mendable(f"{path}: holds no token", f"rm {path}, and another one is made")
    return token

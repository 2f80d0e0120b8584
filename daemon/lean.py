"""Keeps out of the daemon what it does not serve: HTTP/2, WebSockets and, without TLS, OpenSSL.

They would cost 7 MiB resident and are only there because hypercorn imports them whether they are
used or not; so are pickle and multiprocessing, for another MiB, and half a MiB is a table that
starlette brings. ``keep_lean`` puts empty stand-ins in their places; it must be called before
anything imports ``asyncio``, and ``keep_openssl_out`` before anything imports ``hashlib``. Why this
is worth it: ``docs/decisions/lean-daemon.md``.
"""

import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# Protocols that are not spoken; and ways to set up logs and to tell a process of the end that are
# not gone, and would bring pickle and multiprocessing with them.
_UNUSED = (
    "hypercorn.protocol.h2",
    "hypercorn.protocol.ws_stream",
    "logging.config",
    "multiprocessing.synchronize",
)


class NotServedError(OSError):
    """Stands where a protocol would; an OSError is what a server takes for a broken connection."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__("not served")


class _Refused:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotServedError


def keep_openssl_out() -> None:
    """Leave digests to the interpreter, and have pydantic look for no plugins.

    That is all there is to do before the settings say whether TLS needs OpenSSL after all.
    """
    if "ssl" not in sys.modules:
        sys.modules["_hashlib"] = None  # type: ignore[assignment]
        import_module("hashlib")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def keep_lean(*, tls: bool) -> None:
    """Put the stand-ins in place, for whatever serves the page.

    Args:
        tls: Whether the page is served over TLS, which needs OpenSSL after all.
    """
    if not tls and "ssl" not in sys.modules:
        # As on a Python that was built without OpenSSL, which both know how to live with.
        sys.modules["ssl"] = None  # type: ignore[assignment]
        import_module("asyncio")
        _stand_in("ssl", NotServedError)
    if "html" not in sys.modules:
        # Half a megabyte of named characters, for reading HTML, which is only written here.
        entities = ModuleType("html.entities")
        vars(entities)["html5"] = {}
        sys.modules["html.entities"] = entities
    for name in _UNUSED:
        _stand_in(name, _Refused)


def _stand_in(name: str, member: type) -> None:
    """Make a module of which every public name is the same class."""
    if sys.modules.get(name) is None:
        module = ModuleType(name)

        def find(asked: str) -> type:
            if asked.startswith("__"):
                raise AttributeError(asked)
            return member

        vars(module)["__getattr__"] = find
        sys.modules[name] = module

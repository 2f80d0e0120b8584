"""A page of several files as one document, so that a browser needs one request.

Over TLS and a radio link each further file is a wait, and modules that import modules wait for
each other.
"""

import base64
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

# The files use this subset of the module syntax: a line each, nothing imported under another name.
_IMPORT = re.compile(rb'^import (.+) from "\./([\w.]+)"(?: with \{ type: "json" \})?;\n', re.M)
_EXPORT = re.compile(rb"^export (?=(?:async )?(?:function|class|const) (\w+))", re.M)
_ICON = re.compile(rb'(<link rel="icon" href=")(\w+\.svg)(" type="image/svg\+xml">)')
_STYLE = re.compile(rb'<link rel="stylesheet" href="(\w+\.css)">')
_SCRIPT = re.compile(rb'<script type="module" src="(\w+\.js)"></script>')


@dataclass(frozen=True)
class Document:
    """A page that needs no other file: HTML in UTF-8 and its ``Content-Security-Policy``."""

    content: bytes
    policy: str


def make_document(page: Path) -> Document:
    """Join a page with the icon, the style and the scripts that it names, in the same folder."""
    folder = page.parent
    text = page.read_bytes()
    style = b"".join(_read(folder, name) for name in _STYLE.findall(text))
    script = b"".join(_join(folder, name) for name in _SCRIPT.findall(text))
    text = _ICON.sub(lambda found: found[1] + _as_url(_read(folder, found[2])) + found[3], text)
    text = _STYLE.sub(lambda _: b"<style>%b</style>" % style, text)
    text = _SCRIPT.sub(lambda _: b'<script type="module">%b</script>' % script, text)
    return Document(text, _policy(script, style))


def _read(folder: Path, name: bytes) -> bytes:
    return (folder / name.decode()).read_bytes()


def _policy(script: bytes, style: bytes) -> str:
    # Nothing from anywhere else, nothing written into the page later, and no page around it.
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _digest(content: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content).digest()).decode()


def _as_url(icon: bytes) -> bytes:
    return b"data:image/svg+xml;base64," + base64.b64encode(icon)


def _join(folder: Path, entry: bytes) -> bytes:
    """Return a module and its imports as one script, imported modules first."""
    made: dict[bytes, bytes] = {}

    def take(name: bytes) -> None:
        if name not in made:
            content = _read(folder, name)
            for _, other in _IMPORT.findall(content):
                take(other)
            made[name] = content.rstrip() if name.endswith(b".json") else _scope(content)

    take(entry)
    return b"".join(b"const %b = %b;\n" % (_known_as(name), it) for name, it in made.items())


def _scope(module: bytes) -> bytes:
    """Return a module as an expression with its exports; its other names stay private."""
    exported = b", ".join(_EXPORT.findall(module))
    body = _IMPORT.sub(lambda found: b"const %b = %b;\n" % (found[1], _known_as(found[2])), module)
    return b"(() => {\n%breturn { %b };\n})()" % (_EXPORT.sub(b"", body), exported)


def _known_as(name: bytes) -> bytes:
    return b"$" + name.removesuffix(b".js").replace(b".", b"_")

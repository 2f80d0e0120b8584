"""Write each page as one file, by ``make docs``.

A browser then needs one request: over TLS and a radio link each further file is a wait, and a page
that ``report`` or ``bench`` writes is kept as one file. The sources are in ``daemon/web/page``, the
pages in ``daemon/web/static``.
"""

import base64
import hashlib
import re
from pathlib import Path

from tegrascope.daemon.web.status_page import STATIC

SOURCES = STATIC.with_name("page")
PAGES = ("index.html", "run.html", "saved.html")

# The scripts use this subset of the module syntax: a line each, nothing under another name.
_IMPORT = re.compile(r'^import (.+) from "\./([\w.]+)"(?: with \{ type: "json" \})?;\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.M)
# Lines of comments and indentation: a quarter of the bytes on their way.
_SPARE = re.compile(r"^[ ]*(?:(?://|/?\*).*\n)?", re.M)
_ICON = re.compile(r'(?<=<link rel="icon" href=")\w+\.svg')
_STYLE = re.compile(r'<link rel="stylesheet" href="(\w+\.css)">')
# The daemon sends its policy as a header; a page that is a file has it inside.
_POLICY = "made by tools/joined_page.py"
_JOINED_SCRIPT = re.compile(r'<script type="module">(.*?)</script>', re.S)
_JOINED_STYLE = re.compile(r"<style>(.*?)</style>", re.S)
_SCRIPT = re.compile(r'<script type="module" src="(\w+\.js)"></script>')


def join_page(page: Path) -> str:
    """Return a page with the icon, the style and the scripts that it names, all in its folder."""

    def read(name: str) -> str:
        return page.with_name(name).read_text(encoding="utf-8")

    def icon(link: re.Match[str]) -> str:
        return "data:image/svg+xml;base64," + base64.b64encode(read(link[0]).encode()).decode()

    def style(link: re.Match[str]) -> str:
        return f"<style>{read(link[1])}</style>"

    def script(link: re.Match[str]) -> str:
        text = _join_modules(page.parent, link[1])
        return f'<script type="module">{_SPARE.sub("", text)}</script>'

    text = page.read_text(encoding="utf-8")
    joined = _SCRIPT.sub(script, _STYLE.sub(style, _ICON.sub(icon, text)))
    return joined.replace(_POLICY, _policy_of(joined))


def _policy_of(joined: str) -> str:
    """Return the policy of a saved page: its own script and styles, and nothing of any host."""
    scripts = _hashes(_JOINED_SCRIPT.findall(joined))
    styles = _hashes(_JOINED_STYLE.findall(joined))
    return f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:"


def _hashes(parts: list[str]) -> str:
    digests = []
    for part in parts:
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        digests.append(f"'sha256-{digest}'")
    return " ".join(digests)


def _join_modules(folder: Path, entry: str) -> str:
    """Return a module and its imports as one script, imported modules first."""
    expressions: dict[str, str] = {}

    def take(name: str) -> None:
        if name in expressions:
            return
        content = (folder / name).read_text(encoding="utf-8")
        for _, imported in _IMPORT.findall(content):
            take(imported)
        expressions[name] = content.rstrip() if name.endswith(".json") else _as_expression(content)

    take(entry)
    return "".join(f"const {_name_of(name)} = {text};\n" for name, text in expressions.items())


def _as_expression(module: str) -> str:
    """Return a module as an expression with its exports; its other names stay private."""
    exported = ", ".join(_EXPORT.findall(module))
    body = _IMPORT.sub(lambda line: f"const {line[1]} = {_name_of(line[2])};\n", module)
    return f"(() => {{\n{_EXPORT.sub('', body)}return {{ {exported} }};\n}})()"


def _name_of(file: str) -> str:
    return "$" + file.removesuffix(".js").replace(".", "_")


if __name__ == "__main__":
    for name in PAGES:
        (STATIC / name).write_text(join_page(SOURCES / name), encoding="utf-8")

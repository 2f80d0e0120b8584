"""The files of the page, as they lie in the package; what a browser has it is not sent again."""

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from .packed import pack, packed, takes_gzip

DIRECTORY = Path(__file__).with_name("static")
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
# Nothing from anywhere else, nothing written into the page, and no page around it.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def answer(name: str, request: Request) -> Response:
    """Return a file, or nothing but its headers where the browser has it already.

    Args:
        name: Of the file.
        request: Says what the browser has already, and whether it unpacks.

    Raises:
        HTTPException: There is no such file.
    """
    path = DIRECTORY / name
    kind = _TYPES.get(path.suffix)
    # A name comes from one segment of a URL, which may hold an encoded slash all the same.
    if kind is None or path.parent != DIRECTORY or not path.is_file():
        raise HTTPException(404, f"no file {name}")
    told = path.stat()
    # Weak, since it may be compressed on its way.
    tag = f'W/"{__version__}-{told.st_mtime_ns:x}-{told.st_size:x}"'
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": POLICY,
        "etag": tag,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    known = request.headers.get("if-none-match", "").split(",")
    if tag in (one.strip() for one in known):
        return Response(status_code=304, headers=headers)
    content = path.read_bytes()
    if takes_gzip(request):
        sent = packed(pack([content]), kind)
    else:
        sent = Response(content, media_type=kind)
    sent.headers.update(headers)
    return sent

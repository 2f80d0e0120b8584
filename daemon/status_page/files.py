"""The pages, made of the files in the package; what a browser has it is not sent again."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from .document import make_document
from .packed import pack, packed, takes_gzip

DIRECTORY = Path(__file__).with_name("static")
_TYPE = "text/html"


def answer(name: str, request: Request) -> Response:
    """Return a page, or nothing but its headers where the browser has it already.

    Args:
        name: Of its HTML in ``DIRECTORY``.
        request: Says what the browser has already, and whether it unpacks.
    """
    document = make_document(DIRECTORY / name)
    # Weak, since it may be compressed on its way.
    tag = f'W/"{hashlib.sha256(document.content).hexdigest()[:32]}"'
    headers = {
        "cache-control": "no-cache",
        "content-security-policy": document.policy,
        "etag": tag,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    known = request.headers.get("if-none-match", "").split(",")
    if tag in (one.strip() for one in known):
        return Response(status_code=304, headers=headers)
    if takes_gzip(request):
        sent = packed(pack([document.content]), _TYPE)
    else:
        sent = Response(document.content, media_type=_TYPE)
    sent.headers.update(headers)
    return sent

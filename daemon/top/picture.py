"""The screen as a picture, for the pages of the documentation."""

import io
from pathlib import Path

from rich.console import Console

from ...collectors.api_client import ApiClient
from .asking import Asker
from .marks import Marks
from .screen import draw


def save_picture(path: Path, url: str | None = None, *, width: int = 80, height: int = 24) -> None:
    """Write the screen of a daemon as it is now, as SVG.

    Args:
        path: Where to.
        url: Where the daemon is, as for ``ApiClient``.
        width: Of the window, in cells.
        height: Of it, in lines.

    Raises:
        Mendable: Nobody answers.
    """
    asker = Asker(ApiClient(url))
    console = Console(
        record=True, width=width, height=height, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False, emoji=False, markup=False,
    )  # fmt: skip
    for text in draw(asker.ask(), width, height, Marks(), "q quits"):
        console.print(text)
    console.save_svg(str(path), title="tegrascope top")

"""``make screenshots``: the pictures of the docs, of the demo as it runs, into ``docs/images``.

The demo runs for five minutes, so that its charts show something. A picture is a function that is
given the daemon's address and where to write; a new one is one more of them in ``PICTURES``.
"""

import argparse
import io
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from tegrascope.collectors.application.client import ApiClient
from tegrascope.daemon.top.client import DaemonClient
from tegrascope.daemon.top.screen import Glyphs, draw
from tests.page.browser import Browser, Tab, program

IMAGES = Path(__file__).parents[2] / "docs/images"
MOST_BYTES = 200_000


@contextmanager
def demo() -> Iterator[str]:
    """Run the demo; yield its address."""
    with tempfile.TemporaryDirectory(prefix="tegrascope-demo-") as state:
        command = ["run", "--demo", "--listen", "127.0.0.1:0", "--state-dir", state]
        daemon = subprocess.Popen(
            [sys.executable, "-m", "tegrascope", *command], stderr=subprocess.PIPE, text=True
        )
        assert daemon.stderr is not None
        try:
            found = (re.search(r"page +(http://\S+/)", line) for line in daemon.stderr)
            url = next(match[1] for match in found if match)
            yield url
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.communicate(timeout=30)


@contextmanager
def page(url: str, width: int, *, dark: bool = False) -> Iterator[Tab]:
    """Open a page of the daemon in a browser of its own."""
    browser = Browser()
    try:
        tab = browser.open(url, width=width, dark=dark)
        tab.wait_for("document.querySelectorAll('#charts path.curve').length > 8")
        yield tab
    finally:
        browser.close()


def status_page(url: str, path: Path, width: int, height: int, *, dark: bool = False) -> None:
    """Take the status page with the last five minutes."""
    with page(url, width, dark=dark) as tab:
        tab.run("document.querySelector('#spans input[value=\"300\"]').click()")
        tab.wait_for("document.querySelectorAll('#lanes text.run').length > 2")
        time.sleep(3)  # the step of the other span is drawn by then
        tab.picture(path, height)


def run_page(url: str, path: Path) -> None:
    """Take the page of the latest finished run."""
    last = "document.querySelector('#runs tbody tr.ok a')?.href"
    with page(url, 1000) as tab:
        where = tab.wait_for(last)
    with page(where, 900) as tab:
        tab.picture(path, 1150)


def terminal(url: str, path: Path) -> None:
    """Take the screen of ``tegrascope top``."""
    console = Console(
        record=True, width=80, height=24, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False, emoji=False, markup=False,
    )  # fmt: skip
    for text in draw(DaemonClient(ApiClient(url)).ask(), 80, 24, Glyphs(), "q quits"):
        console.print(text)
    console.save_svg(str(path), title="tegrascope top")


PICTURES: dict[str, Callable[[str, Path], None]] = {
    "status-page.png": lambda url, path: status_page(url, path, 1000, 1080),
    "status-page-dark.png": lambda url, path: status_page(url, path, 1000, 1080, dark=True),
    "status-page-phone.png": lambda url, path: status_page(url, path, 390, 1400),
    "run-page.png": run_page,
    "top.svg": terminal,
}


def main() -> int:
    """Take the pictures; a browser must be there."""
    words = argparse.ArgumentParser(prog="make screenshots")
    words.add_argument("--seconds", type=float, default=300, help="how long the demo runs first")
    words.add_argument("names", nargs="*", help="pictures to take; all of them by default")
    asked = words.parse_args()
    if program() is None:
        print("chromium is not installed: apt install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    too_large = []
    with demo() as url:
        time.sleep(asked.seconds)
        for name in asked.names or PICTURES:
            PICTURES[name](url, IMAGES / name)
            size = (IMAGES / name).stat().st_size
            print(f"{name}: {size} bytes")
            too_large += [name] if size > MOST_BYTES else []
    if too_large:
        print(f"over {MOST_BYTES} bytes: {' '.join(too_large)}", file=sys.stderr)
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())

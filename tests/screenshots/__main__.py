"""``make screenshots``: the pictures of the docs, of the demo as it runs, into ``docs/images``.

The demo runs for five minutes, so that its charts show something; another one beside it is in hot
air. A picture is a function that is given the daemon's address and where to write; a new one is one
more of them in ``PICTURES`` or ``HOT``.
"""

import argparse
import io
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console

from tegrascope.collectors.application.client import ApiClient
from tegrascope.workbench.top.client import DaemonClient
from tegrascope.workbench.top.screen import Glyphs, draw
from tests.page.browser import Browser, Tab, program

IMAGES = Path(__file__).parents[2] / "docs/images"
DEMO = Path(__file__).parents[2] / "daemon/commands/demo.yaml"
MOST_BYTES = 200_000


@contextmanager
def demo(ambient_celsius: float = 25) -> Iterator[str]:
    """Run the demo in air of a temperature; yield its address."""
    with tempfile.TemporaryDirectory(prefix="tegrascope-demo-") as state:
        config = Path(state, "demo.yaml")
        warm = f"seed: 1, ambient_celsius: {ambient_celsius:g}"
        config.write_text(DEMO.read_text(encoding="utf-8").replace("seed: 1", warm))
        command = ["run", "-c", str(config), "--listen", "127.0.0.1:0", "--state-dir", state]
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


def shrink(path: Path) -> None:
    """Write a PNG of Chromium with a palette of 256 colours: half the bytes, no visible change."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        (size,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        body, at = data[at + 8 : at + 8 + size], at + 12 + size
        if kind == b"IHDR":
            width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", body)
        packed += body if kind == b"IDAT" else b""
    if (depth, interlaced) != (8, 0) or colours not in (2, 6):
        return
    pixel = 3 if colours == 2 else 4
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * pixel)
    if rows[:, 0].max() > 2:  # the filters of a slowly written PNG
        return
    image = np.zeros((height + 1, width, pixel), np.uint8)
    for number, row in enumerate(rows, 1):
        given = row[1:].reshape(width, pixel)
        if row[0] == 1:
            image[number] = np.cumsum(given, axis=0, dtype=np.uint8)
        else:
            image[number] = given + (image[number - 1] if row[0] == 2 else 0)
    seen, index, counts = np.unique(
        image[1:].reshape(-1, pixel)[:, :3], axis=0, return_inverse=True, return_counts=True
    )
    palette = seen[np.argsort(-counts)[:256]].astype(int)
    nearest = np.array([((palette - one) ** 2).sum(axis=1).argmin() for one in seen], np.uint8)
    indices = nearest[index.reshape(height, width)]
    raw = np.hstack([np.zeros((height, 1), np.uint8), indices]).tobytes()
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(raw, 9)),
        (b"IEND", b""),
    )
    made = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    path.write_bytes(data[:8] + b"".join(made))


PICTURES: dict[str, Callable[[str, Path], None]] = {
    "status-page.png": lambda url, path: status_page(url, path, 1000, 1680),
    "status-page-dark.png": lambda url, path: status_page(url, path, 1000, 1680, dark=True),
    "status-page-phone.png": lambda url, path: status_page(url, path, 390, 1400),
    "run-page.png": run_page,
    "top.svg": terminal,
}
HOT: dict[str, Callable[[str, Path], None]] = {
    "status-page-danger.png": lambda url, path: status_page(url, path, 1000, 1080),
}
# At work it passes its throttle trip and comes near its shutdown.
HOT_CELSIUS = 77


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
    names = asked.names or [*PICTURES, *HOT]
    with ExitStack() as stack:
        url = stack.enter_context(demo()) if PICTURES.keys() & names else ""
        hot = stack.enter_context(demo(HOT_CELSIUS)) if HOT.keys() & names else ""
        time.sleep(asked.seconds)
        for name in names:
            if name in HOT:
                HOT[name](hot, IMAGES / name)
            else:
                PICTURES[name](url, IMAGES / name)
            if name.endswith(".png"):
                shrink(IMAGES / name)
            size = (IMAGES / name).stat().st_size
            print(f"{name}: {size} bytes")
            too_large += [name] if size > MOST_BYTES else []
    if too_large:
        print(f"over {MOST_BYTES} bytes: {' '.join(too_large)}", file=sys.stderr)
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())

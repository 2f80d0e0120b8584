"""``make screenshots``: the pictures of the docs, of the demo as it runs, into ``docs/images``.

One demo runs as it comes, another one in hot air, and a benchmark of simulated accelerators. A
picture is taken only if it shows an answer to each question that it asks. If one is missing, the
old pictures stay. A new picture is one more row of the tables below.
"""

import argparse
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import yaml
from rich.console import Console

from tegrascope.collectors.application.client import ApiClient
from tegrascope.workbench.top.client import DaemonClient
from tegrascope.workbench.top.screen import Glyphs, draw
from tests.page.browser import Browser, Tab, program
from tests.screenshots.answers import (
    NoAnswerError,
    compared_models,
    goals_without_winner,
    missing_answers,
)
from tests.screenshots.palette import shrink

IMAGES = Path(__file__).parents[2] / "docs/images"
DEMO = Path(__file__).parents[2] / "daemon/commands/demo.yaml"
MOST_BYTES = 200_000
# The demo has both of its answers after 160 s. A busy machine may need longer.
LONGEST_WAIT_SECONDS = 400.0
BENCH_SECONDS = 600.0
POLL_SECONDS = 1.0
MARGIN = 16  # pixels below the last element of a picture


class Look(NamedTuple):
    """How a page is shown.

    Attributes:
        width: Width of the window in pixels; below 600 it is a phone.
        last: Selector of the last element in the picture, so that nothing is cut.
    """

    width: int
    last: str
    dark: bool = False


# GitHub shows a picture about 830 pixels wide. At 1200 each row of the page is one line.
STATUS_PAGES = {
    "status-page.png": Look(1200, "#load"),
    "status-page-phone.png": Look(390, "#models article", dark=True),
}
HOT_PAGE = "status-page-danger.png"
# The list of figures near a limit may be empty; then it is not drawn.
HOT_LOOK = Look(1000, "#danger:not(:empty), #vitals:has(+ #danger:empty)")
# At work it stays above its throttle trip, 99 °C, and within 3 °C of its shutdown, 104.5 °C. In
# such heat runs differ too much for an answer about energy, so that its picture has no cards.
HOT_CELSIUS = 84.0
RUN_PAGE, RUN_LOOK = "run-page.png", Look(900, "#temperature")
TERMINAL = "top.svg"
BENCH_PAGE, BENCH_LOOK = "bench-page.png", Look(900, "main > .wide")
NAMES = (*STATUS_PAGES, HOT_PAGE, RUN_PAGE, TERMINAL, BENCH_PAGE)


class Demo:
    """A running demo in air of a temperature.

    >>> with Demo(ambient_celsius=25) as demo:  # doctest: +SKIP
    ...     demo.wait_for_answers(time.monotonic() + 400)
    """

    def __init__(self, ambient_celsius: float = 25.0) -> None:
        config = yaml.safe_load(DEMO.read_text(encoding="utf-8"))
        config["telemetry"]["simulator"]["ambient_celsius"] = ambient_celsius
        # The programs of the machine that takes the pictures are not part of the demo.
        del config["telemetry"]["processes"]
        self._config = config
        self._compared = compared_models(config["workloads"])

    def __enter__(self) -> "Demo":
        self._state = tempfile.TemporaryDirectory(prefix="tegrascope-demo-")
        path = Path(self._state.name, "demo.yaml")
        path.write_text(yaml.safe_dump(self._config), encoding="utf-8")
        command = ["-m", "tegrascope", "run", "-c", str(path), "--listen", "127.0.0.1:0"]
        self._daemon = subprocess.Popen(
            [sys.executable, *command, "--state-dir", self._state.name],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.url = self._read_address()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _read_address(self) -> str:
        assert self._daemon.stderr is not None
        for line in self._daemon.stderr:
            address = re.search(r"page +(http://\S+/)", line)
            if address:
                return address[1]
        raise RuntimeError("the demo ended before it had an address")

    def _stop(self) -> None:
        self._daemon.send_signal(signal.SIGTERM)
        self._daemon.communicate(timeout=30)
        self._state.cleanup()

    def missing_answers(self) -> list[str]:
        """Return a sentence for each answer that the status page lacks now."""
        with urlopen(f"{self.url}api/v1/models", timeout=30) as response:
            models = json.load(response)["models"]
        return missing_answers(models, self._compared)

    def wait_for_answers(self, until: float) -> None:
        """Return as soon as each compared model has its answers.

        Raises:
            NoAnswerError: One has none at a time of ``time.monotonic``.
        """
        while missing := self.missing_answers():
            if time.monotonic() > until:
                raise NoAnswerError("; ".join(missing))
            time.sleep(POLL_SECONDS)


@contextmanager
def opened(url: str, look: Look) -> Iterator[Tab]:
    """Open a page in a browser of its own: a tab in the background is not drawn."""
    browser = Browser()
    try:
        yield browser.open(url, width=look.width, dark=look.dark)
    finally:
        browser.close()


def take(tab: Tab, path: Path, look: Look) -> None:
    """Take the page from its top to the end of the look's last element."""
    last = f"document.querySelector({json.dumps(look.last)})"
    bottom = tab.run(f"{last}.getBoundingClientRect().bottom")
    tab.picture(path, round(bottom) + MARGIN)


def take_status_pages(
    demo: Demo, looks: Mapping[str, Look], folder: Path, answers_until: float
) -> None:
    """Take the status page in each look, with the last five minutes, when it has its answers."""
    with ExitStack() as stack:
        tabs: dict[str, Tab] = {}
        for name, look in looks.items():
            tab = stack.enter_context(opened(demo.url, look))
            tab.wait_for("document.querySelectorAll('#charts path.curve').length > 8")
            tab.run("document.querySelector('#spans input[value=\"300\"]').click()")
            tab.wait_for("document.querySelectorAll('#lanes a').length > 2")
            tabs[name] = tab
        demo.wait_for_answers(answers_until)
        time.sleep(3)  # Meanwhile the page asks for the cards and for the other time range.
        for name, tab in tabs.items():
            if not tab.run(
                "document.querySelector('#models article:first-child .conclusion') !== null"
            ):
                raise NoAnswerError(f"{name} would begin with a card without a conclusion")
            take(tab, folder / name, looks[name])
        # A new run may have changed an answer while the pictures were taken.
        missing = demo.missing_answers()
        if missing:
            raise NoAnswerError("; ".join(missing))


def take_troubles(demo: Demo, path: Path) -> None:
    """Take the head of the status page of a board that is near its shutdown."""
    with opened(demo.url, HOT_LOOK) as tab:
        tab.wait_for("document.querySelector('#troubles').textContent.includes('critical')")
        take(tab, path, HOT_LOOK)


def take_run_page(demo: Demo, path: Path) -> None:
    """Take the page of the latest finished run on a DLA."""
    rows = "[...document.querySelectorAll('#runs tbody tr.ok')]"
    with opened(demo.url, RUN_LOOK) as tab:
        address = tab.wait_for(
            f"{rows}.find(one => one.cells[1].textContent === 'dla0')?.querySelector('a').href"
        )
    with opened(address, RUN_LOOK) as tab:
        tab.wait_for("document.querySelectorAll('#charts path.curve').length > 8")
        take(tab, path, RUN_LOOK)


def take_terminal(demo: Demo, path: Path) -> None:
    """Take the screen of ``tegrascope top`` in a window of 80 by 24."""
    console = Console(
        record=True, width=80, height=24, file=io.StringIO(), force_terminal=True,
        color_system="truecolor", highlight=False, emoji=False, markup=False,
    )  # fmt: skip
    for text in draw(DaemonClient(ApiClient(demo.url)).ask(), 80, 24, Glyphs(), "q quits"):
        console.print(text)
    console.save_svg(str(path), title="tegrascope top")


def take_bench_page(path: Path) -> None:
    """Run a benchmark of simulated accelerators and take the top of its page.

    Raises:
        NoAnswerError: It names no winner of a goal.
    """
    with tempfile.TemporaryDirectory(prefix="tegrascope-bench-") as folder:
        command = ["bench", "resnet50", "--simulate", "-o", folder]
        subprocess.run(
            [sys.executable, "-m", "tegrascope", *command],
            check=True, stdout=subprocess.DEVNULL, timeout=BENCH_SECONDS,
        )  # fmt: skip
        result = json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))
        missing = goals_without_winner(result["models"])
        if missing:
            raise NoAnswerError("; ".join(missing))
        with opened(Path(folder, "report.html").as_uri(), BENCH_LOOK) as tab:
            tab.wait_for("document.querySelectorAll('#timeline path.curve').length > 4")
            take(tab, path, BENCH_LOOK)


def take_all(names: Collection[str], seconds: float, folder: Path) -> None:
    """Take these pictures into a folder; the demo runs for some seconds first."""
    started = time.monotonic()
    looks = {name: look for name, look in STATUS_PAGES.items() if name in names}
    with Demo() as demo, Demo(HOT_CELSIUS) as hot_demo:
        if BENCH_PAGE in names:
            take_bench_page(folder / BENCH_PAGE)
        time.sleep(max(0.0, started + seconds - time.monotonic()))
        if looks:
            take_status_pages(demo, looks, folder, started + LONGEST_WAIT_SECONDS)
        if RUN_PAGE in names:
            take_run_page(demo, folder / RUN_PAGE)
        if TERMINAL in names:
            take_terminal(demo, folder / TERMINAL)
        if HOT_PAGE in names:
            take_troubles(hot_demo, folder / HOT_PAGE)


def main() -> int:
    """Take the pictures; a browser must be there."""
    words = argparse.ArgumentParser(prog="make screenshots")
    words.add_argument(
        "--seconds", type=float, default=140,
        help="how long the demo runs before its pages are opened, so that charts show something",
    )  # fmt: skip
    words.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; all of them by default")
    asked = words.parse_args()
    unknown = set(asked.names) - set(NAMES)
    if unknown:
        words.error(f"no such picture: {', '.join(sorted(unknown))}")
    if program() is None:
        print("chromium is not installed: apt install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="tegrascope-pictures-") as folder:
        try:
            take_all(asked.names or NAMES, asked.seconds, Path(folder))
        except NoAnswerError as error:
            print(f"the old pictures stay: {error}", file=sys.stderr)
            return 1
        return publish(Path(folder))


def publish(folder: Path) -> int:
    """Replace the pictures of the docs, unless one of the new ones is too large."""
    too_large = []
    pictures = sorted(folder.iterdir())
    for path in pictures:
        if path.suffix == ".png":
            shrink(path)
        size = path.stat().st_size
        print(f"{path.name}: {size} bytes")
        if size > MOST_BYTES:
            too_large.append(path.name)
    if too_large:
        print(
            f"the old pictures stay: over {MOST_BYTES} bytes: {' '.join(too_large)}",
            file=sys.stderr,
        )
        return 1
    IMAGES.mkdir(exist_ok=True)
    for path in pictures:
        shutil.copyfile(path, IMAGES / path.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One browser for all tests of the page, and a board of its own for each."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .board import Board
from .browser import Browser, Tab, program


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    if program() is None:
        pytest.skip("chromium is not installed: apt install chromium")
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Open pages, and close them."""
    opened: list[Tab] = []

    def begin(url: str, **look: Any) -> Tab:
        opened.append(browser.open(url, **look))
        return opened[-1]

    yield begin
    for tab in opened:
        tab.close()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    """A board of which the test makes the telemetry and the runs."""
    made = Board(tmp_path)
    yield made
    made.stop()

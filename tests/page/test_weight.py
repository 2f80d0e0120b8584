"""What an open page costs with 40 workloads: bytes on the wire, and elements."""

import gzip
from urllib.request import Request, urlopen

import pytest

from .test_status_page import BANDS, figures, path, telemetry

WIRE_BYTES, ELEMENTS = 120_000, 1_500


@pytest.fixture
def forty(board):
    """A board with forty workloads and 280 runs in a quarter of an hour."""
    board.interval = 60.0
    board.fill(telemetry, 900, 0, 0.5)
    for number in range(280):
        workload = f"perception-{number % 40:02}"
        fields = {**figures(1, 2, 0.5), "model": f"net-{number % 20}.onnx"}
        device = ("gpu", "dla0")[number % 2]
        board.finish(890 - 3 * number, 2.5, workload=workload, device=device, **fields)
    return board


def test_first_load_is_light(forty, show):
    """The page and its first answers, compressed as the daemon sends them."""
    tab = show(forty.url)
    tab.wait_for(f"{path('watts/module')}.startsWith('M') && {BANDS}.length === 280")
    urls = [url for url in tab.asked if url.startswith(forty.url)]
    first = list(dict.fromkeys(url.split("?")[0] for url in urls))
    total = 0
    for url in first:
        full = next(one for one in urls if one.startswith(url))
        request = Request(full, headers={"accept-encoding": "gzip"})
        with urlopen(request, timeout=60) as answer:
            body = answer.read()
        assert gzip.decompress(body)
        total += len(body)
    assert len(first) == 6  # the page, status, series, summaries, bands, models
    assert total <= WIRE_BYTES, total


@pytest.mark.parametrize("width", [1280, 390])
def test_page_has_few_elements(forty, show, width):
    tab = show(forty.url, width=width)
    tab.wait_for(f"{BANDS}.length === 280 && document.querySelector('.card')")
    assert tab.run("document.querySelectorAll('*').length") <= ELEMENTS

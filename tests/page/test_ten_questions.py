"""Ten questions of a reader: each has its answer in the first screen, or one click away.

The board is hot, a workload fails, two others answer DLA or GPU, and it failed ten hours ago too.
"""

import pytest

from tegrascope.collectors.processes.watch import ProcessUse

from .test_status_page import BANDS, PAST, figures, link_to, path, telemetry, text

SCREENS = [(1280, 900), (390, 844)]
# Whether an element can be seen without scrolling.
SEEN = """((e) => { const b = e.getBoundingClientRect();
  return e.checkVisibility() && b.top >= -1 && b.top < innerHeight && b.bottom > 0; })"""


@pytest.fixture(params=SCREENS, ids=["laptop", "phone"])
def screen(request):
    """Width and height of the window in pixels."""
    return request.param


@pytest.fixture
def state(board):
    """The state that the questions are asked of."""
    board.interval = 600.0
    night = {"temperatures_celsius.cpu": 98.0}
    board.fill(lambda _: telemetry(0) | night, PAST + 60, PAST - 60, 1.0)
    board.finish(PAST + 10, 20, workload="night", outcome="failed", reason="out of memory")
    board.timeline.seal()

    def now(ago):
        traced = {"dla.0.process_seconds.detector": 0.75 * (600 - ago)}
        return telemetry(ago) | {"temperatures_celsius.cpu": 103.0} | traced

    board.fill(now, 600, 0, 1.0)
    board.live.update(trips_celsius={("cpu", "critical"): 104.5})
    board.live.update(processes=(ProcessUse("detector", 9.0, 0.25, 50 << 20, 1, 0.0),))
    for number in range(3):
        doubt = {"quality": ("not_steady",)}
        board.finish(
            500 - 30 * number, 9, workload="a", device="gpu", **figures(3, 67, 0.9), **doubt
        )
        board.finish(300 - 30 * number, 9, workload="b", device="dla0", **figures(17, 124, 0.0))
    for number in range(2):
        board.finish(100 - number, 1, workload="c", outcome="failed", reason="no engine")
    board.store.flush()
    return board


@pytest.fixture
def page(state, show, screen):
    width, height = screen
    tab = show(state.url, width=width, height=height)
    tab.wait_for(f"{BANDS}.length >= 8 && document.querySelector('.card .conclusion')")
    return tab


def read(tab, place, click=None):
    """Return the words of a place that is seen, at once or after one click on what is seen."""
    if click is not None:
        element = f"document.querySelector({click!r})"
        assert tab.run(f"{SEEN}({element})"), f"{click} is not in the first screen"
        tab.run(f"{element}.click()")
    tab.wait_for(f"{SEEN}(document.querySelector({place!r}))", 20)
    return " ".join(tab.run(text(place)).split())


def test_which_is_better_and_by_how_much(page):
    words = read(page, ".card .conclusion", "nav a[href='#models-title']")
    assert words == (
        "On the DLA: 85 % more net energy, 5.7 times the time, frees 90.0 points of the GPU"
    )
    assert "14.0 ms more on the DLA" in page.run(text(".card .verdicts"))


def test_is_it_hot(page):
    words = read(page, "#vitals li:last-child")
    assert words == "hottest: cpu 103.0 °C shuts down at 104.5 °C"


def test_what_is_wrong_and_since_when(page):
    words = read(page, "#troubles")
    assert "cpu is at 103.0 °C, 1.5 °C below shutdown (104.5 °C) since " in words
    assert "the last 2 runs of c failed: no engine since " in words


def test_which_run_was_it(page):
    words = read(page, "#outcome", "#troubles a[href*='/runs/']")
    assert words == "failed: no engine"
    assert page.run(text("#title")) == "c on dla0"


def test_what_happened_ten_hours_ago(state, show, screen):
    """The link of a colleague; the charts are at the top then."""
    width, height = screen
    tab = show(link_to(state, PAST, 120), width=width, height=height)
    tab.wait_for(f"{BANDS}.length === 1 && {path('celsius/cpu')}.startsWith('M')")
    read(tab, "#lanes a")
    assert "failed" in tab.run(f"{BANDS}[0].getAttribute('aria-label')")
    assert tab.run(text("#range"))


def test_what_uses_the_dla(page):
    assert read(page, "#vitals li:nth-child(3)") == "DLA0 75.0 % busy"
    assert "detector" in read(page, "#processes", "nav a[href='#processes-title']")
    assert "75.0 %" in page.run(text("#processes tbody tr"))


def test_what_does_one_inference_cost(page):
    words = read(page, ".card table", "nav a[href='#models-title']")
    assert "124 mJ" in words
    assert "67.0 mJ" in words


def test_is_this_figure_to_be_trusted_and_why_not(page):
    """The doubt stands in the card with its meaning."""
    page.run("document.querySelector('.card dl').scrollIntoView({block: 'center'})")
    words = read(page, ".card dl")
    assert words.startswith("not_steady Rate, latency, a clock or a temperature was still changing")


def test_what_to_do_next(page):
    words = read(page, "#troubles")
    assert "Cool the board, or choose a lower power mode." in words
    assert "Open the last failed run for its log" in words


def test_is_it_simulated(page):
    words = read(page, "#simulated")
    assert words.startswith("Simulated: these figures are not from a real board.")
    assert "Processes, and the times of runs on the CPU, are of this machine." in words

"""The pages of ``report`` and ``bench`` in a real browser: from a file, without any daemon."""

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.daemon.measure.report import Figure
from tegrascope.daemon.store.history import History
from tegrascope.workbench.results.bench_page import report_page
from tegrascope.workbench.results.document import Front, Heading, Mark
from tegrascope.workbench.results.records import BenchResult
from tegrascope.workbench.results.runs_page import page_of_run, page_since
from tegrascope.workbench.results.saved_page import html_page
from tegrascope.workbench.results.summary import Measured, Round, summarise
from tests.results.bench_fakes import settings

from .test_run_page import ENERGY, LATENCY, text
from .test_status_page import AUDIT, figures, telemetry

LOOKS = [(1280, True), (390, False)]


@pytest.fixture
def filled(board):
    """A board with a minute of telemetry and two runs."""
    board.fill(telemetry, 60, 1, 0.5)
    board.finish(50, 12, device="gpu", workload="yolo", inferences=10)
    board.finish(30, 20, inferences=4000, latency=LATENCY, energy=ENERGY, quality=("not_steady",))
    board.timeline.seal()
    board.store.flush()
    return board


@pytest.fixture
def open_file(show, tmp_path):
    """Write a page and open it as a file."""

    def begin(page, **look):
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        tab = show(path.as_uri(), **look)
        tab.wait_for("document.querySelector('#power path.curve')")
        return tab

    return begin


def check_is_whole(tab):
    assert tab.run(AUDIT) == []
    assert tab.complaints == []
    assert [url for url in tab.asked if not url.startswith("file:")] == []


@pytest.mark.parametrize(("width", "dark"), LOOKS, ids=["wide", "phone"])
def test_stretch_of_time_shows_each_run_at_a_click(filled, open_file, width, dark):
    page = page_since(History(filled.store.path), 3600, SYSTEM_CLOCK.wall_ns())
    tab = open_file(page, width=width, dark=dark)
    bands = (
        "[...document.querySelectorAll('#lanes a')].map(a => a.getAttribute('aria-label')).join()"
    )
    tab.wait_for(f"{bands}.includes('resnet on dla0') && {bands}.includes('yolo on gpu')")
    assert text(tab, "latency") == ""
    tab.run("[...document.querySelectorAll('tbody th a')].at(-1).click()")
    tab.wait_for("document.querySelector('#latency')")
    assert "p99.9 9.00 ms" in text(tab, "latency")
    assert "gross energy per inference 60.0 mJ ± 5.0 %" in text(tab, "figures")
    assert "not_steady" in text(tab, "flags")
    tab.run("document.querySelector('#lanes a[data-run]').dispatchEvent(new MouseEvent('click'))")
    tab.wait_for("!document.querySelector('#latency')")
    assert "inferences 10" in text(tab, "figures")
    check_is_whole(tab)


def test_report_has_the_conclusion_of_the_status_page(filled, open_file):
    for number in range(3):
        filled.finish(20 + number, 1, workload="a", device="gpu", **figures(3, 67, 0.9))
        filled.finish(10 + number, 1, workload="b", device="dla0", **figures(17, 124, 0.0))
    filled.store.flush()
    tab = open_file(page_since(History(filled.store.path), 3600, SYSTEM_CLOCK.wall_ns()))
    words = tab.run("document.querySelector('.conclusion').innerText")
    assert words == (
        "On the DLA: 85 % more net energy, 5.7 times the time, frees 90.0 points of the GPU"
    )
    check_is_whole(tab)


@pytest.mark.parametrize(("width", "medium"), [(1280, "screen"), (1032, "print")])
def test_report_is_not_cut_off_on_a_laptop_nor_on_paper(filled, open_file, width, medium):
    """A landscape sheet of A4 is 1032 pixels wide. Ids are short, and on one line."""
    for number in range(30):
        filled.finish(
            49 - number, 1, workload=f"detector-of-the-front-camera-{number}", device="dla1",
            inferences=4000, latency=LATENCY, energy=ENERGY, unit="frame",
            quality=("not_steady", "aliased", "foreign_dla_activity", "telemetry_gap"),
        )  # fmt: skip
    filled.store.flush()
    tab = open_file(page_since(History(filled.store.path), 3600, SYSTEM_CLOCK.wall_ns()))
    tab.call("Emulation.setEmulatedMedia", media=medium)
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=700, deviceScaleFactor=1, mobile=False,
    )  # fmt: skip
    tables = "[...document.querySelectorAll('.wide')]"
    tab.wait_for(f"innerWidth === {width}")
    assert tab.run(f"{tables}.every(w => w.scrollWidth <= w.clientWidth)")
    assert tab.run("document.documentElement.scrollWidth") <= width
    links = "[...document.querySelectorAll('.wide tbody th a')]"
    assert tab.run(f"{links}.every(a => a.textContent.length === 8)")
    assert tab.run(f"{links}.every(a => a.getClientRects().length === 1)")
    legend = tab.run("document.querySelector('#lanes .legend').innerText")
    assert "detector-of-the-front-camera-0" in legend


def test_one_run_is_shown_at_once(filled, open_file):
    made = next(History(filled.store.path).runs())
    tab = open_file(page_of_run(History(filled.store.path), made["run_id"]))
    assert "p50 (median) 2.00 ms" in text(tab, "latency")
    assert "232 J to 252 J" in text(tab, "energy")
    assert "UTC" in tab.run("document.querySelector('#run .under').innerText")
    check_is_whole(tab)


def test_run_whose_record_is_elsewhere_is_named(filled, open_file):
    tab = open_file(page_since(History(filled.store.path), 3600, SYSTEM_CLOCK.wall_ns()))
    tab.run("location.hash = '#run-0193'")
    tab.wait_for("document.getElementById('run').innerText.includes('report --run 0193')")
    check_is_whole(tab)


@pytest.mark.parametrize(("width", "dark"), LOOKS, ids=["wide", "phone"])
def test_benchmark_shows_its_rounds(filled, open_file, width, dark):
    rounds = [
        filled.finish(ago, 10, device=device, inferences=4000, latency=LATENCY, energy=ENERGY)
        for ago, device in ((40, "gpu"), (25, "dla0"))
    ]
    entries = []
    for one in rounds:
        entries.append(Measured(look=one, status="ok", reason=None, rounds=[Round(one)]))
    result = BenchResult(
        tegrascope="0",
        started_wall_ns=rounds[0].started_wall_ns,
        ended_wall_ns=rounds[0].started_wall_ns + 10**10,
        settings=settings("<b>&net"),
        models=(summarise("<b>&net", entries, rounds),),
    )
    tab = open_file(report_page(result, filled.timeline.cut), width=width, dark=dark)
    assert tab.run("document.querySelectorAll('tbody th a').length") == 2
    assert tab.run("document.querySelectorAll('p.bar rect').length") >= 4  # two per goal
    tab.run("document.querySelector('tbody th a').click()")
    tab.wait_for("document.querySelector('#latency')")
    assert "p50 (median) 2.00 ms" in text(tab, "latency")
    check_is_whole(tab)


@pytest.mark.parametrize(("width", "dark"), LOOKS, ids=["wide", "phone"])
def test_front_of_a_sweep_is_drawn_and_named(show, tmp_path, width, dark):
    energy = Figure(value=0.02, low=0.019, high=0.021)
    points = (
        Mark("gpu <fast>", "gpu", Figure(value=0.003, low=0.0028, high=0.0032), energy, True),
        Mark("dla0", "dla0", Figure(value=0.01), Figure(value=0.04), False),
    )
    front = Front("Net energy per input", "J", points)
    path = tmp_path / "page.html"
    path.write_text(html_page("a sweep", [Heading("Sweep", 1), front], version="0"))
    tab = show(path.as_uri(), width=width, dark=dark)
    tab.wait_for("document.querySelector('.front svg')")
    label = tab.run("document.querySelector('.front svg').getAttribute('aria-label')")
    assert label == "Net energy per input against latency; on the front: gpu <fast>"
    place = "[...document.querySelectorAll('.front circle')].map(c => c.getAttribute('class'))"
    assert all("shade0" in look for look in tab.run(place))
    tips = tab.run("[...document.querySelectorAll('.front title')].map(t => t.textContent)")
    assert sorted(tip.replace("\u00a0", " ") for tip in tips) == [
        "dla0: 10.0 ms, 40.0 mJ",
        "gpu <fast>: 3.00 ms, 20.0 mJ",
    ]
    # Two intervals of the point on the front, none of the other.
    assert tab.run("document.querySelectorAll('.front path.curve').length") == 2
    check_is_whole(tab)

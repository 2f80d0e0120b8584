"""Everybody can read the pages: axe-core finds no violation, and keys reach all charts."""

from importlib.resources import files

import pytest

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.daemon.store.history import History
from tegrascope.workbench.results.bench_page import report_page
from tegrascope.workbench.results.records import BenchResult
from tegrascope.workbench.results.runs_page import page_of_run, page_since
from tegrascope.workbench.results.summary import Measured, Round, summarise
from tests.results.bench_fakes import settings

from .test_run_page import ENERGY, LATENCY
from .test_status_page import BANDS, figures, telemetry

AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# All rules that are on by default, and one that is an experiment of axe-core.
FOUND = """axe.run({
  resultTypes: ['violations'], rules: {'label-content-name-mismatch': {enabled: true}},
}).then(({violations}) => violations.map(({id, impact, nodes}) =>
  `${impact} ${id}: ${nodes.slice(0, 3).map(n => n.html.slice(0, 120)).join(' ')}`))"""
LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]
each_look = pytest.mark.parametrize(
    ("width", "dark"), LOOKS, ids=["wide", "wide-dark", "phone", "phone-dark"]
)


def findings(tab):
    tab.run(f"{AXE}; 0")
    return tab.run(FOUND)


@pytest.fixture
def full(board):
    """A board in trouble, with cards, troubles, runs and a quarter of an hour of telemetry."""
    board.interval = 600.0
    hot = {"temperatures_celsius.cpu": 103.0, "throttle.cpu_thermal.active": 1.0}
    board.fill(lambda ago: telemetry(ago) | hot, 600, 0, 1.0)
    board.live.update(trips_celsius={("cpu", "critical"): 104.5})
    for number in range(3):
        board.finish(500 - 30 * number, 9, workload="a", device="gpu", **figures(3, 67, 0.9))
        board.finish(300 - 30 * number, 9, workload="b", device="dla0", **figures(17, 124, 0.0))
    for number in range(2):
        board.finish(100 - number, 1, workload="c", outcome="failed", reason="no engine")
    board.finish(60, 20, inferences=4000, latency=LATENCY, energy=ENERGY, quality=("not_steady",))
    board.timeline.seal()
    board.store.flush()
    return board


@each_look
def test_status_page(full, show, width, dark):
    tab = show(full.url, width=width, dark=dark)
    tab.wait_for(f"{BANDS}.length === 9 && document.querySelector('.conclusion')")
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.wait_for("document.querySelectorAll('#charts tbody tr').length > 8")
    assert findings(tab) == []


@each_look
def test_run_page(full, show, width, dark):
    made = next(full_runs(full))
    tab = show(f"{full.url}runs/{made}", width=width, dark=dark)
    tab.wait_for(
        "document.querySelector('#power path.curve') && document.querySelector('#latency')"
    )
    assert findings(tab) == []


def full_runs(board):
    for run in History(board.store.path).runs():
        yield run["run_id"]


@each_look
@pytest.mark.parametrize("page", ["report", "run", "bench"])
def test_saved_pages(full, show, tmp_path, page, width, dark):
    history = History(full.store.path)
    if page == "report":
        text = page_since(history, 3600, SYSTEM_CLOCK.wall_ns())
    elif page == "run":
        text = page_of_run(history, next(full_runs(full)))
    else:
        text = bench_page(full)
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    tab = show(path.as_uri(), width=width, dark=dark)
    tab.wait_for("document.querySelector('#power path.curve')")
    if page != "run":
        tab.run("document.querySelector('tbody th a').click()")
    tab.wait_for("document.querySelector('#latency')")
    assert findings(tab) == []


def bench_page(board):
    rounds = [
        board.finish(ago, 10, device=device, inferences=4000, latency=LATENCY, energy=ENERGY)
        for ago, device in ((40, "gpu"), (25, "dla0"))
    ]
    entries = []
    for one in rounds:
        entries.append(Measured(look=one, status="ok", reason=None, rounds=[Round(one)]))
    result = BenchResult(
        tegrascope="0",
        started_wall_ns=rounds[0].started_wall_ns,
        ended_wall_ns=rounds[0].started_wall_ns + 10**10,
        settings=settings("net"),
        models=(summarise("net", entries, rounds),),
    )
    return report_page(result, board.timeline.cut)


def test_keyboard_goes_through_all_charts(full, show):
    """Each chart that is not empty is a stop, and reads out its values."""
    tab = show(full.url)
    tab.wait_for(f"{BANDS}.length === 9")
    stages = tab.run(
        "[...document.querySelectorAll('.stage')].filter(s => s.checkVisibility()).length"
    )
    read = set()
    for _ in range(200):
        tab.press("Tab", 9)
        chart = tab.run(
            "(at => at.matches('.stage') && at.closest('figure').id)(document.activeElement)"
        )
        if chart:
            tab.press("ArrowLeft", 37)
            words = tab.run("document.querySelector('[aria-live=polite]').textContent")
            assert ": " in words
            assert "nothing known" not in words
            tab.press("Escape", 27)
            read.add(chart)
        if len(read) == stages:
            break
    assert len(read) == stages >= 4

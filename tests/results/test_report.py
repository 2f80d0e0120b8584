"""``tegrascope report``: the page of stored runs and telemetry."""

import sqlite3
from array import array
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest

from tegrascope.daemon.measure.blocks import Block, encode
from tegrascope.daemon.measure.report import (
    Environment,
    Interval,
    PhaseEnergy,
    ProcessShare,
    RunReport,
)
from tegrascope.daemon.measure.run_text import Row, run_rows
from tegrascope.daemon.measure.timeline import SealedBlock
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.workbench.cli import main
from tegrascope.workbench.results.runs_page import page_since

from .bench_fakes import SECOND, report
from .pages import Page, check_asks_for_nothing, saved_in

NOW = 1_800_000_000 * SECOND
HOUR = 3600
GPU = {"gross": 80.0, "net": 40.0, "half": 1.0, "gpu": 0.92, "emc": 0.4, "celsius": 55.0}


def run_of(ago_seconds, ms=3.0, device="gpu", **facts):
    """Return a run of 12 s that started so long ago."""
    one = report(device, ms, 1000.0, **(GPU | facts))
    wall_ns = NOW - ago_seconds * SECOND
    quality = ("throttled",)
    changes = {"run_id": f"run-{ago_seconds}", "started_wall_ns": wall_ns, "quality": quality}
    return one.model_copy(update=changes)


def samples(ago_seconds, count, source="tegrastats"):
    """Return a block of samples, one per second, which began so long ago."""
    wall = array("q", (NOW - (ago_seconds - i) * SECOND for i in range(count)))
    columns = {
        "rails.VDD_IN.instant_watts": array("d", (5 + i % 7 for i in range(count))),
        "gpu.utilization_ratio": array("d", (i % 2 for i in range(count))),
        "emc.utilization_ratio": array("d", (0.25 for _ in range(count))),
        "dla.0.busy_ratio": array("d", (0.5 for _ in range(count))),
        "temperatures_celsius.tj": array("d", (40 + i / 100 for i in range(count))),
        "ram.used_bytes": array("d", (1e9 for _ in range(count))),
    }
    times = array("q", (at - NOW + 10**15 for at in wall))
    data = encode(Block(source, times, wall, columns))
    return SealedBlock(source, times[0], times[-1], wall[0], wall[-1], count, data)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "tegrascope.db", "boot")
    yield made
    made.close()


def page_of(store, seconds=24 * HOUR):
    text = page_since(History(store.path), seconds, NOW)
    page = Page(text)
    check_asks_for_nothing(text, page)
    return text, page


def links(page):
    return [value for tag, name, value in page.attributes if (tag, name) == ("a", "href")]


def test_page_has_every_run_with_the_figures_of_the_store(store):
    runs = [run_of(ago, ms) for ago, ms in ((7200, 3.0), (3600, 4.0), (60, 5.0))]
    for one in (*runs, run_of(2 * 24 * HOUR)):
        store.finish(one)
    text, page = page_of(store)
    assert links(page) == ["#run-run-7200", "#run-run-3600", "#run-run-60"]
    assert [run["run_id"] for run in saved_in(text)["runs"]] == ["run-7200", "run-3600", "run-60"]
    cells = page.words["td"]
    for document in History(store.path).runs(3):
        p50 = document["latency"]["p50_seconds"]
        assert f"{1000 * p50:.2f}\xa0ms" in cells
        each = 1000 * document["energy"]["net_joules_per_inference"]
        half = 100 * 1.0 / document["energy"]["net_joules"]
        assert f"{each:.1f}\xa0mJ ±\xa0{half:.1f}\xa0%" in cells
    assert any(cell.startswith("55.0\xa0°C tj") for cell in cells)
    assert "throttled" in cells


def test_a_run_that_says_nothing_hides_no_mean(store):
    """The interval of one is wider than its energy; the mean of the workload is that of the rest.

    40 J in 4,000 inferences of 3 ms.
    """
    for ago, facts in ((300, {}), (200, {}), (100, {}), (60, {"net": 20.0, "half": 900.0})):
        store.finish(run_of(ago, **facts))
    _, page = page_of(store)
    assert "10.0\xa0mJ ±\xa02.5\xa0%" in page.words["td"]
    assert page.words["td"].count("10.0\xa0mJ ±\xa02.5\xa0%") == 4


def test_timeline_shows_telemetry_and_runs(store):
    store.finish(run_of(3000))
    store.add_block(samples(3100, 300))
    store.add_block(samples(600, 300))
    store.flush()
    text, _ = page_of(store)
    timeline = saved_in(text)["timeline"]
    (part,) = timeline["series"]["parts"]
    labels = [line["label"] for line in part["lines"]]
    assert labels == ["VDD_IN", "GPU", "memory (EMC)", "DLA0 busy (ftrace)", "tj", "RAM used"]
    begin, means, _ = part["rows"][0]
    # The axis begins with the first sample, not 24 hours ago.
    assert timeline["begin"] == NOW / 1e9 - 3100
    assert begin == pytest.approx(timeline["begin"], abs=timeline["series"]["step"])
    assert means[2:4] == [0.25, 0.5]
    # No step in the pause between the blocks.
    times = [row[0] for row in part["rows"]]
    assert max(after - before for before, after in pairwise(times)) > 2000
    ((run_id, workload, device, outcome, *seconds),) = timeline["bands"]
    assert (run_id, workload, device, outcome) == ("run-3000", "net-gpu", "gpu", "ok")
    assert seconds[:2] == [NOW / 1e9 - 3000, NOW / 1e9 - 3000 + 12]
    assert "Simulated:" not in text


def test_day_of_many_samples_stays_a_small_page(store):
    for ago in range(24 * HOUR, 0, -HOUR):
        store.add_block(samples(ago, HOUR))
    store.flush()
    text, _ = page_of(store)
    assert len(text) < 200_000
    (part,) = saved_in(text)["timeline"]["series"]["parts"]
    assert 590 < len(part["rows"]) < 610


@pytest.mark.parametrize("how", ["source", "run"])
def test_simulated_data_is_marked(store, how):
    one = run_of(60)
    if how == "run":
        one = one.model_copy(update={"environment": Environment(simulated=True)})
    store.finish(one)
    store.add_block(samples(100, 50, "simulator" if how == "source" else "tegrastats"))
    store.flush()
    assert "Simulated:" in page_of(store)[0]


def test_empty_store_gives_a_page_with_one_clear_line(store):
    _, page = page_of(store)
    assert "The run store has no finished runs." in page.words["p"]
    assert "The store has no telemetry of this time." in page.words["p"]
    assert "table" not in page.seen


def test_quiet_time_names_the_latest_run(store):
    store.finish(run_of(7200))
    _, page = page_of(store, 600.0)
    (words,) = [text for text in page.words["p"] if text.startswith("No run")]
    assert words.endswith("The latest run started 2027-01-15 06:00:00 UTC.")


def test_damaged_block_is_left_out_and_counted(store):
    good = samples(100, 50)
    store.add_block(good)
    store.add_block(replace(good, data=good.data[:40]))
    store.flush()
    text, page = page_of(store)
    assert "Damaged blocks of samples left out: 1." in page.words["p"]
    assert saved_in(text)["timeline"]["series"]["parts"]


def test_one_run_has_all_of_its_figures(store, tmp_path, capsys):
    used = ProcessShare(name="docker:0123/trtexec", cpu_seconds=2.0, dla_seconds={"dla1": 0.25})
    foreign = {
        "quality": ("foreign_dla_activity",),
        "other_processes": (used, ProcessShare(name="make", cpu_seconds=0.5)),
        "foreign_dla_processes": (used.name,),
    }
    one = run_of(3000).model_copy(
        update={**foreign, "unit": "query", "units": 500.0, "units_per_second": 25.0}
    )
    each = {"joules_per_unit": 0.16, "joules_per_unit_interval": Interval(low=0.157, high=0.163)}
    facts = {"name": "prefill", "count": 3, "seconds": 1.5}
    interval = Interval(low=9.0, high=11.0)
    phases = (
        PhaseEnergy(**facts, method="cut", gross_joules=10.0, gross_interval=interval),
        PhaseEnergy(**facts, reason="it is too short"),
    )
    each["phases"] = phases
    one = one.model_copy(update={"energy": one.energy.model_copy(update=each)})
    store.finish(one)
    store.add_block(samples(3100, 300))
    store.flush()
    store.close()
    path = tmp_path / "run.html"
    arguments = ["--run", "run-3000", "--state-dir", str(tmp_path), "-o", str(path)]
    assert main(["report", *arguments]) == 0
    assert capsys.readouterr().out == ""
    text = path.read_text(encoding="utf-8")
    check_asks_for_nothing(text, Page(text))
    saved = saved_in(text)
    ((run_id, *_),) = saved["timeline"]["bands"]
    (record,) = saved["runs"]
    assert run_id == record["run_id"] == "run-3000"
    assert [Row(**row) for row in record.pop("text")] == run_rows(one)
    assert RunReport.model_validate(record) == one


@pytest.mark.parametrize("damage", ["a field", "all"])
def test_unreadable_run_is_left_out_and_counted(store, tmp_path, capsys, damage):
    store.finish(run_of(7200))
    store.finish(run_of(3600))
    with closing(sqlite3.connect(store.path)) as other, other:
        other.execute(
            "UPDATE runs SET report = json_set(report, '$.batch', 'x') WHERE run_id = 'run-3600'"
            if damage == "a field"
            else "UPDATE runs SET report = '' WHERE run_id = 'run-3600'"
        )
    _, page = page_of(store)
    assert links(page) == ["#run-run-7200"]
    assert "Runs left out, since they cannot be read: 1." in page.words["p"]
    output = ("-o", str(tmp_path / "x.html"), "--state-dir", str(tmp_path))
    assert main(["report", "--run", "run-3600", *output]) == 1
    assert capsys.readouterr().err.count("\n") <= 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ("--since", "soon", "-o", "x.html"),
            2,
            "a duration is a number of seconds, or like 500ms",
        ),
        (("--since", "1h", "--run", "a", "-o", "x.html"), 2, "not allowed with"),
        ((), 2, "-o/--output"),
        (("--run", "nothing", "-o", "x.html"), 1, "there is no run nothing"),
    ],
)
def test_bad_requests_are_one_line(store, tmp_path, capsys, monkeypatch, arguments, status, words):
    store.flush()
    monkeypatch.chdir(tmp_path)
    try:
        ended = main(["report", *arguments, "--state-dir", str(tmp_path)])
    except SystemExit as error:
        ended = error.code
    error = capsys.readouterr().err
    assert (ended, error.count("\n")) == (status, 1)
    assert words in error
    assert not (tmp_path / "x.html").exists()


def test_missing_store_is_one_line(tmp_path, capsys):
    path = tmp_path / "x.html"
    assert main(["report", "--state-dir", str(tmp_path), "-o", str(path)]) == 1
    assert "no run store" in capsys.readouterr().err
    assert not path.exists()

"""The page and the document: whole, valid, closed to the network, and readable by all."""

import json
import re
from array import array

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.figures import difference
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.results.bench_page import report_page
from tegrascope.workbench.results.reading import read_result
from tegrascope.workbench.results.records import (
    BenchResult,
    Contention,
    Figure,
    LaneTogether,
    Together,
)
from tegrascope.workbench.results.summary import Measured, Round, summarise

from .bench_fakes import SECOND, report, settings
from .pages import Page, check_asks_for_nothing, saved_in


@pytest.fixture
def result():
    """A bench of a model with a name that would break a careless page."""
    return bench_of((80.0, 40.0), (80.0, 40.0))


def bench_of(on_gpu, on_dla):
    """Return a bench in which the rounds of each device have these gross and net joules."""

    def told(joules):
        return {"gross": joules[0], "net": joules[1], "half": 1.0, "gpu": 0.92}

    rounds = {
        "gpu": [report("gpu", 3.0, at, **told(on_gpu)) for at in (0, 36)],
        "dla0": [report("dla0", 17.0, at, **told(on_dla)) for at in (12, 24)],
    }
    entries = [
        Measured(
            look=reports[0],
            status="ok",
            reason=None,
            rounds=[Round(one, array("q", [3_000_000] * 9)) for one in reports],
        )
        for reports in rounds.values()
    ]
    ordered = sorted(
        (one for found in rounds.values() for one in found), key=lambda r: r.started_ns
    )
    model = summarise("<b>&net", entries, ordered)
    return BenchResult(
        tegrascope="0",
        started_wall_ns=0,
        ended_wall_ns=48 * SECOND,
        is_simulated=True,
        settings=settings("<b>&net"),
        models=(model,),
    )


def samples(begin_ns, end_ns):
    times = array("q", range(begin_ns, end_ns, SECOND // 10))
    columns = {
        "rails.VDD_IN.instant_watts": array("d", (5 + i % 7 for i in range(len(times)))),
        "gpu.utilization_ratio": array("d", (i % 2 for i in range(len(times)))),
        "temperatures_celsius.tj": array("d", (40 + i / 100 for i in range(len(times)))),
        "dla.0.on": array("d", (1.0 for _ in times)),
    }
    return WindowSlice(times, times, columns)


def test_document_comes_back_as_it_was(result):
    text = result.model_dump_json(exclude_none=True)
    assert BenchResult.model_validate_json(text) == result
    assert json.loads(text)["schema_version"] == 3


def test_result_of_an_older_version_is_read(result, tmp_path):
    document = json.loads(result.model_dump_json(exclude_none=True))
    document["schema_version"] = 2
    document["settings"]["nsys"] = True
    document["models"][0]["accelerators"][0]["nsys_report"] = "net-gpu.nsys-rep"
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    assert read_result(path).models == result.models


def test_page_is_valid_and_asks_for_nothing(result):
    text = report_page(result, samples)
    page = Page(text)
    assert page.seen.count("h1") == 1
    assert "<b>&net" in page.words["h1"]
    check_asks_for_nothing(text, page)


def test_page_begins_with_the_board_and_what_was_asked_for(result):
    board = result.environment.model_copy(update={"board": "orin-nx", "power_mode": "MAXN"})
    page = Page(report_page(result.model_copy(update={"environment": board}), samples))
    words = " ".join(page.words["p"])
    assert "orin-nx · power mode MAXN · batch 1 · precision " in words
    assert any("median latency, shorter is better" in one for one in page.words["h3"])
    assert any("inputs, longer is better" in one for one in page.words["h3"])


@pytest.mark.parametrize(
    ("on_dla", "words"),
    [
        ((20.0, 5.0), "53 % less net energy but 42 % more gross energy"),
        ((10.0, 5.0), "53 % less net energy, 5.7 times"),
    ],
)
def test_conclusion_names_gross_energy_where_it_disagrees(on_dla, words):
    page = Page(report_page(bench_of((80.0, 60.0), on_dla), samples))
    (conclusion,) = [one for one in page.words["p"] if one.startswith("On the DLA: ")]
    assert words in conclusion


def test_offset_of_the_sensors_may_explain_a_difference_of_gross_energy():
    made = bench_of((80.0, 60.0), (20.0, 5.0))
    results = []
    for one in made.models[0].accelerators:
        offset = {"gpu": 0.0, "dla0": one.gross_joules_per_inference.value}[one.device]
        results.append(one.model_copy(update={"offset_joules_per_inference": offset}))
    model = made.models[0].model_copy(update={"accelerators": tuple(results)})
    page = Page(report_page(made.model_copy(update={"models": (model,)}), samples))
    (conclusion,) = [one for one in page.words["p"] if one.startswith("On the DLA: ")]
    assert "53 % less net energy but no sure difference in gross energy" in conclusion


def test_page_says_that_it_is_simulated(result):
    assert "Simulated:" in report_page(result, samples)
    real = result.model_copy(update={"is_simulated": False})
    assert "Simulated:" not in report_page(real, samples)


def test_page_holds_the_rounds_and_the_telemetry_of_all_of_them(result):
    text = report_page(result, samples)
    saved = saved_in(text)
    assert [run["device"] for run in saved["runs"]] == ["gpu", "dla0", "dla0", "gpu"]
    timeline = saved["timeline"]
    assert [band[2] for band in timeline["bands"]] == ["gpu", "dla0", "dla0", "gpu"]
    (part,) = timeline["series"]["parts"]
    labels = [line["label"] for line in part["lines"]]
    assert labels == ["VDD_IN", "GPU", "DLA0 switched on", "tj"]
    watts = [means[0] for _, means, _ in part["rows"]]
    assert sum(watts) / len(watts) == pytest.approx(8.0, abs=0.1)
    assert timeline["total_rails"] == list(result.models[0].rounds[0].energy.total_rails)


def test_page_without_samples_has_its_tables(result):
    page = Page(report_page(result, lambda *_: WindowSlice()))
    assert "table" in page.seen
    assert ("div", "id", "run") in page.attributes
    assert ("div", "id", "timeline") not in page.attributes


def test_table_has_headers_for_rows_and_columns(result):
    page = Page(report_page(result, samples))
    scopes = [value for tag, name, value in page.attributes if (tag, name) == ("th", "scope")]
    assert scopes.count("col") > 2
    assert scopes.count("row") >= 8


def test_wrong_speed_is_struck_through(result):
    model = result.models[0]
    wrong = model.accelerators[0].model_copy(update={"flags": {"wrong_outputs": 2}})
    models = (model.model_copy(update={"accelerators": (wrong, model.accelerators[1])}),)
    text = report_page(result.model_copy(update={"models": models}), samples)
    struck = re.findall(r'class="doubtful"[^>]*>([^<]+)<', text)
    assert any("3.00&nbsp;ms" in cell for cell in struck)
    assert not any("17" in cell for cell in struck)


def test_models_together_have_a_section_of_their_own(result):
    lanes = [
        LaneTogether(
            model=f"<b>{n}.onnx", device=device, slowdown=Figure(value=1.5, low=1.4, high=1.6)
        )
        for n, device in enumerate(("gpu", "dla0"))
    ]
    pair = Together(
        lanes=tuple(lanes),
        status="ok",
        rounds=4,
        seconds=12.0,
        net_joules=Figure(value=100.0, low=98.0, high=102.0),
        excess_watts=Figure(value=-1.25, low=-2.0, high=-0.5),
    )
    failed = Together(lanes=tuple(lanes[::-1]), status="failed", reason="<out of memory>")
    both = Contention(planned_seconds=60.0, together=(pair, failed))
    page = Page(report_page(result.model_copy(update={"contention": both}), samples))
    assert "Together" in page.words["h2"]
    assert "<b>0 on gpu" in page.words["th"]
    told = " ".join(page.words["li"])
    assert "100 J ± 2.0 % net, 1.2 W less (-2.0 to -0.50) than the same work alone" in told
    assert "failed, <out of memory>" in told
    assert "1.50× ±\xa06.7\xa0%" in page.words["td"]


def test_page_names_what_was_asked_for(result):
    asked = result.settings.model_copy(update={"optimization_level": 0, "streams": 4})
    page = report_page(result.model_copy(update={"settings": asked}), samples)
    assert "optimisation level 0, 4 streams" in page
    assert "as TensorRT chooses, 1 stream" in report_page(result, samples)


def test_interval_of_a_load_stays_within_the_possible():
    """The mean of 0.99 and 0.9 has an interval beyond 1 by Student's distribution."""
    looks = [report("gpu", gpu=load) for load in (0.99, 0.9)]
    one = Measured(look=looks[0], status="ok", reason=None, rounds=[Round(r) for r in looks])
    load = summarise("m", [one], looks).accelerators[0].utilization["gpu"]
    assert load.value == pytest.approx(0.945)
    assert (load.low, load.high) == (pytest.approx(0.945 - 0.5718, abs=1e-3), 1.0)
    freed = difference(load, Figure(value=0.0, low=-0.001, high=0.001))
    assert freed.half == pytest.approx(0.5718, abs=1e-3)


def test_a_result_without_an_end_is_refused(tmp_path):
    path = tmp_path / "result.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a file with a hole: it has no blocks
    with pytest.raises(UserError, match=r"result.json is larger than 64 MiB"):
        read_result(tmp_path)

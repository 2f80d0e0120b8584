"""Published results are what their sources print, and stand beside an own figure."""

import io
import re
from array import array

import pytest

from tegrascope.daemon.measure.run_report import Environment
from tegrascope.daemon.results.bench_page import print_result, report_page
from tegrascope.daemon.results.published import (
    Conditions,
    beside,
    differences,
    family_of,
    nearest,
    published,
)
from tegrascope.daemon.results.records import BenchResult
from tegrascope.daemon.results.summary import Measured, Round, summarise

from .bench_fakes import SECOND, report, settings
from .test_bench_report import samples

ORIN = "NVIDIA Jetson AGX Orin Developer Kit"
OWN = Conditions(
    board="AGX Orin",
    mode="MAXN",
    dla_cores=1,
    precision="int8",
    input="224x224",
    batch=1,
    clocks_locked=True,
    transfers=True,
    cuda_graph=True,
    streams=1,
    jetpack="6.2",
)


def bench(model="builtin:resnet50", ms=3.0, device="gpu", board=ORIN, **changes):
    rounds = [report(device, ms, at) for at in (0, 36)]
    entry = Measured(
        rounds[0],
        "ok",
        None,
        rounds=[Round(one, array("q", [round(ms * 1e6)] * 9)) for one in rounds],
    )
    asked = settings(model, **changes)
    return BenchResult(
        tegrascope="0",
        started_wall_ns=0,
        ended_wall_ns=48 * SECOND,
        settings=asked,
        environment=Environment(board=board, power_mode="MODE_30W", jetpack="6.0"),
        models=(summarise(model, [entry], rounds),),
    )


def printed(result):
    stream = io.StringIO()
    print_result(result, stream)
    return stream.getvalue()


def test_each_number_stands_in_its_quote():
    rows = published()
    assert len(rows) >= 300
    for row in rows:
        assert row.printed, row
        for text in row.printed.values():
            assert re.search(rf"(?<![\d.]){re.escape(text)}(?!\d|\.\d)", row.quote), row


def test_each_address_is_of_one_version_of_a_text():
    """A file has its commit; a thread has its number."""
    for row in published():
        address = str(row.address)
        assert re.fullmatch(
            r"https://github\.com/[\w.-]+/[\w.-]+/(issues/\d+|blob/[0-9a-f]{40}/[\w./-]+)", address
        ), address


def test_each_value_is_the_printed_one_in_base_units():
    divisors = {"ms": 10**3, "ns": 10**9}
    for row in published():
        for unit, text in row.printed.items():
            if unit in divisors:
                assert row.latency_seconds == pytest.approx(float(text) / divisors[unit])
            elif unit == "watts":
                assert row.watts == float(text)
            else:
                inputs = row.batch if unit == "qps" else 1
                assert row.throughput_per_second == pytest.approx(float(text) * inputs)
    every = published()
    assert {row.latency_seconds for row in every if "founded" in row.title} == {0.017, 0.003}
    (gn,) = (row for row in every if row.model == "model_gn")
    assert gn.throughput_per_second == 32 * 305.926


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("builtin:resnet50", "resnet50"),
        ("builtin:resnet50-fp16", "resnet50"),
        ("nets/resnet50-v1-12-int8.onnx", "resnet50"),
        ("builtin:mobilenetv2", "mobilenetv2"),
        ("YOLO11n.onnx", "yolo11n"),
        ("yolov4-tiny-416.onnx", "yolov4tiny416"),
        ("builtin:mobilenet", None),
        ("resnet5.onnx", None),
        ("my-resnet50.onnx", None),
        ("ssd-resnet50.onnx", None),
        ("yolo11n-seg.onnx", None),
        ("fp16.onnx", None),
    ],
)
def test_family_is_known_by_the_whole_name_only(model, family):
    assert family_of(model) == family


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("board", "Orin NX"),
        ("mode", "MODE_15W"),
        ("dla_cores", 2),
        ("precision", "fp16"),
        ("input", "256x256"),
        ("batch", 8),
        ("clocks_locked", False),
        ("transfers", False),
        ("cuda_graph", False),
        ("streams", 2),
        ("jetpack", "5.1.1"),
    ],
)
def test_first_difference_is_the_first_suspected(name, other):
    """Each condition is found alone, and stands before all that come after it."""
    changed = OWN.model_copy(update={name: other})
    assert [one.name for one in differences(changed, OWN)] == [name]
    last = changed.model_copy(update={"jetpack": "4.6"})
    assert differences(last, OWN)[0].name == name
    unknown = changed.model_copy(update={name: None})
    assert differences(unknown, OWN) == ()


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ("AGX Orin 64GB", ORIN, False),
        ("Orin", ORIN, False),
        ("Orin Nano Super 8GB", "NVIDIA Jetson Orin Nano Developer Kit Super", False),
        ("AGX Orin 64GB", "AGX Orin 32GB", True),
        ("Jetson Nano 4GB", "NVIDIA Jetson Orin Nano Developer Kit", True),
        ("Orin NX 16GB", ORIN, True),
        ("Xavier NX", "NVIDIA Jetson AGX Xavier", True),
    ],
)
def test_boards_differ_only_where_both_say_so(one, other, differs):
    pair = Conditions(board=one), Conditions(board=other)
    assert bool(differences(*pair)) == bool(differences(*reversed(pair))) == differs


def test_a_user_with_half_of_the_published_rate_had_half_of_the_cores():
    """The thread is real: https://github.com/NVIDIA/Deep-Learning-Accelerator-SW/issues/29."""
    theirs = [row for row in published() if "dense" in row.title and row.mode == "MAXN"]
    users = [row for row in published() if "issue 29" in row.title]
    assert len(users) == 5
    for user in users:
        (row,) = (one for one in theirs if one.family == user.family)
        assert user.throughput_per_second / row.throughput_per_second == pytest.approx(
            0.5, abs=0.02
        )
        assert [one.name for one in differences(row, user)] == ["dla_cores"]


def test_power_modes_are_the_same_in_either_spelling():
    for one, other in (("MAX-N", "MAXN"), ("15W 6CORE", "MODE_15W_6CORE"), ("50W", "MODE_50W")):
        assert not differences(Conditions(mode=one), Conditions(mode=other))


def test_nearest_has_the_precision_then_the_batch_then_board_and_mode():
    found = nearest("resnet50.onnx", "dla0", OWN.model_copy(update={"precision": "fp16"}))
    assert found is not None and found.printed == {"ms": "17"}
    own = OWN.model_copy(update={"batch": 2})
    for cores, number in ((1, "1008"), (2, "2037")):
        found = nearest("resnet50.onnx", "dla1", own.model_copy(update={"dla_cores": cores}))
        assert found is not None and found.printed == {"fps": number}
    both = own.model_copy(update={"dla_cores": 2, "mode": "MODE_15W"})
    found = nearest("resnet50.onnx", "dla0", both)
    assert found is not None and found.printed == {"fps": "1072"}
    for board, number in (("AGX Orin", "633478"), ("Orin NX", "1087793"), ("Xavier NX", "2460693")):
        found = nearest("resnet50.onnx", "gpu", Conditions(board=board, precision="int8", batch=1))
        assert found is not None and found.printed == {"ns": number}


def test_nothing_is_shown_of_another_model_or_device():
    assert nearest("detector.onnx", "gpu", OWN) is None
    assert nearest("resnet50.onnx", "cpu", OWN) is None


def test_table_has_the_published_figure_and_the_line_its_first_suspected_cause():
    text = printed(bench(ms=4.2, precision="fp16"))
    assert re.search(r"latency p50 +4\.20 ms.*\n +published p50 +3\.00 ms", text)
    said = " ".join(text.split())
    assert "gpu: published 3.00 ms (resnet50-v2-7, AGX Orin, fp16, batch 1)" in said
    assert f"yours 4.20 ms ({ORIN}, MODE_30W, fp16, batch 1): 40.0 % more" in said
    assert "first suspected cause: copies in the time (published no, yours yes)" in said
    assert "source: github.com/FengD/dla_test_code/blob/" in said


def test_a_large_difference_without_a_known_cause_says_so():
    text = " ".join(printed(bench(ms=4.2, precision="fp16", transfers=False)).split())
    assert "40.0 % more; first suspected cause: no known difference; source" in text


def test_a_small_difference_has_no_cause_but_tells_what_differs():
    for ms, words in ((3.3, "10.0 % more; also different"), (1.5, "less; first suspected cause")):
        text = printed(bench(ms=ms, precision="fp16", batch=4, transfers=False))
        assert f"{words}: batch (published 1, yours 4)" in " ".join(text.split())


def test_published_percentile_stands_below_the_own_one():
    (found,) = beside((result := bench(ms=1.0, precision="int8")).models[0], result)
    assert (found.label, found.own_value) == ("latency p90", pytest.approx(1e-3))
    assert differences(found.row, found.own)[0].name == "mode"
    assert re.search(r"latency p90 +1\.00 ms +\n +published p90 +633 µs", printed(result))


def test_published_rate_stands_below_the_own_rate():
    result = bench(ms=2.0, device="dla0", precision="int8", batch=2)
    assert re.search(r"throughput +500/s.*\n +published throughput +1008/s", printed(result))


def test_page_has_the_same_and_no_address_that_a_browser_loads():
    result = bench(ms=4.2, precision="fp16")
    text = report_page(result, samples)
    assert "Beside published results" in text and "published p50" in text
    assert not re.search(r"https?:", text)


@pytest.mark.parametrize(
    "changes",
    [
        {"board": "NVIDIA H100 80GB HBM3"},
        {"board": None},
        {"model": "detector.onnx"},
        {"device": "cpu"},
    ],
)
def test_bench_without_a_match_shows_none(changes):
    result = bench(**changes)
    assert beside(result.models[0], result) == []
    assert "published" not in printed(result)


def test_simulated_figures_are_not_compared():
    result = bench().model_copy(update={"is_simulated": True})
    assert beside(result.models[0], result) == []

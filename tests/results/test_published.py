"""Published results are what their sources print, and stand beside an own figure."""

import io
import re
from array import array

import pytest

from tegrascope.daemon.measure.report import Environment
from tegrascope.parsers.inference.placement import Built
from tegrascope.workbench.compare.report import beside_published
from tegrascope.workbench.results.bench_page import print_result, report_page
from tegrascope.workbench.results.published import family_of, is_same, nearest, published
from tegrascope.workbench.results.records import BenchResult
from tegrascope.workbench.results.summary import Measured, Round, summarise

from .bench_fakes import SECOND, report, settings
from .pages import Page, check_asks_for_nothing
from .test_bench_report import samples

ORIN = "NVIDIA Jetson AGX Orin Developer Kit"
OWN = {"dla_cores": 1, "precision": "int8", "batch": 1, "board": "AGX Orin", "mode": "MAXN"}


def bench(model="builtin:resnet50", ms=3.0, device="gpu", board=ORIN, **changes):
    asked = settings(model, **changes)
    facts = {
        "environment": Environment(board=board, power_mode="MODE_30W", jetpack="6.0"),
        "built": Built(requested_precision=asked.precision, has_transfers=asked.transfers),
        "batch": asked.batch,
    }
    rounds = [report(device, ms, at).model_copy(update=facts) for at in (0, 36)]
    entry = Measured(
        rounds[0],
        "ok",
        None,
        rounds=[Round(one, array("q", [round(ms * 1e6)] * 9)) for one in rounds],
    )
    return BenchResult(
        tegrascope="0",
        started_wall_ns=0,
        ended_wall_ns=48 * SECOND,
        settings=asked,
        environment=facts["environment"],
        models=(summarise(model, [entry], rounds),),
    )


def printed(result):
    stream = io.StringIO()
    print_result(result, [*beside_published(result)], stream)
    return " ".join(stream.getvalue().split())


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
    for pair in ((one, other), (other, one)):
        assert is_same("board", *pair) is not differs
    assert is_same("board", one, None) is None


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
        assert (row.dla_cores, user.dla_cores) == (2, 1)


def test_power_modes_are_the_same_in_either_spelling():
    for one, other in (("MAX-N", "MAXN"), ("15W 6CORE", "MODE_15W_6CORE"), ("50W", "MODE_50W")):
        assert is_same("mode", one, other)


def test_nearest_has_the_precision_then_the_batch_then_board_and_mode():
    found = nearest("resnet50.onnx", "dla0", **{**OWN, "precision": "fp16"})
    assert found is not None and found.printed == {"ms": "17"}
    own = {**OWN, "batch": 2}
    for cores, number in ((1, "1008"), (2, "2037")):
        found = nearest("resnet50.onnx", "dla1", **{**own, "dla_cores": cores})
        assert found is not None and found.printed == {"fps": number}
    both = {**own, "dla_cores": 2, "mode": "MODE_15W"}
    found = nearest("resnet50.onnx", "dla0", **both)
    assert found is not None and found.printed == {"fps": "1072"}
    for board, number in (("AGX Orin", "633478"), ("Orin NX", "1087793"), ("Xavier NX", "2460693")):
        found = nearest("resnet50.onnx", "gpu", board=board, precision="int8", batch=1)
        assert found is not None and found.printed == {"ns": number}


def test_nothing_is_shown_of_another_model_or_device():
    assert nearest("detector.onnx", "gpu", **OWN) is None
    assert nearest("resnet50.onnx", "cpu", **OWN) is None


def test_table_has_the_published_figure_and_the_line_its_first_suspected_cause():
    text = printed(bench(ms=4.2, precision="fp16"))
    assert re.search(r"latency p50 4\.20 ms.* published p50 3\.00 ms", text)
    line = f"gpu: published 3.00 ms ({ORIN}, fp16, batch 1); yours 4.20 ms"
    assert f"{line}: 40.0 % more; first suspected cause: transfers:" in text
    assert "yours copies inputs and outputs, published leaves them on the device; source: " in text
    assert "resnet50-v2-7, github.com/FengD/dla_test_code/blob/" in text


def test_a_large_difference_without_a_known_cause_says_so():
    text = printed(bench(ms=4.2, precision="fp16", transfers=False))
    assert "40.0 % more; first suspected cause: no known difference; source" in text


def test_a_cause_is_named_for_a_large_difference_in_its_direction_only():
    for ms, words in (
        (3.3, "yours 3.30 ms: 10.0 % more; source"),
        (4.5, "50.0 % more; first suspected cause: batch: batch 4 in yours"),
        (1.5, "50.0 % less; first suspected cause: no known difference"),
    ):
        assert words in printed(bench(ms=ms, precision="fp16", batch=4, transfers=False))


def test_published_percentile_stands_below_the_own_one():
    (found,) = beside_published(result := bench(ms=1.0, precision="int8"))
    assert (found.label, found.figure) == ("latency p90", "633 µs")
    assert "first suspected cause: power_mode" in found.sentence
    assert "latency p90 1.00 ms published p90 633 µs" in printed(result)


def test_published_rate_stands_below_the_own_rate():
    result = bench(ms=2.0, device="dla0", precision="int8", batch=2)
    assert re.search(r"throughput 500/s.* published throughput 1008/s", printed(result))


def test_page_has_the_same_and_no_address_that_a_browser_loads():
    result = bench(ms=4.2, precision="fp16")
    text = report_page(result, samples, [*beside_published(result)])
    assert "Beside published results" in text and "published p50" in text
    check_asks_for_nothing(text, Page(text))


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
    assert [*beside_published(result)] == []
    assert "published" not in printed(result)


def test_simulated_figures_are_not_compared():
    result = bench().model_copy(update={"is_simulated": True})
    assert [*beside_published(result)] == []


def test_an_input_of_another_size_is_not_compared():
    result = bench(precision="fp16")
    (model,) = result.models
    shapes = {"input_shapes": {"image": (1, 640, 480, 3)}}
    rounds = tuple(one.model_copy(update=shapes) for one in model.rounds)
    model = model.model_copy(update={"rounds": rounds})
    text = printed(result.model_copy(update={"models": (model,)}))
    assert "not compared: published: its input is 224x224, and that of yours is 640x480" in text

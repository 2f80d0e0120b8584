"""Published results are what their sources print, and stand beside an own figure."""

import re

import pytest

from tegrascope.daemon.results.published import (
    Conditions,
    differences,
    family_of,
    nearest,
    published,
)

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

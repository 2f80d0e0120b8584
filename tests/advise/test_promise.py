"""What the advice promises of the pipeline, on results whose answer is known by hand."""

import json

import pytest

from tegrascope.parsers.errors import UserError
from tegrascope.workbench.cli import main
from tegrascope.workbench.results.reading import read_promise

from .made import about, lane, model, result, written

IDLE_WATTS = 8.0


def gross(ms, net):
    """Return the gross energy of an inference on a board with this idle power."""
    return {"gross_joules_per_inference": about(net + IDLE_WATTS * ms / 1e3)}


def loads(gpu, dla):
    return {"utilization": {"gpu": about(gpu), "dla0:tegrastats": about(dla)}}


YOLO = model(
    "yolo",
    lane("gpu", 5.0, 0.1, 0.9, **gross(5.0, 0.1)),
    lane("dla0", 12.0, 0.06, **gross(12.0, 0.06), **loads(0.02, 0.98)),
)
SEG = model("seg", lane("gpu", 10.0, 0.24, 0.95, **gross(10.0, 0.24)))


@pytest.fixture
def promise(tmp_path):
    """Advise on results, and return the promise that is written."""

    def run(*found, rates="yolo=30"):
        paths = [written(tmp_path, f"r{number}", one) for number, one in enumerate(found)]
        assert main(["advise", *paths, "--rates", rates, "-o", str(tmp_path / "new/out")]) == 0
        return read_promise(tmp_path / "new/out")

    return run


def test_load_and_energy_are_those_of_the_duty(promise, tmp_path):
    found = promise(result(YOLO))
    [placed] = found.models
    assert (placed.name, placed.device) == ("yolo", "dla0")
    assert placed.source == str(tmp_path / "r0")
    assert found.frames_per_second == 30.0
    duty = 30 * 0.012
    assert found.loads["gpu"].value == pytest.approx(duty * 0.02)
    assert found.loads["dla0:tegrastats"].value == pytest.approx(duty * 0.98)
    joules = found.joules_per_frame
    assert joules.value == pytest.approx(IDLE_WATTS / 30 + 0.06)
    # Both are as uncertain as the power of the work, by 2 % of 13 W.
    half = 0.02 * 13.0 * ((1 - duty) ** 2 + duty**2) ** 0.5
    assert joules.half * 30 == pytest.approx(half)


def test_frame_of_two_models_is_that_of_the_higher_rate(promise):
    found = promise(result(YOLO, SEG), rates="yolo=30,seg=10")
    assert [one.device for one in found.models] == ["dla0", "gpu"]
    assert found.frames_per_second == 30.0
    assert found.loads["gpu"].value == pytest.approx(30 * 0.012 * 0.02 + 10 * 0.01 * 0.95)
    expected = (IDLE_WATTS + 30 * 0.06 + 10 * 0.24) / 30
    assert found.joules_per_frame.value == pytest.approx(expected)


def test_what_was_not_measured_is_not_promised(promise):
    """Without gross energy there is no energy of a frame, without a load of the GPU no load."""
    found = promise(result(model("yolo", lane("dla0", 12.0, 0.06))))
    assert found.joules_per_frame is None
    assert found.loads == {}


def test_core_that_is_taken_as_the_other_one_has_its_load(promise):
    """One model ran on both cores, the other on the first only and is placed on the second."""
    busy = lane("dla0", 25.0, 0.1, **gross(25.0, 0.1), **loads(0.0, 1.0))
    second = lane("dla1", 25.0, 0.1, **gross(25.0, 0.1), utilization={"gpu": about(0.0)})
    small = lane("dla0", 10.0, 0.05, **gross(10.0, 0.05), **loads(0.0, 0.9))
    both = [model("a", busy, second), model("b", small)]
    found = promise(result(*both), rates="a=30,b=30")
    assert {one.device for one in found.models} == {"dla0", "dla1"}
    assert found.models[1].device == "dla1"
    assert found.loads["dla1:tegrastats"].value == pytest.approx(30 * 0.01 * 0.9)


def test_no_placement_is_no_promise(tmp_path, capsys):
    path = written(tmp_path, "r", result(YOLO))
    asked = ["advise", path, "--rates", "yolo=30", "--deadlines", "yolo=1ms"]
    assert main([*asked, "-o", str(tmp_path / "out")]) == 3
    capsys.readouterr()
    with pytest.raises(UserError, match="No such file"):
        read_promise(tmp_path / "out")


@pytest.mark.parametrize("text", ["{", json.dumps({"models": []})])
def test_promise_that_is_not_one_is_refused(text, tmp_path):
    (tmp_path / "promise.json").write_text(text)
    with pytest.raises(UserError, match=r"promise\.json"):
        read_promise(tmp_path)

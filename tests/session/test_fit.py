"""Whether a model fits: the estimate against real workers, and who is told of it."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from tegrascope.collectors.backends.onnxruntime import WORKER_BYTES, OnnxRuntime
from tegrascope.collectors.board.memory import MemoryNeed
from tegrascope.daemon.session.executor import Executor
from tegrascope.parsers.inference.events import Order, Progress
from tests.fakes.models import write_chain
from tests.truth.fits import run_model
from tests.truth.networks import FAMILIES, make_network

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (300, "takes about 300 MiB of memory; 512 MiB are free: 212 MiB remain"),
        (600, "takes about 600 MiB of memory; 512 MiB are free: 88 MiB are missing"),
        (512.5, "takes about 512 MiB of memory; 512 MiB are free: 1 MiB are missing"),
    ],
)
def test_need_is_told_by_how_much_it_fits_or_not(size, words):
    assert MemoryNeed(int(size * MIB)).compare(512 * MIB) == words


def run_twice(tmp_path: Path, free: int) -> list[object]:
    """Run one model twice in one worker; return the events of both."""
    model = tmp_path / "m.onnx"
    batch = make_network((1, 0), model, "dense")[1]
    events: list[object] = []
    with closing(Executor("cpu", free_memory=lambda: free)) as executor:
        for run_id in ("first", "second"):
            finished = executor.run(make_order(model, batch, run_id), 60.0, events.append)
            assert finished.outcome == "ok"
    return events


def test_executor_tells_once_what_remains_before_it_starts_a_worker(tmp_path, caplog):
    events = run_twice(tmp_path, 1 << 40)
    (told,) = (event for event in events if isinstance(event, Progress))
    assert events.index(told) == 0
    assert (told.run_id, told.doing.endswith("MiB remain")) == ("first", True)
    assert caplog.messages == []


def test_missing_memory_is_one_warning_and_no_refusal(tmp_path, caplog):
    events = run_twice(tmp_path, 60 * MIB)
    (warning,) = caplog.messages
    assert warning.startswith("cpu: the worker takes")
    assert warning.endswith("MiB are missing")
    assert not any(isinstance(event, Progress) for event in events)


def make_order(model: Path, batch: int = 1, run_id: str = "r", **changes: object) -> Order:
    asked: dict[str, object] = {"run_id": run_id, "backend": "onnxruntime", "device": "cpu"}
    asked |= {"model": str(model), "model_directory": ".", "batch": batch}
    asked |= {"count": 1, "warm_up_seconds": 0.0}
    return Order.model_validate(asked | changes)


def test_body_with_a_head_has_no_estimate(tmp_path):
    model = write_chain(tmp_path / "m.onnx", "Relu", shape=(1, 4))
    assert OnnxRuntime.memory_need(model, make_order(model, head="h.onnx"), 1 << 40) is None


def test_what_the_worker_will_refuse_is_left_to_it(tmp_path):
    """A model that fixes another batch; a file that is no model; a file that is not there."""
    fixed = write_chain(tmp_path / "m.onnx", "Relu", shape=(1, 4))
    strange = tmp_path / "strange.onnx"
    strange.write_bytes(b"\xff" * 99)
    for model in (fixed, strange, tmp_path / "missing.onnx"):
        events: list[object] = []
        with closing(Executor("cpu")) as executor:
            finished = executor.run(make_order(model, 7), 60.0, events.append)
        assert finished.outcome == "failed"
        assert not any(isinstance(event, Progress) for event in events)


def test_file_of_a_model_that_does_not_fit_by_itself_is_not_read(tmp_path):
    model = write_chain(tmp_path / "m.onnx", "Relu", shape=(1, 4))
    size = model.stat().st_size
    need = OnnxRuntime.memory_need(model, make_order(model), 20 * MIB)
    assert need == MemoryNeed(WORKER_BYTES + size, "at least")


@pytest.mark.parametrize("family", [*FAMILIES])
def test_estimate_is_that_of_a_real_worker(tmp_path, family):
    """Always the same networks: of random ones, one in some hundred is off by a third."""
    model = tmp_path / "m.onnx"
    batch = make_network((8, 0), model, family)[1]
    found = run_model(model, batch)
    assert found["outcome"] == "ok"
    (told,) = found["told"]
    size = int(re.search(r"about (\d+)", told)[1])
    assert size == pytest.approx(found["worker"], rel=0.3)

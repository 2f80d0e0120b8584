"""A session counts the work of a run's model, where the board has a peak to compare it with."""

import hashlib

import pytest

from tegrascope.collectors.backends import work
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.session.session import Session
from tegrascope.parsers.inference.events import Finished, Inferences, Phase
from tegrascope.parsers.inference.placement import Built
from tests.fakes.models import write_classifier

SECOND = 1_000_000_000
RUN = "0190-run"


@pytest.fixture
def model(tmp_path):
    """A file of the batch "n", with three channels of 24 x 24."""
    return write_classifier(tmp_path / "model.onnx")


def report_of(model, **environment):
    trace = RunTrace(
        run_id=RUN,
        workload="w",
        backend="tensorrt",
        device="gpu",
        started_ns=0,
        started_wall_ns=0,
        ended_ns=20 * SECOND,
        model=str(model),
        model_sha256=hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else "ab",
        built=Built(requested_precision="fp16"),
    )
    for edge, at in (("begin", 5), ("end", 15)):
        trace.add(Phase(run_id=RUN, phase="steady", edge=edge, at_ns=at * SECOND))
        if edge == "begin":
            starts = tuple(5 * SECOND + at * SECOND // 50 for at in range(499))
            latencies = (SECOND // 100,) * len(starts)
            trace.add(Inferences(run_id=RUN, start_ns=starts, latency_ns=latencies))
    trace.add(Finished(run_id=RUN, outcome="ok"))
    return Session(environment=Environment(**environment)).pair(trace)


def test_work_is_that_of_the_file(model):
    possible = report_of(model, module="p3701-0005").possible
    assert possible.peak_flops_per_second == pytest.approx(42.5e12)
    assert possible.flops_per_second > 0
    assert possible.flops_per_byte == pytest.approx(
        possible.flops_per_second / possible.bytes_per_second
    )


def test_model_that_cannot_be_read_has_no_work(tmp_path):
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"nonsense")
    assert report_of(broken, module="p3701-0005").possible is None
    assert report_of(tmp_path / "none.onnx", module="p3701-0005").possible is None


def test_nothing_is_read_for_a_board_without_a_peak(model, monkeypatch):
    monkeypatch.setattr(work, "graph_at", lambda *_: pytest.fail("the model was read"))
    assert report_of(model).possible is None
    assert report_of(model, module="p3834-0008").possible is None

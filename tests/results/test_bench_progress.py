"""Progress of a running benchmark."""

import io
import threading
from array import array

import pytest

from tegrascope.collectors.simulator.board import JumpClock
from tegrascope.daemon.measure.report import Energy, Span
from tegrascope.parsers.inference.events import Phase, Progress
from tegrascope.workbench.bench.run import Display, outcome_of, outcome_of_joint
from tegrascope.workbench.results.contention import Joint
from tegrascope.workbench.results.records import JointRound, Placed

from .bench_fakes import report


def phase(name):
    return Phase(run_id="r", phase=name, edge="begin", at_ns=1)


def test_lines_say_which_round_and_how_long():
    stream = io.StringIO()
    lines = Display(stream)
    lines.heard(phase("load"))
    lines.heard(phase("build"))
    lines.heard(Progress(run_id="r", doing="builds the engine, which may take minutes"))
    lines.begin("round 2 of 4 on dla0", 150.0)
    lines.end(outcome_of(report("dla0", 17.0)))
    assert stream.getvalue().splitlines() == [
        "  builds the engine, which may take minutes",
        "round 2 of 4 on dla0; about 2 min 30 s left",
        "  706 inferences, p50 17.0 ms",
    ]


def test_bar_counts_down_as_events_come():
    clock = JumpClock()
    bar = Display(clock=clock)
    bar.begin("round 1 of 4 on gpu", 120.0)
    clock.wait(threading.Event(), 30_000_000_000)
    bar.heard(phase("steady"))
    (task,) = bar.progress.tasks
    assert task.description == "round 1 of 4 on gpu · infers"
    assert (task.completed, task.total) == (30.0, 120.0)
    assert task.fields["left"] == "about 1 min 30 s left"


def together(window=True):
    """Return a round of two models, of 3 and 17 ms, 100 J in ten seconds."""
    on = (Placed(model="a.onnx", device="gpu"), Placed(model="b.onnx", device="dla0"))
    if not window:
        return Joint(JointRound(turn=0, lanes=on))
    span = Span(begin_ns=0, end_ns=10_000_000_000)
    record = JointRound(turn=0, lanes=on, window=span, energy=Energy(gross_joules=100.0))
    latencies = (array("q", [3_000_000] * 3), array("q", [17_000_000] * 3))
    return Joint(record, latencies, (1.0, 1.0), ("throttled",))


def test_lines_name_models_together_and_their_outcome():
    stream = io.StringIO()
    lines = Display(stream)
    lines.begin("turn 1 of 4: a-gpu + b-dla0", 90.0)
    lines.end(outcome_of_joint(together()))
    lines.end(outcome_of_joint(together(window=False)))
    assert stream.getvalue().splitlines() == [
        "turn 1 of 4: a-gpu + b-dla0; about 1 min 30 s left",
        "  p50 3.00 ms + 17.0 ms, 10.00 W, throttled",
        "  they were never in their steady phase at the same time",
    ]


def test_bar_goes_on_with_models_together():
    clock = JumpClock()
    bar = Display(clock=clock)
    bar.begin("round 4 of 4 on gpu", 30.0)
    bar.begin("turn 1 of 4: a-gpu + b-dla0", 600.0)
    clock.wait(threading.Event(), 60_000_000_000)
    bar.heard(phase("baseline_before"))
    (task,) = bar.progress.tasks
    assert task.description == "turn 1 of 4: a-gpu + b-dla0 · idles"
    assert (task.completed, task.total) == (60.0, 600.0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "4000 inferences, p50 3.00 ms"),
        (
            {"quality": ("not_steady", "telemetry_gap", "insufficient_samples")},
            "4000 inferences, p50 3.00 ms, not_steady",
        ),
        ({"outcome": "failed", "reason": "signal 9"}, "failed: signal 9"),
    ],
)
def test_outcome_is_a_few_words(changes, said):
    assert outcome_of(report().model_copy(update=changes)) == said

"""Points of a sweep are choices: batch, and one power mode for all models."""

import pytest

from tegrascope.daemon.measure.report import Energy, Environment, RunReport
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.advise.choices import BenchSource
from tegrascope.workbench.advise.compose import advise_on
from tegrascope.workbench.advise.problem import Demand
from tegrascope.workbench.results.records import ModelResult, Sweep, SweepPoint, Variant

from .made import lane, result


def demand(name, rate=10.0, deadline=None):
    is_given = deadline is not None
    return Demand(name=name, rate_per_second=rate, deadline_seconds=deadline or 1 / rate,
                  is_deadline_given=is_given)  # fmt: skip


def point(ms, joules, outcome="front", **variant):
    """Return a point on the GPU: its latency, and its net energy per input."""
    found = Variant.model_validate(variant)
    speed = {"value": 1e3 * found.batch / ms}
    one = lane("gpu", ms, joules * found.batch, 0.9, throughput_per_second=speed)
    return SweepPoint(variant=found, result=one, outcome=outcome)


def idle(mode, watts):
    """Return a round in a mode whose idle power was measured."""
    return RunReport(
        run_id=mode, workload="net", backend="tensorrt", device="gpu", outcome="ok",
        started_wall_ns=0, started_ns=0, ended_ns=1, energy=Energy(baseline_watts=watts),
        environment=Environment(power_mode=mode),
    )  # fmt: skip


def swept(name, *points, rounds=()):
    sweep = Sweep(goals=("latency", "energy"), points=points)
    return ModelResult(model=f"nets/{name}.onnx", sweep=sweep, rounds=rounds)


def advice_of(*models, demands, **changes):
    return advise_on([BenchSource("a", result(*models))], demands, **changes)


BATCHES = (point(5, 0.10), point(12, 0.06, batch=4), point(6, 0.01, "dominated", batch=2))


def test_batch_is_chosen_where_the_deadline_allows_to_wait_for_it():
    net = swept("net", *BATCHES)
    late = advice_of(net, demands=[demand("net", 10.0, 0.5)])
    assert late.chosen.models[0].variant == "batch 4"
    # Three more inputs come within 0.3 s, and the batch takes 13 ms then.
    assert late.chosen.models[0].latency_seconds == pytest.approx(0.3 + 0.0132)
    soon = advice_of(net, demands=[demand("net", 10.0, 0.3)])
    assert soon.chosen.models[0].variant == ""


def test_batch_that_the_bench_was_asked_for_does_not_wait():
    one = lane("gpu", 12, 0.24, 0.9, throughput_per_second={"value": 4e3 / 12})
    model = ModelResult(model="nets/net.onnx", accelerators=(one,))
    source = BenchSource("a", result(model, settings={"batch": 4}))
    advice = advise_on([source], [demand("net")])
    assert advice.chosen.models[0].latency_seconds == pytest.approx(0.0132)


MODES = (point(5, 0.10, power_mode="30W"), point(9, 0.07, power_mode="15W"))


def test_mode_is_one_for_all_models_and_its_idle_power_counts():
    rounds = (idle("30W", 9.0), idle("15W", 7.0))
    models = [swept("a", *MODES, rounds=rounds), swept("b", *MODES, rounds=rounds)]
    both = [demand("a", 20.0, 0.04), demand("b", 20.0, 0.04)]
    advice = advice_of(*models, demands=both)
    assert advice.power_mode == "15W"
    assert {one.variant for one in advice.chosen.models} == {"mode 15W"}
    assert "power mode 30W: feasible, 9.00 W idle and 4.00 W of work" in advice.notes
    # One model needs the fast mode, so the other one runs in it too.
    advice = advice_of(*models, demands=[demand("a", 20.0, 0.0145), demand("b", 1.0, 0.5)])
    assert advice.power_mode == "30W"
    assert {one.variant for one in advice.chosen.models} == {"mode 30W"}


def test_mode_without_a_result_of_a_model_is_reported():
    models = [swept("a", *MODES, rounds=(idle("30W", 9.0),)), swept("b", MODES[0])]
    advice = advice_of(*models, demands=[demand("a"), demand("b")])
    assert advice.power_mode == "30W"
    assert any(note.startswith("no placement in power mode 15W: b was") for note in advice.notes)
    with pytest.raises(UserError, match="no power mode has a result of every model"):
        advice_of(swept("a", MODES[0]), swept("b", MODES[1]), demands=[demand("a"), demand("b")])

"""Idle power that is not idle: another program works while the run's own model waits."""

import random
from array import array

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Span
from tegrascope.daemon.measure.run_text import run_rows
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import Counted, Finished, Phase

S = 1_000_000_000
RUN = "0190-run"
RULE = find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"])
EDGES = {"baseline_before": (94, 100), "steady": (100, 120), "baseline_after": (120, 126)}


def traced(phases=tuple(EDGES)):
    made = RunTrace(
        run_id=RUN,
        workload="w",
        backend="command",
        device="gpu",
        started_ns=90 * S,
        started_wall_ns=0,
        ended_ns=130 * S,
        unit="token",
    )
    for name in phases:
        for edge, at in zip(("begin", "end"), EDGES[name], strict=True):
            assert made.add(Phase(run_id=RUN, phase=name, edge=edge, at_ns=at * S))
    assert made.add(Counted(run_id=RUN, inferences=1000, units=5000))
    assert made.add(Finished(run_id=RUN, outcome="ok"))
    return made


def telemetry(idle_watts, work_watts, idle_load=None, others=(), seed=1):
    """Return samples of an Orin NX; load of a phase is that of the time before its sample."""
    chance = random.Random(seed)
    times = [93.0 + 0.103 * i for i in range(331)]
    working = [100 <= t < 120 for t in times]
    watts = [work_watts if busy else idle_watts for busy in working]
    columns = {
        "rails.VDD_IN.instant_watts": array("d", (w + chance.gauss(0, 0.1) for w in watts)),
        "rails.VDD_CPU_GPU_CV.instant_watts": array("d", (w / 2 for w in watts)),
        "rails.VDD_SOC.instant_watts": array("d", (w / 4 for w in watts)),
    }
    if idle_load is not None:
        # NVML's load is a mean of up to a second.
        late = [100.0 <= t < 120.9 for t in times]
        columns["gpu.utilization_ratio"] = array(
            "d", (1.0 if b else idle_load(t) for t, b in zip(times, late, strict=True))
        )
    for name in others:
        columns[f"process.gpu_memory_bytes.{name}"] = array("d", [1e9] * len(times))
    stamps = array("q", (round(t * S) for t in times))
    return WindowSlice(stamps, stamps, columns)


def has_net(energy):
    figures = (
        energy.net_joules,
        energy.net_interval,
        energy.net_joules_per_inference,
        energy.net_joules_per_unit,
        energy.net_joules_per_unit_interval,
        energy.baseline_watts,
        *(rail.net_joules for rail in energy.rails.values()),
    )
    assert len({figure is None for figure in figures}) == 1
    return energy.net_joules is not None


@pytest.mark.parametrize("load", [0.0, 0.03])
def test_quiet_gpu_leaves_the_net_energy(load):
    """A little load, as of a desktop, and that of the work in the first second are no reason."""
    report = correlate(traced(), telemetry(6, 12, lambda _: load), rule=RULE)
    assert "baseline_disturbed" not in report.quality
    assert has_net(report.energy)
    assert report.energy.net_reason is None
    assert report.energy.net_interval.low < 20 * 6 < report.energy.net_interval.high


@pytest.mark.parametrize("when", [(0, 200), (0, 100), (120, 200)])
def test_another_program_in_an_idle_phase_leaves_no_net_energy(when):
    """Also in one phase only, and if it draws less than the work."""

    def load(t):
        return 0.5 if when[0] <= t < when[1] else 0.0

    report = correlate(traced(), telemetry(9, 12, load, ["hog.py", "tegrascope"]), rule=RULE)
    assert "baseline_disturbed" in report.quality
    assert not has_net(report.energy)
    reason = report.energy.net_reason
    assert reason == (
        "the GPU was 50% busy in an idle phase, by another program;"
        " processes with GPU memory: hog.py"
    )
    assert report.energy.gross_joules == pytest.approx(240, rel=0.01)
    assert report.energy.gross_joules_per_inference is not None


@pytest.mark.parametrize(
    ("names", "is_seen"),
    [(("tegrascope", "hog.py"), True), (("hog.py",), False), (("tegrascope", "other"), False)],
)
def test_another_program_on_the_gpu_within_the_window_withholds_energy(names, is_seen):
    """It ran between the idle phases only. It is another program where ours is seen beside it."""
    samples = telemetry(6, 12, lambda _: 0.0)
    for name in names:
        loads = (0.4 if 100 <= at / S < 120 else 0.0 for at in samples.times_ns)
        samples.columns[f"process.gpu_load_ratio.{name}"] = array("d", loads)
        samples.columns[f"process.gpu_memory_bytes.{name}"] = array(
            "d", [1e9] * len(samples.times_ns)
        )
    report = correlate(traced(), samples, rule=RULE)
    assert ("overlapped" in report.quality) == is_seen
    assert (report.energy.gross_joules_per_inference is None) == is_seen
    assert "baseline_disturbed" not in report.quality
    rows = {row.label: row.text for row in run_rows(report)}
    if "hog.py" in names:
        # The share of the idle phases and the window together.
        assert rows["others on the GPU"].startswith("hog.py 2")


@pytest.mark.parametrize("phases", [tuple(EDGES), ("baseline_before", "steady")])
def test_net_energy_below_zero_is_withheld_with_its_reason(phases):
    """No load is known; idle power above the power of the work shows the other program."""
    report = correlate(traced(phases), telemetry(16, 12), rule=RULE)
    assert "baseline_disturbed" in report.quality
    assert "baseline_drift" not in report.quality
    assert not has_net(report.energy)
    assert report.energy.net_reason.startswith("idle power (16")
    assert report.energy.gross_interval.low < 240 < report.energy.gross_interval.high


def test_net_energy_that_may_be_zero_is_shown_with_its_interval():
    """A program that hardly works has a net energy about zero, with either sign."""
    signs, held = set(), 0
    for seed in range(40):
        energy = correlate(traced(), telemetry(6, 6, seed=seed), rule=RULE).energy
        if energy.net_joules is not None:
            held += energy.net_interval.low < 0 < energy.net_interval.high
            signs.add(energy.net_joules > 0)
    assert held >= 37
    assert signs == {True, False}


def test_other_run_in_an_idle_phase_is_named_as_the_reason():
    others = {"other": [Span(begin_ns=95 * S, end_ns=96 * S)]}
    report = correlate(traced(), telemetry(6, 12), rule=RULE, others=others)
    assert report.energy.net_reason == "another run worked in an idle phase"
    assert not has_net(report.energy)

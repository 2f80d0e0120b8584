"""Simulated devices of a fleet: each is drawn from its seed, and each trouble can be seen."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tegrascope.daemon.export.metrics import families
from tools.fleet.devices import SimulatedDevice
from tools.fleet.plan import FAULTS, SCORE, plan_device

NUMBERS = {fault: number for number, fault in FAULTS.items()}
S = 1_000_000_000
START_NS = 5 * S


def device(number: int, seed: int = 0) -> SimulatedDevice:
    return SimulatedDevice(plan_device(number, seed, 1.0), begin_ns=START_NS, interval_seconds=1.0)


def lived(one: SimulatedDevice, seconds: float) -> Iterator[dict[tuple[str, ...], float]]:
    """Let a device live; yield its page after each step, by name and the values of its labels."""
    while one.clock.monotonic_ns() < START_NS + seconds * 1e9:
        one.step()
        yield page(one)


def page(one: SimulatedDevice) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(text for label, text in sample.labels.items() if label != "simulated")): (
            sample.value
        )
        for family in families(one.live.snapshot, one.clock.monotonic_ns())
        for sample in family.samples
    }


def live(one: SimulatedDevice, seconds: float) -> dict[tuple[str, ...], float]:
    while one.clock.monotonic_ns() < START_NS + seconds * 1e9:
        one.step()
    return page(one)


def test_device_has_a_past_on_a_machine_that_has_just_booted():
    """Its clock is ahead of CLOCK_MONOTONIC; its wall times lie in the past all the same."""
    past_ns, plan = 150 * S, plan_device(1, 0, 1.0)
    one = SimulatedDevice(plan, begin_ns=0, interval_seconds=1.0, ahead_ns=past_ns)
    booted_wall_ns = time.time_ns() - time.monotonic_ns()
    one.step()
    assert one.clock.wall_ns() == pytest.approx(booted_wall_ns - past_ns, abs=60 * S)


def test_the_same_seed_is_the_same_fleet():
    """Boards, places, loads and figures come of the seed alone; another seed is another fleet."""
    volatile = ("tegrascope_build_info", "tegrascope_sample_timestamp_seconds", "tegra_inference")
    first, again, other = (
        {key: value for key, value in live(one, 30).items() if not key[0].startswith(volatile)}
        for one in (device(1), device(1), device(1, seed=1))
    )
    assert first == again
    assert first != other
    boards = {plan_device(number, 0, 1.0).board for number in range(1, 30)}
    assert boards == {"agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"}


def test_a_run_is_paired_as_by_a_daemon():
    """One without trouble has runs of a known energy, measured over a hundred samples."""
    one = device(1)
    live(one, 160)
    (state,) = [state for state in one.live.snapshot.workloads.values() if state.last_good]
    report = state.last_good
    assert state.settings["batch"] == "1"
    assert report is not None
    assert report.telemetry is not None
    assert report.telemetry.samples >= 100
    assert report.energy is not None
    assert report.energy.gross_joules_per_inference is not None
    assert set(report.quality) >= {"simulated"}
    assert "insufficient_samples" not in report.quality
    assert sum(state.latency.counts) == state.inferences >= report.inferences > 200


def test_every_score_has_every_trouble():
    """A fleet of twenty has one of each, and most devices have none."""
    faults = [plan_device(number, 7, 1.0).fault for number in range(1, SCORE + 1)]
    assert sorted(filter(None, faults)) == sorted(NUMBERS)
    assert faults.count(None) == SCORE - len(NUMBERS)


def test_hot_throttles():
    """A hot one crosses its throttle trip, and that is counted."""
    found = live(device(NUMBERS["hot"]), 160)
    events = [
        value
        for key, value in found.items()
        if key[0] == "tegra_throttle_events_total" and key[1].endswith("_thermal")
    ]
    assert max(events) >= 1


def test_flaky_fails():
    """Every third run of a flaky one fails; the others are good."""
    found = live(device(NUMBERS["flaky"]), 400)
    runs = {key[1:]: n for key, n in found.items() if key[0] == "tegra_inference_runs_total"}
    outcomes = {outcome for (*_, outcome), count in runs.items() if count}
    assert outcomes == {"ok", "failed"}


def test_slow_becomes_slower():
    """The latency of a slow one grows from run to run."""
    plan = plan_device(NUMBERS["slow"], 0, 1.0)
    plan = replace(plan, tasks=plan.tasks[:1], pause_seconds=1.0)
    one = SimulatedDevice(plan, begin_ns=START_NS, interval_seconds=1.0)
    medians = []
    for seconds in (150, 300):
        live(one, seconds)
        (state,) = one.live.snapshot.workloads.values()
        assert state.last_good is not None
        assert state.last_good.latency is not None
        medians.append(state.last_good.latency.p50_seconds)
    assert medians[1] == pytest.approx(1.02 * medians[0], rel=0.005)


def test_bypassed_runs_on_the_gpu():
    """What was meant for the DLA is done by the GPU, as its layers tell."""
    one = device(NUMBERS["bypassed"])
    busy: list[tuple[float, float]] = []
    for found in lived(one, 160):
        active = found.get(("tegra_inference_run_active", "detector-dla0", "dla0"))
        if active:
            gpu = found["tegra_gpu_utilization_ratio",]
            busy.append((gpu, found.get(("tegra_dla_busy_ratio", "0", "tegrastats"), 0.0)))
    assert max(gpu for gpu, _ in busy) > 0.7
    assert max(dla for _, dla in busy) < 0.3
    told, which = page(one), ("tegra_inference_layers", "detector-dla0", "dla0")
    assert told[(*which, "gpu")] > told[(*which, "dla")] > 0


@pytest.mark.parametrize("fault", ["dark", "gone"])
def test_dark_and_gone_come_back(fault):
    """A dark one has no fresh sample for a while, a gone one no page; then all is well again."""
    one = device(NUMBERS[fault])
    troubled = []
    for found in lived(one, 620):
        dark = found.get(("tegrascope_source_up", "simulator")) == 0
        troubled.append(dark or one.is_gone())
    assert 90 <= sum(troubled) <= 125
    assert not troubled[-1]
    assert not any(troubled[2:400])

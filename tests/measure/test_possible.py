"""The share of what a board can do: by hand, and none above all of it without its flag."""

import random
from array import array

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Environment
from tegrascope.daemon.measure.run_text import SHARE_OF_POSSIBLE, run_rows
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import Counted, Finished, Inferences, Phase
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.parsers.onnx.costs import ModelWork
from tegrascope.parsers.peaks import peak_table
from tegrascope.workbench.results.summary import mean_possible

ORIN = Environment(module="p3701-0005", power_mode="MAXN")
PURE = Placement(verdict="pure_dla", loadables=1, dla_layers=("{ForeignNode[a...b]}",))
INT8 = Built(layer_types={"int8": 3, "fp32": 1}, placement=PURE)
SECOND = 1_000_000_000
RATE = 50.0
CLOCKS = {
    "dla.0.frequency_hertz": 0.8e9,
    "emc.frequency_hertz": 1.6e9,
    "gpu.frequency_hertz.0": 0.65e9,
}


def trace_of(*events, seconds=30, **fields):
    """Return a run with a steady phase of so many seconds."""
    made = RunTrace(
        run_id="0190-run",
        workload="w",
        backend="tensorrt",
        device="dla0",
        started_ns=90 * SECOND,
        started_wall_ns=0,
        ended_ns=200 * SECOND,
    )
    for name, value in fields.items():
        setattr(made, name, value)
    begin, end = 100 * SECOND, (100 + seconds) * SECOND
    edges = [("begin", begin), ("end", end)]
    begins, ends = (
        Phase(run_id=made.run_id, phase="steady", edge=edge, at_ns=at_ns) for edge, at_ns in edges
    )
    for event in (begins, *events, ends, Finished(run_id=made.run_id, outcome="ok")):
        assert made.add(event)
    return made


def inferences(seconds=30):
    """Return inferences that follow each other without a gap."""
    count = round(seconds * RATE)
    starts = tuple(100 * SECOND + round(at * SECOND / RATE) for at in range(count))
    length = round(SECOND / RATE) - 1
    return Inferences(run_id="0190-run", start_ns=starts, latency_ns=(length,) * count)


def telemetry(columns):
    times = array("q", (at * SECOND // 10 for at in range(990, 1320)))
    constant = {name: array("d", [value] * len(times)) for name, value in columns.items()}
    return WindowSlice(times, times, constant)


def report_of(work, environment=ORIN, device="dla0", built=INT8, columns=CLOCKS, **fields):
    made = trace_of(inferences(), device=device, built=built, **fields)
    return correlate(made, telemetry(columns), environment=environment, model_work=work)


def test_shares_are_those_at_the_measured_clocks():
    """Half the clock halves the peak: 26.25 TOPS at 1.6 GHz, 204.8 GB/s at 3200 MHz."""
    report = report_of(ModelWork(flops=28_000_000_000, moved_bytes=200_000_000))
    possible = report.possible
    assert possible.peak_flops_per_second == pytest.approx(13.125e12)
    assert possible.peak_bytes_per_second == pytest.approx(102.4e9)
    assert possible.peak_ratio == pytest.approx(28e9 * RATE / 13.125e12)
    assert possible.bandwidth_ratio == pytest.approx(0.2e9 * RATE / 102.4e9)
    assert (possible.bound, possible.flops_per_byte) == ("compute", 140.0)
    [row] = [row for row in run_rows(report) if row.label == SHARE_OF_POSSIBLE]
    assert row.text == (
        "by count: 10.7 % of the int8 peak, 9.8 % of the memory bandwidth, 140 FLOP/B, "
        "bound by compute"
    )


def test_memory_bounds_work_with_few_operations_per_byte():
    possible = report_of(ModelWork(flops=1_000_000_000, moved_bytes=1_000_000_000)).possible
    assert possible.bound == "memory"
    assert possible.bandwidth_ratio == pytest.approx(1e9 * RATE / 102.4e9)


def test_unknown_clocks_count_as_the_highest():
    work = ModelWork(flops=28_000_000_000, moved_bytes=200_000_000)
    possible = report_of(work, columns={}).possible
    assert possible.peak_flops_per_second == pytest.approx(26.25e12)
    assert possible.peak_bytes_per_second == pytest.approx(204.8e9)


def test_mode_that_switches_parts_of_the_gpu_off_has_its_own_peak():
    built = Built(requested_precision="fp16")
    work = ModelWork(flops=1_000_000_000, moved_bytes=1_000_000)
    saver = Environment(module="p3701-0005", power_mode="MODE_30W")
    whole = report_of(work, device="gpu", built=built).possible
    half = report_of(work, saver, device="gpu", built=built).possible
    assert half.peak_flops_per_second == pytest.approx(whole.peak_flops_per_second / 2)


def test_impossible_share_is_flagged_and_not_stated():
    report = report_of(ModelWork(flops=300_000_000_000, moved_bytes=200_000_000))
    assert "above_bound" in report.quality
    assert report.possible.peak_ratio is None
    assert "peak" not in {row.label: row.text for row in run_rows(report)}[SHARE_OF_POSSIBLE]


def test_what_no_source_states_has_no_share():
    work = ModelWork(flops=28_000_000_000, moved_bytes=200_000_000)
    thor = Environment(module="p3834-0008")
    assert report_of(work, thor, device="gpu").possible is None
    assert report_of(work, Environment()).possible is None
    assert report_of(work, device="cpu").possible is None
    assert report_of(work, device="external").possible is None
    assert report_of(work, head="head.onnx").possible is None
    assert report_of(None).possible is None
    # The DLA's operations in fp16 are stated by nobody, the bandwidth of the board is.
    half = report_of(work, built=Built(layer_types={"fp16": 3}, placement=PURE)).possible
    assert half.peak_ratio is half.bound is None
    assert half.bandwidth_ratio is not None


def test_mixed_engine_has_no_share_of_the_dla():
    """A part of its work is the GPU's."""
    mixed = INT8.model_copy(update={"placement": Placement(verdict="mixed")})
    work = ModelWork(flops=28_000_000_000, moved_bytes=200_000_000)
    assert report_of(work, built=mixed).possible.peak_ratio is None


def test_precision_inside_a_dla_is_the_one_that_was_asked_for():
    """The inspector shows only what the whole subgraph writes."""
    work = ModelWork(flops=28_000_000_000, moved_bytes=200_000_000)
    built = Built(layer_types={"fp16": 1}, requested_precision="int8", placement=PURE)
    assert report_of(work, built=built).possible.precision == "int8"
    assert report_of(work, built=built, device="gpu").possible.precision == "fp16"


def test_tokens_are_bounded_by_reading_the_weights():
    """Four answers in flight share each reading of 8 GB: 40 tokens/s are 80 GB/s."""
    counted = Counted(run_id="0190-run", inferences=9, units=1200.0)
    fields = {"unit": "token", "weight_bytes": 8_000_000_000, "device": "gpu"}
    made = trace_of(counted, built=Built(streams=4), **fields)
    report = correlate(made, telemetry({}), environment=ORIN)
    assert report.possible.bandwidth_ratio == pytest.approx(8e9 * 40 / 4 / 204.8e9)
    assert report.possible.bound == "memory"
    [row] = [row for row in run_rows(report) if row.label == SHARE_OF_POSSIBLE]
    assert row.text == "by count: 39.1 % of the memory bandwidth, bound by memory"


def test_rounds_have_the_mean_of_their_shares():
    low = report_of(ModelWork(flops=20_000_000_000, moved_bytes=200_000_000))
    high = report_of(ModelWork(flops=30_000_000_000, moved_bytes=200_000_000))
    mean = mean_possible([low, high])
    assert mean.peak_ratio == pytest.approx(
        (low.possible.peak_ratio + high.possible.peak_ratio) / 2
    )
    above = report_of(ModelWork(flops=300_000_000_000, moved_bytes=200_000_000))
    assert mean_possible([low, above]).peak_ratio is None
    assert mean_possible([low, report_of(None)]) is None


def test_none_of_200_simulated_results_is_above_its_bound_without_the_flag():
    """Half of them do up to twice what the board can."""
    rng = random.Random(39)
    parts = sorted(peak_table().parts)
    flagged = 0
    for _ in range(200):
        seconds = rng.choice((1, 7, 30))
        made = trace_of(
            inferences(seconds),
            seconds=seconds,
            device=rng.choice(("gpu", "dla0")),
            built=Built(requested_precision=rng.choice(("fp32", "fp16", "int8")), placement=PURE),
        )
        work = ModelWork(
            flops=round(10 ** rng.uniform(6, 12.5)), moved_bytes=round(10 ** rng.uniform(4, 10))
        )
        columns = dict.fromkeys(CLOCKS, rng.uniform(0.1e9, 2.1e9))
        environment = Environment(module=rng.choice(parts), power_mode=rng.choice(("MAXN", "15W")))
        report = correlate(made, telemetry(columns), environment=environment, model_work=work)
        possible = report.possible
        if possible is None:
            continue
        per_second = report.inferences / seconds
        shares = []
        for amount, peak in (
            (work.flops, possible.peak_flops_per_second),
            (work.moved_bytes, possible.peak_bytes_per_second),
        ):
            if peak is not None:
                shares.append(amount * per_second / peak)
        is_above = max(shares) > 1.0
        assert ("above_bound" in report.quality) == is_above
        flagged += is_above
        for stated in (possible.peak_ratio, possible.bandwidth_ratio):
            assert stated is None or stated <= 1.0
    assert 40 < flagged < 160

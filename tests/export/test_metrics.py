"""The metric page: what a snapshot says is on it, what it does not say is not."""

import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise

import pytest
from msgspec.structs import asdict
from prometheus_client.parser import text_string_to_metric_families

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.processes.watch import ProcessUse
from tegrascope.daemon.export.metrics import METRICS, Page, families
from tegrascope.daemon.export.snapshot import (
    LATENCY_BOUNDS_SECONDS,
    LiveState,
    Snapshot,
    SourceState,
    WorkloadState,
)
from tegrascope.daemon.measure.latency import distribution
from tegrascope.daemon.measure.report import (
    Distribution,
    Energy,
    Environment,
    RunReport,
    RunTelemetry,
    Temperature,
    Utilization,
)
from tegrascope.daemon.settings.config import Limits
from tegrascope.parsers import signals
from tegrascope.parsers.inference.placement import Built, Placement
from tegrascope.parsers.records import GpuSample, flatten
from tegrascope.parsers.signals import SIGNALS
from tegrascope.parsers.tegrastats import parse_line

S = 1_000_000_000
LINE = (
    "11-21-2025 08:49:48 RAM 13983/62780MB (lfb 424x4MB) SWAP 126/31390MB (cached 0MB) "
    "CPU [90%@2201,off] EMC_FREQ 1%@2133 GR3D_FREQ 14%@[407,0] VIC 36%@115 NVENC off "
    "NVDLA0 42%@1600 NVDLA1 off APE 174 cpu@77.281C cv0@-256C "
    "VDD_GPU_SOC 3150mW/2971mW VDD_CPU_CV 14312mW/12415mW VIN_SYS_5V0 4968mW/5048mW"
)
PLACEMENT = Placement(
    verdict="mixed",
    loadables=2,
    dla_layers=("{ForeignNode[a...b]}", "{ForeignNode[d]}"),
    gpu_layers=("c",),
)
TRACED = {
    "dla.0.busy_seconds": 12.5,
    "dla.0.busy_ratio": 0.25,
    "dla.0.firmware_ratio": 0.75,
    "dla.0.tasks": 900.0,
    "dla.0.process_seconds.detector": 12.5,
    "dla.trace.lost": 3.0,
}
RUN_ID = "01a2096c-f5bf-79ae-8808-0173e565b4ef"
KEY = "3fa9c1d2e0b4" + 52 * "5"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def report(**changes: object) -> RunReport:
    figures = dict.fromkeys(
        (*(f"p{p}_seconds" for p in (50, 90, 95, 99, 999)), "min_seconds", "max_seconds"), 0.017
    )
    fields: dict[str, object] = {
        "run_id": RUN_ID,
        "workload": "resnet50",
        "backend": "onnxruntime",
        "device": "dla0",
        "outcome": "ok",
        "started_wall_ns": 1000 * S,
        "started_ns": 1,
        "ended_ns": 2,
        "latency": Distribution(count=3, mean_seconds=0.017, **figures),
        "stages": {"compute": Distribution(count=3, mean_seconds=0.017, **figures)},
        "throughput_per_second": 58.0,
        "unit": "token",
        "units_per_second": 116.0,
        "deadline": {
            "deadline_seconds": 0.015,
            "misses": 3,
            "worst_lateness_seconds": 0.002,
        },
        "cold_start_seconds": {"load": 1.5},
        "telemetry": RunTelemetry(
            samples=100,
            utilization={
                "gpu": Utilization(mean_ratio=0.01, max_ratio=0.02),
                "emc": Utilization(mean_ratio=0.2, max_ratio=0.3),
                "dla0:tegrastats": Utilization(mean_ratio=0.9, max_ratio=1),
            },
            temperature={"cpu": Temperature(start_celsius=50, max_celsius=60, delta_celsius=1)},
        ),
        "energy": Energy(
            gross_joules=10.0,
            net_joules=-0.5,
            gross_joules_per_inference=0.2,
            net_joules_per_inference=-0.01,
            joules_per_unit=0.05,
        ),
        "quality": ("simulated", "overlapped"),
        "built": Built(placement=PLACEMENT, engine_key=KEY),
    }
    return RunReport.model_validate(fields | changes)


def full_state() -> LiveState:
    """Everything that can be on the page, once."""
    memory = {"used_bytes": 1 << 30, "total_bytes": 8 << 30, "active_ratio": 0.12}
    columns = {f"gpu_memory.{name}": value for name, value in memory.items()}
    columns["fans.gpu.speed_ratio"] = 0.33
    sample = GpuSample(**asdict(parse_line(LINE)), at_ns=1, columns=columns)
    source = SourceState(
        "simulator",
        interval_seconds=1.0,
        latest=Stamped(100 * S, 5000 * S, sample),
        samples=7,
        restarts=1,
        lines_unparsed={"noise": 2},
        tokens_unparsed=3,
        lacks_root=False,
    )
    live = LiveState(
        Snapshot(
            environment=Environment(board="AGX Orin"),
            sources=(source,),
            rail_joules={"VDD_CPU_CV": 12.5},
            rail_seconds={"VDD_CPU_CV": 2.5},
            module_joules=30.0,
            module_seconds=2.5,
            dla_occupancy={0: 0.5},
            values={
                **flatten(sample),
                **TRACED,
                "dla.0.powered_seconds": 12.5,
                "dla.0.powered_ratio": 0.75,
                "cooling.pwm-fan.state_ratio": 0.5,
                "fans.pwmfan.speed_ratio": 0.2,
                "battery.BAT0.charge_ratio": 0.8,
                "ram.available_bytes": 1 << 30,
                "memory.processes_bytes": 3.0 * 2**30,
                "throttle.hw_thermal.events": 2.0,
                "throttle.oc1.is_under_voltage": 1.0,
                "rails.VDD_IN.volts": 5.016,
                "rails.VDD_IN.lowest_volts": 4.936,
                "rails.VDD_IN.amperes": 1.55,
                "rails.VDD_IN.limit_warning_amperes": 4.984,
                "rails.VDD_IN.limit_critical_amperes": 4.984,
                "throttle.hw_thermal.active": 1.0,
                "telemetry.late_seconds": 0.4,
                "gpu.power_watts": 12.5,
                "process.gpu_memory_bytes.detector": 2.0**30,
                "gpu.context_seconds.detector": 1.5,
                "gpu.trace.lost": 3.0,
            },
            processes=(ProcessUse("detector", 4.5, 0.5, 1 << 20, 1, 1000.0),),
            companions_up={"sysfs": True},
            signal_sources={"tegra_gpu_utilization_ratio": "nvml"},
            trips_celsius={("cpu", "passive"): 99.0},
            limits=Limits(power_watts=40, dla_busy_ratio={"dla0": 0.2}),
            store_free_bytes=5 << 30,
            otlp={
                ("metrics", "sent"): 4,
                ("runs", "overflow"): 2,
                ("", "queued"): 1,
                ("", "refused_points"): 3,
            },
        )
    )
    settings = {"model": "resnet50.onnx", "backend": "tensorrt", "precision": "fp16", "batch": "1"}
    settings |= {"memory": "mapped", "unit": "token"}
    live.set_workloads({"resnet50": "dla0"}, {"resnet50": settings}, {"resnet50": 0.015})
    live.run_began("resnet50", RUN_ID, 0.02, 1000.0)
    live.counted("resnet50", RUN_ID, 3, (16_000_000,) * 3, 1001.0)
    live.run_ended(report())
    live.skipped("overlap", 2)
    return live


def page_of(snapshot: Snapshot, now_ns: int = 100 * S, accept: str = "") -> str:
    body, _ = Page(lambda: snapshot, lambda: now_ns).render(accept)
    return body.decode()


def series(snapshot: Snapshot, now_ns: int = 100 * S) -> dict[str, float]:
    """All series of the page by name and labels, written as ``name{a=b,c=d}``."""
    found = {}
    for family in text_string_to_metric_families(page_of(snapshot, now_ns)):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_every_name_of_the_table_is_on_a_full_page():
    """Nothing is in the table that cannot be exported, and the page keeps the table's order."""
    snapshot = full_state().snapshot
    every = {row.column("" if row.label is None else "0"): 1.0 for row in SIGNALS}
    made = families(replace(snapshot, values={**every, **snapshot.values}), 100 * S)
    names = [
        f"{one.name}{'_total' * (one.type == 'counter')}{'_info' * (one.type == 'info')}"
        for one in made
    ]
    assert names == [family.name for family in METRICS]


def test_numbers_of_the_line_stand_under_their_names():
    """The page says what the line said, in base units, and off is not zero load."""
    found = series(full_state().snapshot)
    assert found["tegra_ram_used_bytes{}"] == 13983 * 1048576
    assert found["tegra_cpu_utilization_ratio{core=0}"] == 0.9
    assert found["tegra_cpu_online{core=1}"] == 0
    assert "tegra_cpu_utilization_ratio{core=1}" not in found
    assert found["tegra_gpu_frequency_hertz{gpc=1}"] == 0
    assert found["tegra_dla_active{core=0}"] == 1
    assert found["tegra_dla_active{core=1}"] == 0
    assert found["tegra_dla_busy_ratio{core=0,source=tegrastats}"] == 0.42
    assert not any(name.startswith("tegra_dla_busy_ratio{core=1") for name in found)
    assert found["tegra_engine_active{engine=NVENC}"] == 0
    assert "tegra_temperature_celsius{zone=cv0}" not in found
    assert found["tegra_rail_power_watts{rail=VDD_GPU_SOC}"] == 3.15


def test_trace_of_the_dla_has_series_next_to_those_of_tegrastats():
    """One metric a meaning, labelled with its source; what is stale is taken off with the rest."""
    live = full_state()
    found = series(live.snapshot)
    assert found["tegra_dla_busy_ratio{core=0,source=ftrace}"] == 0.25
    assert found["tegra_dla_busy_ratio{core=0,source=firmware}"] == 0.75
    assert found["tegra_dla_busy_ratio{core=0,source=tegrastats}"] == 0.42
    assert found["tegra_dla_busy_seconds_total{core=0,source=ftrace}"] == 12.5
    assert found["tegra_dla_tasks_total{core=0}"] == 900
    assert found["tegrascope_dla_trace_errors_total{reason=lost}"] == 3
    later = series(live.snapshot, now_ns=200 * S)
    assert not any("ftrace" in name or "dla_tasks" in name for name in later)


def test_time_on_the_gpu_by_process_says_that_no_board_has_confirmed_it():
    found = series(full_state().snapshot)
    assert found["tegra_process_gpu_context_seconds_total{process=detector}"] == 1.5
    assert found["tegrascope_gpu_trace_errors_total{reason=lost}"] == 3
    for row in (signals.PROCESS_GPU_CONTEXT, signals.GPU_TRACE_ERRORS):
        assert "No board has confirmed it." in row.help
        assert row.chart is None


def test_a_gpu_with_memory_of_its_own_has_more():
    """What only NVML tells stands under names of its own, and a board has none of it."""
    found = series(full_state().snapshot)
    assert found["tegra_gpu_memory_used_bytes{}"] == 1 << 30
    assert found["tegra_gpu_memory_active_ratio{}"] == 0.12
    assert found["tegra_fan_speed_ratio{fan=gpu}"] == 0.33
    assert found["tegra_throttle_events_total{kind=hw_thermal}"] == 2
    line = SourceState("tegrastats", latest=Stamped(100 * S, 5000 * S, parse_line(LINE)))
    board = series(Snapshot(sources=(line,), values=flatten(parse_line(LINE))))
    assert "tegra_ram_used_bytes{}" in board
    assert not any(
        name.startswith(("tegra_gpu_memory", "tegra_fan", "tegra_throttle")) for name in board
    )


def test_values_of_companions_have_the_same_names():
    """Files of the kernel fill what the line does not say; powered is a metric of its own."""
    found = series(full_state().snapshot)
    assert found["tegra_dla_powered_ratio{core=0}"] == 0.75
    assert found["tegra_dla_powered_seconds_total{core=0}"] == 12.5
    assert found["tegra_fan_speed_ratio{fan=pwmfan}"] == 0.2
    assert found["tegra_cooling_state_ratio{device=pwm-fan}"] == 0.5
    assert found["tegra_ram_available_bytes{}"] == 1 << 30
    assert found["tegra_temperature_trip_celsius{kind=passive,zone=cpu}"] == 99
    assert found["tegrascope_source_up{source=sysfs}"] == 1
    assert found["tegrascope_store_free_bytes{}"] == 5 << 30
    stale = series(full_state().snapshot, now_ns=106 * S)
    assert "tegrascope_source_up{source=sysfs}" not in stale  # nothing is known of it
    assert not any(name.startswith(("tegra_dla_powered", "tegra_cooling")) for name in stale)


def test_powered_is_no_load_of_the_last_run():
    """The share of time in which a core was powered never stands among those that it was busy."""
    live = full_state()
    told = RunTelemetry(
        samples=100,
        utilization={
            "dla0:powered": Utilization(mean_ratio=1, max_ratio=1),
            "dla0:ftrace": Utilization(mean_ratio=0.25, max_ratio=0.5),
        },
    )
    live.run_ended(report(telemetry=told))
    found = series(live.snapshot)
    busy = {name: value for name, value in found.items() if "last_run_dla_busy_ratio" in name}
    assert busy == {
        "tegra_inference_last_run_dla_busy_ratio"
        "{core=0,device=dla0,source=ftrace,workload=resnet50}": 0.25
    }


def test_runs_are_counted_and_a_negative_net_never_lowers_a_counter():
    """Energy below the baseline is within its uncertainty; a counter must not fall for it."""
    live = full_state()
    found = series(live.snapshot)
    of = "device=dla0,{}workload=resnet50"
    assert found[f"tegra_inference_runs_total{{{of.format('outcome=ok,')}}}"] == 1
    assert found[f"tegra_inferences_total{{{of.format('')}}}"] == 3
    bucket = "tegra_inference_latency_seconds_bucket"
    assert found[f"{bucket}{{{of.format('le=0.02,')}}}"] == 3
    assert found[f"{bucket}{{{of.format('le=0.015,')}}}"] == 0
    gross = f"tegra_inference_energy_joules_total{{{of.format('kind=gross,')}}}"
    net = f"tegra_inference_energy_joules_total{{{of.format('kind=net,')}}}"
    each = f"tegra_inference_last_run_energy_joules_per_inference{{{of.format('kind=net,')}}}"
    assert (found[gross], found[net], found[each]) == (10, 0, -0.01)
    live.run_ended(report(outcome="failed", energy=None))
    again = series(live.snapshot)
    assert (again[gross], again[each]) == (10, -0.01)


def test_units_are_counted_under_the_name_that_the_configuration_has():
    live = full_state()
    of = "device=dla0,{}unit=token,workload=resnet50"
    name, joules = "tegra_inference_units_total", "tegra_inference_last_run_energy_joules_per_unit"
    live.set_workloads({"resnet50": "dla0"}, {"resnet50": {"unit": "token"}})
    assert series(live.snapshot)[f"{name}{{{of.format('')}}}"] == 0
    live.counted("resnet50", "0194", 0, (), 1002.0, units=2.5)
    live.counted("resnet50", "0194", 0, (), 1003.0, units=4)
    energy = Energy(gross_joules=10, joules_per_unit=0.5, net_joules_per_unit=-0.1)
    live.run_ended(report(energy=energy, unit="token", units=6.5, units_per_second=3.25))
    found = series(live.snapshot)
    assert found[f"tegra_inference_last_run_units_per_second{{{of.format('')}}}"] == 3.25
    assert found[f"{name}{{{of.format('')}}}"] == 6.5
    assert found[f"{joules}{{{of.format('kind=gross,')}}}"] == 0.5
    assert found[f"{joules}{{{of.format('kind=net,')}}}"] == -0.1
    live.set_workloads({"resnet50": "dla0"}, {"resnet50": {"unit": "frame"}})
    assert series(live.snapshot)[f"{name}{{{of.format('').replace('token', 'frame')}}}"] == 0
    live.set_workloads({"resnet50": "dla0"})
    assert not [one for one in series(live.snapshot) if one.startswith(name)]


def test_stages_of_the_last_run_have_quantiles():
    """Of a server these are the time to the first token and the time per further one."""
    live = full_state()
    first = distribution([200_000_000, 400_000_000])
    live.run_ended(report(stages={"first_token": first, "output_token": distribution([5_000_000])}))
    found = series(live.snapshot)
    name, of = (
        "tegra_inference_last_run_duration_seconds",
        "device=dla0,quantile={},stage={},workload",
    )
    assert found[f"{name}{{{of.format('0.5', 'first_token')}=resnet50}}"] == 0.3
    assert found[f"{name}{{{of.format('0.99', 'output_token')}=resnet50}}"] == 0.005


def test_misses_of_a_deadline_are_counted_with_the_run_of_the_latest():
    live = full_state()
    of, found = "device=dla0,{}workload=resnet50", series(live.snapshot)
    assert found[f"tegra_inference_deadline_seconds{{{of.format('')}}}"] == 0.015
    assert found[f"tegra_inference_deadline_misses_total{{{of.format('')}}}"] == 3
    worst = "tegra_inference_last_run_deadline_worst_lateness_seconds"
    assert found[f"{worst}{{{of.format('')}}}"] == 0.002
    text = page_of(live.snapshot, accept="application/openmetrics-text")
    (line,) = [one for one in text.splitlines() if one.startswith("tegra_inference_deadline_mis")
               and "_misses_total" in one]  # fmt: skip
    assert f'run_id="{RUN_ID}"}} 0.016 1001' in line
    live.counted("resnet50", "0194", 5, (15_000_000,) * 5, 1002.0)
    live.counted("resnet50", "0194", 9, (14_000_000,) * 2, 1003.0, missed=4)
    again = series(live.snapshot)
    assert again[f"tegra_inference_deadline_misses_total{{{of.format('')}}}"] == 7


def test_workload_without_a_deadline_has_no_series_of_it():
    live = full_state()
    live.set_workloads({"resnet50": "dla0"})
    assert not [name for name in series(live.snapshot) if name.startswith("tegra_inference_dea")]


def test_settings_pair_workloads_of_one_model():
    """What a workload runs is one series of labels; what is not set has no label."""
    name = "tegra_inference_workload_info"
    engine = f"engine_key={KEY[:12]}"
    full = (
        f"backend=tensorrt,batch=1,device=dla0,{engine},"
        "memory=mapped,model=resnet50.onnx,precision=fp16,unit=token"
    )
    live = full_state()
    assert series(live.snapshot)[f"{name}{{{full},workload=resnet50}}"] == 1
    live.run_ended(report(built=Built(placement=PLACEMENT)))  # an engine without a cache
    without = full.replace(f"{engine},", "")
    assert series(live.snapshot)[f"{name}{{{without},workload=resnet50}}"] == 1
    live.set_workloads({"resnet50": "dla0"}, {"resnet50": {"backend": "window", "batch": "1"}})
    found = series(live.snapshot)
    assert found[f"{name}{{backend=window,batch=1,device=dla0,workload=resnet50}}"] == 1
    assert found["tegra_inferences_total{device=dla0,workload=resnet50}"] == 3


def test_layers_are_counted_by_placement():
    """Each place has a number, 0 too; an engine of which nothing is known has none."""
    live = full_state()
    name = "tegra_inference_layers{{device=dla0,placement={},workload=resnet50}}"
    names = [name.format(place) for place in ("dla", "gpu", "reformat")]
    found = series(live.snapshot)
    assert [found[one] for one in names] == [2, 1, 0]
    live.run_ended(report(built=Built(placement=Placement(gpu_layers=("c",)))))
    assert not set(names) & set(series(live.snapshot))
    live.run_ended(report(built=None))
    assert not set(names) & set(series(live.snapshot))


def test_stale_telemetry_has_no_series():
    """A source that fell silent is down; its last values are gone, its counters stay."""
    found = series(full_state().snapshot, now_ns=100 * S + 6 * S)
    assert found["tegrascope_source_up{source=simulator}"] == 0
    assert not any(
        name.startswith(("tegra_ram", "tegra_rail_power", "tegra_dla")) for name in found
    )
    assert found["tegra_module_energy_joules_total{}"] == 30
    assert found["tegra_module_energy_observed_seconds_total{}"] == 2.5
    assert found["tegrascope_sample_timestamp_seconds{source=simulator}"] == 5000


def test_empty_daemon_has_a_page():
    """Before the first sample the daemon's own series are there, and no telemetry is invented."""
    found = series(Snapshot(sources=(SourceState("tegrastats"),)))
    assert found["tegrascope_source_up{source=tegrastats}"] == 0
    assert not any(
        name.startswith(("tegra_ram", "tegra_module", "tegra_inference")) for name in found
    )


def test_simulated_figures_all_say_so():
    """No figure of a simulated board can pass for a real one, wherever it is copied to."""
    snapshot = replace(full_state().snapshot, environment=Environment(simulated=True))
    for family in families(snapshot, 100 * S):
        if family.name.startswith("tegra_"):
            assert {sample.labels["simulated"] for sample in family.samples} == {"true"}


def test_exemplars_lead_to_the_run():
    """OpenMetrics carries the run id with the latency bucket."""
    page = page_of(full_state().snapshot, accept=OPENMETRICS)
    assert page.endswith("# EOF\n")
    (line,) = [line for line in page.splitlines() if '="0.02"' in line and " # " in line]
    assert line.endswith(f'# {{run_id="{RUN_ID}"}} 0.016 1001.0')


def test_page_is_rendered_once_for_each_snapshot():
    """Sixteen scrapers of one sample cost one rendering; a change or a second makes a new one."""
    live, now = full_state(), [100 * S]
    page = Page(lambda: live.snapshot, lambda: now[0])
    first = page.render("")[0]
    assert page.render("")[0] is first
    assert page.render(OPENMETRICS)[0] is not first
    live.skipped("overlap")
    second = page.render("")[0]
    assert second is not first
    now[0] += S
    assert page.render("")[0] is not second


def test_strange_formats_do_not_pile_up():
    """A client that asks for another version each time does not fill the memory."""
    page = Page(lambda: Snapshot(), lambda: 0)
    first = page.render("")[0]
    assert page.render("")[0] is first
    accepted = (f"application/openmetrics-text;version=1.0.{number}" for number in range(50))
    formats = {page.render(accept)[1] for accept in accepted}
    # Older releases of the client library have one format of OpenMetrics.
    assert (page.render("")[0] is first) == (len(formats) < 8)


def test_limits_are_metrics():
    """Configured limits are on the page; without configuration they have no series."""
    found = series(full_state().snapshot)
    assert found["tegrascope_module_power_budget_watts{}"] == 40
    assert found["tegrascope_dla_expected_busy_ratio{core=0}"] == 0.2
    assert not any("budget" in name or "expected" in name for name in series(Snapshot()))


def test_counters_of_a_workload_begin_at_nothing():
    """The first run is an increase; energy is known where the module's total is."""
    state = WorkloadState("resnet50", "dla0")
    of = "device=dla0,{}workload=resnet50"
    energy = f"tegra_inference_energy_joules_total{{{of.format('kind=gross,')}}}"
    found = series(Snapshot(workloads={"resnet50": state}, module_joules=3.0))
    assert found[energy] == 0
    assert found[f"tegra_inference_runs_total{{{of.format('outcome=ok,')}}}"] == 0
    assert energy not in series(Snapshot(workloads={"resnet50": state}))


def test_failures_in_a_row_end_with_a_good_run():
    """A failure and a timeout are two, what was cancelled is none, and a good run ends the row.

    What was skipped is no failure, but no good run either.
    """
    live = full_state()
    of = "device=dla0,{}workload=resnet50"
    assert (
        series(live.snapshot)[f"tegra_inference_runs_total{{{of.format('outcome=failed,')}}}"] == 0
    )
    told = []
    for outcome in ("failed", "cancelled", "timeout", "skipped", "ok", "failed"):
        live.run_ended(report(outcome=outcome))
        told.append(
            tuple(
                series(live.snapshot)[f"tegra_inference_consecutive_{what}{{{of.format('')}}}"]
                for what in ("failures", "unsuccessful_runs")
            )
        )
    assert told == [(1, 1), (1, 1), (2, 2), (2, 3), (0, 0), (1, 1)]


def test_latency_buckets_reach_from_a_tenth_of_a_millisecond_to_ten_seconds():
    """A fast model on a fast GPU is told apart, and so are one, three and seven seconds."""
    bounds = LATENCY_BOUNDS_SECONDS
    assert (bounds[0], bounds[-1]) == (0.0001, 10.0)
    assert all(1.2 <= later / earlier <= 2.01 for earlier, later in pairwise(bounds))


def test_forgotten_workload_is_not_counted():
    """A run that ends after a reload took its workload away leaves no series behind."""
    live = full_state()
    live.set_workloads({})
    live.run_ended(report())
    assert live.snapshot.workloads == {}
    assert "resnet50" not in page_of(live.snapshot)


@pytest.mark.skipif(not shutil.which("promtool"), reason="apt install prometheus")
def test_promtool_has_no_complaint():
    """The full page passes Prometheus' own lint without a word."""
    told = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page_of(full_state().snapshot),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


@pytest.mark.parametrize("lacks", [True, False, None])
def test_missing_root_fields_are_a_metric_of_their_own(lacks):
    """1 or 0 for tegrastats, and no series for a source that knows no root, or is not fresh."""
    line = Stamped(100 * S, 5000 * S, parse_line(LINE))
    snapshot = Snapshot(sources=(SourceState("x", latest=line, lacks_root=lacks),))
    name = "tegrascope_root_fields_missing{source=x}"
    assert series(snapshot).get(name) == (None if lacks is None else float(lacks))
    assert name not in series(snapshot, now_ns=200 * S)

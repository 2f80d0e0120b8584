"""Names, labels and values of the metric page, by rules that are stricter than promtool's."""

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_text

from tegrascope.daemon.export.metrics import METRICS
from tests.export.test_metrics import OPENMETRICS, full_state, page_of
from tests.monitoring.names import COUNTED, LABELS, MOST_VALUES, UNITS, lint


def metric(name: str, kind: str, *series: str, words: str = "What it is.") -> str:
    """Write a family in the text format."""
    return "\n".join((f"# HELP {name} {words}", f"# TYPE {name} {kind}", *series, ""))


GOOD = (
    metric("tegra_info", "gauge", 'tegra_info{board="x",simulated="true"} 1')
    + metric("tegra_rail_power_watts", "gauge", 'tegra_rail_power_watts{rail="VDD_IN"} 4.5')
    + metric("tegra_module_energy_joules_total", "counter", "tegra_module_energy_joules_total 7")
    + metric("tegra_ram_total_bytes", "gauge", "tegra_ram_total_bytes 1024")
    + metric("tegrascope_source_up", "gauge", 'tegrascope_source_up{source="tegrastats"} 0')
    + metric("process_cpu_seconds_total", "counter", "process_cpu_seconds_total 3")
)

FAULTS = {
    "percent": (
        metric("tegra_gpu_utilization_percent", "gauge", "tegra_gpu_utilization_percent 40"),
        "percent is no base unit",
    ),
    "megahertz": (
        metric("tegra_gpu_frequency_megahertz", "gauge", "tegra_gpu_frequency_megahertz 1300"),
        "megahertz is no base unit",
    ),
    "mhz": (
        metric("tegra_gpu_frequency_mhz", "gauge", "tegra_gpu_frequency_mhz 1300"),
        "mhz is no base unit",
    ),
    "milliwatts": (
        metric("tegra_module_power_milliwatts", "gauge", "tegra_module_power_milliwatts 1300"),
        "milliwatts is no base unit",
    ),
    "mw": (
        metric("tegra_module_power_mw", "gauge", "tegra_module_power_mw 1300"),
        "mw is no base unit",
    ),
    "misspelt": (
        metric("tegra_temperature_celcius", "gauge", "tegra_temperature_celcius 40"),
        "celcius is no base unit",
    ),
    "kelvin": (
        metric("tegra_temperature_kelvin", "gauge", "tegra_temperature_kelvin 310"),
        "kelvin is no base unit",
    ),
    "rpm": (metric("tegra_fan_rpm", "gauge", 'tegra_fan_rpm{fan="x"} 1'), "rpm is no base unit"),
    "singular": (metric("tegra_power_watt", "gauge", "tegra_power_watt 4"), "watt is no base unit"),
    "created": (
        metric("tegra_runs_created", "gauge", "tegra_runs_created 4"),
        "created is no base unit",
    ),
    "minutes": (
        metric("tegrascope_uptime_minutes", "gauge", "tegrascope_uptime_minutes 4"),
        "minutes is no base unit",
    ),
    "no unit": (
        metric("tegra_gpu_load", "gauge", "tegra_gpu_load 0.4"),
        "load is neither a unit nor a thing that is counted",
    ),
    "two units": (
        metric("tegra_power_watts_seconds", "gauge", "tegra_power_watts_seconds 4"),
        "has two units, watts and seconds",
    ),
    "counter without total": (
        metric("tegra_rail_energy_joules", "counter", "tegra_rail_energy_joules 4"),
        "is a counter without _total",
    ),
    "total before the unit": (
        metric("tegra_energy_total_joules", "gauge", "tegra_energy_total_joules 4"),
        "total belongs to another type",
    ),
    "total on a gauge": (
        metric("tegra_energy_joules_total", "gauge", "tegra_energy_joules_total 4"),
        "total belongs to another type",
    ),
    "info that is not 1": (
        metric("tegra_info", "gauge", 'tegra_info{board="x"} 2'),
        "an info is 1",
    ),
    "info in the name": (
        metric("tegra_info_bytes", "gauge", "tegra_info_bytes 2"),
        "info belongs to another type",
    ),
    "type in the name": (
        metric("tegra_power_gauge_watts", "gauge", "tegra_power_gauge_watts 2"),
        "gauge is a type",
    ),
    "aggregate in the name": (
        metric("tegra_power_avg_watts", "gauge", "tegra_power_avg_watts 2"),
        "avg belongs",
    ),
    "label in the name": (
        metric("tegra_power_by_rail_watts", "gauge", 'tegra_power_by_rail_watts{rail="a"} 2'),
        "the label rail is in the name",
    ),
    "time without its name": (
        metric("tegra_last_run_seconds_timestamp", "gauge", "tegra_last_run_seconds_timestamp 2"),
        "does not end in _timestamp_seconds",
    ),
    "milliseconds since 1970": (
        metric("tegra_x_timestamp_seconds", "gauge", "tegra_x_timestamp_seconds 1.7e12"),
        "seconds since 1970",
    ),
    "another prefix": (
        metric("jetson_power_watts", "gauge", "jetson_power_watts 2"),
        "is not tegra_… or tegrascope_…",
    ),
    "camel case": (
        metric("tegra_gpuPower_watts", "gauge", "tegra_gpuPower_watts 2"),
        "in lower case",
    ),
    "no help": (
        metric("tegra_power_watts", "gauge", "tegra_power_watts 2", words=""),
        "no sentence of help",
    ),
    "no type": ("# HELP tegra_power_watts Power.\ntegra_power_watts 2\n", "has the type unknown"),
    "unknown label": (
        metric("tegra_power_watts", "gauge", 'tegra_power_watts{statistic="now"} 2'),
        "statistic is no known label",
    ),
    "sisters that do not add up": (
        metric("tegra_power_watts", "gauge", 'tegra_power_watts{kind="max"} 2'),
        "must not be added up",
    ),
    "an id as a label": (
        metric(
            "tegra_power_watts",
            "gauge",
            'tegra_power_watts{part="0193a7c2-7f00-7abc-8def-0123456789ab"} 2',
        ),
        "is an id",
    ),
    "labels without bound": (
        metric(
            "tegra_power_watts",
            "gauge",
            *(f'tegra_power_watts{{part="{n}"}} 2' for n in range(MOST_VALUES + 1)),
        ),
        f"part has {MOST_VALUES + 1} values",
    ),
    "ratio above 1": (
        metric("tegra_gpu_utilization_ratio", "gauge", "tegra_gpu_utilization_ratio 40"),
        "a ratio is from 0 to 1",
    ),
    "ratio below 0": (
        metric("tegra_gpu_utilization_ratio", "gauge", "tegra_gpu_utilization_ratio -0.1"),
        "a ratio is from 0 to 1",
    ),
    "state of 2": (
        metric("tegra_dla_active", "gauge", 'tegra_dla_active{core="0"} 2'),
        "a state is 0 or 1",
    ),
    "counter below 0": (
        metric("tegra_dla_tasks_total", "counter", 'tegra_dla_tasks_total{core="0"} -2'),
        "is below 0",
    ),
    "power below 0": (metric("tegra_x_watts", "gauge", "tegra_x_watts -2"), "is below 0"),
    "a sensor that is off": (
        metric("tegra_temperature_celsius", "gauge", 'tegra_temperature_celsius{zone="cv0"} -256'),
        "which no board survives",
    ),
    "no number": (metric("tegra_x_watts", "gauge", "tegra_x_watts NaN"), "is no number"),
    "a time of its own": (
        metric("tegra_x_watts", "gauge", "tegra_x_watts 3 1700000000000"),
        "has a timestamp of its own",
    ),
    "one series twice": (
        metric("tegra_x_watts", "gauge", "tegra_x_watts 3", "tegra_x_watts 4"),
        "stands there twice",
    ),
    "a family without series": (metric("tegra_x_watts", "gauge"), "has no series"),
    "histogram of nothing": (
        metric(
            "tegra_runs",
            "histogram",
            'tegra_runs_bucket{le="1"} 1',
            'tegra_runs_bucket{le="+Inf"} 1',
            "tegra_runs_count 1",
            "tegra_runs_sum 1",
        ),
        "is a histogram of nothing that has a unit",
    ),
}


def test_a_good_page_has_no_fault():
    """Each rule has its good side; what the client library names itself is not looked at."""
    assert lint(GOOD) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found(fault):
    """A fault that is planted into a good page is told, and nothing else of the page is."""
    text, words = FAULTS[fault]
    name = text.split()[2]
    rest = "".join(
        f"# HELP {part}" for part in GOOD.split("# HELP ")[1:] if not part.startswith(f"{name} ")
    )
    found = lint(rest + text)
    assert any(words in one for one in found), found
    assert {one.partition(":")[0] for one in found} <= {name, name.removesuffix("_total"), "tegra"}


def test_the_page_keeps_its_rules():
    """All that can be exported, in the text format and in OpenMetrics, is named as it should be."""
    snapshot = full_state().snapshot
    assert lint(page_of(snapshot)) == []
    assert lint(page_of(snapshot, accept=OPENMETRICS)) == []


def test_no_rule_is_wider_than_it_has_to_be():
    """Every unit, every thing that is counted and every label that may be is one that there is."""
    names = [row.name.removesuffix("_total").removesuffix("_info") for row in METRICS]
    assert {unit for unit in UNITS if not any(name.endswith(f"_{unit}") for name in names)} == set()
    ends = {name.rpartition("_")[2] for name in names}
    assert COUNTED - ends == set()
    page = read_text(page_of(full_state().snapshot))
    used = {label for family in page for one in family.samples for label in one.labels}
    assert LABELS - used - {"simulated"} == set()


def test_a_living_page_keeps_its_rules(start):
    """The demo, with runs under way, names and bounds everything as it should."""
    daemon = start(DEMO)
    daemon.wait_for(lambda: daemon.metric('tegra_inference_runs_total{device="dla0",outcome="ok"'))
    assert lint(daemon.get("metrics")) == []
    assert lint(daemon.get("metrics", Accept=OPENMETRICS)) == []


DEMO = """
telemetry: {source: simulator, interval: 103ms, simulator: {seed: 1}}
limits: {power_watts: 40, dla_busy_ratio: {dla0: 0.2}}
workloads:
- {name: resnet50-dla0, model: resnet50, backend: simulated, device: dla0,
   warm_up: 100ms, baseline: 100ms, duration: 1s, every: 30s}
- {name: resnet50-gpu, model: resnet50, backend: simulated, device: gpu,
   warm_up: 100ms, baseline: 100ms, duration: 1s, every: 30s, offset: 1s}
"""

"""PromQL that several dashboards share."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml

from tegrascope.collectors.board.boards import rail_rules
from tegrascope.daemon.export.metrics import METRICS
from tegrascope.parsers.signals import EMC_FREQUENCY, GPU_FREQUENCY, GPU_LOAD, TEMPERATURE

from .parts import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW, Band, Query, Step, Variable, Word
from .reasons import NOT_EVERYWHERE

SEL = 'job=~"$job",instance=~"$instance"'
"""Labels of the chosen devices."""

RUN = f'{SEL},workload=~"$workload"'
"""Labels of the chosen workloads on them."""

HERE = "{{workload}}"
"""Legend of values by workload; the device is chosen above."""

KEPT = "${__url_time_range}&${datasource:queryparam}&${job:queryparam}"
"""What a link to another dashboard keeps: time range, data source and job."""

# Of an NVIDIA GPU; these say that it works as it is told to, not that anything is wrong.
NO_TROUBLE = 'kind!~"sw_power_cap|board_limit|reliability"'

# Every source of telemetry has them.
_EVERYWHERE = {row.family for row in (EMC_FREQUENCY, GPU_FREQUENCY, GPU_LOAD, TEMPERATURE)}

_RUN_LABELS = "job, instance, workload, device"
_PAIR = "job, instance, model, batch"


def rate(counter: str, labels: str = SEL) -> str:
    """Return the growth of a counter per second, series by series."""
    return f"rate({counter}{{{labels}}}[$__rate_interval])"


def watts(subject: str, labels: str = SEL) -> str:
    """Return the mean power of the ``module`` or of each ``rail``, without unobserved time."""
    name = f"tegra_{subject}_energy"
    seconds = rate(f"{name}_observed_seconds_total", labels)
    return f"{rate(f'{name}_joules_total', labels)} / ({seconds} > 0)"


@cache
def _rules() -> dict[str, str]:
    path = Path(__file__).parents[2] / "grafana/prometheus/rules/recording.yml"
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return {
        rule["record"]: " ".join(rule["expr"].split()) for one in groups for rule in one["rules"]
    }


def as_recorded(series: str, labels: str = SEL) -> str:
    """Return the expression of a recorded series for some devices, so that both say the same."""
    return re.sub(
        r"\b(tegra_\w+)(\{)?",
        lambda found: f"{found[1]}{{{labels}{',' if found[2] else '}'}",
        _rules()[series],
    )


DLA_BUSY = "instance_core:tegra_dla_busy_ratio:avg5m"
DLA_POWERED = "instance_core:tegra_dla_powered_ratio:avg5m"


def powered(labels: str = SEL) -> str:
    """Return the powered share of each DLA core over five minutes.

    A core that works is powered. The two shares come from samples of different moments, so that the
    measured powered share may be some points below the busy one.
    """
    shares = f"({as_recorded(DLA_POWERED, labels)}) or ({as_recorded(DLA_BUSY, labels)})"
    return f"max without (source) ({shares})"


def telemetry(panel: str, *written: Query, empty: str = NOT_EVERYWHERE) -> tuple[Query, ...]:
    """Return the queries of a panel: of the metrics that name it, and those written by hand.

    Args:
        panel: Its title; metrics name it as their ``chart``.
        written: Queries of what is not a metric as it stands; a metric in one has no other.
        empty: Why metrics that not every source of telemetry has may be absent.
    """
    named = {name for query in written for name in re.findall(r"\w+(?=\{)", query.expr)}
    return (
        *(
            Query(
                rate(row.name) if row.kind == "counter" else f"{row.name}{{{SEL}}}",
                row.legend,
                "" if row.name in _EVERYWHERE else empty,
            )
            for row in METRICS
            if row.chart == panel and row.name not in named
        ),
        *written,
    )


def not_stacked() -> Iterator[str]:
    """Yield the rails that must not be added to others: a total that holds them, or one inside."""
    for rule in rail_rules():
        if len(rule.total) == 1 and rule.excluded:
            yield from rule.total
        elif len(rule.total) > 1:
            yield from rule.excluded


def last_run(figure: str, labels: str = RUN) -> str:
    """Return a figure of each workload's last good run."""
    return f"tegra_inference_last_run_{figure}{{{labels}}}"


def by_workload(expr: str, how: str = "max") -> str:
    """Return an expression with the labels instance, workload and device alone."""
    return f"{how} by (instance, workload, device) ({expr})"


def at_best(figure: str, device: str, labels: str = "", how: str = "min") -> str:
    """Return a figure of the best workload of each model on one kind of device.

    Args:
        figure: Of the last good run.
        device: Pattern of the device.
        labels: Further labels of the figure.
        how: Which is the best.

    Returns:
        A query with the labels job, instance, model and batch.
    """
    found = last_run(figure, f'{SEL},device=~"{device}"{labels}')
    return of_model(found, how)


def of_model(expr: str, how: str) -> str:
    """Return an expression by model and batch instead of by workload; it must have run labels."""
    what = f'tegra_inference_workload_info{{{SEL},model!="",model=~"$model"}}'
    return f"{how} by ({_PAIR}) ({expr} * on ({_RUN_LABELS}) group_left (model, batch) {what})"


def dla_by_gpu(figure: str, labels: str = "") -> str:
    """Return a figure on the DLA over that on the GPU, each at its best, by model and batch."""
    return f"{at_best(figure, 'dla.*', labels)} / {at_best(figure, 'gpu', labels)}"


JOB = Variable("job", "Job", "label_values(tegra_info, job)")
DEVICE = Variable(
    "instance", "Device", 'label_values(tegra_info{job=~"$job"}, instance)', is_many=False
)
WORKLOADS = Variable(
    "workload", "Workload", f"label_values(tegra_inference_run_active{{{SEL}}}, workload)"
)
MODELS = Variable(
    "model",
    "Model",
    f'label_values(tegra_inference_workload_info{{{SEL},model!=""}}, model)',
)

_TITLE, _TEXT = "{{workload}}", "{{workload}} on {{device}} of {{instance}}"


def run_bands(labels: str) -> tuple[Band, ...]:
    """Return the bands of runs, one switch and colour for each kind of device."""
    return tuple(
        Band(
            name,
            by_workload(f'tegra_inference_run_active{{{labels},device=~"{device}"}}') + " > 0",
            color,
            _TITLE,
            _TEXT,
            ("workload", "device"),
            empty,
        )
        for name, device, color, empty in (
            ("Runs on the DLA", "dla.*", GREEN, ""),
            ("Runs on the GPU", "gpu", BLUE, ""),
            ("Runs elsewhere", "cpu|external", GREY, "few systems have workloads on the CPU only"),
        )
    )


# Throttling without pause has no new event, and a short one may fall between two scrapes.
THROTTLED = Band(
    "Throttling",
    "sum by (instance, kind) "
    f"(increase(tegra_throttle_events_total{{{SEL},{NO_TROUBLE}}}[1m])) > 0"
    f" or max by (instance, kind) (tegra_throttle_active{{{SEL},{NO_TROUBLE}}}) > 0",
    RED,
    "throttled: {{kind}}",
    "clocks of {{instance}} were lowered: {{kind}}",
    ("kind",),
)

TRUTH = (Word(0, "this machine", GREEN), Word(1, "SIMULATED", ORANGE))
TRUTH_QUERY = Query(
    f'max by (instance) (tegra_info{{{SEL},simulated="true"}})'
    f' or 0 * max by (instance) (tegra_info{{{SEL},simulated="false"}})',
    "{{instance}}",
)
TRUTH_TEXT = (
    "Source of the telemetry. SIMULATED: it comes from a simulator or a replayed log. Then power, "
    "load and temperature are artificial or from another day."
)


def headroom(labels: str = SEL) -> str:
    """Return the degrees from the hottest zone to the trip at which the board shuts down."""
    return (
        "min by (job, instance) ("
        f'tegra_temperature_trip_celsius{{{labels},kind="critical"}}'
        " - on (job, instance, zone) group_left () "
        f"tegra_temperature_celsius{{{labels}}})"
    )


def age(labels: str = SEL) -> str:
    """Return the age of the newest sample at the scrape, so without the scrape interval."""
    found = f"tegrascope_sample_timestamp_seconds{{{labels}}}"
    return f"max by (job, instance) (timestamp({found}) - {found})"


# One colour per part of the board, on each panel that shows it beside others; later ones win.
PART_COLORS = (
    ("/^GPU|VDD.*GPU/", YELLOW),
    ("/^GPU 1/", "dark-yellow"),
    ("/^CPU|VDD.*CPU/", BLUE),
    ("/^EMC|VDD[QR]/", PURPLE),
    ("/VIN_SYS|SYS5V/", ORANGE),
    ("/^DLA 0/", GREEN),
    ("/^DLA 1/", "dark-green"),
)
DLA_COLORS = (
    ("/0 busy/", GREEN),
    ("/1 busy/", "dark-green"),
    ("/0 powered/", ORANGE),
    ("/1 powered/", "#8a4b08"),
    ("/0 tegrascope runs/", "#ff9ad5"),
    ("/1 tegrascope runs/", "#b0468a"),
    ("/0 switched on/", GREY),
    ("/1 switched on/", "#8e8e8e"),
)

FRESH = (Step(None, GREEN), Step(5, ORANGE), Step(30, RED))
NEAR_SHUTDOWN = 8
"""Degrees, as on the status page."""
HOT = (Step(None, RED), Step(NEAR_SHUTDOWN, ORANGE), Step(20, GREEN))
"""Degrees left before a trip, with the colours of the status page."""
BELOW_SHUTDOWN = "suffix:°C below shutdown"
"""Unit of a margin: as plain degrees it would be read as a temperature."""
OF_MEDIAN = "suffix:× median"
TIMES = "suffix:×"
SIMULATED = "suffix: SIMULATED"

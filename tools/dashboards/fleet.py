"""Fleet: many devices, and those that are down, hot, throttled or slow."""

from .fleet_duty import DUTY
from .parts import GREEN, ORANGE, RED, Column, Dashboard, Panel, Query, Row, Step, Word
from .queries import DEVICES, FRESH, HEADROOM, HOT, JOB, NO_TROUBLE, SEL, last_run
from .reasons import NO_DLA, NO_SYSFS, NO_THROTTLING

# A device that was never reached has no tegra_info, so targets are counted by job only.
_TARGETS = 'job=~"$job"'
_TO_DEVICE = "/d/tegrascope-device?var-instance=${__value.raw}"
_POWERED = f"max by (instance) (rate(tegra_dla_powered_seconds_total{{{SEL}}}[5m]))"
_BUSY = (
    "max by (instance) (avg_over_time("
    f'tegra_dla_busy_ratio{{{SEL},source=~"ftrace|tegrastats"}}[5m]))'
)


def _against_fleet(figure: str, labels: str) -> str:
    """Return a figure of each device over the median of all with the same workload and device."""
    found = last_run(figure, f"{SEL},{labels}")
    middle = f"quantile by (workload, device) (0.5, {found})"
    return f"topk(20, {found} / on (workload, device) group_left () {middle})"


STATE = Row(
    "State",
    (
        Panel(
            "stat",
            "Devices up",
            "Targets that answered the last scrape.",
            (Query(f"count(up{{{_TARGETS}}} == 1) or vector(0)", "up"),),
            width=6,
            height=4,
        ),
        Panel(
            "stat",
            "Devices down",
            "Targets that did not answer the last scrape.",
            (Query(f"count(up{{{_TARGETS}}} == 0) or vector(0)", "down"),),
            width=6,
            height=4,
            steps=(Step(None, GREEN), Step(1, RED)),
        ),
        Panel(
            "stat",
            "Sources lost",
            "Telemetry sources without new samples, on devices that answer.",
            (Query(f"count(tegrascope_source_up{{{SEL}}} == 0) or vector(0)", "lost"),),
            width=6,
            height=4,
            steps=(Step(None, GREEN), Step(1, RED)),
        ),
        Panel(
            "stat",
            "Alerts firing",
            "Alerts of the rules of tegrascope. The list is below.",
            (
                Query(
                    'count(ALERTS{alertname=~"Tegra.*",alertstate="firing"}) or vector(0)', "firing"
                ),
            ),
            width=6,
            height=4,
            steps=(Step(None, GREEN), Step(1, RED)),
        ),
        Panel(
            "table",
            "Devices",
            "Margin: degrees between the hottest zone and its shutdown. DLA busy is a load, if "
            "the board reports one. Powered is its upper limit. A click opens the device.",
            (
                Query(f"max by (instance, board, power_mode) (tegra_info{{{SEL}}})"),
                Query(f"min by (instance) (tegrascope_source_up{{{SEL}}})"),
                Query(
                    "sum by (instance) "
                    f"(rate(tegra_module_energy_joules_total{{{SEL}}}[$__rate_interval]))"
                ),
                Query(
                    f"avg by (instance) (avg_over_time(tegra_gpu_utilization_ratio{{{SEL}}}[5m]))"
                ),
                Query(_BUSY, empty=NO_DLA),
                Query(_POWERED, empty=NO_SYSFS),
                Query(HEADROOM, empty=NO_SYSFS),
            ),
            width=24,
            height=10,
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("board", "Board"),
                Column("B", "Telemetry", words=(Word(0, "lost", RED), Word(1, "up", GREEN))),
                Column("C", "Power", "watt"),
                Column("D", "GPU", "percentunit"),
                Column("E", "DLA busy", "percentunit"),
                Column("F", "DLA powered", "percentunit"),
                Column("G", "Margin", "celsius", steps=HOT),
            ),
        ),
        Panel(
            "table",
            "Alerts",
            "Firing alerts, and pending ones: the condition is true, but not long enough yet.",
            (
                Query(
                    "max by (alertname, severity, instance, alertstate) "
                    '(ALERTS{alertname=~"Tegra.*"})',
                    empty="everything is in order",
                ),
            ),
            columns=(
                Column("alertname", "Alert"),
                Column("severity", "Severity"),
                Column("alertstate", "State"),
                Column("instance", "Device"),
            ),
        ),
        Panel(
            "bars",
            "Age of the newest sample",
            "Per device, for the oldest source.",
            (
                Query(
                    f"time() - min by (instance) (tegrascope_sample_timestamp_seconds{{{SEL}}})",
                    "{{instance}}",
                ),
            ),
            unit="s",
            steps=FRESH,
            low=0,
        ),
    ),
)

OUTLIERS = Row(
    "Differences from the fleet",
    (
        Panel(
            "bars",
            "Latency against the fleet",
            "Median latency of each device's last good run, relative to the median device with "
            "the same workload and accelerator. The 20 highest.",
            (
                Query(
                    _against_fleet("latency_seconds", 'quantile="0.5"'),
                    "{{instance}}: {{workload}} on {{device}}",
                ),
            ),
            unit="percentunit",
            steps=(Step(None, GREEN), Step(1.1, ORANGE), Step(1.5, RED)),
            low=0,
        ),
        Panel(
            "bars",
            "Energy per inference against the fleet",
            "Gross energy of each device's last good run, relative to the median device with "
            "the same workload and accelerator. The 20 highest.",
            (
                Query(
                    _against_fleet("energy_joules_per_inference", 'kind="gross"'),
                    "{{instance}}: {{workload}} on {{device}}",
                ),
            ),
            unit="percentunit",
            steps=(Step(None, GREEN), Step(1.1, ORANGE), Step(1.5, RED)),
            low=0,
        ),
        Panel(
            "timeseries",
            "Failed runs",
            "Runs that failed or timed out in the last hour, by device and workload.",
            (
                Query(
                    "sum by (instance, workload, outcome) (increase("
                    f'tegra_inference_runs_total{{{SEL},outcome=~"failed|timeout"}}[1h])) > 0',
                    "{{instance}}: {{workload}} {{outcome}}",
                    "no run failed",
                ),
            ),
            is_stacked=True,
            low=0,
        ),
        Panel(
            "timeseries",
            "Throttling",
            "Throttle events in the last hour, by device, without normal power caps.",
            (
                Query(
                    "sum by (instance) "
                    f"(increase(tegra_throttle_events_total{{{SEL},{NO_TROUBLE}}}[1h]))",
                    "{{instance}}",
                    NO_THROTTLING,
                ),
            ),
            low=0,
        ),
        Panel(
            "table",
            "Quality flags of the last good runs",
            "Number of workloads with each quality flag, by device.",
            (
                Query(
                    f"count by (instance, flag) (tegra_inference_quality_flag{{{SEL}}})",
                ),
            ),
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("flag", "Flag"),
                Column("A", "Workloads"),
            ),
        ),
        Panel(
            "table",
            "Versions",
            "Versions of tegrascope, its Python and the board's release.",
            (
                Query(f"max by (instance, version, python) (tegrascope_build_info{{{SEL}}})"),
                Query(f"max by (instance, l4t, power_mode, simulated) (tegra_info{{{SEL}}})"),
            ),
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("version", "tegrascope"),
                Column("l4t", "L4T"),
                Column("power_mode", "Power mode"),
                Column("simulated", "Simulated"),
            ),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-fleet",
    title="tegrascope: fleet",
    description="Many devices: which is down, hot, throttled, slow, or has an idle DLA.",
    variables=(JOB, DEVICES),
    bands=(),
    rows=(STATE, OUTLIERS, DUTY),
    since="now-6h",
)

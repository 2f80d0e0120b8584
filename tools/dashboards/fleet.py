"""Fleet: many devices, and those that are down, hot, throttled or slow."""

from .fleet_duty import ALERTS, CHOICES, DUTY, FLEET, of_board
from .parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    YELLOW,
    Column,
    Dashboard,
    Panel,
    Query,
    Row,
    Step,
    Word,
)
from .queries import (
    DLA_BUSY,
    FRESH,
    HOT,
    KEPT,
    NEAR_SHUTDOWN,
    NO_TROUBLE,
    OF_MEDIAN,
    SIMULATED,
    TRUTH_TEXT,
    age,
    as_recorded,
    headroom,
    last_run,
    powered,
    watts,
)
from .reasons import NO_DLA, NO_SYSFS, NO_THROTTLING

_TO_DEVICE = f"/d/tegrascope-device?var-instance=${{__value.raw}}&{KEPT}"
_IN_FLEET = (Step(None, GREEN), Step(1.1, ORANGE), Step(1.5, RED))


def _by_device(expr: str, how: str = "max") -> str:
    return f"{how} by (instance) ({of_board(expr)})"


def _against_fleet(figure: str, labels: str) -> str:
    """Return a figure of each device over the median of all with the same workload and device."""
    found = last_run(figure, f"{FLEET},{labels}")
    middle = f"quantile by (workload, device) (0.5, {of_board(found)})"
    return f"topk(20, {of_board(found)} / on (workload, device) group_left () {middle})"


# The worst trouble of each device. The sets differ in their labels, so none hides another one.
_TROUBLE = " or ".join(
    (
        f"6 * (up{{{FLEET}}} == bool 0)",
        f"5 * (tegrascope_source_up{{{FLEET}}} == bool 0)"
        f" and on (job, instance, source) tegrascope_samples_total{{{FLEET}}}",
        f'4 * ALERTS{{{ALERTS},alertstate="firing",severity="critical"}}',
        f'3 * ALERTS{{{ALERTS},alertstate="firing",severity="warning"}}',
        f'2 * ALERTS{{{ALERTS},alertstate="firing",severity="info"}}',
        f'ALERTS{{{ALERTS},alertstate="pending"}}',
        f"({headroom(FLEET)}) < bool {NEAR_SHUTDOWN}",
    )
)
_TROUBLES = (
    Word(0, "in order", GREEN),
    Word(1, "watch", YELLOW),
    Word(2, "note", BLUE),
    Word(3, "warning", ORANGE),
    Word(4, "critical", RED),
    Word(5, "no telemetry", RED),
    Word(6, "down", RED),
)
_RANK = " or ".join(
    (
        f'4 * ALERTS{{{ALERTS},alertstate="firing",severity="critical"}}',
        f'3 * ALERTS{{{ALERTS},alertstate="firing",severity="warning"}}',
        f'2 * ALERTS{{{ALERTS},alertstate="firing",severity="info"}}',
        f'ALERTS{{{ALERTS},alertstate="pending"}}',
    )
)
_RANKS = (
    Word(4, "critical", RED),
    Word(3, "warning", ORANGE),
    Word(2, "note", BLUE),
    Word(1, "pending", GREY),
)
_NONE_IS_GOOD = (Step(0, GREEN), Step(1, RED))

# A device that is down now is still a simulated one.
_SIMULATED = f'max by (job, instance) (last_over_time(tegra_info{{{FLEET},simulated="true"}}[1h]))'


def _count(title: str, words: str, expr: str, steps: tuple[Step, ...] = _NONE_IS_GOOD) -> Panel:
    query = Query(f"count({of_board(expr)}) or vector(0)", "devices")
    return Panel("stat", title, words, (query,), width=6, height=4, steps=steps)


STATE = Row(
    "State",
    (
        Panel(
            "stat",
            "Telemetry source",
            f"{TRUTH_TEXT} The number is that of such devices.",
            (Query(f"count({of_board(_SIMULATED)}) or vector(0)", "devices"),),
            unit=SIMULATED,
            width=24,
            height=3,
            steps=(Step(0, GREEN), Step(1, ORANGE)),
            words=(Word(0, "real boards", GREEN),),
        ),
        _count("Devices up", "Targets that answered the last scrape.", f"up{{{FLEET}}} == 1", ()),
        _count(
            "Devices down", "Targets that did not answer the last scrape.", f"up{{{FLEET}}} == 0"
        ),
        _count(
            "Sources lost",
            "Telemetry sources without new samples, on devices that answer.",
            f"tegrascope_source_up{{{FLEET}}} == 0",
        ),
        _count(
            "Alerts firing",
            "Lines of the list below that are not pending: an alert counts once per device.",
            f'max by (job, instance, alertname) (ALERTS{{{ALERTS},alertstate="firing"}})',
        ),
        Panel(
            "table",
            "Devices",
            "The device with the worst trouble is first. Watch: an alert is pending, or the margin "
            f"to shutdown is below {NEAR_SHUTDOWN} °C. Below shutdown: degrees from the hottest "
            "zone to its shutdown. DLA busy is the load of the busiest core over five minutes, as "
            "the recorded rule has it. A core that works is powered: where its sampled powered "
            "share is less than the busy one, that one is shown. A click opens the device.",
            (
                Query(f"max by (instance, board) ({of_board(f'tegra_info{{{FLEET}}}')})"),
                Query(_by_device(_TROUBLE)),
                Query(_by_device(watts("module", FLEET), "sum")),
                Query(
                    _by_device(f"avg_over_time(tegra_gpu_utilization_ratio{{{FLEET}}}[5m])", "avg")
                ),
                Query(_by_device(as_recorded(DLA_BUSY, FLEET)), empty=NO_DLA),
                Query(_by_device(powered(FLEET)), empty=NO_DLA),
                Query(_by_device(headroom(FLEET), "min"), empty=NO_SYSFS),
            ),
            width=24,
            height=10,
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("B", "State", words=_TROUBLES),
                Column("board", "Board"),
                Column("G", "Below shutdown", "celsius", steps=HOT),
                Column("C", "Power", "watt"),
                Column("D", "GPU", "percentunit"),
                Column("E", "DLA busy", "percentunit"),
                Column("F", "DLA powered", "percentunit"),
            ),
            sort=("-State", "Below shutdown"),
        ),
        Panel(
            "table",
            "Alerts",
            "Firing alerts by severity, then pending ones: the condition is true, but not long "
            "enough yet.",
            (
                Query(
                    f"max by (alertname, instance) ({of_board(_RANK)})",
                    empty="everything is in order",
                ),
            ),
            columns=(
                Column("A", "State", words=_RANKS),
                Column("alertname", "Alert"),
                Column("instance", "Device", link=_TO_DEVICE),
            ),
            sort=("-State", "Alert"),
        ),
        Panel(
            "bars",
            "Age of the newest sample",
            "At the scrape, for the oldest source of each device. The 20 oldest.",
            (Query(f"topk(20, {of_board(age(FLEET))})", "{{instance}}"),),
            unit="s",
            steps=FRESH,
            low=0,
        ),
    ),
)


def _worst(
    title: str, words: str, expr: str, legend: str, empty: str, unit: str = "short"
) -> Panel:
    query = Query(f"topk(20, {of_board(expr)} > 0)", legend, empty)
    steps = (Step(None, ORANGE),)
    return Panel("bars", title, words, (query,), unit=unit, width=8, steps=steps, low=0)


def _rounded(increase: str) -> str:
    # An increase is extrapolated to the ends of its range: one failed run would be 1.03.
    return f"round({increase})"


OUTLIERS = Row(
    "Differences from the fleet",
    (
        *(
            Panel(
                "bars",
                f"{title} against the fleet",
                f"{words} of each device's last good run, relative to the median device with the "
                "same workload and accelerator. The 20 highest.",
                (Query(_against_fleet(figure, labels), "{{instance}}: {{workload}}"),),
                unit=OF_MEDIAN,
                steps=_IN_FLEET,
                low=0,
            )
            for title, words, figure, labels in (
                ("Latency", "Median latency", "latency_seconds", 'quantile="0.5"'),
                (
                    "Gross energy per inference",
                    "Gross energy (whole module)",
                    "energy_joules_per_inference",
                    'kind="gross"',
                ),
            )
        ),
        _worst(
            "Failed runs in the last hour",
            "Runs that failed or timed out in the last hour. The 20 workloads with the most.",
            _rounded(
                "sum by (job, instance, workload) (increase("
                f'tegra_inference_runs_total{{{FLEET},outcome=~"failed|timeout"}}[1h]))'
            ),
            "{{instance}}: {{workload}}",
            "no run failed",
        ),
        _worst(
            "Throttled time in the last hour",
            "Share of the last hour in which a clock was held low at the scrapes, without normal "
            "power caps. The 20 devices with the most.",
            "max by (job, instance) "
            f"(avg_over_time(tegra_throttle_active{{{FLEET},{NO_TROUBLE}}}[1h]))",
            "{{instance}}",
            NO_THROTTLING,
            unit="percentunit",
        ),
        _worst(
            "Throttle events in the last hour",
            "Begins of throttling in the last hour, without normal power caps. Throttling without "
            "pause begins once: see the throttled time. The 20 devices with the most.",
            _rounded(
                "sum by (job, instance) "
                f"(increase(tegra_throttle_events_total{{{FLEET},{NO_TROUBLE}}}[1h]))"
            ),
            "{{instance}}",
            NO_THROTTLING,
        ),
        Panel(
            "table",
            "Quality flags of the last good runs",
            "Number of workloads with each quality flag, by device. The flag of simulated "
            "figures is left out: the table of versions shows it.",
            (
                Query(
                    "count by (instance, flag) ("
                    + of_board(f'tegra_inference_quality_flag{{{FLEET},flag!="simulated"}}')
                    + ")",
                    empty="no run has a flag",
                ),
            ),
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("flag", "Flag"),
                Column("A", "Workloads"),
            ),
            sort=("-Workloads", "Device"),
        ),
        Panel(
            "table",
            "Versions",
            "Versions of tegrascope, its Python and the board's release.",
            (
                Query(
                    f"max by (instance, version) ({of_board(f'tegrascope_build_info{{{FLEET}}}')})"
                ),
                Query(
                    "max by (instance, l4t, power_mode, simulated) "
                    f"({of_board(f'tegra_info{{{FLEET}}}')})"
                ),
            ),
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("version", "tegrascope"),
                Column("l4t", "L4T"),
                Column("power_mode", "Power mode"),
                Column("simulated", "Simulated"),
            ),
            sort=("tegrascope", "L4T"),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-fleet",
    title="tegrascope: fleet",
    description="Many devices: which is down, hot, throttled, slow, or has an idle DLA.",
    variables=CHOICES,
    bands=(),
    rows=(STATE, OUTLIERS, DUTY),
    since="now-6h",
)

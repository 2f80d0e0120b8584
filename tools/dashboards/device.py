"""Device: what one board does now and did of late, with its runs as bands."""

from .device_inside import CLOCKS, DAEMON
from .parts import GREEN, ORANGE, Dashboard, Panel, Query, Row, Word
from .queries import (
    DEVICE,
    FRESH,
    HEADROOM,
    HOT,
    JOB,
    SEL,
    THROTTLED,
    TRUTH,
    TRUTH_QUERY,
    TRUTH_TEXT,
    not_stacked,
    rate,
    run_bands,
    telemetry,
)
from .reasons import NO_JETSON, NO_LIMIT, NO_RUN, NO_SYSFS, NO_THROTTLING

# Rails that hold others, or are inside one, are lines above the stack: nothing counts twice.
_APART = "|".join(dict.fromkeys(not_stacked()))

AT_A_GLANCE = Row(
    "At a glance",
    (
        Panel(
            "stat",
            "Board",
            "Board, release and power mode, as the daemon knows them. Figures of two power modes "
            "are not comparable.",
            (
                Query(
                    f"tegra_info{{{SEL}}}",
                    "{{board}} {{module}} {{l4t}} {{jetpack}} {{power_mode}}",
                ),
            ),
            width=12,
            height=4,
            shows_name=True,
        ),
        Panel(
            "stat",
            "Telemetry is of",
            TRUTH_TEXT,
            (TRUTH_QUERY,),
            width=6,
            height=4,
            words=TRUTH,
        ),
        Panel(
            "stat",
            "Age of the newest sample",
            "Time since a line of telemetry arrived. Figures older than five intervals are taken "
            "off the page, so that none passes for a live one.",
            (Query(f"time() - max(tegrascope_sample_timestamp_seconds{{{SEL}}})", "age"),),
            unit="s",
            width=6,
            height=4,
            steps=FRESH,
        ),
        Panel(
            "stat",
            "Module power",
            "True mean power of the module between scrapes, by the board's rail rule. Without a "
            "rule there are rails and no total.",
            (Query(f"sum({rate('tegra_module_energy_joules_total')})", "module"),),
            unit="watt",
            width=6,
            height=4,
        ),
        Panel(
            "stat",
            "Left before a shutdown",
            "Degrees between the hottest zone and the trip at which the board switches itself off. "
            "Below 15 it is throttled soon.",
            (Query(HEADROOM, "{{instance}}", NO_SYSFS),),
            unit="celsius",
            width=6,
            height=4,
            steps=HOT,
        ),
        Panel(
            "stat",
            "DLA, EMC and engines",
            "tegrastats shows them to root alone. Where they are hidden their series are absent: "
            "that is not 0.",
            (
                Query(
                    f"max(tegrascope_root_fields_missing{{{SEL}}})",
                    "tegrastats",
                    NO_JETSON,
                ),
            ),
            width=6,
            height=4,
            words=(Word(0, "shown", GREEN), Word(1, "hidden: needs root", ORANGE)),
        ),
        Panel(
            "stat",
            "Runs in flight",
            "Scheduled runs and marked windows that run at this moment.",
            (Query(f"sum(tegra_inference_run_active{{{SEL}}})", "runs", NO_RUN),),
            width=6,
            height=4,
        ),
    ),
)

POWER = Row(
    "Power and load",
    (
        Panel(
            "timeseries",
            "Power by rail",
            "Mean power between scrapes, from energy counters: right however slow the scrape. "
            "Rails side by side are stacked; a rail that holds others or is inside one "
            f"({_APART.replace('|', ', ')}), the module's total and its budget are dashed lines.",
            (
                Query(
                    rate(
                        "tegra_rail_energy_joules_total",
                        f'{SEL},rail!~"{_APART}"',
                    ),
                    "{{rail}}",
                ),
                Query(
                    rate(
                        "tegra_rail_energy_joules_total",
                        f'{SEL},rail=~"{_APART}"',
                    ),
                    "not added: {{rail}}",
                ),
                Query(rate("tegra_module_energy_joules_total"), "module"),
                Query(f"tegrascope_module_power_budget_watts{{{SEL}}}", "budget", NO_LIMIT),
            ),
            unit="watt",
            width=24,
            height=10,
            is_stacked=True,
            apart="/^(module|not added|budget)/",
            low=0,
        ),
        Panel(
            "timeseries",
            "GPU, memory and CPU",
            "GPU load (GR3D), use of the memory bandwidth (EMC) at its present clock, and the "
            "mean of all cores: samples at the moment of a line.",
            telemetry(
                "GPU, memory and CPU",
                Query(
                    f"avg by (instance) (tegra_cpu_utilization_ratio{{{SEL}}})", "CPU", NO_JETSON
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "DLA",
            "Busy: a load, by the source that says so; of these ftrace is the truth. Powered: at "
            "least what it was busy, with half a second after each task. Our runs: what the "
            "scheduler had in flight. The gate is on or off and no load.",
            telemetry("DLA"),
            unit="percentunit",
            apart="/gate$/",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "DLA tasks",
            "Tasks that ended in a second, of all programs, by the trace of the driver.",
            telemetry("DLA tasks"),
            unit="cps",
            low=0,
        ),
        Panel(
            "timeseries",
            "Video and other engines",
            "Load of NVENC, NVDEC, VIC, OFA and others where tegrastats prints one; powered is "
            "the gate alone.",
            telemetry("Video and other engines"),
            unit="percentunit",
            apart="/powered$/",
            low=0,
            high=1,
        ),
    ),
)

HEAT = Row(
    "Heat",
    (
        Panel(
            "timeseries",
            "Temperatures",
            "Thermal zones; one that is powered off has no series. Dashed: the lowest trip of each "
            "kind. On many boards the lowest passive one only says that the surface is hot.",
            telemetry(
                "Temperatures",
                Query(
                    f"min by (kind) (tegra_temperature_trip_celsius{{{SEL}}})",
                    "trip: {{kind}}",
                    NO_SYSFS,
                ),
            ),
            unit="celsius",
            width=24,
            height=10,
            apart="/^trip/",
        ),
        Panel(
            "timeseries",
            "Throttling",
            "How often a clock began to be held down in a minute, by kind. sw_power_cap and "
            "board_limit of a desktop GPU are no trouble.",
            telemetry(
                "Throttling",
                Query(
                    f"increase(tegra_throttle_events_total{{{SEL}}}[1m])",
                    "{{kind}}",
                    NO_THROTTLING,
                ),
            ),
            low=0,
        ),
        Panel(
            "timeseries",
            "Fans and cooling",
            "Fans, and how far each cooling device cools or holds a clock back: cpufreq-… and "
            "devfreq-… above 0 cost performance.",
            telemetry("Fans and cooling"),
            unit="percentunit",
            low=0,
            high=1,
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-device",
    title="tegrascope: device",
    description="One board, now and of late: rails, GPU, DLA, memory, heat, and its runs.",
    variables=(JOB, DEVICE),
    bands=(*run_bands(SEL), THROTTLED),
    rows=(AT_A_GLANCE, POWER, HEAT, CLOCKS, DAEMON),
)

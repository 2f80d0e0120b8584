"""Fleet, further down: DLAs, rails and zones of all devices."""

from .parts import Panel, Query, Row
from .queries import HEADROOM, HOT, SEL
from .reasons import NO_DLA, NO_LIMIT, NO_SYSFS, NO_TRACE

DUTY = Row(
    "DLA duty, power and temperature",
    (
        Panel(
            "timeseries",
            "DLA busy",
            "Busy share of each core over five minutes, by source. A core that is idle for days"
            " is unused hardware. Near 100 % tasks wait in a queue.",
            (
                Query(
                    f"rate(tegra_dla_busy_seconds_total{{{SEL}}}[5m])",
                    "{{instance}} core {{core}} ({{source}})",
                    NO_TRACE,
                ),
                Query(
                    f'avg_over_time(tegra_dla_busy_ratio{{{SEL},source="tegrastats"}}[5m])',
                    "{{instance}} core {{core}} ({{source}})",
                    NO_DLA,
                ),
                Query(
                    f"tegrascope_dla_expected_busy_ratio{{{SEL}}}",
                    "{{instance}} core {{core}} expected",
                    NO_LIMIT,
                ),
            ),
            apart="/expected$/",
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "DLA powered",
            "Share of five minutes in which each core was powered, for all programs. It is "
            "never less than the busy share. It needs no root and misses no burst.",
            (
                Query(
                    f"rate(tegra_dla_powered_seconds_total{{{SEL}}}[5m])",
                    "{{instance}} core {{core}}",
                    NO_SYSFS,
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Module power",
            "True mean power between scrapes.",
            (
                Query(
                    f"rate(tegra_module_energy_joules_total{{{SEL}}}[$__rate_interval])",
                    "{{instance}}",
                ),
            ),
            unit="watt",
            low=0,
        ),
        Panel(
            "timeseries",
            "Margin to shutdown",
            "Degrees between the hottest zone and the trip at which a board shuts down.",
            (Query(HEADROOM, "{{instance}}", NO_SYSFS),),
            unit="celsius",
            steps=HOT,
        ),
        Panel(
            "timeseries",
            "GPU",
            "GPU load by device, mean of five minutes.",
            (
                Query(
                    f"avg_over_time(tegra_gpu_utilization_ratio{{{SEL}}}[5m])",
                    "{{instance}}",
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Memory in use",
            "Used share of the memory that CPU and GPU of a Jetson share.",
            (
                Query(
                    f"tegra_ram_used_bytes{{{SEL}}} / tegra_ram_total_bytes{{{SEL}}}",
                    "{{instance}}",
                    "a desktop GPU has memory of its own",
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
        ),
    ),
)

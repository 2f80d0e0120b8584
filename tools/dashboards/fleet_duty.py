"""Fleet, further down: the choices of devices, and bands of all with the extremes beside."""

from collections.abc import Iterator

from .parts import BLUE, Panel, Query, Row, Step, Variable
from .queries import BELOW_SHUTDOWN, DLA_BUSY, HOT, JOB, SEL, as_recorded, headroom, powered, watts
from .reasons import NO_DLA, NO_LIMIT, NO_SYSFS

FLEET = f'{SEL},site=~"$site"'
"""Labels of the chosen devices; a target without a site is chosen by "All"."""

ALERTS = f'alertname=~"$alert",{FLEET}'

CHOICES = (
    JOB,
    Variable("site", "Site", 'label_values(up{job=~"$job"}, site)'),
    Variable("board", "Board", 'label_values(tegra_info{job=~"$job"}, board)'),
    Variable(
        "instance",
        "Device",
        'label_values(tegra_info{job=~"$job",site=~"$site",board=~"$board"}, instance)',
    ),
    Variable(
        "alert", "Alert", 'label_values(ALERTS{alertname=~"Tegra.*"}, alertname)', every="Tegra.*"
    ),
)


def of_board(expr: str) -> str:
    """Return an expression without the devices that are known to have another board.

    A device that is down has no ``tegra_info`` now. Without a choice of board it is shown.
    """
    other = 'last_over_time(tegra_info{job=~"$job",board!~"$board"}[1h])'
    # `unless` binds less tightly than what is calculated with the result.
    return f"(({expr}) unless on (job, instance) {other})"


def _spread(
    title: str,
    words: str,
    expr: str,
    unit: str,
    legend: str = "{{instance}}",
    *,
    empty: str = "",
    is_low_bad: bool = False,
    more: tuple[Query, ...] = (),
    steps: tuple[Step, ...] = (Step(None, BLUE),),
) -> Iterator[Panel]:
    """Yield a band of all devices over time, and the ten extreme ones now."""
    found = of_board(expr)
    shares = {"95 %": f"quantile(0.95, {found})", "median": f"quantile(0.5, {found})",
              "5 %": f"quantile(0.05, {found})"}  # fmt: skip
    extreme = "min" if is_low_bad else "max"
    high = 1 if unit == "percentunit" else None
    yield Panel(
        "timeseries",
        title,
        f"{words} Of all devices 5 % are below the band and 5 % above it. Dashed: the extreme one.",
        (
            *(Query(query, name, empty) for name, query in shares.items()),
            Query(f"{extreme}({found})", "extreme", empty),
            *more,
        ),
        unit=unit,
        width=16,
        apart="/^(extreme|expected)/",
        between=("95 %", "5 %"),
        low=0,
        high=high,
    )
    yield Panel(
        "bars",
        f"{title}: {'lowest' if is_low_bad else 'highest'}",
        f"{words} The ten {'lowest' if is_low_bad else 'highest'} now.",
        (Query(f"{'bottomk' if is_low_bad else 'topk'}(10, {found})", legend, empty),),
        unit=unit,
        width=8,
        steps=steps,
        low=0,
        high=high,
    )


DUTY = Row(
    "DLA duty, power and temperature",
    (
        *_spread(
            "DLA busy",
            "Busy share of each core over five minutes, by the best source, as the recorded rule "
            "has it. A core that is idle for days is unused hardware. Near 100 % tasks wait.",
            as_recorded(DLA_BUSY, FLEET),
            "percentunit",
            "{{instance}} core {{core}} ({{source}})",
            empty=NO_DLA,
            more=(
                Query(
                    f"min(tegrascope_dla_expected_busy_ratio{{{FLEET}}})",
                    "expected, lowest",
                    NO_LIMIT,
                ),
            ),
        ),
        *_spread(
            "DLA powered",
            "Share of five minutes in which each core was powered, for all programs. A core "
            "that works is powered: where the sampled powered share is less than the busy one, the "
            "busy one is shown.",
            powered(FLEET),
            "percentunit",
            "{{instance}} core {{core}}",
            empty=NO_DLA,
        ),
        *_spread(
            "Module power, mean",
            "Mean power between scrapes, without gaps in telemetry.",
            watts("module", FLEET),
            "watt",
        ),
        *_spread(
            "Margin to shutdown",
            "Degrees between the hottest zone and the trip at which a board shuts down.",
            headroom(FLEET),
            BELOW_SHUTDOWN,
            empty=NO_SYSFS,
            is_low_bad=True,
            steps=HOT,
        ),
        *_spread(
            "GPU",
            "GPU load, mean of five minutes.",
            f"avg_over_time(tegra_gpu_utilization_ratio{{{FLEET}}}[5m])",
            "percentunit",
        ),
        *_spread(
            "Memory in use",
            "Used share of the memory that CPU and GPU of a Jetson share.",
            f"tegra_ram_used_bytes{{{FLEET}}} / tegra_ram_total_bytes{{{FLEET}}}",
            "percentunit",
            empty="a desktop GPU has memory of its own",
        ),
    ),
)

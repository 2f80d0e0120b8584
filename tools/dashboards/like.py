"""Which board is slow: each board against those that are like it, the cause, and updates."""

from .parts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    Column,
    Dashboard,
    Panel,
    Query,
    Row,
    Step,
    Variable,
    Word,
)
from .queries import JOB, KEPT, RUN

_FEW = "less than five boards are alike"
_NONE = "no board is slower than its like"
_UPDATES = "no board was updated"
_MEDIAN = "instance_like:tegra_inferences:figure_median6h"
_MIDDLE = "job_like:tegra_inferences:figure_median"
_SLOWER = f"instance_like:tegra_inferences:slower{{{RUN}}}"
_RUN_LABELS = "instance, workload, device"
_TO_DEVICE = f"/d/tegrascope-device?var-instance=${{__value.raw}}&{KEPT}"
_STEPS = (Step(None, GREEN), Step(1.1, ORANGE), Step(1.5, RED))


def _figure(name: str, scope: str = "") -> str:
    more = f',scope="{scope}"' if scope else ""
    return f'{_MEDIAN}{{{RUN},figure="{name}"{more}}}'


def _ratio(figure: str) -> str:
    """Return a figure of each board over the median of its like."""
    return f"{_figure(figure)} / on (job, like, figure) group_left () {_MIDDLE}"


def _of_slow(figure: str) -> str:
    slow = f"{_ratio(figure)} and on (job, {_RUN_LABELS}, like) {_SLOWER}"
    return f"max by ({_RUN_LABELS}) ({slow})"


def _judged(figure: str) -> str:
    """Return the deviations that the rule of slow boards judges: its choice of the scope."""
    deviation = f'instance_like:tegra_inferences:figure_deviation{{{RUN},figure="{figure}"'
    alike = (
        "count by (job, like, power_mode, jetpack, engine_key) "
        '(instance_workload:tegra_inference_workload_info:like{job=~"$job",scope="any"}) >= 5'
    )
    return (
        f'({deviation},scope="same"}} or on (job, {_RUN_LABELS}) '
        f'({deviation},scope="any"}} and on (job, like) {alike}))'
    )


def _boards(selector: str) -> str:
    return f"count by (job, instance) ({selector})"


def _worst(title: str, figure: str) -> Panel:
    return Panel(
        "bars",
        title,
        f"Median {figure} of six hours over the median of the boards that are alike. The 20 "
        "highest, slower or not.",
        (
            Query(
                f"topk(20, max by ({_RUN_LABELS}) ({_ratio(figure)} and {_judged(figure)}))",
                "{{instance}}: {{workload}}",
                _FEW,
            ),
        ),
        unit="percentunit",
        steps=_STEPS,
        low=0,
    )


def _change(figure: str) -> str:
    """Return now over the start of the time range, of boards that were updated meanwhile."""
    now = _figure(figure, "same")
    before = f"max by (job, {_RUN_LABELS}, figure) ({now} offset $__range unless {now})"
    return f"{now} / on (job, {_RUN_LABELS}, figure) group_left () {before}"


SLOW = Row(
    "Slower than their like",
    (
        Panel(
            "stat",
            "Slow boards",
            "Boards with a workload that is slower than its like: by more than five spreads, so by "
            "a tenth or more, over six hours.",
            (Query(f"count({_boards(_SLOWER)}) or vector(0)", "boards"),),
            width=8,
            height=4,
            steps=(Step(0, GREEN), Step(1, RED)),
        ),
        Panel(
            "stat",
            "Judged boards",
            "Boards with four others that are alike: the same module, power mode, JetPack, "
            "workload, device, model and engine; or else the same module, workload and "
            "model, if five of these are alike.",
            (Query(f"count({_boards(_judged('latency'))}) or vector(0)", "boards"),),
            width=8,
            height=4,
        ),
        Panel(
            "stat",
            "Boards not judged",
            "Less than five boards are alike, even with any power mode, JetPack and engine. "
            "Nothing is known of these boards.",
            (
                Query(
                    f"count({_boards(_figure('latency', 'same'))} unless on (job, instance) "
                    f"{_boards(_judged('latency'))}) or vector(0)",
                    "boards",
                ),
            ),
            width=8,
            height=4,
            steps=(Step(0, GREEN), Step(1, GREY)),
        ),
        Panel(
            "table",
            "Slow boards and their causes",
            "Latency and energy: median of six hours over that of the boards that are alike. A "
            "board alone in its power mode, or with its JetPack or engine, is compared with all of "
            "its module and workload; its energy is not. The cause is the first that the metrics "
            "show: power mode, fallback, engine or JetPack, cooling (°C per watt), throttling, "
            "clock, other processes, swap. What to do: the runbook TegraBoardSlowerThanLike. "
            "A click opens the device.",
            (
                Query(_of_slow("latency"), empty=_NONE),
                Query(_of_slow("energy"), empty=_NONE),
                Query(
                    f"max by ({_RUN_LABELS}, figure, power_mode, jetpack) "
                    f"(instance_like:tegra_inferences:slower_cause{{{RUN}}})",
                    empty=_NONE,
                ),
            ),
            width=24,
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("workload", "Workload"),
                Column("device", "On"),
                Column("A", "Latency / like", "percentunit", steps=_STEPS),
                Column("figure", "Cause"),
                Column("B", "Energy / like", "percentunit", steps=_STEPS),
                Column("power_mode", "Power mode"),
                Column("jetpack", "JetPack"),
            ),
            sort=("-Latency / like",),
        ),
        _worst("Latency against like boards", "latency"),
        _worst("Energy against like boards", "energy"),
        Panel(
            "table",
            "All figures that differ",
            "Each figure of a slow board that is worse than that of its like by more than three "
            "spreads. A low clock takes less power, so it also raises the degrees per watt "
            "(cooling): that is a cause only if the board is hot too.",
            (
                Query(
                    f"max by ({_RUN_LABELS}, figure) "
                    f"(instance_like:tegra_inferences:slower_figure{{{RUN}}})",
                    empty=_NONE,
                ),
            ),
            columns=(
                Column("instance", "Device", link=_TO_DEVICE),
                Column("workload", "Workload"),
                Column("device", "On"),
                Column("figure", "Figure"),
                Column("A", "Spreads", "none"),
            ),
            sort=("Device", "-Spreads"),
        ),
        Panel(
            "timeseries",
            "Slow boards over time",
            "Latency above the median of like boards, in spreads, while a board is slow: from 5.",
            (Query(f"max by ({_RUN_LABELS}) ({_SLOWER})", "{{instance}}: {{workload}}", _NONE),),
            low=0,
        ),
    ),
)

ALIKE = Row(
    "Boards that are alike, and updates",
    (
        Panel(
            "table",
            "Boards that are alike",
            "Module, power mode, JetPack, workload, device, model, precision, batch and engine; "
            "latency and energy of the median board. Less than five boards have no spread: they "
            "are compared with all of their module and workload, if these are five. The spread is "
            "the standard deviation by the median absolute deviation, and 2 % at least.",
            (
                Query(f"count by (like) ({_figure('latency', 'same')})"),
                Query(f"count by (like) ({_figure('latency', 'same')}) >= bool 5"),
                Query(f"quantile by (like) (0.5, {_figure('latency', 'same')})"),
                Query(
                    "max by (like) (job_like:tegra_inferences:figure_spread"
                    f" / {_MIDDLE} and on (job, like, figure) {_figure('latency', 'same')})",
                    empty=_FEW,
                ),
                Query(
                    f"quantile by (like) (0.5, {_figure('energy', 'same')})",
                    empty="the energy is withheld",
                ),
            ),
            width=24,
            columns=(
                Column("like", "Alike", width=620),
                Column("A", "Boards"),
                Column("B", "Judged", words=(Word(0, "too few", GREY), Word(1, "yes", BLUE))),
                Column("C", "Latency", "s"),
                Column("D", "Spread", "percentunit"),
                Column("E", "Energy", "joule"),
            ),
            sort=("-Boards",),
        ),
        Panel(
            "table",
            "Changes by an update",
            "Boards that were something else at the start of the time range: another JetPack, "
            "engine, model or power mode. Now over then, of the median board.",
            (
                Query(f"count by (like) ({_change('latency')})", empty=_UPDATES),
                Query(f"quantile by (like) (0.5, {_change('latency')})", empty=_UPDATES),
                Query(f"quantile by (like) (0.5, {_change('energy')})", empty=_UPDATES),
            ),
            width=24,
            columns=(
                Column("like", "Alike now", width=620),
                Column("A", "Boards"),
                Column("B", "Latency, now / then", "percentunit", steps=_STEPS),
                Column("C", "Energy, now / then", "percentunit", steps=_STEPS),
            ),
            sort=("-Latency, now / then",),
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-like",
    title="tegrascope: which board is slow?",
    description="Boards that are slower than those that are like them, with the cause; updates.",
    variables=(
        JOB,
        Variable("instance", "Device", 'label_values(tegra_info{job=~"$job"}, instance)'),
        Variable(
            "workload",
            "Workload",
            'label_values(tegra_inference_workload_info{job=~"$job"}, workload)',
        ),
    ),
    bands=(),
    rows=(SLOW, ALIKE),
    since="now-24h",
)

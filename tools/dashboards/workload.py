"""Workload: latency, energy and quality flags of one workload, per inference and per run."""

from .device import WHERE
from .parts import Column, Dashboard, Panel, Query, Row
from .queries import (
    DEVICE,
    HERE,
    JOB,
    RUN,
    WORKLOADS,
    as_recorded,
    by_workload,
    last_run,
    rate,
    run_bands,
)
from .workload_runs import RUNS

_BUCKETS = f"sum by (le) ({rate('tegra_inference_latency_seconds_bucket', RUN)})"
_BY_WORKLOAD = (
    "sum by (instance, workload, device, le) ("
    f"{rate('tegra_inference_latency_seconds_bucket', RUN)})"
)
_NO_DEADLINE = "no workload has a deadline"
_SHORT = (
    "Withheld if the steady phase has less than 10 s, 100 samples or 200 inferences, if it is "
    "aliased, or if it overlapped another run."
)

LAST_RUN = Row(
    "Last good run",
    (
        *WHERE,
        Panel(
            "table",
            "Last good run",
            "Median of the steady phase, by the host clock. Energy is per inference, gross (whole"
            f" module) and net (above idle): {_SHORT[0].lower()}{_SHORT[1:]} If the run is "
            "long ago, the workload does not run, or it fails.",
            (
                Query(by_workload(last_run("latency_seconds", f'{RUN},quantile="0.5"'))),
                Query(by_workload(last_run("latency_seconds", f'{RUN},quantile="0.99"'))),
                Query(by_workload(last_run("energy_joules_per_inference", f'{RUN},kind="gross"'))),
                Query(by_workload(last_run("energy_joules_per_inference", f'{RUN},kind="net"'))),
                Query(
                    by_workload(f"tegra_inference_deadline_seconds{{{RUN}}}"), empty=_NO_DEADLINE
                ),
                Query(f"{by_workload(last_run('timestamp_seconds'))} * 1000"),
            ),
            width=24,
            height=7,
            columns=(
                Column("workload", "Workload"),
                Column("device", "On"),
                Column("A", "Median latency", "s"),
                Column("B", "p99", "s"),
                Column("C", "Gross energy", "joule"),
                Column("D", "Net energy", "joule"),
                Column("E", "Deadline", "s"),
                Column("F", "Age", "dateTimeFromNow"),
            ),
            sort=("Workload",),
        ),
    ),
)

LATENCY = Row(
    "Latency",
    (
        Panel(
            "heatmap",
            "Latency of every inference",
            "Inferences per second by latency. A dot is an exemplar. A click opens its run, if "
            "the data source has the link and Prometheus keeps exemplars.",
            (Query(_BUCKETS, "{{le}}", exemplars=True),),
            unit="s",
            width=24,
            height=10,
        ),
        Panel(
            "timeseries",
            "Exact quantiles, run by run",
            "Exact quantiles of each good run. The line has a step at each run.",
            (
                Query(
                    last_run("latency_seconds"),
                    "quantile {{quantile}}: {{workload}}",
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Quantiles between scrapes, estimate from buckets",
            "Median and 99th percentile of every inference between scrapes, from the histogram. "
            "They may be wrong by the width of a bucket, a third of the latency or more. Exact "
            "are those of a run. Dots are exemplars.",
            (
                Query(
                    f"histogram_quantile(0.5, {_BY_WORKLOAD}) >= 0",
                    f"p50, estimate: {HERE}",
                    exemplars=True,
                ),
                Query(
                    f"histogram_quantile(0.99, {_BY_WORKLOAD}) >= 0",
                    f"p99, estimate: {HERE}",
                    exemplars=True,
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Stages run by run",
            "Quantiles of the stages of each good run. Of a server these are the time to the first "
            "token and the time per further token.",
            (
                Query(
                    last_run("duration_seconds"),
                    "{{stage}}, quantile {{quantile}}: {{workload}}",
                    "no back-end here has stages",
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Units per second run by run",
            "Units of work per second of each good run, for workloads that name a unit (token, "
            "frame, request).",
            (
                Query(
                    last_run("units_per_second"),
                    "{{unit}}: {{workload}}",
                    "most workloads name no unit",
                ),
            ),
            low=0,
        ),
        Panel(
            "timeseries",
            "Mean latency",
            "Mean of all inferences between scrapes.",
            (
                Query(
                    f"{rate('tegra_inference_latency_seconds_sum', RUN)}"
                    f" / ({rate('tegra_inference_latency_seconds_count', RUN)} > 0)",
                    HERE,
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Cold start",
            "Parts of the last cold start: load, build, first inference. Other figures do not "
            "contain them.",
            (
                Query(
                    f"tegra_inference_cold_start_seconds{{{RUN}}}",
                    "{{part}}: {{workload}}",
                ),
            ),
            unit="s",
            low=0,
        ),
    ),
)

DEADLINE = Row(
    "Deadline",
    (
        Panel(
            "timeseries",
            "Missed deadlines",
            "Share of the inferences of the last hour that took longer than the deadline of their "
            "workload. Dots are exemplars: a click opens the run.",
            (
                Query(
                    f"increase(tegra_inference_deadline_misses_total{{{RUN}}}[1h])"
                    f" / (increase(tegra_inferences_total{{{RUN}}}[1h]) > 0)",
                    HERE,
                    _NO_DEADLINE,
                    exemplars=True,
                ),
            ),
            unit="percentunit",
            low=0,
        ),
        Panel(
            "timeseries",
            "Longest latency against the deadline",
            "Lateness of the slowest inference of the last good run, 0 without a miss, and the "
            "deadline.",
            (
                Query(last_run("deadline_worst_lateness_seconds"), f"late: {HERE}", _NO_DEADLINE),
                Query(
                    f"tegra_inference_deadline_seconds{{{RUN}}}", f"deadline: {HERE}", _NO_DEADLINE
                ),
            ),
            unit="s",
            low=0,
        ),
    ),
)

ENERGY = Row(
    "Energy and use of the board",
    (
        Panel(
            "timeseries",
            "Energy per inference, run by run",
            f"Module energy, gross (whole module) and net (above the loaded, idle board). {_SHORT}",
            (
                Query(
                    last_run("energy_joules_per_inference"),
                    "{{kind}}: {{workload}}",
                ),
            ),
            unit="joule",
        ),
        Panel(
            "timeseries",
            "Energy per unit of work in the last hour",
            "Module energy of all steady phases over their units, for workloads that name a unit "
            "(token, frame, request).",
            (
                Query(
                    as_recorded(
                        "instance_workload:tegra_inference_energy_joules_per_unit:rate1h", RUN
                    ),
                    "{{kind}} per {{unit}}: {{workload}}",
                    "most workloads name no unit",
                ),
                Query(
                    last_run("energy_joules_per_unit"),
                    "last run, {{kind}} per {{unit}}: {{workload}}",
                    "most workloads name no unit",
                ),
            ),
            unit="joule",
        ),
        Panel(
            "timeseries",
            "Energy of all runs in the last hour",
            "Module energy of steady phases. Overlapping runs each count all of it.",
            (
                Query(
                    f"increase(tegra_inference_energy_joules_total{{{RUN}}}[1h])",
                    "{{kind}}: {{workload}}",
                ),
            ),
            unit="joule",
            low=0,
        ),
        Panel(
            "timeseries",
            "Load in the run",
            "Means over the last good run: GPU, memory bandwidth, and the DLA by source.",
            (
                Query(last_run("gpu_utilization_ratio"), f"GPU: {HERE}"),
                Query(
                    last_run("emc_utilization_ratio"),
                    f"EMC: {HERE}",
                    "tegrastats prints it only for root",
                ),
                Query(
                    last_run("dla_busy_ratio"),
                    "DLA {{core}} ({{source}}): {{workload}}",
                    "most boards report no DLA load",
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Hottest zone in the run",
            "Highest temperature of any zone in the last good run.",
            (Query(last_run("temperature_max_celsius"), HERE),),
            unit="celsius",
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-workload",
    title="tegrascope: workload",
    description="Latency, energy and quality flags of one workload, per inference and per run.",
    variables=(JOB, DEVICE, WORKLOADS),
    bands=run_bands(RUN),
    rows=(LAST_RUN, LATENCY, DEADLINE, ENERGY, RUNS),
    since="now-3h",
)

"""Workload: one workload's latency, energy and doubts, inference by inference and run by run."""

from .parts import Dashboard, Panel, Query, Row
from .queries import DEVICES, HERE, JOB, RUN, WORKLOADS, by_workload, last_run, rate, run_bands
from .workload_runs import RUNS

_BUCKETS = f"sum by (le) ({rate('tegra_inference_latency_seconds_bucket', RUN)})"
_BY_WORKLOAD = (
    "sum by (instance, workload, device, le) ("
    f"{rate('tegra_inference_latency_seconds_bucket', RUN)})"
)
_SHORT = (
    "Withheld where the steady phase has fewer than 10 s, 100 samples or 200 inferences, or "
    "overlapped another run."
)

LAST_RUN = Row(
    "Last good run",
    (
        Panel(
            "stat",
            "Median latency",
            "Of the last good run's steady phase, by the host clock.",
            (Query(by_workload(last_run("latency_seconds", f'{RUN},quantile="0.5"')), HERE),),
            unit="s",
            width=6,
            height=5,
        ),
        Panel(
            "stat",
            "Energy of an inference",
            f"Module energy, gross, of the last good run. {_SHORT}",
            (
                Query(
                    by_workload(last_run("energy_joules_per_inference", f'{RUN},kind="gross"')),
                    HERE,
                ),
            ),
            unit="joule",
            width=6,
            height=5,
        ),
        Panel(
            "stat",
            "Inputs a second",
            "Throughput of the last good run: inferences times batch.",
            (Query(by_workload(last_run("throughput_per_second")), HERE),),
            unit="cps",
            width=6,
            height=5,
        ),
        Panel(
            "stat",
            "When",
            "When the last good run started. One that is long past is a workload that does not "
            "run, or fails.",
            (Query(f"{by_workload(last_run('timestamp_seconds'))} * 1000", HERE),),
            unit="dateTimeFromNow",
            width=6,
            height=5,
        ),
    ),
)

LATENCY = Row(
    "Latency",
    (
        Panel(
            "heatmap",
            "Latency of every inference",
            "How many inferences a second took how long. A dot is an exemplar: a click on it "
            "leads to its run, where the data source has the link and Prometheus keeps exemplars.",
            (Query(_BUCKETS, "{{le}}", exemplars=True),),
            unit="s",
            width=24,
            height=10,
        ),
        Panel(
            "timeseries",
            "Quantiles of every inference",
            "Median and 99th percentile between scrapes, from the histogram; as fine as its "
            "buckets. Dots are exemplars.",
            (
                Query(f"histogram_quantile(0.5, {_BY_WORKLOAD})", f"p50 {HERE}", exemplars=True),
                Query(f"histogram_quantile(0.99, {_BY_WORKLOAD})", f"p99 {HERE}", exemplars=True),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Quantiles run by run",
            "Exact quantiles of each good run: a step at each run.",
            (
                Query(
                    last_run("latency_seconds"),
                    "quantile {{quantile}}: {{workload}} on {{device}}, {{instance}}",
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Mean latency",
            "Mean of every inference between scrapes.",
            (
                Query(
                    f"{rate('tegra_inference_latency_seconds_sum', RUN)}"
                    f" / {rate('tegra_inference_latency_seconds_count', RUN)}",
                    HERE,
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Cold start",
            "Parts of the last cold start: load, build, first inference. In no other figure.",
            (
                Query(
                    f"tegra_inference_cold_start_seconds{{{RUN}}}",
                    "{{part}}: {{workload}} on {{device}}, {{instance}}",
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
            "Energy of an inference, run by run",
            f"Module energy, gross and net of the loaded, idle board. {_SHORT}",
            (
                Query(
                    last_run("energy_joules_per_inference"),
                    "{{kind}}: {{workload}} on {{device}}, {{instance}}",
                ),
            ),
            unit="joule",
        ),
        Panel(
            "timeseries",
            "Energy of all runs in the last hour",
            "Module energy of steady phases. Runs that overlap each count all of it.",
            (
                Query(
                    f"increase(tegra_inference_energy_joules_total{{{RUN}}}[1h])",
                    "{{kind}}: {{workload}} on {{device}}, {{instance}}",
                ),
            ),
            unit="joule",
            low=0,
        ),
        Panel(
            "timeseries",
            "Load in the run",
            "Means over the last good run: GPU, memory bandwidth, and the DLA by the source that "
            "says so.",
            (
                Query(last_run("gpu_utilization_ratio"), f"GPU: {HERE}"),
                Query(
                    last_run("emc_utilization_ratio"),
                    f"EMC: {HERE}",
                    "hidden from an ordinary user",
                ),
                Query(
                    last_run("dla_busy_ratio"),
                    "DLA {{core}} ({{source}}): {{workload}}, {{instance}}",
                    "a load of the DLA is not known on most boards",
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
    description="One workload's latency, energy and doubts, inference by inference and run by run.",
    variables=(JOB, DEVICES, WORKLOADS),
    bands=run_bands(RUN),
    rows=(LAST_RUN, LATENCY, ENERGY, RUNS),
    since="now-3h",
)

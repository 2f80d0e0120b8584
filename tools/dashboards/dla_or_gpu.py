"""DLA or GPU: the same model on both, side by side."""

from .parts import GREY, INPUTS, ORANGE, Column, Dashboard, Panel, Query, Row, Step
from .queries import (
    DEVICE,
    DLA_COLORS,
    HERE,
    JOB,
    KEPT,
    MODELS,
    PART_COLORS,
    SEL,
    by_workload,
    last_run,
    rate,
    run_bands,
    watts,
)
from .reasons import NO_DLA_LOAD
from .verdict import ANSWER

SIDE_BY_SIDE = Row(
    "Side by side, last good run of each workload",
    (
        Panel(
            "table",
            "Last good runs",
            "Median and 99th percentile by the host clock. Energy per inference: gross (whole"
            " module), and net (above idle with the model loaded). An empty cell is withheld or "
            "unknown, never 0.",
            (
                Query(by_workload(last_run("latency_seconds", f'{SEL},quantile="0.5"'))),
                Query(by_workload(last_run("latency_seconds", f'{SEL},quantile="0.99"'))),
                Query(by_workload(last_run("energy_joules_per_inference", f'{SEL},kind="gross"'))),
                Query(by_workload(last_run("energy_joules_per_inference", f'{SEL},kind="net"'))),
                Query(by_workload(last_run("throughput_per_second", SEL))),
                Query(by_workload(last_run("gpu_utilization_ratio", SEL))),
            ),
            width=24,
            height=8,
            columns=(
                Column(
                    "workload",
                    "Workload",
                    link="/d/tegrascope-workload?var-workload=${__value.raw}"
                    f"&${{instance:queryparam}}&{KEPT}",
                ),
                Column("device", "On"),
                Column("A", "Median", "s"),
                Column("B", "p99", "s"),
                Column("C", "Gross energy", "joule"),
                Column("D", "Net energy", "joule"),
                Column("E", "Inputs per second", INPUTS),
                Column("F", "GPU load", "percentunit"),
            ),
        ),
        Panel(
            "bars",
            "Gross energy per inference",
            "Gross energy (whole module) of the last good run.",
            (
                Query(
                    by_workload(last_run("energy_joules_per_inference", f'{SEL},kind="gross"')),
                    HERE,
                ),
            ),
            unit="joule",
            low=0,
        ),
        Panel(
            "bars",
            "Latency, median",
            "Median of the last good run, by the host clock.",
            (Query(by_workload(last_run("latency_seconds", f'{SEL},quantile="0.5"')), HERE),),
            unit="s",
            low=0,
        ),
        Panel(
            "bars",
            "GPU load in the run",
            "Mean over the last good run. The rest of the GPU is free.",
            (Query(by_workload(last_run("gpu_utilization_ratio", SEL)), HERE),),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "bars",
            "DLA load in the run",
            "Mean busy share of the core over the last good run, by source.",
            (
                Query(
                    last_run("dla_busy_ratio", f'{SEL},device=~"dla.*"'),
                    "{{workload}}, core {{core}} ({{source}})",
                    NO_DLA_LOAD,
                ),
            ),
            unit="percentunit",
            low=0,
            high=1,
        ),
        Panel(
            "table",
            "Where layers run",
            "Layers of the engine: on the DLA, computing on the GPU, and only moving or "
            "reformatting data on the GPU. A subgraph of the DLA counts as one layer.",
            tuple(
                Query(by_workload(f'tegra_inference_layers{{{SEL},placement="{place}"}}'))
                for place in ("dla", "gpu", "reformat")
            ),
            columns=(
                Column("workload", "Workload"),
                Column("device", "On"),
                Column("A", "DLA"),
                Column("B", "GPU", steps=(Step(None, GREY), Step(1, ORANGE))),
                Column("C", "Reformat"),
            ),
        ),
        Panel(
            "table",
            "Quality flags of these runs",
            "Quality flags of the last good runs. With insufficient_samples, aliased or "
            "overlapped, energy per inference is withheld.",
            (
                Query(
                    f"max by (instance, workload, device, flag) "
                    f'(tegra_inference_quality_flag{{{SEL},flag!="simulated"}}) > 0',
                    empty="no run has a flag",
                ),
            ),
            columns=(
                Column("workload", "Workload"),
                Column("device", "On"),
                Column("flag", "Flag"),
            ),
        ),
    ),
)

LIVE = Row(
    "Live, runs as bands",
    (
        Panel(
            "timeseries",
            "GPU and DLA",
            "GPU load. For each DLA core: busy share and share with a tegrascope run in flight,"
            " as far as the board reports them.",
            (
                Query(f"tegra_gpu_utilization_ratio{{{SEL}}}", "GPU"),
                Query(
                    f"tegra_dla_busy_ratio{{{SEL}}}",
                    "DLA {{core}} busy ({{source}})",
                    NO_DLA_LOAD,
                ),
                Query(
                    f"tegra_dla_lane_occupancy_ratio{{{SEL}}}",
                    "DLA {{core}} tegrascope runs",
                ),
            ),
            unit="percentunit",
            colors=(*PART_COLORS, *DLA_COLORS),
            low=0,
            high=1,
        ),
        Panel(
            "timeseries",
            "Module power, mean",
            "Mean power between scrapes, without gaps in telemetry.",
            (Query(watts("module"), "module"),),
            unit="watt",
            low=0,
        ),
        Panel(
            "timeseries",
            "Median of every inference, estimate from buckets",
            "All inferences between scrapes, from the histogram.",
            (
                Query(
                    "histogram_quantile(0.5, sum by (instance, workload, device, le) ("
                    f"{rate('tegra_inference_latency_seconds_bucket')})) >= 0",
                    HERE,
                    exemplars=True,
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Gross energy per inference, run by run",
            "Gross energy of the last good run. The line has a step at each run. A drift needs "
            "attention.",
            (
                Query(
                    by_workload(last_run("energy_joules_per_inference", f'{SEL},kind="gross"')),
                    HERE,
                ),
            ),
            unit="joule",
            low=0,
        ),
    ),
)

DASHBOARD = Dashboard(
    uid="tegrascope-dla-or-gpu",
    title="tegrascope: DLA or GPU?",
    description="The same model on the DLA and on the GPU: latency, energy, GPU freed, placement."
    " Not for a board without a DLA, like Thor and Orin Nano.",
    variables=(JOB, DEVICE, MODELS),
    bands=run_bands(SEL),
    rows=(ANSWER, SIDE_BY_SIDE, LIVE),
)

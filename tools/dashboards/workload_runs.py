"""Workload, further down: runs by outcome, quality flags, placement and settings."""

from .parts import GREEN, GREY, INFERENCES, ORANGE, Column, Panel, Query, Row, Step, Word
from .queries import HERE, RUN, SEL, by_workload, rate

RUNS = Row(
    "Runs and quality flags",
    (
        Panel(
            "timeseries",
            "Runs in the last hour",
            "By outcome: ok, failed, timeout, skipped, cancelled.",
            (
                Query(
                    "sum by (workload, outcome) "
                    f"(increase(tegra_inference_runs_total{{{RUN}}}[1h])) > 0",
                    "{{workload}}: {{outcome}}",
                ),
            ),
            is_stacked=True,
            low=0,
        ),
        Panel(
            "timeseries",
            "Consecutive failures",
            "Runs since the last good one: those that failed or timed out, and these together "
            "with the skipped ones.",
            (
                Query(f"tegra_inference_consecutive_failures{{{RUN}}}", f"failed: {HERE}"),
                Query(
                    f"tegra_inference_consecutive_unsuccessful_runs{{{RUN}}}",
                    f"failed or skipped: {HERE}",
                ),
            ),
            low=0,
        ),
        Panel(
            "timeline",
            "In flight",
            "When each workload ran.",
            (Query(f"tegra_inference_run_active{{{RUN}}}", HERE),),
            width=24,
            words=(Word(0, "idle", GREY), Word(1, "runs", GREEN)),
        ),
        Panel(
            "timeline",
            "Quality flags",
            "Flags of the last good run, for as long as it was the last. measurement.md "
            "describes each flag.",
            (
                Query(
                    f"tegra_inference_quality_flag{{{RUN}}}",
                    "{{flag}}: {{workload}}",
                ),
            ),
            words=(Word(1, "flagged", ORANGE),),
        ),
        Panel(
            "table",
            "Where layers run",
            "As the build reports it. A subgraph of the DLA counts as one layer. Reformat only "
            "moves data on the GPU.",
            tuple(
                Query(by_workload(f'tegra_inference_layers{{{RUN},placement="{place}"}}'))
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
            "timeseries",
            "Inferences per second",
            "Inferences completed in steady phases, between scrapes.",
            (Query(rate("tegra_inferences_total", RUN), HERE),),
            unit=INFERENCES,
            low=0,
        ),
        Panel(
            "timeseries",
            "Lateness of scheduled starts, estimate from buckets",
            "99th percentile over all workloads of a device in the last hour: start time minus "
            "due time.",
            (
                Query(
                    "histogram_quantile(0.99, sum by (instance, le) ("
                    f"increase(tegrascope_schedule_lateness_seconds_bucket{{{SEL}}}[1h])))",
                    "p99",
                    "it has no schedule",
                ),
            ),
            unit="s",
            low=0,
        ),
        Panel(
            "timeseries",
            "Skipped runs",
            "All workloads of a device in the last hour, by reason: the device was busy, or the"
            " time had passed.",
            (
                Query(
                    f"increase(tegrascope_runs_skipped_total{{{SEL}}}[1h])",
                    "{{reason}}",
                    "every run started",
                ),
            ),
            low=0,
        ),
        Panel(
            "table",
            "Settings",
            "Configuration of each workload. After a change of one of these, earlier and later "
            "figures are not comparable. A click opens the runs as JSON.",
            (
                Query(
                    "max by (workload, device, model, backend, precision, batch) "
                    f"(tegra_inference_workload_info{{{RUN}}})"
                ),
            ),
            columns=(
                Column(
                    "workload",
                    "Workload",
                    link="http://${instance}/api/v1/runs?workload=${__value.raw}",
                ),
                Column("device", "On"),
                Column("model", "Model"),
                Column("backend", "Back-end"),
                Column("precision", "Precision"),
                Column("batch", "Batch"),
            ),
        ),
    ),
)

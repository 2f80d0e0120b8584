"""Every metric of the page: those of telemetry signals, and those of runs and the daemon."""

from typing import Final

from ...parsers.signals import SIGNALS, Family

_FIRST = Family("tegra_info", "info", "The board and its releases; simulated is true where the telemetry is not of this machine.")  # fmt: skip
_ROWS = (
    Family("tegra_dla_lane_occupancy_ratio", "gauge", "Share of the last interval in which our own runs were in flight on a DLA core.", chart="DLA", legend="core {{core}} our runs", after="tegra_dla_powered_seconds_total"),
    Family("tegra_temperature_trip_celsius", "gauge", "Lowest temperature of a zone at which something happens, by kind.", after="tegra_temperature_celsius"),
    Family("tegra_rail_energy_joules_total", "counter", "Energy of a supply rail, integrated from every sample.", after="tegra_rail_power_watts"),
    Family("tegra_module_energy_joules_total", "counter", "Energy of the module, by the board's rail rule, integrated from every sample.", after="tegra_rail_energy_joules_total"),
    Family("tegra_inference_workload_info", "info", "What a workload is configured to run: model (the file's name), back-end, precision, batch."),
    Family("tegra_inference_runs_total", "counter", "Runs that ended, by outcome."),
    Family("tegra_inference_consecutive_failures", "gauge", "Runs that failed or timed out since the last good one."),
    Family("tegra_inferences_total", "counter", "Inferences completed in steady phases."),
    Family("tegra_inference_latency_seconds", "histogram", "Latency of each inference of a steady phase, by the host clock."),
    Family("tegra_inference_energy_joules_total", "counter", "Module energy of steady phases: gross, and net of the idle baseline; runs that overlap each count all of it."),
    Family("tegra_inference_run_active", "gauge", "1 while a run is in flight."),
    Family("tegra_inference_last_run_throughput_per_second", "gauge", "Inputs a second of the last good run."),
    Family("tegra_inference_last_run_energy_joules_per_inference", "gauge", "Module energy of one inference in the last good run; withheld where its window is insufficient."),
    Family("tegra_inference_last_run_latency_seconds", "summary", "Latency quantiles of the last good run."),
    Family("tegra_inference_last_run_gpu_utilization_ratio", "gauge", "Mean GPU load over the last good run."),
    Family("tegra_inference_last_run_dla_busy_ratio", "gauge", "Mean busy share of a DLA core over the last good run, by source."),
    Family("tegra_inference_last_run_emc_utilization_ratio", "gauge", "Mean use of the memory bandwidth over the last good run."),
    Family("tegra_inference_last_run_temperature_max_celsius", "gauge", "Highest temperature of any zone in the last good run."),
    Family("tegra_inference_layers", "gauge", "Layers of the engine of the last good run, by where they run; a subgraph of the DLA is one."),
    Family("tegra_inference_last_run_timestamp_seconds", "gauge", "When the last good run started."),
    Family("tegra_inference_cold_start_seconds", "gauge", "Parts of the last cold start."),
    Family("tegra_inference_quality_flag", "gauge", "1 for each quality flag of the last good run."),
    Family("tegrascope_build_info", "info", "Versions of the daemon."),
    Family("tegrascope_source_up", "gauge", "1 while a telemetry source gives fresh samples."),
    Family("tegrascope_source_restarts_total", "counter", "Times a source was started again."),
    Family("tegrascope_samples_total", "counter", "Samples of a source."),
    Family("tegrascope_sample_timestamp_seconds", "gauge", "When the newest sample of a source arrived."),
    Family("tegrascope_root_fields_missing", "gauge", "1 where tegrastats shows nothing of what only root may see (DLA, EMC, engines); their series are absent then."),
    Family("tegrascope_lines_unparsed_total", "counter", "Lines that were no record, by reason."),
    Family("tegrascope_tokens_unparsed_total", "counter", "Words of records that were not understood."),
    Family("tegrascope_columns_unknown_total", "counter", "Values of telemetry that no signal describes, so that they have no metric."),
    Family("tegrascope_schedule_lateness_seconds", "histogram", "Start of a scheduled run less the time it was due."),
    Family("tegrascope_runs_skipped_total", "counter", "Scheduled runs that did not start, by reason."),
    Family("tegrascope_module_power_budget_watts", "gauge", "Power that the module should draw at most, as the configuration has it."),
    Family("tegrascope_dla_expected_busy_ratio", "gauge", "What a DLA core should be busy at least, as the configuration has it."),
    Family("tegrascope_store_write_errors_total", "counter", "Writes to the run store that failed."),
    Family("tegrascope_store_free_bytes", "gauge", "Room that is left where the run store is."),
)  # fmt: skip


def _in_order() -> tuple[Family, ...]:
    page: list[Family] = []
    for row in (_FIRST, *(row.metric for row in SIGNALS), *_ROWS):
        if row is not None and row.after is None:
            page.append(row)
    for row in (*(row.metric for row in SIGNALS), *_ROWS):
        if row is not None and row.after is not None:
            names = [one.name for one in page]
            page.insert(names.index(row.after) + 1, row)
    return tuple(page)


METRICS: Final = _in_order()
"""Every metric, in the order of the page."""

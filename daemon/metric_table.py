"""Every metric that tegrascope exports, in the order of the page."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "info", "summary"]


@dataclass(frozen=True)
class Family:
    """One row of the table.

    Attributes:
        name: As it is queried; counters with ``_total``, infos with ``_info``.
        kind: Its type.
        help: One sentence.
    """

    name: str
    kind: Kind
    help: str


TABLE = (
    Family("tegra_info", "info", "The board and its releases; simulated is true where the telemetry is not of this machine."),
    Family("tegra_ram_used_bytes", "gauge", "Memory in use."),
    Family("tegra_ram_total_bytes", "gauge", "Memory available to Linux."),
    Family("tegra_ram_available_bytes", "gauge", "Memory that programs could still get without swapping, by the kernel's own estimate."),
    Family("tegra_ram_largest_free_block_bytes", "gauge", "Size of the largest free block of the buddy allocator."),
    Family("tegra_swap_used_bytes", "gauge", "Swap in use."),
    Family("tegra_swap_total_bytes", "gauge", "Swap configured."),
    Family("tegra_swap_cached_bytes", "gauge", "Swap that is in memory too."),
    Family("tegra_cpu_utilization_ratio", "gauge", "Busy share of a core since the line before."),
    Family("tegra_cpu_frequency_hertz", "gauge", "Clock of a core."),
    Family("tegra_cpu_online", "gauge", "1 where a core is plugged in."),
    Family("tegra_emc_utilization_ratio", "gauge", "Share of the memory bandwidth at the present clock."),
    Family("tegra_emc_frequency_hertz", "gauge", "Clock of the memory controller."),
    Family("tegra_gpu_utilization_ratio", "gauge", "GPU load (GR3D), all clusters together."),
    Family("tegra_gpu_frequency_hertz", "gauge", "Clock of a GPU cluster; 0 is gated."),
    Family("tegra_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use, where it has its own."),
    Family("tegra_gpu_memory_total_bytes", "gauge", "Memory of the GPU, where it has its own."),
    Family("tegra_gpu_memory_active_ratio", "gauge", "Share of time in which memory of the GPU was read or written; no share of its bandwidth."),
    Family("tegra_engine_active", "gauge", "1 where an engine is powered, 0 where it is gated."),
    Family("tegra_engine_utilization_ratio", "gauge", "Load of an engine."),
    Family("tegra_engine_frequency_hertz", "gauge", "Clock of an engine."),
    Family("tegra_dla_active", "gauge", "1 where tegrastats calls a DLA core on, 0 where it calls it off: a gate, not a load."),
    Family("tegra_dla_frequency_hertz", "gauge", "Clock of a DLA core."),
    Family("tegra_dla_busy_ratio", "gauge", "Busy share of a DLA core, by the source that says so."),
    Family("tegra_dla_busy_seconds_total", "counter", "Time in which a DLA core had a task, since the daemon began to count, by source."),
    Family("tegra_dla_tasks_total", "counter", "Tasks of a DLA core that have ended, of all programs."),
    Family("tegra_dla_powered_ratio", "gauge", "Share of the last interval in which a DLA core was powered: at least what it was busy."),
    Family("tegra_dla_powered_seconds_total", "counter", "Time for which a DLA core was powered since the boot, by runtime power management."),
    Family("tegra_dla_lane_occupancy_ratio", "gauge", "Share of the last interval in which our own runs were in flight on a DLA core."),
    Family("tegra_temperature_celsius", "gauge", "Temperature of a thermal zone."),
    Family("tegra_temperature_trip_celsius", "gauge", "Lowest temperature of a zone at which something happens, by kind."),
    Family("tegra_cooling_state_ratio", "gauge", "How much a cooling device cools or holds back, as a share of its most."),
    Family("tegra_rail_power_watts", "gauge", "Power on a supply rail at the moment of the line."),
    Family("tegra_rail_energy_joules_total", "counter", "Energy of a supply rail, integrated from every sample."),
    Family("tegra_module_energy_joules_total", "counter", "Energy of the module, by the board's rail rule, integrated from every sample."),
    Family("tegra_throttle_events_total", "counter", "Times that a clock began to be held down, by kind, as far as samples show it."),
    Family("tegra_fan_speed_ratio", "gauge", "Speed of a fan as a share of its full speed."),
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
    Family("tegrascope_dla_trace_troubles_total", "counter", "What did not go by the book in the trace of the DLA, by reason."),
    Family("tegrascope_lines_unparsed_total", "counter", "Lines that were no record, by reason."),
    Family("tegrascope_tokens_unparsed_total", "counter", "Words of records that were not understood."),
    Family("tegrascope_schedule_lateness_seconds", "histogram", "Start of a scheduled run less the time it was due."),
    Family("tegrascope_runs_skipped_total", "counter", "Scheduled runs that did not start, by reason."),
    Family("tegrascope_module_power_budget_watts", "gauge", "Power that the module should draw at most, as the configuration has it."),
    Family("tegrascope_dla_expected_busy_ratio", "gauge", "What a DLA core should be busy at least, as the configuration has it."),
    Family("tegrascope_store_write_errors_total", "counter", "Writes to the run store that failed."),
    Family("tegrascope_store_free_bytes", "gauge", "Room that is left where the run store is."),
)  # fmt: skip

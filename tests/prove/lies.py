"""One planted lie per belief: the evidence of a played board, changed in one place."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tegrascope.workbench.prove.belief import Evidence

Found = Mapping[str, Evidence]


class Lie(NamedTuple):
    """A change of one probe's evidence on one board."""

    probe: str
    change: Callable[[Evidence], Evidence]
    board: str = "agx-orin"


def lines(pattern: str, instead: str) -> Callable[[Evidence], Evidence]:
    """Replace what matches in each line; the lie must change something."""

    def change(evidence: Evidence) -> Evidence:
        changed = tuple(re.sub(pattern, instead, line) for line in evidence.lines)
        assert changed != evidence.lines, pattern
        return evidence.model_copy(update={"lines": changed})

    return change


def more(*added: str) -> Callable[[Evidence], Evidence]:
    """Add lines in front."""
    return lambda evidence: evidence.model_copy(update={"lines": (*added, *evidence.lines)})


def without(pattern: str) -> Callable[[Evidence], Evidence]:
    """Remove lines that match."""

    def change(evidence: Evidence) -> Evidence:
        kept = tuple(line for line in evidence.lines if not re.search(pattern, line))
        assert kept != evidence.lines, pattern
        return evidence.model_copy(update={"lines": kept})

    return change


def ended(status: int) -> Callable[[Evidence], Evidence]:
    """Change how the program ended."""
    return lambda evidence: evidence.model_copy(update={"status": status})


def bundled(evidence: Evidence) -> Evidence:
    """Let four lines at a time arrive together."""
    at = evidence.at_seconds
    return evidence.model_copy(update={"at_seconds": tuple(at[i - i % 4] for i in range(len(at)))})


def half_steps(evidence: Evidence) -> Evidence:
    """Let a rail move by half a step."""
    changed = tuple(
        re.sub(r"VDD_CPU_CV \d+mW", f"VDD_CPU_CV {400 + 200 * (at % 5)}mW", line)
        for at, line in enumerate(evidence.lines)
    )
    return evidence.model_copy(update={"lines": changed})


LATE = "1.layers.0.name: copy finish"
LIES: dict[str, Lie] = {
    "lines_complete": Lie("tegrastats", lines(r"$", " XXXXX #%")),
    "active_dla_prints_load": Lie("load", lines(r"NVDLA0 45%@1600", "NVDLA0 @1600")),
    "lines_at_once": Lie("tegrastats", bundled),
    "rail_steps": Lie("tegrastats", half_steps),
    "parent_small": Lie("daemon", lines(r"rss bytes: \d+", "rss bytes: 83886080")),
    "page_memory": Lie("daemon", lines(r"hwm bytes: \d+", "hwm bytes: 93886080")),
    "unit_starts": Lie("unit", lines(r"stop seconds: .*", "stop seconds: 9.0")),
    "root_tegrastats_in_sandbox": Lie("socket", lines(r"EMC_FREQ \S+ ", "")),
    "tegrastats_ends": Lie("socket", lines(r"after: 0", "after: 1")),
    "package_installs": Lie("venv", ended(1)),
    "dla_engine_runs": Lie("build_dla", lines("pure_dla", "gpu_only")),
    "build_memory": Lie("build_gpu", lines(r"taken MiB: .*", "taken MiB: 4700")),
    "range_of_shapes": Lie("other_shape", lines(r"(0\.built\.build_seconds): .*", r"\1: 80")),
    "plugins_loaded": Lie("unknown_operator", lines("UnknownOperator", "node")),
    "memory_on_gpu": Lie("memory", lines(r"(points.1.*verdict): good", r"\1: wrong")),
    "memory_on_dla": Lie("memory", lines(r"(points.5.*verdict): good", r"\1: wrong")),
    "outputs_bit_equal": Lie("bench", lines(r"(difference): .*", r"\1: 0.0000000100")),
    "calibrates": Lie("calibration", lines("int8_scales: calibrated", "int8_scales: dummy")),
    "cache_same_engine": Lie("from_cache", lines(r"(relative_error): 0\.01", r"\1: 0.03")),
    "cache_other_release": Lie("other_cache", lines("verdict: good", "verdict: wrong")),
    "kernel_counts_waits": Lie("schedstat", lines(r"schedstat: .*", "schedstat: 0")),
    "nvml_of_thor": Lie("nvml", without("gives.0: GPU load"), "thor"),
    "nvml_of_orin_gives_nothing": Lie("nvml", more("findings.2.facts.gives.0: power")),
    "second_builder_waits": Lie(
        "wait", lines("waits for .*", "builds the engine, which may take minutes")
    ),
    "forbid_builds": Lie("build_forbid", ended(1)),
    "tensorrt_8_path": Lie("build_gpu", ended(1), "xavier"),
    "standalone_built": Lie("standalone", lines("pure_dla", "mixed")),
    "cudla_runs": Lie("cudla", lines("verdict: good", "verdict: wrong")),
    "resnet_on_dla": Lie("bench", lines(r"1\.gpu_freed\.value: .*", "1.gpu_freed.value: 0.2")),
    "profiler_rows_add_up": Lie("bench", lines(r"(0\.profiled_seconds): .*", r"\1: 1.0")),
    "rounds_agree": Lie("bench", more("models.0.accelerators.0.flags.not_steady: 2")),
    "inspector_layer_types": Lie("bench", without(r"1\.built\.layer_types")),
    "inspect_predicts": Lie("inspect", lines("agreed: 50", "agreed: 49")),
    "old_cuda_python": Lie("build_gpu", ended(1)),
    "standalone_int8": Lie("standalone_int8", ended(1)),
    "last_error_cheap": Lie("cudla", lines(r"(\.device_latency.*): .*", r"\1: 0.01")),
    "measuring_cheap": Lie("bench", lines(r"(0\.measuring_share): .*", r"\1: 0.02")),
    "no_gpu_work": Lie("forbid", lines(r"(utilization\.gpu\.value): .*", r"\1: 0.2")),
    "plan_on_both_cores": Lie("bench", lines(r"(2\.built\.build_seconds): .*", r"\1: 9.0")),
    "profiler_rows_grouped": Lie("bench", lines(r"1\.layers\.0\.name: .*", LATE)),
    "log_lists_layers": Lie("trtexec", lines("DlaLayer: .*", "DlaLayer: 0")),
    "inspector_says_dla": Lie("trtexec", lines("LayerType DLA", "LayerType Loadable")),
    "workers_together": Lie(
        "together", lines(r"together\.3\.status: ok", "together.3.status: failed")
    ),
    "powered_time_grows": Lie("load", lines(r"^(after .*): \d+", r"\1: 1200")),
    "dla_used_flag": Lie("load", more("models.0.accelerators.0.flags.dla_not_used: 1")),
    "trace_events": Lie("events", lines("fences=", "gates=")),
    "counter_rate": Lie("timer", lines("31.25", "19.20")),
    "utilization_rate_form": Lie("load", lines(r"(utilization_rate): \S+", r"\1: 0.931")),
    "instance_removed": Lie("trace", lines("after instances: 0", "after instances: 1")),
    "trace_lines": Lie("load", lines("trace unparsed: 0", "trace unparsed: 3")),
    "trace_ids": Lie("load", lines(r"trace after job_id: \d+", "trace after job_id: 0")),
    "trace_process": Lie("load", lines(r"trace process: \d+", "trace process: 0")),
    "no_event_lost": Lie("load", lines("trace lost: 0", "trace lost: 4")),
    "rail_labels": Lie("hwmon", lines("in1_label: VDD_GPU_SOC", "in1_label: VDD_GPU")),
    "ina238_vin": Lie("hwmon", lines(r"curr1_input: \d+", "curr1_input: 236"), "thor"),
    "over_current_readable": Lie("hwmon", lines("name: soctherm_oc", "name: oc")),
    "rail_reading_time": Lie("rail_times", lines(r"(in1_input seconds): .*", r"\1: 9.0")),
    "rails_beside_lines": Lie("rails_beside", lines(r"^seconds: .*", "seconds: 0.0660000")),
    "files_fast": Lie("files_time", lines(r"^seconds: .*", "seconds: 0.0200000")),
    "gpu_clock": Lie("devfreq", lines(r"devfreq/17000000\.\w+", "devfreq/17000000.xxx")),
    "power_mode_status": Lie("nvpmodel", lines("pmode:0001", "pmode:0000")),
    "largest_mode": Lie("nvpmodel", lines("MAX_FREQ 1300000000", "MAX_FREQ 900000000")),
    "sensor_defaults": Lie("hwmon", lines("samples: 1", "samples: 512")),
    "fan_name": Lie("hwmon", lines("name: pwmfan", "name: xxxx")),
    "jetpack_known": Lie("board", lines("jetpack: .*", "jetpack: None")),
    "dla_refused": Lie("build_dla", ended(0), "orin-nano"),
    "doctor_root": Lie("doctor", without("lacks.0")),
    "doctor_names": Lie("doctor", lines("module: .*", "module: None")),
    "fallback_distinguished": Lie("fell_back", ended(0)),
    "qdq_on_dla": Lie("quantised", lines("verdict: good", "verdict: wrong")),
    "subgraph_nodes": Lie("bench", without(r"1\.layers\.\d\.flops")),
    "inspect_parts": Lie("inspect_parts", lines("agreed: 50", "agreed: 48")),
    "lock_in_on_dla": Lie("lock_in", more("models.0.accelerators.1.lock_in.problems.0: trend")),
    "sample_age": Lie("lock_in", lines(r"lag_seconds: .*", "lag_seconds: 0.4")),
    "tensorrt_in_sandbox": Lie("sandbox", lines("0.status: ok", "0.status: failed")),
    "hosts_denied": Lie("sandbox", lines("address: 000", "address: 200")),
    "nvml_in_sandbox": Lie("sandbox", without("doctor.*gives"), "thor"),
    "thor_prints_no_gpu_load": Lie("bench", lines("gpu: nvml", "gpu: tegrastats"), "thor"),
    "power_unit_modes": Lie("modes", lines("answer: ok", "answer: failed")),
    "reboot_mode_refused": Lie("modes", lines("refused in: .*", "refused in: mode 0")),
    "powered_half_second": Lie("powered", lines(r"delay_ms: 500", "delay_ms: 3000")),
    "nvmap_lists_all": Lie("nvmap", lines("clients kB: 1024000", "clients kB: 512000")),
    "gpu_switches": Lie("gpu_trace", lines('"4712"', '"4711"')),
    "reader_unit": Lie("reader", without("hello")),
    "stamps_of_work": Lie("load", lines(r"busy ticks: .*", "busy ticks: 900000000")),
    "cudla_compute_time": Lie("cudla", lines(r"busy ticks: .*", "busy ticks: 900000000")),
    "busy_within_powered": Lie(
        "root_work",
        more("bench.models.0.rounds.0.telemetry.dla_beyond_powered_seconds.0: 0.4"),
    ),
    "foreign_work": Lie("root_work", without("foreign_dla_activity")),
    "window_on_dla": Lie("root_work", without("gross_joules")),
    "firmware_in_key": Lie("root_work", lines("machine_dla_firmware", "machine")),
    "critical_trips": Lie(
        "thermal", lines(r"zone0/(.*)_type: critical", r"zone0/\1_type: passive")
    ),
}

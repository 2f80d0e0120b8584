"""The rows of a benchmark's table: what is known of a model on one accelerator, as text."""

from collections.abc import Callable, Sequence

from ...collectors.worker.outputs import OutputCheck
from ...daemon.measure.dla import POWERED, SOURCES
from ...daemon.measure.report import LockInReport
from ...daemon.measure.run_text import (
    ABOVE,
    ABSENT,
    SHARE_OF_POSSIBLE,
    WHOLE,
    celsius,
    joules,
    mebibytes,
    percent,
    placement_words,
    points,
    possible_words,
    rate,
    seconds,
    shown,
    watts,
    with_half,
)
from ...parsers.values import DLAS, body_device
from .records import AcceleratorResult

_MEASURED = "measured"
_VERDICTS = {
    "good": "right",
    "wrong": "WRONG",
    "unchecked": "not checked",
    "unjudged": "not judged",
    "meaningless": "not meaningful",
    "reference": "the reference",
}
# More data types of layers than these are single layers.
_MOST_TYPES = 3


def rows_of(results: Sequence[AcceleratorResult]) -> dict[str, tuple[str, ...]]:
    """Return label and one cell per accelerator; rows without any known cell are left out."""
    cells_of_all = [accelerator_cells(result) for result in results]
    rows: dict[str, tuple[str, ...]] = {}
    if not cells_of_all:
        return rows
    for label in cells_of_all[0]:
        row = tuple(cells[label] or ABSENT for cells in cells_of_all)
        if set(row) != {ABSENT}:
            rows[label] = row
    if set(rows["status"]) == {_MEASURED}:
        del rows["status"]
    return rows


def accelerator_cells(result: AcceleratorResult) -> dict[str, str]:
    """Return the text of each row in the order of the table; empty or a dash if not known."""
    return {
        "status": _status(result),
        "back-end": result.backend,
        **_speed_cells(result),
        **_energy_cells(result),
        **_load_cells(result),
        **_build_cells(result),
        **_output_cells(result),
        "rounds": str(result.rounds or ""),
        "flags": _flags(result),
    }


def _status(result: AcceleratorResult) -> str:
    return _MEASURED if result.status == "ok" else result.status


# --- speed and energy -----------------------------------------------------------------------------


def _speed_cells(result: AcceleratorResult) -> dict[str, str]:
    latency = result.latency
    return {
        "latency p50": with_half(result.latency_seconds, seconds),
        "latency p90": shown(latency, lambda times: seconds(times.p90_seconds)),
        "latency p99": shown(latency, lambda times: seconds(times.p99_seconds)),
        "latency max": shown(latency, lambda times: seconds(times.max_seconds)),
        "device span p50": shown(result.device_latency, lambda span: seconds(span.p50_seconds)),
        "  body p50": shown(result.stages.get("body"), lambda span: seconds(span.p50_seconds)),
        "  head p50": shown(result.stages.get("head"), lambda span: seconds(span.p50_seconds)),
        "throughput": with_half(result.throughput_per_second, rate),
        SHARE_OF_POSSIBLE: "" if result.possible is None else possible_words(result.possible),
    }


def _energy_cells(result: AcceleratorResult) -> dict[str, str]:
    stages = []
    for stage, report in result.lock_in_stages.items():
        stages.append(f"{stage} {_saturated(report)}")
    return {
        f"energy per inference, gross {WHOLE}": with_half(
            result.gross_joules_per_inference, joules
        ),
        "  the same by its own counter": with_half(result.counter_joules_per_inference, joules),
        f"energy per inference, net {ABOVE}": with_half(result.net_joules_per_inference, joules),
        "energy per inference, saturated": shown(result.lock_in, _saturated),
        "  its stages, alone": "\n".join(stages),
        "module power": with_half(result.mean_watts, watts),
    }


def _saturated(report: LockInReport) -> str:
    """Return the mean energy in saturated operation, by lock-in, or the reason without one."""
    if report.joules_per_piece is None:
        return "withheld: " + (report.reason or ", ".join(report.problems))
    return with_half(report.joules_per_piece, joules)


# --- load -----------------------------------------------------------------------------------------


def _load_cells(result: AcceleratorResult) -> dict[str, str]:
    hottest = ""
    if result.hottest_celsius is not None:
        hottest = f"{celsius(result.hottest_celsius)} {result.hottest_zone}"
    return {
        "GPU load": _load(result, "gpu"),
        "GPU freed": shown(result.gpu_freed, lambda freed: points(freed.value)),
        "DLA load": _dla(result),
        "memory load (EMC)": _load(result, "emc"),
        "CPU load": _load(result, "cpu"),
        "hottest": hottest,
    }


def _load(result: AcceleratorResult, signal: str) -> str:
    return shown(result.utilization.get(signal), lambda load: percent(load.value))


def _dla(result: AcceleratorResult) -> str:
    """Return each core's load by its most reliable source, else the share of time it was on."""
    device = body_device(result.device)
    is_dla = device in DLAS
    loads: dict[str, str] = {}
    # The most reliable source comes last and takes the place of the others.
    for source in reversed(SOURCES):
        for name, ratio in result.utilization.items():
            core, _, name_of_source = name.partition(":")
            if name_of_source == source and (core == device or not is_dla):
                loads[core] = f"{core} {percent(ratio.value)}"
    if loads or not is_dla:
        return ", ".join(loads[core] for core in sorted(loads))
    gate = result.dla_active.get(device)
    if gate is not None:
        return f"on {percent(gate)} of the time"
    powered = result.utilization.get(f"{device}:{POWERED}")
    if powered is not None:
        return f"powered {percent(powered.value)} of the time"
    return ""


# --- build and worker -----------------------------------------------------------------------------


def _build_cells(result: AcceleratorResult) -> dict[str, str]:
    return {
        "placement": placement_words(result.placement) if result.placement else "",
        "  layers by place": _layers(result),
        "built as": _precision(result),
        "launched": _launched(result),
        "cold start": _cold_start(result),
        "memory of the worker": shown(result.process_peak_bytes, mebibytes),
        "memory of the device": shown(result.device_peak_bytes, mebibytes),
    }


def _layers(result: AcceleratorResult) -> str:
    """Return how many layers run where."""
    if result.built is None or result.built.placement.verdict == "unknown":
        return ""
    placement = result.built.placement
    layers = {
        "DLA": placement.dla_layers,
        "GPU": placement.gpu_layers,
        "reformat on the GPU": placement.reformat_layers,
    }
    return ", ".join(f"{where} {len(names)}" for where, names in layers.items() if names)


def _precision(result: AcceleratorResult) -> str:
    """Return the data types of most layers, and the one that was asked for."""
    if result.built is None:
        return ""
    by_count = sorted(result.built.layer_types.items(), key=lambda entry: -entry[1])
    built = ", ".join(f"{name} {count}" for name, count in by_count[:_MOST_TYPES])
    asked = result.built.requested_precision
    if asked is None:
        return built
    if not built:
        return f"{asked} asked"
    return f"{built} ({asked} asked)"


def _launched(result: AcceleratorResult) -> str:
    """Return how an inference is started: the same engine is faster in one way than in another."""
    built = result.built
    if built is None or built.has_cuda_graph is None:
        return ""
    way = "CUDA graph" if built.has_cuda_graph else "layer by layer"
    if built.memory not in (None, "copy"):
        return f"{way}, {built.memory} memory"
    copies = {None: "", True: ", with copies", False: ", without copies"}
    return way + copies[built.has_transfers]


def _cold_start(result: AcceleratorResult) -> str:
    parts = result.cold_start_seconds
    if not parts:
        return ""
    words = seconds(sum(parts.values()))
    if "build" in parts:
        words += f", build {seconds(parts['build'])}"
    return words


# --- outputs --------------------------------------------------------------------------------------


def _output_cells(result: AcceleratorResult) -> dict[str, str]:
    outputs = result.outputs
    return {
        "outputs": shown(outputs, _verdict),
        "  mAP 0.5:0.95, or mIoU": shown(outputs, _task_score),
        "  mAP 0.5": shown(outputs, _map50),
        "  worst channel": shown(outputs, _worst_channel),
        "  relative error": _relative_error(result),
        "  top-1 of the labels": _accuracy(result, "top1", percent),
        "    of the reference": _accuracy(result, "reference_top1", percent),
        "    largest loss that is right": _accuracy(result, "tolerance", points),
        "  top-5 of the labels": _accuracy(result, "top5", percent),
        "  same top class": shown(outputs, lambda check: shown(check.top1_agreement, percent)),
    }


def _verdict(check: OutputCheck) -> str:
    """Return the verdict; a result with channels that are not judged is not plainly right."""
    words = _VERDICTS[check.verdict]
    if check.verdict == "good" and check.unjudged and check.channels is not None:
        words += f", {check.unjudged} of {check.channels.channels} channels not judged"
    return words


def _task_score(check: OutputCheck) -> str:
    """Return the score of the task, out of 100 as is usual, beside that of the reference."""
    score = check.task
    if score is None:
        return ""
    return _beside(score.score, score.reference)


def _map50(check: OutputCheck) -> str:
    score = check.task
    if score is None or score.map50 is None:
        return ""
    return _beside(score.map50, score.reference_map50)


def _beside(score: float, reference: float | None) -> str:
    if reference is None:
        return f"{100 * score:.1f} (agreement with fp32)"
    return f"{100 * score:.1f} (fp32 {100 * reference:.1f})"


def _worst_channel(check: OutputCheck) -> str:
    """Return the largest error of a channel, as a share of its spread over the inputs."""
    channels = check.channels
    if channels is None or channels.worst_error is None:
        return ""
    words = f"off by {percent(channels.worst_error)} of its spread"
    if channels.wrong:
        words += f", {channels.wrong} of {channels.judged} wrong"
    return words


def _accuracy(result: AcceleratorResult, name: str, show: Callable[[float], str]) -> str:
    """Return a figure of the labelled inputs."""
    if result.outputs is None or result.outputs.accuracy is None:
        return ""
    value: float | None = getattr(result.outputs.accuracy, name)
    return shown(value, show)


def _relative_error(result: AcceleratorResult) -> str:
    outputs = result.outputs
    if outputs is None or outputs.relative_error is None:
        return ""
    words = f"{outputs.relative_error:.2g}"
    if outputs.limit is not None:
        words += f" (limit {outputs.limit})"
    return words


def _flags(result: AcceleratorResult) -> str:
    """Return the flags, with the number of rounds that have one if it is not in all."""
    names = []
    for flag, count in result.flags.items():
        if count < result.rounds:
            names.append(f"{flag} ({count}/{result.rounds})")
        else:
            names.append(flag)
    if names:
        return "\n".join(names)
    return "none" if result.rounds else ""

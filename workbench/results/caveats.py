"""Caveats about figures: one sentence each, with its number and a remedy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...daemon.measure.quality import CLOCK_RATIO
from ...daemon.measure.report import Environment
from ...daemon.measure.run_text import celsius, percent, seconds
from ...parsers.errors import PIP_INSTALL
from ...parsers.inference.events import StageName
from ...parsers.nvpmodel import PowerMode
from ...parsers.values import DLAS, some_of
from .records import AcceleratorResult, Caveat

# The four of trtexec, by its own limits where there are any.
HOST_SHARE = 0.2
TRANSFER_SHARE = 1.0
DEVICE_VARIATION, HOST_VARIATION = 0.01, 0.1
BUSY_CPU, BUSY_GPU = 0.15, 0.05
# A 99th percentile has at least ten inferences beyond it.
FEW_INFERENCES = 1000
# A DLA that leaves more than this of the GPU busy is not worth its price.
GPU_SHARE = 0.2
# From here on boards slow themselves down, by their trip points.
HOT_CELSIUS = 85.0
# Above this share of layers in floating point, int8 has little to gain.
WIDE_SHARE = 0.1
INT8_REMEDY = "run it in fp16, or give the tensors of these layers a scale and an int8 form"

# Words and stages of the copies of an inference.
_COPIES: tuple[tuple[str, StageName], ...] = (("inputs", "h2d"), ("outputs", "d2h"))
# A copy of a few bytes takes some microseconds; below this, smaller types gain nothing.
COPY_CALL_SECONDS = 10e-6
_LOCK, _QUIET = "lock the clocks (jetson_clocks, nvidia-smi -lgc)", "stop other programs"
_LOCK_BOARD, _LOCK_GPU = "lock the clocks (jetson_clocks)", "lock the clocks (nvidia-smi -lgc)"

# Sentence, with places for its numbers, and remedy.
CAVEATS: Mapping[str, tuple[str, str]] = {
    "host_bound": (
        "the device works {} of the {} of an inference; {} are the host's",
        "use a larger --batch or a CUDA graph: both give the device more work per call",
    ),
    "transfer_bound": (
        "copying {} takes {}, computing {}",
        "use fp16 or int8 inputs and outputs, pre-process on the device, or see whether"
        " --sweep memory=copy,mapped avoids it",
    ),
    "unstable": (
        "{} per inference varies by {} of its mean, more than {}",
        f"{_LOCK}, and {_QUIET}",
    ),
    "several_streams": (
        "{} inferences were in flight at once, so the latency of one includes time of the others",
        "compare throughput, or measure latency with one stream",
    ),
    "clocks_moved": ("the {} clock ranged from {:.0f} to {:.0f} MHz", _LOCK),
    "hot": (
        "the {} clock ranged from {:.0f} to {:.0f} MHz, with {} at {}",
        "cool it, or choose a power mode that it can hold, and run the benchmark again",
    ),
    "busy_gpu": (
        "the GPU is {} busy while the DLA works",
        "check the placement; with --fallback forbid the build names the layers on the GPU",
    ),
    "few_inferences": (
        "{} inferences are too few for a 99th percentile",
        "use a longer --duration",
    ),
    "int8_partial": (
        "{} of {} layers stay in floating point, not in int8: {}",
        "bench it with --precision fp16 too: tegrascope advise names the faster, and why",
    ),
    "unsettled": (
        "rate, latency, a clock or a temperature still changed at the end of {}",
        "a longer --duration lets a round settle; agreement of the rounds matters more",
    ),
    "not_steady": (
        "rates, medians or temperatures of the last rounds differ, and waiting did not help",
        f"{_LOCK}, {_QUIET}, or allow more --rounds",
    ),
    "wrong_outputs": (
        "its outputs are wrong, so its speed means nothing: {reason}",
        "try --precision fp32; for int8, calibrate",
    ),
    "unchecked_outputs": (
        "its outputs were not checked: {reason}",
        "the reference needs ONNX Runtime, with all operators of the model:"
        f" {PIP_INSTALL} onnxruntime",
    ),
    "unjudged_outputs": (
        "of its outputs {unjudged} were not judged: they hardly vary over the inputs, so an error"
        " would not be seen",
        "give --inputs DATA of the kind that the model was made for",
    ),
    "meaningless_outputs": (
        "its outputs mean nothing, because {reason}; its speed is meaningful",
        "calibrate the model or give a quantised one, and compare its outputs then",
    ),
}
# What to do about a flag of the runs; its meaning is that of the status page.
_REMEDIES: Mapping[str, str] = {
    "throttled": "cool it, or choose a power mode that it can hold, and run the benchmark again",
    "aliased": "use another telemetry.interval, or another --batch",
    "late_samples": "stop programs that keep the CPU busy, and put no buffer behind tegrastats",
    "telemetry_gap": "stop other programs that keep the CPU busy, and run one tegrastats only",
    "insufficient_samples": "use a longer --duration",
    "baseline_drift": f"{_QUIET}, and use longer idle phases with --baseline",
    "clock_step": "run the benchmark after the clock is synchronised",
    "suspended": "keep it awake, and run the benchmark again",
    "dla_not_used": "check the placement, and use --fallback forbid",
    "foreign_dla_activity": "stop it, and run the benchmark again",
    "fallback": "check the placement; with --fallback forbid the build names them",
    "outputs_changed": "engines build --again; if it comes back, suspect clocks, memory or a data"
    " race of a plug-in",
    "above_bound": "check that the engine computes in the type that it was asked for",
    "overlapped": "run the benchmark alone",
    "baseline_disturbed": "stop the other programs, and run the benchmark alone",
    "sensor_suspect": "do not trust the readings of power; the report says why, and where there is"
    " an energy counter, it is used",
    "measuring_overhead": "use a larger --batch, or --streams: throughput and energy of a bare loop"
    " are better",
}


def int8_slower(int8: AcceleratorResult, fp16: AcceleratorResult) -> tuple[str, str] | None:
    """Return why a model is slower in int8 than in fp16 on one device, and a remedy.

    Return ``None`` where it is not slower. Layers are named by the inspector of both engines.
    """
    slow, fast = int8.latency_seconds, fp16.latency_seconds
    if slow is None or fast is None or slow.value <= fast.value:
        return None
    words = [
        f"int8 takes {seconds(slow.value)}, fp16 {seconds(fast.value)}:"
        f" {percent(slow.value / fast.value - 1)} more"
    ]
    if int8.built is not None and fp16.built is not None:
        wide, reformats = int8.built.wide_layers, int8.built.placement.reformat_layers
        added = [one for one in reformats if one not in fp16.built.placement.reformat_layers]
        if wide:
            words.append(f"{len(wide)} layers stay in floating point ({some_of(wide)})")
        if added:
            words.append(f"{len(added)} layers that only reformat are added ({some_of(added)})")
        if not wide and not added and int8.built.layer_types:
            words.append("no layer stays in floating point and no reformat is added")
    return "; ".join(words), INT8_REMEDY


def caveats_of(
    results: Sequence[AcceleratorResult], environment: Environment | None = None
) -> tuple[Caveat, ...]:
    """Return the caveats about a model's results, in their order.

    ``environment`` is that of their runs, by which remedies are those of a board or of a server.
    """
    lock = _lock_words(environment)
    caveats = []
    for result in results:
        if not result.rounds:
            continue
        for found in _found(result):
            sentence, remedy = _words(result, found)
            if found.name == "unstable" and result.device == "cpu":
                remedy = _QUIET
            remedy = remedy.replace(_LOCK, lock)
            caveat = Caveat(name=found.name, device=result.device, sentence=sentence, remedy=remedy)
            caveats.append(caveat)
    return tuple(caveats)


class _Found(NamedTuple):
    """A caveat, and what stands in its sentence."""

    name: str
    numbers: tuple[object, ...]


def _words(result: AcceleratorResult, found: _Found) -> tuple[str, str]:
    """Return the sentence and the remedy of a caveat."""
    if found.name in CAVEATS:
        sentence, remedy = CAVEATS[found.name]
        reason, unjudged = None, ""
        if result.outputs is not None:
            reason = result.outputs.reason
            if result.outputs.channels is not None:
                unjudged = result.outputs.channels.words
        reason = reason or "the reason is not known"
        words = sentence.format(*found.numbers, reason=reason, unjudged=unjudged)
        return words, remedy
    meaning = explain_flag(found.name, result.foreign_dla_processes)
    return f"in {found.numbers[0]}: {meaning}", _REMEDIES[found.name]


def _lock_words(environment: Environment | None) -> str:
    """Return how clocks are locked on the machine; both ways if its kind is not known."""
    if environment is None:
        return _LOCK
    # Only NVML has them, which is not read alone on a board.
    if environment.gpu_uuid is not None or environment.power_reading is not None:
        return _LOCK_GPU
    if environment.l4t is not None or environment.module is not None:
        return _LOCK_BOARD
    return _LOCK


# A long run itself says whether it settled, and more rounds are no remedy.
_OF_ROUNDS = ("unsettled", "not_steady")


def _found(result: AcceleratorResult) -> Iterator[_Found]:
    """Yield the caveats of a result, in their order."""
    yield from _of_stages(result)
    yield from _of_variation(result)
    yield from _of_build(result)
    yield from _of_clocks(result)
    yield from _of_gpu(result)
    count = 0 if result.latency is None else result.latency.count
    if count < FEW_INFERENCES:
        yield _Found("few_inferences", (count,))
    for name, rounds in (("unsettled", result.unsettled_rounds), *result.flags.items()):
        if not rounds or (name not in CAVEATS and name not in _REMEDIES):
            continue
        if result.sustained is not None and name in _OF_ROUNDS:
            continue
        words = f"{rounds} of {result.rounds} rounds"
        if rounds >= result.rounds:
            words = "every round"
        yield _Found(name, (words,))


def _of_stages(result: AcceleratorResult) -> Iterator[_Found]:
    """Yield where the time of an inference goes, if not into computing."""
    whole, device = result.latency, result.device_latency
    if whole is not None and device is not None and whole.p50_seconds > 0:
        share = 1 - device.p50_seconds / whole.p50_seconds
        if share > HOST_SHARE:
            spans = (seconds(device.p50_seconds), seconds(whole.p50_seconds))
            yield _Found("host_bound", (*spans, percent(share)))
    compute = result.stages.get("compute")
    if compute is None:
        return
    for words, stage in _COPIES:
        copy = result.stages.get(stage)
        if copy is None or copy.p50_seconds <= COPY_CALL_SECONDS:
            continue
        if 0 < TRANSFER_SHARE * compute.p50_seconds <= copy.p50_seconds:
            spans = (seconds(copy.p50_seconds), seconds(compute.p50_seconds))
            yield _Found("transfer_bound", (words, *spans))


def _of_variation(result: AcceleratorResult) -> Iterator[_Found]:
    """Yield that inferences differ more from each other than they should."""
    limit, timed = DEVICE_VARIATION, "the device's time"
    if result.device_latency is None:
        # The host's clock sees more than the device does.
        limit, timed = HOST_VARIATION, "the time"
    variation = result.variation or 0.0
    # A share that is printed as the limit itself is not shown as more than it.
    if variation > limit and percent(variation) != percent(limit):
        yield _Found("unstable", (timed, percent(variation), percent(limit)))


def _of_build(result: AcceleratorResult) -> Iterator[_Found]:
    """Yield what the engine is, beyond what was asked for."""
    built = result.built
    if built is None:
        return
    if built.streams > 1:
        yield _Found("several_streams", (built.streams,))
    wide, placement = built.wide_layers, built.placement
    layers = max(len(placement.gpu_layers) + len(placement.dla_layers), len(wide))
    if len(wide) > WIDE_SHARE * layers:
        yield _Found("int8_partial", (len(wide), layers, some_of(wide)))


def _of_clocks(result: AcceleratorResult) -> Iterator[_Found]:
    """Yield clocks that moved, and heat as the reason where it is one."""
    if result.device == "cpu":
        names: tuple[str, ...] = ("emc",)
    else:
        names = ("emc", result.device)
    for name in names:
        clock = result.clocks.get(name)
        if clock is None or clock.highest_hertz <= CLOCK_RATIO * clock.lowest_hertz:
            continue
        moved = (name, clock.lowest_hertz / 1e6, clock.highest_hertz / 1e6)
        celsius_then = result.hottest_celsius or 0.0
        if name == result.device and celsius_then >= HOT_CELSIUS:
            yield _Found("hot", (*moved, result.hottest_zone, celsius(celsius_then)))
        else:
            yield _Found("clocks_moved", moved)


def _of_gpu(result: AcceleratorResult) -> Iterator[_Found]:
    """Yield that a model on a DLA keeps the GPU busy, where no flag says so already."""
    load = result.utilization.get("gpu")
    if load is None or result.device not in DLAS or "fallback" in result.flags:
        return
    if load.value > GPU_SHARE:
        yield _Found("busy_gpu", (percent(load.value),))


def caveats_of_machine(
    background: Mapping[str, float], environment: Environment, largest: PowerMode | None = None
) -> tuple[Caveat, ...]:
    """Return the caveats about the machine.

    ``background`` is the load before the benchmark, ``largest`` the board's largest power mode.
    """
    caveats = []
    # A simulated board does not feel the load of this machine.
    limits = {} if environment.simulated else {"cpu": BUSY_CPU, "gpu": BUSY_GPU}
    for name, limit in limits.items():
        busy = background.get(name, 0.0)
        if busy > limit:
            sentence = f"the {name.upper()} was {percent(busy)} busy before the benchmark began"
            remedy = f"{_QUIET}, and run the benchmark again"
            caveats.append(Caveat(name="background_load", sentence=sentence, remedy=remedy))
    # For a discrete GPU the power mode is its power limit, which nvpmodel does not know.
    mode = None if environment.gpu_uuid is not None else environment.power_mode
    if mode is not None and largest is not None and mode != largest.name:
        select = f"sudo nvpmodel -m {largest.number} selects {largest.name}"
        sentence = f"the power mode is {mode}, not the largest"
        remedy = f"figures are valid for this mode; {select}"
        caveats.append(Caveat(name="power_mode", sentence=sentence, remedy=remedy))
    return tuple(caveats)


@cache
def _meanings() -> dict[str, str]:
    path = Path(__file__).parents[2] / "daemon/web/page/flags.json"
    meanings: dict[str, str] = json.loads(path.read_bytes())
    return meanings


def explain_flag(flag: str, processes: Sequence[str] = ()) -> str:
    """Return the meaning of a flag of a run; ``processes`` used a DLA meanwhile."""
    meaning = _meanings()[flag].removesuffix(".")
    who = f" ({some_of(processes)})" if flag == "foreign_dla_activity" and processes else ""
    return f"{meaning[0].lower()}{meaning[1:]}{who}"

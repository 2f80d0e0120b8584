"""Caveats about figures: one sentence each, with its number and a remedy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ..measure.run_report import Environment
from ..measure.steadiness import CLOCK_RATIO
from ..terminal.numbers import percent, seconds
from .records import AcceleratorResult, BenchFlag, Caveat

# The four of trtexec, by its own limits where there are any.
HOST_SHARE = 0.2
TRANSFER_SHARE = 1.0
DEVICE_VARIATION, HOST_VARIATION = 0.01, 0.1
BUSY_CPU, BUSY_GPU = 0.15, 0.05
# A 99th percentile has at least ten inferences beyond it.
FEW_INFERENCES = 1000

_LOCK, _QUIET = "lock the clocks (jetson_clocks, nvidia-smi -lgc)", "stop other programs"

# Name, sentence and remedy.
_Found: TypeAlias = Iterator[tuple[str, str, str]]

_OF_FLAGS: Mapping[BenchFlag, tuple[str, str]] = {
    "throttled": (
        "the board throttled in {}",
        "cool it, or choose a power mode that it can hold, and run the benchmark again",
    ),
    "not_steady": (
        "rates, medians or temperatures of the last rounds differ, and waiting did not help",
        f"{_LOCK}, {_QUIET}, or allow more --rounds",
    ),
    "aliased": (
        "sampling kept step with the inferences in {}, so energy is withheld",
        "use another telemetry.interval, or another --batch",
    ),
    "telemetry_gap": (
        "samples are missing in {}",
        "stop other programs that keep the CPU busy, and run one tegrastats only",
    ),
    "insufficient_samples": (
        "{} had fewer than 10 s, 100 samples or 200 inferences, so energy is withheld",
        "use a longer --duration",
    ),
    "baseline_drift": (
        "idle power before and after differed in {}, which makes the net energy less certain",
        f"{_QUIET}, and use longer idle phases with --baseline",
    ),
    "clock_step": (
        "the wall clock was set in {}; figures are correct, times of day are not",
        "run the benchmark after the clock is synchronised",
    ),
    "suspended": (
        "the machine was suspended in {}",
        "keep it awake, and run the benchmark again",
    ),
    "dla_not_used": (
        "nothing shows that the DLA worked in {}",
        "check the placement, and use --fallback forbid",
    ),
    "foreign_dla_activity": (
        "another program used the DLA in {}",
        "stop it, and run the benchmark again",
    ),
    "fallback": (
        "layers fell back to the GPU in {}",
        "check the placement; with --fallback forbid the build names them",
    ),
    "wrong_outputs": (
        "its outputs are wrong, so its speed means nothing: {reason}",
        "try --precision fp32; for int8, calibrate",
    ),
    "unchecked_outputs": (
        "its outputs were not checked: {reason}",
        "install ONNX Runtime: pip install 'tegrascope[onnx]'",
    ),
    "overlapped": ("another run drew from the same rails in {}", "run the benchmark alone"),
}


def caveats_of(results: Sequence[AcceleratorResult]) -> tuple[Caveat, ...]:
    """Return the caveats about a model's results, in their order."""
    return tuple(
        Caveat(name=name, device=result.device, sentence=sentence, remedy=remedy)
        for result in results
        if result.rounds
        for look in _LOOKS
        for name, sentence, remedy in look(result)
    )


def caveats_of_machine(
    background: Mapping[str, float], environment: Environment
) -> tuple[Caveat, ...]:
    """Return the caveats about the machine.

    Args:
        background: Load before the benchmark started anything.
        environment: The machine.
    """
    found = [
        (
            "background_load",
            f"the {name.upper()} was {percent(background[name])} busy before the benchmark began",
            f"{_QUIET}, and run the benchmark again",
        )
        for name, limit in (("cpu", BUSY_CPU), ("gpu", BUSY_GPU))
        if background.get(name, 0.0) > limit
    ]
    # For a discrete GPU the power mode is its power limit, which nvpmodel does not know.
    mode = None if environment.gpu_uuid is not None else environment.power_mode
    if mode is not None and not mode.upper().startswith("MAXN"):
        found.append(
            (
                "power_mode",
                f"the power mode is {mode}, not the largest",
                "figures are valid for this mode; sudo nvpmodel -m 0 selects the largest",
            )
        )
    return tuple(Caveat(name=name, sentence=said, remedy=remedy) for name, said, remedy in found)


def _host_bound(result: AcceleratorResult) -> _Found:
    whole, device = result.latency, result.device_latency
    if whole is None or device is None or whole.p50_seconds <= 0:
        return
    share = 1 - device.p50_seconds / whole.p50_seconds
    if share > HOST_SHARE:
        yield (
            "host_bound",
            f"the device works {seconds(device.p50_seconds)} of the {seconds(whole.p50_seconds)}"
            f" of an inference; {percent(share)} are the host's",
            "use a larger --batch or a CUDA graph: both give the device more work per call",
        )


def _transfer_bound(result: AcceleratorResult) -> _Found:
    compute = result.stages.get("compute")
    copies = (("inputs", result.stages.get("h2d")), ("outputs", result.stages.get("d2h")))
    for words, copy in copies:
        if copy is None or compute is None or compute.p50_seconds <= 0:
            continue
        if copy.p50_seconds >= TRANSFER_SHARE * compute.p50_seconds:
            yield (
                "transfer_bound",
                f"copying {words} takes {seconds(copy.p50_seconds)}, computing"
                f" {seconds(compute.p50_seconds)}",
                "use fp16 or int8 inputs and outputs, or pre-process on the device",
            )


def _unstable(result: AcceleratorResult) -> _Found:
    on_device = result.device_latency is not None
    limit = DEVICE_VARIATION if on_device else HOST_VARIATION
    if result.variation is not None and result.variation > limit:
        whose = "the device's time" if on_device else "the time"
        yield (
            "unstable",
            f"{whose} per inference varies by {percent(result.variation)} of its mean,"
            f" more than {percent(limit)}",
            _QUIET if result.device == "cpu" else f"{_LOCK}, and {_QUIET}",
        )


def _several_streams(result: AcceleratorResult) -> _Found:
    if result.built is not None and result.built.streams > 1:
        yield (
            "several_streams",
            f"{result.built.streams} inferences were in flight at once, so the latency of one"
            " includes time of the others",
            "compare throughput, or measure latency with one stream",
        )


def _clocks_moved(result: AcceleratorResult) -> _Found:
    for name in ("emc", result.device):
        clock = result.clocks.get(name)
        if clock is None or name == "cpu":
            continue
        if clock.highest_hertz > CLOCK_RATIO * clock.lowest_hertz:
            low, high = (hertz / 1e6 for hertz in (clock.lowest_hertz, clock.highest_hertz))
            yield (
                "clocks_moved",
                f"the {name} clock ranged from {low:.0f} to {high:.0f} MHz",
                _LOCK,
            )


def _few(result: AcceleratorResult) -> _Found:
    count = result.latency.count if result.latency is not None else 0
    if count < FEW_INFERENCES:
        yield (
            "few_inferences",
            f"{count} inferences are too few for a 99th percentile",
            "use a longer --duration",
        )


def _unsettled(result: AcceleratorResult) -> _Found:
    if result.unsettled_rounds:
        yield (
            "unsettled",
            "rate, latency, a clock or a temperature still changed at the end of"
            f" {_rounds(result.unsettled_rounds, result)}",
            "a longer --duration lets a round settle; agreement of the rounds matters more",
        )


def _flags(result: AcceleratorResult) -> _Found:
    reason = (result.outputs.reason if result.outputs else None) or "the reason is not known"
    for flag, count in result.flags.items():
        if flag in _OF_FLAGS:
            words, remedy = _OF_FLAGS[flag]
            yield flag, words.format(_rounds(count, result), reason=reason), remedy


def explain_flag(flag: BenchFlag) -> str | None:
    """Return the meaning of a flag of a single run."""
    if flag == "not_steady":
        return "rate, latency, a clock or a temperature still changed at the end of the run"
    return _OF_FLAGS[flag][0].format("the run") if flag in _OF_FLAGS else None


def _rounds(count: int, result: AcceleratorResult) -> str:
    return f"{count} of {result.rounds} rounds" if count < result.rounds else "every round"


_LOOKS = (
    _host_bound,
    _transfer_bound,
    _unstable,
    _several_streams,
    _clocks_moved,
    _few,
    _unsettled,
    _flags,
)

"""What a reader of the figures should know: each check is one sentence with its number."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ..measure.run_report import Environment
from ..measure.steadiness import CLOCK_RATIO
from .measured import BenchFlag
from .result import AcceleratorResult, Check
from .words import percent, seconds

# The four of trtexec, by its own limits where there are any.
HOST_SHARE = 0.2
TRANSFER_SHARE = 1.0
DEVICE_VARIATION, HOST_VARIATION = 0.01, 0.1
BUSY_CPU, BUSY_GPU = 0.15, 0.05
# A 99th percentile has at least ten inferences beyond it.
FEW_INFERENCES = 1000

_LOCK, _QUIET = "lock the clocks (jetson_clocks, nvidia-smi -lgc)", "stop what else runs"

_Found: TypeAlias = Iterator[Check]

_OF_FLAGS: Mapping[BenchFlag, tuple[str, str]] = {
    "throttled": (
        "the board throttled in {}",
        "cool it, or choose a power mode that it can hold, and bench again",
    ),
    "not_steady": (
        "rates, medians or temperatures of the last rounds differ, and waiting did not help",
        f"{_LOCK}, {_QUIET}, or give it more --rounds to settle",
    ),
    "aliased": (
        "sampling kept step with the inferences in {}, so energy is withheld",
        "take another telemetry.interval, or another --batch",
    ),
    "telemetry_gap": (
        "samples are missing in {}",
        "see that nothing else keeps the CPU busy, and that one tegrastats runs, not several",
    ),
    "insufficient_samples": (
        "{} had fewer than 10 s, 100 samples or 200 inferences, so energy is withheld",
        "give a longer --duration",
    ),
    "baseline_drift": (
        "idle power before and after differed in {}, which the net energy suffers",
        "see that nothing else runs, and give it longer idle phases with --baseline",
    ),
    "clock_step": (
        "the wall clock was set in {}; figures are unharmed, times of day are not",
        "bench after the clock is synchronised",
    ),
    "suspended": ("the machine slept in {}", "keep it awake, and bench again"),
    "dla_not_used": (
        "nothing shows that the DLA worked in {}",
        "look at the placement, and ask for --fallback forbid",
    ),
    "foreign_dla_activity": (
        "someone else used the DLA in {}",
        "stop what else uses it, and bench again",
    ),
    "fallback": (
        "layers fell back to the GPU in {}",
        "look at the placement; --fallback forbid has the build name them",
    ),
    "wrong_outputs": (
        "its answers are wrong, so its speed means nothing: {reason}",
        "try --precision fp32; for int8, calibrate",
    ),
    "unchecked_outputs": (
        "its answers were not checked: {reason}",
        "have ONNX Runtime at hand: pip install 'tegrascope[onnx]'",
    ),
    "overlapped": ("another run drew from the same rails in {}", "bench alone"),
}


def check_all(results: Sequence[AcceleratorResult]) -> tuple[Check, ...]:
    """Return what is to be known of a model's results, in their order."""
    return tuple(found for result in results if result.rounds for found in _of_one(result))


def _of_one(result: AcceleratorResult) -> _Found:
    for look in _LOOKS:
        yield from look(result)


def _host_bound(result: AcceleratorResult) -> _Found:
    """The device waits for the host: a good part of an inference is none of its work."""
    whole, device = result.latency, result.device_latency
    if whole is None or device is None or whole.p50_seconds <= 0:
        return
    share = 1 - device.p50_seconds / whole.p50_seconds
    if share > HOST_SHARE:
        yield Check(
            name="host_bound",
            device=result.device,
            sentence=(
                f"the device works {seconds(device.p50_seconds)} of the"
                f" {seconds(whole.p50_seconds)} of an inference; {percent(share)} are the host's"
            ),
            mend="a larger --batch gives the device more to do by call; so does a CUDA graph",
        )


def _transfer_bound(result: AcceleratorResult) -> _Found:
    """Copying takes as long as computing."""
    compute = result.stages.get("compute")
    copies = (("inputs", result.stages.get("h2d")), ("outputs", result.stages.get("d2h")))
    for words, copy in copies:
        if copy is None or compute is None or compute.p50_seconds <= 0:
            continue
        if copy.p50_seconds >= TRANSFER_SHARE * compute.p50_seconds:
            yield Check(
                name="transfer_bound",
                device=result.device,
                sentence=(
                    f"copying {words} takes {seconds(copy.p50_seconds)}, computing"
                    f" {seconds(compute.p50_seconds)}"
                ),
                mend="let inputs and outputs be fp16 or int8, or pre-process on the device",
            )


def _unstable(result: AcceleratorResult) -> _Found:
    """The time of an inference scatters more than locked clocks would have it."""
    on_device = result.device_latency is not None
    limit = DEVICE_VARIATION if on_device else HOST_VARIATION
    if result.variation is not None and result.variation > limit:
        whose = "the device's time" if on_device else "the time"
        yield Check(
            name="unstable",
            device=result.device,
            sentence=(
                f"{whose} of an inference scatters by {percent(result.variation)} of its mean,"
                f" more than {percent(limit)}"
            ),
            mend=_QUIET if result.device == "cpu" else f"{_LOCK}, and {_QUIET}",
        )


def _several_streams(result: AcceleratorResult) -> _Found:
    """Several inferences are in flight, and each waits for the others."""
    if result.built is not None and result.built.streams > 1:
        yield Check(
            name="several_streams",
            device=result.device,
            sentence=(
                f"{result.built.streams} inferences were in flight at once, so the latency of one"
                " holds time of the others"
            ),
            mend="compare throughput, or measure latency with one stream",
        )


def _few(result: AcceleratorResult) -> _Found:
    """A percentile rests on few inferences."""
    count = result.latency.count if result.latency is not None else 0
    if count < FEW_INFERENCES:
        yield Check(
            name="few_inferences",
            device=result.device,
            sentence=f"{count} inferences are too few to tell the slowest hundredth of them",
            mend="give a longer --duration",
        )


def _unsettled(result: AcceleratorResult) -> _Found:
    """Something still moved at the end of a round, though rounds may agree."""
    if result.unsettled_rounds:
        yield Check(
            name="unsettled",
            device=result.device,
            sentence=(
                f"rate, latency, a clock or a temperature still moved at the end of"
                f" {_rounds(result.unsettled_rounds, result)}"
            ),
            mend="a longer --duration lets a round settle; that rounds agree weighs more",
        )


def _rounds(count: int, result: AcceleratorResult) -> str:
    return f"{count} of {result.rounds} rounds" if count < result.rounds else "every round"


def _flags(result: AcceleratorResult) -> _Found:
    for flag, count in result.flags.items():
        if flag not in _OF_FLAGS:
            continue
        said, mend = _OF_FLAGS[flag]
        reason = (result.outputs.reason if result.outputs else None) or "not known why"
        sentence = said.format(_rounds(count, result), reason=reason)
        yield Check(name=flag, device=result.device, sentence=sentence, mend=mend)


def _clocks_moved(result: AcceleratorResult) -> _Found:
    """Its own clock or the memory's was not the same all the time, in a round or among them."""
    for name in ("emc", result.device):
        clock = result.clocks.get(name)
        if clock is None or name == "cpu":
            continue
        if clock.highest_hertz > CLOCK_RATIO * clock.lowest_hertz:
            low, high = (hertz / 1e6 for hertz in (clock.lowest_hertz, clock.highest_hertz))
            yield Check(
                name="clocks_moved",
                device=result.device,
                sentence=f"the {name} clock was anywhere from {low:.0f} to {high:.0f} MHz",
                mend=_LOCK,
            )


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


def check_machine(background: Mapping[str, float], environment: Environment) -> tuple[Check, ...]:
    """Return what is to be known of the machine.

    Args:
        background: Load before anything of the bench ran.
        environment: Where it ran.
    """
    return tuple(_of_machine(background, environment))


def _of_machine(background: Mapping[str, float], environment: Environment) -> _Found:
    for name, limit in (("cpu", BUSY_CPU), ("gpu", BUSY_GPU)):
        load = background.get(name, 0.0)
        if load > limit:
            yield Check(
                name="background_load",
                sentence=f"the {name.upper()} was {percent(load)} busy before the bench began",
                mend=f"{_QUIET}, and bench again",
            )
    # Of a GPU of its own it is the limit of its power, which nvpmodel knows nothing of.
    mode = None if environment.gpu_uuid is not None else environment.power_mode
    if mode is not None and not mode.upper().startswith("MAXN"):
        yield Check(
            name="power_mode",
            sentence=f"the power mode is {mode}, not the largest",
            mend="figures hold for this mode; sudo nvpmodel -m 0 chooses the largest",
        )

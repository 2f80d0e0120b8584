"""What in the results costs time or energy, each with the numbers behind it."""

from collections.abc import Iterator

from ..measure.steadiness import CLOCK_RATIO
from ..results.caveats import caveats_of
from ..terminal.numbers import percent, seconds
from .advice import Finding
from .choices import Choice, Choices

# What the bench's own checks say, by the name that it has here.
_OF_CHECKS = {"host_bound": "enqueue_bound", "transfer_bound": "copy_bound"}
# A DLA that leaves more than this of the GPU busy is not what it is chosen for.
_GPU_SHARE = 0.2
# From here on boards slow themselves down, by their trip points.
_HOT_CELSIUS = 85.0


def find_all(choices: Choices) -> tuple[Finding, ...]:
    """Return what there is to say of every result that may be chosen."""
    return tuple(
        found
        for name, all_of_it in choices.by_name.items()
        for found in (*_int8_slower(name, all_of_it), *_of_each(name, all_of_it))
    )


def _of_each(name: str, choices: tuple[Choice, ...]) -> Iterator[Finding]:
    for one in choices:
        if one.like is None:
            yield from _checked(name, one)
            yield from _fallback_heavy(name, one)
            yield from _thermally_limited(name, one)


def _int8_slower(name: str, choices: tuple[Choice, ...]) -> Iterator[Finding]:
    """Fewer bits should be faster; where they are not, something reformats or falls back."""
    for int8 in choices:
        for fp16 in choices:
            pair = (int8.variant.precision, fp16.variant.precision)
            if pair != ("int8", "fp16") or int8.option.device != fp16.option.device:
                continue
            slow, fast = int8.result.latency_seconds, fp16.result.latency_seconds
            if slow is None or fast is None or slow.value <= fast.value or int8.like:
                continue
            yield Finding(
                name="int8_slower",
                model=name,
                device=int8.option.device,
                sentence=(
                    f"int8 takes {seconds(slow.value)}, fp16 {seconds(fast.value)}:"
                    f" {percent(slow.value / fast.value - 1)} more{_reformats(int8)}"
                ),
                mend="run it in fp16, or look which layers reformat between types",
            )


def _reformats(one: Choice) -> str:
    placement = None if one.result.built is None else one.result.built.placement
    if placement is None or not placement.reformat_layers:
        return ""
    return f", with {len(placement.reformat_layers)} layers that only reformat"


def _checked(name: str, one: Choice) -> Iterator[Finding]:
    for check in caveats_of([one.result]):
        if check.name in _OF_CHECKS:
            yield Finding(
                name=_OF_CHECKS[check.name],
                model=name,
                device=one.option.device,
                sentence=check.sentence,
                mend=check.remedy,
            )


def _fallback_heavy(name: str, one: Choice) -> Iterator[Finding]:
    """A model on a DLA that leaves much to the GPU."""
    if not one.option.device.startswith("dla"):
        return
    placement = None if one.result.built is None else one.result.built.placement
    load = one.result.utilization.get("gpu")
    fell_back = placement is not None and placement.verdict in ("mixed", "gpu_only")
    is_loaded = load is not None and load.value > _GPU_SHARE
    if not fell_back and not is_loaded:
        return
    told = []
    if placement is not None and placement.verdict != "unknown":
        told.append(
            f"{len(placement.gpu_layers)} layers compute on the GPU and"
            f" {len(placement.reformat_layers)} reformat there,"
            f" {len(placement.dla_layers)} are on the DLA ({placement.verdict})"
        )
    if load is not None:
        told.append(f"the GPU is {percent(load.value)} busy meanwhile")
    yield Finding(
        name="fallback_heavy",
        model=name,
        device=one.option.device,
        sentence="; ".join(told),
        mend="tegrascope bench --fallback forbid names the layers that the DLA refuses",
    )


def _thermally_limited(name: str, one: Choice) -> Iterator[Finding]:
    """It throttled, or its clock gave way while it was hot."""
    result = one.result
    throttled = result.flags.get("throttled")
    clock = result.clocks.get(result.device)
    hot = result.hottest_celsius
    slowed = clock is not None and clock.highest_hertz > CLOCK_RATIO * clock.lowest_hertz
    is_hot = hot is not None and hot >= _HOT_CELSIUS
    if not throttled and not (slowed and is_hot):
        return
    told = []
    if throttled:
        told.append(f"throttled in {throttled} of {result.rounds} rounds")
    if hot is not None:
        told.append(f"hottest {hot:.1f} °C ({result.hottest_zone})")
    if clock is not None and slowed:
        low, high = clock.lowest_hertz / 1e6, clock.highest_hertz / 1e6
        told.append(f"its clock between {low:.0f} and {high:.0f} MHz")
    yield Finding(
        name="thermally_limited",
        model=name,
        device=one.option.device,
        sentence=", ".join(told),
        mend="cool it, or bench in a power mode that it can hold: cooler, it may be another choice",
    )

"""Which models run at once on which accelerators, and in which order that is measured."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import TypeAlias

from ...collectors.catalog import find_backend
from ...parsers.errors import Misused
from ..measure.run_report import Device
from .contention_result import Placed
from .result import BenchSettings

# A model on its accelerator each: what is on in one stretch of time.
On: TypeAlias = tuple[Placed, ...]
# Beside its phases a round takes an order, a reload from the cache, and the last sample.
OVERHEAD_SECONDS = 1.0


def placements(runs_on: Mapping[str, Sequence[Device]]) -> Iterator[On]:
    """Yield every way to have two or more models run at once.

    Args:
        runs_on: Model to the accelerators on which it runs.

    >>> [len(list(placements(dict.fromkeys("abc"[:n], ("gpu", "dla0"))))) for n in (2, 3)]
    [4, 20]
    """
    for size in range(2, len(runs_on) + 1):
        for models in combinations(runs_on, size):
            for devices in product(*(runs_on[model] for model in models)):
                yield tuple(
                    Placed(model=model, device=device)
                    for model, device in zip(models, devices, strict=True)
                )


def ways_on(runs_on: Mapping[str, Sequence[Device]]) -> list[On]:
    """Return one pass: what is switched on in which order.

    Before models run together, each of them and each smaller group of them ran without the
    others: that is the on/off design. What several placements have in common runs once.

    >>> from_two = ways_on({"a": ("gpu",), "b": ("gpu", "dla0")})
    >>> [" ".join(f"{one.model}:{one.device}" for one in on) for on in from_two]
    ['a:gpu', 'b:gpu', 'a:gpu b:gpu', 'b:dla0', 'a:gpu b:dla0']
    """
    ordered: dict[On, None] = {}
    for placement in placements(runs_on):
        for size in range(1, len(placement) + 1):
            ordered.update(dict.fromkeys(combinations(placement, size)))
    return list(ordered)


def round_seconds(settings: BenchSettings, on: On) -> float:
    """Return how long one round takes: warm-ups follow each other, the rest is at once."""
    once = 2 * settings.baseline_seconds + settings.duration_seconds
    return once + len(on) * (settings.warm_up_seconds + OVERHEAD_SECONDS)


def foreseen(settings: BenchSettings, turns: int) -> tuple[int, int, float]:
    """Return what is ahead if every model runs on every accelerator.

    Args:
        settings: What was asked for.
        turns: Passes through all of it.

    Returns:
        Placements, rounds of a pass, and seconds of all passes.
    """
    devices = settings.devices or ("gpu", "dla0")
    runs_on = dict.fromkeys(settings.models, devices)
    sizes = range(2, len(runs_on) + 1)
    count = sum(len(devices) ** n * len(list(combinations(runs_on, n))) for n in sizes)
    ways = ways_on(runs_on)
    return count, len(ways), turns * sum(round_seconds(settings, on) for on in ways)


def must_be_possible(settings: BenchSettings) -> None:
    """Refuse what can't be measured together, before anything is.

    Raises:
        Misused: Too few models or too many, or one of them twice, or a back-end that times
            itself.
    """
    models = settings.models
    if not 2 <= len(models) <= 3:
        raise Misused(
            f"--contention was given {len(models)} model(s), and takes two or three",
            "name two or three; of more, bench pairs of them and give advise all the results",
        )
    if len(set(models)) < len(models):
        raise Misused(
            "--contention was given a model twice", "give the second as a copy of its file"
        )
    if settings.backend and find_backend(settings.backend).is_self_timed:
        raise Misused(
            f"{settings.backend} times itself, and can't be held in step with others",
            "leave --backend out, or say --backend tensorrt",
        )

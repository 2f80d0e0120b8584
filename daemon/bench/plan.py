"""In which order is measured: mirrored rounds of one model, and groups of several models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from ..measure.run_report import Device
from ..results.contention import On
from ..results.records import BenchSettings, Placed

# Times the rounds asked for, after which waiting for rounds that agree is given up.
PATIENCE = 2
# In addition to its phases a round takes an order, a reload from the cache, and the last sample.
OVERHEAD_SECONDS = 1.0


@dataclass(frozen=True)
class RoundPlan:
    """The least and the largest number of rounds of each accelerator.

    Both are even: each pass through the accelerators is followed by one in the opposite order, so
    that a board that warms steadily favours none of them.
    """

    least: int
    most: int

    @classmethod
    def of(cls, rounds: int) -> "RoundPlan":
        """Plan at least so many rounds.

        >>> RoundPlan.of(3)
        RoundPlan(least=4, most=8)
        """
        least = rounds + rounds % 2
        return cls(least, PATIENCE * least)

    def goes_on(self, done: int, are_steady: bool) -> bool:
        """Return whether another pass is due, when so many are over and agree or not."""
        if done < self.least or done % 2:
            return True
        return not are_steady and done < self.most


def passes(devices: Sequence[Device]) -> Iterator[tuple[Device, ...]]:
    """Yield passes through the accelerators without end: A B, B A, A B, B A ….

    >>> order = passes(["gpu", "dla0"])
    >>> next(order), next(order), next(order)
    (('gpu', 'dla0'), ('dla0', 'gpu'), ('gpu', 'dla0'))
    """
    forward = tuple(devices)
    while True:
        yield forward
        yield forward[::-1]


def placements(runs_on: Mapping[str, Sequence[Device]]) -> Iterator[On]:
    """Yield every way to run two or more models at once on their accelerators.

    >>> [len(list(placements(dict.fromkeys("abc"[:n], ("gpu", "dla0"))))) for n in (2, 3)]
    [4, 20]
    """
    for size in range(2, len(runs_on) + 1):
        for models in combinations(runs_on, size):
            for devices in product(*(runs_on[model] for model in models)):
                pairs = zip(models, devices, strict=True)
                yield tuple(Placed(model=model, device=device) for model, device in pairs)


def groups_on(runs_on: Mapping[str, Sequence[Device]]) -> list[On]:
    """Return one pass: which models are switched on, in which order.

    Before models run together, each of them and each smaller group of them ran without the
    others: that is the on/off design. Groups that several placements have in common run once.

    >>> from_two = groups_on({"a": ("gpu",), "b": ("gpu", "dla0")})
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
    """Return the number of placements, rounds per pass, and seconds of all passes.

    Every model is taken to run on every accelerator.
    """
    runs_on = dict.fromkeys(settings.models, settings.devices or ("gpu", "dla0"))
    groups = groups_on(runs_on)
    total = turns * sum(round_seconds(settings, on) for on in groups)
    return sum(1 for _ in placements(runs_on)), len(groups), total

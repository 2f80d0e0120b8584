"""Who is measured when: rounds in mirrored order, until they agree or the budget is spent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..measure.run_report import Device, RunReport
from ..measure.steadiness import SLOPE_CELSIUS_PER_SECOND, STEADY_RATIO

# Rounds that must agree, and times the rounds asked for after which that is given up.
AGREEING_ROUNDS = 3
PATIENCE = 2


@dataclass(frozen=True)
class Plan:
    """How many rounds each accelerator has.

    Attributes:
        least: Rounds of each, an even number: each pass through the accelerators is followed
            by one in the opposite order, so that none always goes first and a board that warms
            steadily favours nobody.
        most: Where the bench gives up waiting for rounds that agree.
    """

    least: int
    most: int

    @classmethod
    def of(cls, rounds: int) -> "Plan":
        """Plan at least so many rounds.

        >>> Plan.of(3)
        Plan(least=4, most=8)
        """
        least = rounds + rounds % 2
        return cls(least, PATIENCE * least)

    def goes_on(self, done: int, are_steady: bool) -> bool:
        """Say whether another pass is due.

        Args:
            done: Passes that are over.
            are_steady: Whether the latest rounds of every accelerator agree.
        """
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


def agree(rounds: Sequence[RunReport]) -> bool:
    """Tell whether the last rounds of an accelerator agree (rule 14, from round to round).

    That is so where the rate and the median latency of the last three rounds lie within 5 %,
    and no zone became hotter or cooler from the last round but one by 0.1 °C/s. Two rounds are
    enough where there are only two; one agrees with nothing.
    """
    last = rounds[-AGREEING_ROUNDS:]
    if len(last) < 2:
        return False
    rates = [one.throughput_per_second for one in last if one.throughput_per_second]
    medians = [one.latency.p50_seconds for one in last if one.latency is not None]
    for figures in (rates, medians):
        if len(figures) < len(last) or max(figures) > STEADY_RATIO * min(figures):
            return False
    return _warming(last[-2], last[-1]) < SLOPE_CELSIUS_PER_SECOND


def _warming(before: RunReport, after: RunReport) -> float:
    """Return the steepest change of any zone's maximum between two rounds, in °C/s."""
    if before.telemetry is None or after.telemetry is None:
        return 0.0
    seconds = (after.started_ns - before.started_ns) / 1e9
    zones = before.telemetry.temperature.keys() & after.telemetry.temperature.keys()
    changes = (
        after.telemetry.temperature[zone].max_celsius
        - before.telemetry.temperature[zone].max_celsius
        for zone in zones
    )
    return max(map(abs, changes), default=0.0) / seconds if seconds > 0 else 0.0

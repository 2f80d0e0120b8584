"""Energy since the start of a session, only for the counters that ``/metrics`` and OTLP export.

The energy of a run is ``energy_report.measure_energy``: it knows the window and has an interval.
"""

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ...parsers.rails import RailRule
from ...parsers.signals import RAIL_COUNTER, RAIL_POWER
from .counter import JUMP_RATIO, STILL_SECONDS, TICK_SECONDS
from .energy import widest_gap_ns

_RECENT = 15
# Boards have less than half as many. A garbled line has wrong names, and each would be a series.
_RAILS_AT_MOST = 64


class EnergyCounters:
    """Joules of each rail and of the module since the start, and the seconds that they cover.

    Neither decreases. Between two readings of a rail there is a trapezoid, or the growth of its own
    energy counter if it has one. A rail that reads below zero adds nothing to its own joules, but
    its sign counts in the module's power. A gap wider than ``widest_gap_ns`` adds nothing to
    either, because its power is unknown. So the growth of joules over the growth of seconds is mean
    power. The module's power is the sum of the total rails of its rule, at samples that have all of
    them. Without a rule the module total is absent.

    >>> counters = EnergyCounters()
    >>> counters.feed(0, {"rails.VDD_IN.instant_watts": 5.0})
    >>> counters.feed(1_000_000_000, {"rails.VDD_IN.instant_watts": 7.0})
    >>> counters.rails, counters.rail_seconds
    ({'VDD_IN': 6.0}, {'VDD_IN': 1.0})
    """

    def __init__(self, rule: RailRule | None = None) -> None:
        """Begin at zero."""
        self.rule = rule
        self._rails: dict[str, _RunningJoules] = {}
        self._module: _RunningJoules | None = None
        self._latest_ns: int | None = None
        self._steps: deque[int] = deque(maxlen=_RECENT)

    @property
    def rails(self) -> dict[str, float]:
        """Joules by rail, of every rail that was ever read."""
        return {rail: counter.joules for rail, counter in self._rails.items()}

    @property
    def module_joules(self) -> float | None:
        """Joules of the module; ``None`` until a sample had all rails of the total."""
        return None if self._module is None else self._module.joules

    @property
    def rail_seconds(self) -> dict[str, float]:
        """Integrated seconds by rail."""
        return {rail: counter.seconds for rail, counter in self._rails.items()}

    @property
    def module_seconds(self) -> float | None:
        """Integrated seconds of the module's power; ``None`` as its joules."""
        return None if self._module is None else self._module.seconds

    def feed(self, monotonic_ns: int, values: Mapping[str, float]) -> None:
        """Add one sample, with values as ``flatten`` names them; ignore one that is not later."""
        if self._latest_ns is not None:
            if monotonic_ns <= self._latest_ns:
                return
            self._steps.append(monotonic_ns - self._latest_ns)
        self._latest_ns = monotonic_ns
        widest = 0.0
        if self._steps:
            widest = widest_gap_ns(statistics.median(self._steps))
        power, counted = RAIL_POWER.by_label(values), RAIL_COUNTER.by_label(values)
        for rail, watts in power.items():
            if rail in self._rails:
                self._rails[rail].add(monotonic_ns, watts, widest, counted.get(rail))
            elif len(self._rails) < _RAILS_AT_MOST:
                self._rails[rail] = _RunningJoules(
                    monotonic_ns, max(watts, 0.0), counted=counted.get(rail)
                )
        if self.rule is None:
            return
        module = self.rule.watts(power)
        if module is None:
            return
        # The sum of the counters of the total rails, if each has one.
        total_counted = self.rule.watts(counted)
        if self._module is None:
            self._module = _RunningJoules(monotonic_ns, max(module, 0.0), counted=total_counted)
        else:
            self._module.add(monotonic_ns, module, widest, total_counted)


@dataclass(slots=True)
class _RunningJoules:
    """Joules up to the latest reading, and the seconds over which power is known.

    Attributes:
        counted: Latest reading of the rail's own energy counter.
        waiting_joules: Trapezoids since that counter last grew; ``waiting_seconds`` their length.
        highest_watts: Highest power that was read.
        counted_watts: Power by the latest growth of the counter.
    """

    at_ns: int
    watts: float
    joules: float = 0.0
    seconds: float = 0.0
    counted: float | None = None
    waiting_joules: float = 0.0
    waiting_seconds: float = 0.0
    highest_watts: float = 0.0
    counted_watts: float = 0.0

    def add(self, at_ns: int, watts: float, widest: float, counted: float | None = None) -> None:
        # A rail draws no less than nothing. A reading below zero is the zero error of its monitor,
        # and a counter cannot fall. Readings are clipped, and not the sum: a sum that owes joules
        # would hide the next seconds of real work.
        watts = max(watts, 0.0)
        if at_ns - self.at_ns <= widest:
            seconds = (at_ns - self.at_ns) / 1e9
            self.waiting_joules += (self.watts + watts) / 2 * seconds
            self.waiting_seconds += seconds
            self.joules += self._grown(counted)
            self.seconds += seconds
        else:
            self.waiting_joules = self.waiting_seconds = 0.0
        self.at_ns, self.watts, self.counted = at_ns, watts, counted
        self.highest_watts = max(self.highest_watts, watts)

    def _grown(self, counted: float | None) -> float:
        """Return the new joules: by the rail's own counter, or by trapezoids without a sound one.

        A counter that does not grow may be between two of its updates.
        """
        joules, seconds = self.waiting_joules, self.waiting_seconds
        growth = None
        if counted is not None and self.counted is not None:
            growth = counted - self.counted
        if growth == 0 and seconds <= STILL_SECONDS:
            return 0.0
        self.waiting_joules = self.waiting_seconds = 0.0
        if growth is None or growth <= 0:
            return joules
        usual_watts = max(self.highest_watts, self.counted_watts)
        self.counted_watts = growth / (seconds + TICK_SECONDS)
        if self.counted_watts > JUMP_RATIO * usual_watts:
            return joules
        return growth

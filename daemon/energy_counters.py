"""Running energy counters, fed by every sample, so that a slow scrape loses nothing."""

import statistics
from collections import deque
from collections.abc import Mapping

from ..collectors.board import RailRule
from .energy import widest_gap_ns

_RECENT = 15
# No board has half as many; a garbled line invents names, and each would be a series for ever.
_RAILS_AT_MOST = 64


class EnergyCounters:
    """Joules of each rail and of the module since the start; they never go down.

    Between two readings of a rail lies a trapezoid. A gap wider than ``widest_gap_ns`` (five
    usual intervals, at least two seconds) adds nothing: what was drawn in it is not known. The
    module's power is the sum of the total rails of its rule, at samples that have all of them.

    Attributes:
        rule: The board's rail rule; without one there is no module total.
    """

    def __init__(self, rule: RailRule | None = None) -> None:
        """Begin at zero."""
        self.rule = rule
        self._joules: dict[str, float] = {}
        self._module_joules: float | None = None
        self._last: dict[str, tuple[int, float]] = {}
        self._last_module: tuple[int, float] | None = None
        self._latest_ns: int | None = None
        self._steps: deque[int] = deque(maxlen=_RECENT)

    @property
    def rails(self) -> dict[str, float]:
        """Joules by rail, of every rail that was ever read."""
        return dict(self._joules)

    @property
    def module_joules(self) -> float | None:
        """Joules of the module; ``None`` until a sample had all rails of the total."""
        return self._module_joules

    def feed(self, monotonic_ns: int, values: Mapping[str, float]) -> None:
        """Take one sample; one that is not later than the last is left out.

        Args:
            monotonic_ns: When it arrived.
            values: Numbers by name, as ``flatten`` names them.
        """
        if self._latest_ns is not None:
            if monotonic_ns <= self._latest_ns:
                return
            self._steps.append(monotonic_ns - self._latest_ns)
        self._latest_ns = monotonic_ns
        widest = widest_gap_ns(statistics.median(self._steps)) if self._steps else 0.0
        power = {
            name[len("rails.") : -len(".instant_watts")]: watts
            for name, watts in values.items()
            if name.startswith("rails.") and name.endswith(".instant_watts")
        }
        for rail, watts in power.items():
            if rail not in self._joules and len(self._joules) >= _RAILS_AT_MOST:
                continue
            now = (monotonic_ns, watts)
            joules = _trapezoid(self._last.get(rail), now, widest)
            self._joules[rail] = self._joules.get(rail, 0.0) + joules
            self._last[rail] = now
        rule = self.rule
        if rule is not None and all(rail in power for rail in rule.total):
            now = (monotonic_ns, sum(power[rail] for rail in rule.total))
            joules = _trapezoid(self._last_module, now, widest)
            self._module_joules = (self._module_joules or 0.0) + joules
            self._last_module = now


def _trapezoid(last: tuple[int, float] | None, now: tuple[int, float], widest: float) -> float:
    if last is None or now[0] - last[0] > widest:
        return 0.0
    return (last[1] + now[1]) / 2 * (now[0] - last[0]) / 1e9

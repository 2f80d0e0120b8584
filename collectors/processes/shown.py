"""A bounded set of process names: each is a column for as long as telemetry is kept."""

from collections.abc import Collection, Mapping

from ...parsers.signals import OWN_PROCESS
from ..base import SYSTEM_CLOCK, Clock

_SHOWN_AT_MOST_FACTOR = 10
_DAY_NS = 86_400_000_000_000


class ShownNames:
    """The names that are shown: configured ones, ours, and the ``top`` largest others.

    In a day, at most ten times ``top`` others are shown.
    """

    def __init__(self, top: int, names: Collection[str], clock: Clock = SYSTEM_CLOCK) -> None:
        self._top = top
        self._fixed = frozenset(names) | {OWN_PROCESS}
        self._clock = clock
        self._shown_ns: dict[str, int] = {}

    def choose(self, sizes: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """Return the names to show now, and large ones beyond the most names of a day."""
        now_ns = self._clock.monotonic_ns()
        fixed = [name for name in sizes if name in self._fixed]
        most = _SHOWN_AT_MOST_FACTOR * self._top
        known = {n: at for n, at in self._shown_ns.items() if now_ns - at < _DAY_NS}
        chosen: list[str] = []
        beyond: list[str] = []
        for name in sorted(sizes.keys() - fixed, key=lambda name: (-sizes[name], name)):
            if len(chosen) == self._top or not sizes[name]:
                break
            if name not in known and len(known) >= most:
                beyond.append(name)
                continue
            known[name] = now_ns
            chosen.append(name)
        self._shown_ns = known
        return [*chosen, *fixed], beyond

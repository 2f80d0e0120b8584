"""The troubles that the present state of a daemon shows.

Each is also an alert in ``grafana/prometheus/rules``, whose condition it has, without the waiting
time. Everything that needs more than one moment (trends, counts of minutes, budgets, the schedule)
is judged by those rules only.
"""

import re
import threading
from collections.abc import Iterator
from typing import NamedTuple

from ...parsers import signals
from ..export.snapshot import Snapshot

NEAR_TRIP_CELSIUS = 3.0
# A power cap is the normal state of a board at full load; these kinds are heat.
HEAT_KINDS = ".*thermal|hw_slowdown"
LOW_MEMORY_RATIO = 0.05
FAILURES = 2

_SEVERITIES = ("critical", "warning")


class Trouble(NamedTuple):
    """One trouble of one part.

    Attributes:
        alert: The alert that has the same condition; ``severity`` likewise.
        cause: Troubles of one cause are one line of the page, such as a hot board.
        part: The zone, clock, workload or companion that has it.
        run_id: The last failed run.
        since: Wall time in seconds since when the daemon sees it.
    """

    alert: str
    severity: str
    text: str
    cause: str
    part: str = ""
    run_id: str | None = None
    since: float | None = None


class TroubleWatch:
    """Remembers since when each trouble is there. Its methods may be called from any thread.

    >>> TroubleWatch().look(Snapshot(), now_ns=0, wall_ns=0)
    []
    """

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def look(self, snapshot: Snapshot, now_ns: int, wall_ns: int) -> list[Trouble]:
        """Return the present troubles, the most severe first, then the oldest."""
        is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
        found = []
        with self._lock:
            for trouble in find_troubles(snapshot, is_fresh=is_fresh):
                since = self._since.get((trouble.alert, trouble.part), wall_ns / 1e9)
                found.append(trouble._replace(since=since))
            self._since = {(one.alert, one.part): one.since or 0.0 for one in found}
        return sorted(found, key=lambda one: (_SEVERITIES.index(one.severity), one.since))


def find_troubles(snapshot: Snapshot, *, is_fresh: bool) -> Iterator[Trouble]:
    """Yield the present troubles.

    ``Serving.problem`` has the reasons for which the daemon is not ready.

    Args:
        is_fresh: Whether a source still describes the machine. Old values show no present trouble.
    """
    yield from _failing_workloads(snapshot)
    if is_fresh:
        yield from _hot_zones(snapshot)
        yield from _throttled_clocks(snapshot)
        yield from _low_memory(snapshot)
        yield from _silent_companions(snapshot)


def _hot_zones(snapshot: Snapshot) -> Iterator[Trouble]:
    for zone, celsius in signals.TEMPERATURE.by_label(snapshot.values).items():
        trip = snapshot.trips_celsius.get((zone, "critical"))
        if trip is not None and celsius > trip - NEAR_TRIP_CELSIUS:
            left = f"{trip - celsius:.1f} °C below" if celsius < trip else "at"
            text = f"{zone} is at {celsius:.1f} °C, {left} shutdown ({trip:.1f} °C)"
            yield Trouble("TegraTemperatureCritical", "critical", text, "heat", zone)


def _throttled_clocks(snapshot: Snapshot) -> Iterator[Trouble]:
    for kind, is_active in sorted(signals.THROTTLE_ACTIVE.by_label(snapshot.values).items()):
        if is_active and re.fullmatch(HEAT_KINDS, kind):
            text = f"throttled by {kind}"
            yield Trouble("TegraThermalThrottled", "warning", text, "heat", kind)


def _low_memory(snapshot: Snapshot) -> Iterator[Trouble]:
    total = snapshot.values.get(signals.RAM_TOTAL.column())
    used = snapshot.values.get(signals.RAM_USED.column())
    available = snapshot.values.get(signals.RAM_AVAILABLE.column())
    if not total:
        return
    if available is None and used is not None:
        available = total - used
    if available is not None and available / total < LOW_MEMORY_RATIO:
        text = f"{100 * available / total:.1f} % of the memory is available"
        yield Trouble("TegraMemoryLow", "warning", text, "memory")


def _silent_companions(snapshot: Snapshot) -> Iterator[Trouble]:
    for name, is_up in snapshot.companions_up.items():
        if not is_up:
            text = f"{name} returns no data"
            yield Trouble("TegrascopeCompanionDown", "warning", text, "source", name)


def _failing_workloads(snapshot: Snapshot) -> Iterator[Trouble]:
    for state in snapshot.workloads.values():
        if state.failures >= FAILURES:
            text, run_id = f"the last {state.failures} runs of {state.workload} failed", None
            if state.last_failure is not None:
                text += f": {state.last_failure.reason}"
                run_id = state.last_failure.run_id
            yield Trouble("TegraInferenceFailing", "warning", text, "runs", state.workload, run_id)

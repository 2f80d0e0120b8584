"""The troubles that the present state of a daemon shows.

Each is also an alert in ``grafana/prometheus/rules``, whose condition it has, without the waiting
time. Everything that needs more than one moment (trends, counts of minutes, budgets, the schedule)
is judged by those rules only.
"""

import re
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
    """One line: the alert that has the same condition, its severity here, and a sentence."""

    alert: str
    severity: str
    text: str


def find_troubles(snapshot: Snapshot, *, is_fresh: bool) -> list[Trouble]:
    """Return the present troubles, the most severe first.

    ``Serving.problem`` has the reasons for which the daemon is not ready.

    Args:
        is_fresh: Whether a source still describes the machine. Old values show no present trouble.
    """
    troubles = list(_failing_workloads(snapshot))
    if is_fresh:
        troubles.extend(_hot_zones(snapshot))
        troubles.extend(_throttled_clocks(snapshot))
        troubles.extend(_low_memory(snapshot))
        troubles.extend(_silent_companions(snapshot))
    return sorted(troubles, key=lambda trouble: _SEVERITIES.index(trouble.severity))


def _hot_zones(snapshot: Snapshot) -> Iterator[Trouble]:
    for zone, celsius in signals.TEMPERATURE.by_label(snapshot.values).items():
        trip = snapshot.trips_celsius.get((zone, "critical"))
        if trip is not None and celsius > trip - NEAR_TRIP_CELSIUS:
            text = f"{zone} is at {celsius:.1f} °C; the board shuts down at {trip:.1f} °C"
            yield Trouble("TegraTemperatureCritical", "critical", text)


def _throttled_clocks(snapshot: Snapshot) -> Iterator[Trouble]:
    for kind, is_active in sorted(signals.THROTTLE_ACTIVE.by_label(snapshot.values).items()):
        if is_active and re.fullmatch(HEAT_KINDS, kind):
            yield Trouble("TegraThermalThrottled", "warning", f"throttled by {kind} now")


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
        yield Trouble("TegraMemoryLow", "warning", text)


def _silent_companions(snapshot: Snapshot) -> Iterator[Trouble]:
    for name, is_up in snapshot.companions_up.items():
        if not is_up:
            yield Trouble("TegrascopeCompanionDown", "warning", f"{name} returns no data")


def _failing_workloads(snapshot: Snapshot) -> Iterator[Trouble]:
    for state in snapshot.workloads.values():
        if state.failures >= FAILURES:
            text = f"the last {state.failures} runs of {state.workload} failed"
            yield Trouble("TegraInferenceFailing", "warning", text)

"""Guards: a run is skipped while the board is hot, its battery low, or its time used up."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...parsers import signals
from ..export.snapshot import Snapshot
from ..measure.run_report import SkipReason
from ..settings.config import Guards, Workload

# Over so long a time a share of time is judged.
_DUTY_SECONDS = 3600.0
_RUNS_AT_MOST = 4096


class Refusal(NamedTuple):
    """Why a run is skipped: the kind of reason, and a sentence."""

    reason: SkipReason
    sentence: str


class _Run(NamedTuple):
    workload: str
    begin_ns: int
    end_ns: int


class Guard:
    """Judges whether a run may begin, by the newest telemetry and the runs of the last hour.

    A zone or battery that the telemetry does not have at present guards nothing.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], now_ns: Callable[[], int]) -> None:
        """Prepare; ``now_ns`` is CLOCK_MONOTONIC."""
        self._snapshot = snapshot
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self._runs: deque[_Run] = deque(maxlen=_RUNS_AT_MOST)
        self._lock = threading.Lock()

    def ran(self, workload: str, begin_ns: int, end_ns: int) -> None:
        """Count the time of a run that has ended."""
        with self._lock:
            self._runs.append(_Run(workload, begin_ns, end_ns))

    def refusal(self, workload: Workload, everywhere: Guards) -> Refusal | None:
        """Return why a run of a workload may not begin now; ``None`` if it may.

        Args:
            everywhere: Guards of all workloads together.
        """
        return next(self._refusals(workload, everywhere), None)

    def _refusals(self, workload: Workload, everywhere: Guards) -> Iterator[Refusal]:
        snapshot, now_ns = self._snapshot(), self._now_ns()
        is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
        values = snapshot.values if is_fresh else {}
        for guards, name in ((workload.guards, workload.name), (everywhere, None)):
            guard = "its guard" if name else "the guard of all workloads"
            for zone, limit in guards.skip_above_celsius.items():
                celsius = values.get(signals.TEMPERATURE.column(zone))
                if celsius is not None and celsius > limit:
                    words = f"{zone} has {celsius:.1f} °C, and {guard} is {limit:g} °C"
                    yield Refusal("guard_temperature", words)
            if (least := guards.skip_below_battery) is not None:
                charges = signals.BATTERY_CHARGE.by_label(values).values()
                if charges and (charge := min(charges)) < least:
                    words = f"the battery has {charge:.0%}, and {guard} is {least:.0%}"
                    yield Refusal("guard_battery", words)
            if (most := guards.duty) is not None and self._share(name, now_ns) > most:
                share, whose = self._share(name, now_ns), "its runs" if name else "all runs"
                words = f"{whose} took {share:.1%} of the last hour, and {guard} is {most:.1%}"
                yield Refusal("guard_duty", words)

    def _share(self, workload: str | None, now_ns: int) -> float:
        """Return the share of the last hour, or of the time since the start, that runs took."""
        since_ns = max(self._began_ns, now_ns - round(_DUTY_SECONDS * 1e9))
        with self._lock:
            took_ns = sum(
                run.end_ns - max(run.begin_ns, since_ns)
                for run in self._runs
                if run.end_ns > since_ns and workload in (None, run.workload)
            )
        return took_ns / max(now_ns - since_ns, 1)

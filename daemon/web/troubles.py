"""The troubles of a daemon now, by the conditions of the alerts in grafana/prometheus/rules.

The waiting times of the alerts do not count. A condition about the last minutes is read from the
timeline, and counts from the first sample: a daemon that has just started, on a machine that has
just booted, answers at once. Conditions that need hours or days are Prometheus's alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import linear_regression
from typing import NamedTuple

from ...parsers import signals
from ...parsers.rails import RailRule
from ...parsers.values import DLAS
from ..export.snapshot import Snapshot, WorkloadState
from ..measure.energy import inside
from ..measure.energy_report import module_curve
from ..measure.report import Span
from ..measure.timeline import Timeline
from ..measure.utilization import mean_present, throttle_counts

NEAR_TRIP_CELSIUS = 3.0
LOW_ROOM_BYTES = 100 * 1024 * 1024
FILLING_BYTES, FILLING_HOURS = 1024 * 1024 * 1024, 24
FAILURES, UNSUCCESSFUL = 2, 4
LOW_MEMORY_RATIO, FULL_SWAP_RATIO = 0.05, 0.9
BUDGET_MINUTES = 5
RESTARTS, RESTARTS_MINUTES = 3, 30
BYPASSED_DAYS = 2
# Kinds of throttling, the minutes that count, and the events that are no trouble yet.
THROTTLING = (
    ("TegraThermalThrottled", ".*thermal|hw_slowdown", 10, 0),
    ("TegraUnderVoltage", "oc[0-9]+", 15, 0),
    ("TegraOverCurrent", "oc[0-9]+|hw_power_brake", 15, 15),
)

_S = 1_000_000_000
_MINUTE, _HOUR, _DAY = 60 * _S, 3600 * _S, 86_400 * _S
# Several open pages ask each second, and minutes of samples are decoded for an answer.
_REUSED_NS = 10 * _S
_SEVERITIES = ("critical", "warning", "info")
_OF_MINUTES = (signals.RAIL_POWER, signals.THROTTLE_EVENTS, signals.THROTTLE_ACTIVE)


class Trouble(NamedTuple):
    """One line: the alert that has the same condition, its severity here, and a sentence."""

    alert: str
    severity: str
    text: str


@dataclass(frozen=True)
class Moment:
    """The state of the daemon at a time of both clocks, and whether its telemetry is fresh."""

    snapshot: Snapshot
    now_ns: int
    wall_ns: int
    rule: RailRule | None
    is_fresh: bool

    def last(self, minutes: int) -> Span:
        """Return the last minutes, or those since the boot: a time before it does not exist."""
        return Span(begin_ns=max(0, self.now_ns - minutes * _MINUTE), end_ns=self.now_ns)


class Troubles:
    """Finds the troubles; those of minutes are looked for every ten seconds only."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._looked_ns: int | None = None
        self._last_minutes: Sequence[Trouble] = ()

    def at(self, moment: Moment) -> list[Trouble]:
        """Return the troubles of a moment, the most severe first.

        ``Serving.problem`` has the reasons for which the daemon is not ready.
        """
        if self._looked_ns is None or moment.now_ns - self._looked_ns >= _REUSED_NS:
            # Another page that asks meanwhile gets the last result.
            self._looked_ns = moment.now_ns
            self._last_minutes = tuple(self._of_minutes(moment))
        troubles = [
            *_of_the_board(moment),
            *_of_the_daemon(moment),
            *_of_workloads(moment),
            *self._last_minutes,
        ]
        return sorted(troubles, key=lambda trouble: _SEVERITIES.index(trouble.severity))

    def _of_minutes(self, moment: Moment) -> Iterator[Trouble]:
        """Yield throttling, and the mean power above the budget."""
        longest = max(minutes for _, _, minutes, _ in THROTTLING)
        window = moment.last(longest)
        samples = self._timeline.cut(window.begin_ns, window.end_ns, _is_of_minutes)
        power, budget = module_curve(samples, moment.rule), moment.snapshot.limits.power_watts
        if power is not None and budget is not None:
            mean = mean_present(power.watts[inside(power.times_ns, moment.last(BUDGET_MINUTES))])
            if mean > budget:
                text = f"the module draws {mean:.1f} W on average; the budget is {budget:g} W"
                yield Trouble("TegraPowerBudgetExceeded", "warning", text)
        now = _throttled_now(moment)
        meanings = signals.THROTTLE_UNDER_VOLTAGE.by_label(moment.snapshot.values)
        for alert, kinds, minutes, normal in THROTTLING:
            counts = throttle_counts(samples, moment.last(minutes)) or {}
            for kind in filter(re.compile(kinds).fullmatch, counts.keys() - now):
                is_under_voltage = meanings.get(kind) == 1
                if is_under_voltage != (alert == "TegraUnderVoltage"):
                    continue
                if (events := counts[kind]) > normal:
                    times = "once" if events == 1 else f"{events} times"
                    cause = f"{kind}, a supply voltage too low," if is_under_voltage else kind
                    text = f"throttled by {cause} {times} in the last {minutes} minutes"
                    yield Trouble(alert, "warning", text)


def _is_of_minutes(column: str) -> bool:
    return any(signal.owns(column) for signal in _OF_MINUTES)


def _throttled_now(moment: Moment) -> set[str]:
    """Return the kinds of heat that hold a clock low."""
    values = moment.snapshot.values if moment.is_fresh else {}
    found = signals.THROTTLE_ACTIVE.by_label(values).items()
    return {kind for kind, is_on in found if is_on and re.fullmatch(THROTTLING[0][1], kind)}


def _of_the_board(moment: Moment) -> Iterator[Trouble]:
    snapshot = moment.snapshot
    if not moment.is_fresh:
        return
    for zone, celsius in signals.TEMPERATURE.by_label(snapshot.values).items():
        trip = snapshot.trips_celsius.get((zone, "critical"))
        if trip is not None and celsius > trip - NEAR_TRIP_CELSIUS:
            text = f"{zone} is at {celsius:.1f} °C; the board shuts down at {trip:.1f} °C"
            yield Trouble("TegraTemperatureCritical", "critical", text)
    for kind in sorted(_throttled_now(moment)):
        yield Trouble(THROTTLING[0][0], "warning", f"throttled by {kind} now")
    names = (signals.RAM_TOTAL, signals.RAM_USED, signals.RAM_AVAILABLE)
    total, used, available = (snapshot.values.get(signal.column()) for signal in names)
    if available is None and total is not None and used is not None:
        available = total - used
    if total and available is not None and available / total < LOW_MEMORY_RATIO:
        text = f"{100 * available / total:.1f} % of the memory is available"
        yield Trouble("TegraMemoryLow", "warning", text)
    swap = snapshot.values.get(signals.SWAP_TOTAL.column())
    used = snapshot.values.get(signals.SWAP_USED.column())
    if swap and used is not None and used / swap > FULL_SWAP_RATIO:
        text = f"{100 * used / swap:.0f} % of the swap is in use"
        yield Trouble("TegraSwapLow", "warning", text)


def _of_the_daemon(moment: Moment) -> Iterator[Trouble]:
    snapshot = moment.snapshot
    room = snapshot.store_free_bytes
    if room is not None and room < LOW_ROOM_BYTES:
        words = "no space is" if room == 0 else f"{room / 2**20:.0f} MiB are"
        severity = "critical" if room == 0 else "warning"
        yield Trouble("TegrascopeStoreRoomLow", severity, f"{words} left for the run store")
    elif room is not None and room < FILLING_BYTES and len(snapshot.store_room) > 1:
        points = [((at - moment.now_ns) / _HOUR, free) for at, free in snapshot.store_room]
        slope, now = linear_regression(*zip(*points, strict=True))
        if now + slope * FILLING_HOURS < 0:
            left = f"{room / 2**20:.0f} MiB are left for the run store"
            text = f"{left}, and less than a day's worth at the rate of the last hours"
            yield Trouble("TegrascopeStoreRoomLow", "warning", text)
    for name, is_up in snapshot.companions_up.items():
        if moment.is_fresh and not is_up:
            yield Trouble("TegrascopeCompanionDown", "warning", f"{name} returns no data")
    for source in snapshot.sources:
        since_ns = moment.now_ns - RESTARTS_MINUTES * _MINUTE
        count = sum(at >= since_ns for at in source.recovered_ns)
        if count >= RESTARTS:
            words = f"{source.name} was lost and restarted {count} times"
            text = f"{words} in the last {RESTARTS_MINUTES} minutes"
            yield Trouble("TegrascopeSourceRestarting", "warning", text)


def _of_workloads(moment: Moment) -> Iterator[Trouble]:
    for state in moment.snapshot.workloads.values():
        words = f"the last {state.failures} runs of {state.workload}"
        if state.failures >= FAILURES:
            yield Trouble("TegraInferenceFailing", "warning", f"{words} failed")
        elif state.unsuccessful >= UNSUCCESSFUL:
            words = f"the last {state.unsuccessful} runs of {state.workload}"
            yield Trouble("TegraInferenceOverdue", "warning", f"{words} failed or were skipped")
        yield from _of_the_last_good(state, moment.wall_ns)


def _of_the_last_good(state: WorkloadState, wall_ns: int) -> Iterator[Trouble]:
    flags = () if state.last_good is None else state.last_good.quality
    bypassed_ns = state.bypassed_wall_ns
    if "dla_not_used" in flags:
        if bypassed_ns is not None and bypassed_ns > wall_ns - BYPASSED_DAYS * _DAY:
            words = f"{state.workload} did not use {state.device}"
            text = f"{words} in its last good run and one before it"
            yield Trouble("TegraDlaBypassed", "warning", text)
    elif "fallback" in flags and state.device in DLAS:
        text = f"layers of {state.workload} ran on the GPU, not on {state.device}"
        yield Trouble("TegraDlaFallback", "info", text)

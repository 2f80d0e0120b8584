"""The troubles of a daemon now, by the conditions of the alerts in grafana/prometheus/rules.

Minutes are read from the timeline, and days from the store. The waiting times of the alerts do not
count, but a condition about a range of time needs samples of that range.
"""

import json
import re
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, takewhile
from math import fsum
from operator import itemgetter
from statistics import linear_regression
from typing import NamedTuple

from ...collectors.board.boards import RailRule
from ...parsers import signals
from ...parsers.values import DLAS
from ..export.snapshot import Snapshot, WorkloadState
from ..measure.blocks import WindowSlice
from ..measure.energy import Curve, inside, known
from ..measure.energy_report import module_curve
from ..measure.run_report import SkipReason, Span
from ..measure.timeline import Timeline
from ..measure.utilization import mean_present, throttle_counts
from ..store.history import History

NEAR_TRIP_CELSIUS = 3.0
# A zone that rises: minutes of the rate, minutes ahead, and how near it is already.
RISING_MINUTES, AHEAD_MINUTES, WARM_CELSIUS = 15, 60, 20.0
LOW_ROOM_BYTES = 100 * 1024 * 1024
FILLING_BYTES, FILLING_HOURS = 1024 * 1024 * 1024, 24
FAILURES, UNSUCCESSFUL = 2, 4
LOW_MEMORY_RATIO, FULL_SWAP_RATIO = 0.05, 0.9
# Swap that grows: minutes of each of two ranges, and the share of all swap in each.
SWAP_MINUTES, SWAP_RATIO = 20, 0.02
BUDGET_MINUTES = 5
IDLE_MINUTES = 5
SATURATED_RATIO, SATURATED_MINUTES = 0.95, 5
UNDERUSED_MINUTES = 30
RESTARTS, RESTARTS_MINUTES = 3, 30
REGRESSION_DAYS = BYPASSED_DAYS = 2
REGRESSION, MEDIAN_DAYS, LEAST_DAYS = 1.2, 7, 1
SCHEDULE_HOURS, LATE_SECONDS, LATE_RATIO, LEAST_RUNS = 6, 30.0, 0.1, 1.5
# Kinds of throttling, the minutes that count, and the events that are no trouble yet.
THROTTLING = (
    ("TegraThermalThrottled", ".*thermal|hw_slowdown", 10, 0),
    ("TegraUnderVoltage", "oc[0-9]+", 15, 0),
    ("TegraOverCurrent", "oc[0-9]+|hw_power_brake", 15, 15),
)
MISSED: tuple[SkipReason, ...] = ("missed", "overlap", "unavailable")
DEADLINE_HOURS, LATE_SHARE, LEAST_MISSES = 1, 0.01, 1.5

_S = 1_000_000_000
_MINUTE, _HOUR, _DAY = 60 * _S, 3600 * _S, 86_400 * _S
# How long what was found is good: a look at a week reads the row of each of its runs.
_AGAIN_NS = {
    "minutes": 10 * _S,
    "hours": _MINUTE,
    "runs": _MINUTE,
    "week": 10 * _MINUTE,
}
# Runs of a workload that the median of the week is made of, and the last ones, which all count.
_SAMPLED, _LAST = 100, 20
# Time of a zone that its rate needs: as long as the alert waits.
_LEAST_RISE_NS = 5 * _MINUTE
_SEVERITIES = ("critical", "warning", "info")
_OF_MINUTES = (signals.RAIL_POWER, signals.THROTTLE_EVENTS, signals.THROTTLE_ACTIVE)
_DLA = (
    signals.DLA_ON,
    signals.DLA_LOAD,
    signals.DLA_BUSY_SECONDS,
    signals.DLA_POWERED_SECONDS,
)
_GOOD = (
    "json_array(workload, device, started_wall_ns, json_extract(report, '$.latency.p50_seconds'),"
    " json_extract(report, '$.energy.gross_joules_per_inference'))"
)
_RUN = (
    "json_array(started_wall_ns, workload, device, outcome,"
    " json_extract(report, '$.lateness_seconds'), json_extract(report, '$.skip_reason'),"
    " json_extract(report, '$.deadline.misses'), json_extract(report, '$.inferences'))"
)


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
        """Return the last minutes."""
        return Span(begin_ns=self.now_ns - minutes * _MINUTE, end_ns=self.now_ns)


class Troubles:
    """Finds the troubles; those of minutes and of hours are looked for once per minute only."""

    def __init__(self, timeline: Timeline, history: History) -> None:
        self._timeline = timeline
        self._history = history
        self._found: dict[str, tuple[int, Sequence[Trouble]]] = {}

    def at(self, moment: Moment) -> list[Trouble]:
        """Return the troubles of a moment, the most severe first.

        ``Serving.problem`` has the reasons for which the daemon is not ready.
        """
        return sorted(
            (
                *_of_the_board(moment),
                *_of_the_daemon(moment),
                *_of_workloads(moment),
                *self._cached("minutes", self._of_minutes, moment),
                *self._cached("hours", self._of_hours, moment),
                *self._cached("runs", self._of_runs, moment),
                *self._cached("week", self._regressions, moment),
            ),
            key=lambda one: _SEVERITIES.index(one.severity),
        )

    def _cached(
        self, name: str, look: Callable[[Moment], Iterator[Trouble]], moment: Moment
    ) -> Sequence[Trouble]:
        again_ns = _AGAIN_NS[name]
        read_ns, found = self._found.get(name, (moment.now_ns - again_ns, ()))
        if moment.now_ns - read_ns >= again_ns:
            # Another page that asks meanwhile gets the last result.
            self._found[name] = moment.now_ns, found
            with suppress(sqlite3.Error):  # a store that cannot be read has its own line
                found = [*look(moment)]
            self._found[name] = moment.now_ns, found
        return found

    def _last(
        self, moment: Moment, minutes: int, wanted: Callable[[str], bool]
    ) -> tuple[WindowSlice, Span]:
        """Return the samples of the last minutes and of those the span, with the one before it."""
        window = moment.last(minutes)
        return self._timeline.cut(window.begin_ns, window.end_ns, wanted), window

    def _of_minutes(self, moment: Moment) -> Iterator[Trouble]:
        """Yield throttling, and the mean power above the budget."""
        longest = max(minutes for _, _, minutes, _ in THROTTLING)
        samples, _ = self._last(moment, longest, _is_of_minutes)
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

    def _of_hours(self, moment: Moment) -> Iterator[Trouble]:
        """Yield what needs samples of many minutes."""
        if moment.is_fresh:
            yield from (*self._rising(moment), *self._swap(moment))
            yield from (*self._busy(moment), *self._idle(moment))

    def _rising(self, moment: Moment) -> Iterator[Trouble]:
        """Yield the zones that reach their shutdown within an hour at the present rate."""
        for zone, celsius in signals.TEMPERATURE.by_label(moment.snapshot.values).items():
            trip = moment.snapshot.trips_celsius.get((zone, "critical"))
            if trip is None or not trip - WARM_CELSIUS < celsius <= trip - NEAR_TRIP_CELSIUS:
                continue
            column = signals.TEMPERATURE.column(zone)
            samples, _ = self._last(moment, RISING_MINUTES, column.__eq__)
            seen = known(samples.times_ns, samples.columns.get(column, ()))
            if not seen.times_ns or seen.times_ns[-1] - seen.times_ns[0] < _LEAST_RISE_NS:
                continue
            minutes = [(at - moment.now_ns) / _MINUTE for at in seen.times_ns]
            slope, now = linear_regression(minutes, seen.watts)
            if now + slope * AHEAD_MINUTES > trip:
                text = f"{zone} reaches {trip:.1f} °C, its shutdown, within an hour at this rate"
                yield Trouble("TegraTemperatureRising", "warning", text)

    def _swap(self, moment: Moment) -> Iterator[Trouble]:
        """Yield swap that grew in the last minutes, and in those before."""
        column, middle_ns = signals.SWAP_USED.column(), moment.now_ns - SWAP_MINUTES * _MINUTE
        total = moment.snapshot.values.get(signals.SWAP_TOTAL.column())
        samples, window = self._last(moment, 2 * SWAP_MINUTES, column.__eq__)
        if not total or column not in samples.columns or not _covers(samples, window):
            return
        used, place = samples.columns[column], bisect_right(samples.times_ns, middle_ns) - 1
        grown = (used[-1] - used[place], used[place] - used[0])
        if all(one > SWAP_RATIO * total for one in grown):
            share, minutes = (used[-1] - used[0]) / total, 2 * SWAP_MINUTES
            text = f"{100 * share:.0f} % of the swap was filled in {minutes} minutes, and it grows"
            yield Trouble("TegraSwapGrowing", "warning", text)

    def _busy(self, moment: Moment) -> Iterator[Trouble]:
        """Yield the DLA cores that are fully loaded, or used less than the limits expect."""
        for core, (_, busy, _) in self._cores(moment, SATURATED_MINUTES).items():
            if busy is not None and busy > SATURATED_RATIO:
                share, last = f"{100 * busy:.0f} %", f"of the last {SATURATED_MINUTES} minutes"
                text = f"{core} was busy for {share} {last}"
                yield Trouble("TegraDlaSaturated", "warning", text)
        expected = moment.snapshot.limits.dla_busy_ratio
        for core, one in self._cores(moment, UNDERUSED_MINUTES).items() if expected else ():
            most = one.powered if one.traced is None else one.traced
            if core in expected and most is not None and most < expected[core]:
                last = f"of the last {UNDERUSED_MINUTES} minutes"
                text = (
                    f"{core} was busy for {100 * most:.0f} % {last}, at most;"
                    f" limits.dla_busy_ratio is {100 * expected[core]:.0f} %"
                )
                yield Trouble("TegraDlaUnderused", "warning", text)

    def _cores(self, moment: Moment, minutes: int) -> "dict[str, _Core]":
        """Return what is known of each core in the last minutes; nothing if samples are missing."""
        samples, window = self._last(moment, minutes, _is_of_a_dla)
        if not _covers(samples, window):
            return {}
        cores: dict[str, _Core] = {}
        for number, core in enumerate(DLAS):
            on, load, worked, powered = (
                known(samples.times_ns, samples.columns.get(signal.column(number), ()))
                for signal in _DLA
            )
            traced, counted, gates = _growth(worked), _growth(powered), len(on.watts)
            # tegrastats prints no load for a core that is off.
            loaded = fsum(load.watts) / gates if gates else None
            gate = fsum(on.watts) / gates if gates else None
            busy = loaded if traced is None else traced
            cores[core] = _Core(traced, busy, gate if counted is None else counted)
        return cores

    def _idle(self, moment: Moment) -> Iterator[Trouble]:
        """Yield the runs on a DLA that have been in flight while its core had no power."""
        since_ns = moment.wall_ns - IDLE_MINUTES * _MINUTE
        long = [
            (state, began_ns)
            for state in moment.snapshot.workloads.values()
            if state.active_run and (began_ns := state.active_wall_ns) and began_ns <= since_ns
        ]
        cores = self._cores(moment, IDLE_MINUTES) if long else {}
        for state, began_ns in long:
            if state.device in cores and cores[state.device].powered == 0:
                minutes = (moment.wall_ns - began_ns) // _MINUTE
                words = f"{state.workload} has been in flight for {minutes} minutes"
                words += f", but {state.device} had no power in the last {IDLE_MINUTES}"
                yield Trouble("TegraDlaIdle", "warning", words)

    def _regressions(self, moment: Moment) -> Iterator[Trouble]:
        """Yield workloads of which two runs in two days were worse than the week's median."""
        since_ns = moment.wall_ns - MEDIAN_DAYS * _DAY
        rows = sorted(
            map(json.loads, self._history.last_good(_GOOD, since_ns, _LAST, _SAMPLED)),
            key=itemgetter(0, 1, 2),
        )
        for (workload, device), group in groupby(rows, itemgetter(0, 1)):
            runs = [*group]
            state = moment.snapshot.workloads.get(workload)
            if state is None or state.device != device:
                continue
            if runs[0][2] > moment.wall_ns - LEAST_DAYS * _DAY:
                continue
            for place, alert, words in (
                (3, "TegraInferenceSlower", "the latency"),
                (4, "TegraInferenceCostlier", "the energy per inference"),
            ):
                points = [(run[2], run[place]) for run in runs if run[place] is not None]
                times = _regression(points, moment.wall_ns)
                if runs[-1][place] is not None and times is not None:
                    text = f"{words} of {workload} is {times:.2f} times its median of the week"
                    yield Trouble(alert, "warning", text)

    def _of_runs(self, moment: Moment) -> Iterator[Trouble]:
        """Yield that runs of the last hours started late, did not start, or missed deadlines."""
        since_ns = moment.wall_ns - SCHEDULE_HOURS * _HOUR
        missing_since_ns = moment.wall_ns - DEADLINE_HOURS * _HOUR
        picked = map(json.loads, self._history.pick_runs(_RUN))
        started = late = skipped = 0
        misses: Counter[tuple[str, str]] = Counter()
        inferences: Counter[tuple[str, str]] = Counter()
        for run in takewhile(lambda row: row[0] >= since_ns, picked):
            at_ns, workload, device, outcome, lateness, reason, missed, count = run
            skipped += reason in MISSED
            if lateness is not None and (outcome != "skipped" or reason == "unavailable"):
                started += 1
                late += lateness > LATE_SECONDS
            if missed is not None and at_ns >= missing_since_ns:
                misses[workload, device] += missed
                inferences[workload, device] += count
        if late > LEAST_RUNS and late > LATE_RATIO * started:
            words = f"{late} of {started} runs started more than {LATE_SECONDS:g} s late"
            yield Trouble("TegrascopeScheduleLate", "warning", f"{words} in {SCHEDULE_HOURS} hours")
        if skipped > max(LEAST_RUNS, started):
            words = f"{skipped} runs did not start in {SCHEDULE_HOURS} hours; {started} did"
            yield Trouble("TegrascopeRunsSkipped", "warning", words)
        for (workload, device), missed in misses.items():
            share = missed / max(inferences[workload, device], 1)
            if missed > LEAST_MISSES and share > LATE_SHARE:
                words = f"{100 * share:.3g} % of the inferences of {workload} on {device}"
                text = f"{words} missed their deadline in the last hour"
                yield Trouble("TegraInferenceDeadlineMissed", "warning", text)


class _Core(NamedTuple):
    """Shares of a range of time of a DLA core; ``None`` if unknown.

    Attributes:
        traced: In which it had a task, by the trace; ``busy`` is the same, or else by tegrastats.
        powered: In which it had power, by the kernel's count or else by the gate.
    """

    traced: float | None
    busy: float | None
    powered: float | None


def _covers(samples: WindowSlice, window: Span) -> bool:
    """Return whether a sample is at the begin of a window, or before."""
    return bool(samples.times_ns) and samples.times_ns[0] <= window.begin_ns


def _growth(counter: Curve) -> float | None:
    """Return the growth of a counter of seconds per second; ``None`` if it is not known."""
    if len(counter.watts) < 2 or counter.watts[-1] < counter.watts[0]:  # it was reset
        return None
    seconds = (counter.times_ns[-1] - counter.times_ns[0]) / _S
    return min((counter.watts[-1] - counter.watts[0]) / seconds, 1.0)


def _is_of_minutes(column: str) -> bool:
    return any(signal.owns(column) for signal in _OF_MINUTES)


def _is_of_a_dla(column: str) -> bool:
    return any(signal.owns(column) for signal in _DLA)


def _regression(points: Sequence[tuple[int, float]], wall_ns: int) -> float | None:
    """Return the last value over the median, if it and another of two days are worse.

    Each value counts for the time until the next run, as the metric keeps it.
    """
    if not points:
        return None
    ends = [*(start for start, _ in points[1:]), wall_ns]
    lasted = sorted((value, end - start) for (start, value), end in zip(points, ends, strict=True))
    half, median = sum(span for _, span in lasted) / 2, lasted[-1][0]
    for value, span in lasted:
        half -= span
        if half <= 0:
            median = value
            break
    recent = [value for start, value in points if start > wall_ns - REGRESSION_DAYS * _DAY]
    worse = [value for value in recent if value > REGRESSION * median]
    is_worse = points[-1][1] > REGRESSION * median and len(worse) > 1
    return points[-1][1] / median if is_worse else None


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

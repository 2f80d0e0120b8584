"""A model that works for a long time without a pause: followed, forecast, and cut into parts."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from math import isnan
from operator import add

from ...daemon.measure.blocks import WindowSlice, known_values
from ...daemon.measure.report import Span
from ...daemon.session.session import Session
from ...daemon.settings.config import new_run_id
from ...daemon.web.troubles import HEAT_KINDS
from ...parsers import signals
from ...parsers.errors import PIP_INSTALL
from ...parsers.inference.events import Inferences, Phase, RunEvent
from ..results.records import Forecast, Sustained
from ..results.summary import Round, clock_ranges
from ..results.sustained import (
    Trips,
    forecast_words,
    lowest_trip,
    nearest_zone,
    sustained_of,
    throttled_ns,
)
from .workers import FinishedRun

FORECAST_SECONDS = 300.0
# A shorter part has no energy per inference.
_PARTS, _PART_SECONDS = 20, 15.0
# A fan that follows the temperature smoothly moves less between two lines. It jumps with the die as
# work begins, which is a part of the heat-up.
_FAN_STEP, _FAN_MOVE, _FAN_BEGIN_NS = 0.1, 0.02, 5_000_000_000


class LongRun:
    """One run of a model: takes its events, forecasts once on the way, and cuts it at its end.

    Example::

        trips = read_trips(Path("/"))
        run = LongRun(session, 1800.0, batch=1, trips=trips, hear=display.heard, say=print)
        workers.heard = run.heard
        rounds = run.parts(workers.run(workload, "gpu", workload.timeout_seconds))
        print(run.result(rounds).sentence)
    """

    def __init__(
        self,
        session: Session,
        seconds: float,
        *,
        batch: int,
        trips: Trips,
        hear: Callable[[RunEvent], None],
        say: Callable[[str], None],
        from_rest: bool = True,
    ) -> None:
        """Prepare for a run of so many seconds.

        ``from_rest``: the board did not work before. ``hear`` is called with each event, and
        ``say`` with the forecast.
        """
        self._session, self._batch, self._trips = session, batch, trips
        self._hear, self._say, self._from_rest = hear, say, from_rest
        self._after = min(FORECAST_SECONDS, seconds / 2)
        self._forecast: Forecast | None = None
        self._begin_ns = 0
        self._ended_ns = array("q")

    def heard(self, event: RunEvent) -> None:
        """Take an event of the run; after five minutes, or half of it, make the forecast."""
        self._hear(event)
        if isinstance(event, Phase) and event.phase == "steady" and event.edge == "begin":
            self._begin_ns = event.at_ns
        if not isinstance(event, Inferences) or self._forecast is not None:
            return
        self._ended_ns.extend(map(add, event.start_ns, event.latency_ns))
        if self._ended_ns and self._ended_ns[-1] >= self._begin_ns + self._after * 1e9:
            self._forecast = self._foresee()
            self._ended_ns = array("q")
            self._say(f"  {forecast_words(self._forecast)}")

    def _foresee(self) -> Forecast:
        begin_ns, after = self._begin_ns, self._after
        cut = self._session.timeline.cut(begin_ns, begin_ns + round(after * 1e9))
        zone = nearest_zone(cut, self._trips)
        if zone is None:
            return Forecast(after_seconds=after, reason="no temperature is known")
        try:
            from ..results.forecast import HeatUp, foresee
        except ImportError:
            reason = f"numpy is missing: {PIP_INSTALL} numpy"
            return Forecast(after_seconds=after, reason=reason)
        times, celsius = [], []
        column = cut.columns[signals.TEMPERATURE.column(zone)]
        for time_ns, value in zip(cut.times_ns, column, strict=True):
            if not isnan(value):
                times.append((time_ns - begin_ns) / 1e9)
                celsius.append(value)
        fan_steps, may_step = _fans(cut.around(begin_ns + _FAN_BEGIN_NS, cut.times_ns[-1]))
        held_ns = [at_ns for at_ns, change in fan_steps if change < 0]
        for kind, at_ns in throttled_ns(cut).items():
            if re.fullmatch(HEAT_KINDS, kind):
                held_ns.append(at_ns)
        steps_ns = [at_ns for at_ns, _ in fan_steps]
        since_ns = min(held_ns) if held_ns else max(steps_ns, default=begin_ns)
        found = foresee(
            HeatUp(
                seconds=after,
                times=times,
                celsius=celsius,
                ended=[(ended_ns - begin_ns) / 1e9 for ended_ns in sorted(self._ended_ns)],
                batch=self._batch,
                trip_celsius=lowest_trip(self._trips, zone),
                since_seconds=max(since_ns - begin_ns, 0) / 1e9,
                is_held=bool(held_ns),
                may_step=may_step,
                only_warms=self._from_rest and not fan_steps,
            )
        )
        return found.model_copy(update={"zone": zone})

    def parts(self, done: FinishedRun) -> list[Round]:
        """Return the run, or what there is of it, as rounds of one length without a pause."""
        trace, session = done.trace, self._session
        steady = trace.phases.get("steady")
        if steady is None:
            return []
        starts, latencies = trace.completed(steady)
        count = min(_PARTS, int(steady.seconds / _PART_SECONDS))
        rounds: list[Round] = []
        end = 0
        for number in range(count):
            until_ns = steady.begin_ns + steady.seconds * 1e9 * (number + 1) / count
            begin, end = end, bisect_left(starts, until_ns)
            own_starts, own_latencies = starts[begin:end], latencies[begin:end]
            if not own_starts:
                continue
            end_ns = max(map(add, own_starts, own_latencies))
            span = Span(begin_ns=own_starts[0], end_ns=end_ns)
            part = replace(
                trace.without_events(),
                outcome="ok",
                reason=None,
                started_ns=span.begin_ns,
                started_wall_ns=trace.started_wall_ns + span.begin_ns - trace.started_ns,
                ended_ns=span.end_ns,
                begins={"steady": span.begin_ns},
                ends={"steady": span.end_ns},
                start_ns=own_starts,
                latency_ns=own_latencies,
            )
            # With the id of the whole run, so that it does not seem to overlap with itself.
            report = session.pair(part).model_copy(update={"run_id": new_run_id()})
            cut = session.timeline.cut(span.begin_ns, span.end_ns)
            rounds.append(Round(report, own_latencies, clocks=clock_ranges(cut, span)))
        return rounds

    def result(self, rounds: list[Round]) -> Sustained | None:
        """Return what holds; ``None`` if the run was too short for a part."""
        if not rounds:
            return None
        reports = [one.report for one in rounds]
        cut = self._session.timeline.cut(reports[0].started_ns, reports[-1].ended_ns)
        return sustained_of(reports, cut, self._trips, self._forecast)


def _fans(cut: WindowSlice) -> tuple[list[tuple[int, float]], bool]:
    """Return time and change of each step of a fan, and whether one may step up later."""
    steps, may_step = [], False
    for column in signals.FAN_SPEED.by_label(cut.columns).values():
        own_steps = []
        for _, before, at_ns, speed in cut.steps(column):
            if abs(speed - before) >= _FAN_STEP:
                own_steps.append((at_ns, speed - before))
        known = known_values(column)
        if not known:
            continue
        is_smooth = not own_steps and max(known) - min(known) > _FAN_MOVE
        may_step = may_step or (known[-1] < 1 - _FAN_MOVE and not is_smooth)
        steps += own_steps
    return steps, may_step

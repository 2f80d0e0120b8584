"""Runs that a person wrote down, paired with recorded logs by the code of the daemon."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from platform import python_version
from typing import Any, NamedTuple

import numpy as np

from ... import __version__
from ...collectors.board.boards import find_rail_rule, rail_rules
from ...daemon.measure import quality
from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.correlate import correlate
from ...daemon.measure.energy import interval_ns
from ...daemon.measure.energy_report import module_curve, timing_of
from ...daemon.measure.phases import energy_of_parts
from ...daemon.measure.report import Environment, Flag, RunReport, Span
from ...daemon.measure.sensor import EDGE_SECONDS, as_shown, updates
from ...daemon.measure.trace import RunTrace
from ...parsers.errors import UserError
from ...parsers.rails import RailRule, stated_sensors
from ...parsers.signals import RAIL_POWER
from .log_tables import LogTable
from .recorded_log import Given, GivenRun, Place, RecordedLog, in_flight, recorded_logs

# Fields that a recorded run cannot have. They are left out of the report, so that a column of that
# name in the table of runs is kept as it is.
_NEVER = {
    *("workload", "model", "model_sha256", "backend", "lateness_seconds", "latency", "stages"),
    *("cold_start_seconds", "process_peak_bytes"),
}
_SHARED = ("inferences", "units", "unit", "device", "batch")
# In intervals. Readings do not show a shorter pause: it counts with the requests.
_LEAST_PAUSE = 3


class Recorded(NamedTuple):
    """Runs in the order of the table: row, ``log`` and report; an error for each other row."""

    documents: list[dict[str, Any]]
    problems: list[UserError]


class _Placed(NamedTuple):
    """A run in a log; ``reason`` says why it has no figures."""

    run: GivenRun
    run_id: str
    log: RecordedLog
    begin: Place
    end: Place
    reason: str | None

    @property
    def span(self) -> Span:
        """Its window, without what lies before the log."""
        return Span(begin_ns=max(self.begin.ns, 0), end_ns=max(self.end.ns, 0))

    @property
    def behind_ns(self) -> int:
        """The time that is added to a time of the run to get its place in the log."""
        return self.begin.ns - self.run.start.ns

    def clock_seconds(self) -> float | None:
        """Return the uncertainty of the readings' times against the run's; ``None`` if unknown."""
        if self.reason is not None:
            return None
        of_log = self.log.clock_seconds(self.span.begin_ns, self.span.end_ns)
        if of_log is None:
            return None
        return of_log + max(self.begin.error_ns, self.end.error_ns) / 1e9

    def length_seconds(self) -> float:
        """Return by how much its window may be longer or shorter than the clock showed."""
        seconds = self.log.unexplained_seconds(self.span.begin_ns, self.span.end_ns)
        for place in (self.begin, self.end):
            if place.jumped:
                # It is one of two places. An error of one edge is one of the length.
                seconds += place.error_ns / 1e9
        return seconds


def correlate_recorded(
    telemetry: LogTable,
    given: Given,
    *,
    zone: tzinfo | None = None,
    board: str | None = None,
    averaging: float | None = None,
    simulated: bool = False,
) -> Recorded:
    """Pair each run with the telemetry of its window; see ``frames.correlate``.

    A run that no log covers is reported as ``skipped``, with the reason and without figures.

    Raises:
        UserError: The telemetry has no record, or the name of the rail rule is unknown.
    """
    rule = None if board is None else _find_board(board)
    logs = recorded_logs(telemetry, zone)
    if not logs:
        raise UserError("the telemetry has no record", "name a log that tegrastats wrote")
    problems = list(given.problems)
    placed: list[_Placed] = []
    names, seen = Counter(run.name for run in given.runs), Counter[str]()
    for run in given.runs:
        seen[run.name] += 1
        run_id = run.name
        if names[run.name] > 1:
            run_id = f"{run.name}#{seen[run.name]}"
        try:
            placed.append(_place(run, run_id, logs))
        except UserError as problem:
            problems.append(UserError(f"{run.where}: {problem.message}", problem.remedy))
    documents = []
    for placed_run, others in _with_others(placed):
        report = _report(placed_run, rule, others, averaging=averaging, simulated=simulated)
        documents.append(_document(placed_run, report) | _in_flight(placed_run, report, rule))
    return Recorded(documents, problems)


def _find_board(name: str) -> RailRule:
    rules = {rule.name.casefold(): rule for rule in rail_rules()}
    if name.casefold() not in rules:
        names = ", ".join(repr(rule.name) for rule in rules.values())
        raise UserError(f"there is no rail rule {name!r}", f"use one of {names}")
    return rules[name.casefold()]


def _place(run: GivenRun, run_id: str, logs: Sequence[RecordedLog]) -> _Placed:
    """Return the log that covers a run, and the run's place in it.

    Raises:
        UserError: No log has the clock of its times, or they may mean two windows.
    """
    if "elapsed" in (run.start.clock, run.end.clock) and len(logs) > 1:
        raise UserError(
            f"seconds since the first record are ambiguous with {len(logs)} logs",
            "write ISO 8601 times, or give one log at a time",
        )
    placed: list[_Placed] = []
    refused: list[UserError] = []
    for log in logs:
        try:
            placed.append(_place_in(log, run, run_id))
        except UserError as error:
            refused.append(error)
    if not placed:
        raise refused[0]
    covered = [placed_run for placed_run in placed if placed_run.reason is None]
    if not covered:
        return placed[0]
    if len(covered) > 1:
        names = " and in ".join([placed_run.log.name for placed_run in covered])
        raise UserError(f"the run lies in {names}", "give one log at a time")
    return covered[0]


def _place_in(log: RecordedLog, run: GivenRun, run_id: str) -> _Placed:
    # A time that the clock showed twice has two places.
    windows: list[tuple[Place, Place]] = []
    covered: list[tuple[Place, Place]] = []
    for begin in log.clock.places(run.start):
        for end in log.clock.places(run.end):
            if begin.ns < end.ns:
                windows.append((begin, end))
                if begin.ns >= 0 and end.ns <= log.last_ns:
                    covered.append((begin, end))
    if len(covered) > 1:
        raise UserError(
            "the log's clock went back, and the run may be in several places",
            "write times with their UTC offset, or seconds since the first record",
        )
    if covered:
        return _Placed(run, run_id, log, *covered[0], None)
    if not windows:
        raise UserError("the run ends before it begins", "correct start or end")
    begin, end = windows[0]
    if begin.ns > log.last_ns or end.ns < 0:
        reason = "it is outside the log"
    elif begin.ns < 0:
        reason = "it begins before the log"
    else:
        reason = "it ends after the log"
    reason += f": from {begin.ns / 1e9:.3f} to {end.ns / 1e9:.3f} s"
    reason += f", and {log.name} has 0 to {log.last_ns / 1e9:.3f} s"
    return _Placed(run, run_id, log, begin, end, reason)


def _with_others(
    placed: Sequence[_Placed],
) -> Iterator[tuple[_Placed, Mapping[str, Sequence[Span]]]]:
    """Yield each run with those that it may overlap."""
    begins = np.array([placed_run.span.begin_ns for placed_run in placed], np.int64)
    ends = np.array([placed_run.span.end_ns for placed_run in placed], np.int64)
    for number, placed_run in enumerate(placed):
        near = np.flatnonzero((begins < ends[number]) & (begins[number] < ends))
        others: dict[str, Sequence[Span]] = {}
        for other_number in near.tolist():
            other = placed[other_number]
            is_same_log = other.log is placed_run.log and other.reason is None
            if is_same_log and other_number != number:
                others[other.run_id] = (other.span,)
        yield placed_run, others


def _report(
    placed: _Placed,
    rule: RailRule | None,
    others: Mapping[str, Sequence[Span]],
    *,
    averaging: float | None,
    simulated: bool,
) -> RunReport:
    run, span, log = placed.run, placed.span, placed.log
    wall_ns = run.start.ns if run.start.clock == "unix" else log.clock.wall_ns(placed.begin.ns)
    trace = RunTrace(
        run_id=placed.run_id,
        workload=run.name,
        backend="recorded",
        device=run.device,
        started_ns=span.begin_ns,
        started_wall_ns=wall_ns or 0,
        batch=run.batch,
        ended_ns=span.end_ns,
        outcome="ok" if placed.reason is None else "skipped",
        reason=placed.reason,
        counts_inferences=run.inferences is not None,
        inference_count=run.inferences,
        unit=run.unit,
        units=run.units,
    )
    for begin_ns, end_ns in run.requests:
        trace.start_ns.append(begin_ns + placed.behind_ns)
        trace.latency_ns.append(end_ns - begin_ns)
    cut = None
    clock_seconds, length_seconds = placed.clock_seconds(), 0.0
    flags: list[Flag] = []
    if placed.begin.jumped or placed.end.jumped:
        flags.append("clock_step")
    if placed.reason is None:
        if clock_seconds is None:
            flags.append("times_assumed")
        length_seconds = placed.length_seconds()
        if length_seconds and "clock_step" not in flags:
            flags.append("clock_step")
        trace.begins["steady"], trace.ends["steady"] = span.begin_ns, span.end_ns
        cut = _cut_of(placed)
        rule = rule or find_rail_rule(RAIL_POWER.by_label(cut.columns))
    return correlate(
        trace,
        cut,
        rule=rule,
        others=others,
        environment=Environment(
            board=None if rule is None else rule.name,
            rail_sensors=stated_sensors(averaging),
            telemetry_source="log",
            simulated=simulated,
            versions={"tegrascope": __version__, "python": python_version()},
        ),
        flags=flags,
        clock_seconds=clock_seconds,
        length_seconds=length_seconds,
    )


def _cut_of(placed: _Placed) -> WindowSlice:
    """Return the telemetry of a run; the steps at its edges show how the sensor averages."""
    reach = round(EDGE_SECONDS * 1e9)
    return placed.log.cut(placed.span.begin_ns - reach, placed.span.end_ns + reach)


def _in_flight(placed: _Placed, report: RunReport, rule: RailRule | None) -> dict[str, Any]:
    """Return time and energy with a request in flight, of a run with pauses between requests."""
    if not placed.run.requests or report.energy is None:
        return {}
    cut = quality.timed(_cut_of(placed))
    rule = rule or find_rail_rule(RAIL_POWER.by_label(cut.columns))
    times = in_flight(placed.run.requests, _LEAST_PAUSE * (interval_ns(cut.times_ns) or 0.0))
    if rule is None or len(times) < 2:
        return {}
    parts = []
    for begin_ns, end_ns in times:
        parts.append(Span(begin_ns=begin_ns + placed.behind_ns, end_ns=end_ns + placed.behind_ns))
    update = report.energy.update_seconds
    if update is not None:
        cut = updates(cut, rule, update)
    timing = timing_of(report.environment, placed.clock_seconds(), quality.late_seconds(cut))
    timing = as_shown(timing, report.environment, module_curve(cut, rule), placed.span, update)
    timing = timing._replace(length=placed.length_seconds())
    joules = energy_of_parts(cut, parts, rule, timing)
    seconds = sum(part.seconds for part in parts)
    figure = joules and joules.model_dump()
    return {"in_flight": {"seconds": seconds, "parts": len(parts), "joules": figure}}


def _document(placed: _Placed, report: RunReport) -> dict[str, Any]:
    """Return a run's row, log and report; a cell that would hide a field is ``given.NAME``."""
    own = {"log": placed.log.name, **report.model_dump(mode="json", exclude=_NEVER)}
    if not own["started_wall_ns"]:
        del own["started_wall_ns"]
    if placed.run.inferences is None:
        own["inferences"] = None
    cells = {}
    for name, cell in placed.run.cells.items():
        if name not in _SHARED:
            cells[f"given.{name}" if name in own else name] = cell
    return cells | own

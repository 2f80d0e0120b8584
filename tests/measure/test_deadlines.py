"""Misses of a deadline: each is counted, with the flags that held at the time of one."""

from array import array

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import DeadlineReport, Span
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.parsers.inference.events import Inferences, Phase

S, MS = 1_000_000_000, 1_000_000
DEADLINE_MS = 33
LATE_AT_2_S = [20] * 50 + [90] + [20] * 149


def report_of(latencies_ms, columns=None, others=None, count=None):
    """Return the report of inferences every 40 ms from 0 on, with a sample per second."""
    trace = RunTrace("r", "w", "tensorrt", "dla0", 0, 0, deadline_seconds=DEADLINE_MS / 1e3)
    starts = tuple(i * 40 * MS for i in range(len(latencies_ms)))
    end_ns = (len(starts) + 2) * 40 * MS
    latency = tuple(round(one * MS) for one in latencies_ms)
    trace.add(Phase(run_id="r", phase="steady", edge="begin", at_ns=0))
    trace.add(Inferences(run_id="r", start_ns=starts, latency_ns=latency))
    trace.add(Phase(run_id="r", phase="steady", edge="end", at_ns=end_ns))
    trace.missed_inferences = count
    times = array("q", range(0, end_ns + S, S))
    given = {name: array("d", map(value, times)) for name, value in (columns or {}).items()}
    return correlate(trace, WindowSlice(times, times, given), others=others).deadline


def test_all_misses_are_counted_with_the_worst_lateness():
    deadline = report_of([20, 50] * 100)
    assert deadline.misses == 100
    assert deadline.worst_lateness_seconds == pytest.approx(0.017)
    assert deadline.flags_at_misses == ()


def test_latency_equal_to_the_deadline_is_in_time():
    deadline = report_of([DEADLINE_MS] * 10)
    assert (deadline.misses, deadline.worst_lateness_seconds) == (0, 0)


def test_workload_without_a_deadline_has_no_misses():
    trace = RunTrace("r", "w", "b", "gpu", 0, 0)
    trace.begins["steady"], trace.ends["steady"] = 0, S
    trace.start_ns, trace.latency_ns = array("q", [0]), array("q", [S // 2])
    assert correlate(trace, None).deadline is None


def test_application_that_sends_some_times_counts_its_misses_itself():
    assert report_of([20] * 50, count=7).misses == 7


def test_run_beside_a_miss_is_a_flag_of_it():
    before = {"other": (Span(begin_ns=0, end_ns=2 * S),)}
    during = {"other": (Span(begin_ns=2 * S + 80 * MS, end_ns=3 * S),)}
    after = {"other": (Span(begin_ns=2 * S + 90 * MS, end_ns=3 * S),)}
    assert report_of(LATE_AT_2_S, others=before).flags_at_misses == ()
    assert report_of(LATE_AT_2_S, others=during).flags_at_misses == ("overlapped",)
    assert report_of(LATE_AT_2_S, others=after).flags_at_misses == ()


@pytest.mark.parametrize("count", ["active", "events"])
def test_throttling_between_the_samples_around_a_miss_is_a_flag_of_it(count):
    def column(kind, since):
        return {f"throttle.{kind}.{count}": lambda at: float(at > since)}

    hot = column("gpu_thermal", 2 * S)
    assert report_of(LATE_AT_2_S, hot).flags_at_misses == ("throttled",)
    later = column("gpu_thermal", 4 * S)
    assert report_of(LATE_AT_2_S, later).flags_at_misses == ()
    assert report_of([20] * 200, hot).flags_at_misses == ()


def test_power_cap_that_is_normal_is_no_flag_of_a_miss():
    capped = {"throttle.sw_power_cap.active": lambda _: 1.0}
    assert report_of(LATE_AT_2_S, capped).flags_at_misses == ()


def test_miss_that_began_long_before_the_other_run_overlaps_it():
    """With several inferences in flight, later ones end before it does."""
    trace = RunTrace("r", "w", "tensorrt", "gpu", 0, 0, deadline_seconds=0.033)
    trace.begins["steady"], trace.ends["steady"] = 0, 7 * S
    trace.start_ns = array("q", range(0, 6 * S, 10 * MS))
    trace.latency_ns = array("q", [20 * MS] * 600)
    trace.latency_ns[200], trace.latency_ns[210] = 900 * MS, 50 * MS
    others = {"other": (Span(begin_ns=2 * S + 800 * MS, end_ns=2 * S + 850 * MS),)}
    deadline = correlate(trace, None, others=others).deadline
    assert (deadline.misses, deadline.flags_at_misses) == (2, ("overlapped",))


def test_record_of_an_older_release_is_read_without_its_weighed_causes():
    evidence = {"cause": "throttled", "weight": 0.9, "detail": "gpu_thermal"}
    miss = {"start_ns": 1, "latency_seconds": 0.05, "evidence": [evidence]}
    kept = {"deadline_seconds": 0.033, "misses": 1, "worst_lateness_seconds": 0.017}
    assert DeadlineReport.model_validate({**kept, "last": [miss]}) == DeadlineReport(**kept)

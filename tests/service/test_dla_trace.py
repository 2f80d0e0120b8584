"""The DLA's trace in the whole daemon: a tree of files stands for the kernel, all else is real."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.tracefs import tracing

HERTZ = 31_250_000
EVERY_SECONDS, BUSY_SECONDS = 0.1, 0.06
CONFIG = """
telemetry:
  interval: 103ms
  tegrastats: {{command: [{python}, -m, tegrascope, simulate]}}
  dla_trace: {{command: [{python}, -m, tegrascope.collectors.dla.reader, --root, {root}]}}
  processes: {{top: 3}}
workloads:
- {{name: ours, command: sleep 3, device: dla0, baseline: 1s, every: 8s}}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> "Iterator[Path]":
    """Trace a task on core 0 ten times a second, 60 ms long, until the test ends."""
    with tracing(tmp_path / "board", EVERY_SECONDS, BUSY_SECONDS, HERTZ) as root:
        yield root


def test_run_has_its_busy_time_and_other_tasks_are_reported(start, kernel):
    """Busy time of the trace is that of the run; a core that works in a baseline has company."""
    daemon = start(CONFIG.format(python=sys.executable, root=kernel))

    def whole() -> "list[dict[str, Any]]":
        """Return runs of which no sample and no line of the trace is missing."""
        return [
            run
            for run in daemon.runs(outcome="ok")
            if not run["telemetry"]["dla_trace_troubles"] and "telemetry_gap" not in run["quality"]
        ]

    (run, *_) = daemon.wait_for(whole)
    busy = run["telemetry"]["utilization"]["dla0:ftrace"]
    assert busy["mean_ratio"] == pytest.approx(BUSY_SECONDS / EVERY_SECONDS, abs=0.05)
    assert run["telemetry"]["utilization"]["dla1:ftrace"]["mean_ratio"] == 0
    assert "foreign_dla_activity" in run["quality"]
    culprit = run["other_processes"][0]
    assert culprit["name"] == "app"
    assert run["foreign_dla_processes"] == ["app"]
    assert culprit["dla_seconds"]["dla0"] > 1
    assert "dla_not_used" not in run["quality"]
    last_run = 'tegra_inference_last_run_dla_busy_ratio{core="0",device="dla0",source="ftrace"'
    daemon.wait_for(lambda: daemon.metric(last_run) in busy_ratios(daemon))
    page = daemon.get("metrics")  # one, as both go on
    seconds = daemon.metric('tegra_dla_busy_seconds_total{core="0",source="ftrace"', page)
    tasks = daemon.metric('tegra_dla_tasks_total{core="0"', page)
    theirs = 'tegra_process_dla_busy_seconds_total{core="0",process="app"'
    assert daemon.metric(theirs, page) == seconds
    assert (daemon.metric('tegra_process_cpu_seconds_total{process="tegrascope"', page) or 0) > 0
    assert seconds == pytest.approx((tasks or 0) * BUSY_SECONDS, rel=0.01)
    daemon.wait_for(lambda: daemon.metric('tegra_dla_busy_ratio{core="1",source="ftrace"') == 0)
    daemon.wait_for(lambda: daemon.metric('tegrascope_source_up{source="ftrace"') == 1)
    assert daemon.stop() < 3


def busy_ratios(daemon) -> "set[float]":
    runs = daemon.runs(outcome="ok")
    return {run["telemetry"]["utilization"]["dla0:ftrace"]["mean_ratio"] for run in runs}


def test_dead_reader_takes_its_figures_along(start, kernel):
    """A reader that is killed is started again, and the gap is counted; nothing passes for idle."""
    daemon = start(CONFIG.format(python=sys.executable, root=kernel))
    series = 'tegra_dla_tasks_total{core="0"'
    before = daemon.wait_for(lambda: daemon.metric(series))
    os.kill(daemon.wait_for(lambda: daemon.child("dla.reader")), 9)
    gap = 'tegrascope_dla_trace_errors_total{reason="gap"'
    assert daemon.wait_for(lambda: daemon.metric(gap)) >= 1
    assert daemon.wait_for(lambda: (daemon.metric(series) or 0) > before + 5)

"""Daemon, pages and commands in the first seconds after the boot, and 400 days after it."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from tegrascope.daemon.web.application import ENDPOINTS
from tests.boots import DAY_SECONDS, JUST_BOOTED_SECONDS, LONG_UP_SECONDS, beside, booted_ago
from tests.daemons import Daemon
from tests.fakes.processes import PATIENCE_SECONDS

# The machine as a robot has it: a tegrastats of its own, companions, guards and two schedules.
CONFIG = """
telemetry:
  source: tegrastats
  interval: 100ms
  tegrastats: {{command: {program}}}
  processes: {{}}
guards: {{duty: 99%}}
workloads:
- {{name: job, command: sleep 0.3, device: cpu, baseline: 300ms, warm_up: 0, duration: 300ms,
   every: 1s}}
- {{name: hourly, command: sleep 0.3, device: cpu, baseline: 0, warm_up: 0, duration: 300ms,
   cron: "0 * * * *"}}
- {{name: robot, backend: window, device: gpu, deadline: 10ms}}
"""
SIMULATE = '#!/bin/sh\nexec {python} -m tegrascope simulate "$@"\n'
PAGES = [endpoint for endpoint in ENDPOINTS if endpoint.method == "GET"]


def execute(*argv):
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


class Robot:
    """A daemon on a machine that booted so many seconds ago, and commands beside it."""

    def __init__(self, seconds, directory):
        self.seconds = seconds
        program = directory / "tegrastats"
        program.write_text(SIMULATE.format(python=shlex.quote(sys.executable)))
        program.chmod(0o755)
        config = directory / "tegrascope.yaml"
        config.write_text(CONFIG.format(program=program))
        state = directory / "state"
        state.mkdir()
        self.daemon = Daemon(config, state, within=booted_ago(seconds))

    @property
    def run(self):
        """The latest run that has telemetry."""
        return self.daemon.wait_for(self._measured_run)

    def _measured_run(self):
        """Return a run that has telemetry; a busy machine may lose the samples of one."""
        runs = self.daemon.runs(workload="job", outcome="ok")
        measured = [run for run in runs if "gross_joules" in run.get("energy", {})]
        return measured[0] if measured else None

    @property
    def pid(self):
        """The daemon itself; ``daemon.process`` is the program that shifts its clocks."""
        return self.daemon.child("tegrascope")

    def command(self, *words):
        """Return how a command ended that begins so long after the boot as the daemon did."""
        return execute(*booted_ago(self.seconds), sys.executable, "-m", "tegrascope", *words)

    def stop(self):
        """End the daemon as systemd does, and return its status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.daemon.process.wait(PATIENCE_SECONDS)


@pytest.fixture(
    scope="module",
    params=[JUST_BOOTED_SECONDS, LONG_UP_SECONDS],
    ids=["5 s after the boot", "400 days after the boot"],
)
def robot(request, tmp_path_factory):
    made = Robot(request.param, tmp_path_factory.mktemp("robot"))
    yield made
    made.daemon.stop(signal.SIGKILL)


@pytest.mark.parametrize("endpoint", PAGES, ids=lambda endpoint: endpoint.handler)
def test_every_page_answers(robot, endpoint):
    path = endpoint.path.format(run_id=robot.run["run_id"], tool="dcgm")
    text = robot.daemon.get(path.removeprefix("/"))
    if endpoint.keys:
        assert json.loads(text).keys() == endpoint.keys.keys()
    assert text
    assert "Internal Server Error" not in text


def test_status_shows_the_board_and_its_schedule(robot):
    status = robot.daemon.wait_for(lambda: fresh_status(robot.daemon))
    assert status["now"]["ram_total"]
    due = {workload["workload"]: workload["due"] for workload in status["workloads"]}
    assert due["hourly"] > status["time"]
    assert due["robot"] is None


def fresh_status(daemon):
    status = daemon.json("api/v1/status")
    return status if all(source["up"] for source in status["sources"]) else None


def test_samples_and_charts_begin_at_the_first_sample(robot):
    assert robot.daemon.json("api/v1/samples")["samples"]
    assert robot.daemon.json("api/v1/series")["parts"]


def test_run_is_measured_and_stored(robot):
    run = robot.run
    elapsed = run["started_ns"] / 1e9 - robot.seconds
    assert 0 <= elapsed < DAY_SECONDS
    assert not {"clock_step", "suspended"} & set(run["quality"])
    assert run["energy"]["gross_joules"] > 0


def test_top_draws_a_screen(robot):
    ended = robot.command("top", "--once", "--url", robot.daemon.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "job" in ended.stdout


def test_exec_measures_a_program_without_a_daemon(robot, tmp_path):
    report = tmp_path / "report.json"
    ended = robot.command(
        *("exec", "--workload", "alone", "--device", "gpu", "--telemetry", "simulator"),
        *("--interval", "0.05", "--json", str(report), "--", "sleep", "0.5"),
    )
    assert ended.returncode == 0, ended.stderr
    run = json.loads(report.read_text())
    assert run["outcome"] == "ok"
    assert 0 <= run["started_ns"] / 1e9 - robot.seconds < DAY_SECONDS
    assert run["telemetry"]["samples"] > 0


def test_exec_is_measured_by_the_daemon(robot):
    token = robot.daemon.state_dir / "token"
    argv = (
        *(*beside(robot.pid), sys.executable, "-m", "tegrascope", "exec", "--workload", "robot"),
        *("--url", robot.daemon.url, "--token-file", str(token), "--", "sleep", "0.5"),
    )
    reasons = []
    for _ in range(5):
        ended = execute(*argv)
        assert ended.returncode == 0, ended.stderr
        if "not measured" not in ended.stderr and "measured here" not in ended.stderr:
            break
        # A busy machine answers a program too late, which then runs on its own.
        reasons.append(ended.stderr)
    else:
        raise AssertionError(reasons)
    run, *_ = robot.daemon.wait_for(lambda: robot.daemon.runs(workload="robot", outcome="ok"))
    assert run["telemetry"]["samples"] > 0


def test_daemon_ends_when_asked_and_logs_no_traceback(robot):
    """The last test of each machine."""
    # Alone, this test would send the process signal before Python can hear it.
    robot.daemon.wait_for(lambda: robot.daemon.get("healthz"))
    assert robot.stop() == 0
    assert not any("Traceback" in line for line in robot.daemon.log)


def test_clock_offset_of_a_namespace_is_known():
    code = "from tests.boots import clock_offset; print(clock_offset('monotonic'))"
    argv = [*booted_ago(LONG_UP_SECONDS), sys.executable, "-c", code]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert int(ended.stdout) > LONG_UP_SECONDS / 2


def test_ci_fails_where_the_clocks_cannot_be_shifted(monkeypatch):
    """Elsewhere the test is skipped, with the reason."""
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt install util-linux"):
        booted_ago(JUST_BOOTED_SECONDS)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI has to test this"):
        booted_ago(JUST_BOOTED_SECONDS)

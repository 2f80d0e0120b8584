"""A program as a back-end: run until there is enough, heard, and gone when it should be."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tegrascope.collectors.catalog import find_backend
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.parsers.inference.events import (
    Counted,
    Finished,
    Loaded,
    Order,
    Phase,
    Progress,
    parse_run_event,
    render_event,
)
from tegrascope.parsers.records import Record
from tests.fakes.processes import is_running, until


class Bench:
    """A runner in this process, and what it told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stop = threading.Event()
        self.events: list[Record] = []

    def order(self, script: str, **changes: object) -> Order:
        path = self.directory / "infer"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        asked: dict[str, object] = {
            "run_id": "r1",
            "backend": "command",
            "device": "dla0",
            "model_directory": str(self.directory),
            "program": [str(path), "one word", "--loop"],
        }
        if "count" not in changes:
            asked["duration_seconds"] = 0.05
        return Order.model_validate({**asked, **changes})

    def run(self, script: str, **changes: object) -> Finished:
        runner = Runner(lambda name: find_backend(name)(), self.events.append, self.stop)
        runner.run(self.order(script, **changes))
        runner.close()
        finished = self.events[-1]
        assert isinstance(finished, Finished)
        return finished

    def counted(self) -> "list[int | None]":
        return [event.inferences for event in self.events if isinstance(event, Counted)]

    def steady(self) -> "dict[str, int]":
        return {
            event.edge: event.at_ns
            for event in self.events
            if isinstance(event, Phase) and event.phase == "steady"
        }

    def lines(self, name: str) -> "list[str]":
        return (self.directory / name).read_text().splitlines()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_long_program_is_run_once_to_its_own_end(bench):
    script = f"""echo started >> {bench.directory}/log
echo tegrascope: inferences=1200
echo "tegrascope: inferences=1 or so"
sleep 0.3
echo tegrascope: inferences=34
"""
    assert bench.run(script).outcome == "ok"
    assert bench.counted() == [1234]
    assert bench.lines("log") == ["started"]
    steady = bench.steady()
    assert steady["end"] - steady["begin"] >= 300_000_000


def test_short_program_is_run_until_there_is_enough(bench):
    """A program that ends early is started again until the time, or the count, is reached."""
    script = f"echo again >> {bench.directory}/log; echo tegrascope: inferences=10"
    assert bench.run(script, count=35).outcome == "ok"
    assert (bench.counted(), len(bench.lines("log"))) == ([40], 4)
    bench.events.clear()
    assert bench.run(script, duration_seconds=0.4).outcome == "ok"
    (count,) = bench.counted()
    assert count == 10 * (len(bench.lines("log")) - 4) > 10
    assert bench.steady()["end"] - bench.steady()["begin"] >= 400_000_000


def test_units_of_every_start_add_up(bench):
    """A unit is counted in singular and plural, in either form, beside the inferences."""
    script = f"""echo again >> {bench.directory}/log
echo tegrascope: inferences=10
echo tegrascope: tokens=31; echo TEGRASCOPE token=1.5
echo tegrascope: tokens; echo tegrascope: tokens=-1"""
    assert bench.run(script, count=35, unit="token").outcome == "ok"
    (event,) = (one for one in bench.events if isinstance(one, Counted))
    assert (event.inferences, event.units, event.units_interval) == (40, 4 * 32.5, None)
    assert not [one for one in bench.events if isinstance(one, Progress)]


@pytest.mark.parametrize(("unit", "why"), [("frame", "unit: frame"), (None, "no unit")])
def test_count_of_another_unit_is_named_and_not_used(bench, unit, why):
    assert bench.run("echo tegrascope: tokens=5", unit=unit).outcome == "ok"
    (event,) = (one for one in bench.events if isinstance(one, Counted))
    assert (event.inferences, event.units) == (None, None)
    (doing,) = (one.doing for one in bench.events if isinstance(one, Progress))
    assert doing == f"prints tokens=N, which is not counted, as it has {why}"


def test_program_that_counts_nothing_is_a_window_nobody_counted(bench):
    assert bench.run("true").outcome == "ok"
    assert bench.counted() == [None]
    told = bench.run("true", count=5)
    assert told.outcome == "failed"
    assert "let it print tegrascope: inferences=N" in str(told.reason)


def test_program_is_told_what_it_is_run_for(bench):
    """Its arguments are as configured, and device and run are in its environment."""
    script = f'echo "$1|$2|$TEGRASCOPE_DEVICE|$TEGRASCOPE_RUN_ID" > {bench.directory}/told'
    bench.run(script)
    assert bench.lines("told") == ["one word|--loop|dla0|r1"]
    (loaded, *_) = (event for event in bench.events if isinstance(event, Loaded))
    assert len(loaded.model_sha256) == 64


def test_failure_is_told_with_its_last_words(bench):
    """A status is the run's reason, with the last line that the program wrote about it."""
    told = bench.run("echo tegrascope: inferences=5; echo out of memory >&2; exit 3")
    assert (told.outcome, told.reason) == (
        "failed",
        "the program ended with status 3: out of memory",
    )
    assert bench.counted() == []
    assert "end" not in bench.steady()
    told = bench.run("kill -SEGV $$")
    assert told.reason == "the program was ended by signal 11: run it by hand to see why"


def test_failure_after_good_runs_keeps_those(bench):
    script = f"""echo x >> {bench.directory}/log
echo tegrascope: inferences=10
[ $(wc -l < {bench.directory}/log) -lt 3 ]"""
    assert bench.run(script, count=100).outcome == "failed"
    assert bench.counted() == [20]
    assert set(bench.steady()) == {"begin", "end"}


def test_missing_program_is_unavailable(bench):
    told = bench.run("true", program=["/no/such/program"])
    assert told.skip_reason == "unavailable"
    assert "there is no program /no/such/program" in str(told.reason)
    told = bench.run("true", program=[])
    assert told.skip_reason == "unavailable"


def left_over(path: Path) -> "list[int]":
    """Return which of the processes in a file are still alive after a while of waiting."""
    pids = [int(line) for line in path.read_text().split()]
    until(lambda: not any(map(is_running, pids)))
    return [pid for pid in pids if is_running(pid)]


def test_what_a_program_leaves_behind_is_ended(bench):
    """Children in the background go with the program, so that the next run is alone."""
    script = f"sleep 600 & echo $! > {bench.directory}/pids; echo tegrascope: inferences=1"
    assert bench.run(script).outcome == "ok"
    assert left_over(bench.directory / "pids") == []


def test_cancelling_ends_the_whole_group(bench):
    """Told to stop, the runner ends the program and its children, however deaf they are."""
    pids = bench.directory / "pids"
    script = f"trap '' TERM INT; sleep 600 & echo $$ $! > {pids}.part; mv {pids}.part {pids}; wait"

    def stop() -> None:
        until(pids.exists)
        bench.stop.set()

    thread = threading.Thread(target=stop)
    thread.start()
    told = bench.run(script)
    thread.join()
    assert told.outcome == "cancelled"
    assert left_over(pids) == []
    assert bench.counted() == []


@pytest.mark.parametrize("end", ["close", "terminate", "kill"])
def test_no_program_outlives_its_worker(bench, end):
    pids = bench.directory / "pids"
    order = bench.order(f"echo $$ > {pids}.part; mv {pids}.part {pids}; exec sleep 600")
    with subprocess.Popen(
        [sys.executable, "-m", "tegrascope.collectors.worker.child", "--lane", "dla0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=bench.directory,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(render_event(order) + "\n")
        worker.stdin.flush()
        assert until(pids.exists)
        if end == "close":
            worker.stdin.close()
        else:
            getattr(worker, end)()
        told = [parse_run_event(line) for line in worker.stdout]
    assert left_over(pids) == []
    if end == "terminate":
        assert isinstance(told[-1], Finished)
        assert told[-1].outcome == "cancelled"


def test_worker_reads_standard_output_only(bench):
    """A flood on standard error neither blocks the program nor counts."""
    script = "yes 'tegrascope: inferences=9' | head -c 3000000 >&2; echo tegrascope: inferences=2"
    assert bench.run(script, count=2).outcome == "ok"
    assert bench.counted() == [2]

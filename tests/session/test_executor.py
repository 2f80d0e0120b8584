"""An executor and its worker: real children that obey, hang, crash, babble and refuse."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tegrascope.daemon.session.executor import Executor
from tegrascope.parsers.inference.events import Order, Process, RunEvent
from tegrascope.parsers.inference.servers import CounterPage

ORDER = Order(run_id="r1", backend="x", device="cpu", model="m", model_directory="/tmp", count=1)

PREAMBLE = """
import json, os, sys, time
def tell(**event): print(json.dumps(event), flush=True)
tell(event="hello", pid=os.getpid(), python="3")
for line in sys.stdin:
    order = json.loads(line)
    run = dict(run_id=order["run_id"])
    tell(event="phase", phase="load", edge="begin", at_ns=time.monotonic_ns(), **run)
"""


@pytest.fixture
def executor_of(tmp_path: Path):
    """Make an executor whose worker runs a few lines of Python for each order."""
    executors = []

    def make(body: str) -> Executor:
        script = tmp_path / "worker.py"
        script.write_text(PREAMBLE + "".join(f"    {line}\n" for line in body.splitlines()))
        executors.append(Executor("cpu", argv=(sys.executable, str(script))))
        return executors[-1]

    yield make
    for executor in executors:
        executor.close()


def run(executor: Executor, timeout_seconds: float = 120.0) -> "tuple[object, list[RunEvent]]":
    events: list[RunEvent] = []
    return executor.run(ORDER, timeout_seconds, events.append), events


def test_obedient_worker_is_kept(executor_of):
    """A good run is ``ok`` with all of its events, and the next one finds the same worker."""
    executor = executor_of('tell(event="finished", outcome="ok", **run)')
    finished, events = run(executor)
    assert (finished.outcome, finished.reason) == ("ok", None)
    assert [event.event for event in events] == ["phase", "finished"]
    first = executor.pid
    assert run(executor)[0].outcome == "ok"
    assert executor.pid == first


@pytest.mark.parametrize("outcome", ["failed", "skipped", "ok"])
def test_last_lines_of_the_worker_are_kept_unless_it_is_ok(executor_of, outcome):
    executor = executor_of(
        "for n in range(60): print('line', n, file=sys.stderr)\n"
        f'tell(event="finished", outcome="{outcome}", reason="as asked", **run)'
    )
    finished, _ = run(executor)
    last_lines = tuple(f"line {n}" for n in range(20, 60))
    assert finished.worker_log == (() if outcome == "ok" else last_lines)


def test_last_lines_of_a_worker_that_dies_are_kept(executor_of):
    finished, _ = run(executor_of("print('[E] of TensorRT', file=sys.stderr); os._exit(3)"))
    assert finished.worker_log == ("[E] of TensorRT",)


@pytest.mark.parametrize(
    "end",
    [
        'tell(event="finished", outcome="failed", reason="SECRETKEY is bad", **run); sys.exit()',
        'print("Bearer SECRETKEY", file=sys.stderr, flush=True); sys.exit(3)',
    ],
)
def test_key_of_the_order_is_in_no_event_and_no_log(executor_of, tmp_path, caplog, end):
    """A program may print the header that it sends."""
    key = tmp_path / "key"
    key.write_text("SECRETKEY\n")
    scrape = CounterPage(url="http://127.0.0.1:1", api_key_file=str(key))
    executor = executor_of(f'print("key SECRETKEY", file=sys.stderr, flush=True)\n{end}')
    finished = executor.run(ORDER.model_copy(update={"scrape": scrape}), 120.0, lambda _: None)
    assert finished.outcome == "failed"
    assert "[secret]" in finished.reason
    assert "SECRET" not in f"{finished}{caplog.text}"


def test_babble_is_no_event(executor_of):
    """What a library prints between the events does not disturb them."""
    executor = executor_of(
        'print("CUDA says hello"); print("{}")\ntell(event="finished", outcome="ok", **run)'
    )
    finished, events = run(executor)
    assert finished.outcome == "ok"
    assert len(events) == 2


def test_hanging_worker_is_killed_and_replaced(executor_of):
    """After its timeout a run is ``timeout``, its worker is gone, and the executor goes on."""
    executor = executor_of(
        'if os.path.exists(sys.argv[0] + ".again"):\n'
        "    time.sleep(1000)\n"
        'open(sys.argv[0] + ".again", "w").close()\n'
        'tell(event="finished", outcome="ok", **run)'
    )
    assert run(executor)[0].outcome == "ok"  # its start takes its time on a busy machine
    finished, _ = run(executor, 1.0)
    assert finished.outcome == "timeout"
    assert "phase load" in finished.reason
    assert executor.pid is None


def test_crash_is_failed_with_the_last_words(executor_of):
    """A worker that dies by itself leaves its exit status and what it said last."""
    finished, _ = run(executor_of('sys.exit("the driver is gone")'))
    assert finished.outcome == "failed"
    assert "status 1" in finished.reason
    assert finished.reason.endswith("the driver is gone")


def test_killed_worker_is_failed_by_signal_and_replaced(executor_of):
    """SIGKILL of a worker ends that run only."""
    executor = executor_of(
        'if not os.path.exists(sys.argv[0] + ".again"):\n'
        '    open(sys.argv[0] + ".again", "w").close()\n'
        "    os.kill(os.getpid(), 9)\n"
        'tell(event="finished", outcome="ok", **run)'
    )
    finished, _ = run(executor)
    assert finished.outcome == "failed"
    assert "by signal 9" in finished.reason
    assert run(executor)[0].outcome == "ok"


def test_worker_killed_between_runs_is_replaced(executor_of):
    """A worker that died while nothing ran costs the next run nothing."""
    executor = executor_of('tell(event="finished", outcome="ok", **run)')
    run(executor)
    os.kill(executor.pid, signal.SIGKILL)
    os.waitid(os.P_PID, executor.pid, os.WEXITED | os.WNOWAIT)
    assert run(executor)[0].outcome == "ok"


def test_missing_backend_is_skipped_as_unavailable(executor_of):
    """What is not on this machine is no failure of the run; the reason says what to do."""
    executor = executor_of(
        'tell(event="finished", outcome="skipped", skip_reason="unavailable",'
        ' reason="pip install it", **run)'
    )
    finished, _ = run(executor)
    assert finished.outcome == "skipped"
    assert (finished.skip_reason, finished.reason) == ("unavailable", "pip install it")


def test_cancel_ends_a_run_at_once(executor_of):
    """When the daemon stops, the run in flight is ``cancelled`` and its worker is gone."""
    executor = executor_of("time.sleep(1000)")
    threading.Timer(0.3, executor.cancel).start()
    finished, _ = run(executor)
    assert finished.outcome == "cancelled"
    assert executor.pid is None


def test_cancel_holds_for_a_run_that_begins_later():
    """It ends as ``cancelled``, not by its timeout, though its worker never says a word."""
    executor = Executor("cpu", argv=(sys.executable, "-c", "import time; time.sleep(1000)"))
    executor.cancel()
    finished, _ = run(executor, timeout_seconds=5)
    assert finished.outcome == "cancelled"
    assert executor.pid is None


def test_missing_worker_fails_the_run_only(tmp_path):
    """A worker that can't be started is told in the run's record."""
    finished, _ = run(Executor("cpu", argv=(str(tmp_path / "none"),)))
    assert finished.outcome == "failed"
    assert "does not start" in finished.reason


def test_other_process_settings_need_another_worker(executor_of):
    """A worker keeps its priority and cores for life, so an order with others gets a new one."""
    executor = executor_of(
        'print("niceness", os.nice(0), sys.argv[1:], file=sys.stderr, flush=True)\n'
        'tell(event="finished", outcome="failed", reason=" ".join(sys.argv[3:]), **run)'
    )
    reasons, pids = [], set()
    for process in (Process(), Process(nice=3, cpus=(0,)), Process(nice=3, cpus=(0,))):
        order = ORDER.model_copy(update={"process": process})
        reasons.append(executor.run(order, 120.0, lambda _: None).reason)
        pids.add(executor.pid)
    changed = '--process {"nice":3,"cpus":[0]}'
    assert reasons == ["--process {}", changed, changed]
    assert len(pids) == 2


def test_a_declined_order_goes_to_another_worker(executor_of):
    executor = executor_of(
        'if order["model"] != globals().setdefault("loaded", order["model"]):\n'
        '    tell(event="declined", **run)\n'
        "else:\n"
        '    tell(event="finished", outcome="failed", reason=str(os.getpid()), **run)'
    )
    pids = []
    for model in ("m", "m", "n", "n", "m"):
        order = ORDER.model_copy(update={"model": model})
        pids.append(executor.run(order, 120.0, lambda _: None).reason)
        assert pids[-1] == str(executor.pid)
    assert pids[0] == pids[1] and pids[2] == pids[3]
    assert len({pids[0], pids[2], pids[4]}) == 3


def test_timeout_of_a_second_worker_is_the_configured_one(executor_of):
    executor = executor_of(
        'if order["model"] == "n" and "loaded" in globals():\n'
        '    tell(event="declined", **run)\n'
        'elif order["model"] == "n":\n'
        "    time.sleep(1000)\n"
        "loaded = True\n"
        'tell(event="finished", outcome="ok", **run)'
    )
    assert run(executor)[0].outcome == "ok"
    finished = executor.run(ORDER.model_copy(update={"model": "n"}), 2.0, lambda _: None)
    assert finished.outcome == "timeout"
    assert finished.reason.startswith("no end after 2 s, in phase load")


def test_a_worker_that_declines_everything_fails_the_run(executor_of):
    finished, _ = run(executor_of('tell(event="declined", **run)'))
    assert finished.outcome == "failed"
    assert "declines its first order" in finished.reason


def test_a_worker_that_cannot_have_its_cores_says_which_there_are(tmp_path):
    """Settings that the machine cannot give are the run's failure, with what would be right."""
    executor = Executor("cpu", cwd=tmp_path)
    order = ORDER.model_copy(update={"process": Process(cpus=(4090,))})
    finished = executor.run(order, 120.0, lambda _: None)
    assert finished.outcome == "failed"
    assert "4090" in finished.reason
    assert f"are {min(os.sched_getaffinity(0))}" in finished.reason
    executor.close()

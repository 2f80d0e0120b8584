"""``tegrascope.window``: its reports to the daemon, and its cost to the application."""

import http.server
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tegrascope
from tegrascope.collectors.application.lock_in import LockIn
from tegrascope.collectors.application.window import MarkBuffer, Window
from tegrascope.daemon.session.windows import Begin, End, read_mark
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.marks import TIMES_AT_MOST
from tests.fakes.processes import PATIENCE_SECONDS, Stopwatch


class Answers:
    """A server that accepts marks like the daemon, or refuses them."""

    def __init__(self, directory: Path) -> None:
        self.marks: list[Begin | End] = []
        self.refusals: list[int] = []
        self.enough: dict[str, float] = {"seconds": 0.05, "inferences": 1}
        self.timeout_seconds = 600.0
        self.deadline_seconds: float | None = None
        self.changed = threading.Condition()
        self.token_file = directory / "token"
        self.token_file.write_text("secret\n")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.where = {"url": self.url, "token_file": self.token_file}
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self._thread.start()

    def _handler(self) -> "type[http.server.BaseHTTPRequestHandler]":
        def answer(body: bytes, token: "str | None") -> "tuple[int, dict[str, Any]]":
            with self.changed:
                self.changed.notify_all()
                if token != "Bearer secret":
                    return 401, {"error": "token"}
                if self.refusals:
                    return self.refusals.pop(), {"error": "no"}
                mark = read_mark(body)
                assert isinstance(mark, Begin | End)
                self.marks.append(mark)
            document = {"timeout_seconds": self.timeout_seconds, "enough": self.enough}
            document["deadline_seconds"] = self.deadline_seconds
            document["steps_seconds"] = [0.5, 0.3, 0.4, 0.3, 0.5]
            return 202, {"run_id": f"run-{len(self.marks)}", **document}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, document = answer(body, self.headers["authorization"])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def begins(self) -> "list[Begin]":
        return [mark for mark in self.marks if isinstance(mark, Begin)]

    def ends(self) -> "list[End]":
        return [mark for mark in self.marks if isinstance(mark, End)]

    def wait_for(self, what: Callable[[], object]) -> None:
        with self.changed:
            assert self.changed.wait_for(what, PATIENCE_SECONDS), self.marks

    def stop(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    made = Answers(tmp_path)
    yield made
    made.stop()


def test_units_alone_make_a_window(answers):
    """Tokens that are counted as they come begin and end a window, without an inference."""
    answers.enough = {"seconds": 0.05, "inferences": 30}
    with tegrascope.window("llm", unit="token", **answers.where) as marks:
        for _ in range(10):
            marks.units(3)
        answers.wait_for(lambda: answers.ends())
        marks.units(0.5)
    begins, (first, second) = answers.begins(), answers.ends()
    assert [begin.unit for begin in begins] == ["token", "token"]
    assert (first.units, first.inferences, first.start_ns) == (30, None, ())
    assert (second.units, second.outcome) == (0.5, "ok")
    assert second.begin_ns == first.end_ns


def test_count_of_nothing_begins_no_window():
    """A stream may send a piece without a token at any time."""
    marks = MarkBuffer()
    marks.counted(0, 1, units=0)
    marks.counted(0, 2)
    assert not marks.begun.is_set()
    marks.counted(0, 3, units=0.5)
    assert marks.begun.is_set()


def test_phases_follow_each_other_through_the_windows(answers):
    """A phase ends where the next one begins, and goes on in the next window."""
    answers.enough = {"seconds": 0.05, "inferences": 3}
    with tegrascope.window("llm", unit="token", **answers.where) as marks:
        marks.phase("prefill")
        marks.units(1)
        marks.phase("decode")
        marks.units(2)
        answers.wait_for(lambda: answers.ends())
        marks.units(4)
        marks.phase(None)
        marks.phase("prefill")
        marks.units(1)
    first, second = answers.ends()
    prefill, decode = first.phases
    assert [(one.name, one.units) for one in first.phases] == [("prefill", 1), ("decode", 2)]
    assert first.begin_ns == prefill.begin_ns
    assert prefill.end_ns == decode.begin_ns < decode.end_ns == first.end_ns
    assert [(one.name, one.units) for one in second.phases] == [("decode", 4), ("prefill", 1)]
    assert second.begin_ns == first.end_ns == second.phases[0].begin_ns
    assert second.phases[0].end_ns < second.phases[1].begin_ns  # time without a phase
    assert second.phases[1].end_ns == second.end_ns


def test_more_phases_than_a_window_takes_are_left_out(answers):
    """The window is reported without them: a part of the phases would be a wrong mix."""
    for name_of, count in ((lambda i: f"p{i % 2}", 2100), (lambda i: f"p{i}", 9)):
        with tegrascope.window("llm", **answers.where) as marks:
            for number in range(count):
                marks.phase(name_of(number))
            marks.count()
        end = answers.ends()[-1]
        assert (end.outcome, end.inferences, end.phases) == ("ok", 1, ())


def test_name_of_a_phase_that_the_daemon_would_refuse_raises(answers):
    marks = Window("llm", **answers.where)
    for name in ("Prefill", "pre fill", "", "9"):
        with pytest.raises(ValueError, match="is not a phase"):
            marks.phase(name)


def infer(marks: "tegrascope.collectors.application.window.Window", count: int) -> None:
    for _ in range(count):
        with marks.inference():
            pass


def test_block_is_reported_as_one_window(answers):
    answers.enough = {"seconds": 60, "inferences": 200}
    before = time.monotonic_ns()
    with tegrascope.window("detector", "dla0", batch=4, **answers.where) as marks:
        answers.wait_for(answers.begins)
        for _ in range(3):
            with marks.stage("pre"):
                pass
            with marks.inference(), marks.stage("inference"):
                pass
            with marks.stage("post"):
                pass
        marks.count(2)
    (begin,), (end,) = answers.begins(), answers.ends()
    assert (begin.workload, begin.device, begin.batch) == ("detector", "dla0", 4)
    assert (end.run_id, end.outcome, end.inferences) == ("run-1", "ok", 5)
    assert len(end.start_ns) == len(end.latency_ns) == 3
    stages = {stage: len(each) for stage, each in end.stages_ns.items()}
    assert stages == {"pre": 3, "compute": 3, "post": 3}
    assert before <= begin.begin_ns < end.begin_ns == end.start_ns[0]
    assert end.start_ns[-1] + end.latency_ns[-1] <= end.end_ns <= time.monotonic_ns()


def test_misses_of_the_deadline_are_counted_in_the_application(answers):
    answers.enough, answers.deadline_seconds = {"seconds": 60, "inferences": 200}, 0.01
    with tegrascope.window("detector", strict=True, **answers.where) as marks:
        now_ns = time.monotonic_ns()
        for _ in range(TIMES_AT_MOST + 1):
            marks.record(now_ns, now_ns + 10_000_000)
        for _ in range(30):
            marks.record(now_ns, now_ns + 11_000_000)
    (end,) = answers.ends()
    assert end.misses == 30
    assert len(end.start_ns) < end.inferences == TIMES_AT_MOST + 31


def test_application_without_a_deadline_sends_no_misses(answers):
    with tegrascope.window("detector", strict=True, **answers.where) as marks:
        marks.record(time.monotonic_ns(), time.monotonic_ns() + 1)
    (end,) = answers.ends()
    assert end.misses is None


def test_block_without_marks_is_a_window_without_count(answers):
    with tegrascope.window("detector", **answers.where):
        answers.wait_for(answers.begins)
    (begin,), (end,) = answers.begins(), answers.ends()
    assert end.inferences is None
    assert end.begin_ns == begin.begin_ns < end.end_ns


def test_service_is_reported_window_by_window(answers):
    with tegrascope.window("detector", **answers.where) as marks:
        while len(answers.ends()) < 3:
            infer(marks, 1)
    ends = answers.ends()
    assert sum(end.inferences for end in ends) == marks.inferences
    starts = [start for end in ends for start in end.start_ns]
    assert starts == sorted(set(starts))
    for earlier, later in pairwise(ends):
        assert later.begin_ns == earlier.end_ns
    for end in ends:
        assert all(
            end.begin_ns <= start and start + latency <= end.end_ns
            for start, latency in zip(end.start_ns, end.latency_ns, strict=True)
        )


def test_pause_opens_no_window(answers):
    with tegrascope.window("detector", period=0.05, **answers.where) as marks:
        infer(marks, 1)
        answers.wait_for(answers.ends)
        paused_ns = time.monotonic_ns()
        with answers.changed:
            assert not answers.changed.wait_for(lambda: len(answers.begins()) > 1, 0.2)
        infer(marks, 1)
    first, second = answers.ends()
    assert second.begin_ns == second.start_ns[0] > paused_ns
    assert first.inferences == second.inferences == 1


def test_window_waits_for_enough_inferences_but_not_for_ever(answers):
    answers.enough, answers.timeout_seconds = {"seconds": 0.01, "inferences": 200}, 0.5
    with tegrascope.window("detector", **answers.where) as marks:
        infer(marks, 1)
        answers.wait_for(answers.ends)
    (end, *_) = answers.ends()
    assert end.inferences == 1


def test_threads_lose_no_inference(answers):
    with tegrascope.window("detector", **answers.where) as marks:
        threads = [threading.Thread(target=infer, args=(marks, 3000)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ends = answers.ends()
    assert sum(end.inferences for end in ends) == 24_000
    for end in ends:
        assert min(end.start_ns) >= end.begin_ns
        assert max(map(sum, zip(end.start_ns, end.latency_ns, strict=True))) <= end.end_ns


def test_decorator_marks_each_call(answers):
    marks = tegrascope.window("detector", **answers.where)

    @marks.inference()
    def detect(image: int, scale: int = 1) -> int:
        """Detect."""
        return image * scale

    marks.start()
    assert [detect(3, scale=n) for n in range(4)] == [0, 3, 6, 9]
    assert (detect.__name__, detect.__doc__) == ("detect", "Detect.")
    marks.stop()
    assert sum(end.inferences for end in answers.ends()) == 4


def test_inference_that_raises_is_not_counted(answers):
    with (
        pytest.raises(KeyError, match="gone"),
        tegrascope.window("detector", **answers.where) as marks,
    ):
        infer(marks, 2)
        with marks.inference():
            raise KeyError("gone")
    end = answers.ends()[-1]
    assert (end.outcome, end.reason) == ("failed", "KeyError: 'gone'")
    assert sum(one.inferences for one in answers.ends()) == 2


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_process_signal_is_not_a_failure(answers, kind):
    with pytest.raises(kind), tegrascope.window("detector", **answers.where):
        raise kind
    assert answers.ends()[-1].outcome == "ok"


def test_unknown_stage_is_an_error():
    with pytest.raises(ValueError, match="pre, compute or post"):
        tegrascope.window("detector").stage("warp")


def test_application_without_a_daemon_continues_with_one_warning(tmp_path, caplog):
    token = tmp_path / "token"
    token.write_text("secret")
    for url, token_file in (
        ("http://127.0.0.1:9", token),
        ("http://127.0.0.1:9", tmp_path / "none"),
        ("ftp://nowhere", token),
        ("http://[::1", token),
    ):
        caplog.clear()
        with tegrascope.window("d", url=url, token_file=token_file, period=0.01) as marks:
            infer(marks, 5)
        assert marks.inferences == 5
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert caplog.records[0].name == "tegrascope.window"


def test_only_a_small_file_is_a_token(answers, tmp_path):
    large = tmp_path / "large"
    large.write_text("x" * 1_000_000)
    for path in (large, Path(os.devnull)):
        with (
            pytest.raises(UserError, match="no token can be read"),
            tegrascope.window("detector", strict=True, url=answers.url, token_file=path),
        ):
            raise AssertionError("the block must not begin")


@pytest.mark.parametrize("status", [400, 401, 404, 409, 500])
def test_refusal_is_one_warning_and_strict_an_error(answers, status, caplog):
    answers.refusals = [status] * 9
    with tegrascope.window("detector", **answers.where) as marks:
        infer(marks, 1)
    assert len(caplog.records) == 1
    with (
        pytest.raises(UserError, match=str(status) if status != 401 else "token"),
        tegrascope.window("detector", strict=True, **answers.where),
    ):
        raise AssertionError("the block must not begin")


def test_strict_window_raises_if_its_end_is_refused(answers):
    marks = tegrascope.window("detector", strict=True, **answers.where).start()
    answers.refusals = [404] * 9
    with pytest.raises(UserError, match="404"):
        marks.stop()


def test_busy_daemon_is_asked_again(answers):
    answers.refusals = [503, 503]
    with Window("detector", strict=True, busy_seconds=0.01, **answers.where) as marks:
        infer(marks, 1)
    assert [end.inferences for end in answers.ends()] == [1]


def test_daemon_that_comes_later_is_found(answers, tmp_path):
    answers.token_file.rename(tmp_path / "later")
    with Window("detector", period=0.01, retry_seconds=0.05, **answers.where) as marks:
        infer(marks, 1)
        (tmp_path / "later").rename(answers.token_file)
        until = time.monotonic() + PATIENCE_SECONDS
        while not answers.ends() and time.monotonic() < until:
            infer(marks, 1)
    assert answers.ends()


def test_environment_names_the_daemon(answers, monkeypatch):
    monkeypatch.setenv("TEGRASCOPE_URL", answers.url + "/")
    monkeypatch.setenv("TEGRASCOPE_TOKEN_FILE", str(answers.token_file))
    with tegrascope.window("detector", strict=True):
        pass
    assert answers.ends()


def test_fast_loop_is_thinned_evenly():
    buffer = MarkBuffer()
    for number in range(45_000):
        buffer.inference(number * 1000, number * 1000 + 500)
        buffer.stage("pre", 0, number)
    marks = buffer.take()
    end = read_mark(marks.render(0, event="end", run_id="r", inferences=marks.count))
    assert isinstance(end, End)
    assert end.inferences == buffer.total == 45_000
    steps = {later - earlier for earlier, later in pairwise(end.start_ns)}
    assert (len(end.start_ns), steps) == (5625, {8000})
    assert len(end.stages_ns["pre"]) == 5625


def test_largest_window_fits_the_body():
    from tegrascope.daemon.session.windows import BODY_AT_MOST

    buffer = MarkBuffer()
    year_ns = 365 * 86_400 * 10**9
    for number in range(TIMES_AT_MOST):
        start_ns = year_ns + number * 30 * 10**9
        buffer.inference(start_ns, start_ns + 29 * 10**9)
        for stage in ("pre", "h2d", "compute", "d2h", "post"):
            buffer.stage(stage, 0, 10**10)
    assert len(buffer.take().render(year_ns)) < BODY_AT_MOST


KILLED = """
import os, signal, sys, tegrascope
marks = tegrascope.window("detector", period=0.05, url=sys.argv[1], token_file=sys.argv[2])
with marks:
    while True:
        with marks.inference():
            print("infers", flush=True)
        END
"""


def run(code: str, answers: Answers) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-c", code, answers.url, str(answers.token_file)]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


def test_windows_before_a_kill_are_kept(answers):
    argv = [sys.executable, "-c", KILLED.replace("END", ""), answers.url, str(answers.token_file)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        answers.wait_for(answers.ends)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert answers.ends()[0].inferences > 0


def test_exit_without_a_stop_reports_the_last_window(answers):
    code = KILLED.replace("with marks:", "marks.start()\nif True:").replace("END", "sys.exit(3)")
    answers.enough = {"seconds": 60, "inferences": 200}
    assert run(code.replace("period=0.05", "period=60"), answers).returncode == 3
    assert [end.inferences for end in answers.ends()] == [1]


def test_forked_child_reports_nothing(answers):
    code = """
import os, sys, tegrascope
with tegrascope.window("detector", url=sys.argv[1], token_file=sys.argv[2], strict=True) as marks:
    child = os.fork()
    marks.count(1 if child else 1000)
    if child:
        assert os.waitpid(child, 0)[1] == 0
"""
    document = run(code, answers)
    assert document.returncode == 0, document.stderr
    assert [end.inferences for end in answers.ends()] == [1]


def test_silent_daemon_does_not_delay_the_inference(tmp_path):
    import socket

    token = tmp_path / "token"
    token.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        marks = tegrascope.window("d", url=url, token_file=token).start()
        watch = Stopwatch()
        infer(marks, 1000)
        assert watch.seconds < 1.0
    marks.stop()
    assert marks.inferences == 1000


def test_import_is_light():
    code = "import sys, tegrascope\ntegrascope.window\nprint(*sys.modules)"
    document = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    modules = document.stdout.split()
    assert "tegrascope.collectors.application.window" in modules
    assert not {"pydantic", "numpy", "asyncio", "urllib.request"} & set(modules)
    ours = {name for name in modules if name.startswith("tegrascope.")}
    assert not any(name.startswith("tegrascope.daemon") for name in ours)


class Hands:
    """The clock of an application that needs 0.1 s for a piece."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += round(seconds * 1e9)


@pytest.mark.parametrize(
    ("error", "outcome"), [(ValueError("lens cap"), "failed"), (KeyboardInterrupt(), "cancelled")]
)
def test_lock_in_reports_complete_on_steps_of_a_block_that_fails(answers, error, outcome):
    hands = Hands()
    began_ns, pieces = hands.now_ns, 0
    clock = {"now_ns": lambda: hands.now_ns, "sleep": hands.sleep}
    with (
        pytest.raises(type(error)),
        LockIn("preprocess", 2.0, **answers.where, **clock) as pattern,
    ):
        while pattern.on():
            hands.now_ns += 100_000_000
            pieces += 1
            if pieces == 5:
                raise error
    (begin,), (end,) = answers.begins(), answers.ends()
    assert (begin.workload, begin.lock_in_seconds) == ("preprocess", 2.0)
    assert end.on_steps == ((began_ns + 500_000_000, began_ns + 800_000_000, 3),)
    assert end.end_ns == began_ns + 800_000_000
    assert (end.outcome, end.reason) == (outcome, f"{type(error).__name__}: {error}")
    assert hands.slept == [0.5, 0.4]
    assert pattern.result == {}


def test_lock_in_without_a_daemon_raises_at_its_begin(tmp_path):
    (tmp_path / "token").write_text("secret")
    with (
        pytest.raises(UserError, match="no tegrascope daemon answers"),
        LockIn("preprocess", url="http://127.0.0.1:9", token_file=tmp_path / "token"),
    ):
        pytest.fail("the block began")

"""A server with OpenAI's API: its answers are timed and counted, and its failures have a reason."""

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.events import Counted, Inferences, Loaded, Order, Phase
from tegrascope.parsers.inference.servers import read_stream_line
from tests.fakes.llm_server import LlmServer
from tests.fakes.worker_runs import finished, run

STEP_SECONDS = 0.004


def order(server: LlmServer, streams: int = 1, **changes: object) -> Order:
    asked = {"url": f"{server.url}/v1", "model": "small", "max_tokens": 16, "timeout": 0.5}
    limit = {} if "duration_seconds" in changes else {"count": 5}
    own = {key: changes.pop(key) for key in ("duration_seconds", "count") if key in changes}
    return Order.model_validate(
        {
            "run_id": "r1",
            "backend": "openai",
            "device": "gpu",
            "model_directory": ".",
            "unit": "token",
            "streams": streams,
            "warm_up_seconds": 0.05,
            "server": asked | changes,
            **limit,
            **own,
        }
    )


def steady(events: "list[object]") -> "tuple[int, ...]":
    return tuple(one.at_ns for one in events if isinstance(one, Phase) and one.phase == "steady")


@pytest.fixture
def server():
    with LlmServer(STEP_SECONDS) as made:
        yield made


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("streams", [1, 3])
def test_tokens_and_times_are_those_of_the_server(server, api, streams):
    events = run(order(server, streams, api=api))
    assert finished(events).outcome == "ok"
    begin, end = steady(events)
    made = [at for at in server.steps_ns if begin <= at[0] and at[1] <= end]
    replies = [one for one in events if isinstance(one, Inferences)]
    counted = [one for one in events if isinstance(one, Counted)]
    assert sum(len(one.start_ns) for one in replies) == 5
    assert sum(one.units for one in counted) == len(made) == 5 * 16
    assert {one.units_interval for one in counted} == {None}
    for some in replies:
        first, each = some.stages_ns["first_token"], some.stages_ns["output_token"]
        assert all(0 < a < b for a, b in zip(first, some.latency_ns, strict=True))
        assert min(first) > STEP_SECONDS * 1e9
        assert min(each) > STEP_SECONDS * 1e9
        ends = [a + b for a, b in zip(some.start_ns, some.latency_ns, strict=True)]
        assert begin <= min(some.start_ns)
        assert max(ends) <= end
    if streams == 1:  # one stream makes its tokens one after another
        starts = sorted(at[0] for at in made)
        for some in replies:  # a busy machine takes long, and reports what it has in between
            first = some.stages_ns["first_token"]
            for start_ns, first_ns in zip(some.start_ns, first, strict=True):
                step = next(at for at in made if at[0] >= start_ns)
                assert step[1] <= start_ns + first_ns
        assert starts == [at[0] for at in made]


def test_steady_phase_lasts_for_the_duration_and_ends_with_an_answer(server):
    events = run(order(server, 2, duration_seconds=0.5))
    begin, end = steady(events)
    assert end - begin >= 0.5e9
    last = max(
        start + took
        for one in events
        if isinstance(one, Inferences)
        for start, took in zip(one.start_ns, one.latency_ns, strict=True)
    )
    assert last == end
    warm = [one.at_ns for one in events if isinstance(one, Phase) and one.phase == "warm_up"]
    assert warm[1] <= begin


def test_request_has_prompts_in_turn_options_and_the_key(server, tmp_path):
    prompts, key = tmp_path / "prompts.txt", tmp_path / "key"
    prompts.write_text("two\n\nthree\n")
    key.write_text("sk-1\n")
    events = run(
        order(
            server,
            prompts=["one"],
            prompts_file=str(prompts),
            api_key_file=str(key),
            options={"temperature": 0, "stream_options": None},
        )
    )
    assert finished(events).outcome == "ok"
    texts = [asked["messages"][0]["content"] for asked, _ in server.requests]
    assert texts[:4] == ["one", "two", "three", "one"]
    asked, given = server.requests[1]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("small", 16, 0)
    assert asked["stream"] is True
    assert "stream_options" not in asked
    assert given == "Bearer sk-1"
    assert not [one for one in events if "sk-1" in repr(one)]


def test_without_usage_parts_are_counted_with_limits_and_a_note(server):
    server.sends_usage = False
    events = run(order(server, max_tokens=20))
    counted = [one for one in events if isinstance(one, Counted)]
    assert sum(one.units for one in counted) == 100.0
    assert {one.units_interval for one in counted} == {None}
    server.hides_every = 4  # parts with output, as of a server that sends several tokens at once
    events = run(order(server, max_tokens=20))
    # A busy machine takes long, and reports what it has in between.
    counted = [one for one in events if isinstance(one, Counted)]
    limits = [one.units_interval for one in counted]
    assert sum(one.units for one in counted) == 75.0
    assert (sum(low for low, _ in limits), sum(high for _, high in limits)) == (75.0, 100.0)
    *_, loaded = (one for one in events if isinstance(one, Loaded))
    assert loaded.model_sha256 is None
    assert "parts of answers were counted" in loaded.built.notes[0]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuse", "answers 500 out of memory"),
        ("redirect", "redirects to http://169.254.169.254/latest: use it as url"),
        ("empty", "ends an answer early, after 0 parts"),
        ("no_token", "answers without output"),
        ("huge", "its answer is not a stream of events (x 1)"),
        ("not_http", "does not answer as HTTP"),
        ("stall", "does not answer within 0.5 s"),
        ("die", "ends an answer early, after 3 parts"),
        ("garbage", "its answer is not a stream of events (data: {"),
        ("error_event", "reports an error (CUDA out of memory)"),
    ],
)
def test_server_that_fails_fails_the_run_with_the_reason(server, fault, words):
    breaks = threading.Timer(0.5, lambda: setattr(server, "fault", fault))
    breaks.start()
    events = run(order(server, 2, duration_seconds=30.0))
    breaks.join()
    assert finished(events).outcome == "failed"
    assert words in finished(events).reason
    assert server.url in finished(events).reason
    assert [one.edge for one in events if isinstance(one, Phase) and one.phase == "steady"] == [
        "begin"
    ]


def test_killed_server_fails_the_run():
    """The reason depends on the moment: within an answer, or before the next one."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-m", "tests.fakes.llm_server", "--port", "0"]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        url = process.stdout.readline().strip()
        breaks = threading.Timer(0.5, process.kill)
        breaks.start()
        events = run(order(SimpleNamespace(url=url), duration_seconds=60.0))
        breaks.join()
    reason = finished(events).reason
    assert finished(events).outcome == "failed"
    assert "cannot be reached (Connection re" in reason or "ends an answer early" in reason


def test_no_server_fails_in_the_load_phase():
    with LlmServer() as made:
        asked = order(made)
    events = run(asked)
    assert "cannot be reached" in finished(events).reason
    assert not steady(events)


def test_stop_ends_the_run_while_an_answer_streams(server):
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    events = run(order(server, max_tokens=100_000, timeout=60.0), stop)
    assert finished(events).outcome == "cancelled"
    others = [one for one in events if isinstance(one, Phase) and one.phase != "load"]
    assert {one.edge for one in others} <= {"begin"}


@pytest.mark.parametrize("content", [b"\xff\xfe", b" \n\n", None])
def test_file_of_prompts_that_has_none_is_named(server, tmp_path, content):
    path = tmp_path / "prompts"
    if content is not None:
        path.write_bytes(content)
    reason = finished(run(order(server, prompts_file=str(path)))).reason
    assert f"prompts_file: {path}" in reason


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"\n", None),
        (b": ping\r\n", None),
        (b"event: done\n", None),
        (b"data:[DONE]\n", (False, False, True, None)),
        (b'data: {"choices": [], "usage": {"completion_tokens": 7}}', (False, False, False, 7)),
        (b'data: {"choices": null, "usage": null}', (False, False, False, None)),
        (b'data: {"choices": [{"delta": {"content": ""}}]}', (False, False, False, None)),
        (b'data: {"choices": [{"text": "a"}]}', (True, False, False, None)),
        (
            b'data: {"choices": [{"delta": {"reasoning_content": "a"}}]}',
            (True, False, False, None),
        ),
        (
            b'data: {"choices": [{"delta": null, "text": "", "finish_reason": "stop"}]}',
            (False, True, False, None),
        ),
    ],
)
def test_lines_of_a_stream(line, part):
    assert read_stream_line(line) == part


@pytest.mark.parametrize(
    "line",
    [
        *(b"nonsense", b"data: nonsense", b"data: [1]", b"data: null", b'{"choices": []}'),
        *(b'data: {"choices": 3}', b'data: {"choices": [3]}', b"data: " + b"[" * 100_000),
        b'data: {"usage": {"completion_tokens": "many"}}',
    ],
)
def test_line_that_is_not_of_a_stream_is_an_error(line):
    with pytest.raises(UserError, match="not a stream of events"):
        read_stream_line(line)


@pytest.mark.parametrize("tokens", ["-5", "1e30", "9" * 4000, "Infinity", "NaN", "5.5"])
def test_odd_number_of_tokens_is_an_error_with_its_value(tokens):
    line = f'data: {{"choices": [], "usage": {{"completion_tokens": {tokens}}}}}'
    with pytest.raises(UserError, match="tokens for one answer, which is not a count") as caught:
        read_stream_line(line.encode())
    assert len(str(caught.value)) < 200

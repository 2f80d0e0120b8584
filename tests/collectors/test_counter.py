"""The counter of a server: read at both ends, with limits for its error, and never guessed."""

import random
import threading

import pytest

from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.events import Counted, Order, Phase
from tegrascope.parsers.inference.servers import (
    KNOWN_COUNTERS,
    CounterPage,
    CounterReading,
    read_counter,
)
from tests.fakes.llm_server import LlmServer
from tests.fakes.worker_runs import finished, run

HERE = CounterPage(url="http://127.0.0.1:1/metrics")


def order(server: LlmServer, seconds: float = 0.6, **scrape: object):
    return Order.model_validate(
        {
            "run_id": "r1",
            "backend": "counter",
            "device": "external",
            "model_directory": ".",
            "unit": "token",
            "duration_seconds": seconds,
            "scrape": {"url": f"{server.url}/metrics", "timeout": 0.5, "interval": 0.1, **scrape},
        }
    )


def test_a_run_without_a_duration_has_its_reason(server):
    found = finished(run(order(server, seconds=0)))
    assert (found.outcome, "none is given" in found.reason) == ("failed", True)


class Traffic(threading.Thread):
    """Makes tokens of a server, one after another, until it is stopped."""

    def __init__(self, server: LlmServer, seconds: float = 0.002) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._server, self._seconds = server, seconds

    def run(self) -> None:
        token, state = 1, None
        while not self.over.wait(self._seconds):
            token, state = self._server._decode(token, state)

    def __enter__(self) -> "Traffic":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


@pytest.fixture
def server():
    with LlmServer() as made:
        yield made


def test_growth_is_that_of_the_work_between_both_readings(server):
    with Traffic(server):
        events = run(order(server))
    assert finished(events).outcome == "ok"
    begin, end = (one.at_ns for one in events if isinstance(one, Phase) and one.phase == "steady")
    (counted,) = (one for one in events if isinstance(one, Counted))
    made = sum(begin < end_ns <= end for _, end_ns in server.steps_ns)
    low, high = counted.units_interval
    assert low <= counted.units <= high
    assert low <= made <= high
    assert counted.inferences is None
    assert high - low < counted.units


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("refuse", "answers 500 out of memory"),
        ("redirect", "redirects to http://169.254.169.254/latest: use it as url"),
        ("empty", "has no vllm:generation_tokens_total"),
        ("huge", "answers with more than 16 MiB"),
        ("not_http", "does not answer as HTTP"),
        ("stall", "does not answer within 0.5 s"),
        ("short", "breaks off"),
        ("reset", "reset its counter{'model_name': 'small', 'engine': '0'}, from 500 to 0"),
        ("restart", "was restarted"),
        ("gone", "has no vllm:generation_tokens_total"),
    ],
)
def test_server_that_fails_in_a_run_fails_the_run(server, fault, words):
    server.counted = 500
    breaks = threading.Timer(0.3, lambda: setattr(server, "fault", fault))
    breaks.start()
    # A busy machine may send little in half a second.
    patience = 0.5 if fault == "stall" else 20
    events = run(order(server, seconds=1.0, timeout=patience))
    breaks.join()
    assert finished(events).outcome == "failed"
    assert words in finished(events).reason
    assert server.url in finished(events).reason
    assert not [one for one in events if isinstance(one, Counted)]


def test_server_that_ends_in_a_run_fails_the_run():
    with LlmServer() as made:
        breaks = threading.Timer(0.3, made.close)
        breaks.start()
        events = run(order(made, seconds=1.0))
        breaks.join()
        assert "cannot be reached (Connection re" in finished(events).reason


def test_stop_ends_the_run_soon_and_without_a_count(server):
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    events = run(order(server, seconds=60.0), stop)
    assert finished(events).outcome == "cancelled"
    assert not [one for one in events if isinstance(one, Counted)]


def test_key_comes_from_a_file_only(server, tmp_path):
    key = tmp_path / "key"
    assert "is not a file with lines" in finished(run(order(server, api_key_file=str(key)))).reason
    key.write_text("two words\n")
    with_two_words = finished(run(order(server, api_key_file=str(key))))
    assert "is not one line with a key" in with_two_words.reason
    key.write_text("sk-secret\n")
    events = run(order(server, api_key_file=str(key)))
    assert finished(events).outcome == "ok"
    assert not [one for one in events if "sk-secret" in repr(one)]


def page(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_known_counter_of_a_unit_is_found_without_a_name():
    for one in KNOWN_COUNTERS:
        found = read_counter(page(f'{one.metric}{{model="a"}} 7'), HERE, one.unit)
        assert (found.series, found.counts) == ({"{'model': 'a'}": 7.0}, one.counts)


def test_series_with_the_labels_are_counted_and_no_other():
    text = page(
        "# TYPE done counter",
        'done{model="a",core="0"} 1e3',
        'done{core="1",model="a"} 5 1700000000000',
        'done{model="b"} 70',
        "done_created 1",
    )
    scrape = HERE.model_copy(update={"metric": "done", "labels": {"model": "a"}})
    assert sorted(read_counter(text, scrape, "frame").series.values()) == [5.0, 1000.0]


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (b"", {"metric": "done"}, "has no done"),
        (page("done 1"), {"metric": "done", "labels": {"a": "b"}}, "no done with a='b'"),
        (page("# TYPE done gauge", "done 1"), {"metric": "done"}, "has done as a gauge"),
        (page("done NaN"), {"metric": "done"}, "nan is not a count"),
        (page("done -1"), {"metric": "done"}, "-1 is not a count"),
        (page("done{a= 1"), {"metric": "done"}, "lines of done that cannot be read"),
        (page("done many"), {"metric": "done"}, "lines of done that cannot be read"),
        (b"\xff\xfe", {}, "has no vllm:generation"),
        (page("done 1e308", 'done{a="b"} 1e308'), {"metric": "done"}, "1e+308 is not a count"),
        (page(f"done {'9' * 400}"), {"metric": "done"}, "lines of done that cannot be read"),
        (page(f"done{{a='{'x' * 5000}'}} 1"), {"metric": "done"}, "of 5012 characters"),
        (b'done{a="1"} 1\n' * 10_001, {"metric": "done"}, "has over 10000 series of done"),
        (
            page(*(f'done{{a="{"x" * 4000}{number}"}} 1' for number in range(600))),
            {"metric": "done"},
            "or very long ones",
        ),
    ],
)
def test_answer_without_a_count_is_an_error_and_never_a_zero(text, changes, words):
    with pytest.raises(UserError) as caught:
        read_counter(text, HERE.model_copy(update=changes), "token")
    assert words in caught.value.message
    assert "\n" not in str(caught.value)


def test_unit_without_a_known_counter_needs_the_name_of_a_metric():
    with pytest.raises(UserError, match=r"none of the unit frame is known .*: name it"):
        read_counter(b"", HERE, "frame")


def test_new_series_began_at_zero_and_a_lost_one_is_a_restart():
    one, two = CounterReading({"a": 5.0}), CounterReading({"a": 6.0, "b": 3.0})
    assert one.growth_until(two) == 4.0
    with pytest.raises(UserError, match="has the countera no longer"):
        two.growth_until(CounterReading({"b": 3.0}))
    with pytest.raises(UserError, match="from 6 to 5"):
        two.growth_until(CounterReading({"a": 5.0, "b": 3.0}))


def readings(counter, seconds: float, half_seconds: float, counts: str):
    """Return what the back-end reads of a counter, a function of time, at unknown moments."""
    from tegrascope.collectors.backends.counter import TimedReading

    steps = max(8, round(seconds))
    found = []
    for step in range(steps + 1):
        jitter = random.uniform(-0.4, 0.4) if 0 < step < steps else 0.0
        at = (step + jitter) * seconds / steps
        value = counter(at + random.uniform(-half_seconds, half_seconds))
        reading = CounterReading({"": value}, counts=counts)
        found.append(TimedReading(round(at * 1e9), half_seconds * 1e9, reading, value))
    first = found[0].total
    return [TimedReading(one.at_ns, one.half_ns, one.reading, one.total - first) for one in found]


@pytest.mark.parametrize("streams", [1, 2, 8])
@pytest.mark.parametrize("half_seconds", [0.002, 0.2])
@pytest.mark.parametrize("counts", ["steps", "requests"])
def test_error_of_the_count_holds_the_truth_in_93_of_100_windows(counts, half_seconds, streams):
    """Requests of random lengths, back to back in each stream; the truth is the work itself."""
    from tegrascope.collectors.backends.counter import count_error

    random.seed(f"{counts} {half_seconds} {streams}")
    right, windows, seconds, rate = 0, 300, 30.0, 40.0
    for _ in range(windows):
        lanes = []
        for _ in range(streams):
            at, marks = -random.uniform(0, 8), []
            while at < seconds + 2:
                tokens = random.randint(60, 240)
                marks.append((at, at + tokens / rate, tokens))
                at += tokens / rate
            lanes.append(marks)

        def work(until, lanes=lanes):
            return sum(
                tokens * min(1.0, max(0.0, (until - begin) / (end - begin)))
                for marks in lanes
                for begin, end, tokens in marks
            )

        def counter(at, lanes=lanes, work=work):
            if counts == "steps":
                return float(int(work(at)))
            return float(sum(tokens for marks in lanes for _, end, tokens in marks if end <= at))

        found = readings(counter, seconds, half_seconds, counts)
        truth = work(seconds) - work(0.0)
        right += abs(found[-1].total - truth) <= count_error(found)
    assert right >= 0.93 * windows, right

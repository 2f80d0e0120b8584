"""Servers of models: how one is reached, and what it answers: metric pages, JSON, streamed events.

Source:
    Streams: https://platform.openai.com/docs/api-reference/chat-streaming, and
        https://html.spec.whatwg.org/multipage/server-sent-events.html
    Text format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, PositiveInt

from ..errors import UserError
from ..records import Record
from ..values import PositiveSeconds, printable, some_of


def _is_url(value: str) -> str:
    parts = urlsplit(value)  # like the port, it raises ValueError for some
    if "@" in value:
        raise ValueError("an address has no user or password: put a key into api_key_file")
    is_plain = value.isascii() and value.isprintable() and " " not in value
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ValueError(f"{value[:80]!r} is not an address: use http://HOST:PORT/PATH or https://")
    if parts.fragment or parts.port == 0:
        raise ValueError(f"{value[:80]!r} is not an address: leave out # and port 0")
    return value


class ServerAccess(Record):
    """Address of a server, a file with its key, if it has one, and the time for its answer."""

    url: Annotated[str, AfterValidator(_is_url)]
    api_key_file: str | None = None
    timeout: PositiveSeconds = Field(5.0, le=3600)


class CounterPage(ServerAccess):
    """The growing counter of a server, and where it is.

    Attributes:
        metric: Name of a metric on a page of Prometheus' text format; default: the counter of the
            workload's unit that a known server has.
        labels: Values of labels that its series have; all series with them are counted.
        counts: When it grows: with each step of the work, or when a request ends. The default is
            that of the known counter, and ``requests`` for others.
        interval: Time between two readings within a run.
    """

    metric: str | None = Field(None, pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$")
    labels: dict[str, str] = {}
    counts: Literal["steps", "requests"] | None = None
    interval: PositiveSeconds = Field(1.0, ge=0.1)


class Server(ServerAccess):
    """A server with OpenAI's API, and what it is asked.

    Attributes:
        url: Up to ``/v1``, as clients of OpenAI take it.
        api: ``chat`` asks by chat completions, ``completions`` by plain ones.
        prompts: Sent in turn; and ``prompts_file`` has one per line.
        max_tokens: Most tokens of an answer.
        options: More keys of a request; one that is null is left out of it.
        weight_bytes: Bytes of the weights that a token needs, for the share of the bandwidth.
        timeout: Longest time without output.
    """

    model: str
    api: Literal["chat", "completions"] = "chat"
    prompts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    prompts_file: str | None = None
    max_tokens: PositiveInt = 128
    options: dict[str, Any] = {}
    weight_bytes: PositiveInt | None = None
    timeout: PositiveSeconds = Field(60.0, le=3600)


class KnownCounter(NamedTuple):
    """A counter of a server: its metric, the unit that it counts, and when it grows."""

    metric: str
    unit: str
    counts: Literal["steps", "requests"]


# vLLM: https://docs.vllm.ai/en/latest/usage/metrics.html
# SGLang: https://docs.sglang.io/references/production_metrics.html
# llama.cpp: https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
# Text Generation Inference: https://huggingface.co/docs/text-generation-inference/reference/metrics
# Triton: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/metrics.html
KNOWN_COUNTERS = (
    KnownCounter("vllm:generation_tokens_total", "token", "steps"),
    KnownCounter("sglang:generation_tokens_total", "token", "requests"),
    KnownCounter("llamacpp:tokens_predicted_total", "token", "requests"),
    KnownCounter("tgi_request_generated_tokens_sum", "token", "requests"),
    KnownCounter("nv_inference_count", "inference", "requests"),
    KnownCounter("vllm:request_success_total", "request", "requests"),
    KnownCounter("sglang:num_requests_total", "request", "requests"),
    KnownCounter("nv_inference_request_success", "request", "requests"),
)
_STARTED = "process_start_time_seconds"
_LOOK = "look at it with curl"
# A page is parsed at both ends of a run and in between: 10,000 series take about 0.2 s on a PC.
_MOST_SERIES, _LONGEST_LINE, _MOST_CHARACTERS = 10_000, 4096, 2_000_000
# Sums of whole numbers up to here are exact.
HIGHEST_COUNT = 1e15
_MOST_TOKENS = 10**9


class CounterReading(NamedTuple):
    """A counter at one moment: values by labels, as text, and when its server started, if known."""

    series: Mapping[str, float]
    started_seconds: float | None = None
    counts: Literal["steps", "requests"] = "requests"

    def growth_until(self, later: "CounterReading") -> float:
        """Return by how much the counter grew, or raise ``UserError`` if it was reset.

        A series that is new is one that began at 0 in between.
        """
        found = []
        if self.started_seconds != later.started_seconds:
            found.append("was restarted")
        for labels, before in self.series.items():
            after = later.series.get(labels)
            if after is None:
                found.append(f"has the counter{labels} no longer")
            elif after < before:
                found.append(f"reset its counter{labels}, from {before:.12g} to {after:.12g}")
        if found:
            raise UserError(found[0], "a run needs a server that stays up; see its log")
        return sum(later.series.values()) - sum(self.series.values())


def read_counter(body: bytes, scrape: CounterPage, unit: str) -> CounterReading:
    """Return the counter in the answer of a server, or raise ``UserError`` if it is not there.

    Args:
        unit: Unit of the counter; it selects the known counter where no metric is named.
    """
    text = body.decode("utf-8", "replace")
    if scrape.metric is None:
        known = [counter for counter in KNOWN_COUNTERS if counter.unit == unit]
    else:
        known = [counter for counter in KNOWN_COUNTERS if counter.metric == scrape.metric]
        known = known or [KnownCounter(scrape.metric, unit, "requests")]
    for counter in known:
        if f"# TYPE {counter.metric} gauge" in text:
            raise UserError(f"has {counter.metric} as a gauge", "name a counter, which never falls")
        series = _series(text, counter.metric, scrape.labels)
        if series:
            started = _series(text, _STARTED, {}).get("")
            return CounterReading(series, started, scrape.counts or counter.counts)
    if not known:
        units = ", ".join(sorted({one.unit for one in KNOWN_COUNTERS}))
        what = f"may have any counter: none of the unit {unit} is known (known are: {units})"
        raise UserError(what, "name it as metric:")
    wanted = some_of([one.metric for one in known])
    if scrape.labels:
        labels = " ".join(f"{name}={value!r}" for name, value in scrape.labels.items())
        wanted = f"{wanted} with {labels}"
    raise UserError(f"has no {wanted}", _LOOK)


def _series(text: str, metric: str, labels: Mapping[str, str]) -> dict[str, float]:
    """Return the series of a metric with some labels; the other lines of a page are not parsed."""
    # An application that marks its windows reads no page.
    from prometheus_client.parser import text_string_to_metric_families

    lines = _lines_of(text, metric)
    found = {}
    try:
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if labels.items() <= sample.labels.items():
                    found[str(sample.labels or "")] = _count_of(sample.value)
    # The parser's own words for a torn line, or for a number that no float can hold.
    except (ValueError, LookupError, ArithmeticError) as error:
        what = f"has lines of {metric} that cannot be read ({printable(str(error), 120)})"
        raise UserError(what, _LOOK) from None
    return found


def _lines_of(text: str, metric: str) -> str:
    """Return the lines of a metric, or raise ``UserError`` if they would take seconds to parse."""
    own = []
    characters = 0
    # One by one: a list of all lines of a hostile page would take hundreds of MiB.
    for found in re.finditer(rf"^{re.escape(metric)}[{{ \t].*", text, re.MULTILINE):
        line = found[0].rstrip("\r")
        characters += len(line)
        if len(line) > _LONGEST_LINE:
            what = f"has a line of {metric} of {len(line)} characters"
            raise UserError(what, f"a line is at most {_LONGEST_LINE}; {_LOOK}")
        own.append(line)
        if len(own) > _MOST_SERIES or characters > _MOST_CHARACTERS:
            what = f"has over {_MOST_SERIES} series of {metric}, or very long ones"
            raise UserError(what, "scrape a server with fewer")
    return "".join(f"{line}\n" for line in own)


def _count_of(value: float) -> float:
    """Return a value of a counter, or raise ``ValueError`` if nothing could have counted so far."""
    if not 0 <= value <= HIGHEST_COUNT:
        raise ValueError(f"{value:g} is not a count")
    return float(value)


class AnswerPart(NamedTuple):
    """One event of a streamed answer.

    After ``is_last`` only its count of ``tokens`` may follow, and after ``is_end`` nothing.
    """

    has_output: bool = False
    is_last: bool = False
    is_end: bool = False
    tokens: int | None = None


_OUTPUT = ("content", "reasoning_content", "reasoning", "tool_calls")


def read_stream_line(line: bytes) -> AnswerPart | None:
    """Return the event in a line of a stream, and ``None`` for a line without one.

    Raises:
        UserError: The line is not of such a stream, or it reports an error.

    >>> read_stream_line(b'data: {"choices": [{"delta": {"content": "Hi"}}]}').has_output
    True
    """
    name, _, value = line.strip().partition(b":")
    if not name or name in (b"event", b"id", b"retry"):
        return None
    value = value.strip()
    if value == b"[DONE]":
        return AnswerPart(is_end=True)
    try:
        if name != b"data":
            raise ValueError("no field of a stream has this name")
        event: Any = json.loads(value)
        problem = event.get("error")
        part = _part_of(event)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        shown = printable(" ".join(line.decode("utf-8", "replace").split()), 120)
        raise UserError(f"its answer is not a stream of events ({shown})", _LOOK) from None
    if problem:
        if isinstance(problem, dict):
            problem = problem.get("message", problem)
        shown = printable(" ".join(str(problem).split()), 200)
        raise UserError(f"reports an error ({shown})", "see its log")
    return part


def _part_of(event: Mapping[str, Any]) -> AnswerPart:
    """Return what an event adds to the answer; its choices are parts of one answer."""
    has_output = is_last = False
    for choice in event.get("choices") or ():
        made = {"content": choice.get("text"), **(choice.get("delta") or {})}
        has_output = has_output or any(made.get(key) for key in _OUTPUT)
        is_last = is_last or bool(choice.get("finish_reason"))
    return AnswerPart(has_output, is_last, tokens=_token_count(event.get("usage") or {}))


def _token_count(usage: Mapping[str, Any]) -> int | None:
    """Return how many tokens an answer has by its server.

    Raises:
        UserError: The number is not a count.
        TypeError: It is not a number.
    """
    tokens = usage.get("completion_tokens")
    if tokens is None:
        return None
    if not isinstance(tokens, (int, float)) or isinstance(tokens, bool):
        raise TypeError("it is not a number")
    # The limits come first: infinity has no whole part.
    if not (0 <= tokens <= _MOST_TOKENS and tokens == int(tokens)):
        what = f"reports {printable(repr(tokens), 40)} tokens for one answer, which is not a count"
        raise UserError(what, "stream_options: null under options: counts the parts instead")
    return int(tokens)

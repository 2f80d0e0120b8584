"""A server with OpenAI's API as a back-end: it gets prompts, and its streamed answers are timed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count, cycle
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import NamedTuple

from ...parsers.errors import UserError
from ...parsers.inference.events import Counted, Inferences, Order, Phase
from ...parsers.inference.placement import Built
from ...parsers.inference.servers import read_stream_line
from .base import SelfTimed
from .server import Connection, read_lines

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_PROMPT = "Explain in many words how a river finds its way to the sea."
_CHUNK_NS = 1_000_000_000
_POLL_SECONDS = 0.1
_BY_PARTS = (
    "the server sends no usage: parts of answers were counted, and a part may be many tokens"
)


class Reply(NamedTuple):
    """A complete answer: when its request left, its first and last output came, and its end.

    ``tokens`` is by the server or, without ``has_usage``, the number of parts with output.
    """

    start_ns: int
    first_ns: int
    last_ns: int
    end_ns: int
    tokens: int
    has_usage: bool

    @property
    def per_token_ns(self) -> int | None:
        """Mean time from one token to the next, if there is a next one."""
        if self.tokens < 2:
            return None
        return (self.last_ns - self.first_ns) // (self.tokens - 1)


class OpenAi(SelfTimed):
    """Sends prompts in turn, in as many streams as the workload has, each without a pause."""

    devices = ("gpu", "dla0", "dla1", "cpu", "external")
    runs = "server"

    def load(self, model: Path, order: Order) -> None:  # noqa: ARG002
        """Read key and prompts and send one, so that the server has loaded its model."""
        assert order.server is not None
        server = self._server = order.server
        texts = list(server.prompts)
        if server.prompts_file is not None:
            texts += read_lines(server.prompts_file, "prompts_file")
        self._prompts, self._lock = cycle(texts or [_PROMPT]), Lock()
        with closing(Connection(server)) as connection:
            first = self._ask(connection, 1)
        self.cold_start_ns = {"first_inference": first.end_ns - first.start_ns}

    def measure(self, order: Order, stop: Event) -> Iterator[Phase | Inferences | Counted]:
        """Send prompts for the warm-up, then for the steady phase; it ends with the last answer."""
        run_id, now = order.run_id, time.monotonic_ns
        if order.warm_up_seconds > 0:
            yield Phase(run_id=run_id, phase="warm_up", edge="begin", at_ns=now())
            for _ in self._replies(order.streams, order.warm_up_seconds, None, stop):
                pass
            if stop.is_set():
                return
            yield Phase(run_id=run_id, phase="warm_up", edge="end", at_ns=now())
        end_ns, has_usage = now(), True
        yield Phase(run_id=run_id, phase="steady", edge="begin", at_ns=end_ns)
        for replies in self._replies(order.streams, order.duration_seconds, order.count, stop):
            for reply in replies:
                end_ns = max(end_ns, reply.end_ns)
                has_usage = has_usage and reply.has_usage
            yield _times_of(run_id, replies)
            yield self._tokens_of(run_id, replies)
        if stop.is_set():
            return
        notes = () if has_usage else (_BY_PARTS,)
        self.built = Built(streams=order.streams, notes=notes)
        yield Phase(run_id=run_id, phase="steady", edge="end", at_ns=end_ns)

    def _tokens_of(self, run_id: str, replies: Sequence[Reply]) -> Counted:
        """Return the tokens of some answers; counted by parts, each may have up to the limit."""
        lowest = highest = 0
        for reply in replies:
            lowest += reply.tokens
            highest += reply.tokens
            if not reply.has_usage:
                highest += max(0, self._server.max_tokens - reply.tokens)
        limits = None if highest == lowest else (float(lowest), float(highest))
        return Counted(run_id=run_id, units=lowest, units_interval=limits)

    def _replies(
        self, streams: int, seconds: float | None, most: int | None, stop: Event
    ) -> Iterator[list[Reply]]:
        """Send prompts until time or number are reached; yield complete answers once per second.

        No answer is begun after that; the first that fails ends all. It returns soon after
        ``stop``.
        """
        until_ns = None if seconds is None else time.monotonic_ns() + round(seconds * 1e9)
        connections = [Connection(self._server) for _ in range(streams)]
        answers: SimpleQueue[Reply | Exception | None] = SimpleQueue()
        over, begun = Event(), count()

        def send(connection: Connection) -> None:
            try:
                with closing(connection):
                    while not over.is_set() and (most is None or next(begun) < most):
                        answers.put(self._ask(connection))
                        if until_ns is not None and time.monotonic_ns() >= until_ns:
                            break
            except Exception as error:
                answers.put(error)
            answers.put(None)

        for connection in connections:
            Thread(target=send, args=(connection,), daemon=True).start()
        try:
            yield from _by_second(answers, streams, stop)
        finally:
            over.set()
            for connection in connections:
                connection.close()

    def _request(self, max_tokens: int) -> dict[str, object]:
        """Return a request with the next prompt. An option that is null removes a key."""
        server = self._server
        with self._lock:
            prompt = next(self._prompts)
        request: dict[str, object] = {"prompt": prompt}
        if server.api == "chat":
            request = {"messages": [{"role": "user", "content": prompt}]}
        request |= {
            "model": server.model,
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request |= server.options
        return {key: value for key, value in request.items() if value is not None}

    def _ask(self, connection: Connection, most: int | None = None) -> Reply:
        """Send the next prompt and read its whole answer, or raise ``UserError``."""
        server = self._server
        lines = connection.post(_PATHS[server.api], self._request(most or server.max_tokens))
        start_ns, _ = next(lines)
        first_ns: int | None = None
        last_ns, at_ns, parts, is_complete = start_ns, start_ns, 0, False
        tokens: int | None = None
        for at_ns, line in lines:
            try:
                part = read_stream_line(line)
            except UserError as error:
                raise connection.problem(error.message, error.remedy) from None
            if part is None:
                continue
            if part.has_output:
                first_ns, last_ns, parts = first_ns or at_ns, at_ns, parts + 1
                # Comments and empty events are no progress: a server could send them for ever.
                connection.renew()
            is_complete = is_complete or part.is_last or part.is_end
            if part.tokens is not None:
                tokens = part.tokens
            if part.is_end:
                break
        if not is_complete:
            raise connection.problem(f"ends an answer early, after {parts} parts")
        if first_ns is None:
            raise connection.problem("answers without output", "try the prompt by hand")
        return Reply(start_ns, first_ns, last_ns, at_ns, tokens or parts, tokens is not None)


def _by_second(
    answers: "SimpleQueue[Reply | Exception | None]", streams: int, stop: Event
) -> Iterator[list[Reply]]:
    """Yield the answers of some streams about once per second, until all ended or ``stop``.

    An exception in the queue is raised. ``None`` in it is the end of one stream.
    """
    replies: list[Reply] = []
    yield_ns = time.monotonic_ns() + _CHUNK_NS
    while streams and not stop.is_set():
        try:
            answer = answers.get(timeout=_POLL_SECONDS)
        except Empty:
            continue
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            streams -= 1
        else:
            replies.append(answer)
        if replies and (not streams or time.monotonic_ns() >= yield_ns):
            yield replies
            replies, yield_ns = [], time.monotonic_ns() + _CHUNK_NS


def _times_of(run_id: str, replies: Sequence[Reply]) -> Inferences:
    """Return the times of some answers; one of a single token has no time between tokens."""
    first_token, output_token = [], []
    for reply in replies:
        first_token.append(reply.first_ns - reply.start_ns)
        if reply.per_token_ns is not None:
            output_token.append(reply.per_token_ns)
    return Inferences(
        run_id=run_id,
        start_ns=tuple(reply.start_ns for reply in replies),
        latency_ns=tuple(reply.end_ns - reply.start_ns for reply in replies),
        stages_ns={"first_token": tuple(first_token), "output_token": tuple(output_token)},
    )

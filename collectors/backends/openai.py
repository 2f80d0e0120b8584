"""A server with OpenAI's API as a back-end: it gets prompts, and its streamed answers are timed."""

import time
from collections.abc import Iterator
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
        for some in self._replies(order.streams, order.duration_seconds, order.count, stop):
            end_ns = max(end_ns, *(one.end_ns for one in some))
            has_usage = has_usage and all(one.has_usage for one in some)
            yield Inferences(
                run_id=run_id,
                start_ns=tuple(one.start_ns for one in some),
                latency_ns=tuple(one.end_ns - one.start_ns for one in some),
                stages_ns={
                    "first_token": tuple(one.first_ns - one.start_ns for one in some),
                    "output_token": tuple(
                        (one.last_ns - one.first_ns) // (one.tokens - 1)
                        for one in some
                        if one.tokens > 1
                    ),
                },
            )
            least, most = sum(one.tokens for one in some), self._server.max_tokens
            highest = sum(one.tokens if one.has_usage else max(one.tokens, most) for one in some)
            limits = None if highest == least else (float(least), float(highest))
            yield Counted(run_id=run_id, units=least, units_interval=limits)
        if stop.is_set():
            return
        notes = () if has_usage else (_BY_PARTS,)
        self.built = Built(streams=order.streams, notes=notes)
        yield Phase(run_id=run_id, phase="steady", edge="end", at_ns=end_ns)

    def _replies(
        self, streams: int, seconds: float | None, most: int | None, stop: Event
    ) -> Iterator[list[Reply]]:
        """Send prompts until time or number are reached; yield complete answers once per second.

        No answer is begun after that; the first that fails ends all. It returns soon after
        ``stop``.
        """
        until_ns = None if seconds is None else time.monotonic_ns() + round(seconds * 1e9)
        connections = [Connection(self._server) for _ in range(streams)]
        found: SimpleQueue[Reply | Exception | None] = SimpleQueue()
        over, begun = Event(), count()

        def send(connection: Connection) -> None:
            try:
                with closing(connection):
                    while not over.is_set() and (most is None or next(begun) < most):
                        found.put(self._ask(connection))
                        if until_ns is not None and time.monotonic_ns() >= until_ns:
                            break
            except Exception as error:
                found.put(error)
            found.put(None)

        for connection in connections:
            Thread(target=send, args=(connection,), daemon=True).start()
        some: list[Reply] = []
        going, tell_ns = streams, time.monotonic_ns() + _CHUNK_NS
        try:
            while going and not stop.is_set():
                try:
                    one = found.get(timeout=_POLL_SECONDS)
                except Empty:
                    continue
                if isinstance(one, Exception):
                    raise one
                if one is None:
                    going -= 1
                else:
                    some.append(one)
                if some and (not going or time.monotonic_ns() >= tell_ns):
                    yield some
                    some, tell_ns = [], time.monotonic_ns() + _CHUNK_NS
        finally:
            over.set()
            for connection in connections:
                connection.close()

    def _ask(self, connection: Connection, most: int | None = None) -> Reply:
        """Send the next prompt and read its whole answer, or raise ``UserError``."""
        server = self._server
        with self._lock:
            prompt = next(self._prompts)
        chat = {"messages": [{"role": "user", "content": prompt}]}
        document = {
            **(chat if server.api == "chat" else {"prompt": prompt}),
            "model": server.model,
            "max_tokens": most or server.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **server.options,
        }
        document = {key: value for key, value in document.items() if value is not None}
        lines = connection.post(_PATHS[server.api], document)
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
            tokens = part.tokens if part.tokens is not None else tokens
            if part.is_end:
                break
        if not is_complete:
            raise connection.problem(f"ends an answer early, after {parts} parts")
        if first_ns is None:
            raise connection.problem("answers without output", "try the prompt by hand")
        return Reply(start_ns, first_ns, last_ns, at_ns, tokens or parts, tokens is not None)

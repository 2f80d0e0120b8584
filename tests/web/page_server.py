"""The application on a free port, for tests that speak to it over real sockets."""

import asyncio
import http.client
import json
import socket
import threading
from contextlib import closing
from pathlib import Path

from tegrascope.collectors.base import SYSTEM_CLOCK
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.windows import RefusedMarkError
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.daemon.web.application import Serving, make_app
from tegrascope.daemon.web.authentication import Gate, host_names
from tegrascope.daemon.web.server import ConnectionLimits, bind, serve
from tegrascope.daemon.web.web_config import WebRules
from tegrascope.parsers.errors import UserError
from tests.fakes.processes import Stopwatch

TOKEN = {"Authorization": "Bearer secret"}
DEFAULT = ConnectionLimits()


class Server:
    """The application on a free port, in a thread."""

    def __init__(
        self,
        state: Path,
        rules: "WebRules | None" = None,
        limits: ConnectionLimits = DEFAULT,
        body_seconds: float = 10.0,
    ) -> None:
        self.store = Store(state / "runs.db")
        self.timeline = Timeline(span_seconds=1e6)
        self.asked: list[str] = []
        self.marked: list[int] = []
        self.listener = bind("127.0.0.1:0")
        self.address = self.listener.getsockname()
        self.live = LiveState(Snapshot())
        self.live.set_workloads({"w": "gpu", "odd": "gpu", "busy": "gpu"})
        self._history = History(self.store.path)
        self._rules, self._limits, self._body_seconds = rules, limits, body_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        app = make_app(
            Serving(
                live=self.live,
                timeline=self.timeline,
                history=self._history,
                clock=SYSTEM_CLOCK,
                problem=lambda: None,
                start_run=self.start_run,
                mark_window=self.mark_window,
                token="secret",
                not_stored=self.store.waiting,
                compatibility=("dcgm",),
                body_seconds=self._body_seconds,
            )
        )

        async def stopped() -> None:
            await asyncio.to_thread(self._stop.wait)

        gate = Gate(app, self._rules, "secret", SYSTEM_CLOCK, host_names("127.0.0.1:0", ["robot"]))
        asyncio.run(serve(gate, self.listener, stopped, self._rules, self._limits))

    def start_run(self, name: str) -> str:
        if name == "odd":
            raise ZeroDivisionError
        if name != "w":
            raise UserError(f"{name} does not run: its device is busy", "try again later")
        self.asked.append(name)
        return "0193"

    def mark_window(self, body: bytes) -> "dict[str, object]":
        if body == b"odd":
            raise ZeroDivisionError
        if body == b"full":
            raise RefusedMarkError(503, "16 windows wait", "try again")
        self.marked.append(len(body))
        return {"run_id": "0194"}

    def ask(
        self, method: str, path: str, body: "bytes | None" = None, **headers: str
    ) -> "tuple[int, http.client.HTTPMessage, bytes]":
        with closing(http.client.HTTPConnection(*self.address, timeout=60)) as client:
            client.request(method, path, body, headers)
            answer = client.getresponse()
            return answer.status, answer.headers, answer.read()

    def post(
        self, body: bytes, path: str = "/api/v1/runs", **headers: str
    ) -> "tuple[int, dict[str, str]]":
        status, _, text = self.ask("POST", path, body, **(headers or TOKEN))
        return status, json.loads(text)

    def connect(self, first: bytes = b"") -> socket.socket:
        peer = socket.create_connection(self.address, timeout=60)
        peer.sendall(first)
        return peer

    def stop(self) -> float:
        """Stop the server; return the seconds that this took, as a ``Stopwatch`` counts them."""
        watch = Stopwatch()
        self._stop.set()
        self._thread.join(60)
        self.store.close()
        return watch.seconds


def until_closed(peer: socket.socket) -> bytes:
    """Return the data that a client receives until it is disconnected."""
    told = b""
    with peer:
        try:
            while data := peer.recv(65536):
                told += data
        except ConnectionError:
            pass
    return told

"""An application that measures a piece of its work by ``tegrascope.lock_in``, in virtual time.

The client, its requests, the daemon's keeper of windows and the store are the real ones. Only the
clock and the board are not: the board is the ground truth, and its lines arrive when the pattern is
over.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tegrascope.collectors.application.lock_in import LockIn
from tegrascope.daemon.measure.report import LockInReport
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.session import Session
from tegrascope.daemon.session.windows import RefusedMarkError, WindowKeeper
from tegrascope.daemon.settings.config import Workload
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.rails import RailRule

from .board import Load, Power, print_lines
from .lock_in import WORLDS
from .lock_in import World as Setting

BEGIN_NS, WALL_NS = 7_200_000_000_000, 10**18


class World:
    """A daemon, an application and a board that share a clock."""

    def __init__(self, directory: Path, url: str, random: np.random.Generator) -> None:
        self.now_ns = BEGIN_NS
        self.random = random
        self.token_file = directory / "token"
        self.token_file.write_text("secret")
        self.store = Store(directory / "runs.db")
        self.history = History(self.store.path)
        self.session = Session(clock=self, store=self.store, timeline=Timeline())
        rule = RailRule(name="t", rails=("VDD_IN",), total=("VDD_IN",), step={"default": 0.4})
        self.session.energy.rule = rule
        workloads = [Workload(name="preprocess", backend="window")]
        self.keeper = WindowKeeper(self.session, lambda: workloads)
        self.keeper.start()
        self.url = url
        for number in range(-20, 0):
            self._line(BEGIN_NS + number * 115_000_000, 6.0)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns + WALL_NS

    boottime_ns = monotonic_ns

    def wait(self, event: threading.Event, _until_ns: int) -> bool:
        return event.is_set()

    def _line(self, at_ns: int, watts: float) -> None:
        self.session.timeline.append(at_ns, at_ns + WALL_NS, {"rails.VDD_IN.instant_watts": watts})

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9) + int(self.random.integers(200_000))

    def measure(self, setting: Setting) -> tuple[LockInReport, float]:
        """Return the figure that the application gets, and the true energy of a piece."""
        loads: list[Load] = []
        pieces = 0
        watts = setting.watts * self.random.uniform(0.95, 1.05)
        where = {"url": self.url, "token_file": self.token_file}
        clock = {"now_ns": self.monotonic_ns, "sleep": self.sleep}
        with LockIn("preprocess", setting.seconds, **where, **clock) as pattern:
            while pattern.on():
                begin = (self.now_ns - BEGIN_NS) / 1e9
                self.now_ns += round(setting.piece * self.random.uniform(0.9, 1.1) * 1e9)
                end = (self.now_ns - BEGIN_NS) / 1e9
                pieces += 1
                if loads and loads[-1].end == begin:
                    begin = loads.pop().begin
                loads.append(Load(begin, end, (watts, watts)))
            self.now_ns += 3_000_000_000
            seconds = (self.now_ns - BEGIN_NS) / 1e9
            random = self.random
            power = Power(setting.board, seconds, loads, setting.idle, setting.heat, random)
            lines = print_lines(power, setting.sensor, setting.printing, random)
            for at, reading in zip(lines.arrived, lines.watts[0], strict=True):
                self._line(BEGIN_NS + round(at * 1e9), float(reading))
        truth = sum(power.work(one.begin, one.end) for one in loads) / pieces
        return LockInReport.model_validate(pattern.result), truth


def measure(name: str, seed: int, number: int) -> tuple[LockInReport, float]:
    """Return the figure of one world and the truth."""
    random = np.random.default_rng([seed, number])
    with TemporaryDirectory() as directory, serving(Path(directory), random) as world:
        return world.measure(WORLDS[name])


@contextmanager
def serving(directory: Path, random: np.random.Generator) -> Iterator[World]:
    """Serve the two requests of a lock-in from a world of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                self._answer(202, world.keeper.take(body))
            except RefusedMarkError as error:
                self._answer(error.status, {"error": str(error)})

        def do_GET(self) -> None:
            found = world.history.run(self.path.rpartition("/")[2])
            self._answer(404 if found is None else 200, found or {"error": "no finished run"})

        def _answer(self, status: int, document: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        world = World(directory, url, random)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield world
        finally:
            server.shutdown()
            thread.join()
            world.keeper.stop()
            world.store.close()

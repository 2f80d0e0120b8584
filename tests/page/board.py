"""A daemon's page without its daemon: the real server, store and timeline, fed by the test."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tegrascope.collectors.base import Stamped, SystemClock
from tegrascope.daemon.export.snapshot import LiveState, Snapshot, SourceState
from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.store.history import History
from tegrascope.daemon.store.store import Store
from tegrascope.daemon.web.application import Serving, make_app
from tegrascope.daemon.web.server import bind, serve, url_of
from tegrascope.parsers.tegrastats import parse_line

S = 1_000_000_000


class LongUp(SystemClock):
    """The clocks of a machine that is up for a day, so that no run begins before its start."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + 86_400 * S


CLOCK = LongUp()
RULE_RAILS = ("VDD_GPU_SOC", "VDD_CPU_CV")

Asgi = Callable[[Any, Any, Any], Any]


class Board:
    """The application on a free port, in a thread; ``around`` may put something in front of it."""

    def __init__(
        self, state: Path, *, simulated: bool = True, around: "Callable[[Asgi], Asgi] | None" = None
    ) -> None:
        self.store = Store(state / "runs.db")
        self.timeline = Timeline(on_sealed=self.store.add_block)
        self.live = LiveState(Snapshot())
        self.live.describe(board="made-board", simulated=simulated)
        self.problem: str | None = None
        self.note: str | None = None
        self.interval = 0.1  # a sample is of the present for five of them, and for three seconds
        self.total: tuple[str, ...] = RULE_RAILS
        self.due: Mapping[str, float] = {}  # seconds until the next run of a workload
        listener = bind("127.0.0.1:0")
        self.url = url_of(listener)
        self.origin = self.url
        self._stop = threading.Event()
        app: Any = make_app(self._serving())
        if around is not None:
            app = around(app)
        self._thread = threading.Thread(target=self._serve, args=(app, listener))
        self._thread.start()

    def _serving(self) -> Serving:
        return Serving(
            live=self.live,
            timeline=self.timeline,
            history=History(self.store.path),
            clock=CLOCK,
            problem=lambda: self.problem,
            start_run=lambda name: name,
            mark_window=lambda _: {},
            token="secret",
            compatibility=("dcgm",),
            note=lambda: self.note,
            next_due=lambda: {
                name: CLOCK.monotonic_ns() + int(seconds * S) for name, seconds in self.due.items()
            },
            rule=lambda: type("Rule", (), {"total": self.total}),  # type: ignore[arg-type,return-value]
        )

    def _serve(self, app: Any, listener: Any) -> None:
        async def stopped() -> None:
            await asyncio.to_thread(self._stop.wait)

        asyncio.run(serve(app, listener, stopped))

    def sample(self, values: Mapping[str, float], ago: float = 0.0) -> None:
        """Take one sample that came so many seconds ago."""
        now_ns = CLOCK.monotonic_ns() - int(ago * S)
        wall_ns = CLOCK.wall_ns() - int(ago * S)
        assert self.timeline.append(now_ns, wall_ns, values)
        latest = Stamped(now_ns, parse_line("RAM 1/2MB"), wall_ns)
        state = SourceState("tegrastats", self.interval, latest, 1 + self._samples())
        self.live.update(sources=(state,), values=dict(values))

    def _samples(self) -> int:
        sources = self.live.snapshot.sources
        return sources[0].samples if sources else 0

    def fill(
        self,
        make: "Callable[[float], Mapping[str, float]]",
        since: float,
        until: float,
        step: float,
    ) -> None:
        """Take samples from ``since`` to ``until`` seconds ago, a step apart."""
        count = round((since - until) / step)
        for number in range(count + 1):
            ago = since - number * step
            self.sample(make(ago), ago)

    def finish(self, ago: float, lasted: float, **fields: Any) -> RunReport:
        """Store a run that began so many seconds ago; a plain name has a steady phase."""
        made = report(ago, lasted, **fields)
        self.store.finish(made)
        if made.workload not in self.live.snapshot.workloads:
            known = self.live.snapshot.workloads
            self.live.set_workloads(
                {**{name: one.device for name, one in known.items()}, made.workload: made.device}
            )
        self.live.run_ended(made)
        return made

    def begin(self, ago: float, **fields: Any) -> RunReport:
        """Store a run that is in flight."""
        made = report(ago, 0.0, **{"outcome": "failed", "reason": "the daemon ended", **fields})
        self.store.begin(made)
        self.live.run_began(made.workload, made.run_id, None, 0.0)
        return made

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join(60)
        self.store.close()


def report(ago: float, lasted: float, **fields: Any) -> RunReport:
    """Return a run that began so many seconds ago, with a steady phase in its middle."""
    now_ns = CLOCK.monotonic_ns()
    began, ended = now_ns - int(ago * S), now_ns - int((ago - lasted) * S)
    steady = {"begin_ns": began + (ended - began) // 4, "end_ns": ended - (ended - began) // 4}
    plain: dict[str, Any] = {
        "run_id": f"0199aaaa-0000-7000-8000-{int(ago * 1000):012d}",
        "workload": "resnet",
        "backend": "tensorrt",
        "device": "dla0",
        "outcome": "ok",
        "started_wall_ns": CLOCK.wall_ns() - int(ago * S),
        "started_ns": began,
        "ended_ns": ended,
        "phases": {"steady": steady} if lasted else {},
    }
    return RunReport.model_validate(plain | fields)

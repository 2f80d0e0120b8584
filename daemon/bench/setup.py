"""The telemetry of a benchmark, with which its runs are paired."""

import threading
from pathlib import Path

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.board.boards import RailRule
from ...collectors.board.machine import cpu_busy_ratio
from ...parsers.errors import Mendable
from ..measure.run_report import Span
from ..measure.slices import WindowSlice
from ..measure.timeline import Timeline
from ..measure.utilization import telemetry as describe
from ..session.session import Session
from ..session.sources import environment_of
from ..settings.config import Telemetry

_FIRST_SAMPLE_SECONDS = 20.0
# A benchmark may take hours, and its figure shows all of it.
_SPAN_SECONDS = 48 * 3600.0


class Setup:
    """The telemetry of a benchmark, by the same parts as the daemon's.

    ``problem`` is the reason for missing telemetry. ``stopping`` ends every wait.
    """

    def __init__(
        self,
        telemetry: Telemetry | None,
        state_dir: Path,
        *,
        rule: RailRule | None = None,
        problem: str | None = None,
        is_simulated: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        first_sample_seconds: float = _FIRST_SAMPLE_SECONDS,
    ) -> None:
        """Prepare; ``problem`` is the reason if ``telemetry`` is ``None``.

        Without ``rule`` the rule for the board's rails is found by their names. After
        ``first_sample_seconds`` without a sample the benchmark continues without telemetry.
        """
        self.problem = problem
        self.stopping = threading.Event()
        self._settings = telemetry
        self._rule = rule
        self._clock = clock
        self._first_sample_seconds = first_sample_seconds
        self.session = Session(
            clock=clock,
            environment=environment_of(
                telemetry, board=None if rule is None else rule.name, simulated=is_simulated
            ),
            timeline=Timeline(span_seconds=_SPAN_SECONDS),
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
        )

    def start(self) -> None:
        """Open the source and wait for its first sample; without one, set ``problem``."""
        if self._settings is None:
            return
        session, seconds = self.session, self._first_sample_seconds
        try:
            source = session.open(self._settings, self._rule)
        except Mendable as error:
            self.problem = str(error)
            return
        session.start()
        if not session.await_first_sample(seconds, self.stopping.is_set):
            self.problem = session.why() or f"{source.name}: no sample in {seconds:g} s"
            session.stop()

    def stop(self) -> None:
        """End the source."""
        self.session.stop()

    def background(self, seconds: float) -> dict[str, float]:
        """Return the load of ``cpu``, by the kernel, and of ``gpu``, by telemetry, if known."""
        begin_ns = self._clock.monotonic_ns()
        loads = {"cpu": cpu_busy_ratio(seconds, self.stopping, clock=self._clock)}
        end_ns = self._clock.monotonic_ns()
        cut = self.cut(begin_ns, end_ns)
        if cut.times_ns and end_ns > begin_ns:
            seen = describe(cut, Span(begin_ns=begin_ns, end_ns=end_ns)).utilization.get("gpu")
            loads["gpu"] = None if seen is None else seen.mean_ratio
        return {name: ratio for name, ratio in loads.items() if ratio is not None}

    def cut(self, begin_ns: int, end_ns: int) -> WindowSlice:
        """Return the samples between two times."""
        return self.session.timeline.cut(begin_ns, end_ns)

"""The telemetry of a benchmark, and what its runs are paired with."""

import threading
from pathlib import Path
from platform import python_version

from ... import __version__
from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.board.boards import RailRule
from ...collectors.board.readers import cpu_busy_ratio
from ...parsers.errors import Mendable
from ..measure.run_report import Environment, Span
from ..measure.slices import Cut
from ..measure.utilization import telemetry as describe
from ..session.own_feed import OwnFeed
from ..session.sources import board_root, with_facts
from ..settings.config import Telemetry

_FIRST_SAMPLE_SECONDS = 20.0
_LOOK_SECONDS = 0.25
# A benchmark may take hours, and its figure shows all of it.
_SPAN_SECONDS = 48 * 3600.0


class Setup:
    """The telemetry of a benchmark, by the same parts as the daemon's.

    Attributes:
        surroundings: What every run is paired with.
        problem: Why there is no telemetry; ``None`` while there is.
        stopping: Once set, nothing here waits any more.
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
        """Prepare.

        Args:
            telemetry: The source; ``None`` for none.
            state_dir: Where models and engines are cached.
            rule: How the board's rails add up; ``None`` finds the rule by the rails.
            problem: Why ``telemetry`` is ``None``.
            is_simulated: Whether the CPU plays the accelerators.
            clock: The time.
            first_sample_seconds: How long to wait for a sample before going on without telemetry.
        """
        self.problem = problem
        self.stopping = threading.Event()
        self._settings = telemetry
        self._rule = rule
        self._clock = clock
        self._first_sample_seconds = first_sample_seconds
        environment = Environment(
            board=None if rule is None else rule.name,
            telemetry_source=None if telemetry is None else telemetry.source,
            simulated=is_simulated,
            versions={"tegrascope": __version__, "python": python_version()},
        )
        root = None if telemetry is None else board_root(telemetry)
        if root is not None:
            environment = with_facts(environment, root)
        self._own = OwnFeed(
            environment,
            clock,
            span_seconds=_SPAN_SECONDS,
            model_directory=state_dir / "models",
            engine_directory=state_dir / "engines",
        )
        self.surroundings = self._own.surroundings
        self._timeline = self.surroundings.timeline

    @property
    def environment(self) -> Environment:
        """Where the benchmark runs, as far as is known by now."""
        return self._own.environment

    @property
    def rule(self) -> RailRule | None:
        """How the rails add up, as far as is known by now."""
        return self.surroundings.rule()

    def start(self) -> None:
        """Open the source and wait for its first sample; without one, set ``problem``."""
        if self._settings is None:
            return
        try:
            source = self._own.open(self._settings, self._rule, ("dla0", "dla1"))
        except Mendable as error:
            self.problem = str(error)
            return
        self._own.start()
        if not self._await_first():
            wait = f"{self._first_sample_seconds:g} s"
            self.problem = self._own.why() or f"{source.name}: no sample in {wait}"
            self._own.stop()

    def _await_first(self) -> bool:
        for _ in range(int(self._first_sample_seconds / _LOOK_SECONDS)):
            if self._timeline.wait_past(0, _LOOK_SECONDS):
                return True
            if self._own.has_ended or self.stopping.is_set():
                return False
        return False

    def stop(self) -> None:
        """End the source."""
        self._own.stop()

    def background(self, seconds: float) -> dict[str, float]:
        """Return the load of the machine before the benchmark starts anything.

        Returns:
            Load of ``cpu``, by the kernel, and of ``gpu``, by telemetry, if known.
        """
        begin_ns = self._clock.monotonic_ns()
        loads = {"cpu": cpu_busy_ratio(seconds, self.stopping, clock=self._clock)}
        end_ns = self._clock.monotonic_ns()
        cut = self.cut(begin_ns, end_ns)
        if cut.times_ns and end_ns > begin_ns:
            seen = describe(cut, Span(begin_ns=begin_ns, end_ns=end_ns)).utilization.get("gpu")
            loads["gpu"] = None if seen is None else seen.mean_ratio
        return {name: ratio for name, ratio in loads.items() if ratio is not None}

    def cut(self, begin_ns: int, end_ns: int) -> Cut:
        """Return the samples between two times."""
        return self._timeline.cut(begin_ns, end_ns)

"""Models together, by the on/off design: each is switched on and off, others beside it."""

from collections.abc import Mapping, Sequence
from itertools import combinations

from ..measure.run_report import Device
from ..settings.config import Workload
from .contention_result import Contention, Placed
from .contention_summary import NotRun, summarise_contention
from .joint import Joint, join_up
from .lanes import Flown, Lanes
from .placements import On, round_seconds, ways_on
from .plan import Plan
from .progress import Teller
from .result import BenchSettings, ModelResult
from .stand import Stand
from .workload import LOOK_SECONDS, workload_of


class ContentionBench:
    """Measures models alone and together, in mirrored order, on workers of its own.

    Each model has one worker, which stays when it is off, its model loaded. To be switched on
    together all are loaded and warm first, one after the other; then each is told at the same
    moment to idle, to infer, and to idle again. What counts is the time in which all inferred.
    """

    def __init__(self, settings: BenchSettings, stand: Stand, lanes: Lanes, teller: Teller) -> None:
        """Prepare.

        Args:
            settings: What to measure.
            stand: The telemetry, started.
            lanes: Workers; none of them runs yet.
            teller: Who is told how it goes on.
        """
        self._settings = settings
        self._stand = stand
        self._lanes = lanes
        self._teller = teller
        self._turns = Plan.of(settings.rounds).least
        self._not_run: dict[On, NotRun] = {}
        self._to_come: list[float] = []

    def run(self, models: Sequence[ModelResult]) -> Contention:
        """Measure every placement of models that were measured alone.

        Args:
            models: What the bench found of each; only what ran is tried.

        Returns:
            What was measured, until the end or until it was interrupted.
        """
        ways = ways_on(runs_on(models))
        self._to_come = [round_seconds(self._settings, on) for on in ways] * self._turns
        planned = sum(self._to_come)
        rounds: list[Joint] = []
        for turn in range(self._turns):
            for on in ways if turn % 2 == 0 else ways[::-1]:
                if self._lanes.was_cancelled:
                    break
                if self._is_possible(on):
                    rounds += self._measure(turn, on)
                self._to_come.pop()
        record = summarise_contention(ways, rounds, self._not_run, self._turns)
        return record.model_copy(update={"planned_seconds": planned})

    def _is_possible(self, on: On) -> bool:
        """Leave out what holds models that failed, alone or in smaller company."""
        for size in range(1, len(on) + 1):
            for part in combinations(on, size):
                if part in self._not_run:
                    self._not_run.setdefault(on, self._not_run[part])
                    return False
        return True

    def _measure(self, turn: int, on: On) -> list[Joint]:
        """Return one round; none where a model did not get ready for it."""
        flights = [self._flight(placed) for placed in on]
        self._teller.begin_together(
            " + ".join(f"{workload.name}" for workload, _ in flights),
            turn + 1,
            self._turns,
            sum(self._to_come),
        )
        for workload, lane_name in flights:
            ready = self._lanes.fly(_ready(workload), lane_name, LOOK_SECONDS)
            if not self._went_well(on, ready):
                return []
        seconds = max(workload.timeout_seconds for workload, _ in flights)
        flown = self._lanes.fly_together([(_warm(w), name) for w, name in flights], seconds)
        went_well = [self._went_well(on, one) for one in flown]
        if not all(went_well):
            return []
        around = self._stand.surroundings
        environment = self._stand.environment
        joint = join_up(turn, on, flown, self._stand.cut, around.rule(), environment)
        self._teller.end_together(joint)
        return [joint]

    def _flight(self, placed: Placed) -> tuple[Workload, str]:
        workload = workload_of(self._settings, placed.model, placed.device)
        return workload, f"model{self._settings.models.index(placed.model)}"

    def _went_well(self, on: On, flown: Flown) -> bool:
        if flown.status == "ok":
            return True
        report = flown.report
        words = f"{report.workload}: {report.reason}"
        self._teller.say(f"  {words}")
        if flown.status != "cancelled":
            self._not_run[on] = NotRun(flown.status, words)
        return False


def runs_on(models: Sequence[ModelResult]) -> Mapping[str, Sequence[Device]]:
    """Return on which accelerators each model ran to its end; a wrong answer is work all the same.

    A model that ran nowhere is left out.
    """
    found = {
        one.model: tuple(each.device for each in one.accelerators if each.status == "ok")
        for one in models
    }
    return {model: devices for model, devices in found.items() if devices}


def _ready(workload: Workload) -> Workload:
    """Return what loads a model and warms it up, without anything that counts."""
    return workload.model_copy(update={"baseline": 0.0, "duration": None, "count": 1})


def _warm(workload: Workload) -> Workload:
    """Return the same for a model that is warm: it begins at once, as all others do."""
    return workload.model_copy(update={"warm_up": 0.0})

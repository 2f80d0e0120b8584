"""The benchmark: models alone, accelerator after accelerator, and several models at once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

from ..measure.run_report import Device
from ..results.contention import Joint, NotRun, On, join_runs, summarise_contention
from ..results.records import BenchSettings, Contention, ModelResult, Placed
from ..results.summary import Measured, Round, agree, clock_ranges, summarise
from ..session.executor import Executor
from ..settings.config import Workload
from .look import Look, Watcher, look_at
from .progress import LineDisplay, outcome_of, outcome_of_joint
from .settings import LOOK_SECONDS, shortened, workload_of
from .workers import FinishedRun, Setup, Workers

# Times the rounds asked for, after which waiting for rounds that agree is given up.
PATIENCE = 2
# In addition to its phases a round takes an order, a reload from the cache, and the last sample.
OVERHEAD_SECONDS = 1.0


@dataclass(frozen=True)
class RoundPlan:
    """The least and the largest number of rounds of each accelerator.

    Both are even: each pass through the accelerators is followed by one in the opposite order, so
    that a board that warms steadily favours none of them.
    """

    least: int
    most: int

    @classmethod
    def of(cls, rounds: int) -> "RoundPlan":
        """Plan at least so many rounds.

        >>> RoundPlan.of(3)
        RoundPlan(least=4, most=8)
        """
        least = rounds + rounds % 2
        return cls(least, PATIENCE * least)

    def goes_on(self, done: int, are_steady: bool) -> bool:
        """Return whether another pass is due, when so many are over and agree or not."""
        if done < self.least or done % 2:
            return True
        return not are_steady and done < self.most


def passes(devices: Sequence[Device]) -> Iterator[tuple[Device, ...]]:
    """Yield passes through the accelerators without end: A B, B A, A B, B A ….

    >>> order = passes(["gpu", "dla0"])
    >>> next(order), next(order), next(order)
    (('gpu', 'dla0'), ('dla0', 'gpu'), ('gpu', 'dla0'))
    """
    forward = tuple(devices)
    while True:
        yield forward
        yield forward[::-1]


def placements(runs_on: Mapping[str, Sequence[Device]]) -> Iterator[On]:
    """Yield every way to run two or more models at once on their accelerators.

    >>> [len(list(placements(dict.fromkeys("abc"[:n], ("gpu", "dla0"))))) for n in (2, 3)]
    [4, 20]
    """
    for size in range(2, len(runs_on) + 1):
        for models in combinations(runs_on, size):
            for devices in product(*(runs_on[model] for model in models)):
                pairs = zip(models, devices, strict=True)
                yield tuple(Placed(model=model, device=device) for model, device in pairs)


def groups_on(runs_on: Mapping[str, Sequence[Device]]) -> list[On]:
    """Return one pass: which models are switched on, in which order.

    Before models run together, each of them and each smaller group of them ran without the
    others: that is the on/off design. Groups that several placements have in common run once.

    >>> from_two = groups_on({"a": ("gpu",), "b": ("gpu", "dla0")})
    >>> [" ".join(f"{one.model}:{one.device}" for one in on) for on in from_two]
    ['a:gpu', 'b:gpu', 'a:gpu b:gpu', 'b:dla0', 'a:gpu b:dla0']
    """
    ordered: dict[On, None] = {}
    for placement in placements(runs_on):
        for size in range(1, len(placement) + 1):
            ordered.update(dict.fromkeys(combinations(placement, size)))
    return list(ordered)


def round_seconds(settings: BenchSettings, on: On) -> float:
    """Return how long one round takes: warm-ups follow each other, the rest is at once."""
    once = 2 * settings.baseline_seconds + settings.duration_seconds
    return once + len(on) * (settings.warm_up_seconds + OVERHEAD_SECONDS)


def foreseen(settings: BenchSettings, turns: int) -> tuple[int, int, float]:
    """Return the number of placements, rounds per pass, and seconds of all passes.

    Every model is taken to run on every accelerator.
    """
    runs_on = dict.fromkeys(settings.models, settings.devices or ("gpu", "dla0"))
    groups = groups_on(runs_on)
    total = turns * sum(round_seconds(settings, on) for on in groups)
    return sum(1 for _ in placements(runs_on)), len(groups), total


class Bench:
    """Runs models on accelerators, by the daemon's own workers and pairing."""

    def __init__(
        self,
        settings: BenchSettings,
        setup: Setup,
        display: LineDisplay,
        *,
        worker_cwd: Path | None = None,
        make_lane: Callable[..., Executor] = Executor,
        watcher: Watcher | None = None,
    ) -> None:
        """Prepare; the telemetry of ``setup`` has to be started before ``run``."""
        self._settings = settings
        self._plan = RoundPlan.of(settings.rounds)
        self._setup = setup
        self._watcher = watcher
        self._display = display
        self._workers = Workers(setup.session, display.heard, cwd=worker_cwd, make_lane=make_lane)

    @property
    def was_cancelled(self) -> bool:
        """Whether the benchmark was ended early."""
        return self._workers.was_cancelled

    def cancel(self) -> None:
        """End the run in flight and all that follow; from any thread but that of ``run``."""
        self._setup.stopping.set()
        self._workers.cancel()

    def close(self) -> None:
        """End all workers."""
        self._workers.close()

    def run(self, model: str) -> ModelResult:
        """Look at a model on every accelerator, and measure it where it runs."""
        looks = look_at(model, self._settings, self._workers, self._display.say)
        rounds = self._measure(looks)
        if self._watcher is not None:
            self._display.say(f"{model}: once more under Nsight Systems, for its timeline alone")
            self._watcher.watch(looks, self._workers)
        measured = [self._measured(device, seen, rounds) for device, seen in looks.items()]
        return summarise(model, measured, [one.report for one in rounds])

    def run_together(self, models: Sequence[ModelResult]) -> Contention:
        """Measure models that were measured alone once more, together, in every placement."""
        # Their workers hold memory, and each model gets one of its own.
        self._workers.close()
        bench = ContentionBench(self._settings, self._setup, self._workers, self._display)
        return bench.run(models)

    def _measure(self, looks: Mapping[Device, Look]) -> list[Round]:
        """Measure in turns until the rounds agree or the plan is over; return all rounds."""
        left = [device for device, seen in looks.items() if seen.status == "ok"]
        rounds: list[Round] = []
        steady = False
        for number, turn in enumerate(passes(left)):
            if not left or self.was_cancelled or not self._plan.goes_on(number, steady):
                break
            for device in turn:
                if device in left and not self.was_cancelled:
                    self._announce(device, number, left)
                    rounds.append(self._measure_round(device, looks[device]))
                    if looks[device].status != "ok":
                        left.remove(device)
            reports = [one.report for one in rounds]
            steady = all(agree([r for r in reports if r.device == device]) for device in left)
        return rounds

    def _announce(self, device: Device, number: int, left: list[Device]) -> None:
        """Show which round begins, and how long it and all planned ones take."""
        settings, plan = self._settings, self._plan
        planned = plan.least if number < plan.least else plan.most
        turn = left if number % 2 == 0 else left[::-1]
        to_come = (planned - number) * len(left) - turn.index(device)
        each = settings.warm_up_seconds + 2 * settings.baseline_seconds + settings.duration_seconds
        self._display.begin(f"round {number + 1} of {planned} on {device}", each * to_come)

    def _measure_round(self, device: Device, seen: Look) -> Round:
        """Measure one round; an accelerator that fails gets no other."""
        done = self._workers.run(seen.workload, device, seen.workload.timeout_seconds)
        report, trace = done.report, done.trace
        if done.status != "ok":
            seen.status, seen.reason = done.status, report.reason
        self._display.end(outcome_of(report))
        window = report.phases.get("steady")
        if window is None:
            return Round(report)
        clocks = clock_ranges(self._setup.cut(window.begin_ns, window.end_ns), window)
        latencies = trace.completed(window)[1]
        return Round(report, latencies, trace.device_ns(), trace.stages_ns, clocks)

    def _measured(self, device: Device, seen: Look, rounds: Sequence[Round]) -> Measured:
        mine = [one for one in rounds if one.report.device == device]
        counted = [one for one in mine if one.report.outcome == "ok"][-self._plan.least :]
        return Measured(
            device=device,
            backend=seen.workload.backend_in_force,
            status=seen.status,
            reason=seen.reason,
            look=seen.report,
            outputs=seen.outputs,
            rounds=counted,
            is_steady=agree([one.report for one in counted]),
            nsys_report=seen.nsys_report,
            nsys_problem=seen.nsys_problem,
        )


class ContentionBench:
    """Measures models alone and together, in mirrored order, with one worker per model.

    A worker stays when its model is off, with the model loaded. To be switched on together, all
    models are loaded and warmed up first, one after the other. Then each is ordered at the same
    moment to idle, to infer, and to idle again. The time in which all of them inferred counts.
    """

    def __init__(
        self, settings: BenchSettings, setup: Setup, workers: Workers, display: LineDisplay
    ) -> None:
        """Prepare; no worker runs yet."""
        self._settings = settings
        self._setup = setup
        self._workers = workers
        self._display = display
        self._turns = RoundPlan.of(settings.rounds).least
        self._not_run: dict[On, NotRun] = {}
        self._to_come: list[float] = []

    def run(self, models: Sequence[ModelResult]) -> Contention:
        """Measure every placement of models where they ran alone, until the end or a cancel."""
        groups = groups_on(runs_on(models))
        self._to_come = [round_seconds(self._settings, on) for on in groups] * self._turns
        planned = sum(self._to_come)
        rounds: list[Joint] = []
        for turn in range(self._turns):
            for on in groups if turn % 2 == 0 else groups[::-1]:
                if self._workers.was_cancelled:
                    break
                if self._is_possible(on):
                    rounds += self._measure(turn, on)
                self._to_come.pop()
        return summarise_contention(groups, rounds, self._not_run, self._turns, planned)

    def _is_possible(self, on: On) -> bool:
        """Leave out a group with models that failed, alone or in a smaller group."""
        for size in range(1, len(on) + 1):
            for part in combinations(on, size):
                if part in self._not_run:
                    self._not_run.setdefault(on, self._not_run[part])
                    return False
        return True

    def _measure(self, turn: int, on: On) -> list[Joint]:
        """Return one round; none if a model did not get ready for it."""
        runs = [self._workload(placed) for placed in on]
        names = " + ".join(workload.name for workload, _ in runs)
        self._display.begin(f"turn {turn + 1} of {self._turns}: {names}", sum(self._to_come))
        for workload, worker in runs:
            # Loads a model and warms it up; nothing of it counts.
            ready = shortened(workload, warm_up=workload.warm_up)
            if not self._went_well(on, self._workers.run(ready, worker, LOOK_SECONDS)):
                return []
        seconds = max(workload.timeout_seconds for workload, _ in runs)
        warm = [(workload.model_copy(update={"warm_up": 0.0}), worker) for workload, worker in runs]
        done = self._workers.run_together(warm, seconds)
        # Every failure is reported.
        went_well = [self._went_well(on, one) for one in done]
        if not all(went_well):
            return []
        joint = join_runs(
            turn,
            on,
            [one.report for one in done],
            lambda window: [one.trace.completed(window)[1] for one in done],
            self._setup.cut,
            self._setup.session.energy.rule,
            self._setup.session.environment,
        )
        self._display.end(outcome_of_joint(joint))
        return [joint]

    def _workload(self, placed: Placed) -> tuple[Workload, str]:
        workload = workload_of(self._settings, placed.model, placed.device)
        return workload, f"model{self._settings.models.index(placed.model)}"

    def _went_well(self, on: On, done: FinishedRun) -> bool:
        if done.status == "ok":
            return True
        words = f"{done.report.workload}: {done.report.reason}"
        self._display.say(f"  {words}")
        if done.status != "cancelled":
            self._not_run[on] = NotRun(done.status, words)
        return False


def runs_on(models: Sequence[ModelResult]) -> Mapping[str, Sequence[Device]]:
    """Return on which accelerators each model ran to its end, with right or wrong outputs."""
    found = {
        one.model: tuple(each.device for each in one.accelerators if each.status == "ok")
        for one in models
    }
    return {model: devices for model, devices in found.items() if devices}

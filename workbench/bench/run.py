"""The benchmark: models alone, accelerator after accelerator, several at once, and its progress."""

import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from math import ceil
from pathlib import Path
from statistics import median
from typing import TextIO, TypeAlias, TypeVar

from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.catalog import find_backend
from ...collectors.paths import exists
from ...daemon.measure.figures import energy_of
from ...daemon.measure.report import Accelerator, Figure, LockInReport, RunReport
from ...daemon.measure.run_text import joules, percent, seconds, watts, with_half
from ...daemon.settings.config import Workload
from ...daemon.terminal import duration
from ...parsers.errors import UserError
from ...parsers.inference.events import Phase, Progress, RunEvent, StageName
from ...parsers.inference.layers import LayerProfile
from ...parsers.values import printable
from ..results.contention import Joint, NotRun, On, join_runs, summarise_contention, whole_span
from ..results.layers import time_rows
from ..results.paired import power_of
from ..results.records import (
    BenchSettings,
    Contention,
    GoalResult,
    LayerRow,
    ModelResult,
    Placed,
)
from ..results.stopping import DOUBT, SPENDING, Watch, is_answered, state_of
from ..results.summary import (
    Measured,
    Round,
    agree,
    clock_ranges,
    median_half_width,
    reported_flags,
    summarise,
)
from ..results.sustained import Trips
from .settings import (
    BASELINE_SECONDS,
    LOOK_SECONDS,
    SHORT_SECONDS,
    shortened,
    workload_name,
    workload_of,
)
from .sustain import LongRun
from .workers import FinishedRun, Workers, look_at

T = TypeVar("T")
LayerRows: TypeAlias = tuple[LayerRow, ...]
# Times the rounds asked for, after which waiting for rounds that agree is given up.
PATIENCE = 2
# Passes of rounds for latency alone, in a bench that may stop early. Three degrees of freedom are
# the fewest with which Student's factor of a look does not drown a difference of 5 %.
SHORT_PASSES = 4
# Repetitions of a stage, between two waits of the host for the device, take about so long.
STAGE_SECONDS = 0.001
# In addition to its phases a round takes an order, a reload from the cache, and the last sample.
OVERHEAD_SECONDS = 1.0


@dataclass(frozen=True)
class RoundPlan:
    """The least and the largest number of rounds of each accelerator, both even.

    Each pass is followed by one in the opposite order, so that a board that warms steadily favours
    none of the accelerators. With ``looks`` the bench may stop only after one of these passes;
    then the first passes are ``short``, and tell of latency only.
    """

    least: int
    most: int
    short: int = 0
    looks: tuple[int, ...] = ()

    @classmethod
    def of(cls, rounds: int, *, may_stop: bool = False) -> "RoundPlan":
        """Plan at least so many rounds, or with ``may_stop`` at most so many.

        >>> RoundPlan.of(6, may_stop=True).looks
        (4, 7, 10)
        """
        least = rounds + rounds % 2
        if not may_stop:
            return cls(least, PATIENCE * least)
        most = SHORT_PASSES + least
        looks = (SHORT_PASSES, SHORT_PASSES + least // 2, most)
        return cls(SHORT_PASSES, most, SHORT_PASSES, looks)

    def doubt_after(self, done: int) -> float:
        """Return the chance of an error of each interval after so many passes.

        Between two looks it is that of the next one.
        """
        for look, doubt in zip(self.looks, SPENDING, strict=False):
            if done <= look:
                return doubt
        return DOUBT

    @property
    def counted(self) -> int:
        """How many rounds count, of each accelerator the latest: with ``looks`` all of them."""
        return self.most if self.looks else self.least

    def next_end(self, done: int) -> int:
        """Return after which pass the bench may end next, when so many are over."""
        for end in self.looks or (self.least,):
            if done < end:
                return end
        return self.most

    def goes_on(self, done: int, is_enough: bool) -> bool:
        """Return whether another pass is due, when so many are over.

        ``is_enough``: the rounds agree, or with ``looks`` all questions are answered.
        """
        if self.looks:
            return done < self.most and not (is_enough and done in self.looks)
        return done < self.least or done % 2 == 1 or (not is_enough and done < self.most)


def in_turn(items: Sequence[T], number: int) -> list[T]:
    """Return the order of a pass: A B, B A, A B, B A …."""
    return list(items) if number % 2 == 0 else list(items)[::-1]


def placements(runs_on: Mapping[str, Sequence[Accelerator]]) -> Iterator[On]:
    """Yield every way to run two or more models at once on their accelerators."""
    ways: dict[str, list[Placed]] = {}
    for model, devices in runs_on.items():
        ways[model] = [Placed(model=model, device=device) for device in devices]
    for size in range(2, len(ways) + 1):
        for some in combinations(ways.values(), size):
            yield from product(*some)


def groups_on(runs_on: Mapping[str, Sequence[Accelerator]]) -> list[On]:
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


# --- progress -------------------------------------------------------------------------------------


_DOING = {
    "load": "loads",
    "build": "prepares its engine",
    "warm_up": "warms up",
    "baseline_before": "idles",
    "steady": "infers",
    "baseline_after": "idles",
}


class Display:
    """Progress on standard error: lines, and a bar below them while ``progress`` is entered.

    The bar moves once per second: drawing takes time from the measurement. Without a
    terminal each step is a line.
    """

    def __init__(self, stream: TextIO | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=stream, stderr=stream is None, highlight=False, emoji=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=1,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.progress.add_task("begins", total=None, left="")
        self._clock = clock
        self._title = ""
        self._whole = 0.0
        self._end_ns: int | None = None

    def say(self, words: str) -> None:
        """Print a line above the bar."""
        self._title = printable(words)
        self.progress.console.print(self._title, markup=False, soft_wrap=True)

    def heard(self, event: RunEvent) -> None:
        """Show the worker's phase, and how long there is to wait."""
        doing = printable(event.doing) if isinstance(event, Progress) else None
        if doing is not None and self.progress.disable:
            self.progress.console.print(f"  {doing}", markup=False, soft_wrap=True)
        if isinstance(event, Phase) and event.edge == "begin":
            doing = _DOING[event.phase]
        if doing is not None:
            self.progress.update(self._task, description=f"{self._title} · {doing}")
        if self._end_ns is not None:
            self._show_left(max(0.0, (self._end_ns - self._clock.monotonic_ns()) / 1e9))

    def begin(self, title: str, seconds_left: float) -> None:
        """Show which round begins, and how far the benchmark is."""
        self._end_ns = self._clock.monotonic_ns() + round(seconds_left * 1e9)
        # Models together may take longer than all that was before.
        self._whole = max(self._whole, seconds_left)
        if self.progress.disable:
            self.say(f"{title}; about {duration(seconds_left)} left")
        self._title = title
        self.progress.update(self._task, description=title)
        self._show_left(seconds_left)

    def end(self, outcome: str) -> None:
        """Print the outcome of a round."""
        words = f"  {outcome}" if self.progress.disable else f"{self._title}: {outcome}"
        self.progress.console.print(words, markup=False, soft_wrap=True)

    def _show_left(self, seconds_left: float) -> None:
        self.progress.update(
            self._task,
            total=self._whole,
            completed=self._whole - seconds_left,
            left=f"about {duration(seconds_left)} left",
        )


def outcome_of(report: RunReport, latency_ns: Sequence[int] = (), *, is_short: bool = False) -> str:
    """Return the outcome of a round in a few words, with the intervals of this round alone.

    The flags of a round that ``is_short`` only say that it is short.
    """
    if report.latency is None or report.outcome != "ok":
        return f"{report.outcome}: {report.reason}"
    p50 = Figure.around(report.latency.p50_seconds, median_half_width(latency_ns))
    words = [f"{report.inferences} inferences", f"p50 {with_half(p50, seconds)}"]
    energy = energy_of(report, "net")
    if energy is not None:
        words.append(f"net {with_half(energy, joules)}")
    if not is_short:
        words.append(" ".join(reported_flags(report)))
    return ", ".join(filter(None, words))


def outcome_of_joint(joint: Joint) -> str:
    """Return the outcome of a round of several models in a few words."""
    if joint.record.window is None:
        return "they were never in their steady phase at the same time"
    medians = (seconds(median(each) / 1e9) if each else "none" for each in joint.latency_ns)
    gross = joint.watts("gross")
    power = "" if gross is None else watts(gross.value)
    words = (f"p50 {' + '.join(medians)}", power, " ".join(joint.flags))
    return ", ".join(filter(None, words))


def _outcome_of_lock_in(result: LockInReport) -> str:
    """Return the mean energy in saturated operation in a few words, or the reason without one."""
    found = result.joules_per_piece
    if found is None:
        return "no energy: " + (result.reason or ", ".join(result.problems))
    half = "" if found.half is None else f" ± {joules(found.half)}"
    return f"{joules(found.value)}{half}, the mean energy in saturated operation"


# --- the benchmark --------------------------------------------------------------------------------


@dataclass
class Bench:
    """Runs models on accelerators, by the daemon's own workers and pairing.

    The telemetry of the workers' session has to be started before ``run``. ``begin_pass`` is called
    with the number of each pass before its first round, and ``add_work`` with a model and its timed
    layers, which it returns with the work of each. ``trips`` are the trip points of the board.
    """

    settings: BenchSettings
    workers: Workers
    display: Display
    begin_pass: Callable[[int], None] = lambda _number: None
    add_work: Callable[[str, LayerRows], LayerRows] = lambda _model, rows: rows
    trips: Trips = field(default_factory=dict)

    def __post_init__(self) -> None:
        may_stop = self.settings.until_ratio is not None
        self.plan = RoundPlan.of(self.settings.rounds, may_stop=may_stop)
        self.session = self.workers.session

    def run(self, model: str) -> ModelResult:
        """Look at a model on every accelerator, and measure it where it runs."""
        measured = look_at(model, self.settings, self.workers, self.display.say)
        workloads: dict[Accelerator, Workload] = {}
        for device in measured:
            workloads[device] = workload_of(self.settings, model, device)
        watch = Watch(self.settings.until_ratio or 0.0)
        if self.settings.sustain_seconds is None:
            rounds = self._measure(model, workloads, measured, watch)
        else:
            rounds = []
            for device in self._running(measured):
                is_first = not rounds
                rounds += self._sustain(workloads[device], measured[device], is_first=is_first)
        self._count(measured, rounds)
        for one in measured.values():
            if one.status == "cancelled" and one.rounds:
                # Its complete rounds count. ``is_partial`` says that some are missing.
                one.status, one.reason = "ok", None
        length = self.settings.lock_in_seconds
        if length:
            for device in self._running(measured):
                self._lock_in(measured[device], workloads[device], length)
        if self.settings.layers:
            for device in self._running(measured):
                self._time_layers(model, measured[device], workloads[device])
        result = self._summary(model, measured, rounds)
        if self.plan.looks:
            doubt, was_cancelled = self._doubt(measured), self.workers.was_cancelled
            looks = watch.record(doubt, was_cancelled=was_cancelled)
            result = result.model_copy(update={"looks": looks})
        return result

    def _count(self, measured: Mapping[Accelerator, Measured], rounds: Sequence[Round]) -> None:
        """Give each accelerator those of its complete rounds that count."""
        for device, one in measured.items():
            complete = []
            for each in rounds:
                if each.report.accelerator == device and each.report.outcome == "ok":
                    complete.append(each)
            one.rounds = complete[-self.plan.counted :]

    def _summary(
        self, model: str, measured: Mapping[Accelerator, Measured], rounds: Sequence[Round]
    ) -> ModelResult:
        """Return the result of the rounds so far."""
        reports = [one.report for one in rounds]
        return summarise(model, list(measured.values()), reports, self._doubt(measured))

    def _doubt(self, measured: Mapping[Accelerator, Measured]) -> float:
        """Return the chance of an error of each interval of the rounds that count."""
        rounds = max((len(one.rounds) for one in measured.values()), default=0)
        return self.plan.doubt_after(rounds)

    def _running(self, measured: Mapping[Accelerator, Measured]) -> Iterator[Accelerator]:
        """Yield the accelerators on which a model runs, until the benchmark is interrupted."""
        for device, one in measured.items():
            if one.status == "ok" and not self.workers.was_cancelled:
                yield device

    def _measure(
        self,
        model: str,
        workloads: Mapping[Accelerator, Workload],
        measured: Mapping[Accelerator, Measured],
        watch: Watch,
    ) -> list[Round]:
        """Measure in turns until it is enough or the plan is over; return all rounds."""
        left = [device for device, one in measured.items() if one.status == "ok"]
        rounds: list[Round] = []
        if not left:
            return rounds
        self.display.say(self._announced(len(left)))
        clock = self.session.clock
        began_ns = clock.monotonic_ns()
        number, is_enough = 0, False
        while left and self.plan.goes_on(number, is_enough):
            is_short = number < self.plan.short
            # All short passes sample as the first of the others does.
            self.begin_pass(max(0, number - self.plan.short))
            for device in in_turn(left, number):
                if self.workers.was_cancelled:
                    return rounds
                planned = self.plan.next_end(number)
                # Of those that are left now: one that failed takes its rounds with it.
                place = in_turn(left, number).index(device)
                to_come = self._seconds_of(range(number, planned), len(left))
                to_come -= place * self._seconds_of(range(number, number + 1), 1)
                self.display.begin(f"round {number + 1} of {planned} on {device}", to_come)
                workload = workloads[device]
                if is_short:
                    work = min(SHORT_SECONDS, self.settings.duration_seconds)
                    changes = {"duration": work, "baseline": 0.0}
                    workload = workload.model_copy(update=changes)
                rounds.append(self.measure_round(workload, measured[device], is_short=is_short))
                if measured[device].status != "ok":
                    left.remove(device)
            number += 1
            if not self.plan.looks:
                is_enough = self._agree(left, rounds)
            elif number > 1:
                self._count(measured, rounds)
                goals = self._asked_goals(self._summary(model, measured, rounds), rounds)
                after = (clock.monotonic_ns() - began_ns) / 1e9
                if number in self.plan.looks:
                    is_enough = watch.look(goals, after)
                self.display.say(self._so_far(goals, watch, number, len(left)))
        return rounds

    def _announced(self, devices: int) -> str:
        """Return how long the rounds on so many accelerators take, and how to change that."""
        if self.plan.looks:
            whole = duration(self._seconds_of(range(self.plan.most), devices))
            until = percent(self.settings.until_ratio or 0.0)
            return (
                f"up to {whole} of rounds, less if the best is known or the interval is ± {until};"
                " --until, --rounds, --duration and --baseline change that"
            )
        least = self._seconds_of(range(self.plan.least), devices)
        return (
            f"{duration(least)} of rounds, up to {duration(PATIENCE * least)} until they agree;"
            " --rounds, --duration and --baseline change that"
        )

    def _seconds_of(self, passes: range, devices: int) -> float:
        """Return how long passes of rounds on so many accelerators take."""
        total = 0.0
        for number in passes:
            total += self.settings.warm_up_seconds
            if number < self.plan.short:
                total += SHORT_SECONDS
            else:
                total += round_seconds(self.settings, ())
        return total * devices

    def _asked_goals(self, result: ModelResult, rounds: Sequence[Round]) -> list[GoalResult]:
        """Return latency, and energy if there is telemetry to tell it."""
        asked = {"latency"}
        has_samples = any(one.report.telemetry is not None for one in rounds)
        if has_samples and self.settings.baseline_seconds > 0:
            asked.add("energy")
        return [goal for goal in result.goals if goal.goal in asked]

    def _so_far(self, goals: Sequence[GoalResult], watch: Watch, number: int, devices: int) -> str:
        """Return what is known after a pass, and how long the rest takes."""
        words = []
        for goal in goals:
            state = state_of(goal)
            after = watch.answered_seconds.get(goal.goal)
            if after is not None:
                state = f"{goal.goal} decided after {duration(after)}"
            elif goal.precision_ratio is None and number > self.plan.short:
                state += f" (a slow sensor needs --baseline {BASELINE_SECONDS:g})"
            elif not is_answered(goal, watch.until_ratio):
                state += self._more_for(goal, watch.until_ratio, number, devices)
            words.append(state)
        return "  " + "; ".join(words)

    def _more_for(self, goal: GoalResult, until: float, number: int, devices: int) -> str:
        """Return how long the interval of a goal takes to be narrow enough.

        Rounds narrow it by the square root of their number.
        """
        if goal.precision_ratio is None or not until:
            return ""
        rounds = number if goal.goal == "latency" else number - self.plan.short
        more = rounds * ((goal.precision_ratio / until) ** 2 - 1)
        for look in self.plan.looks:
            if look >= number + more:
                left = duration(self._seconds_of(range(number, look), devices))
                return f", {left} more for ± {percent(until)}"
        left = duration(self._seconds_of(range(number, self.plan.most), devices))
        return f", at most {left} more"

    def _agree(self, devices: Sequence[Accelerator], rounds: Sequence[Round]) -> bool:
        """Return whether the rounds of every accelerator agree."""
        for device in devices:
            reports = [one.report for one in rounds if one.report.accelerator == device]
            if not agree(reports):
                return False
        return True

    def measure_round(self, workload: Workload, one: Measured, *, is_short: bool = False) -> Round:
        """Measure one round; an accelerator that fails gets no other."""
        # The way from a line of telemetry to a figure of the result, by the calls in order:
        # 1. LineCollector.collect gives each line its time and parses it to a sample.
        # 2. TelemetryFeed.take appends it to the Timeline, all through the run.
        # 3. Workers.run sends the order; RunTrace.add takes what the worker says of phases and
        #    inferences.
        # 4. Session.await_telemetry waits for the last sample of the run.
        # 5. Session.pair cuts the run's samples out of the Timeline.
        # 6. correlate finds the flags, and measure_energy the joules: the report of the run.
        # 7. power_of keeps the readings of the same window, for the comparison of all rounds.
        # 8. summarise makes means of the rounds (energy_of, mean_energy).
        # 9. decide compares accelerators, energies by difference_of_rounds.
        done = self.workers.run(workload, workload.accelerator, workload.timeout_seconds)
        report, trace = done.report, done.trace
        if done.status != "ok":
            one.status, one.reason, one.log = done.status, report.reason, report.worker_log
        window = report.phases.get("steady")
        latencies = array("q")
        if window is not None:
            latencies = trace.completed(window)[1]
        self.display.end(outcome_of(report, latencies, is_short=is_short))
        if window is None:
            return Round(report, is_short=is_short)
        session = self.session
        whole = whole_span(report.phases.values())
        cut = session.timeline.cut(whole.begin_ns, whole.end_ns)
        clocks = clock_ranges(cut, window)
        power = power_of(cut, report, session.energy.rule, session.environment)
        device_ns, stages_ns = trace.device_ns(), trace.stages_ns
        return Round(report, latencies, device_ns, stages_ns, clocks, power, is_short)

    def _sustain(self, workload: Workload, one: Measured, *, is_first: bool) -> list[Round]:
        """Let an accelerator work without a pause; return the parts of that run as rounds."""
        length, display = self.settings.duration_seconds, self.display
        run = LongRun(
            self.session,
            length,
            batch=self.settings.batch,
            trips=self.trips,
            hear=display.heard,
            say=display.say,
            from_rest=is_first,
        )
        display.begin(f"{duration(length)} on {workload.accelerator}", length)
        self.workers.heard = run.heard
        done = self.workers.run(workload, workload.accelerator, workload.timeout_seconds)
        self.workers.heard = display.heard
        if done.status != "ok":
            one.status, one.reason, one.log = (
                done.status,
                done.report.reason,
                done.report.worker_log,
            )
        parts = run.parts(done)
        one.sustained = run.result(parts)
        words = one.reason or "it has no times of inferences"
        display.end(words if one.sustained is None else one.sustained.sentence)
        return parts

    def _lock_in(self, one: Measured, workload: Workload, length: float) -> None:
        """Measure the energy of an inference, and of each of its stages if that was asked for."""
        one.lock_in = self._in_steps(workload, length)
        if not self.settings.lock_in_stages or one.lock_in.joules_per_piece is None:
            return
        stages = one.rounds[-1].stages_ns if one.rounds else {}
        if not stages or not find_backend(workload.backend_in_force).repeats_stages:
            name = workload.backend_in_force
            self.display.say(f"  {name} cannot repeat a stage of an inference alone")
            return
        for stage, times_ns in stages.items():
            # Nothing waits between repetitions, or the host's waiting would be most of a short one.
            repeats = max(1, ceil(STAGE_SECONDS * 1e9 / max(median(times_ns), 1)))
            one.lock_in_stages[stage] = self._in_steps(workload, length, stage, min(repeats, 1000))

    def _time_layers(self, model: str, one: Measured, workload: Workload) -> None:
        """Time each layer in a pass of its own; no other figure is taken from it."""
        device, name = workload.accelerator, workload.backend_in_force
        if not find_backend(name).times_layers:
            self.display.say(f"  {name} cannot time a layer, so {device} has no table of layers")
            return
        self.display.say(f"{model} on {device}: once more, to time each layer")
        with tempfile.TemporaryDirectory(prefix="tegrascope-bench-") as directory:
            path = Path(directory) / "layers.json"
            once = shortened(workload, warm_up=workload.warm_up)
            done = self.workers.run(once, device, workload.timeout_seconds, profile=path)
            if done.status != "ok" or not exists(path):
                self.display.say(f"  no table of layers: {done.report.reason}")
                return
            profile = LayerProfile.model_validate_json(path.read_bytes())
        built = done.report.built or one.look.built
        rows = time_rows(profile, None if built is None else built.placement)
        try:
            rows = self.add_work(model, rows)
        except UserError as problem:
            self.display.say(f"  the work of its layers is unknown: {problem}")
        one.layers = rows
        one.profiled_seconds = profile.total_ns / 1e9
        one.profiled_inferences = profile.inferences

    def _in_steps(
        self, workload: Workload, length: float, stage: StageName | None = None, repeats: int = 1
    ) -> LockInReport:
        """Work in the on-steps of a random pattern, and compare them with its off-steps."""
        self.display.begin(f"lock-in of {stage or 'inference'} on {workload.accelerator}", length)
        try:
            plan = self.session.plan_lock_in(length)._replace(stage=stage, repeats=repeats)
        except UserError as problem:
            found = LockInReport(seconds=length, reason=str(problem))
        else:
            planned = {"baseline": 0.0, "count": None, "duration": sum(plan.steps_seconds)}
            alone = workload.model_copy(update=planned)
            done = self.workers.run(alone, alone.accelerator, alone.timeout_seconds, pattern=plan)
            found = LockInReport(seconds=length, seed=plan.seed, reason=done.report.reason)
            if done.status == "ok" and done.report.lock_in is not None:
                found = done.report.lock_in
        self.display.end(_outcome_of_lock_in(found))
        return found

    def run_together(self, models: Sequence[ModelResult]) -> Contention:
        """Measure models where they ran alone once more: in mirrored order, in every placement.

        A worker stays when its model is off, with the model loaded. To be switched on together,
        all models are loaded and warmed up first, one after the other. Then each is ordered at the
        same moment to idle, to infer, and to idle again. The time in which all of them inferred
        counts.
        """
        # The workers hold memory, and each model gets one of its own.
        self.workers.close()
        runs_on: dict[str, list[Accelerator]] = {}
        for model in models:
            devices = [each.device for each in model.accelerators if each.status == "ok"]
            if devices:
                runs_on[model.model] = devices
        groups = groups_on(runs_on)
        turns = self.plan.least
        to_come = [round_seconds(self.settings, on) for on in groups] * turns
        planned = sum(to_come)
        not_run: dict[On, NotRun] = {}
        rounds: list[Joint] = []
        for turn in range(turns):
            self.begin_pass(turn)
            for on in in_turn(groups, turn):
                if self.workers.was_cancelled:
                    break
                failed = _failed_part(on, not_run)
                if failed is None:
                    names = [workload_name(placed.model, placed.device) for placed in on]
                    title = f"turn {turn + 1} of {turns}: {' + '.join(names)}"
                    self.display.begin(title, sum(to_come))
                    joint, failed = self._run_joint(turn, on)
                    if joint is not None:
                        self.display.end(outcome_of_joint(joint))
                        rounds.append(joint)
                if failed is not None:
                    not_run.setdefault(on, failed)
                to_come.pop()
        return summarise_contention(groups, rounds, not_run, turns, planned)

    def _run_joint(self, turn: int, on: On) -> tuple[Joint | None, NotRun | None]:
        """Return a round of models that run at once, or why there is none."""
        runs = []
        for placed in on:
            workload = workload_of(self.settings, placed.model, placed.device)
            runs.append((workload, f"model{self.settings.models.index(placed.model)}"))
        done, failed = self._run_group(runs)
        if not done:
            return None, failed
        ended, session = [(one.report, one.trace) for one in done], self.session
        cut_of, rule = session.timeline.cut, session.energy.rule
        return join_runs(turn, on, ended, cut_of, rule, session.environment), failed

    def _run_group(
        self, runs: Sequence[tuple[Workload, str]]
    ) -> tuple[list[FinishedRun], NotRun | None]:
        """Return the runs of one round, none if it was cancelled, and why a model failed."""
        for workload, worker in runs:
            # Loads a model and warms it up; nothing of it counts.
            ready = self.workers.run(
                shortened(workload, warm_up=workload.warm_up), worker, LOOK_SECONDS
            )
            if ready.status != "ok":
                return [], self._failure([ready])
        warm = [(work.model_copy(update={"warm_up": 0.0}), worker) for work, worker in runs]
        done = self.workers.run_together(warm, max(work.timeout_seconds for work, _ in runs))
        if any(one.status != "ok" for one in done):
            return [], self._failure(done)
        return done, None

    def _failure(self, done: Sequence[FinishedRun]) -> NotRun | None:
        """Print why runs did not end well; return the last reason that is not an interruption."""
        failed = None
        for one in done:
            if one.status == "ok":
                continue
            words = f"{one.report.workload}: {one.report.reason}"
            self.display.say(f"  {words}")
            if one.status != "cancelled":
                failed = NotRun(one.status, words)
        return failed


def _failed_part(on: On, not_run: Mapping[On, NotRun]) -> NotRun | None:
    """Return why models failed, alone or in a smaller group: such a group is left out."""
    for size in range(1, len(on) + 1):
        for part in combinations(on, size):
            if part in not_run:
                return not_run[part]
    return None

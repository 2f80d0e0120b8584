"""The benchmark of many settings of a model: looks, rounds in turns, and who is dropped early."""

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean
from typing import get_args

from ...daemon.measure.figures import difference
from ...daemon.measure.report import Accelerator, Figure, RunReport
from ...daemon.settings.config import Workload
from ...parsers.errors import UserError
from ...parsers.inference.placement import Memory
from ..results.front import Drop, Race, Reading, goals_of, reading_of, tied
from ..results.records import (
    AcceleratorResult,
    BenchSettings,
    ModelResult,
    PointOutcome,
    Status,
    SweepAxis,
    SweepPoint,
    Variant,
    variant_of,
)
from ..results.summary import Measured, Round, median_half_width, summarise_accelerator
from .run import OVERHEAD_SECONDS, Bench, in_turn, round_seconds
from .settings import accelerators_of, workload_name, workload_of
from .workers import LAST_RESORT, Reference, look_on, make_reference

# A look is so many times shorter than a round; each candidate gets two at most. Its idle phases are
# not shorter than this, or idle power would not be known.
LOOK_SHARE = 4
LEAST_IDLE_SECONDS = 1.0


# The values of each axis; None is any word.
_AXES: dict[SweepAxis, tuple[range | tuple[str, ...] | None, str]] = {
    "batch": (range(1, 65_537), "numbers from 1 to 65536"),
    "streams": (range(1, 1025), "numbers from 1 to 1024"),
    "precision": (("fp32", "fp16", "int8"), "fp32, fp16 or int8"),
    "memory": (get_args(Memory), "copy, mapped, managed or managed-anyway"),
    "power-mode": (None, "names or numbers of nvpmodel's modes"),
}


def axis(text: str) -> tuple[SweepAxis, tuple[int | str, ...]]:
    """Read an axis of a sweep as argparse does, for example ``batch=1,2,4``.

    >>> axis("batch=1,4,4")
    ('batch', (1, 4))
    """
    given, _, values = text.partition("=")
    name = next((one for one in _AXES if one == given), None)
    if name is None:
        raise argparse.ArgumentTypeError(
            f"{given!r} is not an axis of a sweep; use {', '.join(_AXES)}, as in batch=1,2,4"
        )
    known, kind = _AXES[name]
    found: list[int | str] = []
    for value in values.split(","):
        word = value.strip()
        is_number = isinstance(known, range) and word.isascii() and word.isdecimal()
        found.append(int(word) if is_number else word)
        if not word or (known is not None and found[-1] not in known):
            problem = f"{name}: {value!r} is not a value; use {kind}, as in {name}=A,B"
            raise argparse.ArgumentTypeError(problem)
    return name, tuple(dict.fromkeys(found))


@dataclass
class Candidate:
    """One point of the sweep and what was measured of it; ``looks`` are short rounds."""

    variant: Variant
    settings: BenchSettings
    workload: Workload
    title: str
    status: Status = "cancelled"
    reason: str | None = None
    measured: Measured | None = None
    looks: list[Round] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    drop: Drop | None = None

    @property
    def device(self) -> Accelerator:
        """Its accelerator."""
        return self.workload.accelerator

    @property
    def is_wrong(self) -> bool:
        """Whether its outputs are wrong, so that its figures mean nothing."""
        outputs = None if self.measured is None else self.measured.outputs
        return outputs is not None and outputs.verdict == "wrong"

    def fail(self, status: Status, reason: str | None) -> None:
        """Note why it is not measured, or no further."""
        self.status, self.reason = status, reason

    def result(self) -> AcceleratorResult:
        """Return its figures, of looks if it had no round."""
        if self.measured is None:
            backend = self.workload.backend_in_force
            plain = {"device": self.device, "backend": backend}
            return AcceleratorResult(**plain, status=self.status, reason=self.reason)
        self.measured.status, self.measured.reason = self.status, self.reason
        ended_well = [one for one in self.rounds if one.report.outcome == "ok"]
        if self.status == "cancelled" and ended_well:
            self.measured.status, self.measured.reason = "ok", None
        self.measured.rounds = ended_well or self.looks
        return summarise_accelerator(self.measured)


def candidates_of(
    settings: BenchSettings, model: str, devices: Sequence[Accelerator]
) -> list[Candidate]:
    """Return every combination of the axes on every accelerator, those of one mode in a row."""
    axes = settings.sweep
    found: list[Candidate] = []
    for mode, device, precision, memory, batch, streams in product(
        axes.get("power-mode", (settings.power_mode,)),
        devices,
        axes.get("precision", (settings.precision,)),
        axes.get("memory", (settings.memory,)),
        axes.get("batch", (settings.batch,)),
        axes.get("streams", (settings.streams,)),
    ):
        variant = Variant.model_validate(
            {
                "batch": batch,
                "streams": streams,
                "precision": precision,
                "memory": memory,
                "power_mode": mode,
            }
        )
        mine = variant.settings(settings)
        name = f"{workload_name(model, device)}-{len(found)}"
        workload = workload_of(mine, model, device).model_copy(update={"name": name})
        if workload.memory != memory:
            continue  # Its back-end has buffers of its own, so this would be no other point.
        title = f"{device} {variant_of(mine)}".strip()
        found.append(Candidate(variant, mine, workload, title))
    return found


def look_phases(duration: float, baseline: float) -> tuple[float, float]:
    """Return the seconds of work and of each idle phase of a look, from those of a round."""
    idle = max(baseline / LOOK_SHARE, min(baseline, LEAST_IDLE_SECONDS))
    return duration / LOOK_SHARE, idle


def seconds_of(settings: BenchSettings, overhead: float = OVERHEAD_SECONDS) -> tuple[float, float]:
    """Return how long a look and a round of a candidate take, with so many seconds around them."""
    work, idle = look_phases(settings.duration_seconds, settings.baseline_seconds)
    around = settings.warm_up_seconds + overhead
    return work + 2 * idle + around, round_seconds(settings, ()) + around


@dataclass
class SweepRun:
    """A sweep of one model. ``set_mode`` sets a power mode, or raises ``UserError``."""

    bench: Bench
    model: str
    set_mode: Callable[[str], object]

    def __post_init__(self) -> None:
        self._mode: str | None = None
        self._refused: dict[str, str] = {}
        self._reports: list[RunReport] = []
        self._spent = 0.0
        self._overheads: list[float] = []

    def run(self) -> ModelResult:
        """Look at every candidate, race them, and return the front."""
        every = self._looked_at()
        race = self._start(every)
        running = len(race.left)
        self._race(race, every)
        points = self._points(every, race)
        counted, digest = [], None
        for candidate in every:
            if candidate.measured is not None:
                digest = digest or candidate.measured.look.model_sha256
            for one in candidate.rounds:
                if one.report.outcome == "ok":
                    counted.append(one.report.run_id)
        return ModelResult.model_validate(
            {
                "model": self.model,
                "model_sha256": digest,
                "order": [report.accelerator for report in self._reports],
                "counted": counted,
                "rounds": self._reports,
                "sweep": {
                    "goals": race.goals,
                    "points": points,
                    "front": [n for n, point in enumerate(points) if point.outcome == "front"],
                    "best": _best(race),
                    "seconds": self._spent,
                    "exhaustive_seconds": running * self.bench.plan.least * self._seconds()[1],
                },
            }
        )

    def _looked_at(self) -> list[Candidate]:
        """Return all candidates after their first look; those of the CPU where nothing else is."""
        settings = self.bench.settings
        every = candidates_of(settings, self.model, accelerators_of(settings))
        with ExitStack() as scratch:
            references: dict[int, Reference | None] = {}
            self._look_at_all(every, references, scratch)
            is_nothing = all(candidate.status == "unavailable" for candidate in every)
            if settings.devices is None and is_nothing:
                last = candidates_of(settings, self.model, accelerators_of(settings, LAST_RESORT))
                self._look_at_all(last, references, scratch)
                every += last
        return every

    def _start(self, every: Sequence[Candidate]) -> Race:
        """Return the race of all candidates that run, with their first looks."""
        readings = []
        has_energy = False
        for candidate in every:
            looks = [self._reading(look) for look in candidate.looks]
            has_energy = has_energy or any("energy" in look for look in looks)
            readings.append(looks)
        limit = self.bench.settings.latency_below_seconds
        race = Race(len(every), goals_of(limit, has_energy=has_energy), limit)
        for number, candidate in enumerate(every):
            for look in readings[number]:
                race.add(number, look, is_look=True)
            if candidate.status != "ok" or candidate.is_wrong:
                race.remove(number)
        return race

    def _look_at_all(
        self,
        every: Sequence[Candidate],
        references: dict[int, Reference | None],
        scratch: ExitStack,
    ) -> None:
        """Run each candidate once, check its outputs, and measure its first short look."""
        bench, missing = self.bench, dict[Accelerator, str | None]()
        workers, say = bench.workers, bench.display.say
        bench.begin_pass(0)
        for one in every:
            if workers.was_cancelled:
                return
            if one.device in missing:
                one.fail("unavailable", missing[one.device])
                continue
            if not self._enter_mode(one):
                continue
            batch = one.workload.batch
            if batch not in references:
                made = make_reference(self.model, one.settings, workers, say)
                references[batch] = scratch.enter_context(made)
            title = f"{self.model} on {one.title}"
            one.measured = look_on(
                one.workload, references[batch], one.settings, workers, say, title
            )
            one.fail(one.measured.status, one.measured.reason)
            if one.status == "unavailable":
                missing[one.device] = one.reason
            if one.is_wrong:
                say(f"{title}: its outputs are wrong, so it is not measured")
            elif one.status == "ok":
                self._measure(one, is_look=True)

    def _race(self, race: Race, every: Sequence[Candidate]) -> None:
        """Measure who is left in turns, and drop who is surely out after each pass."""
        self._close(race, every, 0)
        for number in range(-1, self.bench.plan.least):
            self.bench.begin_pass(max(number, 0))
            order = in_turn(race.running, number)
            for place, candidate in enumerate(order):
                if self.bench.workers.was_cancelled:
                    return
                self._begin(number, every[candidate], place, len(order))
                if self._enter_mode(every[candidate]):
                    is_look = number < 0
                    measured = self._measure(every[candidate], is_look=is_look)
                    race.add(candidate, self._reading(measured), is_look=is_look)
                if every[candidate].status != "ok":
                    race.remove(candidate)
            self._close(race, every, number + 1)

    def _begin(self, number: int, candidate: Candidate, place: int, count: int) -> None:
        """Show which round begins, and how long all takes if no other point is dropped.

        Pass -1 is the second look.
        """
        look_seconds, whole_seconds = self._seconds()
        passes = self.bench.plan.least
        if number < 0:
            kind, each, passes_left = "look 2 of 2", look_seconds, passes
        else:
            kind = f"round {number + 1} of {passes}"
            each, passes_left = whole_seconds, passes - number - 1
        to_come = (count - place) * each + passes_left * count * each
        self.bench.display.begin(f"{kind}: {candidate.title}", to_come)

    def _close(self, race: Race, every: Sequence[Candidate], rounds: int) -> None:
        """Drop who is surely out after so many rounds, and say why."""
        say = self.bench.display.say
        before = set(race.settled)
        after = "a look"
        if rounds:
            after = f"{rounds} round{'s' if rounds > 1 else ''}"
        for drop in race.close():
            candidate = every[drop.candidate]
            candidate.drop = drop
            words = "its 99th percentile is above the limit"
            if drop.by is not None:
                words = f"{every[drop.by].title} is surely better"
            say(f"  {candidate.title} is out after {after}: {words}")
        if rounds < self.bench.plan.least:
            for settled in sorted(race.settled - before):
                say(f"  {every[settled].title} is surely on the front: it is complete")

    def _measure(self, one: Candidate, *, is_look: bool) -> Round:
        workload = one.workload
        phases = (self.bench.settings.duration_seconds, self.bench.settings.baseline_seconds)
        if is_look:
            phases = look_phases(*phases)
            shorter = {"duration": phases[0], "baseline": phases[1]}
            workload = workload.model_copy(update=shorter)
        assert one.measured is not None
        made = self.bench.measure_round(workload, one.measured)
        one.fail(one.measured.status, one.measured.reason)
        (one.looks if is_look else one.rounds).append(made)
        self._reports.append(made.report)
        seconds = (made.report.ended_ns - made.report.started_ns) / 1e9
        self._spent += seconds
        if made.report.outcome == "ok":
            around = phases[0] + 2 * phases[1] + self.bench.settings.warm_up_seconds
            self._overheads.append(max(0.0, seconds - around))
        return made

    def _seconds(self) -> tuple[float, float]:
        """Return how long a look and a round take, by the overhead of those so far."""
        return seconds_of(
            self.bench.settings, fmean(self._overheads) if self._overheads else OVERHEAD_SECONDS
        )

    def _enter_mode(self, one: Candidate) -> bool:
        mode = one.variant.power_mode
        if mode is None or mode == self._mode:
            return True
        if mode not in self._refused:
            try:
                self.set_mode(mode)
            except UserError as problem:
                self._refused[mode] = str(problem)
                self.bench.display.say(f"  {problem}")
            else:
                self._mode = mode
                return True
        one.fail("unavailable", self._refused[mode])
        return False

    def _reading(self, one: Round) -> Reading:
        return reading_of(one.report, median_half_width(one.latency_ns))

    def _points(self, every: Sequence[Candidate], race: Race) -> list[SweepPoint]:
        """Return all candidates with their outcomes; GPU freed is against the same on the GPU."""
        results = [candidate.result() for candidate in every]
        on_gpu: dict[Variant, Figure | None] = {}
        for candidate, result in zip(every, results, strict=True):
            if candidate.device == "gpu" and result.may_win:
                on_gpu[candidate.variant] = result.utilization.get("gpu")
        points = []
        for number, (candidate, result) in enumerate(zip(every, results, strict=True)):
            if candidate.device != "gpu":
                same = on_gpu.get(candidate.variant)
                freed = difference(same, result.utilization.get("gpu"))
                result = result.model_copy(update={"gpu_freed": freed})
            outcome: PointOutcome = "not_measured"
            dropped_after, dominated_by = None, None
            if candidate.drop is not None:
                dominated_by = candidate.drop.by
                dropped_after = len(candidate.rounds)
                outcome = "above_limit" if dominated_by is None else "dominated"
            elif number in race.left and result.may_win:
                outcome = "front"
            points.append(
                SweepPoint(
                    variant=candidate.variant,
                    result=result,
                    outcome=outcome,
                    dropped_after=dropped_after,
                    dominated_by=dominated_by,
                )
            )
        return points


def _best(race: Race) -> dict[str, list[int]]:
    """Return the best candidates below the limit of latency, if there is one, by goal."""
    if race.latency_below is None:
        return {}
    estimates = race.estimates()
    below = [candidate for candidate in race.left if race.meets(estimates[candidate])]
    best = {}
    for goal in ("throughput", "energy"):
        places = tied(estimates, below, goal)
        if places:
            best[goal] = places
    return best

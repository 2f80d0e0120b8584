"""Placements of models on accelerators as numbers: demands, cost, and the search for the best.

The rules are those of docs/advise.md. They decide latency, duty and power from figures of models
alone, and from effects that were measured for exactly these models or for pairs of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations, product
from math import hypot, inf, prod
from typing import TypeAlias

from ..measure.run_report import Device
from ..results.records import Figure
from .records import Objective

MOST_MODELS = 10
# A float just within a limit is not excluded for its last digit.
_ROUNDING = 1 + 1e-9
# A model and one of its options, both by number.
Cell: TypeAlias = tuple[int, int]
# An option of each model, by number.
Choice: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Option:
    """One way to run a model, with figures of the model alone.

    All are per input; ``latency_seconds`` is the 99th percentile.
    """

    device: Device
    busy_seconds: float
    latency_seconds: float
    joules: Figure | None = None
    gpu_seconds: Figure | None = None


@dataclass(frozen=True)
class RatedModel:
    """A model that is to run at a rate, in inputs per second, with at least one option."""

    name: str
    rate: float
    deadline_seconds: float
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Effect:
    """The measured influence of models on each other, without pauses.

    By model: 99th percentile and throughput over those alone. ``watts`` is net power beyond that of
    the same work alone, and of three models beyond their pairs.
    """

    tail: Mapping[int, float]
    speed: Mapping[int, float]
    watts: Figure | None = None


@dataclass(frozen=True)
class Term:
    """A part of an objective: a coefficient times a measured figure."""

    coefficient: float
    figure: Figure


@dataclass(frozen=True)
class Evaluation:
    """The demands and the cost of a placement; latency and duty are without margin.

    Attributes:
        worst: Largest of latency over deadline and of duty, with margin; feasible up to 1.
        terms: The parts of the objective, by cell or cells.
        value: Their sum, in watts or as a share of the GPU.
    """

    placement: Choice
    latency_seconds: tuple[float, ...]
    duty: Mapping[Device, float]
    worst: float
    terms: Mapping[object, Term]
    value: float

    @property
    def half(self) -> float | None:
        """Half the 95 % interval of the value; ``None`` if a part has none."""
        return _half_of([(term.coefficient, term.figure) for term in self.terms.values()])


def gap(better: Evaluation, worse: Evaluation) -> tuple[float, float | None]:
    """Return by how much two placements differ, and half the 95 % interval of that.

    The error of a figure that is in both cancels.
    """
    nothing = Term(0.0, Figure(value=0.0))
    parts = []
    for key, term in {**worse.terms, **better.terms}.items():
        one, other = better.terms.get(key, nothing), worse.terms.get(key, nothing)
        parts.append((other.coefficient - one.coefficient, term.figure))
    return worse.value - better.value, _half_of(parts)


def is_tie(better: Evaluation, worse: Evaluation) -> bool:
    """Return whether the 95 % interval of a difference includes 0, or is not known."""
    difference, half = gap(better, worse)
    return half is None or difference <= half


def _half_of(parts: Sequence[tuple[float, Figure]]) -> float | None:
    halves: list[float] = []
    for coefficient, figure in parts:
        if coefficient == 0:
            continue
        if figure.half is None:
            return None
        halves.append(coefficient * figure.half)
    return hypot(*halves)


@dataclass(frozen=True)
class Problem:
    """Models, their measured influence on each other, and the objective.

    Without ``takes_turns``, models on one accelerator that were not measured together are taken as
    independent; otherwise they wait for each other.
    """

    models: tuple[RatedModel, ...]
    objective: Objective = "energy"
    margin: float = 0.1
    effects: Mapping[frozenset[Cell], Effect] = field(default_factory=dict)
    takes_turns: bool = True

    def option(self, cell: Cell) -> Option:
        """Return the option of a cell."""
        return self.models[cell[0]].options[cell[1]]

    def cost(self, cell: Cell) -> Term:
        """Return the cost of a cell alone, or raise ``ValueError`` if it is not known."""
        option, model = self.option(cell), self.models[cell[0]]
        figure = option.joules if self.objective == "energy" else option.gpu_seconds
        if figure is None:
            raise ValueError(f"the cost of {model.name} is not known")
        return Term(model.rate, figure)

    def evaluate(self, placement: Choice) -> Evaluation:
        """Return the demands and the cost of a placement."""
        cells = tuple(enumerate(placement))
        latency, duty, terms = self._latencies(cells), self._duty(cells), self._terms(cells)
        return Evaluation(
            placement=placement,
            latency_seconds=latency,
            duty=duty,
            worst=self._worst(latency, duty),
            terms=terms,
            value=sum(term.coefficient * term.figure.value for term in terms.values()),
        )

    def worst_of(self, begun: Choice) -> float:
        """Return the least that ``worst`` can be for placements of all models that begin so.

        No model makes another faster. Two or three models that were measured together may do
        better than some of them, so for them only whole placements count.
        """
        if len(self.models) <= 3 and len(begun) < len(self.models):
            return 0.0
        cells = tuple(enumerate(begun))
        return self._worst(self._latencies(cells), self._duty(cells))

    def _worst(self, latency: Sequence[float], duty: Mapping[Device, float]) -> float:
        pairs = zip(latency, self.models, strict=False)
        ratios = [seconds / model.deadline_seconds for seconds, model in pairs]
        return (1 + self.margin) * max([0.0, *ratios, *duty.values()])

    def share(self, cell: Cell) -> float:
        """Return the share of time that a cell needs alone."""
        return self.models[cell[0]].rate * self.option(cell).busy_seconds

    def slower(self, cell: Cell, other: Cell) -> float:
        """Return by how much an input of one cell takes longer next to another; 0 is not at all."""
        pair = self.pairs.get(cell, {}).get(other)
        return 0.0 if pair is None else 1 / min(1.0, pair.speed[cell[0]]) - 1

    @cached_property
    def pairs(self) -> dict[Cell, dict[Cell, Effect]]:
        """Effects of two cells, by the one and the other."""
        found: dict[Cell, dict[Cell, Effect]] = {}
        for cells, effect in self.effects.items():
            if len(cells) == 2:
                one, other = cells
                found.setdefault(one, {})[other] = effect
                found.setdefault(other, {})[one] = effect
        return found

    @cached_property
    def powers(self) -> tuple[tuple[tuple[Cell, ...], Figure], ...]:
        """Cells that draw more or less together than alone, and how much while all are at work."""
        if self.objective != "energy":
            return ()
        return tuple(
            (tuple(sorted(cells)), effect.watts)
            for cells, effect in self.effects.items()
            if effect.watts is not None
        )

    def _whole(self, cells: Sequence[Cell]) -> Effect | None:
        """Return the effect of exactly these cells, if they are all and more than one."""
        is_all = 1 < len(cells) == len(self.models)
        return self.effects.get(frozenset(cells)) if is_all else None

    def _latencies(self, cells: Sequence[Cell]) -> tuple[float, ...]:
        whole = self._whole(cells)
        if whole is None:
            return tuple(self._latency(cell, cells) for cell in cells)
        return tuple(
            self.option(cell).latency_seconds * max(1.0, whole.tail[cell[0]]) for cell in cells
        )

    def _latency(self, cell: Cell, cells: Sequence[Cell]) -> float:
        option, pairs = self.option(cell), self.pairs.get(cell, {})
        factor, waiting = 1.0, 0.0
        for other in cells:
            if other == cell:
                continue
            if other in pairs:
                factor *= max(1.0, pairs[other].tail[cell[0]])
            elif self.takes_turns and self.option(other).device == option.device:
                waiting += self.option(other).latency_seconds
        return option.latency_seconds * factor + waiting

    def _duty(self, cells: Sequence[Cell]) -> dict[Device, float]:
        used: dict[Device, list[Cell]] = {}
        left_to_gpu = 0.0
        for cell in cells:
            option = self.option(cell)
            used.setdefault(option.device, []).append(cell)
            if option.device != "gpu" and option.gpu_seconds is not None:
                left_to_gpu += self.models[cell[0]].rate * option.gpu_seconds.value
        whole = self._whole(cells)
        duty: dict[Device, float] = {}
        for device, mine in used.items():
            if whole is not None:
                done = sum(whole.speed[cell[0]] for cell in mine)
                needed = [self.share(cell) for cell in mine]
            else:
                done = self._done_together(mine)
                needed = [self.share(cell) / self._speed(cell, cells) for cell in mine]
            # However well they share an accelerator, none of them needs less than alone.
            duty[device] = max(sum(needed) / done, *needed)
        if left_to_gpu:
            duty["gpu"] = duty.get("gpu", 0.0) + left_to_gpu
        return duty

    def _speed(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return a model's throughput next to those on other accelerators, over that alone."""
        pairs, device = self.pairs.get(cell), self.option(cell).device
        if pairs is None:
            return 1.0
        return prod(
            min(1.0, pairs[other].speed[cell[0]])
            for other in cells
            if other in pairs and self.option(other).device != device
        )

    def _done_together(self, cells: Sequence[Cell]) -> float:
        """Return the work of models on one accelerator at once, over one after the other."""
        if len(cells) == 1:
            return 1.0
        pairs = [self.pairs.get(one, {}).get(other) for one, other in combinations(cells, 2)]
        return min(1.0 if pair is None else sum(pair.speed.values()) for pair in pairs)

    def _terms(self, cells: Sequence[Cell]) -> dict[object, Term]:
        terms: dict[object, Term] = {cell: self.cost(cell) for cell in cells}
        if self.powers:
            at_work = {cell: self._at_work(cell, cells) for cell in cells}
            for some, watts in self.powers:
                if all(cell in at_work for cell in some):
                    terms[some] = Term(prod(at_work[cell] for cell in some), watts)
        return terms

    def _at_work(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return the share of time in which a model is at work: longer if others slow it."""
        longer = 1.0 + sum(
            self.slower(cell, other) * min(1.0, self.share(other))
            for other in cells
            if other != cell
        )
        return min(1.0, self.share(cell) * longer)


# --- search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Feasible placements, the best first: all that tie with it, and the next one.

    ``evaluated`` of all placements were evaluated; the others are proven worse or infeasible.
    """

    ranked: tuple[Evaluation, ...]
    placements: int
    evaluated: int

    @property
    def best(self) -> Evaluation | None:
        """The best; ``None`` if none is feasible."""
        return self.ranked[0] if self.ranked else None

    @property
    def ties(self) -> tuple[Evaluation, ...]:
        """Those that cannot be told from the best."""
        return tuple(one for one in self.ranked[1:] if is_tie(self.ranked[0], one))


def search(problem: Problem) -> Found:
    """Return the best placements, with proof.

    All placements are sorted by the least that they can cost, and evaluated in that order, unless
    their first models exceed a limit already. The search ends where the least cost exceeds that of
    a placement which is worse than the best by more than any interval is wide.
    """
    rows = [
        [problem.cost((number, option)) for option in range(len(model.options))]
        for number, model in enumerate(problem.models)
    ]
    costs = [[term.coefficient * term.figure.value for term in row] for row in rows]
    bounds = sorted(
        (sum(map(list.__getitem__, costs, placement)), placement)
        for placement in product(*(range(len(row)) for row in rows))
    )
    powers = [
        (prod(_most_at_work(problem, cell) for cell in cells), watts)
        for cells, watts in problem.powers
    ]
    # Some cost less together than alone: a placement may cost so much less than its models.
    saved = sum(share * min(0.0, watts.value) for share, watts in powers)
    halves = [max(term.coefficient * _half(term.figure) for term in row) for row in rows]
    reach = hypot(*halves, *halves, *(share * _half(watts) for share, watts in powers))

    @cache
    def may_begin(begun: Choice) -> bool:
        return not begun or (may_begin(begun[:-1]) and problem.worst_of(begun) <= _ROUNDING)

    ranked: list[Evaluation] = []
    best, different = inf, inf
    evaluated = 0
    for bound, placement in bounds:
        if bound + saved > different:
            break
        if may_begin(placement[:-1]):
            evaluated += 1
            one = problem.evaluate(placement)
            if one.worst <= 1:
                ranked.append(one)
                best = min(best, one.value)
                if one.value > best + reach:
                    different = min(different, one.value)
                elif one.value == best:
                    values = (other.value for other in ranked)
                    different = min((v for v in values if v > best + reach), default=inf)
    ranked.sort(key=lambda one: (one.value, one.placement))
    return Found(tuple(ranked), len(bounds), evaluated)


def closest_infeasible(problem: Problem) -> Evaluation:
    """Return the placement that exceeds its limits least."""
    least = inf
    closest: Choice = ()

    def place(begun: Choice) -> None:
        nonlocal least, closest
        worst = problem.worst_of(begun)
        if worst >= least:
            return
        if len(begun) == len(problem.models):
            least, closest = worst, begun
            return
        for number in range(len(problem.models[len(begun)].options)):
            place((*begun, number))

    place(())
    return problem.evaluate(closest)


def _most_at_work(problem: Problem, cell: Cell) -> float:
    """Return the largest share of time for which a cell may be at work, in any placement."""
    longer = 1.0
    for number, model in enumerate(problem.models):
        if number != cell[0]:
            others = [(number, option) for option in range(len(model.options))]
            longer += max(
                problem.slower(cell, other) * min(1.0, problem.share(other)) for other in others
            )
    return min(1.0, problem.share(cell) * longer)


def _half(figure: Figure) -> float:
    return inf if figure.half is None else figure.half

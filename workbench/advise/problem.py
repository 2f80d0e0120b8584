"""Placements of models on accelerators as numbers: demands, cost, and the search for the best.

The rules are those of docs/advise.md. They decide latency, duty and power from figures of models
alone, and from effects that were measured for exactly these models or for pairs of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations
from math import floor, hypot, inf, prod
from typing import Literal, NamedTuple, TypeAlias

from pydantic import PositiveFloat

from ...daemon.measure.report import Device
from ...daemon.measure.winner import judge
from ...parsers.records import Record
from ..results.records import Figure

MOST_MODELS = 10
# A float just within a limit is not excluded for its last digit.
_ROUNDING = 1 + 1e-9
Objective = Literal["energy", "gpu"]
# A model and one of its options, both by number.
Cell: TypeAlias = tuple[int, int]
# An option of each model, by number.
Choice: TypeAlias = tuple[int, ...]


class Demand(Record):
    """A model that is to run; without a given deadline it has until its next input."""

    name: str
    rate_per_second: PositiveFloat
    deadline_seconds: PositiveFloat
    is_deadline_given: bool = False


@dataclass(frozen=True)
class Option:
    """One way to run a model, with figures of the model alone.

    All are per input; ``latency_seconds`` is the 99th percentile. The first input of a batch waits
    ``wait_seconds`` for the last one.
    """

    device: Device
    busy_seconds: float
    latency_seconds: float
    joules: Figure | None = None
    gpu_seconds: Figure | None = None
    wait_seconds: float = 0.0


@dataclass(frozen=True)
class Effect:
    """The measured influence of models on each other, without pauses.

    By model: 99th percentile and throughput over those alone. ``watts`` is net power beyond that of
    the same work alone, and of three models beyond their pairs.
    """

    tail: Mapping[int, float]
    speed: Mapping[int, float]
    watts: Figure | None = None


class Term(NamedTuple):
    """A part of an objective: a coefficient times a measured figure."""

    coefficient: float
    figure: Figure

    @property
    def value(self) -> float:
        """The part itself."""
        return self.coefficient * self.figure.value


@dataclass(frozen=True)
class Evaluation:
    """The demands and the cost of a placement; latency and duty are without margin.

    ``worst`` is the largest of latency over deadline and of duty, with margin; feasible up to 1.
    ``terms`` add up to the objective ``value``, in watts or as a share of the GPU. On the
    accelerators ``in_turn`` the models do better in turn than at once, as they were measured.
    """

    placement: Choice
    latency_seconds: tuple[float, ...]
    duty: Mapping[Device, float]
    in_turn: frozenset[Device]
    worst: float
    terms: Mapping[object, Term]
    value: float

    @property
    def half(self) -> float | None:
        """Half the 95 % interval of the value; ``None`` if a part has none."""
        return _half_of(self.terms.values())


def gap(first: Evaluation, second: Evaluation) -> Figure:
    """Return the cost of the first placement less that of the second.

    The error of a figure that is in both cancels.
    """
    nothing = Term(0.0, Figure(value=0.0))
    parts = []
    for key, term in {**second.terms, **first.terms}.items():
        one, other = first.terms.get(key, nothing), second.terms.get(key, nothing)
        parts.append(Term(one.coefficient - other.coefficient, term.figure))
    return Figure.around(first.value - second.value, _half_of(parts))


def is_tie(one: Evaluation, other: Evaluation) -> bool:
    """Return whether neither of two placements is known to cost less."""
    return judge(gap(one, other)) in ("no_difference", "not_known")


def _half_of(parts: Iterable[Term]) -> float | None:
    halves = [coefficient * _half(figure) for coefficient, figure in parts if coefficient]
    return None if inf in map(abs, halves) else hypot(*halves)


def _half(figure: Figure) -> float:
    return inf if figure.half is None else figure.half


@dataclass(frozen=True)
class Problem:
    """Demanded models, at least one option of each, and their measured influence on each other.

    Without ``takes_turns``, models on one accelerator that were not measured together are taken as
    independent; otherwise they wait for each other.
    """

    demands: tuple[Demand, ...]
    options: tuple[tuple[Option, ...], ...]
    objective: Objective = "energy"
    margin: float = 0.1
    effects: Mapping[frozenset[Cell], Effect] = field(default_factory=dict)
    takes_turns: bool = True

    def option(self, cell: Cell) -> Option:
        """Return the option of a cell."""
        return self.options[cell[0]][cell[1]]

    def names_on(self, device: Device, placement: Choice) -> list[str]:
        """Return the models that a placement has on an accelerator."""
        pairs = zip(self.demands, map(self.option, enumerate(placement)), strict=True)
        return [demand.name for demand, option in pairs if option.device == device]

    def cost(self, cell: Cell) -> Term:
        """Return the cost of a cell alone, or raise ``ValueError`` if it is not known."""
        option, demand = self.option(cell), self.demands[cell[0]]
        figure = option.joules if self.objective == "energy" else option.gpu_seconds
        if figure is None:
            raise ValueError(f"the cost of {demand.name} is not known")
        return Term(demand.rate_per_second, figure)

    def evaluate(self, placement: Choice) -> Evaluation:
        """Return the demands and the cost of a placement."""
        cells = tuple(enumerate(placement))
        latency, duty, in_turn = self._needs(cells)
        terms: dict[object, Term] = {cell: self.cost(cell) for cell in cells}
        if self.powers:
            at_work = {cell: self._at_work(cell, cells) for cell in cells}
            for some, watts in self.powers:
                if all(cell in at_work for cell in some):
                    terms[some] = Term(prod(at_work[cell] for cell in some), watts)
        return Evaluation(
            placement=placement,
            latency_seconds=latency,
            duty=duty,
            in_turn=in_turn,
            worst=self._worst(latency, duty),
            terms=terms,
            value=sum(term.value for term in terms.values()),
        )

    def worst_of(self, begun: Choice) -> float:
        """Return the least that ``worst`` can be for placements of all models that begin so.

        No model makes another faster. Models that were all measured together may do better than
        some of them, so for them only whole placements count.
        """
        cells = tuple(enumerate(begun))
        if len(begun) < len(self.demands) and any(map(frozenset(cells).issubset, self._wholes)):
            return 0.0
        latency, duty, _ = self._needs(cells)
        return self._worst(latency, duty)

    def unmeasured(self, placement: Choice) -> list[tuple[Cell, Cell]]:
        """Return the pairs of a placement that were not measured together."""
        cells = list(enumerate(placement))
        if len(cells) > 2 and frozenset(cells) in self.effects:
            return []
        return [pair for pair in combinations(cells, 2) if frozenset(pair) not in self.effects]

    def _worst(self, latency: Sequence[float], duty: Mapping[Device, float]) -> float:
        pairs = zip(latency, self.demands, strict=False)
        ratios = [seconds / demand.deadline_seconds for seconds, demand in pairs]
        return (1 + self.margin) * max([0.0, *ratios, *duty.values()])

    def share(self, cell: Cell) -> float:
        """Return the share of time that a cell needs alone."""
        return self.demands[cell[0]].rate_per_second * self.option(cell).busy_seconds

    def slower(self, cell: Cell, other: Cell) -> float:
        """Return by how much longer a cell works on an input because of another; 0: not at all."""
        pair = self.pairs.get(cell, {}).get(other)
        if pair is None:
            return 0.0
        return (1 / min(1.0, pair.speed[cell[0]]) - 1) * min(1.0, self.share(other))

    @cached_property
    def pairs(self) -> dict[Cell, dict[Cell, Effect]]:
        """Effects of two cells, by the one and the other."""
        found: dict[Cell, dict[Cell, Effect]] = {}
        for cells, effect in self.effects.items():
            if len(cells) == 2:
                for one, other in permutations(cells):
                    found.setdefault(one, {})[other] = effect
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

    @cached_property
    def _wholes(self) -> list[frozenset[Cell]]:
        return [cells for cells in self.effects if 1 < len(cells) == len(self.demands)]

    def _needs(
        self, cells: Sequence[Cell]
    ) -> tuple[tuple[float, ...], dict[Device, float], frozenset[Device]]:
        """Return the latency of each model, the duty of each accelerator, and those in turn.

        Models on one accelerator run at once, as measured, or in turn, one inference after the
        other. The way that leaves more slack counts, so that measuring makes nothing worse.
        """
        used: dict[Device, list[Cell]] = {}
        for cell in cells:
            used.setdefault(self.option(cell).device, []).append(cell)
        left_to_gpu = sum(
            self.demands[cell[0]].rate_per_second * option.gpu_seconds.value
            for cell in cells
            for option in [self.option(cell)]
            if option.device != "gpu" and option.gpu_seconds is not None
        )
        whole = self.effects.get(frozenset(cells)) if frozenset(cells) in self._wholes else None
        slowed = {cell: self._slowed(cell, cells) for cell in cells}
        latency: dict[Cell, float] = {}
        duty: dict[Device, float] = {}
        in_turn = set()
        for device, mine in used.items():
            more = left_to_gpu if device == "gpu" else 0.0
            ways = [self._at_once(mine, slowed, whole)]
            # The effect of each model elsewhere on each of these was measured.
            knows_others = all(
                other in mine or other in self.pairs.get(one, {}) for one in mine for other in cells
            )
            if len(mine) > 1 and (whole is None or knows_others):
                turn = sum(slowed[cell][0] for cell in mine)
                ways.append((dict.fromkeys(mine, turn), sum(slowed[cell][1] for cell in mine)))
            ratios = [
                max(
                    needed + more,
                    *(
                        (took[one] + self.option(one).wait_seconds)
                        / self.demands[one[0]].deadline_seconds
                        for one in mine
                    ),
                )
                for took, needed in ways
            ]
            if ratios[0] > _ROUNDING * ratios[-1]:
                in_turn.add(device)
            took, needed = ways[device in in_turn]
            latency.update({one: took[one] + self.option(one).wait_seconds for one in mine})
            duty[device] = needed + more
        if left_to_gpu:
            duty.setdefault("gpu", left_to_gpu)
        return tuple(latency[cell] for cell in cells), duty, frozenset(in_turn)

    def _slowed(self, cell: Cell, cells: Sequence[Cell]) -> tuple[float, float]:
        """Return latency and share of time of a model next to those on other accelerators.

        An accelerator does the work of one model at a time, so the worst of its models counts;
        several accelerators multiply.
        """
        pairs, here = self.pairs.get(cell, {}), self.option(cell).device
        tails: dict[Device, float] = {}
        speeds: dict[Device, float] = {}
        for other in cells:
            there = self.option(other).device
            if there != here and other in pairs:
                effect, number = pairs[other], cell[0]
                tails[there] = max(tails.get(there, 1.0), effect.tail[number])
                speeds[there] = min(speeds.get(there, 1.0), effect.speed[number])
        seconds = self.option(cell).latency_seconds * prod(tails.values())
        return seconds, self.share(cell) / prod(speeds.values())

    def _at_once(
        self, mine: Sequence[Cell], slowed: Mapping[Cell, tuple[float, float]], whole: Effect | None
    ) -> tuple[dict[Cell, float], float]:
        """Return the latency of each model of an accelerator, and its duty, with all at once."""
        if whole is not None:
            took = {
                one: self.option(one).latency_seconds * max(1.0, whole.tail[one[0]]) for one in mine
            }
            needed = [self.share(one) for one in mine]
            return took, max(sum(needed) / sum(whole.speed[one[0]] for one in mine), *needed)
        longest = {
            one: slowed[one][0] + sum(self._delay(one, other, slowed) for other in mine)
            for one in mine
        }
        took = {}
        for one in mine:
            took[one] = slowed[one][0]
            for other in mine:
                # No longer than all its inputs take that can be there in the meantime.
                window = longest[one] + longest[other] - slowed[other][0]
                inputs = 1 + floor(window * self.demands[other[0]].rate_per_second)
                took[one] += min(self._delay(one, other, slowed), inputs * slowed[other][0])
        needed = [slowed[one][1] for one in mine]
        # However well they share an accelerator, none of them needs less than alone.
        return took, max(sum(needed) / self._done_together(mine), *needed)

    def _delay(self, one: Cell, other: Cell, slowed: Mapping[Cell, tuple[float, float]]) -> float:
        """Return by how much a model delays another one on the same accelerator."""
        if one == other:
            return 0.0
        pair = self.pairs.get(one, {}).get(other)
        if pair is None:
            return slowed[other][0] if self.takes_turns else 0.0
        # Work elsewhere lengthens the delay as it lengthens the work of either model.
        seconds = self.option(one).latency_seconds
        factor = max(slowed[cell][0] / self.option(cell).latency_seconds for cell in (one, other))
        return max(0.0, pair.tail[one[0]] - 1) * seconds * factor

    def _done_together(self, cells: Sequence[Cell]) -> float:
        """Return the work of models on one accelerator at once, over one after the other."""
        pairs = (self.pairs.get(one, {}).get(other) for one, other in combinations(cells, 2))
        together = (1.0 if pair is None else sum(pair.speed.values()) for pair in pairs)
        return min(together, default=1.0)

    def _at_work(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return the share of time in which a model is at work: longer if others slow it."""
        longer = 1.0 + sum(self.slower(cell, other) for other in cells if other != cell)
        return min(1.0, self.share(cell) * longer)


# --- search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Feasible placements: the best, then the others by cost.

    ``ties`` cannot be told from the best or from the cheapest; ``runner_up`` is the cheapest of the
    others. ``evaluated`` of all placements were evaluated; the rest is proven infeasible.
    """

    ranked: tuple[Evaluation, ...]
    ties: tuple[Evaluation, ...]
    runner_up: Evaluation | None
    placements: int
    evaluated: int

    @property
    def best(self) -> Evaluation | None:
        """The best; ``None`` if none is feasible."""
        return self.ranked[0] if self.ranked else None


def search(problem: Problem) -> Found:
    """Return the best placements, with proof.

    The best is the one with most slack of those that cannot be told from the cheapest. Every
    placement is evaluated, unless its first models exceed a limit already.
    """
    placements = prod(len(options) for options in problem.options)
    whole = _not_infeasible(problem)
    evaluations = [problem.evaluate(placement) for placement in whole]
    ranked = [evaluation for evaluation in evaluations if evaluation.worst <= 1]
    ranked.sort(key=lambda evaluation: (evaluation.value, evaluation.placement))
    if not ranked:
        return Found((), (), None, placements, len(evaluations))
    chosen = _of_most_slack(problem, ranked)
    others = [evaluation for evaluation in ranked if evaluation is not chosen]
    ties: list[Evaluation] = []
    runner_up: Evaluation | None = None
    for evaluation in others:
        if is_tie(ranked[0], evaluation) or is_tie(chosen, evaluation):
            ties.append(evaluation)
        elif runner_up is None:
            runner_up = evaluation
    return Found((chosen, *others), tuple(ties), runner_up, placements, len(evaluations))


def _not_infeasible(problem: Problem) -> list[Choice]:
    """Return the placements whose first models, all but the last, exceed no limit."""
    begun: list[Choice] = [()]
    for number, options in enumerate(problem.options):
        longer = [(*choice, place) for choice in begun for place in range(len(options))]
        is_whole = number == len(problem.options) - 1
        begun = [choice for choice in longer if is_whole or problem.worst_of(choice) <= _ROUNDING]
    return begun


def _of_most_slack(problem: Problem, ranked: Sequence[Evaluation]) -> Evaluation:
    """Return the placement of most slack that no cheaper one is known to beat.

    Slack is compared to a percent; then fewer pairs that were not measured count, and then cost.
    """

    def is_alike(cheaper: Evaluation, one: Evaluation) -> bool:
        return judge(gap(cheaper, one)) != "first"

    alike = [
        (round(one.worst, 2), len(problem.unmeasured(one.placement)), place)
        for place, one in enumerate(ranked)
        if is_alike(ranked[0], one)
    ]
    return next(
        ranked[place]
        for _, _, place in sorted(alike)
        if all(is_alike(cheaper, ranked[place]) for cheaper in ranked[:place])
    )


def closest_infeasible(problem: Problem) -> Evaluation:
    """Return the placement that exceeds its limits least."""
    least = inf
    closest: Choice = ()

    def place(begun: Choice) -> None:
        nonlocal least, closest
        worst = problem.worst_of(begun)
        if worst >= least:
            return
        if len(begun) == len(problem.demands):
            least, closest = worst, begun
            return
        for number in range(len(problem.options[len(begun)])):
            place((*begun, number))

    place(())
    return problem.evaluate(closest)

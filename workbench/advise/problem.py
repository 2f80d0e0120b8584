"""Placements of models on accelerators as numbers: demands, cost, and the search for the best.

The rules are those of docs/advise.md. They decide latency, duty and power from figures of models
alone, and from effects that were measured for exactly these models or for pairs of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, permutations, product
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
    """Return half the 95 % interval of a sum; ``None`` if a part has none."""
    halves = []
    for coefficient, figure in parts:
        if not coefficient:
            continue
        if figure.half is None:
            return None
        halves.append(coefficient * figure.half)
    return hypot(*halves)


def sum_of(parts: Collection[Term]) -> Figure:
    """Return the sum of parts, whose errors are independent."""
    return Figure.around(sum(part.value for part in parts), _half_of(parts))


class _Need(NamedTuple):
    """Needs of models on one accelerator: the time of each input, and a share of all time."""

    seconds: dict[Cell, float]
    duty: float


class _Slowed(NamedTuple):
    """A model next to those on other accelerators: its latency, and the share of time it needs."""

    seconds: float
    share: float


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
        names = []
        for cell in enumerate(placement):
            if self.option(cell).device == device:
                names.append(self.demands[cell[0]].name)
        return names

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
        for together, watts in self.powers:
            if not set(cells).issuperset(together):
                continue
            at_work = [self._at_work(cell, cells) for cell in together]
            terms[together] = Term(prod(at_work), watts)
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
        """Return the largest of latency over deadline and of duty, with margin."""
        worst = max([0.0, *duty.values()])
        for seconds, demand in zip(latency, self.demands, strict=False):
            worst = max(worst, seconds / demand.deadline_seconds)
        return (1 + self.margin) * worst

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
        powers = []
        for cells, effect in self.effects.items():
            if effect.watts is not None and self.objective == "energy":
                powers.append((tuple(sorted(cells)), effect.watts))
        return tuple(powers)

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
        by_device: dict[Device, list[Cell]] = {}
        for cell in cells:
            by_device.setdefault(self.option(cell).device, []).append(cell)
        whole = self.effects.get(frozenset(cells)) if frozenset(cells) in self._wholes else None
        slowed = {cell: self._slowed(cell, cells) for cell in cells}
        left_to_gpu = self._left_to_gpu(cells)
        latency: dict[Cell, float] = {}
        duty: dict[Device, float] = {}
        in_turn = set()
        for device, here in by_device.items():
            more = left_to_gpu if device == "gpu" else 0.0
            need = self._at_once(here, slowed, whole)
            if len(here) > 1 and (whole is None or self._knows_others(here, cells)):
                turns = self._in_turn(here, slowed)
                if self._strain(need, more) > _ROUNDING * self._strain(turns, more):
                    need = turns
                    in_turn.add(device)
            for cell, seconds in need.seconds.items():
                latency[cell] = seconds + self.option(cell).wait_seconds
            duty[device] = need.duty + more
        if left_to_gpu:
            duty.setdefault("gpu", left_to_gpu)
        return tuple(latency[cell] for cell in cells), duty, frozenset(in_turn)

    def _left_to_gpu(self, cells: Sequence[Cell]) -> float:
        """Return the share of time that models of other accelerators need of the GPU."""
        share = 0.0
        for cell in cells:
            option = self.option(cell)
            if option.device != "gpu" and option.gpu_seconds is not None:
                share += self.demands[cell[0]].rate_per_second * option.gpu_seconds.value
        return share

    def _knows_others(self, here: Sequence[Cell], cells: Sequence[Cell]) -> bool:
        """Return whether the effect of each model elsewhere on each of these was measured."""
        for cell in here:
            known = self.pairs.get(cell, {})
            if not all(other in known or other in here for other in cells):
                return False
        return True

    def _strain(self, need: _Need, more: float) -> float:
        """Return the largest of latency over deadline and of duty on one accelerator."""
        strain = need.duty + more
        for cell, seconds in need.seconds.items():
            waited = seconds + self.option(cell).wait_seconds
            strain = max(strain, waited / self.demands[cell[0]].deadline_seconds)
        return strain

    def _slowed(self, cell: Cell, cells: Sequence[Cell]) -> _Slowed:
        """Return latency and share of time of a model next to those on other accelerators.

        An accelerator does the work of one model at a time, so the worst of its models counts;
        several accelerators multiply.
        """
        pairs, device = self.pairs.get(cell, {}), self.option(cell).device
        tails: dict[Device, float] = {}
        speeds: dict[Device, float] = {}
        for other in cells:
            elsewhere = self.option(other).device
            if elsewhere != device and other in pairs:
                effect, number = pairs[other], cell[0]
                tails[elsewhere] = max(tails.get(elsewhere, 1.0), effect.tail[number])
                speeds[elsewhere] = min(speeds.get(elsewhere, 1.0), effect.speed[number])
        seconds = self.option(cell).latency_seconds * prod(tails.values())
        return _Slowed(seconds, self.share(cell) / prod(speeds.values()))

    def _in_turn(self, here: Sequence[Cell], slowed: Mapping[Cell, _Slowed]) -> _Need:
        """Return what models need that run one inference after the other: each waits for all."""
        turn, duty = 0.0, 0.0
        for cell in here:
            turn += slowed[cell].seconds
            duty += slowed[cell].share
        return _Need(dict.fromkeys(here, turn), duty)

    def _at_once(
        self, here: Sequence[Cell], slowed: Mapping[Cell, _Slowed], whole: Effect | None
    ) -> _Need:
        """Return what the models of an accelerator need, with all at once."""
        seconds: dict[Cell, float] = {}
        if whole is not None:
            shares, done = [], 0.0
            for cell in here:
                tail = max(1.0, whole.tail[cell[0]])
                seconds[cell] = self.option(cell).latency_seconds * tail
                shares.append(self.share(cell))
                done += whole.speed[cell[0]]
            return _Need(seconds, max(sum(shares) / done, *shares))
        longest, shares = {}, []
        for cell in here:
            longest[cell] = self._longest(cell, here, slowed)
            shares.append(slowed[cell].share)
        for cell in here:
            seconds[cell] = slowed[cell].seconds
            for other in here:
                # No longer than all its inputs take that can be there in the meantime.
                window = longest[cell] + longest[other] - slowed[other].seconds
                inputs = 1 + floor(window * self.demands[other[0]].rate_per_second)
                delay = self._delay(cell, other, slowed)
                seconds[cell] += min(delay, inputs * slowed[other].seconds)
        # However well they share an accelerator, none of them needs less than alone.
        return _Need(seconds, max(sum(shares) / self._done_together(here), *shares))

    def _longest(self, cell: Cell, here: Sequence[Cell], slowed: Mapping[Cell, _Slowed]) -> float:
        """Return the latency of a model that every other one delays in full."""
        return slowed[cell].seconds + sum(self._delay(cell, other, slowed) for other in here)

    def _delay(self, cell: Cell, other: Cell, slowed: Mapping[Cell, _Slowed]) -> float:
        """Return by how much a model delays another one on the same accelerator."""
        if cell == other:
            return 0.0
        pair = self.pairs.get(cell, {}).get(other)
        if pair is None:
            return slowed[other].seconds if self.takes_turns else 0.0
        # Work elsewhere lengthens the delay as it lengthens the work of either model.
        factor = max(self._factor(cell, slowed), self._factor(other, slowed))
        alone = self.option(cell).latency_seconds
        return max(0.0, pair.tail[cell[0]] - 1) * alone * factor

    def _factor(self, cell: Cell, slowed: Mapping[Cell, _Slowed]) -> float:
        return slowed[cell].seconds / self.option(cell).latency_seconds

    def _done_together(self, cells: Sequence[Cell]) -> float:
        """Return the work of models on one accelerator at once, over one after the other."""
        least: float | None = None
        for cell, other in combinations(cells, 2):
            pair = self.pairs.get(cell, {}).get(other)
            done = 1.0 if pair is None else sum(pair.speed.values())
            least = done if least is None else min(least, done)
        return 1.0 if least is None else least

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
    placements = prod(map(len, problem.options))
    whole = _not_infeasible(problem)
    ranked = []
    for placement in whole:
        evaluation = problem.evaluate(placement)
        if evaluation.worst <= 1:
            ranked.append(evaluation)
    ranked.sort(key=lambda evaluation: (evaluation.value, evaluation.placement))
    if not ranked:
        return Found((), (), None, placements, len(whole))
    chosen = _of_most_slack(problem, ranked)
    others = [evaluation for evaluation in ranked if evaluation is not chosen]
    ties: list[Evaluation] = []
    runner_up: Evaluation | None = None
    for evaluation in others:
        if is_tie(ranked[0], evaluation) or is_tie(chosen, evaluation):
            ties.append(evaluation)
        elif runner_up is None:
            runner_up = evaluation
    return Found((chosen, *others), tuple(ties), runner_up, placements, len(whole))


def _not_infeasible(problem: Problem) -> list[Choice]:
    """Return the placements whose first models, all but the last, exceed no limit."""
    begun: list[Choice] = [()]
    for number, options in enumerate(problem.options):
        is_last = number == len(problem.options) - 1
        longer = []
        for choice, option in product(begun, range(len(options))):
            placed = (*choice, option)
            if is_last or problem.worst_of(placed) <= _ROUNDING:
                longer.append(placed)
        begun = longer
    return begun


def _may_be_as_cheap(one: Evaluation, cheaper: Evaluation) -> bool:
    """Return whether a placement is not known to cost more than one with a lower figure."""
    return judge(gap(cheaper, one)) != "first"


def _of_most_slack(problem: Problem, ranked: Sequence[Evaluation]) -> Evaluation:
    """Return the placement of most slack that no cheaper one is known to beat.

    Slack is compared to a percent; then fewer pairs that were not measured count, and then cost.
    """
    by_slack = []
    for place, one in enumerate(ranked):
        if _may_be_as_cheap(one, ranked[0]):
            unmeasured = len(problem.unmeasured(one.placement))
            by_slack.append((round(one.worst, 2), unmeasured, place))
    for _, _, place in sorted(by_slack):
        one = ranked[place]
        if all(_may_be_as_cheap(one, cheaper) for cheaper in ranked[:place]):
            return one
    return ranked[0]


def closest_infeasible(problem: Problem) -> Evaluation:
    """Return the placement that exceeds its limits least.

    Placements that begin alike are left out together once their first models exceed more.
    """
    least = inf
    closest: Choice = ()
    left: list[Choice] = [()]
    while left:
        begun = left.pop()
        worst = problem.worst_of(begun)
        if worst >= least:
            continue
        if len(begun) == len(problem.demands):
            least, closest = worst, begun
            continue
        # The last one is popped first.
        for option in reversed(range(len(problem.options[len(begun)]))):
            left.append((*begun, option))
    return problem.evaluate(closest)

"""Every placement, looked at or proven no better: branch and bound, nothing left to luck."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, inf, prod

from .problem import Cell, Outcome, Placement, Problem, gap

MOST_TASKS = 10
# What is just within a limit is not lost to the last digit of a float.
ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        ranked: Placements that can be, the best first: all that tie with it, and at least the
            one after it where there are two.
        placements: How many there are in all.
        looked_at: How many were looked at; the others are proven worse, or impossible.
    """

    ranked: tuple[Outcome, ...]
    placements: int
    looked_at: int

    @property
    def best(self) -> Outcome | None:
        """The best; ``None`` where none can be."""
        return self.ranked[0] if self.ranked else None

    @property
    def ties(self) -> tuple[Outcome, ...]:
        """Those that can't be told from the best."""
        return tuple(one for one in self.ranked[1:] if is_tie(self.ranked[0], one))


def is_tie(better: Outcome, worse: Outcome) -> bool:
    """Tell whether the 95 % interval of a difference holds 0, or is not known."""
    difference, half = gap(better, worse)
    return half is None or difference <= half


def search(problem: Problem) -> Found:
    """Return the placements that are best.

    Branches are left where an option alone is too slow, where tasks placed so far need more of an
    accelerator than there is, and where the least that can be added costs more than the second
    best by more than any interval is wide.
    """
    seen = _Search(problem)
    seen.place(())
    seen.ranked.sort(key=lambda one: (one.value, one.placement))
    count = prod(len(task.options) for task in problem.tasks)
    return Found(tuple(seen.ranked), count, seen.looked_at)


def least_bad(problem: Problem) -> Outcome:
    """Return the placement that breaks its limits least, where none keeps them."""
    return min(map(problem.evaluate, _all(problem)), key=lambda one: (one.worst, one.value))


def _all(problem: Problem, begun: Placement = ()) -> Iterator[Placement]:
    if len(begun) == len(problem.tasks):
        yield begun
        return
    for number in range(len(problem.tasks[len(begun)].options)):
        yield from _all(problem, (*begun, number))


class _Search:
    """A depth-first search with what it has found."""

    def __init__(self, problem: Problem) -> None:
        self.ranked: list[Outcome] = []
        self.looked_at = 0
        self._problem = problem
        self._limit = 1 / (1 + problem.margin)
        self._two_best = [inf, inf]
        costs = [
            [self._cost((number, option)) for option in range(len(task.options))]
            for number, task in enumerate(problem.tasks)
        ]
        least = [min(row, default=0.0) for row in costs]
        self._costs = costs
        self._least_left = [sum(least[number:]) for number in range(len(least) + 1)]
        known = [one.watts for one in problem.effects.values() if one.watts is not None]
        # Together some cost less than alone: so much at most may a branch still save.
        self._saved = sum(min(0.0, figure.value) for figure in known)
        if problem.objective != "energy":
            self._saved = 0.0
        self._gain = max([1.0, *self._gains()])
        self._reach = self._widest()

    def place(self, begun: Placement) -> None:
        """Look at everything that begins so."""
        if self._is_hopeless(begun):
            return
        if len(begun) < len(self._problem.tasks):
            for number in self._order(len(begun)):
                self.place((*begun, number))
            return
        self.looked_at += 1
        outcome = self._problem.evaluate(begun)
        if outcome.worst <= 1:
            self.ranked.append(outcome)
            self._two_best = sorted([*self._two_best, outcome.value])[:2]

    def _order(self, number: int) -> Sequence[int]:
        """Return a task's options, the cheapest first: the sooner the bound is low, the better."""
        return sorted(range(len(self._costs[number])), key=self._costs[number].__getitem__)

    def _is_hopeless(self, begun: Placement) -> bool:
        problem = self._problem
        needed: dict[str, float] = {}
        for cell in enumerate(begun):
            option, task = problem.option(cell), problem.tasks[cell[0]]
            if option.latency_seconds > ROUNDING * self._limit * task.deadline_seconds:
                return True
            needed[option.device] = needed.get(option.device, 0.0) + problem.share(cell)
        if any(share > ROUNDING * self._limit * self._gain for share in needed.values()):
            return True
        cost = sum(self._costs[number][option] for number, option in enumerate(begun))
        floor = cost + self._least_left[len(begun)] + self._saved
        return floor > self._two_best[1] + self._reach

    def _gains(self) -> Iterator[float]:
        """Yield how much more tasks on one accelerator got done at once than in turns."""
        for cells, effect in self._problem.effects.items():
            done: dict[str, float] = {}
            for cell in cells:
                device = self._problem.option(cell).device
                done[device] = done.get(device, 0.0) + effect.speed[cell[0]]
            yield from done.values()

    def _cost(self, cell: Cell) -> float:
        figure = self._problem.figure(cell)
        if figure is None:
            raise ValueError(f"the cost of {self._problem.tasks[cell[0]].name} is not known")
        return self._problem.tasks[cell[0]].rate * figure.value

    def _widest(self) -> float:
        """Return half an interval than which that of no difference is wider."""
        halves: list[float] = []
        for number, task in enumerate(self._problem.tasks):
            own = [_half(self._problem.figure((number, n))) for n in range(len(task.options))]
            halves += 2 * [task.rate * max(own, default=0.0)]
        effects = self._problem.effects.values()
        halves += [_half(effect.watts) for effect in effects if effect.watts is not None]
        return inf if inf in halves else hypot(*halves)


def _half(figure: object) -> float:
    low, high = getattr(figure, "low", None), getattr(figure, "high", None)
    return inf if low is None or high is None else (high - low) / 2

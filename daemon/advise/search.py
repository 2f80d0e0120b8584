"""Every placement, looked at or proven no better: branch and bound, nothing left to luck."""

from dataclasses import dataclass
from math import hypot, inf, prod

from ..results.records import Figure
from .outcome import Outcome, Placement, gap
from .problem import Cell, Problem

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

    Branches are left where the tasks placed so far already break a limit, and where the least that
    the whole can cost is more than the second best by more than any interval is wide.
    """
    seen = _Search(problem)
    seen.place(())
    ranked = sorted(seen.ranked, key=lambda one: (one.value, one.placement))
    return Found(tuple(ranked), placements_of(problem), seen.looked_at)


def placements_of(problem: Problem) -> int:
    """Return how many placements there are."""
    return prod(len(task.options) for task in problem.tasks)


def least_bad(problem: Problem) -> Outcome:
    """Return the placement that breaks its limits least, where none keeps them."""
    best: list[Outcome] = []

    def place(begun: Placement) -> None:
        if best and _worst(problem, begun) >= best[0].worst:
            return
        if len(begun) < len(problem.tasks):
            for number in range(len(problem.tasks[len(begun)].options)):
                place((*begun, number))
            return
        best[:] = [problem.evaluate(begun)]

    place(())
    return best[0]


def _worst(problem: Problem, begun: Placement) -> float:
    """Return what is the least that the worst of a placement that begins so can be.

    Two or three that were measured just so may be better off than some of them are; then there
    are few placements, and only whole ones are judged.
    """
    if len(problem.tasks) > 3 or len(begun) == len(problem.tasks):
        return problem.worst(tuple(enumerate(begun)))
    return 0.0


class _Search:
    """A depth-first search with what it has found."""

    def __init__(self, problem: Problem) -> None:
        self.ranked: list[Outcome] = []
        self.looked_at = 0
        self._problem = problem
        self._two_best = [inf, inf]
        self._costs = [
            [_cost(problem, (number, option)) for option in range(len(task.options))]
            for number, task in enumerate(problem.tasks)
        ]
        least = [min(row) for row in self._costs]
        self._least_left = [sum(least[number:]) for number in range(len(least) + 1)]
        most = {cell: _most_in_flight(problem, cell) for cell in _cells(problem)}
        self._powers = [
            (cells, watts, prod(most[cell] for cell in cells)) for cells, watts in problem.powers
        ]
        # Together some cost less than alone: so much at most may a branch still save.
        self._saved = sum(share * min(0.0, watts.value) for _, watts, share in self._powers)
        self._reach = self._widest()

    def place(self, begun: Placement) -> None:
        """Look at everything that begins so."""
        if self._least(begun) > self._two_best[1] + self._reach:
            return
        if _worst(self._problem, begun) > ROUNDING:
            return
        if len(begun) < len(self._problem.tasks):
            # The cheapest first: the sooner the bound is low, the better.
            row = self._costs[len(begun)]
            for number in sorted(range(len(row)), key=row.__getitem__):
                self.place((*begun, number))
            return
        self.looked_at += 1
        outcome = self._problem.evaluate(begun)
        if outcome.worst <= 1:
            self.ranked.append(outcome)
            self._two_best = sorted([*self._two_best, outcome.value])[:2]

    def _least(self, begun: Placement) -> float:
        """Return what anything that begins so costs at least."""
        problem = self._problem
        cost = sum(self._costs[number][option] for number, option in enumerate(begun))
        placed = set(enumerate(begun))
        more = sum(
            watts.value * prod(min(1.0, problem.share(cell)) for cell in cells)
            for cells, watts, _ in self._powers
            if watts.value > 0 and placed.issuperset(cells)
        )
        return cost + more + self._least_left[len(begun)] + self._saved

    def _widest(self) -> float:
        """Return half an interval than which that of no difference is wider."""
        halves: list[float] = []
        for number, task in enumerate(self._problem.tasks):
            own = [_half(self._problem.figure((number, n))) for n in range(len(task.options))]
            halves += 2 * [task.rate * max(own)]
        halves += [share * _half(watts) for _, watts, share in self._powers]
        return inf if inf in halves else hypot(*halves)


def _cells(problem: Problem) -> list[Cell]:
    return [(n, o) for n, task in enumerate(problem.tasks) for o in range(len(task.options))]


def _most_in_flight(problem: Problem, cell: Cell) -> float:
    """Return the largest share of time for which a cell may be at it, beside whomever."""
    longer = 1.0
    for number, task in enumerate(problem.tasks):
        if number != cell[0]:
            others = [(number, option) for option in range(len(task.options))]
            longer += max(
                problem.slower(cell, other) * min(1.0, problem.share(other)) for other in others
            )
    return min(1.0, problem.share(cell) * longer)


def _cost(problem: Problem, cell: Cell) -> float:
    figure = problem.figure(cell)
    if figure is None:
        raise ValueError(f"the cost of {problem.tasks[cell[0]].name} is not known")
    return problem.tasks[cell[0]].rate * figure.value


def _half(figure: Figure | None) -> float:
    if figure is None or figure.low is None or figure.high is None:
        return inf
    return (figure.high - figure.low) / 2

"""Which accelerator for which model, as numbers: what a placement asks of a board and costs.

A placement gives each task one of its options. What holds for it:

- **latency** of a task: its 99th percentile alone, times how much slower it is beside the others.
  That factor is measured for exactly these cells together, or else for each pair, and multiplied.
  Of a pair on one accelerator that was never measured, one waits for the other once.
- **duty** of an accelerator: the share of time that its tasks need. Each asks for rate over
  throughput, more where tasks on other accelerators slow it; what several get done on one
  accelerator together, against alone, is measured, or taken as neither more nor less. The GPU has
  besides what tasks on a DLA leave to it.
- **power**: rate times net energy of an input, summed, and for tasks that were measured together
  what that cost beyond the same work alone, for the share of time in which they are at it at once.

A margin of 0.1 has latency and duty ten percent worse than that, and only those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import hypot, prod
from typing import Literal, TypeAlias

from ..bench.measured import Figure
from ..run_report import Device

Objective = Literal["energy", "gpu"]
# A task and one of its options, both by number.
Cell: TypeAlias = tuple[int, int]
Placement: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Option:
    """One way to run a task.

    Attributes:
        device: The accelerator.
        busy_seconds: Of an input, alone: one over throughput.
        latency_seconds: 99th percentile of an inference, alone.
        joules: Net energy of an input; ``None`` where it is not known.
        gpu_seconds: Time of the GPU by input; ``None`` where it is not known.
    """

    device: Device
    busy_seconds: float
    latency_seconds: float
    joules: Figure | None = None
    gpu_seconds: Figure | None = None


@dataclass(frozen=True)
class Task:
    """A model that is to run at a rate.

    Attributes:
        name: Of the model.
        rate: Inputs a second.
        deadline_seconds: Of an inference.
        options: At least one.
    """

    name: str
    rate: float
    deadline_seconds: float
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Effect:
    """What tasks do to each other, measured back to back.

    Attributes:
        tail: By task, 99th percentile over that alone.
        speed: By task, throughput over that alone.
        watts: Net power beyond what the same work takes alone; of three, beyond that of their
            pairs too; ``None`` where it is not known.
    """

    tail: Mapping[int, float]
    speed: Mapping[int, float]
    watts: Figure | None = None


@dataclass(frozen=True)
class Term:
    """A part of an objective: a coefficient times something measured."""

    coefficient: float
    figure: Figure


@dataclass(frozen=True)
class Outcome:
    """What a placement asks for and costs.

    Attributes:
        placement: Option of each task, by number.
        latency_seconds: Of each task, without margin.
        duty: Of each accelerator that is used, without margin.
        worst: Largest of latency over deadline and of duty, with margin; above 1 it can't be.
        terms: Of the objective, by what was measured.
        value: Their sum, in watts or as a share of the GPU.
    """

    placement: Placement
    latency_seconds: tuple[float, ...]
    duty: Mapping[Device, float]
    worst: float
    terms: Mapping[object, Term]
    value: float

    @property
    def half(self) -> float | None:
        """Half the 95 % interval of the value; ``None`` where a part has none."""
        return _half_of([(term.coefficient, term.figure) for term in self.terms.values()])


@dataclass(frozen=True)
class Problem:
    """Tasks, what was measured of them together, and what is wanted.

    Attributes:
        tasks: In the order asked for.
        objective: What is to be least.
        margin: By which latency and duty are taken as larger.
        effects: What was measured together, by cells.
        takes_turns: Whether tasks on one accelerator that were not measured together wait for
            each other; without it they are taken as not in each other's way.
    """

    tasks: tuple[Task, ...]
    objective: Objective = "energy"
    margin: float = 0.1
    effects: Mapping[frozenset[Cell], Effect] = field(default_factory=dict)
    takes_turns: bool = True

    def option(self, cell: Cell) -> Option:
        """Return the option of a cell."""
        return self.tasks[cell[0]].options[cell[1]]

    def figure(self, cell: Cell) -> Figure | None:
        """Return what an input costs in a cell, in the unit of the objective."""
        option = self.option(cell)
        return option.joules if self.objective == "energy" else option.gpu_seconds

    def evaluate(self, placement: Placement) -> Outcome:
        """Return what a placement asks for and costs.

        Raises:
            ValueError: The cost of one of its cells is not known.
        """
        cells = tuple(enumerate(placement))
        latency = tuple(self._latency(cell, cells) for cell in cells)
        duty = self._duty(cells)
        ratios = [
            seconds / task.deadline_seconds
            for seconds, task in zip(latency, self.tasks, strict=True)
        ]
        terms = self._terms(cells)
        return Outcome(
            placement=placement,
            latency_seconds=latency,
            duty=duty,
            worst=(1 + self.margin) * max(*ratios, *duty.values()),
            terms=terms,
            value=sum(term.coefficient * term.figure.value for term in terms.values()),
        )

    def share(self, cell: Cell) -> float:
        """Return the share of time that a cell needs alone."""
        return self.tasks[cell[0]].rate * self.option(cell).busy_seconds

    def _effect(self, *cells: Cell) -> Effect | None:
        return self.effects.get(frozenset(cells))

    def _latency(self, cell: Cell, cells: Sequence[Cell]) -> float:
        alone = self.option(cell).latency_seconds
        whole = self._effect(*cells) if len(cells) > 1 else None
        if whole is not None:
            return alone * max(1.0, whole.tail[cell[0]])
        factor, waiting = 1.0, 0.0
        for other in cells:
            if other == cell:
                continue
            pair = self._effect(cell, other)
            if pair is not None:
                factor *= max(1.0, pair.tail[cell[0]])
            elif self.takes_turns and self._share_one(cell, other):
                waiting += self.option(other).latency_seconds
        return alone * factor + waiting

    def _duty(self, cells: Sequence[Cell]) -> dict[Device, float]:
        used: dict[Device, list[Cell]] = {}
        for cell in cells:
            used.setdefault(self.option(cell).device, []).append(cell)
        whole = self._effect(*cells) if len(cells) > 1 else None
        duty: dict[Device, float] = {}
        for device, mine in used.items():
            if whole is not None:
                done = sum(whole.speed[cell[0]] for cell in mine)
                done = min(done, 1.0) if len(mine) == 1 else done
                duty[device] = sum(map(self.share, mine)) / done
            else:
                needed = sum(self.share(c) / self._speed(c, cells) for c in mine)
                duty[device] = needed / self._done_together(mine)
        left_to_gpu = sum(
            self.tasks[cell[0]].rate * option.gpu_seconds.value
            for cell in cells
            if (option := self.option(cell)).device != "gpu" and option.gpu_seconds is not None
        )
        if left_to_gpu:
            duty["gpu"] = duty.get("gpu", 0.0) + left_to_gpu
        return duty

    def _speed(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return a task's throughput beside those on other accelerators, over that alone."""
        pairs = [
            self._effect(cell, other)
            for other in cells
            if other != cell and not self._share_one(cell, other)
        ]
        return prod(min(1.0, pair.speed[cell[0]]) for pair in pairs if pair is not None)

    def _done_together(self, cells: Sequence[Cell]) -> float:
        """Return what tasks on one accelerator get done at once, over one after the other."""
        if len(cells) == 1:
            return 1.0
        pairs = [self._effect(*pair) for pair in combinations(cells, 2)]
        return min(1.0 if pair is None else sum(pair.speed.values()) for pair in pairs)

    def _terms(self, cells: Sequence[Cell]) -> dict[object, Term]:
        terms: dict[object, Term] = {}
        for cell in cells:
            figure = self.figure(cell)
            if figure is None:
                raise ValueError(f"the cost of {self.tasks[cell[0]].name} is not known")
            terms[cell] = Term(self.tasks[cell[0]].rate, figure)
        if self.objective == "energy" and self.effects:
            at_it = {cell: self._in_flight(cell, cells) for cell in cells}
            for size in (2, 3):
                for some in combinations(cells, size):
                    effect = self._effect(*some)
                    if effect is not None and effect.watts is not None:
                        share = prod(at_it[cell] for cell in some)
                        terms[frozenset(some)] = Term(share, effect.watts)
        return terms

    def _in_flight(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return the share of time in which a task is at it: longer where others slow it."""
        longer = 1.0
        for other in cells:
            pair = None if other == cell else self._effect(cell, other)
            if pair is not None:
                slower = 1 / min(1.0, pair.speed[cell[0]]) - 1
                longer += slower * min(1.0, self.share(other))
        return min(1.0, self.share(cell) * longer)

    def _share_one(self, one: Cell, other: Cell) -> bool:
        return self.option(one).device == self.option(other).device


def gap(better: Outcome, worse: Outcome) -> tuple[float, float | None]:
    """Return by how much two placements differ, and half the 95 % interval of that.

    What they have in common is the same figure in both, and its error cancels.
    """
    parts: list[tuple[float, Figure]] = []
    for key in {*better.terms, *worse.terms}:
        one, other = better.terms.get(key), worse.terms.get(key)
        difference = (other.coefficient if other else 0.0) - (one.coefficient if one else 0.0)
        parts += [(difference, term.figure) for term in (one or other,) if term is not None]
    return worse.value - better.value, _half_of(parts)


def _half_of(parts: Sequence[tuple[float, Figure]]) -> float | None:
    halves: list[float] = []
    for coefficient, figure in parts:
        if coefficient == 0:
            continue
        if figure.low is None or figure.high is None:
            return None
        halves.append(coefficient * (figure.high - figure.low) / 2)
    return hypot(*halves)

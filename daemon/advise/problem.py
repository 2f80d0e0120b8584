"""Which accelerator for which model, as numbers: what a placement asks of a board and costs.

A placement gives each task one of its options. What holds for it:

- **latency** of a task: its 99th percentile alone, times how much slower it is beside the others.
  That factor is measured for exactly these cells together, or else for each pair, and multiplied.
  Of a pair on one accelerator that was never measured, one waits for the other once.
- **duty** of an accelerator: the share of time that its tasks need. Each asks for rate over
  throughput, more where tasks on other accelerators slow it; what several get done on one
  accelerator together, against alone, is measured, or taken as neither more nor less; the least
  of their pairs counts, and no task needs less than alone. The GPU has besides what tasks on a
  DLA leave to it.
- **power**: rate times net energy of an input, summed, and for tasks that were measured together
  what that cost beyond the same work alone, for the share of time in which they are at it at once.

A margin of 0.1 has latency and duty ten percent worse than that, and only those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Literal, TypeAlias

from ..measure.run_report import Device
from ..results.records import Figure
from .outcome import Outcome, Placement, Term

Objective = Literal["energy", "gpu"]
# A task and one of its options, both by number.
Cell: TypeAlias = tuple[int, int]


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
        latency, duty = self._latencies(cells), self._duty(cells)
        terms = self._terms(cells)
        return Outcome(
            placement=placement,
            latency_seconds=latency,
            duty=duty,
            worst=self._worst(cells, latency, duty),
            terms=terms,
            value=sum(term.coefficient * term.figure.value for term in terms.values()),
        )

    def worst(self, cells: Sequence[Cell]) -> float:
        """Return the largest of latency over deadline and of duty, with margin.

        Of more than three tasks the cells may be some of them: with the others it is no less,
        for none makes another faster.
        """
        return self._worst(cells, self._latencies(cells), self._duty(cells))

    def share(self, cell: Cell) -> float:
        """Return the share of time that a cell needs alone."""
        return self.tasks[cell[0]].rate * self.option(cell).busy_seconds

    def slower(self, cell: Cell, other: Cell) -> float:
        """Return by how much one cell is longer at an input beside another: 0 is not at all."""
        pair = self.pairs.get(cell, {}).get(other)
        return 0.0 if pair is None else 1 / min(1.0, pair.speed[cell[0]]) - 1

    @cached_property
    def pairs(self) -> dict[Cell, dict[Cell, Effect]]:
        """What was measured of two, by the one and the other."""
        found: dict[Cell, dict[Cell, Effect]] = {}
        for cells, effect in self.effects.items():
            if len(cells) == 2:
                one, other = cells
                found.setdefault(one, {})[other] = effect
                found.setdefault(other, {})[one] = effect
        return found

    @cached_property
    def powers(self) -> tuple[tuple[tuple[Cell, ...], Figure], ...]:
        """Which cells take more together than alone, or less, and how much while all are at it."""
        if self.objective != "energy":
            return ()
        return tuple(
            (tuple(sorted(cells)), effect.watts)
            for cells, effect in self.effects.items()
            if effect.watts is not None
        )

    def _worst(
        self, cells: Sequence[Cell], latency: Sequence[float], duty: Mapping[Device, float]
    ) -> float:
        ratios = [
            seconds / self.tasks[number].deadline_seconds
            for seconds, (number, _) in zip(latency, cells, strict=True)
        ]
        return (1 + self.margin) * max([0.0, *ratios, *duty.values()])

    def _whole(self, cells: Sequence[Cell]) -> Effect | None:
        """Return what was measured of just these, where they are all and more than one."""
        is_all = 1 < len(cells) == len(self.tasks)
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
                left_to_gpu += self.tasks[cell[0]].rate * option.gpu_seconds.value
        whole = self._whole(cells)
        duty: dict[Device, float] = {}
        for device, mine in used.items():
            if whole is not None:
                done = sum(whole.speed[cell[0]] for cell in mine)
                needed = [self.share(cell) for cell in mine]
            else:
                done = self._done_together(mine)
                needed = [self.share(cell) / self._speed(cell, cells) for cell in mine]
            # However well they go together, none of them needs less than alone.
            duty[device] = max(sum(needed) / done, *needed)
        if left_to_gpu:
            duty["gpu"] = duty.get("gpu", 0.0) + left_to_gpu
        return duty

    def _speed(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return a task's throughput beside those on other accelerators, over that alone."""
        pairs, device = self.pairs.get(cell), self.option(cell).device
        if pairs is None:
            return 1.0
        return prod(
            min(1.0, pairs[other].speed[cell[0]])
            for other in cells
            if other in pairs and self.option(other).device != device
        )

    def _done_together(self, cells: Sequence[Cell]) -> float:
        """Return what tasks on one accelerator get done at once, over one after the other."""
        if len(cells) == 1:
            return 1.0
        pairs = [self.pairs.get(one, {}).get(other) for one, other in combinations(cells, 2)]
        return min(1.0 if pair is None else sum(pair.speed.values()) for pair in pairs)

    def _terms(self, cells: Sequence[Cell]) -> dict[object, Term]:
        terms: dict[object, Term] = {}
        for cell in cells:
            figure = self.figure(cell)
            if figure is None:
                raise ValueError(f"the cost of {self.tasks[cell[0]].name} is not known")
            terms[cell] = Term(self.tasks[cell[0]].rate, figure)
        if self.powers:
            at_it = {cell: self._in_flight(cell, cells) for cell in cells}
            for some, watts in self.powers:
                if all(cell in at_it for cell in some):
                    terms[some] = Term(prod(at_it[cell] for cell in some), watts)
        return terms

    def _in_flight(self, cell: Cell, cells: Sequence[Cell]) -> float:
        """Return the share of time in which a task is at it: longer where others slow it."""
        longer = 1.0 + sum(
            self.slower(cell, other) * min(1.0, self.share(other))
            for other in cells
            if other != cell
        )
        return min(1.0, self.share(cell) * longer)

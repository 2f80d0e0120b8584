"""What a placement asks for and costs, and by how much two of them differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TypeAlias

from ..measure.run_report import Device
from ..results.records import Figure

# An option of each task, by number.
Placement: TypeAlias = tuple[int, ...]


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

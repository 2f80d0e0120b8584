"""The advice as one record: ``--json`` prints it, and the table is made from it."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from ...parsers.records import Record
from ..measure.run_report import Device
from ..results.records import Figure

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[1] = 1

Objective = Literal["energy", "gpu"]
FindingName = Literal[
    "int8_slower", "enqueue_bound", "copy_bound", "fallback_heavy", "thermally_limited"
]


class Demand(Record):
    """A model that is to run; without a given deadline it has until its next input."""

    name: str
    rate_per_second: PositiveFloat
    deadline_seconds: PositiveFloat
    is_deadline_given: bool = False


class PlacedModel(Record):
    """A model of a placement.

    Attributes:
        variant: Its form, if that is not the usual one: ``int8``, ``batch 4`` ….
        like: The accelerator whose figures were taken, if this one was not measured.
        latency_seconds: 99th percentile next to the other models, without margin.
        duty: Share of time that it needs alone.
    """

    name: str
    device: Device
    variant: str = ""
    like: Device | None = None
    latency_seconds: NonNegativeFloat
    deadline_seconds: NonNegativeFloat
    duty: NonNegativeFloat
    joules_per_input: Figure | None = None
    source: str


class PlacementAdvice(Record):
    """A placement of all models.

    Attributes:
        duty: For each accelerator, without margin.
        watts: Net power of all models; ``None`` if GPU use is minimised, and ``gpu`` otherwise.
        used: Largest of latency over deadline and of duty, with margin; at most 1 if feasible.
    """

    models: tuple[PlacedModel, ...]
    duty: dict[Device, NonNegativeFloat]
    watts: Figure | None = None
    gpu: Figure | None = None
    used: NonNegativeFloat


class Violation(Record):
    """A limit that is exceeded.

    Attributes:
        needs: Seconds or share of time, with margin.
        is_alone: Whether the model exceeds it with every accelerator to itself.
    """

    kind: Literal["latency", "duty"]
    models: tuple[str, ...]
    device: Device
    needs: NonNegativeFloat
    limit: NonNegativeFloat
    over_ratio: NonNegativeFloat
    is_alone: bool = False
    sentence: str


class NextMeasurement(Record):
    """A missing measurement, and whether a plausible outcome of it would change the advice."""

    could_change: bool
    sentence: str
    command: str


class ResultFinding(Record):
    """A reason in the results for lost time or energy."""

    name: FindingName
    model: str
    device: Device
    sentence: str
    remedy: str


class Advice(Record):
    """The best accelerator for each model.

    Attributes:
        margin: By which latency and duty were taken as larger.
        sources: Results, oldest first.
        evaluated: The others of all ``placements`` are proven worse or infeasible.
        chosen: The best; ``None`` if none is feasible.
        ties: Others whose difference to it has a 95 % interval that includes 0.
        runner_up: The best that does not tie.
        runner_up_gap: By how much that is worse, in watts or as a share of the GPU.
        violations: Limits that ``closest_infeasible`` exceeds, if no placement is feasible.
        measure_next: Missing measurements; those that could change the advice come first.
    """

    schema_version: Literal[1] = SCHEMA_VERSION
    tegrascope: str
    is_simulated: bool = False
    is_partial: bool = False
    minimise: Objective
    margin: NonNegativeFloat
    board: str | None = None
    power_mode: str | None = None
    demands: tuple[Demand, ...]
    sources: tuple[str, ...]
    placements: PositiveInt
    evaluated: NonNegativeInt
    chosen: PlacementAdvice | None = None
    ties: tuple[PlacementAdvice, ...] = ()
    runner_up: PlacementAdvice | None = None
    runner_up_gap: Figure | None = None
    all_on_gpu: PlacementAdvice | None = None
    violations: tuple[Violation, ...] = ()
    closest_infeasible: PlacementAdvice | None = None
    assumed: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    findings: tuple[ResultFinding, ...] = ()
    measure_next: tuple[NextMeasurement, ...] = ()

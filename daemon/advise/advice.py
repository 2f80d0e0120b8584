"""What is advised, as one record: ``--json`` prints it, the table is made of it."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.records import Record
from ..measure.run_report import Device
from ..results.records import Figure
from .demand import Demand
from .problem import Objective

# Raised whenever a key changes its meaning or goes; new keys may come at any time.
SCHEMA_VERSION: Literal[1] = 1


class PlacedModel(Record):
    """A model of a placement.

    Attributes:
        name: Of the model.
        device: Where it is to run.
        variant: In which form, where that is not the usual: ``int8``, ``batch 4`` ….
        like: The accelerator whose figures were taken, where this one was not measured.
        latency_seconds: 99th percentile beside the others, without margin.
        deadline_seconds: What it has.
        duty: Share of time that it needs alone.
        joules_per_input: Net energy, alone; ``None`` where it is not known.
        source: Result that this rests on.
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
        models: In the order asked for.
        duty: Of each accelerator, without margin.
        watts: Net power of all of it; ``None`` where GPU use is minimised.
        gpu: Share of the GPU; ``None`` where energy is minimised.
        used: Largest of latency over deadline and of duty, with margin; above 1 it can't be.
    """

    models: tuple[PlacedModel, ...]
    duty: dict[Device, NonNegativeFloat]
    watts: Figure | None = None
    gpu: Figure | None = None
    used: NonNegativeFloat


class Shortfall(Record):
    """What can't be met.

    Attributes:
        what: ``latency`` of a model, or ``duty`` of an accelerator.
        models: Whose.
        device: Where.
        needs: Seconds or share of time, with margin.
        limit: What there is.
        over_ratio: How much that is too much: 0.2 is a fifth.
        is_alone: Whether the model misses it with every accelerator to itself.
        sentence: The same in words.
    """

    what: Literal["latency", "duty"]
    models: tuple[str, ...]
    device: Device
    needs: NonNegativeFloat
    limit: NonNegativeFloat
    over_ratio: NonNegativeFloat
    is_alone: bool = False
    sentence: str


class NextMeasurement(Record):
    """A measurement that is missing.

    Attributes:
        could_change: Whether what it may plausibly find would change the advice.
        sentence: What it would have to find, with the numbers.
        command: That measures it.
    """

    could_change: bool
    sentence: str
    command: str


class Finding(Record):
    """Something in the results that costs time or energy.

    Attributes:
        name: ``int8_slower``, ``enqueue_bound``, ``copy_bound``, ``fallback_heavy`` or
            ``thermally_limited``.
        model: Whose.
        device: Where.
        sentence: What is so, with the numbers behind it.
        mend: What to do about it.
    """

    name: str
    model: str
    device: Device
    sentence: str
    mend: str


class Advice(Record):
    """Which accelerator for which model.

    Attributes:
        schema_version: Of this document.
        tegrascope: Version that wrote it.
        is_simulated: Whether any figure is of no real accelerator.
        is_partial: Whether a result was of an interrupted bench.
        minimise: What was to be least.
        margin: By which latency and duty were taken as larger.
        board: Where all of it was measured.
        power_mode: In which mode.
        demands: What was asked for.
        sources: Results, oldest first.
        placements: How many there are in all.
        looked_at: How many the search looked at; the others are proven worse or impossible.
        chosen: The best; ``None`` where none can be.
        ties: Others whose difference to it has a 95 % interval that holds 0.
        runner_up: The best that does not tie.
        runner_up_gap: By how much that is worse, in watts or as a share of the GPU.
        all_on_gpu: For comparison; ``None`` where not all models ran there.
        shortfalls: What can't be met, where none can be.
        least_bad: The placement to which those belong.
        assumed: What was assumed, a line each.
        measured: What was measured together, a line each.
        notes: What else is to be known of the results.
        ruled_out: What could not be chosen, and why.
        findings: What costs time or energy.
        measure_next: What is missing, what could change the advice first.
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
    looked_at: NonNegativeInt
    chosen: PlacementAdvice | None = None
    ties: tuple[PlacementAdvice, ...] = ()
    runner_up: PlacementAdvice | None = None
    runner_up_gap: Figure | None = None
    all_on_gpu: PlacementAdvice | None = None
    shortfalls: tuple[Shortfall, ...] = ()
    least_bad: PlacementAdvice | None = None
    assumed: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    measure_next: tuple[NextMeasurement, ...] = ()

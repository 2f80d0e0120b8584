"""What models do to each other when they run at once: the ``contention`` key of ``result.json``."""

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.records import Ratio, Record
from ..measure.run_report import Device, Distribution, Energy, RunReport, Span
from .measured import BenchFlag, Figure, Status


class Placed(Record):
    """A model on an accelerator.

    Attributes:
        model: As given.
        device: The accelerator.
    """

    model: str
    device: Device


class LaneTogether(Placed):
    """One model among those that ran at once, in the windows in which all of them did.

    Attributes:
        latency: By the host clock, of the inferences of all rounds that lie within a joint window.
        latency_seconds: Median: the mean of the rounds' medians.
        throughput_per_second: Inputs a second.
        slowdown: Median latency over that of the same model alone on the same accelerator, of
            the same round; ``None`` for a model that ran alone.
        tail_slowdown: The same of the 99th percentile of all rounds.
        throughput_ratio: Throughput over that alone.
        marginal_watts: Net power of the module with this model on less that with it off, all else
            as it was: what it adds, the speed that it takes from the others included.
        marginal_joules_per_inference: The same by inference.
    """

    latency: Distribution | None = None
    latency_seconds: Figure | None = None
    throughput_per_second: Figure | None = None
    slowdown: Figure | None = None
    tail_slowdown: NonNegativeFloat | None = None
    throughput_ratio: Figure | None = None
    marginal_watts: Figure | None = None
    marginal_joules_per_inference: Figure | None = None


class Together(Record):
    """Models that ran at once, each on its accelerator; one alone is measured likewise.

    Attributes:
        lanes: Who ran; energy is that of all of them, and never split.
        status: ``ok``, or why there are no figures.
        reason: One line, for every status but ``ok``.
        rounds: How many there were.
        seconds: Mean length of a joint window.
        gross_joules: All that the module drew in a joint window.
        net_joules: The same less what it draws with all of these models loaded and idle.
        gross_watts: Mean power of the module in them.
        net_watts: The same less that of the idle.
        excess_watts: Net power less what the same inferences cost alone: what running at once
            costs, or saves; ``None`` for a model that ran alone.
        utilization: Mean load by signal.
        is_steady: Whether the rounds agree.
        flags: Flag to the number of rounds in which a run bears it.
    """

    lanes: tuple[LaneTogether, ...]
    status: Status
    reason: str | None = None
    rounds: NonNegativeInt = 0
    seconds: NonNegativeFloat | None = None
    gross_joules: Figure | None = None
    net_joules: Figure | None = None
    gross_watts: Figure | None = None
    net_watts: Figure | None = None
    excess_watts: Figure | None = None
    utilization: dict[str, Figure] = {}
    is_steady: bool | None = None
    flags: dict[BenchFlag, PositiveInt] = {}


class JointRound(Record):
    """One stretch of time in which some of the models ran.

    Attributes:
        turn: Of which pass through all of them; what has the same is held against each other.
        lanes: Who ran.
        window: In which all of them were in their steady phase; ``None`` where there is none.
        inferences: Of each lane, started and completed in the window.
        energy: Of the module in the window, of all lanes together.
        load: Mean load by signal in the window.
        runs: As the daemon would have recorded each lane's, whole.
    """

    turn: NonNegativeInt
    lanes: tuple[Placed, ...]
    window: Span | None = None
    inferences: tuple[NonNegativeInt, ...] = ()
    energy: Energy | None = None
    load: dict[str, Ratio] = {}
    runs: tuple[RunReport, ...] = ()


class Contention(Record):
    """Models on accelerators, alone and at once.

    Attributes:
        planned_seconds: How long it was said to take.
        together: Each alone and all placements, in the order of the first pass.
        rounds: Every round, in the order of time.
    """

    planned_seconds: NonNegativeFloat
    together: tuple[Together, ...] = ()
    rounds: tuple[JointRound, ...] = ()

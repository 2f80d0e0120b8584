"""How near a run came to what its accelerator and its memory can do at the measured clocks."""

from typing import TYPE_CHECKING, Literal, NamedTuple

from ...parsers.inference.placement import Precision
from ...parsers.peaks import Peak, PeakOf, find_peak
from ...parsers.values import DLAS
from .report import Environment, Possible, RunTelemetry
from .trace import RunTrace

if TYPE_CHECKING:
    from ...parsers.onnx.costs import ModelWork

# Fastest first: the peak of an engine is that of the fastest type in which a layer of it computes.
_TYPES: tuple[tuple[Precision, tuple[str, ...]], ...] = (
    ("int8", ("int8",)),
    ("fp16", ("fp16", "bf16")),
    ("fp32", ("fp32",)),
)
_WHOLE_ON_DLA = ("pure_dla", "dla_plus_reformat")


class PeaksOfRun(NamedTuple):
    """The peaks that hold for a run; each ``None`` if no source states it.

    ``precision`` is that of the engine; ``None`` if it is not known.
    """

    precision: Precision | None
    compute: Peak | None
    memory: Peak | None


def limits_of(trace: RunTrace, environment: Environment) -> PeaksOfRun | None:
    """Return the peaks that hold for a run; ``None`` without any.

    Only GPU and DLA have them, and not a body with its head, which are on two accelerators.
    """
    if trace.device not in ("gpu", *DLAS) or trace.head is not None:
        return None
    part, mode = environment.module, environment.power_mode
    memory = find_peak(part, mode, "memory")
    precision = _precision(trace)
    compute: Peak | None = None
    if precision is not None and trace.built is not None:
        on: PeakOf = "gpu"
        if trace.device in DLAS:
            on = "dla"
        # The GPU's share of the work of a mixed engine is not known.
        if on == "gpu" or trace.built.placement.verdict in _WHOLE_ON_DLA:
            compute = find_peak(part, mode, on, precision)
    if compute is None and memory is None:
        return None
    return PeaksOfRun(precision, compute, memory)


def possible_of(
    trace: RunTrace,
    limits: PeaksOfRun,
    board: RunTelemetry | None,
    work: "ModelWork | None",
    per_second: float,
    units_per_second: float | None,
) -> tuple[Possible | None, bool]:
    """Return the shares of a run, and whether one is above its bound, and so left out.

    A server reads its weights once for the next token of all answers that are in flight.

    Args:
        work: Work of an inference; ``None`` if the model is not known.
        per_second: Inferences per second; ``units_per_second`` are those of the workload's unit.
    """
    flops_per_second, bytes_per_second = _done(trace, work, per_second, units_per_second)
    flops_per_byte: float | None = None
    if flops_per_second is not None and bytes_per_second:
        flops_per_byte = flops_per_second / bytes_per_second
    of_peak, peak = _share(flops_per_second, limits.compute, board, trace.device)
    of_bandwidth, bandwidth = _share(bytes_per_second, limits.memory, board, "emc")
    if of_peak is None and of_bandwidth is None:
        return None, False
    bound: Literal["compute", "memory"] | None = None
    if flops_per_second is None or (of_peak is not None and of_bandwidth is not None):
        bound = "compute" if (of_peak or 0.0) > (of_bandwidth or 0.0) else "memory"
    possible = Possible(
        precision=limits.precision,
        flops_per_second=flops_per_second,
        bytes_per_second=bytes_per_second,
        flops_per_byte=flops_per_byte,
        peak_flops_per_second=peak,
        peak_bytes_per_second=bandwidth,
        bound=bound,
        peak_ratio=_believed(of_peak),
        bandwidth_ratio=_believed(of_bandwidth),
    )
    return possible, max(of_peak or 0.0, of_bandwidth or 0.0) > 1.0


def _done(
    trace: RunTrace, work: "ModelWork | None", per_second: float, units_per_second: float | None
) -> tuple[float | None, float | None]:
    """Return operations and bytes per second, as far as they are known."""
    if work is not None and work.flops:
        moved = work.moved_bytes * per_second if work.moved_bytes else None
        return work.flops * per_second, moved
    if trace.weight_bytes is None or units_per_second is None:
        return None, None
    in_flight = 1 if trace.built is None else trace.built.streams
    return None, trace.weight_bytes * units_per_second / in_flight


def _share(
    per_second: float | None, peak: Peak | None, board: RunTelemetry | None, clock: str
) -> tuple[float | None, float | None]:
    """Return the share of a peak at the mean clock of the window, and that peak."""
    if peak is None:
        return None, None
    hertz: float | None = None
    if board is not None and clock in board.frequency:
        hertz = board.frequency[clock].mean_hertz
    most = peak.at(hertz)
    if per_second is None:
        return None, most
    return per_second / most, most


def _believed(share: float | None) -> float | None:
    """Return a share that is possible; more is an error of the count or of the peak."""
    if share is None or share > 1.0:
        return None
    return share


def _precision(trace: RunTrace) -> Precision | None:
    """Return the fastest type in which a layer computes, or the one that was asked for.

    The inspector does not look into a subgraph of the DLA: there, what was asked for comes first.
    """
    built = trace.built
    if built is None:
        return None
    if trace.device in DLAS and built.requested_precision is not None:
        return built.requested_precision
    for precision, types in _TYPES:
        if not built.layer_types.keys().isdisjoint(types):
            return precision
    return built.requested_precision

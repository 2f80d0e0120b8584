"""The table of one model, row by row, as the terminal and the page both show it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..measure.dla import POWERED, SOURCES
from .measured import Figure
from .result import AcceleratorResult, Check, GoalResult, ModelResult
from .words import joules, percent, points, rate, seconds, with_half

NOTHING = "–"


@dataclass(frozen=True)
class Row:
    """One figure of all accelerators.

    Attributes:
        label: What it is.
        cells: One an accelerator; ``NOTHING`` where it is not known.
    """

    label: str
    cells: tuple[str, ...]


def rows_of(results: Sequence[AcceleratorResult]) -> list[Row]:
    """Return the rows of a model; one of which no accelerator knows anything is left out."""
    made = [Row(label, tuple(read(one) or NOTHING for one in results)) for label, read in _ROWS]
    return [row for row in made if any(cell != NOTHING for cell in row.cells)]


def compared(model: ModelResult) -> list[GoalResult]:
    """Return the goals for which there were two to compare."""
    return [goal for goal in model.goals if goal.difference is not None]


def grouped(checks: Sequence[Check]) -> list[tuple[str, str]]:
    """Return whose figures and what is to be said of them, the same words only once."""
    told: dict[str, list[str]] = {}
    for check in checks:
        told.setdefault(f"{check.sentence}: {check.mend}", []).append(check.device or "")
    return [(", ".join(filter(None, whose)), words) for words, whose in told.items()]


def remarks(model: ModelResult) -> list[tuple[str, str]]:
    """Return whose and what: why there are no figures, and what the builds left to be said."""
    told: list[tuple[str, str]] = []
    told += [(one.device, one.reason) for one in model.accelerators if one.reason]
    told += [
        (one.device, note)
        for one in model.accelerators
        for note in (one.built.notes if one.built is not None else ())
    ]
    told += [(one.device, one.nsys_problem) for one in model.accelerators if one.nsys_problem]
    return told


def is_headline(result: AcceleratorResult) -> bool:
    """Tell whether the figures of a column may be taken at face value."""
    return result.may_win and result.rounds > 0


def _figure(
    read: Callable[[AcceleratorResult], Figure | None], say: Callable[[float], str]
) -> Callable[[AcceleratorResult], str | None]:
    def cell(result: AcceleratorResult) -> str | None:
        figure = read(result)
        return None if figure is None else with_half(figure, say)

    return cell


def _tail(name: str) -> Callable[[AcceleratorResult], str | None]:
    def cell(result: AcceleratorResult) -> str | None:
        found = result.latency
        return None if found is None else seconds(getattr(found, f"{name}_seconds"))

    return cell


def _device(result: AcceleratorResult) -> str | None:
    found = result.device_latency
    return None if found is None else seconds(found.p50_seconds)


def _load(signal: str) -> Callable[[AcceleratorResult], str | None]:
    def cell(result: AcceleratorResult) -> str | None:
        figure = result.utilization.get(signal)
        return None if figure is None else percent(figure.value)

    return cell


def _dla(result: AcceleratorResult) -> str | None:
    """Say what is known of the DLA cores: a load by its truest source, else whether one was on."""
    loads = {}
    for source in reversed(SOURCES):
        for name, figure in result.utilization.items():
            core, _, said_by = name.partition(":")
            ours = core == result.device or not result.device.startswith("dla")
            if said_by == source and ours:
                loads[core] = f"{core} {percent(figure.value)}"
    told = [loads[core] for core in sorted(loads)]
    if told or not result.device.startswith("dla"):
        return ", ".join(told) or None
    gate = result.dla_active.get(result.device)
    if gate is not None:
        return f"on {percent(gate)} of the time"
    time = result.utilization.get(f"{result.device}:{POWERED}")
    return None if time is None else f"powered {percent(time.value)} of the time"


def _freed(result: AcceleratorResult) -> str | None:
    return None if result.gpu_freed is None else points(result.gpu_freed.value)


def _hottest(result: AcceleratorResult) -> str | None:
    if result.hottest_celsius is None:
        return None
    return f"{result.hottest_celsius:.1f} °C {result.hottest_zone}"


def _layers(result: AcceleratorResult) -> str | None:
    placement = None if result.built is None else result.built.placement
    if placement is None or placement.verdict == "unknown":
        return None
    counts = (
        (len(placement.dla_layers), "DLA"),
        (len(placement.gpu_layers), "GPU"),
        (len(placement.reformat_layers), "reformat"),
    )
    return ", ".join(f"{count} {name}" for count, name in counts if count) or None


def _precision(result: AcceleratorResult) -> str | None:
    built = result.built
    if built is None:
        return None
    counted = sorted(built.layer_types.items(), key=lambda pair: -pair[1])
    made = ", ".join(f"{name} {count}" for name, count in counted[:3])
    asked = built.requested_precision
    if not made:
        return asked and f"{asked} asked"
    return made if asked is None else f"{made} ({asked} asked)"


def _launched(result: AcceleratorResult) -> str | None:
    """Say how an inference is started: the same engine is faster in one way than in another."""
    built = result.built
    if built is None or built.has_cuda_graph is None:
        return None
    words = ["CUDA graph" if built.has_cuda_graph else "layer by layer"]
    if built.has_transfers is not None:
        words.append("with copies" if built.has_transfers else "without copies")
    return ", ".join(words)


def _cold(result: AcceleratorResult) -> str | None:
    parts = result.cold_start_seconds
    if not parts:
        return None
    build = f", build {seconds(parts['build'])}" if "build" in parts else ""
    return seconds(sum(parts.values())) + build


def _memory(name: str) -> Callable[[AcceleratorResult], str | None]:
    def cell(result: AcceleratorResult) -> str | None:
        size = getattr(result, name)
        return None if size is None else f"{size / (1 << 20):.0f} MiB"

    return cell


def _answers(result: AcceleratorResult) -> str | None:
    found = result.outputs
    if found is None:
        return None
    words = {"good": "right", "wrong": "WRONG", "unchecked": "not checked"}
    return words.get(found.verdict, "the reference")


def _off(result: AcceleratorResult) -> str | None:
    found = result.outputs
    if found is None or found.relative_error is None:
        return None
    return f"{found.relative_error:.2g} (limit {found.limit})"


def _top1(result: AcceleratorResult) -> str | None:
    found = result.outputs
    return None if found is None or found.top1_agreement is None else percent(found.top1_agreement)


def _flags(result: AcceleratorResult) -> str | None:
    names = [
        flag if count >= result.rounds else f"{flag} ({count}/{result.rounds})"
        for flag, count in result.flags.items()
    ]
    return "\n".join(names) or ("none" if result.rounds else None)


def _status(result: AcceleratorResult) -> str | None:
    return None if result.status == "ok" else result.status


_ROWS: tuple[tuple[str, Callable[[AcceleratorResult], str | None]], ...] = (
    ("status", _status),
    ("back-end", lambda one: one.backend),
    ("latency p50", _figure(lambda one: one.latency_seconds, seconds)),
    ("latency p90", _tail("p90")),
    ("latency p99", _tail("p99")),
    ("latency max", _tail("max")),
    ("device span p50", _device),
    ("throughput", _figure(lambda one: one.throughput_per_second, rate)),
    ("energy by inference, gross", _figure(lambda one: one.gross_joules_per_inference, joules)),
    (
        "  the same by its own counter",
        _figure(lambda one: one.counter_joules_per_inference, joules),
    ),
    ("energy by inference, net", _figure(lambda one: one.net_joules_per_inference, joules)),
    ("module power", _figure(lambda one: one.mean_watts, lambda watts: f"{watts:.2f} W")),
    ("GPU load", _load("gpu")),
    ("GPU freed", _freed),
    ("DLA load", _dla),
    ("memory load (EMC)", _load("emc")),
    ("CPU load", _load("cpu")),
    ("hottest", _hottest),
    ("placement", lambda one: one.placement),
    ("  its layers", _layers),
    ("built as", _precision),
    ("launched", _launched),
    ("cold start", _cold),
    ("memory of the worker", _memory("process_peak_bytes")),
    ("memory of the device", _memory("device_peak_bytes")),
    ("answers", _answers),
    ("  relative error", _off),
    ("  same top class", _top1),
    ("rounds", lambda one: str(one.rounds) if one.rounds else None),
    ("flags", _flags),
    ("timeline", lambda one: one.nsys_report),
)

"""A benchmark's result as a document: the same rows for the terminal and for ``report.html``."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ...collectors.models.files import BUILTIN_PREFIX
from ...daemon.measure.blocks import Block as SampleBlock
from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.dla import POWERED, SOURCES
from ...daemon.measure.report import Environment, LockInReport, RunReport
from ...daemon.measure.run_text import (
    ABSENT,
    celsius,
    digits,
    joules,
    mebibytes,
    percent,
    points,
    rate,
    seconds,
    shown,
    watts,
    with_half,
)
from ...daemon.terminal import duration
from ...parsers.values import DLAS
from .document import Block, Facts, Heading, Items, Place, Table, Text, print_document
from .layers import layer_blocks
from .records import (
    AcceleratorResult,
    BenchResult,
    Caveat,
    Contention,
    Figure,
    LaneTogether,
    ModelResult,
    Placed,
    Together,
)
from .saved_page import SIMULATED_NOTICE, flag_blocks, html_page, runs_table, timeline_of
from .sweep_page import sweep_blocks

Samples = Callable[[int, int], WindowSlice]
_Read = Callable[[AcceleratorResult], str | None]
SIMULATED_TITLE = "SIMULATED: these figures are not from a real accelerator"
_INTERRUPTED = "It was interrupted: this is what was measured until then."


class Beside(NamedTuple):
    """A published result of a model on a device: its figure by the row's label, and a sentence.

    Without a figure the sentence is the reason.
    """

    model: str
    device: str
    sentence: str
    label: str | None = None
    figure: str = ABSENT


def print_result(
    result: BenchResult, published: Sequence[Beside] = (), stream: TextIO | None = None
) -> None:
    """Print a table of each model, the winners, and what to know of the figures."""
    blocks: list[Block] = []
    for model in result.models:
        blocks.append(Heading(_title(model, result)))
        if model.sweep is not None:
            blocks += sweep_blocks(model.sweep, result.settings)
            continue
        found = [one for one in published if one.model == model.model]
        blocks += [_table(model, found), *_remarks(model)]
        blocks += [_winners(model), _published(found), _grouped(model.checks)]
        blocks += layer_blocks(model.accelerators, is_page=False)
    if result.contention is not None:
        table, lines, about = _contention(result.contention)
        blocks += [Heading("Together"), *table, lines, about]
    blocks.append(_grouped(result.checks))
    if result.is_partial:
        blocks.append(Text(_INTERRUPTED))
    if result.telemetry_problem is not None:
        blocks.append(Text(f"no energy, no loads: {result.telemetry_problem}"))
    print_document(blocks, stream)


def report_page(result: BenchResult, samples: Samples, published: Sequence[Beside] = ()) -> str:
    """Return ``report.html``; ``samples`` returns those between two times."""
    names = ", ".join(model.model for model in result.models)
    began = datetime.fromtimestamp(result.started_wall_ns / 1e9, timezone.utc)
    took = duration((result.ended_wall_ns - result.started_wall_ns) / 1e9)
    blocks: list[Block] = [
        Heading(names, 1),
        Text(f"Measured {began:%Y-%m-%d %H:%M} UTC, in {took}", "under"),
        *_if(result.is_simulated, Text(SIMULATED_NOTICE, "notice")),
        *_if(result.is_partial, Text(_INTERRUPTED, "notice")),
    ]
    for model in result.models:
        if model.sweep is not None:
            blocks.append(Heading(model.model))
            blocks += sweep_blocks(model.sweep, result.settings, is_page=True)
            continue
        winners = _winners(model)
        heading = "Which one?" if winners.items else "Figures"
        blocks.append(Heading(model.model if len(result.models) > 1 else heading))
        found = [one for one in published if one.model == model.model]
        blocks += [*_if(winners.items, winners), _table(model, found), *_remarks(model)]
        blocks += _if(found, Heading("Beside published results", 3), _published(found))
        blocks += _if(model.checks, Heading("Caveats", 3), _grouped(model.checks))
        blocks += layer_blocks(model.accelerators, is_page=True)
    if result.contention is not None:
        table, lines, about = _contention(result.contention)
        blocks += [Heading("Together"), about, *table, lines]
    blocks += [Heading("Where and how"), Facts(_facts(result))]
    blocks += _if(result.checks, _grouped(result.checks))
    rounds = [one for model in result.models for one in model.rounds]
    timeline = None
    if rounds:
        timeline = _timeline(rounds, samples)
        blocks += [Heading("Over time"), Text(_ROUNDS, "under"), Place("timeline")]
        blocks += [Heading("Rounds"), runs_table(rounds), *flag_blocks(rounds), Place("run")]
    window = f"{names}: tegrascope bench"
    return html_page(window, blocks, version=result.tegrascope, runs=rounds, timeline=timeline)


_ROUNDS = (
    "Each band is a round: the darker part is the steady phase, the lighter ones are idle with the"
    " model loaded. Times are in UTC."
)


def _timeline(rounds: Sequence[RunReport], samples: Samples) -> dict[str, Any]:
    """Return the telemetry of all rounds and between them."""
    rounds = sorted(rounds, key=lambda run: run.started_ns)
    begin_ns, end_ns = rounds[0].started_ns, rounds[-1].ended_ns
    cut = samples(begin_ns, end_ns)
    # One offset for all, since the wall clock may be set during a benchmark.
    offset_ns = rounds[0].started_wall_ns - begin_ns
    wall_ns = array("q", (time_ns + offset_ns for time_ns in cut.times_ns))
    blocks = iter([SampleBlock("bench", cut.times_ns, wall_ns, cut.columns)])
    return timeline_of(
        blocks, rounds, begin_ns + offset_ns, end_ns + offset_ns, offset_ns=offset_ns
    )


def _if(condition: object, *blocks: Block) -> tuple[Block, ...]:
    return blocks if condition else ()


def _title(model: ModelResult, result: BenchResult) -> str:
    batch = f", batch {result.settings.batch}" if result.settings.batch > 1 else ""
    simulated = f" · {SIMULATED_TITLE}" if result.is_simulated else ""
    return f"{model.model}{batch}{simulated}{' · interrupted' if result.is_partial else ''}"


def _winners(model: ModelResult) -> Items:
    """Return the goals for which there were two accelerators to compare."""
    split = (goal.sentence.partition(": ") for goal in model.goals if goal.difference is not None)
    return Items([(title, words) for title, _, words in split])


def _published(found: Sequence[Beside]) -> Items:
    return Items([(one.device, one.sentence) for one in found])


def _grouped(caveats: Sequence[Caveat]) -> Items:
    """Return devices and words, the same words only once."""
    devices: dict[str, list[str]] = {}
    for one in caveats:
        devices.setdefault(f"{one.sentence}: {one.remedy}", []).append(one.device or "")
    found = [(", ".join(filter(None, names)), words) for words, names in devices.items()]
    return Items(found, mark="! ")


def _remarks(model: ModelResult) -> list[Block]:
    """Return why figures are missing, and notes of the builds."""
    every = model.accelerators
    found: list[tuple[str, str | None]] = [(one.device, one.reason) for one in every]
    found += [(one.device, note) for one in every if one.built for note in one.built.notes]
    found += [
        (one.device, f"no CUDA graph: {one.built.why_no_graph}")
        for one in every
        if one.built and one.built.why_no_graph
    ]
    found += [(one.device, one.nsys_problem) for one in every]
    return [Text(f"{device}: {words}") for device, words in found if words]


def _facts(result: BenchResult) -> dict[str, str | None]:
    environment, settings = result.environment, result.settings
    level, sharing = settings.optimization_level, settings.process.model_dump(exclude_defaults=True)
    asked = (
        *(settings.precision, f"fallback {settings.fallback}", settings.backend),
        f"optimisation level {'as TensorRT chooses' if level is None else level}",
        f"{settings.streams} stream{'s' * (settings.streams > 1)}",
        *(f"{name} {one.text}" for name, one in settings.shapes.items()),
        *(f"plug-ins of {Path(path).name}" for path in settings.plugins),
        None if settings.cuda_graph else "no CUDA graph",
        None if settings.transfers else "no copies of inputs and outputs",
        *(f"{name} {value}" for name, value in sharing.items()),
    )
    return {
        **board_facts(environment),
        "telemetry": result.telemetry_problem or environment.telemetry_source,
        "before it began": ", ".join(
            f"{name.upper()} {100 * ratio:.0f} % busy" for name, ratio in result.background.items()
        ),
        "a round": (
            f"{settings.duration_seconds:g} s steady, {settings.baseline_seconds:g} s idle before"
            f" and after, batch {settings.batch}"
        ),
        "asked for": ", ".join(filter(None, asked)),
        "model SHA-256": ", ".join(filter(None, (one.model_sha256 for one in result.models))),
        "versions": versions_line(result.versions),
    }


def board_facts(environment: Environment) -> dict[str, str | None]:
    """Return names and values of the board and its software."""
    names = ("board", "module", "L4T", "JetPack", "power mode")
    return {name: getattr(environment, name.lower().replace(" ", "_")) for name in names}


def versions_line(versions: Mapping[str, str]) -> str:
    """Return libraries and their versions, sorted by name."""
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions))


# --- the table of one model -----------------------------------------------------------------------


def rows_of(results: Sequence[AcceleratorResult]) -> dict[str, tuple[str, ...]]:
    """Return label and one cell per accelerator; rows without any known cell are left out."""
    made = {label: tuple(read(one) or ABSENT for one in results) for label, read in ROWS.items()}
    known = {label: cells for label, cells in made.items() if any(c != ABSENT for c in cells)}
    if set(known["status"]) == {_MEASURED}:
        del known["status"]
    return known


def _table(model: ModelResult, found: Sequence[Beside]) -> Table:
    rows: dict[str, tuple[str, ...]] = {}
    for label, cells in rows_of(model.accelerators).items():
        rows[label] = cells
        known = {one.device: one for one in found if one.label == label}
        if known:
            nearest = (known.get(one.device) for one in model.accelerators)
            cells = tuple(one.figure if one else ABSENT for one in nearest)
            rows[f"  published {label.split()[-1]}"] = cells
    # Speed and energy of an accelerator that failed or has wrong outputs.
    doubtful = {
        (number, column)
        for number, (label, cells) in enumerate(rows.items())
        if label.startswith(("latency", "device span", "throughput", "energy"))
        for column, (cell, one) in enumerate(zip(cells, model.accelerators, strict=True), start=1)
        if cell != ABSENT and not (one.may_win and one.rounds)
    }
    return Table(
        ["", *(one.device for one in model.accelerators)],
        [(label, *cells) for label, cells in rows.items()],
        doubtful=frozenset(doubtful),
    )


def _figure(name: str, show: Callable[[float], str]) -> _Read:
    return lambda one: with_half(getattr(one, name), show)


def _tail(name: str) -> _Read:
    return lambda one: shown(one.latency, lambda found: seconds(getattr(found, f"{name}_seconds")))


def _load(signal: str) -> _Read:
    return lambda one: shown(one.utilization.get(signal), lambda load: percent(load.value))


def _dla(result: AcceleratorResult) -> str | None:
    """Return each core's load by its most reliable source, else the share of time it was on."""
    is_dla = result.device in DLAS
    loads = {}
    for source in reversed(SOURCES):
        for name, figure in result.utilization.items():
            core, _, by = name.partition(":")
            if by == source and (core == result.device or not is_dla):
                loads[core] = f"{core} {percent(figure.value)}"
    if loads or not is_dla:
        return ", ".join(loads[core] for core in sorted(loads)) or None
    gate = result.dla_active.get(result.device)
    if gate is not None:
        return f"on {percent(gate)} of the time"
    powered = result.utilization.get(f"{result.device}:{POWERED}")
    return None if powered is None else f"powered {percent(powered.value)} of the time"


def _layers(result: AcceleratorResult) -> str | None:
    placement = None if result.built is None else result.built.placement
    if placement is None or placement.verdict == "unknown":
        return None
    layers = {
        "DLA": placement.dla_layers,
        "GPU": placement.gpu_layers,
        "reformat": placement.reformat_layers,
    }
    return ", ".join(f"{len(names)} {name}" for name, names in layers.items() if names) or None


def _precision(result: AcceleratorResult) -> str | None:
    if result.built is None:
        return None
    counted = sorted(result.built.layer_types.items(), key=lambda pair: -pair[1])
    made = ", ".join(f"{name} {count}" for name, count in counted[:3])
    asked = result.built.requested_precision
    if asked is None or not made:
        return made or (asked and f"{asked} asked")
    return f"{made} ({asked} asked)"


def _launched(result: AcceleratorResult) -> str | None:
    """Return how an inference is started: the same engine is faster in one way than in another."""
    built = result.built
    if built is None or built.has_cuda_graph is None:
        return None
    copies = {None: "", True: ", with copies", False: ", without copies"}[built.has_transfers]
    return ("CUDA graph" if built.has_cuda_graph else "layer by layer") + copies


def _cold(result: AcceleratorResult) -> str | None:
    parts = result.cold_start_seconds
    if not parts:
        return None
    build = f", build {seconds(parts['build'])}" if "build" in parts else ""
    return seconds(sum(parts.values())) + build


_MEASURED = "measured"
_VERDICTS = {
    "good": "right",
    "wrong": "WRONG",
    "unchecked": "not checked",
    "meaningless": "not meaningful",
    "reference": "the reference",
}


def _right(name: str, show: Callable[[float], str] = percent) -> _Read:
    """Return what reads a figure of the labelled inputs."""

    def read(result: AcceleratorResult) -> str | None:
        found = None if result.outputs is None else result.outputs.accuracy
        value: float | None = getattr(found, name, None)
        return None if value is None else show(value)

    return read


def _flags(result: AcceleratorResult) -> str | None:
    names = [
        flag if count >= result.rounds else f"{flag} ({count}/{result.rounds})"
        for flag, count in result.flags.items()
    ]
    return "\n".join(names) or ("none" if result.rounds else None)


def _of_lock_in(found: LockInReport) -> str:
    """Return the mean energy in saturated operation, by lock-in, or the reason without one."""
    if found.joules_per_piece is None:
        return "withheld: " + (found.reason or ", ".join(found.problems))
    return with_half(found.joules_per_piece, joules)


ROWS: dict[str, _Read] = {
    "status": lambda one: _MEASURED if one.status == "ok" else one.status,
    "back-end": lambda one: one.backend,
    "latency p50": _figure("latency_seconds", seconds),
    "latency p90": _tail("p90"),
    "latency p99": _tail("p99"),
    "latency max": _tail("max"),
    "device span p50": lambda one: shown(one.device_latency, lambda t: seconds(t.p50_seconds)),
    "throughput": _figure("throughput_per_second", rate),
    "energy per inference, gross": _figure("gross_joules_per_inference", joules),
    "  the same by its own counter": _figure("counter_joules_per_inference", joules),
    "energy per inference, net": _figure("net_joules_per_inference", joules),
    "energy per inference, saturated": lambda one: shown(one.lock_in, _of_lock_in),
    "  its stages, alone": lambda one: "\n".join(
        f"{stage} {_of_lock_in(found)}" for stage, found in one.lock_in_stages.items()
    ),
    "module power": _figure("mean_watts", watts),
    "GPU load": _load("gpu"),
    "GPU freed": lambda one: shown(one.gpu_freed, lambda freed: points(freed.value)),
    "DLA load": _dla,
    "memory load (EMC)": _load("emc"),
    "CPU load": _load("cpu"),
    "hottest": lambda one: shown(one.hottest_celsius, lambda c: f"{celsius(c)} {one.hottest_zone}"),
    "placement": lambda one: one.placement,
    "  its layers": _layers,
    "built as": _precision,
    "launched": _launched,
    "cold start": _cold,
    "memory of the worker": lambda one: shown(one.process_peak_bytes, mebibytes),
    "memory of the device": lambda one: shown(one.device_peak_bytes, mebibytes),
    "outputs": lambda one: _VERDICTS[one.outputs.verdict] if one.outputs else None,
    "  relative error": lambda one: (
        f"{one.outputs.relative_error:.2g}"
        + ("" if one.outputs.limit is None else f" (limit {one.outputs.limit})")
        if one.outputs and one.outputs.relative_error is not None
        else None
    ),
    "  top-1 of the labels": _right("top1"),
    "    of the reference": _right("reference_top1"),
    "    largest loss that is right": _right("tolerance", points),
    "  top-5 of the labels": _right("top5"),
    "  same top class": lambda one: (
        shown(one.outputs.top1_agreement, percent) if one.outputs else None
    ),
    "rounds": lambda one: str(one.rounds) if one.rounds else None,
    "flags": _flags,
    "timeline": lambda one: one.nsys_report,
}


# --- models together ------------------------------------------------------------------------------


_EXPLAINED = (
    "Slowdown is median latency over that of the same model alone, round by round. What a model"
    " adds is the module's net power with it on less that with it off, the others running, in total"
    " and per inference. The energy of a window is that of all models in it: it is not split."
)


def name_of(model: str) -> str:
    """Return a model's short name.

    >>> name_of("nets/yolo.onnx"), name_of("builtin:resnet50")
    ('yolo', 'resnet50')
    """
    return Path(model.removeprefix(BUILTIN_PREFIX)).stem


def placed_name(placed: Placed) -> str:
    """Return model and accelerator."""
    return f"{name_of(placed.model)} on {placed.device}"


def _contention(contention: Contention) -> tuple[tuple[Table, ...], Items, Text]:
    """Return the table of all placements, a line on each, and an explanation."""
    placements = [one for one in contention.together if len(one.lanes) > 1]
    lanes = [(one, lane) for one in placements if one.status == "ok" for lane in one.lanes]
    flagged = [row for row, (one, _) in enumerate(lanes) if _flags_of(one)]
    table = Table(
        ("model", "p50", "slowdown", "at p99", "adds", "per inference"),
        [_cells(lane) for _, lane in lanes],
        doubtful=frozenset(product(flagged, range(1, 6))),
        ends=frozenset(row for row, (one, lane) in enumerate(lanes) if lane is one.lanes[-1]),
    )
    lines = Items([(" + ".join(map(placed_name, one.lanes)), _sentence(one)) for one in placements])
    nothing = "nothing was measured together: fewer than two models ran alone"
    about = Text(_EXPLAINED if contention.together else nothing, "under")
    return (table,) if lanes else (), lines, about


def _cells(lane: LaneTogether) -> tuple[str, ...]:
    times = "{:.2f}×".format
    return (
        placed_name(lane),
        shown(lane.latency_seconds, lambda figure: seconds(figure.value)),
        with_half(lane.slowdown, times),
        shown(lane.tail_slowdown, times),
        shown(lane.marginal_watts, _added),
        shown(lane.marginal_joules_per_inference, lambda figure: joules(figure.value)),
    )


def _added(figure: Figure) -> str:
    """Format a power that may be near zero: half its interval in watts, not in percent."""
    if figure.half is None:
        return watts(figure.value)
    return f"{figure.value:.2f} ± {digits(figure.half, 2)} W"


def _sentence(one: Together) -> str:
    if one.status != "ok":
        return f"{one.status}, {one.reason}"
    words = [f"{one.rounds} rounds of {digits(one.seconds or 0.0)} s"]
    energies = ((one.gross_joules, "gross for all"), (one.net_joules, "net"))
    words += [f"{with_half(figure, joules)} {kind}" for figure, kind in energies if figure]
    if one.excess_watts is not None:
        excess = one.excess_watts
        more = f"{digits(abs(excess.value), 2)} W {'more' if excess.value >= 0 else 'less'}"
        if excess.low is not None and excess.high is not None:
            more += f" ({digits(excess.low, 2)} to {digits(excess.high, 2)})"
        words.append(f"{more} than the same work alone")
    if _flags_of(one):
        words.append("flags " + " ".join(_flags_of(one)))
    if one.foreign_dla_processes:
        words.append("on a DLA: " + ", ".join(one.foreign_dla_processes))
    return ", ".join(words)


def _flags_of(one: Together) -> list[str]:
    """Return its flags but ``simulated``, which the title says of the whole document."""
    return sorted(flag for flag in one.flags if flag != "simulated")

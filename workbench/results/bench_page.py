"""A benchmark's result as a document: the same rows for the terminal and for ``report.html``."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ...collectors.models.files import BUILTIN_PREFIX
from ...daemon.measure.blocks import Block as SampleBlock
from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.report import Environment, RunReport
from ...daemon.measure.run_text import (
    ABSENT,
    digits,
    joules,
    seconds,
    shown,
    watts,
    with_half,
)
from ...daemon.measure.verdict_text import GoalOfRuns, Verdict, conclusion_of
from ...daemon.measure.winner import MeanOfRuns, judge
from ...daemon.terminal import duration
from ...parsers.values import DLAS
from .accelerator_rows import rows_of
from .document import Bars, Block, Facts, Heading, Items, ScriptArea, Table, Text, print_document
from .layers import layer_blocks
from .records import (
    BenchResult,
    BenchSettings,
    Caveat,
    Contention,
    Figure,
    GoalResult,
    LaneTogether,
    ModelResult,
    Placed,
    Together,
    held_in_words,
)
from .saved_page import SIMULATED_NOTICE, flag_blocks, html_page, runs_table, timeline_of
from .summary import GOALS
from .sustained import sustained_blocks
from .sweep_page import sweep_blocks

Samples = Callable[[int, int], WindowSlice]
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
        found = _published_of(model, published)
        blocks += [_table(model, found), *_remarks(model)]
        blocks += [_winners(model), *_looks(model)]
        blocks += [_published_items(found), *sustained_blocks(model), _grouped(model.checks)]
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
    blocks = _page_head(names, result)
    rounds: list[RunReport] = []
    for model in result.models:
        blocks += _model_blocks(model, result, published)
        rounds += model.rounds
    if result.contention is not None:
        table, lines, about = _contention(result.contention)
        blocks += [Heading("Together"), about, *table, lines]
    blocks += [Heading("Where and how"), Facts(_facts(result))]
    if result.checks:
        blocks.append(_grouped(result.checks))
    timeline = None
    if rounds:
        timeline = _timeline(rounds, samples)
        if timeline["series"]["parts"]:
            blocks += [Heading("Over time"), Text(_ROUNDS, "under"), ScriptArea("timeline")]
        blocks += [Heading("Rounds"), runs_table(rounds), *flag_blocks(rounds), ScriptArea("run")]
    window = f"{names}: tegrascope bench"
    return html_page(window, blocks, version=result.tegrascope, runs=rounds, timeline=timeline)


def _page_head(names: str, result: BenchResult) -> list[Block]:
    """Return the title, and what a reader must know before any figure."""
    began = datetime.fromtimestamp(result.started_wall_ns / 1e9, timezone.utc)
    took = duration((result.ended_wall_ns - result.started_wall_ns) / 1e9)
    measured = f"Measured {began:%Y-%m-%d %H:%M} UTC, in {took}"
    blocks: list[Block] = [Heading(names, 1), Text(measured, "under")]
    facts = board_facts(result.environment)
    asked = result.settings.precision or "not asked for"
    conditions = [facts["board"], facts["power mode"] and f"power mode {facts['power mode']}"]
    conditions += [f"batch {result.settings.batch}", f"precision {asked}"]
    blocks.append(Text(" · ".join(filter(None, conditions)), "under"))
    if result.is_simulated:
        blocks.append(Text(SIMULATED_NOTICE, "notice"))
    if result.is_partial:
        blocks.append(Text(_INTERRUPTED, "notice"))
    return blocks


def _model_blocks(
    model: ModelResult, result: BenchResult, published: Sequence[Beside]
) -> list[Block]:
    """Return what the page says of one model, apart from its rounds."""
    if model.sweep is not None:
        return [Heading(model.model), *sweep_blocks(model.sweep, result.settings, is_page=True)]
    winners, found = _winners(model), _published_of(model, published)
    blocks: list[Block] = []
    if len(result.models) > 1:
        blocks.append(Heading(model.model))
    elif winners.items:
        blocks.append(Heading("Which one?"))
    else:
        blocks.append(Heading("Figures"))
    conclusion = _conclusion(model)
    if conclusion is not None:
        blocks.append(Text(conclusion, "conclusion"))
    blocks += [*_bars(model), *_looks(model), _table(model, found), *_remarks(model)]
    blocks += sustained_blocks(model)
    if found:
        blocks += [Heading("Beside published results", 3), _published_items(found)]
    if model.checks:
        blocks += [Heading("Caveats", 3), _grouped(model.checks)]
    blocks += layer_blocks(model.accelerators, is_page=True)
    return blocks


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


def _title(model: ModelResult, result: BenchResult) -> str:
    title = model.model
    if result.settings.batch > 1:
        title += f", batch {result.settings.batch}"
    if result.is_simulated:
        title += f" · {SIMULATED_TITLE}"
    if result.is_partial:
        title += " · interrupted"
    return title


_GOAL_BY_NAME = {goal.name: goal for goal in GOALS}


def _winners(model: ModelResult) -> Items:
    """Return the goals for which there were two accelerators to compare."""
    winners = []
    for decided in model.goals:
        if decided.difference is not None:
            title = _GOAL_BY_NAME[decided.goal].title
            winners.append((title, decided.sentence.removeprefix(f"{title}: ")))
    return Items(winners)


def _looks(model: ModelResult) -> Iterator[Text]:
    """Yield whether and why the bench stopped early, if it might."""
    if model.looks is not None:
        yield Text(model.looks.sentence)


def _bars(model: ModelResult) -> Iterator[Bars]:
    """Yield each goal that was compared: the winner, and a bar per accelerator."""
    for decided in model.goals:
        goal = _GOAL_BY_NAME[decided.goal]
        if decided.difference is None:
            continue
        figures: dict[str, Figure] = {}
        for result in model.accelerators:
            figure = goal.read(result)
            if figure is not None and result.may_win:
                figures[result.device] = figure
        best_first = sorted(
            figures.items(), key=lambda pair: pair[1].value, reverse=goal.more_is_better
        )
        longest = max(abs(figure.value) for figure in figures.values()) or 1.0
        rows = []
        for device, figure in best_first:
            rows.append((device, with_half(figure, goal.show), max(0.0, figure.value) / longest))
        # What is freed has no bar: the bars are of the figure that decides.
        better = "longer is better" if goal.more_is_better else "shorter is better"
        # Results of older releases have their sentence alone.
        verdict = decided.verdict or decided.sentence
        yield Bars(f"{verdict} · {goal.figure}, {better}", rows, decided.grounds or "")


_SAME_GOALS: dict[str, GoalOfRuns] = {"latency": "latency", "energy": "energy", "gpu_freed": "gpu"}


def _conclusion(model: ModelResult) -> str | None:
    """Return the winners in the words of the status page, where a DLA core and the GPU are first.

    Between two DLA cores these words say nothing.
    """
    verdicts = []
    for decided in model.goals:
        goal = _GOAL_BY_NAME[decided.goal]
        same_goal = _SAME_GOALS.get(goal.name)
        values: dict[str, float] = {}
        for result in model.accelerators:
            figure = goal.read(result)
            if figure is not None and result.device in (decided.winner, decided.runner_up):
                values["dla" if result.device in DLAS else result.device] = figure.value
        if same_goal is None or values.keys() != {"gpu", "dla"}:
            continue
        verdict = Verdict(
            goal=same_goal,
            answer="first" if decided.winner == "gpu" else "second",
            better=decided.winner,
            dla_value=values["dla"],
            gpu_value=values["gpu"],
            less_on_dla=Figure(value=values["gpu"] - values["dla"]),
        )
        verdicts.append(verdict)
        if goal.name == "energy":
            verdicts += _gross_verdict(model, decided)
    return conclusion_of(verdicts)


def _gross_verdict(model: ModelResult, net: GoalResult) -> Iterator[Verdict]:
    """Yield the verdict on gross energy of the two that were compared by net energy."""
    sides: dict[str, MeanOfRuns] = {}
    for result in model.accelerators:
        figure = result.gross_joules_per_inference
        if figure is not None and result.device in (net.winner, net.runner_up):
            offset = result.offset_joules_per_inference or 0.0
            side = MeanOfRuns(figure, result.rounds, offset=offset)
            sides["gpu" if result.device == "gpu" else "dla"] = side
    if len(sides) < 2:
        return
    gap = sides["gpu"].less(sides["dla"])
    answer = judge(gap)
    yield Verdict(
        goal="gross_energy",
        answer=answer,
        better={"first": "gpu", "second": "dla"}.get(answer),
        dla_value=sides["dla"].mean.value,
        gpu_value=sides["gpu"].mean.value,
        less_on_dla=gap,
    )


def _published_of(model: ModelResult, published: Sequence[Beside]) -> list[Beside]:
    return [beside for beside in published if beside.model == model.model]


def _published_items(published: Sequence[Beside]) -> Items:
    return Items([(beside.device, beside.sentence) for beside in published])


def _grouped(caveats: Sequence[Caveat]) -> Items:
    """Return devices and words, the same words only once."""
    devices: dict[str, list[str]] = {}
    for caveat in caveats:
        names = devices.setdefault(f"{caveat.sentence}: {caveat.remedy}", [])
        if caveat.device:
            names.append(caveat.device)
    return Items([(", ".join(names), words) for words, names in devices.items()], mark="! ")


def _remarks(model: ModelResult) -> list[Block]:
    """Return why figures are missing, and notes of the builds."""
    reasons: list[str] = []
    builds: list[str] = []
    for result in model.accelerators:
        if result.reason:
            reasons.append(f"{result.device}: {result.reason}")
        if result.built is not None:
            for note in result.built.notes:
                builds.append(f"{result.device}: {note}")
            if result.built.why_no_graph:
                builds.append(f"{result.device}: no CUDA graph: {result.built.why_no_graph}")
    return [Text(remark) for remark in (*reasons, *builds)]


def _facts(result: BenchResult) -> dict[str, str | None]:
    environment, settings = result.environment, result.settings
    background = []
    for name, ratio in result.background.items():
        background.append(f"{name.upper()} {100 * ratio:.0f} % busy")
    checksums = []
    for model in result.models:
        if model.model_sha256 is not None:
            checksums.append(model.model_sha256)
    return {
        **board_facts(environment),
        "telemetry": result.telemetry_problem or environment.telemetry_source,
        "before it began": ", ".join(background),
        "a round": (
            f"{settings.duration_seconds:g} s steady, {settings.baseline_seconds:g} s idle before"
            f" and after, batch {settings.batch}"
        ),
        "asked for": ", ".join(_asked_for(settings)),
        "model SHA-256": ", ".join(checksums),
        "versions": versions_line(result.versions),
    }


def _asked_for(settings: BenchSettings) -> Iterator[str]:
    """Yield what the command line or its defaults asked of the build and the worker."""
    if settings.precision:
        yield settings.precision
    yield f"fallback {settings.fallback}"
    if settings.backend:
        yield settings.backend
    if settings.optimization_level is None:
        yield "optimisation level as TensorRT chooses"
    else:
        yield f"optimisation level {settings.optimization_level}"
    yield "1 stream" if settings.streams == 1 else f"{settings.streams} streams"
    for name, shape in settings.shapes.items():
        yield f"{name} {shape.text}"
    if settings.layer_precisions:
        yield f"{held_in_words(settings.layer_precisions)} ({settings.precision_constraints})"
    for path in settings.plugins:
        yield f"plug-ins of {Path(path).name}"
    if not settings.cuda_graph:
        yield "no CUDA graph"
    if not settings.transfers:
        yield "no copies of inputs and outputs"
    if settings.memory is not None:
        yield f"{settings.memory} memory"
    for name, value in settings.process.model_dump(exclude_defaults=True).items():
        yield f"{name} {value}"


def board_facts(environment: Environment) -> dict[str, str | None]:
    """Return names and values of the board and its software."""
    return {
        "board": environment.board,
        "module": environment.module,
        "L4T": environment.l4t,
        "JetPack": environment.jetpack,
        "power mode": environment.power_mode,
    }


def versions_line(versions: Mapping[str, str]) -> str:
    """Return libraries and their versions, sorted by name."""
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions))


# --- the table of one model -----------------------------------------------------------------------


def _table(model: ModelResult, published: Sequence[Beside]) -> Table:
    """Return a column per accelerator, with what was published below its own figure."""
    rows: list[tuple[str, ...]] = []
    doubtful: set[tuple[int, int]] = set()
    for label, cells in rows_of(model.accelerators).items():
        if label.startswith(_SPEED_AND_ENERGY):
            for column, result in enumerate(model.accelerators, start=1):
                if cells[column - 1] != ABSENT and not (result.may_win and result.rounds):
                    doubtful.add((len(rows), column))
        rows.append((label, *cells))
        if any(beside.label == label for beside in published):
            rows.append(_published_row(label, model, published))
    columns = ["", *(result.device for result in model.accelerators)]
    return Table(columns, rows, doubtful=frozenset(doubtful))


def _published_row(label: str, model: ModelResult, published: Sequence[Beside]) -> tuple[str, ...]:
    """Return the published figures that stand below the row of a label."""
    cells = [f"  published {label.split()[-1]}"]
    for result in model.accelerators:
        figure = ABSENT
        for beside in published:
            if (beside.device, beside.label) == (result.device, label):
                figure = beside.figure
        cells.append(figure)
    return tuple(cells)


# They are struck through for an accelerator that failed or has wrong outputs.
_SPEED_AND_ENERGY = ("latency", "device span", "throughput", "energy")


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
    rows: list[tuple[str, ...]] = []
    ends: set[int] = set()
    doubtful: set[tuple[int, int]] = set()
    lines = []
    for together in contention.together:
        if len(together.lanes) < 2:
            continue
        lines.append((" + ".join(map(placed_name, together.lanes)), _sentence(together)))
        if together.status != "ok":
            continue
        for lane in together.lanes:
            if _flags_of(together):
                doubtful.update(product([len(rows)], range(1, len(_TOGETHER))))
            rows.append(_cells(lane))
        ends.add(len(rows) - 1)
    about = _EXPLAINED
    if not contention.together:
        about = "nothing was measured together: fewer than two models ran alone"
    table = Table(_TOGETHER, rows, doubtful=frozenset(doubtful), ends=frozenset(ends))
    return (table,) if rows else (), Items(lines), Text(about, "under")


_TOGETHER = ("model", "p50", "slowdown", "at p99", "adds", "per inference")


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


def _sentence(together: Together) -> str:
    if together.status != "ok":
        return f"{together.status}, {together.reason}"
    words = [f"{together.rounds} rounds of {digits(together.seconds or 0.0)} s"]
    if together.gross_joules is not None:
        words.append(f"{with_half(together.gross_joules, joules)} gross for all")
    if together.net_joules is not None:
        words.append(f"{with_half(together.net_joules, joules)} net")
    if together.excess_watts is not None:
        words.append(_excess(together.excess_watts))
    if _flags_of(together):
        words.append("flags " + " ".join(_flags_of(together)))
    if together.foreign_dla_processes:
        words.append("on a DLA: " + ", ".join(together.foreign_dla_processes))
    return ", ".join(words)


def _excess(excess: Figure) -> str:
    """Return how much more power the models drew together than alone, with its interval."""
    direction = "more" if excess.value >= 0 else "less"
    words = f"{digits(abs(excess.value), 2)} W {direction}"
    if excess.low is not None and excess.high is not None:
        words += f" ({digits(excess.low, 2)} to {digits(excess.high, 2)})"
    return f"{words} than the same work alone"


def _flags_of(together: Together) -> list[str]:
    """Return its flags but ``simulated``, which the title says of the whole document."""
    return sorted(flag for flag in together.flags if flag != "simulated")

"""``tegrascope verify``: does the running pipeline keep the promise of ``advise``?"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ... import __version__
from ...collectors.application.gstreamer import check_log_is_free
from ...collectors.base import SYSTEM_CLOCK
from ...collectors.children.program import SignalRelay
from ...daemon.commands import Options, seconds_or_none
from ...daemon.measure.blocks import WindowSlice
from ...daemon.measure.dla import SOURCES, dla_was_on
from ...daemon.measure.figures import energy_of, subtract
from ...daemon.measure.quality import FEWEST_LOADS, LOAD_LAG_NS
from ...daemon.measure.report import Figure, RunReport, Span
from ...daemon.measure.run_text import digits, joules, percent, points, rate, seconds, with_half
from ...daemon.measure.trace import RunTrace
from ...daemon.measure.utilization import telemetry
from ...daemon.measure.winner import Kept, judge_promise
from ...daemon.outputs import check_output, open_output
from ...daemon.session.session import Session
from ...daemon.settings.config import new_run_id
from ...daemon.terminal import CHECK_CANNOT_SAY, CHECK_SAYS_NO, GOOD
from ...parsers.errors import UserError
from ...parsers.records import Record
from ...parsers.values import DLAS, body_device
from ..compare.causes import Cause, CauseName, causes_of
from ..compare.sides import Side, sides_of
from ..results.promise import Promise
from ..results.reading import read_promise, read_result
from ..results.summary import mean_loads
from .execute import (
    PrintedFrames,
    add_telemetry,
    measure,
    open_session,
    print_error,
    silent_log,
    telemetry_config,
)

# A pipeline that differs by less is as promised: of a load in points, else of the promise.
LIMIT = 0.05
# From here on the time of a frame on its accelerator is that of another engine.
_OTHER_ENGINE = 0.1
_SHORTEST_SECONDS = 1.0
# Below this share of the promised time of a frame, an accelerator does other work or none.
_AT_WORK = 0.1
# A run that needs a hundred times as long is no advice.
_MUCH = 10.0
# The load of so many equal parts of the window gives the interval of its mean.
_PARTS = 6
# Conditions of the machine that compare finds. The others describe an engine, which is not seen.
_OF_THE_MACHINE = ("power_mode", "contention", "throttling", "clocks")
_STATUS: Mapping[Kept, int] = {
    "holds": GOOD,
    "does_not_hold": CHECK_SAYS_NO,
    "undecided": CHECK_CANNOT_SAY,
}
_MARKS: Mapping[Kept, str] = {"holds": "✓", "does_not_hold": "✗", "undecided": "?"}
_KEPT: Mapping[bool | None, Kept] = {True: "holds", False: "does_not_hold", None: "undecided"}
_WORKED = {True: "worked", False: "did not work", None: "is not known to work"}

CheckName = Literal["on_the_dla", "core", "gpu_load", "frame_rate", "joules_per_frame"]
_TITLES: Mapping[CheckName, str] = {
    "on_the_dla": "on the DLA",
    "core": "core",
    "gpu_load": "GPU load",
    "frame_rate": "frame rate",
    "joules_per_frame": "joules per frame",
}


class PromiseCheck(Record):
    """One promise, and whether the pipeline keeps it; figures are absent where none is known."""

    name: CheckName
    verdict: Kept
    promised: Figure | None = None
    measured: Figure | None = None
    sentence: str


class Verification(Record):
    """The document of ``verify --json``.

    Attributes:
        reason: The first condition that may explain what does not hold; ``None`` if none is known.
    """

    schema_version: Literal[1] = 1
    tegrascope: str = __version__
    promise: Promise
    checks: tuple[PromiseCheck, ...]
    reason: Cause | None = None
    run: RunReport

    @property
    def verdict(self) -> Kept:
        """The worst verdict; a pipeline that failed decides nothing."""
        verdicts = {check.verdict for check in self.checks}
        if self.run.outcome == "failed":
            return "undecided"
        if "does_not_hold" in verdicts:
            return "does_not_hold"
        return "undecided" if "undecided" in verdicts else "holds"


def hold_to(promise: Promise, promised: Side, run: RunReport, samples: WindowSlice) -> Verification:
    """Return which promises a pipeline keeps.

    Args:
        promised: The first promised model in its result, for the conditions of that measurement.
        samples: Of the window of the run and its idle phases.
    """
    window, idle = run.phases["steady"], _idle_span(run, samples)
    worked: dict[str, bool | None] = {}
    foreign = []
    for core in DLAS:
        worked[core] = dla_was_on(samples, window, core)
        if idle is not None and dla_was_on(samples, idle, core):
            # Others used it before the pipeline began, so it says nothing about the pipeline.
            foreign.append(core)
            worked[core] = None
    loads = _loads(samples, window)
    found = [*_core_checks(promise, worked), *_figure_checks(promise, run, loads)]
    checks = {check.name: check for check in found}
    verification = Verification(promise=promise, checks=tuple(found), run=run)
    if verification.verdict != "does_not_hold":
        return verification
    cause = _of_the_core(checks, worked)
    cause = cause or _of_the_machine(promised, run, foreign)
    cause = cause or _of_the_engine(promise, checks, loads)
    return verification.model_copy(update={"reason": cause})


def _idle_span(run: RunReport, samples: WindowSlice) -> Span | None:
    """Return the time before the pipeline began, from its first to its last sample.

    The first second may show the end of what ran before it.
    """
    before = run.phases.get("baseline_before")
    if before is None:
        return None
    times_ns = samples.times_ns[samples.inside(before.begin_ns + LOAD_LAG_NS, before.end_ns)]
    if len(times_ns) < FEWEST_LOADS:
        return None
    return Span(begin_ns=times_ns[0], end_ns=times_ns[-1])


def _loads(samples: WindowSlice, window: Span) -> dict[str, Figure]:
    """Return the mean loads of a window, with intervals by the spread of its parts."""
    parts = []
    length = (window.end_ns - window.begin_ns) // _PARTS
    for number in range(_PARTS):
        begin_ns = window.begin_ns + length * number
        found = telemetry(samples, Span(begin_ns=begin_ns, end_ns=begin_ns + length))
        parts.append({name: load.mean_ratio for name, load in found.utilization.items()})
    return mean_loads(parts)


def _core_checks(promise: Promise, worked: Mapping[str, bool | None]) -> Iterator[PromiseCheck]:
    """Yield whether a DLA worked, and whether each core that was asked for did."""
    asked = [core for core in DLAS if core in {model.device for model in promise.models}]
    if not asked:
        return
    words = ", ".join(f"{core} {_WORKED[was_on]}" for core, was_on in worked.items())
    any_core = True in worked.values() or (None if None in worked.values() else False)
    yield PromiseCheck(name="on_the_dla", verdict=_KEPT[any_core], sentence=words)
    of_asked = [worked[core] for core in asked]
    all_cores = False not in of_asked and (None if None in of_asked else True)
    words = f"{' and '.join(asked)} asked; {words}"
    yield PromiseCheck(name="core", verdict=_KEPT[all_cores], sentence=words)


def _figure_checks(
    promise: Promise, run: RunReport, loads: Mapping[str, Figure]
) -> Iterator[PromiseCheck]:
    """Yield whether GPU load, frame rate and energy per frame are as promised.

    A run without frames, or shorter than a second, may be of another program: it decides nothing.
    """
    frames, gpu_load, length = None, None, run.phases["steady"].seconds
    if run.throughput_per_second is not None and length >= _SHORTEST_SECONDS:
        if "insufficient_samples" not in run.quality:
            gpu_load = loads.get("gpu")
        # An edge of the window may cut a frame.
        cut = run.batch / length
        frames = Figure.around(run.throughput_per_second, cut)
    yield _check("gpu_load", promise.loads.get("gpu"), gpu_load, percent)
    yield _check("frame_rate", Figure.around(promise.frames_per_second, 0.0), frames, rate)
    energy = energy_of(run, "gross")
    per_frame = None if energy is None else energy.times(1 / run.batch)
    yield _check("joules_per_frame", promise.joules_per_frame, per_frame, joules)


def _check(
    name: CheckName,
    promised: Figure | None,
    measured: Figure | None,
    show: Callable[[float], str],
) -> PromiseCheck:
    words = f"promised {_shown(promised, show)}, measured {_shown(measured, show)}"
    verdict: Kept = "undecided"
    if promised is not None and measured is not None:
        gap = subtract(measured, promised)
        margin = LIMIT if name == "gpu_load" else LIMIT * promised.value
        verdict = judge_promise(gap, margin)
        room = abs(abs(gap.value) - margin)
        if verdict == "undecided" and gap.half is not None and gap.half < _MUCH * room:
            # An interval by sampling narrows with the root of the time.
            longer = digits((gap.half / room) ** 2, 2)
            words += f", a run {longer} times as long may decide it"
    return PromiseCheck(
        name=name, verdict=verdict, promised=promised, measured=measured, sentence=words
    )


def _shown(figure: Figure | None, show: Callable[[float], str]) -> str:
    if figure is None or figure.half is None or show is not percent:
        return with_half(figure, show)
    # Of a share, half the interval is in points: percent of percent would confuse.
    return f"{show(figure.value)} ± {points(figure.half)}"


# --- the first reason -----------------------------------------------------------------------------


def _of_the_core(
    checks: Mapping[CheckName, PromiseCheck], worked: Mapping[str, bool | None]
) -> Cause | None:
    """Return that the work was done elsewhere than on the DLA core that was asked for."""
    core = checks.get("core")
    if core is None or core.verdict != "does_not_hold":
        return None
    name: CauseName = "accelerator"
    if True not in worked.values() and _is_gpu_busier(checks):
        name = "fallback"
    sentence = f"{core.sentence}; GPU load {checks['gpu_load'].sentence}"
    return Cause(name=name, certainty="known_direction", sentence=sentence)


def _is_gpu_busier(checks: Mapping[CheckName, PromiseCheck]) -> bool:
    gpu = checks["gpu_load"]
    if gpu.verdict != "does_not_hold" or gpu.measured is None or gpu.promised is None:
        return False
    return gpu.measured.value > gpu.promised.value


def _of_the_machine(promised: Side, run: RunReport, foreign: Sequence[str]) -> Cause | None:
    """Return the first condition of the machine that differs, as ``compare`` finds them."""
    if foreign:
        sentence = f"{' and '.join(foreign)} worked before the pipeline began"
        return Cause(name="contention", certainty="known_direction", sentence=sentence)
    (pipeline,) = sides_of("the pipeline", run.run_id, run)
    for cost in ("input", "energy"):
        for cause in causes_of(promised, pipeline, cost):
            # Free clocks are lower only because a pipeline with pauses has less to do.
            is_free = cause.name == "clocks" and not promised.context.environment.clocks_locked
            if cause.name in _OF_THE_MACHINE and not is_free:
                return cause
    return None


def _of_the_engine(
    promise: Promise, checks: Mapping[CheckName, PromiseCheck], loads: Mapping[str, Figure]
) -> Cause | None:
    """Return what the time of a frame on GPU and DLA says about the engine."""
    device = promise.models[0].device
    if device in DLAS and _is_gpu_busier(checks):
        sentence = f"layers run on the GPU: {checks['gpu_load'].sentence}"
        return Cause(name="fallback", certainty="known_direction", sentence=sentence)
    frames = checks["frame_rate"].measured
    for name in (device, *(f"{device}:{source}" for source in SOURCES)):
        if frames is None or name not in loads or name not in promise.loads:
            continue
        busy = loads[name].times(1 / frames.value)
        expected = promise.loads[name].times(1 / promise.frames_per_second)
        if busy.value < _AT_WORK * expected.value:
            sentence = (
                f"a frame keeps {device} busy for {seconds(busy.value)}, promised"
                f" {seconds(expected.value)}: the work is done elsewhere"
            )
            return Cause(name="accelerator", certainty="known_direction", sentence=sentence)
        margin = _OTHER_ENGINE * expected.value
        if judge_promise(subtract(busy, expected), margin) == "does_not_hold":
            sentence = (
                f"a frame keeps {device} busy for {seconds(busy.value)}, promised"
                f" {seconds(expected.value)}, and nothing else differs: an engine of another"
                " precision, or another model"
            )
            return Cause(name="precision", certainty="possible", sentence=sentence)
    return None


# --- the command ----------------------------------------------------------------------------------

EXAMPLE = (
    "tegrascope verify --gst infer DIR -- gst-launch-1.0 …\n"
    "  tegrascope verify --lines 'frame ' DIR -- ./detect --frames 3000"
)


def add(option: Options) -> None:
    """Add the options."""
    option.parser.usage = "tegrascope verify [options] DIR -- CMD …"
    option.parser.set_defaults(unit=None, inferences=None)
    frames = option.one_of()
    frames("--gst ELEMENT", "a frame is a buffer of this element of a GStreamer pipeline")
    frames(
        "--lines TEXT",
        "a frame is a line of its output with this text (default: a line"
        " tegrascope: inferences=N is N frames)",
    )
    option("--batch N", "inputs of a frame that is counted (default: 1)", default=1)
    option(
        "--baseline SECONDS",
        "idle time before and after, to see other programs (default: %(default)g)",
        type=seconds_or_none,
        default=3.0,
    )
    add_telemetry(option)
    option("--json FILE", "write the verdicts and the whole report, too")
    option("program DIR -- CMD …", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline; return 0 if it keeps all promises, 3 if not, 4 if undecided."""
    directory, argv = _words(arguments)
    if arguments.gst is not None:
        check_log_is_free()
    check_output(arguments.json, "--json")
    promise = read_promise(directory)
    promised = promised_side(promise)
    config = telemetry_config(arguments)
    with silent_log(), SignalRelay() as relay:
        session = open_session(config, SYSTEM_CLOCK)
        try:
            found = verify(arguments, argv, relay, session, promise, promised)
        finally:
            session.stop()
    if found is None:
        return 128 + (relay.number or 0)
    if arguments.json is not None:
        with open_output(arguments.json, "--json") as output:
            output.write(found.model_dump_json(exclude_none=True, indent=2) + "\n")
    return _STATUS[found.verdict]


def _words(arguments: argparse.Namespace) -> tuple[Path, list[str]]:
    """Return the directory and the words of the program."""
    words: list[str] = arguments.program
    argv = words[1:]
    if argv[:1] == ["--"]:
        del argv[0]
    elif argv and argv[0].startswith("-"):
        arguments.misuse(f"{argv[0]}: options come before DIR")
    if not argv:
        arguments.misuse("no program is given: tegrascope verify [options] DIR -- CMD …")
    return Path(words[0]), argv


def promised_side(promise: Promise) -> Side:
    """Return the first promised model as bench measured it, or raise ``UserError``."""
    model = promise.models[0]
    alike = []
    for side in sides_of("the promise", model.source, read_result(Path(model.source))):
        if (side.name, side.variant) == (model.name, model.variant):
            alike.append(side)
    if not alike:
        problem = f"{model.source} has no {model.name} {model.variant}".rstrip()
        raise UserError(problem, "run tegrascope advise again, with -o")
    alike.sort(key=lambda side: side.device != model.device)
    # A core that was not measured is taken to be as the other one.
    return replace(alike[0], device=model.device)


def verify(
    arguments: argparse.Namespace,
    argv: list[str],
    relay: SignalRelay,
    session: Session,
    promise: Promise,
    promised: Side,
) -> Verification | None:
    """Measure the pipeline, print the verdicts on standard error and return them.

    Without an answer it was interrupted before the program started.
    """
    trace = RunTrace(
        run_id=new_run_id(),
        workload=promised.name,
        backend="exec",
        device=body_device(promised.device),
        started_ns=session.clock.monotonic_ns(),
        started_wall_ns=session.clock.wall_ns(),
        batch=arguments.batch,
    )
    frames = None if arguments.gst else PrintedFrames(arguments.lines, session.clock)
    measured = measure(arguments, argv, relay, session, trace, frames=frames)
    if measured is None:
        return None
    report, window = measured
    span = trace.telemetry_window()
    assert span is not None
    found = hold_to(promise, promised, report, session.timeline.cut(span.begin_ns, span.end_ns))
    notes = list(window.notes)
    if report.environment.simulated:
        notes.append("a simulated board does not show the load of the program")
    if report.telemetry is None:
        notes.append(f"no telemetry: {session.why() or 'no sample came in time'}")
    if report.reason is not None:
        notes.append(report.reason)
    for line in _lines(found, notes):
        print_error(line)
    return found


def _lines(found: Verification, notes: list[str]) -> Iterator[str]:
    models = []
    for model in found.promise.models:
        models.append(f"{model.name} on {model.device} {model.variant}".rstrip())
    yield f"tegrascope: {', '.join(models)}: {found.verdict.replace('_', ' ')}"
    for check in found.checks:
        title, verdict = _TITLES[check.name], check.verdict.replace("_", " ")
        yield f"  {_MARKS[check.verdict]} {title}: {verdict} · {check.sentence}"
    if found.reason is not None:
        doubt = " (possibly)" if found.reason.certainty == "possible" else ""
        yield f"  first reason: {found.reason.name}{doubt}: {found.reason.sentence}"
    elif found.verdict == "does_not_hold":
        yield "  first reason: no known difference explains it"
    if found.run.quality:
        yield f"  flags: {' '.join(found.run.quality)}"
    for note in notes:
        yield f"  note: {note}"

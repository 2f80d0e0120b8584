"""``tegrascope bench``."""

import argparse
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from ... import __version__
from ...collectors.base import SYSTEM_CLOCK
from ...collectors.board.boards import read_power_modes
from ...collectors.board.readers import read_trips
from ...collectors.catalog import BACKENDS, SOURCES, SUBJECTS
from ...daemon.commands import Options, devices, ratio, seconds_or_none
from ...daemon.commands import duration as read_duration
from ...daemon.outputs import check_output, open_output, standard_output
from ...daemon.session.process_signals import END, RELOAD, Signals
from ...daemon.terminal import CHECK_SAYS_NO, FAILED, GOOD, duration
from ...parsers.errors import UserError
from ...parsers.inference.placement import Memory
from ...parsers.nvpmodel import largest_mode
from ..bench.run import Bench, Display, RoundPlan, foreseen
from ..bench.settings import LOCK_IN_SECONDS, TRIED, Asked, check_models, read_settings
from ..bench.sweep import SweepRun, axis
from ..bench.workers import Setup, Workers
from ..compare.report import beside_published
from ..inspect.layers import layers_with_work
from ..results.bench_page import print_result, report_page
from ..results.caveats import caveats_of_machine
from ..results.reading import read_result
from ..results.records import BenchResult, Contention, ModelResult

_BACKGROUND_SECONDS = 2.0
_FILES = ("result.json", "report.html")
_ELSEWHERE = "name a writable directory with -o"


def run(arguments: argparse.Namespace) -> int:
    """Compare models across accelerators; print the table or the document, write the files.

    Return 1 if nothing or not all was measured, 3 if a named accelerator is missing.
    """
    if not arguments.models:
        arguments.misuse("no model is named: give an ONNX file, or builtin:resnet50")
    asked = read_settings(arguments)
    if not asked.settings.is_simulated:
        check_models(asked.settings.models)
    directory = _directory(arguments.output)
    result, setup = _measure(asked, arguments.state_dir)
    if result.is_partial and _has_whole_result(directory):
        directory = directory.with_name(f"{directory.name}-interrupted")
    # Also without a figure: the files have the reasons.
    _write(result, setup, directory)
    if arguments.json:
        print(result.model_dump_json(exclude_none=True), file=standard_output())
    else:
        print_result(result, [*beside_published(result)])
    if result.is_partial:
        print("interrupted: the result has what was measured until then", file=sys.stderr)
    print(f"written: {directory}/result.json and report.html", file=sys.stderr)
    return _status(result)


def _status(result: BenchResult) -> int:
    """Return the exit status of a benchmark."""
    was_measured = lacks_device = False
    for model in result.models:
        for accelerator in model.results:
            was_measured = was_measured or bool(accelerator.rounds)
            lacks_device = lacks_device or accelerator.status == "unavailable"
    if result.is_partial:
        return FAILED
    if lacks_device and (result.settings.devices is not None or not was_measured):
        return CHECK_SAYS_NO
    return GOOD if was_measured else FAILED


def _measure(asked: Asked, state_dir: Path) -> tuple[BenchResult, Setup]:
    """Start the telemetry, run every model, and stop the telemetry, whatever happens."""
    signals = Signals()
    _made(state_dir, "name a writable place with --state-dir")
    settings, clock = asked.settings, SYSTEM_CLOCK
    started_wall_ns = clock.wall_ns()
    setup = Setup(asked, state_dir)
    models: list[ModelResult] = []
    contention: Contention | None = None
    display = Display()
    with display.progress:
        workers = Workers(setup.session, display.heard, cwd=state_dir)
        run = Bench(settings, workers, display, setup.begin_pass)
        if not settings.is_simulated:
            run.trips = read_trips(Path("/"))
        run.add_work = lambda model, rows: layers_with_work(
            model, state_dir / "models", settings.batch, rows, settings.shapes
        )

        def cancel() -> None:
            setup.stopping.set()
            workers.cancel()

        # From a thread of its own: the handler interrupts the one that holds the workers' lock.
        end = threading.Thread(target=cancel, daemon=True)
        signals.call((*END, *RELOAD), lambda: None if end.ident else end.start())
        try:
            setup.start()
            for remark in _remarks(asked, setup):
                display.say(remark)
            background = setup.background(min(_BACKGROUND_SECONDS, settings.duration_seconds))
            for model in settings.models:
                if not workers.was_cancelled and settings.sweep:
                    models.append(SweepRun(run, model, setup.set_mode).run())
                elif not workers.was_cancelled:
                    models.append(run.run(model))
            if settings.contention and not workers.was_cancelled:
                contention = run.run_together(models)
        finally:
            signals.ignore()
            workers.close()
            setup.close()
            setup.session.stop()
    environment = setup.session.environment
    result = BenchResult(
        tegrascope=__version__,
        started_wall_ns=started_wall_ns,
        ended_wall_ns=SYSTEM_CLOCK.wall_ns(),
        is_partial=workers.was_cancelled,
        is_simulated=environment.simulated,
        settings=settings,
        environment=environment,
        background=background,
        checks=caveats_of_machine(
            background, environment, largest_mode(read_power_modes(Path("/")))
        ),
        telemetry_problem=setup.problem,
        models=tuple(models),
        contention=contention,
    )
    return result, setup


def _remarks(asked: Asked, setup: Setup) -> Iterator[str]:
    """Yield what a person should know before minutes of measuring."""
    advice = asked.advice(setup.unit_interval)
    if setup.problem is not None:
        yield f"no telemetry: {setup.problem}"
    elif advice is not None:
        yield advice
    advice = asked.rounds_advice()
    if advice is not None:
        yield advice
    settings = asked.settings
    if settings.devices is None and settings.precision is None and not settings.is_simulated:
        yield (
            f"on {' and '.join(TRIED)}, as far as they are here, else on the cpu; in fp16 where"
            " TensorRT builds it and the model has no types of its own; --on and --precision"
            " change that"
        )
    if settings.contention:
        turns = RoundPlan.of(settings.rounds).least
        count, ways, seconds = foreseen(settings, turns)
        placements = "1 placement" if count == 1 else f"{count} placements"
        yield (
            f"after the models alone, {placements} of {len(settings.models)} models: {turns} times"
            f" {ways} rounds, alone and together; about {duration(seconds)}"
        )


def _directory(given: Path | None) -> Path:
    """Return where results go, checked before minutes of measuring; a named one is made."""
    if given is not None:
        directory = _made(given)
        for name in _FILES:
            check_output(directory / name)
        return directory
    if not os.access(".", os.W_OK):
        raise UserError(f"{Path.cwd()}: Permission denied", _ELSEWHERE)
    return Path(time.strftime("tegrascope-bench-%Y%m%d-%H%M%S"))


def _has_whole_result(directory: Path) -> bool:
    """Return whether a directory has the result of a benchmark that was not interrupted."""
    try:
        return not read_result(directory).is_partial
    except UserError:
        return False


def _made(directory: Path, remedy: str = _ELSEWHERE) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}", remedy) from None
    return directory


def _write(result: BenchResult, setup: Setup, directory: Path) -> None:
    _made(directory)
    texts = (
        result.model_dump_json(exclude_none=True, indent=1),
        report_page(result, setup.session.timeline.cut, [*beside_published(result)]),
    )
    for name, text in zip(_FILES, texts, strict=True):
        with open_output(directory / name) as output:
            output.write(text)


def _cores(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"\d+(,\d+)*", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of cores, like 4,5")
    return tuple(map(int, text.split(",")))


EXAMPLE = (
    "tegrascope bench builtin:resnet50 --on gpu,dla0\n"
    "  tegrascope bench detector.onnx --precision fp16 --fallback forbid -o detector\n"
    "  tegrascope bench yolo.onnx seg.onnx --contention --on gpu,dla0,dla1\n"
    "  tegrascope bench detector.onnx --sweep batch=1,2,4,8 streams=1,2 --latency-below 20ms\n"
    "  tegrascope bench builtin:resnet50 --simulate"
)


def add(option: Options) -> None:
    """Add the options."""
    option("models MODEL", "ONNX file, or builtin:NAME", nargs="*")
    option(
        "--on LIST",
        "of gpu,dla0,dla1,cpu (default: what this machine has of gpu,dla0, else cpu)",
        type=devices,
    )
    option(
        "--backend",
        "default: tensorrt on gpu and DLA, onnxruntime on cpu",
        choices=[name for name in BACKENDS if name not in SUBJECTS.values()],
    )
    option.engine()
    option(
        "--cut DIR",
        "also body.onnx and head.onnx of DIR as one inference, as inspect --cut wrote them: the"
        " body on each DLA, the head on the GPU",
        type=str,
    )
    option("--inputs PATH", "check the outputs for these inputs: images or arrays")
    option(
        "--labels PATH",
        "of --inputs: the class of each, as text with a number per line or .npz; or the boxes in"
        " each, as COCO JSON or a folder of YOLO text",
    )
    option(
        "--task",
        "what the outputs of --inputs are (default: by the metadata of the file)",
        choices=("classify", "detect", "segment"),
    )
    option(
        "--tolerance RATIO",
        "outputs are right up to this loss of top-1 or mAP with --labels (default: 0.01), or up to"
        " this error without (default: by precision)",
        type=ratio,
    )
    option("--streams N", "inferences in flight at once", default=1)
    option("--no-cuda-graph", "launch each inference layer by layer")
    option("--no-transfers", "leave inputs and outputs on the device")
    option(
        "--memory",
        "of inputs and outputs, with TensorRT (default: copy); managed-anyway also on a GPU with"
        " memory of its own",
        choices=get_args(Memory),
    )
    option("--duration S", "of a round (default: 10.5, with --rounds 15, with --simulate 10.1)")
    option(
        "--baseline S",
        "idle time before and after a round, for the net energy (default: 2.5, with --rounds 8,"
        " with --simulate 1; 0: none)",
        type=seconds_or_none,
    )
    option("--warm-up S", default=1.0)
    option(
        "--rounds N",
        "of each accelerator at least, made even; more until they agree (default: until the best is"
        " known; with --sweep and --contention 4)",
        default=None,
    )
    option(
        "--until PERCENT",
        "of half an interval, at which latency or energy is answered even if the best is not known"
        " (default: 3)",
    )
    option("--telemetry", "default: tegrastats, else nvml, else none", choices=(*SOURCES, "none"))
    option("-c, --config FILE", "take telemetry: and board: from it")
    option(
        "--simulate",
        "a simulated board, whose accelerators have the published pace of a model: to try the"
        " command, in two minutes; --rounds 2 takes one",
    )
    option(
        "-o, --output DIR", "for result.json and report.html (default: tegrascope-bench-DATE-TIME)"
    )
    option("--json", "print result.json, not the table")
    option("--contention", "two or three models: how much they slow each other, in every placement")
    option(
        "--sweep AXIS=LIST",
        "every combination of batch=1,2,4 streams=1,2 precision=fp16,int8"
        " memory=copy,mapped,managed power-mode=15W,30W on each accelerator; what is surely worse"
        " is dropped early",
        nargs="+",
        type=axis,
        default=(),
    )
    option(
        "--latency-below TIME",
        "with --sweep: the best throughput and the least energy with a 99th percentile below it,"
        " as 20ms",
        type=read_duration,
    )
    option(
        "--sustain TIME",
        "work without a pause for so long, as 30m, on one accelerator after the other: the rate,"
        " energy and temperature that hold, with a forecast after five minutes",
        type=read_duration,
    )
    option("--lock-in", "after the rounds, the energy of a short inference by an on/off pattern")
    option(
        "--seconds S",
        "of each lock-in measurement (default: %(default)g)",
        default=LOCK_IN_SECONDS,
    )
    option("--layers", "after the rounds, the time, precision, kernel and work of each layer")
    option("--stages", "with --lock-in: of each stage too, if the back-end can repeat it alone")
    sharing = option.group("how the workers share the machine")
    sharing("--nice 0-19", choices=range(20), default=0)
    sharing("--cpus LIST", "cores to run on, as 4,5", type=_cores, default=())
    option.state_dir("where models and engines are cached")

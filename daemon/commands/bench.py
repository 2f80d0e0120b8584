"""``tegrascope bench``."""

import argparse
import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

from ... import __version__
from ...collectors.base import SYSTEM_CLOCK
from ...collectors.catalog import BACKENDS, PROGRAM_BACKEND, SOURCES
from ...parsers.errors import UserError
from ..bench.look import Watcher, find_nsys
from ..bench.progress import BarDisplay, LineDisplay
from ..bench.run import Bench, RoundPlan, foreseen
from ..bench.settings import Asked, read_settings
from ..bench.workers import Setup
from ..results.bench_page import print_result, report_page
from ..results.caveats import caveats_of_machine
from ..results.records import BenchResult, BenchSettings, Contention, ModelResult
from ..session.process_signals import END, RELOAD, Signals
from ..terminal.numbers import duration
from ..terminal.output import CHECK_SAYS_NO, FAILED, GOOD, standard_output
from . import (
    Commands,
    add_command,
    add_fallback,
    add_state_dir,
    cpus,
    devices,
    positive,
    positive_seconds,
)

_BACKGROUND_SECONDS = 2.0
_ELSEWHERE = "name a writable directory with -o"


def bench(arguments: argparse.Namespace) -> int:
    """Compare models across accelerators; print the table or the document, write the files.

    Return 1 if nothing or not all was measured, 3 if a named accelerator is missing.
    """
    asked = read_settings(arguments)
    directory = _directory(arguments.output)
    watcher = Watcher(find_nsys(), _made(directory).absolute()) if asked.settings.nsys else None
    result, setup = _measure(asked, arguments.state_dir, watcher)
    found = [one for model in result.models for one in model.accelerators]
    was_measured = any(one.rounds for one in found)
    if was_measured:
        _write(result, setup, directory)
    if arguments.json:
        print(result.model_dump_json(exclude_none=True), file=standard_output())
    else:
        print_result(result)
    if result.is_partial:
        print("interrupted: the result has what was measured until then", file=sys.stderr)
    if was_measured:
        print(f"written: {directory}/result.json and report.html", file=sys.stderr)
    if result.is_partial:
        return FAILED
    lacks_one = any(one.status == "unavailable" for one in found)
    if lacks_one and (asked.settings.devices is not None or not was_measured):
        return CHECK_SAYS_NO
    return GOOD if was_measured else FAILED


def _measure(asked: Asked, state_dir: Path, watcher: Watcher | None) -> tuple[BenchResult, Setup]:
    """Start the telemetry, run every model, and stop the telemetry, whatever happens."""
    signals = Signals()
    _made(state_dir, "name a writable place with --state-dir")
    settings, clock = asked.settings, SYSTEM_CLOCK
    started_wall_ns = clock.wall_ns()
    setup = Setup(
        asked.telemetry,
        state_dir,
        rule=asked.rule,
        problem=asked.why_no_telemetry,
        is_simulated=settings.is_simulated,
    )
    models: list[ModelResult] = []
    contention: Contention | None = None
    display = BarDisplay() if sys.stderr.isatty() else LineDisplay()
    with display.progress if isinstance(display, BarDisplay) else nullcontext():
        run = Bench(settings, setup, display, worker_cwd=state_dir, watcher=watcher)
        # From a thread of its own: the handler interrupts the one that holds the workers' lock.
        end = threading.Thread(target=run.cancel, daemon=True)
        signals.call((*END, *RELOAD), lambda: None if end.ident else end.start())
        try:
            setup.start()
            if setup.problem is not None:
                display.say(f"no telemetry: {setup.problem}")
            if settings.contention:
                display.say(_announcement(settings))
            background = setup.background(min(_BACKGROUND_SECONDS, settings.duration_seconds))
            for model in settings.models:
                if not run.was_cancelled:
                    models.append(run.run(model))
            if settings.contention and not run.was_cancelled:
                contention = run.run_together(models)
        finally:
            signals.ignore()
            run.close()
            setup.stop()
    environment = setup.session.environment
    return (
        BenchResult(
            tegrascope=__version__,
            started_wall_ns=started_wall_ns,
            ended_wall_ns=clock.wall_ns(),
            is_partial=run.was_cancelled,
            is_simulated=environment.simulated,
            settings=settings,
            environment=environment,
            background=background,
            checks=caveats_of_machine(background, environment),
            telemetry_problem=setup.problem,
            models=tuple(models),
            contention=contention,
        ),
        setup,
    )


def _announcement(settings: BenchSettings) -> str:
    """Return how much there is to measure together: placements multiply."""
    turns = RoundPlan.of(settings.rounds).least
    count, ways, seconds = foreseen(settings, turns)
    placements = "1 placement" if count == 1 else f"{count} placements"
    return (
        f"after the models alone, {placements} of {len(settings.models)} models:"
        f" {turns} times {ways} rounds, alone and together; about {duration(seconds)}"
    )


def _directory(given: Path | None) -> Path:
    """Return where results go, checked before minutes of measuring.

    A directory that was named is made at once; another one only when there is a result.
    """
    if given is not None:
        return _made(given)
    if not os.access(".", os.W_OK):
        raise UserError(f"{Path.cwd()}: Permission denied", _ELSEWHERE)
    return Path(time.strftime("tegrascope-bench-%Y%m%d-%H%M%S"))


def _made(directory: Path, remedy: str = _ELSEWHERE) -> Path:
    """Return a directory after making it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}", remedy) from None
    return directory


def _write(result: BenchResult, setup: Setup, directory: Path) -> None:
    files = {
        "result.json": result.model_dump_json(exclude_none=True, indent=1),
        "report.html": report_page(result, setup.cut),
    }
    try:
        for name, text in files.items():
            (_made(directory) / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{directory}: {error.strerror or error}", _ELSEWHERE) from None


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "bench",
        "tegrascope bench --builtin resnet50 --on gpu,dla0\n"
        "  tegrascope bench detector.onnx --precision fp16 --fallback forbid -o detector\n"
        "  tegrascope bench yolo.onnx seg.onnx --contention --on gpu,dla0,dla1\n"
        "  tegrascope bench --builtin mobilenet --simulate",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="ONNX file, or builtin:NAME")
    parser.add_argument(
        "--builtin", action="append", default=[], metavar="NAME", help="the same as builtin:NAME"
    )
    parser.add_argument(
        "--on",
        type=devices,
        metavar="LIST",
        help="of gpu,dla0,dla1,cpu (default: what this machine has of gpu,dla0, else cpu)",
    )
    parser.add_argument(
        "--backend",
        choices=[name for name in BACKENDS if name != PROGRAM_BACKEND],
        help="default: tensorrt on gpu and DLA, onnxruntime on cpu",
    )
    parser.add_argument(
        "--precision", choices=("fp32", "fp16", "int8"), help="default: the back-end's"
    )
    parser.add_argument(
        "--optimization-level",
        type=int,
        choices=range(6),
        metavar="0-5",
        help="how hard TensorRT tries: 0 builds fast (default: TensorRT's own)",
    )
    parser.add_argument("--batch", type=positive, default=1, metavar="N")
    parser.add_argument(
        "--streams", type=positive, default=1, metavar="N", help="inferences in flight at once"
    )
    parser.add_argument(
        "--no-cuda-graph", action="store_true", help="launch each inference layer by layer"
    )
    parser.add_argument(
        "--no-transfers", action="store_true", help="leave inputs and outputs on the device"
    )
    add_fallback(parser)
    parser.add_argument(
        "--duration", type=positive_seconds, metavar="S", help="of a round (default: 15)"
    )
    parser.add_argument(
        "--baseline",
        type=positive_seconds,
        metavar="S",
        help="idle time before and after a round, for the net energy (default: 8)",
    )
    parser.add_argument("--warm-up", type=positive_seconds, default=1.0, metavar="S")
    parser.add_argument(
        "--rounds",
        type=positive,
        default=4,
        metavar="N",
        help="of each accelerator at least, made even; more until they agree (default: 4)",
    )
    parser.add_argument(
        "--telemetry",
        choices=(*SOURCES, "none"),
        help="default: tegrastats, else nvml, else none",
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="take telemetry: and board: from it"
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="a simulated board, its accelerators played by the CPU: to try the command",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIR",
        help="for result.json and report.html (default: tegrascope-bench-DATE-TIME)",
    )
    parser.add_argument("--json", action="store_true", help="print result.json, not the table")
    parser.add_argument(
        "--contention",
        action="store_true",
        help="two or three models: how much they slow each other, in every placement",
    )
    parser.add_argument(
        "--nsys",
        action="store_true",
        help="one more pass of each under Nsight Systems, its report beside the results",
    )
    sharing = parser.add_argument_group("how the workers share the machine")
    sharing.add_argument("--nice", type=int, choices=range(20), default=0, metavar="0-19")
    sharing.add_argument(
        "--cpus", type=cpus, default=(), metavar="LIST", help="cores to run on, as 4,5"
    )
    sharing.add_argument(
        "--mps-percentage",
        type=int,
        choices=range(1, 101),
        metavar="1-100",
        help="share of the GPU's multiprocessors, under NVIDIA MPS",
    )
    add_state_dir(parser, "where models and engines are cached")

    def command(arguments: argparse.Namespace) -> int:
        if not arguments.models and not arguments.builtin:
            parser.error("no model is named: give an ONNX file, or --builtin resnet50")

        return bench(arguments)

    parser.set_defaults(command=command)

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
from ...parsers.errors import Mendable
from ..results.bench_page import print_result, report_page
from ..results.caveats import caveats_of_machine
from ..results.records import BenchResult, BenchSettings, Contention, ModelResult
from ..session.process_signals import END, RELOAD, Signals
from ..terminal.numbers import duration
from ..terminal.output import CHECK_SAYS_NO, FAILED, GOOD, standard_output
from .look import Watcher, find_nsys
from .plan import RoundPlan, foreseen
from .progress import BarDisplay, LineDisplay
from .run import Bench
from .settings import Asked, read_settings
from .setup import Setup

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
        raise Mendable(f"{Path.cwd()}: Permission denied", _ELSEWHERE)
    return Path(time.strftime("tegrascope-bench-%Y%m%d-%H%M%S"))


def _made(directory: Path, remedy: str = _ELSEWHERE) -> Path:
    """Return a directory after making it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mendable(f"{directory}: {error.strerror or error}", remedy) from None
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
        raise Mendable(f"{directory}: {error.strerror or error}", _ELSEWHERE) from None

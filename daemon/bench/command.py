"""``tegrascope bench``."""

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ... import __version__
from ...collectors.base import SYSTEM_CLOCK
from ...parsers.errors import Mendable
from ..session.process_signals import END, RELOAD, Signals
from ..terminal.output import CHECK_SAYS_NO, FAILED, GOOD, standard_output
from .checks import check_machine
from .contention_result import Contention
from .nsys import find_nsys
from .placements import foreseen
from .plan import Plan
from .progress import Bar, Lines
from .result import BenchResult, BenchSettings, ModelResult
from .run import Bench
from .settings import Asked, read_settings
from .stand import Stand
from .watch import Watcher
from .words import duration

_BACKGROUND_SECONDS = 2.0
_ELSEWHERE = "name a writable directory with -o"


def bench(arguments: argparse.Namespace) -> int:
    """Compare models across accelerators; the table on standard output, words on standard error."""
    asked = read_settings(arguments)
    directory = _directory(arguments.output)
    watcher = Watcher(find_nsys(), _made(directory).absolute()) if asked.settings.nsys else None
    result, stand = _measure(asked, arguments.state_dir, watcher)
    was_measured = any(one.rounds for model in result.models for one in model.accelerators)
    if was_measured:
        _write(result, stand, directory)
    if arguments.json:
        print(result.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from .table import print_result

        print_result(result)
    if result.is_partial:
        print("interrupted: what was measured until then is there", file=sys.stderr)
    if was_measured:
        print(f"written: {directory}/result.json and report.html", file=sys.stderr)
    return _status(result)


def _measure(asked: Asked, state_dir: Path, watcher: Watcher | None) -> tuple[BenchResult, Stand]:
    """Set the telemetry up, run every model, and take it down again, whatever happens."""
    signals = Signals()
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mendable(
            f"{state_dir}: {error.strerror}", "name a writable place with --state-dir"
        ) from None
    settings, clock = asked.settings, SYSTEM_CLOCK
    started_wall_ns = clock.wall_ns()
    stand = Stand(
        asked.telemetry,
        state_dir,
        rule=asked.rule,
        problem=asked.why_no_telemetry,
        is_simulated=settings.is_simulated,
    )
    models: list[ModelResult] = []
    contention: Contention | None = None
    watched: AbstractContextManager[Lines] = Bar() if sys.stderr.isatty() else nullcontext(Lines())
    with watched as teller:
        run = Bench(settings, stand, teller, lane_cwd=state_dir, watcher=watcher)
        # From a thread of its own: the handler interrupts the one that holds the lane's lock.
        end = threading.Thread(target=run.cancel, daemon=True)
        signals.call((*END, *RELOAD), lambda: None if end.ident else end.start())
        try:
            stand.start()
            if stand.problem is not None:
                teller.say(f"no telemetry: {stand.problem}")
            if settings.contention:
                teller.say(_foretold(settings))
            background = stand.background(min(_BACKGROUND_SECONDS, settings.duration_seconds))
            for model in settings.models:
                if not run.was_cancelled:
                    models.append(run.run(model))
            if settings.contention and not run.was_cancelled:
                contention = run.run_together(models)
        finally:
            signals.ignore()
            run.close()
            stand.stop()
    environment = stand.environment
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
            checks=check_machine(background, environment),
            telemetry_problem=stand.problem,
            models=tuple(models),
            contention=contention,
        ),
        stand,
    )


def _foretold(settings: BenchSettings) -> str:
    """Say how much there is to measure together, before anything is: placements multiply."""
    turns = Plan.of(settings.rounds).least
    count, ways, seconds = foreseen(settings, turns)
    placements = "1 placement" if count == 1 else f"{count} placements"
    return (
        f"after the models alone, {placements} of {len(settings.models)} models:"
        f" {turns} times {ways} rounds, alone and together; about {duration(seconds)}"
    )


def _directory(given: Path | None) -> Path:
    """Return where results go, and see now, not after minutes of measuring, that they can.

    One that was named is made at once; another only when there is something to put into it.
    """
    if given is not None:
        return _made(given)
    if not os.access(".", os.W_OK):
        raise Mendable(f"{Path.cwd()}: Permission denied", _ELSEWHERE)
    return Path(time.strftime("tegrascope-bench-%Y%m%d-%H%M%S"))


def _made(directory: Path) -> Path:
    """Return a directory that is there."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Mendable(f"{directory}: {error.strerror or error}", _ELSEWHERE) from None
    return directory


def _write(result: BenchResult, stand: Stand, directory: Path) -> None:
    from .report import report_page

    files = {
        "result.json": result.model_dump_json(exclude_none=True, indent=1),
        "report.html": report_page(result, stand.cut),
    }
    try:
        for name, text in files.items():
            (_made(directory) / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Mendable(f"{directory}: {error.strerror or error}", _ELSEWHERE) from None


def _status(result: BenchResult) -> int:
    """Say how it went: 1 nothing was measured or not all, 3 what was asked for is not here."""
    found = [one for model in result.models for one in model.accelerators]
    if result.is_partial:
        return FAILED
    if any(one.status == "unavailable" for one in found) and (
        result.settings.devices is not None or not _measured(result.models)
    ):
        return CHECK_SAYS_NO
    return GOOD if _measured(result.models) else FAILED


def _measured(models: Sequence[ModelResult]) -> bool:
    return any(one.rounds for model in models for one in model.accelerators)

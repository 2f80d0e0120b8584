"""``tegrascope exec``: any program as a measured window."""

import argparse
import json
import logging
import math
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...collectors.application.client import (
    ODD_ANSWER,
    ApiClient,
    RefusedError,
    UnreachableError,
    whole_characters,
)
from ...collectors.application.gstreamer import Buffers, ElementWatch, check_log_is_free, traced
from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.children.process import CannotStartError
from ...collectors.children.program import ProgramEnd, SignalRelay
from ...collectors.simulator.physics import LANES
from ...daemon.commands import DATABASE, Options, reader
from ...daemon.measure.report import Device, Outcome, RunReport
from ...daemon.measure.run_text import Row, headline, run_rows
from ...daemon.measure.timeline import Timeline
from ...daemon.measure.trace import RunTrace
from ...daemon.outputs import check_output, open_output, unwritable
from ...daemon.session.session import Session
from ...daemon.session.telemetry import configured_board, environment_of
from ...daemon.settings.config import Config, boot_id, new_run_id
from ...daemon.settings.file import load_config
from ...daemon.store.store import Store
from ...parsers.errors import UsageError, UserError
from ...parsers.inference.events import PrintedCounts, unit_name
from ...parsers.inference.marks import TIMES_AT_MOST
from ...parsers.values import LABEL_NAME, LABEL_NAME_FORM, printable


def report_lines(report: RunReport, notes: tuple[str, ...] = ()) -> list[str]:
    """Return a summary of a run and notes for people, without unknown values."""
    rows = [*run_rows(report), *(Row("note", note) for note in notes)]
    width = max(len(row.label) for row in rows)
    lines = [f"tegrascope: {headline(report)}"]
    for row in rows:
        lines.append(f"  {row.label:{width}}  {row.text}")
    return lines


# Nothing of a window may be dropped before the program ends.
_SPAN_SECONDS = 365 * 86_400.0
_FIRST_SAMPLE_SECONDS = 3.0
# The longest that a daemon keeps a window open.
_LONGEST_SECONDS = 3600
_PAIRING_SECONDS = 10.0
_OURS = ("config", "telemetry", "interval", "baseline", "state_dir")


def run(arguments: argparse.Namespace) -> int:
    """Run a program, pair its time with telemetry, and print a summary on standard error."""
    argv = list(arguments.program)
    if argv[:1] == ["--"]:
        del argv[0]
    if not argv:
        arguments.misuse("no program is given: tegrascope exec --workload NAME -- CMD …")
    if arguments.gst is not None:
        if arguments.inferences is not None:
            arguments.misuse("--gst counts, and --inferences announces a count: give one of them")
        check_log_is_free()
    # After a run of hours it is too late to learn that its report has no place.
    check_output(arguments.json, "--json")
    if arguments.state_dir is not None:
        _check_state_dir(arguments.state_dir)
    with silent_log(), SignalRelay() as relay:
        try:
            if any(getattr(arguments, name) is not None for name in _OURS):
                return _measure_here(arguments, argv, relay)
            client = ApiClient(arguments.url, arguments.token_file)
            try:
                run_id = _begin_in_daemon(arguments, client)
            except ODD_ANSWER as error:
                why = client.odd_answer(error).message
            except UnreachableError as error:
                why = error.message
            except RefusedError as error:
                why = str(error)
            else:
                return _measure_there(arguments, argv, relay, client, run_id)
            return _measure_here(arguments, argv, relay, f"measured here: {why}")
        except CannotStartError as error:
            print_error(f"tegrascope: {error}")
            return error.status


@contextmanager
def silent_log() -> Iterator[None]:
    """Keep our log off the terminal, which belongs to the program; the summary follows."""
    logger = logging.getLogger("tegrascope")
    silence = logging.NullHandler()
    propagated = logger.propagate
    logger.addHandler(silence)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(silence)


@dataclass(frozen=True)
class ProgramWindow:
    """The window of a program that has ended, for a daemon or for the session of this process.

    Attributes:
        program: How the program ended. With ``--gst`` the window is shorter than its life: from the
            first buffer to the last.
        inferences: Number of them; ``None`` if they were not counted. ``units`` likewise.
        start_ns: Starts of those that were timed, shape (n,); ``latency_ns`` is each duration.
        notes: Why something was not counted.
    """

    program: ProgramEnd
    begin_ns: int
    end_ns: int
    outcome: Outcome
    reason: str | None
    inferences: int | None
    units: float | None
    start_ns: "array[int]"
    latency_ns: "array[int]"
    notes: tuple[str, ...]


class PrintedFrames:
    """Counts the frames of a program that prints, between its first and its last such line.

    A frame is a line with a text. Without a text, a line ``tegrascope: inferences=N`` is N frames.
    Those of the first line came before it, so they do not count.
    """

    def __init__(self, text: str | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._text, self._clock = text, clock
        self._begin_ns: int | None = None
        self._end_ns = self._count = 0

    def read(self, line: str) -> None:
        """Add the frames of a line; any other line is ignored."""
        if self._text is None:
            tally = PrintedCounts()
            tally.read(line)
            frames = tally.inferences or 0
        else:
            frames = int(self._text in line)
        if not frames:
            return
        self._end_ns = self._clock.monotonic_ns()
        if self._begin_ns is None:
            self._begin_ns = self._end_ns
        else:
            self._count += frames

    def buffers(self) -> Buffers:
        """Return the frames, without times of their own, or raise ``UserError``."""
        if self._begin_ns is None or not self._count:
            remedy = "have it print each frame, or every N frames, and flush its output"
            what = "tegrascope: inferences=N" if self._text is None else self._text
            raise UserError(f"fewer than two lines of its output have {what!r}", remedy)
        return Buffers(self._count, self._begin_ns, self._end_ns, array("q"), array("q"))


def _run_program(
    arguments: argparse.Namespace,
    argv: list[str],
    relay: SignalRelay,
    clock: Clock = SYSTEM_CLOCK,
    frames: PrintedFrames | None = None,
) -> ProgramWindow:
    """Run the program and return its window; ``frames`` reads the output in place of a unit."""
    tally = PrintedCounts(arguments.unit)
    read_line = tally.read if arguments.unit else None
    watch: ElementWatch | PrintedFrames | None = frames
    buffers: Buffers | None = None
    notes: list[str] = []
    if arguments.gst is not None:
        watch = ElementWatch(arguments.gst)
        with traced(watch, clock) as env:
            ended = relay.run(argv, clock, read_line, env)
    else:
        ended = relay.run(argv, clock, read_line if frames is None else frames.read)
    if watch is not None:
        try:
            buffers = watch.buffers()
        except UserError as problem:
            notes.append(f"no frames are counted: {problem}")
    if tally.unknown is not None:
        notes.append(f"{tally.unknown}=N is not counted: it is another unit than --unit")
    outcome, reason = _outcome(ended)
    if buffers is None:
        begin_ns, end_ns = ended.begin_ns, ended.end_ns
        inferences = _inferences(arguments, tally, outcome)
        start_ns, latency_ns = array("q"), array("q")
    else:
        begin_ns, end_ns = buffers.begin_ns, buffers.end_ns
        inferences = buffers.count
        start_ns, latency_ns = buffers.start_ns, buffers.latency_ns
    return ProgramWindow(
        program=ended,
        begin_ns=begin_ns,
        end_ns=end_ns,
        outcome=outcome,
        reason=reason,
        inferences=inferences,
        units=tally.units,
        start_ns=start_ns,
        latency_ns=latency_ns,
        notes=tuple(notes),
    )


def _inferences(
    arguments: argparse.Namespace, tally: PrintedCounts, outcome: Outcome
) -> int | None:
    """Return how many there were: a program that failed did not make what was announced."""
    if arguments.inferences is None:
        return tally.inferences
    if outcome != "ok":
        return None
    return int(arguments.inferences)


def _outcome(ended: ProgramEnd) -> tuple[Outcome, str | None]:
    if ended.status == 0:
        return "ok", None
    if ended.by_signal is None:
        return "failed", f"the program ended with status {ended.status}"
    name = ended.by_signal.name
    is_request = name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    return "cancelled" if is_request else "failed", f"the program was ended by {name}"


def _begin_in_daemon(arguments: argparse.Namespace, client: ApiClient) -> str:
    """Begin a window in the daemon and return its run id."""
    answer = _post(
        client,
        event="begin",
        workload=arguments.workload,
        device=arguments.device,
        batch=arguments.batch,
        unit=arguments.unit,
        timeout_seconds=_LONGEST_SECONDS,
    )
    return str(answer["run_id"])


def _measure_there(
    arguments: argparse.Namespace,
    argv: list[str],
    relay: SignalRelay,
    client: ApiClient,
    run_id: str,
) -> int:
    """Run the program; the daemon pairs its window with telemetry."""
    try:
        window = _run_program(arguments, argv, relay)
    except CannotStartError as error:
        try:
            _post(client, event="end", run_id=run_id, outcome="failed", reason=str(error)[:400])
        except UserError as problem:
            print_error(f"tegrascope: {problem}")
        raise
    try:
        _end_in_daemon(client, run_id, window)
        report = _await_report(client, run_id, relay)
    except UserError as error:
        print_error(f"tegrascope: {arguments.workload} is not measured: {error}")
        return window.program.status
    if report is None:
        print_error(f"tegrascope: not paired yet; later: tegrascope runs show {run_id}")
    else:
        _print_report(arguments, report, window.notes)
    return window.program.status


def _end_in_daemon(client: ApiClient, run_id: str, window: ProgramWindow) -> None:
    # The daemon takes a limited number of times: of more, every second, third … is sent.
    stride = max(1, math.ceil(len(window.start_ns) / TIMES_AT_MOST))
    _post(
        client,
        event="end",
        run_id=run_id,
        begin_ns=window.begin_ns,
        end_ns=window.end_ns,
        inferences=window.inferences,
        units=window.units,
        start_ns=window.start_ns[::stride].tolist(),
        latency_ns=window.latency_ns[::stride].tolist(),
        outcome=window.outcome,
        reason=window.reason,
    )


def _await_report(client: ApiClient, run_id: str, relay: SignalRelay) -> RunReport | None:
    """Return the report of a window once it is paired, or ``None`` if that takes too long."""
    until = time.monotonic() + _PAIRING_SECONDS
    while time.monotonic() < until and not relay.interrupted.wait(0.1):
        try:
            return RunReport.model_validate(client.get(f"/api/v1/runs/{run_id}"))
        except ODD_ANSWER as error:
            raise client.odd_answer(error) from None
        except RefusedError as error:
            if error.status != 404:
                raise
    return None


def _measure_here(
    arguments: argparse.Namespace,
    argv: list[str],
    relay: SignalRelay,
    *notes: str,
    clock: Clock = SYSTEM_CLOCK,
) -> int:
    """Read telemetry in this process and pair the program's time with it."""
    config = telemetry_config(arguments)
    device: Device = "external"
    batch = 1
    for workload in config.workloads:
        if workload.name == arguments.workload:
            device, batch = workload.device, workload.batch
    device = arguments.device or device
    session = open_session(config, clock)
    try:
        trace = RunTrace(
            run_id=new_run_id(),
            workload=arguments.workload,
            backend="exec",
            device=device,
            started_ns=clock.monotonic_ns(),
            started_wall_ns=clock.wall_ns(),
            batch=arguments.batch or batch,
            unit=arguments.unit,
        )
        # A simulated board draws power for the program.
        lanes = {device} & set(LANES)
        measured = measure(arguments, argv, relay, session, trace, lanes=lanes)
    finally:
        session.stop()
    if measured is None:
        return 128 + (relay.number or 0)
    report, window = measured
    notes += window.notes
    if report.telemetry is None:
        notes += (f"no telemetry: {session.why() or 'no sample came in time'}",)
    _print_report(arguments, report, (*notes, *_stored(arguments, report)))
    return window.program.status


def measure(
    arguments: argparse.Namespace,
    argv: list[str],
    relay: SignalRelay,
    session: Session,
    trace: RunTrace,
    *,
    lanes: Iterable[str] = (),
    frames: PrintedFrames | None = None,
) -> tuple[RunReport, ProgramWindow] | None:
    """Run a program between two idle phases, and pair its window with the session's telemetry.

    ``lanes`` of a simulated board are busy for the program. Without a report, it was interrupted
    before it started.
    """
    clock = session.clock
    session.begin_window(trace.run_id)
    if _rest(trace, "baseline_before", arguments.baseline, relay, clock):
        return None
    suspended_ns = session.suspended_ns()
    for lane in lanes:
        session.load.set(lane, 1.0)
    try:
        window = _run_program(arguments, argv, relay, clock, frames)
    finally:
        for lane in lanes:
            session.load.set(lane, 0.0)
    trace.suspended_ns = session.suspended_ns() - suspended_ns
    trace.begins["steady"], trace.ends["steady"] = window.begin_ns, window.end_ns
    trace.ended_ns = window.program.end_ns
    trace.start_ns, trace.latency_ns = window.start_ns, window.latency_ns
    trace.inference_count, trace.units = window.inferences, window.units
    trace.counts_inferences = window.inferences is not None
    if window.program.by_signal is None:
        _rest(trace, "baseline_after", arguments.baseline, relay, clock)
    session.end_window(trace.run_id, clock.monotonic_ns())
    session.await_telemetry(trace)
    trace.finish(window.outcome, window.reason)
    return session.pair(trace), window


def open_session(config: Config, clock: Clock) -> Session:
    """Open telemetry and wait for its first sample, for a few seconds."""
    board = configured_board(config)
    environment = environment_of(config.telemetry, board=board, simulated=False)
    timeline = Timeline(span_seconds=_SPAN_SECONDS)
    session = Session(clock=clock, environment=environment, timeline=timeline)
    source = session.open(config.telemetry, config.board, devices=())
    session.start()
    longest = max(_FIRST_SAMPLE_SECONDS, 2 * (source.interval_seconds or 0.0))
    session.await_first_sample(longest, lambda: session.why() is not None)
    return session


def _rest(
    trace: RunTrace, phase: Any, seconds: float | None, relay: SignalRelay, clock: Clock
) -> bool:
    """Measure the machine without the program; say whether that was interrupted."""
    if not seconds:
        return relay.interrupted.is_set()
    begin_ns = clock.monotonic_ns()
    interrupted = clock.wait(relay.interrupted, begin_ns + int(seconds * 1e9))
    if not interrupted:
        trace.begins[phase], trace.ends[phase] = begin_ns, clock.monotonic_ns()
    return interrupted


def telemetry_config(arguments: argparse.Namespace) -> Config:
    """Return the settings of the telemetry that is read here."""
    config = Config() if arguments.config is None else load_config(arguments.config)
    document = config.telemetry.model_dump()
    if arguments.config is None:
        document["interval"] = 0.103
    given = {"source": arguments.telemetry, "interval": arguments.interval}
    document |= {key: value for key, value in given.items() if value is not None}
    try:
        telemetry = type(config.telemetry).model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "source"
        problem = str(first["msg"]).removeprefix("Value error, ")
        raise UsageError(
            f"--telemetry {document['source']} --interval {document['interval']:g}: "
            f"{where}: {problem}",
            "give another one, or all of it in a file with -c",
        ) from None
    return config.model_copy(update={"telemetry": telemetry})


def _check_state_dir(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(directory, error, "--state-dir") from None
    check_output(directory / DATABASE, "--state-dir")


def _stored(arguments: argparse.Namespace, report: RunReport) -> tuple[str, ...]:
    """Store a run if a directory is given; return a note if that fails."""
    if arguments.state_dir is None:
        return ()
    try:
        store = Store(arguments.state_dir / DATABASE, boot_id())
    except UserError as error:
        return (f"not stored: {error}",)
    store.finish(report)
    problem = store.problem
    store.close()
    return () if problem is None else (f"not stored: {problem}",)


def _print_report(arguments: argparse.Namespace, report: RunReport, notes: tuple[str, ...]) -> None:
    try:
        if arguments.json is not None:
            with open_output(arguments.json, "--json") as output:
                output.write(report.model_dump_json(exclude_none=True, indent=2) + "\n")
    except (BrokenPipeError, UserError) as error:
        notes += (f"the report is not written: {error}",)
    for line in report_lines(report, notes):
        print_error(line)


def print_error(line: str) -> None:
    """Print a line on standard error, if there is one: standard output is the program's."""
    if sys.stderr is not None:
        print(printable(line), file=sys.stderr)  # a daemon's answer may have escapes


def _post(client: ApiClient, **event: object) -> Any:
    known = {name: value for name, value in event.items() if value is not None}
    if isinstance(reason := known.get("reason"), str):
        known["reason"] = whole_characters(reason)
    for _ in range(5):
        try:
            return client.post("/api/v1/windows", json.dumps(known).encode())
        except RefusedError as error:
            if error.status != 503:
                raise
            time.sleep(1)
    raise UnreachableError(f"{client.url} is busy", "try again later")


EXAMPLE = (
    "tegrascope exec --workload detector -- ./detect --frames 3000\n"
    "  tegrascope exec --workload detector --inferences 3000 --telemetry simulator -- ./detect"
)


def add_telemetry(option: Options) -> None:
    """Add the options of the telemetry that is read in this process."""
    option("-c, --config FILE", "its telemetry, and the workload's")
    option(
        "--telemetry SOURCE",
        "tegrastats (default), simulator, or another of a configuration",
    )
    option("--interval SECONDS", "between samples (0.103)")


def add(option: Options) -> None:
    """Add the options."""
    option.parser.usage = "tegrascope exec --workload NAME [options] -- CMD …"
    option(
        "--workload NAME",
        "name of the workload",
        required=True,
        type=reader(str, lambda name: LABEL_NAME.fullmatch(name) is not None, LABEL_NAME_FORM),
    )
    option("--device", "what it runs on", choices=("gpu", "dla0", "dla1", "cpu", "external"))
    option("--inferences N", "how many it makes, if it succeeds")
    option(
        "--unit NAME",
        "another piece of work, such as token: the program prints tegrascope: tokens=N",
        type=reader(unit_name, bool, "a unit: small letters, digits and _, like token"),
    )
    option("--gst ELEMENT", "count and time the buffers of this element of a GStreamer pipeline")
    option("--batch N", "inputs per inference")
    option("--json FILE", "write the whole report, too")
    daemon = option.group("measured by the daemon, where one runs")
    daemon("--url URL", "default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    daemon("--token-file FILE", "the daemon's")
    here = option.group("measured here, without a daemon or with any of these")
    add_telemetry(here)
    here("--baseline SECONDS", "idle time measured before and after, for the net energy")
    here("--state-dir DIR", "keep the run in its store")
    option("program -- CMD …", nargs=argparse.REMAINDER)

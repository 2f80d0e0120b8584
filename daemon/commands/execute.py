"""``tegrascope exec``: any program as a measured window."""

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...collectors.application.client import ApiClient, RefusedError, UnreachableError
from ...collectors.base import SYSTEM_CLOCK, Clock
from ...collectors.children.program import CannotStart, ProgramEnd, SignalRelay
from ...collectors.simulator.load import LANES
from ...parsers.errors import Mendable
from ..measure.run_report import Energy, Outcome, RunReport, Telemetry
from ..measure.run_trace import RunTrace
from ..measure.timeline import Timeline
from ..session.executor import Verdict
from ..session.session import Session
from ..session.sources import configured_board, environment_of
from ..settings.config import Config
from ..settings.file import load_config
from ..settings.identity import boot_id, new_run_id
from ..store.store import Store
from .common import Commands, add_command, positive, positive_seconds


def report_lines(report: RunReport, notes: tuple[str, ...] = ()) -> list[str]:
    """Return what a person wants to know of a run; what is not known is not said.

    Args:
        report: The run.
        notes: What else there is to say.
    """
    rows = [
        *_energy(report),
        *_load(report.telemetry),
        *_latency(report),
        *((("flags", " ".join(report.quality)),) if report.quality else ()),
        *((("overlaps", " ".join(report.overlapping_runs)),) if report.overlapping_runs else ()),
        *(("note", note) for note in notes),
        ("run", report.run_id),
    ]
    return [_headline(report), *(f"  {name:9} {text}" for name, text in rows)]


def _headline(report: RunReport) -> str:
    steady = report.phases.get("steady")
    parts = [f"{report.workload} on {report.device}: {report.outcome}"]
    if report.reason:
        parts.append(report.reason)
    if steady is not None:
        parts.append(f"{steady.seconds:.3g} s")
    if report.inferences:
        parts.append(f"{report.inferences} inferences")
    if report.throughput_per_second is not None:
        parts.append(f"{report.throughput_per_second:.4g} inputs/s")
    return "tegrascope: " + " · ".join(parts)


def _energy(report: RunReport) -> Iterator[tuple[str, str]]:
    energy, steady = report.energy, report.phases.get("steady")
    if energy is None or steady is None:
        return
    if energy.gross_joules is not None:
        interval = energy.gross_interval
        sure = "" if interval is None else f" ({interval.low:.4g} to {interval.high:.4g})"
        mean = energy.gross_joules / steady.seconds
        yield "energy", f"{energy.gross_joules:.4g} J{sure}, {mean:.3g} W in the mean"
    else:
        rails = (f"{name} {rail.mean_watts:.3g} W" for name, rail in energy.rails.items())
        yield "rails", " · ".join(rails)
    if energy.net_joules is not None:
        yield "net", f"{energy.net_joules:.4g} J above {energy.baseline_watts:.3g} W idle"
    each = list(_each(energy))
    if each:
        yield "each", " · ".join(each)


def _each(energy: Energy) -> Iterator[str]:
    if energy.gross_joules_per_inference is not None:
        yield f"{energy.gross_joules_per_inference:.3g} J an inference"
    if energy.net_joules_per_inference is not None:
        yield f"{energy.net_joules_per_inference:.3g} J of them net"


def _load(telemetry: Telemetry | None) -> Iterator[tuple[str, str]]:
    if telemetry is None:
        return
    loads = [
        f"{signal} {load.mean_ratio:.0%} (up to {load.max_ratio:.0%})"
        for signal, load in telemetry.utilization.items()
    ]
    if loads:
        yield "load", " · ".join(loads)
    if telemetry.temperature:
        zone, hottest = max(telemetry.temperature.items(), key=lambda item: item[1].max_celsius)
        yield "hottest", f"{zone} {hottest.max_celsius:.3g} °C ({hottest.delta_celsius:+.2g})"


def _latency(report: RunReport) -> Iterator[tuple[str, str]]:
    if report.latency is not None:
        latency = report.latency
        yield (
            "latency",
            f"p50 {latency.p50_seconds * 1e3:.3g} ms · p99 {latency.p99_seconds * 1e3:.3g} ms",
        )


# Nothing of a window may be dropped before the program ends.
_SPAN_SECONDS = 365 * 86_400.0
_FIRST_SAMPLE_SECONDS = 3.0
_WINDOWS = "/api/v1/windows"
# The longest that a daemon keeps a window open.
_LONGEST_SECONDS = 3600
_PAIRING_SECONDS = 10.0
_OURS = ("config", "telemetry", "interval", "baseline", "state_dir")


def execute(arguments: argparse.Namespace) -> int:
    """Run a program, pair its time with telemetry, and tell of it on standard error."""
    argv = list(arguments.program)
    if argv[:1] == ["--"]:
        del argv[0]
    if not argv:
        raise Mendable("no program is named", "tegrascope exec --workload NAME -- CMD …")
    # The screen is the program's; what we have to say comes after it.
    quiet = logging.getLogger("tegrascope")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    with SignalRelay() as relay:
        try:
            if any(getattr(arguments, name) is not None for name in _OURS):
                return _measure_here(arguments, argv, relay)
            try:
                client, run_id = _begin(arguments)
            except UnreachableError as error:
                return _measure_here(arguments, argv, relay, f"measured here: {error.what}")
            except RefusedError as error:
                return _measure_here(arguments, argv, relay, f"measured here: {error}")
            return _measure_there(arguments, argv, relay, client, run_id)
        except CannotStart as error:
            _say(f"tegrascope: {error}")
            return error.status


def _begin(arguments: argparse.Namespace) -> tuple[ApiClient, str]:
    """Have the daemon begin a window.

    Raises:
        Mendable: None is there, or it does not take it.
    """
    client = ApiClient(arguments.url, arguments.token_file)
    mark = {
        "event": "begin",
        "workload": arguments.workload,
        "device": arguments.device,
        "batch": arguments.batch,
        "timeout_seconds": _LONGEST_SECONDS,
    }
    return client, str(_post(client, mark)["run_id"])


def _measure_there(
    arguments: argparse.Namespace,
    argv: list[str],
    relay: SignalRelay,
    client: ApiClient,
    run_id: str,
) -> int:
    """Have the daemon pair the program's time."""
    try:
        ended = relay.run(argv)
    except CannotStart as error:
        failed = {"event": "end", "run_id": run_id, "outcome": "failed"}
        try:
            _post(client, {**failed, "reason": str(error)[:400]})
        except Mendable as unheard:
            _say(f"tegrascope: {unheard}")
        raise
    outcome, reason = _outcome(ended)
    mark = {
        "event": "end",
        "run_id": run_id,
        "begin_ns": ended.begin_ns,
        "end_ns": ended.end_ns,
        "inferences": arguments.inferences,
        "outcome": outcome,
        "reason": reason,
    }
    try:
        _post(client, mark)
        document = _finished(client, run_id, relay)
    except Mendable as error:
        _say(f"tegrascope: {arguments.workload} is not measured: {error}")
        return ended.status
    if document is None:
        _say(f"tegrascope: not paired yet; later: tegrascope runs show {run_id}")
    else:
        _tell(arguments, RunReport.model_validate(document), ())
    return ended.status


def _finished(client: ApiClient, run_id: str, relay: SignalRelay) -> Any:
    """Wait for the daemon to have paired a window; ``None`` where that takes too long."""
    until = time.monotonic() + _PAIRING_SECONDS
    while time.monotonic() < until and not relay.interrupted.wait(0.1):
        try:
            return client.get(f"/api/v1/runs/{run_id}")
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
    config = _config(arguments)
    known = next((one for one in config.workloads if one.name == arguments.workload), None)
    device = arguments.device or (known.device if known is not None else "external")
    session = _open_session(config, clock)
    try:
        trace = RunTrace(
            run_id=new_run_id(),
            workload=arguments.workload,
            backend="exec",
            device=device,
            started_ns=clock.monotonic_ns(),
            started_wall_ns=clock.wall_ns(),
            batch=arguments.batch or (known.batch if known is not None else 1),
            counts_inferences=arguments.inferences is not None,
            inference_count=arguments.inferences,
        )
        if _rest(trace, "baseline_before", arguments.baseline, relay, clock):
            return 128 + (relay.number or 0)
        asleep_ns = clock.boottime_ns() - clock.monotonic_ns()
        if device in LANES:
            session.load.set(device, 1.0)
        try:
            ended = relay.run(argv, clock)
        finally:
            if device in LANES:
                session.load.set(device, 0.0)
        trace.begins["steady"], trace.ends["steady"] = ended.begin_ns, ended.end_ns
        trace.suspended_ns = clock.boottime_ns() - clock.monotonic_ns() - asleep_ns
        trace.ended_ns = ended.end_ns
        if ended.by_signal is None:
            _rest(trace, "baseline_after", arguments.baseline, relay, clock)
        session.await_telemetry(trace)
        report = session.pair(trace, Verdict(*_outcome(ended)))
    finally:
        session.stop()
    if report.telemetry is None:
        notes += (f"no telemetry: {session.why() or 'no sample came in time'}",)
    _tell(arguments, report, (*notes, *_stored(arguments, report)))
    return ended.status


def _open_session(config: Config, clock: Clock) -> Session:
    """Open telemetry and wait for its first sample, for a few seconds.

    Raises:
        Mendable: The recorded log or the pipe can't be read.
    """
    session = Session(
        clock=clock,
        environment=environment_of(
            config.telemetry, board=configured_board(config), simulated=False
        ),
        timeline=Timeline(span_seconds=_SPAN_SECONDS),
    )
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


def _config(arguments: argparse.Namespace) -> Config:
    """Return the settings of the telemetry that is read here.

    Raises:
        Mendable: The file or an option is wrong.
    """
    config = Config() if arguments.config is None else load_config(arguments.config)
    document = config.telemetry.model_dump()
    if arguments.config is None:
        document["interval"] = 0.103
    if arguments.telemetry is not None:
        document["source"] = arguments.telemetry
    if arguments.interval is not None:
        document["interval"] = arguments.interval
    try:
        telemetry = type(config.telemetry).model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "source"
        raise Mendable(
            f"--telemetry {document['source']} --interval {document['interval']:g}: "
            f"{where}: {first['msg']}",
            "give another one, or all of it in a file with -c",
        ) from None
    return config.model_copy(update={"telemetry": telemetry})


def _outcome(ended: ProgramEnd) -> tuple[Outcome, str | None]:
    if ended.status == 0:
        return "ok", None
    if ended.by_signal is None:
        return "failed", f"the program ended with status {ended.status}"
    told = ended.by_signal.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
    return "cancelled" if told else "failed", f"the program was ended by {ended.by_signal.name}"


def _stored(arguments: argparse.Namespace, report: RunReport) -> tuple[str, ...]:
    """Commit a run where a directory was named; a daemon may be at work on the same store."""
    if arguments.state_dir is None:
        return ()
    try:
        store = Store(arguments.state_dir / "tegrascope.db", boot_id())
    except Mendable as error:
        return (f"not stored: {error}",)
    store.finish(report)
    problem = store.problem
    store.close()
    return () if problem is None else (f"not stored: {problem}",)


def _tell(arguments: argparse.Namespace, report: RunReport, notes: tuple[str, ...]) -> None:
    path: Path | None = arguments.json
    if path is not None:
        try:
            path.write_text(report.model_dump_json(exclude_none=True, indent=2) + "\n")
        except OSError as error:
            notes += (f"{path} is not written: {error.strerror}",)
    for line in report_lines(report, notes):
        _say(line)


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def _post(client: ApiClient, mark: Mapping[str, object]) -> Any:
    said = {name: word for name, word in mark.items() if word is not None}
    for _ in range(5):
        try:
            return client.post(_WINDOWS, json.dumps(said).encode())
        except RefusedError as error:
            if error.status != 503:
                raise
            time.sleep(1)
    raise UnreachableError(f"{client.url} is busy", "try again later")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "exec",
        "tegrascope exec --workload detector -- ./detect --frames 3000\n"
        "  tegrascope exec --workload detector --inferences 3000 --telemetry simulator -- ./detect",
    )
    parser.usage = "tegrascope exec --workload NAME [options] -- CMD …"
    parser.add_argument("--workload", required=True, metavar="NAME", help="what to call it")
    parser.add_argument(
        "--device", choices=("gpu", "dla0", "dla1", "cpu", "external"), help="what it runs on"
    )
    parser.add_argument("--inferences", type=positive, metavar="N", help="how many it makes")
    parser.add_argument("--batch", type=positive, metavar="N", help="inputs an inference")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report, too")
    daemon = parser.add_argument_group("measured by the daemon, where one runs")
    daemon.add_argument("--url", help="default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    daemon.add_argument("--token-file", type=Path, metavar="FILE", help="the daemon's")
    here = parser.add_argument_group("measured here, without a daemon or with any of these")
    here.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="its telemetry, and the workload's"
    )
    here.add_argument(
        "--telemetry", metavar="SOURCE", help="tegrastats (default), simulator, … as in the file"
    )
    here.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="between samples (0.103)"
    )
    here.add_argument(
        "--baseline",
        type=positive_seconds,
        metavar="SECONDS",
        help="idle time measured before and after, for the net energy",
    )
    here.add_argument("--state-dir", type=Path, metavar="DIR", help="keep the run in its store")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- CMD …")

    parser.set_defaults(command=execute)

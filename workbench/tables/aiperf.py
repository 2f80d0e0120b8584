"""Runs out of AIPerf's export of requests: one per phase of the benchmark."""

import json
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ...daemon.measure.quality import MINIMUM_INFERENCES, withholding
from ...daemon.measure.report import Figure
from ...daemon.measure.run_text import joules, with_half
from ...parsers.errors import UnreadableError, UserError
from ...parsers.inference.aiperf import EnergyReading, Request, parse_record
from .recorded_log import Given, GivenRun, GivenTime, read_runs

_SAME_JOULES = 1e-3
_NOT_AIPERF = "name a CSV file of runs, or profile_export.jsonl of AIPerf"


def read_given(path: Path) -> Given:
    """Read a table of runs, or AIPerf's export of requests, which begins with a brace.

    Raises:
        UserError: It cannot be read, lacks a column, or has no request.
    """
    phases: dict[str, list[Request]] = {}
    problems: list[UserError] = []
    try:
        with path.open("rb") as file:
            if file.peek(1)[:1] != b"{":
                return read_runs(path)
            for number, line in enumerate(file, 1):
                try:
                    request = parse_record(line, Request) if line.strip() else None
                except UnreadableError as error:
                    where = f"{path} line {number}: {error}"
                    problems.append(UserError(where, "the request is left out"))
                else:
                    if request is not None:
                        phases.setdefault(request.phase, []).append(request)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})", _NOT_AIPERF) from None
    if not phases:
        raise UserError(f"{problems[0].message}, and no line is a request of AIPerf", _NOT_AIPERF)
    measured = [name for name in phases if name != "warmup"]
    runs = [_run(path, name, one, measured == [name]) for name, one in phases.items()]
    return Given(runs, problems)


def _run(path: Path, name: str, requests: list[Request], is_whole: bool) -> GivenRun:
    spans = sorted(one.span for one in requests)
    begin_ns, end_ns = spans[0][0], max(end for _, end in spans)
    good = sum(one.is_good for one in requests)
    lengths = [one.metrics.output_sequence_length for one in requests]
    tokens = [one.value for one in lengths if one is not None]
    start, end = (datetime.fromtimestamp(ns / 1e9, timezone.utc) for ns in (begin_ns, end_ns))
    cells = {"name": name, "start": start.isoformat(), "end": end.isoformat()}
    counts = {"requests": len(requests), "failed_requests": len(requests) - good}
    own = _own_energy(path, begin_ns, end_ns) if is_whole else {}
    return GivenRun(
        where=f"{path}, phase {name}",
        name=name,
        start=GivenTime("unix", begin_ns),
        end=GivenTime("unix", end_ns),
        inferences=good,
        units=sum(tokens) if tokens else None,
        unit="token" if tokens else None,
        device="external",
        batch=1,
        cells={**cells, **counts, **({"aiperf": own} if own else {})},
        requests=spans,
    )


def _own_energy(path: Path, begin_ns: int, end_ns: int) -> dict[str, float]:
    """Return AIPerf's own energy in joules, and how long around the requests it counted.

    It is the difference of two readings of a counter, which are searched for. Without them, or with
    several GPUs, the seconds are absent; without AIPerf's summary everything is.
    """
    base = path.name.removesuffix(".jsonl")
    summary, telemetry = f"{base}.json", f"{base}_gpu_telemetry.jsonl"
    if base == "profile_export":
        summary, telemetry = "profile_export_aiperf.json", "gpu_telemetry_export.jsonl"
    try:
        document = json.loads(path.with_name(summary).read_bytes())
        found = {"joules": float(document["nvidia_total_gpu_energy"]["avg"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    try:
        lines = path.with_name(telemetry).read_bytes().splitlines()
        readings = [parse_record(line, EnergyReading) for line in lines]
    except (OSError, UnreadableError):
        return found
    counts = [one.telemetry_data.nvidia_energy_consumption for one in readings]
    energies = [math.nan if count is None else count * 1e6 for count in counts]
    if len({(one.telemetry_source_url, one.gpu_uuid) for one in readings}) == 1:
        for last, after in reversed([*enumerate(energies)]):
            first = bisect_left(energies, after - found["joules"] - _SAME_JOULES, hi=last)
            if abs(after - energies[first] - found["joules"]) <= _SAME_JOULES:
                found["begins_before_seconds"] = (begin_ns - readings[first].timestamp_ns) / 1e9
                found["ends_after_seconds"] = (readings[last].timestamp_ns - end_ns) / 1e9
                break
    return found


def described(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a paired phase: energy per token and per request, and AIPerf's own."""
    failed, tokens = document["failed_requests"], document["units"] or 0
    counts = {"token": tokens, "request": document["requests"] - failed}
    reason = f"; {document['reason']}" if document["reason"] else ""
    words = f"{document['name']}: {document['requests']} requests"
    yield f"{words} ({failed} failed), {tokens:.0f} tokens{reason}"
    energy = document["energy"] or {}
    causes: list[str] = [*withholding(document["quality"], energy.get("gross_method"))]
    withheld = [unit for unit, count in counts.items() if count] if causes else []
    if not causes and 0 < counts["request"] < MINIMUM_INFERENCES:
        withheld, causes = ["request"], [f"fewer than {MINIMUM_INFERENCES} requests"]
    shown = {unit: count for unit, count in counts.items() if unit not in withheld}
    figures = {}
    if (gross := energy.get("gross_joules")) is not None:
        figures["whole phase"] = Figure(value=gross, **(energy["gross_interval"] or {}))
    joined = document.get("in_flight")
    name = f"{joined['seconds']:.1f} s with a request in flight" if joined else ""
    if joined and joined["joules"]:
        figures[name] = Figure(**joined["joules"])
    for what, figure in figures.items():
        yield f"  {what}: {_each(figure, shown)}"
    if joined and not joined["joules"]:
        yield f"  {name}: energy is withheld: too few readings in a request, or of unknown times"
    if figures and withheld:
        yield f"  energy per {' and '.join(withheld)} is withheld: {', '.join(causes)}"
    if own := document.get("aiperf"):
        when = ""
        if "ends_after_seconds" in own:
            names = ("begins_before_seconds", "ends_after_seconds")
            before, after = (round(own[name], 1) + 0.0 for name in names)  # not -0.0
            when = f"; from {before} s before the first request to {after} s after the last"
        yield f"  AIPerf's own: {_each(Figure(value=own['joules']), shown)}{when}"


def _each(figure: Figure, counts: Mapping[str, float]) -> str:
    """Return an energy, in all and per piece of work."""
    each = ((figure.times(1 / count), unit) for unit, count in counts.items() if count)
    shown = [f"{with_half(one, joules)} per {unit}" for one, unit in each]
    return ", ".join((with_half(figure, joules), *shown))

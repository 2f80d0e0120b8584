"""Runs out of AIPerf's export of requests: one per phase of the benchmark."""

import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    try:
        with path.open("rb") as file:
            if file.peek(1)[:1] != b"{":
                return read_runs(path)
            phases, problems = _read_requests(path, file)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})", _NOT_AIPERF) from None
    if not phases:
        raise UserError(f"{problems[0].message}, and no line is a request of AIPerf", _NOT_AIPERF)
    # AIPerf measures one energy, without the warm-up. With several phases it is that of neither.
    measured = [name for name in phases if name != "warmup"]
    runs = []
    for name, requests in phases.items():
        runs.append(_run(path, name, requests, is_whole=measured == [name]))
    return Given(runs, problems)


def _read_requests(
    path: Path, lines: Iterable[bytes]
) -> tuple[dict[str, list[Request]], list[UserError]]:
    """Return the requests of each phase, and an error per line that is not a request."""
    phases: dict[str, list[Request]] = {}
    problems: list[UserError] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            request = parse_record(line, Request)
        except UnreadableError as error:
            where = f"{path} line {number}: {error}"
            problems.append(UserError(where, "the request is left out"))
        else:
            phases.setdefault(request.phase, []).append(request)
    return phases, problems


def _run(path: Path, name: str, requests: list[Request], *, is_whole: bool) -> GivenRun:
    """Return a phase as one run; it has AIPerf's own energy if it is the whole measurement."""
    spans = sorted([request.span for request in requests])
    begin_ns, end_ns = spans[0][0], max([end for _, end in spans])
    good = 0
    tokens: float | None = None
    unit = None
    for request in requests:
        good += request.is_good
        length = request.metrics.output_sequence_length
        if length is not None:
            tokens = (tokens or 0) + length.value
            unit = "token"
    cells: dict[str, Any] = {
        "name": name,
        "start": datetime.fromtimestamp(begin_ns / 1e9, timezone.utc).isoformat(),
        "end": datetime.fromtimestamp(end_ns / 1e9, timezone.utc).isoformat(),
        "requests": len(requests),
        "failed_requests": len(requests) - good,
    }
    own = _own_energy(path, begin_ns, end_ns) if is_whole else {}
    if own:
        cells["aiperf"] = own
    return GivenRun(
        where=f"{path}, phase {name}",
        name=name,
        start=GivenTime("unix", begin_ns),
        end=GivenTime("unix", end_ns),
        inferences=good,
        units=tokens,
        unit=unit,
        device="external",
        batch=1,
        cells=cells,
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
        own = {"joules": float(document["nvidia_total_gpu_energy"]["avg"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    try:
        lines = path.with_name(telemetry).read_bytes().splitlines()
        readings = [parse_record(line, EnergyReading) for line in lines]
    except (OSError, UnreadableError):
        return own
    counted = _counted_between(readings, own["joules"])
    if counted is not None:
        first, last = counted
        own["begins_before_seconds"] = (begin_ns - first.timestamp_ns) / 1e9
        own["ends_after_seconds"] = (last.timestamp_ns - end_ns) / 1e9
    return own


def _counted_between(
    readings: Sequence[EnergyReading], joules: float
) -> tuple[EnergyReading, EnergyReading] | None:
    """Return the last two readings of the only GPU that are so many joules apart."""
    gpus = {(reading.telemetry_source_url, reading.gpu_uuid) for reading in readings}
    if len(gpus) != 1:
        return None
    energies = []
    for reading in readings:
        megajoules = reading.telemetry_data.nvidia_energy_consumption
        energies.append(math.nan if megajoules is None else megajoules * 1e6)
    for last in reversed(range(len(energies))):
        first = bisect_left(energies, energies[last] - joules - _SAME_JOULES, hi=last)
        if abs(energies[last] - energies[first] - joules) <= _SAME_JOULES:
            return readings[first], readings[last]
    return None


def described(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a paired phase: energy per token and per request, and AIPerf's own."""
    failed, tokens = document["failed_requests"], document["units"] or 0
    words = f"{document['name']}: {document['requests']} requests"
    words += f" ({failed} failed), {tokens:.0f} tokens"
    if document["reason"]:
        words += f"; {document['reason']}"
    yield words
    counts = {"token": tokens, "request": document["requests"] - failed}
    withheld, causes = _withheld(document, counts)
    shown = {unit: count for unit, count in counts.items() if unit not in withheld}
    has_energy = False
    for part, figure in _energies(document):
        if figure is None:
            why = "too few readings in a request, or of unknown times"
            yield f"  {part}: energy is withheld: {why}"
        else:
            has_energy = True
            yield f"  {part}: {_each(figure, shown)}"
    if has_energy and withheld:
        yield f"  energy per {' and '.join(withheld)} is withheld: {', '.join(causes)}"
    if document.get("aiperf"):
        yield _own_line(document["aiperf"], shown)


def _withheld(
    document: Mapping[str, Any], counts: Mapping[str, float]
) -> tuple[list[str], Sequence[str]]:
    """Return the units of which no energy may be shown, and why."""
    energy = document["energy"] or {}
    causes = withholding(document["quality"], energy.get("gross_method"))
    if causes:
        return [unit for unit, count in counts.items() if count], causes
    if 0 < counts["request"] < MINIMUM_INFERENCES:
        return ["request"], [f"fewer than {MINIMUM_INFERENCES} requests"]
    return [], []


def _energies(document: Mapping[str, Any]) -> Iterator[tuple[str, Figure | None]]:
    """Yield the energy of the whole phase, and that with a request in flight, if it is known."""
    energy = document["energy"] or {}
    if energy.get("gross_joules") is not None:
        interval = energy["gross_interval"] or {}
        yield "whole phase", Figure(value=energy["gross_joules"], **interval)
    in_flight = document.get("in_flight")
    if in_flight:
        energy = in_flight["joules"]
        part = f"{in_flight['seconds']:.1f} s with a request in flight"
        yield part, Figure(**energy) if energy else None


def _own_line(own: Mapping[str, float], shown: Mapping[str, float]) -> str:
    words = f"  AIPerf's own: {_each(Figure(value=own['joules']), shown)}"
    if "ends_after_seconds" in own:
        before = round(own["begins_before_seconds"], 1) + 0.0  # not -0.0
        after = round(own["ends_after_seconds"], 1) + 0.0
        words += f"; from {before} s before the first request to {after} s after the last"
    return words


def _each(figure: Figure, counts: Mapping[str, float]) -> str:
    """Return an energy, in all and per piece of work."""
    words = [with_half(figure, joules)]
    for unit, count in counts.items():
        if count:
            words.append(f"{with_half(figure.times(1 / count), joules)} per {unit}")
    return ", ".join(words)

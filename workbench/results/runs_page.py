"""Stored runs and telemetry as one page of HTML: a stretch of time, or one run."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ... import __version__
from ...collectors.catalog import SIMULATED_SOURCE
from ...daemon.measure.blocks import Block, CorruptBlockError, decode
from ...daemon.measure.figures import energy_of, mean_energy, mean_of_rounds, telling
from ...daemon.measure.report import RunReport
from ...daemon.measure.run_text import joules, seconds, with_half
from ...daemon.measure.verdict_text import noun_of
from ...daemon.store.history import History
from ...daemon.terminal import duration
from ...daemon.web.status_page import compare, is_shown
from ...parsers.errors import UserError
from .bench_page import board_facts, name_of, versions_line
from .document import Block as Part
from .document import Facts, Heading, Items, ScriptArea, Table, Text
from .saved_page import SIMULATED_NOTICE, flag_blocks, html_page, runs_table, timeline_of, utc

# Enough to see that the board was idle before and after.
_MARGIN_NS = 2_000_000_000


def page_since(history: History, since_seconds: float, now_wall_ns: int) -> str:
    """Return the page of the runs that started in the last seconds."""
    begin_ns = now_wall_ns - round(since_seconds * 1e9)
    runs, unreadable = _runs_since(history, begin_ns)
    samples = _Samples(history, begin_ns, now_wall_ns)
    timeline = _timeline_of_known(samples, runs)
    title = f"Runs of the last {duration(since_seconds)}"
    blocks = [*_head(title, samples, runs)]
    if unreadable:
        blocks.append(Text(f"Runs left out, since they cannot be read: {unreadable}.", "notice"))
    if not runs:
        blocks.append(Text(_why_no_run(history)))
    blocks += _conclusions(compare(history, now_wall_ns)["models"])
    blocks += _over_time(timeline)
    if runs:
        blocks += [Heading("By workload"), _workloads(runs)]
        blocks += [Heading("Runs"), runs_table(runs), *flag_blocks(runs)]
        blocks += [ScriptArea("run"), Heading("Where"), Facts(_environment(runs[-1]))]
    return _page(title, blocks, runs, timeline)


def _conclusions(models: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the answers of the status page: DLA or GPU, by the last good runs of each model."""
    for model in models:
        if not model["verdicts"]:
            continue
        batch = f", batch {model['batch']}" if model["batch"] > 1 else ""
        yield Heading(f"{name_of(model['model'])}{batch}: DLA or GPU?")
        yield Text(model["conclusion"] or "No conclusion yet", "conclusion")
        sentences = []
        for verdict in model["verdicts"]:
            noun = noun_of(verdict["goal"], verdict["energy"])
            sentences.append((noun, verdict["sentence"]))
        yield Items(sentences)


def _runs_since(history: History, begin_wall_ns: int) -> tuple[list[RunReport], int]:
    """Return the runs that started since a time, oldest first, and how many cannot be read."""
    runs: list[RunReport] = []
    unreadable = 0
    for document in takewhile(lambda run: run["started_wall_ns"] >= begin_wall_ns, history.runs()):
        try:
            runs.append(RunReport.model_validate(document))
        except ValidationError:  # one damaged row must not cost the page
            unreadable += 1
    return runs[::-1], unreadable + history.unreadable


def _timeline_of_known(samples: "_Samples", runs: Sequence[RunReport]) -> dict[str, Any]:
    """Return the timeline from the first sample or run: an hour is a few points of a day."""
    blocks = iter(samples)
    known_ns = [run.started_wall_ns for run in runs[:1]]
    first = next(blocks, None)
    if first is not None:
        known_ns.append(first.wall_ns[0])
        blocks = chain([first], blocks)
    begin_ns = max(samples.begin_ns, min(known_ns, default=samples.begin_ns))
    return timeline_of(blocks, runs, begin_ns, samples.end_ns)


def page_of_run(history: History, run_id: str) -> str:
    """Return the page of one run, by its identifier or a unique part of it.

    Raises:
        UserError: No run matches, or several.
    """
    try:
        run = RunReport.model_validate(history.find_run(run_id))
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise UserError(
            f"the record of run {run_id} cannot be read: {reason}",
            "it is damaged, or of another release; see tegrascope runs show",
        ) from None
    begin_ns = run.started_wall_ns - _MARGIN_NS
    end_ns = run.started_wall_ns + run.ended_ns - run.started_ns + _MARGIN_NS
    samples = _Samples(history, begin_ns, end_ns)
    timeline = timeline_of(iter(samples), [run], begin_ns, end_ns)
    title = f"{run.workload} on {run.device}"
    blocks = [*_head(title, samples, [run]), *_over_time(timeline), ScriptArea("run")]
    return _page(title, blocks, [run], timeline)


def _page(
    title: str, blocks: Sequence[Part], runs: Sequence[RunReport], timeline: dict[str, Any]
) -> str:
    window = f"{title}: tegrascope report"
    return html_page(window, blocks, version=__version__, runs=runs, timeline=timeline)


class _Samples:
    """The stored samples between two wall times.

    Attributes:
        damaged: Blocks that were left out; known when all have been read.
        is_simulated: Whether one of them is of the simulated board; known then, too.
    """

    def __init__(self, history: History, begin_ns: int, end_ns: int) -> None:
        self.history = history
        self.begin_ns, self.end_ns = begin_ns, end_ns
        self.damaged = 0
        self.is_simulated = False

    def __iter__(self) -> Iterator[Block]:
        for data in self.history.blocks(self.begin_ns, self.end_ns):
            try:
                block = decode(data, is_shown)
            except CorruptBlockError:
                self.damaged += 1
                continue
            self.is_simulated |= block.source == SIMULATED_SOURCE
            yield block


def _head(title: str, samples: _Samples, runs: Sequence[RunReport]) -> Iterator[Part]:
    yield Heading(title, 1)
    name = Path(samples.history.path).name
    yield Text(f"{utc(samples.begin_ns)} to {utc(samples.end_ns)}, from {name}", "under")
    if samples.is_simulated or any(run.environment.simulated for run in runs):
        yield Text(SIMULATED_NOTICE, "notice")
    if samples.damaged:
        yield Text(f"Damaged blocks of samples left out: {samples.damaged}.", "notice")


def _why_no_run(history: History) -> str:
    """Return whether the store has no run at all, or when the latest one started."""
    for latest in history.runs(1):
        started = utc(latest["started_wall_ns"])
        return f"No run started in this time. The latest run started {started}."
    return "The run store has no finished runs."


def _over_time(timeline: dict[str, Any]) -> Iterator[Part]:
    yield Heading("Over time")
    if not timeline["series"]["parts"]:
        yield Text("The store has no telemetry of this time.")
        return
    yield Text(
        "Each band is a run: the darker part is the steady phase, the lighter ones are idle with"
        " the model loaded. Times are in UTC.",
        "under",
    )
    yield ScriptArea("timeline")


def _workloads(runs: Sequence[RunReport]) -> Table:
    """Return a row per workload and device: means of its successful runs."""
    groups: dict[tuple[str, str], list[RunReport]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.accelerator), []).append(run)
    rows = []
    for (workload, device), group in groups.items():
        latencies, energies, flagged = [], [], 0
        good = [run for run in group if run.outcome == "ok"]
        for run in good:
            energies.append(energy_of(run, "net"))
            if run.latency is not None:
                latencies.append(run.latency.p50_seconds)
        for run in group:
            flagged += _has_flags(run)
        latency = with_half(mean_of_rounds(latencies), seconds)
        net = with_half(mean_energy(telling(energies)), joules)
        counts = (str(len(group)), str(len(good)))
        rows.append((workload, device, *counts, latency, net, str(flagged)))
    columns = ("workload", "device", "runs", "ok", "p50", "net energy per inference", "with flags")
    return Table(columns, rows, left=2)


def _has_flags(run: RunReport) -> bool:
    """Return whether a run has a flag that says something of this run only."""
    return any(flag != "simulated" for flag in run.quality)


def _environment(run: RunReport) -> dict[str, str | None]:
    environment = run.environment
    interval = environment.telemetry_interval_seconds
    return {
        **board_facts(environment),
        "telemetry": environment.telemetry_source,
        "interval": None if interval is None else seconds(interval),
        "versions": versions_line(environment.versions),
    }

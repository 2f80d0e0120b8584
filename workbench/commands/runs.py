"""``tegrascope runs list|show|export``."""

import argparse
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import takewhile
from math import inf
from typing import Any

from pydantic import ValidationError

from ...collectors.base import SYSTEM_CLOCK
from ...daemon.commands import DATABASE, Options, add_command, duration, open_history
from ...daemon.measure.report import RunReport
from ...daemon.measure.run_text import ABSENT, run_rows
from ...daemon.outputs import check_output, open_output, standard_output
from ...daemon.terminal import print_table
from ...parsers.records import Record
from ..results.run_table import write_run_csv

_FIGURES = ("p50", "gross energy per inference", "module power", "flags")


class RunList(Record):
    """Finished runs, newest first, as they were stored."""

    runs: tuple[RunReport, ...]


def list_runs(arguments: argparse.Namespace) -> int:
    """Print finished runs, newest first."""
    with open_history(arguments) as history:
        runs = history.runs(arguments.number, arguments.workload)
        if arguments.json:
            # A record of an older release may not have the form of today.
            print(json.dumps({"runs": list(runs)}), file=standard_output())
        else:
            titles = ("run", "started", "workload", "device", "outcome", *_FIGURES)
            print_table(titles, [_cells(document) for document in runs])
    return 0


def show_run(arguments: argparse.Namespace) -> int:
    """Print the report of one run as JSON."""
    with open_history(arguments) as history:
        document = history.find_run(arguments.run_id)
    print(json.dumps(document, indent=2), file=standard_output())
    return 0


def export_runs(arguments: argparse.Namespace) -> int:
    """Write the finished runs that are selected, by default all."""
    ids, begin_ns = arguments.run_ids, SYSTEM_CLOCK.wall_ns() - arguments.since * 1e9
    if ids and (arguments.workload or arguments.since < inf):
        arguments.misuse("give IDs, or --since and --workload")
    check_output(arguments.output)
    with open_history(arguments) as history:
        documents: Iterable[dict[str, Any]] = history.runs(workload=arguments.workload)
        documents = takewhile(lambda run: run["started_wall_ns"] >= begin_ns, documents)
        if ids:
            documents = map(history.find_run, ids)
        if arguments.format == "perfetto":
            from ..results.perfetto_trace import write_trace

            write_trace(history, list(documents), arguments.output)
        elif arguments.format == "jsonl":
            with open_output(arguments.output) as output:
                for document in documents:
                    output.write(json.dumps(document) + "\n")
        elif arguments.format == "csv":
            write_run_csv(documents, arguments.output)
        else:
            from ..tables.data_frames import write_run_parquet

            write_run_parquet(documents, arguments.output)
    return 0


def _cells(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a stored run; one that this release cannot read has only its name."""
    started = datetime.fromtimestamp(document["started_wall_ns"] / 1e9)
    texts: dict[str, str] = {}
    with suppress(ValidationError):
        for row in run_rows(RunReport.model_validate(document)):
            texts[row.label] = row.text
    if "gross energy per unit" in texts:
        # A run that counts tokens is judged by them; the cell names the unit.
        texts["gross energy per inference"] = texts["gross energy per unit"]
    return (
        document["run_id"][-8:],
        started.strftime("%Y-%m-%d %H:%M:%S"),
        *(str(document[key]) for key in ("workload", "device", "outcome")),
        *(texts.get(label, ABSENT) for label in _FIGURES),
    )


EXAMPLE = "tegrascope runs list --workload resnet50-dla0"


def add(option: Options) -> None:
    """Add the actions."""
    actions = option.actions()
    example, summary = "tegrascope runs list -n 5", "list finished runs, newest first"
    listing = add_command(actions, "list", list_runs, example, summary)
    listing("-n, --number N", "at most so many", default=20)
    listing("--workload NAME")
    listing("--json", "print one JSON object, with the whole record of each run")
    example, summary = "tegrascope runs show 0193a1", "show all of one run"
    showing = add_command(actions, "show", show_run, example, summary)
    showing("run_id ID", "or a unique beginning or end of it")
    showing("--json", "as without it: a run is always printed as one JSON object")
    example = (
        "tegrascope runs export -f parquet -o runs.parquet\n"
        "  tegrascope runs export 0193a1 -f perfetto -o run.pftrace"
    )
    summary = "write runs as a table, or as a timeline for ui.perfetto.dev"
    exporting = add_command(actions, "export", export_runs, example, summary)
    exporting("run_ids ID", "or a unique beginning or end of it (default: all)", nargs="*")
    exporting.output("csv", "parquet", "jsonl", "perfetto", default="jsonl")
    exporting("--workload NAME")
    exporting(
        "--since DURATION",
        "runs that started so long ago or later, like 24h",
        type=duration,
        default=inf,
    )
    for action in (listing, showing, exporting):
        action.state_dir("where runs are kept, or the database itself", DATABASE)

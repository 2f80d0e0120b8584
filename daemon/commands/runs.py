"""``tegrascope runs list|show|export``."""

import argparse
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ...parsers.errors import UserError
from ...parsers.records import Record
from ..measure.run_report import RunReport
from ..terminal import open_output, print_table, standard_output
from . import DATABASE, Options, add_command, open_history

_TITLES = ("run", "started", "workload", "device", "outcome", "p50 ms", "J/inf", "W", "flags")


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
            print_table(_TITLES, map(_row, runs))
    return 0


def show_run(arguments: argparse.Namespace) -> int:
    """Print the report of one run as JSON."""
    with open_history(arguments) as history:
        document = history.run(arguments.run_id)
    if document is None:
        raise UserError(
            f"no run {arguments.run_id}, or several begin so", "see tegrascope runs list"
        )
    print(json.dumps(document, indent=2), file=standard_output())
    return 0


def export_runs(arguments: argparse.Namespace) -> int:
    """Write every finished run."""
    with open_history(arguments) as history:
        documents = history.runs(workload=arguments.workload)
        if arguments.format == "jsonl":
            with open_output(arguments.output) as output:
                for document in documents:
                    output.write(json.dumps(document) + "\n")
        else:
            from ..tables.frames import runs_frame, write_frame

            write_frame(runs_frame(documents), arguments.output, arguments.format)
    return 0


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    started = datetime.fromtimestamp(run["started_wall_ns"] / 1e9)
    energy = run.get("energy") or {}
    rails = energy.get("rails") or {}
    watts: Iterable[float] = [
        rails[rail]["mean_watts"] for rail in energy.get("total_rails", ()) if rail in rails
    ]
    return (
        run["run_id"][-8:],
        started.strftime("%Y-%m-%d %H:%M:%S"),
        run["workload"],
        run["device"],
        run["outcome"],
        _figure((run.get("latency") or {}).get("p50_seconds"), 1e3),
        _figure(each) + f"/{run['unit']}"
        if (each := energy.get("joules_per_unit")) is not None
        else _figure(energy.get("gross_joules_per_inference")),
        _figure(sum(watts) if watts else None),
        " ".join(run.get("quality", ())) or "-",
    )


def _figure(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.3g}"


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
    example, summary = "tegrascope runs export -f parquet -o runs.parquet", "write all runs"
    exporting = add_command(actions, "export", export_runs, example, summary)
    exporting.output("csv", "parquet", "jsonl", default="jsonl")
    exporting("--workload NAME")
    for action in (listing, showing, exporting):
        action.state_dir("where runs are kept, or the database itself", DATABASE)

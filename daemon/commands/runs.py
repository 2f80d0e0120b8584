"""``tegrascope runs list|show|export``."""

import argparse
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...parsers.errors import Mendable
from ..store.history import History
from ..terminal.output import open_output
from .common import Commands, add_command, add_state_dir, positive

_COLUMNS = ("run", "started", "workload", "device", "outcome", "p50 ms", "J/inf", "W", "flags")


def list_runs(arguments: argparse.Namespace) -> int:
    """Print a table of finished runs, newest first."""
    runs = list(_history(arguments).runs(arguments.number, arguments.workload))
    rows = [_COLUMNS, *map(_row, runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return 0


def show_runs(arguments: argparse.Namespace) -> int:
    """Print all of one run as JSON."""
    document = _history(arguments).run(arguments.run_id)
    if document is None:
        raise Mendable(
            f"no run {arguments.run_id}, or several begin so", "see tegrascope runs list"
        )
    print(json.dumps(document, indent=2))
    return 0


def export_runs(arguments: argparse.Namespace) -> int:
    """Write every finished run."""
    documents = _history(arguments).runs(workload=arguments.workload)
    if arguments.format == "jsonl":
        with open_output(arguments.output) as output:
            for document in documents:
                output.write(json.dumps(document) + "\n")
    else:
        from ..tables.frames import runs_frame, write_frame

        write_frame(runs_frame(documents), arguments.output, arguments.format)
    return 0


def _history(arguments: argparse.Namespace) -> History:
    state: Path = arguments.state_dir
    return History(state if state.is_file() else state / "tegrascope.db")


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
        _figure(energy.get("gross_joules_per_inference")),
        _figure(sum(watts) if watts else None),
        " ".join(run.get("quality", ())) or "-",
    )


def _figure(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.3g}"


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "runs", "tegrascope runs list --workload resnet50-dla0")
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    listing = add_command(
        actions, "list", "tegrascope runs list -n 5", "list finished runs, newest first"
    )
    listing.add_argument(
        "-n", "--number", type=positive, default=20, metavar="N", help="at most so many"
    )
    listing.add_argument("--workload", metavar="NAME")
    showing = add_command(actions, "show", "tegrascope runs show 0193a1", "show all of one run")
    showing.add_argument("run_id", metavar="ID", help="or an unmistakable beginning or end of it")
    exporting = add_command(
        actions, "export", "tegrascope runs export -f parquet -o runs.parquet", "write all runs"
    )
    exporting.add_argument("-f", "--format", choices=("csv", "parquet", "jsonl"), default="jsonl")
    exporting.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    exporting.add_argument("--workload", metavar="NAME")
    for action, command in ((listing, list_runs), (showing, show_runs), (exporting, export_runs)):
        add_state_dir(action, "where runs are kept, or the database itself")
        action.set_defaults(command=_explain_store_errors(command))


def _explain_store_errors(
    command: Callable[[argparse.Namespace], int],
) -> Callable[[argparse.Namespace], int]:
    def explained(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except sqlite3.Error as error:
            raise Mendable(
                f"the run store in {arguments.state_dir} cannot be read ({error})",
                "name the daemon's directory with --state-dir",
            ) from None

    return explained

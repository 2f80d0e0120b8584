"""Arguments of ``tegrascope correlate``."""

import argparse
from pathlib import Path

from .common import Commands, add_command, positive_seconds


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "correlate",
        "pair runs with recorded logs: energy, load and flags of each",
        "tegrascope correlate --telemetry robot.log --runs runs.csv -o energy.csv\n"
        "  tegrascope correlate --telemetry robot.log --runs runs.csv --timezone Europe/Berlin",
    )
    parser.add_argument(
        "--telemetry",
        nargs="+",
        required=True,
        metavar="LOG",
        help="what tegrastats printed, plain or gzip",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV of name,start,end,inferences and, if you like, device and batch; start and end"
        " as ISO 8601, as seconds since 1970, or as seconds since the first record",
    )
    parser.add_argument("-f", "--format", choices=("csv", "parquet", "jsonl"), default="csv")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.add_argument(
        "--timezone", metavar="ZONE", help="of the printed times, like Europe/Berlin"
    )
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two records of a log that prints no time (default: %(default)s)",
    )
    parser.add_argument(
        "--board", metavar="NAME", help="rail rule to apply; without it the rails tell"
    )

    def command(arguments: argparse.Namespace) -> int:
        from ..correlate_command import correlate

        return correlate(arguments)

    parser.set_defaults(command=command)

"""Arguments of ``tegrascope parse``."""

import argparse
from pathlib import Path

from .common import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "parse",
        "turn tegrastats lines into records",
        "tegrascope parse robot.log.gz | jq .rails\n  tegrastats | tegrascope parse -",
    )
    parser.add_argument(
        "files", nargs="*", default=["-"], metavar="FILE", help="plain or gzip; - is standard input"
    )
    parser.add_argument("-f", "--format", choices=("jsonl", "csv", "parquet"), default="jsonl")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )
    parser.add_argument("--keep-lines", action="store_true", help="keep each line in source_line")

    def command(arguments: argparse.Namespace) -> int:
        from ..parse_command import parse

        return parse(arguments)

    parser.set_defaults(command=command)

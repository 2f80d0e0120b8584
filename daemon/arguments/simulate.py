"""Arguments of ``tegrascope simulate``."""

import argparse
from pathlib import Path

from .common import Commands, add_command, positive


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "simulate",
        "print the tegrastats lines of a simulated board",
        "tegrascope simulate --board orin-nx-16gb --interval 100 --seed 7",
    )
    parser.add_argument(
        "--board",
        default="agx-orin-64gb",
        choices=("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"),
    )
    parser.add_argument(
        "--interval",
        type=positive,
        default=1000,
        metavar="MS",
        help="between two lines, as of tegrastats (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--load", type=Path, metavar="FILE", help="CSV of at_seconds,lane,ratio")
    parser.add_argument(
        "--unprivileged", action="store_true", help="print what an ordinary user sees"
    )
    parser.add_argument("--lines", type=positive, metavar="N", help="stop after so many")

    def command(arguments: argparse.Namespace) -> int:
        from ..simulate_command import simulate

        return simulate(arguments)

    parser.set_defaults(command=command)

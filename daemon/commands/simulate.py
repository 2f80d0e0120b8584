"""``tegrascope simulate``."""

import argparse
import signal
from itertools import islice
from pathlib import Path

from ...collectors.simulator.board import SimulatorSource
from ...collectors.simulator.load import read_load_file
from . import Commands, add_command, positive


def simulate(arguments: argparse.Namespace) -> int:
    """Print lines as tegrastats would, each when it is due."""
    source = SimulatorSource(
        arguments.board,
        interval_seconds=arguments.interval / 1000,
        privileged=not arguments.unprivileged,
        seed=arguments.seed,
        schedule=() if arguments.load is None else read_load_file(arguments.load),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: source.stop())
    for line in islice(source.lines(), arguments.lines):
        print(line.value, flush=True)
    return 0


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "simulate",
        "tegrascope simulate --board orin-nx-16gb --interval 100 --seed 7",
    )
    parser.add_argument(
        "--board",
        choices=("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"),
        default="agx-orin-64gb",
        help="default: %(default)s",
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
        "--unprivileged",
        action="store_true",
        help="print only the fields that an ordinary user sees",
    )
    parser.add_argument("--lines", type=positive, metavar="N", help="stop after so many")
    parser.set_defaults(command=simulate)

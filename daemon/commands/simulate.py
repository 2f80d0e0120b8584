"""``tegrascope simulate``."""

import argparse
import signal
from itertools import islice
from pathlib import Path

from ...collectors.simulator.load import read_load_file
from ...collectors.simulator.source import SimulatorSource
from .common import Commands, add_command, positive


def simulate(arguments: argparse.Namespace) -> int:
    """Print lines as tegrastats would, each when it is due."""
    source = SimulatorSource(
        arguments.board or "agx-orin-64gb",
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
        "tegrascope simulate --board orin-nx-16gb --interval 100 --seed 7\n"
        "  tegrascope simulate --fleet 200 --listen 127.0.0.1:9760",
    )
    parser.add_argument(
        "--board",
        choices=("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"),
        help="default: agx-orin-64gb",
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
    fleet = parser.add_argument_group("a fleet, to size and try a Prometheus with")
    fleet.add_argument(
        "--fleet", type=positive, metavar="N", help="serve the metric pages of N devices"
    )
    fleet.add_argument(
        "--listen", metavar="HOST:PORT", help="of the fleet (default: 127.0.0.1:9760)"
    )

    def command(arguments: argparse.Namespace) -> int:
        if arguments.fleet is None:
            if arguments.listen is not None:
                parser.error("--listen is of a fleet: give --fleet N")

            return simulate(arguments)
        for name in ("board", "load", "lines"):
            if getattr(arguments, name) is not None:
                parser.error(f"--{name} is of one board, and --fleet mixes them")
        from ..fleet.command import simulate_fleet

        return simulate_fleet(arguments)

    parser.set_defaults(command=command)

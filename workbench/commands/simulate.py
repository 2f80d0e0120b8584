"""``tegrascope simulate``."""

import argparse
import signal

from ...collectors.simulator.board import SimulatorSource
from ...collectors.simulator.physics import read_load_file
from ...daemon.commands import Options, positive


def run(arguments: argparse.Namespace) -> int:
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
    for line in source.lines():
        print(line.value, flush=True)
    return 0


EXAMPLE = "tegrascope simulate --board orin-nx-16gb --interval 100 --seed 7"


def add(option: Options) -> None:
    """Add the options."""
    option(
        "--board",
        "default: %(default)s",
        choices=("agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"),
        default="agx-orin-64gb",
    )
    option(
        "--interval MS",
        "between two lines, as of tegrastats (default: %(default)s)",
        type=positive,
        default=1000,
    )
    option("--seed N", type=int, default=0)
    option("--load FILE", "CSV of at_seconds,lane,ratio")
    option("--unprivileged", "print only the fields that an ordinary user sees")

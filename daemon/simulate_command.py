"""``tegrascope simulate``."""

import argparse
import signal
from itertools import islice

from ..collectors.load_board import read_load_file
from ..collectors.simulator import SimulatorSource


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

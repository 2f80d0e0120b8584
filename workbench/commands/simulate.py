"""``tegrascope simulate``."""

import argparse
import signal

from ...collectors.simulator.board import SimulatorSource
from ...collectors.simulator.physics import LoadBoard, board_model
from ...daemon.commands import Options, positive, reader
from ...parsers.errors import UsageError


def run(arguments: argparse.Namespace) -> int:
    """Print lines as tegrastats would, each when it is due."""
    load, lanes = LoadBoard(), board_model(arguments.board).lanes
    for lane, ratio in arguments.load:
        if lane not in lanes:
            what = f"--load: {arguments.board} has no lane {lane!r}"
            raise UsageError(what, f"use one of {', '.join(lanes)}")
        load.set(lane, ratio, at_ns=0)
    source = SimulatorSource(
        arguments.board,
        load=load,
        interval_seconds=arguments.interval / 1000,
        privileged=not arguments.unprivileged,
        seed=arguments.seed,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: source.stop())
    for line in source.lines():
        print(line.value, flush=True)
    return 0


_ratio = reader(float, lambda ratio: 0 <= ratio <= 1, "a load from 0 to 1, as in gpu=0.5")


def _load(text: str) -> tuple[str, float]:
    lane, _, ratio = text.partition("=")
    return lane, _ratio(ratio)


EXAMPLE = "tegrascope simulate --board orin-nx-16gb --interval 100 --load dla0=0.8"


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
    words = "a constant load of gpu, dla0, dla1, cpu or emc, as gpu=0.5; may be repeated"
    option("--load LANE=RATIO", words, action="append", type=_load, default=[])
    option("--unprivileged", "print only the fields that an ordinary user sees")

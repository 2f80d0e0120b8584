"""Arguments of ``tegrascope advise``."""

import argparse
from pathlib import Path

from .common import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "advise",
        "say which accelerator for which model, from results of bench: least energy or GPU",
        'tegrascope advise bench-out/ --rates "yolo=30,seg=10"\n'
        '  tegrascope advise yolo/ seg/ --rates "yolo=30,seg=10" --deadlines "yolo=33ms"'
        " --minimise gpu",
    )
    parser.add_argument(
        "results",
        nargs="+",
        type=Path,
        metavar="RESULT",
        help="result.json of bench, or its directory",
    )
    parser.add_argument(
        "--rates", required=True, metavar="LIST", help="inputs a second, as yolo=30,seg=10"
    )
    parser.add_argument(
        "--deadlines",
        metavar="LIST",
        help="of an inference, as yolo=33ms,seg=0.2s (default: until the next input)",
    )
    parser.add_argument(
        "--minimise", choices=("energy", "gpu"), default="energy", help="default: %(default)s"
    )
    parser.add_argument(
        "--margin",
        type=_percent,
        default=10.0,
        metavar="PERCENT",
        help="take latencies and loads as so much larger (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="for programs; see docs/advise.md")

    def command(arguments: argparse.Namespace) -> int:
        from ..advise.command import advise

        return advise(arguments)

    parser.set_defaults(command=command)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of percents from 0 on")
    return value

"""``tegrascope advise``."""

import argparse
import sys
from pathlib import Path

from ..advise.choices import names_in, read_sources
from ..advise.compose import advise_on, read_demands
from ..terminal.output import CHECK_SAYS_NO, GOOD, standard_output
from . import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "advise",
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
        "--rates", required=True, metavar="LIST", help="inputs per second, as yolo=30,seg=10"
    )
    parser.add_argument(
        "--deadlines",
        metavar="LIST",
        help="per inference, as yolo=33ms,seg=0.2s (default: until the next input)",
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

    parser.set_defaults(command=advise)


def advise(arguments: argparse.Namespace) -> int:
    """Print the best accelerator for each model; return 3 if no placement is feasible."""
    sources = read_sources(arguments.results)
    demands = read_demands(arguments.rates, arguments.deadlines, names_in(sources))
    advice = advise_on(sources, demands, minimise=arguments.minimise, margin=arguments.margin / 100)
    if arguments.json:
        print(advice.model_dump_json(exclude_none=True), file=standard_output())
        for violation in advice.violations:
            print(violation.sentence, file=sys.stderr)
    else:
        from ..advise.compose import print_advice

        print_advice(advice)
    return GOOD if advice.chosen is not None else CHECK_SAYS_NO


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage from 0 on")
    return value

"""``tegrascope advise``."""

import argparse
import sys
from pathlib import Path

from ...daemon.commands import Options
from ...daemon.outputs import open_output, standard_output
from ...daemon.terminal import CHECK_SAYS_NO, GOOD
from ...parsers.errors import UsageError
from ...parsers.values import printable
from ..advise.choices import names_in, read_sources
from ..advise.compose import advise_on, print_advice, read_demands
from ..advise.emit import TARGETS, emit
from ..results.promise import PROMISE_FILE

EXAMPLE = (
    'tegrascope advise bench-out/ --rates "yolo=30,seg=10"\n'
    '  tegrascope advise yolo/ seg/ --rates "yolo=30,seg=10" --deadlines "yolo=33ms"'
    " --minimise gpu"
)


def add(option: Options) -> None:
    """Add the options."""
    option("results RESULT", "result.json of bench, or its directory", nargs="+", type=Path)
    option("--rates LIST", "inputs per second, as yolo=30,seg=10", required=True)
    option(
        "--deadlines LIST", "per inference, as yolo=33ms,seg=0.2s (default: until the next input)"
    )
    option("--minimise", "default: %(default)s", choices=("energy", "gpu"), default="energy")
    option(
        "--margin PERCENT",
        "take latencies and loads as so much larger (default: %(default)g)",
        default=10.0,
    )
    words = "also write what this program needs to run the models so; needs -o"
    option("--emit", words, choices=TARGETS)
    option("-o, --output DIR", "where --emit writes, and promise.json for tegrascope verify")
    option.state_dir("where built-in models are cached")
    option("--json", "for programs; see docs/advise.md")


def run(arguments: argparse.Namespace) -> int:
    """Print the best accelerator for each model; return 3 if no placement is feasible."""
    if arguments.emit is not None and arguments.output is None:
        raise UsageError("--emit needs a directory", "add -o DIR")
    sources = read_sources(arguments.results)
    demands = read_demands(arguments.rates, arguments.deadlines, names_in(sources))
    advice = advise_on(sources, demands, minimise=arguments.minimise, margin=arguments.margin / 100)
    if arguments.json:
        print(advice.model_dump_json(exclude_none=True), file=standard_output())
        for violation in advice.violations:
            print(printable(violation.sentence), file=sys.stderr)
    else:
        print_advice(advice)
    if arguments.emit is not None:
        models = arguments.state_dir / "models"
        for path in emit(advice, sources, arguments.emit, arguments.output, models):
            print(f"wrote {printable(str(path))}", file=sys.stderr)
    if arguments.output is not None and advice.promise is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
        with open_output(arguments.output / PROMISE_FILE) as output:
            output.write(advice.promise.model_dump_json(exclude_none=True, indent=2) + "\n")
        where = printable(str(arguments.output))
        words = f"wrote {where}/{PROMISE_FILE}; next: tegrascope verify {where} -- COMMAND"
        print(words, file=sys.stderr)
    return GOOD if advice.chosen is not None else CHECK_SAYS_NO

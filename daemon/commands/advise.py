"""``tegrascope advise``."""

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from math import isfinite
from pathlib import Path

from ...parsers.errors import Misused
from ...parsers.values import read_duration
from ..advise.choices import names_in, read_sources
from ..advise.compose import advise_on
from ..advise.problem import MOST_MODELS
from ..advise.records import Demand
from ..terminal.output import CHECK_SAYS_NO, GOOD, standard_output
from .common import Commands, add_command


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
        from ..advise.table import print_advice

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


def read_demands(rates: str, deadlines: str | None, known: Sequence[str]) -> tuple[Demand, ...]:
    """Read ``yolo=30,seg=10`` and ``yolo=33ms``.

    Args:
        rates: Inputs per second by model.
        deadlines: By model; others have until their next input.
        known: Names of the models of which there are results.

    Raises:
        Misused: It is of another form, or names an unknown model.
    """
    by_rate = _pairs(rates, "--rates", "yolo=30,seg=10")
    by_deadline = _pairs(deadlines or "", "--deadlines", "yolo=33ms,seg=0.2s")
    if not by_rate:
        raise Misused("--rates names no model", "give it like yolo=30,seg=10")
    if len(by_rate) > MOST_MODELS:
        raise Misused(
            f"--rates names {len(by_rate)} models", f"ask for at most {MOST_MODELS} at once"
        )
    demands = []
    for name, text in by_rate.items():
        _must_be_known(name, known, "no result is of")
        rate = _positive(text, f"--rates {name}={text}", "a number of inputs per second, like 30")
        late = by_deadline.pop(name, None)
        demands.append(
            Demand(
                name=name,
                rate_per_second=rate,
                deadline_seconds=1 / rate if late is None else _seconds(name, late),
                is_deadline_given=late is not None,
            )
        )
    for name in by_deadline:
        _must_be_known(name, list(by_rate), "--rates does not name")
    return tuple(demands)


def _pairs(text: str, option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, mark, value = (piece.strip() for piece in part.partition("="))
        if not (name and mark and value):
            raise Misused(f"{option} {part!r} is not NAME=VALUE", f"give it like {example}")
        if name in found:
            raise Misused(f"{option} names {name} twice", "name it once")
        found[name] = value
    return found


def _must_be_known(name: str, known: Sequence[str], problem: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
    raise Misused(f"{problem} {name!r}", hint)


def _positive(text: str, given: str, form: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not isfinite(value) or value <= 0:
        raise Misused(f"{given} is not a number above 0", f"give {form}")
    return value


def _seconds(name: str, text: str) -> float:
    given = f"--deadlines {name}={text}"
    try:
        value = read_duration(text)
    except ValueError as error:
        raise Misused(given, str(error)) from None
    return _positive(str(value), given, "a time above 0, like 33ms")

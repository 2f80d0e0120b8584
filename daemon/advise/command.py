"""``tegrascope advise``."""

import argparse
import sys

from ..exit_status import CHECK_SAYS_NO, GOOD
from ..output import standard_output
from .choices import names_in
from .compose import advise_on
from .demand import read_demands
from .results import read_sources


def advise(arguments: argparse.Namespace) -> int:
    """Say which accelerator for which model; status 3 where no placement can be."""
    sources = read_sources(arguments.results)
    demands = read_demands(arguments.rates, arguments.deadlines, names_in(sources))
    advice = advise_on(sources, demands, minimise=arguments.minimise, margin=arguments.margin / 100)
    if arguments.json:
        print(advice.model_dump_json(exclude_none=True), file=standard_output())
        for shortfall in advice.shortfalls:
            print(shortfall.sentence, file=sys.stderr)
    else:
        from .table import print_advice

        print_advice(advice)
    return GOOD if advice.chosen is not None else CHECK_SAYS_NO

"""``tegrascope compare``."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ...collectors.paths import exists
from ...daemon.commands import DATABASE, Options, open_history
from ...daemon.measure.report import RunReport
from ...daemon.outputs import standard_output
from ...daemon.terminal import CHECK_CANNOT_SAY, CHECK_SAYS_NO, FAILED, GOOD
from ...parsers.errors import UserError
from ...parsers.values import printable
from ..compare.report import compare, print_comparison
from ..compare.sides import Side, published_side, sides_of
from ..results.reading import read_result_or_run, validated

PUBLISHED = "published"
EXAMPLE = (
    "tegrascope compare yesterday/ today/\n"
    "  tegrascope compare release/result.json result.json --fail-if-worse 5%\n"
    "  tegrascope compare published result.json\n"
    "  tegrascope compare 0193a1 0193b7"
)


def add(option: Options) -> None:
    """Add the options."""
    words = "result.json of bench, its directory, a run (id or file), or published: the nearest one"
    option("a RESULT", words)
    option("b RESULT", "the same; differences are those of B from A")
    option("--across", "compare different accelerators and boards too")
    option(
        "--fail-if-worse PERCENT",
        "return 3 if latency, throughput or energy is worse by more, with its whole interval; 4 if"
        " the intervals are too wide to see it",
    )
    option("--json", "for programs; see docs/compare.md")
    option.state_dir("where runs are kept, or the database itself", DATABASE)


def run(arguments: argparse.Namespace) -> int:
    """Print the differences and their causes.

    Return 1 if nothing could be compared, and for a gate if something could not; 3 if it is worse;
    4 if the intervals are too wide to see the limit of the gate.
    """
    a, b = _sides(arguments, "a"), _sides(arguments, "b")
    a, b = a or _published("A", b), b or _published("B", a)
    limit = None
    if arguments.fail_if_worse is not None:
        limit = arguments.fail_if_worse / 100
    comparison = compare(a, b, across=arguments.across, limit=limit)
    if arguments.json:
        print(comparison.model_dump_json(exclude_none=True), file=standard_output())
        reasons = [refusal.reason for refusal in comparison.refused]
        for reason in (*reasons, *comparison.failures, *comparison.too_wide):
            print(printable(reason), file=sys.stderr)
    else:
        print_comparison(comparison)
    if comparison.failures:
        return CHECK_SAYS_NO
    is_complete = bool(comparison.pairs) and not (comparison.refused and limit is not None)
    if not is_complete:
        return FAILED
    return CHECK_CANNOT_SAY if comparison.too_wide else GOOD


def _sides(arguments: argparse.Namespace, name: str) -> list[Side]:
    given: str = getattr(arguments, name)
    path = Path(given)
    if given == PUBLISHED and not exists(path):
        return []
    if exists(path) or path.suffix or len(path.parts) > 1:
        measured = read_result_or_run(path)
    else:
        problem = f"{given} is neither a file nor the id of one run"
        try:
            with open_history(arguments) as history:
                document = history.find_run(given)
        except UserError as error:
            # Most names that are not of a run are files that are not there.
            raise UserError(f"{problem} ({error.message})", error.remedy) from None
        measured = validated(RunReport, json.dumps(document), f"run {given}")
    sides = sides_of(name.upper(), given, measured)
    if not sides:
        raise UserError(f"{given} has no measurement", "run the benchmark again")
    return sides


def _published(label: str, own: Sequence[Side]) -> list[Side]:
    """Return the nearest published results of measurements."""
    nearest, unknown = [], []
    for side in own:
        published = published_side(label, side)
        if published is not None:
            nearest.append(published)
        else:
            unknown.append(f"{side.name} on {side.device}")
    if nearest:
        return nearest
    problem = "both are published results"
    if unknown:
        problem = f"nothing is published of {', '.join(unknown)}"
    remedy = "docs/published.md lists the models; name a result.json of one of them"
    raise UserError(problem, remedy)

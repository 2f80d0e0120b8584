"""``tegrascope correlate``."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...daemon.commands import Options
from ...daemon.measure.report import Energy, Figure, Interval
from ...daemon.measure.run_text import half_of, joules, offset_words
from ...daemon.outputs import check_output, open_output
from ...parsers import signals
from ...parsers.values import printable
from ..results.run_table import write_run_csv

_FIGURES = (
    ("gross_joules_per_inference", "gross_joules_per_inference_interval", "per inference, gross"),
    ("gross_joules", "gross_interval", "gross"),
)
_SHOWN = 10  # runs with their energy on the terminal; all of them are in the table


def run(arguments: argparse.Namespace) -> int:
    """Pair the runs of a table with recorded logs; report each row that cannot be paired."""
    from ..tables.aiperf import described, read_given
    from ..tables.log_tables import read_log_table
    from ..tables.pairing import correlate_recorded
    from ..tables.recorded_log import find_zone

    check_output(arguments.output)
    zone = None
    if arguments.timezone is not None:
        zone = find_zone(arguments.timezone)
    given = read_given(arguments.runs)
    telemetry = read_log_table(arguments.telemetry, interval_seconds=arguments.interval)
    correlated = correlate_recorded(
        telemetry,
        given,
        zone=zone,
        board=arguments.board,
        averaging=arguments.averaging,
    )
    if arguments.format == "jsonl":
        with open_output(arguments.output) as output:
            for document in correlated.documents:
                output.write(json.dumps(document) + "\n")
    elif arguments.format == "csv":
        write_run_csv(correlated.documents, arguments.output)
    else:
        from ..tables.data_frames import write_run_parquet

        write_run_parquet(correlated.documents, arguments.output)
    for problem in correlated.problems:
        print(f"tegrascope: {printable(str(problem))}", file=sys.stderr)
    for document in correlated.documents:
        if "failed_requests" in document:
            print(*map(printable, described(document)), sep="\n", file=sys.stderr)
    paired = [document for document in correlated.documents if document["outcome"] == "ok"]
    outside, refused = len(correlated.documents) - len(paired), len(correlated.problems)
    print(
        f"{len(paired) + outside + refused} runs: {len(paired)} with telemetry,"
        f" {outside} outside the log, {refused} refused",
        file=sys.stderr,
    )
    for document in paired[:_SHOWN]:
        print(f"  {printable(_energy_line(document))}", file=sys.stderr)
    for remark in _remarks(paired, has_rails=_has_rails(telemetry.values)):
        print(f"tegrascope: {remark}", file=sys.stderr)
    return 1 if correlated.problems or not paired else 0


def _energy_line(document: Mapping[str, Any]) -> str:
    """Return the name of a run, its energy, per inference if that is known, and its flags."""
    energy, name = document["energy"] or {}, document["name"]
    flags = " ".join(document["quality"])
    for value_key, interval_key, words in _FIGURES:
        value, interval = energy.get(value_key), energy.get(interval_key)
        if value is None:
            continue
        half = ""
        if interval is not None:
            half = half_of(Figure.limited(value, Interval.model_validate(interval)))
        flagged = f" ({flags})" if flags else ""
        figure = " ".join(filter(None, (f"{name}:", joules(value), half, words)))
        offset = offset_words(Energy.model_validate(energy), value)
        return ", ".join(filter(None, (figure, offset))) + flagged
    return f"{name}: no energy ({flags or 'no rails'})"


def _has_rails(columns: Iterable[str]) -> bool:
    """Return whether a column of a log is the power of a rail."""
    for name in columns:
        column = signals.split(name)
        if column is not None and column[0] is signals.RAIL_POWER:
            return True
    return False


def _remarks(paired: Sequence[Mapping[str, Any]], *, has_rails: bool) -> Iterator[str]:
    """Yield why runs with telemetry have no energy, or energy without an interval."""
    assumed = [document for document in paired if "times_assumed" in document["quality"]]
    if assumed:
        yield (
            f"{len(assumed)} of {len(paired)} runs: the log has no times that are understood, so"
            " its records were taken to be one --interval apart, and energy has no interval:"
            " record it with `tegrastats | ts %.s`"
        )
    without_rails = [document for document in paired if not _rails_of(document)]
    if without_rails and not has_rails:
        yield (
            f"{len(without_rails)} of {len(paired)} runs have no energy, because the log has no"
            " power rails: record it with sudo tegrastats (some releases print none)"
        )
    elif without_rails:
        yield (
            f"{len(without_rails)} of {len(paired)} runs have no energy, because the readings of"
            " the rails do not cover them: look for gaps in the log"
        )
    without_total = 0
    rails: set[str] = set()
    for document in paired:
        if _rails_of(document) and not document["energy"]["total_rails"]:
            without_total += 1
            rails.update(_rails_of(document))
    if without_total:
        yield (
            f"{without_total} of {len(paired)} runs have the energy of rails and none of the"
            f" module, because no known rule says which of these add up to it:"
            f" {' '.join(sorted(rails))} (a Thor needs VIN, which some of its releases do not"
            " print)"
        )


def _rails_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    energy = document.get("energy") or {}
    rails: Mapping[str, Any] = energy.get("rails", {})
    return rails


EXAMPLE = (
    "tegrascope correlate --telemetry robot.log --runs runs.csv -o energy.csv\n"
    "  tegrascope correlate --telemetry robot.log --runs runs.csv --timezone Europe/Berlin"
)


def add(option: Options) -> None:
    """Add the options."""
    option("--telemetry LOG", "output of tegrastats, plain or gzip", nargs="+", required=True)
    option(
        "--runs FILE",
        "CSV of name,start,end,inferences and optionally units, unit, device, batch; start and end"
        " as ISO 8601, as seconds since 1970, or as seconds since the first record;"
        " or profile_export.jsonl of AIPerf",
        required=True,
    )
    option.output("csv", "parquet", "jsonl", default="csv")
    option("--timezone ZONE", "of the printed times, like Europe/Berlin")
    option(
        "--interval SECONDS",
        "between two records of a log that prints no time (default: %(default)s)",
        default=1.0,
    )
    option("--board NAME", "rail rule to apply (default: by the names of the rails)")
    option(
        "--averaging SECONDS",
        "update interval of the rails' sensors, like 0.42s (default: shown by the edges of a run)",
    )

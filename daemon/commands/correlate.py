"""``tegrascope correlate``."""

import argparse
import json
import sys

from ..terminal import open_output
from . import Options


def run(arguments: argparse.Namespace) -> int:
    """Pair the runs of a table with recorded logs; report each row that cannot be paired."""
    from ..tables.aiperf import described, read_given
    from ..tables.frames import read_log, runs_frame, write_frame
    from ..tables.pairing import correlate_recorded
    from ..tables.recorded_log import find_zone

    zone = None if arguments.timezone is None else find_zone(arguments.timezone)
    given = read_given(arguments.runs)
    found = correlate_recorded(
        read_log(arguments.telemetry, interval_seconds=arguments.interval),
        given,
        zone=zone,
        board=arguments.board,
    )
    if arguments.format == "jsonl":
        with open_output(arguments.output) as output:
            for document in found.documents:
                output.write(json.dumps(document) + "\n")
    else:
        write_frame(runs_frame(found.documents), arguments.output, arguments.format)
    for problem in found.problems:
        print(f"tegrascope: {problem}", file=sys.stderr)
    for document in found.documents:
        if "failed_requests" in document:
            print(*described(document), sep="\n", file=sys.stderr)
    ok = sum(document["outcome"] == "ok" for document in found.documents)
    print(
        f"{len(found.documents) + len(found.problems)} runs: {ok} with telemetry,"
        f" {len(found.documents) - ok} outside the log, {len(found.problems)} refused",
        file=sys.stderr,
    )
    return 1 if found.problems or not ok else 0


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

"""``tegrascope correlate``."""

import argparse
import json
import sys

from .given_runs import read_runs
from .output import open_output


def correlate(arguments: argparse.Namespace) -> int:
    """Pair the runs of a table with recorded logs; a row that cannot be is told by its line."""
    from .frames import read_log, recorded_frame, write_frame
    from .log_clock import find_zone
    from .recorded_runs import correlate_recorded

    zone = None if arguments.timezone is None else find_zone(arguments.timezone)
    given = read_runs(arguments.runs)
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
        write_frame(recorded_frame(found.documents), arguments.output, arguments.format)
    for problem in found.problems:
        print(f"tegrascope: {problem}", file=sys.stderr)
    ok = sum(document["outcome"] == "ok" for document in found.documents)
    print(
        f"{len(found.documents) + len(found.problems)} runs: {ok} with telemetry,"
        f" {len(found.documents) - ok} outside the log, {len(found.problems)} refused",
        file=sys.stderr,
    )
    return 1 if found.problems or not ok else 0

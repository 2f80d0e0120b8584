"""Arguments of ``tegrascope exec``."""

import argparse
from pathlib import Path

from .common import Commands, add_command, positive, positive_seconds


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "exec",
        "run any program as a measured window; the exit code is the program's",
        "tegrascope exec --workload detector -- ./detect --frames 3000\n"
        "  tegrascope exec --workload detector --inferences 3000 --telemetry simulator -- ./detect",
    )
    parser.usage = "tegrascope exec --workload NAME [options] -- CMD …"
    parser.add_argument("--workload", required=True, metavar="NAME", help="what to call it")
    parser.add_argument(
        "--device", choices=("gpu", "dla0", "dla1", "cpu", "external"), help="what it runs on"
    )
    parser.add_argument("--inferences", type=positive, metavar="N", help="how many it makes")
    parser.add_argument("--batch", type=positive, metavar="N", help="inputs an inference")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report, too")
    daemon = parser.add_argument_group("measured by the daemon, where one runs")
    daemon.add_argument("--url", help="default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    daemon.add_argument("--token-file", type=Path, metavar="FILE", help="the daemon's")
    here = parser.add_argument_group("measured here, without a daemon or with any of these")
    here.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="its telemetry, and the workload's"
    )
    here.add_argument(
        "--telemetry", metavar="SOURCE", help="tegrastats (default), simulator, … as in the file"
    )
    here.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="between samples (0.103)"
    )
    here.add_argument(
        "--baseline",
        type=positive_seconds,
        metavar="SECONDS",
        help="idle time measured before and after, for the net energy",
    )
    here.add_argument("--state-dir", type=Path, metavar="DIR", help="keep the run in its store")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- CMD …")

    def command(arguments: argparse.Namespace) -> int:
        from ..exec_command import execute

        return execute(arguments)

    parser.set_defaults(command=command)

"""Arguments of ``tegrascope run``."""

import argparse
from pathlib import Path

from .common import Commands, add_command, add_state_dir


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "run",
        "the daemon: telemetry, schedule, store and HTTP",
        "tegrascope run --demo\n  tegrascope run -c /etc/tegrascope.yaml",
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="YAML; see check-config")
    parser.add_argument("--listen", metavar="HOST:PORT", help="overrides http.listen")
    parser.add_argument(
        "--web.config.file",
        dest="web_config_file",
        type=Path,
        metavar="FILE",
        help="TLS, users and headers, in the format of Prometheus' exporters",
    )
    add_state_dir(parser)
    parser.add_argument(
        "--demo", action="store_true", help="a simulated board and real models on the CPU"
    )

    def command(arguments: argparse.Namespace) -> int:
        from ..run_command import run

        return run(arguments)

    parser.set_defaults(command=command)

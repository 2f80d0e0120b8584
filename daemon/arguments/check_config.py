"""Arguments of ``tegrascope check-config``."""

import argparse
import sys
from pathlib import Path

from ..exit_status import CHECK_SAYS_NO, GOOD
from .common import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "check-config",
        "validate a configuration; every error with its line",
        "tegrascope check-config /etc/tegrascope.yaml",
    )
    parser.add_argument("file", type=Path, metavar="FILE")

    def command(arguments: argparse.Namespace) -> int:
        from ..config_file import ConfigError, load_config

        try:
            config = load_config(arguments.file)
        except ConfigError as error:
            print(*error.problems, sep="\n", file=sys.stderr)
            return CHECK_SAYS_NO
        print(f"{arguments.file}: good, {len(config.workloads)} workload(s)")
        for line in config.advice():
            print(f"note: {line}")
        return GOOD

    parser.set_defaults(command=command)

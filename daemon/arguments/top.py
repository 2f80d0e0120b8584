"""Arguments of ``tegrascope top``."""

import argparse

from .common import Commands, add_command, positive_seconds


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "top",
        "a live screen of a daemon, made for a small window over SSH",
        "tegrascope top\n"
        "  tegrascope top --url http://robot-007:9754\n"
        "  tegrascope top --once | head -3",
    )
    parser.add_argument("--url", help="default: TEGRASCOPE_URL, else http://127.0.0.1:9754")
    parser.add_argument(
        "--interval",
        type=positive_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: %(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="print one screen and end")

    def command(arguments: argparse.Namespace) -> int:
        from ..top.command import top

        return top(arguments)

    parser.set_defaults(command=command)

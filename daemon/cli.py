"""The command line: one parser, one function a command, one line for each error."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..parsers.errors import Mendable, Misused
from .commands import (
    advise,
    bench,
    check_config,
    correlate,
    doctor,
    engines,
    inspect,
    parse,
    run,
    runs,
    service,
    simulate,
    top,
)
from .commands import execute as execute
from .terminal.output import FAILED, GOOD, USAGE, discard, flush

# In the order of the help.
COMMANDS = (
    run,
    bench,
    advise,
    inspect,
    execute,
    parse,
    correlate,
    simulate,
    top,
    runs,
    engines,
    service,
    check_config,
    doctor,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 good, 1 failed, 2 usage, 3 a check says no.
    """
    try:
        try:
            arguments = make_parser().parse_args(argv)
            return int(arguments.command(arguments))
        finally:
            flush()
    except Mendable as error:
        print(f"tegrascope: {error}", file=sys.stderr)
        return USAGE if isinstance(error, Misused) else FAILED
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # The reader of our output went away; that is its right, and no word is due.
        discard()
        return GOOD


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line; the whole usage is in the help."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser: argparse.ArgumentParser = _Parser(
        prog="tegrascope",
        description="What a Jetson's DLA, GPU, memory and power rails do while models run.",
    )
    parser.add_argument("--version", action="version", version=f"tegrascope {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())

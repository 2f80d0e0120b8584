"""The command line: one parser, one function a command, one line for each error."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from .. import __version__
from ..parsers.errors import UsageError, UserError
from .commands import COMMANDS
from .terminal.output import FAILED, GOOD, USAGE, discard, flush


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 good, 1 failed, 2 usage, 3 a check says no.
    """
    try:
        try:
            words = sys.argv[1:] if argv is None else argv
            arguments = make_parser(words).parse_args(words)
            return int(arguments.command(arguments))
        finally:
            flush()
    except UserError as error:
        print(f"tegrascope: {error}", file=sys.stderr)
        return USAGE if isinstance(error, UsageError) else FAILED
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


def make_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the command that the words of a command line name.

    Only that command's module is imported; for the others the help has their summaries.
    """
    parser: argparse.ArgumentParser = _Parser(
        prog="tegrascope",
        description="What a Jetson's DLA, GPU, memory and power rails do while models run.",
    )
    parser.add_argument("--version", action="version", version=f"tegrascope {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    asked = next((word for word in words if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        if name == asked:
            module = "execute" if name == "exec" else name.replace("-", "_")
            import_module(f".commands.{module}", __package__).add(commands)
        else:
            commands.add_parser(name, help=summary)
    return parser


if __name__ == "__main__":
    sys.exit(main())

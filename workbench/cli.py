"""The command line: one parser, one function per command, one line per error."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from ..daemon.terminal import FAILED, GOOD, USAGE, discard, flush, open_standard_streams
from ..parsers.errors import UsageError, UserError, file_error
from ..parsers.values import is_unicode, printable
from .commands import COMMANDS, load

_UNKNOWN = re.compile(r"unrecognized arguments: ((\S+).*)", re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its status.

    It is 0 if good, 1 if failed, 2 for misuse, 3 if a check says no, 4 if it cannot say, 78 for a
    bad configuration.
    """
    can_see_errors = open_standard_streams()
    try:
        try:
            words = sys.argv[1:] if argv is None else argv
            arguments, unknown = make_parser(words).parse_known_args(words)
            if unknown:
                # By the parser of the command, which knows its options.
                arguments.misuse(f"unrecognized arguments: {' '.join(unknown)}")
            _check_unicode(arguments)
            return int(arguments.command(arguments))
        finally:
            flush()
    except UserError as error:
        if not can_see_errors:
            _log_to_system(error)
        return _fail(error)
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # The reader of our output went away, as head does: not an error.
        discard()
        return GOOD
    except OSError as error:
        return _fail(file_error(error))
    except MemoryError:
        return _fail(
            UserError("there is not enough memory", "raise its limit (ulimit -v), or free some")
        )
    except RuntimeError as error:
        # Python has no type of its own for it.
        if "can't start new thread" not in str(error):
            raise
        remedy = (
            "raise the limits of memory (ulimit -v), processes (ulimit -u) or TasksMax= of its unit"
        )
        return _fail(UserError("no further thread can be started", remedy))


def _log_to_system(error: UserError) -> None:
    """Leave a trace of an error in the log of the system, since standard error is not visible."""
    import syslog

    syslog.openlog("tegrascope")
    for line in error.lines:
        syslog.syslog(syslog.LOG_ERR, printable(line, 2000))


def _check_unicode(arguments: argparse.Namespace) -> None:
    """Refuse names that are not UTF-8: neither JSON nor the store could hold them.

    The words of a program that is run pass as they are.
    """
    for option, value in vars(arguments).items():
        if option == "program":
            continue
        words = value if isinstance(value, (list, tuple)) else [value]
        for word in words:
            if isinstance(word, (str, Path)) and not is_unicode(str(word)):
                raise UsageError(f"{word} is not UTF-8", "give another name, or rename the file")


def _fail(error: UserError) -> int:
    for line in error.lines:
        print(f"tegrascope: {printable(line, 2000)}", file=sys.stderr)
    return USAGE if isinstance(error, UsageError) else FAILED


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error in one line, with the nearest word for one that is not known.

        The whole usage is in the help.
        """
        from difflib import get_close_matches

        problem, _, choices = message.rpartition(" (choose from ")
        wrong = problem.partition("invalid choice: '")[2].removesuffix("'")
        if choices and wrong:
            near = get_close_matches(wrong, re.findall(r"[\w.-]+", choices), n=1)
            if near:
                message = f"{problem}; did you mean {near[0]}?"
        elif unknown := _UNKNOWN.fullmatch(message):
            meant = self._meant(unknown[2])
            if meant is not None:
                message = f"{message}; did you mean {meant}?"
        self.exit(USAGE, f"{self.prog}: {printable(message, 2000)}; see {self.prog} --help\n")

    def _meant(self, word: str) -> str | None:
        """Return what an argument that this command does not have may stand for."""
        from difflib import get_close_matches

        options = set(_OPTION.findall(self.format_help()))
        if word.endswith((".yaml", ".yml")) and "--config" in options:
            return f"-c {word}"
        near = get_close_matches(word.partition("=")[0], sorted(options), n=1)
        return next(iter(near), None)


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
            load(commands, name)
        else:
            commands.add_parser(name, help=summary)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The commands: one module each, with its arguments and its function; here what they share.

A module is imported only when its command is asked for. Logic that another part could use belongs
in the tool's own folder.
"""

import argparse
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ...parsers.errors import UserError
from ...parsers.values import read_duration

# Name and summary, in the order of the help.
COMMANDS = MappingProxyType(
    {
        "run": "the daemon: telemetry, schedule, store and HTTP",
        "bench": "compare a model across accelerators: latency, energy, GPU freed, right answers",
        "advise": "recommend an accelerator for each model, from results of bench",
        "inspect": "list the nodes of a model that a DLA rejects, the rules broken, and remedies",
        "exec": "run any program as a measured window; the exit code is the program's",
        "parse": "turn tegrastats lines into records",
        "correlate": "pair runs with recorded logs: energy, load and flags of each",
        "simulate": "print the tegrastats lines of a simulated board",
        "top": "a live screen of a daemon, made for a small window over SSH",
        "runs": "list, show and export stored runs",
        "report": "write stored runs and telemetry as one page of HTML",
        "engines": "list, build and remove TensorRT engines",
        "service": "install or remove the systemd units",
        "check-config": "validate a configuration; every error with its line",
        "doctor": "check this machine: what it has, what is missing, and how to fix it",
    }
)


if TYPE_CHECKING:
    from ..store.history import History


class Commands(Protocol):
    """The result of argparse's ``add_subparsers``, to which a command is added."""

    def add_parser(self, name: str, **settings: Any) -> argparse.ArgumentParser: ...  # noqa: D102


ACCELERATORS = ("gpu", "dla0", "dla1", "cpu")


def default_state_dir() -> Path:
    """Return where the run store is kept: systemd's directory, or the user's own."""
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError:  # a user without a home, as in a container
        home = "/var/lib"
    return Path(home) / "tegrascope"


def positive(text: str) -> int:
    """Read a count of at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return number


def cpus(text: str) -> tuple[int, ...]:
    """Read ``4,5``."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of cores, like 4,5")
    return tuple(map(int, parts))


def positive_seconds(text: str) -> float:
    """Read a time above zero."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def duration(text: str) -> float:
    """Read ``30d`` as seconds."""
    try:
        return float(str(read_duration(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def devices(text: str, known: Sequence[str] = ACCELERATORS) -> tuple[str, ...]:
    """Read accelerators, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        problem = f"{wrong[0]!r} is not an accelerator" if wrong else "no accelerator is given"
        raise argparse.ArgumentTypeError(f"{problem}; use {', '.join(known)}")
    return names


def engine_devices(text: str) -> tuple[str, ...]:
    """Read accelerators that TensorRT builds engines for."""
    return devices(text, ("gpu", "dla0", "dla1"))


def add_command(
    commands: Commands, name: str, example: str, summary: str | None = None
) -> argparse.ArgumentParser:
    """Add a command, or an action of one, whose help has one sentence and an example.

    Args:
        example: One or more command lines.
        summary: By default that in ``COMMANDS``.
    """
    summary = COMMANDS[name] if summary is None else summary
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add ``--output``."""
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: standard output"
    )


def add_fallback(parser: argparse.ArgumentParser) -> None:
    """Add ``--fallback``."""
    parser.add_argument(
        "--fallback",
        choices=("forbid", "allow", "require-pure"),
        default="allow",
        help="for layers that a DLA refuses (default: %(default)s)",
    )


def add_state_dir(parser: argparse.ArgumentParser, words: str = "where runs are kept") -> None:
    """Add ``--state-dir``, by default that of the daemon."""
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(),
        metavar="DIR",
        help=f"{words} (default: %(default)s)",
    )


@contextmanager
def open_history(arguments: argparse.Namespace) -> Iterator["History"]:
    """Open the run store of ``--state-dir``, which may name the database itself.

    Raises:
        UserError: It cannot be read.
    """
    from ..store.history import History

    state: Path = arguments.state_dir
    try:
        yield History(state if state.is_file() else state / "tegrascope.db")
    except sqlite3.Error as error:
        raise UserError(
            f"the run store in {state} cannot be read ({error})",
            "name the daemon's directory with --state-dir",
        ) from None

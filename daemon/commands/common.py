"""What the arguments of several commands share: readers of values, and the shape of a parser."""

import argparse
import os
from pathlib import Path
from typing import Any, Protocol

from . import COMMANDS


class Commands(Protocol):
    """Where a command is added; what argparse's ``add_subparsers`` returns."""

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
    """Read a number of things of which there is at least one."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return number


def cpus(text: str) -> tuple[int, ...]:
    """Read ``4,5``."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of cores, like 4,5")
    return tuple(map(int, parts))


def positive_seconds(text: str) -> float:
    """Read a stretch of time that is longer than nothing."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def devices(text: str) -> tuple[str, ...]:
    """Read accelerators, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in ACCELERATORS]
    if wrong or not names:
        said = f"{wrong[0]!r} is no accelerator" if wrong else "no accelerator is named"
        raise argparse.ArgumentTypeError(f"{said}; use {', '.join(ACCELERATORS)}")
    return names


def add_command(
    commands: Commands, name: str, example: str, summary: str | None = None
) -> argparse.ArgumentParser:
    """Add a command whose help begins with one sentence and ends with an example.

    Args:
        commands: Where to add it.
        name: As typed.
        example: One or more command lines.
        summary: Of an action of a command; a command has its own in ``COMMANDS``.
    """
    summary = COMMANDS[name] if summary is None else summary
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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

"""The commands of the service: one module each; here what the commands of both rooms share.

A module has ``EXAMPLE``, one or more command lines, ``add``, which adds its options or actions, and
``run``, unless it has actions. It is imported only when its command is asked for. The list of all
commands, and those that a person starts, are in ``workbench/commands``.
"""

import argparse
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError

from ...collectors.paths import is_file, own_state_dir
from ...parsers.errors import UserError
from ...parsers.values import read_duration

INSTALLED_STATE = Path("/var/lib/tegrascope")
DATABASE = "tegrascope.db"

_LENGTHS = r"[1-9][0-9]*(?:x[1-9][0-9]*)*"
_SHAPE = re.compile(
    rf"(.+?):(?P<shape>{_LENGTHS})(?::(?P<min>{_LENGTHS}):(?P<opt>{_LENGTHS}):(?P<max>{_LENGTHS}))?"
)

if TYPE_CHECKING:
    from ...parsers.inference.calibration import Preprocess
    from ...parsers.inference.events import InputShape
    from ...parsers.inference.placement import Precision
    from ..store.history import History

Value = TypeVar("Value")


class Commands(Protocol):
    """The result of argparse's ``add_subparsers``, to which a command is added."""

    def add_parser(self, name: str, **settings: Any) -> argparse.ArgumentParser: ...  # noqa: D102


def default_state_dir() -> Path:
    """Return where the run store is kept: systemd's directory, or the user's own."""
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    return own_state_dir()


def find_state_dir(
    content: str, own: Path | None = None, installed: Path = INSTALLED_STATE
) -> Path:
    """Return the state directory that has a file, ours first; else that of the service."""
    own = own or default_state_dir()
    # Unlike ``exists``, this is no error where a directory may not be searched.
    if os.access(own / content, os.F_OK) or not os.access(installed, os.F_OK):
        return own
    return installed


def reader(
    convert: Callable[[str], Value], is_valid: Callable[[Value], bool], kind: str
) -> Callable[[str], Value]:
    """Return an argparse type that converts a text, with an error for one that is not ``kind``."""

    def read(text: str) -> Value:
        with suppress(ValueError):
            value = convert(text)
            if is_valid(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}")

    return read


positive = reader(int, lambda number: number >= 1, "a number from 1 on")
ratio = reader(float, lambda number: 0 <= number <= 1, "a ratio from 0 to 1")


def seconds_of(text: str) -> float:
    """Read ``15`` or ``15s`` as seconds, also ``500ms`` or ``2m``, as in the configuration."""
    return float(str(read_duration(text)))


_seconds = reader(seconds_of, lambda seconds: seconds > 0, "a time above 0, like 15, 15s or 500ms")
seconds_or_none = reader(seconds_of, lambda seconds: seconds >= 0, "a time, like 8, 8s or 0")
_percentage = reader(
    lambda text: float(text.removesuffix("%")),
    lambda value: 0 <= value < 1000,
    "a percentage from 0 on",
)
PLACEHOLDERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("FILE", "DIR"), Path),
    **dict.fromkeys(("S", "SECONDS"), _seconds),
    "N": positive,
    "PERCENT": _percentage,
}


def duration(text: str) -> float:
    """Read ``30d`` as seconds."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def devices(text: str, known: Sequence[str] = ("gpu", "dla0", "dla1", "cpu")) -> tuple[str, ...]:
    """Read accelerators, each once."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name not in known]
    if wrong:
        problem = f"{wrong[0]!r} is not an accelerator; use {', '.join(known)}"
        raise argparse.ArgumentTypeError(problem)
    if not names:
        raise argparse.ArgumentTypeError(f"no accelerator is given; use {', '.join(known)}")
    return names


def _preprocess(text: str) -> "Preprocess":
    """Read the settings of a preprocessing, written as in the configuration."""
    import yaml

    from ...parsers.inference.calibration import Preprocess

    try:
        return Preprocess.model_validate(yaml.safe_load(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        known = ", ".join(Preprocess.model_fields)
        problem = f"{where or 'the mapping'}: {first['msg']}; known are {known}"
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError):
        # The library has no error of its own for a number or a tag that does not fit.
        problem = f"{text!r} is not a mapping, like {{resize: 256}}"
    raise argparse.ArgumentTypeError(problem)


def input_shape(text: str) -> "tuple[str, InputShape]":
    """Read the shape of an input, or with the range of an engine; its name may contain colons.

    >>> input_shape("images:0:1x3x8x8:1x3x4x4:1x3x8x8:4x3x8x8")[1].range
    ((1, 3, 4, 4), (1, 3, 8, 8), (4, 3, 8, 8))
    """
    from ...parsers.inference.events import InputShape

    match = _SHAPE.fullmatch(text)
    if match is None:
        words = "is not a shape, as images:1x3x640x640 or images:SHAPE:MIN:OPT:MAX"
        raise argparse.ArgumentTypeError(f"{text!r} {words}")
    lengths: dict[str, list[str]] = {}
    for name, shape in match.groupdict().items():
        if shape is not None:
            lengths[name] = shape.split("x")
    try:
        return match[1], InputShape.model_validate(lengths)
    except ValidationError as error:
        problem = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise argparse.ArgumentTypeError(f"{text!r}: {problem}") from None


def layer_precision(text: str) -> "tuple[str, Precision]":
    """Read a layer and its precision; its name may contain colons.

    >>> layer_precision("model.22*:fp16")
    ('model.22*', 'fp16')
    """
    from ...parsers.inference.placement import PRECISIONS

    name, _, word = text.rpartition(":")
    for precision in PRECISIONS:
        if name and word == precision:
            return name, precision
    problem = f"{text!r} is not a layer with fp32, fp16 or int8, as Split_36:fp16"
    raise argparse.ArgumentTypeError(problem)


class Options:
    """The options of a command, or of a group of them; a call adds one."""

    def __init__(self, parser: Any) -> None:
        self.parser = parser

    def __call__(self, form: str, words: str | None = None, **settings: Any) -> None:
        """Add an option, given as the help shows it, for example ``-c, --config FILE``.

        Its placeholder or choices give the type, as ``PLACEHOLDERS`` does; without both it is a
        switch. ``words`` are its help, ``settings`` those of argparse.
        """
        names, _, placeholder = form.replace(", ", ",").partition(" ")
        if placeholder:
            settings.setdefault("metavar", placeholder)
            if placeholder in PLACEHOLDERS:
                settings.setdefault("type", PLACEHOLDERS[placeholder])
        if isinstance(settings.get("choices"), range):
            settings["type"] = int
        elif not placeholder and "choices" not in settings:
            settings["action"] = "store_true"
        self.parser.add_argument(*names.split(","), help=words, **settings)

    def output(self, *formats: str, default: str) -> None:
        """Add ``--format`` and ``--output``."""
        self("-f, --format", choices=formats, default=default)
        self("-o, --output FILE", "default: standard output")

    def engine(self) -> None:
        """Add how an engine is built, with the names of a workload's settings."""
        self("--precision", "default: the back-end's", choices=("fp32", "fp16", "int8"))
        words = "scales for int8: a calibration cache, or inputs to make one from"
        self("--calibration PATH", words)
        self.preprocess()
        words = "of a node or layer, in which * is any text: Split_36:fp16; may be repeated"
        name = "--layer-precision NAME:PRECISION"
        self(name, words, action="append", type=layer_precision, default=[])
        words = "without a kernel in it, fail or take another one (default: %(default)s)"
        self("--precision-constraints", words, choices=("obey", "prefer"), default="obey")
        words = "how hard TensorRT tries: 0 builds fast (default: TensorRT's own)"
        self("--optimization-level 0-5", words, choices=range(6))
        self("--batch N", default=1)
        words = "for layers that a DLA refuses (default: %(default)s)"
        self("--fallback", words, choices=("forbid", "allow", "require-pure"), default="allow")
        words = "of an input with open dimensions; with a range the engine takes all shapes in it"
        name = "--shape NAME:SHAPE[:MIN:OPT:MAX]"
        self(name, f"{words}, as x:1x3x640x640", action="append", type=input_shape, default=[])
        self("--plugin LIB", "library with plug-ins of TensorRT", action="append", default=[])

    def preprocess(self) -> None:
        """Add ``--preprocess``, as a flow mapping of YAML."""
        words = "how images become inputs, as '{resize: 256, mean: [0.485, 0.456, 0.406]}'"
        self("--preprocess MAPPING", words, type=_preprocess)

    def state_dir(self, words: str = "where runs are kept", content: str | None = None) -> None:
        """Add ``--state-dir``, by default ours, or the service's if ours lacks ``content``."""
        words += " (default: %(default)s)"
        default = default_state_dir()
        if content is not None:
            default = find_state_dir(content)
        self("--state-dir DIR", words, default=default)

    def group(self, title: str) -> "Options":
        """Add a group, which has its own heading in the help."""
        return Options(self.parser.add_argument_group(title))

    def one_of(self, *, required: bool = False) -> "Options":
        """Add a group of which one option can be given."""
        return Options(self.parser.add_mutually_exclusive_group(required=required))

    def actions(self) -> Commands:
        """Add the actions of a command."""
        actions: Commands = self.parser.add_subparsers(
            required=True, metavar="ACTION", dest="action"
        )
        return actions


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int] | None,
    example: str,
    summary: str,
) -> Options:
    """Add a command, or an action of one, whose help has one sentence and an example.

    ``run`` is None for a command that has actions. Its arguments have ``misuse``, which ends the
    program with an error about the command line.
    """
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run, misuse=parser.error)
    return Options(parser)


@contextmanager
def open_history(arguments: argparse.Namespace) -> Iterator["History"]:
    """Open the run store that ``--state-dir`` is or contains, or raise ``UserError``."""
    from ..store.history import History

    state: Path = arguments.state_dir
    try:
        path = state if is_file(state) else state / DATABASE
        if is_file(path):
            path.open("rb").close()
        yield History(path)
    except PermissionError as error:
        raise UserError(
            f"{error.filename}: {error.strerror}",
            "sudo -u tegrascope tegrascope …, or GET /api/v1/runs of the daemon",
        ) from None
    except sqlite3.Error as error:
        raise UserError(
            f"the run store in {state} cannot be read ({error})",
            "name the daemon's directory with --state-dir",
        ) from None

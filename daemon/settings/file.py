"""Reading of a YAML file: settings, or a list of errors, each with its line."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ...parsers.errors import UserError, file_error
from ...parsers.values import is_unicode, printable, read_duration
from .config import Config

M = TypeVar("M", bound=BaseModel)
Place = tuple[str | int, ...]

# Messages for people who write YAML, by pydantic's type of the error.
_WORDS = {
    **dict.fromkeys(("tuple_type", "list_type", "set_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "mapping_type"), "must be a mapping of names"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    "path_type": "must be a path",
    "missing": "is required",
    "too_short": "must have {min_length} item(s) or more",
}
# Keys of other schedulers, which resemble a key of another meaning, and the one that is meant.
_MEANT = {"interval": "every", "period": "every", "schedule": "cron"}
_BOUNDS = {
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
}
# A file of this size is read in seconds on a board.
_LARGEST_BYTES = 256 * 1024
# Values of a file, with each alias written out: nine lines of aliases can stand for 10^9.
_MOST_VALUES = 50_000
# Of one key or value. The types of YAML read ``1:1:1`` as a number to the base of 60, and the time
# for that grows with the square of its length. A command line has place.
_LONGEST_VALUE = 4096
_SHOWN_CHARACTERS = 100
# A file of this size can have 40,000 errors, and each reload would log them all.
_MOST_PROBLEMS = 50


class ConfigError(UserError):
    """A file that is not a valid configuration; each problem is one line with its remedy."""

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(f"{path}: {len(problems)} error(s) in the configuration", problems[0])
        self.problems = tuple(problems[:_MOST_PROBLEMS])
        if len(problems) > _MOST_PROBLEMS:
            self.problems += (f"{path}: and {len(problems) - _MOST_PROBLEMS} more errors",)

    @property
    def lines(self) -> tuple[str, ...]:
        """Every problem; the first alone would be corrected one by one."""
        return self.problems


@dataclass(frozen=True)
class SettingsFile(Generic[M]):
    """The validated content of a file, and the line of every key."""

    settings: M
    path: Path
    lines: Mapping[Place, int]

    def problem(self, where: Sequence[str | int], message: str) -> ConfigError:
        """Return the error of a key that is wrong for a reason outside the file."""
        line = _line_of(self.lines, where)
        return ConfigError(self.path, [_at(self.path, line, f"{_key(where)}: {message}")])


def read_text(path: Path) -> str:
    """Return the text of a file of settings, or raise ``ConfigError``.

    A file that is not regular could block for ever, as a FIFO, or never end, as a device.
    """

    def open_at_once(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    try:
        with open(path, "rb", opener=open_at_once) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(_LARGEST_BYTES + 1) if is_file else b""
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(path, [f"{path}: is not UTF-8 text; name a YAML file"]) from None
    except OSError as error:
        raise ConfigError(path, [str(file_error(error, path))]) from None
    if not is_file:
        raise ConfigError(path, [f"{path}: is not a regular file; name a YAML file"])
    if len(content) > _LARGEST_BYTES:
        limit = f"{_LARGEST_BYTES // 1024} KiB"
        raise ConfigError(path, [f"{path}: is above {limit}; name a file of settings"])
    return text


def read_settings(text: str, path: Path, model: type[M]) -> SettingsFile[M]:
    """Validate the text of a file, or raise ``ConfigError``; empty, it is a mapping of no key."""
    data, lines = _read_yaml(text, path)
    if data is not None and not isinstance(data, dict):
        example = next(iter(model.model_fields))
        raise ConfigError(path, [_at(path, 1, f"the file must be a mapping, like {example}:")])
    try:
        return SettingsFile(model.model_validate(data or {}), path, lines)
    except ValidationError as error:
        found = sorted(
            (_line_of(lines, e["loc"]), _message(e, model, lines)) for e in error.errors()
        )
        raise ConfigError(path, [_at(path, line, message) for line, message in found]) from None


def _read_yaml(text: str, path: Path) -> tuple[Any, dict[Place, int]]:
    """Return the content of a document and the line of every key."""
    import yaml

    lines: dict[Place, int] = {}
    twice = []
    left = _MOST_VALUES

    def check_scalar(node: Any, place: Place) -> None:
        if not isinstance(node, yaml.ScalarNode):
            return
        if len(node.value) > _LONGEST_VALUE:
            message = f"a value of over {_LONGEST_VALUE} characters; write a shorter one"
        elif not is_unicode(node.value):
            what = f"{printable(_key(place))}: an escape is half a character"
            message = f"{what}; write the character itself, or \\U and eight digits"
        else:
            return
        raise ConfigError(path, [_at(path, node.start_mark.line + 1, message)])

    def note(node: Any, place: Place) -> None:
        nonlocal left
        items: Iterable[tuple[str | int, Any, Any]] = ()
        if isinstance(node, yaml.MappingNode):
            items = ((str(key.value), key, value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            items = ((index, value, value) for index, value in enumerate(node.value))
        for name, marked, value in items:
            here, line = (*place, name), marked.start_mark.line + 1
            check_scalar(marked, here)
            left -= 1
            if left < 0:
                message = f"over {_MOST_VALUES} values; write fewer, or fewer aliases (*name)"
                raise ConfigError(path, [_at(path, line, message)])
            if here in lines:
                twice.append(_at(path, line, f"{_key(here)}: given twice"))
            lines[here] = line
            check_scalar(value, here)
            note(value, here)

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        check_scalar(node, ())
        note(node, ())
        data = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(path, [_at(path, mark.line + 1 if mark else 0, message)]) from None
    except RecursionError:
        reason = "it contains itself, or is nested too deeply"
        raise ConfigError(path, [f"{path}: cannot be read: {reason}"]) from None
    except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
        # A date such as 2020-13-45, a number such as 0x, or a tag that does not fit, as !!bool 3:
        # the library has no error of its own for them.
        words = str(error).partition(";")[0]
        reason = f"a date, a number or a tag is not valid ({words})"
        raise ConfigError(path, [f"{path}: cannot be read: {reason}"]) from None
    if twice:
        raise ConfigError(path, twice)
    return data, lines


def _at(path: Path, line: int, message: str) -> str:
    return f"{path}:{line}: {message}" if line else f"{path}: {message}"


def _key(where: Sequence[str | int]) -> str:
    return ".".join(map(str, where))


def _message(error: Any, model: type[BaseModel], lines: Mapping[Place, int]) -> str:
    where, kind, message = error["loc"], error["type"], str(error["msg"])
    # Where a value may have several types, pydantic adds the name of each.
    while where and kind != "missing" and where not in lines:
        where = where[:-1]
    if kind == "extra_forbidden":
        from difflib import get_close_matches

        known = _keys_at(where[:-1], model)
        near = get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        meant = _MEANT.get(str(where[-1]))
        near = [meant] if meant in known else near
        advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        message = f"unknown key; {advice}"
    elif kind == "model_type":
        message = "must be a mapping; known keys are " + ", ".join(_keys_at(where, model))
    elif kind == "value_error":
        message = message.removeprefix("Value error, ")
    elif kind in _BOUNDS and _is_duration(where, model):
        message = _bound_of_duration(error)
    else:
        if kind in _WORDS:
            message = _WORDS[kind].format(**error.get("ctx", {}))
        message = message.replace("Input should be", "must be")
        if kind != "missing" and not isinstance(error["input"], (dict, list)):
            message += f", not {_shown(error['input'])}"
    return f"{_key(where) or 'the file'}: {message}"


def _is_duration(where: Sequence[int | str], model: type[BaseModel]) -> bool:
    """Return whether a key is a time, which may have a unit."""
    *parents, key = where or ("",)
    inner = _model_at(parents, model)
    field = None if inner is None else inner.model_fields.get(str(key))
    validators = () if field is None else field.metadata
    return any(getattr(one, "func", None) is read_duration for one in validators)


def _bound_of_duration(error: Any) -> str:
    """Return the message for a time out of bounds; a number without a unit may be milliseconds."""
    words, key = _BOUNDS[error["type"]]
    bound, given = error["ctx"][key], error["input"]
    message = f"must be {words} {bound:g} s, not {given:g} s"
    # Text with a unit has become a float.
    if isinstance(given, int) and key in ("le", "lt") and given / 1000 <= bound:
        message += f"; did you mean {given}ms?"
    return message


def _shown(value: object) -> str:
    """Return a wrong value as Python prints it, cut to a length for people."""
    try:
        return printable(repr(value), _SHOWN_CHARACTERS)
    except ValueError:  # an integer of more than 4300 digits
        return "this number"


def _line_of(lines: Mapping[Place, int], where: Sequence[str | int]) -> int:
    """Return the line of a key, or of its nearest parent that is in the file."""
    places = (tuple(where[:length]) for length in range(len(where), 0, -1))
    return next((lines[place] for place in places if place in lines), 1)


def _keys_at(where: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """Return the keys that are valid at a place."""
    inner = _model_at(where, model)
    fields = {} if inner is None else inner.model_fields
    return sorted(field.alias or name for name, field in fields.items())


def _model_at(where: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model of the settings at a place, or ``None`` if they are no mapping of ours."""
    for part in where:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            if inner is None:
                return None
            model = inner
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, UnionType, tuple, list, Annotated):
        return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)
    # Python 3.10 calls tuple[X, ...] a type as well.
    if get_origin(annotation) is None and isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return None


def load_config(path: Path) -> Config:
    """Read and validate a file, or raise ``ConfigError``; an empty one is the default."""
    return read_settings(read_text(path), path, Config).settings

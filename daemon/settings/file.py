"""Reading of a YAML file: settings, or a list of errors, each with its line."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
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
        problems = []
        for problem in error.errors():
            problems.append((_line_of(lines, problem["loc"]), _message(problem, model, lines)))
        problems.sort()
        raise ConfigError(path, [_at(path, line, message) for line, message in problems]) from None


class _KeyLines:
    """The line of every key of a document; raises ``ConfigError`` at what no settings contain."""

    def __init__(self, path: Path) -> None:
        self.lines: dict[Place, int] = {}
        self.repeated_keys: list[str] = []
        self._path = path
        self._values_left = _MOST_VALUES

    def add(self, node: Any, place: Place = ()) -> None:
        """Note the keys of a node of YAML and of all nodes in it."""
        self._check_scalar(node, place)
        for name, marked, value in _items_of(node):
            inner_place, line = (*place, name), marked.start_mark.line + 1
            self._check_scalar(marked, inner_place)
            self._values_left -= 1
            if self._values_left < 0:
                message = f"over {_MOST_VALUES} values; write fewer, or fewer aliases (*name)"
                raise ConfigError(self._path, [_at(self._path, line, message)])
            if inner_place in self.lines:
                problem = _at(self._path, line, f"{_key(inner_place)}: given twice")
                self.repeated_keys.append(problem)
            self.lines[inner_place] = line
            self.add(value, inner_place)

    def _check_scalar(self, node: Any, place: Place) -> None:
        """Raise at text that is too long to convert, or not valid Unicode."""
        if not _is_scalar(node):
            return
        if len(node.value) > _LONGEST_VALUE:
            message = f"a value of over {_LONGEST_VALUE} characters; write a shorter one"
        elif not is_unicode(node.value):
            what = f"{printable(_key(place))}: an escape is half a character"
            message = f"{what}; write the character itself, or \\U and eight digits"
        else:
            return
        raise ConfigError(self._path, [_at(self._path, node.start_mark.line + 1, message)])


def _is_scalar(node: Any) -> bool:
    import yaml

    return isinstance(node, yaml.ScalarNode)


def _items_of(node: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Yield the key or index of each value in a node, the node that has its line, and the value."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield str(key.value), key, value
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield index, value, value


def _read_yaml(text: str, path: Path) -> tuple[Any, dict[Place, int]]:
    """Return the content of a document and the line of every key."""
    import yaml

    keys = _KeyLines(path)
    data = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            keys.add(node)
            data = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 0 if mark is None else mark.line + 1
        message = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(path, [_at(path, line, message)]) from None
    except RecursionError:
        reason = "it contains itself, or is nested too deeply"
        raise ConfigError(path, [f"{path}: cannot be read: {reason}"]) from None
    except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
        # A date such as 2020-13-45, a number such as 0x, or a tag that does not fit, as !!bool 3:
        # the library has no error of its own for them.
        words = str(error).partition(";")[0]
        reason = f"a date, a number or a tag is not valid ({words})"
        raise ConfigError(path, [f"{path}: cannot be read: {reason}"]) from None
    if keys.repeated_keys:
        raise ConfigError(path, keys.repeated_keys)
    return data, keys.lines


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
        if meant in known:
            message = f"unknown key; did you mean {meant}?"
        elif near:
            message = f"unknown key; did you mean {near[0]}?"
        else:
            message = f"unknown key; known are {', '.join(known)}"
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
    if not where:
        return False
    inner = _model_at(where[:-1], model)
    if inner is None or str(where[-1]) not in inner.model_fields:
        return False
    validators = inner.model_fields[str(where[-1])].metadata
    return any(getattr(validator, "func", None) is read_duration for validator in validators)


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
    for length in range(len(where), 0, -1):
        place = tuple(where[:length])
        if place in lines:
            return lines[place]
    return 1


def _keys_at(where: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """Return the keys that are valid at a place."""
    inner = _model_at(where, model)
    if inner is None:
        return []
    return sorted(field.alias or name for name, field in inner.model_fields.items())


def _model_at(where: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel] | None:
    """Return the model of the settings at a place, or ``None`` if there are none."""
    for part in where:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            if inner is None:
                return None
            model = inner
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, UnionType, tuple, list, Annotated):
        for argument in get_args(annotation):
            model = _model_in(argument)
            if model is not None:
                return model
        return None
    # Python 3.10 calls tuple[X, ...] a type as well.
    is_class = get_origin(annotation) is None and isinstance(annotation, type)
    if is_class and issubclass(annotation, BaseModel):
        return annotation  # type: ignore[no-any-return]
    return None


def load_config(path: Path) -> Config:
    """Read and validate a file, or raise ``ConfigError``; an empty one is the default."""
    return read_settings(read_text(path), path, Config).settings

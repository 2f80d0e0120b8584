"""Reading of a YAML file: settings, or a list of errors, each with its line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ...parsers.errors import UserError
from .config import Config

if TYPE_CHECKING:
    import yaml

M = TypeVar("M", bound=BaseModel)
Place = tuple[str | int, ...]


class ConfigError(UserError):
    """A file that is not a valid configuration.

    Attributes:
        problems: One line each: file, line, key, and the remedy.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(f"{path}: {len(problems)} error(s) in the configuration", problems[0])
        self.problems = tuple(problems)


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
    """Return the text of a file of settings, or raise ``ConfigError``."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(path, [f"{path}: {reason}; name a YAML file"]) from None


def read_settings(text: str, path: Path, model: type[M]) -> SettingsFile[M]:
    """Validate the text of a file; an empty one is a mapping without keys.

    Raises:
        ConfigError: It is not YAML, or has a key or value that is not valid.
    """
    data, lines = _read_yaml(text, path)
    if data is not None and not isinstance(data, dict):
        example = next(iter(model.model_fields))
        raise ConfigError(path, [_at(path, 1, f"the file must be a mapping, like {example}:")])
    try:
        return SettingsFile(model.model_validate(data or {}), path, lines)
    except ValidationError as error:
        found = sorted((_line_of(lines, e["loc"]), _message(e, model)) for e in error.errors())
        raise ConfigError(path, [_at(path, line, message) for line, message in found]) from None


def _read_yaml(text: str, path: Path) -> tuple[Any, dict[Place, int]]:
    """Return the content of a document and the line of every key."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
        found = [] if root is None else list(_lines(root, ()))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        message = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise ConfigError(path, [_at(path, mark.line + 1 if mark else 0, message)]) from None
    except RecursionError:
        raise ConfigError(path, [f"{path}: cannot be read: it contains itself"]) from None
    except ValueError as error:  # a date such as 2020-13-45
        raise ConfigError(path, [f"{path}: cannot be read: {error}"]) from None
    lines: dict[Place, int] = {}
    twice = []
    for place, line in found:
        if place in lines:
            twice.append(_at(path, line, f"{_key(place)}: given twice"))
        lines[place] = line
    if twice:
        raise ConfigError(path, twice)
    return data, lines


def _lines(node: "yaml.Node", place: Place) -> Iterator[tuple[Place, int]]:
    import yaml

    items: list[tuple[str | int, Any, Any]]
    if isinstance(node, yaml.MappingNode):
        items = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        items = [(index, value, value) for index, value in enumerate(node.value)]
    else:
        return
    for name, marked, value in items:
        yield (*place, name), marked.start_mark.line + 1
        yield from _lines(value, (*place, name))


def _at(path: Path, line: int, message: str) -> str:
    return f"{path}:{line}: {message}" if line else f"{path}: {message}"


def _key(where: Sequence[str | int]) -> str:
    return ".".join(map(str, where))


def _message(error: Any, model: type[BaseModel]) -> str:
    where, kind = error["loc"], error["type"]
    if kind == "extra_forbidden":
        from difflib import get_close_matches

        known = _keys_at(where[:-1], model)
        near = get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        message = f"unknown key; {advice}"
    elif kind == "model_type":
        message = "must be a mapping; known keys are " + ", ".join(_keys_at(where, model))
    elif kind == "dict_type":
        message = "must be a mapping of names"
    else:
        message = str(error["msg"]).removeprefix("Value error, ")
        has_value = not isinstance(error["input"], (dict, list))
        if has_value and kind not in ("missing", "value_error"):
            message += f", not {error['input']!r}"
    return f"{_key(where) or 'the file'}: {message}"


def _line_of(lines: Mapping[Place, int], where: Sequence[str | int]) -> int:
    """Return the line of a key, or of its nearest parent that is in the file."""
    for length in range(len(where), 0, -1):
        if tuple(where[:length]) in lines:
            return lines[tuple(where[:length])]
    return 1


def _keys_at(where: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """Return the keys that are valid at a place."""
    for part in where:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            if inner is None:
                return []
            model = inner
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, UnionType, tuple, list, Annotated):
        return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)
    # Python 3.10 calls tuple[X, ...] a type as well.
    if get_origin(annotation) is None and isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return None


def load_config(path: Path) -> Config:
    """Read and validate a file, or raise ``ConfigError``; an empty one is the default."""
    return parse_config(read_text(path), path)


def parse_config(text: str, path: Path) -> Config:
    """Validate the text of a file; ``path`` is for the errors."""
    return read_settings(text, path, Config).settings

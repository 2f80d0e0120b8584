"""A YAML file becomes settings, or a list of errors that each name their line."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ...parsers.errors import Mendable
from .config import Config

M = TypeVar("M", bound=BaseModel)


class ConfigError(Mendable):
    """A file that is no configuration.

    Attributes:
        problems: One line each: file, line, key, and what would be right.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(f"{path}: {len(problems)} error(s) in the configuration", problems[0])
        self.problems = tuple(problems)


@dataclass(frozen=True)
class SettingsFile(Generic[M]):
    """What a file says.

    Attributes:
        settings: Its keys, validated.
        path: Where it is.
        lines: The line of every key.
    """

    settings: M
    path: Path
    lines: Mapping[tuple[str | int, ...], int]

    def problem(self, where: Sequence[str | int], said: str) -> ConfigError:
        """Return the error of a key that is wrong for a reason outside the file."""
        key = ".".join(map(str, where))
        return ConfigError(
            self.path, [_at(self.path, _line_of(self.lines, where), f"{key}: {said}")]
        )


def read_text(path: Path) -> str:
    """Return the text of a file of settings.

    Raises:
        ConfigError: It can't be read, or is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(path, [f"{path}: {reason}; name a YAML file"]) from None


def read_settings(text: str, path: Path, model: type[M]) -> SettingsFile[M]:
    """Validate the text of a file.

    Args:
        text: YAML; nothing at all is a mapping without keys.
        path: Stands in the errors.
        model: What it may say; its first key serves as an example of one.

    Raises:
        ConfigError: It is no YAML, or says something that is not so.
    """
    document = _read_yaml(text)
    if "problems" in document:
        raise ConfigError(path, [_at(path, line, said) for line, said in document["problems"]])
    data = document["data"]
    if data is not None and not isinstance(data, dict):
        example = next(iter(model.model_fields))
        raise ConfigError(path, [_at(path, 1, f"the file must be a mapping, like {example}:")])
    lines = {tuple(where): line for where, line in document["lines"]}
    try:
        return SettingsFile(model.model_validate(data or {}), path, lines)
    except ValidationError as error:
        told = sorted((_line_of(lines, one["loc"]), _tell(one, model)) for one in error.errors())
        raise ConfigError(path, [_at(path, line, said) for line, said in told]) from None


def _read_yaml(text: str) -> Any:
    """Have a child read the file, so that the YAML library does not stay in the daemon."""
    child = subprocess.run(
        [sys.executable, "-m", "tegrascope.daemon.yaml_reader"],
        input=text,
        capture_output=True,
        encoding="utf-8",
        cwd="/",  # Python looks for modules where it runs
        check=False,
    )
    if child.returncode != 0:  # a document that contains itself, say
        said = (child.stderr.strip() or "no answer").splitlines()[-1]
        return {"problems": [(0, f"cannot be read: {said}")]}
    return json.loads(child.stdout)


def _at(path: Path, line: int, said: str) -> str:
    return f"{path}:{line}: {said}" if line else f"{path}: {said}"


def _tell(error: Any, model: type[BaseModel]) -> str:
    where = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        from difflib import get_close_matches

        known = _keys_at(where[:-1], model)
        near = get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        said = (
            f"unknown key; did you mean {near[0]}?"
            if near
            else "unknown key; known are " + (", ".join(known))
        )
    elif error["type"] == "model_type":
        said = "must be a mapping; known keys are " + ", ".join(_keys_at(where, model))
    elif error["type"] == "dict_type":
        said = "must be a mapping of names"
    else:
        said = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] not in ("missing", "value_error") and not isinstance(
            error["input"], (dict, list)
        ):
            said += f", not {error['input']!r}"
    key = ".".join(str(part) for part in where) or "the file"
    return f"{key}: {said}"


def _line_of(lines: Mapping[tuple[str | int, ...], int], where: Sequence[str | int]) -> int:
    """Find the line of a key, or of the nearest thing above it that is in the file."""
    for length in range(len(where), 0, -1):
        if tuple(where[:length]) in lines:
            return lines[tuple(where[:length])]
    return 1


def _keys_at(where: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """List the keys that may stand at a place."""
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


__all__ = ["ConfigError", "load_config", "parse_config"]


def load_config(path: Path) -> Config:
    """Read and validate a file.

    Args:
        path: YAML; an empty file is the default configuration.

    Raises:
        ConfigError: It can't be read, is no YAML, or says something that is not so.
    """
    return parse_config(read_text(path), path)


def parse_config(text: str, path: Path) -> Config:
    """Validate the text of a file; ``path`` stands in the errors."""
    return read_settings(text, path, Config).settings

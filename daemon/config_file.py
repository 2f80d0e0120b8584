"""A YAML file becomes a Config, or a list of errors that each name their line."""

from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from ..parsers.errors import Mendable
from .config import Config


class ConfigError(Mendable):
    """A file that is no configuration.

    Attributes:
        problems: One line each: file, line, key, and what would be right.
    """

    def __init__(self, path: Path, problems: Sequence[str]) -> None:
        super().__init__(f"{path}: {len(problems)} error(s) in the configuration", problems[0])
        self.problems = tuple(problems)


def load_config(path: Path) -> Config:
    """Read and validate a file.

    Args:
        path: YAML; an empty file is the default configuration.

    Raises:
        ConfigError: It can't be read, is no YAML, or says something that is not so.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(path, [f"{path}: {reason}"]) from None
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> Config:
    """Validate the text of a file; ``path`` stands in the errors."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        repeated = [] if root is None else list(_repeated_keys(root))
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(path, [f"{path}{line}: {getattr(error, 'problem', error)}"]) from None
    if repeated:
        raise ConfigError(path, [f"{path}:{line}: {key}: given twice" for line, key in repeated])
    if data is not None and not isinstance(data, dict):
        raise ConfigError(path, [f"{path}:1: the file must be a mapping of keys, like telemetry:"])
    try:
        return Config.model_validate(data or {})
    except ValidationError as error:
        told = sorted((_line_of(root, one["loc"]), _tell(one)) for one in error.errors())
        raise ConfigError(path, [f"{path}:{line}: {said}" for line, said in told]) from None


def _repeated_keys(node: yaml.Node) -> "list[tuple[int, str]]":
    found: list[tuple[int, str]] = []
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                found.append((key.start_mark.line + 1, str(key.value)))
            seen.add(key.value)
            found += _repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            found += _repeated_keys(value)
    return found


def _tell(error: Any) -> str:
    where = tuple(error["loc"])
    if error["type"] == "extra_forbidden":
        from difflib import get_close_matches

        known = _keys_at(where[:-1])
        near = get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        said = (
            f"unknown key; did you mean {near[0]}?"
            if near
            else "unknown key; known are " + (", ".join(known))
        )
    else:
        said = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] not in ("missing", "value_error") and not isinstance(
            error["input"], (dict, list)
        ):
            said += f", not {error['input']!r}"
    key = ".".join(str(part) for part in where) or "the file"
    return f"{key}: {said}"


def _line_of(node: yaml.Node | None, where: Sequence[int | str]) -> int:
    """Find the line of a key, or of the nearest thing above it that is in the file."""
    if node is None:
        return 1
    line = node.start_mark.line + 1
    for part in where:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == str(part)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line


def _keys_at(where: Sequence[int | str]) -> list[str]:
    """List the keys that may stand at a place."""
    model: type[BaseModel] = Config
    for part in where:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            if inner is None:
                return []
            model = inner
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, UnionType, tuple, list, Annotated):
        return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)
    return None

"""Results of benches are read, and refused where they can't be held against each other."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from pathlib import Path

from pydantic import ValidationError

from ...parsers.errors import Mendable
from ..results.records import SCHEMA_VERSION, BenchResult

_FILE = "result.json"
# Rule 18: other than these alike, figures are of two different machines.
_MUST_AGREE = ("simulated", "board", "module", "power_mode", "gpu_uuid")
# Different ones may have changed the figures, or may not.
_SHOULD_AGREE = ("l4t", "jetpack", "clocks_locked", "rail_sensors", "power_reading")
_LIBRARIES = ("tensorrt", "cuda-runtime", "onnxruntime")


@dataclass(frozen=True)
class Source:
    """One result of a bench.

    Attributes:
        path: Of its file, as given.
        result: What it holds.
        versions: Of the libraries that took part.
    """

    path: str
    result: BenchResult
    versions: Mapping[str, str]


def read_sources(given: Sequence[Path]) -> tuple[Source, ...]:
    """Read results, oldest first.

    Args:
        given: Files, or directories that hold a ``result.json``.

    Raises:
        Mendable: One can't be read, or is of another machine than the first.
    """
    sources = sorted(map(_read, given), key=lambda one: one.result.ended_wall_ns)
    for one, other in combinations(sources, 2):
        _must_agree(one, other)
    return tuple(sources)


def disagreements(sources: Sequence[Source]) -> list[str]:
    """Say what differs among results, of what may have changed their figures."""
    told: dict[str, None] = {}
    for one, other in combinations(sources, 2):
        here, there = one.result.environment, other.result.environment
        pairs = [(name, getattr(here, name), getattr(there, name)) for name in _SHOULD_AGREE]
        pairs += [(n, one.versions.get(n), other.versions.get(n)) for n in _LIBRARIES]
        for name, mine, yours in pairs:
            if mine and yours and mine != yours:
                told[f"{name} is {mine} in {one.path}, {yours} in {other.path}"] = None
    return list(told)


def _read(given: Path) -> Source:
    path = given / _FILE if given.is_dir() else given
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        mend = f"name a {_FILE} of tegrascope bench, or its directory"
        raise Mendable(f"{path}: {error.strerror}", mend) from None
    except UnicodeDecodeError:
        raise Mendable(f"{path} is no text", f"name a {_FILE} of tegrascope bench") from None
    try:
        json.loads(text, parse_float=_finite, parse_constant=_finite)
    except OverflowError as error:
        raise Mendable(f"{path} holds {error}, which nobody measured", "bench again") from None
    except ValueError:
        pass  # told below
    try:
        result = BenchResult.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable(path, text, error) from None
    return Source(str(given), result, _versions(result))


def _finite(text: str) -> float:
    """Read a number of a document; reckoning with an infinite one ends in nonsense."""
    value = float(text)
    if not isfinite(value):
        raise OverflowError(text)
    return value


def _unreadable(path: Path, text: str, error: ValidationError) -> Mendable:
    try:
        found = json.loads(text)
    except ValueError:
        return Mendable(f"{path} is no JSON", f"name a {_FILE} of tegrascope bench")
    if not isinstance(found, dict) or "schema_version" not in found or "models" not in found:
        return Mendable(f"{path} is no result of a bench", f"name a {_FILE} of tegrascope bench")
    if found["schema_version"] != SCHEMA_VERSION:
        return Mendable(
            f"{path} has schema_version {found['schema_version']}, this version reads"
            f" {SCHEMA_VERSION}",
            "bench again, or take the tegrascope that wrote it",
        )
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return Mendable(
        f"{path}: {where}: {first['msg']}",
        f"it was written by tegrascope {found.get('tegrascope', 'of an unknown version')}:"
        " take that one or a newer one, or bench again",
    )


def _must_agree(one: Source, other: Source) -> None:
    here, there = one.result.environment, other.result.environment
    for name in _MUST_AGREE:
        mine, yours = getattr(here, name), getattr(there, name)
        if mine is not None and yours is not None and mine != yours:
            what = f"{name.replace('_', ' ')} is {mine} in {one.path} and {yours} in {other.path}"
            if name == "simulated":
                played, real = (one, other) if mine else (other, one)
                what = f"{played.path} is simulated, and {real.path} is not"
            raise Mendable(
                what,
                "figures of different machines can't be compared: bench all models on one,"
                " in one power mode",
            )


def _versions(result: BenchResult) -> dict[str, str]:
    told: dict[str, str] = {}
    for model in result.models:
        for report in model.rounds:
            told.update(report.environment.versions)
    return told

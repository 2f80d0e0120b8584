"""Files of results, read and checked: errors name the file, the key and the remedy."""

import json
from math import isfinite
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ...collectors.paths import is_directory, is_file
from ...daemon.measure.report import RunReport
from ...parsers.errors import UserError
from ...parsers.records import Record
from .promise import PROMISE_FILE, Promise
from .records import READABLE_VERSIONS, BenchResult

Kind = TypeVar("Kind", bound=Record)
_FILE = "result.json"
_NAME_ONE = f"name a {_FILE} of tegrascope bench"
_LARGEST_BYTES = 64 << 20  # far over a result of a large network on each accelerator


def read_result(given: Path) -> BenchResult:
    """Read a ``result.json``, given by itself or by its directory.

    Raises:
        UserError: It cannot be read, or is not a valid result.
    """
    path, text, found = _document(given)
    if not isinstance(found, dict) or "schema_version" not in found or "models" not in found:
        raise UserError(f"{path} is not a result of a benchmark", _NAME_ONE)
    if found["schema_version"] not in READABLE_VERSIONS:
        readable = " and ".join(map(str, READABLE_VERSIONS))
        raise UserError(
            f"{path} has schema_version {found['schema_version']}, this version reads {readable}",
            "run the benchmark again, or use the tegrascope that wrote it",
        )
    writer = found.get("tegrascope", "of an unknown version")
    return validated(BenchResult, text, str(path), writer)


def read_result_or_run(given: Path) -> BenchResult | RunReport:
    """Read a ``result.json``, or the record of one run as ``runs show`` prints it."""
    path, text, found = _document(given)
    if isinstance(found, dict) and "run_id" in found:
        return validated(RunReport, text, str(path))
    return read_result(given)


def validated(kind: type[Kind], text: str, where: str, writer: str = "of another version") -> Kind:
    """Return a document as a record, or raise ``UserError`` with its first wrong key."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{where}: {key}: {first['msg']}",
            f"it was written by tegrascope {writer}: use that one or a newer one, or run the"
            " benchmark again",
        ) from None


def read_promise(given: Path) -> Promise:
    """Read the promise that ``advise -o`` wrote, by its directory or its file.

    Raises:
        UserError: It cannot be read.
    """
    remedy = "write one: tegrascope advise RESULT --rates NAME=30 -o DIR"
    path, text, _ = _document(given if is_file(given) else given / PROMISE_FILE, remedy)
    return validated(Promise, text, str(path))


def _document(
    given: Path, remedy: str = f"{_NAME_ONE}, or its directory"
) -> tuple[Path, str, object]:
    path = given / _FILE if is_directory(given) else given
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise UserError(f"{path} is larger than {_LARGEST_BYTES >> 20} MiB", remedy)
        text = content.decode("utf-8")
        return path, text, json.loads(text, parse_float=_finite, parse_constant=_finite)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", remedy) from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text", remedy) from None
    except OverflowError as error:
        raise UserError(
            f"{path} contains {error}, which is not a valid measurement", "run the benchmark again"
        ) from None
    except ValueError:
        raise UserError(f"{path} is not JSON", remedy) from None


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise OverflowError(text)
    return value

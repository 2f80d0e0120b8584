"""Where the placement of a built engine is found: a run, an engine in the cache, or a file."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ...collectors.backends.engine_cache import EngineCache
from ...parsers.errors import Mendable
from ...parsers.inference.placement import Placement, placement_of
from ..store.history import History

_FORMS = (
    "give a run (tegrascope runs list), an engine (tegrascope engines list), a result.json of"
    " bench, or a build log"
)
_SHORTEST_KEY = 6
_DLA = ("dla0", "dla1")


@dataclass(frozen=True)
class Evidence:
    """A placement, and what it is of.

    Attributes:
        placement: Where the layers of an engine went.
        source: Which engine, in words.
        model_sha256: Digest of the model's file, where it is known.
    """

    placement: Placement
    source: str
    model_sha256: str | None = None


def find_evidence(given: str, state_dir: Path) -> Evidence:
    """Find a placement.

    Args:
        given: A file, the beginning of an engine's key, or a run's id or an unmistakable part.
        state_dir: Where engines and runs are kept.

    Raises:
        Mendable: There is no such thing, or it tells no placement on a DLA.
    """
    if Path(given).is_file():
        return _in_file(Path(given))
    found = _in_cache(given, state_dir / "engines") or _in_store(given, state_dir / "tegrascope.db")
    if found is None:
        raise Mendable(f"there is no file, engine or run {given}", _FORMS)
    return found


def _in_file(path: Path) -> Evidence:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Mendable(f"{path}: {error.strerror}", "name a file that can be read") from None
    document: Any = None
    try:
        document = json.loads(text, strict=False)
    except ValueError:
        placement = placement_of(text.splitlines(), None, "dla0")
    else:
        built = next(_built_in(document), None)
        if built is not None:
            return Evidence(built, str(path), _digest(document))
        is_engine = isinstance(document, dict) and "Layers" in document
        placement = placement_of((), text, "dla0") if is_engine else Placement()
    if placement.verdict == "unknown" and not placement.dla_layers and not placement.gpu_layers:
        raise Mendable(f"{path} tells nothing of layers on a DLA", _FORMS)
    return Evidence(placement, str(path))


def _in_cache(given: str, directory: Path) -> Evidence | None:
    if len(given) < _SHORTEST_KEY or not directory.is_dir():
        return None
    for entry in EngineCache(directory).entries():
        sidecar = entry.sidecar
        if sidecar.key.startswith(given):
            source = f"engine {sidecar.key[:12]} of {sidecar.model}"
            return Evidence(sidecar.built.placement, source)
    return None


def _in_store(given: str, path: Path) -> Evidence | None:
    if not path.is_file():
        return None
    document = History(path).run(given)
    if document is None:
        return None
    placement = next(_built_in(document), None)
    if placement is None:
        raise Mendable(
            f"run {given} was not on a DLA, or does not tell where its layers were", _FORMS
        )
    source = f"run {document.get('run_id', given)} on {document.get('device')}"
    return Evidence(placement, source, _digest(document))


def _built_in(document: object) -> Iterator[Placement]:
    """Yield the placements of what ran on a DLA, in a run's record or a comparison's result."""
    if isinstance(document, list):
        for one in document:
            yield from _built_in(one)
    elif isinstance(document, dict):
        built = document.get("built")
        if document.get("device") in _DLA and isinstance(built, Mapping):
            try:
                yield Placement.model_validate(built.get("placement"))
            except ValidationError:
                return
        for value in document.values():
            yield from _built_in(value)


def _digest(document: object) -> str | None:
    found = document.get("model_sha256") if isinstance(document, dict) else None
    return found if isinstance(found, str) else None

"""``tegrascope engines list|build|prune``."""

import argparse
import sys
import time
from pathlib import Path

from ..collectors.engine_cache import EngineCache, Entry
from ..parsers.built import Built
from ..parsers.run_events import Loaded, Order, Phase, RunEvent
from .exit_status import CHECK_SAYS_NO, FAILED, GOOD
from .identity import new_run_id
from .lanes import Lane

_COLUMNS = ("engine", "model", "device", "batch", "precision", "MB", "verdict", "used")
_SAID = {"load": "loading", "build": "building", "warm_up": "running it once"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def list_engines(arguments: argparse.Namespace) -> int:
    """Print a table of the engines in the cache, those used last first."""
    directory = _directory(arguments)
    entries = EngineCache(directory).entries() if directory.is_dir() else []
    now_ns = time.time_ns()
    rows = [_COLUMNS, *(_row(entry, now_ns) for entry in entries)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    total = sum(entry.sidecar.plan_bytes for entry in entries)
    print(f"{len(entries)} engine(s), {total / 1e6:.1f} MB in {directory}", file=sys.stderr)
    return GOOD


def build_engines(arguments: argparse.Namespace) -> int:
    """Build an engine for each device, in a process of its own, and run it once."""
    worst = GOOD
    for device in arguments.on:
        worst = max(worst, _build(arguments, device))
    return worst


def prune_engines(arguments: argparse.Namespace) -> int:
    """Remove engines, by age or number, and what belongs to none."""
    directory = _directory(arguments)
    if not directory.is_dir():
        print(f"there are no engines in {directory}", file=sys.stderr)
        return GOOD
    cache = EngineCache(directory)
    entries = cache.entries()
    doomed = entries if arguments.all else []
    if arguments.keep is not None:
        doomed = entries[arguments.keep :]
    if arguments.older_than is not None:
        limit_ns = time.time_ns() - int(arguments.older_than * 1e9)
        doomed = [entry for entry in entries if entry.used_wall_ns < limit_ns]
    freed = [cache.remove(entry) for entry in doomed]
    cache.sweep()
    gone = [size for size in freed if size is not None]
    busy = f", {len(freed) - len(gone)} in use stay" if len(gone) < len(freed) else ""
    print(f"{len(gone)} engine(s) removed, {sum(gone) / 1e6:.1f} MB{busy}", file=sys.stderr)
    return GOOD


def _build(arguments: argparse.Namespace, device: str) -> int:
    order = Order(
        run_id=new_run_id(),
        backend="tensorrt",
        device=device,
        model=arguments.model,
        model_directory=str((arguments.state_dir / "models").absolute()),
        engine_directory=str(_directory(arguments).absolute()),
        batch=arguments.batch,
        precision=arguments.precision,
        fallback=arguments.fallback,
        optimization_level=arguments.level,
        cuda_graph=False,
        warm_up_seconds=0.0,
        count=1,
    )
    found: list[Built] = []

    def hear(event: RunEvent) -> None:
        if isinstance(event, Phase) and event.edge == "begin" and event.phase in _SAID:
            print(f"{device}: {_SAID[event.phase]} …", file=sys.stderr)
        elif isinstance(event, Loaded) and event.built is not None:
            found.append(event.built)

    lane = Lane(device)
    try:
        verdict = lane.run(order, arguments.timeout, hear)
    finally:
        lane.close()
    if verdict.outcome != "ok":
        print(f"tegrascope: {device}: {verdict.reason}", file=sys.stderr)
        return CHECK_SAYS_NO if verdict.unavailable else FAILED
    for built in found:
        print(_describe(device, built))
    return GOOD


def _describe(device: str, built: Built) -> str:
    """Return what was built in one line, and its notes in others."""
    how = "was there already" if built.is_cached else f"built in {built.build_seconds or 0:.1f} s"
    types = ", ".join(f"{count} {name}" for name, count in built.layer_types.items())
    parts = [
        f"{device}: engine {(built.engine_key or '')[:12]} {how}",
        f"{(built.engine_bytes or 0) / 1e6:.1f} MB",
        f"layers: {types or 'not told'}",
        built.placement.verdict,
    ]
    return "\n".join([", ".join(parts), *(f"  {note}" for note in built.notes)])


def _directory(arguments: argparse.Namespace) -> Path:
    state: Path = arguments.state_dir
    return state / "engines"


def _row(entry: Entry, now_ns: int) -> tuple[str, ...]:
    sidecar = entry.sidecar
    built, parts = sidecar.built, sidecar.parts
    types = list(built.layer_types)
    precision = types[0] if types else parts.get("precision", "-")
    return (
        sidecar.key[:12],
        sidecar.model,
        parts.get("device", "-"),
        parts.get("batch", "-"),
        f"{precision} (dummy)" if built.int8_scales == "dummy" else precision,
        f"{sidecar.plan_bytes / 1e6:.1f}",
        built.placement.verdict,
        f"{_age((now_ns - entry.used_wall_ns) / 1e9)} ago",
    )


def _age(seconds: float) -> str:
    """Return a length of time in the largest unit that fits.

    >>> _age(7300), _age(0.2)
    ('2 h', '0 s')
    """
    whole = max(0, int(seconds))
    for length, unit in _UNITS:
        if whole >= length:
            return f"{whole // length} {unit}"
    return "0 s"

"""The files of a world, and the manifest that freezes them."""

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from .readings import by_wall_clock, hidden, nvml_series, print_lines, sysfs_series
from .signals import CELL_SECONDS
from .worlds import BOARDS, GPUS, World, make_world, specs

MANIFEST = Path(__file__).with_name("manifest.sha256")
LOG, RUNS, ABOUT, ENERGY = "tegrastats.log", "runs.csv", "world.json", "energy.csv"
HWMON, SERIES = "hwmon.csv", "nvml.txt"
_EPOCH = 1_780_272_000
_ENERGY_STEP_SECONDS = 0.02


class ManifestError(Exception):
    """A file of a world is not the one that was frozen."""


def files_of(world: World) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file of a world."""
    about = {
        "name": world.spec.name,
        "kind": world.spec.kind,
        "signal": f"{world.spec.signal}: {world.work.note}",
        "sensor": world.sensor.text,
        "begin_seconds": round(world.begin, 6),
        "end_seconds": round(world.end, 6),
        "inferences": world.inferences,
        "truth_joules": round(world.truth_joules, 4),
        "hidden": hidden(world),
    }
    yield ABOUT, (json.dumps(about, indent=1) + "\n").encode("ascii")
    if world.spec.kind == "log":
        yield LOG, "".join(_log(world)).encode("ascii")
        yield RUNS, _runs(world).encode("ascii")
        return
    # A live tool does not begin at the planned moment exactly: the energy of any time is given.
    yield ENERGY, "".join(_energy(world)).encode("ascii")
    if world.spec.kind == "sysfs":
        yield HWMON, "".join(_hwmon(world)).encode("ascii")
    else:
        yield SERIES, "".join(_nvml(world)).encode("ascii")


def _start(world: World) -> int:
    # Worlds are an hour apart, so that the times of two logs never meet.
    return _EPOCH + 3600 * world.spec.number


def _log(world: World) -> Iterator[str]:
    """Yield the lines as a recorder writes them: the time of arrival, then the line itself."""
    lines, board, start = print_lines(world), BOARDS[world.spec.board], _start(world)
    printed = by_wall_clock(world, lines.printed)
    arrived = by_wall_clock(world, lines.arrived)
    milliwatts = np.rint(lines.watts * 1000).astype(int)
    means = np.cumsum(milliwatts, axis=1) // np.arange(1, len(printed) + 1)
    for i in range(len(printed)):
        stamp = datetime.fromtimestamp(start + printed[i], timezone.utc)
        rails = " ".join(
            f"{rail.name} {milliwatts[r, i]}mW/{means[r, i]}mW"
            for r, rail in enumerate(board.rails)
        )
        yield f"{start + arrived[i]:.6f}::{stamp:%m-%d-%Y %H:%M:%S} {board.line} {rails}\n"


def _runs(world: World) -> str:
    begin, end = by_wall_clock(world, np.array([world.begin, world.end])) + _start(world)
    return f"name,start,end,inferences\nrun,{begin:.6f},{end:.6f},{world.inferences}\n"


def _energy(world: World) -> Iterator[str]:
    yield "seconds,joules\n"
    seconds = world.moments.cells * CELL_SECONDS
    for at in np.arange(0, seconds, _ENERGY_STEP_SECONDS):
        yield f"{at:.2f},{world.joules(0.0, float(at)):.4f}\n"


def _hwmon(world: World) -> Iterator[str]:
    series = sysfs_series(world)
    yield f"seconds,{','.join(series.values)}\n"
    for at, *values in zip(series.times, *series.values.values(), strict=True):
        yield f"{at:.2f},{','.join(str(value) for value in values)}\n"


def _nvml(world: World) -> Iterator[str]:
    """Yield the GPU's traits, and then a line for each update of its sensor."""
    gpu, series = GPUS[world.spec.gpu], nvml_series(world)
    has_counter = gpu.counter_seconds is not None
    yield f"name {gpu.name}\n"
    yield f"architecture {gpu.architecture}\n"
    yield f"counter {has_counter:d}\ninstant {gpu.has_instant:d}\naverage {gpu.has_average:d}\n"
    yield "microseconds usage_mw instant_mw average_mw energy_mj\n"
    for at, *values in zip(series.times, *series.values.values(), strict=True):
        yield f"{round(at * 1e6)} {' '.join(str(value) for value in values)}\n"


def write_world(world: World, folder: Path, sums: dict[str, str] | None = None) -> Path:
    """Write a world's files below ``folder`` and return their directory.

    Args:
        world: The world.
        folder: The directory of all worlds.
        sums: The manifest; ``None`` checks nothing.

    Raises:
        ManifestError: A file is not the one that was frozen.
    """
    directory = folder / world.spec.name
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files_of(world):
        key = f"{world.spec.name}/{name}"
        if sums is not None and sums.get(key) != hashlib.sha256(content).hexdigest():
            raise ManifestError(f"{key} is not the file that {MANIFEST.name} has")
        (directory / name).write_bytes(content)
    return directory


def read_manifest() -> dict[str, str]:
    """Return the sum of each file, by its name."""
    lines = MANIFEST.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def manifest_text() -> str:
    """Return a manifest of all worlds as they are made now."""
    lines = []
    for spec in specs():
        for name, content in files_of(make_world(spec)):
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {spec.name}/{name}\n")
    return "".join(lines)

"""What the readers of a world get: lines of a log, registers of a sensor, answers of NVML."""

from dataclasses import dataclass

import numpy as np

from .sensors import at, mean_before
from .signals import CELL_SECONDS, Array, Random, log_uniform
from .worlds import BOARDS, GPUS, World

_READ_SECONDS = (0.006, 0.022)
"""Time that tegrastats adds to its interval, by public logs."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a recorded log: when they arrived by the clock, and the readings in watts."""

    printed: Array
    arrived: Array
    watts: Array
    """Shape (rails, n)."""


def wall_clock(world: World) -> tuple[Array, Array]:
    """Return the steps of the world's wall clock: times, and seconds added from then on."""
    # A stream of its own: the marks and the lines ask for the same steps.
    random = Random(world.spec.seed + 1)
    begin, end = world.begin, world.end
    match world.spec.clock:
        case "one-step":
            size = log_uniform(random, 0.3, 5.0) * (1 if random.uniform() < 0.5 else -1)
            return np.array([random.uniform(begin + 2, end - 2)]), np.array([size])
        case "many-steps":
            times = np.arange(begin + 1, end - 1, 5.0)
            return times, np.full(len(times), -0.3)
        case "slewed":
            times = np.arange(0, end, 0.5)
            return times, np.full(len(times), 0.00025)
        case "steady":
            return np.empty(0), np.empty(0)


def by_wall_clock(world: World, times: Array) -> Array:
    """Return what the wall clock shows at times of the world, in seconds since its begin."""
    at_times, sizes = wall_clock(world)
    added = np.concatenate([[0.0], np.cumsum(sizes)])
    shown: Array = times + added[np.searchsorted(at_times, times, side="right")]
    return shown


def print_lines(world: World) -> Lines:
    """Return the lines that a tegrastats prints from the begin to the end of a world."""
    spec, random = world.spec, Random(world.spec.seed + 2)
    interval = spec.interval_ms / 1000
    seconds = world.moments.cells * CELL_SECONDS
    count = int(seconds / interval) + 2
    reading = random.uniform(*_READ_SECONDS, count if spec.reads_vary else 1)
    steps = np.full(count, interval) + reading
    steps[0] = random.uniform(0, interval)
    if spec.loss == "by-load":
        steps = _late_under_load(world, steps, interval)
    printed = np.cumsum(steps)
    printed = printed[printed < seconds - 0.01]
    reading = np.broadcast_to(reading, count)[: len(printed)]
    rails = BOARDS[spec.board].rails
    watts = []
    for number, rail in enumerate(rails):
        taken = printed - reading * (1 - (number + 0.5) / len(rails))
        share = float(world.rails[number].sum() / world.counted.sum())
        exact = world.sensor.read(world.rails[number], taken.clip(0), share)
        watts.append(np.rint(np.rint(exact / rail.step_watts) * rail.step_watts * 1000) / 1000)
    kept = np.ones(len(printed), bool)
    if spec.loss == "single":
        kept &= random.uniform(size=len(printed)) >= 0.02
    if spec.loss == "bursts":
        for first in np.flatnonzero(random.uniform(size=len(printed)) < 0.01):
            kept[first : first + random.randint(3, 11)] = False
    arrived = printed + random.uniform(0.0001, 0.0008, len(printed))
    return Lines(printed[kept], arrived[kept], np.array(watts)[:, kept])


def _late_under_load(world: World, steps: Array, interval: float) -> Array:
    """Return the steps of a program that gets no processor while much power is drawn."""
    limit = float(np.median(world.counted[world.moments.inside() > 0])) / 1e6
    late, now = steps.copy(), 0.0
    for number in range(len(late)):
        if at(world.counted, np.array([now]))[0] > limit:
            late[number] += 2 * interval
        now += late[number]
    return late


@dataclass(frozen=True, slots=True)
class Series:
    """What a live world's files or library return from each of ``times`` on, shape (n,)."""

    times: Array
    values: dict[str, Array]


def sysfs_series(world: World, step_seconds: float = 0.02) -> Series:
    """Return the registers of an INA3221: millivolts and milliamperes of each rail."""
    times = np.arange(0, world.moments.cells * CELL_SECONDS - step_seconds, step_seconds)
    values = {}
    for number, rail in enumerate(BOARDS[world.spec.board].rails):
        watts = world.sensor.read(world.rails[number], times)
        step = rail.step_watts / 5 * 1000
        values[f"curr{number + 1}_input"] = (np.rint(watts / 5 * 1000 / step) * step).astype(int)
    return Series(times, values)


def nvml_series(world: World) -> Series:
    """Return what NVML answers: power in milliwatts, and the energy counter in millijoules."""
    gpu, power = GPUS[world.spec.gpu], world.rails[0]
    # The phase of the updates differs from that of the work.
    phase = Random(world.spec.seed + 3).uniform(0, gpu.update_seconds)
    seconds = world.moments.cells * CELL_SECONDS
    times = np.concatenate([[0.0], np.arange(phase, seconds, gpu.update_seconds)])
    values = {
        "usage_mw": np.rint(mean_before(power, times, gpu.usage_seconds) * 1000),
        "instant_mw": np.rint(mean_before(power, times, gpu.box_seconds) * 1000),
        "average_mw": np.rint(mean_before(power, times, 1.0) * 1000),
        "energy_mj": np.array([world.joules(0.0, float(t)) * 1000 for t in times]) + 4e6,
    }
    middle = (world.begin + world.end) / 2
    energy, later = values["energy_mj"], times >= middle
    match world.spec.counter_fault:
        case "stands":
            # It stands still for 4 s, and what was drawn meanwhile is never counted.
            first, last = np.searchsorted(times, [middle, middle + 4.0])
            energy[last:] -= energy[last] - energy[first]
            energy[first:last] = energy[first]
        case "restarts":
            energy[later] -= energy[np.flatnonzero(later)[0]]
        case "runs-ahead":
            energy[later] += 0.2 * (world.truth_joules * 1000)
        case "none":
            pass
    return Series(
        times, {name: np.rint(column).astype(np.int64) for name, column in values.items()}
    )


def hidden(world: World) -> str:
    """Return why no reader of this world's files can know its energy, or nothing if one can.

    It is decided from the world's parameters, before any tool has seen it.
    """
    spec, sensor = world.spec, world.sensor
    if spec.kind != "log":
        return ""
    lines = print_lines(world)
    inside = (lines.printed > world.begin) & (lines.printed < world.end)
    if sensor.kind == "stuck" and sensor.seconds < world.begin:
        return "the sensor is stuck since before the window"
    if sensor.kind == "clipped" and spec.signal in ("on-off", "batches", "constant", "spikes"):
        return "the limit of the sensor looks like a level of the work"
    if sensor.kind == "offset" and abs(sensor.watts) * spec.window_seconds > (
        0.02 * world.truth_joules
    ):
        return "the offset of the sensor is more than 2 %"
    if spec.loss == "by-load":
        return ""
    counted = [i for i, rail in enumerate(BOARDS[spec.board].rails) if rail.is_counted]
    mean_watts = float(lines.watts[counted].sum(axis=0)[inside].mean())
    is_far = abs(mean_watts * spec.window_seconds / world.truth_joules - 1) > 0.02
    taken = lines.printed[inside]
    if sensor.kind == "slow":
        taken = np.unique(np.floor(taken / sensor.seconds)) * sensor.seconds
    for period in world.work.periods:
        turns = taken / period
        steps = (np.diff(turns) + 0.5) % 1.0 - 0.5
        travelled = np.concatenate([[0.0], np.cumsum(steps)])
        if is_far and float(np.ptp(travelled)) < 1.5:
            return f"the readings are in step with {period:.4f} s of the work"
    return ""

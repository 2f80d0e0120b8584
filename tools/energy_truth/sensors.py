"""What a sensor reports of a power: clean, slow, averaging in two ways, or broken in three."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from .signals import CELL_SECONDS, Array

SensorKind = Literal["clean", "ina3221", "box", "slow", "stuck", "clipped", "offset"]
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class Sensor:
    """One kind of sensor.

    Attributes:
        kind: ``clean`` reads the moment. ``ina3221`` moves by 1/64 of the difference with each
            conversion, as its data sheet says. ``box`` reads the mean of the time before. ``slow``
            reads the moment and then repeats it. ``stuck`` repeats one reading from some time on.
            ``clipped`` cannot read more than a limit. ``offset`` adds a constant.
        seconds: Of ``ina3221`` the time of 64 conversions, of ``box`` the width, of ``slow`` the
            time between updates, of ``stuck`` the time in the world after which nothing changes.
        watts: Of ``clipped`` the limit of the board, of ``offset`` what is added to the board.
    """

    kind: SensorKind = "clean"
    seconds: float = 0.0
    watts: float = 0.0

    @property
    def text(self) -> str:
        """For the table of worlds."""
        match self.kind:
            case "ina3221":
                return f"INA3221, forgets with {self.seconds * 1e3:.0f} ms"
            case "box":
                return f"mean of {self.seconds * 1e3:.0f} ms"
            case "slow":
                return f"updates each {self.seconds:.3f} s"
            case "stuck":
                return f"stuck from {self.seconds:.1f} s on"
            case "clipped":
                return f"clipped at {self.watts:.2f} W"
            case "offset":
                return f"offset {self.watts * 1e3:+.0f} mW"
            case "clean":
                return "clean"

    def read(self, microwatts: Array, times: Array, share: float = 1.0) -> Array:
        """Return readings in watts at times in seconds.

        Args:
            microwatts: Power of a rail, shape (cells,).
            times: Shape (n,), inside the world.
            share: The rail's share of the board, for what is given in watts of the board.
        """
        match self.kind:
            case "ina3221":
                return _forgetting(microwatts, times, self.seconds / _SAMPLES)
            case "box":
                return mean_before(microwatts, times, self.seconds)
            case "slow":
                updates = np.floor(times / self.seconds) * self.seconds
                return at(microwatts, updates)
            case "stuck":
                return at(microwatts, np.minimum(times, self.seconds))
            case "clipped":
                return np.minimum(at(microwatts, times), self.watts * share)
            case "offset":
                return (at(microwatts, times) + self.watts * share).clip(0)
            case "clean":
                return at(microwatts, times)


def at(microwatts: Array, times: Array) -> Array:
    """Return the power in watts at times."""
    cells = np.clip((times / CELL_SECONDS).astype(np.int64), 0, len(microwatts) - 1)
    watts: Array = microwatts[cells] / 1e6
    return watts


def mean_before(microwatts: Array, times: Array, seconds: float) -> Array:
    """Return the mean power in watts of the time before each of ``times``, in whole cells."""
    until = np.concatenate([[0], np.cumsum(microwatts)])
    last = np.clip(np.rint(times / CELL_SECONDS).astype(np.int64), 1, len(microwatts))
    first = np.maximum(last - max(1, round(seconds / CELL_SECONDS)), 0)
    means: Array = (until[last] - until[first]) / (last - first) / 1e6
    return means


def _forgetting(microwatts: Array, times: Array, conversion_seconds: float) -> Array:
    per_conversion = max(1, round(conversion_seconds / CELL_SECONDS))
    count = len(microwatts) // per_conversion
    conversions = microwatts[: count * per_conversion].reshape(count, per_conversion).mean(axis=1)
    register = np.empty(count)
    level = float(conversions[0])
    for number, measured in enumerate(conversions.tolist()):
        level += (measured - level) / _SAMPLES
        register[number] = level
    done = np.clip((times / CELL_SECONDS).astype(np.int64) // per_conversion - 1, 0, count - 1)
    watts: Array = register[done] / 1e6
    return watts

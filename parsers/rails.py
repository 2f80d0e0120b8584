"""The rails of a board: how they add up, and how their sensors average."""

from collections.abc import Mapping

from pydantic import ConfigDict, PositiveFloat

from .records import Record

_SAMPLES, _UPDATE_INTERVAL = "samples", "update_interval"
_STATED = f"stated.{_UPDATE_INTERVAL}"
# A conversion of bus and shunt voltage of an INA3221 takes at least twice 140 µs, for each of its
# three channels.
_FASTEST_MILLISECONDS = 3 * 0.28


class RailRule(Record):
    """How the rails of one board add up; ``step`` is in watts by rail, with a ``default``.

    ``offset_steps`` is the largest zero error of a reading, in steps; ``None`` if it is not known.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    name: str
    rails: tuple[str, ...]
    exact: bool = False
    total: tuple[str, ...]
    excluded: dict[str, str] = {}
    step: dict[str, PositiveFloat]
    offset_steps: PositiveFloat | None = None

    @property
    def offset_watts(self) -> float | None:
        """Largest zero error of the total, either way; it is the same in every run on a board."""
        if self.offset_steps is None:
            return None
        return self.offset_steps * sum(map(self.step_watts, self.total))

    def watts(self, rails: Mapping[str, float]) -> float | None:
        """Return the power of the module; ``None`` if one of its rails is missing."""
        if not self.total or not all(rail in rails for rail in self.total):
            return None
        return sum(rails[rail] for rail in self.total)

    def step_watts(self, rail: str) -> float:
        """Return the smallest step of a rail's reading, in watts."""
        return self.step.get(rail, self.step["default"])


def stated_sensors(averaging: float | None) -> dict[str, float]:
    """Return the settings of rail sensors of which a user states the averaging in seconds.

    >>> averaging_seconds(stated_sensors(0.42)), stated_sensors(None)
    (0.42, {})
    """
    return {} if averaging is None else {_STATED: averaging * 1e3}


def averaging_seconds(rail_sensors: Mapping[str, float]) -> float:
    """Return the time over which the slowest of a board's rail sensors averages.

    That is its update interval, which the kernel gives as the time of all channels and samples
    (ina3221, source: Documentation/hwmon/ina3221.rst). A number too small for that is the time of
    one sample of one channel.

    >>> averaging_seconds({"1-0040.samples": 64, "1-0040.update_interval": 422})
    0.422
    """
    slowest = 0.0
    for name, number in rail_sensors.items():
        chip, _, setting = name.rpartition(".")
        if setting == _UPDATE_INTERVAL:
            samples = rail_sensors.get(f"{chip}.{_SAMPLES}", 1.0)
            seconds = number / 1e3
            if number < 0.9 * samples * _FASTEST_MILLISECONDS:
                seconds *= 3 * samples
            slowest = max(slowest, seconds)
    return slowest

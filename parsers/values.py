"""Small value types that all rooms share: names of devices and durations."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, NonNegativeFloat, PositiveFloat

Device = Literal["gpu", "dla0", "dla1", "cpu", "external"]

_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(ms|s|m|h|d)?\s*", re.ASCII)
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def read_duration(value: object) -> object:
    """Read ``90``, ``90s``, ``1.5m``, ``2h`` or ``7d`` as seconds; return anything else unchanged.

    Raises:
        ValueError: It is text of another form.

    >>> read_duration("1.5m")
    90.0
    """
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError("a duration is a number of seconds, or like 500ms, 30s, 5m, 2h, 7d")
    return float(found[1]) * _UNIT_SECONDS[found[2]]


Seconds = Annotated[NonNegativeFloat, BeforeValidator(read_duration)]
PositiveSeconds = Annotated[PositiveFloat, BeforeValidator(read_duration)]


class Section(BaseModel):
    """Base of all settings: immutable, and a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

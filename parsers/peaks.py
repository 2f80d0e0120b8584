"""What a module can do at most, by the words of its maker: ``peaks.toml``."""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from pydantic import PositiveFloat

from .inference.placement import Precision
from .records import Record

PeakOf = Literal["gpu", "dla", "memory"]


class Words(Record):
    """What a source says, and which."""

    source: str
    text: str


class Source(Record):
    """A document and where it is."""

    title: str
    address: str


class Peak(Record):
    """The most that a part of a module does per second at a clock.

    Attributes:
        module: For example ``AGX Orin 64GB``.
        on: The GPU, one core of the DLA, or the memory.
        precision: That of the operations; ``None`` for the memory.
        mode: The power mode, without ``MODE_``, to which it applies; ``None`` is all others.
        per_second: Dense operations, of which a multiply-add is two, or bytes.
        hertz: The clock at which it does.
        derived: How the number follows from the sources, in 10^12 operations or 10^9 bytes.
        words: Keys of their words in the table.
    """

    module: str
    on: PeakOf
    precision: Precision | None = None
    mode: str | None = None
    per_second: PositiveFloat
    hertz: PositiveFloat
    derived: str
    words: tuple[str, ...]

    def at(self, hertz: float | None) -> float:
        """Return the most per second at a clock; at its own clock, if that is not known."""
        if hertz is None:
            return self.per_second
        return self.per_second * hertz / self.hertz


class PeakTable(Record):
    """All peaks, the modules by part number, and the sources."""

    parts: dict[str, str]
    sources: dict[str, Source]
    words: dict[str, Words]
    peak: tuple[Peak, ...]


@cache
def peak_table() -> PeakTable:
    """Return the table."""
    data = Path(__file__).with_name("peaks.toml").read_bytes()
    return PeakTable.model_validate(msgspec.toml.decode(data))


def find_peak(
    part: str | None, power_mode: str | None, on: PeakOf, precision: Precision | None = None
) -> Peak | None:
    """Return the peak of a module, by its part number; ``None`` if no source states it.

    >>> find_peak("p3701-0005", "MODE_30W", "gpu", "int8").per_second / 1e12
    42.5
    >>> find_peak("p3701-0005", None, "gpu", "int8").per_second / 1e12
    85.0
    """
    table = peak_table()
    mode = (power_mode or "").removeprefix("MODE_")
    usual: Peak | None = None
    for peak in table.peak:
        if (peak.module, peak.on, peak.precision) != (table.parts.get(part or ""), on, precision):
            continue
        if peak.mode == mode:
            return peak
        if peak.mode is None:
            usual = peak
    return usual

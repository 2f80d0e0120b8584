"""Which number of a line belongs to which column: lines of one layout differ in numbers only.

A *run* is a sequence of digits and decimal points, a *gap* the text between two runs. One integer
describes a run, except for the place of its points, so comparing integers compares lines:

| bits | meaning |
|---|---|
| 0 to 31 | its value, if it is at most eight digits and nothing else |
| 32 to 47 | length of the gap before it, for the first one from the beginning of the line |
| 48 to 55 | its length |
| 56 | it has a decimal point |
| 57 | it is longer than eight characters |
| 58 | it is longer than two characters and not 100, as no percentage is |
| 59 | its decimal points are not those of a number |
| 60 | it is the last one of its line |
"""

import re
from dataclasses import dataclass, field

from .values import BYTES, HERTZ_PER_MEGAHERTZ

VALUE_BITS = 0xFFFFFFFF
GAP_BITS = 0xFFFF << 32
LENGTH_SHIFT = 48
LENGTH_BITS = 0xFF << LENGTH_SHIFT
POINT_BIT = 1 << 56
LONG_BIT = 1 << 57
WIDE_BIT = 1 << 58
WRONG_BIT = 1 << 59
LAST_BIT = 1 << 60

# What must be equal in all lines of a layout: of a number, and of a digit in a name.
_DECIMAL_BITS = GAP_BITS | LONG_BIT | WRONG_BIT | LAST_BIT
_NUMBER_BITS = _DECIMAL_BITS | POINT_BIT
_PERCENT_BITS = _NUMBER_BITS | WIDE_BIT
_WIDTH_BITS = _NUMBER_BITS | LENGTH_BITS
LITERAL_BITS = _WIDTH_BITS | VALUE_BITS
EPOCH_BITS = GAP_BITS | LAST_BIT

NOWHERE = ""
TIME_COLUMNS = ("month", "day", "year", "hour", "minute", "second")
RESERVED_COLUMNS = (NOWHERE, *TIME_COLUMNS)
"""The first columns: of runs that mean nothing by themselves, and of the printed time."""

_RUN = re.compile("[0-9.]+")


@dataclass(slots=True)
class NumberMap:
    """The runs of some words, and what the words mean without a number.

    Attributes:
        bits: The part of each run that must be equal in all lines.
        names: The column of each.
        factors, divisors: Each printed number is multiplied, then divided, to be in base units.
        negative: Runs with a minus before them.
        copies: Further columns, and the run that is in them too.
        gates: Columns that are 1 if something is on, and the run that is its clock.
        constants: Columns that are equal in all lines.
    """

    bits: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    divisors: list[float] = field(default_factory=list)
    negative: list[int] = field(default_factory=list)
    copies: dict[str, int] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)

    def put(
        self, bits: int, column: str = NOWHERE, factor: float = 1.0, divisor: float = 1.0
    ) -> int:
        """Append one run and return its place."""
        self.bits.append(bits)
        self.names.append(column)
        self.factors.append(factor)
        self.divisors.append(divisor)
        return len(self.bits) - 1

    def literal(self, word: str) -> None:
        """Append the runs of a word that is equal in all lines."""
        for _ in _RUN.findall(word):
            self.put(LITERAL_BITS)

    def epoch(self) -> None:
        """Append the run of an epoch prefix."""
        self.put(EPOCH_BITS)

    def time(self) -> None:
        """Append the runs of a printed time."""
        for column in TIME_COLUMNS:
            self.put(_WIDTH_BITS, column)

    def number(self, column: str) -> None:
        """Append a whole number without a unit."""
        self.put(_NUMBER_BITS, column)

    def percent(self, column: str) -> int:
        """Append a percentage, and return its place."""
        return self.put(_PERCENT_BITS, column, divisor=100.0)

    def megahertz(self, column: str) -> int:
        """Append a clock, and return its place."""
        return self.put(_NUMBER_BITS, column, float(HERTZ_PER_MEGAHERTZ))

    def size(self, column: str, unit: str) -> None:
        """Append a number of ``MB`` or ``kB``."""
        self.put(_NUMBER_BITS, column, float(BYTES[unit]))

    def milliwatts(self, column: str) -> None:
        """Append a power."""
        self.put(_NUMBER_BITS, column, divisor=1000.0)

    def celsius(self, column: str, text: str) -> None:
        """Append a temperature; its sign is that of the text."""
        is_negative = text.startswith("-")
        at = self.put(_DECIMAL_BITS, column, -1.0 if is_negative else 1.0)
        if is_negative:
            self.negative.append(at)

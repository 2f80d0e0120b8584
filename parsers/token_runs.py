"""What each run of digits in a token is: a number of some column, or part of a name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .digits import (
    GAP_BITS,
    LAST_BIT,
    LENGTH_BITS,
    LONG_BIT,
    POINT_BIT,
    VALUE_BITS,
    WIDE_BIT,
    WRONG_BIT,
)
from .lexer import BYTES, HERTZ_PER_MEGAHERTZ, read_activity
from .names import dla_core, engine_name
from .tokenizer import Kind

NOWHERE = ""
TIME_COLUMNS = ("month", "day", "year", "hour", "minute", "second")
RESERVED_COLUMNS = (NOWHERE, *TIME_COLUMNS)
"""The first columns: of runs that say nothing by themselves, and of the printed time."""

# What must be as in the line that was learnt from: of a number, and of a digit of a name.
_DECIMAL_BITS = GAP_BITS | LONG_BIT | WRONG_BIT | LAST_BIT
_NUMBER_BITS = _DECIMAL_BITS | POINT_BIT
_PERCENTAGE_BITS = _NUMBER_BITS | WIDE_BIT
_WIDTH_BITS = _NUMBER_BITS | LENGTH_BITS
LITERAL_BITS = _WIDTH_BITS | VALUE_BITS
EPOCH_BITS = GAP_BITS | LAST_BIT

_RUN = re.compile("[0-9.]+")
_MEMORY_FIELDS = {
    "RAM": ("largest_free_block_count", "largest_free_block_bytes"),
    "SWAP": ("cached_bytes",),
    "IRAM": ("largest_free_block_bytes",),
}
_POWERS = ("instant_watts", "average_watts", "maximum_watts")


@dataclass(slots=True)
class TokenRuns:
    """The runs of some words, and what the words say without a number.

    Attributes:
        bits: What of each run must be the same in all lines.
        names: The column of each.
        factors: By what each printed number is multiplied,
        divisors: and then divided, to be in base units.
        negative: Runs with a minus before them.
        copies: Further columns, and the run that is in them too.
        gates: Columns that say whether something is on, and the run that is its clock.
        constants: Columns that are the same in all lines.
    """

    bits: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    divisors: list[float] = field(default_factory=list)
    negative: list[int] = field(default_factory=list)
    copies: dict[str, int] = field(default_factory=dict)
    gates: dict[str, int] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)

    def extend(self, other: "TokenRuns") -> None:
        """Put the runs of further words behind those that are here."""
        at = len(self.bits)
        self.bits += other.bits
        self.names += other.names
        self.factors += other.factors
        self.divisors += other.divisors
        self.negative += [at + run for run in other.negative]
        self.copies |= {name: at + run for name, run in other.copies.items()}
        self.gates |= {name: at + run for name, run in other.gates.items()}
        self.constants |= other.constants

    def put(self, bits: int, name: str = NOWHERE, factor: float = 1.0, divisor: float = 1.0) -> int:
        """Put one run behind those that are here, and return its place."""
        self.bits.append(bits)
        self.names.append(name)
        self.factors.append(factor)
        self.divisors.append(divisor)
        return len(self.bits) - 1


def enter(kind: Kind, words: Sequence[str], runs: TokenRuns) -> None:
    """Put the runs of a token behind others.

    Only the label matters and the shape of the value, none of its digits.

    Args:
        kind: What it is.
        words: All its words.
        runs: Those of the words before; a second cluster looks for the first.

    >>> runs = TokenRuns()
    >>> enter("engine", ["NVDLA1", "79%@166"], runs)
    >>> runs.names, runs.gates
    (['', 'dla.1.utilization_ratio', 'dla.1.frequency_hertz'], {'dla.1.on': 2})
    """
    getattr(_Entry(runs), kind)(*words)


class _Entry:
    """Enters the runs of the words of a token, by its kind."""

    def __init__(self, runs: TokenRuns) -> None:
        self.runs = runs
        self.put = runs.put

    def _literal(self, word: str) -> None:
        for _ in _RUN.findall(word):
            self.put(LITERAL_BITS)

    def _percentage(self, name: str) -> int:
        return self.put(_PERCENTAGE_BITS, name, divisor=100.0)

    def _megahertz(self, name: str) -> int:
        return self.put(_NUMBER_BITS, name, float(HERTZ_PER_MEGAHERTZ))

    def _size(self, name: str, unit: str) -> None:
        self.put(_NUMBER_BITS, name, float(BYTES[unit]))

    def _decimal(self, name: str, text: str) -> None:
        is_negative = text.startswith("-")
        at = self.put(_DECIMAL_BITS, name, -1.0 if is_negative else 1.0)
        if is_negative:
            self.runs.negative.append(at)

    def unparsed(self, word: str) -> None:
        """Enter a word that nobody understands."""
        self._literal(word)

    def time(self, *_: str) -> None:
        """Enter the printed time."""
        for column in TIME_COLUMNS:
            self.put(_WIDTH_BITS, column)

    def memory(self, label: str, sizes: str, *note: str) -> None:
        """Enter a memory and the note behind it."""
        path = label.lower()
        self._size(f"{path}.used_bytes", sizes[-2:])
        self._size(f"{path}.total_bytes", sizes[-2:])
        if note:
            size = note[1].removesuffix(")")
            *counts, block_bytes = _MEMORY_FIELDS[label]
            if "x" in size:
                self.put(_NUMBER_BITS, f"{path}.{counts[0]}")
            self._size(f"{path}.{block_bytes}", size[-2:])

    def cores(self, _: str, text: str) -> None:
        """Enter the list of cores."""
        inner, _, shared = text[1:].partition("]")
        online = []
        for number, entry in enumerate(inner.split(",")):
            path = f"cpu.{number}"
            load, _, clock = entry.partition("@")
            self.runs.constants[f"{path}.online"] = float(load.endswith("%"))
            if load.endswith("%"):
                online.append(f"{path}.frequency_hertz")
                self._percentage(f"{path}.utilization_ratio")
            if clock:
                self._megahertz(online[-1])
        if shared:
            at = self._megahertz(online[0] if online else NOWHERE)
            self.runs.copies.update(dict.fromkeys(online[1:], at))

    def temperature(self, word: str) -> None:
        """Enter a zone."""
        zone, _, text = word.partition("@")
        self._literal(zone)
        now, _, maximum = text.partition("/")
        self._decimal(f"temperatures_celsius.{zone}", now)
        if maximum:
            self._decimal(f"temperatures_max_celsius.{zone}", maximum)

    def rail(self, label: str, text: str) -> None:
        """Enter a rail."""
        self._literal(label)
        for power, _ in zip(_POWERS, text.split("/"), strict=False):
            self.put(_NUMBER_BITS, f"rails.{label}.{power}", divisor=1000.0)

    def unconnected(self, label: str, text: str) -> None:
        """Enter a channel that leads nowhere."""
        self._literal(label)
        for _ in text.split("/"):
            self.put(_NUMBER_BITS)

    def emc(self, label: str, text: str) -> None:
        """Enter the memory controller."""
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            self._percentage("emc.utilization_ratio" if activity.hertz else NOWHERE)
        if activity.hertz:
            self._megahertz("emc.frequency_hertz")

    def first_cluster(self, label: str, text: str) -> None:
        """Enter the GPU."""
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            self._percentage("gpu.utilization_ratio")
        for cluster in range(len(activity.hertz)):
            self._megahertz(f"gpu.frequency_hertz.{cluster}")

    def second_cluster(self, label: str, text: str) -> None:
        """Enter the other cluster of the GPU, behind the first."""
        # What the first cluster prints is the figure of the GPU, and its own as well.
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            first = self.runs.names.index("gpu.utilization_ratio")
            self.runs.copies["gpu.cluster_utilization_ratio.0"] = first
            self._percentage("gpu.cluster_utilization_ratio.1")
        if activity.hertz:
            self._megahertz("gpu.frequency_hertz.1")

    def mts(self, *_: str) -> None:
        """Enter the loads of the code morphing."""
        self._percentage("engines.MTS_FG.utilization_ratio")
        self._percentage("engines.MTS_BG.utilization_ratio")

    def edp(self, *_: str) -> None:
        """Enter the limit of the clock."""
        self._megahertz("edp_limit_hertz")

    def engine(self, label: str, text: str) -> None:
        """Enter an engine."""
        self._literal(label)
        name = engine_name(label)
        core = dla_core(name)
        path = f"engines.{name}" if core is None else f"dla.{core}"
        activity = read_activity(text)
        if activity.off:
            self.runs.constants[f"{path}.on"] = 0.0
        if activity.listed:
            for unit in range(len(activity.ratios)):
                self._percentage(f"engines.{name}_VPU{unit}.utilization_ratio")
        elif activity.ratios:
            self._percentage(f"{path}.utilization_ratio")
        if activity.hertz:
            self.runs.gates[f"{path}.on"] = self._megahertz(f"{path}.frequency_hertz")

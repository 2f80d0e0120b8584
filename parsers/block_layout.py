"""What each number of lines of one layout means.

Lines that are the same but for their digits are read together. Which number means what is told
by the tokens of one of them. For all others every gap between two numbers has to be as long as
there, every digit of a name has to be the same, and every number has to be one that the general
path would take; ``layout_table.py`` looks at that.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np
import numpy.typing as npt

from .digits import (
    GAP_BITS,
    LENGTH_BITS,
    LONG_BIT,
    POINT_BIT,
    VALUE_BITS,
    WIDE_BIT,
    Integers,
)
from .errors import ParseError
from .lexer import read_activity, split_prefix
from .names import dla_core, engine_name
from .recorded_time import ABSENT
from .records import Sample
from .tokenizer import Reading, Token, tokenize

NOTHING, PERCENTAGE, NUMBER, KILOBYTES, MEGABYTES, DECIMAL, NEGATIVE = range(7)
"""What a run is: a digit of a name or of a time, or a number of some kind."""

# What must be as in the line that was learnt from: of a number, and of a digit of a name.
_NUMBER_BITS = GAP_BITS | POINT_BIT | LONG_BIT
_PERCENTAGE_BITS = _NUMBER_BITS | WIDE_BIT
_DECIMAL_BITS = GAP_BITS | LONG_BIT
_WIDTH_BITS = _NUMBER_BITS | LENGTH_BITS
_LITERAL_BITS = _WIDTH_BITS | VALUE_BITS
_EPOCH_BITS = GAP_BITS

_RUN = re.compile("[0-9.]+")
_EPOCH = re.compile("[0-9]{1,12}([.][0-9]{1,12})?")
_NANOSECONDS = 9
_SECOND_NS = 1_000_000_000
_LATEST_EPOCH = 9_000_000_000

_SIZES = {"kB": KILOBYTES, "MB": MEGABYTES}
_MEMORY_FIELDS = {
    "RAM": ("largest_free_block_count", "largest_free_block_bytes"),
    "SWAP": ("cached_bytes",),
    "IRAM": ("largest_free_block_bytes",),
}
_POWERS = ("instant_watts", "average_watts", "maximum_watts")


@dataclass(slots=True)
class _Plan:
    """What each run of a line is for, and what the line says without a number."""

    bits: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    copies: list[tuple[int, str, bool]] = field(default_factory=list)
    constants: dict[str, float] = field(default_factory=dict)
    time_at: int = -1
    epoch_at: int = -1


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """One layout of lines with m runs.

    Attributes:
        sample: The record of the line that it was learnt from.
        like: shape (m,), the runs of that line, as ``Runs.packed`` has them.
        bits: shape (m,), what of each must be the same in all lines.
        kinds: shape (m,), what each is.
        names: shape (m,), the column of each; ``None`` where it has none.
        copies: Further columns: a run, its name, and whether it says that a clock is on.
        constants: Columns that are the same in all lines.
        time_at: First of the six runs of the printed time; -1 where there is none.
        epoch_at: The run of the epoch prefix; -1 where there is none.
    """

    sample: Sample
    like: Integers
    bits: Integers
    kinds: npt.NDArray[np.uint8]
    names: tuple[str | None, ...]
    copies: tuple[tuple[int, str, bool], ...]
    constants: dict[str, float]
    time_at: int
    epoch_at: int


def learn_layout(line: str, packed: Integers) -> BlockLayout:
    r"""Learn a layout from one line of it.

    Args:
        line: Without newline.
        packed: shape (m,), its runs.

    Raises:
        ParseError: The line is no record, or one that has to be looked at by itself.

    >>> from .digits import find_runs
    >>> layout = learn_layout("RAM 1/2MB NVDLA0 off", find_runs(b"RAM 1/2MB NVDLA0 off\n").packed)
    >>> layout.names, layout.constants
    (('ram.used_bytes', 'ram.total_bytes', None), {'dla.0.on': 0.0})
    """
    reading = tokenize(line)
    if reading.tokens is None or not line.isascii():
        raise ParseError("noise", line)
    plan = _make_plan(line, reading)
    bits = np.array(plan.bits, np.int64)
    if len(bits) != len(packed):
        raise ParseError("noise", line)
    # Of a run that is no number of eight digits the value says nothing.
    if (packed[bits == _LITERAL_BITS] & (POINT_BIT | LONG_BIT)).any():
        raise ParseError("noise", line)
    columns = [name for name in plan.names if name is not None]
    columns += [name for _, name, _ in plan.copies]
    columns += plan.constants
    if len(set(columns)) != len(columns):
        raise ParseError("noise", line)
    return BlockLayout(
        reading.sample,
        # No number of a layout has these, whatever the line has that it is learnt from.
        packed & ~(POINT_BIT | LONG_BIT | WIDE_BIT),
        bits,
        np.array(plan.kinds, np.uint8),
        tuple(plan.names),
        tuple(plan.copies),
        plan.constants,
        plan.time_at,
        plan.epoch_at,
    )


def seconds_of(time: datetime | None) -> int:
    """Return a local time as printed, as if it were UTC, in seconds since 1970.

    >>> seconds_of(datetime(1970, 1, 2))
    86400
    """
    return ABSENT if time is None else int(time.replace(tzinfo=timezone.utc).timestamp())


def epoch_ns(text: str) -> int:
    """Read the seconds of an epoch prefix to the last digit; beyond nanoseconds they are cut.

    Raises:
        ParseError: The text is no such number.

    >>> epoch_ns("1750866199.3488")
    1750866199348800000
    """
    if _EPOCH.fullmatch(text) is None:
        raise ParseError("noise", text)
    whole, _, fraction = text.partition(".")
    seconds = int(whole)
    if seconds > _LATEST_EPOCH:
        return ABSENT
    return seconds * _SECOND_NS + int(fraction[:_NANOSECONDS].ljust(_NANOSECONDS, "0"))


def _make_plan(line: str, reading: Reading) -> _Plan:
    plan = _Plan()
    entry = _Entry(plan)
    if "::" in line and split_prefix(line)[0] is not None:
        plan.epoch_at = entry.put(_EPOCH_BITS)
    for token in reading.tokens or ():
        entry.enter(token, reading.words[token.at : token.at + token.words])
    return plan


class _Entry:
    """Enters the runs of tokens into a plan, from left to right."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan

    def enter(self, token: Token, words: tuple[str, ...]) -> None:
        """Enter all runs of all words of a token."""
        getattr(self, f"_{token.kind}")(*words)

    def put(self, bits: int, kind: int = NOTHING, name: str | None = None) -> int:
        """Enter one run, and return its place."""
        self.plan.bits.append(bits)
        self.plan.kinds.append(kind)
        self.plan.names.append(name)
        return len(self.plan.bits) - 1

    def _literal(self, word: str) -> None:
        for _ in _RUN.findall(word):
            self.put(_LITERAL_BITS)

    def _number(self, kind: int, name: str | None = None) -> int:
        return self.put(_PERCENTAGE_BITS if kind == PERCENTAGE else _NUMBER_BITS, kind, name)

    def _decimal(self, name: str, text: str) -> None:
        self.put(_DECIMAL_BITS, NEGATIVE if text.startswith("-") else DECIMAL, name)

    def _unparsed(self, word: str) -> None:
        self._literal(word)

    def _time(self, *_: str) -> None:
        self.plan.time_at = len(self.plan.bits)
        for _run in range(6):
            self.put(_WIDTH_BITS)

    def _memory(self, label: str, sizes: str, *note: str) -> None:
        unit = _SIZES[sizes[-2:]]
        path = label.lower()
        self._number(unit, f"{path}.used_bytes")
        self._number(unit, f"{path}.total_bytes")
        if note:
            size = note[1].removesuffix(")")
            *counts, block_bytes = _MEMORY_FIELDS[label]
            if "x" in size:
                self._number(NUMBER, f"{path}.{counts[0]}")
            self._number(_SIZES[size[-2:]], f"{path}.{block_bytes}")

    def _cores(self, _: str, text: str) -> None:
        inner, _, shared = text[1:].partition("]")
        online = []
        for number, entry in enumerate(inner.split(",")):
            path = f"cpu.{number}"
            load, _, clock = entry.partition("@")
            self.plan.constants[f"{path}.online"] = float(load.endswith("%"))
            if load.endswith("%"):
                online.append(f"{path}.frequency_hertz")
                self._number(PERCENTAGE, f"{path}.utilization_ratio")
            if clock:
                self._number(NUMBER, online[-1])
        if shared:
            at = self._number(NUMBER, online[0] if online else None)
            self.plan.copies += [(at, name, False) for name in online[1:]]

    def _temperature(self, word: str) -> None:
        zone, _, text = word.partition("@")
        self._literal(zone)
        now, _, maximum = text.partition("/")
        self._decimal(f"temperatures_celsius.{zone}", now)
        if maximum:
            self._decimal(f"temperatures_max_celsius.{zone}", maximum)

    def _rail(self, label: str, text: str) -> None:
        self._literal(label)
        for power, _ in zip(_POWERS, text.split("/"), strict=False):
            self._number(NUMBER, f"rails.{label}.{power}")

    def _unconnected(self, label: str, text: str) -> None:
        self._literal(label)
        for _ in text.split("/"):
            self._number(NOTHING)

    def _emc(self, label: str, text: str) -> None:
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            self._number(PERCENTAGE, "emc.utilization_ratio" if activity.hertz else None)
        if activity.hertz:
            self._number(NUMBER, "emc.frequency_hertz")

    def _first_cluster(self, label: str, text: str) -> None:
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            self._number(PERCENTAGE, "gpu.utilization_ratio")
        for cluster in range(len(activity.hertz)):
            self._number(NUMBER, f"gpu.frequency_hertz.{cluster}")

    def _second_cluster(self, label: str, text: str) -> None:
        # What the first cluster prints is the figure of the GPU, and its own as well.
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            first = self.plan.names.index("gpu.utilization_ratio")
            self.plan.copies.append((first, "gpu.cluster_utilization_ratio.0", False))
            self._number(PERCENTAGE, "gpu.cluster_utilization_ratio.1")
        if activity.hertz:
            self._number(NUMBER, "gpu.frequency_hertz.1")

    def _mts(self, *_: str) -> None:
        self._number(PERCENTAGE, "engines.MTS_FG.utilization_ratio")
        self._number(PERCENTAGE, "engines.MTS_BG.utilization_ratio")

    def _edp(self, *_: str) -> None:
        self._number(NUMBER, "edp_limit_hertz")

    def _engine(self, label: str, text: str) -> None:
        self._literal(label)
        name = engine_name(label)
        core = dla_core(name)
        path = f"engines.{name}" if core is None else f"dla.{core}"
        activity = read_activity(text)
        if activity.off:
            self.plan.constants[f"{path}.on"] = 0.0
        if activity.listed:
            for unit in range(len(activity.ratios)):
                self._number(PERCENTAGE, f"engines.{name}_VPU{unit}.utilization_ratio")
        elif activity.ratios:
            self._number(PERCENTAGE, f"{path}.utilization_ratio")
        if activity.hertz:
            at = self._number(NUMBER, f"{path}.frequency_hertz")
            self.plan.copies.append((at, f"{path}.on", True))

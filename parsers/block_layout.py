"""How the numbers of lines of one layout become columns, many lines at once.

Lines that are the same but for their digits are read together. Which number means what is told
by the tokens of one of them; for all others every gap between two numbers has to be as long as
there, every digit of a name has to be the same, and every number has to be one that the general
path would take. What a layout makes of the line it was learnt from is compared with what the
general path makes of it; if that is not the same, the layout is not used.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np

from .digits import (
    GAP_BITS,
    LENGTH_BITS,
    LENGTH_SHIFT,
    LONG_BIT,
    POINT_BIT,
    VALUE_BITS,
    Flags,
    Floats,
    Integers,
    Runs,
    find_runs,
    read_decimals,
)
from .errors import ParseError
from .flat import flatten
from .lexer import BYTES, GATED_CELSIUS, HERTZ_PER_MEGAHERTZ, read_activity, split_prefix
from .names import dla_core, engine_name
from .recorded_time import ABSENT
from .records import Sample
from .tokenizer import Reading, Token, tokenize

# What must be as in the line that was learnt from: of a number, and of a digit of a name.
_NUMBER_BITS = GAP_BITS | POINT_BIT | LONG_BIT
_DECIMAL_BITS = GAP_BITS | LONG_BIT
_WIDTH_BITS = _NUMBER_BITS | LENGTH_BITS
_LITERAL_BITS = _WIDTH_BITS | VALUE_BITS
_EPOCH_BITS = GAP_BITS

_RUN = re.compile("[0-9.]+")
_NANOSECONDS = 9
_SECOND_NS = 1_000_000_000
_LATEST_EPOCH = 9_000_000_000
_SECONDS_A_DAY = 86_400
_LONGEST_PERCENTAGE = 2

_MEMORY_FIELDS = {
    "RAM": ("largest_free_block_count", "largest_free_block_bytes"),
    "SWAP": ("cached_bytes",),
    "IRAM": ("largest_free_block_bytes",),
}
_POWERS = ("instant_watts", "average_watts", "maximum_watts")


@dataclass(frozen=True, slots=True)
class Decoded:
    """Lines of one layout as columns.

    Attributes:
        good: shape (m,), which of the lines that were given are of the layout; n of them.
        values: shape (columns, n), NaN where a sensor was powered off.
        printed_seconds: shape (n,), local time as printed, as if it were UTC, since 1970;
            ``ABSENT`` where none is.
        received_ns: shape (n,), epoch prefix; ``ABSENT`` where none is.
    """

    good: Flags
    values: Floats
    printed_seconds: Integers
    received_ns: Integers


@dataclass(slots=True)
class _Plan:
    """What each run of a line is for."""

    bits: list[int] = field(default_factory=list)
    percentages: list[int] = field(default_factory=list)
    time_at: int | None = None
    epoch_at: int | None = None
    numbers: list[tuple[str, int, float, float]] = field(default_factory=list)
    decimals: list[tuple[str, int, float]] = field(default_factory=list)
    gates: list[tuple[str, int]] = field(default_factory=list)
    constants: dict[str, float] = field(default_factory=dict)


class BlockLayout:
    """One layout.

    Attributes:
        names: Its columns, as ``flatten`` names them.
        unparsed: Words of such a line that are not understood.
    """

    def __init__(self, line: str) -> None:
        """Learn a layout from one line of it.

        Args:
            line: ASCII, without newline.

        Raises:
            ParseError: The line is no record, or one that has to be looked at by itself.
        """
        reading = tokenize(line)
        if reading.tokens is None or not line.isascii():
            raise ParseError("noise", line)
        block = line.encode() + b"\n"
        runs = find_runs(block)
        plan = _make_plan(line, reading)
        literal = np.array(plan.bits) == _LITERAL_BITS
        if len(literal) != len(runs.packed):
            raise ParseError("noise", line)
        # Of a run that is no number of eight digits the value says nothing.
        if (runs.packed[literal] & (POINT_BIT | LONG_BIT)).any():
            raise ParseError("noise", line)
        self.unparsed = len(reading.sample.unparsed)
        self._runs = len(plan.bits)
        # No number of a layout has these, whatever the line has that it is learnt from.
        self._like = runs.packed[:, None] & ~(POINT_BIT | LONG_BIT)
        self._bits = np.array(plan.bits, np.int64)[:, None]
        self._percentages = _places(plan.percentages)
        self._numbers = _places(at for _, at, _, _ in plan.numbers)
        self._multipliers = _factors(by for _, _, by, _ in plan.numbers)
        self._divisors = _factors(per for _, _, _, per in plan.numbers)
        self._decimals = _places(at for _, at, _ in plan.decimals)
        self._signs = _factors(sign for _, _, sign in plan.decimals)
        self._gates = _places(at for _, at in plan.gates)
        self._constants = _factors(plan.constants.values())
        self._time_at, self._epoch_at = plan.time_at, plan.epoch_at
        self.names = (
            *(name for name, *_ in plan.numbers),
            *(name for name, *_ in plan.decimals),
            *(name for name, _ in plan.gates),
            *plan.constants,
        )
        if not self._gives_back(reading.sample, block, runs):
            raise ParseError("noise", line)

    def decode(self, block: bytes, runs: Runs, lines: Integers) -> Decoded:
        """Read lines that are the same as the one that was learnt from, but for their digits.

        Args:
            block: The lines.
            runs: Their numbers.
            lines: shape (m,), which lines.
        """
        first = runs.first[lines]
        good = runs.first[lines + 1] - first == self._runs
        if not good.all():
            first = first[good]
        at = first + np.arange(self._runs)[:, None]
        packed = runs.packed[at]
        same = ~((packed ^ self._like) & self._bits).any(axis=0)
        percentages = packed[self._percentages]
        lengths = (percentages & LENGTH_BITS) >> LENGTH_SHIFT
        hundred = (lengths == 3) & (percentages & VALUE_BITS == 100)
        same &= ((lengths <= _LONGEST_PERCENTAGE) | hundred).all(axis=0)
        celsius, formed = read_decimals(packed[self._decimals], runs.text[at[self._decimals]])
        same &= formed.all(axis=0)
        printed_seconds = np.full(len(first), ABSENT)
        received_ns = np.full(len(first), ABSENT)
        if self._time_at is not None:
            times = packed[self._time_at : self._time_at + 6] & VALUE_BITS
            printed_seconds, valid = _seconds(times)
            same &= valid
        if self._epoch_at is not None:
            received_ns = self._received(block, runs, at[self._epoch_at], packed[self._epoch_at])
        values = self._values(packed & VALUE_BITS, celsius)
        if not same.all():
            values = values[:, same]
            printed_seconds, received_ns = printed_seconds[same], received_ns[same]
            good[good] = same
        return Decoded(good, values, printed_seconds, received_ns)

    def _values(self, read: Integers, celsius: Floats) -> Floats:
        """Return the columns in base units, in the order of ``names``."""
        counts = [len(self._numbers), len(self._decimals), len(self._gates), len(self._constants)]
        ends = np.cumsum(counts)
        values = np.empty((ends[-1], read.shape[1]))
        numbers = values[: ends[0]]
        np.multiply(read[self._numbers], self._multipliers, out=numbers)
        numbers /= self._divisors
        zones = values[ends[0] : ends[1]]
        np.multiply(celsius, self._signs, out=zones)
        zones[zones == GATED_CELSIUS] = np.nan
        values[ends[1] : ends[2]] = read[self._gates] > 0
        values[ends[2] :] = self._constants
        return values

    def _received(self, block: bytes, runs: Runs, at: Integers, packed: Integers) -> Integers:
        ends = runs.ends[at]
        begins = ends - ((packed & LENGTH_BITS) >> LENGTH_SHIFT)
        return np.array(
            [
                epoch_ns(block[begin:end].decode())
                for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
            ],
            np.int64,
        )

    def _gives_back(self, sample: Sample, block: bytes, runs: Runs) -> bool:
        decoded = self.decode(block, runs, np.zeros(1, np.int64))
        if not decoded.good.all() or len(set(self.names)) != len(self.names):
            return False
        found = {
            name: value
            for name, value in zip(self.names, decoded.values[:, 0].tolist(), strict=True)
            if value == value
        }
        return found == flatten(sample) and decoded.printed_seconds[0] == seconds_of(sample.time)


def seconds_of(time: datetime | None) -> int:
    """Return a local time as printed, as if it were UTC, in seconds since 1970.

    >>> seconds_of(datetime(1970, 1, 2))
    86400
    """
    return ABSENT if time is None else int(time.replace(tzinfo=timezone.utc).timestamp())


def epoch_ns(text: str) -> int:
    """Read the seconds of an epoch prefix to the last digit; beyond nanoseconds they are cut.

    >>> epoch_ns("1750866199.3488")
    1750866199348800000
    """
    whole, _, fraction = text.partition(".")
    seconds = int(whole)
    if seconds > _LATEST_EPOCH:
        return ABSENT
    return seconds * _SECOND_NS + int(fraction[:_NANOSECONDS].ljust(_NANOSECONDS, "0"))


def _seconds(times: Integers) -> tuple[Integers, Flags]:
    """Return the time of month, day, year, hour, minute, second, and where there is such one."""
    month, day, year, hour, minute, second = times
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    months = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    first_day = months.astype("datetime64[D]").astype(np.int64)
    late = np.flatnonzero(day > 28)
    if len(late):
        next_month = (months[late] + 1).astype("datetime64[D]").astype(np.int64)
        valid[late] &= first_day[late] + day[late] <= next_month
    days = first_day + day - 1
    return days * _SECONDS_A_DAY + hour * 3600 + minute * 60 + second, valid


def _places(at: Iterable[int]) -> Integers:
    return np.array(list(at), np.int64)


def _factors(factors: Iterable[float]) -> Floats:
    return np.array(list(factors), np.float64)[:, None]


def _make_plan(line: str, reading: Reading) -> _Plan:
    plan = _Plan()
    if "::" in line:
        epoch, _ = split_prefix(line)
        if epoch is not None:
            plan.epoch_at = 0
            plan.bits.append(_EPOCH_BITS)
    for token in reading.tokens or ():
        words = reading.words[token.at : token.at + token.words]
        _Entry(plan, token, words).enter()
    return plan


class _Entry:
    """Enters the runs of one token into a plan, from left to right."""

    def __init__(self, plan: _Plan, token: Token, words: tuple[str, ...]) -> None:
        self.plan = plan
        self.kind = token.kind
        self.words = words

    def enter(self) -> None:
        """Enter all runs of all words of the token."""
        getattr(self, f"_{self.kind}")(*self.words)

    def _put(self, bits: int) -> int:
        self.plan.bits.append(bits)
        return len(self.plan.bits) - 1

    def _literal(self, word: str) -> None:
        for _ in _RUN.findall(word):
            self._put(_LITERAL_BITS)

    def _number(self, *names: str, by: float = 1.0, per: float = 1.0) -> int:
        at = self._put(_NUMBER_BITS)
        self.plan.numbers += [(name, at, by, per) for name in names]
        return at

    def _percentage(self, *names: str) -> None:
        self.plan.percentages.append(self._number(*names, per=100.0))

    def _hertz(self, *names: str) -> int:
        return self._number(*names, by=float(HERTZ_PER_MEGAHERTZ))

    def _decimal(self, name: str, text: str) -> None:
        sign = -1.0 if text.startswith("-") else 1.0
        self.plan.decimals.append((name, self._put(_DECIMAL_BITS), sign))

    def _unparsed(self, word: str) -> None:
        self._literal(word)

    def _time(self, *_: str) -> None:
        self.plan.time_at = len(self.plan.bits)
        for _run in range(6):
            self._put(_WIDTH_BITS)

    def _memory(self, label: str, sizes: str, *note: str) -> None:
        unit = float(BYTES[sizes[-2:]])
        path = label.lower()
        self._number(f"{path}.used_bytes", by=unit)
        self._number(f"{path}.total_bytes", by=unit)
        if note:
            size = note[1].removesuffix(")")
            *counts, block_bytes = _MEMORY_FIELDS[label]
            if "x" in size:
                self._number(f"{path}.{counts[0]}")
            self._number(f"{path}.{block_bytes}", by=float(BYTES[size[-2:]]))

    def _cores(self, _: str, text: str) -> None:
        inner, _, shared = text[1:].partition("]")
        online = []
        for number, entry in enumerate(inner.split(",")):
            path = f"cpu.{number}"
            load, _, clock = entry.partition("@")
            self.plan.constants[f"{path}.online"] = float(load.endswith("%"))
            if load.endswith("%"):
                online.append(f"{path}.frequency_hertz")
                self._percentage(f"{path}.utilization_ratio")
            if clock:
                self._hertz(online[-1])
        if shared:
            self._hertz(*online)

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
            self._number(f"rails.{label}.{power}", per=1000.0)

    def _unconnected(self, label: str, text: str) -> None:
        self._literal(label)
        for _ in text.split("/"):
            self._number()

    def _emc(self, label: str, text: str) -> None:
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            self._percentage(*(["emc.utilization_ratio"] if activity.hertz else []))
        if activity.hertz:
            self._hertz("emc.frequency_hertz")

    def _first_cluster(self, label: str, text: str) -> None:
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            self._percentage("gpu.utilization_ratio")
        for cluster in range(len(activity.hertz)):
            self._hertz(f"gpu.frequency_hertz.{cluster}")

    def _second_cluster(self, label: str, text: str) -> None:
        # What the first cluster prints is the figure of the GPU, and its own as well.
        self._literal(label)
        activity = read_activity(text)
        if activity.ratios:
            ratio = "gpu.utilization_ratio"
            at = next(at for name, at, _, _ in self.plan.numbers if name == ratio)
            self.plan.numbers.append(("gpu.cluster_utilization_ratio.0", at, 1.0, 100.0))
            self._percentage("gpu.cluster_utilization_ratio.1")
        if activity.hertz:
            self._hertz("gpu.frequency_hertz.1")

    def _mts(self, *_: str) -> None:
        self._percentage("engines.MTS_FG.utilization_ratio")
        self._percentage("engines.MTS_BG.utilization_ratio")

    def _edp(self, *_: str) -> None:
        self._hertz("edp_limit_hertz")

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
                self._percentage(f"engines.{name}_VPU{unit}.utilization_ratio")
        elif activity.ratios:
            self._percentage(f"{path}.utilization_ratio")
        if activity.hertz:
            self.plan.gates.append((f"{path}.on", self._hertz(f"{path}.frequency_hertz")))

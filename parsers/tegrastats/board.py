"""Tokens of the board: printed time, memories, thermal zones and power rails."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec.structs import astuple

from .. import signals
from ..errors import UnreadableError
from ..records import Iram, Rail, Ram, Sample, Swap
from .processors import EngineToken
from .tokens import NOWHERE, Draft, NextRecordError, NumberMap, RestartError, Token
from .values import (
    BYTES,
    Memory,
    is_label,
    read_celsius,
    read_label,
    read_number,
    read_power,
    read_size,
    read_time,
    show_celsius,
)


class TimeToken(Token):
    """``06-25-2025 09:43:17``."""

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        if word[2:3] != "-":
            return None
        return cls()

    def read(self, draft: Draft, at: int) -> int:
        time = read_time(draft.words[at], draft.words[at + 1])
        if draft.ram_at is not None:
            raise NextRecordError
        if draft.first < at:
            raise RestartError(at)
        draft.once["time"] = time
        return 2

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.time()

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.time is not None:
            # Not `%Y`, which leaves out leading zeros.
            yield f"{sample.time:%m-%d}-{sample.time.year:04} {sample.time:%H:%M:%S}"


class MemoryToken(Token):
    """Two sizes, and a note in brackets that may be missing."""

    FIELD: ClassVar[str]
    RECORD: ClassVar[type[Ram | Swap | Iram]]
    UNIT: ClassVar = "MB"
    NOTE: ClassVar = " (lfb "
    COUNTED: ClassVar = False  # whether the note counts blocks
    COLUMNS: ClassVar[tuple[signals.Signal, ...]]

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._sizes = Memory(read_size)
        self._note_word = self.NOTE.strip()

    def read(self, draft: Draft, at: int) -> int:
        words = draft.words
        number, _, rest = words[at + 1].partition("/")
        total, unit = self._sizes[rest]
        used = read_number(number) * unit
        if used > total:
            raise UnreadableError(number)
        note: tuple[int | None, ...] = ()
        count, times, block = words[at + 3].rpartition("x")
        if words[at + 2] == self._note_word and block[-1:] == ")" and (self.COUNTED or not times):
            try:
                size, _ = self._sizes[block[:-1]]
                note = (size, read_number(count)) if times else (size,)
            except UnreadableError:
                note = ()
        draft.signs += 1
        if self.FIELD in draft.once:
            raise draft.next_record()
        draft.once[self.FIELD] = self.RECORD(used, total, *note)
        return 4 if note else 2

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        used, total, block = self.COLUMNS
        unit = BYTES[words[1][-2:]]
        numbers.parts.append(numbers.number(used.column(), unit))
        numbers.number(total.column(), unit)
        if len(words) > 2:
            if "x" in words[3]:
                numbers.number(signals.RAM_FREE_BLOCKS.column())
            numbers.number(block.column(), BYTES[words[3][-3:-1]])

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        memory = getattr(sample, cls.FIELD)
        if memory is None:
            return
        used, total, size, *counts = astuple(memory)
        text = f"{cls.FIELD.upper()} {_in(cls.UNIT, used)}/{_in(cls.UNIT, total)}{cls.UNIT}"
        if size is not None:
            unit = cls.UNIT
            if cls.COUNTED and size < BYTES["MB"]:
                unit = "kB"
            count = "".join(f"{count}x" for count in counts if count is not None)
            text += f"{cls.NOTE}{count}{_in(unit, size)}{unit})"
        yield text


def _in(unit: str, size_bytes: int) -> int:
    return size_bytes // BYTES[unit]


class RamToken(MemoryToken):
    """``RAM 936/3964MB (lfb 366x4MB)``.

    A prompt, an escape sequence or ``^C`` may stand before ``RAM`` without a blank.
    """

    LABELS = frozenset(("RAM",))
    FIELD, RECORD, COUNTED = "ram", Ram, True
    COLUMNS = (signals.RAM_USED, signals.RAM_TOTAL, signals.RAM_FREE_BLOCK)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        if not word.endswith("RAM") or is_label(word) or "@" in word:
            return None
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        used = super().read(draft, at)
        draft.ram_at = at
        if self.label != "RAM":
            draft.leave(self.label.removesuffix("RAM"))
        return used


class SwapToken(MemoryToken):
    """``SWAP 45/15294MB (cached 0MB)``."""

    LABELS = frozenset(("SWAP",))
    FIELD, RECORD, NOTE = "swap", Swap, " (cached "
    COLUMNS = (signals.SWAP_USED, signals.SWAP_TOTAL, signals.SWAP_CACHED)


class IramToken(MemoryToken):
    """``IRAM 0/252kB(lfb 252kB)``: on-chip memory of TX1 and Nano."""

    LABELS = frozenset(("IRAM",))
    FIELD, RECORD, UNIT, NOTE = "iram", Iram, "kB", "(lfb "
    COLUMNS = (signals.IRAM_USED, signals.IRAM_TOTAL, signals.IRAM_FREE_BLOCK)


class ZoneToken(Token):
    """``tj@47.687C``, from R39 on ``tj@47.687C/51C``: a thermal zone."""

    def __init__(self) -> None:
        super().__init__()
        self._labels = Memory(read_label, 256)
        self._readings = Memory(read_celsius, 2048)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        if "@" not in word:
            return None
        return cls()

    def read(self, draft: Draft, at: int) -> int:
        zone, _, text = draft.words[at].partition("@")
        now, stroke, highest = text.partition("/")
        self._labels[zone]
        celsius = self._readings[now]
        maximum = None
        if stroke:
            maximum = self._readings[highest]
        if zone in draft.zones:
            return draft.repeat(at, 1)
        draft.signs += 1
        draft.zones[zone] = celsius
        if maximum is not None:
            draft.maxima[zone] = maximum
        return 1

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        zone, _, text = words[0].partition("@")
        numbers.literal(zone)
        now, _, maximum = text.partition("/")
        numbers.celsius(signals.TEMPERATURE.column(zone), now)
        if maximum:
            numbers.celsius(signals.TEMPERATURE_MAX.column(zone), maximum)

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        for zone, celsius in sample.temperatures_celsius.items():
            maximum = sample.temperatures_max_celsius.get(zone)
            text = f"{zone}@{show_celsius(celsius)}"
            if maximum is not None:
                text += f"/{show_celsius(maximum)}"
            yield text


class RailToken(Token):
    """``VDD_IN 5139mW/4890mW``, without a unit up to R32, from R39 on with a maximum.

    ``NC`` is a monitor channel that is not connected; AGX Orin prints two.
    """

    UNCONNECTED: ClassVar = "NC"
    COLUMNS: ClassVar = (signals.RAIL_POWER, signals.RAIL_AVERAGE, signals.RAIL_MAXIMUM)

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._is_connected = label != self.UNCONNECTED
        # Unlike `step 3/4`.
        self._may_lack_unit = label.isupper()

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        if "/" not in value and value[-2:] != "mW":
            return None
        if not is_label(word) or (word in EngineToken.OTHERS and word != "CPU"):
            return None
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        cut, is_sign = "", text[-2:] == "mW"
        # The usual forms, read without an expression.
        now, _, mean = text[:-2].partition("mW/") if is_sign else text.partition("/")
        is_usual = now.isdecimal() and mean.isdecimal() and text.isascii()
        if is_usual and len(now) < 10 and len(mean) < 10:
            rail = Rail(int(now) / 1000, int(mean) / 1000)
        else:
            watts, cut, is_sign = read_power(text)
            rail = Rail(*watts)
        if not (is_sign or self._may_lack_unit):
            raise UnreadableError(text)
        if not self._is_connected:
            return 2
        rails = draft.rails
        if self.label in rails:
            return draft.repeat(at, 2)
        draft.signs += is_sign
        rails[self.label] = rail
        if cut:
            draft.leave(cut)
        return 2

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        for signal, text in zip(self.COLUMNS, words[1].split("/"), strict=False):
            column = NOWHERE
            if self._is_connected:
                column = signal.column(self.label)
            numbers.power(column, text)

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        for name, rail in sample.rails.items():
            numbers = (rail.instant_watts, rail.average_watts, rail.maximum_watts)
            shown = "/".join(f"{round(watts * 1000)}mW" for watts in numbers if watts is not None)
            yield f"{name} {shown}"

"""Tokens of the board: printed time, memories, thermal zones and power rails."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from .. import signals
from ..errors import UnreadableError
from ..records import Iram, Rail, Ram, Sample, Swap
from .layout import NOWHERE, NumberMap
from .processors import EngineToken
from .tokens import Draft, NextRecordError, RestartError, Token
from .values import (
    BYTES,
    Memory,
    is_label,
    read_free_block,
    read_label,
    read_number,
    read_power,
    read_temperature,
    read_time,
    read_total,
    show_celsius,
)


class TimeToken(Token):
    """``06-25-2025 09:43:17``."""

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word[2:3] == "-" else None

    def read(self, draft: Draft, at: int) -> int:
        time = read_time(draft.words[at], draft.words[at + 1])
        if draft.ram_at is not None:
            raise NextRecordError
        if draft.first < at:
            raise RestartError(at)
        draft.time = time
        return 2

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.time()

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.time is not None:
            # Not `%Y`, which leaves out leading zeros.
            yield f"{sample.time:%m-%d}-{sample.time.year:04} {sample.time:%H:%M:%S}"


class RamToken(Token):
    """``RAM 936/3964MB (lfb 366x4MB)``; the part in brackets may be missing.

    A prompt, an escape sequence or ``^C`` may stand before ``RAM`` without a blank.
    """

    NAME: ClassVar = "RAM"
    NOTE: ClassVar = "(lfb"
    COLUMNS: ClassVar = (signals.RAM_USED, signals.RAM_TOTAL, signals.RAM_FREE_BLOCK)

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._totals = Memory(read_total)
        self._notes = Memory(self._read_note)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        if word != cls.NAME and (not word.endswith(cls.NAME) or is_label(word) or "@" in word):
            return None
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        words, used, total, size, blocks = self._read_words(draft, at)
        if draft.ram_at is None:
            draft.ram_at = at
        if draft.ram is not None:
            raise draft.next_record()
        draft.ram = Ram(used, total, size, blocks)
        if self.label != self.NAME:
            draft.leave(self.label.removesuffix(self.NAME))
        return words

    def _read_words(self, draft: Draft, at: int) -> tuple[int, int, int, int | None, int | None]:
        """Return the number of words, two sizes, and size and number in brackets."""
        words = draft.words
        number, _, rest = words[at + 1].partition("/")
        total, unit = self._totals[rest]
        used = read_number(number) * unit
        draft.signs += 1
        if words[at + 2] == self.NOTE:
            try:
                size, blocks = self._notes[words[at + 3]]
            except UnreadableError:
                pass
            else:
                return 4, used, total, size, blocks
        return 2, used, total, None, None

    def _read_note(self, text: str) -> tuple[int, int | None]:
        return read_free_block(text)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        used, total, block = self.COLUMNS
        numbers.size(used.column(), words[1][-2:])
        numbers.size(total.column(), words[1][-2:])
        if len(words) > 2:
            if "x" in words[3]:
                numbers.number(signals.RAM_FREE_BLOCKS.column())
            numbers.size(block.column(), words[3][-3:-1])

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        ram = sample.ram
        if ram is not None:
            size, blocks = ram.largest_free_block_bytes, ram.largest_free_block_count
            count = "" if blocks is None else f"{blocks}x"
            unit = "kB" if size is not None and size < BYTES["MB"] else "MB"
            yield _show_memory("RAM", ram, "MB") + _show_note(f" (lfb {count}", size, unit)


class SwapToken(RamToken):
    """``SWAP 45/15294MB (cached 0MB)``."""

    NAME = "SWAP"
    NOTE = "(cached"
    COLUMNS = (signals.SWAP_USED, signals.SWAP_TOTAL, signals.SWAP_CACHED)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word == cls.NAME else None

    def read(self, draft: Draft, at: int) -> int:
        words, used, total, size, _ = self._read_words(draft, at)
        if draft.swap is not None:
            raise draft.next_record()
        draft.swap = Swap(used, total, size)
        return words

    def _read_note(self, text: str) -> tuple[int, int | None]:
        size, blocks = read_free_block(text)
        if blocks is not None:
            raise UnreadableError(text)
        return size, None

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.swap is not None:
            note = _show_note(" (cached ", sample.swap.cached_bytes, "MB")
            yield _show_memory("SWAP", sample.swap, "MB") + note


class IramToken(SwapToken):
    """``IRAM 0/252kB(lfb 252kB)``: on-chip memory of TX1 and Nano."""

    NAME = "IRAM"
    NOTE = "(lfb"
    COLUMNS = (signals.IRAM_USED, signals.IRAM_TOTAL, signals.IRAM_FREE_BLOCK)

    def read(self, draft: Draft, at: int) -> int:
        words, used, total, size, _ = self._read_words(draft, at)
        if draft.iram is not None:
            raise draft.next_record()
        draft.iram = Iram(used, total, size)
        return words

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.iram is not None:
            note = _show_note("(lfb ", sample.iram.largest_free_block_bytes, "kB")
            yield _show_memory("IRAM", sample.iram, "kB") + note


class ZonesToken(Token):
    """``tj@47.687C``, from R39 on ``tj@47.687C/51C``: thermal zones that follow each other."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._labels = Memory(read_label, 256)
        self._readings = Memory(read_temperature, 2048)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if "@" in word else None

    def read(self, draft: Draft, at: int) -> int:
        words, zones, labels, readings = draft.words, draft.zones, self._labels, self._readings
        end = at
        while True:
            zone, at_sign, text = words[end].partition("@")
            if not at_sign or zone in zones:
                break
            try:
                labels[zone]
                celsius, maximum = readings[text]
            except UnreadableError:
                break
            zones[zone] = celsius
            if maximum is not None:
                draft.maxima[zone] = maximum
            end += 1
        draft.signs += end - at
        return end - at or self._repeat_or_refuse(draft, at)

    def _repeat_or_refuse(self, draft: Draft, at: int) -> int:
        name, _, text = draft.words[at].partition("@")
        if name in draft.zones:
            read_temperature(text)
            return draft.repeat(at, 1)
        raise UnreadableError(text)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        for word in words:
            zone, _, text = word.partition("@")
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
            yield text if maximum is None else f"{text}/{show_celsius(maximum)}"


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
        is_value = "/" in value or value[-2:] == "mW"
        is_other = word in EngineToken.OTHERS and word != "CPU"
        return cls(word) if is_value and is_label(word) and not is_other else None

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        cut, is_sign = "", True
        # The usual form, read without an expression.
        now, _, mean = text.partition("mW/")
        mean, unit = mean[:-2], mean[-2:]
        is_usual = unit == "mW" and now.isdecimal() and mean.isdecimal() and text.isascii()
        if is_usual and len(now) < 10 and len(mean) < 10:
            rail = Rail(int(now) / 1000, int(mean) / 1000)
        else:
            watts, cut, is_sign = read_power(text)
            if not (is_sign or self._may_lack_unit):
                raise UnreadableError(text)
            rail = Rail(*watts)
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
        numbers.literal(self.label)
        for signal, _ in zip(self.COLUMNS, words[1].split("/"), strict=False):
            numbers.milliwatts(signal.column(self.label) if self._is_connected else NOWHERE)

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        for name, rail in sample.rails.items():
            numbers = (rail.instant_watts, rail.average_watts, rail.maximum_watts)
            shown = "/".join(f"{round(watts * 1000)}mW" for watts in numbers if watts is not None)
            yield f"{name} {shown}"


def _show_memory(label: str, memory: Ram | Swap | Iram, unit: str) -> str:
    used, total = memory.used_bytes // BYTES[unit], memory.total_bytes // BYTES[unit]
    return f"{label} {used}/{total}{unit}"


def _show_note(before: str, size: int | None, unit: str) -> str:
    return "" if size is None else f"{before}{size // BYTES[unit]}{unit})"

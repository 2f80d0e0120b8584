"""The grammar of a line of tegrastats: one class per kind of token.

tegrastats prints one record per line, without header or version, and uses one label for several
things: a line of an AGX Xavier contains ``CPU [..]``, ``CPU@37C`` and ``CPU 311/311``. So a kind is
recognised by its label and the shape of the word behind it, never by its place in the line.

Each class has the same four methods. ``match`` returns the token that a word can begin, ``read``
puts the values of its words into a record, ``columns`` assigns its numbers to the columns of
``signals``, and ``render`` prints the tokens of a record. ``KINDS`` lists the classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from typing import ClassVar, Final

from .. import signals
from ..errors import UnreadableError
from ..records import Core, Dla, Emc, Engine, GateState, Gpu, Iram, Rail, Ram, Sample, Swap
from .layout import NOWHERE, NumberMap
from .values import (
    BYTES,
    HERTZ,
    RATIOS,
    Memory,
    is_label,
    read_activity,
    read_free_block,
    read_label,
    read_megahertz,
    read_number,
    read_percent,
    read_power,
    read_temperature,
    read_time,
    read_total,
    show_activity,
    show_celsius,
    show_megahertz,
    show_percent,
)

# A token has at most so many words.
_PADDING = [""] * 5


class NextRecordError(Exception):
    """The token belongs to another record, which begins behind the one that is read."""


class RestartError(Exception):
    """The words so far are the remnant of an earlier record; this one begins at ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Draft:
    """The record of a line while its words are read.

    Attributes:
        words: The line; some empty words follow the last one.
        end: How many words the line has.
        first: Place of the first token; that of the next word if there was none yet.
        ram_at: Place of the RAM token.
        signs: Number of tokens that prose does not have.
        gpu_text: Value of the first GPU cluster, while a second may follow.
        is_regular: Whether the same tokens with other values mean the same in other lines.
    """

    __slots__ = (
        *("words", "end", "first", "ram_at", "signs", "gpu_text", "is_regular", "unparsed"),
        *("time", "ram", "swap", "iram", "cpu", "edp", "emc", "gpu"),
        *("engines", "dla", "zones", "maxima", "rails"),
    )

    def __init__(self, words: list[str], start: int) -> None:
        self.end = len(words)
        self.words = words + _PADDING
        self.first = start
        self.ram_at: int | None = None
        self.signs = 0
        self.gpu_text: str | None = None
        self.is_regular = start == 0
        self.unparsed = words[:start]
        self.time: datetime | None = None
        self.ram: Ram | None = None
        self.swap: Swap | None = None
        self.iram: Iram | None = None
        self.cpu: tuple[Core, ...] = ()
        self.edp: int | None = None
        self.emc: Emc | None = None
        self.gpu: Gpu | None = None
        self.engines: dict[str, Engine] = {}
        self.dla: dict[str, Engine] = {}
        self.zones: dict[str, float | None] = {}
        self.maxima: dict[str, float] = {}
        self.rails: dict[str, Rail] = {}

    def clash(self) -> None:
        """Begin anew at RAM if something is there twice, and stood before RAM the first time."""
        if self.ram_at is not None and self.time is None and self.first < self.ram_at:
            raise RestartError(self.ram_at)

    def next_record(self) -> NextRecordError:
        """Return the error for something that a record has once and that is there twice."""
        self.clash()
        return NextRecordError()

    def repeat(self, at: int, words: int) -> int:
        """Leave out a token whose name was there before."""
        self.clash()
        self.unparsed += self.words[at : at + words]
        self.is_regular = False
        return words

    def leave(self, text: str) -> None:
        """Keep a part of a word that was not understood."""
        self.unparsed.append(text)
        self.is_regular = False

    def sample(self, source_line: str | None) -> Sample:
        """Return the record."""
        dla = tuple([one for one in self.dla.values() if isinstance(one, Dla)])
        if len(dla) > 1:
            dla = tuple(sorted(dla, key=attrgetter("core")))
        return Sample(
            self.time,
            self.ram,
            self.swap,
            self.iram,
            self.cpu,
            self.edp,
            self.emc,
            self.gpu,
            self.engines,
            dla,
            self.zones,
            self.maxima,
            self.rails,
            tuple(self.unparsed),
            source_line,
        )


class Token(ABC):
    """A token that begins with a certain word; it remembers the values that it has read."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        self.label = label

    @classmethod
    @abstractmethod
    def match(cls, word: str, value: str) -> "Token | None":
        """Return the token if a word begins one of this kind, by the shape of the word behind."""

    @abstractmethod
    def read(self, draft: Draft, at: int) -> int:
        """Put the values of the token that begins at a word into the record.

        Returns:
            How many words it has.

        Raises:
            UnreadableError: The words are not such a token; nothing has been put.
            NextRecordError, RestartError: The token belongs to another record.
        """

    @abstractmethod
    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        """Assign the runs of digits in the token's words to columns.

        Only the shape of the values matters, none of their digits.
        """

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        """Print the tokens of this kind, unless another kind prints them in their place.

        Raises:
            ValueError: The format cannot express a value.
        """
        yield from ()


class TimeToken(Token):
    """``06-25-2025 09:43:17``."""

    __slots__ = ()

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

    __slots__ = ("_notes", "_totals")

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
        """Return the number of words, two sizes, and the size and number in brackets, if whole."""
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

    __slots__ = ()

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

    __slots__ = ()

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


class CoresToken(Token):
    """``CPU [5%@729,off]``; on TK1 and TX1 ``cpu [5%,off]@729``, with one clock for all."""

    __slots__ = ()

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word in ("CPU", "cpu") and value[:1] == "[" else None

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        inner, closing, shared = text[1:].partition("]")
        if text[:1] != "[" or not closing:
            raise UnreadableError(text)
        cores: list[Core] = []
        append = cores.append
        for core, entry in enumerate(inner.split(",")):
            load, _, clock = entry.partition("@")
            try:
                append(Core(core, True, RATIOS[load], HERTZ[clock]))
            except (KeyError, UnreadableError):
                append(self._read_other(core, entry))
        if shared:
            cores = self._share(cores, shared)
        draft.signs += 1
        if draft.cpu:
            raise draft.next_record()
        draft.cpu = tuple(cores)
        return 2

    @staticmethod
    def _read_other(core: int, text: str) -> Core:
        """Read a core that is off, or that has no clock."""
        return Core(core, False) if text.lower() == "off" else Core(core, True, read_percent(text))

    @staticmethod
    def _share(cores: Sequence[Core], shared: str) -> list[Core]:
        """Give all cores one clock."""
        if shared[0] != "@" or any(core.frequency_hertz is not None for core in cores):
            raise UnreadableError(shared)
        hertz = read_megahertz(shared[1:])
        return [
            Core(one.core, one.online, one.utilization_ratio, hertz if one.online else None)
            for one in cores
        ]

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        inner, _, shared = words[1][1:].partition("]")
        clocks = []
        for core, entry in enumerate(inner.split(",")):
            load, _, clock = entry.partition("@")
            online = load.endswith("%")
            numbers.constants[signals.CPU_ONLINE.column(core)] = float(online)
            if online:
                clocks.append(signals.CPU_FREQUENCY.column(core))
                numbers.percent(signals.CPU_LOAD.column(core))
            if clock:
                numbers.megahertz(clocks[-1])
        if shared:
            at = numbers.megahertz(clocks[0] if clocks else NOWHERE)
            numbers.copies.update(dict.fromkeys(clocks[1:], at))

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.cpu:
            yield f"CPU [{','.join(map(cls._show_core, sample.cpu))}]"

    @staticmethod
    def _show_core(core: Core) -> str:
        if not core.online:
            return "off"
        if core.utilization_ratio is None:
            raise ValueError(f"core {core.core} is online without a load")
        return show_activity(core.utilization_ratio, core.frequency_hertz)


class EmcToken(Token):
    """``EMC_FREQ 3%@2133``: the memory controller.

    A load without a clock is a constant 0 that an unprivileged tegrastats prints: not a load.
    """

    __slots__ = ("_values",)

    LABELS: ClassVar = frozenset(("EMC", "EMC_FREQ"))

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._values = Memory(self._read_value)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word in cls.LABELS else None

    def read(self, draft: Draft, at: int) -> int:
        emc = self._values[draft.words[at + 1]]
        draft.signs += 1
        if draft.emc is not None:
            raise draft.next_record()
        draft.emc = emc
        return 2

    @staticmethod
    def _read_value(text: str) -> Emc:
        off, ratios, hertz, listed, _ = read_activity(text)
        if off or listed or len(hertz) > 1:
            raise UnreadableError(text)
        return Emc(ratios[0] if ratios and hertz else None, hertz[0] if hertz else None)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.literal(self.label)
        activity = read_activity(words[1])
        if activity.ratios:
            numbers.percent(signals.EMC_LOAD.column() if activity.hertz else NOWHERE)
        if activity.hertz:
            numbers.megahertz(signals.EMC_FREQUENCY.column())

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        emc = sample.emc
        if emc is not None:
            if emc.frequency_hertz is not None:
                yield f"EMC_FREQ {show_activity(emc.utilization_ratio, emc.frequency_hertz)}"
            elif emc.utilization_ratio is not None:
                raise ValueError("the memory controller has a load without a clock")
            else:
                yield "EMC_FREQ 0%"


class GpuToken(Token):
    """``GR3D_FREQ 99%@[1300,305]``: the GPU, or the first of two clusters printed apart."""

    __slots__ = ("_values",)

    LABELS: ClassVar = frozenset(("GR3D", "GR3D_FREQ"))

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._values = Memory(self._read_value)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word in cls.LABELS else None

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        gpu = self._values[text]
        draft.signs += 1
        if draft.gpu is not None:
            raise draft.next_record()
        draft.gpu = gpu
        draft.gpu_text = text
        return 2

    @staticmethod
    def _read_value(text: str) -> Gpu:
        off, ratios, hertz, listed, _ = read_activity(text)
        if off or listed:
            raise UnreadableError(text)
        return Gpu(ratios[0] if ratios else None, hertz)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.literal(self.label)
        activity = read_activity(words[1])
        if activity.ratios:
            numbers.percent(signals.GPU_LOAD.column())
        for cluster in range(len(activity.hertz)):
            numbers.megahertz(signals.GPU_FREQUENCY.column(cluster))

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        gpu = sample.gpu
        if gpu is None or gpu.cluster_utilization_ratio:
            return
        text = "" if gpu.utilization_ratio is None else show_percent(gpu.utilization_ratio)
        if gpu.frequency_hertz:
            text += f"@[{','.join(map(show_megahertz, gpu.frequency_hertz))}]"
        if not text:
            raise ValueError("the GPU has neither a load nor a clock")
        yield f"GR3D_FREQ {text}"


class SecondClusterToken(Token):
    """``GR3D2_FREQ 9%@0`` behind ``GR3D_FREQ 7%@918``, as in early R35."""

    __slots__ = ("_values",)

    LABELS: ClassVar = frozenset(("GR3D2", "GR3D2_FREQ"))

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._values = Memory(self._read_clusters)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word in cls.LABELS else None

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        if draft.gpu_text is None:
            raise UnreadableError(text)
        draft.gpu = self._values[draft.gpu_text, text]
        draft.gpu_text = None
        return 2

    @staticmethod
    def _read_clusters(texts: tuple[str, str]) -> Gpu:
        first, second = map(read_activity, texts)
        same = len(first.ratios) == len(second.ratios) and len(first.hertz) == len(second.hertz)
        if not same or len(first.hertz) > 1 or second.off or second.listed:
            raise UnreadableError(texts[1])
        ratios = first.ratios + second.ratios
        return Gpu(ratios[0] if ratios else None, first.hertz + second.hertz, ratios)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.literal(self.label)
        activity = read_activity(words[1])
        if activity.ratios:
            # The load of the GPU is that of the first cluster as well.
            first = numbers.names.index(signals.GPU_LOAD.column())
            numbers.copies[signals.GPU_CLUSTER_LOAD.column(0)] = first
            numbers.percent(signals.GPU_CLUSTER_LOAD.column(1))
        if activity.hertz:
            numbers.megahertz(signals.GPU_FREQUENCY.column(1))

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        gpu = sample.gpu
        if gpu is None or not gpu.cluster_utilization_ratio:
            return
        loads, clocks = gpu.cluster_utilization_ratio, gpu.frequency_hertz
        if len(loads) != 2 or loads[0] != gpu.utilization_ratio or len(clocks) not in (0, 2):
            raise ValueError("GR3D and GR3D2 need two loads, and two clocks or none")
        first, second = map(show_activity, loads, clocks or (None, None))
        yield f"GR3D_FREQ {first} GR3D2_FREQ {second}"


class MtsToken(Token):
    """``MTS fg 3% bg 7%``: the code morphing of the Denver cores."""

    __slots__ = ()

    ENGINES: ClassVar = ("MTS_FG", "MTS_BG")

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word == "MTS" else None

    def read(self, draft: Draft, at: int) -> int:
        _, fg, foreground, bg, background = draft.words[at : at + 5]
        if fg != "fg" or bg != "bg":
            raise UnreadableError(self.label)
        loads = read_percent(foreground), read_percent(background)
        engines = draft.engines
        if engines.keys() & set(self.ENGINES):
            return draft.repeat(at, 5)
        draft.signs += 1
        for name, load in zip(self.ENGINES, loads, strict=True):
            engines[name] = Engine(None, load, None)
        return 5

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        for name in self.ENGINES:
            numbers.percent(signals.ENGINE_LOAD.column(name))

    @classmethod
    def show(cls, engines: Mapping[str, Engine]) -> str:
        """Print the token; it stands among the engines."""
        foreground, background = (engines[name].utilization_ratio for name in cls.ENGINES)
        if foreground is None or background is None:
            raise ValueError("MTS has no load")
        return f"MTS fg {show_percent(foreground)} bg {show_percent(background)}"


class EngineToken(Token):
    """``NVENC 79%@166``, ``VIC off``, ``APE 174`` and so on: one of the smaller engines.

    Any upper-case label that is nothing else names an engine, so that new ones are read.
    """

    __slots__ = ("_index", "_is_dla", "_values", "name")

    COLUMNS: ClassVar = (signals.ENGINE_ON, signals.ENGINE_LOAD, signals.ENGINE_FREQUENCY)
    # Parts of other tokens: a line cut behind `RAM 13983` would make an engine or a rail of them.
    OTHERS: ClassVar = (
        frozenset(("RAM", "SWAP", "IRAM", "MTS", "EDP", "CPU"))
        | EmcToken.LABELS
        | GpuToken.LABELS
        | SecondClusterToken.LABELS
    )
    _RAIL_PREFIXES: ClassVar = ("VDD", "VIN", "POM_")
    # One name for what releases name differently.
    CANONICAL: ClassVar[Mapping[str, str]] = {
        "MSENC": "NVENC",
        "NVENC0": "NVENC",
        "NVDEC0": "NVDEC",
        "NVJPG0": "NVJPG",
        "VIC0": "VIC",
        "OFA0": "OFA",
        "PVA": "PVA0",
        "NVDLA": "NVDLA0",
    }
    _KNOWN: ClassVar = frozenset(
        (
            *("NVENC", "NVENC1", "NVDEC", "NVDEC1", "NVJPG", "NVJPG1", "VIC", "OFA", "PVA0"),
            *("APE", "AVP", "VDE", "NVDLA0", "NVDLA1"),
        )
    )
    DLA: ClassVar = "NVDLA"
    # The DLA cores have a field of their own; in a line they stand before these.
    _AFTER_DLA: ClassVar = ("PVA", "APE", "MTS")

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.name = engine_name(label)
        self._index = self.name
        self._is_dla = False
        self._values = Memory(self._read_value)

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        is_name = len(word) > 1 and word.isupper() and is_label(word) and word not in cls.OTHERS
        if not is_name or "/" in value or value[-2:] == "mW" or word.startswith(cls._RAIL_PREFIXES):
            return None
        core = engine_name(word).removeprefix(cls.DLA)
        return DlaToken(word) if len(core) == 1 and core in "0123456789" else cls(word)

    def read(self, draft: Draft, at: int) -> int:
        engine, is_sign, is_bare, units = self._values[draft.words[at + 1]]
        if is_bare and at + 2 == draft.end and not self._may_end_a_line():
            raise UnreadableError(self.label)
        engines = draft.dla if self._is_dla else draft.engines
        if self.name in engines:
            merged = self._merge(engines[self.name], engine, draft, at)
            if merged is None:
                return draft.repeat(at, 2)
            engine = merged
        draft.signs += is_sign
        engines[self.name] = engine
        if units:
            for unit, ratio in enumerate(units):
                engines[self._unit(unit)] = Engine(None, ratio, None)
        return 2

    def _may_end_a_line(self) -> bool:
        """Return whether a bare number is a clock even as the last word of a line.

        The end of a line may be cut, and a rail without its last digits (``SYS5V 20``) looks like
        an engine with a clock; so an engine must be known, or its label must name a clock.
        """
        return self.label.endswith("_FREQ") or self.name in self._KNOWN

    def _merge(self, one: Engine, other: Engine, draft: Draft, at: int) -> Engine | None:
        """Join ``NVENC_FREQ @166`` and ``NVENC_LOAD 7%``; None if both contain the same."""
        if (one.state is None) == (other.state is None):
            return None
        if (one.utilization_ratio is None) == (other.utilization_ratio is None):
            return None
        if self._was_read(draft, at):
            return None
        clock, load = (one, other) if other.state is None else (other, one)
        return self._make(clock.state, load.utilization_ratio, clock.frequency_hertz)

    def _was_read(self, draft: Draft, at: int) -> bool:
        """Return whether the same label stands before with a value."""
        for before in range(draft.first, at):
            if draft.words[before] == self.label:
                with suppress(UnreadableError):
                    return bool(self._values[draft.words[before + 1]])
        return False

    def _read_value(self, text: str) -> tuple[Engine, bool, bool, tuple[float, ...]]:
        """Return the record, if prose does not have it, if it is bare, and loads of units."""
        off, ratios, hertz, listed, bare = read_activity(text)
        if len(hertz) > 1 or (listed and not self.name.startswith("PVA")):
            raise UnreadableError(text)
        state: GateState | None = "off" if off else None
        if hertz:
            state = "on" if hertz[0] else "off"
        ratio = ratios[0] if ratios and not listed else None
        engine = self._make(state, ratio, hertz[0] if hertz else None)
        is_sign = bool(ratios and hertz) or text[0] == "@"
        return engine, is_sign, bare, ratios if listed else ()

    def _make(self, state: GateState | None, ratio: float | None, hertz: int | None) -> Engine:
        return Engine(state, ratio, hertz)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.literal(self.label)
        activity = read_activity(words[1])
        on, load, frequency = self.COLUMNS
        if activity.off:
            numbers.constants[on.column(self._index)] = 0.0
        if activity.listed:
            for unit in range(len(activity.ratios)):
                numbers.percent(load.column(self._unit(unit)))
        elif activity.ratios:
            numbers.percent(load.column(self._index))
        if activity.hertz:
            numbers.gates[on.column(self._index)] = numbers.megahertz(frequency.column(self._index))

    def _unit(self, unit: int) -> str:
        """Return the name of a vector unit of a PVA."""
        return f"{self.name}_VPU{unit}"

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        engines = sample.engines
        dla = [text for one in sample.dla for text in cls._show(f"NVDLA{one.core}", one, {})]
        for name, engine in engines.items():
            if name.startswith(cls._AFTER_DLA):
                yield from dla
                dla = []
            if name in MtsToken.ENGINES and all(one in engines for one in MtsToken.ENGINES):
                if name == MtsToken.ENGINES[0]:
                    yield MtsToken.show(engines)
            else:
                yield from cls._show(name, engine, engines)
        yield from dla

    @staticmethod
    def _show(name: str, engine: Engine, engines: Mapping[str, Engine]) -> Iterator[str]:
        load, clock = engine.utilization_ratio, engine.frequency_hertz
        owner, unit_mark, _ = name.partition("_VPU")
        if unit_mark and owner in engines:
            return
        units = [engines[key].utilization_ratio for key in engines if key.startswith(f"{name}_VPU")]
        frequency_name = f"{name}_FREQ"
        plain_name = frequency_name if name.startswith("PVA") else name
        if units and clock is not None:
            loads = ",".join(show_percent(unit) for unit in units if unit is not None)
            yield f"{plain_name} [{loads}]@{show_megahertz(clock)}"
        elif clock is not None and load is not None:
            yield f"{plain_name} {show_activity(load, clock)}"
        elif clock is not None and name == "APE":
            yield f"APE {show_megahertz(clock)}"
        elif clock is not None:
            yield f"{frequency_name} @{show_megahertz(clock)}"
        elif load is not None:
            if engine.state == "off":
                yield f"{frequency_name} off"
            yield f"{name}_LOAD {show_percent(load)}"
        elif engine.state == "off":
            yield f"{plain_name} off"
        else:
            raise ValueError(f"{name} has neither a load nor a clock")


class DlaToken(EngineToken):
    """``NVDLA0 off``, ``NVDLA0_FREQ @1600``: a deep-learning accelerator core."""

    __slots__ = ()

    COLUMNS = (signals.DLA_ON, signals.DLA_LOAD, signals.DLA_FREQUENCY)

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._index = self.name.removeprefix(self.DLA)
        self._is_dla = True

    def _make(self, state: GateState | None, ratio: float | None, hertz: int | None) -> Dla:
        return Dla(state, ratio, hertz, core=int(self._index))


class EdpToken(Token):
    """``EDP limit 1734``: the clock limit of TK1 and TX1 on R24."""

    __slots__ = ()

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word) if word == "EDP" and value == "limit" else None

    def read(self, draft: Draft, at: int) -> int:
        if draft.words[at + 1] != "limit":
            raise UnreadableError(self.label)
        hertz = read_megahertz(draft.words[at + 2])
        if draft.edp is not None:
            raise draft.next_record()
        draft.edp = hertz
        return 3

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.megahertz(signals.EDP_LIMIT.column())

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.edp_limit_hertz is not None:
            yield f"EDP limit {show_megahertz(sample.edp_limit_hertz)}"


class ZonesToken(Token):
    """``tj@47.687C``, from R39 on ``tj@47.687C/51C``: thermal zones that follow each other."""

    __slots__ = ("_labels", "_readings")

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

    __slots__ = ("_is_connected", "_may_lack_unit")

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


class UnknownToken(Token):
    """A word that was not understood: it is kept, and the words behind it are read."""

    __slots__ = ()

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        draft.unparsed.append(self.label)
        if at == draft.first:
            draft.first += 1
        return 1

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.literal(self.label)


KINDS: Final[tuple[type[Token], ...]] = (
    *(TimeToken, RamToken, SwapToken, IramToken, CoresToken, EmcToken, GpuToken),
    *(SecondClusterToken, EngineToken, MtsToken, EdpToken, ZonesToken, RailToken),
    UnknownToken,
)
"""Every kind of token, in the order in which they are printed; no word fits two of them."""


def engine_name(label: str) -> str:
    """Return the one name of an engine on all releases.

    >>> [engine_name(label) for label in ("NVJPG0", "NVJPG1", "MSENC", "VIC_FREQ", "PVA0_FREQ")]
    ['NVJPG', 'NVJPG1', 'NVENC', 'VIC', 'PVA0']
    """
    name = label.removesuffix("_FREQ").removesuffix("_LOAD")
    return EngineToken.CANONICAL.get(name, name)


def find_token(word: str, value: str) -> Token:
    """Return the token that a word begins, by the shape of the word behind it.

    >>> [type(find_token("CPU", value)).__name__ for value in ("[5%@729]", "311/311")]
    ['CoresToken', 'RailToken']
    """
    tokens = (kind.match(word, value) for kind in KINDS)
    return next(token for token in tokens if token is not None)


def _show_memory(label: str, memory: Ram | Swap | Iram, unit: str) -> str:
    used, total = memory.used_bytes // BYTES[unit], memory.total_bytes // BYTES[unit]
    return f"{label} {used}/{total}{unit}"


def _show_note(before: str, size: int | None, unit: str) -> str:
    return "" if size is None else f"{before}{size // BYTES[unit]}{unit})"

"""The words of one tegrastats line become a Sample.

tegrastats prints one record a line, without header or version, and uses one label for several
things: on an AGX Xavier a line holds ``CPU [..]``, ``CPU@37C`` and ``CPU 311/311``. So the shape
of what follows a label decides, never the label alone and never the place in the line. What has
no known shape is kept, one word at a time, and the words after it are read as if it were not
there; a release that adds a token costs that token and nothing else.
"""

from typing import Any, Final, Literal, get_args

from .errors import ParseError, UnreadableError
from .lexer import (
    Activity,
    is_label,
    read_activity,
    read_cores,
    read_free_block,
    read_megahertz,
    read_memory,
    read_power,
    read_ratio,
    read_temperature,
    read_time,
    split_prefix,
    split_words,
    storable,
)
from .names import (
    EMC,
    FIRST_CLUSTER,
    SECOND_CLUSTER,
    UNCONNECTED,
    dla_core,
    ends_a_line,
    engine_name,
    names_engine,
    names_rail,
)
from .records import (
    Core,
    Dla,
    Emc,
    Engine,
    GateState,
    Gpu,
    Iram,
    Rail,
    Ram,
    Sample,
    Swap,
)

ParseReason = Literal["empty", "noise", "long"]
PARSE_REASONS: Final[tuple[ParseReason, ...]] = get_args(ParseReason)
"""Why a line is no record: nothing but blanks; no sign of tegrastats in it; over LONGEST_LINE."""

LONGEST_LINE: Final = 65_536
"""Characters; the longest line known has about 800, and what is read must stay bounded."""

# Without a RAM token, so many tokens of a shape that prose does not have make a record.
_SIGNS_NEEDED = 2

_NEXT_RECORD = 0


def parse_line(line: str, *, keep_line: bool = False) -> Sample:
    """Read one line of tegrastats.

    Nothing but a ParseError is ever raised, whatever the text. A wrapper's words before the
    record, a second record behind it, a name that stands there twice and every word of unknown
    shape are in ``unparsed``; an epoch prefix (``1750866199.3488::``) is dropped, and ``NC``
    rails, which are monitor channels that lead nowhere, are ignored.

    Args:
        line: A line as it was read, with or without its end.
        keep_line: Whether the Sample is to hold the line.

    Returns:
        The record in base units; what the line does not say is ``None`` or empty.

    Raises:
        ParseError: The line holds no record: neither ``RAM`` with two sizes nor two other
            tokens that prose does not have (a temperature, a rail in mW, a list of cores, a
            load with its clock). The reason is one of ``PARSE_REASONS``.

    Source:
        "Tegrastats Utility", Jetson Linux Developer Guide, R32 to R38; lines of boards from
        TK1 to Thor, R24 to R39.

    >>> sample = parse_line("RAM 936/3964MB (lfb 366x4MB) NVDLA0 off tj@47.5C VDD_IN 5139mW/4890mW")
    >>> sample.rails["VDD_IN"].instant_watts, sample.dla[0].state, sample.temperatures_celsius
    (5.139, 'off', {'tj': 47.5})
    >>> parse_line("make: *** [all] Error 2")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ParseError: noise: 'make: *** [all] Error 2'
    """
    if len(line) > LONGEST_LINE:
        raise ParseError("long", line)
    text = storable(line)
    words = split_words(split_prefix(text)[1])
    if not words:
        raise ParseError("empty", line)
    reader = _Reader(words, 0)
    while (head := reader.read()) is not None:
        reader = _Reader(words, head)
    if not reader.is_record:
        raise ParseError("noise", line)
    return reader.sample(text if keep_line else None)


class _Reader:
    """Reads the words of one record from left to right.

    A method that reads a token gives back how many words it took, or ``_NEXT_RECORD`` where the
    token belongs to another record; it raises UnreadableError before it has kept anything.
    """

    def __init__(self, words: list[str], start: int) -> None:
        self.words = words
        self.at = start
        self.first_token: int | None = None
        self.ram_at: int | None = None
        self.restart: int | None = None
        self.signs = 0
        self.fields: dict[str, Any] = {}
        self.engines: dict[str, Engine] = {}
        self.labels: dict[str, str] = {}
        self.gpu: Activity | None = None
        self.zones: dict[str, float | None] = {}
        self.maxima: dict[str, float] = {}
        self.rails: dict[str, Rail] = {}
        self.unparsed: list[str] = words[:start]

    @property
    def is_record(self) -> bool:
        """Whether what was read can only have come from tegrastats."""
        return self.ram_at is not None or self.signs >= _SIGNS_NEEDED

    def read(self) -> int | None:
        """Read to the end of the record.

        Returns:
            ``None`` when done, or the place of the word where reading must begin anew, since
            the words before it are the remnant of an earlier record.
        """
        words = self.words
        while self.at < len(words):
            at = self.at
            try:
                used = self.token(words[at], words[at + 1] if at + 1 < len(words) else "")
            except UnreadableError:
                self.unparsed.append(words[at])
                self.at += 1
                continue
            if self.restart is not None:
                return self.restart
            if used == _NEXT_RECORD:
                self.unparsed += words[at:]
                return None
            if self.first_token is None:
                self.first_token = at
            self.at += used
        return None

    def token(self, word: str, value: str) -> int:
        """Decide by its shape what stands here, and read it."""
        if "@" in word:
            return self.temperature(word)
        if not is_label(word):
            return self.unlabelled(word, value)
        if word in _MEMORIES:
            return self.memory(word, value)
        if value[:1] == "[" and word in ("CPU", "cpu"):
            return self.cores(value)
        if "/" in value or value[-2:] == "mW":
            return self.rail(word, value)
        if word in FIRST_CLUSTER:
            return self.first_cluster(value)
        if word in EMC:
            return self.emc(value)
        if word in SECOND_CLUSTER:
            return self.second_cluster(value)
        if word == "MTS":
            return self.mts()
        if word == "EDP" and value == "limit":
            return self.edp()
        return self.engine(word, value)

    def once(self, field: str, value: object, words: int) -> int:
        """Keep what a record has once; a second one belongs to another record."""
        if field in self.fields:
            self.clash()
            return _NEXT_RECORD
        self.fields[field] = value
        return words

    def clash(self) -> None:
        """Begin anew at RAM if a name stood before it too: that was another record's tail."""
        if self.ram_at is None or self.first_token is None or "time" in self.fields:
            return
        if self.first_token < self.ram_at:
            self.restart = self.ram_at

    def twice(self, words: int) -> int:
        """Leave out a token whose name was there before."""
        self.clash()
        self.unparsed += self.words[self.at : self.at + words]
        return words

    def unlabelled(self, word: str, value: str) -> int:
        """Read what does not begin with a name: a timestamp, or RAM with something before it."""
        if word[2:3] == "-":
            time = read_time(word, value)
            if self.ram_at is not None:
                return _NEXT_RECORD
            if self.first_token is not None:
                self.restart = self.at
            return self.once("time", time, 2)
        if word.endswith("RAM"):
            # A prompt, an escape sequence or a `^C` without a blank behind it.
            used = self.memory("RAM", value)
            if used:
                self.unparsed.append(word[: -len("RAM")])
            return used
        raise UnreadableError(word)

    def memory(self, label: str, value: str) -> int:
        """Read ``RAM``, ``SWAP`` or ``IRAM`` and the note in brackets behind it, if whole."""
        memory = read_memory(value)
        note = self.words[self.at + 2 : self.at + 4]
        block = None
        if len(note) == 2 and note[0] == _MEMORIES[label]:
            try:
                block = read_free_block(note[1])
            except UnreadableError:
                block = None
        if block is not None and block.blocks is not None and label != "RAM":
            block = None
        used = 2 if block is None else 4
        size = None if block is None else block.size_bytes
        self.signs += 1
        if label == "RAM":
            if self.ram_at is None:
                self.ram_at = self.at
            ram = Ram(
                used_bytes=memory.used_bytes,
                total_bytes=memory.total_bytes,
                largest_free_block_bytes=size,
                largest_free_block_count=None if block is None else block.blocks,
            )
            return self.once("ram", ram, used)
        if label == "SWAP":
            swap = Swap(
                used_bytes=memory.used_bytes, total_bytes=memory.total_bytes, cached_bytes=size
            )
            return self.once("swap", swap, used)
        iram = Iram(
            used_bytes=memory.used_bytes,
            total_bytes=memory.total_bytes,
            largest_free_block_bytes=size,
        )
        return self.once("iram", iram, used)

    def cores(self, value: str) -> int:
        """Read the list of cores."""
        cores = tuple(
            Core(core=number, online=online, utilization_ratio=ratio, frequency_hertz=hertz)
            for number, (online, ratio, hertz) in enumerate(read_cores(value))
        )
        self.signs += 1
        return self.once("cpu", cores, 2)

    def temperature(self, word: str) -> int:
        """Read a thermal zone."""
        zone, celsius, maximum = read_temperature(word)
        if zone in self.zones:
            return self.twice(1)
        self.signs += 1
        self.zones[zone] = celsius
        if maximum is not None:
            self.maxima[zone] = maximum
        return 1

    def rail(self, label: str, value: str) -> int:
        """Read a power rail; without a unit its name must look like one."""
        power = read_power(value)
        if not names_rail(label, has_unit=power.has_unit):
            raise UnreadableError(label)
        if label == UNCONNECTED:
            return 2
        if label in self.rails:
            return self.twice(2)
        self.signs += power.has_unit
        now, mean, maximum = (*power.watts, None, None)[:3]
        self.rails[label] = Rail(instant_watts=now, average_watts=mean, maximum_watts=maximum)
        if power.cut:
            self.unparsed.append(power.cut)
        return 2

    def emc(self, value: str) -> int:
        """Read the memory controller; a load without a clock is a constant 0, so no load."""
        activity = read_activity(value)
        if activity.off or activity.listed or len(activity.hertz) > 1:
            raise UnreadableError(value)
        self.signs += 1
        ratio = activity.ratios[0] if activity.ratios and activity.hertz else None
        hertz = activity.hertz[0] if activity.hertz else None
        return self.once("emc", Emc(utilization_ratio=ratio, frequency_hertz=hertz), 2)

    def first_cluster(self, value: str) -> int:
        """Read the GPU, or of two clusters printed apart the first."""
        activity = read_activity(value)
        if activity.off or activity.listed:
            raise UnreadableError(value)
        self.signs += 1
        gpu = Gpu(utilization_ratio=_first(activity.ratios), frequency_hertz=activity.hertz)
        used = self.once("gpu", gpu, 2)
        if used:
            self.gpu = activity
        return used

    def second_cluster(self, value: str) -> int:
        """Read the other cluster; it must say as much as the first, or it has no place."""
        first, second = self.gpu, read_activity(value)
        if first is None or second.off or second.listed:
            raise UnreadableError(value)
        same = len(first.ratios) == len(second.ratios) and len(first.hertz) == len(second.hertz)
        if not same or len(first.hertz) > 1:
            raise UnreadableError(value)
        self.gpu = None
        self.fields["gpu"] = Gpu(
            utilization_ratio=_first(first.ratios),
            frequency_hertz=first.hertz + second.hertz,
            cluster_utilization_ratio=first.ratios + second.ratios,
        )
        return 2

    def mts(self) -> int:
        """Read ``MTS fg 3% bg 7%``."""
        words = self.words[self.at + 1 : self.at + 5]
        if len(words) < 4 or words[0] != "fg" or words[2] != "bg":
            raise UnreadableError("MTS")
        foreground, background = read_ratio(words[1]), read_ratio(words[3])
        if self.engines.keys() & {"MTS_FG", "MTS_BG"}:
            return self.twice(5)
        self.signs += 1
        self.engines["MTS_FG"] = Engine(utilization_ratio=foreground)
        self.engines["MTS_BG"] = Engine(utilization_ratio=background)
        return 5

    def edp(self) -> int:
        """Read ``EDP limit 1734``."""
        word = self.words[self.at + 2] if self.at + 2 < len(self.words) else ""
        return self.once("edp_limit_hertz", read_megahertz(word), 3)

    def engine(self, label: str, value: str) -> int:
        """Read one of the smaller engines, known or not."""
        activity = read_activity(value)
        if not names_engine(label):
            raise UnreadableError(label)
        name = engine_name(label)
        if len(activity.hertz) > 1 or (activity.listed and not name.startswith("PVA")):
            raise UnreadableError(value)
        if activity.bare and self.at + 2 == len(self.words) and not ends_a_line(label):
            raise UnreadableError(value)
        clock = activity.hertz[0] if activity.hertz else None
        state: GateState | None = None
        if activity.off or clock is not None:
            state = "on" if clock else "off"
        engine = Engine(
            state=state,
            utilization_ratio=None if activity.listed else _first(activity.ratios),
            frequency_hertz=clock,
        )
        if name in self.engines:
            merged = _merge(self.engines[name], engine)
            if merged is None or self.labels.get(name) == label:
                return self.twice(2)
            engine = merged
        self.signs += bool(activity.ratios and activity.hertz) or value[0] == "@"
        self.engines[name] = engine
        self.labels[name] = label
        if activity.listed:
            for unit, ratio in enumerate(activity.ratios):
                self.engines[f"{name}_VPU{unit}"] = Engine(utilization_ratio=ratio)
        return 2

    def sample(self, source_line: str | None) -> Sample:
        """Put together what was read."""
        engines: dict[str, Engine] = {}
        dla: list[Dla] = []
        for name, engine in self.engines.items():
            core = dla_core(name)
            if core is None:
                engines[name] = engine
            else:
                dla.append(Dla(core=core, **dict(engine)))
        return Sample(
            **self.fields,
            engines=engines,
            dla=tuple(sorted(dla, key=lambda one: one.core)),
            temperatures_celsius=self.zones,
            temperatures_max_celsius=self.maxima,
            rails=self.rails,
            unparsed=tuple(self.unparsed),
            source_line=source_line,
        )


# What each kind of memory is followed by.
_MEMORIES = {"RAM": "(lfb", "SWAP": "(cached", "IRAM": "(lfb"}


def _first(ratios: tuple[float, ...]) -> float | None:
    return ratios[0] if ratios else None


def _merge(one: Engine, other: Engine) -> Engine | None:
    """Join ``NVENC_FREQ @166`` and ``NVENC_LOAD 7%``; ``None`` where both say the same thing."""
    if (one.state is None) == (other.state is None):
        return None
    if (one.utilization_ratio is None) == (other.utilization_ratio is None):
        return None
    clock, load = (one, other) if other.state is None else (other, one)
    return Engine(
        state=clock.state,
        utilization_ratio=load.utilization_ratio,
        frequency_hertz=clock.frequency_hertz,
    )

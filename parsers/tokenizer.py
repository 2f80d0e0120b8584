"""The words of one tegrastats line become a Sample.

tegrastats prints one record a line, without header or version, and uses one label for several
things: on an AGX Xavier a line holds ``CPU [..]``, ``CPU@37C`` and ``CPU 311/311``. So the shape
of what follows a label decides, never the label alone and never the place in the line. What has
no known shape is kept, one word at a time, and the words after it are read as if it were not
there; a release that adds a token costs that token and nothing else.

This is the path that knows every line, and the judge of the faster ones: ``tegrastats.py`` and
``columns.py`` learn from its tokens how lines of one layout are read.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from .errors import ParseError, UnreadableError
from .lexer import (
    is_label,
    read_activity,
    read_megahertz,
    read_memory,
    read_power,
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
from .records import Dla, Engine, Rail, Sample
from .tokens import (
    NOTES,
    make_clusters,
    make_cores,
    make_dla,
    make_emc,
    make_engine,
    make_gpu,
    make_load,
    make_memory,
    make_rail,
    read_note,
)

ParseReason = Literal["empty", "noise", "long"]
PARSE_REASONS: Final[tuple[ParseReason, ...]] = get_args(ParseReason)
"""Why a line is no record: nothing but blanks; no sign of tegrastats in it; over LONGEST_LINE."""

LONGEST_LINE: Final = 65_536
"""Characters; the longest line known has about 800, and what is read must stay bounded."""

# Without a RAM token, so many tokens of a shape that prose does not have make a record.
_SIGNS_NEEDED = 2

_NEXT_RECORD = 0


Kind = Literal[
    "time",
    "memory",
    "cores",
    "temperature",
    "rail",
    "unconnected",
    "emc",
    "first_cluster",
    "second_cluster",
    "mts",
    "edp",
    "engine",
    "unparsed",
]


@dataclass(frozen=True, slots=True)
class Token:
    """Words of a line that say one thing.

    Attributes:
        kind: What; ``unparsed`` is a word that was not understood.
        at: Place of its first word in the line.
        words: How many.
    """

    kind: Kind
    at: int
    words: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A line as it was read.

    Attributes:
        sample: The record.
        words: The words of the line, without its epoch prefix.
        tokens: What they are, in order and without a word left over; ``None`` for a line whose
            next one may be read otherwise though it looks alike: a record behind another one,
            a word that is half understood, no RAM.
    """

    sample: Sample
    words: tuple[str, ...]
    tokens: tuple[Token, ...] | None


def read_line(line: str, *, keep_line: bool = False) -> Sample:
    """Read one line of tegrastats as ``parse_line`` does, from nothing but the line itself.

    Args:
        line: A line as it was read, with or without its end.
        keep_line: Whether the Sample is to hold the line.

    Raises:
        ParseError: The line holds no record.

    >>> read_line("RAM 936/3964MB tj@47.5C").temperatures_celsius
    {'tj': 47.5}
    """
    return tokenize(line, keep_line=keep_line).sample


def tokenize(line: str, *, keep_line: bool = False) -> Reading:
    """Read one line of tegrastats, and tell which words said what.

    Args:
        line: A line as it was read, with or without its end.
        keep_line: Whether the Sample is to hold the line.

    Raises:
        ParseError: The line holds no record: neither ``RAM`` with two sizes nor two other
            tokens that prose does not have (a temperature, a rail in mW, a list of cores, a
            load with its clock).

    >>> [token.kind for token in tokenize("RAM 936/3964MB tj@47.5C FOO").tokens]
    ['memory', 'temperature', 'unparsed']
    """
    text, words = cut_line(line)
    if not words:
        raise ParseError("empty", line)
    reader = _Reader(words, 0)
    while (head := reader.read()) is not None:
        reader = _Reader(words, head)
    if not reader.is_record:
        raise ParseError("noise", line)
    regular = reader.is_regular and reader.ram_at is not None
    tokens = tuple(reader.tokens) if regular else None
    return Reading(reader.sample(text if keep_line else None), tuple(words), tokens)


def cut_line(line: str) -> tuple[str, list[str]]:
    """Return the line as it can be kept, and its words without the epoch prefix.

    Raises:
        ParseError: The line is too long to be looked at.
    """
    if len(line) > LONGEST_LINE:
        raise ParseError("long", line)
    text = storable(line)
    return text, split_words(split_prefix(text)[1])


def kind_of(word: str, value: str) -> Kind | None:
    """Tell by its shape what a word and the one behind it can be; ``None`` for nothing known.

    >>> kind_of("CPU", "[5%@729]"), kind_of("CPU", "311/311"), kind_of("CPU@37C", "")
    ('cores', 'rail', 'temperature')
    """
    if "@" in word:
        return "temperature"
    if not is_label(word):
        return _unlabelled(word)
    if word in NOTES:
        return "memory"
    if value[:1] == "[" and word in ("CPU", "cpu"):
        return "cores"
    if "/" in value or value[-2:] == "mW":
        return "unconnected" if word == UNCONNECTED else "rail"
    if word in FIRST_CLUSTER:
        return "first_cluster"
    if word in EMC:
        return "emc"
    if word in SECOND_CLUSTER:
        return "second_cluster"
    if word == "MTS":
        return "mts"
    if word == "EDP" and value == "limit":
        return "edp"
    return "engine"


def _unlabelled(word: str) -> Kind | None:
    """Tell what does not begin with a name: a timestamp, or RAM with something before it."""
    if word[2:3] == "-":
        return "time"
    return "memory" if word.endswith("RAM") else None


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
        self.first_gpu: str | None = None
        self.zones: dict[str, float | None] = {}
        self.maxima: dict[str, float] = {}
        self.rails: dict[str, Rail] = {}
        self.unparsed: list[str] = words[:start]
        self.tokens: list[Token] = []
        self.is_regular = start == 0

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
            word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
            kind = kind_of(word, value)
            try:
                used = self.token(kind, word, value)
            except UnreadableError:
                self.unparsed.append(word)
                self.tokens.append(Token("unparsed", at, 1))
                self.at += 1
                continue
            if self.restart is not None:
                return self.restart
            if used == _NEXT_RECORD:
                self.unparsed += words[at:]
                self.is_regular = False
                return None
            if self.first_token is None:
                self.first_token = at
            assert kind is not None
            self.tokens.append(Token(kind, at, used))
            self.at += used
        return None

    def token(self, kind: Kind | None, word: str, value: str) -> int:
        """Read what stands here."""
        match kind:
            case "temperature":
                return self.temperature(word)
            case "memory":
                return self.memory(word, value)
            case "cores":
                return self.cores(value)
            case "rail" | "unconnected":
                return self.rail(word, value)
            case "first_cluster":
                return self.first_cluster(value)
            case "emc":
                return self.emc(value)
            case "second_cluster":
                return self.second_cluster(value)
            case "mts":
                return self.mts()
            case "edp":
                return self.edp()
            case "engine":
                return self.engine(word, value)
            case "time":
                return self.time(word, value)
        raise UnreadableError(word)

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
        self.is_regular = False
        return words

    def time(self, word: str, value: str) -> int:
        """Read a timestamp; behind the RAM token it is that of another record."""
        time = read_time(word, value)
        if self.ram_at is not None:
            return _NEXT_RECORD
        if self.first_token is not None:
            self.restart = self.at
        return self.once("time", time, 2)

    def memory(self, word: str, value: str) -> int:
        """Read ``RAM``, ``SWAP`` or ``IRAM`` and the note in brackets behind it, if whole.

        Before ``RAM`` there may be a prompt, an escape sequence or a ``^C`` without a blank.
        """
        before = "" if word in NOTES else word.removesuffix("RAM")
        label = word.removeprefix(before)
        note = None
        behind = self.words[self.at + 2 : self.at + 4]
        if len(behind) == 2 and behind[0] == NOTES[label]:
            with suppress(UnreadableError):
                note = read_note(label, behind[1])
        memory = make_memory(label, read_memory(value), note)
        self.signs += 1
        if label == "RAM" and self.ram_at is None:
            self.ram_at = self.at
        used = self.once(label.lower(), memory, 2 if note is None else 4)
        if used and before:
            self.unparsed.append(before)
            self.is_regular = False
        return used

    def cores(self, value: str) -> int:
        """Read the list of cores."""
        cores = make_cores(value)
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
        self.rails[label] = make_rail(*power.watts)
        if power.cut:
            self.unparsed.append(power.cut)
            self.is_regular = False
        return 2

    def emc(self, value: str) -> int:
        """Read the memory controller."""
        emc = make_emc(value)
        self.signs += 1
        return self.once("emc", emc, 2)

    def first_cluster(self, value: str) -> int:
        """Read the GPU, or of two clusters printed apart the first."""
        gpu = make_gpu(value)
        self.signs += 1
        used = self.once("gpu", gpu, 2)
        if used:
            self.first_gpu = value
        return used

    def second_cluster(self, value: str) -> int:
        """Read the other cluster; without the first it has no place."""
        if self.first_gpu is None:
            raise UnreadableError(value)
        self.fields["gpu"] = make_clusters(self.first_gpu, value)
        self.first_gpu = None
        return 2

    def mts(self) -> int:
        """Read ``MTS fg 3% bg 7%``."""
        words = self.words[self.at + 1 : self.at + 5]
        if len(words) < 4 or words[0] != "fg" or words[2] != "bg":
            raise UnreadableError("MTS")
        foreground, background = make_load(words[1]), make_load(words[3])
        if self.engines.keys() & {"MTS_FG", "MTS_BG"}:
            return self.twice(5)
        self.signs += 1
        self.engines["MTS_FG"], self.engines["MTS_BG"] = foreground, background
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
        if activity.listed and not name.startswith("PVA"):
            raise UnreadableError(value)
        if activity.bare and self.at + 2 == len(self.words) and not ends_a_line(label):
            raise UnreadableError(value)
        engine = make_engine(activity)
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
                dla.append(make_dla(core, engine))
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

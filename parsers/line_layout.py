"""How the words of lines of one layout become a Sample.

What is the same in all lines of a layout, such as labels and words that nobody understands, is
compared with the words of the line it was learnt from. All other words are values. A value that
was there before gives the record made of it then, since records never change; a new one is read
by the functions of ``tokens.py``, as the general path would. Nothing is taken on trust: a word
that is no value of its kind sends the line to the general path.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import getitem, itemgetter
from typing import Any, Generic, TypeVar, cast

from .errors import UnreadableError
from .lexer import (
    CoreReading,
    read_activity,
    read_core,
    read_megahertz,
    read_milliwatts,
    read_power,
    read_temperature,
    read_time,
)
from .names import SECOND_CLUSTER, dla_core, ends_a_line, engine_name
from .records import Core, Dla, Engine, Rail, Sample, trusted
from .tokenizer import Reading, Token
from .tokens import (
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

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Words = Sequence[str]


class Memory(dict[K, V], Generic[K, V]):
    """Values by their words; what is not there is read, and when it is full it begins anew."""

    __slots__ = ("_most", "_read")

    def __init__(self, read: Callable[[K], V], most: int) -> None:
        """Begin empty.

        Args:
            read: Makes a value of its words, or raises UnreadableError.
            most: How many are kept.
        """
        super().__init__()
        self._read = read
        self._most = most

    def __missing__(self, words: K) -> V:
        """Read what was not there before."""
        value = self._read(words)
        if len(self) >= self._most:
            self.clear()
        self[words] = value
        return value


class Memories:
    """The values of all layouts, one Memory a kind."""

    def __init__(self, most: int) -> None:
        """Begin empty; each Memory keeps so many values."""
        self._most = most
        self._made: dict[Hashable, Memory[Any, Any]] = {}
        self.time = self._memory("time", lambda words: read_time(*words))
        self.emc = self._memory("emc", make_emc)
        self.gpu = self._memory("gpu", make_gpu)
        self.clusters = self._memory("clusters", lambda words: make_clusters(*words))
        self.edp = self._memory("edp", read_megahertz)
        self.engine = self._memory("engine", _read_engine)
        self.load = self._memory("load", make_load)
        self.cores = self._memory("cores", make_cores)
        self.zone = self._memory("zone", _read_zone)
        self.peak_zone = self._memory("peak_zone", _read_peak_zone)
        self.peak = self._memory("peak", _read_peak)

    def memory(self, label: str, *, has_note: bool) -> Memory[Any, Any]:
        """Return the values of ``RAM``, ``SWAP`` or ``IRAM``, by sizes, or sizes and note."""
        if has_note:
            return self._memory(
                (label, True),
                lambda words: make_memory(label, words[0], read_note(label, words[1])),
            )
        return self._memory((label, False), lambda sizes: make_memory(label, sizes, None))

    def core(self, number: int) -> Memory[str, Core]:
        """Return the entries of one core in the list of cores."""
        return self._memory(("core", number), lambda text: _make_core(number, read_core(text)))

    def dla(self, core: int) -> Memory[str, Dla]:
        """Return what one DLA core prints."""
        return self._memory(("dla", core), lambda text: make_dla(core, _read_engine(text)))

    def rail(self, *, has_unit: bool) -> Memory[str, Rail]:
        """Return the powers of rails, with or without a unit behind each number.

        Most pairs of numbers are new ones, but not the numbers: the mean moves slowly.
        """
        watts = self._memory(
            ("watts", has_unit), lambda text: read_milliwatts(text, has_unit=has_unit)
        )
        fewest = 1 if has_unit else 2

        def read(text: str) -> Rail:
            numbers = text.split("/")
            if not fewest <= len(numbers) <= 3:
                raise UnreadableError(text)
            return make_rail(tuple(map(watts.__getitem__, numbers)))

        return self._memory(("rail", has_unit), read)

    def _memory(self, kind: Hashable, read: Callable[[Any], Any]) -> Memory[Any, Any]:
        if kind not in self._made:
            self._made[kind] = Memory(read, self._most)
        return self._made[kind]


class LineLayout:
    """One layout; equal ones read the same lines."""

    def __init__(self, reading: Reading, memories: Memories) -> None:
        """Learn a layout from one line of it.

        Args:
            reading: A line whose tokens are known.
            memories: Where values are looked up.

        Raises:
            UnreadableError: The line has something that must be looked at each time.
        """
        words = reading.words
        plan = _Plan(words, reading.tokens or (), memories)
        self._literals = _getter(plan.literals)
        self._texts = self._literals(words)
        self._single = [(field, memory, _getter(at)) for field, memory, at in plan.single]
        self._cores_at, self._cores = plan.cores_at, plan.cores
        self._engine_names = tuple(plan.engines)
        self._engine_memories, engines_at = _columns(plan.engines.values())
        self._engines = _getter_of_many(engines_at)
        self._dla_memories, dla_at = _columns(plan.dla[core] for core in sorted(plan.dla))
        self._dla = _getter_of_many(dla_at)
        self._zone, self._peak = plan.zone, plan.peak
        self._zones = _getter_of_many(plan.zones)
        self._zone_count = len(plan.zones)
        self._rail, self._rail_names = plan.rail, tuple(plan.rails)
        self._rails = _getter_of_many(plan.rails.values())
        self._ignored = _getter_of_many(plan.unconnected)
        self._unparsed = tuple(words[at] for at in plan.unparsed)
        self._given = set(reading.sample.model_fields_set)
        self._blank = dict.fromkeys(Sample.model_fields) | {
            "cpu": (),
            "dla": (),
            "unparsed": self._unparsed,
        }
        self.key = (tuple(plan.literals), self._texts, plan.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LineLayout) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def read(self, words: list[str], source_line: str | None) -> Sample | None:
        """Read a line of as many words as the one that was learnt from.

        Args:
            words: Its words, without epoch prefix.
            source_line: What the Sample is to hold.

        Returns:
            The record; ``None`` where the line is not of this layout.
        """
        if self._literals(words) != self._texts:
            return None
        fields: dict[str, Any] = self._blank.copy()
        try:
            for name, memory, key in self._single:
                fields[name] = memory[key(words)]
            if self._cores:
                text = words[self._cores_at]
                entries = text[1:-1].split(",")
                if text[0] != "[" or text[-1] != "]" or len(entries) != len(self._cores):
                    return None
                fields["cpu"] = tuple(map(getitem, self._cores, entries))
            fields["engines"] = dict(
                zip(
                    self._engine_names,
                    map(getitem, self._engine_memories, self._engines(words)),
                    strict=True,
                )
            )
            if self._dla_memories:
                fields["dla"] = tuple(map(getitem, self._dla_memories, self._dla(words)))
            zones = self._zones(words)
            celsius = dict(map(self._zone.__getitem__, zones))
            if len(celsius) != self._zone_count:
                return None
            fields["temperatures_celsius"] = celsius
            fields["temperatures_max_celsius"] = (
                {} if self._peak is None else dict(map(self._peak.__getitem__, zones))
            )
            rail = self._rail.__getitem__
            fields["rails"] = dict(
                zip(self._rail_names, map(rail, self._rails(words)), strict=True)
            )
            for text in self._ignored(words):
                rail(text)
        except UnreadableError:
            return None
        fields["source_line"] = source_line
        return trusted(Sample, fields, self._given)


def learn(reading: Reading, memories: Memories) -> LineLayout | None:
    """Learn the layout of a line, if it gives back the record it was learnt from.

    Returns:
        The layout; ``None`` for a line that is better looked at each time.
    """
    if reading.tokens is None:
        return None
    try:
        layout = LineLayout(reading, memories)
    except UnreadableError:
        return None
    sample = layout.read(list(reading.words), reading.sample.source_line)
    return layout if sample == reading.sample else None


class _Plan:
    """Which word is looked up where; tokens are entered from left to right."""

    def __init__(self, words: Words, tokens: Iterable[Token], memories: Memories) -> None:
        self._words = words
        self._memories = memories
        self.literals: list[int] = []
        self.single: list[tuple[str, Memory[Any, Any], list[int]]] = []
        self.cores: list[Memory[str, Core]] = []
        self.cores_at = 0
        self.engines: dict[str, tuple[Memory[str, Engine], int]] = {}
        self.dla: dict[int, tuple[Memory[str, Dla], int]] = {}
        self.zones: list[int] = []
        self.zone, self.peak = memories.zone, cast("Memory[str, Any] | None", None)
        self.rails: dict[str, int] = {}
        self.rail = memories.rail(has_unit=True)
        self.unconnected: list[int] = []
        self.unparsed: list[int] = []
        self._gpu_at = 0
        for token in tokens:
            getattr(self, f"_{token.kind}")(token.at, token.words)
        self._choose_rail()
        self._choose_zone()
        self.shape = (self.peak is None, self.rail is memories.rail(has_unit=True), len(self.cores))

    def _time(self, at: int, _: int) -> None:
        self.single.append(("time", self._memories.time, [at, at + 1]))

    def _memory(self, at: int, words: int) -> None:
        label = self._words[at]
        has_note = words > 2
        self.literals += [at, at + 2] if has_note else [at]
        memory = self._memories.memory(label, has_note=has_note)
        self.single.append((label.lower(), memory, [at + 1, at + 3] if has_note else [at + 1]))

    def _cores(self, at: int, _: int) -> None:
        self.literals.append(at)
        text = self._words[at + 1]
        if text.endswith("]"):
            self.cores_at = at + 1
            self.cores = [self._memories.core(number) for number in range(text.count(",") + 1)]
        else:
            self.single.append(("cpu", self._memories.cores, [at + 1]))

    def _temperature(self, at: int, _: int) -> None:
        self.zones.append(at)

    def _rail(self, at: int, _: int) -> None:
        self.literals.append(at)
        self.rails[self._words[at]] = at + 1

    def _unconnected(self, at: int, _: int) -> None:
        self.literals.append(at)
        self.unconnected.append(at + 1)

    def _emc(self, at: int, _: int) -> None:
        self.literals.append(at)
        self.single.append(("emc", self._memories.emc, [at + 1]))

    def _first_cluster(self, at: int, _: int) -> None:
        self.literals.append(at)
        self._gpu_at = at + 1
        self.single.append(("gpu", self._memories.gpu, [at + 1]))

    def _second_cluster(self, at: int, _: int) -> None:
        self.literals.append(at)
        self.single = [entry for entry in self.single if entry[0] != "gpu"]
        self.single.append(("gpu", self._memories.clusters, [self._gpu_at, at + 1]))

    def _mts(self, at: int, _: int) -> None:
        self.literals += [at, at + 1, at + 3]
        self.engines["MTS_FG"] = (self._memories.load, at + 2)
        self.engines["MTS_BG"] = (self._memories.load, at + 4)

    def _edp(self, at: int, _: int) -> None:
        self.literals += [at, at + 1]
        self.single.append(("edp_limit_hertz", self._memories.edp, [at + 2]))

    def _engine(self, at: int, words: int) -> None:
        label = self._words[at]
        self.literals.append(at)
        # A bare number as the last word of a line may be half a number, or half a rail.
        if at + words == len(self._words) and not ends_a_line(label):
            raise UnreadableError(label)
        name = engine_name(label)
        core = dla_core(name)
        if name in self.engines or core in self.dla:
            raise UnreadableError(label)
        if core is None:
            self.engines[name] = (self._memories.engine, at + 1)
        else:
            self.dla[core] = (self._memories.dla(core), at + 1)

    def _unparsed(self, at: int, _: int) -> None:
        # Whether it is understood hangs on what the first cluster says.
        if self._words[at] in SECOND_CLUSTER:
            raise UnreadableError(self._words[at])
        self.literals.append(at)
        self.unparsed.append(at)

    def _choose_rail(self) -> None:
        places = [*self.rails.values(), *self.unconnected]
        units = {read_power(self._words[at]).has_unit for at in places}
        if len(units) > 1:
            raise UnreadableError("rails with and without a unit")
        self.rail = self._memories.rail(has_unit=units != {False})

    def _choose_zone(self) -> None:
        peaks = {read_temperature(self._words[at]).max_celsius is None for at in self.zones}
        if len(peaks) > 1:
            raise UnreadableError("zones with and without a maximum")
        if peaks == {False}:
            self.zone, self.peak = self._memories.peak_zone, self._memories.peak


def _getter(places: list[int]) -> Callable[[Words], Any]:
    """Return what takes one word, or a tuple of several, out of a line."""
    return itemgetter(*places)


def _getter_of_many(places: Iterable[int]) -> Callable[[Words], tuple[str, ...]]:
    """Return what takes a tuple of words out of a line, however few."""
    at = list(places)
    if len(at) > 1:
        return itemgetter(*at)
    return (lambda words: (words[at[0]],)) if at else (lambda _: ())


def _columns(
    entries: Iterable[tuple[Memory[str, V], int]],
) -> tuple[list[Memory[str, V]], list[int]]:
    both = list(entries)
    return [memory for memory, _ in both], [at for _, at in both]


def _make_core(number: int, reading: CoreReading) -> Core:
    online, ratio, hertz = reading
    return Core(core=number, online=online, utilization_ratio=ratio, frequency_hertz=hertz)


def _read_engine(text: str) -> Engine:
    activity = read_activity(text)
    if activity.listed:
        raise UnreadableError(text)
    return make_engine(activity)


def _read_zone(word: str) -> tuple[str, float | None]:
    zone, celsius, peak = read_temperature(word)
    if peak is not None:
        raise UnreadableError(word)
    return zone, celsius


def _read_peak_zone(word: str) -> tuple[str, float | None]:
    zone, celsius, peak = read_temperature(word)
    if peak is None:
        raise UnreadableError(word)
    return zone, celsius


def _read_peak(word: str) -> tuple[str, float]:
    zone, _, peak = read_temperature(word)
    if peak is None:
        raise UnreadableError(word)
    return zone, peak

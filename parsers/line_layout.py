"""How the words of lines of one layout become a Sample.

What is the same in all lines of a layout, such as labels and words that nobody understands, is
compared with the words of the line it was learnt from. All other words are values. A value that
was there before gives the record made of it then, since records never change; a new one is read
by the functions of ``tokens.py``, as the general path would. Nothing is taken on trust: a word
that is no value of its kind sends the line to the general path.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import getitem, itemgetter
from typing import Any, TypeVar

from .errors import UnreadableError
from .lexer import read_power, read_temperature, read_time
from .names import SECOND_CLUSTER, dla_core, ends_a_line, engine_name
from .records import Core, Dla, Engine, Sample, maker_of
from .tokenizer import Reading, Token
from .value_memory import Memories, Memory

V = TypeVar("V")
Words = Sequence[str]

MOST_SETS = 64

# Between zones that are put together to be cut at "@". No word has a blank, so that it is certain
# which part a word began with.
_NEXT_WORD = "@ "


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
        words = list(reading.words)
        plan = _Plan(words, reading.tokens or (), memories)
        self._literals = itemgetter(*_stretches(plan.literals))
        self._texts = self._literals(words)
        self._single = [(field, memory, at[0]) for field, memory, at in plan.single if not at[1:]]
        self._double = [
            (field, memory, at[0], at[1]) for field, memory, at in plan.single if at[1:]
        ]
        self._cores_at, self._cores = plan.cores_at, plan.cores
        memories_of_engines, engines_at = _columns(plan.engines.values())
        self._engine_sets = _sets(tuple(plan.engines), memories_of_engines)
        self._engines = _getter_of_key(engines_at)
        self._dla_memories, dla_at = _columns(plan.dla[core] for core in sorted(plan.dla))
        self._dla = _getter_of_many(dla_at)
        self._time_at = plan.time_at
        self._zones = _getter_of_many(plan.zones)
        self._zone_names = plan.zone_names
        self._zone_heads = _NEXT_WORD.join(self._zone_names).split("@")
        self._celsius = memories.celsius(has_peak=plan.prints_peak).__getitem__
        self._peak = memories.peak.__getitem__ if plan.prints_peak else None
        self._rail, self._rail_names = plan.rail.__getitem__, tuple(plan.rails)
        self._rails = _getter_of_many(plan.rails.values())
        self._unconnected = _getter_of_many(plan.unconnected)
        self._unparsed = tuple(words[at] for at in plan.unparsed)
        self._make = maker_of(Sample, set(reading.sample.model_fields_set))
        self._blank = dict.fromkeys(Sample.model_fields) | {
            "cpu": (),
            "dla": (),
            "unparsed": self._unparsed,
        }
        self.key = (tuple(plan.literals), tuple(words[at] for at in plan.literals), plan.shape)

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
            if self._time_at is not None:
                fields["time"] = read_time(words[self._time_at], words[self._time_at + 1])
            for name, memory, at in self._single:
                fields[name] = memory[words[at]]
            for name, memory, at, behind in self._double:
                fields[name] = memory[words[at], words[behind]]
            if self._cores:
                text = words[self._cores_at]
                entries = text[1:-1].split(",")
                if text[0] != "[" or text[-1] != "]" or len(entries) != len(self._cores):
                    return None
                fields["cpu"] = tuple(map(getitem, self._cores, entries))
            fields["engines"] = self._engine_sets[self._engines(words)].copy()
            if self._dla_memories:
                fields["dla"] = tuple(map(getitem, self._dla_memories, self._dla(words)))
            parts = _NEXT_WORD.join(self._zones(words)).split("@")
            if parts[::2] != self._zone_heads:
                return None
            # Names and places are made together, so there are as many of both.
            names, texts = self._zone_names, parts[1::2]
            fields["temperatures_celsius"] = dict(zip(names, map(self._celsius, texts)))  # noqa: B905
            fields["temperatures_max_celsius"] = (
                {} if self._peak is None else dict(zip(names, map(self._peak, texts)))  # noqa: B905
            )
            fields["rails"] = dict(
                zip(self._rail_names, map(self._rail, self._rails(words)))  # noqa: B905
            )
            for text in self._unconnected(words):
                self._rail(text)
        except UnreadableError:
            return None
        fields["source_line"] = source_line
        return self._make(fields)


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
        self.time_at: int | None = None
        self.zones: list[int] = []
        self.prints_peak = False
        self.rails: dict[str, int] = {}
        self.rail = memories.rail(has_unit=True)
        self.unconnected: list[int] = []
        self.unparsed: list[int] = []
        self._gpu_at = 0
        for token in tokens:
            getattr(self, f"_{token.kind}")(token.at, token.words)
        self._choose_rail()
        self._choose_zone()
        has_unit = self.rail is memories.rail(has_unit=True)
        self.zone_names = [self._words[at].partition("@")[0] for at in self.zones]
        self.shape = (tuple(self.zone_names), self.prints_peak, has_unit, len(self.cores))

    def _time(self, at: int, _: int) -> None:
        self.time_at = at

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
        self.prints_peak = peaks == {False}


def _getter_of_many(places: Iterable[int]) -> Callable[[Words], Sequence[str]]:
    """Return what takes words out of a line, however few."""
    stretches = _stretches(places)
    if len(stretches) == 1:
        return itemgetter(*stretches)
    at = list(places)
    return itemgetter(*at) if at else lambda _: ()


def _getter_of_key(places: Sequence[int]) -> Callable[[Words], tuple[str, ...]]:
    """Return what takes words out of a line as a tuple, however few."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda words: tuple(words[at] for at in places)


def _stretches(places: Iterable[int]) -> list[slice]:
    """Return places as slices, by which words are taken faster than one by one.

    >>> _stretches([2, 4, 6, 7, 8, 3])
    [slice(2, 7, 2), slice(7, 9, 1), slice(3, 4, 1)]
    """
    stretches: list[slice] = []
    start, step, last = 0, 0, -1
    for at in places:
        if stretches and at > last and step in (0, at - last):
            step = at - last
            stretches[-1] = slice(start, at + 1, step)
        else:
            start, step = at, 0
            stretches.append(slice(at, at + 1, 1))
        last = at
    return stretches


def _sets(
    names: tuple[str, ...], memories: list[Memory[str, Engine]]
) -> Memory[tuple[str, ...], dict[str, Engine]]:
    """Return what the engines print by all their words at once: most are off most of the time."""

    def read(words: tuple[str, ...]) -> dict[str, Engine]:
        return dict(zip(names, map(getitem, memories, words), strict=True))

    return Memory(read, MOST_SETS)


def _columns(
    entries: Iterable[tuple[Memory[str, V], int]],
) -> tuple[list[Memory[str, V]], list[int]]:
    both = list(entries)
    return [memory for memory, _ in both], [at for _, at in both]

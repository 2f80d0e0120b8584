"""The values of a log by their words: what was read once is looked up after that.

Records never change, so that two lines may share one. A value that is new is put together of
parts that mostly are not: the clocks of a board are few, and so are percentages. What has not
the usual form is read by the functions of ``tokens.py``, which say what is right.
"""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from .errors import UnreadableError
from .lexer import (
    CoreReading,
    read_activity,
    read_core,
    read_megahertz,
    read_memory,
    read_power,
    read_ratio,
    read_temperature,
)
from .records import Core, Dla, Emc, Engine, Gpu, Rail
from .tokens import (
    emc_of,
    engine_of,
    gpu_of,
    make_clusters,
    make_core,
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

# Pairs of numbers, one of which moves all the time: what is remembered is a board at rest.
MOST_PAIRS = 64

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
    """One Memory a kind of value, for all layouts of a log.

    Attributes:
        emc, gpu, engine: By the word behind the label.
        clusters: The GPU by the two words of its clusters.
        edp: CPU clock limits.
        load: Engines that print a percentage and nothing else.
        cores: Lists of cores with one clock for all.
        peak: The maximum of a zone, by the text of both temperatures.
    """

    def __init__(self, most: int) -> None:
        """Begin empty; each Memory keeps so many values."""
        self._most = most
        self._made: dict[Hashable, Memory[Any, Any]] = {}
        self._ratio = self._memory("ratio", read_ratio)
        self._clocks = self._memory("clocks", lambda text: read_activity(f"@{text}").hertz)
        self.emc = self._memory("emc", self._read_emc)
        self.gpu = self._memory("gpu", self._read_gpu)
        self.clusters = self._memory("clusters", lambda words: make_clusters(*words))
        self.engine = self._memory("engine", self._read_engine)
        self.edp = self._memory("edp", read_megahertz)
        self.load = self._memory("load", make_load)
        self.cores = self._memory("cores", make_cores)
        self._celsius = self._memory("celsius", _read_celsius)
        self.peak = self._memory("peak", self._read_peak)

    def memory(self, label: str, *, has_note: bool) -> Memory[Any, Any]:
        """Return the values of ``RAM``, ``SWAP`` or ``IRAM``, by sizes, or sizes and note."""
        if not has_note:
            return self._memory(
                (label, False), lambda text: make_memory(label, read_memory(text), None)
            )
        sizes = self._memory("sizes", read_memory)
        notes = self._memory(("note", label), lambda text: read_note(label, text))
        return self._memory(
            (label, True),
            lambda words: make_memory(label, sizes[words[0]], notes[words[1]]),
            min(self._most, MOST_PAIRS),
        )

    def core(self, number: int) -> Memory[str, Core]:
        """Return the entries of one core in the list of cores."""

        def read(text: str) -> Core:
            usual = self._load_and_clock(text)
            return make_core(number, CoreReading(True, *usual) if usual else read_core(text))

        return self._memory(("core", number), read)

    def dla(self, core: int) -> Memory[str, Dla]:
        """Return what one DLA core prints."""
        return self._memory(("dla", core), lambda text: make_dla(core, self.engine[text]))

    def celsius(self, *, has_peak: bool) -> Memory[str, float | None]:
        """Return temperatures by what stands behind the ``@``, with a maximum or without."""
        if not has_peak:
            return self._celsius
        return self._memory("celsius before a maximum", self._read_before_peak)

    def rail(self, *, has_unit: bool) -> Memory[str, Rail]:
        """Return the powers of rails, with or without a unit behind each number."""
        unit = "mW" if has_unit else ""
        between, digits_end = f"{unit}/", -len(unit) or None
        watts = self._memory("watts", _read_watts)

        def read(text: str) -> Rail:
            # The usual form. The power of the moment goes in steps, the mean takes any value.
            now, _, mean = text[:digits_end].partition(between)
            mean, slash, maximum = mean.partition(between)
            if mean.isdecimal() and len(mean) < 10 and text.isascii() and text.endswith(unit):
                return make_rail(watts[now], int(mean) / 1000, watts[maximum] if slash else None)
            power = read_power(text)
            if power.cut or power.has_unit != has_unit:
                raise UnreadableError(text)
            return make_rail(*power.watts)

        return self._memory(("rail", has_unit), read, min(self._most, MOST_PAIRS))

    def _memory(
        self, kind: Hashable, read: Callable[[Any], Any], most: int | None = None
    ) -> Memory[Any, Any]:
        if kind not in self._made:
            self._made[kind] = Memory(read, most or self._most)
        return self._made[kind]

    def _load_and_clock(self, text: str) -> tuple[float, int] | None:
        """Read ``X%@Y``, the usual form; ``None`` where it is another one."""
        load, at, clock = text.partition("@")
        if not at or load[-1:] != "%" or clock[:1] == "[":
            return None
        return self._ratio[load], self._clocks[clock][0]

    def _read_before_peak(self, text: str) -> float | None:
        now, slash, _ = text.partition("/")
        if not slash:
            raise UnreadableError(text)
        celsius: float | None = self._celsius[now]
        return celsius

    def _read_peak(self, text: str) -> float:
        maximum: float | None = self._celsius[text.partition("/")[2]]
        if maximum is None:
            raise UnreadableError(text)
        return maximum

    def _read_emc(self, text: str) -> Emc:
        usual = self._load_and_clock(text)
        return emc_of(*usual) if usual else make_emc(text)

    def _read_gpu(self, text: str) -> Gpu:
        load, at, clocks = text.partition("@")
        if not at or load[-1:] != "%":
            return make_gpu(text)
        return gpu_of(self._ratio[load], self._clocks[clocks])

    def _read_engine(self, text: str) -> Engine:
        usual = self._load_and_clock(text)
        if usual:
            return engine_of(*usual)
        activity = read_activity(text)
        if activity.listed:
            raise UnreadableError(text)
        return make_engine(activity)


def _read_watts(text: str) -> float:
    """Read one number of milliwatts, without its unit."""
    watts, _, cut = read_power(f"{text}mW")
    if cut or len(watts) > 1:
        raise UnreadableError(text)
    return watts[0]


def _read_celsius(text: str) -> float | None:
    """Read ``47.5C``; what stands before the ``@`` is looked at elsewhere."""
    _, celsius, _ = read_temperature(f"zone@{text}")
    if "/" in text:
        raise UnreadableError(text)
    return celsius

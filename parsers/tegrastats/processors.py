"""Tokens of processors: cores, memory controller, GPU and the engines."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import ClassVar

from msgspec.structs import astuple, replace

from .. import signals
from ..errors import UnreadableError
from ..records import Core, Dla, Emc, Engine, GateState, Gpu, Sample
from .tokens import NOWHERE, Draft, NumberMap, Token, ValueToken
from .values import (
    CLOCKS,
    HERTZ,
    RATIOS,
    Memory,
    is_label,
    read_items,
    read_load,
    read_megahertz,
    read_percent,
    show_activity,
    show_megahertz,
    show_percent,
)


class CoresToken(Token):
    """``CPU [5%@729,off]``; on TK1 and TX1 ``cpu [5%,off]@729``, with one clock for all."""

    # Thor has 14; each is three time series.
    MOST: ClassVar = 64

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        if word not in ("CPU", "cpu") or value[:1] != "[":
            return None
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        inner, closing, shared = text[1:].partition("]")
        if text[:1] != "[" or not closing or inner.count(",") >= self.MOST:
            raise UnreadableError(text)
        cores: list[Core] = []
        append = cores.append  # looked up once for up to 14 cores of each line
        try:
            for number, entry in enumerate(inner.split(",")):
                load, _, clock = entry.partition("@")
                if clock:
                    append(Core(number, True, RATIOS[load], HERTZ[clock]))
                elif entry.lower() == "off":
                    append(Core(number, False))
                else:
                    append(Core(number, True, RATIOS[entry]))
        except KeyError:
            raise UnreadableError(text) from None
        if shared:
            if shared[0] != "@" or any(core.frequency_hertz is not None for core in cores):
                raise UnreadableError(shared)
            hertz = read_megahertz(shared[1:])
            for at_core, core in enumerate(cores):
                if core.online:
                    cores[at_core] = replace(core, frequency_hertz=hertz)
        draft.signs += 1
        if "cpu" in draft.once:
            raise draft.next_record()
        draft.once["cpu"] = tuple(cores)
        return 2

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
        entries = []
        for core in sample.cpu:
            if not core.online:
                entries.append("off")
            elif core.utilization_ratio is None:
                raise ValueError(f"core {core.core} is online without a load")
            else:
                entries.append(show_activity(core.utilization_ratio, core.frequency_hertz))
        if entries:
            yield f"CPU [{','.join(entries)}]"


class EmcToken(ValueToken):
    """``EMC_FREQ 3%@2133``: the memory controller.

    A bare number is what a cut left of a load: no release prints a clock without ``@``. A load
    without a clock is a constant 0 that an unprivileged tegrastats prints: not a load.
    """

    LABELS = frozenset(("EMC", "EMC_FREQ"))
    FIELD = "emc"

    @staticmethod
    def read_value(text: str) -> Emc:
        load, hertz = read_load(text)
        if len(hertz) > 1:
            raise UnreadableError(text)
        if not hertz:
            return Emc()
        return Emc(load, hertz[0])

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        load, hertz = read_load(words[1])
        if load is not None:
            numbers.percent(signals.EMC_LOAD.column() if hertz else NOWHERE)
        if hertz:
            numbers.megahertz(signals.EMC_FREQUENCY.column())

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.emc is None:
            return
        load, clock = sample.emc.utilization_ratio, sample.emc.frequency_hertz
        if clock is not None:
            yield f"EMC_FREQ {show_activity(load, clock)}"
        elif load is not None:
            raise ValueError("the memory controller has a load without a clock")
        else:
            yield "EMC_FREQ 0%"


class GpuToken(ValueToken):
    """``GR3D_FREQ 99%@[1300,305]``: the GPU, or the first of two clusters printed apart.

    A bare number is what a cut left of a load, since no release prints a clock without ``@``.
    """

    LABELS = frozenset(("GR3D", "GR3D_FREQ"))
    FIELD = "gpu"

    @staticmethod
    def read_value(text: str) -> Gpu:
        return Gpu(*read_load(text))

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        load, hertz = read_load(words[1])
        if load is not None:
            numbers.percent(signals.GPU_LOAD.column())
        for cluster in range(len(hertz)):
            numbers.megahertz(signals.GPU_FREQUENCY.column(cluster))

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        gpu = sample.gpu
        if gpu is None:
            return
        load, clocks, loads = astuple(gpu)
        if loads:
            if len(loads) != 2 or loads[0] != load or len(clocks) not in (0, 2):
                raise ValueError("GR3D and GR3D2 need two loads, and two clocks or none")
            first, second = map(show_activity, loads, clocks or (None, None))
            yield f"GR3D_FREQ {first} GR3D2_FREQ {second}"
        elif load is None and not clocks:
            raise ValueError("the GPU has neither a load nor a clock")
        elif clocks:
            listed = ",".join(map(show_megahertz, clocks))
            yield f"GR3D_FREQ {show_activity(load, None)}@[{listed}]"
        else:
            yield f"GR3D_FREQ {show_activity(load, None)}"


class SecondClusterToken(Token):
    """``GR3D2_FREQ 9%@0`` behind ``GR3D_FREQ 7%@918``, as in early R35."""

    LABELS = frozenset(("GR3D2", "GR3D2_FREQ"))

    def read(self, draft: Draft, at: int) -> int:
        text = draft.words[at + 1]
        draft.once["gpu"] = self._join(draft.once.get("gpu"), text)
        return 2

    @staticmethod
    @lru_cache(512)
    def _join(first: Gpu | None, text: str) -> Gpu:
        """Return the GPU of two clusters, whose loads and clocks must have the same form."""
        load, hertz = read_load(text)
        if first is None or first.cluster_utilization_ratio or len(hertz) > 1:
            raise UnreadableError(text)
        first_load = first.utilization_ratio
        if (first_load is None) != (load is None):
            raise UnreadableError(text)
        if len(first.frequency_hertz) != len(hertz):
            raise UnreadableError(text)
        loads: tuple[float, ...] = ()
        if first_load is not None and load is not None:
            loads = first_load, load
        return Gpu(first_load, first.frequency_hertz + hertz, loads)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        load, hertz = read_load(words[1])
        if load is not None:
            # The load of the GPU is that of the first cluster as well.
            first = numbers.names.index(signals.GPU_LOAD.column())
            numbers.copies[signals.GPU_CLUSTER_LOAD.column(0)] = first
            numbers.percent(signals.GPU_CLUSTER_LOAD.column(1))
        if hertz:
            numbers.megahertz(signals.GPU_FREQUENCY.column(1))


class MtsToken(Token):
    """``MTS fg 3% bg 7%``: the code morphing of the Denver cores."""

    LABELS = frozenset(("MTS",))
    ENGINES: ClassVar = ("MTS_FG", "MTS_BG")

    def read(self, draft: Draft, at: int) -> int:
        _, fg, foreground, bg, background = draft.words[at : at + 5]
        if fg != "fg" or bg != "bg":
            raise UnreadableError(self.label)
        loads = read_percent(foreground), read_percent(background)
        if draft.engines.keys() & set(self.ENGINES):
            return draft.repeat(at, 5)
        draft.signs += 1
        for name, load in zip(self.ENGINES, loads, strict=True):
            draft.engines[name] = Engine(None, load)
        return 5

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        for name in self.ENGINES:
            numbers.percent(signals.ENGINE_LOAD.column(name))

    @classmethod
    def show(cls, engines: Mapping[str, Engine]) -> str:
        foreground, background = (engines[name].utilization_ratio for name in cls.ENGINES)
        if foreground is None or background is None:
            raise ValueError("MTS has no load")
        return f"MTS fg {show_percent(foreground)} bg {show_percent(background)}"


class EngineToken(Token):
    """``NVENC 79%@166``, ``VIC off``, ``APE 174`` and so on: one of the smaller engines.

    Any upper-case label that is nothing else names an engine, so that new ones are read.
    """

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
        **{f"{name}0": name for name in ("NVENC", "NVDEC", "NVJPG", "VIC", "OFA")},
        "MSENC": "NVENC",
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
        self._make: Callable[..., Engine] = Engine
        self._values = Memory(self._read_value)
        # A line may be cut, and a rail without its last digits (`SYS5V 20`) looks like an engine
        # with a clock; so an engine must be known, or its label must name a clock.
        self._may_end_a_line = label.endswith("_FREQ") or self.name in self._KNOWN

    @classmethod
    def match(cls, word: str, value: str) -> Token | None:
        is_name = len(word) > 1 and word.isupper() and is_label(word) and word not in cls.OTHERS
        if not is_name or "/" in value or value[-2:] == "mW" or word.startswith(cls._RAIL_PREFIXES):
            return None
        core = engine_name(word).removeprefix(cls.DLA)
        if len(core) == 1 and core in "0123456789":
            return DlaToken(word)
        return cls(word)

    def read(self, draft: Draft, at: int) -> int:
        engine, is_sign, is_bare, units = self._values[draft.words[at + 1]]
        if is_bare and at + 2 == draft.end and not self._may_end_a_line:
            raise UnreadableError(self.label)
        engines = draft.dla if self._is_dla else draft.engines
        if self.name in engines:
            return draft.repeat(at, 2)
        draft.signs += is_sign
        engines[self.name] = engine
        if units:
            engines.update((unit, Engine(None, ratio)) for unit, ratio in units)
        return 2

    def _read_value(self, text: str) -> tuple[Engine, bool, bool, tuple[tuple[str, float], ...]]:
        """Return the record, whether it is a sign, whether it is bare, and loads by unit."""
        if text.lower() == "off":
            return self._make("off"), False, False, ()
        is_bare = text.isdecimal()
        load: float | None = None
        units: list[tuple[str, float]] = []
        if is_bare and not self.label.endswith("_LOAD"):
            hertz: tuple[int, ...] = (read_megahertz(text),)
        elif text[:1] == "[" and self.name.startswith("PVA"):
            loads, _, clock = text.partition("@")
            hertz = CLOCKS[clock]
            for unit, unit_load in enumerate(read_items(loads)):
                units.append((f"{self.name}_VPU{unit}", read_percent(unit_load)))
        else:
            load, hertz = read_load(text)
        if len(hertz) > 1:
            raise UnreadableError(text)
        state: GateState | None = None
        if hertz:
            state = "on" if hertz[0] else "off"
        return self._make(state, load, *hertz), "@" in text, is_bare, tuple(units)

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        engine, _, _, units = self._read_value(words[1])
        on, load, frequency = self.COLUMNS
        if engine.frequency_hertz is None and engine.state is not None:
            numbers.constants[on.column(self._index)] = 0.0
        for unit, _ in units:
            numbers.percent(load.column(unit))
        if engine.utilization_ratio is not None:
            numbers.percent(load.column(self._index))
        if engine.frequency_hertz is not None:
            numbers.gates[on.column(self._index)] = numbers.megahertz(frequency.column(self._index))

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        engines = sample.engines
        dla: list[str] = []
        for core in sample.dla:
            dla.append(cls._show(f"NVDLA{core.core}", core))
        is_mts = engines.keys() >= set(MtsToken.ENGINES)
        for name, engine in engines.items():
            if name.startswith(cls._AFTER_DLA):
                yield from dla
                dla = []
            owner, unit_mark, _ = name.partition("_VPU")
            if unit_mark and owner in engines:
                continue  # The engine prints the loads of its units.
            if is_mts and name in MtsToken.ENGINES:
                if name == MtsToken.ENGINES[0]:
                    yield MtsToken.show(engines)
            else:
                yield cls._show(name, engine, cls._unit_loads(name, engines))
        yield from dla

    @staticmethod
    def _unit_loads(name: str, engines: Mapping[str, Engine]) -> list[float]:
        """Return the known loads of the vector units of an engine."""
        loads = []
        for unit, engine in engines.items():
            if unit.startswith(f"{name}_VPU") and engine.utilization_ratio is not None:
                loads.append(engine.utilization_ratio)
        return loads

    @staticmethod
    def _show(name: str, engine: Engine, unit_loads: Sequence[float] = ()) -> str:
        """Print one engine in the form that its release has for what is known."""
        load, clock = engine.utilization_ratio, engine.frequency_hertz
        plain_name = f"{name}_FREQ" if name.startswith("PVA") else name
        if clock is not None and unit_loads:
            loads = ",".join(map(show_percent, unit_loads))
            return f"{plain_name} [{loads}]@{show_megahertz(clock)}"
        if clock is not None and load is not None:
            return f"{plain_name} {show_activity(load, clock)}"
        if clock is not None and name == "APE":
            return f"APE {show_megahertz(clock)}"
        if clock is not None:
            return f"{name}_FREQ @{show_megahertz(clock)}"
        if load is not None and engine.state is None:
            return f"{name}_LOAD {show_percent(load)}"
        if load is None and engine.state == "off":
            return f"{plain_name} off"
        raise ValueError(f"{name} has neither a load nor a clock, or it is off with a load")


class DlaToken(EngineToken):
    """``NVDLA0 off``, ``NVDLA0_FREQ @1600``: a deep-learning accelerator core."""

    COLUMNS = (signals.DLA_ON, signals.DLA_LOAD, signals.DLA_FREQUENCY)

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self._index = self.name.removeprefix(self.DLA)
        self._is_dla = True
        self._make = partial(Dla, core=int(self._index))


class EdpToken(Token):
    """``EDP limit 1734``: the clock limit of TK1 and TX1 on R24."""

    LABELS = frozenset(("EDP",))

    def read(self, draft: Draft, at: int) -> int:
        if draft.words[at + 1] != "limit":
            raise UnreadableError(self.label)
        hertz = read_megahertz(draft.words[at + 2])
        if "edp_limit_hertz" in draft.once:
            raise draft.next_record()
        draft.once["edp_limit_hertz"] = hertz
        return 3

    def columns(self, words: Sequence[str], numbers: NumberMap) -> None:
        numbers.megahertz(signals.EDP_LIMIT.column())

    @classmethod
    def render(cls, sample: Sample) -> Iterator[str]:
        if sample.edp_limit_hertz is not None:
            yield f"EDP limit {show_megahertz(sample.edp_limit_hertz)}"


def engine_name(label: str) -> str:
    """Return the one name of an engine on all releases.

    >>> [engine_name(label) for label in ("NVJPG0", "NVJPG1", "MSENC", "VIC_FREQ", "PVA0_FREQ")]
    ['NVJPG', 'NVJPG1', 'NVENC', 'VIC', 'PVA0']
    """
    name = label.removesuffix("_FREQ").removesuffix("_LOAD")
    return EngineToken.CANONICAL.get(name, name)

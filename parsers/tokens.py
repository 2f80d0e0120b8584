"""The words of one token become a record; what a token means beside others is not known here.

Both paths by which a line is read use these functions, so that they cannot disagree on a value.
Those that read raise UnreadableError for words that are no such token; what they have read is
right, so that the records are made without being looked at a second time.
"""

from .errors import UnreadableError
from .lexer import (
    Activity,
    CoreReading,
    FreeBlock,
    Memory,
    read_activity,
    read_cores,
    read_free_block,
    read_ratio,
)
from .records import Core, Dla, Emc, Engine, GateState, Gpu, Iram, Rail, Ram, Swap, maker

NOTES = {"RAM": "(lfb", "SWAP": "(cached", "IRAM": "(lfb"}
"""What each kind of memory is followed by."""


def read_note(label: str, text: str) -> FreeBlock:
    """Read the second word of the note behind ``RAM``, ``SWAP`` or ``IRAM``.

    >>> read_note("RAM", "366x4MB)").blocks
    366
    """
    block = read_free_block(text)
    if block.blocks is not None and label != "RAM":
        raise UnreadableError(text)
    return block


def make_memory(label: str, sizes: Memory, note: FreeBlock | None) -> Ram | Swap | Iram:
    """Put the two sizes behind ``RAM``, ``SWAP`` or ``IRAM`` and the note together.

    >>> make_memory("SWAP", Memory(0, 258048), None).total_bytes
    258048
    """
    used, total = sizes
    size, count = (None, None) if note is None else (note.size_bytes, note.blocks)
    if label == "SWAP":
        return _swap(used, total, size)
    if label == "IRAM":
        return _iram(used, total, size)
    return _ram(used, total, size, count)


def make_cores(text: str) -> tuple[Core, ...]:
    """Read the list of cores.

    >>> [core.online for core in make_cores("[5%@729,off]")]
    [True, False]
    """
    return tuple(make_core(number, reading) for number, reading in enumerate(read_cores(text)))


def make_core(number: int, reading: CoreReading) -> Core:
    """Make a core of its entry in the list.

    >>> make_core(1, CoreReading(False, None, None)).online
    False
    """
    online, ratio, hertz = reading
    return _core(number, online, ratio, hertz)


def make_emc(text: str) -> Emc:
    """Read the memory controller; a load without a clock is a constant 0, so no load.

    >>> make_emc("3%@2133"), make_emc("0%")
    (Emc(utilization_ratio=0.03, frequency_hertz=2133000000), \
Emc(utilization_ratio=None, frequency_hertz=None))
    """
    activity = read_activity(text)
    if activity.off or activity.listed or len(activity.hertz) > 1:
        raise UnreadableError(text)
    ratio = _first(activity.ratios) if activity.hertz else None
    return emc_of(ratio, _clock(activity))


def emc_of(ratio: float | None, hertz: int | None) -> Emc:
    """Make a memory controller of its numbers."""
    return _emc(ratio, hertz)


def make_gpu(text: str) -> Gpu:
    """Read the GPU, or of two clusters printed apart the first.

    >>> make_gpu("99%@[1300,305]").frequency_hertz
    (1300000000, 305000000)
    """
    activity = read_activity(text)
    if activity.off or activity.listed:
        raise UnreadableError(text)
    return gpu_of(_first(activity.ratios), activity.hertz)


def gpu_of(
    ratio: float | None, hertz: tuple[int, ...], cluster_ratios: tuple[float, ...] = ()
) -> Gpu:
    """Make a GPU of its numbers."""
    return _gpu(ratio, hertz, cluster_ratios)


def make_clusters(first_text: str, second_text: str) -> Gpu:
    """Read two clusters printed apart; the second must say as much as the first.

    >>> make_clusters("7%@918", "9%@0").cluster_utilization_ratio
    (0.07, 0.09)
    """
    first, second = read_activity(first_text), read_activity(second_text)
    same = len(first.ratios) == len(second.ratios) and len(first.hertz) == len(second.hertz)
    if not same or len(first.hertz) > 1 or second.off or second.listed:
        raise UnreadableError(second_text)
    return gpu_of(_first(first.ratios), first.hertz + second.hertz, first.ratios + second.ratios)


def make_engine(activity: Activity) -> Engine:
    """Make an engine of what it prints.

    >>> make_engine(read_activity("79%@166")).state, make_engine(read_activity("@0")).state
    ('on', 'off')
    """
    if len(activity.hertz) > 1:
        raise UnreadableError(str(activity.hertz))
    ratio = None if activity.listed else _first(activity.ratios)
    return engine_of(ratio, _clock(activity), is_off=activity.off)


def engine_of(ratio: float | None, hertz: int | None, *, is_off: bool = False) -> Engine:
    """Make an engine of its numbers; one with a clock of 0 is off.

    >>> engine_of(0.79, 166_000_000).state, engine_of(None, 0).state, engine_of(0.07, None).state
    ('on', 'off', None)
    """
    state: GateState | None = None
    if is_off or hertz is not None:
        state = "on" if hertz else "off"
    return _engine(state, ratio, hertz)


def make_dla(core: int, engine: Engine) -> Dla:
    """Make a DLA core of an engine.

    >>> make_dla(1, make_engine(read_activity("off")))
    Dla(state='off', utilization_ratio=None, frequency_hertz=None, core=1)
    """
    return _dla(engine.state, engine.utilization_ratio, engine.frequency_hertz, core)


def make_load(text: str) -> Engine:
    """Read a load that has no clock.

    >>> make_load("3%").utilization_ratio
    0.03
    """
    return engine_of(read_ratio(text), None)


def make_rail(now: float, mean: float | None = None, maximum: float | None = None) -> Rail:
    """Make a rail of one to three powers in watts.

    >>> make_rail(5.139, 4.89).average_watts
    4.89
    """
    return _rail(now, mean, maximum)


_core, _dla, _emc, _engine, _gpu = maker(Core), maker(Dla), maker(Emc), maker(Engine), maker(Gpu)
_iram, _rail, _ram, _swap = maker(Iram), maker(Rail), maker(Ram), maker(Swap)


def _first(ratios: tuple[float, ...]) -> float | None:
    return ratios[0] if ratios else None


def _clock(activity: Activity) -> int | None:
    return activity.hertz[0] if activity.hertz else None

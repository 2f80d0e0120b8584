"""The words of one token become a record; what a token means beside others is not known here.

Both paths by which a line is read use these functions, so that they cannot disagree on a value.
All raise UnreadableError for words that are no such token.
"""

from .errors import UnreadableError
from .lexer import (
    Activity,
    FreeBlock,
    read_activity,
    read_cores,
    read_free_block,
    read_memory,
    read_ratio,
)
from .records import Core, Dla, Emc, Engine, GateState, Gpu, Iram, Rail, Ram, Swap, trusted

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


def make_memory(label: str, sizes: str, note: FreeBlock | None) -> Ram | Swap | Iram:
    """Read the two sizes behind ``RAM``, ``SWAP`` or ``IRAM``, and put the note with them.

    >>> make_memory("SWAP", "0/252kB", None).total_bytes
    258048
    """
    used, total = read_memory(sizes)
    size = None if note is None else note.size_bytes
    if label == "SWAP":
        return Swap(used_bytes=used, total_bytes=total, cached_bytes=size)
    if label == "IRAM":
        return Iram(used_bytes=used, total_bytes=total, largest_free_block_bytes=size)
    return Ram(
        used_bytes=used,
        total_bytes=total,
        largest_free_block_bytes=size,
        largest_free_block_count=None if note is None else note.blocks,
    )


def make_cores(text: str) -> tuple[Core, ...]:
    """Read the list of cores.

    >>> [core.online for core in make_cores("[5%@729,off]")]
    [True, False]
    """
    return tuple(
        Core(core=number, online=online, utilization_ratio=ratio, frequency_hertz=hertz)
        for number, (online, ratio, hertz) in enumerate(read_cores(text))
    )


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
    return Emc(utilization_ratio=ratio, frequency_hertz=_clock(activity))


def make_gpu(text: str) -> Gpu:
    """Read the GPU, or of two clusters printed apart the first.

    >>> make_gpu("99%@[1300,305]").frequency_hertz
    (1300000000, 305000000)
    """
    activity = read_activity(text)
    if activity.off or activity.listed:
        raise UnreadableError(text)
    return Gpu(utilization_ratio=_first(activity.ratios), frequency_hertz=activity.hertz)


def make_clusters(first_text: str, second_text: str) -> Gpu:
    """Read two clusters printed apart; the second must say as much as the first.

    >>> make_clusters("7%@918", "9%@0").cluster_utilization_ratio
    (0.07, 0.09)
    """
    first, second = read_activity(first_text), read_activity(second_text)
    same = len(first.ratios) == len(second.ratios) and len(first.hertz) == len(second.hertz)
    if not same or len(first.hertz) > 1 or second.off or second.listed:
        raise UnreadableError(second_text)
    return Gpu(
        utilization_ratio=_first(first.ratios),
        frequency_hertz=first.hertz + second.hertz,
        cluster_utilization_ratio=first.ratios + second.ratios,
    )


def make_engine(activity: Activity) -> Engine:
    """Make an engine of what it prints.

    >>> make_engine(read_activity("79%@166")).state, make_engine(read_activity("@0")).state
    ('on', 'off')
    """
    if len(activity.hertz) > 1:
        raise UnreadableError(str(activity.hertz))
    clock = _clock(activity)
    state: GateState | None = None
    if activity.off or clock is not None:
        state = "on" if clock else "off"
    return Engine(
        state=state,
        utilization_ratio=None if activity.listed else _first(activity.ratios),
        frequency_hertz=clock,
    )


def make_dla(core: int, engine: Engine) -> Dla:
    """Make a DLA core of an engine.

    >>> make_dla(1, make_engine(read_activity("off")))
    Dla(state='off', utilization_ratio=None, frequency_hertz=None, core=1)
    """
    return Dla(core=core, **dict(engine))


def make_load(text: str) -> Engine:
    """Read a load that has no clock.

    >>> make_load("3%").utilization_ratio
    0.03
    """
    return Engine(utilization_ratio=read_ratio(text))


def make_rail(watts: tuple[float, ...]) -> Rail:
    """Make a rail of one to three powers: now, mean, maximum.

    >>> make_rail((5.139, 4.89)).average_watts
    4.89
    """
    now, mean, maximum = (*watts, None, None)[:3]
    return trusted(
        Rail,
        {"instant_watts": now, "average_watts": mean, "maximum_watts": maximum},
        _RAIL_FIELDS,
    )


_RAIL_FIELDS = set(Rail.model_fields)


def _first(ratios: tuple[float, ...]) -> float | None:
    return ratios[0] if ratios else None


def _clock(activity: Activity) -> int | None:
    return activity.hertz[0] if activity.hertz else None

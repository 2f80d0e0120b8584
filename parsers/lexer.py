"""A line becomes words, and a word of numbers and units becomes numbers in base units.

Every conversion of the package stands here: mebibytes to bytes, megahertz to hertz, milliwatts
to watts, percent to a ratio. What a word means is decided by ``tegrastats.py``; this module only
knows shapes. Digits are ASCII and at most nine of them make a number: a longer run is damage,
and Python would refuse to convert the longest ones.
"""

import re
from datetime import datetime
from typing import NamedTuple

from .errors import UnreadableError

BYTES = {"kB": 1024, "MB": 1024**2}
HERTZ_PER_MEGAHERTZ = 1_000_000
# What a thermal zone reads while the part under it has no power.
GATED_CELSIUS = -256.0

_NUMBER = "[0-9]{1,9}"
_PERCENT = "(?:100|[0-9]{1,2})%"
_CELSIUS = r"-?[0-9]{1,9}(?:\.[0-9]{1,6})?"

_EPOCH = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)::\s*")
_MEMORY = re.compile(f"({_NUMBER})/({_NUMBER})(MB|kB)")
_FREE_BLOCK = re.compile(rf"(?:({_NUMBER})x)?({_NUMBER})(MB|kB)\)")
_CORE = re.compile(f"({_PERCENT})(?:@({_NUMBER}))?")
_TEMPERATURE = re.compile(
    f"([A-Za-z][A-Za-z0-9_]*)@({_CELSIUS})C(?:/({_CELSIUS})C)?",
)
_PLAIN_POWER = re.compile(f"({_NUMBER})/({_NUMBER})(?:/({_NUMBER}))?")
# After the numbers that carry their unit there may be one that lost it: a record was cut there,
# so from that number on nothing is certain.
_UNIT_POWER = re.compile(
    f"({_NUMBER})mW(?:/({_NUMBER})mW)?(?:/({_NUMBER})mW)?(/(?:{_NUMBER})?m?(?:/[0-9mW/]*)?)?",
)
_ACTIVITY = re.compile(
    rf"(?:(?P<load>{_PERCENT})|\[(?P<loads>{_PERCENT}(?:,{_PERCENT})*)\](?=@))?"
    rf"(?:@(?P<clock>{_NUMBER})|@\[(?P<clocks>{_NUMBER}(?:,{_NUMBER})*)\])?",
)
_PLAIN_NUMBER = re.compile(_NUMBER)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Memory(NamedTuple):
    """Two sizes, as in ``936/3964MB``."""

    used_bytes: int
    total_bytes: int


class FreeBlock(NamedTuple):
    """Free blocks of one size, as in ``366x4MB)``; without a count it is one size alone."""

    size_bytes: int
    blocks: int | None


class CoreReading(NamedTuple):
    """One entry of the list of cores; both numbers are ``None`` for ``off``."""

    online: bool
    ratio: float | None
    hertz: int | None


class Temperature(NamedTuple):
    """A zone and its readings; ``None`` is a zone without power, or a maximum not printed."""

    zone: str
    celsius: float | None
    max_celsius: float | None


class Power(NamedTuple):
    """The numbers of a rail.

    Attributes:
        watts: One to three numbers: now, mean, maximum.
        has_unit: Whether they were printed with ``mW``.
        cut: The text from the first number without its unit on, where others had theirs.
    """

    watts: tuple[float, ...]
    has_unit: bool
    cut: str


class Activity(NamedTuple):
    """What a GPU, a memory controller or an engine prints of itself.

    Attributes:
        off: The word was ``off``.
        ratios: Loads: none, one, or one a unit where ``listed``.
        hertz: Clocks, one a cluster.
        listed: The loads stood in brackets.
        bare: The word was a number and nothing else, the weakest of all shapes.
    """

    off: bool = False
    ratios: tuple[float, ...] = ()
    hertz: tuple[int, ...] = ()
    listed: bool = False
    bare: bool = False


def storable(line: str) -> str:
    r"""Return the line with each lone surrogate replaced, since no UTF-8 file could hold one.

    >>> storable("RAM 1/2MB \udcff") == "RAM 1/2MB \ufffd"
    True
    """
    return line if line.isascii() else _SURROGATE.sub("\ufffd", line)


def split_prefix(line: str) -> tuple[float | None, str]:
    """Take off the arrival time that a recorder wrote in front of the record.

    Args:
        line: A line, for instance ``1750866199.3488::RAM 936/3964MB``.

    Returns:
        Seconds since the epoch, ``None`` without prefix, and the rest of the line.

    >>> split_prefix("1750866199.3488::RAM 936/3964MB")
    (1750866199.3488, 'RAM 936/3964MB')
    >>> split_prefix("RAM 936/3964MB")
    (None, 'RAM 936/3964MB')
    """
    found = _EPOCH.match(line)
    if found is None:
        return None, line
    return float(found[1]), line[found.end() :]


def split_words(line: str) -> list[str]:
    """Cut a line at its blanks.

    A quotation mark is a word of its own, as a wrapper may glue one to either end of a record,
    and so is the bracket that ``IRAM 0/252kB(lfb 252kB)`` has no blank before.

    >>> split_words('tegra="RAM 1/2MB  IRAM 0/252kB(lfb 252kB)"')
    ['tegra=', '"', 'RAM', '1/2MB', 'IRAM', '0/252kB', '(lfb', '252kB)', '"']
    """
    if "B(" in line:
        line = line.replace("B(", "B (")
    if '"' in line:
        line = line.replace('"', ' " ')
    return line.split()


def is_label(word: str) -> bool:
    """Tell whether a word can name something: ASCII letters, digits and ``_``, a letter first.

    >>> is_label("VDD_IN"), is_label("5139mW"), is_label("")
    (True, False, False)
    """
    return word.isidentifier() and word.isascii() and word[0] != "_"


def read_time(date: str, clock: str) -> datetime:
    """Read ``06-25-2025`` and ``09:43:17``: month first, local time, no zone.

    Raises:
        UnreadableError: The words are no date and time of day.

    >>> read_time("06-25-2025", "09:43:17").isoformat()
    '2025-06-25T09:43:17'
    """
    shaped = len(date) == 10 and date[2] == date[5] == "-"
    if not shaped or len(clock) != 8 or clock[2] != ":" or clock[5] != ":" or clock[:2] > "23":
        raise UnreadableError(date)
    try:
        return datetime.fromisoformat(f"{date[6:]}-{date[:5]}T{clock}")
    except ValueError:
        raise UnreadableError(date) from None


def read_memory(text: str) -> Memory:
    """Read ``936/3964MB``; MB is 1024 kB, as the kernel counts.

    Raises:
        UnreadableError: The text is no pair of sizes.

    >>> read_memory("0/252kB")
    Memory(used_bytes=0, total_bytes=258048)
    """
    found = _MEMORY.fullmatch(text)
    if found is None:
        raise UnreadableError(text)
    unit = BYTES[found[3]]
    return Memory(int(found[1]) * unit, int(found[2]) * unit)


def read_free_block(text: str) -> FreeBlock:
    """Read the second word of ``(lfb 366x4MB)``, ``(lfb 252kB)`` or ``(cached 0MB)``.

    Raises:
        UnreadableError: The text is no size with its closing bracket.

    >>> read_free_block("1x512kB)")
    FreeBlock(size_bytes=524288, blocks=1)
    """
    found = _FREE_BLOCK.fullmatch(text)
    if found is None:
        raise UnreadableError(text)
    blocks = None if found[1] is None else int(found[1])
    return FreeBlock(int(found[2]) * BYTES[found[3]], blocks)


def read_cores(text: str) -> list[CoreReading]:
    """Read ``[5%@729,off]``, or ``[5%,off]@729`` with one clock for all.

    Raises:
        UnreadableError: Any part of the list is not as it should be. Half a list is not given
            back, since a core's number is its place in it.

    >>> read_cores("[5%@729,off]")[0]
    CoreReading(online=True, ratio=0.05, hertz=729000000)
    >>> read_cores("[5%,off]@729") == read_cores("[5%@729,off]")
    True
    """
    inner, closing, shared = text[1:].partition("]")
    if text[:1] != "[" or not closing:
        raise UnreadableError(text)
    cores = [read_core(entry) for entry in inner.split(",")]
    if not shared:
        return cores
    if shared[0] != "@" or any(core.hertz is not None for core in cores):
        raise UnreadableError(text)
    for_all = read_megahertz(shared[1:])
    return [core._replace(hertz=for_all) if core.online else core for core in cores]


def read_core(text: str) -> CoreReading:
    """Read one entry of the list, ``5%@729``, ``5%`` or ``off``.

    Raises:
        UnreadableError: The text is none of these.

    >>> read_core("off")
    CoreReading(online=False, ratio=None, hertz=None)
    """
    found = _CORE.fullmatch(text)
    if found is not None:
        return CoreReading(True, _ratio(found[1]), _hertz(found[2]) if found[2] else None)
    if text.lower() == "off":
        return CoreReading(False, None, None)
    raise UnreadableError(text)


def read_temperature(text: str) -> Temperature:
    """Read ``tj@47.687C``, from R39 on ``tj@47.687C/51C``.

    Raises:
        UnreadableError: The text is no zone with its temperature.

    >>> read_temperature("CV0@-256C")
    Temperature(zone='CV0', celsius=None, max_celsius=None)
    """
    found = _TEMPERATURE.fullmatch(text)
    if found is None:
        raise UnreadableError(text)
    return Temperature(found[1], _celsius(found[2]), _celsius(found[3]) if found[3] else None)


def read_power(text: str) -> Power:
    """Read one to three numbers of milliwatts.

    Raises:
        UnreadableError: The text is no power; one number alone needs its unit.

    >>> read_power("5139mW/4890mW").watts
    (5.139, 4.89)
    >>> read_power("598mW/598")
    Power(watts=(0.598,), has_unit=True, cut='/598')
    """
    found = _UNIT_POWER.fullmatch(text)
    if found is not None:
        numbers = found.groups()[:3]
        watts = tuple(int(number) / 1000 for number in numbers if number is not None)
        return Power(watts, True, found[4] or "")
    found = _PLAIN_POWER.fullmatch(text)
    if found is None:
        raise UnreadableError(text)
    watts = tuple(int(number) / 1000 for number in found.groups() if number is not None)
    return Power(watts, False, "")


def read_activity(text: str) -> Activity:
    """Read ``off``, ``X%``, ``@Y``, ``X%@Y``, ``X%@[Y,Y]``, ``[X%,X%]@Y`` or a bare ``Y``.

    Raises:
        UnreadableError: The text has none of these shapes, or a load above 100 %.

    >>> read_activity("79%@[305,0]")
    Activity(off=False, ratios=(0.79,), hertz=(305000000, 0), listed=False, bare=False)
    """
    if text.lower() == "off":
        return _OFF
    found = _ACTIVITY.fullmatch(text)
    if found is None or not text:
        if _PLAIN_NUMBER.fullmatch(text) is None:
            raise UnreadableError(text)
        return Activity(hertz=(_hertz(text),), bare=True)
    load, loads, clock, clocks = found.groups()
    ratios: tuple[float, ...] = ()
    if load is not None:
        ratios = (_ratio(load),)
    elif loads is not None:
        ratios = tuple(map(_ratio, loads.split(",")))
    hertz: tuple[int, ...] = ()
    if clock is not None:
        hertz = (_hertz(clock),)
    elif clocks is not None:
        hertz = tuple(map(_hertz, clocks.split(",")))
    return Activity(False, ratios, hertz, loads is not None)


def read_ratio(text: str) -> float:
    """Read ``7%``.

    Raises:
        UnreadableError: The text is no percentage up to 100.
    """
    activity = read_activity(text)
    if activity.hertz or activity.off:
        raise UnreadableError(text)
    return activity.ratios[0]


def read_megahertz(text: str) -> int:
    """Read a bare number of megahertz.

    Raises:
        UnreadableError: The text is no number.
    """
    if _PLAIN_NUMBER.fullmatch(text) is None:
        raise UnreadableError(text)
    return _hertz(text)


_OFF = Activity(off=True)


def _ratio(percent: str) -> float:
    return int(percent[:-1]) / 100


def _hertz(megahertz: str) -> int:
    return int(megahertz) * HERTZ_PER_MEGAHERTZ


def _celsius(text: str) -> float | None:
    celsius = float(text)
    return None if celsius == GATED_CELSIUS else celsius

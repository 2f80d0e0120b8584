"""Words of a line become numbers in base units, and back.

Every conversion is here: mebibytes and bytes, megahertz and hertz, milliwatts and watts, percent
and a ratio. Digits are ASCII and at most nine of them make a number: a longer run is damage, and
Python refuses to convert the longest ones. A reader raises UnreadableError for any other text.
"""

import re
from collections.abc import Callable, Hashable
from datetime import datetime
from typing import TypeVar

from ..errors import UnreadableError

BYTES = {"kB": 1024, "MB": 1024**2}
HERTZ_PER_MEGAHERTZ = 1_000_000
GATED_CELSIUS = -256.0
"""Temperature that tegrastats prints for a zone without power."""
LOWEST_CELSIUS, HIGHEST_CELSIUS = -100.0, 200.0
"""Any other temperature is damage: sensors of boards measure -40 to 125 °C."""

_NUMBER = "[0-9]{1,9}"

_TEMPERATURE = re.compile(f"-?{_NUMBER}(?:\\.[0-9]{{1,6}})?C")
# An idle Thor prints -392mW: the monitor's zero is off by a step.
_POWER = f"-?{_NUMBER}"
_PLAIN_POWER = re.compile(f"({_POWER})/({_POWER})(?:/({_POWER}))?")
# A number without its unit may follow numbers that have one: the record was cut there, so that
# nothing is certain from that number on.
_UNIT_POWER = re.compile(
    f"({_POWER})mW(?:/({_POWER})mW)?(?:/({_POWER})mW)?(/-?(?:{_NUMBER})?m?(?:/[-0-9mW/]*)?)?"
)

RATIOS: dict[str, float] = {}
"""Every percentage that is one, by its text: ``7%`` and ``07%``."""
for _percent in range(101):
    RATIOS[f"{_percent}%"] = RATIOS[f"{_percent:02}%"] = _percent / 100

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(dict[K, V]):
    """Values by their text: a text that is not in it is read; when it is full it starts anew.

    Clocks and loads of a board are few, so that most words were there before. Only texts that
    can be read are kept, and those are short.
    """

    __slots__ = ("_most", "_read")

    def __init__(self, read: Callable[[K], V], most: int = 512) -> None:
        super().__init__()
        self._read = read
        self._most = most

    def __missing__(self, text: K) -> V:
        value = self._read(text)
        if len(self) >= self._most:
            self.clear()
        self[text] = value
        return value


def is_label(word: str) -> bool:
    """Return whether a word can name something: ASCII letters, digits and ``_``, a letter first.

    >>> is_label("VDD_IN"), is_label("5139mW"), is_label("")
    (True, False, False)
    """
    return word.isidentifier() and word.isascii() and word[0] != "_"


def read_label(word: str) -> str:
    """Return a word that can name something."""
    if not is_label(word):
        raise UnreadableError(word)
    return word


def read_time(date: str, clock: str) -> datetime:
    """Read ``06-25-2025`` and ``09:43:17``: month first, local time, no zone.

    >>> read_time("06-25-2025", "09:43:17").isoformat()
    '2025-06-25T09:43:17'
    """
    is_date = len(date) == 10 and date[2:6:3] == "--"
    if not is_date or len(clock) != 8 or clock[2::3] != "::" or clock >= "24":
        raise UnreadableError(f"{date} {clock}")
    try:
        return datetime.fromisoformat(f"{date[6:]}-{date[:5]}T{clock}")
    except ValueError:
        raise UnreadableError(date) from None


def read_number(text: str) -> int:
    """Read a whole number of at most nine digits."""
    if not text.isdecimal() or len(text) > 9 or not text.isascii():
        raise UnreadableError(text)
    return int(text)


def read_size(text: str) -> tuple[int, int]:
    """Read a size and its unit, both in bytes: the part of ``936/3964MB`` behind ``/``.

    MB is 1024 kB, as the kernel counts.

    >>> read_size("252kB")
    (258048, 1024)
    """
    unit = BYTES.get(text[-2:])
    if unit is None:
        raise UnreadableError(text)
    return read_number(text[:-2]) * unit, unit


def read_celsius(text: str) -> float | None:
    """Read ``47.687C``; None is a zone without power.

    >>> read_celsius("-256C"), read_celsius("47.5C")
    (None, 47.5)
    """
    if _TEMPERATURE.fullmatch(text) is None:
        raise UnreadableError(text)
    celsius = float(text[:-1])
    if celsius == GATED_CELSIUS:
        return None
    if not LOWEST_CELSIUS <= celsius <= HIGHEST_CELSIUS:
        raise UnreadableError(text)
    return celsius


def read_power(text: str) -> tuple[tuple[float, ...], str, bool]:
    """Read instant power, mean and maximum, as far as printed; one alone needs its unit.

    The result is in watts, with the text from the first number without its unit on, if others had
    theirs, and whether they had a unit.

    >>> read_power("5139mW/4890mW"), read_power("598mW/598"), read_power("463/470")
    (((5.139, 4.89), '', True), ((0.598,), '/598', True), ((0.463, 0.47), '', False))
    >>> read_power("-392mW/-392mW")
    ((-0.392, -0.392), '', True)
    """
    with_unit = _UNIT_POWER.fullmatch(text)
    if with_unit is not None:
        return _watts_in(with_unit), with_unit[4] or "", True
    plain = _PLAIN_POWER.fullmatch(text)
    if plain is None:
        raise UnreadableError(text)
    return _watts_in(plain), "", False


def _watts_in(found: re.Match[str]) -> tuple[float, ...]:
    return tuple([int(number) / 1000 for number in found.group(1, 2, 3) if number])


def read_load(text: str) -> tuple[float | None, tuple[int, ...]]:
    """Read ``X%``, ``@Y``, ``X%@Y`` or ``X%@[Y,Y]``: one load and the clock of each cluster.

    >>> read_load("79%@[305,0]"), read_load("7%")
    ((0.79, (305000000, 0)), (0.07, ()))
    """
    load, at, clock = text.partition("@")
    ratio = RATIOS.get(load)
    if ratio is None and (load or not at):
        raise UnreadableError(text)
    if not at:
        return ratio, ()
    return ratio, CLOCKS[clock]


def _read_clocks(text: str) -> tuple[int, ...]:
    if text[:1] != "[":
        return (HERTZ[text],)
    return tuple(map(HERTZ.__getitem__, read_items(text)))


def read_items(text: str) -> list[str]:
    """Return the items of a list in brackets."""
    if text[0] != "[" or text[-1] != "]":
        raise UnreadableError(text)
    return text[1:-1].split(",")


def read_percent(text: str) -> float:
    """Read ``7%``."""
    ratio = RATIOS.get(text)
    if ratio is None:
        raise UnreadableError(text)
    return ratio


def read_megahertz(text: str) -> int:
    """Read a bare number of megahertz as hertz."""
    return read_number(text) * HERTZ_PER_MEGAHERTZ


HERTZ = Memory(read_megahertz, 4096)
"""Clocks by their text; a board has few."""
CLOCKS = Memory(_read_clocks, 4096)
"""Clocks of all clusters by their text, ``Y`` or ``[Y,Y]``."""


def show_percent(ratio: float) -> str:
    """Print a ratio as a whole percentage."""
    return f"{round(ratio * 100)}%"


def show_megahertz(hertz: int) -> str:
    """Print a clock as whole megahertz."""
    return str(hertz // HERTZ_PER_MEGAHERTZ)


def show_activity(ratio: float | None, hertz: int | None) -> str:
    """Print ``X%@Y``, ``X%`` or ``@Y``."""
    text = ""
    if ratio is not None:
        text = show_percent(ratio)
    if hertz is not None:
        text += f"@{show_megahertz(hertz)}"
    return text


def show_celsius(celsius: float | None) -> str:
    """Print a temperature in at most thousandths of a degree; None is a zone without power."""
    if celsius is None:
        celsius = GATED_CELSIUS
    return f"{celsius:.3f}".rstrip("0").rstrip(".") + "C"

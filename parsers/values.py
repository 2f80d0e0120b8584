"""Small value types that all rooms share: names of devices, durations and text to print."""

import codecs
import re
from collections.abc import Sequence
from typing import Annotated, Literal, cast, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeFloat, PositiveFloat

DlaDevice = Literal["dla0", "dla1"]
Device = Literal["gpu", DlaDevice, "cpu", "external"]
# Where a body runs and, behind the plus, its head: two engines of one inference.
Pair = Literal["dla0+gpu", "dla1+gpu", "gpu+gpu", "cpu+cpu"]
Accelerator = Literal[Device, Pair]
DLAS: tuple[DlaDevice, ...] = get_args(DlaDevice)

# No two parts of the expression match the same text: it would be tried in every way, and Python's
# ``re`` stops all threads meanwhile.
_NUMBER = r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_DURATION = re.compile(rf"{_NUMBER}\s*(ms|s|m|h|d)?", re.ASCII)
_PERCENT = re.compile(rf"{_NUMBER}\s*%", re.ASCII)
# Of the text of a number with its unit. A longer one is a mistake, not a number.
_LONGEST_NUMBER = 1024
# 100 years: their nanoseconds fit the integers of SQLite and of the operating system's calls.
_LONGEST_DAYS = 36500
_NAMED_AT_MOST = 5
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def accelerator_of(device: Device, head: str | None) -> Accelerator:
    """Return where a workload runs: on a device, or with a head on two.

    >>> accelerator_of("dla0", None), accelerator_of("dla0", "head.onnx")
    ('dla0', 'dla0+gpu')
    """
    if head is None:
        return device
    return next(pair for pair in get_args(Pair) if pair.startswith(f"{device}+"))


def body_device(accelerator: Accelerator) -> Device:
    """Return the device, or that of the body.

    >>> body_device("dla0+gpu"), body_device("gpu")
    ('dla0', 'gpu')
    """
    return cast(Device, accelerator.partition("+")[0])


def decode_text(data: bytes, errors: str = "strict") -> str:
    r"""Decode a file of a person: UTF-8, or UTF-16 with its mark, as PowerShell's ``>`` writes it.

    Raises:
        UnicodeDecodeError: It is neither; not if ``errors`` is ``replace``.

    >>> decode_text(b"\xff\xfea\0"), decode_text(b"\xef\xbb\xbfa")
    ('a', 'a')
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors)
    return data.decode("utf-8-sig", errors)


def read_duration(value: object) -> object:
    """Read ``90``, ``90s``, ``1.5m``, ``2h`` or ``7d`` as seconds; return anything else unchanged.

    Raises:
        ValueError: It is text of another form, not a number, or above 100 years.

    >>> read_duration("1.5m"), read_duration("1009ms")
    (90.0, 1.009)
    """
    if isinstance(value, str):
        found = _number_of(_DURATION, value)
        if found is None:
            raise ValueError("a duration is a number of seconds, or like 500ms, 30s, 5m, 2h, 7d")
        if found[2] == "ms":
            value = float(found[1]) / 1000  # a factor of 0.001 makes 1009ms less than 1.009
        else:
            value = float(found[1]) * _UNIT_SECONDS[found[2]]
    if isinstance(value, (int, float)) and not value <= _LONGEST_DAYS * 86400:
        raise ValueError(f"a duration is at most {_LONGEST_DAYS}d, which is 100 years")
    return value


# A terminal executes these. A line end and a tab do no harm.
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code not in (9, 10)
}
# These change the direction of the text behind them, so a name can look like another, or hide the
# end of its line. The last two are line ends for some programs.
BIDIRECTIONAL = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CONTROLS |= {ord(letter): f"\\u{ord(letter):04x}" for letter in f"{BIDIRECTIONAL}\u2028\u2029"}


def printable(text: str, most: int | None = None) -> str:
    r"""Return text without control characters and lone surrogates, cut to a number of characters.

    >>> print(printable("a\x1b[2Jb"), printable("c\u202ed"), printable("long text", 4))
    a\x1b[2Jb c\u202ed long…
    """
    if most is not None and len(text) > most:
        text = f"{text[:most]}…"
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


def is_unicode(text: str) -> bool:
    r"""Return whether a text has no lone surrogate, which neither UTF-8 nor a database can hold.

    JSON and YAML can write one as an escape, and Python has one for each argument's byte that is
    not UTF-8.

    >>> is_unicode("naïve 😀"), is_unicode("a\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def some_of(names: Sequence[str]) -> str:
    """Return the first five of many names, and how many more there are.

    >>> some_of("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    named = ", ".join(names[:_NAMED_AT_MOST])
    if len(names) <= _NAMED_AT_MOST:
        return named
    return f"{named} and {len(names) - _NAMED_AT_MOST} more"


def read_share(value: object) -> object:
    """Read ``30%`` as 0.3; return anything else unchanged.

    >>> read_share("30%"), read_share(0.3)
    (0.3, 0.3)
    """
    if not isinstance(value, str):
        return value
    found = _number_of(_PERCENT, value)
    if found is None:
        return value
    return float(found[1]) / 100


def _number_of(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Match the text of a number with its unit, without the space around it."""
    short = text.strip()
    if len(short) > _LONGEST_NUMBER:
        return None
    return pattern.fullmatch(short)


Share = Annotated[float, Field(gt=0, le=1), BeforeValidator(read_share)]
# A name that is the value of a label, and part of files and addresses.
LABEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
LABEL_NAME_FORM = (
    "a name: use up to 63 letters, digits, _ . and -, and begin with a letter or digit"
)

Seconds = Annotated[NonNegativeFloat, BeforeValidator(read_duration)]
PositiveSeconds = Annotated[PositiveFloat, BeforeValidator(read_duration)]


class Section(BaseModel):
    """Base of all settings: immutable, finite, and a key that is not declared is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_VERSION = re.compile(r"\d+(?:\.\d+)*", re.ASCII)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> version_numbers("8.5.2.2-1+cuda11.4"), version_numbers("unknown")
    ((8, 5, 2, 2), ())
    """
    found = _VERSION.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()

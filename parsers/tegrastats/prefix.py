r"""The prefix that a recorder adds to a line: a time in front of it, a string of JSON around it.

Recorders write the same times in few forms. A form is read only where it is certain which clock it
is. A bare ``00:00:07`` is not: ``ts -s`` counts from its start, ``ts -i`` from the line before.

Source:
    Docker (``--timestamps``, ``json-file``), the log format of CRI, ``journalctl(1)``, RFC 5424,
    ``ts`` of moreutils, the console of ROS 1 and ROS 2.
"""

import calendar
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final, Literal, NamedTuple

import msgspec

EARLIEST_EPOCH_SECONDS: Final = 100_000_000
"""A number of seconds below this, about three years, does not count from 1970."""
LATEST_SECONDS: Final = 9_000_000_000
"""A later time is damage, and its nanoseconds would not fit."""
LONGEST_PREFIX: Final = 160
"""Characters in front of a record in which a time is looked for."""

_SECOND_NS = 1_000_000_000
_EPOCH_START = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH_START.replace(tzinfo=timezone.utc)
# Times without a year get this one. It is a leap year, and so early that its seconds count as
# those of a clock with an unknown origin.
_NO_YEAR = 1972
_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}

_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_RECORDER = re.compile(rf"({_NUMBER.pattern})::\s*")
_FRACTION = r"(?:[.,](?P<{}>[0-9]{{1,12}}))?"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
_TIME = re.compile(
    # The time is a word of its own, or stands in a bracket, or behind a sign of assignment.
    r"(?:(?<!\S)\[ *|(?<![^\s(\"'=|>]))(?:"
    r"(?P<date>[0-9]{4}[-/][0-9]{2}[-/][0-9]{2})[T ](?P<clock>"
    + _CLOCK
    + ")"
    + _FRACTION.format("part")
    # A blank before the zone is of `date`, and of `ts '%F %T %z'`.
    + r"(?P<zone> ?(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2}))?"
    # The usual form of ts, syslog and journalctl has no year.
    + rf"|(?P<month>{'|'.join(_MONTHS)}) {{1,2}}(?P<day>[0-9]{{1,2}}) (?P<daytime>{_CLOCK})"
    + _FRACTION.format("daypart")
    + r"|(?P<epoch>[0-9]{10}(?:\.[0-9]{1,12})?)"
    # Seconds since boot, as `journalctl -o short-monotonic` and the kernel print them.
    + r"|(?P<uptime>[0-9]{1,8}\.[0-9]{6})(?=\])"
    # Brackets and colons behind it are a part of it.
    + r")(?![^\s\]):,\"'|])[\]):,]*",
)
_TEXT_KEYS = ("log", "message", "MESSAGE", "msg", "content", "line")
_TIME_KEYS = ("time", "timestamp", "@timestamp", "ts", "__REALTIME_TIMESTAMP")
# A number without a point counts seconds, milli-, micro- or nanoseconds, by its digits.
_UNITS_NS = {10: _SECOND_NS, 13: 1_000_000, 16: 1_000, 19: 1}

TimeKind = Literal["unix", "local", "elapsed"]


class Prefix(NamedTuple):
    """The time that a recorder gave to a line, and the text that is left.

    Attributes:
        kind: ``unix``: since 1970 in UTC; ``local``: local time without its zone, counted from 1970
            as if it were UTC; ``elapsed``: since an unknown moment, so only differences count;
            ``None`` if there is no time, or one that no machine can have.
        ns: Nanoseconds of that clock.
        rest: The line without it, or the string that stood in a JSON object.
        end: Place in the line behind the time; 0 without one, or if ``rest`` is not of the line.
    """

    kind: TimeKind | None
    ns: int
    rest: str
    end: int

    @property
    def received_ns(self) -> int | None:
        """Nanoseconds of a clock that does not depend on a time zone."""
        if self.kind in (None, "local"):
            return None
        return self.ns

    @property
    def received(self) -> datetime | None:
        """The time in UTC, to the microsecond, if it is known since when it counts."""
        if self.kind != "unix":
            return None
        seconds, ns = divmod(self.ns, _SECOND_NS)
        return _EPOCH_UTC + timedelta(0, seconds, ns // 1000)

    @property
    def local_time(self) -> datetime | None:
        """The local time in whole seconds, as tegrastats prints it."""
        if self.kind != "local":
            return None
        return _EPOCH_START + timedelta(seconds=self.ns // _SECOND_NS)


def read_prefix(line: str) -> Prefix:
    """Read the time that a recorder put before a line, or into the JSON object around it.

    >>> read_prefix("1750866199.3488::RAM 936/3964MB")[:3]
    ('unix', 1750866199348800000, 'RAM 936/3964MB')
    >>> read_prefix("2025-05-14T21:36:35.5+02:00 stdout F RAM 936/3964MB")[:3]
    ('unix', 1747251395500000000, ' stdout F RAM 936/3964MB')
    >>> read_prefix("[INFO] [1744360587.123] [board]: RAM 936/3964MB").rest
    '[INFO]   [board]: RAM 936/3964MB'
    >>> read_prefix("RAM 936/3964MB")
    Prefix(kind=None, ns=0, rest='RAM 936/3964MB', end=0)
    """
    if begins_plainly(line):
        return Prefix(None, 0, line, 0)
    if line[:1] == "\ufeff":
        # Editors of Windows begin a file with this mark, which belongs to no word.
        line = line[1:]
    if line[:1] == "{" and (inner := _read_json(line)) is not None:
        return inner
    found = _RECORDER.match(line, len(line) - len(line.lstrip()))
    if found is not None:
        kind, ns = _count(found[1]) or (None, 0)
        return Prefix(kind, ns, line[found.end() :], found.end())
    until = line.find("RAM ", 0, LONGEST_PREFIX)
    if until < 0:
        until = LONGEST_PREFIX
    found = _TIME.search(line, 0, until)
    if found is None:
        return Prefix(None, 0, line, 0)
    time = _time_of(found)
    if time is None:
        return Prefix(None, 0, line, 0)
    kind, ns = time
    rest = line[found.end() :]
    if found.start():
        rest = f"{line[: found.start()]} {rest}"
    return Prefix(kind, ns, rest, found.end())


def begins_plainly(line: str) -> bool:
    """Return whether a line begins as tegrastats prints it: with RAM, or with its own date."""
    return line[:4] == "RAM " or line[2:6:3] == "--"


def recorder_ns(text: str) -> int | None:
    """Return the nanoseconds of a prefix ``1750866199.3488::`` without its colons, or None.

    >>> recorder_ns("1750866199.3488")
    1750866199348800000
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    return _nanoseconds(text)


def prefix_before(line: str, at: int) -> int:
    """Return where the last time before a place in a line begins, or the place without one."""
    begin = at
    earliest = max(0, at - LONGEST_PREFIX)
    for found in _RECORDER.finditer(line, earliest, at):
        if _count(found[1]) is not None:
            begin = found.start()
    for found in _TIME.finditer(line, earliest, at):
        if _time_of(found) is not None:
            begin = found.start()
    return begin


def _time_of(found: "re.Match[str]") -> tuple[TimeKind, int] | None:
    """Return clock and nanoseconds of a time, or None if no clock shows it."""
    parts = found.groupdict()
    number = parts["epoch"] or parts["uptime"]
    if number:
        return _count(number)
    if parts["month"]:
        date = f"{_NO_YEAR}-{_MONTHS[parts['month']]:02}-{int(parts['day']):02}"
        ns = _since_1970(date, parts["daytime"], parts["daypart"])
        if ns is None:
            return None
        return "elapsed", ns
    ns = _since_1970(parts["date"].replace("/", "-"), parts["clock"], parts["part"])
    if ns is None:
        return None
    zone = (parts["zone"] or "").strip()
    if not zone:
        return "local", ns
    ns -= _offset_seconds(zone) * _SECOND_NS
    if ns < 0:
        return None
    return "unix", ns


def _count(number: str) -> tuple[TimeKind, int] | None:
    """Return clock and nanoseconds of a number of seconds."""
    ns = _nanoseconds(number)
    if ns is None:
        return None
    if ns < EARLIEST_EPOCH_SECONDS * _SECOND_NS:
        return "elapsed", ns
    return "unix", ns


def _nanoseconds(text: str) -> int | None:
    whole, _, fraction = text.partition(".")
    if int(whole) > LATEST_SECONDS:
        return None
    return int(whole + fraction[:9].ljust(9, "0"))


def _since_1970(date: str, clock: str, fraction: str | None) -> int | None:
    try:
        time = datetime.fromisoformat(f"{date}T{clock}")
    except ValueError:
        return None
    seconds = (time - _EPOCH_START) // timedelta(seconds=1)
    if not 0 <= seconds <= LATEST_SECONDS:
        return None
    return seconds * _SECOND_NS + int((fraction or "")[:9].ljust(9, "0"))


def _offset_seconds(zone: str) -> int:
    if zone in ("Z", "UTC"):
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    if zone[0] == "-":
        return -seconds
    return seconds


def _read_json(line: str) -> Prefix | None:
    """Return time and text of a line that is one JSON object, or None.

    Docker's json-file driver, ``journalctl -o json`` and most collectors of logs write such lines.
    """
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (ValueError, RecursionError):
        return None
    text = _first_text(fields)
    if text is None:
        return None
    inner = Prefix(None, 0, text, 0)
    if text[:1] != "{":
        # A time inside the text is nearer to its source.
        inner = read_prefix(text)
    if inner.kind is not None:
        return inner._replace(end=0)
    kind, ns = _json_time(fields) or (None, 0)
    return Prefix(kind, ns, inner.rest, 0)


def _first_text(fields: Mapping[str, Any]) -> str | None:
    for key in _TEXT_KEYS:
        if isinstance(fields.get(key), str):
            return str(fields[key])
    return None


def _json_time(fields: Mapping[str, Any]) -> tuple[TimeKind, int] | None:
    for key in _TIME_KEYS:
        value = fields.get(key)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            continue
        text = str(value)
        if len(text) in _UNITS_NS and text.isascii() and text.isdigit():
            return "unix", int(text) * _UNITS_NS[len(text)]
        found = _TIME.fullmatch(text)
        if found is not None:
            return _time_of(found)
    return None

"""Where a time that a person wrote down lies in a recorded log."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from ..parsers.errors import Mendable
from .given_runs import Moment

Integers = NDArray[np.int64]

_SECOND_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)
_ZONE = "write times with their UTC offset, and give the log's zone: --timezone Europe/Berlin"


class Place(NamedTuple):
    """A place in a log.

    Attributes:
        ns: Since its first record.
        error_ns: By how much it may be off, beyond the error of the records there.
        jumped: The clock showed that time twice.
    """

    ns: int
    error_ns: int
    jumped: bool


class Stretch(NamedTuple):
    """Records between two jumps of a clock.

    Attributes:
        begin_ns: First of them, since the first record of the log.
        end_ns: Last of them.
        offset_ns: What the clock showed less that time.
        error_ns: By how much that may be off.
    """

    begin_ns: int
    end_ns: int
    offset_ns: int
    error_ns: int


@dataclass(frozen=True, slots=True)
class LogClock:
    """The clocks of one log.

    Attributes:
        unix: Stretches of the epoch prefix; empty where there is none.
        local: Stretches of the printed time; empty where there is none.
        zone: The zone of the printed time, where it is known.
        error_ns: Of the first record.
    """

    unix: Sequence[Stretch]
    local: Sequence[Stretch]
    zone: tzinfo | None = None
    error_ns: int = 0

    def places(self, moment: Moment) -> list[Place]:
        """Return where in the log a moment lies: once, or twice where the clock went back.

        Raises:
            Mendable: The log does not tell that clock, or its clock jumped over the moment.
        """
        if moment.clock == "elapsed":
            return [Place(moment.ns, self.error_ns, False)]
        if moment.clock == "unix":
            if self.unix:
                return _find(self.unix, moment.ns)
            if not self.local:
                raise Mendable("the log tells no time", "write seconds since its first record")
            if self.zone is None:
                raise Mendable("the log prints local time without its zone", _ZONE)
            local_ns, fold = _to_local(moment.ns, self.zone)
            places = _find(self.local, local_ns)
            if len(places) > 1 and fold is not None:
                return [places[-1 if fold else 0]._replace(jumped=False)]
            return places
        if self.local:
            return _find(self.local, moment.ns)
        if not self.unix:
            raise Mendable("the log tells no time", "write seconds since its first record")
        if self.zone is None:
            raise Mendable("the log prints no local time", _ZONE)
        return [place for ns in _to_unix(moment.ns, self.zone) for place in _find(self.unix, ns)]

    def wall_ns(self, at_ns: int) -> int | None:
        """Return nanoseconds since 1970 of a place in the log; ``None`` where it is not known."""
        if self.unix:
            return at_ns + _stretch_at(self.unix, at_ns).offset_ns
        if not self.local or self.zone is None:
            return None
        stretch = _stretch_at(self.local, at_ns)
        found = _to_unix(at_ns + stretch.offset_ns, self.zone)
        later = stretch.begin_ns > self.local[0].begin_ns
        return found[-1 if later else 0]


def stretches(elapsed_ns: Integers, shown_ns: Integers, resolution_ns: int) -> list[Stretch]:
    """Cut a clock at its jumps, and tell its offset in each stretch.

    A clock that is cut off to whole seconds is up to a second behind; the offset is such that
    it is so for every record, or for as many as can be.

    Args:
        elapsed_ns: shape (n,), rising, when each record was printed.
        shown_ns: shape (n,), what the clock showed.
        resolution_ns: To what the clock was cut off; 0 for an exact one.
    """
    if not len(elapsed_ns):
        return []
    behind = shown_ns - elapsed_ns
    jumps = np.flatnonzero(np.abs(np.diff(behind)) > resolution_ns + _SECOND_NS // 2) + 1
    found = []
    for part in np.split(np.arange(len(behind)), jumps):
        low, high = int(behind[part].max()), int(behind[part].min()) + resolution_ns
        offset, error = (low + high) // 2, abs(high - low) // 2
        found.append(Stretch(int(elapsed_ns[part[0]]), int(elapsed_ns[part[-1]]), offset, error))
    return found


def _find(clock: Sequence[Stretch], shown_ns: int) -> list[Place]:
    """Return the places at which a clock showed a time; the first and last stretch go on."""
    places = []
    for i, one in enumerate(clock):
        ns = shown_ns - one.offset_ns
        # Between the last record before a jump and the first after it nobody knows which.
        begin = clock[i - 1].end_ns if i else one.begin_ns
        end = clock[i + 1].begin_ns if i + 1 < len(clock) else one.end_ns
        if begin <= ns <= end:
            places.append(Place(ns, one.error_ns, False))
    if len(places) > 1:
        return [place._replace(jumped=True) for place in places]
    if not places:
        first, last = clock[0], clock[-1]
        if shown_ns < first.begin_ns + first.offset_ns:
            places.append(Place(shown_ns - first.offset_ns, first.error_ns, False))
        elif shown_ns > last.end_ns + last.offset_ns:
            places.append(Place(shown_ns - last.offset_ns, last.error_ns, False))
        else:
            raise Mendable(
                "the log's clock jumped over that time", "write seconds since its first record"
            )
    return places


def _stretch_at(clock: Sequence[Stretch], at_ns: int) -> Stretch:
    return next((one for one in clock if at_ns <= one.end_ns), clock[-1])


def _to_local(unix_ns: int, zone: tzinfo) -> tuple[int, int | None]:
    """Return local time as if it were UTC, and for an hour that comes twice, which it is."""
    seconds, fraction = divmod(unix_ns, _SECOND_NS)
    local = (_EPOCH.replace(tzinfo=timezone.utc) + timedelta(seconds=seconds)).astimezone(zone)
    twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
    shown = local.replace(tzinfo=None) - _EPOCH
    return round(shown.total_seconds()) * _SECOND_NS + fraction, local.fold if twice else None


def _to_unix(local_ns: int, zone: tzinfo) -> list[int]:
    """Return when a local time was, earlier first; twice where summer time ends."""
    seconds, fraction = divmod(local_ns, _SECOND_NS)
    local = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=zone)
    found = {round(local.replace(fold=fold).timestamp()) * _SECOND_NS + fraction for fold in (0, 1)}
    return sorted(found)


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by its name.

    Raises:
        Mendable: This machine knows none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Mendable(
            f"no time zone {name!r} is known here",
            "name one like Europe/Berlin; where none is known, pip install tzdata",
        ) from None

"""The loads of our runs on the simulated board, by lane and time."""

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ...parsers.errors import UserError

LANES = ("gpu", "dla0", "dla1", "cpu", "emc")
MOST_CHANGES = 8192


class Segment(NamedTuple):
    """A stretch of time in which no load (0…1 by lane, default 0) changed."""

    begin_ns: int
    end_ns: int
    ratios: dict[str, float]


class LoadChange(NamedTuple):
    """A load of 0…1 that begins at some time after the start."""

    at_seconds: float
    lane: str
    ratio: float


class LoadBoard:
    """The loads of all lanes over the last while; from any thread.

    A change has its own time, so it may be set a little late or ahead. Time that has been read is
    settled: a change from before counts from there on. Some thousand changes per lane are
    remembered; before them a lane has the load that it had then.

    >>> board = LoadBoard()
    >>> board.set("gpu", 1.0, at_ns=100)
    >>> board.set("gpu", 0.0, at_ns=150)
    >>> [(one.begin_ns, one.end_ns, one.ratios["gpu"]) for one in board.between(90, 200)]
    [(90, 100, 0.0), (100, 150, 1.0), (150, 200, 0.0)]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histories: dict[tuple[str, str], _History] = {}
        self._settled_ns = 0

    def set(self, lane: str, ratio: float, at_ns: int | None = None, holder: str = "") -> None:
        """Set a lane's load.

        Args:
            lane: ``gpu``, ``dla0``, ``dla1``, ``cpu`` or ``emc``; a board has no use for others.
            ratio: 0 is idle, 1 is a lane that computes without a pause.
            at_ns: Time of the change; ``None`` is now.
            holder: Name of the load; several on one lane add up, to 1 at most.
        """
        if not 0 <= ratio <= 1:
            raise ValueError(f"{lane}: a load of {ratio} is not within 0 and 1")
        if at_ns is None:
            at_ns = time.monotonic_ns()
        with self._lock:
            history = self._histories.setdefault((lane, holder), _History())
            history.add(max(at_ns, self._settled_ns), ratio)

    def between(self, begin_ns: int, end_ns: int) -> list[Segment]:
        """Return the loads of a stretch of time, cut where any of them changes."""
        with self._lock:
            if end_ns <= begin_ns:
                return []
            cuts = {begin_ns, end_ns}
            for history in self._histories.values():
                cuts.update(history.cuts(begin_ns, end_ns))
            return [Segment(begin, end, self._at(begin)) for begin, end in pairwise(sorted(cuts))]

    def take(self, begin_ns: int, end_ns: int) -> list[Segment]:
        """Return the loads as ``between`` does, and settle them up to the end."""
        with self._lock:
            self._settled_ns = max(self._settled_ns, end_ns)
        return self.between(begin_ns, end_ns)

    def busy_ratio(self, lane: str, begin_ns: int, end_ns: int) -> float:
        """Return the mean load of a lane over a stretch of time."""
        total = sum(
            (one.end_ns - one.begin_ns) * one.ratios.get(lane, 0.0)
            for one in self.between(begin_ns, end_ns)
        )
        return total / (end_ns - begin_ns) if end_ns > begin_ns else 0.0

    def _at(self, at_ns: int) -> dict[str, float]:
        ratios: dict[str, float] = {}
        for (lane, _), history in self._histories.items():
            ratios[lane] = min(1.0, ratios.get(lane, 0.0) + history.at(at_ns))
        return ratios


class _History:
    """The loads of one lane, by the time at which each began."""

    def __init__(self) -> None:
        self._at_ns: list[int] = []
        self._ratios: list[float] = []
        self._before = 0.0

    def add(self, at_ns: int, ratio: float) -> None:
        place = bisect_right(self._at_ns, at_ns)
        self._at_ns.insert(place, at_ns)
        self._ratios.insert(place, ratio)
        if len(self._at_ns) > MOST_CHANGES:
            half = MOST_CHANGES // 2
            self._before = self._ratios[half - 1]
            del self._at_ns[:half], self._ratios[:half]

    def at(self, at_ns: int) -> float:
        place = bisect_right(self._at_ns, at_ns)
        return self._ratios[place - 1] if place else self._before

    def cuts(self, begin_ns: int, end_ns: int) -> list[int]:
        first, last = bisect_right(self._at_ns, begin_ns), bisect_right(self._at_ns, end_ns)
        return self._at_ns[first:last]


def read_load_file(path: Path, lanes: Collection[str] = LANES) -> list[LoadChange]:
    """Read a schedule of loads, in the order of their times.

    Args:
        path: CSV with the header ``at_seconds,lane,ratio`` and rows in any order, for instance
            ``12.5,dla0,1`` and then ``20,dla0,0``. Blank lines and lines that begin with ``#``
            are skipped.

    Raises:
        UserError: The file cannot be read, or a line in it, which is named.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})", "name a CSV file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text", "name a CSV file") from error
    header = list(LoadChange._fields)
    changes: list[LoadChange] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        try:
            if changes is not None:
                changes.append(_change(cells, lanes))
            elif cells == header:
                changes = []
            else:
                raise UserError(f"the header is {line.strip()!r}", f"write {','.join(header)}")
        except UserError as error:
            raise UserError(f"{path} line {number}: {error.message}", error.remedy) from None
    if changes is None:
        raise UserError(f"{path} is empty", f"begin it with {','.join(header)}")
    return sorted(changes, key=lambda change: change.at_seconds)


def _change(cells: list[str], lanes: Collection[str]) -> LoadChange:
    if len(cells) != len(LoadChange._fields):
        raise UserError(f"{len(cells)} cells", f"write {','.join(LoadChange._fields)}")
    at_text, lane, ratio_text = cells
    if lane not in lanes:
        raise UserError(f"the board has no lane {lane!r}", f"use one of {', '.join(lanes)}")
    ratio = _number("ratio", ratio_text)
    if ratio > 1:
        raise UserError(f"ratio is {ratio_text!r}", "write a number from 0 to 1")
    return LoadChange(_number("at_seconds", at_text), lane, ratio)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{name} is {text!r}", "write a number that is 0 or more")
    return value

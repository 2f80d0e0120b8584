"""Lines of many layouts become columns in one pass.

A log changes its layout all the time: an engine goes on or off, a core is plugged in. So the
layouts stand behind each other in flat tables, one row a run, and the runs of all lines of a
block are looked up there together, whatever their layouts are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .block_layout import (
    DECIMAL,
    KILOBYTES,
    MEGABYTES,
    NEGATIVE,
    PERCENTAGE,
    BlockLayout,
    epoch_ns,
    seconds_of,
)
from .digits import (
    LENGTH_BITS,
    LENGTH_SHIFT,
    VALUE_BITS,
    WIDE_BIT,
    Flags,
    Floats,
    Integers,
    Runs,
    read_decimals,
)
from .errors import ParseError
from .flat import flatten
from .lexer import BYTES, GATED_CELSIUS, HERTZ_PER_MEGAHERTZ
from .recorded_time import ABSENT

_SECONDS_A_DAY = 86_400
_NO_COLUMN = -1
_HUNDRED = (3 << LENGTH_SHIFT) | 100
_SIZES = ((KILOBYTES, BYTES["kB"]), (MEGABYTES, BYTES["MB"]))


@dataclass(frozen=True, slots=True)
class Decoded:
    """Lines as columns.

    Attributes:
        good: shape (m,), which of the lines that were given are of their layout; n of them.
        names: Of the columns.
        values: shape (columns, n), NaN where a line does not say it.
        printed_seconds: shape (n,), local time as printed, as if it were UTC, since 1970;
            ``ABSENT`` where none is.
        received_ns: shape (n,), epoch prefix; ``ABSENT`` where none is.
        unparsed_words: Words that are not understood.
    """

    good: Flags
    names: tuple[str, ...]
    values: Floats
    printed_seconds: Integers
    received_ns: Integers
    unparsed_words: int


@dataclass(frozen=True, slots=True)
class _Flat:
    """Entries of all layouts behind each other.

    Attributes:
        starts: shape (layouts + 1,), the first entry of each, and how many there are.
        columns: shape (entries,), number of the column; -1 is none.
    """

    starts: Integers
    columns: Integers

    def places(self, layouts: Integers) -> tuple[Integers, Integers]:
        """Return the entries of a layout a line, line by line, and the line of each."""
        counts = self.starts[layouts + 1] - self.starts[layouts]
        return _stretches(self.starts[layouts], counts), np.repeat(np.arange(len(layouts)), counts)


class LayoutTable:
    """Layouts by number; a table never changes, ``grown`` gives a larger one.

    Attributes:
        names: Of all columns of all layouts.
    """

    def __init__(
        self,
        rows: "Sequence[_Row]" = (),
        names: Sequence[str] = (),
        behind: "LayoutTable | None" = None,
    ) -> None:
        """Set up the tables.

        Args:
            rows: Layouts.
            names: Of all columns.
            behind: A table that has the first of them.
        """
        self._rows = tuple(rows)
        rows = rows[0 if behind is None else len(behind) :]
        self.names = tuple(names)
        self._units = tuple(map(_unit, names))

        def whole(field: str, parts: Iterable[Any], kind: type) -> Any:
            old = np.empty(0, kind) if behind is None else getattr(behind, field)
            return np.concatenate([old, *parts])

        def flat(field: str, parts: Sequence[Integers]) -> _Flat:
            nothing = _Flat(np.zeros(1, np.int64), np.empty(0, np.int64))
            old = nothing if behind is None else getattr(behind, field)
            starts = old.starts[-1] + np.cumsum([len(part) for part in parts], dtype=np.int64)
            return _Flat(
                np.concatenate((old.starts, starts)), np.concatenate([old.columns, *parts])
            )

        layouts = [row.layout for row in rows]
        self._runs = flat("_runs", [row.columns for row in rows])
        self._like = whole("_like", (one.like for one in layouts), np.int64)
        self._bits = whole("_bits", (one.bits for one in layouts), np.int64)
        self._kinds = whole("_kinds", (one.kinds for one in layouts), np.uint8)
        self._copies = flat("_copies", [row.copies for row in rows])
        self._copy_runs = whole("_copy_runs", (row.copy_runs for row in rows), np.int64)
        self._copy_is_gate = whole("_copy_is_gate", (row.copy_is_gate for row in rows), np.bool_)
        self._constants = flat("_constants", [row.constants for row in rows])
        self._constant_values = whole(
            "_constant_values", (row.constant_values for row in rows), np.float64
        )
        self._time_at = whole("_time_at", ([one.time_at] for one in layouts), np.int64)
        self._epoch_at = whole("_epoch_at", ([one.epoch_at] for one in layouts), np.int64)
        self._unparsed = whole(
            "_unparsed", ([len(one.sample.unparsed)] for one in layouts), np.int64
        )

    def __len__(self) -> int:
        return len(self._rows)

    def grown(self, layouts: Iterable[BlockLayout]) -> "LayoutTable":
        """Return a table of these layouts behind those that are here."""
        numbers = {name: number for number, name in enumerate(self.names)}
        rows = [_make_row(layout, numbers) for layout in layouts]
        return LayoutTable((*self._rows, *rows), tuple(numbers), self)

    def decode(self, block: bytes, runs: Runs, lines: Integers, layouts: Integers) -> Decoded:
        """Read lines that are the same as one of their layout, but for their digits.

        Args:
            block: The lines.
            runs: Their numbers.
            lines: shape (m,), which lines, rising.
            layouts: shape (m,), the layout of each.
        """
        firsts = runs.first[lines]
        counts = runs.first[lines + 1] - firsts
        good = counts == self._runs.starts[layouts + 1] - self._runs.starts[layouts]
        if not good.all():
            firsts, counts, layouts = firsts[good], counts[good], layouts[good]
        entries, line_of_run = self._runs.places(layouts)
        packed, text = runs.packed, runs.text
        if len(entries) != len(packed):
            at = _stretches(firsts, counts)
            packed, text = packed[at], text[at]
        kinds = self._kinds[entries]
        same = np.ones(len(firsts), np.bool_)
        apart = (packed ^ self._like[entries]) & self._bits[entries]
        other = np.flatnonzero(apart != 0)
        number = packed[other] & (LENGTH_BITS | VALUE_BITS)
        is_hundred = (
            (apart[other] == WIDE_BIT) & (number == _HUNDRED) & (kinds[other] == PERCENTAGE)
        )
        same[line_of_run[other[~is_hundred]]] = False
        decimals = np.flatnonzero(kinds >= DECIMAL)
        celsius, formed = read_decimals(packed[decimals], text[decimals])
        same[line_of_run[decimals[~formed]]] = False
        printed_seconds, received_ns = self._times(block, runs, firsts, layouts, same)

        read = (packed & VALUE_BITS).astype(np.float64)
        for kind, unit in _SIZES:
            read[kinds == kind] *= unit
        celsius[kinds[decimals] == NEGATIVE] *= -1
        celsius[celsius == GATED_CELSIUS] = np.nan
        read[decimals] = celsius
        if not same.all():
            good[good] = same
        used = self._used(layouts[same])
        values = self._place(used, layouts, counts, same, entries, line_of_run, read)
        return Decoded(
            good,
            tuple(self.names[number] for number in used.tolist()),
            values,
            printed_seconds[same],
            received_ns[same],
            int(self._unparsed[layouts[same]].sum()),
        )

    def _place(
        self,
        used: Integers,
        layouts: Integers,
        counts: Integers,
        same: Flags,
        entries: Integers,
        line_of_run: Integers,
        read: Floats,
    ) -> Floats:
        """Put all that was read where it belongs, in base units.

        Returns:
            shape (used columns, lines that are the same).
        """
        rows = int(same.sum())
        # What has no column is put behind the table.
        nowhere = len(used) * rows
        begin = np.full(len(self.names) + 1, nowhere)
        begin[used] = np.arange(len(used)) * rows
        row_of_line = np.cumsum(same) - 1
        flat = np.full(nowhere + rows, np.nan)

        def put(table: _Flat, places: Integers, lines: Integers, numbers: Floats) -> None:
            if rows < len(same):
                kept = same[lines]
                places, lines, numbers = places[kept], lines[kept], numbers[kept]
            flat[begin[table.columns][places] + row_of_line[lines]] = numbers

        put(self._runs, entries, line_of_run, read)
        copies, line_of_copy = self._copies.places(layouts)
        if len(copies):
            first_run = np.cumsum(counts) - counts
            copied = read[first_run[line_of_copy] + self._copy_runs[copies]]
            is_on = np.where(self._copy_is_gate[copies], copied > 0, copied)
            put(self._copies, copies, line_of_copy, is_on)
        constants, line_of_constant = self._constants.places(layouts)
        put(self._constants, constants, line_of_constant, self._constant_values[constants])
        values = flat[:nowhere].reshape(len(used), rows)
        for column, number in zip(values, used.tolist(), strict=True):
            factor, divisor = self._units[number]
            if factor != 1:
                column *= factor
            elif divisor != 1:
                column /= divisor
        return values

    def gives_back(
        self, block: bytes, runs: Runs, lines: Integers, layouts: Integers
    ) -> list[bool]:
        """Tell which layouts make of their own line what the general path made of it.

        Args:
            block: The lines.
            runs: Their numbers.
            lines: shape (m,), the line that each layout was learnt from, rising.
            layouts: shape (m,), which layouts.
        """
        found = self.decode(block, runs, lines, layouts)
        told = iter(zip(found.values.T.tolist(), found.printed_seconds.tolist(), strict=True))
        return [
            is_good and self._is_right(number, found.names, *next(told))
            for is_good, number in zip(found.good.tolist(), layouts.tolist(), strict=True)
        ]

    def _is_right(
        self, number: int, names: Sequence[str], values: Sequence[float], seconds: int
    ) -> bool:
        sample = self._rows[number].layout.sample
        said = {name: value for name, value in zip(names, values, strict=True) if value == value}
        return seconds == seconds_of(sample.time) and said == flatten(sample)

    def _used(self, layouts: Integers) -> Integers:
        """Return the numbers of the columns of some layouts."""
        used = np.zeros(len(self.names) + 1, np.bool_)
        for number in np.unique(layouts).tolist():
            used[self._rows[number].used] = True
        return np.flatnonzero(used[:_NO_COLUMN])

    def _times(
        self, block: bytes, runs: Runs, firsts: Integers, layouts: Integers, same: Flags
    ) -> tuple[Integers, Integers]:
        """Read printed times and epoch prefixes; mark the lines that have none such."""
        printed_seconds = np.full(len(firsts), ABSENT)
        received_ns = np.full(len(firsts), ABSENT)
        time_at, epoch_at = self._time_at[layouts], self._epoch_at[layouts]
        has_time = np.flatnonzero(time_at >= 0)
        if len(has_time):
            first = firsts[has_time] + time_at[has_time]
            times = runs.packed[first + np.arange(6)[:, None]] & VALUE_BITS
            printed_seconds[has_time], valid = _seconds(times)
            same[has_time[~valid]] = False
        has_epoch = np.flatnonzero(epoch_at >= 0)
        if len(has_epoch):
            at = firsts[has_epoch] + epoch_at[has_epoch]
            ends = runs.ends[at]
            begins = ends - ((runs.packed[at] & LENGTH_BITS) >> LENGTH_SHIFT)
            for line, begin, end in zip(
                has_epoch.tolist(), begins.tolist(), ends.tolist(), strict=True
            ):
                try:
                    received_ns[line] = epoch_ns(block[begin:end].decode())
                except ParseError:
                    same[line] = False
        return printed_seconds, received_ns


def _stretches(begins: Integers, counts: Integers) -> Integers:
    """Return the numbers of stretches, behind each other: ``count`` of them from ``begin`` on."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places: Integers = np.arange(total) + np.repeat(begins - (ends - counts), counts)
    return places


@dataclass(frozen=True, slots=True)
class _Row:
    """One layout with numbers for names."""

    layout: BlockLayout
    columns: Integers
    copies: Integers
    copy_runs: Integers
    copy_is_gate: Flags
    constants: Integers
    constant_values: Floats
    used: Integers


def _make_row(layout: BlockLayout, numbers: dict[str, int]) -> _Row:
    """Number the columns of a layout, and note those that are new."""

    def number(names: Iterable[str | None]) -> Integers:
        found = [
            _NO_COLUMN if name is None else numbers.setdefault(name, len(numbers)) for name in names
        ]
        return np.array(found, np.int64)

    columns = number(layout.names)
    copies = number(name for _, name, _ in layout.copies)
    constants = number(layout.constants)
    return _Row(
        layout,
        columns,
        copies,
        np.array([run for run, _, _ in layout.copies], np.int64),
        np.array([is_gate for _, _, is_gate in layout.copies], np.bool_),
        constants,
        np.array(list(layout.constants.values()), np.float64),
        np.unique(np.concatenate((columns, copies, constants))),
    )


def _unit(name: str) -> tuple[float, float]:
    """Return by what the printed numbers of a column are multiplied, and divided."""
    family, _, path = name.partition(".")
    field = path.rstrip(".0123456789").rpartition(".")[2]
    if family == "rails":
        return 1.0, 1000.0
    if family.startswith("temperatures_"):
        return 1.0, 1.0
    if family == "edp_limit_hertz" or field == "frequency_hertz":
        return float(HERTZ_PER_MEGAHERTZ), 1.0
    return (1.0, 100.0) if field.endswith("_ratio") else (1.0, 1.0)


def _seconds(times: Integers) -> tuple[Integers, Flags]:
    """Return the time of month, day, year, hour, minute, second, and where there is such one."""
    month, day, year, hour, minute, second = times
    valid = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    valid &= (hour <= 23) & (minute <= 59) & (second <= 59)
    months = ((year - 1970) * 12 + np.where(valid, month, 1) - 1).astype("datetime64[M]")
    first_day = months.astype("datetime64[D]").astype(np.int64)
    late = np.flatnonzero(day > 28)
    if len(late):
        next_month = (
            (months[late] + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64)
        )
        valid[late] &= first_day[late] + day[late] <= next_month
    days = first_day + day - 1
    seconds: Integers = days * _SECONDS_A_DAY + hour * 3600 + minute * 60 + second
    return seconds, valid

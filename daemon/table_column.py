"""A column of a table, filled a piece at a time and kept as pandas keeps it; imported late.

A value is brought to its type while it is still in the processor's cache; once the table has
grown to gigabytes, every further look at all of it would cost as much as reading the log did.
"""

from typing import Any, Protocol

import numpy as np
import pandas
from numpy.typing import NDArray

from ..parsers.digits import Floats
from ..parsers.signals import dtype_of

_TRUE, _MISSING = 1, 2


class Column(Protocol):
    """Values of rows that come one after the other; missing where none came."""

    def put(self, at: int, values: Floats, capacity: int) -> None:
        """Put values below those that are there.

        Args:
            at: Row of the first; rows between the last one and this are missing.
            values: NaN for what is missing.
            capacity: How many rows to make room for, if there is none.
        """

    def finish(self, rows: int) -> Any:
        """Return so many rows as pandas keeps them; ``None`` where there is no value in them."""


def make_column(name: str, capacity: int) -> Column:
    """Return a column without rows, of the type that its name says."""
    kinds: dict[str, type[Numbers | Integers | Booleans]] = {
        "float64": Numbers,
        "Int64": Integers,
        "boolean": Booleans,
    }
    return kinds[dtype_of(name)](capacity)


class _Rows:
    """Memory for rows, most of which are there to come."""

    def __init__(self, kind: Any, missing: Any, capacity: int) -> None:
        self.all: NDArray[Any] = np.empty(capacity, kind)
        self._missing = missing
        self._filled = 0

    def extend(self, at: int, rows: int, capacity: int) -> NDArray[Any]:
        """Return room for rows from ``at`` on; those before it that nobody filled are missing."""
        if at + rows > len(self.all):
            roomy = np.empty(capacity, self.all.dtype)
            roomy[: self._filled] = self.all[: self._filled]
            self.all = roomy
        self.all[self._filled : at] = self._missing
        self._filled = at + rows
        return self.all[at : self._filled]


class Numbers:
    """Floating-point numbers: NaN is missing."""

    def __init__(self, capacity: int) -> None:
        """Begin without rows."""
        self._values = _Rows(np.float64, np.nan, capacity)
        self._says_something = False

    def put(self, at: int, values: Floats, capacity: int) -> None:
        """Put values below those that are there."""
        self._values.extend(at, len(values), capacity)[:] = values
        self._says_something = self._says_something or not np.isnan(values).all()

    def finish(self, rows: int) -> Any:
        """Return so many rows."""
        self._values.extend(rows, 0, rows)
        return self._values.all[:rows] if self._says_something else None


class Integers:
    """Whole numbers, and beside each whether it is missing."""

    def __init__(self, capacity: int) -> None:
        """Begin without rows."""
        self._values = _Rows(np.int64, 0, capacity)
        self._missing = _Rows(np.bool_, True, capacity)
        self._says_something = False

    def put(self, at: int, values: Floats, capacity: int) -> None:
        """Put values below those that are there."""
        missing = self._missing.extend(at, len(values), capacity)
        integers = self._values.extend(at, len(values), capacity)
        np.isnan(values, out=missing)
        if missing.any():
            np.copyto(integers, np.where(missing, 0, values), casting="unsafe")
            self._says_something = self._says_something or not missing.all()
        else:
            np.copyto(integers, values, casting="unsafe")
            self._says_something = self._says_something or len(values) > 0

    def finish(self, rows: int) -> Any:
        """Return so many rows."""
        self._values.extend(rows, 0, rows)
        self._missing.extend(rows, 0, rows)
        if not self._says_something:
            return None
        return pandas.arrays.IntegerArray(self._values.all[:rows], self._missing.all[:rows])


class Booleans:
    """Yes and no, in a byte each: there are many such columns, and memory is what is dear."""

    def __init__(self, capacity: int) -> None:
        """Begin without rows."""
        self._values = _Rows(np.uint8, _MISSING, capacity)

    def put(self, at: int, values: Floats, capacity: int) -> None:
        """Put values below those that are there."""
        said = self._values.extend(at, len(values), capacity)
        np.not_equal(values, 0, out=said.view(np.bool_))  # NaN is unlike anything
        said[np.isnan(values)] = _MISSING

    def finish(self, rows: int) -> Any:
        """Return so many rows."""
        self._values.extend(rows, 0, rows)
        said = self._values.all[:rows]
        missing = said == _MISSING
        return None if missing.all() else pandas.arrays.BooleanArray(said == _TRUE, missing)

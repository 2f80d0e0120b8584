"""Arithmetic on rows of numbers: the daemon does without numpy, whose import is heavy."""

from collections.abc import Sequence
from itertools import pairwise
from math import fsum
from operator import mul
from statistics import fmean
from typing import TypeVar

N = TypeVar("N", int, float)

NORMAL_95 = 1.959964
"""Half the width of the 95 % interval of a normal distribution, in standard deviations."""
# Where the series of ``student_95`` is too short.
_FEW = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}


def student_95(freedom: float) -> float:
    """Return the two-sided 95 % factor of Student's distribution (three terms of its series).

    >>> round(student_95(10), 2), round(student_95(1e9), 2)
    (2.23, 1.96)
    """
    z = NORMAL_95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def student(freedom: int) -> float:
    """Return the same factor, also for few degrees of freedom."""
    return _FEW.get(freedom) or student_95(freedom)


def differences(values: Sequence[N]) -> list[N]:
    """Return each value less the one before it."""
    return [after - before for before, after in pairwise(values)]


def dot(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the sum of the products of two rows, as far as both go."""
    return fsum(map(mul, first, second))


def less(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return each value of a row less that of another row."""
    return [value - other for value, other in zip(values, others, strict=True)]


def about_mean(values: Sequence[float]) -> list[float]:
    """Return each value less the mean of all."""
    mean = fmean(values)
    return [value - mean for value in values]


def product(matrix: Sequence[Sequence[float]], column: Sequence[float]) -> list[float]:
    """Return the product of a matrix with a column."""
    return [dot(row, column) for row in matrix]


def inverse(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the inverse of a positive definite matrix, by the method of Gauss and Jordan."""
    n = len(matrix)
    rows: list[list[float]] = []
    for i, given in enumerate(matrix):
        unit = [0.0] * n
        unit[i] = 1.0
        rows.append([*map(float, given), *unit])
    for i, pivot_row in enumerate(rows):
        pivot = pivot_row[i]
        pivot_row[:] = [value / pivot for value in pivot_row]
        for j, row in enumerate(rows):
            if j != i:
                factor = row[i]
                row[:] = [a - factor * b for a, b in zip(row, pivot_row, strict=True)]
    return [row[n:] for row in rows]

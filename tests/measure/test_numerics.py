"""The factors of intervals and the inverse of a matrix, against their definitions."""

import math

import pytest

from tegrascope.daemon.measure.numerics import inverse, product, student


def within(factor: float, freedom: int) -> float:
    """Return how much of Student's distribution lies within a factor of zero, by Simpson's rule."""
    log_height = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    height = math.exp(log_height) / math.sqrt(freedom * math.pi)
    steps = 2000
    total = 0.0
    for step in range(steps + 1):
        weight = 1 if step in (0, steps) else 2 + step % 2 * 2
        at = factor * step / steps
        total += weight * (1 + at**2 / freedom) ** (-(freedom + 1) / 2)
    return 2 * height * total * factor / steps / 3


@pytest.mark.parametrize("freedom", [*range(1, 13), 30, 1000])
def test_95_percent_of_students_distribution_lie_within_its_factor(freedom):
    assert within(student(freedom), freedom) == pytest.approx(0.95, abs=0.0015)


def test_inverse_of_a_matrix_undoes_it():
    """A Hilbert matrix is positive definite, and nothing in it is zero."""
    matrix = [[1 / (row + column + 1) for column in range(4)] for row in range(4)]
    values = [3.0, -1.0, 0.5, 7.0]
    assert product(inverse(matrix), product(matrix, values)) == pytest.approx(values, rel=1e-9)

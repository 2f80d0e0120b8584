"""No text from outside can stop the interpreter by an expression that is slow for it."""

import re

import pytest

from tests.expressions import ROOMS, Expression, find_expressions, slow_ones


@pytest.mark.parametrize("room", ROOMS)
def test_every_expression_is_linear_in_its_text(room):
    expressions = list(find_expressions(room))
    assert len(expressions) > 3
    assert all(expression.methods for expression in expressions)
    assert slow_ones(expressions) == []


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"\s*([0-9]*\.?[0-9]+)\s*(ms|s)?\s*", "fullmatch"),
        (r"\)+$", "sub"),
        (r"(?:a+)+b", "match"),
    ],
)
def test_an_expression_that_is_not_linear_is_found(pattern, method):
    assert slow_ones([Expression("here", re.compile(pattern), frozenset({method}))])

"""What a question gives as numbers."""

import math

from starlette.exceptions import HTTPException
from starlette.requests import Request


def number(
    request: Request, name: str, default: float | None, low: float, high: float
) -> float | None:
    """Return a number of the query.

    Args:
        request: The question.
        name: Of the parameter.
        default: What it is where it is not given.
        low: Least that it may be.
        high: Most that it may be.

    Raises:
        HTTPException: It is no number, or beyond its bounds; the answer says so.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise HTTPException(400, f"{name} is a number from {low:g} to {high:g}, not {text!r}")
    return value

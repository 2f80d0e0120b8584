"""What is asked of each model: how often, and by when."""

from collections.abc import Sequence
from difflib import get_close_matches
from math import isfinite

from pydantic import PositiveFloat

from ...parsers.errors import Misused
from ...parsers.records import Record
from ...parsers.values import read_duration
from .search import MOST_TASKS


class Demand(Record):
    """A model that is to run.

    Attributes:
        name: Of the model.
        rate_per_second: Inputs a second.
        deadline_seconds: Of an inference.
        is_deadline_given: Whether it was said; else it is the time from one input to the next.
    """

    name: str
    rate_per_second: PositiveFloat
    deadline_seconds: PositiveFloat
    is_deadline_given: bool = False


def read_demands(rates: str, deadlines: str | None, known: Sequence[str]) -> tuple[Demand, ...]:
    """Read ``yolo=30,seg=10`` and ``yolo=33ms``.

    Args:
        rates: Inputs a second by model.
        deadlines: By model; one that is not named has until its next input.
        known: Names of the models of which there are results.

    Raises:
        Misused: It is of another form, or names a model that is not known.
    """
    by_rate = _pairs(rates, "--rates", "yolo=30,seg=10")
    by_deadline = _pairs(deadlines or "", "--deadlines", "yolo=33ms,seg=0.2s")
    if not by_rate:
        raise Misused("--rates names no model", "say it like yolo=30,seg=10")
    if len(by_rate) > MOST_TASKS:
        raise Misused(
            f"--rates names {len(by_rate)} models", f"ask for at most {MOST_TASKS} at once"
        )
    demands = []
    for name, text in by_rate.items():
        _must_be_known(name, known, "no result is of")
        rate = _positive(text, f"--rates {name}={text}", "a number of inputs a second, like 30")
        late = by_deadline.pop(name, None)
        deadline = 1 / rate if late is None else _seconds(name, late)
        demands.append(
            Demand(
                name=name,
                rate_per_second=rate,
                deadline_seconds=deadline,
                is_deadline_given=late is not None,
            )
        )
    for name in by_deadline:
        _must_be_known(name, list(by_rate), "--rates does not name")
    return tuple(demands)


def _pairs(text: str, option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, mark, value = (piece.strip() for piece in part.partition("="))
        if not (name and mark and value):
            raise Misused(f"{option} {part!r} is no NAME=VALUE", f"say it like {example}")
        if name in found:
            raise Misused(f"{option} names {name} twice", "name it once")
        found[name] = value
    return found


def _must_be_known(name: str, known: Sequence[str], what: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
    raise Misused(f"{what} {name!r}", hint)


def _positive(text: str, what: str, form: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not isfinite(value) or value <= 0:
        raise Misused(f"{what} is no number above 0", f"give {form}")
    return value


def _seconds(name: str, text: str) -> float:
    try:
        value = read_duration(text)
    except ValueError as error:
        raise Misused(f"--deadlines {name}={text}", str(error)) from None
    return _positive(str(value), f"--deadlines {name}={text}", "a time above 0, like 33ms")

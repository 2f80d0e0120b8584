"""The demands of ``advise``: rates and deadlines by model, read from its options."""

from collections.abc import Sequence
from difflib import get_close_matches
from math import isfinite

from ...parsers.errors import Misused
from ...parsers.values import read_duration
from .problem import MOST_MODELS
from .records import Demand


def read_demands(rates: str, deadlines: str | None, known: Sequence[str]) -> tuple[Demand, ...]:
    """Read rates like ``yolo=30,seg=10`` and deadlines like ``yolo=33ms``.

    Args:
        rates: Inputs per second by model.
        deadlines: By model; by default until the next input.
        known: Names of the models that have results.

    Raises:
        Misused: A text has another form, or names an unknown model.
    """
    by_rate = _pairs(rates, "--rates", "yolo=30,seg=10")
    by_deadline = _pairs(deadlines or "", "--deadlines", "yolo=33ms,seg=0.2s")
    if not by_rate:
        raise Misused("--rates names no model", "give it like yolo=30,seg=10")
    if len(by_rate) > MOST_MODELS:
        raise Misused(
            f"--rates names {len(by_rate)} models", f"ask for at most {MOST_MODELS} at once"
        )
    demands = []
    for name, text in by_rate.items():
        _must_be_known(name, known, "there is no result of")
        rate = _positive(text, f"--rates {name}={text}", "a number of inputs per second, like 30")
        deadline = by_deadline.pop(name, None)
        demands.append(
            Demand(
                name=name,
                rate_per_second=rate,
                deadline_seconds=1 / rate if deadline is None else _seconds(name, deadline),
                is_deadline_given=deadline is not None,
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
            raise Misused(f"{option} {part!r} is not NAME=VALUE", f"give it like {example}")
        if name in found:
            raise Misused(f"{option} names {name} twice", "name it once")
        found[name] = value
    return found


def _must_be_known(name: str, known: Sequence[str], problem: str) -> None:
    if name in known:
        return
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
    raise Misused(f"{problem} {name!r}", hint)


def _positive(text: str, given: str, form: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not isfinite(value) or value <= 0:
        raise Misused(f"{given} is not a number above 0", f"give {form}")
    return value


def _seconds(name: str, text: str) -> float:
    given = f"--deadlines {name}={text}"
    try:
        value = read_duration(text)
    except ValueError as error:
        raise Misused(given, str(error)) from None
    return _positive(str(value), given, "a time above 0, like 33ms")

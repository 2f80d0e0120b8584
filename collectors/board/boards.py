"""Which board this is, and what its power rails mean; the rules are data in ``boards.toml``."""

import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

from pydantic import Field, PositiveFloat

from ...parsers.records import Record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class DlaRail(Record):
    """The rail in which the power of the DLA is seen."""

    rail: str
    shared_with: str = Field(alias="with")


class RailRule(Record):
    """How the rails of one board add up; ``step`` is in watts by rail, with a ``default``."""

    name: str
    rails: tuple[str, ...]
    exact: bool = False
    total: tuple[str, ...]
    excluded: dict[str, str] = {}
    step: dict[str, PositiveFloat]
    dla: DlaRail | None = None

    def step_watts(self, rail: str) -> float:
        """Return the smallest step of a rail's reading, in watts."""
        return self.step.get(rail, self.step["default"])


@cache
def rail_rules() -> tuple[RailRule, ...]:
    """Return the rules of all known boards, in the order in which they are tried."""
    text = Path(__file__).with_name("boards.toml").read_text(encoding="utf-8")
    return tuple(RailRule.model_validate(board) for board in tomllib.loads(text)["board"])


def find_rail_rule(rails: Collection[str]) -> RailRule | None:
    """Return the first rule whose rails are all there; ``None`` for an unknown board.

    An unknown board has rails but no total.

    >>> find_rail_rule(["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]).total
    ('VDD_IN',)
    """
    found = set(rails)
    for rule in rail_rules():
        rails_of_rule = set(rule.rails)
        if rails_of_rule == found or (rails_of_rule < found and not rule.exact):
            return rule
    return None

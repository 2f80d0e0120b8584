"""A figure with its interval, and how what was measured ended: what all results are made of."""

from typing import Literal

from ...parsers.records import Record
from ..measure.run_report import Flag

Status = Literal["ok", "unavailable", "failed", "cancelled"]
# A flag of the runs, or one of the bench's own.
BenchFlag = Flag | Literal["wrong_outputs", "unchecked_outputs"]


class Figure(Record):
    """The mean of an accelerator's rounds.

    Attributes:
        value: The mean.
        low: Lower end of its 95 % interval; ``None`` where that cannot be told.
        high: Upper end.
    """

    value: float
    low: float | None = None
    high: float | None = None

"""A line of the reader of context switches."""

from typing import Literal

from pydantic import NonNegativeInt

from ..records import Record

Trouble = Literal["lost", "unpaired", "clock", "reset", "unknown"]


class ContextUse(Record):
    """How long contexts of each process were on the GPU in a period: one line of JSON.

    Attributes:
        span_ns: Length of the period.
        process_ns: Nanoseconds by number of the process; 0 stands for what is not known.
        troubles: How often entries did not fit together, by reason.
        unavailable: Reason why nothing can be read, with the remedy; the rest is empty.
    """

    span_ns: NonNegativeInt = 0
    process_ns: dict[NonNegativeInt, NonNegativeInt] = {}
    troubles: dict[Trouble, NonNegativeInt] = {}
    unavailable: str | None = None

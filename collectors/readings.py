"""What is made of one small file at each reading: a column or two."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from .kernel_file import KernelFile, to_number

Column = tuple[str, float]


class Reading(Protocol):
    """One file, and what its text means; two are equal that say the same of the same file.

    Attributes:
        file: It.
    """

    @property
    def file(self) -> KernelFile: ...  # noqa: D102

    def take(self, text: str, now_ns: int) -> Iterator[Column]:
        """Yield columns of a text that was read just now; nothing of one that makes no sense."""


@dataclass(frozen=True)
class Scaled:
    """A number as it stands, in another unit.

    Attributes:
        file: Where it stands.
        column: Its name.
        per: How many of the file's units make one of the column's.
        most: More than this is no value, nor is less than 0: a driver's way to say that it has
            none.
    """

    file: KernelFile
    column: str
    per: float = 1.0
    most: float = 1e15

    def take(self, text: str, now_ns: int) -> Iterator[Column]:  # noqa: ARG002
        """Yield the number, where it is one and in its bounds."""
        number = to_number(text)
        if number is not None and 0 <= number / self.per <= self.most:
            yield self.column, number / self.per

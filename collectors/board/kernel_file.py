"""One small file of the kernel, read again and again: a number in ``/sys`` or ``/proc``."""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_PAGE_BYTES = 4096
# A FIFO or a device must not hold the reader up, so it is opened without waiting and refused.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class KernelFile:
    """A file that may not be there, may not be readable, and may go away.

    It stays open between readings, which costs a seventh of opening it each time: the kernel makes
    the text anew for every read from the start.
    """

    def __init__(
        self, path: Path, *, stays_open: bool = True, most_bytes: int = _PAGE_BYTES
    ) -> None:
        """Name the file; the first reading opens it.

        Args:
            stays_open: False for a file of a disk, which a writer may replace.
            most_bytes: Size of a reading; a file of ``/sys`` is at most a page.
        """
        self.path = path
        self._stays_open = stays_open
        self._most_bytes = most_bytes
        self._opened: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelFile) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def text(self) -> str | None:
        """Return the text of the file, without the white space around it.

        ``None`` if the file is missing, not readable, not a plain file or not UTF-8, or if its
        driver refuses at present.
        """
        try:
            if self._opened is None:
                self._opened = _open(self.path)
            data = os.pread(self._opened, self._most_bytes, 0)
        except OSError:
            self.close()  # the driver may have gone and come back: it is looked for next time
            return None
        if not self._stays_open:
            self.close()
        try:
            # Texts of the device tree end in a NUL.
            return data.decode().strip("\0 \t\r\n")
        except UnicodeDecodeError:
            return None

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with contextlib.suppress(OSError):
                os.close(opened)


def to_number(text: str | None) -> float | None:
    """Read a whole number as the kernel prints it.

    >>> to_number("1300500000"), to_number("-5"), to_number("0x10"), to_number("")
    (1300500000.0, -5.0, None, None)
    """
    if text is None or len(text) > 20:
        return None
    digits = text[1:] if text.startswith("-") else text
    return float(text) if digits.isascii() and digits.isdigit() else None


def read_text(path: Path, most_bytes: int = _PAGE_BYTES) -> str | None:
    """Return the text of a small file, read once; ``None`` as of ``KernelFile.text``."""
    return KernelFile(path, stays_open=False, most_bytes=most_bytes).text()


def read_number(path: Path) -> float | None:
    """Return the number in a small file, read once."""
    return to_number(read_text(path))


def _open(path: Path) -> int:
    opened = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(f"{path} is not a plain file")
    except OSError:
        os.close(opened)
        raise
    return opened


Column = tuple[str, float]


class Reading(Protocol):
    """One file and the meaning of its text."""

    @property
    def file(self) -> KernelFile: ...  # noqa: D102

    def take(self, text: str, now_ns: int) -> Iterator[Column]:
        """Yield the columns of a text that was read just now; none if it is not valid."""


@dataclass(frozen=True)
class Scaled:
    """A number, divided by ``per``; more than ``most`` or less than 0 means no value."""

    file: KernelFile
    column: str
    per: float = 1.0
    most: float = 1e15

    def take(self, text: str, now_ns: int) -> Iterator[Column]:  # noqa: ARG002, D102
        number = to_number(text)
        if number is not None and 0 <= number / self.per <= self.most:
            yield self.column, number / self.per

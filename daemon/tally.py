"""What became of the lines of recorded logs."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counts of lines, kept while logs are read.

    Attributes:
        lines: How many there were.
        records: How many were records.
        skipped: How many were none, by reason.
        unparsed_words: Words in records that were not understood.
        unreadable: Files that could not be read, or not to their end.
        bytes_read: How much of the files has been read, before it was unzipped.

    >>> print(Tally(lines=3, records=1, skipped=Counter(noise=2), unparsed_words=1))
    3 lines: 1 records, 2 skipped (2 noise); 1 words not understood
    """

    lines: int = 0
    records: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    unparsed_words: int = 0
    unreadable: int = 0
    bytes_read: int = 0

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.items())
        skipped = f"{self.skipped.total()} skipped{f' ({reasons})' if reasons else ''}"
        words = f"; {self.unparsed_words} words not understood" if self.unparsed_words else ""
        return f"{self.lines} lines: {self.records} records, {skipped}{words}"

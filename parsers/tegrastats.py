"""One line of tegrastats becomes a Sample, as fast as Python can.

Lines of one board look alike: the same labels in the same places, and values that were there a
moment ago. So the general path (``tokenizer.py``) reads the first line of a layout, and what it
found is kept as a ``LineLayout``, by which the next ones are read and checked word by word. A
line that differs in anything that matters goes to the general path again.
"""

from .errors import ParseError as ParseError
from .line_layout import LineLayout, learn
from .records import Sample
from .tokenizer import LONGEST_LINE, cut_line, tokenize
from .value_memory import Memories

MOST_LAYOUTS = 64
MOST_VALUES = 4096


class LineParser:
    """Reads lines, best those of one log; lines of any other are read right all the same.

    Any thread may use it, and several at once.
    """

    def __init__(self, most_values: int = MOST_VALUES) -> None:
        """Prepare.

        Args:
            most_values: How many values of one kind are remembered, some 300 bytes each.
        """
        self._memories = Memories(most_values)
        self._layouts: dict[int, tuple[LineLayout, ...]] = {}

    def parse(self, line: str, *, keep_line: bool = False) -> Sample:
        """Read one line; see ``parse_line``.

        Raises:
            ParseError: The line holds no record.
        """
        # Words are cut at blanks alone at first. What else cuts a line, such as a quotation mark,
        # would stand inside a word then, and no layout has such words; but for an epoch prefix.
        words = line.split()
        known = self._layouts.get(len(words))
        if known is not None and "::" not in words[0] and len(line) <= LONGEST_LINE:
            source_line = line if keep_line else None
            sample = known[0].read(words, source_line) or self._search(words, source_line)
            if sample is not None:
                return sample
        text, exact_words = cut_line(line)
        if exact_words != words:
            sample = self._search(exact_words, text if keep_line else None)
            if sample is not None:
                return sample
        reading = tokenize(line, keep_line=keep_line)
        learnt = learn(reading, self._memories)
        if learnt is not None:
            if sum(map(len, self._layouts.values())) >= MOST_LAYOUTS:
                self._layouts = {}
            self._prefer(learnt, len(exact_words))
        return reading.sample

    def _search(self, words: list[str], source_line: str | None) -> Sample | None:
        """Read a line by the first layout that fits."""
        for layout in self._layouts.get(len(words), ()):
            sample = layout.read(words, source_line)
            if sample is not None:
                self._prefer(layout, len(words))
                return sample
        return None

    def _prefer(self, layout: LineLayout, words: int) -> None:
        """Let a layout be tried first: the next line will look like this one."""
        others = (other for other in self._layouts.get(words, ()) if other != layout)
        self._layouts[words] = (layout, *others)


_SHARED = LineParser()


def parse_line(line: str, *, keep_line: bool = False) -> Sample:
    """Read one line of tegrastats.

    Nothing but a ParseError is ever raised, whatever the text. A wrapper's words before the
    record, a second record behind it, a name that stands there twice and every word of unknown
    shape are in ``unparsed``; an epoch prefix (``1750866199.3488::``) is dropped, and ``NC``
    rails, which are monitor channels that lead nowhere, are ignored.

    Args:
        line: A line as it was read, with or without its end.
        keep_line: Whether the Sample is to hold the line.

    Returns:
        The record in base units; what the line does not say is ``None`` or empty.

    Raises:
        ParseError: The line holds no record: neither ``RAM`` with two sizes nor two other
            tokens that prose does not have (a temperature, a rail in mW, a list of cores, a
            load with its clock). The reason is one of ``PARSE_REASONS``.

    Source:
        "Tegrastats Utility", Jetson Linux Developer Guide, R32 to R38; lines of boards from
        TK1 to Thor, R24 to R39.

    >>> sample = parse_line("RAM 936/3964MB (lfb 366x4MB) NVDLA0 off tj@47.5C VDD_IN 5139mW/4890mW")
    >>> sample.rails["VDD_IN"].instant_watts, sample.dla[0].state, sample.temperatures_celsius
    (5.139, 'off', {'tj': 47.5})
    >>> parse_line("make: *** [all] Error 2")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ParseError: noise: 'make: *** [all] Error 2'
    """
    return _SHARED.parse(line, keep_line=keep_line)

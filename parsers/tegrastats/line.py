"""One line of tegrastats becomes a Sample, and a Sample a line."""

import re
from contextlib import suppress
from itertools import pairwise
from typing import Final, Literal, NamedTuple, get_args

from ..errors import ParseError, UnreadableError
from ..records import Sample
from . import board, processors
from .prefix import Prefix, begins_plainly, prefix_before, read_prefix
from .tokens import Draft, NextRecordError, RestartError, Token, UnknownToken

KINDS: Final[tuple[type[Token], ...]] = (
    *(board.TimeToken, board.RamToken, board.SwapToken, board.IramToken, processors.CoresToken),
    *(processors.EmcToken, processors.GpuToken, processors.SecondClusterToken),
    *(processors.EngineToken, processors.MtsToken, processors.EdpToken),
    *(board.ZoneToken, board.RailToken, UnknownToken),
)
"""Every kind of token, in the order in which they are printed; no word fits two of them."""

_BY_LABEL: Final[dict[str, type[Token]]] = {}
for _kind in KINDS:
    _BY_LABEL.update(dict.fromkeys(_kind.LABELS, _kind))
_BY_SHAPE: Final = tuple(kind for kind in KINDS if "match" in vars(kind))


def find_token(word: str, value: str) -> Token:
    """Return the token that a word begins, by the shape of the word behind it.

    >>> [type(find_token("CPU", value)).__name__ for value in ("[5%@729]", "311/311")]
    ['CoresToken', 'RailToken']
    """
    if word in _BY_LABEL:
        return _BY_LABEL[word](word)
    for kind in _BY_SHAPE:
        token = kind.match(word, value)
        if token is not None:
            return token
    return UnknownToken(word)


ParseReason = Literal["empty", "noise", "long"]
PARSE_REASONS: Final[tuple[ParseReason, ...]] = get_args(ParseReason)
"""Why a line is not a record: only blanks; no sign of tegrastats in it; over LONGEST_LINE."""

LONGEST_LINE: Final = 65_536
"""Characters; the longest line known has about 800, and what is read must stay bounded."""

MOST_TOKENS: Final = 4096

MOST_RECORDS: Final = 512
"""Records of a line; a longer line has no room for more real ones."""

MOST_NAMES: Final = 256
"""Zones, rails and engines of a line together; a board has about 40, and each is a time series."""

# Without a RAM token, so many tokens of a shape that prose does not have make a record.
_SIGNS_NEEDED = 2

# A record begins with RAM, or with the printed time before it.
_BEGINNING = re.compile(
    r"(?:[0-9]{2}-[0-9]{2}-[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} +)?(?<![A-Za-z_])RAM [0-9]+/[0-9]+MB"
)
_ESCAPED_BLANK = re.compile(r"\\[nrt]")
_SURROGATE = re.compile("[\ud800-\udfff]")

Tokens = list[tuple[Token, int]]
"""The tokens of a line, each with the place of its first word."""


class LineParser:
    """Reads lines of any boards; it remembers the tokens that it has met.

    Several threads may use it at once.
    """

    def __init__(self) -> None:
        self._known: dict[str, Token] = {}
        # `CPU` begins the cores and a rail of AGX Xavier: a second kind of token by its word.
        self._second: dict[str, Token] = {}
        self._zones = board.ZoneToken()

    def parse(self, line: str, *, keep_line: bool = False, is_cut: bool = False) -> Sample:
        """Read one line, as ``parse_line`` does."""
        if len(line) > LONGEST_LINE:
            raise ParseError("long", line)
        text = rest = line
        if not line.isascii():
            text = rest = _SURROGATE.sub("\ufffd", line)
        prefix = None
        if not begins_plainly(text):
            prefix = read_prefix(text)
            rest = prefix.rest
        words = split_words(rest)
        cut_word = None
        if is_cut and len(words) > 1 and not text[-1].isspace():
            cut_word = words.pop()
        draft = self.read(line, words, prefix=prefix)
        if cut_word is not None:
            draft.leave(cut_word)
        return draft.sample(text if keep_line else None)

    def parse_all(
        self, line: str, *, keep_line: bool = False, is_cut: bool = False
    ) -> list[Sample]:
        """Read all records of one line, as ``parse_records`` does."""
        pieces = split_records(line)
        if len(pieces) == 1:
            return [self.parse(line, keep_line=keep_line, is_cut=is_cut)]
        samples: list[Sample] = []
        failure: ParseError | None = None
        for piece in pieces:
            is_last = piece is pieces[-1]
            try:
                cut = piece.is_cut or (is_last and is_cut)
                samples.append(self.parse(piece.text, keep_line=keep_line, is_cut=cut))
            except ParseError as error:
                failure = failure or error
        if failure is not None and not samples:
            raise failure
        return samples

    def read(
        self,
        line: str,
        words: list[str],
        tokens: Tokens | None = None,
        prefix: Prefix | None = None,
    ) -> Draft:
        """Read the words of a line; raise ParseError if it is not a record.

        ``words`` are those without the prefix, and ``tokens`` receives the tokens, which are
        complete if the draft is regular.
        """
        if not words:
            raise ParseError("empty", line)
        start, draft = 0, None
        while draft is None:
            try:
                draft = self._read(Draft(words, start), start, tokens)
            except RestartError as error:
                # The words before it are the remnant of another record.
                start, tokens = error.at, None
        is_record = draft.ram_at is not None or draft.signs >= _SIGNS_NEEDED
        if not is_record or len(draft.zones) + len(draft.rails) + len(draft.engines) > MOST_NAMES:
            raise ParseError("noise", line)
        if prefix is not None and prefix.kind is not None:
            draft.receive(prefix.received, prefix.local_time)
        return draft

    def _read(self, draft: Draft, at: int, tokens: Tokens | None) -> Draft:
        """Read the words from a place on, to the end of the record."""
        # Looked up once: the loop runs for each of some fifty tokens of a line.
        words, known, end, zones = draft.words, self._known, draft.end, self._zones
        try:
            while at < end:
                token = known.get(words[at], zones)
                try:
                    used = token.read(draft, at)
                except UnreadableError:
                    token, used = self._read_other(draft, at, token)
                if tokens is not None:
                    tokens.append((token, at))
                at += used
        except NextRecordError:
            draft.leave(*words[at:end])
        return draft

    def _read_other(self, draft: Draft, at: int, failed: Token) -> tuple[Token, int]:
        """Read a word that begins a new token, or one of another kind than it did before."""
        word = draft.words[at]
        second = self._second.get(word)
        if second is not None:
            with suppress(UnreadableError):
                return second, second.read(draft, at)
        token = find_token(word, draft.words[at + 1])
        if type(token) is not type(failed):
            with suppress(UnreadableError):
                used = token.read(draft, at)
                if len(self._known) >= MOST_TOKENS:
                    self._known, self._second = {}, {}
                if isinstance(token, UnknownToken):
                    return token, used
                if word in self._known:
                    self._second[word] = token
                else:
                    self._known[word] = token
                return token, used
        unknown = UnknownToken(word)
        return unknown, unknown.read(draft, at)


_SHARED = LineParser()


def parse_line(line: str, *, keep_line: bool = False, is_cut: bool = False) -> Sample:
    """Read one line of tegrastats.

    Only a ParseError is ever raised, whatever the text. A wrapper's words before the record, a
    second record behind it, a name that stands there twice and every word of unknown shape are in
    ``unparsed``, and so are values that no board can have: a temperature of 9999 °C, or more
    memory in use than there is. The time of a recorder (``1750866199.3488::``; the forms are in
    ``prefix``) is ``received``, and ``NC`` rails, which are monitor channels that are not
    connected, are ignored.

    Args:
        line: The line, with or without its newline.
        keep_line: Keep the line in ``source_line``.
        is_cut: The line ends without its newline, so that its last word may be incomplete; that
            word is left in ``unparsed``.

    Returns:
        The record in base units; a value that the line does not contain is None or empty.

    Raises:
        ParseError: The line is not a record: neither ``RAM`` with two sizes nor two other
            tokens that prose does not have (a temperature, a rail in mW, a list of cores, a
            load with its clock), or it has more names than ``MOST_NAMES``. The reason is one of
            ``PARSE_REASONS``.

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
    return _SHARED.parse(line, keep_line=keep_line, is_cut=is_cut)


def parse_records(line: str, *, keep_line: bool = False, is_cut: bool = False) -> list[Sample]:
    """Read a line in which several records may stand, and return them, at least one.

    Text that is not a record is left out beside one that is. Raises as ``parse_line`` otherwise.

    >>> [sample.ram.used_bytes >> 20 for sample in parse_records("RAM 1/4MB RAM 3/4MB")]
    [1, 3]
    """
    return _SHARED.parse_all(line, keep_line=keep_line, is_cut=is_cut)


def render_line(sample: Sample) -> str:
    """Print a Sample as one line, without its newline, in the form of R36.

    Engines, zones and rails stand in the order of their mappings. Numbers are rounded to what
    tegrastats prints: whole MB, MHz, percent and mW, thousandths of a degree. Maxima make it
    an R39 line. ``unparsed`` and ``source_line`` are not printed.

    ``parse_line`` makes the same record of the line if the numbers were on that grid.

    Raises:
        ValueError: The format cannot express it: a core that is online without a load, a load of
            the memory controller without its clock, a cluster load without the other one.

    >>> render_line(parse_line("RAM 936/3964MB (lfb 366x4MB) APE 174 tj@40.500C VDD_IN 5139/4890"))
    'RAM 936/3964MB (lfb 366x4MB) APE 174 tj@40.5C VDD_IN 5139mW/4890mW'
    """
    texts: list[str] = []
    for kind in KINDS:
        texts.extend(kind.render(sample))
    return " ".join(texts)


class Piece(NamedTuple):
    """The text of one record, and whether its last word may be incomplete."""

    text: str
    is_cut: bool


def split_records(line: str) -> list[Piece]:
    """Split a line in which several records stand, as after a lost newline or in a pasted note.

    Each record but the first begins with ``RAM``, or with the time before it. Text in front of the
    first record belongs to that. A record that touches the next one was cut.

    >>> [piece.text for piece in split_records("RAM 1/2MB tj@40C RAM 3/4MB tj@41C")]
    ['RAM 1/2MB tj@40C ', 'RAM 3/4MB tj@41C']
    """
    # An expression would take longer than the rest of most lines.
    if line.count("RAM ") - line.count("IRAM ") < 2:
        return [Piece(line, False)]
    text = line
    if line[:1] == "{":
        text = read_prefix(line).rest
    text = _ESCAPED_BLANK.sub("  ", text)
    beginnings = list(_BEGINNING.finditer(text))[1:MOST_RECORDS]
    if not beginnings:
        return [Piece(line, False)]
    starts = [prefix_before(text, beginning.start()) for beginning in beginnings]
    pieces: list[Piece] = []
    for begin, end in pairwise([0, *starts, len(text)]):
        is_last = end == len(text)
        is_cut = not is_last and not text[end - 1 : end].isspace()
        pieces.append(Piece(text[begin:end], is_cut))
    return pieces


def split_words(line: str) -> list[str]:
    r"""Return the words of a line that has no prefix any more.

    A quotation mark is a word of its own, as a wrapper may glue one to either end of a record,
    and so is the bracket that ``IRAM 0/252kB(lfb 252kB)`` has no blank before.

    The newline of a record stands as two characters in a string of another format.

    >>> split_words('tegra="RAM 1/2MB  IRAM 0/252kB(lfb 252kB)\\n"')
    ['tegra=', '"', 'RAM', '1/2MB', 'IRAM', '0/252kB', '(lfb', '252kB)', '"']
    """
    if "\\" in line:
        line = _ESCAPED_BLANK.sub(" ", line)
    if "B(" in line:
        line = line.replace("B(", "B (")
    if '"' in line:
        line = line.replace('"', ' " ')
    return line.split()

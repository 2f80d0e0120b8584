"""The grammar of a line of tegrastats: one class per kind of token.

tegrastats prints one record per line, without header or version, and uses one label for several
things: a line of an AGX Xavier contains ``CPU [..]``, ``CPU@37C`` and ``CPU 311/311``. So a kind is
recognised by its label and the shape of the word behind it, never by its place in the line.

Each class has the same four methods. ``match`` returns the token that a word can begin, ``read``
puts the values of its words into a record, ``columns`` assigns its numbers to the columns of
``signals``, and ``render`` prints the tokens of a record. ``KINDS`` lists the classes.
"""

from typing import Final

from .board import IramToken, RailToken, RamToken, SwapToken, TimeToken, ZonesToken
from .processors import (
    CoresToken,
    EdpToken,
    EmcToken,
    EngineToken,
    GpuToken,
    MtsToken,
    SecondClusterToken,
)
from .tokens import Token, UnknownToken

KINDS: Final[tuple[type[Token], ...]] = (
    *(TimeToken, RamToken, SwapToken, IramToken, CoresToken, EmcToken, GpuToken),
    *(SecondClusterToken, EngineToken, MtsToken, EdpToken, ZonesToken, RailToken),
    UnknownToken,
)
"""Every kind of token, in the order in which they are printed; no word fits two of them."""


def find_token(word: str, value: str) -> Token:
    """Return the token that a word begins, by the shape of the word behind it.

    >>> [type(find_token("CPU", value)).__name__ for value in ("[5%@729]", "311/311")]
    ['CoresToken', 'RailToken']
    """
    tokens = (kind.match(word, value) for kind in KINDS)
    return next(token for token in tokens if token is not None)

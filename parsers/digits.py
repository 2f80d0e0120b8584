"""All numbers of a block of lines, found and read at once.

A *run* is digits and decimal points without anything between them. What stands between two runs
is a *gap*. Of each run there is one integer that says everything of it but where decimal points
are, so that a comparison of integers compares a line with another one:

| bits | what |
|---|---|
| 0 to 31 | its value, where it is at most eight digits and nothing else |
| 32 to 47 | length of the gap before it, from the begin of the line for the first one |
| 48 to 55 | its length |
| 56 | it has a decimal point |
| 57 | it is longer than eight characters |
| 58 | it is longer than two characters, as no percentage but 100 is |
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CHARACTERS = b"0123456789."

VALUE_BITS = 0xFFFFFFFF
GAP_BITS = 0xFFFF << 32
LENGTH_SHIFT = 48
LENGTH_BITS = 0xFF << LENGTH_SHIFT
POINT_BIT = 1 << 56
LONG_BIT = 1 << 57
WIDE_BIT = 1 << 58

LONGEST_NUMBER = 8
LONGEST_PERCENTAGE = 2
MOST_GAP = 0xFFFF
NEWLINE, POINT, ZERO = 10, 46, 48

_PADDING = 8
_LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
# Set in every digit, not set in a decimal point.
_DIGIT_BITS = np.uint64(0x1010101010101010)
_EIGHT = np.uint64(8)
_PAIRS = np.uint64(0x000000FF000000FF)
_FIRST_PAIRS = np.uint64(100 + (1_000_000 << 32))
_SECOND_PAIRS = np.uint64(1 + (10_000 << 32))
# Length and what follows from it, by length.
_LENGTH_MARKS = np.array(
    [
        (length << LENGTH_SHIFT)
        | (LONG_BIT if length > LONGEST_NUMBER else 0)
        | (WIDE_BIT if length > LONGEST_PERCENTAGE else 0)
        for length in range(256)
    ]
)
_POWERS = 10.0 ** np.arange(_PADDING)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a block of n lines.

    Attributes:
        packed: shape (r,), see above.
        text: shape (r,), the last eight characters up to the end of each, the last one in the
            highest byte.
        ends: shape (r,), place in the block of the character behind each.
        first: shape (n + 1,), number of the first run of each line, and of all runs.
        line_ends: shape (n,), place in the block of each newline.
    """

    packed: Integers
    text: Words
    ends: Integers
    first: Integers
    line_ends: Integers


def find_runs(block: bytes) -> Runs:
    r"""Find and read the runs of a block.

    Args:
        block: Whole lines, each with its newline.

    >>> runs = find_runs(b"RAM 12/345MB\nCV0@47.5C\n")
    >>> (runs.packed & VALUE_BITS)[:3].tolist(), runs.first.tolist()
    ([12, 345, 0], [0, 2, 4])
    """
    padded = np.empty(_PADDING + len(block), np.uint8)
    padded[:_PADDING] = NEWLINE
    padded[_PADDING:] = np.frombuffer(block, np.uint8)
    inside = (padded - np.uint8(ZERO)) < 10
    inside |= padded == POINT
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    starts, ends = edges[0::2], edges[1::2]
    line_ends = np.flatnonzero(padded[_PADDING:] == NEWLINE) + _PADDING
    line_starts = np.empty(len(line_ends) + 1, np.int64)
    line_starts[0] = _PADDING
    np.add(line_ends, 1, out=line_starts[1:])
    first = np.searchsorted(starts, line_starts)

    before = np.empty_like(ends)
    before[1:] = ends[:-1]
    has_runs = first[1:] > first[:-1]
    before[first[:-1][has_runs]] = line_starts[:-1][has_runs]
    lengths = ends - starts
    gaps = np.minimum(starts - before, MOST_GAP)

    # The eight characters up to the end of each run are loaded as one integer, unaligned.
    everywhere: Words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    text = everywhere[ends - _PADDING]
    outside = _outside(lengths)
    packed = _value(((text & _LOW_NIBBLES) >> outside) << outside).view(np.int64)
    packed |= gaps << 32
    packed |= (((~text & _DIGIT_BITS) >> outside) != 0) * np.int64(POINT_BIT)
    packed |= _LENGTH_MARKS[np.minimum(lengths, len(_LENGTH_MARKS) - 1)]
    return Runs(packed, text, ends - _PADDING, first, line_ends - _PADDING)


def read_decimals(packed: Integers, text: Words) -> tuple[Floats, Flags]:
    r"""Read runs that may have a decimal point, of at most eight characters.

    Args:
        packed: Any shape, from ``Runs``.
        text: The same shape.

    Returns:
        The numbers, each the one nearest to what is printed, and which are well formed: at most
        one decimal point, with a digit on either side.

    >>> runs = find_runs(b"47.531 -256 5. 1.2.3\n")
    >>> numbers, good = read_decimals(runs.packed, runs.text)
    >>> numbers[good].tolist(), good.tolist()
    ([47.531, 256.0], [True, True, False, False])
    """
    lengths = (packed & LENGTH_BITS) >> LENGTH_SHIFT
    outside = _outside(lengths)
    points = ((~text & _DIGIT_BITS) >> outside) << outside
    digits = ((text & _LOW_NIBBLES) >> outside) << outside
    # One bit in the byte of the point, or none: then all bytes are below it, and none is moved.
    below = (points >> np.uint64(4)) - np.uint64(1)
    whole = digits & below
    point = (points >> np.uint64(4)) * np.uint64(0xFF)  # all bits of its byte
    fraction = digits & ~below & ~point
    has_point = points != 0
    exponents: Any = np.frexp(points.astype(np.float64))[1]
    decimals = np.where(has_point, 7 - (exponents - 5) // 8, 0)
    joined = np.where(has_point, (whole << _EIGHT) | fraction, digits)
    numbers = _value(joined) / _POWERS[decimals]
    one_point = (points & (points - np.uint64(1))) == 0
    good = ~has_point | (one_point & (decimals > 0) & (lengths - decimals > 1))
    return numbers, good & (lengths <= LONGEST_NUMBER)


def _outside(lengths: Integers) -> Words:
    """Return how many bits of the eight characters are not of the run."""
    return ((_PADDING - np.minimum(lengths, _PADDING)) * 8).view(np.uint64)


def _value(digits: Words) -> Words:
    """Read eight digits at once, the last in the highest byte: by pairs, fours, eight."""
    pairs = digits * np.uint64(10) + (digits >> _EIGHT)
    low = (pairs & _PAIRS) * _FIRST_PAIRS
    high = ((pairs >> np.uint64(16)) & _PAIRS) * _SECOND_PAIRS
    return (low + high) >> np.uint64(32)

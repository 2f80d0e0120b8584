"""All numbers of a block of lines, found and read at once; ``tokens`` describes the bits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .tokens import LAST_BIT, LENGTH_SHIFT, LONG_BIT, POINT_BIT, WIDE_BIT, WRONG_BIT

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

CHARACTERS = b"0123456789."

LONGEST_NUMBER = 8
LONGEST_PERCENTAGE = 2
MOST_RUNS = 1024
NEWLINE, POINT, ZERO = 10, 46, 48

# All intermediate arrays of so many bytes stay in the cache of a core.
_CHUNK_BYTES = 1 << 18
_PADDING = 8
_LOW_NIBBLES = np.uint64(0x0F0F0F0F0F0F0F0F)
# Set in every digit, not set in a decimal point.
_DIGIT_BITS = np.uint64(0x1010101010101010)
_HUNDRED = np.uint64(int.from_bytes(b"100", "little") << 40)
_FOUR, _EIGHT, _SIXTEEN, _GAP_SHIFT = map(np.uint64, (4, 8, 16, 32))
_PAIRS = np.uint64(0x000000FF000000FF)
_FIRST_PAIRS = np.uint64(100 + (1_000_000 << 32))
_SECOND_PAIRS = np.uint64(1 + (10_000 << 32))
# Mask of the last eight characters that belong to a run, by its length.
_INSIDE = np.array([(1 << 64) - (1 << (64 - 8 * length)) for length in range(9)], np.uint64)
# Length and what follows from it, by length.
_LENGTH_MARKS = np.arange(256, dtype=np.uint64) << np.uint64(LENGTH_SHIFT)
_LENGTH_MARKS[LONGEST_NUMBER + 1 :] |= np.uint64(LONG_BIT)
_LENGTH_MARKS[LONGEST_PERCENTAGE + 1 :] |= np.uint64(WIDE_BIT)
_POWERS = 10.0 ** np.arange(_PADDING)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a block of n lines.

    Attributes:
        packed: shape (r + ``MOST_RUNS``,), bits as in ``tokens``; zeros behind the last.
        numbers: same shape, the nearest number; undefined for a run that is too long or wrong.
        ends: shape (r,), place in the block of the character behind each.
        first: shape (n + 1,), index of the first run of each line, and the number of runs.
        line_ends: shape (n,), place in the block of each newline.
    """

    packed: Integers
    numbers: Floats
    ends: Integers
    first: Integers
    line_ends: Integers


def find_runs(block: bytes) -> Runs:
    r"""Find and read the runs of whole lines, each with its newline.

    >>> runs = find_runs(b"RAM 12/345MB\nCV0@47.531C\n")
    >>> runs.numbers[:4].tolist(), runs.first.tolist()
    ([12.0, 345.0, 0.0, 47.531], [0, 2, 4])
    """
    packed, numbers, ends, first, line_ends = zip(*_found(block), strict=True)
    return Runs(
        np.concatenate([*packed, np.zeros(MOST_RUNS, np.uint64)]).view(np.int64),
        np.concatenate([*numbers, np.zeros(MOST_RUNS)]),
        np.concatenate(ends),
        np.concatenate([np.zeros(1, np.int64), *first]),
        np.concatenate(line_ends),
    )


def _found(block: bytes) -> Iterator[tuple[Words, Floats, Integers, Integers, Integers]]:
    """Yield the fields of ``Runs`` chunk by chunk; ``first`` lacks the zero."""
    begin = count = 0
    while begin < len(block):
        end = len(block)
        if end - begin > _CHUNK_BYTES:
            end = block.rfind(b"\n", begin, begin + _CHUNK_BYTES) + 1
        padded = np.empty(_PADDING + end - begin, np.uint8)
        padded[:_PADDING] = NEWLINE
        padded[_PADDING:] = np.frombuffer(block, np.uint8, end - begin, begin)
        packed, numbers, ends, first, line_ends = _find(padded)
        yield packed, numbers, ends + begin, first + count, line_ends + begin
        begin, count = end, count + len(packed)


def _find(padded: Bytes) -> tuple[Words, Floats, Integers, Integers, Integers]:
    """Find the runs of some lines with eight newlines before them; see ``Runs``."""
    seen = padded[_PADDING - 1 :]
    inside = (seen - np.uint8(ZERO)) < 10
    inside |= seen == POINT
    # The place of the first character of each run and of the one behind it, in turns.
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    starts, ends = edges[0::2], edges[1::2]
    line_ends = np.flatnonzero(seen[1:] == NEWLINE)
    first = np.searchsorted(starts, line_ends)

    lengths = ends - starts
    # The eight characters up to the end of each run are loaded as one integer, unaligned.
    everywhere: Words = np.ndarray(len(seen), "<u8", padded, strides=(1,))
    text = everywhere[ends]
    masks = _INSIDE.take(lengths, mode="clip")
    text &= masks
    values = _value(text & _LOW_NIBBLES)

    packed = np.empty(len(starts), np.uint64)
    packed[1:] = starts[1:] - ends[:-1]
    line_starts = np.concatenate((np.zeros(1, np.int64), line_ends[:-1] + 1))
    firsts = np.concatenate((np.zeros(1, np.int64), first[:-1]))
    has_runs = first > firsts
    firsts = firsts[has_runs]
    packed[firsts] = starts[firsts] - line_starts[has_runs]
    packed <<= _GAP_SHIFT
    packed |= values
    packed |= _LENGTH_MARKS.take(lengths, mode="clip")
    packed[first[has_runs] - 1] |= np.uint64(LAST_BIT)
    packed[text == _HUNDRED] ^= np.uint64(WIDE_BIT)

    numbers = values.astype(np.float64)
    masks ^= text
    masks &= _DIGIT_BITS
    pointed = np.flatnonzero(masks != 0)
    numbers[pointed], good = _read_decimals(text[pointed], masks[pointed], lengths[pointed])
    packed[pointed] |= np.where(good, np.uint64(POINT_BIT), np.uint64(POINT_BIT | WRONG_BIT))
    return packed, numbers, ends, first, line_ends


def _read_decimals(text: Words, points: Words, lengths: Integers) -> tuple[Floats, Flags]:
    """Return the numbers of runs with a decimal point, and which have one between two digits.

    ``text`` is the last eight characters, zero in front of the run; ``points`` has bit 4 of the
    byte of each decimal point.
    """
    # One bit in the byte of the point: all bytes before it are below.
    point = points >> _FOUR
    below = point - np.uint64(1)
    digits = text & _LOW_NIBBLES
    fraction = digits & ~below & ~(point * np.uint64(0xFF))
    joined = ((digits & below) << _EIGHT) | fraction
    exponents: Any = np.frexp(points.astype(np.float64))[1]
    decimals = 7 - (exponents - 5) // 8
    numbers = _value(joined) / _POWERS[decimals]
    one_point = (points & (points - np.uint64(1))) == 0
    good: Flags = one_point & (decimals > 0) & (lengths - decimals > 1)
    return numbers, good


def _value(digits: Words) -> Words:
    """Read eight digits at once, the last in the highest byte: by pairs, fours, eight."""
    pairs = digits * np.uint64(10)
    pairs += digits >> _EIGHT
    low = pairs & _PAIRS
    low *= _FIRST_PAIRS
    pairs >>= _SIXTEEN
    pairs &= _PAIRS
    pairs *= _SECOND_PAIRS
    low += pairs
    low >>= _GAP_SHIFT
    return low

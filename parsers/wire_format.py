"""The fields of a Protocol Buffers message, found in its bytes without a schema.

ONNX files are such messages. What a caller does not follow is stepped over, weights above all.

Source:
    "Encoding", Protocol Buffers documentation.
"""

from collections.abc import Iterator
from mmap import mmap

from .errors import UnreadableError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

Data = bytes | mmap


def fields(data: Data, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk a message.

    Args:
        data: The file, as bytes or mapped.
        at: Where the message begins in it.
        end: Where it ends.

    Yields:
        Number of a field, its value where it is a number of variable length and else 0, and where
        its bytes begin and end.

    Raises:
        UnreadableError: It is no message.

    >>> list(fields(bytes([8, 150, 1, 18, 2, 104, 105]), 0, 7))
    [(1, 150, 1, 3), (2, 0, 5, 7)]
    """
    while at < end:
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        value, begin = 0, at
        if kind == _VARINT:
            value, at = _varint(data, at, end)
        elif kind == _LENGTH:
            length, begin = _varint(data, at, end)
            at = begin + length
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise UnreadableError(f"a field of kind {kind}")
        if at > end:
            raise UnreadableError("a field that ends after its message")
        yield number, value, begin, at


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise UnreadableError("a number that ends after its message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise UnreadableError("a number without end")

"""The fields of a Protocol Buffers message, read from its bytes without a schema.

ONNX files are such messages. Fields that a caller does not follow are skipped unread.

Source:
    "Encoding", Protocol Buffers documentation.
"""

from collections.abc import Iterator
from mmap import mmap

from ..errors import UnreadableError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

Data = bytes | mmap


def fields(data: Data, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk a message.

    Args:
        data: The file, as bytes or mapped.
        at: Begin of the message in it.
        end: End of the message.

    Yields:
        Number of a field, its value (0 unless it is a varint), and begin and end of its bytes.

    Raises:
        UnreadableError: It is not a message.

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


def write_varint(value: int) -> bytes:
    r"""Encode a number of variable length.

    >>> write_varint(150)
    b'\x96\x01'
    """
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


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

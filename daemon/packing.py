"""Numbers become few bytes: integers by their differences, columns by the way that suits them."""

import math
from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import sub

_CONSTANT, _DECIMAL, _RAW = 0, 1, 2
_SOME_ABSENT = 16
_DECIMALS = 1000
_LARGEST_EXACT = 2.0**53 / _DECIMALS


def pack_number(number: int) -> bytes:
    """Write an integer of 0 or more, seven bits a byte, low ones first."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def unpack_number(data: bytes, at: int) -> tuple[int, int]:
    """Read an integer of ``pack_number``; return it and where the next one begins."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def pack_integers(numbers: Sequence[int]) -> bytes:
    """Write integers as their greatest common divisor and the differences, in so many of it.

    >>> len(pack_integers([729_000_000] * 10))
    15
    >>> unpack_integers(pack_integers([5, -3, 2**62]))
    [5, -3, 4611686018427387904]
    """
    unit = math.gcd(*numbers) or 1
    counts = [number // unit for number in numbers]
    steps = [*counts[:1], *map(sub, counts[1:], counts)]
    folded = [step << 1 if step >= 0 else ~(step << 1) for step in steps]
    head = pack_number(unit)
    if max(folded, default=0) < 0x80:
        return head + bytes(folded)
    return head + b"".join(map(pack_number, folded))


def unpack_integers(data: bytes) -> list[int]:
    """Read what ``pack_integers`` wrote."""
    unit, at = unpack_number(data, 0)
    folded: list[int] = []
    while at < len(data):
        number, at = unpack_number(data, at)
        folded.append(number)
    return [unit * n for n in accumulate((f >> 1) ^ -(f & 1) for f in folded)]


def pack_column(column: "array[float]") -> bytes:
    """Write float64 values, NaN being absent.

    What tegrastats prints has at most three decimals, so most columns are integers of
    thousandths and are written as such, once it is proven that the same bits come back. The
    others keep their eight bytes, each value exclusive-or the one before, and the bytes of like
    weight together.
    """
    present = array("d", [value for value in column if value == value])
    mask = b""
    if len(present) < len(column):
        bits = sum(1 << i for i, value in enumerate(column) if value == value)
        mask = bits.to_bytes((len(column) + 7) // 8, "little")
    kind, body = _pack_present(present)
    return bytes([kind | (_SOME_ABSENT if mask else 0)]) + mask + body


def _pack_present(values: "array[float]") -> tuple[int, bytes]:
    raw = values.tobytes()
    if raw == raw[:8] * len(values):
        return _CONSTANT, raw[:8]
    if max(values) < _LARGEST_EXACT and min(values) > -_LARGEST_EXACT:
        thousandths = [round(value * _DECIMALS) for value in values]
        if array("d", [n / _DECIMALS for n in thousandths]).tobytes() == raw:
            return _DECIMAL, pack_integers(thousandths)
    whole = int.from_bytes(raw, "little")
    changes = (whole ^ (whole << 64)) & ((1 << 8 * len(raw)) - 1)
    changed = changes.to_bytes(len(raw), "little")
    return _RAW, b"".join(changed[i::8] for i in range(8))


def unpack_column(data: bytes, count: int) -> "array[float]":
    """Read a column of so many values that ``pack_column`` wrote.

    Raises:
        ValueError: The bytes hold another number of values.
    """
    kind, at = data[0], 1
    bits = (1 << count) - 1
    if kind & _SOME_ABSENT:
        at += (count + 7) // 8
        bits = int.from_bytes(data[1:at], "little")
    present = _unpack_present(kind & ~_SOME_ABSENT, data[at:], bits.bit_count())
    if len(present) != bits.bit_count():
        raise ValueError("a column has another length than its block")
    if not kind & _SOME_ABSENT:
        return present
    values = iter(present)
    return array("d", [next(values) if bits >> i & 1 else math.nan for i in range(count)])


def _unpack_present(kind: int, body: bytes, count: int) -> "array[float]":
    values = array("d")
    if kind == _CONSTANT:
        values.frombytes(body * count)
    elif kind == _DECIMAL:
        values.extend(n / _DECIMALS for n in unpack_integers(body))
    elif kind == _RAW:
        changed = bytearray(len(body))
        for i in range(8):
            changed[i::8] = body[i * count : (i + 1) * count]
        whole, shift, limit = int.from_bytes(changed, "little"), 64, (1 << 64 * count) - 1
        while shift < 64 * count:
            whole ^= (whole << shift) & limit
            shift *= 2
        values.frombytes(whole.to_bytes(8 * count, "little"))
    else:
        raise ValueError(f"a column of kind {kind}")
    return values

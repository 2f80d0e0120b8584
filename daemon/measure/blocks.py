"""A block: a few seconds of samples as columns, and their bytes in memory and in the store.

Reasons for the format: ``docs/decisions/blocks.md``.
"""

import math
import struct
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import nan
from operator import add, sub

from ...parsers import signals
from ...parsers.signals import Signal

_CONSTANT, _DECIMAL, _RAW = 0, 1, 2
_SOME_ABSENT = 16
_DECIMALS = 1000
_LARGEST_EXACT = 2.0**53 / _DECIMALS


def pack_number(number: int) -> bytes:
    """Return an integer of 0 or more as bytes, seven bits per byte, low bits first."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def unpack_number(data: bytes, at: int) -> tuple[int, int]:
    """Read an integer of ``pack_number``, and return it with the position after it."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def pack_integers(numbers: Sequence[int]) -> bytes:
    """Return integers as their greatest common divisor and their differences in units of it.

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
    """Read integers of ``pack_integers``."""
    unit, at = unpack_number(data, 0)
    folded: list[int] = []
    while at < len(data):
        number, at = unpack_number(data, at)
        folded.append(number)
    return [unit * n for n in accumulate((f >> 1) ^ -(f & 1) for f in folded)]


def pack_column(column: "array[float]") -> bytes:
    """Return float64 values as bytes; NaN is absent.

    tegrastats prints at most three decimals, so most columns are integers of thousandths. They are
    written as such after a check that the same bits come back. Other values keep their eight bytes,
    each exclusive-or the previous one, with bytes of equal weight together.
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
    """Read a column of ``count`` values of ``pack_column``.

    Raises:
        ValueError: The bytes contain another number of values.
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


_HEADER = struct.Struct(">3sBII")
_MAGIC = b"tgb"
_VERSION = 1
_LARGEST_BYTES = 1 << 27


class CorruptBlockError(ValueError):
    """The bytes are not a complete block of a known version."""


def _dictionary() -> bytes:
    """Return the words that version 1 takes as known: names of columns, commonest last.

    Part of the format: another list, or another name of one of these signals, is another version.
    """
    zones = (
        *("AO", "PLL", "PMIC", "AUX", "thermal", "GPU", "CPU", "Tboard", "Tdiode", "SOC"),
        *("soc0", "soc1", "soc2", "cv0", "cv1", "cv2", "tboard", "tdiode", "cpu", "gpu", "tj"),
    )
    rails = (
        *("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V", "VDD_IN", "VDD_CPU_GPU_CV"),
        *("VDD_SOC", "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"),
    )
    gated = ("NVENC", "NVDEC", "NVJPG", "OFA", "PVA0", "SE", "NVJPG1")
    names = [
        *(signals.ENGINE_ON.column(engine) for engine in gated),
        signals.ENGINE_LOAD.column("VIC"),
        signals.ENGINE_FREQUENCY.column("VIC"),
        signals.ENGINE_FREQUENCY.column("APE"),
        *map(signals.TEMPERATURE.column, zones),
        *_columns((signals.RAIL_POWER, signals.RAIL_AVERAGE), rails),
        *_columns((signals.RAM_USED, signals.RAM_TOTAL, signals.RAM_FREE_BLOCK)),
        *_columns((signals.RAM_FREE_BLOCKS, signals.SWAP_USED, signals.SWAP_TOTAL)),
        *_columns((signals.SWAP_CACHED, signals.EMC_LOAD, signals.EMC_FREQUENCY)),
        *_columns((signals.CPU_ONLINE, signals.CPU_LOAD, signals.CPU_FREQUENCY), range(12)),
        signals.GPU_LOAD.column(),
        *map(signals.GPU_FREQUENCY.column, range(2)),
        *_columns((signals.DLA_ON, signals.DLA_LOAD, signals.DLA_FREQUENCY), range(2)),
    ]
    return "\n".join(names).encode()


def _columns(rows: Sequence[Signal], labels: Iterable[object] = ("",)) -> Iterator[str]:
    return (row.column(label) for label in labels for row in rows)


DICTIONARY = _dictionary()


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of one source as columns of shape (n,).

    Attributes:
        times_ns: CLOCK_MONOTONIC, increasing; ``wall_ns`` is the wall time of the same moments.
        columns: NaN is absent. A name must not contain a line feed.
    """

    source: str
    times_ns: "array[int]" = field(default_factory=lambda: array("q"))
    wall_ns: "array[int]" = field(default_factory=lambda: array("q"))
    columns: "dict[str, array[float]]" = field(default_factory=dict)


def encode(block: Block) -> bytes:
    """Return the bytes of a block; every float64 is restored exactly, except the kind of a NaN.

    Raises:
        ValueError: The columns differ in length, or a name contains a line feed.
    """
    count = len(block.times_ns)
    if len(block.wall_ns) != count or any(len(c) != count for c in block.columns.values()):
        raise ValueError("the columns of a block differ in length")
    if any("\n" in name for name in block.columns):
        raise ValueError("the name of a column holds a line feed")
    parts = [
        block.source.encode(),
        "\n".join(block.columns).encode(),
        pack_integers([*block.times_ns[:1], *map(sub, block.times_ns[1:], block.times_ns)]),
        pack_integers([*map(sub, block.wall_ns, block.times_ns)]),
        *map(pack_column, block.columns.values()),
    ]
    raw = b"".join(map(pack_number, [len(parts), *map(len, parts)])) + b"".join(parts)
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
    packed = deflater.compress(raw) + deflater.flush()
    return _HEADER.pack(_MAGIC, _VERSION, zlib.crc32(packed), len(raw)) + packed


def decode(data: bytes, wanted: Callable[[str], bool] | None = None) -> Block:
    """Return the block of the bytes; ``wanted`` selects columns by name.

    Raises:
        CorruptBlockError: The bytes were cut or changed, or a later version wrote them.
    """
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise CorruptBlockError("not a block of samples")
    _, version, checksum, size = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptBlockError(f"a block of version {version}; this program reads {_VERSION}")
    packed = data[_HEADER.size :]
    if zlib.crc32(packed) != checksum or size > _LARGEST_BYTES:
        raise CorruptBlockError("a block is damaged: its checksum does not fit")
    try:
        raw = zlib.decompressobj(-15, DICTIONARY).decompress(packed, size + 1)
        if len(raw) != size:
            raise CorruptBlockError("a block is damaged: its length does not fit")
        return _unpack(raw, wanted)
    except (zlib.error, IndexError, ValueError, OverflowError) as error:
        raise CorruptBlockError(f"a block is damaged: {error}") from error


def _unpack(raw: bytes, wanted: Callable[[str], bool] | None) -> Block:
    count, at = unpack_number(raw, 0)
    lengths = []
    for _ in range(count):
        length, at = unpack_number(raw, at)
        lengths.append(length)
    parts = (raw[begin:end] for begin, end in pairwise(accumulate(lengths, initial=at)))
    source, names, steps, offsets, *columns = parts
    times = array("q", accumulate(unpack_integers(steps)))
    labels = names.decode().split("\n") if columns else []
    wall = array("q", map(add, times, unpack_integers(offsets)))
    kept = {
        name: unpack_column(column, len(times))
        for name, column in zip(labels, columns, strict=True)
        if wanted is None or wanted(name)
    }
    return Block(source.decode(), times, wall, kept)


@dataclass(frozen=True, slots=True)
class WindowSlice:
    """Samples of a window, and one neighbour on each side of it where there is one.

    Attributes:
        times_ns: shape (n,), CLOCK_MONOTONIC, increasing.
        wall_ns: shape (n,).
        columns: Name to shape (n,); NaN is absent.
    """

    times_ns: "array[int]" = field(default_factory=lambda: array("q"))
    wall_ns: "array[int]" = field(default_factory=lambda: array("q"))
    columns: "dict[str, array[float]]" = field(default_factory=dict)

    def inside(self, begin_ns: int, end_ns: int) -> slice:
        """Return the positions of the samples of a window, its edges included."""
        return slice(bisect_left(self.times_ns, begin_ns), bisect_right(self.times_ns, end_ns))

    def steps(self, column: Sequence[float]) -> Iterator[tuple[int, float, int, float]]:
        """Yield time and value of each two neighbours of the samples that have a value."""
        known = ((at, v) for at, v in zip(self.times_ns, column, strict=True) if v == v)
        return (before + after for before, after in pairwise(known))

    def around(self, begin_ns: int, end_ns: int) -> "WindowSlice":
        """Return the samples of a window, with one neighbour on each side where there is one."""
        inside = self.inside(begin_ns, end_ns)
        kept = slice(max(inside.start - 1, 0), inside.stop + 1)
        columns = {name: column[kept] for name, column in self.columns.items()}
        return WindowSlice(self.times_ns[kept], self.wall_ns[kept], columns)

    def only(self, kept: Sequence[int]) -> "WindowSlice":
        """Return the samples at some positions, in increasing order."""
        times, wall = ([column[i] for i in kept] for column in (self.times_ns, self.wall_ns))
        columns = {n: array("d", [column[i] for i in kept]) for n, column in self.columns.items()}
        return WindowSlice(array("q", times), array("q", wall), columns)


def join(blocks: Iterable[Block]) -> WindowSlice:
    """Concatenate blocks of increasing time; a column that a block lacks is NaN there."""
    joined = WindowSlice()
    for block in blocks:
        before = len(joined.times_ns)
        joined.times_ns.extend(block.times_ns)
        joined.wall_ns.extend(block.wall_ns)
        for name, column in block.columns.items():
            whole = joined.columns.setdefault(name, array("d"))
            whole.extend(array("d", [nan]) * (before - len(whole)))
            whole.extend(column)
    for whole in joined.columns.values():
        whole.extend(array("d", [nan]) * (len(joined.times_ns) - len(whole)))
    return joined

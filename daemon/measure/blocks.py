"""A block: a few seconds of samples as columns, and their bytes in memory and in the store.

Reasons for the format: ``docs/decisions/blocks.md``.
"""

import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import TypeVar

import msgspec

T = TypeVar("T")

_MAGIC = b"tgb"
VERSION = 2
"""Version of the bytes, which a store notes beside its blocks."""

_HEADER = _MAGIC + bytes([VERSION])
_COMPRESSION_LEVEL = 6
# Far above a block of ten seconds. Without a limit, a few damaged bytes could fill the memory.
_LARGEST_BYTES = 1 << 27


class CorruptBlockError(ValueError):
    """The bytes are not a complete block of a known version."""


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of one source as columns of shape (n,).

    Attributes:
        times_ns: CLOCK_MONOTONIC, increasing; ``wall_ns`` is the wall time of the same moments.
        columns: NaN is absent.
    """

    source: str
    times_ns: "array[int]" = field(default_factory=lambda: array("q"))
    wall_ns: "array[int]" = field(default_factory=lambda: array("q"))
    columns: "dict[str, array[float]]" = field(default_factory=dict)


class _Stored(msgspec.Struct):
    """The form of a block between its bytes and its arrays; an absent value is null."""

    source: str
    times_ns: list[int]
    wall_ns: list[int]
    columns: dict[str, msgspec.Raw]


_ENCODER = msgspec.json.Encoder()
_STORED = msgspec.json.Decoder(_Stored)
_COLUMN = msgspec.json.Decoder(list[float | None])


def encode(block: Block) -> bytes:
    """Return the bytes of a block; every finite float64 is restored exactly, others are absent.

    Raises:
        ValueError: The columns differ in length.
    """
    count = len(block.times_ns)
    lengths = {len(block.wall_ns), *map(len, block.columns.values())}
    if lengths != {count}:
        raise ValueError("the columns of a block differ in length")
    columns = {}
    for name, column in block.columns.items():
        columns[name] = msgspec.Raw(_ENCODER.encode(column.tolist()))
    stored = _Stored(block.source, block.times_ns.tolist(), block.wall_ns.tolist(), columns)
    return _HEADER + zlib.compress(_ENCODER.encode(stored), _COMPRESSION_LEVEL)


def decode(data: bytes, wanted: Callable[[str], bool] | None = None) -> Block:
    """Return the block of the bytes; ``wanted`` selects columns by name.

    Raises:
        CorruptBlockError: The bytes were cut or changed, or another version wrote them.
    """
    if len(data) < len(_HEADER) or not data.startswith(_MAGIC):
        raise CorruptBlockError("not a block of samples")
    version = data[len(_MAGIC)]
    if version != VERSION:
        raise CorruptBlockError(f"a block of version {version}; this program reads {VERSION}")
    try:
        stored = _STORED.decode(_inflated(data[len(_HEADER) :]))
        columns: dict[str, array[float]] = {}
        for name, raw in stored.columns.items():
            if wanted is None or wanted(name):
                columns[name] = _column(raw, len(stored.times_ns))
        times, wall = array("q", stored.times_ns), array("q", stored.wall_ns)
    except (zlib.error, msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise CorruptBlockError(f"a block is damaged: {error}") from error
    if len(times) != len(wall):
        raise CorruptBlockError("a block is damaged: its times differ in number")
    return Block(stored.source, times, wall, columns)


def _inflated(packed: bytes) -> bytes:
    inflater = zlib.decompressobj()
    text = inflater.decompress(packed, _LARGEST_BYTES)
    # The checksum, which tells of changed bytes, is read at the end only.
    if not inflater.eof or inflater.unused_data:
        raise ValueError("its length does not fit")
    return text


def _column(raw: msgspec.Raw, count: int) -> "array[float]":
    values = _COLUMN.decode(raw)
    if len(values) != count:
        raise ValueError("a column has another length than its block")
    return array("d", [nan if value is None else value for value in values])


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
        before: tuple[int, float] | None = None
        for sample in zip(self.times_ns, column, strict=True):
            if isnan(sample[1]):
                continue
            if before is not None:
                yield before + sample
            before = sample

    def around(self, begin_ns: int, end_ns: int) -> "WindowSlice":
        """Return the samples of a window, with one neighbour on each side where there is one."""
        inside = self.inside(begin_ns, end_ns)
        around = slice(max(inside.start - 1, 0), inside.stop + 1)
        columns = {name: column[around] for name, column in self.columns.items()}
        return WindowSlice(self.times_ns[around], self.wall_ns[around], columns)

    def only(self, positions: Sequence[int]) -> "WindowSlice":
        """Return the samples at some positions, in increasing order."""
        columns: dict[str, array[float]] = {}
        for name, column in self.columns.items():
            columns[name] = array("d", at_positions(column, positions))
        times_ns = array("q", at_positions(self.times_ns, positions))
        wall_ns = array("q", at_positions(self.wall_ns, positions))
        return WindowSlice(times_ns, wall_ns, columns)


def at_positions(column: Sequence[T], positions: Iterable[int]) -> list[T]:
    """Return the values of a column at some positions."""
    return [column[position] for position in positions]


def known_values(column: Iterable[float]) -> list[float]:
    """Return the values of a column without the absent ones, which are NaN."""
    return [value for value in column if not isnan(value)]


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

"""A block: a few seconds of samples as columns, and the bytes that memory and store keep of it.

The same bytes lie in the timeline and in the store. Why this format: ``docs/decisions/blocks.md``.
"""

import struct
import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import add, sub

from .packing import (
    pack_column,
    pack_integers,
    pack_number,
    unpack_column,
    unpack_integers,
    unpack_number,
)

_HEADER = struct.Struct(">3sBII")
_MAGIC = b"tgb"
_VERSION = 1
_LARGEST_BYTES = 1 << 27


class CorruptBlockError(ValueError):
    """Bytes that are no whole block of a known version."""


def _dictionary() -> bytes:
    """Return the words that version 1 takes as known: names of numbers, commonest last.

    Part of the format: another list is another version.
    """
    names = [
        *(f"engines.{engine}.on" for engine in ("NVENC", "NVDEC", "NVJPG", "OFA", "PVA0", "SE")),
        "engines.NVJPG1.on",
        "engines.VIC.utilization_ratio\nengines.VIC.frequency_hertz",
        "engines.APE.frequency_hertz",
        *(f"temperatures_celsius.{zone}" for zone in ("AO", "PLL", "PMIC", "AUX", "thermal")),
        *(f"temperatures_celsius.{zone}" for zone in ("GPU", "CPU", "Tboard", "Tdiode", "SOC")),
        *(f"temperatures_celsius.{zone}" for zone in ("soc0", "soc1", "soc2", "cv0", "cv1", "cv2")),
        *(f"temperatures_celsius.{zone}" for zone in ("tboard", "tdiode", "cpu", "gpu", "tj")),
        *(
            f"rails.{rail}.instant_watts\nrails.{rail}.average_watts"
            for rail in (
                *("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V", "VDD_IN", "VDD_CPU_GPU_CV"),
                *("VDD_SOC", "VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO"),
            )
        ),
        "ram.used_bytes\nram.total_bytes\nram.largest_free_block_bytes",
        "ram.largest_free_block_count\nswap.used_bytes\nswap.total_bytes\nswap.cached_bytes",
        "emc.utilization_ratio\nemc.frequency_hertz",
        *(
            f"cpu.{core}.online\ncpu.{core}.utilization_ratio\ncpu.{core}.frequency_hertz"
            for core in range(12)
        ),
        "gpu.utilization_ratio\ngpu.frequency_hertz.0\ngpu.frequency_hertz.1",
        "dla.0.on\ndla.0.utilization_ratio\ndla.0.frequency_hertz",
        "dla.1.on\ndla.1.utilization_ratio\ndla.1.frequency_hertz",
    ]
    return "\n".join(names).encode()


_DICTIONARY = _dictionary()


@dataclass(frozen=True, slots=True)
class Block:
    """Samples of one source as columns.

    Attributes:
        source: Where they came from, for instance ``tegrastats``.
        times_ns: shape (n,), CLOCK_MONOTONIC, rising.
        wall_ns: shape (n,), wall time of the same moments.
        columns: Name to shape (n,); NaN is absent. A name holds no line feed.
    """

    source: str
    times_ns: "array[int]"
    wall_ns: "array[int]"
    columns: "dict[str, array[float]]"


def encode(block: Block) -> bytes:
    """Turn a block into bytes; every float64 comes back bit by bit, save what kind of NaN it was.

    Raises:
        ValueError: The columns differ in length, or a name holds a line feed.
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
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
    packed = deflater.compress(raw) + deflater.flush()
    return _HEADER.pack(_MAGIC, _VERSION, zlib.crc32(packed), len(raw)) + packed


def decode(data: bytes, wanted: Callable[[str], bool] | None = None) -> Block:
    """Turn bytes back into the block.

    Args:
        data: What ``encode`` made.
        wanted: Says of a name whether its column is asked for; without it, all are.

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
        raw = zlib.decompressobj(-15, _DICTIONARY).decompress(packed, size + 1)
        if len(raw) != size:
            raise CorruptBlockError("a block is damaged: its length does not fit")
        return _from_parts(_split(raw), wanted)
    except (zlib.error, IndexError, ValueError, OverflowError) as error:
        raise CorruptBlockError(f"a block is damaged: {error}") from error


def _split(raw: bytes) -> list[bytes]:
    count, at = unpack_number(raw, 0)
    lengths = []
    for _ in range(count):
        length, at = unpack_number(raw, at)
        lengths.append(length)
    ends = [*accumulate(lengths, initial=at)]
    return [raw[begin:end] for begin, end in pairwise(ends)]


def _from_parts(parts: list[bytes], wanted: Callable[[str], bool] | None) -> Block:
    source, names, steps, offsets, *columns = parts
    times = array("q", accumulate(unpack_integers(steps)))
    labels = names.decode().split("\n") if columns else []
    return Block(
        source.decode(),
        times,
        array("q", map(add, times, unpack_integers(offsets))),
        {
            name: unpack_column(column, len(times))
            for name, column in zip(labels, columns, strict=True)
            if wanted is None or wanted(name)
        },
    )

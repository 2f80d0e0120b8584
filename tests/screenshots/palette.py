"""Pictures with a palette: half the bytes of what Chromium writes, and no visible change."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
# Bytes per pixel of the two colour types that Chromium writes: RGB, and RGB with alpha.
_PIXEL_BYTES = {2: 3, 6: 4}
# Filters of a row. A PNG that is written for speed has no other.
_LEFT, _ABOVE = 1, 2


def shrink(path: Path) -> None:
    """Write a PNG again with its 256 most frequent colours, or leave it as it is.

    It is left if it is not one that Chromium writes for speed.
    """
    image = _read(path.read_bytes())
    if image is None:
        return
    height, width, _ = image.shape
    colours, index, counts = np.unique(
        image.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = colours[np.argsort(-counts)[:_COLOURS]].astype(int)
    nearest = np.zeros(len(colours), np.uint8)
    for number, colour in enumerate(colours):
        nearest[number] = ((palette - colour) ** 2).sum(axis=1).argmin()
    indices = nearest[index.reshape(height, width)]
    # Each row begins with its filter, which is none.
    rows = np.hstack([np.zeros((height, 1), np.uint8), indices])
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    path.write_bytes(
        _SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"PLTE", palette.astype(np.uint8).tobytes())
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and body of each chunk of a PNG."""
    start = len(_SIGNATURE)
    while start < len(data):
        (size,) = struct.unpack_from(">I", data, start)
        yield data[start + 4 : start + 8], data[start + 8 : start + 8 + size]
        start += size + 12  # also size, kind and checksum


def _read(data: bytes) -> "np.ndarray[Any, np.dtype[np.uint8]] | None":
    """Return the pixels as rows of red, green and blue; None for another kind of PNG."""
    packed = b""
    for kind, body in _chunks(data):
        if kind == b"IHDR":
            width, height, depth, colour_type, _, _, interlaced = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed += body
    if depth != 8 or interlaced or colour_type not in _PIXEL_BYTES:
        return None
    size = _PIXEL_BYTES[colour_type]
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * size)
    if rows[:, 0].max() > _ABOVE:
        return None
    # Differences are modulo 256, as the sums of this type are.
    image = np.zeros((height, width, size), np.uint8)
    above = np.zeros((width, size), np.uint8)
    for number, row in enumerate(rows):
        pixels = row[1:].reshape(width, size)
        if row[0] == _LEFT:
            above = np.cumsum(pixels, axis=0, dtype=np.uint8)
        elif row[0] == _ABOVE:
            above = pixels + above
        else:
            above = pixels
        image[number] = above
    return image[:, :, :3]

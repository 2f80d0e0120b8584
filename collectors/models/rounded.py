"""Write a copy of a model whose weights are rounded to the seven bits of bf16.

Its outputs differ from the model's by what rounding does to each channel. That is the unit for the
error of a build in reduced precision.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from ...parsers.onnx import Data, at_path, fields

# Fields by their numbers in ``onnx.proto``: from a model to the tensors of its graph, and to those
# of its nodes, where exporters of PaddlePaddle keep weights; then the fields of a tensor.
_TO_TENSORS = ((7, 5), (7, 1, 5, 5))
_DIMENSION, _DATA_TYPE, _RAW = 1, 2, 9
# Bits to round away, and numpy's name of the bits, by the number of a type: fp32 and fp16.
_ROUNDED = {1: (16, "<u4"), 10: (3, "<u2")}


def write_rounded(model: Path, copy: Path) -> bool:
    """Write a model with rounded weights; return False, without a file, if it has none inside.

    Vectors stay: they are biases and norms, which builds keep in fp32. Raises ``OSError``, and
    ``ValueError`` for a file that is not a model.
    """
    import numpy

    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as data:
        was_rounded = False
        for begin, end, kind in _weights(data):
            bits, name = _ROUNDED[kind]
            dtype = numpy.dtype(name)
            count = (end - begin) // dtype.itemsize
            values = numpy.frombuffer(data, dtype, count, begin)
            # Half of the last bit that stays is added, which rounds to the nearest. An infinity or
            # NaN would change its meaning; the largest numbers may become infinite.
            is_odd = (values >> bits) & 1
            half = dtype.type((1 << (bits - 1)) - 1)
            rounded = ((values + half + is_odd) >> bits) << bits
            data[begin : begin + values.nbytes] = rounded.astype(dtype).tobytes()
            del values  # the map cannot be closed while an array looks at it
            was_rounded = True
        if was_rounded:
            copy.write_bytes(data)
    return was_rounded


def _weights(data: Data) -> Iterator[tuple[int, int, int]]:
    """Yield begin and end of the bytes of each matrix of weights, and the number of its type."""
    for path in _TO_TENSORS:
        for begin, end in at_path(data, 0, len(data), *path):
            yield from _weight(data, begin, end)


def _weight(data: Data, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the bytes of a tensor in a file if they are those of a matrix of real numbers."""
    dimensions, kind, raw = 0, 0, None
    for number, value, at, stop in fields(data, begin, end):
        if number == _DIMENSION:
            # Packed, all dimensions are in one field.
            dimensions += 1 if value or stop - at <= 1 else stop - at
        elif number == _DATA_TYPE:
            kind = value
        elif number == _RAW:
            raw = (at, stop)
    if raw is not None and dimensions > 1 and kind in _ROUNDED:
        yield *raw, kind

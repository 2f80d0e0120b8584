"""Which other files an ONNX model keeps its weights in, without the onnx package.

Large models hold their tensors in files beside them. A digest of the model file alone would be
the same for other weights.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from ..parsers.errors import Mendable

# Numbers of the fields of onnx.proto that lead from a model to its tensors: where each may be
# followed from a message, and to what kind of message.
_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR, _SPARSE, _FUNCTION, _ENTRY = range(8)
_WAYS: dict[int, dict[int, int]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _FUNCTION: {7: _NODE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {13: _ENTRY},
}
_KEY, _VALUE = 1, 2
_BYTES_BY_WIRE_TYPE = {1: 8, 5: 4}
_VARINT, _LENGTH = 0, 2


def external_files(model: Path) -> list[Path]:
    """Return the files, beside a model, that hold its weights; sorted, each once.

    Raises:
        Mendable: One of them is not there, or the model cannot be read as ONNX.
    """
    if model.stat().st_size == 0:
        raise Mendable(f"{model} is empty", "export the model again")
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            names = {
                location.decode() for location in _locations(data, 0, len(data), _MODEL) if location
            }
        except (IndexError, ValueError, KeyError):
            raise Mendable(f"{model} cannot be read as ONNX", "export the model again") from None
    found = [model.parent / name for name in sorted(names)]
    for path in found:
        if not path.is_file():
            raise Mendable(
                f"{model} keeps weights in {path}, which is not there", "put it beside the model"
            )
    return found


def _locations(data: mmap.mmap, start: int, end: int, kind: int) -> Iterator[bytes]:
    """Walk a message, skipping what leads to no tensor; yield where tensors are kept."""
    ways = _WAYS[kind]
    for number, begin, stop in _fields(data, start, end):
        following = ways.get(number)
        if following == _ENTRY:
            entry = {key: data[at:to] for key, at, to in _fields(data, begin, stop)}
            if entry.get(_KEY) == b"location":
                yield entry.get(_VALUE, b"")
        elif following is not None:
            yield from _locations(data, begin, stop, following)


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the fields of a message that have a length."""
    while at < end:
        tag, at = _varint(data, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type == _LENGTH:
            length, at = _varint(data, at)
            if at + length > end:
                raise ValueError("a field that ends after its message")
            yield tag >> 3, at, at + length
            at += length
        else:
            at += _BYTES_BY_WIRE_TYPE[wire_type]


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without end")

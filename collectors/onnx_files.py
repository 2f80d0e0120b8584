"""Which other files an ONNX model keeps its weights in, without the onnx package.

Large models hold their tensors in files beside them. A digest of the model file alone would be
the same for other weights.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from ..parsers.errors import Mendable
from ..parsers.wire_format import fields

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
        except ValueError:
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
    for number, _, begin, stop in fields(data, start, end):
        following = ways.get(number)
        if following == _ENTRY:
            entry = {key: data[at:to] for key, _, at, to in fields(data, begin, stop)}
            if entry.get(_KEY) == b"location":
                yield entry.get(_VALUE, b"")
        elif following is not None:
            yield from _locations(data, begin, stop, following)

"""Tensors of an ONNX file: drop the contents of large ones, list those stored in other files.

Source:
    ``onnx.proto`` of ONNX: the numbers of the fields.
"""

from collections.abc import Iterator, Mapping

from .wire_format import Data, fields, write_varint

# Tensors up to this size keep their contents: shapes, axes, limits, scales.
KEPT_BYTES = 4096

_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR, _SPARSE, _FUNCTION = range(7)
# Numbers of the fields that lead from a message to tensors, and the kind of message there.
_WAYS: Mapping[int, Mapping[int, int]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
    _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
    _SPARSE: {1: _TENSOR, 2: _TENSOR},
    _TENSOR: {},
}
# Fields of a tensor: float, int32, string, int64, raw, double and uint64 data.
_CONTENTS = frozenset({4, 5, 6, 7, 9, 10, 11})
_EXTERNAL_DATA, _KEY, _VALUE = 13, 1, 2


def slim(data: Data) -> bytes:
    """Return a model without the contents of its large tensors; types and dimensions stay.

    Shapes follow from dimensions, not from weights. A file of 500 MB shrinks to its list of nodes,
    and its weights are never read.

    Args:
        data: The file, as bytes or mapped.

    Raises:
        UnreadableError: It is not a Protocol Buffers message.
    """
    return b"".join(_slimmed(data, 0, len(data), _MODEL))


def external_locations(data: Data) -> Iterator[str]:
    """Yield the names of the files that hold a model's tensors, one per tensor.

    Raises:
        ValueError: It is not a Protocol Buffers message, or a name is not text.
    """
    yield from _locations(data, 0, len(data), _MODEL)


def _slimmed(data: Data, begin: int, end: int, kind: int) -> Iterator[bytes]:
    ways, at = _WAYS[kind], begin
    for number, _, inner, stop in fields(data, begin, end):
        following = ways.get(number)
        if following is not None:
            body = b"".join(_slimmed(data, inner, stop, following))
            yield write_varint(number << 3 | 2) + write_varint(len(body))
            yield body
        elif not (kind == _TENSOR and number in _CONTENTS and stop - inner > KEPT_BYTES):
            yield data[at:stop]
        at = stop


def _locations(data: Data, begin: int, end: int, kind: int) -> Iterator[str]:
    ways = _WAYS[kind]
    for number, _, inner, stop in fields(data, begin, end):
        if kind == _TENSOR and number == _EXTERNAL_DATA:
            entry = {key: data[at:to] for key, _, at, to in fields(data, inner, stop)}
            if entry.get(_KEY) == b"location" and entry.get(_VALUE):
                yield entry[_VALUE].decode()
        elif number in ways:
            yield from _locations(data, inner, stop, ways[number])

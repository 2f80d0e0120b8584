"""An ONNX file without what its large tensors hold: their types and dimensions stay.

Shapes are told by dimensions, not by weights. What remains of a file of 500 MB is as small as a
list of its nodes, and the weights are stepped over where they lie.

Source:
    ``onnx.proto`` of ONNX: the numbers of the fields.
"""

from collections.abc import Iterator, Mapping

from .wire_format import Data, fields

# Tensors up to this size keep what they hold: shapes, axes, limits, scales.
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
# Of a tensor: float, int32, string, int64, raw, double and uint64 data.
_CONTENTS = frozenset({4, 5, 6, 7, 9, 10, 11})


def slim(data: Data) -> bytes:
    """Return a model without the contents of its large tensors.

    Args:
        data: The file, as bytes or mapped.

    Raises:
        UnreadableError: It is no Protocol Buffers message.
    """
    return b"".join(_message(data, 0, len(data), _MODEL))


def _message(data: Data, begin: int, end: int, kind: int) -> Iterator[bytes]:
    ways, at = _WAYS[kind], begin
    for number, _, inner, stop in fields(data, begin, end):
        following = ways.get(number)
        if following is not None:
            body = b"".join(_message(data, inner, stop, following))
            yield _varint(number << 3 | 2) + _varint(len(body))
            yield body
        elif not (kind == _TENSOR and number in _CONTENTS and stop - inner > KEPT_BYTES):
            yield data[at:stop]
        at = stop


def _varint(value: int) -> bytes:
    r"""Write a number of variable length.

    >>> _varint(150)
    b'\x96\x01'
    """
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)

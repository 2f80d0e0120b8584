"""The inputs of an ONNX file, read from its bytes: no package is needed, weights are skipped.

Source:
    ``onnx.proto`` of ONNX: the numbers of the fields.
"""

from collections.abc import Iterator, Mapping
from mmap import mmap

from ..errors import UnreadableError
from ..records import Record

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}

Data = bytes | mmap


def fields(data: Data, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk a message.

    Args:
        data: The file, as bytes or mapped.
        at: Begin of the message in it.
        end: End of the message.

    Yields:
        Number of a field, its value (0 unless it is a varint), and begin and end of its bytes.

    Raises:
        UnreadableError: It is not a message.

    >>> list(fields(bytes([8, 150, 1, 18, 2, 104, 105]), 0, 7))
    [(1, 150, 1, 3), (2, 0, 5, 7)]
    """
    while at < end:
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        value, begin = 0, at
        if kind == _VARINT:
            value, at = _varint(data, at, end)
        elif kind == _LENGTH:
            length, begin = _varint(data, at, end)
            at = begin + length
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise UnreadableError(f"a field of kind {kind}")
        if at > end:
            raise UnreadableError("a field that ends after its message")
        yield number, value, begin, at


def write_varint(value: int) -> bytes:
    r"""Encode a number of variable length.

    >>> write_varint(150)
    b'\x96\x01'
    """
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _varint(data: Data, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise UnreadableError("a number that ends after its message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise UnreadableError("a number without end")


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


_INPUTS_GRAPH = 7
_INPUTS_NODE, _INITIALIZER, _INPUT = 1, 5, 11
_OPERATION, _TENSOR_NAME = 4, 8
_QUANTIZE = frozenset({b"DequantizeLinear", b"QuantizeLinear"})


class ModelInput(Record):
    """One input of a model; a dimension that is a name or ``None`` is open."""

    name: str
    shape: tuple[int | str | None, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether any dimension is open."""
        return not all(isinstance(length, int) for length in self.shape)


class ModelFacts(Record):
    """Facts about a file that need no weights.

    Attributes:
        inputs: In the order of the graph, without weights.
        is_quantised: Whether the graph contains QuantizeLinear or DequantizeLinear.
    """

    inputs: tuple[ModelInput, ...] = ()
    is_quantised: bool = False


def read_model(data: Data) -> ModelFacts:
    """Read the inputs of an ONNX model.

    Args:
        data: The file, as bytes or mapped.

    Raises:
        UnreadableError: It is not an ONNX model.
    """
    try:
        graphs = [
            (a, b) for number, _, a, b in fields(data, 0, len(data)) if number == _INPUTS_GRAPH
        ]
        if len(graphs) != 1:
            raise UnreadableError("there is no graph")
        return _graph(data, *graphs[0])
    except UnicodeDecodeError:
        raise UnreadableError("a name is not text") from None


def _graph(data: Data, begin: int, end: int) -> ModelFacts:
    inputs: list[ModelInput] = []
    weights: set[str] = set()
    is_quantised = False
    for number, _, a, b in fields(data, begin, end):
        if number == _INPUT:
            inputs.append(_input(data, a, b))
        elif number == _INITIALIZER:
            weights.update(
                _text(data, c, d) for n, _, c, d in fields(data, a, b) if n == _TENSOR_NAME
            )
        elif number == _INPUTS_NODE and not is_quantised:
            is_quantised = any(
                n == _OPERATION and data[c:d] in _QUANTIZE for n, _, c, d in fields(data, a, b)
            )
    named = tuple(one for one in inputs if one.name not in weights)
    return ModelFacts(inputs=named, is_quantised=is_quantised)


def _input(data: Data, begin: int, end: int) -> ModelInput:
    """Read a ``ValueInfoProto``: name 1, type 2, its tensor 1, of that the shape 2."""
    name, shape = "", []
    for number, _, a, b in fields(data, begin, end):
        if number == 1:
            name = _text(data, a, b)
        elif number == 2:
            for c, d in _parts(data, a, b, 1):
                for e, f in _parts(data, c, d, 2):
                    shape += [_length(data, g, h) for g, h in _parts(data, e, f, 1)]
    return ModelInput(name=name, shape=tuple(shape))


def _length(data: Data, begin: int, end: int) -> int | str | None:
    """Read a dimension: a number 1, or a name 2, or neither."""
    found: int | str | None = None
    for number, value, a, b in fields(data, begin, end):
        if number == 1 and value > 0:
            found = value
        elif number == 2:
            found = _text(data, a, b) or None
    return found


def _parts(data: Data, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for number, _, a, b in fields(data, begin, end) if number == wanted)


def _text(data: Data, begin: int, end: int) -> str:
    return data[begin:end].decode("utf-8")

"""Parse ONNX files to records, without the onnx package. The rules of the DLA are not here.

The bytes are read here, and weights are skipped. ``graph`` has the records of a whole model.

Source:
    ``onnx.proto`` of ONNX: the numbers of the fields.
"""

from collections.abc import Iterator, Mapping
from mmap import mmap

from ..errors import UnreadableError
from ..records import Record

_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}

Data = bytes | mmap


def fields(data: Data, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk a message between two places in a file, or raise ``UnreadableError``.

    Yields:
        Number of a field, its value (0 unless it is a varint), and begin and end of its bytes.

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
# Messages inside each other, as the library of Protocol Buffers limits them.
_DEEPEST = 100
_EXTERNAL_DATA, _KEY, _VALUE = 13, 1, 2


def slim(data: Data) -> bytes:
    """Return a model without the contents of its large tensors, or raise ``UnreadableError``.

    Shapes follow from dimensions, which stay, not from weights. A file of 500 MB shrinks to its
    list of nodes, and its weights are never read.
    """
    return b"".join(_slimmed(data, 0, len(data), _MODEL))


def _slimmed(data: Data, begin: int, end: int, kind: int, depth: int = 0) -> Iterator[bytes]:
    _check_depth(depth)
    at = begin
    for number, _, inner, stop in fields(data, begin, end):
        if number in _WAYS[kind]:
            body = b"".join(_slimmed(data, inner, stop, _WAYS[kind][number], depth + 1))
            yield write_varint(number << 3 | 2) + write_varint(len(body)) + body
        elif not (kind == _TENSOR and number in _CONTENTS and stop - inner > KEPT_BYTES):
            yield data[at:stop]
        at = stop


def _check_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise UnreadableError("subgraphs are nested too deeply")


def external_locations(data: Data) -> Iterator[str]:
    """Yield the name of the file of each external tensor, or raise ``ValueError``."""
    yield from _locations(data, 0, len(data), _MODEL)


def _locations(data: Data, begin: int, end: int, kind: int, depth: int = 0) -> Iterator[str]:
    _check_depth(depth)
    for number, _, inner, stop in fields(data, begin, end):
        if kind == _TENSOR and number == _EXTERNAL_DATA:
            entry = {key: data[at:to] for key, _, at, to in fields(data, inner, stop)}
            if entry.get(_KEY) == b"location" and entry.get(_VALUE):
                yield entry[_VALUE].decode()
        elif number in _WAYS[kind]:
            yield from _locations(data, inner, stop, _WAYS[kind][number], depth + 1)


_METADATA = 14
_MOST_METADATA, _MOST_METADATA_BYTES = 100, 1 << 20

# Paths of fields: the graph of a model, and in it an input, the name of a weight, an operator; of
# an input its name and its dimensions; of a dimension its number or its name.
_TO_OPSET, _OPSET_DOMAIN, _OPSET_VERSION = (8,), 1, 2
_TO_GRAPH, _INPUT, _WEIGHT, _OPERATOR = (7,), (11,), (5, 8), (1, 4)
_TO_NODE, _NODE_OUTPUT, _NODE_NAME, _NODE_OPERATOR = (1,), (2,), (3,), (4,)
_NAME, _DIMENSION, _NUMBER, _WORD = (1,), (2, 1, 2, 1), 1, 2
_QUANTIZE = frozenset({"DequantizeLinear", "QuantizeLinear"})


class ModelInput(Record):
    """One input of a model; a dimension that is a name or ``None`` is open."""

    name: str
    shape: tuple[int | str | None, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether any dimension is open."""
        return not all(isinstance(length, int) for length in self.shape)


class ModelFacts(Record):
    """Inputs without weights, the operators of the nodes, and the opset of ONNX's own ones."""

    inputs: tuple[ModelInput, ...] = ()
    operators: tuple[str, ...] = ()
    opset: int | None = None

    @property
    def is_quantised(self) -> bool:
        """Whether QuantizeLinear or DequantizeLinear are in the graph."""
        return not _QUANTIZE.isdisjoint(self.operators)


def read_model(data: Data) -> ModelFacts:
    """Read the inputs and operators of an ONNX model, or raise ``UnreadableError``."""
    graphs = list(at_path(data, 0, len(data), *_TO_GRAPH))
    if len(graphs) != 1:
        raise UnreadableError("there is no graph")
    try:
        weights = {data[a:b].decode() for a, b in at_path(data, *graphs[0], *_WEIGHT)}
        inputs = [_input(data, a, b) for a, b in at_path(data, *graphs[0], *_INPUT)]
        operators = tuple(data[a:b].decode() for a, b in at_path(data, *graphs[0], *_OPERATOR))
    except UnicodeDecodeError:
        raise UnreadableError("a name is not text") from None
    return ModelFacts(
        inputs=tuple(one for one in inputs if one.name not in weights),
        operators=operators,
        opset=_own_opset(data),
    )


def read_nodes(data: Data) -> Iterator[tuple[str, str]]:
    """Yield the name and the operator of each node, or raise ``UnreadableError``.

    A node without a name has the one that TensorRT gives it: ``node_of_`` and its first output.
    """
    try:
        for graph in at_path(data, 0, len(data), *_TO_GRAPH):
            for begin, end in at_path(data, *graph, *_TO_NODE):
                name = _first_text(data, begin, end, _NODE_NAME)
                if not name:
                    name = f"node_of_{_first_text(data, begin, end, _NODE_OUTPUT)}"
                yield name, _first_text(data, begin, end, _NODE_OPERATOR)
    except UnicodeDecodeError:
        raise UnreadableError("a name is not text") from None


def _first_text(data: Data, begin: int, end: int, path: tuple[int, ...]) -> str:
    for a, b in at_path(data, begin, end, *path):
        return data[a:b].decode()
    return ""


def read_metadata(data: Data) -> dict[str, str]:
    """Return what an exporter wrote beside the graph, or raise ``UnreadableError``.

    Ultralytics writes ``task``, ``names``, ``stride`` and ``imgsz``.
    """
    metadata: dict[str, str] = {}
    for begin, end in at_path(data, 0, len(data), _METADATA):
        entry = {number: data[a:b] for number, _, a, b in fields(data, begin, end)}
        text = entry.get(_VALUE, b"")
        if len(metadata) < _MOST_METADATA and len(text) <= _MOST_METADATA_BYTES:
            metadata[entry.get(_KEY, b"").decode(errors="replace")] = text.decode(errors="replace")
    return metadata


def _own_opset(data: Data) -> int | None:
    """Return the opset of ONNX's own operators; None if the model does not name it."""
    for begin, end in at_path(data, 0, len(data), *_TO_OPSET):
        domain, version = b"", None
        for number, value, a, b in fields(data, begin, end):
            if number == _OPSET_DOMAIN:
                domain = data[a:b]
            elif number == _OPSET_VERSION:
                version = value
        if domain in (b"", b"ai.onnx"):
            return version
    return None


def at_path(data: Data, begin: int, end: int, field: int, *rest: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the bytes at a path of fields."""
    for number, _, a, b in fields(data, begin, end):
        if number == field:
            yield from at_path(data, a, b, *rest) if rest else ((a, b),)


def _input(data: Data, begin: int, end: int) -> ModelInput:
    names = [data[a:b].decode() for a, b in at_path(data, begin, end, *_NAME)]
    shape = tuple(_length(data, a, b) for a, b in at_path(data, begin, end, *_DIMENSION))
    return ModelInput(name=names[-1] if names else "", shape=shape)


def _length(data: Data, begin: int, end: int) -> int | str | None:
    found: int | str | None = None
    for number, value, a, b in fields(data, begin, end):
        if number == _NUMBER and value > 0:
            found = value
        elif number == _WORD:
            found = data[a:b].decode() or None
    return found

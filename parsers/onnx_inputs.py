"""The inputs of an ONNX file, read from its bytes alone: no package, and weights are stepped over.

Source:
    ``onnx.proto`` of ONNX (field numbers) and the wire format of Protocol Buffers.
"""

from collections.abc import Iterator
from mmap import mmap

from .errors import UnreadableError
from .records import Record

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH = 7
_NODE, _INITIALIZER, _INPUT = 1, 5, 11
_OPERATION, _TENSOR_NAME = 4, 8
_QUANTIZE = frozenset({b"DequantizeLinear", b"QuantizeLinear"})

Field = tuple[int, int, int, int]


class ModelInput(Record):
    """One input of a model.

    Attributes:
        name: Of its tensor.
        shape: Length of each dimension; a name or ``None`` is left open.
    """

    name: str
    shape: tuple[int | str | None, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether any dimension is left open."""
        return not all(isinstance(length, int) for length in self.shape)


class ModelFacts(Record):
    """What a file tells of itself without its weights.

    Attributes:
        inputs: In the order of the graph, weights left out.
        is_quantised: Whether its graph says itself where to quantise.
    """

    inputs: tuple[ModelInput, ...] = ()
    is_quantised: bool = False


def read_model(data: "bytes | mmap") -> ModelFacts:
    """Read the inputs of an ONNX model.

    Args:
        data: The file, as bytes or mapped.

    Returns:
        What it tells; no input where it has none.

    Raises:
        UnreadableError: It is no ONNX model.
    """
    try:
        graphs = [(a, b) for number, _, a, b in _fields(data, 0, len(data)) if number == _GRAPH]
        if len(graphs) != 1:
            raise UnreadableError("a model has one graph")
        return _graph(data, *graphs[0])
    except (IndexError, UnicodeDecodeError) as error:
        raise UnreadableError(f"this is no ONNX model ({error})") from None


def _graph(data: "bytes | mmap", begin: int, end: int) -> ModelFacts:
    inputs: list[ModelInput] = []
    weights: set[str] = set()
    is_quantised = False
    for number, _, a, b in _fields(data, begin, end):
        if number == _INPUT:
            inputs.append(_input(data, a, b))
        elif number == _INITIALIZER:
            weights.update(
                _text(data, c, d) for n, _, c, d in _fields(data, a, b) if n == _TENSOR_NAME
            )
        elif number == _NODE and not is_quantised:
            is_quantised = any(
                n == _OPERATION and data[c:d] in _QUANTIZE for n, _, c, d in _fields(data, a, b)
            )
    named = tuple(one for one in inputs if one.name not in weights)
    return ModelFacts(inputs=named, is_quantised=is_quantised)


def _input(data: "bytes | mmap", begin: int, end: int) -> ModelInput:
    """Read a ``ValueInfoProto``: name 1, type 2, its tensor 1, of that the shape 2."""
    name, shape = "", []
    for number, _, a, b in _fields(data, begin, end):
        if number == 1:
            name = _text(data, a, b)
        elif number == 2:
            for c, d in _parts(data, a, b, 1):
                for e, f in _parts(data, c, d, 2):
                    shape += [_length(data, g, h) for g, h in _parts(data, e, f, 1)]
    return ModelInput(name=name, shape=tuple(shape))


def _length(data: "bytes | mmap", begin: int, end: int) -> int | str | None:
    """Read a dimension: a number 1, or a name 2, or neither."""
    found: int | str | None = None
    for number, value, a, b in _fields(data, begin, end):
        if number == 1 and value > 0:
            found = value
        elif number == 2:
            found = _text(data, a, b) or None
    return found


def _parts(data: "bytes | mmap", begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    return ((a, b) for number, _, a, b in _fields(data, begin, end) if number == wanted)


def _text(data: "bytes | mmap", begin: int, end: int) -> str:
    return data[begin:end].decode("utf-8")


def _fields(data: "bytes | mmap", at: int, end: int) -> Iterator[Field]:
    """Yield number, value of a varint, and where the bytes of each field begin and end."""
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value, begin = 0, at
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            length, begin = _varint(data, at)
            at = begin + length
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise UnreadableError(f"this is no ONNX model (field {number} of kind {kind})")
        if at > end or number == 0:
            raise UnreadableError("this is no ONNX model (a field goes beyond its end)")
        yield number, value, begin, at


def _varint(data: "bytes | mmap", at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise UnreadableError("this is no ONNX model (a number without end)")

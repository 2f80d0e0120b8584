"""The inputs of an ONNX file, read from its bytes: no package is needed, weights are skipped.

Source:
    ``onnx.proto`` of ONNX: the numbers of the fields.
"""

from collections.abc import Iterator

from ..errors import UnreadableError
from ..records import Record
from .wire_format import Data, fields

_GRAPH = 7
_NODE, _INITIALIZER, _INPUT = 1, 5, 11
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
        graphs = [(a, b) for number, _, a, b in fields(data, 0, len(data)) if number == _GRAPH]
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
        elif number == _NODE and not is_quantised:
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

"""Write ONNX files without the package onnx: the messages and fields that generated models have.

The package takes 31 MB, and would write the same bytes. A message is a list of pieces here, so that
weights are copied once: where the file is joined.

Source:
    ``onnx.proto`` of ONNX: the numbers of the fields and of the types. "Encoding" in the manual of
    Protocol Buffers. Fields are written in the order of their numbers, as its libraries do.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...parsers.onnx import write_varint

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

Pieces = list[bytes]
Attribute = int | float | str | Sequence[int]
# A dimension that is a name is open: the user of the model chooses its length.
Shape = Sequence[int | str]

# How a field is encoded, in the lowest three bits of its tag.
_VARINT, _LENGTH, _FOUR_BYTES = 0, 2, 5
# AttributeProto.AttributeType
_FLOAT, _INT, _STRING, _INTS = 1, 2, 3, 7
# TensorProto.DataType, by numpy's name of the type in little endian, which is the order in a file.
DATA_TYPES: Mapping[str, int] = {"<f4": 1, "|i1": 3, "<i8": 7, "<f2": 10}


def _tag(field: int, encoding: int) -> bytes:
    return write_varint(field << 3 | encoding)


def _number(field: int, value: int) -> Pieces:
    """Encode a whole number; a negative one is written as its 64-bit complement."""
    return [_tag(field, _VARINT), write_varint(value & 0xFFFF_FFFF_FFFF_FFFF)]


def _message(field: int, content: Pieces) -> Pieces:
    """Encode a message in a message, in front of which its length stands."""
    length = sum(map(len, content))
    return [_tag(field, _LENGTH), write_varint(length), *content]


def _text(field: int, value: str) -> Pieces:
    return _message(field, [value.encode()])


def node(
    operation: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str,
    attributes: Mapping[str, Attribute],
) -> Pieces:
    """Return a NodeProto; its attributes are in the order of their names."""
    content: Pieces = []
    for tensor_name in inputs:
        content += _text(1, tensor_name)
    for tensor_name in outputs:
        content += _text(2, tensor_name)
    content += _text(3, name)
    content += _text(4, operation)
    for attribute_name, value in sorted(attributes.items()):
        content += _message(5, _attribute(attribute_name, value))
    return content


def _attribute(name: str, value: Attribute) -> Pieces:
    """Return an AttributeProto: its value is in the field of its type, which field 20 names."""
    content = _text(1, name)
    if isinstance(value, float):
        kind = _FLOAT
        content += [_tag(2, _FOUR_BYTES), struct.pack("<f", value)]
    elif isinstance(value, int):
        kind = _INT
        content += _number(3, value)
    elif isinstance(value, str):
        kind = _STRING
        content += _text(4, value)
    else:
        kind = _INTS
        for item in value:
            content += _number(8, item)
    return content + _number(20, kind)


def tensor(name: str, array: "NDArray[numpy.generic]") -> Pieces:
    """Return a TensorProto with the bytes of an array, whose type is one of ``DATA_TYPES``."""
    content: Pieces = []
    for length in array.shape:
        content += _number(1, length)
    content += _number(2, DATA_TYPES[array.dtype.str])
    content += _text(8, name)
    return content + _message(9, [array.tobytes()])


def value_info(name: str, dtype: str, shape: Shape) -> Pieces:
    """Return a ValueInfoProto: an input or an output of a graph."""
    dimensions: Pieces = []
    for length in shape:
        dimension = _text(2, length) if isinstance(length, str) else _number(1, length)
        dimensions += _message(1, dimension)
    tensor_type = _number(1, DATA_TYPES[dtype]) + _message(2, dimensions)
    return _text(1, name) + _message(2, _message(1, tensor_type))


def graph(
    name: str,
    nodes: Sequence[Pieces],
    weights: Sequence[Pieces],
    inputs: Sequence[Pieces],
    outputs: Sequence[Pieces],
) -> Pieces:
    """Return a GraphProto."""
    content: Pieces = []
    for node_content in nodes:
        content += _message(1, node_content)
    content += _text(2, name)
    for field, messages in ((5, weights), (11, inputs), (12, outputs)):
        for message in messages:
            content += _message(field, message)
    return content


def model(
    graph_content: Pieces, *, ir_version: int, opset: int, producer: tuple[str, str]
) -> bytes:
    """Return a ModelProto, which is a file.

    Args:
        opset: Version of ONNX's own operators.
        producer: Name and version of the program that made the model.
    """
    producer_name, producer_version = producer
    content = _number(1, ir_version)
    content += _text(2, producer_name)
    content += _text(3, producer_version)
    content += _message(7, graph_content)
    # ONNX's own operators are those of the domain without a name.
    content += _message(8, _text(1, "") + _number(2, opset))
    return b"".join(content)

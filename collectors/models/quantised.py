"""A model with Q/DQ nodes becomes a plain one and the scales of its tensors.

Before TensorRT 11 a DLA rejects QuantizeLinear and DequantizeLinear, and takes scales from a
calibration cache. Such scales are one per tensor and symmetric.

Source:
    "Quantization" of ONNX's operators; "Working with DLA" and "Explicit Versus Implicit
        Quantization", TensorRT Developer Guide of 8.x.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.values import some_of
from .files import INSTALL_ONNX

_Q, _DQ = "QuantizeLinear", "DequantizeLinear"
# These only move values, so what goes in and what comes out have one scale.
_MOVING = frozenset(
    {
        *("DepthToSpace", "Dropout", "Flatten", "Identity", "MaxPool", "Reshape", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)
# These cut values off: TensorRT runs them in one kernel with the layer before them.
_CUTTING = frozenset({"Clip", "Relu"})
# These make no value below 0; those keep it so if all that they compute with is.
_POSITIVE = frozenset({"Relu", "Sigmoid", "Softmax"})
_KEEPING_SIGN = _MOVING | {"Add", "AveragePool", "Concat", "GlobalAveragePool", "Mul"}
_AGAIN = "quantise it to int8, activations per tensor and weights per channel"


class Translated(NamedTuple):
    """A plain model as bytes, the scale of each tensor, and what could not be carried over."""

    model: bytes
    scales: dict[str, float]
    notes: tuple[str, ...]


def translate(path: Path) -> Translated:
    """Remove the Q/DQ nodes of a model and return their scales.

    Weights in int8 become floating point again; TensorRT quantises weights by their own largest
    value per channel.

    Raises:
        UserError: Tensors are quantised in a form that a calibration cache cannot express.
        BackendUnavailable: The package onnx is not installed.
    """
    try:
        import onnx
    except ModuleNotFoundError:
        what = f"{path.name} has Q/DQ nodes, and onnx, which translates them, is not installed"
        raise BackendUnavailable(what, INSTALL_ONNX) from None
    model = onnx.load(path)
    scales, notes = _Translation(model.graph, path.name).run()
    try:
        return Translated(model.SerializeToString(), scales, notes)
    except ValueError:  # protobuf ends at 2 GiB
        what = f"{path.name} without Q/DQ nodes is larger than an ONNX file may be"
        raise UserError(what, "use a model of less than 2 GB in floating point") from None


class _Translation:
    """The work on one graph, which is changed in place."""

    def __init__(self, graph: Any, name: str) -> None:
        from onnx import numpy_helper

        self._graph, self._model, self._helper = graph, name, numpy_helper
        self._constants = {weight.name: weight for weight in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self._constants[node.output[0]] = node.attribute[0].t
        self._scales: dict[str, float] = {}
        self._instead: dict[str, str] = {}  # what replaces a tensor behind a removed node
        self._positive: set[str] = set()  # tensors without a value below 0
        self._whole: set[str] = set()  # tensors in int8
        self._noted: dict[str, list[str]] = {}  # sentence to the tensors that it is about

    def run(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """Translate; return scales by tensor, and notes."""
        nodes = self._plain_nodes()
        self._refuse_int8((output.name for output in self._graph.output), "an output")
        for node in nodes:
            node.input[:] = [self._source(name) for name in node.input]
        self._name_outputs(nodes)
        nodes = self._without_unread_constants(nodes)
        self._put_into_graph(nodes)
        self._spread(nodes)
        return self._scales, tuple(self._notes())

    def _plain_nodes(self) -> list[Any]:
        """Return the nodes of the graph without Q/DQ nodes, whose scales are noted."""
        nodes: list[Any] = []
        for node in self._graph.node:
            if node.op_type == _Q:
                nodes += self._quantise(node)
            elif node.op_type == _DQ:
                self._dequantise(node)
            else:
                self._refuse_int8(node.input, node.name or node.op_type)
                if self._makes_no_negative(node):
                    self._positive.update(node.output)
                nodes.append(node)
        return nodes

    def _makes_no_negative(self, node: Any) -> bool:
        """Return whether the outputs of a node certainly have no value below 0."""
        if node.op_type in _POSITIVE:
            return True
        sources = [self._source(name) for name in node.input]
        if node.op_type in _MOVING:
            sources = sources[:1]  # the others are shapes and axes
        return node.op_type in _KEEPING_SIGN and self._positive.issuperset(sources)

    def _source(self, name: str) -> str:
        """Return the tensor that stands for one now, since a node between them was removed."""
        return self._instead.get(name, name)

    def _without_unread_constants(self, nodes: list[Any]) -> list[Any]:
        """Return the nodes except constants that only Q/DQ nodes read."""
        read = self._names_read_by(nodes)
        return [
            node for node in nodes if node.op_type != "Constant" or read.intersection(node.output)
        ]

    def _names_read_by(self, nodes: Iterable[Any]) -> set[str]:
        """Return the tensors that nodes read, and the outputs of the graph."""
        names = {output.name for output in self._graph.output}
        for node in nodes:
            names.update(node.input)
        return names

    def _put_into_graph(self, nodes: list[Any]) -> None:
        """Replace the nodes of the graph; remove weights and types of tensors that are gone."""
        graph, read = self._graph, self._names_read_by(nodes)
        made: set[str] = set()
        for node in nodes:
            made.update(node.output)
        _refill(graph.node, nodes)
        _refill(graph.initializer, [weight for weight in graph.initializer if weight.name in read])
        _refill(graph.value_info, [value for value in graph.value_info if value.name in made])

    def _quantise(self, node: Any) -> Iterator[Any]:
        """Note the scale of an activation; a weight keeps its values.

        Exporters leave a Relu out where the range of a node begins at 0. It is yielded then.
        """
        source = self._source(node.input[0])
        scale, zero = self._values(node)
        if source in self._constants:
            weight = self._array(source)
            self._look_at_weight(source, weight / _along(scale, weight, node), scale, node)
        else:
            if self._note_scale(source, scale, zero) and source not in self._positive:
                from onnx import helper

                cut = f"{source}_cut_at_0"
                yield helper.make_node("Relu", [source], [cut], name=cut)
                self._scales[cut] = self._scales[source]
                self._positive.add(cut)
                source = cut
        self._instead[node.output[0]] = source
        self._whole.add(node.output[0])

    def _dequantise(self, node: Any) -> None:
        """Pass a tensor on, or make a weight in floating point of one in int8."""
        given, result = node.input[0], node.output[0]
        if given in self._instead:
            self._instead[result] = self._instead[given]
            return
        if given not in self._constants:
            self._whole.add(given)
            self._refuse_int8([given], "an input")
        scale, zero = self._values(node)
        whole = self._array(given)
        shifted = whole.astype("f8") - _along(zero, whole, node).astype("f8")
        if whole.dtype.itemsize == 1 and whole.ndim > 1:
            self._look_at_weight(result, shifted, scale, node)
        real = (shifted * _along(scale, whole, node)).astype(scale.dtype)
        self._constants[result] = self._helper.from_array(real, result)
        self._graph.initializer.append(self._constants[result])

    def _look_at_weight(self, name: str, whole: Any, scale: Any, node: Any) -> None:
        """Note a weight, in steps, that TensorRT will quantise otherwise."""
        if scale.size == 1:
            words = "weights have one scale for all channels; TensorRT takes one per channel"
            self._note(words, name)
            return
        others = tuple(at for at in range(whole.ndim) if at != _axis(node))
        largest = abs(whole).max(axis=others)
        if bool(((largest < 126) | (largest > 128.5)).any()):
            words = "weights have scales per channel that do not follow from their largest value"
            self._note(f"{words}, by which TensorRT quantises them", name)

    def _note_scale(self, name: str, scale: Any, zero: Any) -> bool:
        """Note the scale of an activation; return whether its range begins at 0."""
        import numpy

        kind = str(zero.dtype)
        if kind not in ("int8", "uint8"):
            raise UserError(
                f"{self._model} quantises {name!r} to {kind}, and a DLA computes in int8", _AGAIN
            )
        if scale.size != 1:
            raise UserError(
                f"{self._model} has a scale per channel for {name!r}, and a calibration cache has"
                " one per tensor",
                _AGAIN,
            )
        value, shift = float(scale.reshape(())), int(zero.reshape(()))
        low, high = (-128, 127) if kind == "int8" else (0, 255)
        if kind == "uint8" or shift:
            value = float(numpy.float32(value * max(high - shift, shift - low) / 127))
            self._note("tensors have another range below 0 than above; it is made the same", name)
        if self._scales.setdefault(name, value) != value:
            self._note("tensors have two scales; the larger is taken", name)
            self._scales[name] = max(self._scales[name], value)
        return shift == low

    def _values(self, node: Any) -> tuple[Any, Any]:
        """Return scale and zero point of a Q or DQ node, of one shape."""
        import numpy

        names = [name for name in node.input[1:] if name]
        for name in names:
            if name not in self._constants:
                raise UserError(f"{self._model} computes the scale {name!r}", "make it a constant")
        scale = self._array(names[0])
        zero = self._array(names[1]) if len(names) > 1 else numpy.zeros(scale.shape, "u1")
        return scale, zero

    def _array(self, name: str) -> Any:
        return self._helper.to_array(self._constants[name])

    def _note(self, words: str, name: str) -> None:
        self._noted.setdefault(words, []).append(name)

    def _refuse_int8(self, names: Iterable[str], what: str) -> None:
        for name in names:
            if name in self._whole:
                raise UserError(
                    f"{what} of {self._model} is {name!r} in int8, for which there is no"
                    " calibration cache",
                    "export it with Q/DQ nodes around layers of floating point",
                )

    def _name_outputs(self, nodes: list[Any]) -> None:
        """Give the outputs of the graph to the nodes that make them now."""
        from onnx import helper

        output_names = {output.name for output in self._graph.output}
        renamed: dict[str, str] = {}
        for name in sorted(output_names & self._instead.keys()):
            source = self._instead[name]
            source = renamed.get(source, source)
            is_made = any(source in node.output for node in nodes)
            if source in output_names or not is_made:
                # An input or another output: its name must stay, so the value is copied.
                nodes.append(helper.make_node("Identity", [source], [name]))
                continue
            for node in nodes:
                _rename(node.input, source, name)
                _rename(node.output, source, name)
            renamed[source] = name
            if source in self._scales:
                self._scales[name] = self._scales.pop(source)

    def _spread(self, nodes: Iterable[Any]) -> None:
        """Give tensors on both sides of operators that move or cut values the same scale."""
        readers: Counter[str] = Counter()
        for node in nodes:
            readers.update(node.input)
        before = -1
        while before < len(self._scales):  # a scale goes one node further in each turn
            before = len(self._scales)
            for node in nodes:
                self._spread_over(node, readers)

    def _spread_over(self, node: Any, readers: Mapping[str, int]) -> None:
        """Give the input and the outputs of one node the same scale, if it moves or cuts values."""
        source = node.input[0] if node.input else ""
        is_moving = node.op_type in _MOVING
        is_cutting = node.op_type in _CUTTING and readers[source] == 1
        if is_moving and source in self._scales:
            for result in node.output:
                self._scales.setdefault(result, self._scales[source])
        elif (is_moving or is_cutting) and source not in self._constants:
            for result in node.output:
                if result in self._scales:
                    self._scales.setdefault(source, self._scales[result])
                    break

    def _notes(self) -> Iterator[str]:
        words = "Q/DQ nodes were removed, since this TensorRT takes none for a DLA"
        yield f"{words}; {len(self._scales)} tensors have scales"
        for words, names in self._noted.items():
            yield f"{len(names)} {words}: {some_of(names)}"


def _rename(names: Any, old: str, new: str) -> None:
    """Replace a name wherever it stands in the inputs or outputs of a node."""
    names[:] = [new if name == old else name for name in names]


def _refill(field: Any, messages: Iterable[Any]) -> None:
    """Replace the messages of a repeated field, of which some are in it already."""
    copies = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(copies)


def _along(values: Any, array: Any, node: Any) -> Any:
    """Return values of each channel in a shape that applies to an array."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * array.ndim
    if values.ndim != 1 or array.shape[_axis(node)] != values.size:
        raise UserError(f"{node.name or node.op_type} quantises in blocks", _AGAIN)
    shape[_axis(node)] = values.size
    return values.reshape(shape)


def _axis(node: Any) -> int:
    for attribute in node.attribute:
        if attribute.name == "axis":
            return int(attribute.i)
    return 1  # the default of ONNX

"""An ONNX model becomes a TensorRT network, its own types in force where they have to be."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...parsers.built import Precision
from ...parsers.errors import Mendable
from .tensorrt_log import LogLines, reason_in
from .tensorrt_spec import BuildSpec

HALF = ("HALF", "BF16")
_STRONGLY_TYPED = "NetworkDefinitionCreationFlag.STRONGLY_TYPED"
_QUANTISED = ("QUANTIZE", "DEQUANTIZE")

# What is said of a model whose own types decide, and what makes it another.
_TYPED = {
    "fp32": "is typed fp32, and this TensorRT obeys a model's types",
    "fp16": "is typed in half precision",
    "int8": "is quantised by Q/DQ nodes",
}
_EXPORT = {
    "fp32": "export the model in fp32",
    "fp16": "export the model in fp16 (ModelOpt AutoCast does that)",
    "int8": "put Q/DQ nodes into the model (ModelOpt does that)",
}


@dataclass(frozen=True)
class Types:
    """What a model's tensors are by themselves.

    Attributes:
        own: The precision that the model fixes; ``None`` where it fixes none.
        is_strong: Whether TensorRT is to obey it to the letter.
    """

    own: Precision | None
    is_strong: bool


class NetworkReader:
    """Reads models with one TensorRT module."""

    def __init__(self, trt: Any, symbols: Collection[str], logger: Any, lines: LogLines) -> None:
        """Take the module, and which of its optional symbols are there.

        Args:
            trt: The module.
            symbols: As ``tensorrt_probe.symbols_of`` tells them.
            logger: The process's logger for it.
            lines: What that collects.
        """
        self._trt = trt
        self._has = frozenset(symbols).__contains__
        self._logger = logger
        self._lines = lines

    def read(self, builder: Any, spec: BuildSpec) -> tuple[Any, Any, Types]:
        """Read a model, with its own types in force where they have to be or can be.

        Args:
            builder: Of the library.
            spec: Which model, and what is to be built of it.

        Returns:
            The network; what read it, which owns the weights and has to live as long; its types.

        Raises:
            Mendable: The model cannot be read, or its types are not those asked for.
        """
        can_choose = self._has("BuilderFlag.FP16")
        network, parser = self._parse(builder, spec.model, strongly=not can_choose)
        own = _own_precision(network)
        if not can_choose:
            own = own or "fp32"
        types = Types(own, is_strong=not can_choose)
        _check_request(spec, types)
        if can_choose and own == "fp16" and self._has(_STRONGLY_TYPED):
            del parser, network
            network, parser = self._parse(builder, spec.model, strongly=True)
            types = Types(own, is_strong=True)
        return network, parser, types

    def _parse(self, builder: Any, model: Path, *, strongly: bool) -> tuple[Any, Any]:
        flags = 0
        wanted = ("EXPLICIT_BATCH", "STRONGLY_TYPED") if strongly else ("EXPLICIT_BATCH",)
        for name in wanted:
            if self._has(f"NetworkDefinitionCreationFlag.{name}"):
                flags |= 1 << int(getattr(self._trt.NetworkDefinitionCreationFlag, name))
        network = builder.create_network(flags)
        parser = self._trt.OnnxParser(network, self._logger)
        if not parser.parse_from_file(str(model)):
            said = [parser.get_error(at).desc() for at in range(parser.num_errors)]
            words = " ".join((said[-1] if said else reason_in(self._lines.all())).split())
            raise Mendable(
                f"TensorRT cannot read {model.name} ({_node_in(self._lines.all())}{words})",
                "export it with operations and an opset that this TensorRT knows",
            )
        return network, parser


def _check_request(spec: BuildSpec, types: Types) -> None:
    """Refuse what the model's own types, or the DLA, cannot give."""
    name, own, asked = spec.model.name, types.own, spec.precision
    if own is not None and asked not in (None, own):
        raise Mendable(
            f"{name} {_TYPED[own]}, so it cannot run in {asked}",
            f"leave precision out, or {_EXPORT[asked or own]}",
        )
    if spec.device == "dla" and (asked or own) == "fp32":
        raise Mendable(
            f"{name} is to run in fp32, and a DLA computes in fp16 and int8 only",
            "set precision: fp16" if own is None else _EXPORT["fp16"],
        )


def _own_precision(network: Any) -> Precision | None:
    """Return the precision that a model fixes by its own types, if it does."""
    kinds = {type_name(network.get_layer(at).type) for at in range(network.num_layers)}
    if kinds.intersection(_QUANTISED):
        return "int8"
    if any(type_name(tensor.dtype) in HALF for tensor in tensors_of(network)):
        return "fp16"
    return None


def tensors_of(network: Any) -> Iterator[Any]:
    """Yield the inputs of a network and what its layers make."""
    for at in range(network.num_inputs):
        yield network.get_input(at)
    for at in range(network.num_layers):
        layer = network.get_layer(at)
        outputs = (layer.get_output(place) for place in range(layer.num_outputs))
        yield from (tensor for tensor in outputs if tensor is not None)


def type_name(kind: Any) -> str:
    """Return the name of a member of one of the library's enumerations."""
    return str(getattr(kind, "name", kind)).rpartition(".")[2]


def _node_in(lines: Sequence[str]) -> str:
    """Return the node that the parser stumbled over, which only its log tells; or nothing.

    >>> _node_in(['[E] ModelImporter.cpp:140: While parsing node number 3 [Foo -> "y"]:'])
    'node 3 [Foo -> "y"]: '
    """
    for line in reversed(lines):
        _, found, node = line.partition("While parsing node number ")
        if found:
            return f"node {node.rstrip(':')}: "
    return ""

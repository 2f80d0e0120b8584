"""An ONNX model becomes a TensorRT network, its own types in force where they have to be."""

import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ...parsers.errors import Mendable
from ...parsers.inference.placement import Fallback, Precision


@dataclass(frozen=True)
class BuildSpec:
    """A request for a build.

    Attributes:
        device: The kind of device; which core of the DLA is decided when the engine is loaded.
        precision: As asked for; ``None`` leaves it to what the model is.
        optimization_level: 0 to 5; ``None`` is TensorRT's own choice.
    """

    model: Path
    device: Literal["gpu", "dla"]
    batch: int = 1
    precision: Precision | None = None
    fallback: Fallback = "allow"
    optimization_level: int | None = None

    def parts(self) -> dict[str, str]:
        """Return what an engine built by it depends on, its model apart, for the cache's key.

        ``require-pure`` builds as ``allow`` does and then looks at what came of it.
        """
        fallback = {"require-pure": "allow"}.get(self.fallback, self.fallback)
        return {
            "device": self.device,
            "batch": str(self.batch),
            "precision": self.precision or "model",
            "fallback": fallback if self.device == "dla" else "none",
            "optimization_level": str(self.optimization_level),
        }


@dataclass(frozen=True)
class Plan:
    """A serialised engine, and how it came to be.

    Attributes:
        int8_scales: Source of the scales of an int8 engine.
    """

    content: bytes
    is_strongly_typed: bool
    int8_scales: Literal["dummy", "explicit"] | None
    build_seconds: float
    log: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A network with all that it is to be built with.

    Attributes:
        parser: Parser of the model; it owns the weights, so it has to live as long as the network.
        config: Device, types and shapes.
        int8_scales: Source of the scales of an int8 engine.
    """

    builder: Any
    network: Any
    parser: Any
    config: Any
    is_strongly_typed: bool
    int8_scales: Literal["dummy", "explicit"] | None
    notes: list[str]


# A build says hundreds of lines; its last ones, and those about layers, are what is needed.
_LINES_AT_MOST = 4000
_LETTERS = {"INTERNAL_ERROR": "E", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}
# Of what it says when talkative, only the layers of the finished engine are of use.
_KEPT_OF_VERBOSE = "Layer("
_NOISE = re.compile(r"^\[E\] (?:\d+: )?|\(?\[?[\w./]+\.(?:cpp|h)::\S+::\d+\]\)? ?")


class LogLines:
    """Lines of the library, each with ``[E]``, ``[W]`` or ``[I]`` in front, as they come.

    The library may speak from threads of its own; appending to a deque is safe from any.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES_AT_MOST)

    def clear(self) -> None:
        """Forget all that was said."""
        self._lines.clear()

    def all(self) -> tuple[str, ...]:
        """Return what was said, in order."""
        return tuple(self._lines)

    def take(self, severity: str, message: str) -> None:
        """Keep one message; warnings and errors also go to standard error."""
        letter = _LETTERS.get(severity, "I")
        if letter == "V" and not message.startswith(_KEPT_OF_VERBOSE):
            return
        for line in message.splitlines():
            self._lines.append(f"[{letter}] {line}")
            if letter in "EW":
                print(f"TensorRT: [{letter}] {line}", file=sys.stderr)


@lru_cache(maxsize=4)
def logger_of(trt: Any) -> tuple[Any, LogLines]:
    """Return the one logger of this process for a TensorRT module, and what it collects.

    TensorRT keeps the first logger that it is given for as long as the process lives.
    """
    lines = LogLines()

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            try:
                lines.take(getattr(severity, "name", str(severity)), message)
            except Exception as error:  # it is called from C++, which an exception would end
                print(f"TensorRT: a line was lost ({error})", file=sys.stderr)

    return Logger(), lines


def reason_in(lines: Iterable[str]) -> str:
    """Return the last error that was said, without its place in the sources.

    >>> reason_in(["[I] begin", "[E] 4: [network.cpp::validate::3062] Error Code 4: No outputs."])
    'Error Code 4: No outputs.'
    """
    errors = [line for line in lines if line.startswith("[E]")]
    return _NOISE.sub("", errors[-1]).strip() if errors else "its log gives no reason"


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
    """The types of a model's own tensors.

    Attributes:
        own: The precision that the model fixes; ``None`` where it fixes none.
    """

    own: Precision | None
    is_strong: bool


class NetworkReader:
    """Reads models with one TensorRT module."""

    def __init__(self, trt: Any, symbols: Collection[str], logger: Any, lines: LogLines) -> None:
        """Take the module, and which of its optional symbols are there.

        Args:
            symbols: As ``tensorrt_probe.symbols_of`` tells them.
        """
        self._trt = trt
        self._has = frozenset(symbols).__contains__
        self._logger = logger
        self._lines = lines

    def read(self, builder: Any, spec: BuildSpec) -> tuple[Any, Any, Types]:
        """Read a model, with its own types in force where they have to be or can be.

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

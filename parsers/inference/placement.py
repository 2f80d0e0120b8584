"""Placement of layers from the build log and the engine inspector: DLA or GPU.

TensorRT reports it in three places. During the build it lists the layers of each device. With the
highest verbosity it also lists the layers of the finished engine. And the inspector of the engine
returns the same list as JSON. A plan alone does not show which of its layers run on the DLA.

Source:
    "Working with DLA" and "Engine Inspector", TensorRT documentation of 8.5 to 11; public logs of
        8.4 to 10; an inspector's JSON of 8.6.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ..records import Record
from .layers import computes, is_constant, is_reformat, read_layers

Precision = Literal["fp32", "fp16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Fallback = Literal["forbid", "allow", "require-pure"]
Memory = Literal["copy", "mapped", "managed", "managed-anyway"]
Int8Scales = Literal["calibrated", "dummy", "explicit"]
EngineCapability = Literal["standard", "dla_standalone"]
PrecisionConstraints = Literal["obey", "prefer"]
PlacementVerdict = Literal["pure_dla", "dla_plus_reformat", "mixed", "gpu_only", "unknown"]


class Placement(Record):
    """Layers of an engine by device, from the build log and the inspector.

    A layer that only holds a constant is in no list: it has no work at run time.

    Attributes:
        verdict: ``dla_plus_reformat``: the GPU only changes the form of tensors; ``mixed``: both
            compute; ``unknown``: no evidence.
        loadables: Number of DLA subgraphs; ``None`` if unknown. ``dla_layers`` are their names.
        gpu_layers: Layers that compute on the GPU; in an engine for a DLA, those that fell back.
        reformat_layers: Layers on the GPU that only reformat, shuffle or copy.
    """

    verdict: PlacementVerdict = "unknown"
    loadables: NonNegativeInt | None = None
    dla_layers: tuple[str, ...] = ()
    gpu_layers: tuple[str, ...] = ()
    reformat_layers: tuple[str, ...] = ()


class Circumstances(Record):
    """The machine as an engine was built: beside other work, a builder may choose worse kernels.

    Attributes:
        load_average: Load average of the last minute, before the build; free memory likewise.
        wanted_memory_bytes: Memory that the build was estimated to take.
        clocks_hertz: Clocks of GPU, DLA and memory, as the build ended; ``clocks_locked`` as by
            ``jetson_clocks``.
        waited_seconds: For other builders; ``waited_for`` are their processes, as far as known.
        is_alone: Whether the machine's lock was held, so that no other build ran.
    """

    load_average: NonNegativeFloat | None = None
    free_memory_bytes: NonNegativeInt | None = None
    wanted_memory_bytes: NonNegativeInt | None = None
    free_device_bytes: NonNegativeInt | None = None
    clocks_hertz: dict[str, NonNegativeFloat] = {}
    clocks_locked: bool | None = None
    waited_seconds: NonNegativeFloat = 0.0
    waited_for: tuple[int, ...] = ()
    is_alone: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Return remarks about the build for a person: its memory was scarce."""
        free, wanted = self.free_memory_bytes, self.wanted_memory_bytes
        if free is None or wanted is None or free >= wanted:
            return ()
        what = f"{free / 2**30:.1f} GiB of memory were free for a build of about"
        why = "kernels that do not fit are not tried, so the engine may be slow"
        return (f"{what} {wanted / 2**30:.1f} GiB: {why}; end programs, then build it again",)


class HeldLayer(Record):
    """A layer whose precision was asked for.

    Attributes:
        found: Type in which it computes in the engine; ``None`` if the inspector does not show it.
    """

    name: str
    asked: Precision
    found: str | None = None

    @property
    def is_kept(self) -> bool | None:
        """Whether the engine computes it as asked; ``None`` if that is not shown."""
        return None if self.found is None else self.found == self.asked


class Built(Record):
    """Result of a build, and the request.

    Attributes:
        requested_precision: ``None`` left it to the back-end.
        layer_types: Data type to the number of layers whose first output has it, constants aside.
        is_strongly_typed: Whether the model's own types were used.
        int8_scales: With ``dummy`` scales the speed is meaningful and the outputs are not.
        wide_layers: Layers of an engine in int8 that compute without any tensor in int8.
        held_layers: Layers whose precision was asked for, read back from the engine; the first 64,
            those that differ before others.
        build_seconds: Duration of the build, this time or earlier.
        circumstances: The machine during the build, this time or earlier.
        context_bytes: Device memory of one execution context.
        has_transfers: Whether an inference copies its inputs and outputs.
        memory: That of inputs and outputs, if the back-end has a choice.
        head_engine_key: The engine of the head, if the model is a body: all else is of the body,
            but for ``layer_types`` and ``notes``, which are of both.
    """

    requested_precision: Precision | None = None
    layer_types: dict[str, NonNegativeInt] = {}
    is_strongly_typed: bool | None = None
    int8_scales: Int8Scales | None = None
    wide_layers: tuple[str, ...] = ()
    held_layers: tuple[HeldLayer, ...] = ()
    fallback: Fallback | None = None
    placement: Placement = Placement()
    is_cached: bool = False
    engine_key: str | None = None
    head_engine_key: str | None = None
    engine_bytes: NonNegativeInt | None = None
    build_seconds: NonNegativeFloat | None = None
    circumstances: Circumstances | None = None
    context_bytes: NonNegativeInt | None = None
    has_cuda_graph: bool | None = None
    why_no_graph: str | None = None
    streams: PositiveInt = 1
    has_transfers: bool | None = None
    memory: Memory | None = None
    notes: tuple[str, ...] = ()


class LayerAnswer(Record):
    """The builder's answer for one layer of a parsed model.

    Attributes:
        kind: For example ``CONVOLUTION``.
        marks: Origin of the layer as TensorRT writes it, for example ``[ONNX Layer: conv1]``.
        on_dla: Whether the layer can run on the DLA; ``None`` without a DLA.
    """

    name: str
    kind: str
    marks: str = ""
    on_dla: bool | None = None


class LayerAnswers(Record):
    """The answers of this machine's builder for a model, or why it cannot be used."""

    problem: str | None = None
    remedy: str | None = None
    tensorrt: str | None = None
    dla_cores: NonNegativeInt | None = None
    layers: tuple[LayerAnswer, ...] = ()


_DLA, _GPU = "[DlaLayer]", "[GpuLayer]"
_SECTION = "layers running on dla"
_FINISHED, _TACTIC = "Layer(", ", Tactic:"
_OFFLOADED = " successfully offloaded to DLA"
# A subgraph of the DLA or of TensorRT's compiler for GPUs: the name proves nothing.
_SUBGRAPH = "{ForeignNode["

_Place = Literal["dla", "gpu", "reformat"]
# If a name occurs twice, the place with more information counts.
_RANK: Mapping[_Place | None, int] = {"reformat": 1, "gpu": 2, "dla": 3}


class _Layer(NamedTuple):
    """A layer; the kind is lower case, or empty."""

    name: str
    kind: str = ""


def placement_of(log: Sequence[str], inspector: str | None, device: str) -> Placement:
    """Return where the layers of an engine run.

    The finished engine counts: the inspector's list, or the log's own. Without both, it is the list
    that TensorRT prints during the build, which may lack the reformats at the engine's edges. A
    subgraph without evidence for DLA or GPU is in no list, and then the verdict is ``unknown``.

    Args:
        log: Lines of the build, with or without time and severity in front.
        inspector: The engine as JSON of the inspector, or ``None``.
        device: ``gpu``, ``dla0`` or ``dla1``.

    >>> placement_of(
    ...     ["[I] [TRT] [DlaLayer] {ForeignNode[conv1...relu9]}", "[GpuLayer] SOFTMAX: prob"],
    ...     None,
    ...     "dla0",
    ... ).verdict
    'mixed'
    """
    on_dla, on_gpu, finished = _read_log(log)
    kinds = dict(on_gpu)
    places: dict[str, _Place] = dict.fromkeys(on_dla, "dla")
    is_undecided = False
    # Without detail, the inspector has only the names.
    inspected = [_Layer(layer.name, layer.kind.lower()) for layer in read_layers(inspector)]
    for name, own_kind in inspected or finished or on_gpu:
        kind = own_kind or kinds.get(name, "")
        if is_constant(name, kind):
            continue
        found = _place(name, kind, device, kinds)
        if found is None:
            is_undecided |= name not in places
        elif _RANK[found] > _RANK.get(places.get(name), 0):
            places[name] = found
    names: dict[_Place, list[str]] = {"dla": [], "gpu": [], "reformat": []}
    for name, place in places.items():
        names[place].append(name)
    verdict: PlacementVerdict = "unknown"
    loadables = None
    if places and not is_undecided:
        verdict = _verdict(names)
        loadables = len(names["dla"])
    return Placement(
        verdict=verdict,
        loadables=loadables,
        dla_layers=tuple(names["dla"]),
        gpu_layers=tuple(names["gpu"]),
        reformat_layers=tuple(names["reformat"]),
    )


def _verdict(names: Mapping[_Place, Collection[str]]) -> PlacementVerdict:
    """Return what the layers of an engine show, by the places of all of them."""
    if not names["dla"]:
        return "gpu_only"
    if names["gpu"]:
        return "mixed"
    if names["reformat"]:
        return "dla_plus_reformat"
    return "pure_dla"


def layer_types(inspector: str | None) -> dict[str, int]:
    """Count the layers of an engine by the data type of their first output, most frequent first.

    ``inspector`` is its JSON. An engine without detail has no types. Constants are not counted:
    they keep the type of the model, whatever the layers compute in.

    >>> layer_types('{"Layers": [{"Name": "fc", "Outputs": [{"Format/Datatype":'
    ...             ' "Row major linear FP32"}]}]}')
    {'fp32': 1}
    """
    types: Counter[str] = Counter()
    for layer in read_layers(inspector):
        if layer.output_type is not None and not is_constant(layer.name, layer.kind):
            types[layer.output_type] += 1
    return dict(types.most_common())


_FLOATS = frozenset({"bf16", "fp16", "fp32"})


def wide_layers(inspector: str | None) -> tuple[str, ...]:
    """Return the layers that compute in floating point alone, by the types of their first tensors.

    Subgraphs of a DLA are left out: the inspector does not look into them.

    >>> wide_layers('{"Layers": [{"Name": "fc", "LayerType": "Gemm", "Outputs":'
    ...             ' [{"Format/Datatype": "Row major linear FP16"}]}]}')
    ('fc',)
    """
    found = []
    for layer in read_layers(inspector):
        types = {layer.input_type, layer.output_type, layer.precision}
        is_inspected = computes(layer.name, layer.kind) and "dla" not in layer.kind.lower()
        if is_inspected and types & _FLOATS and "int8" not in types:
            found.append(layer.name)
    return tuple(found)


def _read_log(log: Iterable[str]) -> tuple[list[str], list[_Layer], list[_Layer]]:
    """Collect names on the DLA, layers on the GPU and layers of the last finished engine."""
    on_dla: list[str] = []
    on_gpu: list[_Layer] = []
    finished: list[_Layer] = []
    for line in log:
        if _SECTION in line.lower():
            for listed in (on_dla, on_gpu, finished):
                listed.clear()
        elif _DLA in line:
            on_dla.append(line.partition(_DLA)[2].strip().rstrip(","))
        elif _GPU in line:
            on_gpu.append(_kind_and_name(line.partition(_GPU)[2].strip()))
        elif _OFFLOADED in line and _SUBGRAPH in line:
            name = line.partition(_OFFLOADED)[0]
            on_dla.append(name[name.index(_SUBGRAPH) :].strip())
        elif _FINISHED in line and _TACTIC in line:
            kind, _, rest = line.partition(_FINISHED)[2].partition("): ")
            finished.append(_Layer(rest.partition(_TACTIC)[0].strip(), kind.strip().lower()))
    return list(filter(None, on_dla)), _named(on_gpu), _named(finished)


def _named(layers: Iterable[_Layer]) -> list[_Layer]:
    return [layer for layer in layers if layer.name]


def _kind_and_name(text: str) -> _Layer:
    """Split ``CONVOLUTION: conv1 + relu1``; not every version prints the kind."""
    kind, colon, name = text.partition(": ")
    if colon and kind.replace("_", "").isalnum() and kind.isupper() and name.strip():
        return _Layer(name.strip(), kind.lower())
    return _Layer(text)


def _place(name: str, kind: str, device: str, kinds: Mapping[str, str]) -> _Place | None:
    """Return where a layer runs; ``None`` for a subgraph that may belong to the DLA."""
    if "dla" in kind:
        return "dla"
    if is_reformat(name, kind):
        return "reformat"
    is_known = device == "gpu" or not name.startswith(_SUBGRAPH)
    if is_known or "myelin" in kind or name in kinds:
        return "gpu"
    return None


def group_dla_rows(rows: Sequence[tuple[str, int]], dla_layers: Collection[str]) -> dict[str, int]:
    """Merge rows of layer and time under the DLA subgraph that they surround, and return them.

    A subgraph gets its own row, the copies into its memory before it, and the copies after it.
    Without names in ``dla_layers``, as on a GPU, the rows stay as they are.

    >>> rows = [("in to nvm", 20), ("{ForeignNode[a...b]}", 8), ("out from nvm", 7690), ("fc", 5)]
    >>> group_dla_rows(rows, ["{ForeignNode[a...b]}"])
    {'{ForeignNode[a...b]}': 7718, 'fc': 5}
    """
    grouped: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    owner: str | None = None
    for name, time in rows:
        lower = name.lower()
        if name in dla_layers:
            owner = name
            grouped[name] += time + waiting.total()
            waiting.clear()
        elif dla_layers and lower.endswith(" to nvm"):
            waiting[name] += time
        elif owner is not None and (
            lower.endswith((" from nvm", " copy finish", " copy", "_copy_output"))
            or lower.startswith("reformatting copynode")
        ):
            grouped[owner] += time
        else:
            owner = None
            grouped[name] += time
    grouped.update(waiting)
    return dict(grouped)

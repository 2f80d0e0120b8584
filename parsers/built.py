"""What an inference back-end made of a model, and where its layers were placed."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from .records import Record

Precision = Literal["fp32", "fp16", "int8"]
Fallback = Literal["forbid", "allow", "require-pure"]
PlacementVerdict = Literal["pure_dla", "dla_plus_reformat", "mixed", "gpu_only", "unknown"]


class Placement(Record):
    """Where the layers of an engine run; evidence from the build log and the inspector.

    Attributes:
        verdict: ``pure_dla``: nothing on the GPU; ``dla_plus_reformat``: on the GPU only what
            changes the form of tensors; ``mixed``: compute on both; ``gpu_only``: nothing on the
            DLA; ``unknown``: there is no evidence, which is no verdict.
        loadables: Subgraphs of the DLA; ``None`` where not known.
        dla_layers: Their names as TensorRT prints them.
        gpu_layers: Layers that compute on the GPU; of an engine built for a DLA, those that fell
            back.
        reformat_layers: Layers on the GPU that only reformat, shuffle or copy.
    """

    verdict: PlacementVerdict = "unknown"
    loadables: NonNegativeInt | None = None
    dla_layers: tuple[str, ...] = ()
    gpu_layers: tuple[str, ...] = ()
    reformat_layers: tuple[str, ...] = ()


class Built(Record):
    """What was built, beside what was asked for.

    Attributes:
        requested_precision: As ordered; ``None`` left it to the back-end.
        layer_types: Data type to the number of layers whose first output has it.
        is_strongly_typed: Whether the model's own types were obeyed.
        int8_scales: Where the scales of an int8 engine are from; ``dummy`` ones make a speed
            that means something and answers that mean nothing.
        fallback: What was asked for layers that a DLA refuses.
        placement: Where the layers went.
        is_cached: Whether the engine was there already.
        engine_key: What the engine cache knows it by, SHA-256.
        engine_bytes: Size of the serialised engine.
        build_seconds: Length of the build that made it, this time or earlier.
        context_bytes: Device memory of one execution context.
        has_cuda_graph: Whether inferences are launched as a CUDA graph.
        why_no_graph: Why not, where one was asked for.
        streams: Inferences in flight at once.
        has_transfers: Whether an inference copies its inputs and outputs.
        notes: What a person should know of the build, a line each.
    """

    requested_precision: Precision | None = None
    layer_types: dict[str, NonNegativeInt] = {}
    is_strongly_typed: bool | None = None
    int8_scales: Literal["calibrated", "dummy", "explicit"] | None = None
    fallback: Fallback | None = None
    placement: Placement = Placement()
    is_cached: bool = False
    engine_key: str | None = None
    engine_bytes: NonNegativeInt | None = None
    build_seconds: NonNegativeFloat | None = None
    context_bytes: NonNegativeInt | None = None
    has_cuda_graph: bool | None = None
    why_no_graph: str | None = None
    streams: PositiveInt = 1
    has_transfers: bool | None = None
    notes: tuple[str, ...] = ()

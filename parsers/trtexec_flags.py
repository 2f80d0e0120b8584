"""The arguments that make trtexec of any version measure the same thing.

What an option is called, and what happens without it, changed from 8.5 to 11. Its own help says
what it takes; no version is compared.

Source:
    Help texts of trtexec 8.4 to 10; TensorRT's migration guide to 11.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .built import Fallback, Precision

# An option begins its line, and its words go on in lines that begin with more blanks; elsewhere
# in the help it is only spoken of. What was made the default is still listed, as a "no-op".
_OPTION = re.compile(r"^ {0,8}(?:-\w, *)?(--[A-Za-z]\w*)", re.MULTILINE)
_NO_OP = "no-op"
_PRECISIONS: Mapping[Precision, tuple[str, ...]] = {
    "fp32": (),
    "fp16": ("--fp16",),
    # A layer without an int8 kernel would be run in single precision.
    "int8": ("--int8", "--fp16"),
}


@dataclass(frozen=True)
class Wanted:
    """What is to be built and measured.

    Attributes:
        device: ``gpu``, ``dla0`` or ``dla1``.
        shapes: Of inputs that the model leaves open, by name.
        precision: To build in, where types may be chosen at all.
        fallback: What becomes of layers that a DLA refuses.
        optimization_level: How long to look for faster kernels, 0 to 5; ``None`` leaves it.
        streams: Inferences in flight at once.
        cuda_graph: Whether to launch as a CUDA graph; on a DLA it is never one.
        transfers: Whether inputs and outputs are copied with each inference.
        warm_up_seconds: Inferences before this time do not count.
        duration_seconds: Length of what counts, or
        count: inferences in it, at least.
    """

    device: str
    shapes: Mapping[str, tuple[int, ...]]
    precision: Precision = "fp16"
    fallback: Fallback = "allow"
    optimization_level: int | None = None
    streams: int = 1
    cuda_graph: bool = True
    transfers: bool = True
    warm_up_seconds: float = 1.0
    duration_seconds: float | None = None
    count: int | None = None

    @property
    def core(self) -> int | None:
        """The DLA's number; ``None`` for the GPU."""
        number = self.device.removeprefix("dla")
        return int(number) if self.device.startswith("dla") and number.isdigit() else None

    @property
    def is_graph(self) -> bool:
        """Whether a CUDA graph is asked of it: work of a DLA can't be captured."""
        return self.cuda_graph and self.core is None


def options_in(help_text: str) -> frozenset[str]:
    """Return the options that a help text offers, without those that it says do nothing.

    >>> sorted(options_in("  --fp16=N   Enable it; instead of --best"))
    ['--fp16']
    """
    found = list(_OPTION.finditer(help_text))
    ends = [*(one.start() for one in found), len(help_text)][1:]
    return frozenset(
        one[1]
        for one, end in zip(found, ends, strict=True)
        if _NO_OP not in help_text[one.start() : end]
    )


def is_typed(offered: frozenset[str]) -> bool:
    """Tell whether this trtexec builds the types of the model and no others."""
    return "--fp16" not in offered


def chooses_types(offered: frozenset[str], precision: Precision) -> bool:
    """Tell whether this trtexec can be asked for a precision; else the model's types are built."""
    return all(flag in offered for flag in _PRECISIONS[precision])


def build_arguments(
    offered: frozenset[str], wanted: Wanted, *, model: str, plan: str, layers: str
) -> list[str]:
    """Return the arguments that build an engine and infer nothing.

    Args:
        offered: What its help offers.
        wanted: What to build.
        model: The ONNX file.
        plan: Where the engine goes.
        layers: Where the inspector's JSON goes.
    """
    chosen = [f"--onnx={model}", f"--saveEngine={plan}", *_shapes(wanted), *_core(wanted)]
    if chooses_types(offered, wanted.precision):
        chosen += _PRECISIONS[wanted.precision]
    # Without fallback not even a reformat may run on the GPU, which "require-pure" does allow.
    if wanted.core is not None and wanted.fallback != "forbid":
        chosen.append("--allowGPUFallback")
    chosen += _first(offered, "--skipInference", "--buildOnly")
    # Some versions tell of a DLA's layers only when they are at their most talkative.
    if wanted.core is not None:
        chosen += _first(offered, "--verbose")
    if wanted.optimization_level is not None and "--builderOptimizationLevel" in offered:
        chosen.append(f"--builderOptimizationLevel={wanted.optimization_level}")
    if "--profilingVerbosity" in offered:
        chosen.append("--profilingVerbosity=detailed")
    if "--exportLayerInfo" in offered:
        chosen.append(f"--exportLayerInfo={layers}")
    return chosen


def run_arguments(offered: frozenset[str], wanted: Wanted, *, plan: str, times: str) -> list[str]:
    """Return the arguments that load an engine and measure it.

    One inference is complete before the next begins, as in every other back-end; no thread spins
    while it waits, for that would draw power; copies and CUDA graph are as they are wanted.

    Args:
        offered: What its help offers.
        wanted: What to measure.
        plan: The engine.
        times: Where the times of all inferences go.
    """
    chosen = [f"--loadEngine={plan}", *_shapes(wanted), *_core(wanted)]
    if wanted.is_graph:
        chosen += _first(offered, "--useCudaGraph")
    else:
        chosen += _first(offered, "--noCudaGraph")
    chosen += _first(offered, "--includeDataTransfers" if wanted.transfers else "--noDataTransfers")
    chosen += _first(offered, "--noSpinWait")
    if wanted.streams > 1:
        chosen += [
            f"{flag}={wanted.streams}" for flag in _first(offered, "--infStreams", "--streams")
        ]
    else:
        chosen += _first(offered, "--exposeDMA")
    chosen += [
        f"--warmUp={round(wanted.warm_up_seconds * 1000)}",
        f"--duration={wanted.duration_seconds or 0:g}",
        f"--iterations={wanted.count or 1}",
        f"--exportTimes={times}",
    ]
    return chosen


def _first(offered: frozenset[str], *names: str) -> list[str]:
    """Return the first of several names that is offered; none of them needs no argument."""
    return next(([name] for name in names if name in offered), [])


def _core(wanted: Wanted) -> list[str]:
    return [] if wanted.core is None else [f"--useDLACore={wanted.core}"]


def _shapes(wanted: Wanted) -> list[str]:
    """Name the shapes of inputs that are left open; to give another one's is an error."""
    named = ",".join(f"{name}:{'x'.join(map(str, of))}" for name, of in wanted.shapes.items())
    return [f"--shapes={named}"] if named else []

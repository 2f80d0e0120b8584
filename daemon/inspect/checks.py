"""An inspection held against this machine's builder, and against engines that were built."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ...collectors.models.files import sha256_of
from ...parsers.onnx.graph import Graph
from ...parsers.readiness.checks import check_builder, check_engine
from ...parsers.readiness.records import Check, Disagreement, Inspection
from .against import find_evidence

_SHOWN = 12


def ask_builder(
    graph: Graph, inspection: Inspection, model: Path, shapes: Mapping[str, tuple[int, ...]]
) -> Check:
    """Ask the TensorRT of this machine, in a child, which layers the DLA takes.

    Args:
        graph: The model.
        inspection: What is predicted of it.
        model: Its file.
        shapes: Input to its shape, as given.
    """
    from ...collectors.backends.layer_answers import ask

    return check_builder(graph, inspection, ask(model, inspection.precision, shapes))


def look_at_engine(
    graph: Graph, inspection: Inspection, model: Path, given: str, state_dir: Path
) -> Check:
    """Look at where the layers of an engine went.

    Args:
        graph: The model.
        inspection: What is predicted of it.
        model: Its file.
        given: What names the engine; see ``find_evidence``.
        state_dir: Where engines and runs are kept.

    Raises:
        Mendable: There is no such engine.
    """
    evidence = find_evidence(given, state_dir)
    source = evidence.source
    if evidence.model_sha256 not in (None, sha256_of(model)):
        source = f"{source}, which is of another file"
    return check_engine(graph, inspection, evidence.placement, source)


def is_refuted(check: Check) -> bool:
    """Whether something is on the GPU that the prediction has elsewhere."""
    return any(one.found == "gpu" for one in check.differences)


def check_lines(check: Check) -> Iterator[str]:
    """Say what came of it, a line each."""
    if check.problem is not None:
        mend = f": {check.mend}" if check.mend else ""
        yield f"! {check.source}: {check.problem}{mend}"
        return
    more = f", {check.answered} that the rules leave unknown are told" if check.answered else ""
    yield f"{check.source}: {check.agreed} of {check.compared} nodes are as predicted{more}"
    if check.loadables is not None:
        yield f"{check.source}: {check.loadables} loadables"
    for one in check.differences[:_SHOWN]:
        yield _difference(one)
    rest = len(check.differences) - _SHOWN
    if rest > 0:
        yield f"  {rest} more; --json has them"


def _difference(one: Disagreement) -> str:
    rules = f" ({', '.join(dict.fromkeys(one.rules))})" if one.rules else ""
    names = [name for name in one.layers if name != one.name]
    layers = f", by {names[0]}{' …' if len(names) > 1 else ''}" if names else ""
    return f"  {one.op} {one.name}: predicted {one.predicted}{rules}, found {one.found}{layers}"

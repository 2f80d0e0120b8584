"""The work of a model at the shapes at which it is measured."""

from functools import lru_cache
from pathlib import Path

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.events import InputShape, Order
from ...parsers.onnx.costs import CostPrecision, ModelWork, model_work
from ...parsers.onnx.graph import Graph
from ..models.files import find_model, read_graph_apart
from .base import input_shapes


# A benchmark asks once for each accelerator.
@lru_cache(maxsize=1)
def graph_at(path: Path, batch: int, shapes: tuple[tuple[str, InputShape], ...]) -> Graph:
    """Return the graph of a model at a batch; ``shapes`` are those of inputs with open dimensions.

    Raises:
        UserError: The model cannot be read, or not at these shapes.
    """
    graph = read_graph_apart(path, {})
    given = {}
    has_open_batch = False
    for name in graph.inputs:
        shape = graph.tensor(name).shape or ()
        given[name] = shape
        if shape and not isinstance(shape[0], int):
            has_open_batch = True
    if not has_open_batch:
        return graph
    order = Order(
        run_id="", backend="", device="gpu", model_directory="", batch=batch, shapes=dict(shapes)
    )
    return read_graph_apart(path, input_shapes(given, order))


# Each run of a workload asks, and reading takes a second.
@lru_cache(maxsize=64)
def work_of(
    model: str,
    sha256: str,  # noqa: ARG001 - a file that changed is another model
    directory: Path,
    batch: int,
    shapes: tuple[tuple[str, InputShape], ...],
    precision: CostPrecision,
) -> ModelWork | None:
    """Return the work of an inference, or ``None`` if the model cannot be read.

    ``directory`` has the built-in models. That onnx is not installed is one reason for ``None``.
    """
    try:
        graph = graph_at(find_model(model, directory), batch, shapes)
    except (BackendUnavailable, UserError):
        return None
    return model_work(graph, precision)

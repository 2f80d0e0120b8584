"""``tegrascope inspect``."""

import argparse
from pathlib import Path

from ...collectors.models import find_model
from ...collectors.onnx_graph import read_graph
from ...parsers.errors import Mendable
from ...parsers.graph import Graph
from ...parsers.readiness.inspect import inspect_graph
from ...parsers.readiness.records import Inspection
from ..exit_status import CHECK_SAYS_NO, GOOD
from ..output import standard_output
from .choose import choose_rules


def inspect(arguments: argparse.Namespace) -> int:
    """Say where each node of a model would run; 3 where it would not run wholly on the DLA."""
    graph, inspection = look(arguments)
    if arguments.svg is not None:
        draw(arguments.svg, graph, inspection)
    if arguments.json:
        print(inspection.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from .table import print_inspection

        print_inspection(inspection, shows_all=arguments.all)
    return GOOD if inspection.is_ready else CHECK_SAYS_NO


def look(arguments: argparse.Namespace) -> tuple[Graph, Inspection]:
    """Read the model and judge it.

    Raises:
        Mendable: The model cannot be read, or what was asked for is not there.
    """
    rules, reason = choose_rules(arguments.tensorrt)
    path = find_model(arguments.model, arguments.state_dir / "models")
    graph = read_graph(path, dict(arguments.shape))
    inspection = inspect_graph(
        graph,
        rules,
        model=arguments.model,
        reason=reason,
        precision=arguments.precision,
    )
    return graph, inspection


def draw(path: Path, graph: Graph, inspection: Inspection) -> None:
    """Write the picture of a model.

    Raises:
        Mendable: The file cannot be written.
    """
    from .picture import picture

    try:
        path.write_text(picture(graph, inspection), encoding="utf-8")
    except OSError as error:
        raise Mendable(
            f"{path}: {error.strerror or error}", "name a writable file with --svg"
        ) from None

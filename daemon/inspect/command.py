"""``tegrascope inspect``."""

import argparse
from pathlib import Path

from ...collectors.models import find_model
from ...collectors.onnx_apart import read_graph_apart
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
    refuted = False
    if arguments.verify or arguments.against is not None:
        inspection, refuted = check(arguments, graph, inspection)
    if arguments.svg is not None:
        draw(arguments.svg, graph, inspection)
    if arguments.json:
        print(inspection.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from .table import print_inspection

        print_inspection(inspection, shows_all=arguments.all)
    return GOOD if inspection.is_ready and not refuted else CHECK_SAYS_NO


def look(arguments: argparse.Namespace) -> tuple[Graph, Inspection]:
    """Read the model and judge it.

    Raises:
        Mendable: The model cannot be read, or what was asked for is not there.
    """
    rules, reason = choose_rules(arguments.tensorrt)
    path = find_model(arguments.model, arguments.state_dir / "models")
    graph = read_graph_apart(path, dict(arguments.shape))
    inspection = inspect_graph(
        graph,
        rules,
        model=arguments.model,
        reason=reason,
        precision=arguments.precision,
    )
    return graph, inspection


def check(
    arguments: argparse.Namespace, graph: Graph, inspection: Inspection
) -> tuple[Inspection, bool]:
    """Hold an inspection against what was asked for; also say whether that refutes it.

    Raises:
        Mendable: There is no such engine.
    """
    from .checks import ask_builder, is_refuted, look_at_engine

    state_dir = arguments.state_dir
    model = find_model(arguments.model, state_dir / "models")
    checks = []
    if arguments.verify:
        checks.append(ask_builder(graph, inspection, model, dict(arguments.shape)))
    if arguments.against is not None:
        checks.append(look_at_engine(graph, inspection, model, arguments.against, state_dir))
    found = inspection.model_copy(update={"checks": tuple(checks)})
    return found, any(map(is_refuted, checks))


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

"""``tegrascope inspect``."""

import argparse

from ...collectors.models import find_model
from ...collectors.onnx_apart import read_graph_apart
from ...parsers.readiness.inspect import inspect_graph
from ...parsers.readiness.records import Inspection
from ..exit_status import CHECK_SAYS_NO, GOOD
from ..output import standard_output
from .choose import choose_rules


def inspect(arguments: argparse.Namespace) -> int:
    """Say where each node of a model would run; 3 where it would not run wholly on the DLA."""
    inspection = look(arguments)
    if arguments.json:
        print(inspection.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from .table import print_inspection

        print_inspection(inspection, shows_all=arguments.all)
    return GOOD if inspection.is_ready else CHECK_SAYS_NO


def look(arguments: argparse.Namespace) -> Inspection:
    """Read the model and judge it.

    Raises:
        Mendable: The model cannot be read, or what was asked for is not there.
    """
    rules, reason = choose_rules(arguments.tensorrt)
    path = find_model(arguments.model, arguments.state_dir / "models")
    graph = read_graph_apart(path, dict(arguments.shape))
    return inspect_graph(
        graph,
        rules,
        model=arguments.model,
        reason=reason,
        precision=arguments.precision,
    )

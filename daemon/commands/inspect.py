"""``tegrascope inspect``."""

import argparse
from pathlib import Path

from ...collectors.models.files import find_model
from ...collectors.models.onnx_graph import read_graph_apart
from ...parsers.errors import Mendable
from ...parsers.onnx.graph import Graph
from ...parsers.readiness.inspect import inspect_graph
from ...parsers.readiness.records import Inspection
from ..inspect.choose import choose_rules
from ..terminal.output import CHECK_SAYS_NO, GOOD, standard_output
from .common import Commands, add_command, add_state_dir


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
        from ..inspect.table import print_inspection

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
    from ..inspect.checks import ask_builder, is_refuted, look_at_engine

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
    from ..inspect.picture import picture

    try:
        path.write_text(picture(graph, inspection), encoding="utf-8")
    except OSError as error:
        raise Mendable(
            f"{path}: {error.strerror or error}", "name a writable file with --svg"
        ) from None


def add(commands: Commands) -> None:
    """Add the command."""
    from ..inspect.shapes import shape

    parser = add_command(
        commands,
        "inspect",
        "say which nodes of a model the DLA would refuse, by which rule, and what helps",
        "tegrascope inspect detector.onnx --shape images:1x3x640x640\n"
        "  tegrascope inspect builtin:resnet50 --tensorrt 8.6 --precision int8 --json",
    )
    parser.add_argument("model", metavar="MODEL", help="ONNX file, or builtin:NAME")
    parser.add_argument(
        "--device", choices=("dla",), default="dla", help="whose rules (default: %(default)s)"
    )
    parser.add_argument(
        "--tensorrt",
        metavar="VERSION",
        help="whose rules: 8.5, 8.6, 10.3, 11.4 (default: the release installed, else 10.3)",
    )
    parser.add_argument(
        "--precision",
        choices=("fp16", "int8"),
        help="what it is built for, FP32 taken as converted (default: as the model is)",
    )
    parser.add_argument(
        "--shape",
        action="append",
        type=shape,
        default=[],
        metavar="NAME:1x3x224x224",
        help="fixes an input's open dimensions; may be given more than once",
    )
    parser.add_argument("--all", action="store_true", help="a line for each node")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="ask the TensorRT of this board for each layer, and show where it thinks otherwise",
    )
    parser.add_argument(
        "--against",
        metavar="ENGINE",
        help="show where a built engine is otherwise: a run, a key of engines list, a result.json,"
        " a build log",
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="also draw the model, coloured by placement"
    )
    parser.add_argument("--json", action="store_true", help="for programs; see docs/inspect.md")
    add_state_dir(parser, "where built-in models are cached")

    def command(arguments: argparse.Namespace) -> int:

        return inspect(arguments)

    parser.set_defaults(command=command)

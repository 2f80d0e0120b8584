"""Arguments of ``tegrascope inspect``."""

import argparse
import re
from pathlib import Path

from ...collectors.models.files import find_model
from ...collectors.models.onnx_graph import read_graph_apart
from ...parsers.errors import Mendable
from ...parsers.onnx.graph import Graph
from ..inspect.judge import inspect_graph
from ..inspect.records import Inspection
from ..inspect.rules import choose_rules
from ..terminal.output import CHECK_SAYS_NO, GOOD, standard_output
from .common import Commands, add_command, add_state_dir


def inspect(arguments: argparse.Namespace) -> int:
    """Print where each node of a model would run; return 3 unless all of it fits the DLA."""
    rules, reason = choose_rules(arguments.tensorrt)
    path = find_model(arguments.model, arguments.state_dir / "models")
    graph = read_graph_apart(path, dict(arguments.shape))
    inspection = inspect_graph(
        graph, rules, model=arguments.model, reason=reason, precision=arguments.precision
    )
    inspection = _check(arguments, path, graph, inspection)
    if arguments.svg is not None:
        _draw(arguments.svg, graph, inspection)
    if arguments.json:
        print(inspection.model_dump_json(exclude_none=True), file=standard_output())
    else:
        from ..inspect.report import print_inspection

        print_inspection(inspection, shows_all=arguments.all)
    is_refuted = any(check.is_refuted for check in inspection.checks)
    return GOOD if inspection.is_ready and not is_refuted else CHECK_SAYS_NO


def _check(
    arguments: argparse.Namespace, model: Path, graph: Graph, inspection: Inspection
) -> Inspection:
    """Compare an inspection with the builder or an engine, as the arguments say."""
    if not arguments.verify and arguments.against is None:
        return inspection
    from ..inspect.checks import ask_builder, look_at_engine

    checks = []
    if arguments.verify:
        checks.append(ask_builder(graph, inspection, model, dict(arguments.shape)))
    if arguments.against is not None:
        evidence = (arguments.against, arguments.state_dir)
        checks.append(look_at_engine(graph, inspection, model, *evidence))
    return inspection.model_copy(update={"checks": tuple(checks)})


def _draw(path: Path, graph: Graph, inspection: Inspection) -> None:
    from ..inspect.picture import picture

    try:
        path.write_text(picture(graph, inspection), encoding="utf-8")
    except OSError as error:
        raise Mendable(
            f"{path}: {error.strerror or error}", "name a writable file with --svg"
        ) from None


_SHAPE = re.compile(r"(?P<name>.+):(?P<lengths>[1-9]\d*(?:x[1-9]\d*)*)", re.ASCII)


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse the shape of an input; its name may contain colons.

    >>> shape("images:0:1x3x224x224")
    ('images:0', (1, 3, 224, 224))
    """
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape, such as input:1x3x224x224")
    return found["name"], tuple(map(int, found["lengths"].split("x")))


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "inspect",
        "tegrascope inspect detector.onnx --shape images:1x3x640x640\n"
        "  tegrascope inspect builtin:resnet50 --tensorrt 8.6 --precision int8 --json",
    )
    parser.add_argument("model", metavar="MODEL", help="ONNX file, or builtin:NAME")
    parser.add_argument(
        "--device",
        choices=("dla",),
        default="dla",
        help="accelerator to judge for (default: %(default)s)",
    )
    parser.add_argument(
        "--tensorrt",
        metavar="VERSION",
        help="release whose rules apply: 8.5, 8.6, 10.3, 11.4 (default: installed, else 10.3)",
    )
    parser.add_argument(
        "--precision",
        choices=("fp16", "int8"),
        help="precision to build for; FP32 counts as converted (default: the model's own types)",
    )
    parser.add_argument(
        "--shape",
        action="append",
        type=shape,
        default=[],
        metavar="NAME:1x3x224x224",
        help="fix the open dimensions of an input; may be repeated",
    )
    parser.add_argument("--all", action="store_true", help="print one line per node")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="ask the TensorRT of this board for each layer, and show where it differs",
    )
    parser.add_argument(
        "--against",
        metavar="ENGINE",
        help="show where a built engine differs: a run, a key of engines list, a result.json, or a"
        " build log",
    )
    parser.add_argument(
        "--svg", type=Path, metavar="FILE", help="also draw the model, coloured by placement"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object; see docs/inspect.md"
    )
    add_state_dir(parser, "where built-in models are cached")

    parser.set_defaults(command=inspect)

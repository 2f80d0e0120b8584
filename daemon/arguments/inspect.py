"""Arguments of ``tegrascope inspect``."""

import argparse
from pathlib import Path

from .common import Commands, add_command, add_state_dir


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
        from ..inspect.command import inspect

        return inspect(arguments)

    parser.set_defaults(command=command)

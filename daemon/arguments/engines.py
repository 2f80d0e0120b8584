"""Arguments of ``tegrascope engines``."""

import argparse
from collections.abc import Callable

from .common import Commands, add_command, add_state_dir, positive, positive_seconds


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "engines",
        "look at, build and remove TensorRT engines",
        "tegrascope engines build builtin:resnet50 --on gpu,dla0 --precision fp16",
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    listing = add_command(
        actions, "list", "list the engines that are built", "tegrascope engines list"
    )
    building = add_command(
        actions,
        "build",
        "build an engine now, so that no run has to wait for it",
        "tegrascope engines build model.onnx --on dla0 --precision int8 --fallback require-pure",
    )
    building.add_argument("model", metavar="MODEL", help="ONNX file, or builtin:resnet50")
    building.add_argument(
        "--on", type=_devices, default=["gpu"], metavar="DEVICES", help="of gpu, dla0, dla1"
    )
    building.add_argument("--precision", choices=("fp32", "fp16", "int8"))
    building.add_argument(
        "--fallback",
        choices=("forbid", "allow", "require-pure"),
        default="allow",
        help="for layers that a DLA refuses (default: %(default)s)",
    )
    building.add_argument("--batch", type=positive, default=1, metavar="N")
    building.add_argument(
        "--level",
        type=int,
        choices=range(6),
        help="how long to look for faster kernels; a workload finds the engine only with the same"
        " optimization_level",
    )
    building.add_argument(
        "--timeout",
        type=positive_seconds,
        default=3600.0,
        metavar="SECONDS",
        help="give up after so long (default: %(default)s)",
    )
    pruning = add_command(
        actions, "prune", "remove engines", "tegrascope engines prune --older-than 30d"
    )
    which = pruning.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true")
    which.add_argument(
        "--older-than", type=_duration, metavar="TIME", help="not used for so long, like 30d"
    )
    which.add_argument(
        "--keep", type=positive, metavar="N", help="all but the N that were used last"
    )
    for name, action in (("list", listing), ("build", building), ("prune", pruning)):
        add_state_dir(action, "whose engines")
        action.set_defaults(command=_engines_action(name))


def _engines_action(name: str) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        from .. import engines_command

        return int(getattr(engines_command, f"{name}_engines")(arguments))

    return command


def _devices(text: str) -> list[str]:
    """Read ``gpu,dla0``."""
    devices = text.split(",")
    for device in devices:
        if device not in ("gpu", "dla0", "dla1"):
            raise argparse.ArgumentTypeError(f"{device!r} is none of gpu, dla0, dla1")
    return devices


def _duration(text: str) -> float:
    """Read ``30d`` as seconds."""
    from ..config import read_duration

    try:
        return float(str(read_duration(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

"""Where runs run, as far as the settings tell."""

from platform import python_version

from .. import __version__
from .config import Config
from .run_report import Environment


def environment_of(config: Config, is_live: bool) -> Environment:
    """Return the environment before there is any telemetry.

    Args:
        config: In force.
        is_live: False where the telemetry does not describe this machine now.
    """
    board = None  # told by the rails, once there are any
    if config.board is not None:
        board = config.board.name
    elif config.telemetry.source == "simulator":
        board = config.telemetry.simulator.board
    return Environment(
        board=board,
        telemetry_source=config.telemetry.source,
        simulated=not is_live,
        versions={"tegrascope": __version__, "python": python_version()},
    )

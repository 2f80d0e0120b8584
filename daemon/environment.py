"""Where runs run, as far as the settings tell."""

from pathlib import Path
from platform import python_version

from .. import __version__
from ..collectors.board_facts import read_board_facts
from .config import Config
from .run_report import Environment
from .sources import board_root


def environment_of(config: Config, is_live: bool) -> Environment:
    """Return the environment before there is any telemetry: the settings, and the board's files.

    Args:
        config: In force.
        is_live: False where the telemetry does not describe this machine now.
    """
    board = None  # told by the rails, once there are any
    if config.board is not None:
        board = config.board.name
    elif config.telemetry.source == "simulator":
        board = config.telemetry.simulator.board
    environment = Environment(
        board=board,
        telemetry_source=config.telemetry.source,
        simulated=not is_live,
        versions={"tegrascope": __version__, "python": python_version()},
    )
    root = board_root(config.telemetry)
    return environment if root is None else with_facts(environment, root)


def with_facts(environment: Environment, root: Path) -> Environment:
    """Add what the files of a board say of it; the configuration knows its name better.

    Args:
        environment: As it is known.
        root: What stands for ``/``.

    Returns:
        It, with what may change at run time as it is now: power mode and clocks.
    """
    facts = read_board_facts(root)
    kernel = {} if facts.kernel is None else {"kernel": facts.kernel}
    return environment.model_copy(
        update={
            "board": environment.board or facts.board,
            "module": environment.module or facts.module,
            "l4t": facts.l4t,
            "jetpack": facts.jetpack,
            "power_mode": facts.power_mode,
            "clocks_locked": facts.clocks_locked,
            "rail_sensors": dict(facts.rail_sensors),
            "versions": {**environment.versions, **kernel},
        }
    )

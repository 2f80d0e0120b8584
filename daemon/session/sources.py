"""From settings to a source of lines and its companions."""

from pathlib import Path
from platform import python_version

from ... import __version__
from ...collectors.base import Clock, Companion, LineSource
from ...collectors.board.facts import is_tegra, read_board_facts
from ...collectors.lines.collector import LineCollector, Opening
from ...collectors.lines.program import ProcessSource
from ...collectors.simulator.load import LoadBoard
from ..measure.run_report import Environment
from ..settings.config import Config, Telemetry


def open_telemetry(telemetry: Telemetry, load: LoadBoard, clock: Clock) -> LineCollector:
    """Return what makes samples of the configured source, or raise ``Mendable``.

    ``load`` holds our own runs, for a simulated board.
    """
    return telemetry.settings.open(
        Opening(
            telemetry.interval,
            is_interval_set="interval" in telemetry.model_fields_set,
            load=load,
            clock=clock,
        )
    )


def board_root(telemetry: Telemetry) -> Path | None:
    """Return the root directory of the kernel files of the board whose lines are read.

    ``None`` if the lines are of another machine, if this is not a Jetson (unless configured), or
    if the files are not to be read.
    """
    if not telemetry.settings.describes_this_board or telemetry.sysfs is False:
        return None
    if telemetry.sysfs == "auto":
        return Path("/") if is_tegra() else None
    return Path("/") if telemetry.sysfs is True else Path(telemetry.sysfs)


def open_companions(telemetry: Telemetry, clock: Clock) -> list[Companion]:
    """Return the companions that are read with each line."""
    companions: list[Companion] = []
    root = board_root(telemetry)
    if root is not None:
        from ...collectors.board.sysfs import SysfsCompanion

        companions.append(SysfsCompanion(root, clock=clock))
    # The trace of this machine does not belong to the lines of another one.
    if telemetry.settings.describes_this_board and telemetry.dla_trace.is_asked_for:
        companions.append(_dla_trace(telemetry, clock))
    return companions


def _dla_trace(telemetry: Telemetry, clock: Clock) -> Companion:
    from ...collectors.dla.trace import SILENCE_SECONDS, DlaTraceCompanion

    settings = telemetry.dla_trace
    name, silence_seconds = DlaTraceCompanion.name, 4 * SILENCE_SECONDS
    source: LineSource
    if settings.socket is not None:
        from ...collectors.lines.socket import SocketLines

        source = SocketLines(
            settings.socket, name=name, silence_seconds=silence_seconds, clock=clock
        )
    else:
        assert settings.command is not None
        source = ProcessSource(
            settings.command,
            interval_seconds=silence_seconds / 5,
            name=name,
            clock=clock,
            silence_seconds=silence_seconds,
        )
    return DlaTraceCompanion(source, counter_hertz=settings.counter_hertz, clock=clock)


def environment_of(
    telemetry: Telemetry | None, *, board: str | None, simulated: bool
) -> Environment:
    """Return the environment before there is any telemetry: the settings, and the board's files.

    Args:
        telemetry: The settings; ``None`` without telemetry.
        board: The board's name; ``None`` lets its files or its rails identify it.
        simulated: Whether the figures are not those of this machine.
    """
    environment = Environment(
        board=board,
        telemetry_source=None if telemetry is None else telemetry.source,
        simulated=simulated,
        versions={"tegrascope": __version__, "python": python_version()},
    )
    root = None if telemetry is None else board_root(telemetry)
    if root is None:
        return environment
    facts = read_board_facts(root)
    kernel = {} if facts.kernel is None else {"kernel": facts.kernel}
    return environment.model_copy(
        update={
            "board": board or facts.board,
            "module": facts.module,
            "l4t": facts.l4t,
            "jetpack": facts.jetpack,
            "power_mode": facts.power_mode,
            "clocks_locked": facts.clocks_locked,
            "rail_sensors": dict(facts.rail_sensors),
            "versions": {**environment.versions, **kernel},
        }
    )


def configured_board(config: Config) -> str | None:
    """Return the board that the configuration names."""
    return config.board.name if config.board else config.telemetry.settings.board_name

"""From settings to a source of lines and its companions."""

from collections.abc import Iterable
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
    """Return what makes samples of the source that ``telemetry:`` names.

    Args:
        telemetry: The settings.
        load: Our own runs, for a simulated board.
        clock: The time.

    Raises:
        Mendable: The source cannot be read.
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
    """Return what stands for ``/`` where the kernel tells of the board whose lines are read.

    Args:
        telemetry: The settings.

    Returns:
        ``None`` where the lines are of another machine, where this is no Jetson and nobody says
        otherwise, and where nothing is to be read.
    """
    if not telemetry.settings.describes_this_board or telemetry.sysfs is False:
        return None
    if telemetry.sysfs == "auto":
        return Path("/") if is_tegra() else None
    return Path("/") if telemetry.sysfs is True else Path(telemetry.sysfs)


def open_companions(telemetry: Telemetry, clock: Clock) -> list[Companion]:
    """Return what is read beside each line.

    Args:
        telemetry: The settings.
        clock: The time.
    """
    companions: list[Companion] = []
    root = board_root(telemetry)
    if root is not None:
        from ...collectors.board.sysfs import SysfsCompanion

        companions.append(SysfsCompanion(root, clock=clock))
    # Beside the lines of another machine the trace of this one says nothing.
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
        return DlaTraceCompanion(source, counter_hertz=settings.counter_hertz, clock=clock)
    assert settings.command is not None
    source = ProcessSource(
        settings.command,
        interval_seconds=silence_seconds / 5,
        name=name,
        clock=clock,
        silence_seconds=silence_seconds,
    )
    return DlaTraceCompanion(source, counter_hertz=settings.counter_hertz, clock=clock)


def lane_occupancy(
    load: LoadBoard, devices: Iterable[str], begin_ns: int, end_ns: int
) -> dict[int, float]:
    """Return the share of a stretch of time in which our own DLA lanes were busy, by core.

    Args:
        load: What is in flight.
        devices: Lanes that there are; a core without one is not in the answer.
        begin_ns: Start, on CLOCK_MONOTONIC.
        end_ns: End.
    """
    return {
        int(device.removeprefix("dla")): load.busy_ratio(device, begin_ns, end_ns)
        for device in devices
        if device.startswith("dla")
    }


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
    return environment if root is None else with_facts(environment, root)


def configured_board(config: Config) -> str | None:
    """Return the board that the configuration names."""
    return config.board.name if config.board else config.telemetry.settings.board_name


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

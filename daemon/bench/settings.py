"""What a bench is asked for, from its arguments and from what this machine has."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ...collectors.board.boards import RailRule
from ...collectors.catalog import SIMULATED_SOURCE, available_source, is_played
from ...collectors.models.files import BUILTIN_MODELS, BUILTIN_PREFIX
from ...parsers.errors import Mendable, Misused
from ...parsers.inference.events import Process
from ..settings.config import Telemetry
from ..settings.file import load_config
from .placements import must_be_possible
from .result import BenchSettings

# Fast enough for a hundred samples in ten seconds, and no divisor of usual rates.
INTERVAL_SECONDS = 0.103
SHORTEST_SECONDS, ENOUGH_SAMPLES = 15.0, 130
BASELINE_SECONDS, WARM_UP_SECONDS = 8.0, 1.0
_NO_TELEMETRY = (
    "neither tegrastats nor NVML is here; on a Jetson put tegrastats on PATH, with another NVIDIA"
    " GPU pip install 'tegrascope[nvml]'"
)


@dataclass(frozen=True)
class Asked:
    """What to measure, and with what.

    Attributes:
        settings: As they are written into the result.
        telemetry: Where samples come from; ``None`` for nowhere.
        rule: The board's rail rule, where the configuration has one.
        why_no_telemetry: One line with what mends it, where there is none.
    """

    settings: BenchSettings
    telemetry: Telemetry | None
    rule: RailRule | None = None
    why_no_telemetry: str | None = None


def read_settings(arguments: argparse.Namespace) -> Asked:
    """Complete the arguments.

    Raises:
        Misused: They contradict each other.
        Mendable: They name a model that is not there.
    """
    models = (*arguments.models, *(BUILTIN_PREFIX + name for name in arguments.builtin))
    for model in models:
        _must_exist(model)
    telemetry, rule, problem = _telemetry(arguments)
    interval = INTERVAL_SECONDS if telemetry is None else telemetry.interval
    settings = BenchSettings(
        models=models,
        devices=arguments.on,
        backend=arguments.backend,
        precision=arguments.precision,
        batch=arguments.batch,
        streams=arguments.streams,
        cuda_graph=not arguments.no_cuda_graph,
        transfers=not arguments.no_transfers,
        optimization_level=arguments.optimization_level,
        fallback=arguments.fallback,
        process=Process(
            nice=arguments.nice, cpus=arguments.cpus, mps_percentage=arguments.mps_percentage
        ),
        nsys=arguments.nsys,
        contention=arguments.contention,
        duration_seconds=arguments.duration or max(SHORTEST_SECONDS, ENOUGH_SAMPLES * interval),
        baseline_seconds=_baseline(arguments.baseline, telemetry),
        warm_up_seconds=arguments.warm_up,
        rounds=arguments.rounds,
        telemetry=None if telemetry is None else telemetry.source,
        is_simulated=arguments.simulate,
    )
    name = settings.backend or ""
    played = [device for device in settings.devices or () if is_played(name, device)]
    if played and not settings.is_simulated:
        raise Misused(
            f"{name} does not run on {played[0]}",
            "leave --backend out, or say --simulate to let it play one",
        )
    if settings.contention:
        must_be_possible(settings)
    return Asked(settings, telemetry, rule, problem)


def _baseline(given: float | None, telemetry: Telemetry | None) -> float:
    """Return how long to idle; without telemetry nobody would look."""
    if telemetry is None:
        return 0.0
    return BASELINE_SECONDS if given is None else given


def _telemetry(
    arguments: argparse.Namespace,
) -> tuple[Telemetry | None, RailRule | None, str | None]:
    """Return the source, the rail rule, and why there is no source."""
    chosen = [arguments.simulate, arguments.config is not None, arguments.telemetry is not None]
    if sum(chosen) > 1:
        raise Misused(
            "telemetry is named more than once", "give one of --simulate, -c and --telemetry"
        )
    if arguments.config is not None:
        config = load_config(arguments.config)
        return config.telemetry, config.board, None
    name = SIMULATED_SOURCE if arguments.simulate else arguments.telemetry or available_source()
    if name is None:
        return None, None, _NO_TELEMETRY
    if name == "none":
        return None, None, "asked for with --telemetry none"
    try:
        made = Telemetry.model_validate({"source": name, "interval": INTERVAL_SECONDS})
    except ValidationError as error:
        problem = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise Mendable(f"--telemetry {name}: {problem}", "give its settings with -c FILE") from None
    return made, None, None


def _must_exist(model: str) -> None:
    """Refuse a model that is not there before anything else is done."""
    known = ", ".join(BUILTIN_MODELS)
    if model.startswith(BUILTIN_PREFIX):
        if model.removeprefix(BUILTIN_PREFIX) not in BUILTIN_MODELS:
            raise Mendable(f"no built-in model is named {model!r}", f"use {known}")
    elif not Path(model).expanduser().is_file():
        raise Mendable(
            f"there is no model file {model}", f"give an ONNX file, or --builtin {known}"
        )

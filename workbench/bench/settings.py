"""Settings of a benchmark, from its arguments and the machine, and its workloads."""

import argparse
import math
import re
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ...collectors.board.boards import read_power_modes
from ...collectors.catalog import (
    REFERENCE_BACKEND,
    SIMULATED_BACKEND,
    SIMULATED_SOURCE,
    available_source,
    default_backend,
    find_backend,
)
from ...collectors.models.files import (
    BUILTIN_MODELS,
    BUILTIN_PREFIX,
    external_files,
    facts_of,
    find_model,
)
from ...collectors.paths import exists
from ...daemon.measure.quality import MINIMUM_SAMPLES, MINIMUM_SECONDS
from ...daemon.measure.report import Accelerator, Device
from ...daemon.settings.config import Telemetry, Workload
from ...daemon.settings.file import load_config
from ...parsers.errors import PIP_INSTALL, UsageError, UserError
from ...parsers.inference.events import InferenceSettings, Process
from ...parsers.nvpmodel import find_mode
from ...parsers.rails import RailRule
from ...parsers.values import DLAS, accelerator_of, body_device
from ..results.bench_page import name_of
from ..results.records import BODY, HEAD, BenchSettings
from ..results.sustained import COUNTED_PARTS, LEAST_SECONDS

# Fast enough for a hundred samples in 13 s, and not divisors of usual rates. Passes take turns, so
# that work keeps step with the sampling in one of them only.
INTERVALS = (0.103, 0.097, 0.107, 0.101)
INTERVAL_SECONDS = INTERVALS[0]
SHORTEST_SECONDS, ENOUGH_SAMPLES = 15.0, 130
# A bench that may stop early has rounds as short as the rules for an energy allow, and samples
# faster for it: a hundred samples in 10.2 s where a line takes 22 ms more. Its short rounds are for
# latency alone. A sensor that is updated less than three times per second needs longer idle phases.
BRIEF_INTERVALS = (0.079, 0.073, 0.077, 0.071)
BRIEF_SECONDS, BRIEF_BASELINE, SHORT_SECONDS = 10.5, 2.5, 1.0
# As much work as in the four rounds of a bench that may not.
ROUNDS, BRIEF_ROUNDS = 4, 6
UNTIL_RATIO = 0.03
# The simulated board takes any interval, and its figures need no more time than the rules ask for.
_SIMULATED_INTERVAL, _SIMULATED_SECONDS, _SIMULATED_BASELINE = 0.083, 10.1, 1.0
# The program takes longer than its interval, and a round may begin and end between two samples.
SAMPLES_MARGIN = 1.05
# Two rounds have one degree of freedom, for which Student's factor is 12.7; with four it is 3.2.
_FEWEST_ROUNDS = 3
BASELINE_SECONDS = 8.0
REFERENCE = REFERENCE_BACKEND
# Without --on these are tried.
TRIED: tuple[Device, ...] = ("gpu", "dla0")
# The first run builds the engine; on a small board that takes its time.
LOOK_SECONDS = 3600.0
_NO_TELEMETRY = (
    "neither tegrastats nor NVML is here; on a Jetson put tegrastats on PATH, with another NVIDIA"
    f" GPU {PIP_INSTALL} nvidia-ml-py"
)


class Asked(NamedTuple):
    """Settings, telemetry, the configuration's rail rule, and the reason for missing telemetry.

    ``varies_interval``: the interval of telemetry is not configured, so each pass may have another.
    """

    settings: BenchSettings
    telemetry: Telemetry | None
    rule: RailRule | None = None
    why_no_telemetry: str | None = None
    varies_interval: bool = False

    @property
    def intervals(self) -> tuple[float, ...]:
        """The intervals of telemetry, which passes of rounds take in turn."""
        return INTERVALS if self.settings.until_ratio is None else BRIEF_INTERVALS

    def advice(self, unit_interval: float | None = None) -> str | None:
        """Return why no energy will be known although there is telemetry, with the remedy.

        ``unit_interval`` is that of root's unit in seconds, if this prints the lines.
        """
        if self.telemetry is None:
            return None
        given, interval = self.settings.duration_seconds, self.telemetry.interval
        if unit_interval is not None:
            interval = unit_interval
        elif self.varies_interval:
            interval = max(interval, *self.intervals)
        least = max(MINIMUM_SECONDS, SAMPLES_MARGIN * MINIMUM_SAMPLES * interval)
        if given >= least:
            return None
        enough = max(SHORTEST_SECONDS, ENOUGH_SAMPLES * interval)
        return (
            f"rounds of {given:g} s give no energy per inference, it needs"
            f" {math.ceil(10 * least) / 10:g} s: use --duration {enough:.0f}"
        )

    def rounds_advice(self) -> str | None:
        """Return why the intervals of so few rounds will be wide, with the remedy."""
        if self.settings.rounds >= _FEWEST_ROUNDS:
            return None
        return (
            "two rounds that differ by 1 % give an interval of about ± 6 %: use --rounds 4 for"
            " figures that you compare"
        )


# Arguments that are settings of the same name.
_AS_GIVEN = (
    *("backend", "precision", "batch", "streams", "optimization_level", "fallback"),
    *("calibration", "preprocess", "inputs", "labels", "task", "tolerance"),
    *("precision_constraints", "memory", "cut"),
    *("contention", "layers"),
)
LOCK_IN_SECONDS = 300.0


def read_settings(arguments: argparse.Namespace) -> Asked:
    """Complete the arguments.

    Raises:
        UsageError: They contradict each other, or two models have one name.
        UserError: A model does not exist.
    """
    models = tuple(arguments.models)
    telemetry, rule, problem = _telemetry(arguments)
    settings = _settings(arguments, models, telemetry)
    if settings.is_simulated:
        _check_paces(settings)
    else:
        _must_exist(models)
    if settings.backend:
        _check_devices(settings.backend, settings.devices or ())
    check_names(models)
    check_data(settings)
    if settings.cut is not None:
        _check_cut(settings.cut, models)
    if settings.shapes and len(models) > 1:
        raise UsageError("--shape names inputs of one model", "measure one model at a time")
    settings = _check_plan(arguments, settings)
    _check_memory(settings)
    if settings.backend:
        _check_backend(settings, settings.backend)
    # The simulated board cannot be in step with what runs by plan beside it.
    varies_interval = arguments.config is None and not settings.is_simulated
    return Asked(settings, telemetry, rule, problem, varies_interval)


def _check_plan(arguments: argparse.Namespace, settings: BenchSettings) -> BenchSettings:
    """Return the settings of a plan other than rounds in turn, or raise ``UsageError``."""
    if arguments.sustain is not None:
        _check_sustain(arguments)
    if arguments.sweep or settings.latency_below_seconds is not None:
        settings = check_sweep(settings, [name for name, _ in arguments.sweep])
    if settings.contention:
        check_contention(settings)
    if settings.lock_in_stages and not settings.lock_in_seconds:
        raise UsageError("--stages belongs to --lock-in", "give both")
    return settings


def _may_stop(arguments: argparse.Namespace) -> bool:
    """Return whether the bench stops when its questions are answered.

    Raises:
        UsageError: It was asked to, beside a number of rounds or a plan that has one.
    """
    given = {
        "--sustain": arguments.sustain is not None,
        "--rounds": arguments.rounds is not None,
        "--sweep": bool(arguments.sweep),
        "--contention": arguments.contention,
    }
    for name, is_given in given.items():
        if is_given and arguments.until is not None:
            raise UsageError(f"--until does not go with {name}", "give one of the two")
    return not any(given.values())


def _must_exist(models: Sequence[str]) -> None:
    """Raise ``UserError`` if there is no such model."""
    for model in models:
        if not model.startswith(BUILTIN_PREFIX):
            find_model(model, Path())
        elif model.removeprefix(BUILTIN_PREFIX) not in BUILTIN_MODELS:
            known = ", ".join(BUILTIN_MODELS)
            raise UserError(f"no built-in model is named {model!r}", f"use {known}")


def _check_paces(settings: BenchSettings) -> None:
    """Raise ``UserError`` if a model cannot be simulated on one of the accelerators."""
    if settings.backend is not None:
        raise UsageError("--simulate has a back-end of its own", "leave --backend out")
    if settings.inputs is not None:
        raise UsageError("a simulated accelerator computes no outputs", "leave --inputs out")
    if settings.cut is not None:
        raise UsageError(
            "a simulated accelerator cannot run a model in two parts", "leave --cut out"
        )
    if settings.layers or settings.lock_in_seconds:
        name = "--layers" if settings.layers else "--lock-in"
        raise UsageError(f"{name} is for a real accelerator", f"leave {name} or --simulate out")
    if settings.sweep:
        return  # a point without a pace is a point that does not run
    for model in settings.models:
        for device in settings.devices or TRIED:
            if device != "cpu":
                find_backend(SIMULATED_BACKEND).check(model, device, settings)


def _settings(
    arguments: argparse.Namespace, models: tuple[str, ...], telemetry: Telemetry | None
) -> BenchSettings:
    """Return the settings with the times that were not given."""
    given = vars(arguments)
    settings = {name: given[name] for name in _AS_GIVEN}
    interval, duration, baseline = INTERVAL_SECONDS, SHORTEST_SECONDS, BASELINE_SECONDS
    settings["rounds"] = arguments.rounds or ROUNDS
    if _may_stop(arguments):
        settings["rounds"] = BRIEF_ROUNDS
        settings["until_ratio"] = UNTIL_RATIO
        if arguments.until is not None:
            settings["until_ratio"] = min(arguments.until / 100, 1.0)
        interval, duration, baseline = BRIEF_INTERVALS[0], BRIEF_SECONDS, BRIEF_BASELINE
    if telemetry is not None:
        interval = telemetry.interval
        settings["telemetry"] = telemetry.source
    duration = max(duration, ENOUGH_SAMPLES * interval)
    if arguments.simulate:
        duration, baseline = _SIMULATED_SECONDS, _SIMULATED_BASELINE
    if arguments.baseline is not None:
        baseline = arguments.baseline
    if arguments.sustain is not None:
        settings |= {"sustain_seconds": arguments.sustain, "rounds": COUNTED_PARTS}
        duration, baseline = arguments.sustain, 0.0
    if telemetry is None:
        baseline = 0.0  # an idle phase that no sample covers is wasted time
    if arguments.lock_in:
        settings["lock_in_seconds"] = arguments.seconds
    return BenchSettings(
        **settings,
        models=models,
        plugins=tuple(map(absolute, arguments.plugin)),
        shapes=dict(arguments.shape),
        layer_precisions=dict(arguments.layer_precision),
        devices=arguments.on,
        lock_in_stages=arguments.stages,
        sweep=dict(arguments.sweep),
        latency_below_seconds=arguments.latency_below,
        cuda_graph=not arguments.no_cuda_graph,
        transfers=not arguments.no_transfers,
        process=Process(**{name: given[name] for name in Process.model_fields}),
        duration_seconds=arguments.duration or duration,
        baseline_seconds=baseline,
        warm_up_seconds=arguments.warm_up,
        is_simulated=arguments.simulate,
    )


def _check_devices(name: str, devices: Sequence[Device]) -> None:
    """Raise ``UsageError`` if a back-end does not run on one of the accelerators."""
    known = find_backend(name).devices
    for device in devices:
        if device not in known:
            raise UsageError(
                f"{name} does not run on {device}",
                f"use --on {','.join(known)}, or leave --backend out",
            )


def _check_backend(settings: BenchSettings, name: str) -> None:
    """Raise ``UsageError`` if the back-end that was named cannot do what was asked for."""
    backend = find_backend(name)
    if settings.cut is not None and not backend.runs_heads:
        raise UsageError(
            f"{name} runs one engine per inference",
            "leave --cut out, or use --backend tensorrt",
        )
    if settings.lock_in_seconds and backend.is_self_timed:
        raise UsageError(
            f"{name} times itself, and cannot follow the pattern of --lock-in",
            "leave --backend out, or use --backend tensorrt",
        )
    if settings.lock_in_stages and not backend.repeats_stages:
        raise UsageError(
            f"{name} cannot repeat a stage of an inference alone",
            "leave --stages out, or use --backend tensorrt",
        )
    if settings.layers and not backend.times_layers:
        raise UsageError(
            f"{name} cannot time a layer", "leave --layers out, or use --backend tensorrt"
        )


def _check_memory(settings: BenchSettings) -> None:
    """Raise ``UsageError`` if a back-end does not take the memory that was chosen."""
    for memory in settings.sweep.get("memory", (settings.memory,)):
        chosen = settings.model_copy(update={"memory": memory})
        for device in settings.devices or TRIED:
            name = _backend_of(settings, device)
            problem = find_backend(name).memory_problem(chosen)
            if problem is not None:
                raise UsageError(f"{problem} (on {device} it is {name})", "leave memory out")


def _check_sustain(arguments: argparse.Namespace) -> None:
    """Raise ``UsageError`` if a long run is too short, or was given beside what has other runs."""
    if arguments.sustain < LEAST_SECONDS:
        raise UsageError(
            f"--sustain {arguments.sustain:g}s ends before a board is warm",
            f"give {LEAST_SECONDS / 60:.0f}m or more, better 30m",
        )
    for name in ("rounds", "duration", "baseline", "sweep", "contention", "lock_in", "layers"):
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} does not go with --sustain", "give one of the two")


def _check_cut(directory: str, models: Sequence[str]) -> None:
    """Raise ``UserError`` if there is no body or no head, or no one model that they are of."""
    if len(models) > 1:
        raise UsageError("--cut has the parts of one model", "bench one model after another")
    for name in (BODY, HEAD):
        path = Path(directory).expanduser() / name
        if not exists(path):
            raise UserError(
                f"--cut: there is no {path}",
                f"tegrascope inspect {models[0]} --cut -o {directory} writes body and head; without"
                " a head the body is the whole model",
            )


def check_models(models: Sequence[str]) -> None:
    """Raise ``UserError`` if a file is not an ONNX model with its weights.

    Otherwise each accelerator starts a worker, and reports the same in words of its own library.
    """
    for model in models:
        if not model.startswith(BUILTIN_PREFIX):
            path = find_model(model, Path())
            external_files(path)
            facts_of(path)


def check_names(models: Sequence[str]) -> None:
    """Raise ``UsageError`` if two models have one name: results and ``advise`` go by names."""
    for one, other in combinations(dict.fromkeys(models), 2):
        if name_of(one) == name_of(other):
            raise UsageError(
                f"{one} and {other} have the same name, {name_of(one)}", "rename one of the files"
            )


def check_data(settings: BenchSettings) -> None:
    """Raise ``UsageError`` if given data cannot apply, ``UserError`` if it does not exist."""
    precisions = settings.sweep.get("precision", (settings.precision,))
    if settings.calibration is not None and "int8" not in precisions:
        raise UsageError("--calibration is for int8", "give --precision int8 too")
    if settings.labels is not None and settings.inputs is None:
        raise UsageError("--labels belongs to --inputs", "give both")
    if settings.task is not None and settings.inputs is None:
        raise UsageError("--task belongs to --inputs", "give both")
    given = {
        "calibration": "tegrascope engines calibrate MODEL --data DIR -o CACHE makes one",
        "inputs": "give a .npz or .npy file, or a folder",
        "labels": "give a file with one class per input, COCO JSON, or a folder of YOLO text",
    }
    for name, remedy in given.items():
        path = getattr(settings, name)
        if path is None:
            continue
        if len(settings.models) > 1:
            raise UsageError(
                f"--{name} is for one model, and several are named", "bench one after another"
            )
        if not exists(Path(path).expanduser()):
            raise UserError(f"there is no {path} for --{name}", remedy)


def check_sweep(
    settings: BenchSettings, axes: Sequence[str], root: Path = Path("/")
) -> BenchSettings:
    """Return the settings with power modes by name.

    Raises:
        UsageError: A sweep contradicts the other arguments, or the board lacks a mode.
    """
    if not axes:
        raise UsageError("--latency-below belongs to --sweep", "give both")
    twice = [name for name in dict.fromkeys(axes) if axes.count(name) > 1]
    if twice:
        raise UsageError(
            f"--sweep was given {twice[0]} twice", f"give all values at once, as {twice[0]}=A,B"
        )
    given = {
        "--contention": settings.contention,
        "--lock-in": settings.lock_in_seconds is not None,
        "--layers": settings.layers,
    }
    other = next((name for name, is_given in given.items() if is_given), None)
    if other is not None:
        raise UsageError(f"{other} does not go with --sweep", "bench the chosen point with it")
    wanted = settings.sweep.get("power-mode", ())
    if wanted and settings.is_simulated:
        raise UsageError("the simulated board has no power modes", "leave power-mode out")
    if not wanted:
        return settings
    modes = read_power_modes(root)
    names: dict[int | str, None] = {}
    for word in map(str, wanted):
        mode = find_mode(modes, word)
        if mode is None:
            known = ", ".join(f"{one.name} ({one.number})" for one in modes)
            problem = f"/etc/nvpmodel.conf has no power mode {word}"
            raise UsageError(problem, f"use {known}" if known else "leave power-mode out")
        names[mode.name] = None
    sweep = {**settings.sweep, "power-mode": tuple(names)}
    return settings.model_copy(update={"sweep": sweep})


def check_contention(settings: BenchSettings) -> None:
    """Raise ``UsageError`` if the models cannot be measured together."""
    models = settings.models
    if not 2 <= len(models) <= 3:
        raise UsageError(
            f"--contention was given {len(models)} model(s), and takes two or three",
            "name two or three; of more, bench pairs of them and give advise all the results",
        )
    if len(set(models)) < len(models):
        raise UsageError(
            "--contention was given a model twice", "give the second as a copy of its file"
        )
    if settings.backend and find_backend(settings.backend).is_self_timed:
        raise UsageError(
            f"{settings.backend} times itself, and cannot run in step with others",
            "leave --backend out, or use --backend tensorrt",
        )


def _telemetry(
    arguments: argparse.Namespace,
) -> tuple[Telemetry | None, RailRule | None, str | None]:
    """Return the source, the rail rule, and the reason for a missing source."""
    chosen = [arguments.simulate, arguments.config is not None, arguments.telemetry is not None]
    if sum(chosen) > 1:
        raise UsageError(
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
        interval = BRIEF_INTERVALS[0] if _may_stop(arguments) else INTERVAL_SECONDS
        if arguments.simulate:
            interval = _SIMULATED_INTERVAL
        made = Telemetry.model_validate({"source": name, "interval": interval})
    except ValidationError as error:
        problem = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise UserError(
            f"--telemetry {name}: {problem}", "give its settings with -c FILE"
        ) from None
    return made, None, None


# --- workloads ------------------------------------------------------------------------------------


def accelerators_of(
    settings: BenchSettings, tried: Sequence[Device] = TRIED
) -> tuple[Accelerator, ...]:
    """Return where a model is measured: on the devices asked for, or on those that are tried.

    A model that was cut runs in two parts too: with the body on each DLA, or on each device if
    none is a DLA.
    """
    devices = settings.devices or tried
    if settings.cut is None:
        return tuple(devices)
    bodies = [device for device in devices if device in DLAS] or devices
    return (*devices, *(accelerator_of(device, settings.cut) for device in bodies))


def _backend_of(settings: BenchSettings, device: Device) -> str:
    """Return the name of the back-end that runs on a device."""
    return settings.backend or default_backend(device, on_simulated_board=settings.is_simulated)


def workload_of(settings: BenchSettings, model: str, accelerator: Accelerator) -> Workload:
    """Return a round of a model on an accelerator, as the daemon would have it configured."""
    device = body_device(accelerator)
    files = {"model": absolute(model)}
    if accelerator != device and settings.cut is not None:
        parts = Path(absolute(settings.cut))
        files = {"model": str(parts / BODY), "head": str(parts / HEAD)}
    backend = _backend_of(settings, device)
    # On the CPU a model runs in its own precision.
    uses_tensorrt = find_backend(backend).uses_tensorrt
    is_int8 = uses_tensorrt and settings.precision == "int8"
    calibration = settings.calibration if is_int8 else None
    return Workload.model_validate(
        {name: getattr(settings, name) for name in InferenceSettings.model_fields}
        | {
            "name": workload_name(model, accelerator),
            **files,
            "device": device,
            "backend": backend,
            "calibration": calibration and absolute(calibration),
            "memory": settings.memory if find_backend(backend).chooses_memory else None,
            "plugins": settings.plugins if uses_tensorrt else (),
            "layer_precisions": settings.layer_precisions if uses_tensorrt else {},
            "warm_up": settings.warm_up_seconds,
            "baseline": settings.baseline_seconds,
            "duration": settings.duration_seconds,
        }
    )


def reference_of(settings: BenchSettings, model: str) -> Workload:
    """Return one inference of the model as it was given, by ONNX Runtime on the CPU."""
    taken = ("batch", "preprocess", "shapes")
    shared = {name: getattr(settings, name) for name in taken}
    name, path = workload_name(model, "reference"), absolute(model)
    return shortened(Workload(name=name, model=path, device="cpu", backend=REFERENCE, **shared))


def shortened(workload: Workload, *, warm_up: float = 0.0) -> Workload:
    """Return the workload for one inference without idle phases: no figure of it is used."""
    changes = {"warm_up": warm_up, "baseline": 0.0, "duration": None, "count": 1}
    return workload.model_copy(update=changes)


def absolute(model: str) -> str:
    """Return where a worker finds a model, whatever its current directory is."""
    if model.startswith(BUILTIN_PREFIX):
        return model
    return str(Path(model).expanduser().absolute())


def workload_name(model: str, device: str) -> str:
    """Name a run after its model and its accelerator.

    >>> workload_name("builtin:resnet50", "dla0"), workload_name("nets/Größe 2.onnx", "gpu")
    ('resnet50-dla0', 'Gr-e-2-gpu')
    """
    stem = Path(model.removeprefix(BUILTIN_PREFIX)).stem
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", stem).strip("-_.") or "model"
    return f"{plain[:48]}-{device.replace('+', '-')}"

"""Find out, in a child process, what TensorRT on this machine can do.

Without a driver, making a TensorRT object may end the process by SIGSEGV, and a broken
installation in other ways: so only a child asks. Everything else branches on its answer, never on
version numbers.

    python -m tegrascope.collectors.backends.tensorrt_probe
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeInt

from ...parsers.errors import BackendUnavailable, UserError
from ...parsers.inference.placement import LayerAnswer, LayerAnswers
from ...parsers.records import Record
from ..children.program import DRIVER, ask_child, python_child
from .cuda_runtime import load_cuda
from .tensorrt_build import Builder, BuildSpec, layers_of, logger_of, type_name

MODULE = "tensorrt"
_SECONDS = 120.0
_LAYERS_SECONDS = 600.0
_INSTALL_TENSORRT = (
    "on a Jetson apt install python3-libnvinfer, in an environment made with"
    " --system-site-packages; elsewhere pip install tensorrt"
)

DlaPrecision = Literal["fp16", "int8"]
Shapes = Mapping[str, tuple[int, ...]]

# What we use where it is there: class or module, and the names on it.
_OPTIONAL: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("BuilderFlag", ("FP16", "INT8", "DIRECT_IO", "GPU_FALLBACK")),
    ("NetworkDefinitionCreationFlag", ("EXPLICIT_BATCH", "STRONGLY_TYPED")),
    ("IBuilderConfig", ("builder_optimization_level", "create_timing_cache")),
    ("ICudaEngine", ("device_memory_size_v2", "device_memory_size", "create_engine_inspector")),
    ("IExecutionContext", ("execute_async_v3", "nvtx_verbosity", "profiler")),
    ("ITensor", ("set_dynamic_range",)),
    ("Runtime", ("DLA_core", "num_DLA_cores")),
)


class Capabilities(Record):
    """Capabilities of one TensorRT module on this machine.

    Attributes:
        problem: Why it cannot be used, or ``None``.
        compute_capability: As ``8.7``.
        dla_cores: How many DLA cores TensorRT sees; the only thing that decides.
        symbols: Optional names that it has, as ``BuilderFlag.FP16``.
    """

    module: str = MODULE
    problem: str | None = None
    remedy: str | None = None
    versions: dict[str, str] = {}
    device: str | None = None
    compute_capability: str | None = None
    is_integrated: bool | None = None
    dla_cores: NonNegativeInt | None = None
    symbols: tuple[str, ...] = ()

    def require(self) -> None:
        """Raise ``BackendUnavailable`` if TensorRT cannot be used."""
        if self.problem is not None:
            raise BackendUnavailable(self.problem, self.remedy or _INSTALL_TENSORRT)


def symbols_of(trt: Any) -> tuple[str, ...]:
    """Return which of the optional names a TensorRT module has.

    A name does not depend on the hardware: those of the DLA are in every version.
    """
    return tuple(
        f"{owner}.{name}"
        for owner, names in _OPTIONAL
        for name in names
        if hasattr(getattr(trt, owner, None), name)
    )


def look(module: str = MODULE) -> Capabilities:
    """Find out in this process; it may not survive that."""

    def find(found: dict[str, Any]) -> None:
        trt = import_tensorrt(module)
        found["versions"] = {"tensorrt": str(trt.__version__)}
        found["symbols"] = symbols_of(trt)
        cuda = load_cuda()
        found["versions"] = {**found["versions"], **cuda.versions()}
        cuda.initialise()
        found["device"], found["compute_capability"], found["is_integrated"] = cuda.device()
        # A runtime and no builder: making the first builder of a process takes seconds.
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        found["dla_cores"] = max(0, int(runtime.num_DLA_cores))

    return Capabilities.model_validate({"module": module, **_found_by(find, module)})


def look_at_layers(
    model: Path, precision: DlaPrecision | None, shapes: Shapes, module: str = MODULE
) -> LayerAnswers:
    """Ask the builder in this process; it may not survive that."""

    def find(found: dict[str, Any]) -> None:
        trt = import_tensorrt(module)
        found["tensorrt"] = str(trt.__version__)
        logger, lines = logger_of(trt)
        builder = Builder(trt, symbols_of(trt), logger, lines)
        cores = found["dla_cores"] = max(0, int(trt.Builder(logger).num_DLA_cores))
        batch = next((lengths[0] for lengths in shapes.values() if lengths), 1)
        # Without a DLA it is only asked whether its parser takes the model.
        spec = BuildSpec(model, "gpu", batch=batch)
        if cores:
            spec = BuildSpec(model, "dla", batch=batch, precision=precision)
        made = builder.prepare(spec, shapes)
        found["layers"] = [
            LayerAnswer(
                name=layer.name,
                kind=type_name(layer.type),
                marks=str(getattr(layer, "metadata", "") or ""),
                on_dla=bool(made.config.can_run_on_DLA(layer)) if cores else None,
            )
            for layer in layers_of(made.network)
        ]

    return LayerAnswers.model_validate(_found_by(find, module))


def _found_by(find: Callable[[dict[str, Any]], None], module: str) -> dict[str, Any]:
    """Return what was found until the end, or until the problem that ended it."""
    found: dict[str, Any] = {}
    try:
        find(found)
    except UserError as error:
        found |= {"problem": error.message, "remedy": error.remedy}
    except Exception as error:
        words = " ".join(str(error).split())
        problem = f"{module} cannot be used here ({type(error).__name__}: {words})"
        found |= {"problem": problem, "remedy": DRIVER}
    return found


def import_tensorrt(module: str = MODULE) -> Any:
    """Import a TensorRT module; raise ``BackendUnavailable`` if it or its libraries are missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module:
            raise BackendUnavailable(
                f"{module} cannot be imported (it needs {error.name})", _INSTALL_TENSORRT
            ) from None
        raise BackendUnavailable(f"{module} is not installed", _INSTALL_TENSORRT) from None
    except (ImportError, OSError) as error:
        words = " ".join(str(error).split())
        raise BackendUnavailable(
            f"{module} cannot be imported ({words})",
            "install the libraries of the same TensorRT version",
        ) from None


def probe(module: str = MODULE, seconds: float = _SECONDS) -> Capabilities:
    """Find out in a child process, which may die of it; this one does not.

    Returns:
        The capabilities, or why there are none; never an exception.
    """
    command = python_child(__spec__.name, "--module", module)
    found = ask_child(command, Capabilities, module, "what it can do", seconds)
    if isinstance(found, Capabilities):
        return found
    return Capabilities(module=module, problem=found.message, remedy=found.remedy)


def ask_layers(
    model: Path,
    precision: DlaPrecision | None,
    shapes: Shapes,
    module: str = MODULE,
    seconds: float = _LAYERS_SECONDS,
) -> LayerAnswers:
    """Ask the builder, in a child process, which layers of a model it would put on the DLA.

    Args:
        precision: Precision of the build; ``None`` leaves it to what the model is.
        shapes: Input to its shape, of inputs that are open.

    Returns:
        The answers of the builder, or why there are none; never an exception.
    """
    command = [*python_child(__spec__.name, "--module", module), "--model", str(model)]
    if precision is not None:
        command += ["--precision", precision]
    for name, lengths in shapes.items():
        command += ["--shape", f"{name}:{'x'.join(map(str, lengths))}"]
    found = ask_child(command, LayerAnswers, module, "which layers the DLA takes", seconds)
    if isinstance(found, LayerAnswers):
        return found
    return LayerAnswers(problem=found.message, remedy=found.remedy)


@lru_cache(maxsize=4)
def capabilities(module: str = MODULE, ask: Callable[[str], Capabilities] = probe) -> Capabilities:
    """Return the capabilities, found out once per process; after a failure ask again.

    Raises:
        BackendUnavailable: TensorRT cannot be used here.
    """
    found = ask(module)
    found.require()
    return found


def tensorrt_version() -> str | None:
    """Return the release of the TensorRT package of this Python; ``None`` without one."""
    try:
        return version("tensorrt")
    except PackageNotFoundError:
        return None


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, lengths = text.rpartition(":")
    return name, tuple(int(length) for length in lengths.split("x"))


def main(argv: list[str] | None = None) -> int:
    """Print what TensorRT can do here, as one JSON object; 3 where it cannot be used.

    With --model, print instead which layers of the model its builder would put on the DLA.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tegrascope.collectors.backends.tensorrt_probe", description=main.__doc__
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--precision", choices=("fp16", "int8"))
    parser.add_argument("--shape", action="append", type=_shape, default=[])
    parser.add_argument("--module", default=MODULE, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    found: Capabilities | LayerAnswers
    if given.model is None:
        found = look(given.module)
    else:
        found = look_at_layers(given.model, given.precision, dict(given.shape), given.module)
    print(found.model_dump_json(exclude_none=True), flush=True)
    return 0 if found.problem is None else 3


if __name__ == "__main__":
    sys.exit(main())

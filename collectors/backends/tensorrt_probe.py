"""Finds out in a child process what TensorRT on this machine can do.

Without a driver, making a TensorRT object may end the process by SIGSEGV, and a broken
installation in other ways: so nothing but a child asks first. Everything else branches on what
it found, never on version numbers.

    python -m tegrascope.collectors.backends.tensorrt_probe
"""

import argparse
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import NonNegativeInt

from ...parsers.errors import BackendUnavailable
from ...parsers.records import Record
from ..children.start import DRIVER, ask_child, python_child
from .cuda_runtime import load_cuda

MODULE = "tensorrt"
_SECONDS = 120.0
_INSTALL_TENSORRT = (
    "on a Jetson apt install python3-libnvinfer, in an environment made with"
    " --system-site-packages; elsewhere pip install tensorrt"
)

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
        problem: Why it cannot be used; ``None`` where it can.
        compute_capability: As ``8.7``.
        dla_cores: How many DLA cores TensorRT sees; the only thing that decides.
        symbols: Which of the optional names are there, as ``BuilderFlag.FP16``.
    """

    module: str = MODULE
    problem: str | None = None
    mend: str | None = None
    versions: dict[str, str] = {}
    device: str | None = None
    compute_capability: str | None = None
    is_integrated: bool | None = None
    dla_cores: NonNegativeInt | None = None
    symbols: tuple[str, ...] = ()

    def require(self) -> None:
        """Do nothing where TensorRT can be used.

        Raises:
            BackendUnavailable: It cannot; says why, and what to do.
        """
        if self.problem is not None:
            raise BackendUnavailable(self.problem, self.mend or _INSTALL_TENSORRT)


def symbols_of(trt: Any) -> tuple[str, ...]:
    """Return which of the optional names a TensorRT module has.

    A name says nothing of the hardware: those of the DLA are in every version.
    """
    return tuple(
        f"{owner}.{name}"
        for owner, names in _OPTIONAL
        for name in names
        if hasattr(getattr(trt, owner, None), name)
    )


def look(module: str = MODULE) -> Capabilities:
    """Find out in this process; it may not survive that."""
    found: dict[str, Any] = {"module": module}
    try:
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
    except BackendUnavailable as error:
        found["problem"], found["mend"] = error.what, error.mend
    except Exception as error:
        words = " ".join(str(error).split())
        found["problem"] = f"{module} cannot be used here ({type(error).__name__}: {words})"
        found["mend"] = DRIVER
    return Capabilities.model_validate(found)


def import_tensorrt(module: str = MODULE) -> Any:
    """Import a TensorRT module.

    Raises:
        BackendUnavailable: It is not installed, or libraries of it are missing.
    """
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

    Args:
        module: ``tensorrt``; another name is for tests.

    Returns:
        The capabilities, or why there are none; never an exception.
    """
    command = python_child(__spec__.name, "--module", module)
    found = ask_child(command, Capabilities, module, "what it can do", seconds)
    if isinstance(found, Capabilities):
        return found
    return Capabilities(module=module, problem=found.what, mend=found.mend)


@lru_cache(maxsize=4)
def capabilities(module: str = MODULE, ask: Callable[[str], Capabilities] = probe) -> Capabilities:
    """Return the capabilities, found out once per process; after a failure ask again.

    Raises:
        BackendUnavailable: TensorRT cannot be used here.
    """
    found = ask(module)
    found.require()
    return found


def main(argv: list[str] | None = None) -> int:
    """Print what TensorRT can do here, as one JSON object; 3 where it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m tegrascope.collectors.backends.tensorrt_probe", description=main.__doc__
    )
    parser.add_argument("--module", default=MODULE, help=argparse.SUPPRESS)
    found = look(parser.parse_args(argv).module)
    print(found.model_dump_json(exclude_none=True), flush=True)
    return 0 if found.problem is None else 3


def tensorrt_version() -> str | None:
    """Return the release of the TensorRT package of this Python; ``None`` without one."""
    try:
        return version("tensorrt")
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())

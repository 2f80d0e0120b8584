"""Every telemetry source and every inference back-end by name, as ``module:class``.

Adding one is one file and one line here. A module is imported when something asks for its class,
which describes itself, see ``SourceSettings`` and ``Backend``. No other file compares the name of
a source or a back-end with a string.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..parsers.errors import BackendUnavailable

if TYPE_CHECKING:
    from .backends.base import Backend
    from .lines.collector import SourceSettings

# In the order in which a bench looks for one that works on this machine.
SOURCES: Mapping[str, str] = {
    "tegrastats": ".lines.collector:TegrastatsSettings",
    "nvml": ".gpu.nvml:NvmlSettings",
    "replay": ".lines.replay:ReplaySettings",
    "stream": ".lines.collector:StreamSettings",
    "simulator": ".simulator.board:SimulatorSettings",
}
DEFAULT_SOURCE = "tegrastats"
SIMULATED_SOURCE = "simulator"

BACKENDS: Mapping[str, str] = {
    "tensorrt": ".backends.tensorrt:TensorRt",
    "trtexec": ".backends.trtexec:Trtexec",
    "cudla": ".backends.cudla:Cudla",
    "onnxruntime": ".backends.onnxruntime:OnnxRuntime",
    "simulated": ".backends.simulated:Simulated",
    "command": ".backends.command:Command",
    "counter": ".backends.counter:Counter",
    "openai": ".backends.openai:OpenAi",
}
# What a workload may have in place of a model, by its key, and the back-end for it.
SUBJECTS: Mapping[str, str] = {"command": "command", "scrape": "counter", "server": "openai"}
# Runs standalone loadables of a DLA.
LOADABLE_BACKEND = "cudla"
# Gives the answers that the others are compared with.
REFERENCE_BACKEND = "onnxruntime"
SIMULATED_BACKEND = "simulated"
# Not a back-end of ours: an application runs the workload and marks its windows.
WINDOW = "window"


def default_backend(device: str, *, on_simulated_board: bool = False) -> str:
    """Return the name of the back-end that runs a model on a device unless another is named."""
    if device == "cpu":
        return REFERENCE_BACKEND
    return SIMULATED_BACKEND if on_simulated_board else "tensorrt"


def source_settings(name: str, sources: Mapping[str, str] = SOURCES) -> "type[SourceSettings]":
    """Return the settings of a source in the catalogue, which describe and open it."""
    found: type[SourceSettings] = _import(sources[name])
    return found


def available_source(root: Path = Path("/")) -> str | None:
    """Return the first source that the machine has; ``root`` stands for ``/``."""
    return next((name for name in SOURCES if source_settings(name).is_available(root)), None)


def find_backend(name: str, backends: Mapping[str, str] = BACKENDS) -> "type[Backend]":
    """Return a back-end, whose library making one imports, or raise ``BackendUnavailable``."""
    if name not in backends:
        known = ", ".join(sorted(backends)) or "another release"
        raise BackendUnavailable(f"no back-end is named {name!r}", f"use {known}")
    found: type[Backend] = _import(backends[name])
    return found


def _import(entry: str) -> Any:
    module, _, name = entry.partition(":")
    return getattr(import_module(module, __package__), name)

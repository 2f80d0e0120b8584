"""Name to inference back-end: where one is added, as one file and one line.

An entry is ``module:factory``; the module is imported when an order first asks for it. The
factory takes nothing and returns an ``Engine``.
"""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from .backends.base import Engine, EngineUnavailable

ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "command": ".backends.command:Command",
        "onnxruntime": ".backends.onnxruntime:OnnxRuntime",
        "tensorrt": ".backends.tensorrt:TensorRt",
        "trtexec": ".backends.trtexec:Trtexec",
    }
)


def make_engine(name: str, engines: Mapping[str, str] = ENGINES) -> Engine:
    """Import a back-end and its library.

    Args:
        name: As in an order, say ``onnxruntime``.
        engines: Name to ``module:factory``; a leading dot is relative to this package.

    Returns:
        An engine without a model.

    Raises:
        EngineUnavailable: There is no such back-end, or its library is not installed.
    """
    if name not in engines:
        what = f"no back-end is named {name!r}"
        raise EngineUnavailable(what, f"use {', '.join(sorted(engines)) or 'another release'}")
    module, _, factory = engines[name].partition(":")
    engine: Engine = getattr(import_module(module, __package__), factory)()
    return engine

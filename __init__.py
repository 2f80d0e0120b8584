"""What a Jetson's DLA, GPU, memory and power rails do while models run, run by run.

>>> import tegrascope
>>> tegrascope.parse_line("RAM 936/3964MB (lfb 366x4MB) GR3D_FREQ 99%@921").gpu.frequency_hertz
(921000000,)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collectors.application.lock_in import lock_in as lock_in
    from .collectors.application.window import window as window
    from .daemon.measure.report import RunReport as RunReport
    from .parsers.errors import ParseError as ParseError
    from .parsers.records import Sample as Sample
    from .parsers.tegrastats import parse_line as parse_line
    from .workbench.tables import frames as frames

__version__ = "0.2.0"

# Each name is imported when it is first asked for, so that the package itself costs nothing.
_HOMES = {
    "ParseError": ".parsers.errors",
    "RunReport": ".daemon.measure.report",
    "Sample": ".parsers.records",
    "lock_in": ".collectors.application.lock_in",
    "parse_line": ".parsers.tegrastats",
    "window": ".collectors.application.window",
}

# Modules too. Not in ``__all__``: who imports everything does not ask for pandas.
_MODULES = {"frames": ".workbench.tables.frames"}

__all__ = ["ParseError", "RunReport", "Sample", "lock_in", "parse_line", "window"]


def __getattr__(name: str) -> Any:
    """Import one of the public names late."""
    if name in _MODULES:
        return import_module(_MODULES[name], __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)

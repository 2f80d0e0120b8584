"""Named ranges for Nsight Systems, where it watches; nothing at all where it does not."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

# Nsight Systems sets them for the program that it starts; the second is how NVTX is told.
_WATCHED = ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH")


def is_watched(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a profiler listens to the ranges of this process."""
    return any(environment.get(name) for name in _WATCHED)


class Ranges:
    """Ranges of one process; they nest as their blocks do."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Import ``nvtx`` if a profiler listens and the package is there."""
        self._nvtx: Any = None
        if is_watched(environment):
            try:
                import nvtx
            except ImportError:
                return
            self._nvtx = nvtx

    def range(self, name: str) -> AbstractContextManager[Any]:
        """Return a block that bears a name on the profiler's timeline."""
        if self._nvtx is None:
            return nullcontext()
        found: AbstractContextManager[Any] = self._nvtx.annotate(name, domain="tegrascope")
        return found

    def each(self, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Return a call that has a range of its own each time; unwatched, the call itself."""
        if self._nvtx is None:
            return call
        begin, end = self._nvtx.push_range, self._nvtx.pop_range

        def marked() -> None:
            begin(name)
            try:
                call()
            finally:
                end()

        return marked

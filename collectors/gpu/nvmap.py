"""Memory by process beside a board's lines: of the GPU by NvMap, and the proportional set size."""

from collections.abc import Collection, Mapping
from functools import partial

from ...parsers import signals
from ...parsers.nvml import GpuProcesses, parse_nvml_line
from ...parsers.signals import Column
from ..base import Clock, LineSource
from ..lines.companion import LineCompanion
from ..processes.names import ProcessNames
from .nvml import GpuUsers

# Several periods of the reader, which pauses longer after a slow look.
FRESH_SECONDS = 60.0


class MemoryCompanion(LineCompanion):
    """Memory by name of process, from the lines of root's memory reader.

    The service's sandbox hides the processes of other users. So the reader sends their names, and
    only those of our own processes are found here.
    """

    name = "memory"

    def __init__(
        self,
        source: LineSource,
        *,
        top: int,
        names: Collection[str],
        known: ProcessNames,
        clock: Clock,
    ) -> None:
        """Prepare; ``top`` names are shown besides ``names``, and the others together as other."""
        super().__init__(source, clock)
        self._known = known
        self._sent: Mapping[int, str | None] = {}
        self._unavailable: str | None = None
        users = partial(GpuUsers, top=top, names=names, name_of=self._name_of, clock=clock)
        self._gpu = users()
        self._proportional = users(memory=signals.PROCESS_PROPORTIONAL)

    @property
    def problem(self) -> str | None:
        """Why it gives no values, with the remedy."""
        return self._unavailable or self.source.problem

    def columns(self) -> Mapping[Column, float]:
        """Return the values of the last look; none if it is too old."""
        oldest_ns = self._clock.monotonic_ns() - round(FRESH_SECONDS * 1e9)
        return {**self._gpu.columns(oldest_ns), **self._proportional.columns(oldest_ns)}

    def take(self, line: str, at_ns: int) -> None:  # noqa: ARG002
        """Take one line of the reader, or raise ``ParseError``."""
        found = parse_nvml_line(line)
        if isinstance(found, GpuProcesses):
            self._unavailable = found.unavailable
            if found.unavailable is not None:
                return
            self._sent = found.names
            self._gpu.take(found)
            self._proportional.take(
                found.model_copy(update={"used_bytes": found.proportional_bytes})
            )

    def _name_of(self, pid: int) -> str | None:
        return self._known.name(pid, self._sent.get(pid))

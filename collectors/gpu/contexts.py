"""Time on the GPU by process, beside the lines of telemetry."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from ...parsers import signals
from ...parsers.nvgpu.use import ContextUse
from ...parsers.signals import Column
from ..base import SYSTEM_CLOCK, Clock, LineSource
from ..lines.companion import SILENCE_SECONDS, LineCompanion

# Names of processes are counted on their own until there are so many columns.
_MOST_COLUMNS = 16


class GpuTraceCompanion(LineCompanion):
    """Seconds in which contexts of each process were on the GPU, by the lines of the reader.

    The counts never fall while this lives.
    """

    name = "ctxsw"

    def __init__(
        self,
        source: LineSource,
        *,
        name_of: Callable[[int], str | None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; ``name_of`` returns the name of a process, or ``None``."""
        super().__init__(source, clock)
        self._name_of = name_of
        self._unavailable: str | None = None
        self._columns: Mapping[Column, float] = {}
        self._fresh_until_ns = 0

    @property
    def problem(self) -> str | None:
        """Why it gives no values, with the remedy."""
        return self._unavailable or self.source.problem

    def columns(self) -> Mapping[Column, float]:
        """Return the present values; none while the reader is silent."""
        if self._clock.monotonic_ns() > self._fresh_until_ns:
            return {}
        return self._columns

    def take(self, line: str, at_ns: int) -> None:
        """Take a line of the reader that arrived at ``at_ns``."""
        use = ContextUse.model_validate_json(line)
        self._unavailable = use.unavailable
        if use.unavailable is not None:
            return
        # Another thread may look at the present values, so they are replaced.
        columns = defaultdict(float, self._columns)
        for pid, ns in use.process_ns.items():
            name = self._name_of(pid) or signals.UNKNOWN_PROCESS
            column = signals.PROCESS_GPU_CONTEXT, name
            if column not in columns and len(columns) > _MOST_COLUMNS:
                column = signals.PROCESS_GPU_CONTEXT, signals.UNKNOWN_PROCESS
            columns[column] += ns / 1e9
        for reason, count in use.troubles.items():
            columns[signals.GPU_TRACE_ERRORS, reason] += count
        self._columns = columns
        self._fresh_until_ns = at_ns + round(SILENCE_SECONDS * 1e9)

"""NVML as a source of samples, and beside the tegrastats of a board whose lines lack the load."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from pydantic import field_validator

from ...parsers import signals
from ...parsers.errors import ParseError
from ...parsers.nvml import GpuFacts, GpuProcesses, parse_nvml_line
from ...parsers.records import GpuSample, Sample
from ...parsers.signals import Column, Signal, by_name
from ..base import SYSTEM_CLOCK, Clock, LineSource, MachineFacts, Stamped
from ..board.boards import is_thor
from ..children.program import python_child
from ..lines.collector import LineCollector, Opening, SourceSettings
from ..lines.companion import LineCompanion
from ..lines.program import BACKOFF_SECONDS, ProcessSource
from ..paths import exists
from ..processes.names import ProcessNames
from ..processes.shown import ShownNames

# A driver that nothing keeps awake wakes with the first call, which takes long.
_SILENCE_SECONDS = 20.0
_DRIVER = ("proc/driver/nvidia/version", "dev/nvidiactl")
_GPU = re.compile(r"[0-9]+|(GPU|MIG)-[0-9A-Fa-f-]+", re.ASCII)


_LOG = logging.getLogger(__name__)
_FRESH_INTERVALS, _FRESH_SECONDS = 5, 3.0
# A machine without the package or the driver will hardly get it soon.
_PAUSE_BESIDE_SECONDS = (0.5, 60.0)


def nvml_command(interval_seconds: float, gpu: int | str = 0, *options: str) -> tuple[str, ...]:
    """Return the arguments that start the reader, by the interpreter that runs this.

    >>> nvml_command(0.103, "GPU-7c1b")[-4:]
    ('--gpu', 'GPU-7c1b', '--interval', '0.103')
    """
    interval = ("--interval", f"{interval_seconds:g}")
    arguments = ("--gpu", str(gpu), *interval, *options)
    return python_child(f"{__package__}.reader", *arguments, name="nvml")


def nvml_source(
    interval_seconds: float,
    gpu: int | str = 0,
    clock: Clock = SYSTEM_CLOCK,
    backoff_seconds: tuple[float, float] = BACKOFF_SECONDS,
    options: tuple[str, ...] = (),
) -> ProcessSource:
    """Return the reader, kept alive."""
    return ProcessSource(
        nvml_command(interval_seconds, gpu, *options),
        interval_seconds=interval_seconds,
        name="nvml",
        clock=clock,
        backoff_seconds=backoff_seconds,
        silence_seconds=max(5 * interval_seconds, _SILENCE_SECONDS),
    )


class GpuUsers:
    """Memory and load of the GPU by name of process, as NVML listed them last.

    Args:
        top: How many names of processes are shown besides the configured ``names``.
        name_of: Returns the name of a process; ``None`` shows no processes.
        memory: The signal of the bytes.
    """

    def __init__(
        self,
        *,
        top: int,
        names: Collection[str],
        name_of: Callable[[int], str | None] | None,
        clock: Clock,
        memory: Signal = signals.PROCESS_GPU_MEMORY,
    ) -> None:
        self.shows_names = name_of is not None
        self._memory = memory
        self._names = ShownNames(top, names, clock)
        self._name_of = name_of
        self._listed_ns: int | None = None
        self._columns: Mapping[Column, float] = {}

    def take(self, listed: GpuProcesses) -> None:
        """Take a list; the names that are not shown are together as other."""
        memory = self._by_name(listed.used_bytes)
        busy_percent = self._by_name(listed.busy_percent or {})
        shown = self._names.choose(memory)[0]
        columns: defaultdict[Column, float] = defaultdict(int)
        for name in memory.keys() | busy_percent.keys():
            label = name if name in shown else signals.UNKNOWN_PROCESS
            columns[self._memory, label] += memory.get(name, 0)
            if listed.busy_percent is not None:
                # A process that NVML has no sample of did not compute.
                columns[signals.PROCESS_GPU_LOAD, label] += busy_percent.get(name, 0) / 100
        self._listed_ns, self._columns = listed.at_ns, columns

    def columns(self, oldest_ns: int) -> Mapping[Column, float]:
        """Return the last list by name; nothing if it is older than that."""
        if self._listed_ns is None or self._listed_ns < oldest_ns:
            return {}
        return self._columns

    def _by_name(self, values: Mapping[int, float]) -> Mapping[str, float]:
        """Return the sum of the processes of each name, the unknown as other."""
        total: defaultdict[str, float] = defaultdict(int)
        for pid, value in values.items():
            name = self._name_of and self._name_of(pid)
            total[name or signals.UNKNOWN_PROCESS] += value
        return total


class NvmlCollector(LineCollector):
    """Samples of one GPU; the time of each is when the reader read its power.

    That is earlier than the line's arrival by all the slower readings behind it, of which the
    energy counter alone takes milliseconds. Reader and daemon share the machine and so the clock.
    A throttle event is a reason that the sample before did not have, also of an earlier reader.
    Each sample has the processes of the last list, for ``users``.
    """

    def __init__(self, source: LineSource, users: GpuUsers | None = None) -> None:
        super().__init__(source)
        self._users = users
        self._fresh_ns = _fresh_ns(source)
        self._throttling: dict[str, float] = {}
        self._throttle_events: Counter[str] = Counter()

    def _read(self, line: Stamped[str]) -> Sequence[Stamped[Sample]]:
        found = parse_nvml_line(line.value)
        if isinstance(found, GpuFacts):
            limit = found.power_limit_watts
            self.about = MachineFacts(
                board=found.name,
                module=found.part_number,
                power_mode=None if limit is None else f"{limit:g} W",
                gpu_uuid=found.uuid,
                power_reading=found.power_reading,
                versions=found.versions,
            )
            return ()
        if isinstance(found, GpuProcesses):
            if self._users is not None:
                self._users.take(found)
            return ()
        age_ns = line.monotonic_ns - found.at_ns
        if age_ns < 0:
            raise ParseError("time", line.value)
        throttling = signals.THROTTLE_ACTIVE.by_label(found.columns)
        for kind, is_active in throttling.items():
            self._throttle_events[kind] += bool(is_active) and not self._throttling.get(kind, 0)
        self._throttling.update(throttling)
        counts = self._throttle_events.items()
        events = {signals.THROTTLE_EVENTS.column(kind): count for kind, count in counts}
        users: Mapping[str, float] = {}
        if self._users is not None:
            users = by_name(self._users.columns(found.at_ns - self._fresh_ns))
        sample = replace(found, columns={**found.columns, **events, **users})
        return (Stamped(found.at_ns, line.wall_ns - age_ns, sample),)


class NvmlCompanion(LineCompanion):
    """Load, power and processes of a board's GPU: values that its tegrastats may lack.

    Each is the newest reading of the child. A value that NVML does not support is absent. If it
    supports none of them, as on Orin, the child is ended, and nothing is wrong.
    """

    name = "nvml"

    def __init__(
        self,
        source: LineSource,
        *,
        top: int = 10,
        names: Collection[str] = (),
        name_of: Callable[[int], str | None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Prepare; nothing is read before ``start``.

        Args:
            source: The reader's lines.
            top: How many names of processes are shown besides the configured ``names``.
            name_of: Returns the name of a process; ``None`` shows no processes.
        """
        super().__init__(source, clock)
        self._users = GpuUsers(top=top, names=names, name_of=name_of, clock=clock)
        self._fresh_ns = _fresh_ns(source)
        self._sample: GpuSample | None = None

    @property
    def problem(self) -> str | None:
        """Why it gives no values, with the remedy."""
        if self._sample is not None and self._sample.at_ns < self._oldest_ns():
            return self.source.problem or "NVML does not answer: see dmesg"
        return self.source.problem

    def _oldest_ns(self) -> int:
        return self._clock.monotonic_ns() - self._fresh_ns

    def columns(self) -> Mapping[Column, float]:
        """Return the newest values; none of a reading that is too old."""
        oldest_ns = self._oldest_ns()
        sample = self._sample
        columns: dict[Column, float] = {}
        if sample is not None and sample.at_ns >= oldest_ns:
            load = sample.columns.get(signals.GPU_LOAD.column())
            if load is not None:
                columns[signals.GPU_LOAD, ""] = load
            rail = sample.rails.get("GPU")
            if rail is not None:
                columns[signals.GPU_POWER, ""] = rail.instant_watts
        return {**columns, **self._users.columns(oldest_ns)}

    def take(self, line: str, at_ns: int) -> None:  # noqa: ARG002
        """Take one line of the reader; one that is not understood gives nothing."""
        try:
            found = parse_nvml_line(line)
        except ParseError:
            return
        if isinstance(found, GpuSample):
            self._sample = found
        elif isinstance(found, GpuProcesses):
            self._users.take(found)
        elif not gives_beside(found, with_processes=self._users.shows_names):
            _LOG.info("NVML supports neither load nor power nor processes here: it is not read")
            self.source.stop()


def _fresh_ns(source: LineSource) -> int:
    """Return how long a reading counts as present."""
    interval = source.interval_seconds or 1.0
    return round(max(_FRESH_SECONDS, _FRESH_INTERVALS * interval) * 1e9)


def gives_beside(facts: GpuFacts, *, with_processes: bool) -> bool:
    """Return whether NVML supports one of the values that are read beside tegrastats."""
    lists = ("compute_processes", "graphics_processes")
    has_processes = with_processes and any(name not in facts.refused for name in lists)
    return has_processes or facts.power_reading is not None or "utilization" not in facts.refused


class NvmlSettings(SourceSettings):
    """A desktop or server GPU of this machine; or the GPU of a board, beside its tegrastats."""

    is_kept_alive = True

    gpu: int | str = 0
    # Whether NVML is read beside the lines of another source; auto: on a Thor that has it.
    beside: Literal["auto"] | bool = "auto"

    @field_validator("gpu")
    @classmethod
    def _names_one(cls, value: int | str) -> int | str:
        if not _GPU.fullmatch(str(value)):
            raise ValueError("an index like 0, or a UUID like GPU-7c1b0a52, of nvidia-smi -L")
        return value

    @classmethod
    def is_available(cls, root: Path = Path("/")) -> bool:
        """Return whether the package and the driver are installed."""
        return find_spec("pynvml") is not None and cls.has_driver(root)

    @staticmethod
    def has_driver(root: Path = Path("/")) -> bool:
        """Return whether an NVIDIA driver is loaded."""
        return any(exists(root / file) for file in _DRIVER)

    def is_read_beside(self, root: Path | None) -> bool:
        """Return whether it is read beside lines; ``root`` is that of their board, if it is here.

        Thor is the board whose tegrastats lacks the load and whose NVML has it.
        """
        if isinstance(self.beside, bool):
            return self.beside
        return root is not None and is_thor(root) and self.is_available(root)

    def open_beside(
        self,
        interval_seconds: float,
        *,
        top: int = 0,
        names: Collection[str] = (),
        name_of: Callable[[int], str | None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> NvmlCompanion:
        """Return the companion; without ``name_of`` it lists no processes."""
        options = ("--beside",) if name_of is None else ("--beside", "--processes")
        source = nvml_source(interval_seconds, self.gpu, clock, _PAUSE_BESIDE_SECONDS, options)
        return NvmlCompanion(source, top=top, names=names, name_of=name_of, clock=clock)

    def summary(self) -> str:  # noqa: D102
        return f"NVML of GPU {self.gpu}"

    def open(self, opening: Opening) -> NvmlCollector:  # noqa: D102
        options = ("--processes",)
        source = nvml_source(opening.interval_seconds, self.gpu, opening.clock, options=options)
        users = GpuUsers(
            top=opening.top_processes,
            names=opening.process_names,
            name_of=ProcessNames(clock=opening.clock).name,
            clock=opening.clock,
        )
        return NvmlCollector(source, users)

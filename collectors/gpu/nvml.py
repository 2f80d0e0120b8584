"""Samples of a desktop or server GPU, as the NVML reader prints them."""

import re
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace
from pydantic import field_validator

from ...parsers.errors import ParseError
from ...parsers.nvml import GpuFacts, parse_nvml_line
from ...parsers.records import Sample
from ..base import SYSTEM_CLOCK, Clock, LineSource, MachineFacts, Stamped
from ..children.program import python_child
from ..lines.collector import LineCollector, Opening, SourceSettings
from ..lines.program import BACKOFF_SECONDS, ProcessSource

# A driver that nothing keeps awake wakes with the first call, which takes long.
_SILENCE_SECONDS = 20.0
_DRIVER = ("proc/driver/nvidia/version", "dev/nvidiactl")
_GPU = re.compile(r"[0-9]+|(GPU|MIG)-[0-9A-Fa-f-]+", re.ASCII)


def nvml_command(interval_seconds: float, gpu: int | str = 0) -> tuple[str, ...]:
    """Return the arguments that start the reader, by the interpreter that runs this.

    >>> nvml_command(0.103, "GPU-7c1b")[-4:]
    ('--gpu', 'GPU-7c1b', '--interval', '0.103')
    """
    interval = f"{interval_seconds:g}"
    return python_child(f"{__package__}.reader", "--gpu", str(gpu), "--interval", interval)


def nvml_source(
    interval_seconds: float,
    gpu: int | str = 0,
    clock: Clock = SYSTEM_CLOCK,
    backoff_seconds: tuple[float, float] = BACKOFF_SECONDS,
) -> ProcessSource:
    """Return the reader, kept alive."""
    return ProcessSource(
        nvml_command(interval_seconds, gpu),
        interval_seconds=interval_seconds,
        name="nvml",
        clock=clock,
        backoff_seconds=backoff_seconds,
        silence_seconds=max(5 * interval_seconds, _SILENCE_SECONDS),
    )


class NvmlCollector(LineCollector):
    """Samples of one GPU; the time of each is when the reader read its power.

    That is earlier than the line's arrival by all the slower readings behind it, of which the
    energy counter alone takes milliseconds. Reader and daemon share the machine and so the clock.
    A throttle event is a reason that the sample before did not have, also of an earlier reader.
    """

    def __init__(self, source: LineSource) -> None:
        super().__init__(source)
        self._throttling: dict[str, bool] = {}
        self._throttle_events: Counter[str] = Counter()

    def _read(self, line: Stamped[str]) -> Stamped[Sample] | None:
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
            return None
        age_ns = line.monotonic_ns - found.at_ns
        if age_ns < 0:
            raise ParseError("time", line.value)
        for kind, is_active in found.throttling.items():
            self._throttle_events[kind] += is_active and not self._throttling.get(kind, False)
        self._throttling.update(found.throttling)
        sample = replace(found, throttle_events=dict(self._throttle_events))
        return Stamped(found.at_ns, line.wall_ns - age_ns, sample)


class NvmlSettings(SourceSettings):
    """A desktop or server GPU of this machine."""

    is_kept_alive = True

    gpu: int | str = 0

    @field_validator("gpu")
    @classmethod
    def _names_one(cls, value: int | str) -> int | str:
        if not _GPU.fullmatch(str(value)):
            raise ValueError("an index like 0, or a UUID like GPU-7c1b0a52, of nvidia-smi -L")
        return value

    @classmethod
    def is_available(cls, root: Path = Path("/")) -> bool:
        """Return whether the package and the driver are installed."""
        return find_spec("pynvml") is not None and any((root / file).exists() for file in _DRIVER)

    def summary(self) -> str:  # noqa: D102
        return f"NVML of GPU {self.gpu}"

    def open(self, opening: Opening) -> NvmlCollector:  # noqa: D102
        return NvmlCollector(nvml_source(opening.interval_seconds, self.gpu, opening.clock))

"""Exports of AIPerf, NVIDIA's benchmark of model servers: one JSON object per line.

Times are nanoseconds since 1970 by the clock of the machine on which AIPerf runs. An end is the
start plus a duration by a monotonic clock.

Source:
    ``MetricRecordInfo`` and ``MetricRecordMetadata`` in ``common/models/record_models.py``, and
        ``TelemetryRecord`` in ``common/models/telemetry_models.py``, of
        https://github.com/ai-dynamo/aiperf 0.13.0; its exports of that release.
"""

from typing import Any, TypeVar

import msgspec

from ..errors import UnreadableError


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int
    benchmark_phase: str
    phase_name: str | None = None
    was_cancelled: bool = False


class _Count(msgspec.Struct):
    value: float


class _Metrics(msgspec.Struct):
    output_sequence_length: _Count | None = None


class Request(msgspec.Struct):
    """A line of ``profile_export.jsonl``: one request to a model server."""

    metadata: _Metadata
    metrics: _Metrics = msgspec.field(default_factory=_Metrics)
    error: Any = None

    def __post_init__(self) -> None:
        """Refuse impossible times."""
        if not 0 < self.span[0] < self.span[1]:
            raise ValueError("the request ends before it begins")

    @property
    def span(self) -> tuple[int, int]:
        """Start and end."""
        return self.metadata.request_start_ns, self.metadata.request_end_ns

    @property
    def phase(self) -> str:
        """Name of the benchmark's phase, such as ``warmup`` or ``profiling``."""
        return self.metadata.phase_name or self.metadata.benchmark_phase

    @property
    def is_good(self) -> bool:
        """Whether it was answered: it did not fail and was not cancelled."""
        return self.error is None and not self.metadata.was_cancelled


class _Readings(msgspec.Struct):
    nvidia_energy_consumption: float | None = None


class EnergyReading(msgspec.Struct):
    """A line of ``gpu_telemetry_export.jsonl``; the energy counter of a GPU is in megajoules."""

    timestamp_ns: int
    telemetry_source_url: str
    gpu_uuid: str
    telemetry_data: _Readings


T = TypeVar("T", Request, EnergyReading)


def parse_record(line: bytes, kind: type[T]) -> T:
    """Parse a line of an export.

    Raises:
        UnreadableError: It is not a record of that kind, or a request that ends before it begins.
    """
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(str(error)) from None

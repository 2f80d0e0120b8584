"""Which rows of the table of runs can be used."""

from typing import Any

import msgspec


class _Latency(msgspec.Struct):
    p50_seconds: float | None = None
    p99_seconds: float | None = None


class _Energy(msgspec.Struct):
    gross_joules: float | None = None
    gross_joules_per_inference: float | None = None
    net_joules_per_inference: float | None = None
    rails: dict[str, dict[str, Any]] | None = None
    total_rails: list[str] | None = None


class _Deadline(msgspec.Struct):
    misses: int | None = None


class _Head(msgspec.Struct):
    """The fields of a ``RunReport`` of any release that queries need or calculate with."""

    run_id: str
    workload: str
    device: str
    outcome: str
    started_wall_ns: int
    started_ns: int
    ended_ns: int
    inferences: int = 0
    lateness_seconds: float | None = None
    phases: dict[str, dict[str, int]] = {}
    latency: _Latency | None = None
    deadline: _Deadline | None = None
    energy: _Energy | None = None
    quality: list[str] = []
    environment: dict[str, Any] = {}


_HEAD = msgspec.json.Decoder(_Head)


def is_report(
    run_id: object,
    workload: object,
    device: object,
    outcome: object,
    started_wall_ns: object,
    report: object,
) -> bool:
    """Return whether a report can be read and agrees with the columns beside it.

    A damaged disk leaves rows that SQLite reads without an error, and one of them must not hide the
    others. All texts are bytes, since a damaged one is perhaps not UTF-8.
    """
    if not isinstance(report, bytes):
        return False
    try:
        head = _HEAD.decode(report)
        report.decode()  # msgspec does not look into the texts that it skips
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    texts = (head.run_id, head.workload, head.device, head.outcome)
    columns = (run_id, workload, device, outcome)
    return started_wall_ns == head.started_wall_ns and all(
        text.encode() == column for text, column in zip(texts, columns, strict=True)
    )

"""Runs as lines of a table: SQLite cuts them out of the reports, which are long."""

from collections.abc import Generator

from ..store.history import History

_LATENCIES = ("p50_seconds", "p99_seconds")
_ENERGIES = (
    "gross_joules",
    "gross_joules_per_inference",
    "net_joules_per_inference",
    "largest_uncertainty",
)


def _field(name: str, path: str) -> str:
    return f"'{name}', json_extract(report, '$.{path}')"


def _of_the_end(name: str) -> str:
    # What stands in a run in flight is for the case that the daemon dies: nothing of it is so yet.
    return f"'{name}', CASE WHEN in_flight THEN NULL ELSE json_extract(report, '$.{name}') END"


_SUMMARY = "json_object({})".format(
    ", ".join(
        (
            "'run_id', run_id, 'workload', workload, 'device', device",
            "'started_seconds', started_wall_ns / 1e9",
            *(_of_the_end(name) for name in ("outcome", "reason", "ended_ns", "inferences")),
            *(_field(name, name) for name in ("started_ns", "batch")),
            _field("throughput_per_second", "throughput_per_second"),
            *(_field(name, name) for name in ("quality", "overlapping_runs")),
            _field("steady", "phases.steady"),
            *(_field(name, f"latency.{name}") for name in _LATENCIES),
            *(_field(name, f"energy.{name}") for name in _ENERGIES),
            _field("simulated", "environment.simulated"),
            _field("placement", "built.placement.verdict"),
        )
    )
)


def summaries(
    history: History, limit: int, before_seconds: float | None
) -> Generator[str, None, None]:
    """Yield the pieces of a JSON document with the runs in flight and the latest finished ones.

    It is ``{"in_flight", "runs"}``, newest first, of each what the table shows. How a run in
    flight ends is not known: its outcome, reason, end and number of inferences are null.

    Args:
        history: The store.
        limit: Finished runs at most.
        before_seconds: Finished runs that started before this wall time only.
    """
    before_ns = None if before_seconds is None else int(before_seconds * 1e9)
    in_flight = ",".join(history.pick_runs(_SUMMARY, limit, in_flight=True))
    finished = ",".join(history.pick_runs(_SUMMARY, limit, before_ns))
    yield f'{{"in_flight":[{in_flight}],"runs":[{finished}]}}'

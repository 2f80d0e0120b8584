"""Metric families, made from the snapshot at each scrape.

An unknown value has no series. Telemetry that is not fresh has none either, so that a stale value
never looks like a live one; ``tegrascope_source_up`` is 0 then.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.samples import Exemplar

from ...parsers.signals import Family, split
from .rows import METRICS, LastRunRow, MetricRow, Scrape, SourceRow, WorkloadRow
from .snapshot import Histogram, Snapshot

_ROWS = {row.name: row for row in METRICS}


def families(snapshot: Snapshot, now_ns: int) -> list[Metric]:
    """Return the metric families of a snapshot, in the order of the rows.

    Those under ``tegra_`` have the label ``simulated="true"`` if the telemetry is not from this
    machine. ``now_ns`` is CLOCK_MONOTONIC, which decides what is fresh.
    """
    is_fresh = any(source.is_fresh(now_ns) for source in snapshot.sources)
    marked = {"simulated": "true"} if snapshot.environment.simulated else {}
    made: dict[str, Metric] = {}
    for column, value in snapshot.values.items():
        found = _series(column)
        if found is not None and (is_fresh or found[2]):
            name, labels, _ = found
            if marked and name.startswith("tegra_"):
                labels = {**labels, **marked}
            if name not in made:
                made[name] = _metric(_ROWS[name])
            made[name].add_sample(name, labels, value)
    scrape = Scrape(snapshot, now_ns, is_fresh)
    for row in METRICS:
        if isinstance(row, MetricRow):
            metric = _metric(row)
            for subject, labels in _subjects(row, scrape):
                if marked and row.name.startswith("tegra_"):
                    labels = {**labels, **marked}
                _add(metric, row, labels, row.read(subject))
            if metric.samples:
                made[row.name] = metric
    return [made[row.name] for row in METRICS if row.name in made]


@lru_cache(4096)
def _series(column: str) -> tuple[str, dict[str, str], bool] | None:
    """Return name and labels of a column's series, and whether it stays without fresh samples."""
    signal, label = split(column) or (None, "")
    if signal is None or signal.family is None:
        return None
    return signal.family, signal.labels_of(label), signal.kept


def _subjects(row: MetricRow, scrape: Scrape) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield each object that a row reads, with the labels of its series."""
    if isinstance(row, SourceRow):
        yield from ((source, {}) for source in scrape.snapshot.sources)
    elif isinstance(row, WorkloadRow | LastRunRow):
        for state in scrape.snapshot.workloads.values():
            subject = state if isinstance(row, WorkloadRow) else state.last_good
            if subject is not None:
                yield subject, {"workload": state.workload, "device": state.device}
    else:
        yield scrape, {}


def _add(metric: Metric, row: MetricRow, labels: dict[str, str], value: Any) -> None:
    if isinstance(value, Histogram):
        _add_histogram(metric, labels, value)
    elif row.kind == "info":
        if value is not None:
            metric.add_sample(row.name, {**labels, **value}, 1)
    elif isinstance(value, Mapping):
        for label, number in value.items():
            if number is not None:
                names = label if isinstance(label, tuple) else (label,)
                named = zip(row.labels, map(str, names), strict=True)
                metric.add_sample(row.name, {**labels, **dict(named)}, number)
    elif value is not None:
        metric.add_sample(row.name, labels, value)


def _metric(row: Family) -> Metric:
    bare = row.name.removesuffix("_total" if row.kind == "counter" else "_info")
    return Metric(bare if row.kind in ("counter", "info") else row.name, row.help, row.kind)


def _add_histogram(family: Metric, labels: dict[str, str], histogram: Histogram) -> None:
    count = 0
    bounds = [str(bound) for bound in histogram.bounds] + ["+Inf"]
    for bound, more, latest in zip(bounds, histogram.counts, histogram.exemplars, strict=True):
        count += more
        exemplar = (
            Exemplar({"run_id": latest.run_id}, latest.value, latest.wall_seconds)
            if latest
            else None
        )
        name = f"{family.name}_bucket"
        family.add_sample(name, {**labels, "le": bound}, count, exemplar=exemplar)
    family.add_sample(f"{family.name}_count", labels, count)
    family.add_sample(f"{family.name}_sum", labels, histogram.total)

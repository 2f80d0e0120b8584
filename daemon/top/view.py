"""The values of one metric page of a daemon; an absent value is ``None``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Labels = Mapping[str, str]

# Characters of a label that would control a terminal.
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160)), "?")


class Series:
    r"""All series of one page.

    >>> page = Series('a{core="0"} 1\na{core="1"} 0.5\nb 2\n')
    >>> page.value("b"), page.value("c"), page.by("a", "core")
    (2.0, None, {'0': 1.0, '1': 0.5})
    """

    def __init__(self, text: str) -> None:
        """Read a page in the text format; raise ValueError for any other text."""
        from prometheus_client.parser import text_string_to_metric_families

        self._found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {name: clean(value) for name, value in sample.labels.items()}
                self._found.setdefault(sample.name, []).append((labels, float(sample.value)))

    def all(self, name: str, **wanted: str) -> Iterator[tuple[Labels, float]]:
        """Yield labels and value of the series of a metric that have these labels."""
        for labels, value in self._found.get(name, ()):
            if all(labels.get(key) == text for key, text in wanted.items()):
                yield labels, value

    def value(self, name: str, **wanted: str) -> float | None:
        """Return the value of the first such series."""
        return next((value for _, value in self.all(name, **wanted)), None)

    def by(self, name: str, label: str, **wanted: str) -> dict[str, float]:
        """Return values by one label."""
        return {
            labels[label]: value for labels, value in self.all(name, **wanted) if label in labels
        }

    def labels(self, name: str) -> Labels:
        """Return the labels of the first series of a metric; an empty mapping without one."""
        return next((labels for labels, _ in self.all(name)), {})


def clean(text: str) -> str:
    r"""Replace control characters.

    >>> clean("a\x1b[2Jb")
    'a?[2Jb'
    """
    return text.translate(_UNPRINTABLE)


_BUSY_SOURCES = ("ftrace", "firmware", "tegrastats")
_BAD_OUTCOMES = ("failed", "timeout", "skipped")


@dataclass(frozen=True)
class Gauge:
    """One unit of the board.

    Attributes:
        ratio: Its load, 0…1.
        hertz: Its clock.
        is_off: Whether it has no power.
        note: Meaning of the ratio if it is not a load.
    """

    name: str
    ratio: float | None = None
    hertz: float | None = None
    is_off: bool = False
    note: str = ""


@dataclass(frozen=True)
class Zone:
    """One thermal zone; the board shuts down at its critical temperature."""

    name: str
    celsius: float
    critical_celsius: float | None = None


@dataclass(frozen=True)
class WorkloadLine:
    """One workload with the results of its last run.

    Attributes:
        is_active: Whether a run is in flight.
        ended: Outcome and reason of the last run if it was not good, else empty.
        good: Number of good runs since the daemon's start.
        runs: Number of all runs.
        finished_seconds: Wall time of the last good run.
        throughput: Inputs per second.
        joules: Gross energy per inference.
        net_joules: The same minus the loaded-idle baseline.
        flags: Quality flags of the last good run.
    """

    workload: str
    device: str
    is_active: bool = False
    ended: str = ""
    good: int = 0
    runs: int = 0
    finished_seconds: float | None = None
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    throughput: float | None = None
    joules: float | None = None
    net_joules: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """The state of a daemon.

    Attributes:
        about: Labels of ``tegra_info``.
        sources: Whether each source works.
        sample_seconds: Wall time of the newest sample.
        gauges: GPU, DLA cores, EMC.
        cores: Load of each CPU core; ``None`` for one that is offline.
        cpu_hertz: Clock of the fastest core.
        memory: Used and total bytes.
        swap: Used and total bytes.
        rails: Watts by rail.
        module_joules: Energy of the module since the daemon's start.
        zones: Hottest first.
        fans: Speed by fan, 0…1.
        throttling: Number of events by kind, without zeros.
        rows: Workloads, those in flight first.
    """

    about: Mapping[str, str]
    is_simulated: bool
    sources: Mapping[str, bool]
    sample_seconds: float | None
    gauges: tuple[Gauge, ...]
    cores: tuple[float | None, ...]
    cpu_hertz: float | None
    memory: tuple[float, float] | None
    swap: tuple[float, float] | None
    rails: Mapping[str, float]
    module_joules: float | None
    zones: tuple[Zone, ...]
    fans: Mapping[str, float]
    throttling: Mapping[str, int]
    rows: tuple[WorkloadLine, ...]


def make_view(page: Series, runs: Sequence[Mapping[str, Any]] = ()) -> View:
    """Return the values of a metric page and of finished runs, newest first, as in the API."""
    about = page.labels("tegra_info")
    gpu_hertz = page.by("tegra_gpu_frequency_hertz", "gpc").values()
    cpu_hertz = page.by("tegra_cpu_frequency_hertz", "core").values()
    samples = page.by("tegrascope_sample_timestamp_seconds", "source").values()
    critical = page.by("tegra_temperature_trip_celsius", "zone", kind="critical")
    zones = page.by("tegra_temperature_celsius", "zone")
    throttling = page.by("tegra_throttle_events_total", "kind")
    return View(
        about=about,
        is_simulated=about.get("simulated") == "true",
        sources={n: up == 1 for n, up in page.by("tegrascope_source_up", "source").items()},
        sample_seconds=max(samples, default=None),
        gauges=(
            Gauge("GPU", page.value("tegra_gpu_utilization_ratio"), max(gpu_hertz, default=None)),
            *_dlas(page),
            Gauge(
                "EMC",
                page.value("tegra_emc_utilization_ratio"),
                page.value("tegra_emc_frequency_hertz"),
            ),
        ),
        cores=_cores(page),
        cpu_hertz=max(cpu_hertz, default=None),
        memory=_part(page, "tegra_ram"),
        swap=_part(page, "tegra_swap"),
        rails=page.by("tegra_rail_power_watts", "rail"),
        module_joules=page.value("tegra_module_energy_joules_total"),
        zones=tuple(
            Zone(name, celsius, critical.get(name))
            for name, celsius in sorted(zones.items(), key=lambda zone: -zone[1])
        ),
        fans=page.by("tegra_fan_speed_ratio", "fan"),
        throttling={kind: int(count) for kind, count in throttling.items() if count},
        rows=_rows(page, runs),
    )


def _dlas(page: Series) -> list[Gauge]:
    """Return one gauge per DLA core that has any series."""
    active = page.by("tegra_dla_active", "core")
    powered = page.by("tegra_dla_powered_ratio", "core")
    found = []
    for core in sorted({*active, *powered, *page.by("tegra_dla_busy_ratio", "core")}):
        busy = page.by("tegra_dla_busy_ratio", "source", core=core)
        source = next((name for name in _BUSY_SOURCES if name in busy), None)
        ratio = busy[source] if source else powered.get(core)
        found.append(
            Gauge(
                f"DLA{core}",
                ratio,
                page.value("tegra_dla_frequency_hertz", core=core),
                is_off=source is None and active.get(core) == 0,
                note="powered" if source is None and ratio is not None else "",
            )
        )
    return found


def _cores(page: Series) -> tuple[float | None, ...]:
    loads = page.by("tegra_cpu_utilization_ratio", "core")
    online = page.by("tegra_cpu_online", "core")
    numbers = sorted({*loads, *online}, key=lambda core: (len(core), core))
    return tuple(loads.get(core) for core in numbers)


def _part(page: Series, name: str) -> tuple[float, float] | None:
    used, total = page.value(f"{name}_used_bytes"), page.value(f"{name}_total_bytes")
    return None if used is None or total is None else (used, total)


def _rows(page: Series, runs: Sequence[Mapping[str, Any]]) -> tuple[WorkloadLine, ...]:
    last: dict[str, Mapping[str, Any]] = {}
    for run in runs:
        last.setdefault(str(run.get("workload")), run)
    rows = []
    for labels, active in page.all("tegra_inference_run_active"):
        name, device = labels.get("workload", ""), labels.get("device", "")
        rows.append(_row(page, name, device, bool(active), last.get(name, {})))
    return tuple(sorted(rows, key=lambda row: (not row.is_active, -(row.finished_seconds or 0))))


def _row(
    page: Series, name: str, device: str, is_active: bool, run: Mapping[str, Any]
) -> WorkloadLine:
    of = {"workload": name, "device": device}
    prefix = "tegra_inference_last_run"
    outcomes = page.by("tegra_inference_runs_total", "outcome", **of)
    joules = page.by(f"{prefix}_energy_joules_per_inference", "kind", **of)
    latency = page.by(f"{prefix}_latency_seconds", "quantile", **of)
    ended = ""
    if run.get("outcome") in _BAD_OUTCOMES:
        ended = clean(f"{run['outcome']}: {run.get('reason') or 'no reason given'}")
    return WorkloadLine(
        name,
        device,
        is_active,
        ended,
        good=int(outcomes.get("ok", 0)),
        runs=int(sum(outcomes.values())),
        finished_seconds=page.value(f"{prefix}_timestamp_seconds", **of),
        p50_seconds=latency.get("0.5"),
        p99_seconds=latency.get("0.99"),
        throughput=page.value(f"{prefix}_throughput_per_second", **of),
        joules=joules.get("gross"),
        net_joules=joules.get("net"),
        flags=tuple(page.by("tegra_inference_quality_flag", "flag", **of)),
    )

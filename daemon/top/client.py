"""The values of one daemon for the screen, from its metric page, its runs and its samples."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...collectors.application.client import ApiClient
from ...collectors.board.boards import find_rail_rule
from ...parsers import signals

Labels = Mapping[str, str]

# Characters of a label that would control a terminal.
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160)), "?")
_BUSY_SOURCES = ("ftrace", "firmware", "tegrastats")
_BAD_OUTCOMES = ("failed", "timeout", "skipped")
_HISTORY = 240
_PAST_SECONDS = 120.0
_RUNS = 50
_HOTTEST = "hottest °C"


def clean(text: str) -> str:
    r"""Replace control characters.

    >>> clean("a\x1b[2Jb")
    'a?[2Jb'
    """
    return text.translate(_UNPRINTABLE)


class Series:
    r"""All series of one page.

    >>> page = Series('a{core="0"} 1\na{core="1"} 0.5\nb 2\n')
    >>> page.value("b"), page.value("c"), page.by("a", "core")
    (2.0, None, {'0': 1.0, '1': 0.5})
    """

    def __init__(self, text: str) -> None:
        """Read a page in the text format; raise ValueError for any other text."""
        from prometheus_client.parser import text_string_to_metric_families

        self._found: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {name: clean(value) for name, value in sample.labels.items()}
                self._found.setdefault(sample.name, []).append((labels, float(sample.value)))

    def all(self, name: str, **wanted: str) -> Iterator[tuple[Labels, float]]:
        """Yield labels and value of the series of a metric that have these labels."""
        for labels, value in self._found.get(name, ()):
            if wanted.items() <= labels.items():
                yield labels, value

    def value(self, name: str, **wanted: str) -> float | None:
        """Return the value of the first such series."""
        return next((value for _, value in self.all(name, **wanted)), None)

    def by(self, name: str, label: str, **wanted: str) -> dict[str, float]:
        """Return values by one label."""
        found = self.all(name, **wanted)
        return {labels[label]: value for labels, value in found if label in labels}


@dataclass(frozen=True)
class Gauge:
    """One unit of the board: its load (0…1) and its clock.

    Attributes:
        is_off: Whether it has no power.
        note: Meaning of the ratio if it is not a load.
    """

    name: str
    ratio: float | None = None
    hertz: float | None = None
    is_off: bool = False
    note: str = ""


@dataclass(frozen=True)
class WorkloadLine:
    """One workload with the results of its last good run; energy is per inference.

    Attributes:
        ended: Outcome and reason of the last run if it was not good, else empty.
        good: Number of good runs since the daemon's start, of ``runs``.
    """

    workload: str
    device: str
    is_active: bool
    ended: str
    good: int
    runs: int
    finished_seconds: float | None
    p50_seconds: float | None
    p99_seconds: float | None
    inputs_per_second: float | None
    gross_joules: float | None
    net_joules: float | None
    flags: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """The state of a daemon; an absent value is ``None``.

    Attributes:
        about: Labels of ``tegra_info``.
        sources: Whether each source works.
        sample_seconds: Wall time of the newest sample.
        cores: Load of each CPU core; ``None`` for one that is offline.
        cpu_hertz: Clock of the fastest core.
        memory: Used and total bytes, like ``swap``.
        rails: Watts by rail.
        module_joules: Energy of the module since the daemon's start.
        module_seconds: Time over which it was integrated.
        zones: Celsius by zone, hottest first.
        critical: Temperature at which the board shuts down, by zone.
        fans: Speed by fan, 0…1.
        throttling: Number of events by kind, without zeros.
        rows: Workloads, those in flight first.
    """

    about: Labels
    sources: Mapping[str, bool]
    sample_seconds: float | None
    gauges: tuple[Gauge, ...]
    cores: tuple[float | None, ...]
    cpu_hertz: float | None
    memory: tuple[float, float] | None
    swap: tuple[float, float] | None
    rails: Mapping[str, float]
    module_joules: float | None
    module_seconds: float | None
    zones: Mapping[str, float]
    critical: Mapping[str, float]
    fans: Mapping[str, float]
    throttling: Mapping[str, int]
    rows: tuple[WorkloadLine, ...]


def make_view(page: Series, runs: Sequence[Mapping[str, Any]] = ()) -> View:
    """Return the values of a metric page and of finished runs, newest first, as in the API."""
    gpu_hertz = page.by("tegra_gpu_frequency_hertz", "gpc").values()
    gpu = Gauge("GPU", page.value("tegra_gpu_utilization_ratio"), max(gpu_hertz, default=None))
    emc_ratio, emc_hertz = map(
        page.value, ("tegra_emc_utilization_ratio", "tegra_emc_frequency_hertz")
    )
    loads = page.by("tegra_cpu_utilization_ratio", "core")
    cores = sorted(
        {*loads, *page.by("tegra_cpu_online", "core")}, key=lambda core: (len(core), core)
    )
    zones = page.by("tegra_temperature_celsius", "zone")
    throttling = page.by("tegra_throttle_events_total", "kind")
    samples = page.by("tegrascope_sample_timestamp_seconds", "source").values()
    return View(
        about=next((labels for labels, _ in page.all("tegra_info")), {}),
        sources={n: up == 1 for n, up in page.by("tegrascope_source_up", "source").items()},
        sample_seconds=max(samples, default=None),
        gauges=(gpu, *_dlas(page), Gauge("EMC", emc_ratio, emc_hertz)),
        cores=tuple(map(loads.get, cores)),
        cpu_hertz=max(page.by("tegra_cpu_frequency_hertz", "core").values(), default=None),
        memory=_part(page, "tegra_ram"),
        swap=_part(page, "tegra_swap"),
        rails=page.by("tegra_rail_power_watts", "rail"),
        module_joules=page.value("tegra_module_energy_joules_total"),
        module_seconds=page.value("tegra_module_energy_observed_seconds_total"),
        zones=dict(sorted(zones.items(), key=lambda zone: -zone[1])),
        critical=page.by("tegra_temperature_trip_celsius", "zone", kind="critical"),
        fans=page.by("tegra_fan_speed_ratio", "fan"),
        throttling={kind: int(count) for kind, count in throttling.items() if count},
        rows=_rows(page, runs),
    )


def _dlas(page: Series) -> Iterator[Gauge]:
    """Yield one gauge per DLA core that has any series."""
    active = page.by("tegra_dla_active", "core")
    powered = page.by("tegra_dla_powered_ratio", "core")
    for core in sorted({*active, *powered, *page.by("tegra_dla_busy_ratio", "core")}):
        busy = page.by("tegra_dla_busy_ratio", "source", core=core)
        ratio = next((busy[source] for source in _BUSY_SOURCES if source in busy), None)
        yield Gauge(
            f"DLA{core}",
            powered.get(core) if ratio is None else ratio,
            page.value("tegra_dla_frequency_hertz", core=core),
            is_off=ratio is None and active.get(core) == 0,
            note="powered" if ratio is None and core in powered else "",
        )


def _part(page: Series, name: str) -> tuple[float, float] | None:
    used, total = page.value(f"{name}_used_bytes"), page.value(f"{name}_total_bytes")
    return None if used is None or total is None else (used, total)


def _rows(page: Series, runs: Sequence[Mapping[str, Any]]) -> tuple[WorkloadLine, ...]:
    last = {str(run.get("workload")): run for run in reversed(runs)}
    prefix = "tegra_inference_last_run"
    rows = []
    for labels, active in page.all("tegra_inference_run_active"):
        of = {key: labels.get(key, "") for key in ("workload", "device")}
        run = last.get(of["workload"], {})
        outcome, reason = run.get("outcome"), run.get("reason") or "no reason given"
        outcomes = page.by("tegra_inference_runs_total", "outcome", **of)
        joules = page.by(f"{prefix}_energy_joules_per_inference", "kind", **of)
        latency = page.by(f"{prefix}_latency_seconds", "quantile", **of)
        row = WorkloadLine(
            **of,
            is_active=bool(active),
            ended=clean(f"{outcome}: {reason}") if outcome in _BAD_OUTCOMES else "",
            good=int(outcomes.get("ok", 0)),
            runs=int(sum(outcomes.values())),
            finished_seconds=page.value(f"{prefix}_timestamp_seconds", **of),
            p50_seconds=latency.get("0.5"),
            p99_seconds=latency.get("0.99"),
            inputs_per_second=page.value(f"{prefix}_throughput_per_second", **of),
            gross_joules=joules.get("gross"),
            net_joules=joules.get("net"),
            flags=tuple(page.by("tegra_inference_quality_flag", "flag", **of)),
        )
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: (not row.is_active, -(row.finished_seconds or 0))))


@dataclass(frozen=True)
class ScreenState:
    """The values that the screen shows.

    Attributes:
        watts: Mean power of the module since the sample before.
        history: The same of earlier samples, oldest first.
        now_seconds: Wall time of the daemon.
        problem: Reason for an old answer; empty if it is the latest.
        past: Load of GPU, DLA and EMC and the highest temperature of earlier samples.
    """

    view: View
    url: str
    watts: float | None = None
    history: Sequence[float | None] = ()
    now_seconds: float = 0.0
    problem: str = ""
    past: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


class DaemonClient:
    """Asks one daemon and remembers its earlier answers."""

    def __init__(self, client: ApiClient, interval_seconds: float = 1.0) -> None:
        """Take the time between two requests, which is also one column of the history."""
        self.url = client.url
        self._interval_seconds = interval_seconds
        self._client = client
        self._history: deque[float | None] = deque(maxlen=_HISTORY)
        self._past: dict[str, deque[float | None]] = {}
        self._runs: Sequence[Mapping[str, Any]] = ()
        self._run_count = -1
        self._has_past = False
        self._joules: tuple[float, float] | None = None
        self._watts: float | None = None
        self._sample_seconds: float | None = None

    def ask(self) -> ScreenState:
        """Ask once, also for the runs if one has ended since; raise UserError without a daemon."""
        page = self._client.get("/metrics", lambda body: Series(body.decode()))
        finished = int(sum(value for _, value in page.all("tegra_inference_runs_total")))
        if finished != self._run_count:
            self._runs = self._client.get(f"/api/v1/runs?limit={_RUNS}")["runs"]
            self._run_count = finished
        view = make_view(page, self._runs)
        if not self._has_past and view.sample_seconds is not None:
            self._read_past(view)
        if view.sample_seconds != self._sample_seconds:
            self._update_power(view)
            self._remember(view)
            self._sample_seconds = view.sample_seconds
        # The daemon's time while it has samples: its clock and ours can differ.
        now = view.sample_seconds if any(view.sources.values()) else None
        past = {name: tuple(values) for name, values in self._past.items()}
        return ScreenState(
            view, self.url, self._watts, tuple(self._history), now or time.time(), past=past
        )

    def _remember(self, view: View) -> None:
        """Keep the loads and the highest temperature of the newest sample."""
        loads = {f"{one.name} %": one.ratio for one in view.gauges}
        self._keep({**loads, _HOTTEST: max(view.zones.values(), default=None)})

    def _keep(self, values: Mapping[str, float | None]) -> None:
        for name in {**self._past, **values}:
            self._past.setdefault(name, deque(maxlen=_HISTORY)).append(values.get(name))

    def _update_power(self, view: View) -> None:
        """Calculate the mean power since the sample before from the energy counters."""
        if view.module_joules is None or view.module_seconds is None:
            self._joules = self._watts = None
            return
        seconds, joules = view.module_seconds, view.module_joules
        if self._joules is not None and seconds > self._joules[0] and joules >= self._joules[1]:
            self._watts = (joules - self._joules[1]) / (seconds - self._joules[0])
            self._history.append(self._watts)
        self._joules = seconds, joules

    def _read_past(self, view: View) -> None:
        """Fill the history from the daemon's recent samples."""
        self._has_past = True
        rule = find_rail_rule(view.rails)
        since = (view.sample_seconds or time.time()) - _PAST_SECONDS
        names = () if rule is None else tuple(map(signals.RAIL_POWER.column, rule.total))
        columns: dict[int, list[Mapping[str, float]]] = {}
        for sample in self._client.get(f"/api/v1/samples?since={since:.3f}")["samples"]:
            columns.setdefault(int(sample["time"] // self._interval_seconds), []).append(
                sample["values"]
            )
        for values in columns.values():
            watts = [sum(one[n] for n in names) for one in values if all(n in one for n in names)]
            if names and watts:
                self._watts = sum(watts) / len(watts)
                self._history.append(self._watts)
            self._keep(_loads_of(values[-1]))


def _loads_of(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return the loads and the highest temperature of a sample, named as on the screen."""
    loads = {
        f"DLA{core} %": load
        for signal in (signals.DLA_LOAD, signals.DLA_FIRMWARE_LOAD, signals.DLA_BUSY)
        for core, load in signal.by_label(values).items()
    }
    hottest = max(signals.TEMPERATURE.by_label(values).values(), default=None)
    gpu, emc = (values.get(one.column()) for one in (signals.GPU_LOAD, signals.EMC_LOAD))
    return {"GPU %": gpu, **loads, "EMC %": emc, _HOTTEST: hottest}

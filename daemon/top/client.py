"""The values of one daemon for the screen, from its metric page, its runs and its samples."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...collectors.application.client import ApiClient
from ...collectors.board.boards import find_rail_rule
from ...parsers import signals

Labels = Mapping[str, str]

# Characters of a label that would control a terminal.
_UNPRINTABLE = dict.fromkeys((*range(32), *range(127, 160)), "?")
_BUSY_SOURCES = ("ftrace", "firmware", "tegrastats")
_HISTORY = 240
_PAST_SECONDS = 120.0
_HOTTEST = "hottest °C"


def clean(text: str) -> str:
    r"""Replace control characters.

    >>> clean("a\x1b[2Jb")
    'a?[2Jb'
    """
    return text.translate(_UNPRINTABLE)


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

    @cached_property
    def gauges(self) -> tuple[Gauge, ...]:
        """GPU, each DLA core that has any series, and EMC."""
        gpu_hertz = self.by("tegra_gpu_frequency_hertz", "gpc").values()
        gpu = self.value("tegra_gpu_utilization_ratio")
        emc, emc_hertz = map(
            self.value, ("tegra_emc_utilization_ratio", "tegra_emc_frequency_hertz")
        )
        active = self.by("tegra_dla_active", "core")
        powered = self.by("tegra_dla_powered_ratio", "core")
        dlas = []
        for core in sorted({*active, *powered, *self.by("tegra_dla_busy_ratio", "core")}):
            busy = self.by("tegra_dla_busy_ratio", "source", core=core)
            ratio = next((busy[source] for source in _BUSY_SOURCES if source in busy), None)
            dla = Gauge(
                f"DLA{core}",
                powered.get(core) if ratio is None else ratio,
                self.value("tegra_dla_frequency_hertz", core=core),
                is_off=ratio is None and active.get(core) == 0,
                note="powered" if ratio is None and core in powered else "",
            )
            dlas.append(dla)
        first = Gauge("GPU", gpu, max(gpu_hertz, default=None))
        return (first, *dlas, Gauge("EMC", emc, emc_hertz))

    @property
    def rails(self) -> dict[str, float]:
        """Watts by rail."""
        return self.by("tegra_rail_power_watts", "rail")

    @property
    def zones(self) -> dict[str, float]:
        """Celsius by zone."""
        return self.by("tegra_temperature_celsius", "zone")

    @property
    def sources(self) -> dict[str, bool]:
        """Whether each source works."""
        return {name: up == 1 for name, up in self.by("tegrascope_source_up", "source").items()}

    @property
    def sample_seconds(self) -> float | None:
        """Wall time of the newest sample."""
        times = self.by("tegrascope_sample_timestamp_seconds", "source").values()
        return max(times, default=None)


@dataclass(frozen=True)
class ScreenState:
    """The values that the screen shows.

    Attributes:
        runs: Finished runs, newest first, as in the API.
        watts: Mean power of the module since the sample before.
        history: The same of earlier samples, oldest first.
        now_seconds: Wall time of the daemon.
        problem: Reason for an old answer; empty if it is the latest.
        past: Load of GPU, DLA and EMC and the highest temperature of earlier samples.
        processes: CPU cores in use by the processes of a name, between the daemon's last two looks.
    """

    page: Series
    url: str
    watts: float | None = None
    history: Sequence[float | None] = ()
    now_seconds: float = 0.0
    problem: str = ""
    past: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    processes: Mapping[str, float] = field(default_factory=dict)
    runs: Sequence[Mapping[str, Any]] = ()


class DaemonClient:
    """Asks one daemon and remembers its earlier answers."""

    def __init__(
        self,
        client: ApiClient,
        interval_seconds: float = 1.0,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the time between two requests, which is also one column of the history."""
        self._now_seconds = now_seconds
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
        self._cpu: tuple[float, Mapping[str, float]] = (0.0, {})
        self._processes: Mapping[str, float] = {}

    def ask(self) -> ScreenState:
        """Ask once, also for the runs if one has ended since; raise UserError without a daemon."""
        page = self._client.get("/metrics", lambda body: Series(body.decode()))
        finished = int(sum(value for _, value in page.all("tegra_inference_runs_total")))
        if finished != self._run_count:
            self._runs = self._client.get("/api/v1/runs?limit=50")["runs"]
            self._run_count = finished
        seconds = page.sample_seconds
        if not self._has_past and seconds is not None:
            self._read_past(page, seconds)
        if seconds != self._sample_seconds:
            self._update_power(page)
            loads = {f"{one.name} %": one.ratio for one in page.gauges}
            self._keep({**loads, _HOTTEST: max(page.zones.values(), default=None)})
            self._sample_seconds = seconds
        self._update_processes(page)
        # The daemon's time while it has samples: its clock and ours can differ.
        now = seconds if any(page.sources.values()) else None
        return ScreenState(
            page,
            self.url,
            self._watts,
            tuple(self._history),
            now or time.time(),
            past={name: tuple(values) for name, values in self._past.items()},
            processes=self._processes,
            runs=self._runs,
        )

    def _keep(self, values: Mapping[str, float | None]) -> None:
        for name in {**self._past, **values}:
            self._past.setdefault(name, deque(maxlen=_HISTORY)).append(values.get(name))

    def _update_power(self, page: Series) -> None:
        """Calculate the mean power since the sample before from the energy counters."""
        joules = page.value("tegra_module_energy_joules_total")
        seconds = page.value("tegra_module_energy_observed_seconds_total")
        if joules is None or seconds is None:
            self._joules = self._watts = None
            return
        if self._joules is not None and seconds > self._joules[0] and joules >= self._joules[1]:
            self._watts = (joules - self._joules[1]) / (seconds - self._joules[0])
            self._history.append(self._watts)
        self._joules = seconds, joules

    def _update_processes(self, page: Series) -> None:
        """Calculate the cores in use by process, whenever the daemon has looked again."""
        cpu, now = page.by("tegra_process_cpu_seconds_total", "process"), self._now_seconds()
        since, before = self._cpu
        if cpu != before:
            both = cpu.keys() & before.keys()
            elapsed = max(now - since, 1e-3)
            self._processes = {name: max(0.0, cpu[name] - before[name]) / elapsed for name in both}
            self._cpu = now, cpu

    def _read_past(self, page: Series, newest_seconds: float) -> None:
        """Fill the history from the daemon's recent samples."""
        self._has_past = True
        rule = find_rail_rule(page.rails)
        since = newest_seconds - _PAST_SECONDS
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

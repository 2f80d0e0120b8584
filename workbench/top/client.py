"""The values of one daemon for the screen, from its state, its runs and its samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from ...collectors.application.client import ODD_ANSWER, ApiClient
from ...parsers import signals

# The numbers of a sample, by column.
Values = Mapping[str, float]

# The loads of a DLA core, the most reliable one last.
_DLA_LOADS = (signals.DLA_LOAD, signals.DLA_FIRMWARE_LOAD, signals.DLA_BUSY)
# The first answer has the sample of a source with a long interval too.
_FIRST_SECONDS = 120.0


@dataclass(frozen=True)
class Gauge:
    """One unit of the board: its load (0…1) and its clock.

    Attributes:
        is_off: Whether it has no power, as a core without work.
        note: Meaning of the ratio if it is not a load.
    """

    name: str
    ratio: float | None = None
    hertz: float | None = None
    is_off: bool = False
    note: str = ""


def gauges_of(values: Values) -> tuple[Gauge, ...]:
    """Return GPU, each DLA core that has any value, and EMC."""
    gpu_hertz = max(signals.GPU_FREQUENCY.by_label(values).values(), default=None)
    gpu = Gauge("GPU", values.get(signals.GPU_LOAD.column()), gpu_hertz)
    emc_hertz = values.get(signals.EMC_FREQUENCY.column())
    emc = Gauge("EMC", values.get(signals.EMC_LOAD.column()), emc_hertz)
    return (gpu, *_dla_gauges(values), emc)


def _dla_gauges(values: Values) -> list[Gauge]:
    """Return each DLA core that has any value, in order."""
    gates = signals.DLA_ON.by_label(values)
    powered = signals.DLA_POWERED.by_label(values)
    hertz = signals.DLA_FREQUENCY.by_label(values)
    loads: dict[str, float] = {}
    for signal in _DLA_LOADS:
        loads |= signal.by_label(values)  # the more reliable one replaces the other
    gauges = []
    for core in sorted({*gates, *powered, *loads}):
        gauge = Gauge(f"DLA{core}", loads.get(core), hertz.get(core))
        if core not in loads:
            note = "powered" if core in powered else ""
            is_off = gates.get(core) == 0
            gauge = replace(gauge, ratio=powered.get(core), is_off=is_off, note=note)
        gauges.append(gauge)
    return gauges


@dataclass(frozen=True)
class ScreenState:
    """The values that the screen shows.

    Attributes:
        status: The daemon's state, as in ``/api/v1/status``.
        values: The latest sample; empty without telemetry.
        sample_seconds: Its wall time.
        runs: Finished runs, newest first, as in ``/api/v1/summaries``.
        watts: Mean power of the module between two requests, up to the latest sample.
        now_seconds: Wall time of the daemon.
        problem: Reason for an old answer; empty if it is the latest.
    """

    status: Mapping[str, Any]
    url: str
    values: Values = field(default_factory=dict)
    sample_seconds: float | None = None
    runs: Sequence[Mapping[str, Any]] = ()
    watts: float | None = None
    now_seconds: float = 0.0
    problem: str = ""

    @property
    def rails(self) -> dict[str, float]:
        """Watts by rail."""
        return signals.RAIL_POWER.by_label(self.values)

    @property
    def zones(self) -> dict[str, float]:
        """Celsius by zone."""
        return signals.TEMPERATURE.by_label(self.values)

    @property
    def sources(self) -> dict[str, bool]:
        """Whether each source works."""
        sources = {}
        for source in self.status["sources"]:
            sources[source["name"]] = source["up"]
        for name, is_up in self.status["companions"].items():
            if is_up is not None:
                sources[name] = is_up
        return sources

    @property
    def processes(self) -> dict[str, float]:
        """CPU cores in use, by name of the process."""
        return {each["name"]: each["cores"] for each in self.status["processes"] if "cores" in each}


class DaemonClient:
    """Asks one daemon and remembers its latest answers."""

    def __init__(self, client: ApiClient, interval_seconds: float = 1.0) -> None:
        """Take the time between two requests."""
        self.url = client.url
        self._interval_seconds = interval_seconds
        self._client = client
        self._latest: Mapping[str, Any] = {}
        self._watts: float | None = None
        self._runs: Sequence[Mapping[str, Any]] = ()
        self._run_count = -1

    def ask(self) -> ScreenState:
        """Ask once, also for the runs if one has ended since; raise UserError without a daemon."""
        try:
            status = self._client.get("/api/v1/status")
            self._ask_runs(status)
            self._ask_samples(status)
            return self._state(status)
        except ODD_ANSWER as error:
            raise self._client.odd_answer(error) from None

    def _ask_runs(self, status: Mapping[str, Any]) -> None:
        """Ask for the finished runs if there are others than before."""
        run_count = sum(sum(workload["runs"].values()) for workload in status["workloads"])
        if run_count != self._run_count:
            self._runs = self._client.get("/api/v1/summaries?limit=50")["runs"]
            self._run_count = run_count

    def _ask_samples(self, status: Mapping[str, Any]) -> None:
        """Ask for the samples since the last answer; keep the latest, and the module's power."""
        since = self._latest.get("time", status["time"] - _FIRST_SECONDS)
        if since > status["time"] + self._interval_seconds:  # the daemon's clock was set back
            since = status["time"]
        samples = self._client.get(f"/api/v1/samples?since={since!r}")["samples"]
        if samples:
            self._latest = samples[-1]
            begin = self._latest["time"] - self._interval_seconds
            recent = [sample["values"] for sample in samples if sample["time"] > begin]
            self._watts = _mean_watts(recent, status["total_rails"])

    def _state(self, status: Mapping[str, Any]) -> ScreenState:
        """Return the screen of the answers so far."""
        state = ScreenState(
            status,
            self.url,
            sample_seconds=self._latest.get("time"),
            runs=self._runs,
            now_seconds=status["time"],
        )
        if not any(source["up"] for source in status["sources"]):
            return state  # The latest values are those of a source that works no longer.
        return replace(state, values=self._latest.get("values", {}), watts=self._watts)


def _mean_watts(samples: Sequence[Values], total_rails: Sequence[str]) -> float | None:
    """Return the mean power of the module, or None if no sample has all of its rails."""
    powers = []
    for values in samples:
        rails = signals.RAIL_POWER.by_label(values)
        if total_rails and rails.keys() >= set(total_rails):
            powers.append(sum(rails[name] for name in total_rails))
    return fmean(powers) if powers else None

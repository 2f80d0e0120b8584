"""The values of one daemon for the screen, from its state, its runs and its samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ...collectors.application.client import ODD_ANSWER, ApiClient
from ...parsers import signals

# The numbers of a sample, by column.
Values = Mapping[str, float]

# The loads of a DLA core, the most reliable one last.
_DLA_LOADS = (signals.DLA_LOAD, signals.DLA_FIRMWARE_LOAD, signals.DLA_BUSY)
_HISTORY = 240
_PAST_SECONDS = 120.0


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


def gauges_of(values: Values) -> tuple[Gauge, ...]:
    """Return GPU, each DLA core that has any value, and EMC."""
    active, powered = (one.by_label(values) for one in (signals.DLA_ON, signals.DLA_POWERED))
    hertz = signals.DLA_FREQUENCY.by_label(values)
    busy = {core: load for one in _DLA_LOADS for core, load in one.by_label(values).items()}
    dlas = (
        Gauge(
            f"DLA{core}",
            busy.get(core, powered.get(core)),
            hertz.get(core),
            is_off=core not in busy and active.get(core) == 0,
            note="powered" if core in powered and core not in busy else "",
        )
        for core in sorted({*active, *powered, *busy})
    )
    gpu_hertz = max(signals.GPU_FREQUENCY.by_label(values).values(), default=None)
    gpu, emc, emc_hertz = (
        values.get(one.column())
        for one in (signals.GPU_LOAD, signals.EMC_LOAD, signals.EMC_FREQUENCY)
    )
    return (Gauge("GPU", gpu, gpu_hertz), *dlas, Gauge("EMC", emc, emc_hertz))


@dataclass(frozen=True)
class ScreenState:
    """The values that the screen shows.

    Attributes:
        status: The daemon's state, as in ``/api/v1/status``.
        values: The latest sample; empty without telemetry.
        sample_seconds: Its wall time.
        runs: Finished runs, newest first, as in ``/api/v1/summaries``.
        watts: Mean power of the module over the last samples.
        history: The same of earlier samples, oldest first.
        past: Load of GPU, DLA and EMC and the highest temperature of earlier samples.
        now_seconds: Wall time of the daemon.
        problem: Reason for an old answer; empty if it is the latest.
    """

    status: Mapping[str, Any]
    url: str
    values: Values = field(default_factory=dict)
    sample_seconds: float | None = None
    runs: Sequence[Mapping[str, Any]] = ()
    watts: float | None = None
    history: Sequence[float | None] = ()
    past: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
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
        companions = self.status["companions"].items()
        return {one["name"]: one["up"] for one in self.status["sources"]} | {
            name: up for name, up in companions if up is not None
        }

    @property
    def processes(self) -> dict[str, float]:
        """CPU cores in use, by name of the process."""
        return {one["name"]: one["cores"] for one in self.status["processes"] if "cores" in one}


class DaemonClient:
    """Asks one daemon and remembers its earlier answers."""

    def __init__(self, client: ApiClient, interval_seconds: float = 1.0) -> None:
        """Take the time between two requests, which is also one column of the history."""
        self.url = client.url
        self._interval_seconds = interval_seconds
        self._client = client
        # By number of the interval: the power of the module at each sample, and the last loads.
        self._past: dict[int, tuple[list[float], dict[str, float | None]]] = {}
        self._latest: Mapping[str, Any] = {}
        self._runs: Sequence[Mapping[str, Any]] = ()
        self._run_count = -1

    def ask(self) -> ScreenState:
        """Ask once, also for the runs if one has ended since; raise UserError without a daemon."""
        try:
            return self._ask()
        except ODD_ANSWER as error:
            raise self._client.odd_answer(error) from None

    def _ask(self) -> ScreenState:
        status = self._client.get("/api/v1/status")
        finished = sum(sum(one["runs"].values()) for one in status["workloads"])
        if finished != self._run_count:
            self._runs = self._client.get("/api/v1/summaries?limit=50")["runs"]
            self._run_count = finished
        since = self._latest.get("time", status["time"] - _PAST_SECONDS)
        if since > status["time"] + self._interval_seconds:  # its clock was set back
            since = status["time"]
        for sample in self._client.get(f"/api/v1/samples?since={since!r}")["samples"]:
            self._keep(sample, status["total_rails"])
        watts = [fmean(one) if one else None for one, _ in self._past.values()]
        names = dict.fromkeys(name for _, loads in self._past.values() for name in loads)
        is_up = any(one["up"] for one in status["sources"])
        return ScreenState(
            status,
            self.url,
            self._latest.get("values", {}) if is_up else {},
            self._latest.get("time"),
            self._runs,
            watts[-1] if watts and is_up else None,
            watts,
            {name: [loads.get(name) for _, loads in self._past.values()] for name in names},
            status["time"],
        )

    def _keep(self, sample: Mapping[str, Any], total_rails: Sequence[str]) -> None:
        """Add a sample to the history."""
        self._latest, values = sample, sample["values"]
        number = int(sample["time"] // self._interval_seconds)
        watts, loads = self._past.setdefault(number, ([], {}))
        rails = signals.RAIL_POWER.by_label(values)
        if total_rails and all(name in rails for name in total_rails):
            watts.append(sum(rails[name] for name in total_rails))
        loads.update({f"{one.name} %": one.ratio for one in gauges_of(values)})
        hottest = max(signals.TEMPERATURE.by_label(values).values(), default=None)
        loads["hottest °C"] = hottest
        if len(self._past) > _HISTORY:
            del self._past[next(iter(self._past))]

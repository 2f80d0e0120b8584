"""The kernel of a simulated device: throttling, fan and powered DLA, next to tegrastats."""

from collections.abc import Mapping

from tegrascope.parsers import signals
from tegrascope.parsers.records import Sample

THROTTLE_CELSIUS, CRITICAL_CELSIUS = 99.0, 104.5
_RELEASE_CELSIUS = 97.0
_ZONES = ("cpu", "gpu", "tj")
_ALARMS = ("oc1", "oc2", "oc3")
_COOLERS = (
    "cpufreq-cpu0",
    "cpufreq-cpu4",
    "devfreq-17000000.gpu",
    "cpu-throttle-alert",
    "gpu-throttle-alert",
    "hot-surface-alert",
)
_FAN_CELSIUS = (45.0, 95.0)


def trips() -> dict[tuple[str, str], float]:
    """Return the trip points of a simulated device, by zone and kind."""
    found = {(zone, "passive"): THROTTLE_CELSIUS for zone in _ZONES}
    return found | {(zone, "critical"): CRITICAL_CELSIUS for zone in _ZONES}


class SimulatedKernel:
    """Columns that the files of ``/sys`` give on a board, made from each simulated sample."""

    name = "sysfs"
    problem: str | None = None

    def __init__(self) -> None:
        self._columns: dict[str, float] = {
            signals.THROTTLE_EVENTS.column(kind): 0.0
            for kind in (*_ALARMS, *(f"{zone}_thermal" for zone in _ZONES))
        }
        self._columns.update(
            (signals.THROTTLE_ACTIVE.column(f"{zone}_thermal"), 0.0) for zone in _ZONES
        )
        self._seen_ns: int | None = None

    def see(self, at_ns: int, sample: Sample) -> None:
        """Update the columns from a sample."""
        seconds = 0.0 if self._seen_ns is None else (at_ns - self._seen_ns) / 1e9
        self._seen_ns = at_ns
        columns, celsius = self._columns, sample.temperatures_celsius
        for zone in _ZONES:
            self._throttle(f"{zone}_thermal", celsius.get(zone))
        low, high = _FAN_CELSIUS
        hottest = celsius.get("tj") or low
        columns[signals.FAN_SPEED.column("pwmfan")] = round(
            min(max((hottest - low) / (high - low), 0.0), 1.0), 2
        )
        is_hot = float(any(signals.THROTTLE_ACTIVE.by_label(columns).values()))
        for cooler in _COOLERS:
            columns[signals.COOLING_STATE.column(cooler)] = is_hot
        for dla in sample.dla:
            powered = float(dla.state == "on")
            name = signals.DLA_POWERED_SECONDS.column(dla.core)
            columns[name] = columns.get(name, 0.0) + powered * seconds
            columns[signals.DLA_POWERED.column(dla.core)] = powered
        if sample.ram is not None:
            free = sample.ram.total_bytes - sample.ram.used_bytes
            columns[signals.RAM_AVAILABLE.column()] = float(free)

    def _throttle(self, kind: str, celsius: float | None) -> None:
        if celsius is None:
            return
        active, events = signals.THROTTLE_ACTIVE.column(kind), signals.THROTTLE_EVENTS.column(kind)
        if not self._columns[active] and celsius >= THROTTLE_CELSIUS:
            self._columns[events] += 1
            self._columns[active] = 1.0
        elif self._columns[active] and celsius < _RELEASE_CELSIUS:
            self._columns[active] = 0.0

    def start(self) -> None:
        """Do nothing: there is nothing to open."""

    def stop(self) -> None:
        """Do nothing."""

    def columns(self) -> Mapping[str, float]:
        """Return the columns of the last sample."""
        return self._columns

"""What the kernel of a simulated device tells beside tegrastats: throttling, fan, powered DLA."""

from collections.abc import Mapping

from ...parsers.records import Sample

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
    """Columns as the files of ``/sys`` give them on a board, made of each simulated sample.

    Attributes:
        name: Label value, as of the real one.
        problem: Always ``None``.
    """

    name = "sysfs"
    problem: str | None = None

    def __init__(self) -> None:
        """Begin with counters at zero."""
        self._columns: dict[str, float] = {f"throttle.{alarm}.events": 0.0 for alarm in _ALARMS}
        for zone in _ZONES:
            self._columns[f"throttle.{zone}_thermal.events"] = 0.0
            self._columns[f"throttle.{zone}_thermal.active"] = 0.0
        self._seen_ns: int | None = None

    def see(self, at_ns: int, sample: Sample) -> None:
        """Live up to a sample."""
        seconds = 0.0 if self._seen_ns is None else (at_ns - self._seen_ns) / 1e9
        self._seen_ns = at_ns
        columns, celsius = self._columns, sample.temperatures_celsius
        for zone in _ZONES:
            self._throttle(f"throttle.{zone}_thermal", celsius.get(zone))
        low, high = _FAN_CELSIUS
        hottest = celsius.get("tj") or low
        columns["fans.pwmfan.speed_ratio"] = round(
            min(max((hottest - low) / (high - low), 0.0), 1.0), 2
        )
        is_hot = float(any(columns[f"throttle.{zone}_thermal.active"] for zone in _ZONES))
        for cooler in _COOLERS:
            columns[f"cooling.{cooler}.state_ratio"] = is_hot
        for dla in sample.dla:
            powered = float(dla.state == "on")
            name = f"dla.{dla.core}.powered_seconds"
            columns[name] = columns.get(name, 0.0) + powered * seconds
            columns[f"dla.{dla.core}.powered_ratio"] = powered
        if sample.ram is not None:
            free = sample.ram.total_bytes - sample.ram.used_bytes
            columns["ram.available_bytes"] = float(free)

    def _throttle(self, name: str, celsius: float | None) -> None:
        if celsius is None:
            return
        active = self._columns[f"{name}.active"]
        if not active and celsius >= THROTTLE_CELSIUS:
            self._columns[f"{name}.events"] += 1
            self._columns[f"{name}.active"] = 1.0
        elif active and celsius < _RELEASE_CELSIUS:
            self._columns[f"{name}.active"] = 0.0

    def start(self) -> None:
        """Do nothing: there is nothing to open."""

    def stop(self) -> None:
        """Do nothing."""

    def columns(self) -> Mapping[str, float]:
        """Return what is so now."""
        return self._columns

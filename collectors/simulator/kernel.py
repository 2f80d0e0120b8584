"""What the kernel files of a simulated board show: trips, throttling, cooling, powered DLA."""

from collections.abc import Callable, Mapping

from ...parsers import signals
from ...parsers.records import Sample
from ..board.boards import jetpack_of
from ..lines.collector import About

THROTTLE_CELSIUS, CRITICAL_CELSIUS = 99.0, 104.5
_RELEASE_CELSIUS = 97.0
_ZONES = ("cpu", "gpu", "tj")
_KINDS = (*(f"{zone}_thermal" for zone in _ZONES), "oc1", "oc2", "oc3")
_COOLERS = (
    "cpufreq-cpu0",
    "cpufreq-cpu4",
    "devfreq-17000000.gpu",
    "cpu-throttle-alert",
    "gpu-throttle-alert",
    "hot-surface-alert",
)
_FAN_CELSIUS = (45.0, 95.0)
_L4T = "36.4.3"  # the release whose lines are simulated

ABOUT = About(
    power_mode="MAXN",
    l4t=_L4T,
    jetpack=jetpack_of(_L4T),
    trips_celsius={
        (zone, kind): celsius
        for zone in _ZONES
        for kind, celsius in (("passive", THROTTLE_CELSIUS), ("critical", CRITICAL_CELSIUS))
    },
)
"""The facts of a simulated board."""


class SimulatedKernel:
    """A companion with the columns that the files of ``/sys`` give on a board."""

    name = "sysfs"
    problem: str | None = None

    def __init__(self, read: Callable[[], tuple[int, Sample | None]]) -> None:
        """Prepare; ``read`` returns the time and the record of the last reading of the sensors."""
        self._read = read
        self._columns = {signals.THROTTLE_EVENTS.column(kind): 0.0 for kind in _KINDS}
        self._active = dict.fromkeys(_ZONES, False)
        self._seen_ns: int | None = None

    def columns(self) -> Mapping[str, float]:
        """Return the columns at the last reading of the board's sensors."""
        at_ns, sample = self._read()
        if sample is not None and at_ns != self._seen_ns:
            seconds = 0.0 if self._seen_ns is None else (at_ns - self._seen_ns) / 1e9
            self._seen_ns = at_ns
            self._take(sample, seconds)
        return dict(self._columns)

    def _take(self, sample: Sample, seconds: float) -> None:
        columns, celsius = self._columns, sample.temperatures_celsius
        for zone, was_active in self._active.items():
            kind, at = f"{zone}_thermal", celsius.get(zone) or 0.0
            active = at >= (_RELEASE_CELSIUS if was_active else THROTTLE_CELSIUS)
            columns[signals.THROTTLE_EVENTS.column(kind)] += active and not was_active
            columns[signals.THROTTLE_ACTIVE.column(kind)] = float(active)
            self._active[zone] = active
        low, high = _FAN_CELSIUS
        speed = ((celsius.get("tj") or low) - low) / (high - low)
        columns[signals.FAN_SPEED.column("pwmfan")] = round(min(max(speed, 0.0), 1.0), 2)
        for cooler in _COOLERS:
            columns[signals.COOLING_STATE.column(cooler)] = float(any(self._active.values()))
        for dla in sample.dla:
            powered = float(dla.state == "on")
            name = signals.DLA_POWERED_SECONDS.column(dla.core)
            columns[name] = columns.get(name, 0.0) + powered * seconds
            columns[signals.DLA_POWERED.column(dla.core)] = powered
        if sample.ram is not None:
            free = sample.ram.total_bytes - sample.ram.used_bytes
            columns[signals.RAM_AVAILABLE.column()] = float(free)

    def start(self) -> None:
        """Do nothing: there is nothing to open."""

    def stop(self) -> None:
        """Do nothing."""

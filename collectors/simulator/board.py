"""A board that is not there, as its sensors and kernel files show it."""

import math
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple

from msgspec.structs import replace
from pydantic import Field, NonNegativeInt

from ...parsers import signals
from ...parsers.records import Core, Dla, Emc, Engine, Gpu, Rail, Ram, Sample, Swap
from ...parsers.signals import Column
from ...parsers.tegrastats import render_line
from ..base import SYSTEM_CLOCK, Clock, MachineFacts, Stamped
from ..board.boards import find_rail_rule, jetpack_of
from ..lines.collector import Opening, SourceSettings, TegrastatsCollector
from .physics import (
    THROTTLE_CELSIUS,
    THROTTLING_ZONES,
    BoardModel,
    LoadBoard,
    Physics,
    board_model,
    lane_kind,
)

READ_SECONDS = (0.006, 0.022)
_LATEST_NS = 5_000_000_000
_MEBI, _MEGA = 1024**2, 1_000_000
_BUS_MILLIVOLTS = 8  # step of the INA3221's voltage
_HOST_LOAD = 0.14  # of one core, for each accelerator that works
_LOUDEST_GPU = 0.99  # the highest load in any public log


class TrueEnergy(NamedTuple):
    """The true energy of a stretch of time, which no sensor shows."""

    rail_joules: Mapping[str, float]
    module_joules: float


class SimulatedBoard:
    """One board, whose time advances when it is read; from any thread.

    The power of a rail is its idle power, what each load adds, what a powered DLA core adds,
    leakage that grows with the heat sink's temperature, and noise. Loads count from the
    nanosecond at which they changed. Reading the board does not change it.

    A sensor reading is a sample of that moment: voltage in steps of 8 mV times current in steps
    of the sensor. The integral of the true power is kept too.
    """

    def __init__(
        self,
        model: BoardModel,
        load: LoadBoard,
        *,
        begin_ns: int,
        privileged: bool = True,
        seed: int = 0,
        most_pieces: int = 65_536,
    ) -> None:
        """Switch the board on, idle and as warm as it is when idle.

        ``true_energy`` remembers ``most_pieces`` changes of power, ten per second at least.
        """
        self.model = model
        self.load = load
        load.belong_to(model)
        self.privileged = privileged
        self._lock = threading.RLock()
        self._physics = Physics(
            model, begin_ns, random.Random(f"{model.name} {seed} physics"), most_pieces
        )
        self._chance = random.Random(f"{model.name} {seed} readings")
        # Readings beside the lines draw their noise apart, so that the lines stay the same.
        self._chance_beside = random.Random(f"{model.name} {seed} beside")
        self._read_ns = begin_ns
        self._busy_before = dict(self._physics.busy_ns)
        self._sums = [0] * len(model.rails)
        self._readings = 0
        self.last_reading: tuple[int, Sample | None] = begin_ns, None
        self.throttled = dict(self._physics.throttled)  # by zone, in it
        # Volts and amperes of each rail in it, of which tegrastats prints the product.
        self.supply: dict[str, tuple[float, float]] = {}

    def advance(self, to_ns: int) -> None:
        """Simulate the board up to a time; loads until then are settled."""
        with self._lock:
            speed = self._physics.speed
            for segment in self.load.take(self._physics.now_ns, to_ns):
                self._physics.run(segment)
            if self._physics.speed != speed:
                self.load.throttle(self._physics.speed, self._physics.now_ns)

    def read(self, at_ns: int, wall_ns: int) -> Sample:
        """Read all sensors, as tegrastats does for one line; not before the last reading."""
        with self._lock:
            self.advance(at_ns)
            begin_ns, self._read_ns = self._read_ns, self._physics.now_ns
            self._readings += 1
            sample = self._sample(self._busy_ratios(self._read_ns - begin_ns), wall_ns)
            self.last_reading = self._read_ns, sample
            self.throttled = dict(self._physics.throttled)
            return sample

    def read_power(self, at_ns: int) -> tuple[int, dict[str, float]]:
        """Read the power of each rail beside the lines, in watts.

        The time of the reading is ``at_ns``, or that of the last reading if this is later.
        """
        with self._lock:
            self.advance(at_ns)
            watts: dict[str, float] = {}
            for number, rail in enumerate(self.model.rails):
                millivolts, milliamperes = self._sense(number, self._chance_beside)
                watts[rail.name] = millivolts * milliamperes / 1e6
            return self._physics.now_ns, watts

    def true_energy(self, begin_ns: int, end_ns: int) -> TrueEnergy:
        """Return the exact energy of a past stretch; ``LookupError`` if it is too long ago."""
        self.advance(end_ns)
        with self._lock:
            joules = self._physics.joules(begin_ns, end_ns)
        by_rail: dict[str, float] = {}
        for rail, rail_joules in zip(self.model.rails, joules, strict=True):
            by_rail[rail.name] = rail_joules
        rule = find_rail_rule(by_rail)
        if rule is None:
            return TrueEnergy(by_rail, math.nan)
        return TrueEnergy(by_rail, sum(map(by_rail.__getitem__, rule.total)))

    def _busy_ratios(self, span_ns: int) -> dict[str, float]:
        """Return each lane's mean load since the reading before."""
        before, self._busy_before = self._busy_before, dict(self._physics.busy_ns)
        if span_ns <= 0:
            return dict(self._physics.ratios)
        ratios = {}
        for lane, busy_ns in self._busy_before.items():
            ratios[lane] = (busy_ns - before[lane]) / span_ns
        return ratios

    def _sample(self, busy: Mapping[str, float], wall_ns: int) -> Sample:
        model = self.model
        gpu_load = min(round(busy["gpu"], 2), _LOUDEST_GPU)
        sample = Sample(
            time=datetime.fromtimestamp(wall_ns // 1_000_000_000),
            ram=self._ram(),
            swap=Swap(0, model.ram.swap * _MEBI, cached_bytes=0),
            cpu=self._cores(busy),
            gpu=Gpu(gpu_load),
            temperatures_celsius=self._temperatures(),
            rails={rail.name: self._rail(n) for n, rail in enumerate(model.rails)},
        )
        if not self.privileged:
            return sample
        engines = {name: Engine(state="off") for name in model.engines}
        engines["APE"] = Engine(state="on", frequency_hertz=model.ape_megahertz * _MEGA)
        physics = self._physics
        gpu_hertz = _step_hertz(model.gpu_megahertz, physics.followed["gpu"], physics.speed)
        return replace(
            sample,
            emc=self._emc(busy),
            gpu=Gpu(gpu_load, (gpu_hertz,) * model.gpu_clusters),
            engines=engines,
            dla=tuple(self._dla(core, busy) for core in range(model.dla_cores)),
        )

    def _ram(self) -> Ram:
        ram, added = self.model.ram, 0.0
        for lane, ratio in self._physics.followed.items():
            # A model has all its memory as soon as it runs, however little it works.
            added += ram.load.get(lane_kind(lane), 0) * min(1.0, 4 * ratio)
        used = min(ram.total, ram.used + round(added) + self._chance.randrange(-3, 4))
        return Ram(
            used_bytes=used * _MEBI,
            total_bytes=ram.total * _MEBI,
            largest_free_block_bytes=4 * _MEBI,
            largest_free_block_count=max(1, ram.free_blocks - round(added / 8)),
        )

    def _cores(self, busy: Mapping[str, float]) -> tuple[Core, ...]:
        # Each accelerator that works keeps a part of one core busy: that of the first core for the
        # first accelerator, and so on.
        host_loads = []
        for lane, ratio in busy.items():
            if lane_kind(lane) in ("gpu", "dla"):
                host_loads.append(_HOST_LOAD * ratio)
        host_loads += [0.0] * (sum(self.model.cores) - len(host_loads))
        cores: list[Core] = []
        follow = self._physics.followed
        for size in self.model.cores:
            demand = max(follow["cpu"], 0.4 * max(follow.values()))
            clock = _step_hertz(self.model.cpu_megahertz, demand, self._physics.speed)
            for _ in range(size):
                load = busy["cpu"] * self._chance.uniform(0.97, 1.0) + host_loads[len(cores)]
                load = round(min(load + self._chance.uniform(0, 0.06), 1.0), 2)
                cores.append(Core(len(cores), True, utilization_ratio=load, frequency_hertz=clock))
        return tuple(cores)

    def _emc(self, busy: Mapping[str, float]) -> Emc:
        emc = self.model.emc
        load = 0.0
        for lane, ratio in busy.items():
            load += emc.load.get(lane_kind(lane), 0.0) * ratio
        loud = max(self._physics.followed.values()) > 0.05
        return Emc(
            utilization_ratio=round(min(load, 0.83), 2),
            frequency_hertz=emc.megahertz[loud] * _MEGA,
        )

    def _dla(self, core: int, busy: Mapping[str, float]) -> Dla:
        if not self._physics.dla_powered(core):
            return Dla(core=core, state="off")
        load = round(min(busy[f"dla{core}"], 1.0), 2)
        hertz = round(self.model.dla_megahertz * self._physics.speed) * _MEGA
        return Dla(core=core, state="on", utilization_ratio=load, frequency_hertz=hertz)

    def _temperatures(self) -> dict[str, float | None]:
        dla_powered = any(map(self._physics.dla_powered, range(self.model.dla_cores)))
        readings: dict[str, float | None] = {}
        highest = -math.inf
        for name, zone in self.model.zones.items():
            if zone.hottest:
                readings[name] = None  # keeps its place; its value is known at the end
            elif dla_powered or not zone.gated:
                celsius = self._physics.celsius(name) + self._chance.gauss(0, zone.step)
                celsius = math.floor(celsius / zone.step) * zone.step
                celsius = math.floor(celsius * 1000) / 1000
                highest = max(highest, celsius)
                readings[name] = celsius
        for name, zone in self.model.zones.items():
            if zone.hottest:
                readings[name] = highest
        return readings

    def _sense(self, number: int, chance: random.Random) -> tuple[int, int]:
        """Return millivolts and milliamperes of a rail, each in the steps of its sensor."""
        rail = self.model.rails[number]
        volts = chance.gauss(rail.volts, 0.008)
        millivolts = _BUS_MILLIVOLTS * round(volts * 1000 / _BUS_MILLIVOLTS)
        amperes = self._physics.watts[number] / volts
        milliamperes = rail.step_milliamperes * round(amperes * 1000 / rail.step_milliamperes)
        return millivolts, milliamperes

    def _rail(self, number: int) -> Rail:
        rail = self.model.rails[number]
        millivolts, milliamperes = self._sense(number, self._chance)
        self.supply[rail.name] = millivolts / 1000, milliamperes / 1000
        milliwatts = millivolts * milliamperes // 1000
        self._sums[number] += milliwatts
        mean, rest = divmod(self._sums[number], self._readings)
        if self.model.average == "rounded" and 2 * rest >= self._readings:
            mean += 1
        return Rail(instant_watts=milliwatts / 1000, average_watts=mean / 1000)


def _step_hertz(steps: tuple[int, ...], demand: float, speed: float) -> int:
    """Return the lowest clock that is enough for a demand of 0…1 of the highest.

    ``speed`` is the share of the highest that is allowed at present.
    """
    enough = steps[0] + (demand - 0.02) * 1.1 * (steps[-1] - steps[0])
    allowed = [step for step in steps if step <= speed * steps[-1]]
    for step in allowed:
        if step >= enough:
            return step * _MEGA
    return allowed[-1] * _MEGA


class SimulatorSource:
    """Lines of a simulated board, at the times at which tegrastats would print them.

    As tegrastats does, it sleeps for an interval, reads the sensors and prints; so a line comes a
    reading's 6 to 22 ms after the interval, and describes the moment before the reading. A line has
    its planned time, however late a busy machine is with it.
    """

    name = "simulator"
    is_live = False
    restarts = 0
    problem: str | None = None

    def __init__(
        self,
        board: str = "agx-orin-64gb",
        *,
        load: LoadBoard | None = None,
        interval_seconds: float = 1.009,
        privileged: bool = True,
        seed: int = 0,
        ambient_celsius: float | None = None,
        read_seconds: tuple[float, float] = READ_SECONDS,
        most_pieces: int = 65_536,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Switch the board on, or raise ``UserError`` if it is unknown.

        The same seed, loads and clock give the same bytes; ``JumpClock`` gives lines without
        waiting.
        """
        model = board_model(board)
        if ambient_celsius is not None:
            model = replace(model, ambient_celsius=ambient_celsius)
        self.interval_seconds: float | None = interval_seconds
        self._interval_ns = round(interval_seconds * 1e9)
        self._read_seconds = read_seconds
        self._clock = clock
        self._chance = random.Random(f"{board} {seed} pace")
        self._stopping = threading.Event()
        self.board = SimulatedBoard(
            model,
            LoadBoard() if load is None else load,
            begin_ns=clock.monotonic_ns(),
            privileged=privileged,
            seed=seed,
            most_pieces=most_pieces,
        )

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield a line per interval until ``stop``."""
        printed_ns = self._clock.monotonic_ns()
        while True:
            reading_ns = round(self._chance.uniform(*self._read_seconds) * 1e9)
            printed_ns += self._interval_ns + reading_ns
            self._clock.wait(self._stopping, printed_ns)
            if self._stopping.is_set():
                return
            late_ns = self._clock.monotonic_ns() - printed_ns
            if late_ns > _LATEST_NS:  # the machine slept, or this process was stopped
                printed_ns, late_ns = printed_ns + late_ns, 0
            wall_ns = self._clock.wall_ns() - late_ns
            sample = self.board.read(printed_ns - reading_ns, wall_ns - reading_ns)
            yield Stamped(printed_ns, wall_ns, render_line(sample))

    def stop(self) -> None:
        """End ``lines``; from another thread, and more than once."""
        self._stopping.set()


class JumpClock:
    """A clock that never waits: waiting until a time makes it that time.

    >>> source = SimulatorSource(clock=JumpClock(), interval_seconds=1.0)
    >>> lines = source.lines()
    >>> round((-next(lines).monotonic_ns + next(lines).monotonic_ns) / 1e9, 1)
    1.0
    """

    def __init__(self, monotonic_ns: int = 0, wall_ns: int = 1_767_225_600_000_000_000) -> None:
        self._now_ns = monotonic_ns
        self._wall_offset_ns = wall_ns - monotonic_ns

    def monotonic_ns(self) -> int:
        """Return the time of the last jump."""
        return self._now_ns

    boottime_ns = monotonic_ns  # there is no suspend

    def wall_ns(self) -> int:
        """Return the wall time of the last jump."""
        return self._now_ns + self._wall_offset_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Jump to that time."""
        self._now_ns = max(self._now_ns, until_ns)
        return event.is_set()


CRITICAL_CELSIUS = 104.5
_OVER_CURRENT = ("oc1", "oc2", "oc3")
_COOLERS = (
    "cpufreq-cpu0",
    "cpufreq-cpu4",
    "devfreq-17000000.gpu",
    "cpu-throttle-alert",
    "gpu-throttle-alert",
    "hot-surface-alert",
)
_FAN_CELSIUS = (45.0, 95.0)
_RAILS_NS = 10_000_000_000
# Of the memory that an idle board uses, and of the memory that it does not use.
_OWNED_IDLE = {"processes": 0.66, "kernel": 0.2}
_GPU_IDLE = 0.12
_OWNED_UNUSED = {"cache": 0.7, "free": 0.3}
_L4T = "36.4.3"  # the release whose lines are simulated
_TRIPS_CELSIUS = {}
for _zone in THROTTLING_ZONES:
    _TRIPS_CELSIUS[_zone, "passive"] = THROTTLE_CELSIUS
    _TRIPS_CELSIUS[_zone, "critical"] = CRITICAL_CELSIUS

ABOUT = MachineFacts(
    power_mode="MAXN",
    l4t=_L4T,
    jetpack=jetpack_of(_L4T),
    trips_celsius=_TRIPS_CELSIUS,
    # A driver's default: one sample of each of three channels.
    rail_sensors={"simulated.samples": 1, "simulated.update_interval": 6.6},
)
"""The facts of a simulated board."""


class SimulatedKernel:
    """A companion with the columns that the files of ``/sys`` give on a board."""

    name = "sysfs"
    source = None
    problem: str | None = None

    def __init__(self, board: SimulatedBoard) -> None:
        self._board = board
        self._columns: dict[Column, float] = {}
        for zone in THROTTLING_ZONES:
            self._columns[signals.THROTTLE_EVENTS, f"{zone}_thermal"] = 0.0
        for kind in _OVER_CURRENT:
            self._columns[signals.THROTTLE_EVENTS, kind] = 0.0
            is_under_voltage = kind == "oc1"  # as on every Orin
            self._columns[signals.THROTTLE_UNDER_VOLTAGE, kind] = float(is_under_voltage)
        for rail in board.model.rails:
            if rail.limit_amperes is not None:
                for limit in (signals.RAIL_LIMIT_WARNING, signals.RAIL_LIMIT_CRITICAL):
                    self._columns[limit, rail.name] = rail.limit_amperes
        self._rails_ns: int | None = None
        self._active = dict.fromkeys(THROTTLING_ZONES, False)
        self._seen_ns: int | None = None

    def columns(self) -> Mapping[Column, float]:
        """Return the columns at the last reading of the board's sensors."""
        at_ns, sample = self._board.last_reading
        if sample is not None and at_ns != self._seen_ns:
            seconds = 0.0 if self._seen_ns is None else (at_ns - self._seen_ns) / 1e9
            self._seen_ns = at_ns
            self._take(sample, seconds)
            if self._rails_ns is None or at_ns - self._rails_ns >= _RAILS_NS:
                self._rails_ns = at_ns
                self._take_rails()
        return dict(self._columns)

    def _take_rails(self) -> None:
        for rail, (volts, amperes) in self._board.supply.items():
            lowest_volts = self._columns.get((signals.RAIL_LOWEST_VOLTS, rail), volts)
            self._columns[signals.RAIL_VOLTS, rail] = volts
            self._columns[signals.RAIL_AMPERES, rail] = amperes
            self._columns[signals.RAIL_LOWEST_VOLTS, rail] = min(volts, lowest_volts)

    def _take(self, sample: Sample, seconds: float) -> None:
        columns, celsius = self._columns, sample.temperatures_celsius
        for zone, is_active in self._board.throttled.items():
            kind = f"{zone}_thermal"
            columns[signals.THROTTLE_EVENTS, kind] += is_active and not self._active[zone]
            columns[signals.THROTTLE_ACTIVE, kind] = float(is_active)
            self._active[zone] = is_active
        low, high = _FAN_CELSIUS
        speed = ((celsius.get("tj") or low) - low) / (high - low)
        columns[signals.FAN_SPEED, "pwmfan"] = round(min(max(speed, 0.0), 1.0), 2)
        for cooler in _COOLERS:
            columns[signals.COOLING_STATE, cooler] = float(any(self._active.values()))
        for dla in sample.dla:
            powered = float(dla.state == "on")
            core = str(dla.core)
            before = columns.get((signals.DLA_POWERED_SECONDS, core), 0.0)
            columns[signals.DLA_POWERED_SECONDS, core] = before + powered * seconds
            columns[signals.DLA_POWERED, core] = powered
        if sample.ram is not None:
            self._take_memory(sample.ram)

    def _take_memory(self, ram: Ram) -> None:
        """Attribute the memory of a line; what work adds is taken to be the GPU's."""
        columns = self._columns
        unused = ram.total_bytes - ram.used_bytes
        idle = min(self._board.model.ram.used * _MEBI, ram.used_bytes)
        columns[signals.RAM_AVAILABLE, ""] = float(unused)
        columns[signals.GPU_MEMORY_USED, ""] = round(ram.used_bytes - idle + _GPU_IDLE * idle)
        rest = ram.total_bytes
        for shares, whole in ((_OWNED_IDLE, idle), (_OWNED_UNUSED, unused)):
            for owner, share in shares.items():
                owned = round(share * whole)
                columns[signals.MEMORY, owner] = owned
                rest -= owned
        # As the kernel's own files have it, which know no GPU.
        columns[signals.MEMORY, signals.NOT_ATTRIBUTED] = rest

    def start(self) -> None:
        """Do nothing: there is nothing to open."""

    def stop(self) -> None:
        """Do nothing."""


class SimulatedPower:
    """The power of some rails of a simulated board, beside its lines.

    A reading describes a moment before its planned time, as a line does: the loads of our own runs
    are known until then, however late a busy machine is with it.
    """

    problem: str | None = None

    def __init__(self, board: SimulatedBoard, rails: Sequence[str]) -> None:
        self._board = board
        self._rails = rails

    def read(self, planned_ns: int) -> tuple[int, Mapping[Column, float]] | None:
        """Read the rails of the board."""
        at_ns, watts = self._board.read_power(planned_ns - round(READ_SECONDS[1] * 1e9))
        return at_ns, {(signals.RAIL_POWER, rail): watts[rail] for rail in self._rails}

    def close(self) -> None:
        """Do nothing."""


class SimulatorSettings(SourceSettings):
    """The simulated board."""

    is_simulated = True

    board: Literal["agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"] = "agx-orin-64gb"
    privileged: bool = True  # prints what tegrastats prints as root
    seed: NonNegativeInt = 0
    ambient_celsius: float | None = Field(None, ge=-40, le=120)  # default: that of the board's log

    @property
    def board_name(self) -> str:  # noqa: D102
        return self.board

    def summary(self) -> str:  # noqa: D102
        return f"simulated {self.board}"

    def open(self, opening: Opening) -> TegrastatsCollector:  # noqa: D102
        source = SimulatorSource(
            self.board,
            load=opening.load if isinstance(opening.load, LoadBoard) else None,
            interval_seconds=opening.interval_seconds,
            privileged=self.privileged,
            seed=self.seed,
            ambient_celsius=self.ambient_celsius,
            most_pieces=2,  # the daemon never reads the truth of the board
            clock=opening.clock,
        )
        return simulated_collector(source)


def simulated_collector(source: SimulatorSource) -> TegrastatsCollector:
    """Return the samples of a simulated board, with its facts and its kernel files."""
    collector = TegrastatsCollector(source, shows_root_more=True)
    collector.about = ABOUT
    collector.companions = (SimulatedKernel(source.board),)
    collector.open_power = partial(SimulatedPower, source.board)
    return collector

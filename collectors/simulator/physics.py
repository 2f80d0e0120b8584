"""The data of the simulated boards, the loads on them, and their physics: power and temperature."""

import math
import random
import threading
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from itertools import compress, pairwise
from operator import itemgetter, sub
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ...parsers.errors import UserError
from ..board.boards import find_rail_rule

LANES = ("gpu", "dla0", "dla1", "cpu", "emc")
MOST_CHANGES = 8192
FAR_OFF_NS = 1 << 62


class SimulatedRail(msgspec.Struct, frozen=True):
    """One rail; see ``simulated.toml``, also for the classes below."""

    name: str
    volts: float
    step_milliamperes: int
    idle_watts: float
    noise_watts: float
    load: dict[str, float]
    leak_watts_per_celsius: float = 0.0
    dla_powered_watts: float = 0.0
    limit_amperes: float | None = None


class SimulatedZone(msgspec.Struct, frozen=True):
    """One thermal zone."""

    above: float = 0.0
    watts: dict[str, float] = {}
    step: float = 0.03125
    hottest: bool = False
    gated: bool = False


class SimulatedEmc(msgspec.Struct, frozen=True):
    """The memory controller."""

    megahertz: tuple[int, int]
    load: dict[str, float]


class SimulatedRam(msgspec.Struct, frozen=True):
    """Memory."""

    total: int
    used: int
    free_blocks: int
    swap: int
    load: dict[str, float]


class BoardModel(msgspec.Struct, frozen=True):
    """All data of one simulated board."""

    name: str
    average: Literal["truncated", "rounded"]
    ambient_celsius: float
    celsius_per_watt: float
    heat_seconds: float
    cores: tuple[int, ...]
    cpu_megahertz: tuple[int, ...]
    gpu_megahertz: tuple[int, ...]
    gpu_clusters: int
    dla_cores: int
    ape_megahertz: int
    engines: tuple[str, ...]
    emc: SimulatedEmc
    ram: SimulatedRam
    rails: tuple[SimulatedRail, ...]
    zones: dict[str, SimulatedZone]
    dla_megahertz: int = 0

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that this board has."""
        return ("gpu", *(f"dla{core}" for core in range(self.dla_cores)), "cpu", "emc")


@cache
def board_models() -> dict[str, BoardModel]:
    """Return all simulated boards by name."""
    data = msgspec.toml.decode(Path(__file__).with_name("simulated.toml").read_bytes())
    return {model.name: model for model in msgspec.convert(data["simulated"], list[BoardModel])}


def board_model(name: str) -> BoardModel:
    """Return one simulated board, or raise ``UserError`` if the name is unknown."""
    try:
        return board_models()[name]
    except KeyError:
        known = ", ".join(board_models())
        raise UserError(f"no simulated board is called {name!r}", f"use one of {known}") from None


class Segment(NamedTuple):
    """A stretch of time in which no load (0…1 by lane, default 0) changed."""

    begin_ns: int
    end_ns: int
    ratios: dict[str, float]


# Of the time of an inference alone, so much is a wait for memory; assumed.
_MEMORY_SHARE = 0.3
_MOST_TRAFFIC = 0.9


class _Follower(NamedTuple):
    """Who works on a lane and wants to know how the others slow it."""

    lane: str
    hear: Callable[[int, float], object]


class LoadBoard:
    """The loads of all lanes over the last while, and how they slow each other; from any thread.

    A change has its own time, so it may be set a little late or ahead. Time that has been read is
    settled: a change from before counts from there on. Some thousand changes per lane are
    remembered; before them a lane has the load that it had then.

    >>> board = LoadBoard()
    >>> board.set("gpu", 1.0, at_ns=100)
    >>> board.set("gpu", 0.0, at_ns=150)
    >>> [(one.begin_ns, one.end_ns, one.ratios["gpu"]) for one in board.between(90, 200)]
    [(90, 100, 0.0), (100, 150, 1.0), (150, 200, 0.0)]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histories: dict[tuple[str, str], _History] = {}
        self._settled_ns = 0
        self._traffic: Mapping[str, float] = {}
        self._speed = 1.0
        self._followers: dict[str, _Follower] = {}

    def set(self, lane: str, ratio: float, at_ns: int | None = None, holder: str = "") -> None:
        """Set a lane's load from 0 (idle) to 1 (it computes without a pause), default from now on.

        ``holder`` names the load; several on one lane add up, to 1 at most.
        """
        if not 0 <= ratio <= 1:
            raise ValueError(f"{lane}: a load of {ratio} is not within 0 and 1")
        if at_ns is None:
            at_ns = time.monotonic_ns()
        with self._lock:
            history = self._histories.setdefault((lane, holder), _History())
            history.add(max(at_ns, self._settled_ns), ratio)
        self._tell_followers(at_ns)

    def end(self, holder: str, at_ns: int) -> None:
        """End all loads of a holder, also those that it announced for later."""
        with self._lock:
            for (_, name), history in self._histories.items():
                if name == holder:
                    history.end(max(at_ns, self._settled_ns))
            self._followers.pop(holder, None)
        self._tell_followers(at_ns)

    def belong_to(self, model: BoardModel) -> None:
        """Let the lanes share the memory of a board."""
        self._traffic = model.emc.load

    def throttle(self, speed: float, at_ns: int) -> None:
        """Set the clocks, as a share of their usual value."""
        self._speed = speed
        self._tell_followers(at_ns)

    def follow(self, lane: str, holder: str, hear: Callable[[int, float], object]) -> None:
        """Tell a holder, now and at each change, from when on which slowdown of its lane holds.

        What is told for a time takes the place of what was told for it before.
        """
        with self._lock:
            self._followers[holder] = _Follower(lane, hear)
        self._tell_followers(time.monotonic_ns())

    def slowdown(self, lane: str, holder: str, at_ns: int) -> float:
        """Return how many times longer than alone an inference takes on a lane.

        Others on the lane take equal turns with it. Others on the board are in the way where it
        waits for memory. Clocks that heat holds low slow everything.
        """
        turns, traffic = 1.0, 0.0
        for (other_lane, other), history in self._histories.items():
            if other == holder:
                continue
            ratio = history.at(at_ns)
            if other_lane == lane:
                turns += ratio
            else:
                traffic += self._traffic.get(lane_kind(other_lane), 0.0) * ratio
        traffic = min(traffic, _MOST_TRAFFIC)
        return turns * (1 + _MEMORY_SHARE * traffic / (1 - traffic)) / self._speed

    def _tell_followers(self, at_ns: int) -> None:
        """Tell each how it is slowed from a time on, also at the changes announced for later."""
        told = []
        with self._lock:
            times_ns = {at_ns}
            for history in self._histories.values():
                times_ns.update(history.cuts(at_ns, FAR_OFF_NS))
            for holder, (lane, hear) in self._followers.items():
                for time_ns in sorted(times_ns):
                    told.append((hear, time_ns, self.slowdown(lane, holder, time_ns)))
        for hear, time_ns, slowdown in told:  # without the lock: it may write to a worker
            hear(time_ns, slowdown)

    def between(self, begin_ns: int, end_ns: int) -> list[Segment]:
        """Return the loads of a stretch of time, cut where any of them changes."""
        with self._lock:
            if end_ns <= begin_ns:
                return []
            cuts = {begin_ns, end_ns}
            for history in self._histories.values():
                cuts.update(history.cuts(begin_ns, end_ns))
            return [Segment(begin, end, self._at(begin)) for begin, end in pairwise(sorted(cuts))]

    def take(self, begin_ns: int, end_ns: int) -> list[Segment]:
        """Return the loads as ``between`` does, and settle them up to the end."""
        with self._lock:
            self._settled_ns = max(self._settled_ns, end_ns)
        return self.between(begin_ns, end_ns)

    def busy_ratio(self, lane: str, begin_ns: int, end_ns: int) -> float:
        """Return the mean load of a lane over a stretch of time."""
        if end_ns <= begin_ns:
            return 0.0
        busy_ns = 0.0
        for segment in self.between(begin_ns, end_ns):
            busy_ns += (segment.end_ns - segment.begin_ns) * segment.ratios.get(lane, 0.0)
        return busy_ns / (end_ns - begin_ns)

    def _at(self, at_ns: int) -> dict[str, float]:
        ratios: dict[str, float] = {}
        for (lane, _), history in self._histories.items():
            ratios[lane] = min(1.0, ratios.get(lane, 0.0) + history.at(at_ns))
        return ratios


class _History:
    """The loads of one lane, each with the time at which it began."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, float]] = []
        self._before = 0.0

    def add(self, at_ns: int, ratio: float) -> None:
        insort(self._changes, (at_ns, ratio), key=itemgetter(0))
        if len(self._changes) > MOST_CHANGES:
            half = MOST_CHANGES // 2
            self._before = self._changes[half - 1][1]
            del self._changes[:half]

    def end(self, at_ns: int) -> None:
        del self._changes[self._place(at_ns) :]
        self.add(at_ns, 0.0)

    def at(self, at_ns: int) -> float:
        place = self._place(at_ns)
        if place == 0:
            return self._before
        return self._changes[place - 1][1]

    def cuts(self, begin_ns: int, end_ns: int) -> list[int]:
        changes = self._changes[self._place(begin_ns) : self._place(end_ns)]
        return [at_ns for at_ns, _ in changes]

    def _place(self, at_ns: int) -> int:
        return bisect_right(self._changes, at_ns, key=itemgetter(0))


def lane_kind(lane: str) -> str:
    """Return the lane's name in ``simulated.toml``: both DLA cores are alike."""
    return lane.rstrip("01")


SLOT_NS = 100_000_000  # noise, leakage and clocks held by heat are constant for so long
THROTTLING_ZONES = ("cpu", "gpu", "tj")
THROTTLE_CELSIUS, RELEASE_CELSIUS = 99.0, 97.0
_HELD_SPEED = 0.7  # of the usual clocks while heat holds them; assumed
DLA_AUTOSUSPEND_NS = 500_000_000
_CLOCK_SECONDS = 0.2  # a governor follows its load so fast
# Heat at the spot follows its power so fast. In a public log of an Orin Nano, with a line each
# 0.11 s, half of the heat above its surroundings is gone after one line, the rest over seconds.
_SPOT_SECONDS = 0.5
_NOISE_SECONDS = 0.8  # how long the noise of a rail remembers


class Physics:
    """Power, heat and clocks of the board between two readings.

    Everything is constant for one piece of time: a piece ends where a load changes, where a DLA
    core is suspended, and with each slot of 100 ms, so the integrals are exact.
    """

    def __init__(
        self, model: BoardModel, begin_ns: int, chance: random.Random, most_pieces: int
    ) -> None:
        self.now_ns = begin_ns
        self.ratios = dict.fromkeys(model.lanes, 0.0)
        self.busy_ns = dict.fromkeys(model.lanes, 0.0)
        # Whether heat of a zone holds the clocks; and these, as a share of their usual value.
        self.throttled = dict.fromkeys(THROTTLING_ZONES, False)
        self.speed = 1.0
        # The ratios as the clocks' governors see them, which lag behind.
        self.followed = dict.fromkeys(model.lanes, 0.0)
        self.watts = [rail.idle_watts for rail in model.rails]
        self._model = model
        self._chance = chance
        self._slot_ns = begin_ns
        self._noise = [chance.gauss(0, rail.noise_watts) for rail in model.rails]
        self._suspend_ns = [begin_ns] * model.dla_cores
        self._place = {rail.name: number for number, rail in enumerate(model.rails)}
        rule = find_rail_rule(list(self._place))
        total = () if rule is None else rule.total
        self._in_total = [name in total for name in self._place]
        self._idle_sink = model.ambient_celsius + model.celsius_per_watt * self._module_watts()
        self._sink = self._leak_celsius = self._idle_sink
        self._spots: dict[str, float] = {}
        for name, zone in model.zones.items():
            if not zone.hottest:
                self._spots[name] = 0.0
        # The end of each piece, and the joules of each rail until then.
        self._pieces = deque([(begin_ns, [0.0] * len(model.rails))], maxlen=most_pieces)
        self._set_watts()

    def run(self, segment: Segment) -> None:
        """Simulate a stretch of constant load."""
        for lane in self.ratios:
            self.ratios[lane] = segment.ratios.get(lane, 0.0)
        while self.now_ns < segment.end_ns:
            if self.now_ns >= self._slot_ns + SLOT_NS:
                self._begin_slot()
            end_ns = min(segment.end_ns, self._slot_ns + SLOT_NS)
            for core, suspend_ns in enumerate(self._suspend_ns):
                if not self.ratios[f"dla{core}"] and self.now_ns < suspend_ns:
                    end_ns = min(end_ns, suspend_ns)
            self._set_watts()
            self._run_piece(end_ns)
        # For the sensors from here on: a core may just have been suspended.
        self._set_watts()

    def dla_powered(self, core: int) -> bool:
        """Return whether a DLA core has power: it works, or did in the last 500 ms."""
        return self.ratios[f"dla{core}"] > 0 or self.now_ns < self._suspend_ns[core]

    def celsius(self, zone_name: str) -> float:
        """Return the true temperature of a zone."""
        return self._sink + self._model.zones[zone_name].above + self._spots[zone_name]

    def joules(self, begin_ns: int, end_ns: int) -> list[float]:
        """Return the energy of each rail between two times."""
        oldest_ns, newest_ns = self._pieces[0][0], self._pieces[-1][0]
        if begin_ns < oldest_ns or end_ns > newest_ns:
            raise LookupError(f"the board remembers {oldest_ns} to {newest_ns} ns")
        return list(map(sub, self._joules_until(end_ns), self._joules_until(begin_ns)))

    def _joules_until(self, at_ns: int) -> list[float]:
        place = bisect_right(self._pieces, at_ns, key=itemgetter(0))
        before_ns, before = self._pieces[place - 1]
        if place == len(self._pieces):
            return before
        after_ns, after = self._pieces[place]
        share = (at_ns - before_ns) / (after_ns - before_ns)
        return [low + share * (high - low) for low, high in zip(before, after, strict=True)]

    def _begin_slot(self) -> None:
        """Draw the noise of the next 100 ms; leakage follows the heat as it is now."""
        self._slot_ns += SLOT_NS
        self._leak_celsius = self._sink
        self._hold_or_release()
        keep = math.exp(-SLOT_NS / 1e9 / _NOISE_SECONDS)
        fresh = math.sqrt(1 - keep * keep)
        for number, rail in enumerate(self._model.rails):
            drawn = self._chance.gauss(0, rail.noise_watts)
            self._noise[number] = keep * self._noise[number] + fresh * drawn

    def _hold_or_release(self) -> None:
        """Hold the clocks low while a zone that throttles is hot."""
        has_dla = any(map(self.dla_powered, range(self._model.dla_cores)))
        seen: dict[str, float] = {}
        for name in self._spots:
            if has_dla or not self._model.zones[name].gated:
                seen[name] = self.celsius(name)
        seen["tj"] = max(seen.values())
        for name, was_throttled in self.throttled.items():
            limit = RELEASE_CELSIUS if was_throttled else THROTTLE_CELSIUS
            self.throttled[name] = seen[name] >= limit
        self.speed = _HELD_SPEED if any(self.throttled.values()) else 1.0

    def _set_watts(self) -> None:
        powered = sum(map(self.dla_powered, range(self._model.dla_cores)))
        warmer = self._leak_celsius - self._idle_sink
        loads = [(lane_kind(lane), ratio) for lane, ratio in self.ratios.items() if ratio]
        for number, rail in enumerate(self._model.rails):
            watts = rail.idle_watts + self._noise[number]
            watts += rail.leak_watts_per_celsius * warmer + rail.dla_powered_watts * powered
            for kind, ratio in loads:
                # Power goes with the clock and the square of the voltage, which follows it in part.
                watts += rail.load.get(kind, 0.0) * ratio * self.speed**2
            self.watts[number] = max(0.0, watts)

    def _run_piece(self, end_ns: int) -> None:
        """Add up a piece of constant power; clocks and heat follow it."""
        span_ns = end_ns - self.now_ns
        seconds = span_ns / 1e9
        clock = -math.expm1(-seconds / _CLOCK_SECONDS)
        for lane, ratio in self.ratios.items():
            self.busy_ns[lane] += ratio * span_ns
            self.followed[lane] += clock * (ratio - self.followed[lane])
        for core in range(self._model.dla_cores):
            if self.ratios[f"dla{core}"]:
                self._suspend_ns[core] = end_ns + DLA_AUTOSUSPEND_NS
        target = self._model.ambient_celsius + self._model.celsius_per_watt * self._module_watts()
        sink = -math.expm1(-seconds / self._model.heat_seconds)
        self._sink += sink * (target - self._sink)
        spot = -math.expm1(-seconds / _SPOT_SECONDS)
        for name, warmth in self._spots.items():
            above = 0.0
            for rail, celsius_per_watt in self._model.zones[name].watts.items():
                number = self._place[rail]
                idle = self._model.rails[number].idle_watts
                above += celsius_per_watt * (self.watts[number] - idle)
            self._spots[name] = warmth + spot * (above - warmth)
        self.now_ns = end_ns
        joules = list(self._pieces[-1][1])
        for number, watts in enumerate(self.watts):
            joules[number] += watts * seconds
        self._pieces.append((end_ns, joules))

    def _module_watts(self) -> float:
        return sum(compress(self.watts, self._in_total))

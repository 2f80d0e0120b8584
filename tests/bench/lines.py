"""Made-up lines of Orin boards, each with every number that it says.

Nothing here reads a line, and nothing of the package is used: a board walks through loads, clocks,
temperatures and powers, prints them with its own format strings, and notes what it printed under
the names that ``flatten`` gives. Steps are those of real sensors: temperatures move by 1/32 °C,
rails by one step of their current monitor times the volts, so that tokens repeat in a made-up log
no more than in a recorded one; a reader that remembers tokens has no unfair gain.
"""

import random
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

MEBI, MEGA = 2**20, 10**6

DLA_SHARE = 0.4
"""Share of all lines that have a DLA core at work."""

_LOG_LINES = 2000
_SEGMENT_LINES = (200, 500)
_BURST_LINES = (3, 60)
_AWAKE = 0.3
_IDLE_LINES = 1200
# Share of the lines before which the load of the board changes.
_RESTLESS = 0.3

_CPU_CLOCKS = (
    *(729, 806, 883, 960, 1036, 1113, 1190, 1267, 1344, 1420, 1497, 1574, 1651, 1728),
    *(1804, 1881, 1958, 2035, 2112, 2188, 2201),
)
_EMC_CLOCKS = (204, 665, 2133, 3199)
_GPU_CLOCKS = (305, 407, 508, 611, 714, 816, 918, 1019, 1122, 1224, 1300)
_DLA_CLOCKS = (614, 750, 1050, 1369, 1600)
_ENGINE_CLOCKS = (115, 166, 358, 435, 512, 601, 716, 793)


@dataclass(frozen=True)
class Rail:
    """A rail and its current monitor.

    Attributes:
        name: As printed.
        step_milliamperes: What one step of the monitor stands for.
        millivolts: Supply, about.
        idle: Steps while nothing runs.
        busy: Steps more while everything does.
    """

    name: str
    step_milliamperes: int
    millivolts: int
    idle: int
    busy: int


_AGX_RAILS = (
    Rail("VDD_GPU_SOC", 80, 5000, 6, 40),
    Rail("VDD_CPU_CV", 80, 5000, 1, 34),
    Rail("VIN_SYS_5V0", 20, 5048, 40, 36),
    Rail("VDDQ_VDD2_1V8AO", 20, 5032, 4, 18),
)
_NX_RAILS = (
    Rail("VDD_IN", 8, 5048, 118, 320),
    Rail("VDD_CPU_GPU_CV", 8, 5024, 20, 210),
    Rail("VDD_SOC", 8, 5016, 34, 60),
)


@dataclass(frozen=True)
class Layout:
    """What one board prints under one release, as root or not.

    Attributes:
        name: Short, for the table.
        release: 35, 36 or 39; it decides names, cases and what idle engines look like.
        root: Whether the debug file system could be read.
        cores: Entries in the list of cores.
        online: How many of them are not off.
        clusters: Clocks of the GPU.
        gated_cluster: Whether the last of them is off for good.
        apart: Whether the second cluster has a token of its own, as in early R35.
        zones: In the order of the kernel, without their case.
        engines: Besides the DLA, in the order printed.
        dlas: Number of DLA cores.
        rails: In the order printed, but for the two that lead nowhere.
        megabytes: RAM that Linux sees.
        swap: Megabytes of swap; 0 is disabled.
        rounded: Whether averages are rounded; else they are cut.
    """

    name: str
    release: int
    root: bool = True
    cores: int = 12
    online: int = 12
    clusters: int = 2
    gated_cluster: bool = False
    apart: bool = False
    zones: tuple[str, ...] = ("cpu", "tboard", "soc2", "tdiode", "soc0", "gpu", "tj", "soc1")
    engines: tuple[str, ...] = ("NVENC", "NVDEC", "NVJPG", "NVJPG1", "VIC", "OFA")
    dlas: int = 2
    rails: tuple[Rail, ...] = _AGX_RAILS
    megabytes: int = 62841
    swap: int = 31420
    rounded: bool = False


_CV_ZONES = ("cv0", "cpu", "tboard", "soc2", "tdiode", "soc0", "cv1", "gpu", "tj", "soc1", "cv2")
_NX_ZONES = ("cv0", "cpu", "soc2", "soc0", "cv1", "gpu", "tj", "soc1", "cv2")
_NANO_ZONES = ("cpu", "soc2", "soc0", "gpu", "tj", "soc1")

LAYOUTS = (
    Layout("AGX R35", 35, zones=_CV_ZONES, engines=("VIC",), megabytes=62780, swap=31390),
    Layout("AGX R35 early", 35, apart=True, zones=_CV_ZONES, engines=("VIC",), megabytes=30587),
    Layout("AGX R36", 36),
    Layout("AGX R36 cores off", 36, online=8, gated_cluster=True, rails=_AGX_RAILS[:3]),
    Layout("AGX R36 user", 36, root=False, rounded=True),
    Layout("AGX R39", 39, megabytes=62878, swap=2048, rails=_AGX_RAILS[:3], rounded=True),
    Layout(
        "NX R36",
        36,
        cores=8,
        online=8,
        clusters=1,
        zones=_NX_ZONES,
        rails=_NX_RAILS,
        megabytes=15657,
        swap=7828,
    ),
    Layout(
        "Nano R36",
        36,
        cores=6,
        online=6,
        clusters=1,
        zones=_NANO_ZONES,
        engines=("NVDEC", "NVJPG", "NVJPG1", "VIC", "OFA"),
        dlas=0,
        rails=_NX_RAILS,
        megabytes=7607,
        swap=0,
        rounded=True,
    ),
    Layout(
        "Nano R36 user",
        36,
        root=False,
        cores=6,
        online=6,
        zones=_NANO_ZONES,
        dlas=0,
        rails=_NX_RAILS,
        megabytes=7620,
        swap=3810,
    ),
)
_WITH_DLA = sum(layout.root and layout.dlas > 0 for layout in LAYOUTS)


class Line(NamedTuple):
    """A line and its truth.

    Attributes:
        text: Without its end.
        layout: Name of the layout.
        time: As printed.
        paths: Names of the numbers; lines that say the same things share the tuple.
        values: One number a path.
        gated: Zones that are printed without a reading.
        dla: Whether a DLA core is at work.
    """

    text: str
    layout: str
    time: datetime
    paths: tuple[str, ...]
    values: "array[float]"
    gated: tuple[str, ...]
    dla: bool


def generate(count: int, seed: int = 0) -> list[Line]:
    """Make lines of all layouts, in segments of a few hundred of one board each.

    Args:
        count: How many.
        seed: The same seed makes the same lines.
    """
    chance = random.Random(seed)
    segments = []
    for place, layout in enumerate(LAYOUTS):
        share = count * (place + 1) // len(LAYOUTS) - count * place // len(LAYOUTS)
        lines = list(_recording(layout, share, chance))
        start = 0
        while start < share:
            end = start + chance.randint(*_SEGMENT_LINES)
            segments.append(lines[start:end])
            start = end
    chance.shuffle(segments)
    return [line for segment in segments for line in segment]


def redraw(text: str, chance: random.Random) -> str:
    """Draw every value of a line anew, from all that a board may print, and nothing of a walk."""

    def celsius() -> str:
        return _celsius(chance.randint(30 * 32, 90 * 32))[0]

    text = text.replace("NC 0mW/0mW", "NC -")
    for pattern, draw in (
        (r"[0-9]+(?=%)", lambda: chance.randint(0, 100)),
        (r"(?<=[%Q ]@)[0-9]+\b", lambda: chance.choice(_CPU_CLOCKS)),
        (r"(?<=[\[,])[0-9]+(?=[,\]])", lambda: chance.choice(_GPU_CLOCKS)),
        (r"(?<=[@/])[0-9.]+(?=C)", celsius),
        (r"[0-9]+(?=mW)", lambda: chance.randint(0, 20_000)),
        # No layout has less memory or swap: more in use than there is would be damage.
        (r"(?<=RAM )[0-9]+", lambda: chance.randint(300, 7_600)),
        (r"(?<=SWAP )[0-9]+", lambda: chance.randint(0, 2_000)),
        (r"(?<=lfb )[0-9]+", lambda: chance.randint(1, 1500)),
        (r"(?<=cached )[0-9]+", lambda: chance.randint(0, 400)),
    ):
        text = re.sub(pattern, lambda _, draw=draw: str(draw()), text)
    return text.replace("NC -", "NC 0mW/0mW")


def interleave(lines: list[Line], seed: int = 0) -> list[Line]:
    """Put the same lines in an order in which hardly any follows one of its own board."""
    mixed = lines.copy()
    random.Random(seed).shuffle(mixed)
    return mixed


def _recording(layout: Layout, count: int, chance: random.Random) -> Iterator[Line]:
    """Yield the lines of as many logs of one layout as it takes."""
    duty = DLA_SHARE * len(LAYOUTS) / _WITH_DLA
    dla = _Duty(duty, chance)
    shapes: dict[tuple[str, ...], tuple[str, ...]] = {}
    board = None
    for number in range(count):
        if board is None or number % _LOG_LINES == 0:
            board = _Board(layout, chance, dla, shapes)
        yield board.line()


class _Duty:
    """Switches something on and off in bursts, and keeps to a share in the long run."""

    def __init__(self, share: float, chance: random.Random) -> None:
        self.share = share
        self.chance = chance
        self.left = self.steps = self.steps_on = 0
        self.on = False

    def step(self) -> bool:
        if not self.left:
            self.left = self.chance.randint(*_BURST_LINES)
            self.on = self.steps_on <= self.share * self.steps
        self.left -= 1
        self.steps += 1
        self.steps_on += self.on
        return self.on


@dataclass
class _Meter:
    """What a rail has shown since its log began."""

    rail: Rail
    now: int = 0
    total: int = 0
    count: int = 0
    maximum: int = 0

    def show(self, milliwatts: int, rounded: bool) -> tuple[int, int, int]:
        self.total += milliwatts
        self.count += 1
        self.maximum = max(self.maximum, milliwatts)
        half = self.count if rounded else 0
        return milliwatts, (2 * self.total + half) // (2 * self.count), self.maximum


@dataclass
class _Said:
    """The tokens of one line and the numbers in them."""

    tokens: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    values: "array[float]" = field(default_factory=lambda: array("d"))
    gated: list[str] = field(default_factory=list)

    def note(self, path: str, value: float) -> None:
        self.paths.append(path)
        self.values.append(value)


class _Board:
    """One board while one log of it is written."""

    def __init__(
        self,
        layout: Layout,
        chance: random.Random,
        dla: _Duty,
        shapes: dict[tuple[str, ...], tuple[str, ...]],
    ) -> None:
        self.layout = layout
        self.chance = chance
        self.dla = dla
        self.shapes = shapes
        self.time = datetime(2024, 1, 1) + timedelta(seconds=chance.randrange(86400 * 700))
        self.used = chance.uniform(0.1, 0.9) * layout.megabytes
        self.swapped = chance.uniform(0, 0.1) * layout.swap if chance.random() < 0.5 else 0.0
        self.blocks = chance.uniform(1, 1500)
        self.block = chance.choice(("4MB", "4MB", "4MB", "2MB", "1MB", "512kB"))
        self.loads = [chance.uniform(0, 100) for _ in range(layout.cores)]
        # A recording begins before the work does.
        self.idle_lines = chance.randint(0, _IDLE_LINES)
        self.busy = 0.0
        self.heat = chance.uniform(30, 65) * 32
        self.apart = {zone: chance.randint(-160, 160) for zone in layout.zones}
        self.hottest: dict[str, int] = {}
        self.gpu_gated = _Duty(0.1, chance)
        self.cv_gated = _Duty(0.3, chance)
        # Few boards use more than two of these in one go.
        used = chance.sample((*layout.engines, "PVA0"), chance.randint(0, 2))
        self.engines = {name: _Duty(_AWAKE, chance) for name in used}
        self.governed = [_CPU_CLOCKS[0]] * layout.cores
        self.gpu_clock = _GPU_CLOCKS[0]
        self.cores_at_work = (0,)
        self.meters = [_Meter(rail) for rail in layout.rails]
        self.restless = True

    def line(self) -> Line:
        """Let about a second pass, and print."""
        layout, chance, said = self.layout, self.chance, _Said()
        self.time += timedelta(seconds=2 if chance.random() < 0.006 else 1)
        self.idle_lines -= 1
        self.restless = self.idle_lines < 0 and chance.random() < _RESTLESS
        if self.restless:
            self.busy = min(1.0, max(0.0, self.busy + chance.gauss(0, 0.07)))
        with_dla = layout.root and layout.dlas > 0
        was_at_work, dla = self.dla.on, with_dla and self.dla.step()
        if dla and not was_at_work:
            self.cores_at_work = chance.choice(((0,), (1,), (0, 1)))
        said.tokens.append(f"{self.time:%m-%d-%Y %H:%M:%S}")
        self._memory(said)
        self._cores(said)
        gpu_off = self.gpu_gated.step()
        self._emc(said)
        self._gpu(said, gpu_off)
        if layout.root:
            self._engines(said, self.cores_at_work if dla else ())
        self._zones(said, gpu_off, self.cv_gated.step() and not dla)
        self._rails(said)
        paths = tuple(said.paths)
        return Line(
            text=" ".join(said.tokens),
            layout=layout.name,
            time=self.time,
            paths=self.shapes.setdefault(paths, paths),
            values=said.values,
            gated=tuple(said.gated),
            dla=dla,
        )

    def _memory(self, said: _Said) -> None:
        layout, chance = self.layout, self.chance
        total = layout.megabytes
        self.used = min(0.98 * total, max(300, self.used + chance.gauss(0, max(2, total / 15000))))
        self.blocks = min(4000.0, max(1, self.blocks + chance.gauss(0, 0.4)))
        used, blocks = int(self.used), int(self.blocks)
        size, unit = int(self.block[:-2]), 1024 if self.block[-2:] == "kB" else MEBI
        said.tokens.append(f"RAM {used}/{total}MB (lfb {blocks}x{self.block})")
        said.note("ram.used_bytes", used * MEBI)
        said.note("ram.total_bytes", total * MEBI)
        said.note("ram.largest_free_block_bytes", size * unit)
        said.note("ram.largest_free_block_count", blocks)
        if not layout.swap:
            return
        if self.swapped:
            self.swapped = min(layout.swap, max(1, self.swapped + chance.gauss(0, 0.7)))
        swapped = int(self.swapped)
        cached = swapped // 50
        said.tokens.append(f"SWAP {swapped}/{layout.swap}MB (cached {cached}MB)")
        said.note("swap.used_bytes", swapped * MEBI)
        said.note("swap.total_bytes", layout.swap * MEBI)
        said.note("swap.cached_bytes", cached * MEBI)

    def _cores(self, said: _Said) -> None:
        layout, chance = self.layout, self.chance
        width = 4 if layout.cores > 6 else 3
        entries = []
        for core in range(layout.cores):
            if core >= layout.online:
                entries.append("off")
                said.note(f"cpu.{core}.online", 0)
                continue
            load = self.loads[core] + chance.gauss(0, 1.5) + 3 * (self.busy - 0.4)
            fate = chance.random()
            if fate < 0.05:
                load = chance.uniform(0, 100)
            elif fate < 0.35:
                load = 0.0
            self.loads[core] = load = min(100.0, max(0.0, load))
            if core % width == 0 and chance.random() < 0.2:
                top = max(self.loads[core : core + width]) / 100
                wanted = 1.4 * top * len(_CPU_CLOCKS) - 3 + chance.gauss(0, 2)
                governed = _CPU_CLOCKS[min(len(_CPU_CLOCKS) - 1, max(0, int(wanted)))]
                self.governed[core : core + width] = [governed] * width
            clock = self.governed[core]
            if layout.root and chance.random() < 0.01:
                clock = int(clock * chance.uniform(0.9, 1.1))
            percent = round(load)
            entries.append(f"{percent}%@{clock}")
            said.note(f"cpu.{core}.online", 1)
            said.note(f"cpu.{core}.utilization_ratio", percent / 100)
            said.note(f"cpu.{core}.frequency_hertz", clock * MEGA)
        said.tokens.append(f"CPU [{','.join(entries)}]")

    def _emc(self, said: _Said) -> None:
        if not self.layout.root:
            return
        percent = min(83, max(0, int(60 * self.busy + self.chance.gauss(0, 3))))
        clock = _EMC_CLOCKS[min(3, int(4 * self.busy + self.chance.uniform(0, 1.2)))]
        said.tokens.append(f"EMC_FREQ {percent}%@{clock}")
        said.note("emc.utilization_ratio", percent / 100)
        said.note("emc.frequency_hertz", clock * MEGA)

    def _gpu(self, said: _Said, off: bool) -> None:
        layout, chance = self.layout, self.chance
        percent = (
            0
            if off
            else min(
                99, max(0, int(130 * self.busy - 20 + (chance.gauss(0, 8) if self.restless else 0)))
            )
        )
        if not layout.root:
            said.tokens.append(f"GR3D_FREQ {percent}%")
            said.note("gpu.utilization_ratio", percent / 100)
            return
        if chance.random() < _RESTLESS:
            self.gpu_clock = chance.choice(_GPU_CLOCKS[: 1 + int(10 * self.busy)])
        governed = self.gpu_clock
        clocks = [
            0 if off else governed + (chance.choice((-2, -1, 1)) if chance.random() < 0.01 else 0)
            for _ in range(layout.clusters)
        ]
        if layout.gated_cluster:
            clocks[-1] = 0
        said.note("gpu.utilization_ratio", percent / 100)
        for cluster, clock in enumerate(clocks):
            said.note(f"gpu.frequency_hertz.{cluster}", clock * MEGA)
        if layout.apart:
            first, second = clocks
            said.tokens.append(f"GR3D_FREQ {percent}%@{first} GR3D2_FREQ {percent}%@{second}")
            said.note("gpu.cluster_utilization_ratio.0", percent / 100)
            said.note("gpu.cluster_utilization_ratio.1", percent / 100)
        else:
            said.tokens.append(f"GR3D_FREQ {percent}%@[{','.join(map(str, clocks))}]")

    def _engines(self, said: _Said, dla_at_work: tuple[int, ...]) -> None:
        layout, chance = self.layout, self.chance
        if layout.release == 35:
            clock = chance.choice(_ENGINE_CLOCKS) if self._awake("VIC") else 115
            said.tokens.append(f"VIC_FREQ {clock}")
            _note_engine(said, "engines.VIC", None, clock)
        else:
            for name in layout.engines:
                index = "0" if layout.release == 39 and name in ("NVENC", "NVDEC", "NVJPG") else ""
                self._engine(said, f"{name}{index}", f"engines.{name}", self._awake(name))
        for core in range(layout.dlas):
            at_work = core in dla_at_work
            clock = chance.choice(_DLA_CLOCKS)
            if layout.release != 35:
                self._engine(said, f"NVDLA{core}", f"dla.{core}", at_work, clock)
            elif at_work:
                said.tokens.append(f"NVDLA{core}_FREQ @{clock}")
                _note_engine(said, f"dla.{core}", None, clock)
        if layout.release != 35 and layout.dlas:
            if self._awake("PVA0"):
                clock = chance.choice(_ENGINE_CLOCKS)
                said.tokens.append(f"PVA0_FREQ @{clock}")
                _note_engine(said, "engines.PVA0", None, clock)
            else:
                said.tokens.append("PVA0_FREQ off")
                said.note("engines.PVA0.on", 0)
        clock = 174 if layout.dlas else 200
        said.tokens.append(f"APE {clock}")
        _note_engine(said, "engines.APE", None, clock)

    def _awake(self, name: str) -> bool:
        return name in self.engines and self.engines[name].step()

    def _engine(self, said: _Said, label: str, path: str, on: bool, clock: int = 0) -> None:
        if not on:
            said.tokens.append(f"{label} off")
            said.note(f"{path}.on", 0)
            return
        clock = clock or self.chance.choice(_ENGINE_CLOCKS)
        percent = self.chance.randint(0, 100)
        said.tokens.append(f"{label} {percent}%@{clock}")
        _note_engine(said, path, percent, clock)

    def _zones(self, said: _Said, gpu_off: bool, cv_off: bool) -> None:
        layout, chance = self.layout, self.chance
        self.heat = min(90 * 32.0, max(25 * 32.0, self.heat + chance.gauss(self.busy - 0.5, 1)))
        for zone in layout.zones:
            name = zone
            if layout.release == 35 and zone != "tj":
                name = zone.capitalize() if zone[0] == "t" else zone.upper()
            if (zone == "gpu" and gpu_off) or (zone[:2] == "cv" and cv_off):
                # R36 leaves out what cannot be read.
                if layout.release == 35:
                    said.tokens.append(f"{name}@-256C")
                    said.gated.append(name)
                continue
            now = int(self.heat + self.apart[zone] + chance.gauss(0, 1.5))
            if zone in ("tboard", "tdiode"):
                now -= now % 8
            text, celsius = _celsius(now)
            said.note(f"temperatures_celsius.{name}", celsius)
            if layout.release != 39:
                said.tokens.append(f"{name}@{text}C")
                continue
            self.hottest[zone] = max(now, self.hottest.get(zone, now))
            most, most_celsius = _celsius(self.hottest[zone])
            said.tokens.append(f"{name}@{text}C/{most}C")
            said.note(f"temperatures_max_celsius.{name}", most_celsius)

    def _rails(self, said: _Said) -> None:
        layout, chance = self.layout, self.chance
        for place, meter in enumerate(self.meters):
            rail = meter.rail
            if self.restless or not meter.count or chance.random() < 0.05:
                noise = chance.gauss(0, rail.busy / 80)
                steps = max(0, int(rail.idle + self.busy * rail.busy + noise))
                millivolts = rail.millivolts + 8 * chance.choice((-1, 0, 0, 0))
                meter.now = steps * rail.step_milliamperes * millivolts // 1000
            milliwatts = meter.now
            now, mean, most = meter.show(milliwatts, layout.rounded)
            token = f"{rail.name} {now}mW/{mean}mW"
            said.note(f"rails.{rail.name}.instant_watts", now / 1000)
            said.note(f"rails.{rail.name}.average_watts", mean / 1000)
            if layout.release == 39:
                token += f"/{most}mW"
                said.note(f"rails.{rail.name}.maximum_watts", most / 1000)
            if layout.release == 35 and place == 3:
                # Channels of the monitor that lead nowhere.
                token = f"NC 0mW/0mW {token} NC 0mW/0mW"
            said.tokens.append(token)


def _note_engine(said: _Said, path: str, percent: int | None, clock: int) -> None:
    said.note(f"{path}.on", 1)
    if percent is not None:
        said.note(f"{path}.utilization_ratio", percent / 100)
    said.note(f"{path}.frequency_hertz", clock * MEGA)


def _celsius(steps: int) -> tuple[str, float]:
    """Print so many 1/32 °C as the kernel's thousandths, without zeros at the end."""
    thousandths = steps * 3125 // 100
    whole, rest = divmod(thousandths, 1000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip("."), thousandths / 1000


def variety(texts: list[str]) -> dict[str, float]:
    """Return, for each kind of token, how many of a thousand lines' are unlike one another.

    Args:
        texts: Lines of one log; those behind the first thousand are left out.

    Returns:
        Kind to the distinct share; equal cores at different places are two.
    """
    seen: dict[str, Counter[str]] = {}
    for text in texts[:1000]:
        words = text.split()
        for before, word in pairwise(words):
            if before.upper() == "CPU" and word[0] == "[":
                for core, entry in enumerate(word[1:-1].split(",")):
                    seen.setdefault("cores", Counter())[f"{core}:{entry}"] += 1
            elif word.endswith("mW"):
                seen.setdefault("rails", Counter())[f"{before} {word}"] += 1
            elif word.endswith("C") and "@" in word:
                seen.setdefault("zones", Counter())[word] += 1
            elif before in ("RAM", "GR3D_FREQ", "EMC_FREQ"):
                seen.setdefault(before.removesuffix("_FREQ"), Counter())[word] += 1
    return {kind: len(count) / count.total() for kind, count in sorted(seen.items())}

"""Pairs of benches of a simulated board, with causes planted by a physics of its own.

Nothing here is from the product's rule: a network has layers with operations and bytes, a board has
clocks, bandwidth and launch times, and a cause changes those. What a bench would record follows,
with noise of rounds, a shift from session to session, and differences that have no effect.
"""

import random
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, stdev

from tegrascope.daemon.measure.report import (
    Distribution,
    Environment,
    Figure,
    Frequency,
    ProcessShare,
    RunReport,
    RunTelemetry,
    Span,
    Temperature,
)
from tegrascope.parsers.inference.placement import Built, Circumstances, Placement
from tegrascope.workbench.results.records import (
    AcceleratorResult,
    BenchResult,
    BenchSettings,
    ClockRange,
    LayerRow,
    ModelResult,
)

ROUNDS = 4
STUDENT = 3.182  # 95 %, three degrees of freedom
WIDTH = {"fp32": 4, "fp16": 2, "int8": 1}
# Where a planted cause may be.
ON_GPU = (
    *("batch", "streams", "transfers", "precision", "cuda_graph"),
    *("optimization_level", "throttling", "power_mode", "clocks", "contention"),
    *("build_circumstances", "versions"),
)
ON_DLA = ("batch", "precision", "fallback", "throttling", "power_mode", "clocks", "versions")


@dataclass(frozen=True)
class Network:
    """Layers: operations in 1e9, and values moved in 1e6."""

    work: tuple[float, ...]
    values: tuple[float, ...]
    input_values: float = 0.15
    sha: str = "ab" * 32


@dataclass(frozen=True)
class Place:
    """A board with a setting of everything; defaults are the fast ones."""

    device: str = "gpu"
    batch: int = 1
    streams: int = 1
    overlap: float = 0.2
    transfers: bool = True
    precision: str = "fp16"
    graph: bool = True
    level: int | None = None
    kernels: float = 1.0
    power_mode: str = "MAXN"
    locked: bool | None = True
    gpu: float = 1.3e9
    emc: float = 3.2e9
    cpu: float = 2.2e9
    dip: float = 1.0
    throttled: int = 0
    governor: bool = False
    beside: float = 0.0
    busy_cpu: float = 0.0
    fallback: int = 0
    alone: bool = True
    build_load: float = 0.8
    versions: dict[str, str] = field(
        default_factory=lambda: {"tensorrt": "8.6.2", "cuda-runtime": "12.2"}
    )
    jetpack: str = "6.0"
    gain: float = 2.5
    gain8: float = 1.5
    launch: float = 9e-6


def draw_network(rng: random.Random) -> Network:
    layers = rng.randint(20, 70)
    size = 10 ** rng.uniform(-2.2, -0.4)
    work = tuple(size * rng.lognormvariate(0, 0.8) for _ in range(layers))
    return Network(work, tuple(rng.lognormvariate(-0.5, 0.8) for _ in range(layers)))


def layer_times(net: Network, place: Place, gpu: float) -> list[float]:
    """Return the time of each layer's kernel."""
    speed = {"fp32": 1.0, "fp16": place.gain, "int8": place.gain * place.gain8}[place.precision]
    on_dla = place.device != "gpu"
    times = []
    for number, (work, values) in enumerate(zip(net.work, net.values, strict=True)):
        rate = 1.4e3 * speed * gpu / 1.3e9 * (0.4 if on_dla else 1.0)
        moved = values * WIDTH[place.precision] / (80e3 * place.emc / 3.2e9)
        computed = work * place.batch / rate
        time = (computed**3 + (moved * place.batch) ** 3) ** (1 / 3) + 3e-6 * 1.3e9 / gpu
        if on_dla and number < place.fallback:
            time = 1.3 * time + 90e-6
        times.append(time * place.kernels)
    return times


@dataclass(frozen=True)
class Times:
    """Of an inference, in seconds, and its rate."""

    copies: float
    compute: float
    host: float
    layers: tuple[float, ...]
    rate_of_inferences: float
    rate: float

    @property
    def latency(self) -> float:
        return self.copies + self.compute + self.host

    @property
    def load(self) -> float:
        """Share of time in which kernels run."""
        return min(1.0, sum(self.layers) * self.rate_of_inferences)


def times_of(net: Network, place: Place) -> Times:
    layers = layer_times(net, place, place.gpu * place.dip)
    crowd = 1 + place.beside
    slower_cpu = (1 + place.busy_cpu) * 2.2e9 / place.cpu
    launch = place.launch * slower_cpu
    compute = sum(layers) if place.graph else sum(max(one, launch) for one in layers)
    size = net.input_values * place.batch * 1e6 * 4
    copies = size / (9e9 * place.emc / 3.2e9) + 2 * 8e-6 if place.transfers else 0.0
    host = 25e-6 * slower_cpu + (0 if place.graph else 2 * launch)
    alone = (copies + compute + host) * crowd
    rate = place.batch / alone
    queue = 1.0
    if place.streams > 1:
        more = 1 + place.overlap * (1 - 1 / place.streams)
        rate, queue = rate * more, place.streams / more
    return Times(
        *(copies * crowd * queue, compute * crowd * queue, host * crowd * queue),
        tuple(layers),
        rate / place.batch,
        rate,
    )


def settle(net: Network, place: Place) -> Place:
    """Return the place with the clock to which a governor goes: lower, the less there is to do."""
    if not place.governor or place.locked:
        return place
    return replace(place, gpu=place.gpu * (0.55 + 0.45 * min(1.0, times_of(net, place).load / 0.8)))


def plant(cause: str, place: Place, rng: random.Random) -> Place:
    """Return a place that has a cause, which makes an inference slower."""
    u = rng.uniform
    match cause:
        case "batch":
            return replace(place, batch=rng.choice((2, 4, 8, 16)))
        case "streams":
            return replace(place, streams=rng.choice((2, 4)), overlap=u(0, 0.5))
        case "transfers":
            return place
        case "precision":
            return replace(place, precision="fp32" if place.precision == "fp16" else "fp16")
        case "cuda_graph":
            return replace(place, graph=False)
        case "optimization_level":
            return replace(place, level=rng.choice((0, 1)), kernels=place.kernels * u(1.06, 1.6))
        case "throttling":
            dip = u(0.55, 0.92)
            return replace(place, dip=dip, throttled=rng.randint(1, ROUNDS))
        case "power_mode":
            ratio = u(0.4, 0.85)
            mode = rng.choice(("15W", "30W", "50W"))
            emc = rng.choice((1.0, 0.64))
            return replace(
                place,
                power_mode=mode,
                gpu=place.gpu * ratio,
                emc=place.emc * emc,
                cpu=place.cpu * u(0.6, 1.0),
            )
        case "clocks":
            locked = rng.choice((False, None))
            return replace(place, locked=locked, gpu=place.gpu * u(0.5, 0.92))
        case "contention":
            if rng.random() < 0.3:
                return replace(place, busy_cpu=u(0.5, 2))
            return replace(place, beside=u(0.15, 1.5))
        case "fallback":
            return replace(place, fallback=rng.randint(2, 12))
        case "build_circumstances":
            if rng.random() < 0.5:
                return replace(place, alone=False, kernels=place.kernels * u(1.05, 1.3))
            return replace(place, build_load=u(4, 12), kernels=place.kernels * u(1.05, 1.3))
        case "versions":
            versions = {"tensorrt": "8.5.2", "cuda-runtime": "11.4"}
            faster = place.kernels * u(1.05, 1.5)
            return replace(place, versions=versions, jetpack="5.1.2", kernels=faster)
    raise ValueError(cause)


@dataclass(frozen=True)
class PlantedPair:
    """Two results, and the names of what differs with an effect."""

    a: BenchResult
    b: BenchResult
    causes: frozenset[str]


def draw_pair(seed: int, count: int) -> PlantedPair:
    """Return a pair with so many planted causes, each in A or in B.

    It is drawn again until what is planted changes the true latency by 4 % or more together, and
    each of it alone by 3 %: what has no effect is not a cause.
    """
    rng = random.Random(seed)
    while True:
        net = draw_network(rng)
        device = "dla0" if rng.random() < 0.2 else "gpu"
        known = ON_DLA if device == "dla0" else ON_GPU
        causes = rng.sample(known, count)
        precision = rng.choice(("fp16", "int8")) if "precision" in causes else "fp16"
        base = Place(
            device=device,
            precision=precision,
            transfers="transfers" not in causes,
            gain=rng.uniform(1.6, 4),
            gain8=rng.uniform(1.3, 1.9),
            launch=rng.uniform(6e-6, 20e-6),
            locked=rng.choice((True, None)),
            governor=device == "gpu" and rng.random() < 0.5,
        )
        places, alone = [base, base], []
        for cause in causes:
            slow = replace(
                plant(cause, base, rng), transfers=base.transfers or cause == "transfers"
            )
            alone.append(times_of(net, slow).latency / times_of(net, base).latency)
            at = rng.randrange(2)
            made = plant(cause, places[at], rng)
            places[at] = replace(made, transfers=made.transfers or cause == "transfers")
        places = [settle(net, place) for place in places]
        latencies = [times_of(net, place).latency for place in places]
        if min(alone, default=2) > 1.03 and (
            not count or abs(latencies[0] / latencies[1] - 1) > 0.04
        ):
            break
    # What a back-end, a board and a person may have left out.
    has_stages, has_clocks = rng.random() < 0.7, rng.random() < 0.85
    has_layers = rng.random() < 0.3
    if "versions" not in causes and rng.random() < 0.15:
        # Another release, which has no effect.
        places[1] = replace(places[1], jetpack="6.0.1")
    a, b = (
        record(net, place, rng, stages=has_stages, clocks=has_clocks, layers=has_layers)
        for place in places
    )
    return PlantedPair(a, b, frozenset(causes))


def spread(value: float, count: int = 5000) -> Distribution:
    return Distribution(
        count=count,
        min_seconds=0.98 * value,
        mean_seconds=1.01 * value,
        p50_seconds=value,
        p90_seconds=1.03 * value,
        p95_seconds=1.04 * value,
        p99_seconds=1.08 * value,
        p999_seconds=1.2 * value,
        max_seconds=1.5 * value,
    )


def figure(values: list[float]) -> Figure:
    half = STUDENT * stdev(values) / sqrt(len(values))
    return Figure(value=fmean(values), low=fmean(values) - half, high=fmean(values) + half)


def record(
    net: Network, place: Place, rng: random.Random, *, stages: bool, clocks: bool, layers: bool
) -> BenchResult:
    """Return what a bench of four rounds records of a place."""
    true = times_of(net, place)
    session, spread_of_rounds = rng.gauss(1, 0.005), rng.uniform(0.002, 0.01)
    drift = rng.uniform(0, 0.004)
    rounds = [
        session * (1 + drift * (n - 1.5) / 3) * rng.gauss(1, spread_of_rounds)
        for n in range(ROUNDS)
    ]
    jitter = [rng.gauss(1, 0.003) for _ in range(3)]
    hertz = {
        "gpu" if place.device == "gpu" else place.device: place.gpu * jitter[0],
        "emc": place.emc,
        "cpu": place.cpu * jitter[1],
    }
    own = "gpu" if place.device == "gpu" else place.device
    work = place.gpu / 1.3e9
    watts = 9 + 12 * work**2.2 * place.dip + 3 * place.beside
    joules = [watts * one / true.rate * rng.gauss(1, 0.01) for one in rounds]
    hottest = rng.gauss(55, 3) + (25 if place.throttled else 0)
    environment = Environment(
        board="Jetson AGX Orin",
        power_mode=place.power_mode,
        clocks_locked=place.locked,
        jetpack=place.jetpack,
        telemetry_source="tegrastats",
        telemetry_interval_seconds=0.103,
        versions={**place.versions, "tegrascope": "1.0", "python": "3.10.12"},
    )
    others = (
        (ProcessShare(name="robot", cpu_seconds=rng.uniform(0.1, 8)),) if rng.random() < 0.5 else ()
    )
    names = [f"conv_{n}" for n in range(len(net.work))]
    # A builder leaves some layers in another type, and not the same ones each time.
    wobble = rng.randint(0, 1)
    types = {place.precision: len(names) - wobble, **({"fp32": wobble} if wobble else {})}
    if place.precision == "fp32":
        types = {"fp32": len(names)}
    on_dla = place.device == "dla0"
    placement = Placement(
        verdict="mixed" if place.fallback else "pure_dla" if on_dla else "gpu_only",
        gpu_layers=tuple(names[: place.fallback] if on_dla else names),
        dla_layers=("{ForeignNode[a...b]}",) if on_dla else (),
    )
    built = Built(
        requested_precision=place.precision,
        layer_types={} if on_dla else types,
        placement=placement,
        has_cuda_graph=place.graph,
        has_transfers=place.transfers,
        streams=place.streams,
        circumstances=Circumstances(
            load_average=max(0.0, rng.gauss(place.build_load, 0.3)), is_alone=place.alone
        ),
    )
    runs = tuple(
        RunReport(
            run_id=f"{rng.getrandbits(64):016x}",
            workload="net",
            model="nets/net.onnx",
            model_sha256=net.sha,
            backend="tensorrt",
            device=place.device,
            outcome="ok",
            started_wall_ns=n * 40 * 10**9,
            started_ns=n * 40 * 10**9,
            ended_ns=(n * 40 + 31) * 10**9,
            phases={"steady": Span(begin_ns=n * 40 * 10**9, end_ns=(n * 40 + 31) * 10**9)},
            batch=place.batch,
            input_shapes={"image": (place.batch, 3, 224, 224)},
            telemetry=RunTelemetry(
                samples=150,
                frequency={
                    name: Frequency(
                        min_hertz=0.9 * value,
                        # It rises from idle at the begin of a round.
                        mean_hertz=value
                        * rng.gauss(0.99, 0.003)
                        * (place.dip if name == own else 1),
                    )
                    for name, value in (hertz.items() if clocks else ())
                },
                temperature={
                    "tj": Temperature(start_celsius=45, max_celsius=hottest, delta_celsius=2)
                },
            ),
            other_processes=others,
            environment=environment,
        )
        for n in range(ROUNDS)
    )
    part = {"compute": true.compute}
    if place.transfers:
        part |= {"h2d": 0.8 * true.copies, "d2h": 0.2 * true.copies}
    rows = []
    for name, seconds in zip(names, true.layers, strict=True):
        share = seconds / sum(true.layers)
        row = {"name": name, "nodes": (name,), "seconds": seconds * rng.gauss(1.1, 0.02)}
        rows.append(LayerRow(**row, share=share, precision=place.precision, place="gpu"))
    load = min(1.0, true.load + 0.5 * place.beside) if place.device == "gpu" else 0.02
    load = min(1.0, load * rng.gauss(0.98, 0.01))
    result = AcceleratorResult(
        device=place.device,
        backend="tensorrt",
        status="ok",
        built=built,
        latency=spread(true.latency * session),
        stages={
            name: spread(value * session * rng.gauss(1, 0.004))
            for name, value in (part.items() if stages else ())
        },
        latency_seconds=figure([true.latency * one for one in rounds]),
        throughput_per_second=figure([true.rate / one for one in rounds]),
        net_joules_per_inference=figure([one * place.batch * 0.7 for one in joules]),
        gross_joules_per_inference=figure([one * place.batch for one in joules]),
        mean_watts=figure([watts * rng.gauss(1, 0.01) for _ in rounds]),
        utilization={"gpu": Figure(value=load, low=load - 0.01, high=load + 0.01)},
        clocks={
            name: ClockRange(
                lowest_hertz=value * (place.dip if name == own else 1) * 0.99, highest_hertz=value
            )
            for name, value in (hertz.items() if clocks else ())
        },
        layers=tuple(rows) if layers and place.device == "gpu" else (),
        hottest_zone="tj",
        hottest_celsius=hottest,
        rounds=ROUNDS,
        is_steady=True,
        flags={"throttled": place.throttled} if place.throttled else {},
    )
    background = {"cpu": rng.uniform(0.01, 0.09), "gpu": rng.uniform(0, 0.01)}
    if place.beside:
        background["gpu"] = rng.uniform(0.2, 1.0)
    if place.busy_cpu:
        background["cpu"] = rng.uniform(0.3, 1.0)
    settings = BenchSettings(
        models=("nets/net.onnx",),
        precision=place.precision,
        batch=place.batch,
        streams=place.streams,
        cuda_graph=place.graph,
        transfers=place.transfers,
        optimization_level=place.level,
        duration_seconds=15,
        baseline_seconds=8,
        warm_up_seconds=1,
        rounds=ROUNDS,
    )
    model = ModelResult(
        model="nets/net.onnx",
        model_sha256=net.sha,
        accelerators=(result,),
        counted=tuple(run.run_id for run in runs),
        rounds=runs,
    )
    return BenchResult(
        tegrascope="1.0",
        started_wall_ns=0,
        ended_wall_ns=10**12,
        settings=settings,
        environment=environment,
        background=background,
        models=(model,),
    )

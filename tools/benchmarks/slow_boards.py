"""Which of 1,000 boards is slow? Plant some, and compare what the rules name.

    .venv/bin/python -m tools.benchmarks.slow_boards --boards 1000 --hours 24 --seeds 20

Each seed is a fleet of one workload per board, scraped once per minute. ``promtool`` makes blocks
of the series that ``grafana/prometheus/rules/like.yml`` reads, and evaluates its rules over the
whole time. A board is named if ``TegraBoardSlowerThanLike`` would fire. The last seed also times
each panel of the dashboard, and one hour of its scrapes goes through remote write.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy
import yaml

from tests.monitoring.fleets import PageTarget
from tests.monitoring.grafana import filled, panels
from tests.monitoring.prometheus import Monitoring, Prometheus, scrape_config
from tests.monitoring.servers import wait_for
from tools.benchmarks.fleet import cpu_seconds, metric, resident, tell
from tools.dashboards.catalog import DASHBOARDS
from tools.dashboards.render import render

RULES = Path(__file__).parents[2] / "grafana/prometheus/rules/like.yml"
SCRAPE_SECONDS, EVALUATION_SECONDS, BLOCK_SECONDS = 60, 240, 7200
# Medians of six hours change slowly: what is derived from them is evaluated once per three times.
SLOW_EVALUATION_SECONDS = 720
RUN_SECONDS = 120


@dataclass(frozen=True)
class Effect:
    """What a cause does to a board: factors, and what is added.

    Attributes:
        latency: Least and most of the factor of the latency.
        power: Factor of the power in a run.
        clock: Factor of the clock.
        heating: Factor of the degrees per watt above the air.
        throttled: Share of the runs with throttling.
        cores: Busy CPU cores more.
        swap_gib: Swap more.
        layers: Layers on the GPU more; only a workload on a DLA has them.
        power_mode: Another power mode.
        engine: Another engine.
    """

    latency: tuple[float, float] = (1.0, 1.0)
    power: float = 1.0
    clock: float = 1.0
    heating: float = 1.0
    throttled: float = 0.0
    cores: float = 0.0
    swap_gib: float = 0.0
    layers: int = 0
    power_mode: str = ""
    engine: str = ""


NO_EFFECT = Effect()
CAUSES = {
    "power mode": Effect((1.4, 1.8), power=0.55, clock=0.6, power_mode="15W"),
    "cooling": Effect((1.2, 1.5), power=0.85, clock=0.8, heating=1.7, throttled=0.9),
    "throttling": Effect((1.2, 1.4), power=0.85, clock=0.82, throttled=0.9),
    "clock": Effect((1.2, 1.4), power=0.8, clock=0.8),
    "other processes": Effect((1.2, 1.5), power=1.15, cores=2.5),
    "swap": Effect((1.2, 1.6), swap_gib=1.5),
    "fallback": Effect((1.3, 1.8), power=1.1, layers=30),
    "engine or JetPack": Effect((1.2, 1.5), engine="0badc0ffee00"),
}
"""Causes by the name that the rules give them. One of a seed begins in its first half."""

HARMLESS = (
    Effect(heating=1.3),
    Effect(swap_gib=0.8),
    Effect(cores=1.5),
    Effect(clock=0.9),
    Effect(throttled=0.5),
)
"""A few boards differ in these, and are not slower."""


@dataclass(frozen=True)
class Group:
    """Boards that are alike; figures are those of the median board."""

    labels: Mapping[str, str]
    device: str
    latency_seconds: float
    watts: float
    celsius_per_watt: float
    clock_hertz: float
    spread: float
    updated: bool


@dataclass(frozen=True)
class Board:
    """One board of a group; ``since`` is the share of the time after which the effect begins."""

    name: str
    group: Group
    chance: int
    cause: str = ""
    effect: Effect = NO_EFFECT
    latency_factor: float = 1.0
    since: float = 0.0


def make_groups(count: int, chance: random.Random) -> list[Group]:
    """Draw groups that differ in module or workload, or in the power mode alone."""
    groups: list[Group] = []
    for number in range(count):
        device = "dla0" if number % 3 == 2 else "gpu"
        labels = {
            "board": chance.choice(("agx-orin", "orin-nx", "orin-nano")),
            "module": f"p37{number:02}-0000",
            "power_mode": "MAXN",
            "jetpack": chance.choice(("5.1.3", "6.1", "6.2")),
            "workload": chance.choice(("detector", "pose", "segmenter")),
            "device": device,
            "model": "model.onnx",
            "precision": "fp16",
            "batch": "1",
            "engine_key": f"{chance.getrandbits(48):012x}",
        }
        if number % 10 == 9:  # as the group before, but in another power mode
            before = groups[-1].labels
            labels = {**before, "power_mode": "30W", "engine_key": before["engine_key"]}
        groups.append(
            Group(
                labels,
                labels["device"],
                latency_seconds=chance.uniform(0.004, 0.08),
                watts=chance.uniform(8, 40),
                celsius_per_watt=chance.uniform(0.9, 1.4) * 30 / 24,
                clock_hertz=chance.choice((612e6, 918e6, 1300.5e6)),
                spread=chance.uniform(0.005, 0.025),
                updated=number % 7 == 4,
            )
        )
    return groups


def make_boards(
    count: int, groups: int, slow: Sequence[str], seed: int
) -> tuple[list[Board], list[Board]]:
    """Draw a fleet; return all its boards, and those that are slow, one per cause.

    Of many groups the last two have three boards, which are too few to be judged.
    """
    chance = random.Random(f"slow boards {seed}")
    drawn = make_groups(groups, chance)
    small = 2 if groups >= 10 else 0
    places = [group for group in range(groups - small) for _ in range(5)]
    places += [groups - 1 - number % 2 for number in range(3 * small)]
    while len(places) < count:
        places.append(min(chance.randrange(groups - small), chance.randrange(groups - small)))
    boards = []
    for number, place in enumerate(places):
        effect = NO_EFFECT
        if chance.random() < 0.03:
            effect = chance.choice(HARMLESS)
        boards.append(
            Board(f"robot-{number:04}", drawn[place], chance.getrandbits(32), effect=effect)
        )
    planted = []
    for number, cause in enumerate(slow):
        effect = CAUSES[cause]
        fits = [
            at
            for at, board in enumerate(boards)
            if not board.cause and _can_have(board.group, drawn, groups - small, cause)
        ]
        at = chance.choice(fits)
        begins = number == 0 and not (effect.power_mode or effect.engine)
        since = 0.0
        if begins:
            since = chance.uniform(0.1, 0.5)
        boards[at] = replace(
            boards[at],
            cause=cause,
            effect=effect,
            latency_factor=chance.uniform(*effect.latency),
            since=since,
        )
        planted.append(boards[at])
    return boards, planted


def _can_have(group: Group, groups: list[Group], judged: int, cause: str) -> bool:
    """Return whether a board of a group can have a cause, and be judged."""
    effect = CAUSES[cause]
    if group not in groups[:judged] or (effect.layers and group.device == "gpu"):
        return False
    modes = [other for other in groups if other.labels["module"] == group.labels["module"]]
    # Alone in its mode or with its engine, it is compared with all of its module and workload. They
    # have no common latency if there are two modes, or in the middle of an update.
    return not (effect.power_mode or effect.engine) or (len(modes) == 1 and not group.updated)


@dataclass
class Series:
    """Values of one series at its times, NaN for none; ``kind`` is that of OpenMetrics."""

    name: str
    labels: dict[str, str]
    values: Any
    at: Any = field(repr=False)


def series_of(board: Board, begin: int, seconds: int) -> Iterator[Series]:
    """Yield the series of a board that the rules read, at most twelve at a time.

    Args:
        board: The board.
        begin: First second, since 1970.
        seconds: Length.
    """
    chance = numpy.random.default_rng(board.chance)
    group, effect = board.group, board.effect
    count = seconds // SCRAPE_SECONDS
    at = numpy.arange(count) * SCRAPE_SECONDS + chance.uniform(0, SCRAPE_SECONDS)
    strength = (at >= board.since * seconds).astype(float)
    pause = chance.uniform(600, 1800)
    run, elapsed = numpy.divmod(at + chance.uniform(0, pause), pause)
    run = run.astype(int)
    active = elapsed < RUN_SECONDS
    runs = int(run.max()) + 1

    def share(factor: float) -> Any:
        return 1 + (factor - 1) * strength

    # A run in fifty is disturbed.
    disturbed = 1 + (chance.random(runs) < 0.02) * chance.uniform(0.1, 0.8, runs)
    noise = chance.lognormal(0, 0.01, runs) * disturbed
    own = chance.lognormal(0, group.spread)
    latency = group.latency_seconds * own * noise[run] * share(board.latency_factor)
    watts = group.watts * chance.lognormal(0, 0.03) * share(effect.power)
    watts = watts * chance.lognormal(0, 0.01, runs)[run]
    air = 26 + chance.normal(0, 2.5) + 4 * numpy.sin(at / 86400 * 2 * numpy.pi)
    heating = 24 / group.watts * group.celsius_per_watt * chance.lognormal(0, 0.04)
    celsius = air + heating * share(effect.heating) * watts
    throttled = chance.random(runs) < 0.01 + effect.throttled * 0.99 * strength.max()
    cores = chance.uniform(0.2, 0.4) + effect.cores * strength + chance.uniform(0, 0.1, count)
    swap = chance.uniform(20e6, 200e6) + effect.swap_gib * 2**30 * strength

    # An outage of some boards, and an update of whole groups, board by board, in the middle
    # third. A text page has no marks of staleness, so a board is away for longer than Prometheus
    # looks back.
    seen = numpy.ones(count, bool)
    if chance.random() < 0.1:
        gone = chance.uniform(0, seconds)
        seen &= (at < gone) | (at > gone + chance.uniform(600, 3600))
    updated = numpy.zeros(count, bool)
    if group.updated:
        moment = chance.uniform(seconds / 3, seconds * 2 / 3)
        updated = at > moment
        seen &= (at < moment) | (at > moment + 700)
        latency = numpy.where(updated, latency * 0.92, latency)
    at = at + begin

    target = {"job": "tegrascope", "instance": board.name}
    labels = dict(group.labels)
    labels["power_mode"] = effect.power_mode or labels["power_mode"]
    labels["engine_key"] = effect.engine or labels["engine_key"]
    of_run = {**target, "workload": labels["workload"], "device": labels["device"]}

    def some(
        name: str, values: Any, where: Any = seen, more: Mapping[str, str] = target, **own: str
    ) -> Series:
        return Series(name, {**more, **own}, numpy.where(where, values, numpy.nan), at)

    for is_new in (False, True):
        part = seen & (updated == is_new)
        if not part.any():
            continue
        names = ("board", "module", "power_mode")
        jetpack, engine = labels["jetpack"], labels["engine_key"]
        if is_new:
            jetpack, engine = "7.0", engine[::-1]
        info = {name: labels[name] for name in names}
        yield some("tegra_info", 1.0, part, **info, jetpack=jetpack, simulated="false")
        settings = {name: labels[name] for name in ("model", "precision", "batch")}
        yield some(
            "tegra_inference_workload_info",
            1.0,
            part,
            of_run,
            **settings,
            backend="tensorrt",
            engine_key=engine,
        )
    last = "tegra_inference_last_run"
    yield some(f"{last}_latency_seconds", latency, more=of_run, quantile="0.5")
    joules = watts * latency
    yield some(f"{last}_energy_joules_per_inference", joules, more=of_run, kind="gross")
    yield some(f"{last}_throughput_per_second", 1 / latency, more=of_run)
    yield some(f"{last}_temperature_max_celsius", celsius, more=of_run)
    yield some("tegra_inference_run_active", active.astype(float), more=of_run)
    hertz = numpy.where(active, group.clock_hertz * share(effect.clock), 306e6)
    if group.device == "gpu":
        yield some("tegra_gpu_frequency_hertz", hertz, gpc="0")
    else:
        yield some("tegra_dla_frequency_hertz", hertz, core="0")
        kept = numpy.full(count, 4.0 + effect.layers)
        yield some("tegra_inference_layers", kept, more=of_run, placement="gpu")
    held = (active & throttled[run] & (strength > 0)).astype(float)
    yield some("tegra_throttle_active", held, kind="gpu_thermal")
    yield some("tegra_swap_used_bytes", swap)
    used = numpy.cumsum(cores * SCRAPE_SECONDS)
    yield some("tegra_process_cpu_seconds_total", used, process="node")


def write_blocks(boards: Sequence[Board], begin: int, seconds: int, data: Path) -> tuple[int, int]:
    """Make blocks of two hours of a fleet; return how many series and samples there are."""
    data.mkdir(parents=True, exist_ok=True)
    every: dict[str, list[tuple[str, Any, Any]]] = {}
    for board in boards:
        for series in series_of(board, begin, seconds):
            inside = ",".join(f'{name}="{text}"' for name, text in series.labels.items())
            known = ~numpy.isnan(series.values)
            entry = (f"{series.name}{{{inside}}}", series.at[known], series.values[known])
            every.setdefault(series.name, []).append(entry)
    page = data.with_name("page.om")
    samples = 0
    for start in range(begin, begin + seconds, BLOCK_SECONDS):
        with page.open("w") as text:
            for name, entries in every.items():
                kind = "counter" if name.endswith("_total") else "gauge"
                text.write(f"# TYPE {name.removesuffix('_total')} {kind}\n")
                for key, at, values in entries:
                    first, end = numpy.searchsorted(at, (start, start + BLOCK_SECONDS))
                    lines = [
                        f"{key} {value:.6g} {moment:.3f}\n"
                        for value, moment in zip(
                            values[first:end].tolist(), at[first:end].tolist(), strict=True
                        )
                    ]
                    samples += len(lines)
                    text.writelines(lines)
            text.write("# EOF\n")
        promtool("create-blocks-from", "openmetrics", page, data)
    page.unlink()
    return sum(map(len, every.values())), samples


def promtool(*words: object) -> None:
    """Run ``promtool tsdb``.

    Raises:
        RuntimeError: It fails; with what it printed.
    """
    command = ["promtool", "tsdb", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "GOGC": "400"}
    )
    if done.returncode or "error" in done.stderr.lower():
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


def read_rules() -> list[dict[str, Any]]:
    """Return the recording rules of the file, in order."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "record" in rule]


def stages(rules: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Divide rules so that each reads only what earlier parts record.

    ``promtool`` evaluates each rule over the whole time, before the next one is in the store.
    """
    parts: list[int] = []
    for rule in rules:
        read = set(re.findall(r"[\w:]+", rule["expr"]))
        earlier = [
            part for part, other in zip(parts, rules, strict=False) if other["record"] in read
        ]
        parts.append(1 + max(earlier, default=-1))
    return [
        [rule for rule, at in zip(rules, parts, strict=True) if at == part]
        for part in range(max(parts) + 1)
    ]


def record(server: Prometheus, begin: int, seconds: int) -> None:
    """Evaluate the recording rules over the whole time, part by part."""
    data = server.config.with_name("data")
    path = server.config.with_name("stage.yml")
    every = EVALUATION_SECONDS
    for rules in stages(read_rules()):
        if any(rule["record"].endswith("_median6h") for rule in rules):
            every = SLOW_EVALUATION_SECONDS
        group = {"name": "stage", "interval": f"{every}s", "rules": rules}
        path.write_text(yaml.safe_dump({"groups": [group]}))
        promtool(
            "create-blocks-from", "rules", f"--start={begin}", f"--end={begin + seconds}",
            f"--url={server.url}", f"--eval-interval={every}s",
            f"--output-dir={data}", path,
        )  # fmt: skip
        server.stop()
        server.restart()


def named(server: Prometheus, begin: int, seconds: int) -> dict[str, str]:
    """Return the boards for which the alert fires, with the cause that is recorded last.

    The alert holds for 15 minutes: two points in a row, which are 12 minutes apart here.
    """
    fires: set[str] = set()
    for series in server.query(
        f"instance_like:tegra_inferences:slower[{seconds}s]", begin + seconds
    ):
        times = [at for at, _ in series["values"]]
        if any(later - at <= SLOW_EVALUATION_SECONDS for at, later in pairwise(times)):
            fires.add(series["metric"]["instance"])
    causes: dict[str, tuple[float, str]] = {}
    recorded = f"instance_like:tegra_inferences:slower_cause[{seconds}s]"
    for series in server.query(recorded, begin + seconds):
        board, last = series["metric"]["instance"], series["values"][-1][0]
        if last > causes.get(board, (0.0, ""))[0]:
            causes[board] = last, series["metric"]["figure"]
    return {board: causes[board][1] for board in sorted(fires)}


def filled_fleet(
    monitoring: Monitoring, boards: Sequence[Board], begin: int, seconds: int
) -> tuple[Prometheus, int, int]:
    """Return a Prometheus with a fleet and all that is recorded of it; and series and samples."""
    server = monitoring.prometheus({"global": {"scrape_interval": "1h"}})
    server.stop()
    series, samples = write_blocks(boards, begin, seconds, server.config.with_name("data"))
    server.restart()
    record(server, begin, seconds)
    return server, series, samples


def last_evaluation(server: Prometheus, end: int) -> float:
    """Return the time at which the rules were evaluated last; a query then sees all of them."""
    found = server.query('job_like:tegra_inferences:figure_median{figure="latency"}[1h]', end)
    return max(at for series in found for at, _ in series["values"])


def last_block(hours: int) -> tuple[int, int]:
    """Return the first second of the last whole blocks that are older than now, and the length."""
    seconds = hours * 3600
    return int(time.time()) // BLOCK_SECONDS * BLOCK_SECONDS - seconds, seconds


def panel_seconds(server: Prometheus, end: float, seconds: int) -> dict[str, float]:
    """Return how long the queries of each panel of the dashboard take, one after the other."""
    (dashboard,) = (one for one in DASHBOARDS if one.uid == "tegrascope-like")
    board = yaml.safe_load(render(dashboard))
    chosen = dict.fromkeys(("job", "instance", "workload"), ".*")
    took: dict[str, float] = {}
    for panel in panels(board):
        begin = time.monotonic()
        for target in panel["targets"]:
            expr = filled(target["expr"].replace("$__range", f"{seconds // 2}s"), chosen)
            if target.get("instant"):
                server.query(expr, end)
            else:
                span = {"start": str(end - seconds), "end": str(end), "step": str(seconds // 360)}
                server.ask("query_range", query=expr, **span)
        took[panel["title"]] = time.monotonic() - begin
    return took


def pages_of(boards: Sequence[Board], begin: int, scrapes: int) -> list[str]:
    """Return what scrapes of all boards give, each as one page."""
    lines: list[list[str]] = [[] for _ in range(scrapes)]
    for series in chain.from_iterable(
        series_of(board, begin, scrapes * SCRAPE_SECONDS) for board in boards
    ):
        inside = ",".join(f'{name}="{text}"' for name, text in series.labels.items())
        for page, value in zip(lines, series.values.tolist(), strict=True):
            if value == value:
                page.append(f"{series.name}{{{inside}}} {value:.6g}")
    return ["\n".join(page) + "\n" for page in lines]


def remote_write(boards: Sequence[Board], monitoring: Monitoring, scrapes: int = 60) -> None:
    """Print what an hour of scrapes costs by remote write; an interval takes five seconds here."""
    every = pages_of(boards, last_block(2)[0], scrapes)
    samples = sum(page.count("\n") for page in every)
    pages = iter(every)
    kept = [""]

    def next_page() -> str:
        kept[0] = next(pages, kept[0])
        return kept[0]

    receiver = monitoring.prometheus(
        {"global": {"evaluation_interval": "1h"}}, "--web.enable-remote-write-receiver"
    )
    target = PageTarget(next_page, "text/plain; version=0.0.4")
    try:
        config = scrape_config(
            target.address, remote_write=[{"url": f"{receiver.url}api/v1/write"}]
        )
        config["global"]["scrape_interval"] = "5s"
        config["scrape_configs"][0]["honor_labels"] = True
        sender = monitoring.prometheus(config, agent=True)
        wait_for(lambda: target.pages >= scrapes, 10 * scrapes + 60, sender.log)
        counter = "prometheus_remote_storage_samples_total"
        wait_for(lambda: metric(sender, counter) >= samples, 120, sender.log)
        sent = metric(sender, counter)
        wire = metric(sender, "prometheus_remote_storage_bytes_total")
        tell("remote write, samples", f"{sent:.0f}", f"in {scrapes} scrapes")
        series = metric(receiver, "prometheus_tsdb_head_series")
        tell("remote write, series at the receiver", f"{series:.0f}")
        tell("remote write, on the wire", f"{wire / sent:.2f}", "B a sample")
        for name, server in (("sender", sender), ("receiver", receiver)):
            used = cpu_seconds(server.process.pid)
            tell(f"remote write, {name}", f"{used:.1f}", f"CPU s in {scrapes} scrapes")
            memory = resident(server.process.pid) / 2**20
            tell(f"remote write, {name}", f"{memory:.0f}", "MiB resident")
        lost = metric(sender, "prometheus_remote_storage_samples_failed_total")
        tell("remote write, samples failed", f"{lost:.0f}")
    finally:
        target.stop()


def main() -> None:
    """Run the seeds, and print as it goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--slow", type=int, default=3)
    parser.add_argument("--hours", type=int, default=24, help="a multiple of two")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-remote-write", action="store_true")
    asked = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        is_last = seed == asked.first_seed + asked.seeds - 1
        causes = random.Random(f"causes {seed}").sample(sorted(CAUSES), asked.slow)
        boards, planted = make_boards(asked.boards, asked.groups, causes, seed)
        begin, seconds = last_block(asked.hours)
        with tempfile.TemporaryDirectory() as name:
            monitoring = Monitoring(Path(name))
            try:
                started = time.monotonic()
                server, series, samples = filled_fleet(monitoring, boards, begin, seconds)
                answer = named(server, begin, seconds)
                truth = {board.name: board.cause for board in planted}
                right = {board for board, cause in truth.items() if answer.get(board) == cause}
                others = sorted(set(answer) - set(truth))
                found += Counter(
                    planted=len(truth),
                    named=len(set(truth) & set(answer)),
                    right=len(right),
                    others=len(others),
                )
                took = time.monotonic() - started
                tell(
                    f"seed {seed}",
                    f"{len(right)} of {len(truth)} named with their cause, {len(others)} others",
                    f"({series} series, {samples} samples, {took:.0f} s)",
                )
                for board in sorted(set(truth) - right):
                    print(f"  {board}: {truth[board]}, named {answer.get(board, 'not')}")
                for board in others:
                    print(f"  {board}: not slow, named {answer[board]}")
                if is_last:
                    report_panels(server, last_evaluation(server, begin + seconds), seconds)
            finally:
                monitoring.stop()
            if is_last and not asked.no_remote_write:
                try:
                    remote_write(boards, monitoring)
                finally:
                    monitoring.stop()
    tell("slow boards", f"{found['named']} of {found['planted']} named")
    tell("with their cause", f"{found['right']} of {found['planted']}")
    tell("other boards named", f"{found['others']} of {asked.boards * asked.seeds}")
    sys.exit(found["right"] != found["planted"] or found["others"] > 0)


def report_panels(server: Prometheus, end: float, seconds: int) -> None:
    """Print the slowest panel and one evaluation of the rules, with memory and load."""
    took = panel_seconds(server, end, seconds)
    worst = max(took, key=lambda title: took[title])
    tell("slowest panel", f"{took[worst]:.2f}", f"s ({worst})")
    tell("all panels", f"{sum(took.values()):.2f}", "s")
    begin, used = time.monotonic(), cpu_seconds(server.process.pid)
    for rule in read_rules():
        server.query(rule["expr"], end)
    tell("the rules, once", f"{time.monotonic() - begin:.2f}", "s")
    tell("the rules, once", f"{cpu_seconds(server.process.pid) - used:.2f}", "CPU s of Prometheus")
    recorded = server.value('count({__name__=~"(instance|job)_.+:.+"})', end)
    tell("recorded series", f"{recorded:.0f}")
    tell("Prometheus, resident", f"{resident(server.process.pid) / 2**20:.0f}", "MiB")
    tell("load of the machine", f"{os.getloadavg()[0]:.2f}", f"on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()

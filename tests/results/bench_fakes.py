"""Reports and a worker that simulates accelerators, for tests of the benchmark."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

from tegrascope.daemon.measure.latency import distribution
from tegrascope.daemon.measure.report import (
    Energy,
    Interval,
    RunReport,
    RunTelemetry,
    Span,
    Temperature,
    Utilization,
)
from tegrascope.daemon.session.executor import Executor
from tegrascope.workbench.bench.run import Bench, Display
from tegrascope.workbench.bench.settings import Asked
from tegrascope.workbench.bench.workers import Setup, Workers
from tegrascope.workbench.results.records import BenchSettings

SECOND = 1_000_000_000

# Simulates a run of 12 s in no time: its stamps are those of a real run. The model says how, with
# a line for each device: `gpu ms=3 answer=1.0`.
WORKER = """
import json, os, sys, time
import numpy
def report(**event): print(json.dumps(event), flush=True)
ahead = 0
report(event="hello", pid=os.getpid(), python="3")
for line in sys.stdin:
    order = json.loads(line)
    run = {"run_id": order["run_id"]}
    lines = dict(row.split(maxsplit=1) for row in open(order["model"]) if row.strip())
    device = "reference" if sys.argv[2] == "reference" else order["device"]
    asked = dict(word.split("=") for word in lines.get(device, "ms=5").split())
    # As ``mapped.ms=2``: what is so with this memory only.
    for name, value in list(asked.items()):
        memory, _, key = name.partition(".")
        if key and memory == order.get("memory"):
            asked[key] = value
    if "ending" in asked:
        outcome = {"outcome": asked["ending"]}
        if asked["ending"] == "unavailable":
            outcome = {"outcome": "skipped", "skip_reason": "unavailable"}
        report(event="finished", reason="as asked", **outcome, **run)
        continue
    if asked.get("hangs") and order.get("duration_seconds"):
        time.sleep(1000)
    if order.get("outputs_file"):
        with open(order["outputs_file"], "wb") as file:
            numpy.savez(file, numpy.full((1, 20), float(asked.get("answer", 1.0))))
    if order.get("profile_file"):
        layers = [{"name": "conv + relu", "precision": "fp16", "nodes": ["conv", "relu"]}]
        with open(order["profile_file"], "w") as file:
            json.dump({"inferences": 50, "total_ns": 40_000, "layers": layers,
                       "layers_ns": {"conv + relu": 30_000, "out copy": 10_000}}, file)
    report(event="loaded", model_sha256="ab" * 32, cold_start_seconds={"load": 0.5}, **run)
    begin, step = time.monotonic_ns(), int(float(asked["ms"]) * 1e6)
    if order.get("steps_seconds"):
        # The stamps of the runs before it reach into the future.
        ahead += 100_000_000_000
        begin += ahead
        now = begin
        report(event="phase", phase="steady", edge="begin", at_ns=begin, **run)
        if order.get("stage"):
            step = int(float(asked[order["stage"]]) * 1e6) * order["repeats"]
        for number, seconds in enumerate(order["steps_seconds"]):
            if number % 2:
                starts = list(range(now, now + int(seconds * 1e9), step))
                report(event="inferences", start_ns=starts, latency_ns=[step] * len(starts), **run)
                now, last = starts[-1] + step, starts[-1] + step
            else:
                now += int(seconds * 1e9)
        report(event="phase", phase="steady", edge="end", at_ns=last, **run)
        report(event="finished", outcome="ok", **run)
        continue
    count = order.get("count") or int(order["duration_seconds"] * 1e9 / step)
    report(event="phase", phase="steady", edge="begin", at_ns=begin, **run)
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        stages = {name: [int(float(asked[name]) * 1e6)] * len(numbers)
                  for name in ("h2d", "compute", "d2h") if name in asked}
        report(event="inferences", start_ns=[begin + n * step for n in numbers],
             latency_ns=[step] * len(numbers), stages_ns=stages, **run)
    report(event="phase", phase="steady", edge="end", at_ns=begin + count * step, **run)
    if asked.get("breaks") and order.get("duration_seconds"):
        report(event="finished", outcome="failed", reason="the driver is gone", **run)
    else:
        report(event="finished", outcome="ok", **run)
"""


class FakeExecutors:
    """Makes executors with the worker above, and records them."""

    def __init__(self, directory: Path) -> None:
        self.script = directory / "worker.py"
        self.script.write_text(WORKER)
        self.made: dict[str, Executor] = {}

    def __call__(self, device: str, **_: object) -> Executor:
        self.made[device] = Executor(device, argv=(sys.executable, str(self.script)))
        return self.made[device]


class Silence(Display):
    """A display that shows nothing; ``on_begin`` is called with the title of each round."""

    def __init__(self, on_begin: Callable[[str], object] = str) -> None:
        super().__init__(io.StringIO())
        self._on_begin = on_begin

    def begin(self, title: str, _seconds_left: float) -> None:
        self._on_begin(title)


def make_bench(
    directory: Path,
    asked: BenchSettings,
    executors: FakeExecutors,
    display: Display,
    begin_pass: Callable[[int], None] = lambda _number: None,
) -> tuple[Bench, Workers]:
    setup = Setup(Asked(asked, None), directory)
    workers = Workers(setup.session, display.heard, make_executor=executors)
    return Bench(asked, workers, display, begin_pass), workers


def settings(*models: str, **changes: object) -> BenchSettings:
    return BenchSettings.model_validate(
        {
            "models": models,
            "devices": ("gpu", "dla0"),
            "backend": "tensorrt",
            "duration_seconds": 12.0,
            "baseline_seconds": 0.0,
            "warm_up_seconds": 0.0,
            "rounds": 2,
            **changes,
        }
    )


def report(device: str = "gpu", ms: float = 3.0, at: float = 0.0, **facts: float) -> RunReport:
    """Return a round of 12 s with figures of telemetry.

    Args:
        device: Where it ran.
        ms: Latency of every inference.
        at: When it started, in seconds.
        facts: Joules ``gross`` and ``net`` with ``half`` of their interval, loads ``gpu``,
            ``emc`` and ``cpu``, and ``celsius``; without any there is no telemetry.
    """
    count = round(12_000 / ms)
    begin, end = round(at * SECOND), round((at + 12) * SECOND)
    measured: dict[str, object] = {}
    if facts:
        half = facts.get("half", 0.0)
        gross, net = facts.get("gross"), facts.get("net")
        measured["telemetry"] = RunTelemetry(
            samples=110,
            utilization={
                name: Utilization(mean_ratio=facts[name], max_ratio=facts[name])
                for name in ("gpu", "emc", "cpu")
                if name in facts
            },
            temperature={
                "tj": Temperature(
                    start_celsius=40.0, max_celsius=facts.get("celsius", 50.0), delta_celsius=1.0
                )
            },
        )
        if gross is not None and net is not None:
            measured["energy"] = Energy(
                gross_joules=gross,
                net_joules=net,
                gross_joules_per_inference=gross / count,
                net_joules_per_inference=net / count,
                gross_interval=Interval(low=gross - half, high=gross + half),
                offset_joules=3.0,
                net_interval=Interval(low=net - half, high=net + half),
            )
    return RunReport.model_validate(
        {
            "run_id": f"{device}-{at}",
            "workload": f"net-{device}",
            "model_sha256": "ab" * 32,
            "backend": "tensorrt",
            "device": device,
            "outcome": "ok",
            "started_wall_ns": begin,
            "started_ns": begin,
            "ended_ns": end,
            "phases": {"steady": Span(begin_ns=begin, end_ns=end)},
            "inferences": count,
            "latency": distribution([round(ms * 1e6)] * count),
            "throughput_per_second": count / 12,
            **measured,
        }
    )

"""Made reports and a worker that plays accelerators: what tests of the bench share."""

import sys
from pathlib import Path

from tegrascope.daemon.measure.run_report import (
    Energy,
    Interval,
    RunReport,
    RunTelemetry,
    Span,
    Temperature,
    Utilization,
    distribution,
)
from tegrascope.daemon.results.records import BenchSettings
from tegrascope.daemon.session.executor import Executor

SECOND = 1_000_000_000

# Plays one run of 12 s at once: its stamps lie where a real run's would. What it does is told by
# the model, a line for each device: `gpu ms=3 answer=1.0`.
WORKER = """
import json, os, sys, time
import numpy
def tell(**event): print(json.dumps(event), flush=True)
tell(event="hello", pid=os.getpid(), python="3")
for line in sys.stdin:
    order = json.loads(line)
    run = {"run_id": order["run_id"]}
    told = dict(row.split(maxsplit=1) for row in open(order["model"]) if row.strip())
    lane = "reference" if sys.argv[2] == "reference" else order["device"]
    said = dict(word.split("=") for word in told.get(lane, "ms=5").split())
    if "ending" in said:
        tell(event="finished", ending=said["ending"], reason="told to", **run)
        continue
    if said.get("hangs") and order.get("duration_seconds"):
        time.sleep(1000)
    if order.get("outputs_file"):
        with open(order["outputs_file"], "wb") as file:
            numpy.savez(file, numpy.full((1, 20), float(said.get("answer", 1.0))))
    tell(event="loaded", model_sha256="ab" * 32, cold_start_seconds={"load": 0.5}, **run)
    begin, step = time.monotonic_ns(), int(float(said["ms"]) * 1e6)
    count = order.get("count") or int(order["duration_seconds"] * 1e9 / step)
    tell(event="phase", phase="steady", edge="begin", at_ns=begin, **run)
    for first in range(0, count, 1000):
        numbers = range(first, min(first + 1000, count))
        tell(event="inferences", start_ns=[begin + n * step for n in numbers],
             latency_ns=[step] * len(numbers), **run)
    tell(event="phase", phase="steady", edge="end", at_ns=begin + count * step, **run)
    if said.get("breaks") and order.get("duration_seconds"):
        tell(event="finished", ending="failed", reason="the driver is gone", **run)
    else:
        tell(event="finished", ending="ok", **run)
"""


class FakeLanes:
    """Makes lanes whose worker is the one above, and remembers them."""

    def __init__(self, directory: Path) -> None:
        self.script = directory / "worker.py"
        self.script.write_text(WORKER)
        self.made: dict[str, Executor] = {}

    def __call__(self, device: str, **_: object) -> Executor:
        self.made[device] = Executor(device, argv=(sys.executable, str(self.script)))
        return self.made[device]


class Silence:
    """Is told all, and remembers what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.rounds: list[str] = []

    def say(self, words: str) -> None:
        self.said.append(words)

    def heard(self, event: object) -> None:
        pass

    def begin(self, title: str, _seconds_left: float) -> None:
        self.rounds.append(title)

    def end(self, outcome: str) -> None:
        pass


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
    """Return a round of 12 s; its facts are what telemetry told.

    Args:
        device: Where it ran.
        ms: Latency of every inference.
        at: When it started, in seconds.
        facts: Joules ``gross`` and ``net`` with ``half`` of their interval, loads ``gpu``,
            ``emc`` and ``cpu``, and ``celsius``; without any there was no telemetry.
    """
    count = round(12_000 / ms)
    begin, end = round(at * SECOND), round((at + 12) * SECOND)
    told: dict[str, object] = {}
    if facts:
        half = facts.get("half", 0.0)
        gross, net = facts.get("gross"), facts.get("net")
        told["telemetry"] = RunTelemetry(
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
            told["energy"] = Energy(
                gross_joules=gross,
                net_joules=net,
                gross_joules_per_inference=gross / count,
                net_joules_per_inference=net / count,
                gross_interval=Interval(low=gross - half, high=gross + half),
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
            **told,
        }
    )

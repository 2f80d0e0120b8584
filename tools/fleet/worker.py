"""What a worker would have said of a run: the one part of a simulated run that is made up."""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tegrascope.parsers.inference.events import (
    Finished,
    Inferences,
    Loaded,
    Phase,
    PhaseName,
    RunEvent,
)
from tegrascope.parsers.inference.placement import Built, Placement

from .plan import Task

_TOLD_NS = 1_000_000_000
_JITTER = 0.03


@dataclass(frozen=True)
class Conduct:
    """How a run goes.

    Attributes:
        slower: Factor on its latency.
        fails: Whether it ends half-way.
        bypasses: Whether most of its layers fell back from the DLA to the GPU.
    """

    slower: float = 1.0
    fails: bool = False
    bypasses: bool = False


def events(
    run_id: str, task: Task, conduct: Conduct, begin_ns: int, chance: random.Random
) -> Iterator[tuple[int, RunEvent]]:
    """Yield what a worker says of one run, with the time at which it says it, in order.

    Args:
        run_id: Of the run.
        task: What runs.
        conduct: How it goes.
        begin_ns: Monotonic time at which the worker takes the order.
        chance: Where its jitter comes from.
    """
    workload = task.workload
    now_ns = begin_ns

    def phase(name: PhaseName, seconds: float) -> Iterator[tuple[int, RunEvent]]:
        nonlocal now_ns
        yield now_ns, Phase(run_id=run_id, phase=name, edge="begin", at_ns=now_ns)
        now_ns += round(seconds * 1e9)
        yield now_ns, Phase(run_id=run_id, phase=name, edge="end", at_ns=now_ns)

    load_seconds = chance.uniform(0.6, 1.4)
    yield from phase("load", load_seconds)
    yield (
        now_ns,
        Loaded(
            run_id=run_id,
            model_sha256=hashlib.sha256(str(workload.model).encode()).hexdigest(),
            cold_start_seconds={
                "load": load_seconds,
                "first_inference": 4 * task.latency_seconds,
            },
            built=_built(task, conduct),
        ),
    )
    yield from phase("warm_up", workload.warm_up)
    yield from phase("baseline_before", workload.baseline)
    yield now_ns, Phase(run_id=run_id, phase="steady", edge="begin", at_ns=now_ns)
    length = workload.steady_seconds or 0.0
    end_ns = now_ns + round(length * 1e9 * (0.4 if conduct.fails else 1.0))
    for told in _inferences(run_id, task.latency_seconds * conduct.slower, now_ns, end_ns, chance):
        now_ns = told.start_ns[-1] + told.latency_ns[-1]
        yield now_ns, told
    if conduct.fails:
        reason = "the engine gave up: CUDA error 700, an illegal address (simulated)"
        yield now_ns, Finished(run_id=run_id, ending="failed", reason=reason)
        return
    yield now_ns, Phase(run_id=run_id, phase="steady", edge="end", at_ns=now_ns)
    yield from phase("baseline_after", workload.baseline)
    yield now_ns, Finished(run_id=run_id, ending="ok", process_peak_bytes=640 * 1024**2)


def _inferences(
    run_id: str, latency_seconds: float, begin_ns: int, end_ns: int, chance: random.Random
) -> Iterator[Inferences]:
    """Yield back-to-back inferences of a stretch of time, a second's worth at a time."""
    now_ns = begin_ns
    while now_ns < end_ns:
        starts: list[int] = []
        latencies: list[int] = []
        until_ns = min(end_ns, now_ns + _TOLD_NS)
        while now_ns < until_ns:
            latency = round(latency_seconds * 1e9 * chance.lognormvariate(0.0, _JITTER))
            starts.append(now_ns)
            latencies.append(latency)
            now_ns += latency
        yield Inferences(run_id=run_id, start_ns=tuple(starts), latency_ns=tuple(latencies))


def _built(task: Task, conduct: Conduct) -> Built:
    names = tuple(f"layer-{number}" for number in range(task.layers))
    if not task.workload.device.startswith("dla"):
        placement = Placement(verdict="gpu_only", gpu_layers=names)
    elif conduct.bypasses:
        kept = task.layers // 6
        placement = Placement(
            verdict="mixed",
            loadables=3,
            dla_layers=names[:kept],
            gpu_layers=names[kept:],
            reformat_layers=("reformat-in", "reformat-1", "reformat-2", "reformat-out"),
        )
    else:
        placement = Placement(
            verdict="dla_plus_reformat",
            loadables=1,
            dla_layers=names,
            reformat_layers=("reformat-in", "reformat-out"),
        )
    return Built(requested_precision="fp16", placement=placement, engine_bytes=24 * 1024**2)

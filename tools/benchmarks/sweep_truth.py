"""A sweep on a real GPU, held against a plain loop over all of its points.

The sweep is that of ``tegrascope bench --sweep``. Then each point is measured by a loop that uses
nothing of tegrascope, its energy by the GPU's own counter. A point that the sweep dropped is missed
if no point of its front is as good, within the margins of the race and the interval of the front.

Needs an NVIDIA GPU, TensorRT, cuda-python and nvidia-ml-py. It takes 20 minutes, half of it builds:

    python -m tools.benchmarks.sweep_truth --state /tmp/state
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .plain_tensorrt import Counter, Plan, Slot, measure

AXES = ("batch=1,8", "streams=1,2,3,4,6,8", "precision=fp16,int8")
IDLE_SECONDS, IDLE_SETTLING = 5.0, 1.5
MARGINS = {"latency": 0.01, "energy": 0.0125}
LOAD_MARGIN = 0.02


def main() -> int:
    """Return 1 if a point is missed, or if the race took more than half of all rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="where engines are kept")
    parser.add_argument("--model", default="builtin:resnet50")
    parser.add_argument("--axes", nargs="+", default=AXES, help="of the sweep")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the loop, per point")
    parser.add_argument("--result", type=Path, help="result.json of a sweep that was made before")
    options = parser.parse_args()
    result = options.result or options.state / "sweep/result.json"
    if options.result is None:
        command = (sys.executable, "-m", "tegrascope", "bench", options.model, "--on", "gpu")
        times = ("--duration", "11", "--baseline", "1", "--warm-up", "0.3", "--rounds", "4")
        where = ("--state-dir", str(options.state), "-o", str(result.parent))
        fast = ("--optimization-level", "0", "--telemetry", "nvml")
        subprocess.run([*command, "--sweep", *options.axes, *times, *fast, *where], check=True)
    sweep = json.loads(result.read_text())["models"][0]["sweep"]
    share = sweep["seconds"] / sweep["exhaustive_seconds"]
    print(f"{sweep['seconds']:.0f} s, {100 * share:.0f} % of the time of all rounds")
    truth = measure_all(options.state / "engines", sweep, options.seconds)
    missed = judge(sweep, truth)
    print(f"missed: {missed or 'none'}")
    return int(bool(missed) or share > 0.5)


def name_of(point: Any) -> str:
    """Return a short name of a point of the sweep."""
    return "{precision} batch {batch}, {streams} streams".format(**point["variant"])


def measure_all(engines: Path, sweep: Any, seconds: float) -> dict[str, dict[str, float]]:
    """Return latency, energy per input above idle and load of each point, by a plain loop."""
    counter = Counter()
    keys = [(point["result"].get("built") or {}).get("engine_key") for point in sweep["points"]]
    # An idle GPU takes more power once a program has a context on it.
    context = Slot(Plan(engines / f"{next(filter(None, keys))}.plan"))
    idle = [idle_watts(counter)]
    found: dict[str, tuple[int, Any]] = {}
    for key, point in zip(keys, sweep["points"], strict=True):
        if key is not None:
            variant = point["variant"]
            got = measure(Plan(engines / f"{key}.plan"), variant["streams"], counter, seconds)
            found[name_of(point)] = variant["batch"], got
    idle.append(idle_watts(counter))
    level = sum(idle) / len(idle)
    print(f"idle {idle[0]:.1f} and {idle[1]:.1f} W")
    del context
    return {
        name: {
            "latency": got.latency_seconds,
            "energy": (got.watts - level) / (got.per_second * batch),
            "load": got.load,
        }
        for name, (batch, got) in found.items()
    }


def idle_watts(counter: Counter) -> float:
    """Return the mean power of an idle GPU with a context."""
    begin = time.monotonic()
    time.sleep(IDLE_SECONDS)
    return counter.watts(begin + IDLE_SETTLING, time.monotonic())


def judge(sweep: Any, truth: dict[str, dict[str, float]]) -> list[str]:
    """Print each point beside its truth; return the names of those that were missed."""
    points = sweep["points"]
    front = [points[place] for place in sweep["front"]]
    for point in points:
        own, true = figures_of(point), truth.get(name_of(point), {})
        words = [
            f"{goal} {value:.4g} ± {half:.2g}, truth {true[goal]:.4g}"
            for goal, (value, half) in own.items()
            if goal in true
        ]
        print(f"{name_of(point)}: {point['outcome']}; {'; '.join(words)}")
    missed = []
    for point in points:
        true = truth.get(name_of(point))
        if point["outcome"] != "dominated" or true is None:
            continue
        if not any(is_as_good(one, truth[name_of(one)], true) for one in front):
            missed.append(name_of(point))
    return missed


def figures_of(point: Any) -> dict[str, tuple[float, float]]:
    """Return value and half interval of each figure of a point, energy per input."""
    result, batch = point["result"], point["variant"]["batch"]
    figures = {
        "latency": (result.get("latency_seconds"), 1),
        "energy": (result.get("net_joules_per_inference"), batch),
        "load": ((result.get("utilization") or {}).get("gpu"), 1),
    }
    return {
        name: (
            one["value"] / by,
            ((one.get("high") or one["value"]) - (one.get("low") or one["value"])) / 2 / by,
        )
        for name, (one, by) in figures.items()
        if one is not None
    }


def is_as_good(point: Any, true: dict[str, float], other: dict[str, float]) -> bool:
    """Return whether a point of the front is as good as another in truth, within its interval."""
    own = figures_of(point)
    slack = {name: share * other[name] for name, share in MARGINS.items()} | {"load": LOAD_MARGIN}
    return all(
        true[name] <= other[name] + slack[name] + own.get(name, (0.0, 0.0))[1] for name in slack
    )


if __name__ == "__main__":
    sys.exit(main())

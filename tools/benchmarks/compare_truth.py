"""Pairs of benches on a real GPU that differ in what was planted, and what compare says of them.

ResNet-50 is measured with other types, batches, copies, launches and optimisation levels, and
beside a load that uses nothing of tegrascope. Of each pair whose latency differs enough to be
explained, the first cause that ``tegrascope compare`` names has to be one that was planted. Of two
equal benches none may be named.

Needs an NVIDIA GPU, TensorRT, cuda-python and nvidia-ml-py. It takes ten minutes:

    python -m tools.benchmarks.compare_truth --state /tmp/state
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .plain_tensorrt import Plan, Slot

PLAIN = {"--precision": "fp16", "--batch": "1", "--optimization-level": "0"}
# A bench of this name runs beside the load.
CONTENDED = frozenset({"contended", "eight contended"})
BENCHES: dict[str, dict[str, str | None]] = {
    "plain": {},
    "no graph": {"--no-cuda-graph": None},
    "copies stay": {"--no-transfers": None},
    "contended": {},
    "eight": {"--batch": "8"},
    "eight no graph": {"--batch": "8", "--no-cuda-graph": None},
    "eight copies stay": {"--batch": "8", "--no-transfers": None},
    "eight contended": {"--batch": "8"},
    "int8": {"--precision": "int8"},
    "plain again": {},
    "level 2": {"--optimization-level": "2"},
    "int8 no graph": {"--precision": "int8", "--no-cuda-graph": None},
    "int8 copies stay": {"--precision": "int8", "--no-transfers": None},
    "eight int8": {"--batch": "8", "--precision": "int8"},
    "eight again": {"--batch": "8"},
    "fp32": {"--precision": "fp32"},
    "level 1": {"--optimization-level": "1"},
}
PAIRS: tuple[tuple[str, str, frozenset[str]], ...] = tuple(
    (one, other, frozenset(causes.split()))
    for one, other, causes in (
        ("plain", "int8", "precision"),
        ("plain again", "int8", "precision"),
        ("plain", "fp32", "precision"),
        ("no graph", "int8 no graph", "precision"),
        ("copies stay", "int8 copies stay", "precision"),
        ("eight", "eight int8", "precision"),
        ("plain", "eight", "batch"),
        ("int8", "eight int8", "batch"),
        ("no graph", "eight no graph", "batch"),
        ("copies stay", "eight copies stay", "batch"),
        ("contended", "eight contended", "batch"),
        ("plain", "no graph", "cuda_graph"),
        ("plain again", "no graph", "cuda_graph"),
        ("eight", "eight no graph", "cuda_graph"),
        ("int8", "int8 no graph", "cuda_graph"),
        ("plain", "copies stay", "transfers"),
        ("plain again", "copies stay", "transfers"),
        ("eight", "eight copies stay", "transfers"),
        ("eight again", "eight copies stay", "transfers"),
        ("int8", "int8 copies stay", "transfers"),
        ("plain", "level 2", "optimization_level"),
        ("plain again", "level 2", "optimization_level"),
        ("plain", "level 1", "optimization_level"),
        ("level 1", "plain again", "optimization_level"),
        ("level 1", "level 2", "optimization_level"),
        ("plain", "contended", "contention"),
        ("plain again", "contended", "contention"),
        ("eight", "eight contended", "contention"),
        ("eight again", "eight contended", "contention"),
        ("level 2", "no graph", "optimization_level cuda_graph"),
        ("copies stay", "no graph", "transfers cuda_graph"),
        ("copies stay", "contended", "transfers contention"),
        ("plain", "plain again", ""),
        ("eight", "eight again", ""),
    )
)
LEAST_RIGHT = 0.9
# The load is there before a bench looks at what else is running.
LOAD_SECONDS = 6.0


def main() -> int:
    """Return 1 if too few pairs are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="where engines are kept")
    parser.add_argument("--model", default="builtin:resnet50")
    parser.add_argument("--causes", nargs="+", help="only pairs with one of these, and equal ones")
    parser.add_argument("--load", type=Path, help="only run this plan until killed")
    options = parser.parse_args()
    if options.load is not None:
        return run_load(options.load)
    chosen = set(options.causes or frozenset().union(*(causes for _, _, causes in PAIRS)))
    pairs = [pair for pair in PAIRS if not pair[2] or pair[2] & chosen]
    for name in BENCHES:
        if any(name in pair[:2] for pair in pairs):
            bench(name, options.model, options.state)
    verdicts = [judge(options.state, *pair) for pair in pairs]
    counted = [verdict for verdict in verdicts if verdict is not None]
    print(f"{sum(counted)} of {len(counted)} pairs right, {verdicts.count(None)} do not differ")
    return int(sum(counted) < LEAST_RIGHT * len(counted))


def run_load(plan: Path) -> int:
    """Infer back to back without end."""
    slot = Slot(Plan(plan))
    while True:
        slot.start()
        slot.wait()


def bench(name: str, model: str, state: Path) -> None:
    """Measure one of the benches, unless its result is there."""
    directory = state / "pairs" / name.replace(" ", "-")
    if (directory / "result.json").exists():
        return
    arguments = [model, "--on", "gpu", "--telemetry", "nvml", "--state-dir", str(state)]
    times = {"--duration": "2", "--baseline": "0.5", "--warm-up": "0.3", "--rounds": "2"}
    settings = {**PLAIN, **times, **BENCHES[name], "-o": str(directory)}
    for key, value in settings.items():
        arguments += [key] if value is None else [key, value]
    load = None
    if name in CONTENDED:
        # The largest engine there is, so that the GPU is busy most of the time.
        plan = max((state / "engines").glob("*.plan"), key=lambda path: path.stat().st_size)
        command = (sys.executable, "-m", __spec__.name, "--state", str(state), "--load", str(plan))
        load = subprocess.Popen(command)
        time.sleep(LOAD_SECONDS)
    begin = time.monotonic()
    try:
        subprocess.run([sys.executable, "-m", "tegrascope", "bench", *arguments], check=False)
    finally:
        if load is not None:
            load.kill()
            load.wait()
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


def judge(state: Path, one: str, other: str, planted: frozenset[str]) -> bool | None:
    """Print what compare says of a pair; return whether it is right, ``None`` if it is too small.

    A planted difference that does not show in the latency has no cause to be named.
    """
    directories = [str(state / "pairs" / name.replace(" ", "-")) for name in (one, other)]
    command = (sys.executable, "-m", "tegrascope", "compare", *directories, "--json")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        print(f"{one} / {other}: {answer.stderr.strip()}")
        return False
    latency: dict[str, Any] = next(
        figure
        for figure in json.loads(answer.stdout)["pairs"][0]["figures"]
        if figure["figure"] == "latency"
    )
    causes = [cause["name"] for cause in latency["causes"]]
    milliseconds = [1e3 * latency[side]["value"] for side in "ab"]
    words = f"{milliseconds[0]:.4f} and {milliseconds[1]:.4f} ms, {latency['verdict']}"
    print(f"{one} / {other}: {words}; planted {sorted(planted)}, named {causes}")
    if not planted:
        return not causes
    if not causes and not latency["is_unexplained"]:
        return None
    return bool(causes) and causes[0] in planted


if __name__ == "__main__":
    sys.exit(main())

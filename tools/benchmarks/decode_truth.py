"""Joules per token of a decoder in PyTorch, held against the GPU's own energy counter.

``tegrascope exec`` measures a program that decodes tokens and prints how many. The energy of its
window is read here from NVML's counter, with nothing of tegrascope, and divided by the tokens that
the program noted in a file. Each figure has to be within 3 % of that.

Needs an NVIDIA GPU and nvidia-ml-py, and another Python with PyTorch, which may be the same one:

    python -m tools.benchmarks.decode_truth --state /tmp/state --python python3
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from .plain_tensorrt import Counter

# Sequences at once, and seconds of decoding.
RUNS = ((1, 12.0), (8, 12.0), (64, 12.0), (8, 30.0))
ACCEPTED = 0.03
# What PyTorch runs: a decoder of 24 layers with random weights, its keys and values kept, one token
# of each sequence per step. The arguments are sequences, seconds and the file for the count.
PROGRAM = """
import sys, time, torch
from torch.nn.functional import scaled_dot_product_attention as attend
count, seconds, path = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
width, heads, layers, words, most = 1024, 16, 24, 32000, 512
torch.manual_seed(0)
def matrix(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16) * 0.02
embedding = matrix(words, width)
weights = [[matrix(width, n * width) for n in (3, 1, 4)] + [matrix(4 * width, width)]
           for _ in range(layers)]
kept = torch.zeros(layers, 2, count, heads, most, width // heads, device="cuda",
                   dtype=torch.float16)
norm = torch.nn.functional.layer_norm
def step(token, at):
    x = embedding[token]
    for number, (qkv, out, up, down) in enumerate(weights):
        q, k, v = (norm(x, (width,)) @ qkv).view(count, 3, heads, 1, -1).unbind(1)
        kept[number, 0, :, :, at : at + 1] = k
        kept[number, 1, :, :, at : at + 1] = v
        seen = kept[number, :, :, :, : at + 1]
        x = x + attend(q, seen[0], seen[1]).reshape(count, width) @ out
        x = x + torch.relu(norm(x, (width,)) @ up) @ down
    return (norm(x, (width,)) @ embedding.T).argmax(-1)
made, token, until = 0, torch.zeros(count, dtype=torch.long, device="cuda"), None
with torch.inference_mode():
    while until is None or time.monotonic() < until:
        for at in range(most):
            token = step(token, at)
            until = until or time.monotonic() + seconds
        torch.cuda.synchronize()
        made += most * count
        print(f"TEGRASCOPE tokens={most * count}", flush=True)
with open(path, "w") as file:
    file.write(str(made))
"""


def main() -> int:
    """Return 1 if a figure is not within what is accepted, or if there is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="for the program and reports")
    parser.add_argument("--python", default=sys.executable, help="one that has PyTorch")
    options = parser.parse_args()
    state: Path = options.state.absolute()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    program = state / "decode.py"
    program.write_text(PROGRAM)
    counter = Counter()
    worst = 0.0
    for number, (sequences, seconds) in enumerate(RUNS):
        report, noted = state / f"{number}.json", state / f"{number}.count"
        own = (sys.executable, "-m", "tegrascope", "exec", "--workload", "decoder", "--device")
        how = ("gpu", "--unit", "token", "--telemetry", "nvml", "--json", str(report))
        # The libraries of this Python may not fit that one.
        clean = ("env", "-u", "PYTHONPATH", "-u", "PYTHONHOME", "-u", "LD_LIBRARY_PATH")
        decode = (*clean, options.python, str(program), str(sequences), str(seconds), str(noted))
        where = ("--state-dir", str(state / "runs"))
        subprocess.run([*own, *how, *where, "--", *decode], check=True, stdout=subprocess.DEVNULL)
        time.sleep(0.5)  # the step of the counter after the end
        found = json.loads(report.read_text())
        window = found["phases"]["steady"]
        begin, end = window["begin_ns"] / 1e9, window["end_ns"] / 1e9
        tokens = int(noted.read_text())
        truth = counter.joules(begin, end) / tokens
        energy = found["energy"] or {}
        figure, interval = energy.get("joules_per_unit"), energy.get("joules_per_unit_interval")
        if figure is None:
            print(f"{sequences} sequences: withheld, {found['quality']}")
            worst = 1.0
            continue
        error = figure / truth - 1
        worst = max(worst, abs(error), float(found["units"] != tokens))
        held = interval is not None and interval["low"] <= truth <= interval["high"]
        print(
            f"{sequences} sequences, {end - begin:.1f} s, {tokens} tokens (report:"
            f" {found['units']:.0f}): {figure:.6g} J per token, counter {truth:.6g},"
            f" {error:+.2%}, interval {interval} {'holds' if held else 'does not hold'}",
            flush=True,
        )
    print(f"largest error {worst:.2%}")
    return int(worst > ACCEPTED)


if __name__ == "__main__":
    sys.exit(main())

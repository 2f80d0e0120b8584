"""Does it fit? The answer before a run against its fate under a limit of its control group.

``python -m tests.truth.fits --cases 100``, as root: random networks of seven families, each run
once without a limit to learn the need of worker and parent, then under a limit of 0.5 to 2 times
that, drawn evenly by its logarithm. What ends well fits; what is killed or fails does not. No
answer is a wrong one.
"""

import argparse
import contextlib
import json
import math
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .networks import make_network

MIB = 1 << 20
_JOIN = 'echo $$ > "$0" && exec "$@"'
_ANSWER = re.compile(r"takes [a-z ]+ (\d+) MiB of memory; (\d+) MiB are free: .* (remain|missing)$")


@dataclass(frozen=True)
class Fate:
    """How a run under a limit ended, and what was said before; sizes in MiB."""

    family: str
    need: float
    limit: float
    answer: str
    fits: bool

    @property
    def is_right(self) -> bool:
        """Whether the answer was given and came true."""
        match = _ANSWER.search(self.answer)
        return match is not None and (match[3] == "remain") == self.fits


def memory_group() -> Path | None:
    """Return the control group of this process that limits memory, of version 1 or 2, if any."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, where = line.split(":", 2)
        top = Path("/sys/fs/cgroup")
        if "memory" in controllers.split(","):
            top /= "memory"
        elif controllers or not (top / "cgroup.controllers").is_file():
            continue
        return top / where.lstrip("/")
    return None


@contextlib.contextmanager
def limited_group(limit: int) -> Iterator[tuple[str, ...]]:
    """Make a control group below our own with a limit in bytes, and remove it.

    Yields the beginning of a command that runs in it.

    Raises:
        OSError: There is no group that limits memory, or this user may not make one.
    """
    parent = memory_group()
    if parent is None:
        raise OSError("no control group limits memory here")
    group = parent / f"tegrascope-fits-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        file = group / "memory.limit_in_bytes"
        if not file.is_file():
            file = group / "memory.max"
        file.write_text(str(limit))
        yield "/bin/sh", "-c", _JOIN, str(group / "cgroup.procs")
    finally:
        for _ in range(100):  # until the kernel has seen the end of the last process
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.02)


def run_model(model: Path, batch: int, join: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a model in the product's worker below a parent; return its end and what was told."""
    program = str(Path(__file__).with_name("one_run.py"))
    command = [*join, sys.executable, program, str(model), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = done.stdout.splitlines()
    found = {"outcome": f"parent ended with {done.returncode}"}
    with contextlib.suppress(IndexError, ValueError):
        found = json.loads(lines[-1])
    told = [line for line in lines if _ANSWER.search(line)]
    return found | {"told": told}


def try_network(seed: int, number: int, directory: Path) -> Fate:
    """Draw a network and a limit, ask and run."""
    model = directory / f"{number}.onnx"
    family, batch = make_network((seed, number), model)
    free = run_model(model, batch)
    assert free["outcome"] == "ok", free
    need = free["worker"] + free["own"]
    factor = math.exp(np.random.default_rng((seed, number, 1)).uniform(-math.log(2), math.log(2)))
    with limited_group(int(need * factor * MIB)) as join:
        found = run_model(model, batch, join)
    model.unlink()
    told = " ".join(found["told"])
    return Fate(family, need, need * factor, told, found["outcome"] == "ok")


def main() -> None:
    """Print each case, then how many answers were right."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    right: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        for number in range(arguments.cases):
            fate = try_network(arguments.seed, number, Path(directory))
            tried[fate.family] += 1
            right[fate.family] += fate.is_right
            end = "fits" if fate.fits else "does not"
            word = "right" if fate.is_right else "WRONG"
            print(
                f"{number:3} {fate.family:9} need {fate.need:5.0f} MiB, limit {fate.limit:5.0f}:"
                f" {fate.answer or 'no answer'}; {end}: {word}",
                flush=True,
            )
    for family, count in sorted(tried.items()):
        print(f"{family}: {right[family]} of {count}")
    print(f"right: {right.total()} of {tried.total()}")


if __name__ == "__main__":
    main()

"""What a look at the processes costs the daemon: ``python -m tests.bench.processes``."""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from tegrascope.collectors.processes.names import ProcessNames
from tegrascope.collectors.processes.watch import PERIOD_SECONDS, ProcessWatch
from tegrascope.parsers.signals import OWN_PROCESS

from .rounds import Contender, play, ratio

COUNT, ROUNDS = 300, 20
# Runs of 15 s with idle phases of 8 s, back to back: a look at both edges of each.
LOOKS_PER_SECOND = 1 / PERIOD_SECONDS + 2 / 31
MOST_SHARE = 0.005


def main() -> int:
    """Start idle processes, look at all processes in turns with a plain read, and judge."""
    children = [subprocess.Popen(["sleep", "3600"]) for _ in range(COUNT)]
    try:
        watch = ProcessWatch(top=10, known=ProcessNames())
        begin = time.process_time()
        watch.look()
        first = time.process_time() - begin

        def look() -> int:
            return next(one.processes for one in watch.look() if one.name == OWN_PROCESS)

        ours = {child.pid for child in children}

        def read() -> int:
            paths = ((pid, Path(f"/proc/{pid}/stat")) for pid in psutil.pids())
            texts = {pid: path.read_text() for pid, path in paths if path.exists()}
            return len(ours & texts.keys())

        looks = Contender("a look", look, COUNT, COUNT + 1)
        floor = Contender("a plain read of /proc/PID/stat", read, COUNT, COUNT)
        play([looks, floor], ROUNDS)
        total = len(psutil.pids())
    finally:
        for child in children:
            child.kill()
            child.wait()
    each = sorted(looks.cpu)[ROUNDS // 2]
    share = each * LOOKS_PER_SECOND
    times = ratio(floor, looks)
    print(
        f"{total} processes: {each * 1e3:.1f} ms of processor time, the first {first * 1e3:.0f} ms"
    )
    print(f"{times.middle:.1f} times a plain read ({times.least:.1f} to {times.most:.1f})")
    good = share <= MOST_SHARE
    words = f"{share:.2%} of a core at {LOOKS_PER_SECOND:.2f} looks per second"
    print(f"{'good' if good else 'MISSED'} {words}, at most {MOST_SHARE:.1%}")
    return not good


if __name__ == "__main__":
    sys.exit(main())

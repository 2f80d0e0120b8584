"""What marking an inference costs: ``python -m tests.bench.window_cost``."""

import sys
import threading
import time
from collections.abc import Callable

import tegrascope

ROUNDS, MARKS = 7, 100_000


def microseconds(mark: Callable[[], object]) -> float:
    """Return the best of some rounds, for one ``with`` block."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(MARKS):
            with mark():
                pass
        best = min(best, time.perf_counter() - begin)
    return best / MARKS * 1e6


def main() -> int:
    """Print a line for each way to mark."""
    marks = tegrascope.window("bench", url="http://127.0.0.1:9")
    empty = microseconds(threading.RLock)
    with marks:
        for name, mark in (
            ("inference", marks.inference),
            ("stage", lambda: marks.stage("pre")),
        ):
            print(f"{name:10} {microseconds(mark):5.2f} µs")
    print(f"{'a lock':10} {empty:5.2f} µs, for comparison")
    return 0


if __name__ == "__main__":
    sys.exit(main())

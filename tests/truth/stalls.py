"""Real stalls of a real worker: ``python -m tests.truth.stalls``, as root, from the checkout.

A worker infers with a model that is mapped from a file. Meanwhile it is stopped, its pages are
taken away, or it shares one core with other programs. Prints, for each stall, the cause that the
report gives to the longest miss in it. The exit status is 1 if fewer than 18 of 20 are right.
"""

import argparse
import ctypes
import mmap
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy

from tegrascope.collectors.backends.base import Inferring
from tegrascope.collectors.worker import child
from tegrascope.daemon.measure.correlate import correlate
from tegrascope.daemon.measure.report import Miss
from tegrascope.daemon.measure.trace import RunTrace
from tegrascope.daemon.session.executor import Executor
from tegrascope.parsers.inference.events import Order

PLANTED, REQUIRED, OF_A_RUN = 20, 18, 2
DEADLINE_SECONDS = 0.04
MODEL_BYTES = 96 << 20
PAGE = 4096
# process_madvise(2) and its advice, which the C library may not have yet.
PROCESS_MADVISE, MADV_PAGEOUT = 440, 21


class MappedModel(Inferring):
    """Reads its model once, computes on one core, and waits as for a device: some 15 ms."""

    def load(self, model, order):
        """Map the file."""
        self.check_device(order)
        with model.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._pages = numpy.frombuffer(pages, numpy.uint8)[::PAGE]
        self._matrix = numpy.ones((64, 64))

    def infer(self):
        """Run one inference."""
        int(self._pages.sum())
        until = time.thread_time_ns() + 5_000_000
        while time.thread_time_ns() < until:
            self._matrix @ self._matrix
        time.sleep(0.008)


class IoVec(ctypes.Structure):
    """A range of memory in another process."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def page_out(pid: int, path: Path) -> None:
    """Take the pages of a mapped file away from a process, as memory pressure does."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    (span,) = (line.split()[0] for line in maps if line.endswith(str(path)))
    begin, end = (int(part, 16) for part in span.split("-"))
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        # One call advises 2 MiB or less on some kernels, and says how much it did.
        while begin < end:
            vector = IoVec(begin, end - begin)
            done = libc.syscall(PROCESS_MADVISE, pidfd, ctypes.byref(vector), 1, MADV_PAGEOUT, 0)
            if done <= 0:
                raise OSError(ctypes.get_errno(), "process_madvise: this needs root")
            begin += done
    finally:
        os.close(pidfd)


def prefer(pid: int) -> None:
    """Let a process go before all that others do on this machine, which nobody planted."""
    autogroup = Path(f"/proc/{pid}/autogroup")
    if autogroup.exists():
        autogroup.write_text("-20")
    for one in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(one.name), -20)


def stop(pid: int, _path: Path, rng: random.Random) -> None:
    """Stop the process for a while."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(rng.uniform(0.04, 0.2))
    os.kill(pid, signal.SIGCONT)


def take_pages(pid: int, path: Path, _rng: random.Random) -> None:
    """Take the pages of the model away."""
    page_out(pid, path)


# A line is a quarter of a second of work.
SPIN = """import sys, time
for _ in sys.stdin:
    until = time.monotonic() + 0.25
    while time.monotonic() < until: pass
"""


def take_cores(pid: int, _path: Path, rng: random.Random) -> None:
    """Leave one core to the process, on which other programs work too."""
    threads = [int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()]
    cores = os.sched_getaffinity(pid)
    core = {rng.choice(sorted(cores))}
    for one in (*(other.pid for other in OTHERS), *threads):
        os.sched_setaffinity(one, core)
    for other in OTHERS:
        other.stdin.write(b"\n")
        other.stdin.flush()
    time.sleep(0.3)
    for one in threads:
        os.sched_setaffinity(one, cores)


OTHERS: list[subprocess.Popen[bytes]] = []


STALLS: dict[str, Callable[[int, Path, random.Random], None]] = {
    "stopped": stop,
    "page_faults": take_pages,
    "waited_for_cpu": take_cores,
}


@contextmanager
def worker() -> Iterator[Executor]:
    """Yield an executor whose worker knows the mapped model."""
    executor = Executor("cpu", argv=(sys.executable, "-m", "tests.truth.stalls", "--worker"))
    command = (sys.executable, "-S", "-c", SPIN)
    OTHERS.extend(
        subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) for _ in range(12)
    )
    for other in OTHERS:
        prefer(other.pid)
    try:
        yield executor
    finally:
        executor.close()
        for other in OTHERS:
            other.kill()
            other.communicate()


def run(executor: Executor, model: Path, seconds: float, deadline: float | None, stalls=()):
    """Run the model while each of ``stalls`` is planted; return its trace and their times."""
    trace = RunTrace("r", "mapped", "mapped", "cpu", 0, 0, deadline_seconds=deadline)
    order = Order(
        run_id="r",
        backend="mapped",
        device="cpu",
        model=str(model),
        model_directory=".",
        duration_seconds=seconds,
        deadline_seconds=deadline,
        warm_up_seconds=0.1,
    )
    planted: list[tuple[str, int, int]] = []
    begun = threading.Event()

    def take(event):
        trace.add(event)
        if "steady" in trace.begins:
            begun.set()

    def plant():
        begun.wait()
        prefer(executor.pid)
        for kind, pause, act in stalls:
            time.sleep(pause)
            at = time.monotonic_ns()
            act(executor.pid)
            planted.append((kind, at, time.monotonic_ns()))

    thread = threading.Thread(target=plant)
    thread.start()
    finished = executor.run(order, 120, take)
    begun.set()
    thread.join()
    assert finished.outcome == "ok", finished
    return trace, planted


def judge(found: list[Miss], begin_ns: int, end_ns: int) -> Miss | None:
    """Return the longest miss that overlaps a stall, or follows it at once."""
    in_it = [
        one
        for one in found
        if one.start_ns < end_ns + 20_000_000
        and one.start_ns + one.latency_seconds * 1e9 > begin_ns
    ]
    return max(in_it, key=lambda one: one.latency_seconds, default=None)


def cost(executor: Executor, model: Path) -> None:
    """Print the median latency with and without a deadline, in turn."""
    medians: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(4):
        for has_deadline, found in medians.items():
            trace, _ = run(executor, model, 4, DEADLINE_SECONDS if has_deadline else None)
            found.append(median(trace.latency_ns) / 1e6)
    for has_deadline, found in medians.items():
        name = "with a deadline" if has_deadline else "without"
        print(f"median latency {name}: {' '.join(f'{one:.3f}' for one in found)} ms")


def main() -> int:
    """Plant stalls until so many are judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--cost", action="store_true", help="print what a deadline costs instead")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    right, judged, without, misses = Counter(), Counter(), 0, 0
    with tempfile.TemporaryDirectory(dir=".") as directory, worker() as executor:
        model = Path(directory).resolve() / "model.bin"
        model.write_bytes(rng.randbytes(1 << 20) * (MODEL_BYTES >> 20))
        os.sync()
        if arguments.cost:
            cost(executor, model)
            return 0
        print(f"seed {arguments.seed}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        queue = list(islice(cycle(STALLS), PLANTED))
        rng.shuffle(queue)
        while queue:
            kinds, queue = queue[:OF_A_RUN], queue[OF_A_RUN:]
            stalls = [
                (kind, rng.uniform(0.5, 1.2), lambda pid, act=STALLS[kind]: act(pid, model, rng))
                for kind in kinds
            ]
            trace, planted = run(executor, model, 4, DEADLINE_SECONDS, stalls)
            report = correlate(trace, None).deadline
            assert report is not None
            left = list(report.last)
            for kind, begin_ns, end_ns in planted:
                miss = judge(left, begin_ns, end_ns)
                if miss is None:  # planted again
                    without += 1
                    queue.append(kind)
                else:
                    judged[kind] += 1
                    right[kind] += miss.cause == kind
                    found = ", ".join(
                        f"{one.cause} {one.weight:.2f} {one.detail or ''}".strip()
                        for one in miss.evidence
                    )
                    took = miss.latency_seconds * 1e3
                    print(f"{kind:15} {took:6.1f} ms  {found or 'unknown'}", flush=True)
                left = [one for one in left if one.start_ns > end_ns]
            misses += report.misses
    print(f"{right.total()} of {judged.total()} right: {dict(right)} of {dict(judged)};")
    print(
        f"{without} more stalls had no miss among the last 20 of their run; {misses} misses in all"
    )
    return int(right.total() < REQUIRED)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        sys.exit(child.main(sys.argv[2:], {"mapped": "tests.truth.stalls:MappedModel"}))
    sys.exit(main())

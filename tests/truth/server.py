"""Joules per token of a served model against a known truth: ``python -m tests.truth.server``.

A server with a real decoder notes when it computes each token. The stand-in for tegrastats prints
idle power with its wander, and more while a token is computed. It reads power at planned moments,
whenever the system lets it run, over the conversion time of a sensor. So the energy of any window
is exact. Real daemons measure it in both ways: half of them by ``server:``, which sends the
prompts, half by ``scrape:``, while random requests come from here. Each interval of the joules per
token must contain the truth. 50 windows of 12.5 s with each of four daemons take thirteen minutes.
"""

import argparse
import json
import secrets
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .board import ORIN_NX, READ_SECONDS, Heat, Idle, Power
from .live import NANOSECONDS

BUSY_WATTS, STEP_SECONDS = 12.0, 0.004
# The sensor of a Jetson's rails averages one conversion, by default 1.1 ms (configuration register
# of the INA3221, https://www.ti.com/lit/ds/symlink/ina3221.pdf).
CONVERSION_NS, AGE_SECONDS = 1_100_000, 0.01
NOTED, FAR_NS = 1024, 1 << 62
LEAST_RIGHT = 0.93
KINDS = ("server", "scrape", "server of two streams", "scrape of whole requests")


def idle_board(seed: int, seconds: float) -> Power:
    """Return the board without the work of the server."""
    return Power(ORIN_NX, seconds, [], Idle(), Heat(), np.random.default_rng(seed))


class Notes:
    """Begin and end of the last tokens, shared with the process that prints the board."""

    def __init__(self, path: Path, is_new: bool) -> None:
        mode = "w+" if is_new else "r"
        self._times = np.memmap(path, np.int64, mode, shape=(NOTED, 2))
        if is_new:
            self._times[:] = FAR_NS
        self._count = 0

    def add(self, begin_ns: int, end_ns: int | None) -> None:
        """Note that a token began, or that it ended."""
        row = self._times[self._count % NOTED]
        if end_ns is None:
            row[0] = row[1] = FAR_NS
            row[0] = begin_ns
        else:
            row[1] = end_ns
            self._count += 1

    def busy_ratio(self, begin_ns: int, end_ns: int) -> float:
        """Return the share of a recent time in which a token was computed."""
        inside = np.clip(np.array(self._times), begin_ns, end_ns)
        return float((inside[:, 1] - inside[:, 0]).sum()) / (end_ns - begin_ns)


def print_board(path: Path, power: Power, origin_ns: int, interval: float) -> None:
    """Print lines as tegrastats does; each reading is a bit older than its line."""
    random, notes = np.random.default_rng(), Notes(path, is_new=False)
    step = ORIN_NX.rails[0].step_watts
    at_ns = time.monotonic_ns()
    while (at := (at_ns - origin_ns) / NANOSECONDS) < power.seconds - 1:
        due_ns = at_ns + AGE_SECONDS * NANOSECONDS
        time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / NANOSECONDS))
        watts = power.at(0, np.array([at]))[0]
        watts += BUSY_WATTS * notes.busy_ratio(at_ns - CONVERSION_NS, at_ns)
        shown = np.round(watts / step) * step * 1e3
        names = ("VDD_IN", *ORIN_NX.contained)
        rails = " ".join(f"{name} {shown:.0f}mW/{shown:.0f}mW" for name in names)
        stamp = time.strftime("%m-%d-%Y %H:%M:%S")
        print(f"{stamp} RAM 1000/7607MB (lfb 1x4MB) GR3D_FREQ 50% {rails}", flush=True)
        at_ns += round((interval + random.uniform(*READ_SECONDS)) * NANOSECONDS)


def send_requests(url: str, over: threading.Event, seed: int) -> None:
    """Send requests of random lengths with short pauses, as users do."""
    random = np.random.default_rng(seed)
    while not over.wait(random.exponential(0.02)):
        body = {"model": "small", "max_tokens": int(random.integers(20, 160))}
        request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()


def overlap(steps: Any, begin_ns: int, end_ns: int) -> tuple[float, float]:
    """Return seconds of work, and tokens, between two times; a token in progress is a part."""
    inside = np.clip(steps, begin_ns, end_ns)
    worked = inside[:, 1] - inside[:, 0]
    return float(worked.sum()) / NANOSECONDS, float((worked / (steps[:, 1] - steps[:, 0])).sum())


def measure(folder: Path, kind: str, seed: int, count: int, seconds: float) -> list[Any]:
    """Return pairs of the true joules per token and the daemon's report, one per window."""
    from ..daemons import Daemon
    from ..fakes.llm_server import LlmServer

    whole = 60 + count * (seconds + 6.0)
    power, origin_ns = idle_board(seed, whole), time.monotonic_ns()
    flag = folder / "steps"
    notes = Notes(flag, is_new=True)
    program = [sys.executable, "-m", "tests.truth.server", "--print", str(flag), str(origin_ns)]
    program += [str(seed), str(whole)]
    wrapper = folder / "tegrastats"
    root = Path(__file__).resolve().parents[2]
    wrapper.write_text(f'#!/bin/sh\ncd "{root}"\nexec {" ".join(program)} "$@"\n')
    wrapper.chmod(0o755)
    with LlmServer(STEP_SECONDS, kind.endswith("requests"), notes.add) as server:
        asked = f"scrape: {{url: '{server.url}/metrics'}}"
        if kind.startswith("server"):
            streams = 2 if kind.endswith("streams") else 1
            asked = f"server: {{url: '{server.url}/v1', model: small, max_tokens: 97}}"
            asked += f"\n  streams: {streams}\n  baseline: 0s\n  warm_up: 0.2s"
        config = folder / "tegrascope.yaml"
        config.write_text(
            "telemetry: {source: tegrastats, interval: 103ms, sysfs: false,"
            f" tegrastats: {{command: {wrapper}}}}}\n"
            f"workloads:\n- name: truth\n  duration: {seconds}s\n  {asked}\n"
        )
        over = threading.Event()
        traffic = [
            threading.Thread(target=send_requests, args=(server.url, over, seed + n))
            for n in range(2)
        ]
        for one in traffic if kind.startswith("scrape") else ():
            one.start()
        state = folder / "state"
        state.mkdir()
        daemon = Daemon(config, state)
        try:
            time.sleep(4.0)
            return [one_window(daemon, state, server, power, origin_ns) for _ in range(count)]
        finally:
            over.set()
            daemon.stop()


def one_window(
    daemon: Any, state: Path, server: Any, power: Power, origin_ns: int
) -> tuple[float, Any]:
    """Measure once; return the true joules per token and the report."""
    request = urllib.request.Request(
        daemon.url + "api/v1/runs",
        data=b'{"workload": "truth"}',
        headers={"Authorization": f"Bearer {(state / 'token').read_text().strip()}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        run_id = json.load(answer)["run_id"]

    def report() -> Any:
        document = daemon.json(f"api/v1/runs/{run_id}")
        found = document.get("run", document)
        return found if found.get("ended_ns") and "quality" in found else None

    found = daemon.wait_for(report, 120.0)
    steady = found["phases"].get("steady")
    if steady is None:
        return float("nan"), found
    begin_ns, end_ns = steady["begin_ns"], steady["end_ns"]
    steps = np.array(list(server.steps_ns), dtype=np.int64)
    worked, tokens = overlap(steps, begin_ns, end_ns)
    begin, end = ((at - origin_ns) / NANOSECONDS for at in (begin_ns, end_ns))
    return (power.gross(begin, end) + BUSY_WATTS * worked) / tokens, found


def judge(kind: str, found: Sequence[tuple[float, Any]]) -> bool:
    """Print each window of one kind; return whether enough are right."""
    right = withheld = 0
    offs, widths = [], []
    for truth, report in found:
        energy = report.get("energy") or {}
        interval = energy.get("joules_per_unit_interval")
        if interval is None:
            withheld += 1
            print(f"  {truth:.5f} J  withheld  {report.get('reason')} {report['quality']}")
            continue
        low, high = interval["low"], interval["high"]
        offs.append(abs(truth - (low + high) / 2) / ((high - low) / 2))
        widths.append((high - low) / 2 / energy["joules_per_unit"])
        right += low <= truth <= high
        word = "right" if low <= truth <= high else "WRONG"
        print(f"  {truth:.5f} J  {energy['joules_per_unit']:.5f} ({low:.5f} to {high:.5f})  {word}")
    shown = len(found) - withheld
    print(
        f"{kind}: {right} of {shown} right, {withheld} withheld; half the interval is"
        f" {100 * float(np.median(widths or [np.nan])):.2f} % in the middle, the farthest"
        f" {max(offs, default=float('nan')):.2f} halves"
    )
    return shown > 0 and right >= LEAST_RIGHT * shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemons; the exit status is 1 if too few windows of a kind are right."""
    parser = argparse.ArgumentParser(prog="tests.truth.server", description=__doc__)
    parser.add_argument("--windows", type=int, default=50, help="of each of the four kinds")
    parser.add_argument("--seconds", type=float, default=12.5, help="length of a window")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seed", type=int, help="default: drawn now")
    parser.add_argument("--print", nargs=4, help=argparse.SUPPRESS)
    given, _ = parser.parse_known_args(arguments)
    if given.print is not None:
        path, origin_ns, seed, whole = given.print
        try:
            power = idle_board(int(seed), float(whole))
            print_board(Path(path), power, int(origin_ns), 0.103)
        except BrokenPipeError:
            pass
        return 0
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.windows} windows of each kind", flush=True)
    found: dict[str, list[Any]] = {}

    def run(number: int, kind: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found[kind] = measure(Path(folder), kind, seed + number, given.windows, given.seconds)

    threads = [threading.Thread(target=run, args=one) for one in enumerate(given.kinds)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [kind in found and judge(kind, found[kind]) for kind in given.kinds]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())

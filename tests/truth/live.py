"""The real daemon with the ground truth as its tegrastats: ``python -m tests.truth.live``.

A program prints the lines of a world in real time and writes the files of its sensor. Windows of
known work are posted to the daemon as an application posts them, with a begin and an end. Each
window must contain the true gross energy in its interval. ``--one-series`` is without the files.
Windows of one daemon cannot overlap, so 50 windows of 12 s take 13 minutes with one daemon;
``--daemons 4`` shares them among four, each with a board of its own, in four minutes. ``--beside``
adds a job that nobody marks, and ``--busy 2`` keeps two cores busy meanwhile.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .board import ORIN_NX, READ_SECONDS, Heat, Idle, Load, Power, Random
from .regimes import back_to_back, timed

FIRST_SECONDS, PAUSE_SECONDS = 4.0, 3.0
SENSOR_SECONDS, SENSOR_MILLIVOLTS = 0.005, 5000
RIGHT_SHARE, FARTHEST_HALVES = 0.9, 2.0
BESIDE_PERIOD, BESIDE_SECONDS, BESIDE_WATTS = 1.0, 0.25, 10.0
NANOSECONDS = 1_000_000_000


def make_world(
    seed: int, count: int, seconds: float, *, beside: bool = False
) -> tuple[Power, list[Load]]:
    """Return a board and its windows: constant work, a ramp, 20 inferences per second, in turn.

    ``beside``: a job draws 10 W for a quarter of each second all the time, and is in no window.
    """
    random = np.random.default_rng(seed)
    loads = []
    for number in range(count):
        begin = FIRST_SECONDS + number * (seconds + PAUSE_SECONDS) + random.uniform(0, 0.2)
        end = begin + seconds
        if number % 3 == 0:
            loads.append(back_to_back(random, begin, end))
        elif number % 3 == 1:
            loads.append(back_to_back(random, begin, end, (3.0, 7.0)))
        else:
            loads.append(timed(random, begin, end, 0.05, 0.03))
    whole = FIRST_SECONDS + count * (seconds + PAUSE_SECONDS) + 30.0
    power = [*loads]
    if beside:
        first = random.uniform(0, BESIDE_PERIOD)
        job = timed(random, first, whole, BESIDE_PERIOD, BESIDE_SECONDS, spread=0.0)
        power.append(replace(job, watts=(BESIDE_WATTS,) * 2))
    return Power(ORIN_NX, whole, power, Idle(), Heat(), random), loads


def write_sensor(power: Power, origin_ns: int, sensor: Path) -> None:
    """Write voltage and current of the board's rail as a driver shows them, until it has ended."""
    (sensor / "name").write_text("ina3221\n")
    (sensor / "in1_label").write_text("VDD_IN\n")
    (sensor / "in1_input").write_text(f"{SENSOR_MILLIVOLTS}\n")
    current = os.open(sensor / "curr1_input", os.O_WRONLY | os.O_CREAT)
    step = ORIN_NX.rails[0].step_watts
    while True:
        now = (time.monotonic_ns() - origin_ns) / NANOSECONDS
        if now > power.seconds - 1:
            return
        watts = float(np.round(power.at(0, np.array([max(now, 0.0)]))[0] / step) * step)
        # All at once, and always as long: a reader sees the number before or after.
        os.pwrite(current, f"{watts * 1e6 / SENSOR_MILLIVOLTS:<8.0f}\n".encode(), 0)
        time.sleep(SENSOR_SECONDS)


def print_world(power: Power, origin_ns: int, interval: float, random: Random) -> None:
    """Print the lines of a world as tegrastats does, until its end; each reading is a bit old."""
    lag = random.uniform(0, 0.045)
    mean, count = 0.0, 0
    while True:
        now = (time.monotonic_ns() - origin_ns) / NANOSECONDS
        if now > power.seconds - 1:
            return
        if now > lag:
            step = ORIN_NX.rails[0].step_watts
            watts = float(np.round(power.at(0, np.array([now - lag]))[0] / step) * step)
            count += 1
            mean += (watts - mean) / count
            rails = " ".join(
                f"{name} {watts * 1e3:.0f}mW/{mean * 1e3:.0f}mW"
                for name in ("VDD_IN", *ORIN_NX.contained)
            )
            stamp = time.strftime("%m-%d-%Y %H:%M:%S")
            print(f"{stamp} RAM 1000/7607MB (lfb 1x4MB) GR3D_FREQ 50% {rails}", flush=True)
        time.sleep(interval + random.uniform(*READ_SECONDS))


def measure(
    folder: Path,
    seed: int,
    count: int,
    seconds: float,
    interval_ms: int,
    *,
    one_series: bool,
    beside: bool,
) -> list[Any]:
    """Return pairs of the true gross energy and the daemon's report, one per window."""
    from ..daemons import Daemon

    power, loads = make_world(seed, count, seconds, beside=beside)
    # A daemon, its program and their imports take some seconds on a busy machine.
    origin_ns = time.monotonic_ns() + 15 * NANOSECONDS
    program = [sys.executable, "-m", "tests.truth.live", "--print", str(origin_ns)]
    program += ["--seed", str(seed), "--windows", str(count), "--seconds", str(seconds)]
    sensor = folder / "sys/class/hwmon/hwmon0"
    sensor.mkdir(parents=True)
    program += ["--sensor", str(sensor), *(["--beside"] if beside else [])]
    wrapper = folder / "tegrastats"
    root = Path(__file__).resolve().parents[2]
    wrapper.write_text(f'#!/bin/sh\ncd "{root}"\nexec {" ".join(program)} "$@"\n')
    wrapper.chmod(0o755)
    config = folder / "tegrascope.yaml"
    config.write_text(
        f"telemetry: {{source: tegrastats, interval: {interval_ms}ms,"
        f" sysfs: {'false' if one_series else folder},"
        f" tegrastats: {{command: {wrapper}}}}}\n"
        "workloads: [{name: truth, backend: window}]\n"
    )
    state = folder / "state"
    state.mkdir()
    daemon = Daemon(config, state)
    try:
        runs = []

        def post(at: float, document: dict[str, Any]) -> str:
            """Post a mark a little after a time of the world; return the id of the run."""
            at_ns = origin_ns + round((at + 0.01) * NANOSECONDS)
            time.sleep(max((at_ns - time.monotonic_ns()) / NANOSECONDS, 0))
            request = urllib.request.Request(
                daemon.url + "api/v1/windows",
                data=json.dumps(document).encode(),
                headers={"Authorization": f"Bearer {(state / 'token').read_text().strip()}"},
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(json.load(answer)["run_id"])

        for load in loads:
            begin_ns = origin_ns + round(load.begin * NANOSECONDS)
            begin = {"event": "begin", "workload": "truth", "begin_ns": begin_ns}
            run_id = post(load.begin, begin)
            starts = np.rint(load.starts * NANOSECONDS).astype(np.int64) + origin_ns
            document = {
                "event": "end",
                "run_id": run_id,
                "end_ns": origin_ns + round(load.end * NANOSECONDS),
                "inferences": len(load.starts),
                "start_ns": starts.tolist(),
                "latency_ns": np.floor(load.seconds * NANOSECONDS).astype(np.int64).tolist(),
            }
            runs.append(post(load.end, document))
        found = []
        for load, run_id in zip(loads, runs, strict=True):
            report = daemon.wait_for(lambda run_id=run_id: _report(daemon, run_id))
            found.append((power.gross(load.begin, load.end), report))
        return found
    finally:
        daemon.stop()


def _report(daemon: Any, run_id: str) -> dict[str, Any] | None:
    document = daemon.json(f"api/v1/runs/{run_id}")
    report = document.get("run", document)
    return report if report.get("ended_ns") and "quality" in report else None


def judge(found: Sequence[tuple[float, dict[str, Any]]]) -> tuple[int, int, float]:
    """Print each window, and return how many are right, withheld, and the farthest of the wrong.

    The last is in half widths from the middle of the interval, 0 if none is wrong. A window without
    a headline is neither right nor wrong.
    """
    right = withheld = 0
    farthest = 0.0
    for number, (truth, report) in enumerate(found):
        energy = report.get("energy") or {}
        interval = energy.get("gross_interval")
        flags = " ".join(report["quality"])
        if energy.get("gross_joules_per_inference") is None:
            withheld += 1
            print(f"{number:3} {truth:8.2f} J  withheld  {flags}")
            continue
        low, high = (interval["low"], interval["high"]) if interval else (np.nan, np.nan)
        off = abs(truth - (low + high) / 2) / ((high - low) / 2)
        is_right = bool(low <= truth <= high)
        right += is_right
        if not is_right:
            farthest = max(farthest, off if off == off else np.inf)
        word = "right" if is_right else "WRONG"
        print(
            f"{number:3} {truth:8.2f} J  {energy['gross_joules']:8.2f}"
            f" ({low:.2f} to {high:.2f})  {word} {off:.2f}"
            f"  series {energy['sampling_series']}  {flags}"
        )
    return right, withheld, farthest


def main(arguments: Sequence[str] | None = None) -> int:
    """Run daemons until all windows are measured; the exit status is 1 if too few are right."""
    parser = argparse.ArgumentParser(prog="tests.truth.live", description=__doc__)
    parser.add_argument("--windows", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=12.0, help="length of a window")
    parser.add_argument("--interval", type=int, default=103, help="milliseconds")
    parser.add_argument("--daemons", type=int, default=1, help="daemons that share the windows")
    parser.add_argument("--seed", type=int, help="default: drawn now")
    parser.add_argument("--one-series", action="store_true", help="without files of a sensor")
    parser.add_argument("--beside", action="store_true", help="a job that nobody marks")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside the daemons")
    parser.add_argument("--sensor", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--print", type=int, metavar="ORIGIN_NS", help=argparse.SUPPRESS)
    given, _ = parser.parse_known_args(arguments)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    if given.print is not None:
        power, _loads = make_world(seed, given.windows, given.seconds, beside=given.beside)
        written = (power, given.print, given.sensor)
        threading.Thread(target=write_sensor, args=written, daemon=True).start()
        try:
            print_world(power, given.print, given.interval / 1000, np.random.default_rng())
        except BrokenPipeError:
            return 0
        return 0
    each = -(-given.windows // given.daemons)
    planned = 15 + FIRST_SECONDS + each * (given.seconds + PAUSE_SECONDS)
    print(f"seed {seed}, {each * given.daemons} windows, about {planned / 60:.0f} minutes")
    found: list[Any] = []
    failed: list[BaseException] = []

    def share(number: int) -> None:
        try:
            with tempfile.TemporaryDirectory() as folder:
                one = (Path(folder), seed + number, each, given.seconds, given.interval)
                settings = {"one_series": given.one_series, "beside": given.beside}
                found.extend(measure(*one, **settings))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=share, args=(n,)) for n in range(given.daemons)]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    right, withheld, farthest = judge(found)
    for error in failed:
        print(f"a daemon failed: {error!r}")
    print(
        f"{right} of {len(found)} right, {len(found) - withheld} shown, {withheld} withheld,"
        f" the farthest wrong one by {farthest:.2f} half widths; seed {seed}"
    )
    is_good = right >= RIGHT_SHARE * given.windows and farthest <= FARTHEST_HALVES
    return 0 if is_good and not failed else 1


if __name__ == "__main__":
    sys.exit(main())

"""The whole daemon on ill ground: a full disk, one that turns read-only, far-off clocks, moods.

Each fault is the real thing, in namespaces of its own: nothing of it is seen outside.
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.boots import LONG_UP_SECONDS, booted_ago

TELEMETRY = "telemetry: {source: simulator, interval: 100ms}\n"
RUNNING = TELEMETRY + (
    "workloads: [{name: w, command: sleep 0.3, device: cpu, baseline: 0s, warm_up: 0s,"
    " duration: 300ms, every: 700ms}]\n"
)
# Ours as root; as an ordinary user, where such may have a namespace of their own.
UNSHARE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))


def mounting(command: str, place: Path) -> "tuple[str, ...]":
    """Return what runs a program where a file system is mounted, seen by that program alone.

    Args:
        command: Mounts it at ``$0``.
        place: Where.
    """
    return (*UNSHARE, "sh", "-c", f'{command} && exec "$@"', str(place))


def need(*command: str) -> None:
    """Skip where this machine does not let us do what the test is about."""
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode != 0:
        pytest.skip(f"{' '.join(command[:3])} …: {told.stderr.strip()[:200]}")


def fill(path: Path) -> int:
    """Write until there is no room; return how much went in."""
    written = 0
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    written += file.write(bytes(size))
            except OSError:
                continue
    return written


def good_runs(daemon) -> float:
    return daemon.metric('tegra_inference_runs_total{device="cpu",outcome="ok"') or 0.0


def test_full_disk_costs_no_run(start, tmp_path):
    """A real disk fills up: the daemon stays, measures on, tells it, and writes all of it later."""
    state = tmp_path / "state"
    mount = 'mount -t tmpfs -o size=8m none "$0"'
    need(*mounting(mount, state), "true")
    daemon = start(RUNNING, within=mounting(mount, state))
    daemon.wait_for(lambda: good_runs(daemon) >= 2)
    filler = Path(f"/proc/{daemon.process.pid}/root{state}/filler")
    assert fill(filler) > 1 << 20

    daemon.wait_for(lambda: "full" in daemon.get("readyz"))
    before = good_runs(daemon)
    daemon.wait_for(lambda: good_runs(daemon) >= before + 4)
    daemon.wait_for(lambda: "the store does not write" in daemon.get("readyz"))
    assert (daemon.metric("tegrascope_store_write_errors_total") or 0) >= 4
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    assert len(daemon.runs(outcome="ok")) < good_runs(daemon)

    filler.unlink()
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")
    counted = good_runs(daemon)
    daemon.wait_for(lambda: len(daemon.runs(outcome="ok")) >= counted)
    assert {run["outcome"] for run in daemon.runs()} <= {"ok", "skipped"}
    daemon.wait_for(lambda: any("the store writes again" in line for line in daemon.log))
    assert not any("Traceback" in line for line in daemon.log)
    assert daemon.stop() < 3


def test_full_disk_does_not_hold_up_the_end(start, tmp_path):
    """Asked to end while nothing can be written, it ends in time and cleanly all the same."""
    state = tmp_path / "state"
    mount = 'mount -t tmpfs -o size=8m none "$0"'
    need(*mounting(mount, state), "true")
    daemon = start(RUNNING, within=mounting(mount, state))
    daemon.wait_for(lambda: good_runs(daemon) >= 1)
    fill(Path(f"/proc/{daemon.process.pid}/root{state}/filler"))
    daemon.wait_for(lambda: "full" in daemon.get("readyz"))
    assert daemon.stop() < 3
    assert daemon.process.returncode == 0
    assert re.search(
        r"[1-9]\d* run\(s\) and \d+ block\(s\) of samples could not be", str(daemon.log)
    )
    assert not any("Traceback" in line for line in daemon.log)


def test_start_on_a_read_only_disk_measures_and_says_why(start, tmp_path):
    state = tmp_path / "state"
    mount = 'mount -t tmpfs -o ro none "$0"'
    need(*mounting(mount, state), "true")
    daemon = start(RUNNING, within=mounting(mount, state))
    daemon.wait_for(lambda: good_runs(daemon) >= 2)
    reason = f"the store does not write: {state}/tegrascope.db.lock: Read-only file system"
    note = f"calls that change state are refused: no token, {state}/token: Read-only file system"
    daemon.wait_for(lambda: daemon.get("readyz") == f"{reason}\n{note}\n")
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    answer = daemon.json("api/v1/runs")
    assert (answer["runs"], len(answer["not_stored"]) >= 2) == ([], True)
    daemon.wait_for(lambda: any(line.endswith(" · not stored yet") for line in daemon.log))
    assert daemon.stop() < 3
    assert daemon.process.returncode == 0
    assert not any("Traceback" in line for line in daemon.log)


@pytest.mark.parametrize("room", [0, 4096, 8192, 16384, 32768])
def test_start_on_a_full_disk_stores_all_when_there_is_room(start, tmp_path, room):
    """Half a token or half a database stop neither this daemon nor the next one."""
    state = tmp_path / "state"
    size = 1 << 20
    mount = (
        f'mount -t tmpfs -o size={size} none "$0" && '
        f'{{ head -c {size - room} /dev/zero > "$0/filler" || true; }}'
    )
    need(*mounting(mount, state), "true")
    daemon = start(RUNNING, within=mounting(mount, state))
    daemon.wait_for(lambda: good_runs(daemon) >= 2)
    daemon.wait_for(lambda: "the store does not write: " in daemon.get("readyz"))
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    counted = good_runs(daemon)
    root = Path(f"/proc/{daemon.process.pid}/root")
    (root / f"{state}/filler".lstrip("/")).unlink()
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")
    daemon.wait_for(lambda: len(daemon.runs(outcome="ok")) >= counted)
    assert len((root / f"{state}/token".lstrip("/")).read_text()) > 40
    assert daemon.stop() < 3
    assert not any("Traceback" in line for line in daemon.log)


def test_disk_that_turns_read_only_is_reported_and_survived(start, tmp_path):
    """ext4 finds an error and goes read-only under the daemon: it says so and measures on."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4")
    state, image = tmp_path / "state", tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(("mkfs.ext4", "-q", str(image)), check=True)
    mount = f"mount -o loop,errors=remount-ro {image} $0"
    need(*mounting(mount, state), "true")
    daemon = start(RUNNING, within=mounting(mount, state))
    daemon.wait_for(lambda: good_runs(daemon) >= 1)
    mounts = Path(f"/proc/{daemon.process.pid}/mounts").read_text()
    loop = re.search(rf"^/dev/(loop\d+) {re.escape(str(state))} ext4 ", mounts, re.MULTILINE)
    assert loop is not None, mounts
    trigger = Path(f"/sys/fs/ext4/{loop[1]}/trigger_fs_error")
    if not trigger.exists():
        pytest.skip("this kernel has no trigger_fs_error")
    trigger.write_text("1")

    daemon.wait_for(lambda: "the store does not write" in daemon.get("readyz"))
    before = good_runs(daemon)
    daemon.wait_for(lambda: good_runs(daemon) >= before + 3)
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    assert (daemon.metric("tegrascope_store_write_errors_total") or 0) >= 3
    assert daemon.stop() < 3
    assert daemon.process.returncode == 0
    assert not any("Traceback" in line for line in daemon.log)


def test_board_that_ran_and_slept_for_years_is_like_any_other(start):
    """CLOCK_MONOTONIC after 400 days, CLOCK_BOOTTIME after 800: no sleep in a run, and no step."""
    within = booted_ago(LONG_UP_SECONDS, asleep_seconds=LONG_UP_SECONDS)
    daemon = start(RUNNING, within=within)

    def good() -> "list[dict[str, object]]":
        """Return runs without a step; between two clocks, a busy machine may pause a reader."""
        runs = daemon.runs(outcome="ok")
        return [run for run in runs if not {"suspended", "clock_step"} & set(run["quality"])]

    for run in daemon.wait_for(lambda: good()[1:]):
        assert run["started_ns"] > LONG_UP_SECONDS * 10**9
        assert abs(run["started_wall_ns"] / 1e9 - time.time()) < 240
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")


MOODS = """#!/bin/sh
# Each start has its own mood, and the last one is good.
echo x >> {directory}/starts
case $(wc -l < {directory}/starts) in
1) echo "tegrastats: command line is not understood"; echo "RAM what/everMB"; exit 0 ;;
2) printf 'RAM 100/7607MB (lfb 61x4MB) CPU [0%%@1728,0'; exit 0 ;;
3) printf '\\377\\376\\000garbage\\n'; kill -SEGV $$ ;;
4) sleep 600 ;;
*) exec {python} -m tegrascope simulate "$@" ;;
esac
"""


def test_tegrastats_with_moods_is_brought_round(start, tmp_path):
    """Garbage, half a line, a crash and silence are reported and give no sample."""
    program = tmp_path / "tegrastats"
    program.write_text(MOODS.format(directory=tmp_path, python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    daemon = start(
        f"telemetry: {{source: tegrastats, interval: 100ms, tegrastats: {{command: {program}}}}}\n"
        + RUNNING.removeprefix(TELEMETRY)
    )
    daemon.wait_for(lambda: daemon.metric("tegrascope_source_up") == 1)
    daemon.wait_for(lambda: daemon.get("readyz") == "ready\n")
    # The good one is started again if it is silent for two seconds, as on a busy machine.
    assert (daemon.metric("tegrascope_source_restarts_total") or 0) >= 4
    lost = daemon.get("metrics")
    lines = re.findall(r"^tegrascope_lines_unparsed_total\{.*\} (\S+)$", lost, re.MULTILINE)
    assert sum(map(float, lines)) == 3
    log = "\n".join(daemon.log)
    # One outage, whose end is not yet certain: its first reason is the only line.
    assert "ended with status 0" in log
    assert log.count("WARNING tegrastats") == 1
    daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    assert {run["outcome"] for run in daemon.runs()} <= {"ok", "skipped"}
    assert daemon.stop(signal.SIGTERM) < 3

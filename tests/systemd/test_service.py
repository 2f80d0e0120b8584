"""The service under a real systemd: started, killed, frozen, confined, stopped."""

import time

import pytest

from tests.fakes.processes import Stopwatch

from .conftest import INTERPRETER

UNIT = "tegrascope.service"
DAEMON_USER = "tegrascope"
CONFIG = """
workloads:
- {name: quick, model: "builtin:mobilenet", device: cpu, threads: 1, warm_up: 0s, baseline: 0s,
   count: 5, every: 1s}
- {name: long, command: sleep 3600, device: external, baseline: 0s, every: 1h, timeout: 2h}
"""
WATCHDOG_SECONDS = 4
HASTE = f"""
[Service]
WatchdogSec={WATCHDOG_SECONDS}
RestartSec=200ms
"""


@pytest.fixture(scope="module")
def service(board):
    """The service, started; it reads ten times a second, so that less time is waited."""
    board.write("/etc/tegrascope.yaml", CONFIG)
    board.write("/etc/default/tegrascope", "TEGRASTATS_INTERVAL_MS=103\n")
    board.write(f"/etc/systemd/system/{UNIT}.d/haste.conf", HASTE)
    board.systemctl("daemon-reload")
    board.systemctl("start", "tegrascope")
    board.wait_for(lambda: ready(board))
    return board


def ready(board) -> bool:
    return board.get("readyz").startswith("ready")


def pid(board) -> int:
    return int(board.show(UNIT, "MainPID"))


def runs(board) -> "dict[str, str]":
    """Return the outcome of each run on record."""
    found = board.json("api/v1/runs?limit=1000").get("runs", [])
    return {run["run_id"]: run["outcome"] for run in found}


def in_flight(board) -> str:
    """Return the id of the run that never ends by itself."""
    return board.wait_for(lambda: board.json("api/v1/runs").get("active", {}).get("long"))


def restarted(board, before: int) -> bool:
    return int(board.show(UNIT, "NRestarts")) > before and ready(board)


def test_it_is_ready_and_says_how_it_does(service):
    """Started means serving; the status line says where, and the user is its own."""
    assert service.show(UNIT, "ActiveState") == "active"
    service.wait_for(lambda: service.show(UNIT, "StatusText") == "serving http://127.0.0.1:9754/")
    assert service.run("stat", "-c", "%U %a", "/var/lib/tegrascope").stdout == "tegrascope 750\n"
    assert service.run("ps", "-o", "user=", "-p", str(pid(service))).stdout.strip() == DAEMON_USER


def test_unprivileged_daemon_has_what_root_sees(service):
    """DLA, EMC and engines come through the socket, at the interval of the environment file."""
    for series in (
        'tegra_dla_active{core="0"}',
        'tegra_engine_active{engine="NVENC"}',
        "tegra_emc_frequency_hertz",
        'tegra_rail_power_watts{rail="VDD_CPU_CV"}',
        'tegrascope_root_fields_missing{source="tegrastats"} 0.0',
    ):
        service.wait_for(lambda one=series: one in service.get("metrics"))
    service.wait_for(lambda: service.get("readyz") == "ready\n")
    # One that was silent for too long ends while the next one starts.
    found = ("pgrep", "-u", "root", "-f", "simulate --interval 103")
    service.wait_for(lambda: len(service.run(*found).stdout.split()) == 1)
    assert service.run("pgrep", "-u", DAEMON_USER, "-f", "simulate").stdout == ""


def test_strangers_do_not_reach_the_socket(service):
    """Another user gets no line from root."""
    ask = "import socket; socket.socket(socket.AF_UNIX).connect('/run/tegrascope/tegrastats.sock')"
    for user, status in (("nobody", 1), (DAEMON_USER, 0)):
        group = service.run("id", "-gn", user).stdout.strip()
        who = (f"--reuid={user}", f"--regid={group}", "--clear-groups")
        told = service.run("setpriv", *who, INTERPRETER, "-c", ask)
        assert told.returncode == status, told.stderr
        assert ("PermissionError" in told.stderr) == (status == 1)


def test_killed_daemon_comes_back_with_all_runs(service):
    """After kill -9 a new process has every run, that in flight as failed, and goes on."""
    service.wait_for(lambda: "ok" in runs(service).values())
    before, restarts = runs(service), int(service.show(UNIT, "NRestarts"))
    cut_off = in_flight(service)
    service.systemctl("kill", "-s", "KILL", "--kill-who=main", UNIT)
    service.wait_for(lambda: restarted(service, restarts))
    after = service.wait_for(lambda: len(found := runs(service)) > len(before) and found)
    assert before.items() <= after.items()
    assert after[cut_off] == "failed"


def test_killed_tegrastats_comes_back(service):
    """The root helper dies: the daemon stays, asks for another one, and counts it."""
    daemon = pid(service)
    restarts = service.metric("tegrascope_source_restarts_total")
    service.run("pkill", "-KILL", "-u", "root", "-f", "simulate --interval 103", check=True)
    service.wait_for(lambda: service.metric("tegrascope_source_restarts_total") > restarts)
    samples = service.metric("tegrascope_samples_total")
    service.wait_for(lambda: service.metric("tegrascope_samples_total") > samples)
    assert pid(service) == daemon
    whole = 'tegrascope_root_fields_missing{source="tegrastats"} 0.0'
    service.wait_for(lambda: whole in service.get("metrics"))


def test_frozen_daemon_is_restarted_and_loses_no_run(service):
    """SIGSTOP: the watchdog ends it in good order with its run on record, and starts another."""
    before, restarts = runs(service), int(service.show(UNIT, "NRestarts"))
    frozen, cut_off = pid(service), in_flight(service)
    service.systemctl("kill", "-s", "STOP", "--kill-who=main", UNIT)
    service.wait_for(lambda: restarted(service, restarts))
    assert "Watchdog timeout" in service.journal(UNIT)
    assert pid(service) != frozen
    after = runs(service)
    assert before.items() <= after.items()
    assert after[cut_off] == "cancelled"


BAD = CONFIG + "telemetry: {intervall: 1s}\n"
BAD_LINE = "/etc/tegrascope.yaml:6: telemetry.intervall: unknown key; did you mean interval?"


def test_reload_of_a_bad_file_fails_and_changes_nothing(service):
    """The command fails, the reason is in the journal, and the same process goes on."""
    daemon = pid(service)
    service.write("/etc/tegrascope.yaml", BAD)
    assert service.run("systemctl", "reload", "tegrascope").returncode != 0
    service.wait_for(lambda: BAD_LINE in service.journal(UNIT))
    assert (service.show(UNIT, "ActiveState"), pid(service)) == ("active", daemon)
    service.write("/etc/tegrascope.yaml", CONFIG)
    service.systemctl("reload", "tegrascope")
    service.wait_for(lambda: "reloaded: 2 workload(s)" in service.journal(UNIT))
    assert pid(service) == daemon
    service.wait_for(lambda: ready(service))


def test_bad_file_at_the_start_is_one_try_and_the_status_says_why(service):
    """Only a person can fix it, so systemd does not try again; the reason is easy to find."""
    service.systemctl("stop", "tegrascope")
    service.write("/etc/tegrascope.yaml", BAD)
    assert service.run("systemctl", "start", "tegrascope").returncode != 0
    assert service.show(UNIT, "ActiveState") == "failed"
    assert service.show(UNIT, "NRestarts") == "0"
    assert service.show(UNIT, "ExecMainStatus") == "78"
    assert service.show(UNIT, "StatusText") == BAD_LINE
    service.wait_for(
        lambda: f"tegrascope: {BAD_LINE}" in service.run("systemctl", "status", UNIT).stdout
    )
    service.write("/etc/tegrascope.yaml", CONFIG)
    service.systemctl("start", "tegrascope")
    service.wait_for(lambda: ready(service))


def test_start_on_a_full_disk_measures_and_recovers_by_itself(service):
    """No start fails, the status says why nothing is stored, and room is all that it takes."""
    state, restarts = "/var/lib/tegrascope", service.show(UNIT, "NRestarts")
    service.systemctl("stop", "tegrascope")
    service.run("mount", "-t", "tmpfs", "-o", "size=64m", "none", state, check=True)
    service.run("sh", "-c", f"head -c 67108864 /dev/zero >{state}/filler")
    service.systemctl("start", "tegrascope")
    service.wait_for(lambda: service.metric("tegrascope_source_up") == 1)
    service.wait_for(lambda: service.get("readyz").startswith("the store does not write: "))
    service.wait_for(lambda: "the store does not write: " in service.show(UNIT, "StatusText"))
    service.wait_for(lambda: service.json("api/v1/runs").get("not_stored"))
    service.run("rm", f"{state}/filler", check=True)
    service.wait_for(lambda: service.get("readyz") == "ready\n")
    service.wait_for(lambda: "ok" in runs(service).values())
    assert service.show(UNIT, "NRestarts") in (restarts, "0")
    service.systemctl("stop", "tegrascope")
    service.run("umount", state, check=True)
    service.systemctl("start", "tegrascope")
    service.wait_for(lambda: ready(service))


def test_stop_takes_less_than_three_seconds(service):
    """Nothing of it runs any more, root's helper neither, and the socket is still there."""
    watch = Stopwatch()
    service.systemctl("stop", "tegrascope")
    assert watch.seconds < 3
    assert service.show(UNIT, "Result") == "success"
    service.wait_for(lambda: service.run("pgrep", "-f", "tegrascope run|simulate").stdout == "")
    assert service.run("test", "-S", "/run/tegrascope/tegrastats.sock").returncode == 0
    service.systemctl("start", "tegrascope")
    service.wait_for(lambda: ready(service))


def test_board_without_tegrastats_is_restarted_once_and_then_left_in_peace(service):
    """Telemetry that was there and is gone costs one restart; after it the status says why."""
    restarts = int(service.show(UNIT, "NRestarts"))
    service.run("rm", "/usr/bin/tegrastats", check=True)
    service.run("pkill", "-KILL", "-u", "root", "-f", "simulate --interval 103", check=True)
    service.wait_for(lambda: int(service.show(UNIT, "NRestarts")) > restarts)
    service.wait_for(lambda: "tegrastats was not found" in service.show(UNIT, "StatusText"))
    restarts = service.show(UNIT, "NRestarts")
    time.sleep(WATCHDOG_SECONDS + 1)  # it would have been starved by now
    assert service.show(UNIT, "NRestarts") == restarts
    assert service.show(UNIT, "ActiveState") == "active"
    assert service.get("healthz") == "ok\n"


SILENT = "#!/bin/sh\ntrap '' TERM PIPE\necho one line\nexec sleep 1000\n"
# Connects so many times; each connection is closed after its first line, or at once.
CONNECT = """
import socket, sys
for _ in range(int(sys.argv[1])):
    with socket.socket(socket.AF_UNIX) as unit:
        unit.settimeout(90)
        unit.connect("/run/tegrascope/tegrastats.sock")
        if sys.argv[2] == "read":
            assert unit.recv(4) == b"one ", "no line: the socket refused"
"""


def helpers(board) -> int:
    """Return the number of processes of all helpers."""
    return len(
        board.run("pgrep", "-u", "root", "-f", "sleep 1000|tegrastats --interval").stdout.split()
    )


def test_silent_helper_ends_with_its_connection(board):
    """A tegrastats that hangs and ignores SIGTERM does not block the socket for the next one."""
    board.systemctl("stop", "tegrascope")
    board.write("/usr/bin/tegrastats", SILENT, 0o755)
    board.systemctl("start", "tegrascope-tegrastats.socket")
    for _ in range(6):  # more than the socket serves at once
        board.run(INTERPRETER, "-S", "-c", CONNECT, "1", "read", check=True)
        board.wait_for(lambda: helpers(board) == 0)
    assert board.systemctl("list-units", "--plain", "--no-legend", "tegrascope-tegrastats@*") == ""


def test_loop_of_connections_does_not_close_the_socket(board):
    board.write("/usr/bin/tegrastats", SILENT, 0o755)
    board.systemctl("start", "tegrascope-tegrastats.socket")
    board.run(INTERPRETER, "-S", "-c", CONNECT, "300", "close", check=True)
    assert board.show("tegrascope-tegrastats.socket", "ActiveState") == "active"
    board.wait_for(lambda: helpers(board) == 0)
    # systemd counts a connection a little longer than its processes live.
    board.wait_for(lambda: not board.run(INTERPRETER, "-S", "-c", CONNECT, "1", "read").returncode)

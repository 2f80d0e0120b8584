"""The power unit on a real systemd: its socket, its sandbox, and restored modes."""

import pytest

from .conftest import CHECKOUT, INTERPRETER, Rig

SOCKET, SERVICE = "tegrascope-power.socket", "tegrascope-power.service"
PROGRAM = f"""#!{INTERPRETER} -S
import contextlib, os, sys
sys.path.insert(0, {CHECKOUT.rpartition("/")[0]!r})
from tegrascope.collectors.board.power import main
for name in ("/etc/nvpmodel.conf", "/usr/bin/nvpmodel", "/var/lib/tegrascope/probe", "/run/probe"):
    with contextlib.suppress(OSError):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT))
        print("WRITABLE", name, file=sys.stderr)
sys.exit(main())
"""
# NVIDIA's programs, as far as the unit uses them.
NVPMODEL = """#!/bin/sh
cd /var/lib/nvpmodel
[ "$1" = -q ] && { echo "NV Power Mode: X"; cat mode; exit; }
[ "$2" = 3 ] && { echo "NVPM WARN: Reboot required for changing to this power mode: 3"; exit 255; }
echo "$2" >mode
"""
CLOCKS = """#!/bin/sh
[ "$1" = --store ] && cat /var/lib/nvpmodel/clocks >"$2"
[ "$1" = --restore ] && cat "$2" >/var/lib/nvpmodel/clocks
[ -z "$1" ] && echo locked >/var/lib/nvpmodel/clocks
exit 0
"""
CONF = "".join(f"< POWER_MODEL ID={n} NAME={n}0W >\n" for n in range(4))
# Sends its arguments, one line each, and prints the answers; then it kills itself, or ends.
CLIENT = """
import socket, sys
with socket.socket(socket.AF_UNIX) as unit:
    unit.settimeout(90)
    unit.connect("/run/tegrascope/power.sock")
    lines = unit.makefile()
    for word in sys.argv[2:]:
        unit.sendall(word.encode() + b"\\n")
        print(lines.readline().strip(), flush=True)
    if sys.argv[1] == "killed":
        import os; os.kill(os.getpid(), 9)
"""


# Asks for a mode, and stays.
HOLD = """
import signal, socket
at = socket.socket(socket.AF_UNIX)
at.connect("/run/tegrascope/power.sock")
at.sendall(b"mode 0\\n")
signal.pause()
"""


@pytest.fixture(scope="module")
def powered(board: Rig) -> Rig:
    """A board in mode 1 whose clocks are free, with the unit enabled."""
    board.write("/usr/bin/nvpmodel", NVPMODEL, 0o755)
    board.write("/usr/bin/jetson_clocks", CLOCKS, 0o755)
    board.write("/usr/bin/tegrascope-power", PROGRAM, 0o755)
    board.write("/etc/nvpmodel.conf", CONF)
    board.write("/var/lib/nvpmodel/mode", "1\n")
    board.write("/var/lib/nvpmodel/clocks", "free\n")
    board.systemctl("enable", "--now", SOCKET)
    return board


def ask(rig: Rig, *lines: str, end: str = "quiet", user: str = "tegrascope") -> "list[str]":
    """Return the answers that a user gets."""
    client = [INTERPRETER, "-S", "-c", CLIENT, end, *lines]
    asked = rig.run("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *client)
    return asked.stdout.splitlines() or [asked.stderr]


def state(rig: Rig) -> "list[str]":
    return rig.run("cat", "/var/lib/nvpmodel/mode", "/var/lib/nvpmodel/clocks").stdout.split()


def is_restored(rig: Rig) -> bool:
    left = rig.run("test", "-e", "/var/lib/tegrascope-power/state").returncode == 0
    return not left and state(rig) == ["1", "free"]


def test_mode_is_set_in_the_sandbox_and_restored_after_a_kill_of_the_client(powered):
    answers = ask(powered, "mode 2", "clocks on", "mode 3", "mode 9", end="killed")
    assert answers[:2] == [
        "ok mode=2 name=20W clocks=off found=1",
        "ok mode=2 name=20W clocks=on found=1",
    ]
    assert answers[2].startswith("error power mode 30W needs a reboot")
    assert answers[3].startswith("error /etc/nvpmodel.conf has no power mode 9")
    powered.wait_for(lambda: is_restored(powered))
    assert "WRITABLE" not in powered.journal(SERVICE)


@pytest.mark.parametrize("end", ["KILL", "TERM"])
def test_mode_is_restored_at_the_end_of_the_unit(powered, end):
    """A crash is followed by a new start, which finds the state file; so is a power cut."""
    hold = (INTERPRETER, "-S", "-c", HOLD)
    powered.run("systemd-run", "--collect", "--unit=holder", *hold, check=True)
    powered.wait_for(lambda: state(powered) == ["0", "free"])
    powered.systemctl("kill", f"--signal={end}", "--kill-who=main", SERVICE)
    powered.wait_for(lambda: is_restored(powered))
    powered.systemctl("stop", "holder")


def test_strangers_may_not_connect(powered):
    assert "Permission denied" in ask(powered, "show", user="daemon")[0]


def test_service_is_enabled_with_the_socket(powered):
    """So it starts at boot, and restores what a power cut left behind."""
    assert powered.systemctl("is-enabled", SERVICE) == "enabled"

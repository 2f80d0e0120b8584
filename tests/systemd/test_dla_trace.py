"""The DLA trace reader in its unit: a real systemd, its real sandbox, a real kernel's tracer.

This kernel has no DLA, so programs that start are traced in its place; the rest is what ships.
"""

import json
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INTERPRETER, Rig

SOCKET = "tegrascope-dla-trace.socket"
PROGRAM = f"""#!{INTERPRETER} -S
import contextlib, os, sys
sys.path.insert(0, {str(Path(CHECKOUT).parent)!r})
from tegrascope.collectors.dla.reader import main
played = {{"system": "sched", "events": ("sched_process_exec",)}}
for name in ("/sys/kernel/tracing/tracing_on", "/sys/kernel/tracing/set_event", "/etc/passwd"):
    with contextlib.suppress(OSError):
        os.close(os.open(name, os.O_WRONLY))
        print("WRITABLE", name, file=sys.stderr)
sys.exit(main(**played if os.path.exists("/etc/played") else {{}}))
"""
# Reads until a line holds the word; then it goes away, as a daemon does. The event that is played
# is the start of a program, so it starts one with each line: on a quiet machine nobody else does.
CLIENT = """
import json, os, socket, sys
lines = []
with socket.socket(socket.AF_UNIX) as unit:
    unit.settimeout(90)
    unit.connect("/run/tegrascope/dla-trace.sock")
    for line in unit.makefile():
        lines.append(line.rstrip())
        if sys.argv[1] in line:
            break
        os.system("true")
print(json.dumps(lines))
"""


@pytest.fixture(scope="module")
def traced(board: Rig) -> Rig:
    """A system whose kernel can be traced."""
    mounted = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing"
    if board.run("sh", "-c", mounted).returncode != 0:
        pytest.skip("tracefs can't be mounted here")
    board.write("/usr/bin/tegrascope-dla-trace", PROGRAM, 0o755)
    board.systemctl("start", SOCKET)
    return board


def listen(rig: Rig, word: str, user: str = "tegrascope") -> "list[str]":
    """Return what a user is told by the socket, up to a word."""
    client = [INTERPRETER, "-S", "-c", CLIENT, word]
    asked = rig.run("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *client)
    assert asked.returncode == 0, (asked.stderr, rig.journal("tegrascope-dla-trace@*"))
    return list(json.loads(asked.stdout))


def test_kernel_without_a_dla_is_told_to_who_asks(traced):
    """The daemon, which may not look itself, hears what is wrong and what mends it."""
    (line,) = listen(traced, "unavailable")
    assert "no trace events of the DLA" in line


def test_trace_comes_through_the_sandbox_and_leaves_nothing(traced):
    """Events reach a user without rights; nothing but the instance can be written, and it goes."""
    traced.write("/etc/played", "")
    first, *_, last = listen(traced, "sched_process_exec")
    assert first.startswith("# tegrascope-dla hello")
    assert "sched_process_exec: filename=" in last
    instance = "/sys/kernel/tracing/instances/tegrascope"
    traced.wait_for(lambda: traced.run("test", "-d", instance).returncode != 0)
    assert "WRITABLE" not in traced.journal("tegrascope-dla-trace@*")
    assert (
        traced.run("/usr/bin/tegrascope-dla-trace", "--every", "99").stderr.count("WRITABLE") == 3
    )


def test_strangers_may_not_connect(traced):
    """What programs run when is for the daemon's user and for root."""
    with pytest.raises(AssertionError, match="Permission denied"):
        listen(traced, "hello", user="daemon")

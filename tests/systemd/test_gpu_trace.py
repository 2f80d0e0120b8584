"""The reader of context switches in its unit: a real systemd and its real sandbox.

This kernel has no such ring, so a device of zeros stands for one of an unknown form.
"""

import json
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INTERPRETER, Rig

SOCKET = "tegrascope-gpu-trace.socket"
DEVICE = "/dev/nvhost-ctxsw-gpu"
PROGRAM = f"""#!{INTERPRETER} -S
import contextlib, os, sys
sys.path.insert(0, {str(Path(CHECKOUT).parent)!r})
from tegrascope.collectors.gpu.switch_reader import main
with contextlib.suppress(OSError):
    os.close(os.open("/etc/passwd", os.O_WRONLY))
    print("WRITABLE", file=sys.stderr)
sys.exit(main([]))
"""
CLIENT = """
import socket
with socket.socket(socket.AF_UNIX) as unit:
    unit.settimeout(90)
    unit.connect("/run/tegrascope/gpu-trace.sock")
    print(unit.makefile().readline(), end="")
"""


@pytest.fixture(scope="module")
def traced(board: Rig) -> Rig:
    board.write("/usr/bin/tegrascope-gpu-trace", PROGRAM, 0o755)
    board.systemctl("start", SOCKET)
    return board


def listen(rig: Rig, user: str = "tegrascope") -> str:
    """Return why nothing can be read, as a user is told by the socket."""
    client = [INTERPRETER, "-S", "-c", CLIENT]
    asked = rig.run("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *client)
    assert asked.returncode == 0, (asked.stderr, rig.journal("tegrascope-gpu-trace@*"))
    return str(json.loads(asked.stdout)["unavailable"])


def test_board_without_a_ring_is_told_to_who_asks(traced):
    assert f"{DEVICE}: No such file or directory: remove telemetry.gpu_trace" in listen(traced)


def test_ring_is_opened_in_the_sandbox_and_nothing_can_be_written(traced):
    """The header of the device is read, and is not one that is known."""
    if traced.run("mknod", "-m", "0600", DEVICE, "c", "1", "5").returncode != 0:
        pytest.skip("no device can be made here")
    assert "unknown form: magic 0x0, version 0, entries of 0 bytes" in listen(traced)
    assert "WRITABLE" not in traced.journal("tegrascope-gpu-trace@*")
    assert "WRITABLE" in traced.run("/usr/bin/tegrascope-gpu-trace").stderr
    traced.run("rm", DEVICE)


def test_strangers_may_not_connect(traced):
    with pytest.raises(AssertionError, match="Permission denied"):
        listen(traced, user="daemon")

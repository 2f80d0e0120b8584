"""The memory reader in its unit: a real systemd and its real sandbox, sizes of a real kernel."""

import json
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INTERPRETER, Rig

PROGRAM = f"""#!{INTERPRETER} -S
import contextlib, os, sys
sys.path.insert(0, {str(Path(CHECKOUT).parent)!r})
from tegrascope.collectors.processes.memory_reader import main
for name in ("/sys/kernel/mm/ksm/run", "/proc/sys/vm/swappiness", "/etc/passwd"):
    with contextlib.suppress(OSError):
        os.close(os.open(name, os.O_WRONLY))
        print("WRITABLE", name, file=sys.stderr)
sys.exit(main())
"""
CLIENT = """
import socket
with socket.socket(socket.AF_UNIX) as unit:
    unit.settimeout(60)
    unit.connect("/run/tegrascope/memory.sock")
    print(unit.makefile().readline())
"""
# A process of another user, which has 32 MiB of its own.
HOLDER = "import time; held = bytearray(b'x' * (32 << 20)); time.sleep(120)"
HELD_BYTES = 32 << 20


@pytest.fixture(scope="module")
def served(board: Rig) -> Rig:
    """A system that serves the socket, with a process of another user."""
    board.write("/usr/bin/tegrascope-memory", PROGRAM, 0o755)
    board.systemctl("start", "tegrascope-memory.socket")
    setpriv = "setpriv --reuid=daemon --regid=daemon --clear-groups"
    held = f'{setpriv} {INTERPRETER} -S -c "{HOLDER}" >/dev/null 2>&1 &'
    assert board.run("sh", "-c", held).returncode == 0
    return board


def ask(rig: Rig, user: str = "tegrascope") -> str:
    """Return the first line that a user gets from the socket."""
    client = [INTERPRETER, "-S", "-c", CLIENT]
    asked = rig.run("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *client)
    assert asked.returncode == 0, (asked.stderr, rig.journal("tegrascope-memory@*"))
    return asked.stdout


def python_bytes(rig: Rig) -> int:
    """Return the largest proportional size of a Python that the socket shows."""
    found = json.loads(ask(rig))
    sizes = found["proportional_bytes"]
    return max(sizes[pid] for pid, name in found["names"].items() if "python" in (name or ""))


def test_a_user_without_rights_gets_the_sizes_of_other_users_processes(served):
    served.wait_for(lambda: python_bytes(served) > HELD_BYTES)
    assert python_bytes(served) < 1.3 * HELD_BYTES
    assert "WRITABLE" not in served.journal("tegrascope-memory@*")


def test_strangers_may_not_connect(served):
    with pytest.raises(AssertionError, match="Permission denied"):
        ask(served, user="daemon")

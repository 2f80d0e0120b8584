"""What the process that runs this may do, as one JSON object: run it in a sandbox and outside.

python inside.py OUTSIDE_ADDRESS SETUID_PROGRAM > found.json
"""

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def can(act: Callable[[], object]) -> bool:
    """Say whether something can be done; not found is no refusal, and tells of a broken test."""
    try:
        return act() is not False
    except OSError as error:
        assert error.errno != errno.ENOENT, error
        return False


def reach(address: str) -> bool:
    """Send a packet: a refusal comes from the other end, so it got there."""
    with socket.socket() as channel:
        channel.settimeout(10)
        return channel.connect_ex((address, 9)) == errno.ECONNREFUSED


def write(directory: str) -> None:
    """Make a file and take it away."""
    path = Path(directory) / "tegrascope-was-here"
    path.touch()
    path.unlink()


def become_root_by(program: str) -> bool:
    """Run a setuid copy of id."""
    told = subprocess.run([program, "-u"], capture_output=True, text=True, check=False)
    return told.stdout == "0\n" and os.getuid() != 0


def new_namespace() -> None:
    """Leave for a user namespace of one's own."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def main(outside: str, setuid_program: str) -> None:
    """Try it all."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    found = {
        "uid": os.getuid(),
        "capabilities": int(status["CapBnd"], 16) | int(status["CapEff"], 16),
        "may gain privileges": status["NoNewPrivs"] == "0",
        "become root by setuid": can(lambda: become_root_by(setuid_program)),
        "write /etc": can(lambda: write("/etc")),
        "write /usr": can(lambda: write("/usr")),
        "write /run": can(lambda: write("/run")),
        "write /var/lib": can(lambda: write("/var/lib")),
        "write its state": can(lambda: write("/var/lib/tegrascope")),
        "write its cache": can(lambda: write("/var/cache/tegrascope")),
        "write a kernel setting": can(
            lambda: os.close(os.open("/proc/sys/kernel/domainname", os.O_WRONLY))
        ),
        "read /home": can(lambda: list(Path("/home/somebody").iterdir())),
        "see /tmp of others": Path("/tmp/of-others").exists(),
        "see process 1": Path("/proc/1/stat").exists(),
        "reach another host": can(lambda: reach(outside)),
        "reach this host": can(lambda: reach("127.0.0.1")),
        "raw packets": can(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM).close()),
        "netlink": can(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()),
        "open a DLA's node": can(lambda: os.close(os.open("/dev/nvmap", os.O_RDWR))),
        "open a disk": can(lambda: os.close(os.open("/dev/disk", os.O_RDONLY))),
        "new namespace": can(new_namespace),
        "lower its priority": can(lambda: os.nice(1)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

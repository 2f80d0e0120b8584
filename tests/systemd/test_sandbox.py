"""The sandboxes hold, seen from inside; the same prober outside shows that it could tell."""

import json
from pathlib import Path

import pytest

from .conftest import CHECKOUT, INTERPRETER, PYTHON, SITE, SYSTEMD, documented_drop_in

OUTSIDE = "192.0.2.1"
SETUID = "/opt/setuid-id"
PROBE = f"{CHECKOUT}/tests/systemd/inside.py"
# What only the daemon's own sandbox keeps, beside what both do.
REFUSED = {
    "may gain privileges",
    "become root by setuid",
    "write /etc",
    "write /usr",
    "write /run",
    "write /var/lib",
    "write a kernel setting",
    "read /home",
    "see /tmp of others",
    "reach another host",
    "raw packets",
    "netlink",
    "open a disk",
    "new namespace",
}


def harmless_devices() -> "tuple[str, str]":
    """Return the minor numbers of two devices that nobody minds to be opened."""
    lines = Path("/proc/misc").read_text().splitlines()
    minors = {name: minor for minor, name in map(str.split, lines)}
    found = [minors[name] for name in ("fuse", "tun", "vga_arbiter", "autofs") if name in minors]
    if len(found) < 2:
        pytest.skip("this kernel has no two devices that may be opened for a test")
    return found[0], found[1]


@pytest.fixture(scope="module")
def trap(board):
    """A system with things in it that a sandbox should keep from a service."""
    # Harmless devices under the names that matter: what is tested is the unit's list.
    allowed, other = harmless_devices()
    board.run("sh", "-ec", f"""
        ip address add {OUTSIDE}/32 dev lo
        cp /usr/bin/id {SETUID}; chmod 4755 {SETUID}
        mkdir -p /var/lib/tegrascope /var/cache/tegrascope
        mkdir -p /home/somebody; chmod 755 /home/somebody; touch /tmp/of-others
        mknod -m 666 /dev/nvmap c 10 {allowed}; mknod -m 666 /dev/disk c 10 {other}
    """, check=True)  # fmt: skip
    return board


def probe(
    board, unit: str, *options: str, drop_in: str = "", outside: str = OUTSIDE
) -> "dict[str, object]":
    """Run the prober once, in place of a unit's own program, with nothing else changed."""
    text = board.run("cat", f"/etc/systemd/system/{unit}", check=True).stdout
    kept = [
        line
        for line in text.splitlines()
        if not line.startswith(("ExecStart=", "Type=", "WatchdogS", "StandardOutput=", "Wants="))
    ]
    kept.insert(
        kept.index("[Service]") + 1,
        f"Type=oneshot\nExecStart={INTERPRETER} -S {PROBE} {outside} {SETUID}\n"
        "StandardOutput=file:/run/found.json\n" + "\n".join(options),
    )
    board.write("/etc/systemd/system/probe.service", "\n".join(kept))
    board.run("mkdir", "-p", "/etc/systemd/system/probe.service.d", check=True)
    board.write("/etc/systemd/system/probe.service.d/docs.conf", drop_in)
    board.systemctl("daemon-reload")
    board.systemctl("start", "probe.service")
    return json.loads(board.run("cat", "/run/found.json", check=True).stdout)


def allowed(found: "dict[str, object]") -> "set[str]":
    return {name for name, value in found.items() if value is True}


def test_prober_outside_of_a_sandbox_can(trap):
    """Root without a sandbox can all of it; nobody can gain root by the setuid program."""
    command = (INTERPRETER, "-S", PROBE, OUTSIDE, SETUID)
    found = json.loads(trap.run(*command, check=True).stdout)
    assert REFUSED - {"become root by setuid"} <= allowed(found)
    nobody = trap.run("setpriv", "--reuid=nobody", "--clear-groups", *command, check=True).stdout
    assert json.loads(nobody)["become root by setuid"]


def test_daemon_is_confined(trap):
    """It writes to its own directories, reaches this host and its accelerators, and no more."""
    found = probe(trap, "tegrascope.service")
    assert found["uid"] != 0
    assert found["capabilities"] == 0
    assert allowed(found) == {
        "write its state",
        "write its cache",
        "reach this host",
        "open a DLA's node",
        "lower its priority",
    }


def test_drop_in_of_the_docs_shows_other_processes_and_nothing_else(trap):
    text = documented_drop_in("Processes of other users")
    allowed_without = allowed(probe(trap, "tegrascope.service"))
    assert allowed(probe(trap, "tegrascope.service", drop_in=text)) == {
        *allowed_without,
        "see process 1",
    }


PRIVATE = "10.20.30.40"


def test_drop_in_for_remote_receivers_opens_private_networks_and_nothing_else(trap):
    trap.run("ip", "address", "add", f"{PRIVATE}/32", "dev", "lo", check=True)
    text = (SYSTEMD / "tegrascope-remote.conf").read_text()
    shut = allowed(probe(trap, "tegrascope.service", outside=PRIVATE))
    opened = allowed(probe(trap, "tegrascope.service", drop_in=text, outside=PRIVATE))
    assert opened == {*shut, "reach another host"} != shut
    assert allowed(probe(trap, "tegrascope.service", drop_in=text)) == shut


def test_metrics_reach_a_remote_receiver_with_the_drop_in_only(trap):
    """Without it the problem is known, and names the page that has the remedy."""
    receive = ("-m", "tests.fakes.otlp_receiver", "4318", "/run/received", PRIVATE)
    where = f"PYTHONPATH={SITE}:{CHECKOUT}"
    options = ("--unit=receiver", f"--setenv={where}", f"--setenv=LD_LIBRARY_PATH={PYTHON}/lib")
    trap.run("systemd-run", *options, INTERPRETER, *receive, check=True)
    otlp = f"otlp: {{endpoint: 'http://{PRIVATE}:4318', interval: 1s}}"
    trap.write("/etc/tegrascope.yaml", f"telemetry: {{source: simulator}}\n{otlp}\n")
    trap.systemctl("start", "tegrascope")
    trap.wait_for(lambda: trap.metric('tegrascope_source_up{source="otlp"}') == 0)
    trap.wait_for(lambda: "docs/otlp.md" in trap.journal("tegrascope"))
    assert trap.run("test", "-s", "/run/received").returncode != 0
    text = (SYSTEMD / "tegrascope-remote.conf").read_text()
    trap.write("/etc/systemd/system/tegrascope.service.d/remote.conf", text)
    trap.systemctl("daemon-reload")
    trap.systemctl("restart", "tegrascope")
    trap.wait_for(lambda: trap.run("test", "-s", "/run/received").returncode == 0)
    trap.systemctl("stop", "tegrascope")


def test_root_helper_is_confined(trap):
    """Root in name: no capability, no network at all, nothing to write, no other device."""
    found = probe(trap, "tegrascope-tegrastats@.service", "StandardInput=null")
    assert found["uid"] == 0
    assert found["capabilities"] == 0
    assert allowed(found) <= {"see process 1", "open a DLA's node"}

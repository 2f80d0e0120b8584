"""``tegrascope service`` on a running system: installed, enabled, removed without a trace."""

import pytest

INSTALL = ("tegrascope", "service", "install", "--program", "/usr/bin/tegrascope")
# Written by systemd and by useradd's kin, whoever else they serve.
NOT_OURS = (
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/.pwd.lock",
    "/etc/sub",
)


def traces(machine) -> "set[str]":
    """Return what is on the disk and could be a trace."""
    listed = machine.run("find", "/etc", "/var/lib", "/var/cache", "/usr/lib", "/run", "-xdev")
    found = set(listed.stdout.splitlines())
    return {path for path in found if not path.startswith(NOT_OURS) and "journal" not in path}


@pytest.fixture(scope="module")
def installed(machine):
    """The service, installed from a pip installation and enabled."""
    machine.before = traces(machine)
    machine.run(*INSTALL, check=True)
    return machine


def test_install_starts_nothing(installed):
    """Units, user and settings are there; nothing is enabled or runs."""
    assert installed.run("id", "tegrascope").returncode == 0
    assert installed.show("tegrascope.service", "LoadState") == "loaded"
    assert installed.run("systemctl", "is-enabled", "tegrascope").stdout == "disabled\n"
    assert installed.run("systemctl", "is-active", "tegrascope").stdout == "inactive\n"


def test_enabled_it_is_ready_with_root_fields(installed):
    """One command more, and the page has what root sees."""
    installed.systemctl("enable", "--now", "tegrascope")
    assert installed.run("systemctl", "is-enabled", "tegrascope-tegrastats.socket").returncode == 0
    installed.wait_for(lambda: installed.get("readyz") == "ready\n")
    installed.wait_for(lambda: 'tegra_dla_active{core="0"}' in installed.get("metrics"))


def test_removed_with_purge_it_leaves_no_trace(installed):
    """First the units go and runs stay; then nothing is left, the user neither."""
    installed.run("tegrascope", "service", "remove", check=True)
    assert installed.show("tegrascope.service", "LoadState") == "not-found"
    assert installed.run("test", "-s", "/var/lib/tegrascope/tegrascope.db").returncode == 0
    installed.run("tegrascope", "service", "remove", "--purge", check=True)
    assert installed.run("id", "tegrascope").returncode != 0
    left = {path for path in traces(installed) - installed.before if "tegrascope" in path}
    assert left == set()

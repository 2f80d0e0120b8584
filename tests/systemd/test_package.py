"""The Debian package on a running system: installed, run, upgraded, removed, purged."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, TEGRASTATS

UNIT = "tegrascope.service"
PYTHON = "/usr/bin/python3"
CONFIG = """
workloads:
- {name: brief, command: sleep 0.2, device: external, baseline: 0s, every: 1s}
"""
NOT_OURS = ("/var/lib/dpkg", "/var/lib/systemd", "/var/cache/ldconfig", "/run/systemd", "/etc/sub")
ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock")


def output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def why_not() -> "str | None":
    """Say why no package can be built and installed here."""
    if not shutil.which("dpkg-deb") or not Path(PYTHON).exists():
        return "this is no Debian, or it has no Python of its own"
    if output(PYTHON, "-c", "import sys; print(sys.version_info >= (3, 10))") != "True":
        return f"{PYTHON} is older than 3.10"
    index = (sys.executable, "-m", "pip", "index", "versions", "cronsim")
    if subprocess.run(index, capture_output=True, check=False).returncode:
        return "no package index can be reached"
    return None


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two packages for this machine: the present version, and one that comes after it."""
    if reason := why_not():
        pytest.skip(reason)
    made = tmp_path_factory.mktemp("packages")
    python = output(PYTHON, "-c", "import sys; print('{}.{}'.format(*sys.version_info))")
    arch = output("dpkg", "--print-architecture")
    script = str(ROOT / "packaging/deb/build.py")
    build = [sys.executable, script, "--arch", arch, "--python", python]
    done = subprocess.run([*build, "-o", str(made)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (first,) = made.glob("*.deb")
    tree = made / "tree"
    output("dpkg-deb", "-R", str(first), str(tree))
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: ", "Version: 99+"))
    output("dpkg-deb", "-Znone", "-b", str(tree), str(made / "next.deb"))
    shutil.rmtree(tree)
    first.rename(made / "first.deb")
    return made


@pytest.fixture(scope="module")
def clean(boot, packages) -> Iterator[object]:
    """A system that never saw tegrascope, and the packages in /packages."""
    rig = boot(**{str(packages): "/packages"})
    rig.write("/usr/bin/tegrastats", TEGRASTATS, 0o755)
    rig.before = traces(rig)
    yield rig


def traces(rig) -> "set[str]":
    """Return all files where a package may leave some."""
    places = ("/etc", "/usr", "/lib", "/var/lib", "/var/cache", "/run", "/opt")
    found = rig.run("find", *places, "-xdev", check=True).stdout.splitlines()
    return {path for path in found if not path.startswith(NOT_OURS + ACCOUNTS)}


def run_ids(rig) -> "set[str]":
    return {run["run_id"] for run in rig.json("api/v1/runs?limit=1000").get("runs", [])}


def test_installed_it_starts_nothing(clean):
    """The program works, and no unit is enabled or runs."""
    clean.run("dpkg", "-i", "/packages/first.deb", check=True)
    assert clean.run("tegrascope", "--version", check=True).stdout.startswith("tegrascope ")
    assert clean.run("systemctl", "is-enabled", UNIT).stdout == "disabled\n"
    assert clean.run("systemctl", "is-active", UNIT).stdout == "inactive\n"
    sees_system = clean.run("cat", "/usr/lib/tegrascope/venv/pyvenv.cfg", check=True).stdout
    assert "include-system-site-packages = true" in sees_system


def test_enabled_it_runs_with_root_fields(clean):
    """With one command it is ready, has what root sees, and runs what it is told to."""
    clean.systemctl("enable", "--now", "tegrascope")
    clean.wait_for(lambda: clean.get("readyz") == "ready\n")
    assert 'tegra_dla_active{core="0"}' in clean.get("metrics")
    clean.write("/etc/tegrascope.yaml", CONFIG)
    clean.systemctl("restart", "tegrascope")
    clean.wait_for(lambda: run_ids(clean))


def test_upgrade_keeps_runs_settings_and_state_of_the_service(clean):
    """It runs again by itself, with every run on record and the file as the user wrote it."""
    before = run_ids(clean)
    clean.run("dpkg", "-i", "/packages/next.deb", check=True)
    assert "99+" in clean.run("dpkg-query", "-W", "tegrascope").stdout
    clean.wait_for(lambda: run_ids(clean))
    assert before <= run_ids(clean)
    assert clean.run("cat", "/etc/tegrascope.yaml").stdout == CONFIG
    assert clean.run("systemctl", "is-enabled", UNIT).stdout == "enabled\n"


def test_removed_it_keeps_runs_and_settings(clean):
    """Nothing runs any more; what is the user's is there for the next installation."""
    clean.run("dpkg", "-r", "tegrascope", check=True)
    assert clean.show(UNIT, "LoadState") == "not-found"
    assert clean.run("pgrep", "-f", "tegrascope run").stdout == ""
    assert clean.run("test", "-e", "/usr/lib/tegrascope").returncode == 1
    assert clean.run("test", "-s", "/var/lib/tegrascope/tegrascope.db").returncode == 0
    assert clean.run("cat", "/etc/tegrascope.yaml").stdout == CONFIG


def test_purged_it_leaves_nothing(clean):
    """Every file and the user are gone."""
    clean.run("dpkg", "-P", "tegrascope", check=True)
    assert clean.run("id", "tegrascope").returncode != 0
    assert traces(clean) - clean.before == set()

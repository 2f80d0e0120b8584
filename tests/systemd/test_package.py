"""The Debian package on a running system: installed, run, upgraded, removed, purged."""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.models import write_chain
from tests.fakes.shims import write_shims

from .conftest import ROOT, TEGRASTATS, build_package, output

UNIT = "tegrascope.service"
VENV = "/usr/lib/tegrascope/venv"
CONFIG = """
workloads:
- {name: brief, command: sleep 0.2, device: external, baseline: 0s, every: 3s}
- {name: engine, model: /packages/chain.onnx, device: gpu, duration: 0.2s, baseline: 0s, every: 3s}
"""
NOT_OURS = ("/var/lib/dpkg", "/var/lib/systemd", "/var/cache/ldconfig", "/run/systemd", "/etc/sub")
ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two packages for this machine: the present version, and one that comes after it."""
    made = tmp_path_factory.mktemp("packages")
    first, python, arch = build_package(made)
    tree = made / "tree"
    output("dpkg-deb", "-R", str(first), str(tree))
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("Version: ", "Version: 99+"))
    output("dpkg-deb", "-Znone", "-b", str(tree), str(made / "next.deb"))
    shutil.rmtree(tree)
    first.rename(made / "first.deb")
    # The stand-ins of TensorRT and CUDA, and what these need: a user adds it.
    write_shims(made / "board")
    shutil.copytree(ROOT / "tests/fakes", made / "board/tests/fakes")
    write_chain(made / "chain.onnx", "Conv", "Relu")
    glibcs = ("2_17", "2_27", "2_28")
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[arch]
    platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in glibcs]
    wheels = ("--only-binary=:all:", f"--python-version={python}", "-d", str(made / "wheels"))
    pip = (sys.executable, "-m", "pip", "-q", "download")
    output(*pip, *wheels, *platforms, "numpy", "onnx")
    made.chmod(0o755)
    return made


@pytest.fixture(scope="module")
def clean(boot, packages) -> Iterator[object]:
    """A system that never saw tegrascope, and the packages in /packages."""
    rig = boot(**{str(packages): "/packages"})
    rig.write("/usr/bin/tegrastats", TEGRASTATS, 0o755)
    # Where apt puts the bindings of JetPack.
    rig.write("/usr/lib/python3/dist-packages/jetpack.pth", "/packages/board\n")
    # What an administrator wants of pip elsewhere; ours has no such wheel.
    rig.write("/etc/pip.conf", "[install]\nconstraint = /etc/constraints.txt\n")
    rig.write("/etc/constraints.txt", "pydantic==1.0\n")
    rig.before = traces(rig)
    yield rig


def traces(rig) -> "set[str]":
    """Return all files where a package may leave some."""
    places = ("/etc", "/usr", "/lib", "/var/lib", "/var/cache", "/run", "/opt")
    found = rig.run("find", *places, "-xdev", check=True).stdout.splitlines()
    return {path for path in found if not path.startswith(NOT_OURS + ACCOUNTS)}


def run_ids(rig, **wanted: str) -> "set[str]":
    runs = rig.json("api/v1/runs?limit=1000").get("runs", [])
    return {run["run_id"] for run in runs if wanted.items() <= run.items()}


def test_lintian_finds_no_error(packages):
    if not shutil.which("lintian"):
        pytest.skip("lintian is not installed: apt install lintian")
    found = output("lintian", "--allow-root", "--fail-on", "none", str(packages / "first.deb"))
    assert [line for line in found.splitlines() if line.startswith("E:")] == []


def test_control_has_size_and_bounds_of_python(packages):
    """Apt shows what the installation takes, and does not remove a Python that it needs."""
    told = output("dpkg-deb", "-f", str(packages / "first.deb"), "Installed-Size", "Depends")
    size, depends = (line.partition(": ")[2] for line in told.splitlines())
    assert 20_000 < int(size) < 200_000
    assert depends.count("python3 (") == 2


def test_installed_it_starts_nothing(clean):
    """The program works, and no unit is enabled or runs."""
    clean.run("dpkg", "-i", "/packages/first.deb", check=True, seconds=600)
    assert clean.run("tegrascope", "--version", check=True).stdout.startswith("tegrascope ")
    assert clean.run("systemctl", "is-enabled", UNIT).stdout == "disabled\n"
    assert clean.run("systemctl", "is-active", UNIT).stdout == "inactive\n"
    sees_system = clean.run("cat", "/usr/lib/tegrascope/venv/pyvenv.cfg", check=True).stdout
    assert "include-system-site-packages = true" in sees_system
    remedies = clean.run("tegrascope", "doctor", "--json").stdout
    assert f'"sudo {VENV}/bin/pip install onnxruntime"' in remedies
    programs = ("dla-trace", "gpu-trace", "memory", "power")
    for page in ("tegrascope", *(f"tegrascope-{name}" for name in programs)):
        text = clean.run("zcat", f"/usr/share/man/man1/{page}.1.gz", check=True).stdout
        assert text.startswith(".TH TEGRASCOPE")


def test_enabled_it_runs_with_root_fields(clean):
    """With one command it is ready, has what root sees, and runs what it is told to."""
    clean.systemctl("enable", "--now", "tegrascope")
    clean.wait_for(lambda: clean.get("readyz") == "ready\n")
    clean.wait_for(lambda: 'tegra_dla_active{core="0"}' in clean.get("metrics"))
    clean.write("/etc/tegrascope.yaml", CONFIG)
    clean.systemctl("restart", "tegrascope")
    clean.wait_for(lambda: run_ids(clean, workload="brief"))


def test_run_with_tensorrt_and_added_packages_ends_ok(clean):
    """The bindings of the system and what the environment's own pip adds are found."""
    pip = (f"{VENV}/bin/pip", "install", "-q", "--no-index", "--find-links", "/packages/wheels")
    clean.run(*pip, "numpy", "onnx", check=True, seconds=300)
    clean.systemctl("restart", "tegrascope")
    assert clean.wait_for(lambda: run_ids(clean, workload="engine", outcome="ok"), 300)


def test_upgrade_keeps_runs_settings_and_added_packages(clean):
    """It runs again by itself, with every run on record and the file as the user wrote it."""
    before = run_ids(clean)
    began = time.monotonic()
    clean.run("dpkg", "-i", "/packages/next.deb", check=True, seconds=600)
    took = time.monotonic() - began
    assert "99+" in clean.run("dpkg-query", "-W", "tegrascope").stdout
    # The service runs while pip works, which takes most of the time.
    stopped = int(clean.show(UNIT, "ActiveExitTimestampMonotonic"))
    started = int(clean.show(UNIT, "ActiveEnterTimestampMonotonic"))
    assert 0 < (started - stopped) / 1e6 < took / 2
    after = clean.wait_for(lambda: run_ids(clean, workload="engine", outcome="ok") - before, 300)
    assert before <= run_ids(clean)
    assert after
    assert clean.run("cat", "/etc/tegrascope.yaml").stdout == CONFIG
    assert clean.run("systemctl", "is-enabled", UNIT).stdout == "enabled\n"
    environments = clean.run("sh", "-c", "ls -d /usr/lib/tegrascope/env.*").stdout.split()
    assert environments == [clean.run("readlink", "-f", VENV).stdout.strip()]


def test_another_python_of_the_system_gets_an_environment_of_its_own(clean):
    """The old environment has no package for it; dpkg starts the repair."""
    clean.run("sh", "-c", f"mv {VENV}/lib/python3.* {VENV}/lib/python3.0", check=True)
    assert clean.run("tegrascope", "--version").returncode != 0
    clean.run("dpkg-trigger", "--by-package=dpkg", "/usr/bin/python3", check=True)
    clean.run("dpkg", "--triggers-only", "tegrascope", check=True, seconds=600)
    assert clean.run("tegrascope", "--version", check=True).stdout.startswith("tegrascope ")


def test_removed_it_keeps_runs_and_settings(clean):
    """Nothing runs any more; what is the user's is there for the next installation."""
    clean.run("dpkg", "-r", "tegrascope", check=True)
    assert clean.show(UNIT, "LoadState") == "not-found"
    assert clean.run("pgrep", "-f", "tegrascope run").stdout == ""
    assert clean.run("test", "-e", "/usr/lib/tegrascope").returncode == 1
    assert clean.run("systemctl", "--failed", "--plain", "--no-legend").stdout == ""
    assert clean.run("test", "-s", "/var/lib/tegrascope/tegrascope.db").returncode == 0
    assert clean.run("cat", "/etc/tegrascope.yaml").stdout == CONFIG


def test_purged_it_leaves_nothing(clean):
    """Every file and the user are gone."""
    clean.run("dpkg", "-P", "tegrascope", check=True)
    assert clean.run("id", "tegrascope").returncode != 0
    assert traces(clean) - clean.before == set()

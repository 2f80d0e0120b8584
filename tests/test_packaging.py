"""What is installed is all that is needed; what sets it up says so where it can't."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.conftest import not_tested

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"


def test_packages_are_those_of_the_tree():
    """A sub-package that nobody named in pyproject.toml would be missing from the wheel."""
    found = {"tegrascope"}
    for room in ("collectors", "daemon", "parsers", "workbench"):
        for path in (ROOT / room).rglob("*.py"):
            found.add(".".join(("tegrascope", *path.parent.relative_to(ROOT).parts)))
            assert (path.parent / "__init__.py").is_file()
    assert sorted(found) == PROJECT["tool"]["setuptools"]["packages"]


def test_no_stray_module_at_the_root():
    """Every Python file at the root ships as part of the package, so there are just these."""
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist of this tree, built in a copy of it that has no leftovers."""
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("not a checkout")
    copy = tmp_path_factory.mktemp("build") / "tegrascope"
    left_out = shutil.ignore_patterns(
        ".[!c]*", "build", "dist", "*.egg-info", "__pycache__", "captures", "venv", "env"
    )
    shutil.copytree(ROOT, copy, ignore=left_out)
    told = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=copy, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return copy / "dist"


def files_in_wheel(dist: Path) -> set[str]:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        return {name for name in wheel.namelist() if not name.endswith("/")}


def test_wheel_is_pure(built):
    """One wheel for every machine: no compiler is needed on a board."""
    assert [path.name for path in built.glob("*.whl")] == [
        f"tegrascope-{version()}-py3-none-any.whl"
    ]


def version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_wheel_has_all_that_runs_and_no_test(built):
    """Modules, their data, the unit and the dashboards are in it, and nothing else."""
    expected = {"tegrascope/__init__.py", "tegrascope/__main__.py", "tegrascope/py.typed"}
    patterns = ("*.py", "*.toml", "*.yaml", "*.css")
    for room in ("collectors", "daemon", "parsers", "workbench"):
        for pattern in patterns:
            expected |= {
                f"tegrascope/{path.relative_to(ROOT)}" for path in (ROOT / room).rglob(pattern)
            }
    for folder in ("systemd", "grafana", "daemon/web/static"):
        expected |= {
            f"tegrascope/{path.relative_to(ROOT)}"
            for path in (ROOT / folder).rglob("*")
            if path.is_file()
        }
    expected.add("tegrascope/daemon/web/page/flags.json")
    # The sources of the pages are joined into those in the folder static.
    expected -= {
        f"tegrascope/{path.relative_to(ROOT)}" for path in ROOT.glob("daemon/web/page/*.css")
    }
    assert "tegrascope/daemon/commands/demo.yaml" in expected
    found = {name for name in files_in_wheel(built) if ".dist-info/" not in name}
    assert found == expected


def test_wheel_works_away_from_the_checkout(built, tmp_path):
    """Unpacked anywhere it finds its own data, and the simulated board runs."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path)
    code = (
        "import importlib.resources as r, tegrascope; print(tegrascope.__file__);"
        "folder = r.files('tegrascope') / 'grafana' / 'dashboards';"
        "print(*sorted(path.name for path in folder.iterdir()))"
    )
    simulated = (
        "from tegrascope.collectors.simulator.board import SimulatorSource;"
        "next(SimulatorSource(interval_seconds=0.01).lines())"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (
        ["-c", code],
        ["-c", "from tegrascope.daemon.web.status_page import STATIC as d; d.iterdir()"],
        ["-c", simulated],
        ["-m", "tegrascope", "check-config", f"{tmp_path}/tegrascope/daemon/commands/demo.yaml"],
    ):
        told = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (told.returncode, told.stderr) == (0, "")
        if command[1] == code:
            assert told.stdout.splitlines() == [
                str(tmp_path / "tegrascope/__init__.py"),
                "device.json dla-or-gpu.json fleet.json like.json workload.json",
            ]


def test_sdist_can_be_tested(built):
    """Who packages it gets the tests and what they look at."""
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for name in ("Makefile", "README.md", "llms.txt", ".ci/run", "docs/measurement.md"):
        assert name in names
    assert f"tests/{Path(__file__).name}" in names
    assert "tests/service/conftest.py" in names
    assert "tools/dashboards/catalog.py" in names


def test_summary_names_what_was_not_tested_and_the_package():
    """One line per remedy, so that a green run does not look like more than it is."""
    prometheus = "Skipped: promtool is not installed: apt install prometheus"
    skips = [
        ("tests/monitoring/test_alerts.py::test_one[a]", prometheus),
        ("tests/monitoring/test_alerts.py::test_two", prometheus),
        ("tests/test_dashboards.py::test_rules", "Skipped: apt install prometheus"),
        ("tests/store/test_full.py", "Skipped: needs root"),
    ]
    assert not_tested(skips) == [
        "not tested here: alerts through Prometheus and Alertmanager, rules and dashboards,"
        " 3 tests: apt install prometheus",
        "not tested here: store, 1 test: needs root",
    ]


def test_summary_is_printed_at_the_end(tmp_path):
    """The hook is in force, and a node that was skipped on import counts too."""
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/conftest.py", tmp_path / "tests")
    for name, text in (
        ("test_called.py", "def test(): pytest.skip('apt install it')"),
        ("test_imported.py", "pytest.importorskip('no_such_module', reason='pip install it')"),
    ):
        (tmp_path / "tests" / name).write_text(f"import pytest\n{text}\n")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "not tested here: called, 1 test: apt install it\n" in told.stdout
    assert "not tested here: imported, 1 test: pip install it\n" in told.stdout


def make(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        # Not as part of the make that may have started these tests.
        env={key: value for key, value in os.environ.items() if not key.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )


needs_make = pytest.mark.skipif(not shutil.which("make"), reason="apt install make")


@needs_make
def test_set_up_is_not_done_twice(tmp_path):
    """The second ``make run`` just runs; a change of pyproject.toml sets up again."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/pip").touch()
    (tmp_path / ".run").touch()
    assert "install" not in make("-n", "run", f"VENV={tmp_path}").stdout
    os.utime(tmp_path / ".run", (0, 0))
    assert "install -e '.[onnxruntime]'" in make("-n", "run", f"VENV={tmp_path}").stdout


@needs_make
def test_light_set_up_is_completed_by_a_full_one_and_needs_nothing_after_it(tmp_path):
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    (tmp_path / "bin/pip").touch()
    python.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n')
    python.chmod(0o755)
    program = tmp_path / "bin/tegrascope"
    program.write_text(f"#!/bin/sh\necho ran >>{tmp_path}/asked\n")
    program.chmod(0o755)
    for arguments in (("LIGHT=1",), (), ("LIGHT=1",), ("LIGHT=0",)):
        make("run", f"VENV={tmp_path}", *arguments).check_returncode()
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [words.partition(" install ")[2] or words for words in asked] == [
        *("-e .", "ran"),
        *("-e .[onnxruntime]", "ran"),
        *("ran", "ran"),
    ]


@needs_make
def test_set_up_names_each_large_download_when_it_begins(tmp_path):
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    (tmp_path / "bin/pip").touch()
    lines = (
        "Collecting numpy>=1.26 (from tegrascope==0.2.0)",
        "  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (6.6 kB)",
        "Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.9 MB)",
        "  Downloading https://mirror/x-1/pydantic_core-2.41.5-cp311-manylinux2014.whl (2.1 MB)",
        "Installing collected packages: numpy, pydantic_core",
        "Successfully installed numpy-2.4.6 pydantic_core-2.41.5",
    )
    python.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(lines) + "\nEND\n")
    python.chmod(0o755)
    told = make(f"{tmp_path}/.light", f"VENV={tmp_path}")
    assert told.stderr.splitlines()[1:] == [
        "  numpy 16.9 MB",
        "  pydantic_core 2.1 MB",
        "  all is here, and is unpacked",
    ]
    assert told.stdout == ""


@needs_make
@pytest.mark.parametrize("lacking", ["", "--no-index"])
def test_set_up_without_network_needs_all_requirements(tmp_path, lacking):
    """The build of a package fails offline. The environment is good if it lacks nothing."""
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    (tmp_path / "bin/pip").touch()
    refuse = "'install -e'*" + (f" | *{lacking}*" if lacking else "")
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *{refuse}) exit 1;; -c*) exec {sys.executable} "$@";; esac\n'
        f'case "$*" in *--no-index*) cat >{tmp_path}/asked;; esac\n'
    )
    python.chmod(0o755)
    told = make(f"{tmp_path}/.run", f"VENV={tmp_path}")
    assert f"installs into {tmp_path}: downloads about " in told.stderr
    assert (tmp_path / ".run").exists() is not lacking.startswith("--")
    assert (told.returncode == 0) is (lacking == "")
    if not lacking:
        project = PROJECT["project"]
        needed = [*project["dependencies"], *project["optional-dependencies"]["onnxruntime"]]
        assert (tmp_path / "asked").read_text().splitlines() == needed
        assert "continues with what" in told.stderr


@needs_make
@pytest.mark.parametrize(
    ("refused", "remedy"),
    [("version_info", "make PYTHON="), ("ensurepip", "apt install python3-venv")],
)
def test_python_that_will_not_do_is_told(tmp_path, refused, remedy):
    """Too old a Python, or one without venv, ends in one line that says what to do."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{refused}*) exit 1;; esac\n')
    python.chmod(0o755)
    told = make("run", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
    assert told.returncode != 0
    lines = [line for line in told.stderr.splitlines() if not line.startswith("make")]
    assert len(lines) == 1
    assert remedy in lines[0]
    assert told.stdout == ""
    assert not (tmp_path / "venv").exists()

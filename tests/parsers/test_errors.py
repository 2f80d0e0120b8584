"""Remedies: the command that installs a package fits the interpreter that lacks it."""

import ast
import re
import subprocess
import venv
from pathlib import Path

import pytest

import tegrascope
from tegrascope.parsers import errors
from tegrascope.parsers.errors import PIP_INSTALL, pip_install

ROOT = Path(tegrascope.__file__).parent
ROOMS = ("parsers", "collectors", "daemon", "workbench")


@pytest.fixture
def environment(tmp_path):
    """An environment with a space in its name and a pip."""
    folder = tmp_path / "my env"
    venv.create(folder, symlinks=True)
    pip = folder / "bin/pip"
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    return folder


def remedy_of(python):
    """Return the command that an interpreter prints."""
    source = "import runpy, sys; print(runpy.run_path(sys.argv[1])['PIP_INSTALL'])"
    argv = [python, "-c", source, errors.__file__]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_remedy_names_the_pip_of_the_environment(environment):
    assert remedy_of(environment / "bin/python") == f"'{environment}/bin/pip' install"


def test_environment_without_pip_runs_it_by_its_interpreter(environment):
    (environment / "bin/pip").unlink()
    expected = f"'{environment}/bin/python' -m pip install"
    assert remedy_of(environment / "bin/python") == expected


def test_remedy_of_this_interpreter_runs():
    command = PIP_INSTALL.replace("sudo ", "")
    if "ENV" in command:
        pytest.skip("these tests run in the system's Python")
    done = subprocess.run(f"{command} --help", shell=True, capture_output=True, check=False)
    assert done.returncode == 0


def test_system_that_refuses_gets_an_environment(tmp_path):
    (tmp_path / "EXTERNALLY-MANAGED").touch()
    words = pip_install("/usr/bin/python3", "/usr", is_environment=False, library=str(tmp_path))
    assert words.startswith("python3 -m venv ENV, ")
    assert words.endswith("ENV/bin/pip install")


def test_system_that_does_not_refuse_is_used(tmp_path):
    (tmp_path / "pip").touch(mode=0o755)
    python = str(tmp_path / "python3")
    words = pip_install(python, str(tmp_path), is_environment=False, library=str(tmp_path))
    assert words == f"{tmp_path}/pip install"


def test_environment_that_cannot_be_written_needs_sudo(tmp_path):
    # Root may write to every directory that exists.
    words = pip_install("/opt/tegrascope/bin/python", str(tmp_path / "none"), is_environment=True)
    assert words == "sudo /opt/tegrascope/bin/python -m pip install"


def test_every_remedy_that_names_pip_names_the_right_one():
    """A text in the code has ``PIP_INSTALL``, or the pip of an environment that it names."""
    bare = []
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
                if is_text and re.search(r"(?<!/bin/)\bpip3? install", node.value):
                    bare.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert [place for place in bare if not place.startswith("parsers/errors.py:")] == []

"""How children are started."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.children import program
from tegrascope.collectors.children.column_helper import ColumnHelper
from tegrascope.collectors.children.process import LineChild
from tegrascope.collectors.children.program import python_child
from tegrascope.collectors.files import write_atomic
from tegrascope.daemon.session.executor import worker_command
from tests.fakes.processes import PATIENCE_SECONDS

TRAP = "import os; os.write(2, b'trapped'); os._exit(66)\n"


@pytest.fixture
def trapped(tmp_path, monkeypatch):
    """Stand in a directory full of modules named like those that our children import."""
    for name in ("runpy", "json", "argparse", "pydantic", "ctypes", "signal", "tegrascope"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("trapped")
@pytest.mark.parametrize("module", ["worker.child", "gpu.reader", "backends.tensorrt_probe"])
def test_our_children_never_import_from_the_current_directory(module):
    done = subprocess.run(
        python_child(f"tegrascope.collectors.{module}", "--help"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"python -m tegrascope.collectors.{module}" in done.stdout


@pytest.mark.usefixtures("trapped")
def test_helper_of_long_logs_never_imports_from_the_current_directory():
    with ColumnHelper() as helper:
        assert helper.ready.exception() is None


def test_children_that_run_our_python_are_started_by_one_helper():
    """Another way would put the current directory on their path, as ``-m`` and executors do."""
    root, helper = Path(program.__file__).parents[2], Path(program.__file__)
    for folder in ("collectors", "daemon", "parsers"):
        for path in (root / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"ProcessPool|multiprocessing\.(Process|Pool)|get_context", text)
            for found in re.finditer(r"sys\.executable, *(.{4})", text):
                assert path == helper or found[1] == '"-I"', path


def test_current_directory_is_left_out_of_the_path(trapped, monkeypatch):
    monkeypatch.syspath_prepend(trapped)
    monkeypatch.setattr(sys, "path", ["", *sys.path, "relative"])
    path = python_child("json.tool")[-1].split(os.pathsep)
    assert str(trapped) not in path
    assert str(trapped / "relative") in path


def test_children_have_names_that_people_recognise():
    """``top`` shows 15 characters, ``ps`` and ``htop`` show the arguments."""
    with LineChild((*worker_command("dla0"), "--lane", "dla0"), stdin=True) as child:
        assert isinstance(child.read(PATIENCE_SECONDS), Stamped)
        process = Path(f"/proc/{child.pid}")
        assert (process / "comm").read_text() == "tegrascope dla0\n"
        shown = (process / "cmdline").read_text().replace("\0", " ")
    assert "tegrascope_child.py tegrascope-worker dla0 " in shown
    assert "\n" not in shown


def test_name_of_a_child_is_that_of_its_module_unless_given():
    assert "tegrascope-tool" in python_child("json.tool")
    assert "tegrascope-model resnet50" in python_child("json.tool", name="model resnet50")


def test_file_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "secret"
    write_atomic(target, b"one", mode=0o600)
    write_atomic(target, b"two", mode=0o600)
    assert target.read_bytes() == b"two"
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="directory"):
        write_atomic(tmp_path, b"three")
    assert list(tmp_path.iterdir()) == [target]

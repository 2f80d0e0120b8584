"""Every command as a user who may not read a path: one line, and no traceback."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tegrascope.workbench.commands import COMMANDS

# DIR may not be entered, and FILE may not be read.
LINES = (
    "run -c DIR/t.yaml",
    "run -c FILE",
    "run --web.config.file DIR/web.yml",
    "run --state-dir DIR/state --listen 127.0.0.1:0",
    "bench DIR/model.onnx",
    "bench FILE",
    "bench -c DIR/t.yaml builtin:mobilenet",
    "bench -o DIR/out builtin:mobilenet",
    "bench --simulate --state-dir DIR/state resnet50 -o .",
    "advise DIR/result --rates a=1",
    "advise FILE --rates a=1",
    "advise FILE --rates a=1 -o DIR",
    "verify DIR/promised -- true",
    "compare DIR/result FILE",
    "compare FILE FILE",
    "compare a b --state-dir DIR",
    "inspect DIR/model.onnx",
    "inspect FILE",
    "inspect builtin:resnet50 --state-dir DIR/state",
    "exec --workload a -c DIR/t.yaml -- true",
    "exec --workload a -- DIR/program",
    "parse DIR/robot.log",
    "parse FILE",
    "parse -o DIR/out FILE",
    "correlate --telemetry DIR/robot.log --runs DIR/runs.csv",
    "top --once --url http://127.0.0.1:1",
    "runs list --state-dir DIR",
    "runs show x --state-dir DIR/state",
    "runs export --state-dir DIR",
    "report -o page.html --state-dir DIR",
    "engines list --state-dir DIR",
    "engines prune --all --state-dir DIR",
    "engines build builtin:resnet50 --on gpu --state-dir DIR/state",
    "service install --dry-run --root DIR",
    "service remove --dry-run --root DIR",
    "check-config DIR/t.yaml",
    "check-config --web.config.file FILE",
    "doctor -c DIR/t.yaml",
    "doctor --state-dir DIR/state",
    "prove --anyway --quick --no-sudo --state-dir DIR -o p.zip",
    "prove --show DIR/p.zip",
    "completion bash",
    "simulate --load DIR",
)
# These say something else, or nothing is denied to them.
OTHERS = ("parse", "exec", "top", "engines build", "doctor", "completion", "simulate")
_PROGRAM = """
import contextlib, io, json, sys, traceback
from tegrascope.workbench.cli import main
found = {}
for line in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(line.split())
        except SystemExit as ended:
            status = ended.code
        except BaseException:
            status = traceback.format_exc()
    found[line] = status, err.getvalue()
print(json.dumps(found))
"""
_BOUNDING_SET_DROP = 24  # of prctl
_CAPABILITIES = (1, 2, 10)  # to ignore modes, to read and search everything, ports below 1024


def as_ordinary_user() -> None:
    """Let modes hold for root too, from the next program on.

    Another user could not read an interpreter in the home directory of root.
    """
    libc = ctypes.CDLL(None)
    for capability in _CAPABILITIES if os.geteuid() == 0 else ():
        if libc.prctl(_BOUNDING_SET_DROP, capability, 0, 0, 0):
            raise OSError("this root cannot give up its rights")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Run all lines in one process; return the status and the errors of each."""
    place = tmp_path_factory.mktemp("denied")
    directory, file = place / "shut", place / "file.onnx"
    directory.mkdir()
    file.write_text("x")
    file.chmod(0)
    directory.chmod(0)
    names = {"DIR": str(directory), "FILE": str(file)}

    def fill(line: str) -> str:
        for name, path in names.items():
            line = line.replace(name, path)
        return line

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps([fill(line) for line in LINES]),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=place,
        env={**os.environ, "HOME": str(place)},
        preexec_fn=as_ordinary_user,
    )
    directory.chmod(0o700)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {line: found[fill(line)] for line in LINES}


def test_every_command_is_tried():
    assert {line.split()[0] for line in LINES} == set(COMMANDS)


@pytest.mark.parametrize("line", LINES)
def test_denied_path_gives_no_traceback(line, said):
    status, printed = said[line]
    # 78 for a configuration, and 126 as a shell for a program it may not run.
    assert status in (0, 1, 2, 3, 78, 126), status
    assert "Traceback" not in printed
    assert "Error:" not in printed


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith(OTHERS)])
def test_denied_path_is_one_line_with_its_reason(line, said):
    status, printed = said[line]
    assert status in (1, 3, 78)
    assert printed.count("\n") == 1
    assert ("Permission denied" in printed) or "cannot be read" in printed
    for wrong in ("chmod a+r", "export the model again", "error(s) in the configuration"):
        assert wrong not in printed


@pytest.mark.parametrize("line", ["parse FILE", "parse DIR/robot.log"])
def test_unreadable_log_is_counted(line, said):
    status, printed = said[line]
    first, second = printed.splitlines()
    assert status == 1
    assert "Permission denied: use sudo, or name another" in first
    assert second.startswith("0 lines")


def test_store_of_the_service_names_its_user(said):
    assert "sudo -u tegrascope tegrascope" in said["runs list --state-dir DIR"][1]


def test_port_below_1024_asks_for_another(tmp_path):
    start = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()
    if int(start) <= 80:
        pytest.skip("this kernel allows every port to every user")
    done = subprocess.run(
        [*(sys.executable, "-m", "tegrascope", "run"), "--listen", "127.0.0.1:80"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        cwd=tmp_path,
        preexec_fn=as_ordinary_user,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Permission denied: only root may use a port below 1024" in done.stderr

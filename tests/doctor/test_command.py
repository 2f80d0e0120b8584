"""The command as its users meet it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tegrascope.daemon.commands.doctor import make_context

from .boards import Tree


def doctor(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tegrascope", "doctor", "--state-dir", str(tmp_path), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tegrascope.yaml"
    path.write_text(text)
    return str(path)


def test_on_any_machine_it_ends_well(tmp_path):
    """Here, whatever here is: findings of all groups, nothing on standard error, 0 or 3."""
    told = doctor(tmp_path, "--json")
    document = json.loads(told.stdout)
    assert told.stderr == ""
    assert told.returncode == (0 if document["ok"] else 3)
    assert [*dict.fromkeys(one["group"] for one in document["findings"])] == [
        *("board", "telemetry", "dla", "inference", "workloads", "clock", "room", "service"),
    ]
    assert "check itself failed" not in told.stdout


def test_exit_is_0_where_the_job_can_be_done(tmp_path):
    """Simulated telemetry and a workload of a program: nothing stops them anywhere."""
    text = (
        "telemetry: {source: simulator}\nhttp: {listen: '127.0.0.1:0'}\n"
        f"workloads: [{{name: w, command: {sys.executable}}}]\n"
    )
    told = doctor(tmp_path, "-c", config(tmp_path, text))
    assert told.returncode == 0, told.stdout
    assert told.stdout.splitlines()[-1].startswith("The main job can be done")
    assert "\x1b" not in told.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("telemetry: {sorce: simulator}\n", "did you mean source?"),
        ("telemetry: {source: replay, replay: {path: /none.log}}\n", "/none.log cannot be read"),
        ("workloads: [{name: w, command: /none/program}]\n", "/none/program does not exist"),
        ("workloads: [{name: w, model: /none.onnx, device: cpu}]\n", "/none.onnx cannot be read"),
    ],
    ids=["typing error", "replay", "program", "model"],
)
def test_exit_is_3_where_it_cannot(tmp_path, text, message):
    """A bad file, telemetry or workload that can't be: status 3, and the finding says which."""
    told = doctor(tmp_path, "-c", config(tmp_path, text))
    assert told.returncode == 3
    assert message in " ".join(told.stdout.split())


def test_configuration_that_is_not_there_is_a_finding(tmp_path):
    """A path that cannot be read is told like all else, not by an error of its own."""
    told = doctor(tmp_path, "-c", str(tmp_path / "none.yaml"))
    assert (told.returncode, told.stderr) == (3, "")
    assert "No such file" in told.stdout


def test_installed_service_is_what_is_examined(tmp_path):
    """Without -c the service's own file and directory are taken, where they are there."""
    tree = Tree(tmp_path).write("/etc/tegrascope.yaml", "telemetry: {source: simulator}\n")
    (tmp_path / "var/lib/tegrascope").mkdir(parents=True)
    found = make_context(tree.machine(), None, None)
    assert found.config.telemetry.source == "simulator"
    assert found.state_dir == Path("/var/lib/tegrascope")
    assert make_context(tree.machine(), None, tmp_path).state_dir == tmp_path

"""The command line of doctor."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tegrascope.workbench.commands.doctor import make_context

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


def test_any_machine_gets_findings_of_all_groups(tmp_path):
    done = doctor(tmp_path, "--json")
    document = json.loads(done.stdout)
    assert done.stderr == ""
    assert done.returncode == (0 if document["ok"] else 3)
    groups = [*dict.fromkeys(one["group"] for one in document["findings"])]
    names = ["board", "telemetry", "dla", "inference", "workloads", "clock", "room", "service"]
    # A machine that is no Jetson has no finding about a DLA.
    assert groups in (names, [name for name in names if name != "dla"])
    assert "check itself failed" not in done.stdout


def test_exit_is_0_if_the_job_is_possible(tmp_path):
    text = (
        "telemetry: {source: simulator}\nhttp: {listen: '127.0.0.1:0'}\n"
        f"workloads: [{{name: w, command: {sys.executable}}}]\n"
    )
    done = doctor(tmp_path, "-c", config(tmp_path, text))
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("The main job can be done")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("telemetry: {sorce: simulator}\n", "did you mean source?"),
        ("telemetry: {source: replay, replay: {path: /none.log}}\n", "/none.log cannot be read"),
        ("workloads: [{name: w, command: /none/program}]\n", "/none/program does not exist"),
        ("workloads: [{name: w, model: /none.onnx, device: cpu}]\n", "/none.onnx cannot be read"),
        ("workloads: [{name: w, model: GARBAGE, device: cpu}]\n", "is not an ONNX model"),
    ],
    ids=["typing error", "replay", "program", "model", "garbage"],
)
def test_exit_is_3_if_the_job_is_not_possible(tmp_path, text, message):
    (tmp_path / "garbage.onnx").write_bytes(b"garbage" * 100)
    text = text.replace("GARBAGE", str(tmp_path / "garbage.onnx"))
    done = doctor(tmp_path, "-c", config(tmp_path, text))
    assert done.returncode == 3
    assert message in " ".join(done.stdout.split())


def test_absent_configuration_is_a_finding(tmp_path):
    done = doctor(tmp_path, "-c", str(tmp_path / "none.yaml"))
    assert (done.returncode, done.stderr) == (3, "")
    assert "No such file" in done.stdout


def test_default_is_the_installed_service(tmp_path):
    tree = Tree(tmp_path).write("/etc/tegrascope.yaml", "telemetry: {source: simulator}\n")
    (tmp_path / "var/lib/tegrascope").mkdir(parents=True)
    found = make_context(tree.machine(), None, None)
    assert found.config.telemetry.source == "simulator"
    assert found.state_dir == Path("/var/lib/tegrascope")
    assert make_context(tree.machine(), None, tmp_path).state_dir == tmp_path

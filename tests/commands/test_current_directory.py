"""No command imports a module from the current directory, and none of its children does."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tegrascope.daemon.store.history import History
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.commands import COMMANDS
from tests.fakes.processes import until

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

# As pip writes the program: its own directory is in front of the path of imports.
SCRIPT = "import sys\nfrom tegrascope.workbench.cli import main\nsys.exit(main())\n"
TRAP = """
import posix, sys
marker = posix.open(posix.environ[b"TRAP_MARKER"], posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND)
posix.write(marker, f"{__name__}: {sys.argv}\\n".encode())
posix.close(marker)
"""
TINY = ("--duration", "0.1", "--baseline", "0.05", "--warm-up", "0.05", "--rounds", "1")
CONFIG = """
telemetry: {source: simulator, interval: 103ms}
workloads:
- {name: w, model: "builtin:mobilenet", device: cpu, baseline: 0s, count: 5, every: 1h}
- {name: own, command: "./own.sh", device: external, baseline: 0s, every: 1h}
"""
LINES = "RAM 936/3964MB (lfb 366x4MB) VDD_IN 5000mW/5000mW tj@40C\n" * 200


class Place:
    """A directory full of traps, in which commands run."""

    def __init__(self, directory: Path) -> None:
        self.marker, self.state = directory / "marker", directory / "state"
        self.script = directory / "bin" / "tegrascope"
        self.script.parent.mkdir()
        self.script.write_text(SCRIPT)
        self.traps = directory / "traps"
        self.traps.mkdir()
        names = {*sys.stdlib_module_names, *packages_distributions()}
        for name in {*names, "tegrascope", "tensorrt", "cuda", "pynvml", "sitecustomize"}:
            (self.traps / f"{name}.py").write_text(TRAP)
        self.environment = {**os.environ, "TRAP_MARKER": str(self.marker)}

    def start(self, *arguments: str, **streams: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, str(self.script), *arguments],
            cwd=self.traps,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **streams,
        )

    def run(self, *arguments: str, given: str = "") -> str:
        """Run a command to its end and return what it printed; no trap may have been imported."""
        done = self.start(*arguments, stdin=subprocess.PIPE)
        output, _ = done.communicate(given, timeout=300)
        self.check(output)
        return output

    def first_line(self, *arguments: str) -> str:
        """Return the first line of a command that does not end by itself."""
        running = self.start(*arguments)
        line = running.stdout.readline()
        running.terminate()
        running.communicate(timeout=60)
        self.check(line)
        return line

    def check(self, output: str) -> None:
        trapped = self.marker.read_text() if self.marker.exists() else ""
        self.marker.unlink(missing_ok=True)
        assert trapped == ""
        assert "Traceback" not in output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The directory after ``run`` has generated a model and run it and a program."""
    made = Place(tmp_path_factory.mktemp("place"))
    made.state.mkdir()
    own = made.state / "own.sh"
    own.write_text("#!/bin/sh\nexit 0\n")
    own.chmod(0o755)
    (made.traps / "tegrascope.yaml").write_text(CONFIG)
    where = ("--listen", "127.0.0.1:0", "--state-dir", str(made.state))
    daemon = made.start("run", "-c", "tegrascope.yaml", *where)

    def outcomes() -> dict[str, str]:
        try:
            runs = list(History(made.state / "tegrascope.db").runs())
        except (UserError, sqlite3.OperationalError):  # it is being created
            return {}
        return {run["workload"]: run["outcome"] for run in runs}

    try:
        until(lambda: len(outcomes()) == 2 or daemon.poll() is not None)
    finally:
        daemon.terminate()
        output, _ = daemon.communicate(timeout=120)
    made.check(output)
    assert outcomes() == {"w": "ok", "own": "ok"}, output
    (made.traps / "model.onnx").write_bytes(next(made.state.glob("models/*.onnx")).read_bytes())
    return made


ARGUMENTS = {
    "advise": ("advise", "out", "--rates", "resnet50=1"),
    "check-config": ("check-config", "tegrascope.yaml"),
    "compare": ("compare", "run.json", "run.json"),
    "completion": ("completion", "bash"),
    "correlate": ("correlate", "--telemetry", "log.txt", "--runs", "runs.csv"),
    "doctor": ("doctor",),
    "engines": ("engines", "build", "model.onnx"),
    "exec": ("exec", "--workload", "w", "--telemetry", "simulator", "--", "true"),
    "inspect": ("inspect", "model.onnx"),
    "parse": ("parse", "-f", "csv", "-"),
    "prove": (
        "prove",
        "--anyway",
        "--quick",
        "--no-sudo",
        "-o",
        "board.zip",
        "--state-dir",
        "../state",
    ),
    "report": ("report", "-o", "page.html", "--state-dir", "../state"),
    "runs": ("runs", "list", "--state-dir", "../state"),
    "service": ("service", "install", "--dry-run"),
    "simulate": ("simulate", "--interval", "10"),
    "top": ("top", "--once", "--url", "http://127.0.0.1:9"),
    "verify": ("verify", "--telemetry", "simulator", "promised", "--", "true"),
}
# What each prints when it has done its work, as far as it can on this machine.
WORDS = {
    "advise": "resnet50",
    "compare": "mobilenet on",
    "completion": "complete",
    "correlate": "first",
    "doctor": "ONNX Runtime",
    "exec": "w on external: ok",
    "inspect": "model.onnx",
    "parse": "rails.VDD_IN",
    "prove": "checked by hand",
    "runs": "mobilenet|w ",
    "simulate": "RAM ",
    "verify": r"resnet50 on (gpu|dla0): ",
}


def test_every_command_is_tried():
    assert {*ARGUMENTS, "run", "bench"} == set(COMMANDS)


@pytest.mark.parametrize("command", [*ARGUMENTS])
def test_no_command_imports_from_the_current_directory(place, command):
    (place.traps / "log.txt").write_text(LINES)
    (place.traps / "runs.csv").write_text("name,start,end,inferences\nfirst,1,2,10\n")
    if command in ("advise", "verify"):
        place.run("bench", "resnet50", "--simulate", "--on", "gpu,dla0", *TINY, "-o", "out")
    if command == "verify":
        place.run("advise", "out", "--rates", "resnet50=1", "--minimise", "gpu", "-o", "promised")
    if command == "compare":
        [run] = History(place.state / "tegrascope.db").runs(workload="w")
        (place.traps / "run.json").write_text(json.dumps(run))
    if command == "simulate":
        output = place.first_line(*ARGUMENTS[command])
    else:
        output = place.run(*ARGUMENTS[command], given=LINES)
    assert re.search(WORDS.get(command, ""), output), output


def test_python_with_m_does_import_from_the_current_directory(place):
    """The traps work; docs/service.md names this risk of ``python -m tegrascope``."""
    environment = {**place.environment, "TRAP_MARKER": f"{place.marker}-m"}
    module = [sys.executable, "-m", "tegrascope", "--version"]
    subprocess.run(module, cwd=place.traps, env=environment, capture_output=True, check=False)
    assert Path(f"{place.marker}-m").read_text()

"""The pass under Nsight Systems: last of all, in a worker of its own, its report kept."""

import sys
from pathlib import Path

import pytest

from tegrascope.daemon.session.executor import Executor, worker_command
from tegrascope.workbench.bench.workers import Watcher
from tegrascope.workbench.cli import main

from .bench_fakes import FakeExecutors, Silence, make_bench, settings

# Runs the program behind its options, as nsys does, and writes a report when that has ended.
NSYS = """#!{python}
import subprocess, sys, time
options = sys.argv[1:]
report = options[options.index("--output") + 1]
begin = options.index("--cpuctxsw") + 2
status = subprocess.call(options[begin:])
time.sleep(0.3)
if {writes}:
    open(report, "w").write("watched")
sys.exit(status)
"""


class WatchedExecutors(FakeExecutors):
    """Runs the simulated worker under the program of the real one."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.programs: list[tuple[str, tuple[str, ...]]] = []

    def __call__(self, device: str, argv: tuple[str, ...] = (), **_: object) -> Executor:
        if not argv:
            return super().__call__(device)
        worker = worker_command(device)
        assert argv[-len(worker) :] == worker
        self.programs.append((device, argv))
        return Executor(device, argv=(*argv[: -len(worker)], sys.executable, str(self.script)))


def write_nsys(path: Path, *, writes: bool = True) -> str:
    path.write_text(NSYS.format(python=sys.executable, writes=writes))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def bench(tmp_path):
    """Measure two simulated accelerators under nsys; return the result and the executors."""

    def run(*lines: str, writes: bool = True):
        model = tmp_path / "net.onnx"
        model.write_text("\n".join(lines))
        executors = WatchedExecutors(tmp_path)
        watcher = Watcher(write_nsys(tmp_path / "nsys", writes=writes), tmp_path)
        made, workers = make_bench(tmp_path, settings(str(model)), executors, Silence(), watcher)
        try:
            return made.run(str(model)), executors
        finally:
            workers.close()

    return run


def test_each_accelerator_has_its_report(bench, tmp_path):
    result, executors = bench("gpu ms=3", "dla0 ms=17")
    names = [one.nsys_report for one in result.accelerators]
    assert names == ["net-gpu.nsys-rep", "net-dla0.nsys-rep"]
    assert all((tmp_path / name).read_text() == "watched" for name in names)
    assert [device for device, _ in executors.programs] == ["gpu", "dla0"]
    assert [one.rounds for one in result.accelerators] == [2, 2]
    assert len(result.rounds) == 4


def test_missing_report_of_nsys_is_named(bench):
    result, executors = bench("gpu ms=3", "dla0 ending=unavailable", writes=False)
    gpu, dla = result.accelerators
    assert gpu.nsys_report is None
    assert "nsys wrote no net-gpu.nsys-rep" in gpu.nsys_problem
    assert gpu.latency_seconds is not None
    assert (dla.nsys_report, dla.nsys_problem) == (None, None)
    assert [device for device, _ in executors.programs] == ["gpu"]


def test_without_nsys_nothing_is_measured_in_vain(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["bench", "builtin:mobilenet", "--simulate", "--nsys"]) == 1
    assert "nsys was not found: install Nsight Systems" in capsys.readouterr().err

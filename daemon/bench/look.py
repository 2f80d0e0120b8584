"""The first run on each accelerator, which checks its outputs, and the last one under nsys."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...parsers.errors import Mendable
from ..measure.run_report import Device, RunReport
from ..results.records import BenchSettings, OutputCheck, Status
from ..session.executor import WORKER
from ..settings.config import Workload
from .outputs import check_outputs
from .settings import LOOK_SECONDS, REFERENCE, reference_of, shortened, workload_of
from .workers import Workers

# Without --on these are tried, and the CPU if the machine has neither.
TRIED: tuple[Device, ...] = ("gpu", "dla0")
LAST_RESORT: Device = "cpu"
_REFERENCE = "reference"
# Writing a large report takes a while on a small board.
REPORT_SECONDS = 180.0
# Under nsys: enough to see a rhythm, and few enough for a report that opens at once.
_WATCHED_INFERENCES = 200
_WATCHED_WARM_UP_SECONDS = 0.5


@dataclass
class Look:
    """The first run of a model on an accelerator; a later run that fails changes its status."""

    workload: Workload
    report: RunReport
    status: Status
    reason: str | None
    outputs: OutputCheck | None = None
    nsys_report: str | None = None
    nsys_problem: str | None = None


def look_at(
    model: str, settings: BenchSettings, workers: Workers, say: Callable[[str], None]
) -> dict[Device, Look]:
    """Run one inference of a model on each accelerator, and check its outputs.

    ``say`` is called with a line per step. The result is in the order asked for.
    """
    with tempfile.TemporaryDirectory(prefix="tegrascope-bench-") as name:
        directory = Path(name)
        reference = directory / "reference.npz"
        say(f"{model}: reference outputs by ONNX Runtime on the CPU")
        made = workers.run(reference_of(settings, model), _REFERENCE, LOOK_SECONDS, reference)
        # Its worker would hold memory and cores that the measured ones need.
        workers.end(_REFERENCE)
        missing = None if made.status == "ok" else made.report.reason

        def look_on(device: Device) -> Look:
            workload = workload_of(settings, model, device)
            say(f"{model} on {device}: {workload.backend_in_force} loads or builds it")
            outputs = directory / f"{device}.npz"
            done = workers.run(shortened(workload), device, LOOK_SECONDS, outputs)
            seen = Look(workload, done.report, done.status, done.report.reason)
            if seen.status != "ok":
                say(f"{model} on {device}: {seen.reason}")
            elif missing is not None:
                seen.outputs = OutputCheck(verdict="unchecked", reason=missing)
            else:
                seen.outputs = check_outputs(reference, outputs, done.report.built)
                is_reference = workload.backend_in_force == REFERENCE and not settings.is_simulated
                if is_reference and seen.outputs.verdict == "good":
                    seen.outputs = OutputCheck(verdict="reference")
            return seen

        looks = {device: look_on(device) for device in settings.devices or TRIED}
        if settings.devices is None and all(one.status == "unavailable" for one in looks.values()):
            looks[LAST_RESORT] = look_on(LAST_RESORT)
        return looks


@dataclass(frozen=True)
class Watcher:
    """Runs each accelerator once more under nsys; no figure is taken from that run."""

    program: str
    directory: Path

    def watch(self, looks: Mapping[Device, Look], workers: Workers) -> None:
        """Run every accelerator that was measured once more."""
        for device, seen in looks.items():
            if seen.status == "ok" and not workers.was_cancelled:
                self._watch_one(device, seen, workers)

    def _watch_one(self, device: Device, seen: Look, workers: Workers) -> None:
        # The measured worker ends first: nsys has to start a process of its own.
        workers.end(device)
        report = self.directory / f"{seen.workload.name}.nsys-rep"
        done = workers.run(
            shortened(seen.workload, count=_WATCHED_INFERENCES, warm_up=_WATCHED_WARM_UP_SECONDS),
            device,
            seen.workload.timeout_seconds + REPORT_SECONDS,
            program=watched_worker(self.program, report),
        )
        workers.end(device, patience_seconds=REPORT_SECONDS)
        if report.exists():
            seen.nsys_report = report.name
            return
        raw = report.with_suffix(".qdstrm")
        why = done.report.reason or "the run succeeded, and nsys gave no reason"
        if raw.exists():
            why = f"it left {raw.name}, so the importer of Nsight Systems is not installed here"
        seen.nsys_problem = f"nsys wrote no {report.name}: {why}"


def find_nsys(program: str = "nsys") -> str:
    """Return the path of nsys, or raise ``Mendable`` without it."""
    found = shutil.which(program)
    if found is None:
        raise Mendable(
            f"{program} was not found",
            "install Nsight Systems (on a Jetson: apt install nsight-systems-*), or leave --nsys"
            " out",
        )
    return found


def watched_worker(program: str, report: Path) -> tuple[str, ...]:
    """Return the command of a worker under nsys; an existing report is replaced.

    >>> watched_worker("nsys", Path("/b/gpu.nsys-rep"))[:4]
    ('nsys', 'profile', '--output', '/b/gpu.nsys-rep')
    """
    return (
        *(program, "profile", "--output", str(report), "--force-overwrite", "true"),
        # Samples of the CPU need rights that few users have, and answer another question.
        *("--trace", "cuda,nvtx,osrt", "--sample", "none", "--cpuctxsw", "none"),
        *WORKER,
    )

"""One more pass of each accelerator under Nsight Systems, of which no figure is taken."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..measure.run_report import Device, RunReport
from ..settings.config import Workload
from .lanes import Lanes
from .look import Look
from .nsys import REPORT_SECONDS, watched_worker

# Enough to see a rhythm, and few enough for a report that opens at once.
WATCHED_INFERENCES = 200
_WARM_UP_SECONDS = 0.5


@dataclass(frozen=True)
class Watcher:
    """Where reports of Nsight Systems go.

    Attributes:
        program: Path of nsys.
        directory: Beside the other results.
    """

    program: str
    directory: Path

    def watch(self, looks: Mapping[Device, Look], lanes: Lanes) -> None:
        """Run every accelerator that was measured once more, and note its report."""
        for device, seen in looks.items():
            if seen.status == "ok" and not lanes.was_cancelled:
                self._watch_one(device, seen, lanes)

    def _watch_one(self, device: Device, seen: Look, lanes: Lanes) -> None:
        # The worker that was measured goes first: what is watched is a process of its own.
        lanes.end(device)
        report = self.directory / f"{seen.workload.name}.nsys-rep"
        flown = lanes.fly(
            short(seen.workload),
            device,
            seen.workload.timeout_seconds + REPORT_SECONDS,
            program=watched_worker(self.program, report),
        )
        lanes.end(device, patience_seconds=REPORT_SECONDS)
        if report.exists():
            seen.nsys_report = report.name
        else:
            seen.nsys_problem = f"nsys wrote no {report.name}: {self._why(report, flown.report)}"

    def _why(self, report: Path, run: RunReport) -> str:
        raw = report.with_suffix(".qdstrm")
        if raw.exists():
            return f"it left {raw.name}, so the importer of Nsight Systems is not installed here"
        return run.reason or "the run ended well, and nsys did not say why"


def short(workload: Workload) -> Workload:
    """Return the same for some inferences: to be looked at, not to be measured."""
    changes = {
        "warm_up": _WARM_UP_SECONDS,
        "baseline": 0.0,
        "duration": None,
        "count": WATCHED_INFERENCES,
    }
    return workload.model_copy(update=changes)

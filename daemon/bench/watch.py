"""One more pass of each accelerator under Nsight Systems, of which no figure is taken."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..config import Workload
from ..nsys import REPORT_SECONDS, watched_worker
from ..run_report import Device
from .lanes import Lanes
from .look import Look

# Long enough to see a rhythm, short enough for a report that opens at once.
WATCHED_SECONDS = 3.0
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
            why = flown.report.reason or "it ended well"
            seen.nsys_problem = f"nsys wrote no {report.name}; of the run it is known: {why}"


def short(workload: Workload) -> Workload:
    """Return the same for a few seconds: to be looked at, not to be measured."""
    changes = {
        "warm_up": _WARM_UP_SECONDS,
        "baseline": 0.0,
        "duration": WATCHED_SECONDS,
        "count": None,
    }
    return workload.model_copy(update=changes)

"""The first look: each accelerator builds the model, and its answers are held against the CPU's."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..measure.run_report import Device, RunReport
from ..settings.config import Workload
from .lanes import Lanes
from .measured import Status
from .outputs import check_outputs
from .result import BenchSettings, OutputCheck
from .workload import LOOK_SECONDS, REFERENCE, look, reference_of, workload_of

# Where the machine is to tell, these are tried, and the CPU where it has neither.
TRIED: tuple[Device, ...] = ("gpu", "dla0")
LAST_RESORT: Device = "cpu"
_REFERENCE = "reference"


@dataclass
class Look:
    """What the first inference on an accelerator showed.

    Attributes:
        workload: What a round of it is.
        report: Of that first run.
        status: Whether it can be measured; a round that fails changes it.
        reason: Why not.
        outputs: Whether its answers are right.
        nsys_report: Name of the report of the pass that Nsight Systems watched.
        nsys_problem: Why there is none.
    """

    workload: Workload
    report: RunReport
    status: Status
    reason: str | None
    outputs: OutputCheck | None = None
    nsys_report: str | None = None
    nsys_problem: str | None = None


def look_at(
    model: str, settings: BenchSettings, lanes: Lanes, say: Callable[[str], None]
) -> dict[Device, Look]:
    """Run one inference of a model on each accelerator, and check what it answers.

    Args:
        model: As given.
        settings: What is measured, and where.
        lanes: The workers.
        say: Is told what is done.

    Returns:
        Accelerator to what was seen, in the order asked for.
    """
    with tempfile.TemporaryDirectory(prefix="tegrascope-bench-") as name:
        directory = Path(name)
        reference = directory / "reference.npz"
        say(f"{model}: reference answers by ONNX Runtime on the CPU")
        made = lanes.fly(reference_of(settings, model), _REFERENCE, LOOK_SECONDS, reference)
        # It has done its work, and would be in the way of those that are measured.
        lanes.end(_REFERENCE)
        why_none = None if made.status == "ok" else made.report.reason

        def look_on(device: Device) -> Look:
            workload = workload_of(settings, model, device)
            say(f"{model} on {device}: {workload.backend_in_force} loads or builds it")
            outputs = directory / f"{device}.npz"
            flown = lanes.fly(look(workload), device, LOOK_SECONDS, outputs)
            seen = Look(workload, flown.report, flown.status, flown.report.reason)
            if seen.status != "ok":
                say(f"{model} on {device}: {seen.reason}")
            elif why_none is not None:
                seen.outputs = OutputCheck(verdict="unchecked", reason=why_none)
            else:
                seen.outputs = check_outputs(reference, outputs, flown.report.built)
                is_reference = workload.backend_in_force == REFERENCE and not settings.is_simulated
                if is_reference and seen.outputs.verdict == "good":
                    seen.outputs = OutputCheck(verdict="reference")
            return seen

        looks = {device: look_on(device) for device in settings.devices or TRIED}
        if settings.devices is None and all(one.status == "unavailable" for one in looks.values()):
            looks[LAST_RESORT] = look_on(LAST_RESORT)
        return looks

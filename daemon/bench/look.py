"""The first run on each accelerator, which checks its outputs, and the last one under nsys."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from ...parsers.errors import UserError
from ...parsers.inference.placement import Built, Precision
from ..measure.run_report import Device
from ..results.records import BenchSettings, OutputCheck
from ..results.summary import Measured
from ..session.executor import WORKER
from ..settings.config import Workload
from .settings import LOOK_SECONDS, REFERENCE, reference_of, shortened, workload_of
from .workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Above this relative error outputs are wrong. On seeded random weights half precision is off by
# 2 to 3 %, and single precision with TensorFloat-32 by some thousandths. The limit of int8 is for
# scales of the model's own; no limit makes outputs of made-up scales right.
LIMITS: dict[Precision, float] = {"fp32": 0.01, "fp16": 0.05, "int8": 0.2}
_OF_LAYERS: tuple[tuple[Precision, tuple[str, ...]], ...] = (
    ("int8", ("int8",)),
    ("fp16", ("half", "fp16", "float16", "bf16")),
)
# Two axes, the second of at least this length, are taken for classes.
_FEWEST_CLASSES = 10


def precision_of(built: Built | None) -> Precision:
    """Return the lowest precision in which a layer was built: it decides the expected error."""
    if built is None:
        return "fp32"
    names = " ".join(built.layer_types).lower()
    for precision, words in _OF_LAYERS:
        if any(word in names for word in words):
            return precision
    return "fp32" if names else built.requested_precision or "fp32"


def check_outputs(reference: Path, outputs: Path, built: Built | None) -> OutputCheck:
    """Compare two NumPy archives of one array per output, in the same order.

    ``built`` decides how large an error may be.
    """
    if not outputs.exists():
        return OutputCheck(verdict="unchecked", reason="the back-end does not return its outputs")
    precision = precision_of(built)
    try:
        expected, given = _read(reference), _read(outputs)
    except ModuleNotFoundError as error:
        return OutputCheck(verdict="unchecked", reason=f"{error.name} is not installed")
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        return OutputCheck(verdict="unchecked", reason=f"the outputs cannot be read ({error})")
    if precision == "fp32" and any(one.dtype == "f2" for one in expected):
        precision = "fp16"  # the model itself computes in half precision
    found = compare(expected, given, LIMITS[precision])
    is_made_up = precision == "int8" and built is not None and built.int8_scales == "dummy"
    if is_made_up and found.relative_error is not None:
        reason = "int8 without calibration has made-up scales"
        update = {"verdict": "meaningless", "reason": reason, "limit": None}
        return found.model_copy(update=update)
    return found


def _read(path: Path) -> "list[NDArray[Any]]":
    import numpy

    with path.open("rb") as file, numpy.load(file, allow_pickle=False) as archive:
        return [archive[name] for name in archive.files]


def compare(
    expected: "list[NDArray[Any]]", given: "list[NDArray[Any]]", limit: float
) -> OutputCheck:
    """Compare outputs, one array each, and report the worst; above ``limit`` they are wrong."""
    if [one.shape for one in expected] != [one.shape for one in given]:
        shapes = [" ".join(str(one.shape) for one in side) for side in (given, expected)]
        reason = f"its outputs have the shapes {shapes[0]}, the reference {shapes[1]}"
        return OutputCheck(verdict="wrong", reason=reason, limit=limit)
    import numpy

    worst, largest, same, inputs = 0.0, 0.0, 0, 0
    for want, got in zip(expected, given, strict=True):
        want, got = want.astype("f8"), got.astype("f8")
        broken = int(numpy.count_nonzero(numpy.isfinite(want) & ~numpy.isfinite(got)))
        if broken:
            reason = f"{broken} of {got.size} numbers are NaN or infinite"
            return OutputCheck(verdict="wrong", reason=reason, limit=limit)
        both = numpy.isfinite(want) & numpy.isfinite(got)
        off = got[both] - want[both]
        size, error = float(numpy.linalg.norm(want[both])), float(numpy.linalg.norm(off))
        worst = max(worst, error / size if size else float(error > 0))
        largest = max(largest, float(numpy.max(numpy.abs(off), initial=0.0)))
        if want.ndim == 2 and want.shape[1] >= _FEWEST_CLASSES:
            same += int(numpy.count_nonzero(want.argmax(axis=1) == got.argmax(axis=1)))
            inputs += want.shape[0]
    is_wrong = worst > limit
    return OutputCheck(
        verdict="wrong" if is_wrong else "good",
        reason=f"its outputs are off by {worst:.2%}, more than {limit:.0%}" if is_wrong else None,
        relative_error=worst,
        largest_error=largest,
        top1_agreement=same / inputs if inputs else None,
        limit=limit,
    )


# Without --on these are tried, and the CPU if the machine has neither.
TRIED: tuple[Device, ...] = ("gpu", "dla0")
LAST_RESORT: Device = "cpu"
_REFERENCE = "reference"
# Writing a large report takes a while on a small board.
REPORT_SECONDS = 180.0
# Under nsys: enough to see a rhythm, and few enough for a report that opens at once.
_WATCHED_INFERENCES = 200
_WATCHED_WARM_UP_SECONDS = 0.5


def look_at(
    model: str, settings: BenchSettings, workers: Workers, say: Callable[[str], None]
) -> dict[Device, Measured]:
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

        def look_on(device: Device) -> Measured:
            workload = workload_of(settings, model, device)
            say(f"{model} on {device}: {workload.backend_in_force} loads or builds it")
            outputs = directory / f"{device}.npz"
            done = workers.run(shortened(workload), device, LOOK_SECONDS, outputs)
            found = Measured(done.report, done.status, done.report.reason)
            if found.status != "ok":
                say(f"{model} on {device}: {found.reason}")
            elif made.status != "ok":
                found.outputs = OutputCheck(verdict="unchecked", reason=made.report.reason)
            else:
                found.outputs = check_outputs(reference, outputs, done.report.built)
                is_reference = workload.backend_in_force == REFERENCE and not settings.is_simulated
                if is_reference and found.outputs.verdict == "good":
                    found.outputs = OutputCheck(verdict="reference")
            return found

        found = {device: look_on(device) for device in settings.devices or TRIED}
        if settings.devices is None and all(one.status == "unavailable" for one in found.values()):
            found[LAST_RESORT] = look_on(LAST_RESORT)
        return found


@dataclass(frozen=True)
class Watcher:
    """Runs each accelerator once more under nsys; no figure is taken from that run."""

    program: str
    directory: Path

    def watch(self, workload: Workload, one: Measured, workers: Workers) -> None:
        """Run a model on an accelerator once more; note the report, or why there is none."""
        # The measured worker ends first: nsys has to start a process of its own.
        workers.end(workload.device)
        report = self.directory / f"{workload.name}.nsys-rep"
        program = (
            *(self.program, "profile", "--output", str(report), "--force-overwrite", "true"),
            # Samples of the CPU need rights that few users have, and answer another question.
            *("--trace", "cuda,nvtx,osrt", "--sample", "none", "--cpuctxsw", "none"),
            *WORKER,
        )
        done = workers.run(
            shortened(workload, count=_WATCHED_INFERENCES, warm_up=_WATCHED_WARM_UP_SECONDS),
            workload.device,
            workload.timeout_seconds + REPORT_SECONDS,
            program=program,
        )
        workers.end(workload.device, patience_seconds=REPORT_SECONDS)
        if report.exists():
            one.nsys_report = report.name
            return
        raw = report.with_suffix(".qdstrm")
        why = done.report.reason or "the run succeeded, and nsys gave no reason"
        if raw.exists():
            why = f"it left {raw.name}, so the importer of Nsight Systems is not installed here"
        one.nsys_problem = f"nsys wrote no {report.name}: {why}"


def find_nsys(program: str = "nsys") -> str:
    """Return the path of nsys, or raise ``UserError`` without it."""
    found = shutil.which(program)
    if found is None:
        raise UserError(
            f"{program} was not found",
            "install Nsight Systems (on a Jetson: apt install nsight-systems-*), or leave --nsys"
            " out",
        )
    return found

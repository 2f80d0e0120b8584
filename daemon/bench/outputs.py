"""Compares the outputs of an accelerator with those of the reference, element by element."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from ...parsers.inference.placement import Built, Precision
from ..results.records import OutputCheck

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

# Above this relative error outputs are wrong. On seeded random weights half precision is off by
# 2 to 3 %, and single precision with TensorFloat-32 by some thousandths.
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
    names = [name.lower() for name in built.layer_types]
    for precision, words in _OF_LAYERS:
        if any(word in name for name in names for word in words):
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
    return compare(expected, given, LIMITS[precision])


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
        worst = max(worst, _relative(want[both], off))
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


def _relative(want: "NDArray[numpy.float64]", off: "NDArray[numpy.float64]") -> float:
    """Return the norm of a difference over that of the reference."""
    import numpy

    size, error = float(numpy.linalg.norm(want)), float(numpy.linalg.norm(off))
    if size == 0.0:
        return 0.0 if error == 0.0 else 1.0
    return error / size

"""Are the outputs of a model right: by a reference, by labels, or by the engine's first run.

Back-ends only return arrays. The worker writes them to an archive for ``bench``, and compares those
of the last inference with the first ones of the engine.
"""

import hashlib
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from zipfile import BadZipFile

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from ...parsers.errors import UserError, file_error
from ...parsers.inference.events import Order, Outputs
from ...parsers.inference.placement import Built
from ...parsers.records import Ratio, Record
from ..backends.base import Backend, Inferring
from ..backends.engine_cache import EngineCache
from ..files import read_regular, write_atomic
from ..models.data_sets import load_archive
from ..paths import exists
from .channels import (
    ChannelErrors,
    as_channels,
    channel_errors,
    difference_by_channel,
    not_by_chance,
    ranges,
)

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

Computed = Literal["fp32", "fp16", "bf16", "int8"]


class Limit(NamedTuple):
    """How far outputs of a precision may be off.

    Attributes:
        whole: Largest norm of the difference, over that of the reference. On seeded random weights
            half precision is off by 2 to 3 %, and single precision with TensorFloat-32 by some
            thousandths. The limit of int8 is for scales of the model's own; no limit makes outputs
            of made-up scales right.
        channel: Largest error of a channel, over its spread over the inputs. Of int8, builds that
            are useful have been off by more than half of it; a dead channel is off by all of it.
        rounding: Error of the precision over that of weights in bf16. The tensor cores multiply
            fp32 as TensorFloat-32, which has as many bits as fp16.
    """

    whole: float
    channel: float
    rounding: float


LIMITS: Mapping[Computed, Limit] = {
    "fp32": Limit(whole=0.01, channel=0.02, rounding=0.125),
    "fp16": Limit(whole=0.05, channel=0.05, rounding=0.125),
    "bf16": Limit(whole=0.2, channel=0.1, rounding=1.0),
    "int8": Limit(whole=0.2, channel=0.9, rounding=1.0),
}
# A build rounds results as well as weights. On trained and on random networks, copies in fp16 and
# bf16 were off by one to three times what rounded weights alone do.
_ROUNDINGS_PER_STEP = 3.0
# With a spread of fewer steps, a channel that is dead is hardly off by more than a good one.
_LEAST_STEPS = 3.0
# A channel that keeps less of its spread is dead or constant, in any precision.
_FLAT_SHARE = 0.1
# Half precision cannot be nearer to 0.
_LEAST_STEP = 2.0**-24
# With labels, the largest loss of top-1 at which outputs are right.
TOP1_LOSS = 0.01
# A number per line, or eight bytes, for millions of inputs.
_MOST_LABEL_BYTES = 1 << 26
# Outputs whose channels are named; a model may have hundreds.
_MOST_OUTPUTS = 8
# Two axes, the second of at least this length, are taken for classes.
_FEWEST_CLASSES = 10
# Of each output of an engine's first run that is compared with later ones.
KEPT_VALUES = 1 << 18
# Where the values that are kept are equal and others are not.
_LEAST_DIFFERENCE = 1e-12


class Accuracy(Record):
    """Right classes of a labelled data set, on an accelerator and by the reference.

    ``top5`` is ``None`` with fewer than six classes.
    ``tolerance`` is the largest loss of top-1 at which outputs are right.
    """

    inputs: PositiveInt
    top1: Ratio
    top5: Ratio | None = None
    reference_top1: Ratio
    reference_top5: Ratio | None = None
    tolerance: Ratio


class ChannelCheck(Record):
    """The channels of all outputs, each compared with its own spread over the inputs.

    A channel whose spread is below three steps of the precision is not judged: its error says
    nothing. ``wrong_channels`` and ``unjudged_channels`` name channels by output; outputs are
    counted from 1 in the order of their names, channels from 0.

    Attributes:
        worst_error: Of the judged channels, the largest error over the spread.
    """

    channels: NonNegativeInt
    judged: NonNegativeInt
    wrong: NonNegativeInt = 0
    worst_error: NonNegativeFloat | None = None
    wrong_channels: tuple[str, ...] = ()
    unjudged_channels: tuple[str, ...] = ()

    @property
    def unjudged(self) -> int:
        """How many are not judged."""
        return self.channels - self.judged

    @property
    def words(self) -> str:
        """Which channels are not judged, in a few words."""
        return f"{self.unjudged} of {self.channels} channels ({'; '.join(self.unjudged_channels)})"


class TaskScore(Record):
    """How well outputs do what the model is for, on the given inputs.

    Attributes:
        measure: ``mAP`` is the mean average precision at IoU 0.5 to 0.95 of COCO.
        score: Against the labels, or without them against what the reference finds.
        reference: That of the reference, against the labels; ``None`` without them.
        tolerance: Largest loss at which outputs are right.
    """

    measure: Literal["mAP", "mIoU"]
    score: Ratio
    map50: Ratio | None = None
    reference: Ratio | None = None
    reference_map50: Ratio | None = None
    tolerance: Ratio | None = None

    @property
    def words(self) -> str:
        """The score as a part of a sentence."""
        if self.reference is None:
            return f"agreement with the reference is {self.measure} {100 * self.score:.1f} of 100"
        return (
            f"{self.measure} is {100 * self.score:.1f}, the reference's {100 * self.reference:.1f}"
        )


class OutputCheck(Record):
    """Outputs of an accelerator, compared with the reference: ONNX Runtime on the CPU.

    ``relative_error`` is the norm of the difference over that of the reference, of the worst
    output, and ``top1_agreement`` the share of inputs for which both have the same class.
    With ``accuracy`` the loss of top-1 decides, and not the errors.
    ``meaningless``: the engine has made-up int8 scales, so its outputs are not compared by a limit.
    ``unjudged``: no channel of the reference varies enough over the inputs.
    """

    verdict: Literal["good", "wrong", "unchecked", "unjudged", "meaningless", "reference"]
    reason: str | None = None
    relative_error: NonNegativeFloat | None = None
    largest_error: NonNegativeFloat | None = None
    top1_agreement: Ratio | None = None
    limit: NonNegativeFloat | None = None
    channels: ChannelCheck | None = None
    accuracy: Accuracy | None = None
    task: TaskScore | None = None

    @property
    def unjudged(self) -> int:
        """How many channels a verdict on the channels leaves out."""
        if self.channels is None or self.verdict not in ("good", "unjudged"):
            return 0
        return 0 if self.accuracy is not None else self.channels.unjudged


# --- archives -------------------------------------------------------------------------------------


def write_outputs(path: Path, outputs: "Mapping[str, NDArray[numpy.generic]]") -> None:
    """Write outputs in the order of their names, whole or not at all; no file if there are none."""
    import numpy

    if not outputs:
        return
    content = io.BytesIO()
    numpy.savez(content, *(output for _, output in sorted(outputs.items())))
    write_atomic(path, content.getbuffer())


def read_outputs(path: Path) -> "list[NDArray[Any]]":
    """Return the outputs that ``write_outputs`` wrote; errors are those of ``numpy.load``."""
    import numpy

    with path.open("rb") as file, numpy.load(file, allow_pickle=False) as archive:
        return [archive[name] for name in archive.files]


def read_labels(path: Path) -> "NDArray[Any]":
    """Read one class per input, of text with a number per line or an archive of one array."""
    import numpy

    try:
        labels: NDArray[Any]
        if path.suffix.lower() == ".npz":
            labels = next(iter(load_archive(path).values()), numpy.empty(0))
        elif path.suffix.lower() == ".npy":
            content = io.BytesIO(read_regular(path, _MOST_LABEL_BYTES))
            labels = numpy.load(content, allow_pickle=False)
        else:
            text = read_regular(path, _MOST_LABEL_BYTES).decode()
            labels = numpy.array([int(line) for line in text.split()])
    except OSError as error:
        raise file_error(error, path) from None
    except (ValueError, LookupError, EOFError, BadZipFile, MemoryError) as error:
        what = f"{path} has no labels ({error})"
        raise UserError(what, "write one whole number per line, the class of each input") from None
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or (labels < 0).any():
        raise UserError(f"{path} has no list of classes", "write whole numbers from 0 on")
    return labels


# --- by a reference and by labels -----------------------------------------------------------------


def check_outputs(
    reference: Path,
    outputs: Path,
    built: Built | None,
    labels: "NDArray[Any] | None" = None,
    tolerance: float | None = None,
    rounded: Path | None = None,
) -> OutputCheck:
    """Compare two NumPy archives of one array per output, in the same order.

    ``built`` decides how large an error may be, unless ``tolerance`` does. With ``labels`` the loss
    of top-1 decides; raises ``UserError`` if they do not fit.

    Args:
        rounded: Outputs of the reference with rounded weights, if it could run.
    """
    if not exists(outputs):
        return OutputCheck(verdict="unchecked", reason="the back-end does not return its outputs")
    try:
        expected, given = read_outputs(reference), read_outputs(outputs)
    except ModuleNotFoundError as error:
        return OutputCheck(verdict="unchecked", reason=f"{error.name} is not installed")
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        return OutputCheck(verdict="unchecked", reason=f"the outputs cannot be read ({error})")
    precision = precision_of(built, expected)
    allowed = None if labels is not None else tolerance
    check = compare(expected, given, precision, _read_rounded(rounded), allowed)
    if check.relative_error is None:
        return check  # they cannot be compared at all
    if labels is not None:
        check = _with_labels(check, expected, given, labels, tolerance)
    if precision == "int8" and built is not None and built.int8_scales == "dummy":
        reason = "int8 without calibration has made-up scales"
        update = {"verdict": "meaningless", "reason": reason, "limit": None}
        check = check.model_copy(update=update)
    return check


def _read_rounded(path: Path | None) -> "list[NDArray[Any]] | None":
    """Return the outputs with rounded weights, or None: then a usual error takes their place."""
    if path is None or not exists(path):
        return None
    try:
        return read_outputs(path)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None


def precision_of(built: Built | None, expected: "Sequence[NDArray[Any]]") -> Computed:
    """Return the lowest precision in which a layer was built: it decides the expected error.

    Args:
        expected: Outputs of the reference; those of a model in half precision are coarser.
    """
    precision = _built_precision(built)
    if precision == "fp32" and any(output.dtype == "f2" for output in expected):
        return "fp16"
    return precision


def _built_precision(built: Built | None) -> Computed:
    if built is None:
        return "fp32"
    names = " ".join(built.layer_types).lower()
    if not names:
        return built.requested_precision or "fp32"
    if "int8" in names:
        return "int8"
    if "bf16" in names or "bfloat16" in names:
        return "bf16"
    if any(word in names for word in ("half", "fp16", "float16")):
        return "fp16"
    return "fp32"


def compare(
    expected: "list[NDArray[Any]]",
    given: "list[NDArray[Any]]",
    precision: Computed = "fp32",
    rounded: "list[NDArray[Any]] | None" = None,
    tolerance: float | None = None,
) -> OutputCheck:
    """Compare outputs, one array each, by channel and as a whole.

    Args:
        expected: Of the reference; the first axis is the inputs.
        rounded: Of the reference with rounded weights.
        tolerance: Replaces the limits of the precision.
    """
    import numpy

    limit = tolerance
    if limit is None:
        limit = LIMITS[precision].whole
    if [output.shape for output in expected] != [output.shape for output in given]:
        shapes = f"its outputs have the shapes {_shapes(given)}, the reference {_shapes(expected)}"
        return OutputCheck(verdict="wrong", reason=shapes, limit=limit)
    others: Sequence[NDArray[Any] | None] = [None] * len(expected)
    if rounded is not None and [one.shape for one in rounded] == [one.shape for one in expected]:
        others = rounded
    errors = []
    for want, got, other in zip(expected, given, others, strict=True):
        broken = int(numpy.count_nonzero(numpy.isfinite(want) & ~numpy.isfinite(got)))
        if broken:
            count = f"{broken} of {got.size} numbers are NaN or infinite"
            return OutputCheck(verdict="wrong", reason=count, limit=limit)
        errors.append(channel_errors(want, got, other))
    worst_error = max((found.relative for found in errors), default=0.0)
    channels = _judge_channels(errors, precision, tolerance)
    verdict, reason = _verdict(channels, worst_error, limit)
    return OutputCheck(
        verdict=verdict,
        reason=reason,
        relative_error=worst_error,
        largest_error=max((found.largest for found in errors), default=0.0),
        top1_agreement=_agreement(expected, given),
        limit=limit,
        channels=channels,
    )


def _agreement(expected: "list[NDArray[Any]]", given: "list[NDArray[Any]]") -> float | None:
    """Return the share of inputs with the same class; None if no output has scores of classes."""
    import numpy

    same = []
    for want, got in zip(expected, given, strict=True):
        if want.ndim == 2 and want.shape[1] >= _FEWEST_CLASSES:
            same.append(want.argmax(axis=1) == got.argmax(axis=1))
    if not same:
        return None
    return float(numpy.concatenate(same).mean())


def _verdict(
    channels: ChannelCheck, worst_error: float, limit: float
) -> tuple[Literal["good", "wrong", "unjudged"], str | None]:
    """Return the verdict on outputs, and its reason unless they are right."""
    if channels.wrong:
        names = "; ".join(channels.wrong_channels)
        return "wrong", (
            f"{channels.wrong} of {channels.judged} judged channels are off, by up to"
            f" {channels.worst_error or 0.0:.2%} of their spread over the inputs ({names})"
        )
    if worst_error > limit:
        return "wrong", f"its outputs are off by {worst_error:.2%}, more than {limit:.0%}"
    if channels.judged == 0:
        return "unjudged", "the reference gives nearly the same answer to all inputs"
    return "good", None


def _judge_channels(
    errors: Sequence[ChannelErrors], precision: Computed, tolerance: float | None
) -> ChannelCheck:
    """Judge each channel of each output by the limits of a precision."""
    import numpy

    share = LIMITS[precision].channel if tolerance is None else tolerance
    channels = judged = wrong = 0
    worst: float | None = None
    wrong_names: list[str] = []
    unjudged_names: list[str] = []
    for number, found in enumerate(errors, start=1):
        step = _ROUNDINGS_PER_STEP * (LIMITS[precision].rounding * found.rounding + _LEAST_STEP)
        is_judged = found.spread >= _LEAST_STEPS * step
        spread = not_by_chance(found.spread, found.values)
        is_off = found.error > share * spread + step
        is_flat = found.given_spread < _FLAT_SHARE * found.spread
        is_wrong = is_judged & (is_off | is_flat)
        channels += len(step)
        judged += int(numpy.count_nonzero(is_judged))
        wrong += int(numpy.count_nonzero(is_wrong))
        if is_judged.any():
            shares = found.error[is_judged] / found.spread[is_judged]
            worst = max(worst or 0.0, float(shares.max()))
        for names, are_named in ((wrong_names, is_wrong), (unjudged_names, ~is_judged)):
            if are_named.any():
                names.append(f"output {number}: {ranges(numpy.flatnonzero(are_named))}")
    return ChannelCheck(
        channels=channels,
        judged=judged,
        wrong=wrong,
        worst_error=worst,
        wrong_channels=tuple(wrong_names[:_MOST_OUTPUTS]),
        unjudged_channels=tuple(unjudged_names[:_MOST_OUTPUTS]),
    )


def _shapes(outputs: "Sequence[NDArray[Any]]", separator: str = " ") -> str:
    return separator.join(str(output.shape) for output in outputs)


def count_right(
    outputs: "list[NDArray[Any]]", labels: "NDArray[Any]"
) -> tuple[float, float | None]:
    """Return top-1 and top-5 of the first output with a score per class.

    Raises:
        UserError: No output fits the labels.
    """
    import numpy

    for scores in outputs:
        flat = scores.reshape(len(scores), -1) if scores.ndim > 1 else scores
        if flat.ndim == 2 and len(flat) == len(labels) and flat.shape[1] > labels.max(initial=0):
            best = numpy.argsort(-flat.astype("f8"), axis=1, kind="stable")[:, :5]
            right = best == labels[:, None]
            top5 = float(right.any(axis=1).mean()) if flat.shape[1] > 5 else None
            return float(right[:, 0].mean()), top5
    shapes = _shapes(outputs, ", ")
    raise UserError(
        f"{len(labels)} labels up to {labels.max(initial=0)} do not fit outputs of shape {shapes}",
        "give one class per input, counted from 0 as the model does",
    )


def _with_labels(
    check: OutputCheck,
    expected: "list[NDArray[Any]]",
    given: "list[NDArray[Any]]",
    labels: "NDArray[Any]",
    tolerance: float | None,
) -> OutputCheck:
    """Return a comparison that is decided by right classes instead of its error."""
    reference_top1, reference_top5 = count_right(expected, labels)
    top1, top5 = count_right(given, labels)
    largest_loss = TOP1_LOSS
    if tolerance is not None:
        largest_loss = tolerance
    accuracy = Accuracy(
        inputs=len(labels),
        top1=top1,
        top5=top5,
        reference_top1=reference_top1,
        reference_top5=reference_top5,
        tolerance=largest_loss,
    )
    verdict, reason = "good", None
    # 1e-9 is for rounding: one input in a million is a loss of 1e-6.
    if reference_top1 - top1 > largest_loss + 1e-9:
        verdict = "wrong"
        reason = (
            f"its top-1 is {100 * top1:.1f} %, that of the reference {100 * reference_top1:.1f} %:"
            f" more than {100 * largest_loss:.1f} points less"
        )
    update = {"verdict": verdict, "reason": reason, "limit": None, "accuracy": accuracy}
    return check.model_copy(update=update)


# --- by the first run of the same engine ----------------------------------------------------------


def compare_with_first_run(backend: Backend, order: Order) -> Outputs | None:
    """Compare the last inference with the first run of its engine; ``None`` if none is kept."""
    if backend.built is None or not isinstance(backend, Inferring):
        return None
    key = backend.built.engine_key
    if key is None or order.engine_directory is None:
        return None
    # An engine for a range of shapes has other outputs at each of them, and with a head.
    point = str(sorted(backend.input_shapes.items())) + (backend.built.head_engine_key or "")
    path = EngineCache(Path(order.engine_directory)).outputs_path(key, point)
    return compare_with_kept(path, backend.outputs())


def compare_with_kept(path: Path, outputs: "Mapping[str, NDArray[numpy.generic]]") -> Outputs:
    """Compare outputs with those kept in a file; keep them if there are none yet.

    A large output keeps a share of its positions, evenly spread, with all their channels. Of a
    vector that is large by itself, it keeps a share of the channels.

    Args:
        outputs: Name to array, for the same inputs each time.
    """
    import numpy

    digest, samples = hashlib.sha256(), []
    for name, values in sorted(outputs.items()):
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(numpy.ascontiguousarray(values).data)
        sample = as_channels(numpy.atleast_1d(values))[:, :: 1 + values.size // KEPT_VALUES]
        samples.append(sample[..., :: 1 + sample.size // KEPT_VALUES])
    sha256 = digest.hexdigest()
    try:
        with numpy.load(path, allow_pickle=False) as archive:
            first_sha256, *first_samples = (archive[name] for name in archive.files)
        if str(first_sha256) == sha256:
            return Outputs(sha256=sha256, difference=0.0)
        if [one.shape for one in first_samples] != [one.shape for one in samples]:
            raise ValueError("an archive of another form")
        worst = max(map(difference_by_channel, first_samples, samples), default=0.0)
        return Outputs(sha256=sha256, difference=max(worst, _LEAST_DIFFERENCE))
    except (OSError, ValueError, BadZipFile):
        content = io.BytesIO()
        numpy.savez(content, numpy.array(sha256), *samples)
        with suppress(OSError):  # without room for it the next run is the first
            write_atomic(path, content.getvalue())
        return Outputs(sha256=sha256)

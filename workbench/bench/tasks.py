"""Outputs as what they are for: detections judged by mAP, segmentations by mIoU.

Source:
    Lin et al., "Microsoft COCO", 2014, and pycocotools: how detections are matched and precision is
    averaged. Ultralytics: the outputs and the metadata of its exports.
"""

import ast
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ...collectors.files import read_regular
from ...collectors.models.data_sets import placed
from ...collectors.models.files import metadata_of
from ...collectors.models.onnx_writer import graph, model, node, value_info
from ...collectors.paths import exists, is_directory
from ...collectors.worker.channels import as_channels
from ...collectors.worker.outputs import LIMITS, Computed, OutputCheck, TaskScore
from ...parsers.errors import UserError, file_error
from ...parsers.inference.calibration import Preprocess

if TYPE_CHECKING:
    from numpy.typing import NDArray

TaskName = Literal["classify", "detect", "segment"]
# As Ultralytics validates: nearly every box counts, and the sure ones take away what overlaps them.
_LEAST_SCORE, _NMS_IOU, _MOST_FOUND = 0.001, 0.7, 300
# Without labels, detections of the reference that a user would be shown are the truth.
_SHOWN_SCORE = 0.25
# COCO counts so many detections of a class in an image.
_MOST_DETECTIONS = 100
_IOUS = tuple(0.5 + 0.05 * step for step in range(10))
_RECALLS = 101
# With labels, the largest loss of mAP or mIoU at which outputs are right.
_LARGEST_LOSS = 0.01
_MOST_LABEL_BYTES, _MOST_TEXT_BYTES = 1 << 29, 1 << 24
# What a detector of Ultralytics has of a box: x, y, width, height; x1, y1, x2, y2, score, class.
_BOX, _ROW = 4, 6
# A model that needs no suppression returns 100 to 300 boxes, the others one per place.
_MOST_ROWS = 1000
# A class is a number in an output, and it sizes arrays; a table of maps has its square.
_MOST_CLASSES, _MOST_MAPS = 10_000, 4096
# Of labels, in an image.
_MOST_BOXES = 10_000


class ModelTask(NamedTuple):
    """What the outputs of a model are; ``classes`` is ``None`` if the file does not say it."""

    name: TaskName
    classes: int | None = None


class Boxes(NamedTuple):
    """Boxes in one image: corners x1, y1, x2, y2 in pixels of the model's input, shape (n, 4).

    The others have shape (n,). A crowd is a region in which detections do not count.
    """

    corners: "NDArray[Any]"
    classes: "NDArray[Any]"
    scores: "NDArray[Any]"
    is_crowd: "NDArray[Any]"


def task_of(path: Path, asked: TaskName | None) -> ModelTask | None:
    """Return the task of a model, by what was asked for or by the metadata of its file.

    Ultralytics calls it ``segment`` where each detection has a mask: its boxes are judged here.
    """
    metadata = metadata_of(path)
    classes: int | None = None
    # It is the text of a mapping or of a list in Python, as Ultralytics writes it.
    with suppress(KeyError, ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        classes = len(ast.literal_eval(metadata["names"]))
    name = asked or metadata.get("task")
    if asked == "segment":
        return ModelTask("segment", classes)
    return ModelTask("detect", classes) if name in ("detect", "segment") else None


# --- detections -----------------------------------------------------------------------------------


def detections(outputs: "Sequence[NDArray[Any]]", task: ModelTask) -> list[Boxes]:
    """Return the boxes in each input that are left after non-maximum suppression.

    Args:
        outputs: Of a model; the first axis is the inputs. One output has three axes, and is that of
            YOLOv8 and 11 (inputs, 4 + classes, places), of YOLOv5 (inputs, places, 5 + classes), or
            of a model that needs no suppression (inputs, boxes, 6).

    Raises:
        UserError: No output has such a form, or several have.
    """
    rows = [output for output in outputs if output.ndim == 3]
    if len(rows) == 1 and min(rows[0].shape[1:]) > _BOX:
        return [_suppressed(*_candidates(image, task.classes)) for image in rows[0]]
    shapes = ", ".join(str(output.shape) for output in outputs)
    raise UserError(
        f"outputs of shape {shapes} are not those of a detector",
        "export it with boxes and scores in one output, as YOLO has it, or leave --task out",
    )


def _candidates(
    image: "NDArray[Any]", classes: int | None
) -> "tuple[NDArray[Any], NDArray[Any], float]":
    """Return corners (n, 4), scores (n, classes), and the IoU at which boxes suppress others."""
    import numpy

    values = numpy.nan_to_num(image.astype("f4"), nan=0.0, posinf=0.0, neginf=0.0)
    if values.shape[1] == _ROW and classes != 1 and len(values) <= _MOST_ROWS:
        kinds = values[:, 5].clip(0, _MOST_CLASSES - 1).astype(int)
        scores = numpy.zeros((len(values), kinds.max(initial=0) + 1), "f4")
        scores[numpy.arange(len(values)), kinds] = values[:, 4]
        return values[:, :_BOX], scores, 1.0
    first = _BOX + 1
    if values.shape[0] < values.shape[1]:
        values, first = values.T, _BOX
    # A model with masks has their coefficients after the classes.
    last = None if classes is None else first + classes
    scores = values[:, first:last]
    if first > _BOX:
        scores = scores * values[:, _BOX, None]
    centre, half = values[:, :2], numpy.abs(values[:, 2:_BOX]) / 2
    return numpy.concatenate([centre - half, centre + half], axis=1), scores, _NMS_IOU


def _suppressed(corners: "NDArray[Any]", scores: "NDArray[Any]", iou: float) -> Boxes:
    """Return the best boxes of one input."""
    import numpy

    inputs = {
        "boxes": numpy.ascontiguousarray(corners[None]),
        "scores": numpy.ascontiguousarray(scores.T[None]),
        "most": numpy.array([_MOST_FOUND]),
        "iou": numpy.array([iou], "f4"),
        "least": numpy.array([_LEAST_SCORE], "f4"),
    }
    [kept] = _suppression().run(None, inputs)
    classes, places = kept[:, 1], kept[:, 2]
    sure = scores[places, classes]
    best = numpy.argsort(-sure, kind="stable")[:_MOST_FOUND]
    none = numpy.zeros(len(best), bool)
    return Boxes(corners[places[best]], classes[best], sure[best], none)


@cache
def _suppression() -> Any:
    """Return a session of ONNX's own NonMaxSuppression."""
    import onnxruntime

    inputs = [
        value_info("boxes", "<f4", (1, "places", 4)),
        value_info("scores", "<f4", (1, "classes", "places")),
        value_info("most", "<i8", (1,)),
        value_info("iou", "<f4", (1,)),
        value_info("least", "<f4", (1,)),
    ]
    names = ("boxes", "scores", "most", "iou", "least")
    operation = node("NonMaxSuppression", names, ("kept",), "suppression", {})
    output = value_info("kept", "<i8", ("kept", 3))
    content = graph("suppression", [operation], [], inputs, [output])
    options = onnxruntime.SessionOptions()
    # Its other threads would stay beside the workers that are measured.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model(content, ir_version=8, opset=11, producer=("tegrascope", "")),
        options,
        providers=["CPUExecutionProvider"],
    )


# --- mean average precision -----------------------------------------------------------------------


def mean_precision(truth: Sequence[Boxes], found: Sequence[Boxes]) -> tuple[float, float] | None:
    """Return mAP at IoU 0.5 to 0.95 and at 0.5, from 0 to 1; ``None`` if there is no true box.

    As pycocotools, for boxes of all areas and 100 detections per image.
    """
    import numpy

    classes = {int(one) for image in truth for one in image.classes[~image.is_crowd]}
    if not classes:
        return None
    precisions = numpy.array([_class_precision(truth, found, one) for one in sorted(classes)])
    return float(precisions.mean()), float(precisions[:, 0].mean())


def _class_precision(truth: Sequence[Boxes], found: Sequence[Boxes], kind: int) -> "NDArray[Any]":
    """Return the average precision of a class at each of ``_IOUS``."""
    import numpy

    scores, hits, ignored = [], [], []
    wanted = 0
    for real, image in zip(truth, found, strict=True):
        is_real, is_found = real.classes == kind, image.classes == kind
        order = numpy.argsort(-image.scores[is_found], kind="stable")[:_MOST_DETECTIONS]
        crowd = real.is_crowd[is_real]
        overlaps = _overlaps(image.corners[is_found][order], real.corners[is_real], crowd)
        hit, is_ignored = _match(overlaps, crowd)
        scores.append(image.scores[is_found][order])
        hits.append(hit)
        ignored.append(is_ignored)
        wanted += int((~crowd).sum())
    order = numpy.argsort(-numpy.concatenate(scores), kind="stable")
    hit = numpy.concatenate(hits, axis=1)[:, order]
    counts = ~numpy.concatenate(ignored, axis=1)[:, order]
    averages = numpy.zeros(len(_IOUS))
    for at in range(len(_IOUS)):
        right = numpy.cumsum(hit[at][counts[at]])
        recall = right / wanted
        precision = right / numpy.arange(1, len(right) + 1)
        # The best precision at this recall or a higher one.
        precision = numpy.maximum.accumulate(precision[::-1])[::-1]
        places = numpy.searchsorted(recall, numpy.linspace(0, 1, _RECALLS), side="left")
        averages[at] = precision[places[places < len(precision)]].sum() / _RECALLS
    return averages


def _overlaps(
    boxes: "NDArray[Any]", others: "NDArray[Any]", is_crowd: "NDArray[Any]"
) -> "NDArray[Any]":
    """Return the intersection over the union of each pair, shape (boxes, others).

    With a crowd, it is over the area of the box alone.
    """
    import numpy

    low = numpy.maximum(boxes[:, None, :2], others[None, :, :2])
    high = numpy.minimum(boxes[:, None, 2:], others[None, :, 2:])
    both = (high - low).clip(0).prod(axis=2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)[:, None]
    other_area = (others[:, 2:] - others[:, :2]).prod(axis=1)[None]
    whole = numpy.where(is_crowd[None], area, area + other_area - both)
    overlaps: NDArray[Any] = both / numpy.maximum(whole, 1e-9)
    return overlaps


def _match(
    overlaps: "NDArray[Any]", is_crowd: "NDArray[Any]"
) -> "tuple[NDArray[Any], NDArray[Any]]":
    """Return which detections are hits, and which do not count, at each of ``_IOUS``.

    Args:
        overlaps: Detections, the surest first, by true boxes.
    """
    import numpy

    count, boxes = overlaps.shape
    hit, ignored = numpy.zeros((2, len(_IOUS), count), bool)
    for at, least in enumerate(_IOUS):
        taken = numpy.zeros(boxes, bool)
        for number in range(count):
            free = overlaps[number] * (~taken | is_crowd)
            own = numpy.where(is_crowd, 0.0, free)
            place = int(own.argmax()) if boxes else 0
            if boxes and own[place] >= min(least, 1 - 1e-10):
                taken[place] = hit[at, number] = True
            elif boxes and free.max() >= least:
                ignored[at, number] = True
    return hit, ignored


# --- labels ---------------------------------------------------------------------------------------


def read_boxes(
    labels: Path, inputs: Sequence[Path], side: tuple[int, int], how: Preprocess
) -> list[Boxes]:
    """Read the true boxes of each image from COCO JSON, or from a folder of YOLO text files.

    Raises:
        UserError: They cannot be read, or have none of the images.
    """
    try:
        if is_directory(labels):
            return [_yolo_boxes(labels / f"{one.stem}.txt", one, side, how) for one in inputs]
        document = json.loads(read_regular(labels, _MOST_LABEL_BYTES))
        return list(_coco_boxes(document, inputs, side, how))
    except OSError as error:
        raise file_error(error, labels) from None
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise UserError(
            f"{labels} has no labels of boxes ({error})",
            "give COCO JSON, or a folder of YOLO text: per line a class, and x, y, width and height"
            " or the points of a polygon",
        ) from None


def _coco_boxes(
    document: Mapping[str, Any], inputs: Sequence[Path], side: tuple[int, int], how: Preprocess
) -> Iterator[Boxes]:
    """Yield the boxes of COCO JSON; its categories become classes in the order of their numbers."""
    numbers = sorted({one["id"] for one in document["categories"]})
    classes_by_id = {number: kind for kind, number in enumerate(numbers)}
    by_image: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for one in document["annotations"]:
        by_image[one["image_id"]].append(one)
    images = {Path(one["file_name"]).name: one for one in document["images"]}
    missing = [path.name for path in inputs if path.name not in images]
    if missing:
        raise ValueError(f"no image {missing[0]} in it")
    for path in inputs:
        image = images[path.name]
        size = (image["width"], image["height"])
        rows = by_image[image["id"]]
        corners = [(x, y, x + wide, y + high) for x, y, wide, high in (one["bbox"] for one in rows)]
        classes = [classes_by_id[one["category_id"]] for one in rows]
        crowd = [bool(one.get("iscrowd", 0)) for one in rows]
        yield _boxes(corners, classes, crowd, size, placed(size, side, how))


def _yolo_boxes(text: Path, image: Path, side: tuple[int, int], how: Preprocess) -> Boxes:
    """Return the boxes of one text file, as shares of the image; without a file there are none.

    A line of more numbers is the polygon of a mask; its box is the one around it.
    """
    import numpy
    from PIL import Image

    with Image.open(image) as opened:
        size = opened.size
    corners, classes = [], []
    lines: Sequence[str] = ()
    if exists(text):
        lines = read_regular(text, _MOST_TEXT_BYTES).decode().splitlines()
    for line in filter(str.strip, lines):
        number, *values = line.split()
        if len(values) < _BOX or len(values) % 2:
            raise ValueError(f"{text.name} has a line of {len(values)} numbers after the class")
        points = numpy.array(values, "f8").reshape(-1, 2) * size
        low, high = points.min(axis=0), points.max(axis=0)
        if len(values) == _BOX:
            centre, extent = points
            low, high = centre - extent / 2, centre + extent / 2
        corners.append((*low, *high))
        classes.append(int(number))
    crowd = [False] * len(classes)
    return _boxes(corners, classes, crowd, size, placed(size, side, how))


def _boxes(
    corners: Sequence[Sequence[float]],
    classes: Sequence[int],
    crowd: Sequence[bool],
    size: tuple[int, int],
    place: tuple[tuple[int, int], tuple[int, int]],
) -> Boxes:
    """Return boxes of pixels of the image; raise ``ValueError`` for what cannot be counted.

    Args:
        size: Width and height of the image; ``place`` is what ``placed`` returns for it.
    """
    import numpy

    if len(corners) > _MOST_BOXES:
        raise ValueError(f"more than {_MOST_BOXES} boxes in an image")
    if not all(0 <= kind < _MOST_CLASSES for kind in classes):
        raise ValueError(f"a class that is not from 0 to {_MOST_CLASSES - 1}")
    values = numpy.array(corners, "f8").reshape(-1, 4)
    if not numpy.isfinite(values).all():
        raise ValueError("a box that is not finite")
    (wide, high), offset = place
    scale = (wide / size[0], high / size[1])
    values = values * (*scale, *scale) + (*offset, *offset)
    ones = numpy.ones(len(values))
    return Boxes(values, numpy.array(classes, int), ones, numpy.array(crowd, bool))


# --- the verdict ----------------------------------------------------------------------------------


def judge(
    check: OutputCheck,
    expected: "Sequence[NDArray[Any]]",
    given: "Sequence[NDArray[Any]]",
    task: ModelTask,
    precision: Computed,
    *,
    truth: Sequence[Boxes] | None = None,
    tolerance: float | None = None,
) -> OutputCheck:
    """Return a comparison with the score of the task, and a verdict that it has a part in.

    In int8 the task decides: scores of rare classes may be far off and change nothing. In other
    precisions a channel that is off stays wrong, because the inputs may lack what it is for.

    Args:
        truth: True boxes; without them, what the reference finds is the truth.
    """
    if check.relative_error is None:
        return check  # they cannot be compared at all
    score = _score(expected, given, task, truth)
    if score is None:
        return check
    allowed = tolerance
    if allowed is None:
        allowed = LIMITS[precision].whole if truth is None else _LARGEST_LOSS
    score = score.model_copy(update={"tolerance": allowed})
    check = check.model_copy(update={"task": score})
    if check.verdict == "meaningless":
        return check
    best = 1.0 if score.reference is None else score.reference
    if best - score.score > allowed + 1e-9:
        reason = f"its {score.words}: more than {100 * allowed:.1f} points less"
        return check.model_copy(update={"verdict": "wrong", "reason": reason})
    if precision == "int8" or check.verdict == "unjudged":
        return check.model_copy(update={"verdict": "good", "reason": None})
    return check


def _score(
    expected: "Sequence[NDArray[Any]]",
    given: "Sequence[NDArray[Any]]",
    task: ModelTask,
    truth: Sequence[Boxes] | None,
) -> TaskScore | None:
    """Return the score of outputs; ``None`` if nothing is to be found in the inputs."""
    if task.name == "segment":
        return TaskScore(measure="mIoU", score=mean_overlap(expected, given))
    reference, found = detections(expected, task), detections(given, task)
    real = [_shown(image) for image in reference] if truth is None else truth
    own = mean_precision(real, found)
    if own is None:
        return None
    score = TaskScore(measure="mAP", score=own[0], map50=own[1])
    best = None if truth is None else mean_precision(truth, reference)
    if best is None:
        return score
    return score.model_copy(update={"reference": best[0], "reference_map50": best[1]})


def _shown(image: Boxes) -> Boxes:
    is_shown = image.scores >= _SHOWN_SCORE
    return Boxes(*(values[is_shown] for values in image))


def mean_overlap(expected: "Sequence[NDArray[Any]]", given: "Sequence[NDArray[Any]]") -> float:
    """Return the mean over classes of intersection over union with the reference's best classes.

    Raises:
        UserError: No output is a map of classes.
    """
    import numpy

    for want, got in zip(expected, given, strict=True):
        if want.ndim != 4:
            continue
        real, found = as_channels(want), as_channels(got)
        classes = real.shape[2]
        if classes > _MOST_MAPS:
            continue
        if classes == 1:
            # One class and the background; a probability, or a score around 0.
            limit = 0.5 if want.min() >= 0 else 0.0
            real, found, classes = real > limit, found > limit, 2
        else:
            real, found = real.argmax(axis=2), found.argmax(axis=2)
        table = numpy.bincount(real.ravel() * classes + found.ravel(), minlength=classes**2)
        table = table.reshape(classes, classes)
        union = table.sum(0) + table.sum(1) - table.diagonal()
        return float((table.diagonal()[union > 0] / union[union > 0]).mean())
    raise UserError("no output is a map of classes", "leave --task segment out")

"""Detections and segmentations judged by what they find, beside the tool of the field."""

import contextlib
import io
import json
import math
import random
import subprocess
import sys

import numpy
import onnx
import pytest
from PIL import Image, ImageDraw
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from tegrascope.collectors.backends.base import make_varied
from tegrascope.collectors.models.data_sets import DataSet, InputSpec, placed
from tegrascope.collectors.worker.outputs import OutputCheck
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.calibration import Preprocess
from tegrascope.workbench.bench import tasks
from tegrascope.workbench.bench.settings import workload_of
from tegrascope.workbench.bench.tasks import (
    Boxes,
    ModelTask,
    detections,
    judge,
    mean_overlap,
    mean_precision,
    read_boxes,
    task_of,
)
from tegrascope.workbench.bench.workers import FinishedRun, Reference, look_on
from tests.fakes.shims import write_shims
from tests.fakes.structures import CLASSES, SIDE, build, run
from tests.results.bench_fakes import report, settings

# Drawn at run time, and printed with each failure.
SEED = random.SystemRandom().randrange(1 << 30)
GOOD = OutputCheck(verdict="good", relative_error=0.01)


def boxes(corners, classes, scores=None, crowd=None):
    count = len(corners)
    return Boxes(
        numpy.array(corners, "f8").reshape(count, 4),
        numpy.array(classes, int),
        numpy.ones(count) if scores is None else numpy.array(scores),
        numpy.zeros(count, bool) if crowd is None else numpy.array(crowd, bool),
    )


def drawn_image(state):
    """Return true boxes, a few of them crowds, and detections that are near, double or made up."""
    count = state.randint(0, 12)
    low = state.uniform(0, 500, (count, 2))
    truth = numpy.concatenate([low, low + state.uniform(8, 140, (count, 2))], axis=1)
    classes = state.randint(0, 5, count)
    crowd = state.random_sample(count) < 0.1
    near = state.random_sample(count) < 0.85
    moved = truth[near] + state.normal(scale=6, size=(near.sum(), 4))
    wild = state.uniform(0, 500, (6, 2))
    wild = numpy.concatenate([wild, wild + 60], axis=1)
    twice = moved[: len(moved) // 3] + 3
    found = numpy.concatenate([moved, wild, twice])
    kinds = numpy.concatenate(
        [classes[near], state.randint(0, 5, 6), classes[near][: len(moved) // 3]]
    )
    found[:, 2:] = numpy.maximum(found[:, 2:], found[:, :2] + 1)
    scores = state.permutation(numpy.linspace(0.01, 0.99, len(found)))
    return boxes(truth, classes, crowd=crowd), boxes(found, kinds, scores)


def by_pycocotools(truth, found):
    annotations, results = [], []
    for number, (real, image) in enumerate(zip(truth, found, strict=True), start=1):
        for corners, kind, is_crowd in zip(real.corners, real.classes, real.is_crowd, strict=True):
            x, y, right, low = map(float, corners)
            size = {"bbox": [x, y, right - x, low - y], "area": (right - x) * (low - y)}
            known = {"id": len(annotations) + 1, "image_id": number, "iscrowd": int(is_crowd)}
            annotations.append({**known, **size, "category_id": int(kind)})
        for corners, kind, score in zip(image.corners, image.classes, image.scores, strict=True):
            x, y, right, low = map(float, corners)
            box = {"bbox": [x, y, right - x, low - y], "score": float(score)}
            results.append({"image_id": number, "category_id": int(kind), **box})
    with contextlib.redirect_stdout(io.StringIO()):
        data = COCO()
        data.dataset = {
            "info": {},
            "images": [{"id": number + 1} for number in range(len(truth))],
            "categories": [{"id": kind} for kind in range(5)],
            "annotations": annotations,
        }
        data.createIndex()
        evaluation = COCOeval(data, data.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0]), float(evaluation.stats[1])


def test_mean_precision_is_that_of_pycocotools_on_200_images():
    state = numpy.random.RandomState(SEED)
    truth, found = zip(*(drawn_image(state) for _ in range(200)), strict=True)
    own, theirs = mean_precision(truth, found), by_pycocotools(truth, found)
    print(f"mAP 0.5:0.95 and 0.5: {own}, pycocotools {theirs}")
    assert own == pytest.approx(theirs, abs=0.001), SEED
    assert 0.05 < own[0] < own[1] < 0.95, SEED


def test_nothing_to_find_has_no_score():
    empty = boxes([], [])
    assert mean_precision([empty], [boxes([[0, 0, 9, 9]], [1], [0.9])]) is None
    assert mean_precision([boxes([[0, 0, 9, 9]], [1])], [empty]) == (0.0, 0.0)


# --- outputs --------------------------------------------------------------------------------------

TRUE = [((10, 20, 50, 60), 1, 0.9), ((12, 21, 52, 61), 1, 0.5), ((10, 20, 50, 60), 2, 0.6)]
KEPT = [(1, 0.9), (2, 0.6)]


def rows(width, first_score):
    """Return 40 places of a YOLO, the first three of them with these boxes."""
    made = numpy.zeros((40, width), "f4")
    for place, ((x, y, right, low), kind, score) in enumerate(TRUE):
        made[place, :4] = (x + right) / 2, (y + low) / 2, right - x, low - y
        made[place, first_score + kind] = score
    return made


def yolov8():
    return rows(4 + 6, 4).T


def yolov8_with_masks():
    return numpy.concatenate([rows(4 + 6, 4).T, numpy.full((8, 40), 0.7, "f4")])


def yolov5():
    made = rows(5 + 6, 5)
    made[:, 4] = 1.0
    return made


def without_suppression():
    kept = [(*corners, score, kind) for corners, kind, score in (TRUE[0], TRUE[2])]
    return numpy.array(kept + [(0, 0, 0, 0, 0, 0)] * 10, "f4")


@pytest.mark.parametrize("form", [yolov8, yolov8_with_masks, yolov5, without_suppression])
def test_boxes_are_read_from_the_forms_of_yolo(form):
    (found,) = detections([form()[None]], ModelTask("detect", 6))
    assert (
        list(zip(found.classes.tolist(), found.scores.astype("f8").round(3).tolist(), strict=True))
        == KEPT
    )
    assert found.corners == pytest.approx(numpy.array([TRUE[0][0], TRUE[2][0]]), abs=1e-4)


def test_a_class_beyond_all_sizes_no_array():
    made = without_suppression()
    made[1, 5] = 3e9
    (found,) = detections([made[None]], ModelTask("detect", 6))
    assert found.classes.tolist() == [1, 9999]
    wide = numpy.zeros((1, 4097, 1, 2), "f4")
    with pytest.raises(UserError, match="no output is a map of classes"):
        mean_overlap([wide], [wide])


def test_outputs_of_another_form_are_refused():
    with pytest.raises(UserError, match=r"shape \(2, 1000\) are not those of a detector"):
        detections([numpy.zeros((2, 1000))], ModelTask("detect", 6))
    # Boxes and scores apart, as of SSD.
    with pytest.raises(UserError, match="are not those of a detector"):
        detections([numpy.zeros((2, 90, 4)), numpy.zeros((2, 90, 21))], ModelTask("detect"))
    with pytest.raises(UserError, match="no output is a map of classes"):
        mean_overlap([numpy.zeros((2, 1000))], [numpy.zeros((2, 1000))])


@pytest.mark.parametrize(
    ("metadata", "asked", "task"),
    [
        ({"task": "detect", "names": "{0: 'a', 1: 'b'}"}, None, ModelTask("detect", 2)),
        ({"task": "segment", "names": "['a']"}, None, ModelTask("detect", 1)),
        ({"task": "segment"}, "segment", ModelTask("segment")),
        ({"task": "detect", "names": "__import__('os')"}, None, ModelTask("detect")),
        ({"task": "classify"}, None, None),
        ({}, None, None),
        ({}, "detect", ModelTask("detect")),
    ],
)
def test_task_is_read_from_the_file(tmp_path, metadata, asked, task):
    graph = onnx.helper.make_graph([], "nothing", [], [])
    model = onnx.helper.make_model(graph)
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, tmp_path / "m.onnx")
    assert task_of(tmp_path / "m.onnx", asked) == task


# --- labels ---------------------------------------------------------------------------------------


@pytest.fixture
def photographs(tmp_path):
    """Two photographs with a white rectangle each, and their labels in both forms."""
    (tmp_path / "images").mkdir()
    (tmp_path / "texts").mkdir()
    document = {"images": [], "annotations": [], "categories": [{"id": 7}, {"id": 3}]}
    for number, (name, size) in enumerate((("a.png", (200, 100)), ("b.png", (90, 180)))):
        image = Image.new("RGB", size)
        ImageDraw.Draw(image).rectangle((40, 30, 59, 69), fill="white")
        image.save(tmp_path / "images" / name)
        kind = (3, 7)[number]
        document["images"].append(
            {"id": number, "file_name": name, "width": size[0], "height": size[1]}
        )
        document["annotations"].append(
            {"image_id": number, "category_id": kind, "bbox": [40, 30, 20, 40]}
        )
        share = (50 / size[0], 50 / size[1], 20 / size[0], 40 / size[1])
        text = " ".join(map(str, (number, *share)))
        (tmp_path / "texts" / f"{name[0]}.txt").write_text(f"{text}\n")
    (tmp_path / "labels.json").write_text(json.dumps(document))
    return tmp_path


@pytest.mark.parametrize(
    "how", [Preprocess(), Preprocess(letterbox=True), Preprocess(resize=100)], ids=str
)
@pytest.mark.parametrize("labels", ["labels.json", "texts"])
def test_labels_lie_where_preprocessing_puts_the_image(photographs, labels, how):
    files = sorted((photographs / "images").iterdir())
    found = read_boxes(photographs / labels, files, (96, 96), how)
    data = DataSet(photographs / "images", {"x": InputSpec("float32", (1, 3, 96, 96))}, how)
    for number, (batch, image) in enumerate(zip(data.batches(), found, strict=True)):
        assert image.classes.tolist() == [number]
        bright = batch.arrays["x"][0, 0] > 0.75
        high, wide = numpy.flatnonzero(bright.any(1)), numpy.flatnonzero(bright.any(0))
        seen = [wide[0], high[0], wide[-1] + 1, high[-1] + 1]
        assert numpy.abs(image.corners[0].clip(0, 96) - seen).max() <= 1.0


def test_letterbox_keeps_the_sides_and_fills_with_grey(photographs):
    data = DataSet(
        photographs / "images",
        {"x": InputSpec("float32", (1, 3, 96, 96))},
        Preprocess(letterbox=True, scale=1.0),
    )
    wide, high = (batch.arrays["x"][0] for batch in data.batches())
    assert (wide[:, :24] == 114).all() and (wide[:, 72:] == 114).all()
    assert (wide[:, 24:72, :5] == 0).all()
    assert (high[:, :, :24] == 114).all() and (high[:, :5, 24:72] == 0).all()
    assert placed((200, 100), (96, 96), Preprocess(letterbox=True)) == ((96, 48), (0, 24))


def test_the_middle_of_an_odd_image_is_cut_where_labels_lie(tmp_path):
    image = Image.new("RGB", (199, 99))
    ImageDraw.Draw(image).rectangle((60, 10, 69, 19), fill="white")
    image.save(tmp_path / "a.png")
    how = Preprocess(resize=99)
    data = DataSet(tmp_path, {"x": InputSpec("float32", (1, 3, 96, 96))}, how)
    (batch,) = data.batches()
    bright = batch.arrays["x"][0, 0] == 1
    size, offset = placed((199, 99), (96, 96), how)
    assert size == (199, 99)
    assert numpy.flatnonzero(bright.any(0))[0] == 60 + offset[0]
    assert numpy.flatnonzero(bright.any(1))[0] == 10 + offset[1]


def test_a_polygon_of_yolo_has_the_box_around_it(photographs):
    """As labels for segmentation have; the rectangle is in pixels 40 to 60 and 30 to 70."""
    files = sorted((photographs / "images").iterdir())
    expected = read_boxes(photographs / "texts", files, (96, 96), Preprocess())
    points = [(50, 30), (60, 45), (55, 70), (40, 50), (42, 33)]
    shares = " ".join(f"{x / 200} {y / 100}" for x, y in points)
    (photographs / "texts/a.txt").write_text(f"0 {shares}\n")
    found = read_boxes(photographs / "texts", files, (96, 96), Preprocess())
    assert found[0].corners == pytest.approx(expected[0].corners)


@pytest.mark.parametrize("numbers", ["0.5 0.5", "0.5 0.5 0.1", "0.5 0.5 0.1 0.1 0.9"])
def test_a_line_that_is_neither_a_box_nor_a_polygon_is_refused(photographs, numbers):
    """The fifth number of a file of detections is their score."""
    (photographs / "texts/a.txt").write_text(f"1 {numbers}\n")
    files = sorted((photographs / "images").iterdir())
    count = len(numbers.split())
    with pytest.raises(UserError, match=rf"a\.txt has a line of {count} numbers after the class"):
        read_boxes(photographs / "texts", files, (96, 96), Preprocess())


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"images": [], "annotations": []}'])
def test_labels_that_cannot_be_read_are_refused(photographs, text):
    (photographs / "bad.json").write_text(text)
    files = sorted((photographs / "images").iterdir())
    with pytest.raises(UserError, match="has no labels of boxes"):
        read_boxes(photographs / "bad.json", files, (96, 96), Preprocess())
    (photographs / "texts/a.txt").write_text("1 0.5 x\n")
    with pytest.raises(UserError, match="has no labels of boxes"):
        read_boxes(photographs / "texts", files, (96, 96), Preprocess())


@pytest.mark.parametrize(
    "line",
    ["1 inf 0.5 0.1 0.1", "1e9 0 0 1 1", "10000 0 0 1 1", "-1 0 0 1 1", "0 0 0 1 1\n" * 10_001],
    ids=["infinite", "no number", "large", "negative", "many"],
)
def test_boxes_without_bounds_are_refused(photographs, line):
    files = sorted((photographs / "images").iterdir())
    (photographs / "texts/a.txt").write_text(line)
    with pytest.raises(UserError, match="has no labels of boxes"):
        read_boxes(photographs / "texts", files, (96, 96), Preprocess())


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("images", {"width": 0}),
        ("images", {"width": 10**400}),
        ("images", {"width": math.inf}),
        ("annotations", {"bbox": [0, 0, math.nan, 1]}),
        ("annotations", {"bbox": [0, 0, 10**400, 1]}),
        ("annotations", {"category_id": 4}),
    ],
)
def test_numbers_of_coco_that_cannot_be_computed_with_are_refused(photographs, part, changes):
    files = sorted((photographs / "images").iterdir())
    document = json.loads((photographs / "labels.json").read_text())
    document[part][0] |= changes
    (photographs / "labels.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="has no labels of boxes"):
        read_boxes(photographs / "labels.json", files, (96, 96), Preprocess(letterbox=True))


def test_large_files_of_labels_are_not_read(photographs, monkeypatch):
    monkeypatch.setattr(tasks, "_MOST_LABEL_BYTES", 40)
    monkeypatch.setattr(tasks, "_MOST_TEXT_BYTES", 4)
    files = sorted((photographs / "images").iterdir())
    for name, limit in (("labels.json", 40), ("texts", 4)):
        with pytest.raises(UserError, match=f"is larger than {limit} bytes"):
            read_boxes(photographs / name, files, (96, 96), Preprocess())


# --- the verdict ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    """A detector, inputs, and its outputs."""
    blank = numpy.zeros((8, 3, SIDE, SIDE), "f4")
    model = build("yolov8", 5, make_varied(blank, 50))
    images = make_varied(blank, 0)
    return model, images, run(model, images)["output"]


def test_without_labels_the_reference_is_the_truth(network):
    _, _, expected = network
    task = ModelTask("detect", CLASSES)
    same = judge(GOOD, [expected], [expected], task, "fp16")
    assert (same.verdict, same.task.score, same.task.map50) == ("good", 1.0, 1.0)
    blind = expected.copy()
    blind[:, 4:] = 0
    found = judge(GOOD, [expected], [blind], task, "int8")
    assert (found.verdict, found.task.score) == ("wrong", 0.0)
    assert found.reason == (
        "its agreement with the reference is mAP 0.0 of 100: more than 20.0 points less"
    )
    shifted = expected.copy()
    shifted[:, :2] += SIDE * 0.05
    assert judge(GOOD, [expected], [shifted], task, "fp16").task.score < 0.9


def test_task_decides_in_int8_and_channels_have_a_say_otherwise(network):
    _, _, expected = network
    wrong = OutputCheck(verdict="wrong", reason="a channel", relative_error=0.01)
    task = ModelTask("detect", CLASSES)
    assert judge(wrong, [expected], [expected], task, "int8").verdict == "good"
    assert judge(wrong, [expected], [expected], task, "fp16").verdict == "wrong"
    for verdict, found in (("meaningless", "meaningless"), ("unjudged", "good")):
        check = OutputCheck(verdict=verdict, relative_error=0.01)
        judged = judge(check, [expected], [expected], task, "fp16")
        assert (judged.verdict, judged.task.score) == (found, 1.0)
    other = OutputCheck(verdict="wrong", reason="its outputs have the shapes …")
    assert judge(other, [expected], [expected[:, :3]], task, "int8") == other


def test_loss_against_labels_decides_within_the_tolerance(network):
    _, _, expected = network
    task = ModelTask("detect", CLASSES)
    truth = detections([expected], task)
    truth = [Boxes(*(values[:6] for values in image)) for image in truth]
    worse = expected.copy()
    worse[:, 2:4] *= 1.3
    found = judge(GOOD, [expected], [worse], task, "fp16", truth=truth)
    assert (found.verdict, found.task.tolerance) == ("wrong", 0.01)
    assert found.task.reference > found.task.score + 0.01
    loose = judge(GOOD, [expected], [worse], task, "fp16", truth=truth, tolerance=1.0)
    assert loose.verdict == "good"


def test_maps_are_compared_by_their_best_classes():
    scores = numpy.random.RandomState(1).normal(size=(2, 4, 10, 10))
    assert mean_overlap([scores], [scores]) == 1.0
    other = scores.copy()
    other[:, 3] = -9  # one class is never the best
    found = mean_overlap([scores], [other])
    real, given = scores.argmax(1), other.argmax(1)
    shares = [
        ((real == kind) & (given == kind)).sum() / ((real == kind) | (given == kind)).sum()
        for kind in range(4)
    ]
    assert found == pytest.approx(numpy.mean(shares))
    last = [one.transpose(0, 2, 3, 1) for one in (scores, other)]
    assert mean_overlap(last[:1], last[1:]) == pytest.approx(found)
    mask = numpy.zeros((1, 1, 4, 4))
    half = mask.copy()
    mask[..., :2] = half[..., :1] = 1
    assert mean_overlap([mask], [half]) == pytest.approx((4 / 8 + 8 / 12) / 2)


class Garbling:
    """Workers of which the one run leaves outputs that cannot be read."""

    def run(self, *given):
        given[3].write_bytes(b"PK")  # the outputs
        return FinishedRun(report(), None, "ok")


def test_outputs_that_cannot_be_read_are_unchecked(network, tmp_path):
    asked = settings("m.onnx")
    reference = Reference(
        tmp_path, FinishedRun(report(), None, "ok"), task=ModelTask("detect", CLASSES)
    )
    numpy.savez(reference.file, network[2])
    workload = workload_of(asked, "m.onnx", "gpu")
    found = look_on(workload, reference, asked, Garbling(), lambda _: None, "m on gpu")
    assert found.outputs.verdict == "unchecked"
    assert "the outputs cannot be read" in found.outputs.reason


@pytest.mark.parametrize(("is_blind", "verdict"), [(False, "good"), (True, "wrong")])
def test_bench_refuses_an_engine_that_sees_nothing(network, tmp_path, is_blind, verdict):
    onnx.save(network[0], tmp_path / "detector.onnx")
    (tmp_path / "shims").mkdir()
    path = write_shims(tmp_path / "shims", computes=True, is_blind=is_blind)
    command = [sys.executable, "-m", "tegrascope", "bench", "detector.onnx", "--on", "gpu,cpu"]
    command += ["--telemetry", "none", "--duration", "0.4", "--warm-up", "0.05", "--rounds", "2"]
    done = subprocess.run(
        [*command, "--state-dir", "state", "-o", "out"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=tmp_path,
        env={"PYTHONPATH": path, "HOME": str(tmp_path)},
    )
    result = json.loads((tmp_path / "out/result.json").read_text())
    gpu, cpu = result["models"][0]["accelerators"]
    assert (gpu["outputs"]["verdict"], cpu["outputs"]["verdict"]) == (verdict, "reference")
    assert gpu["outputs"]["channels"]["channels"] == 4 + CLASSES
    if is_blind:
        assert gpu["outputs"]["channels"]["wrong_channels"] == ["output 1: 4-9"]
        assert gpu["outputs"]["relative_error"] < 0.05
        assert "wrong_outputs" in done.stdout
        assert not any(goal.get("winner") == "gpu" for goal in result["models"][0]["goals"])


def test_bench_prints_the_score_of_a_detector(network, tmp_path):
    model, images, expected = network
    onnx.helper.set_model_props(model, {"task": "detect", "names": str(dict(enumerate("abcdef")))})
    onnx.save(model, tmp_path / "detector.onnx")
    (tmp_path / "inputs").mkdir()
    documents = {"images": [], "annotations": [], "categories": [{"id": k} for k in range(6)]}
    found = detections([expected], ModelTask("detect", 6))
    for number, (image, boxes_of) in enumerate(zip(images, found, strict=True)):
        name = f"{number}.npy"
        numpy.save(tmp_path / "inputs" / name, image)
        documents["images"].append({"id": number, "file_name": name, "width": SIDE, "height": SIDE})
        for corners, kind in zip(boxes_of.corners, boxes_of.classes, strict=True):
            x, y, right, low = map(float, corners)
            documents["annotations"].append(
                {
                    "image_id": number,
                    "category_id": int(kind),
                    "bbox": [x, y, right - x, low - y],
                }
            )
    (tmp_path / "labels.json").write_text(json.dumps(documents))
    command = [sys.executable, "-m", "tegrascope", "bench", "detector.onnx", "--on", "cpu"]
    command += ["--telemetry", "none", "--duration", "0.4", "--warm-up", "0.05", "--rounds", "2"]
    command += ["--inputs", "inputs", "--state-dir", "state", "-o", "out"]

    def bench(*more):
        return subprocess.run(
            [*command, *more],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            cwd=tmp_path,
        )

    done = bench("--labels", "labels.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out/result.json").read_text())
    score = result["models"][0]["accelerators"][0]["outputs"]["task"]
    assert score["score"] == score["reference"] > 0.9
    assert f"{100 * score['score']:.1f} (fp32 {100 * score['score']:.1f})" in done.stdout
    assert "mAP 0.5:0.95" in done.stdout
    # The file itself is blind, and so is its fp32 reference.
    blind = onnx.ModelProto.FromString(model.SerializeToString())
    (output,) = blind.graph.output
    mask = numpy.ones((1, 4 + CLASSES, 1), numpy.float32)
    mask[:, 4:] = 0
    blind.graph.initializer.append(onnx.numpy_helper.from_array(mask, "mask"))
    seen = f"{output.name}.seen"
    for node in blind.graph.node:
        node.output[:] = [seen if name == output.name else name for name in node.output]
    blind.graph.node.append(onnx.helper.make_node("Mul", [seen, "mask"], [output.name]))
    onnx.save(blind, tmp_path / "detector.onnx")
    refused = bench("--labels", "labels.json")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        "in fp32 the model finds none of the labelled objects: mAP at 0.5 is 0.0" in refused.stderr
    )
    # What the metadata says does not fit these outputs, and nobody insists on it.
    other = build("resnet", 5, images)
    onnx.helper.set_model_props(other, {"task": "detect"})
    onnx.save(other, tmp_path / "detector.onnx")
    done = bench()
    assert done.returncode == 0, done.stderr
    assert "mAP" not in done.stdout
    refused = bench("--task", "detect")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "are not those of a detector" in refused.stderr
    refused = bench("--labels", "labels.json", "--task", "detect")
    assert "are not those of a detector" in refused.stderr
    assert "loads or builds it" not in refused.stderr, "refused before an engine is built"
    onnx.save(model, tmp_path / "detector.onnx")
    numpy.savez(tmp_path / "all.npz", images)
    one = {"id": 0, "file_name": "all.npz", "width": SIDE, "height": SIDE}
    (tmp_path / "one.json").write_text(json.dumps({**documents, "images": [one]}))
    refused = bench("--labels", "one.json", "--inputs", "all.npz")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "1 files have labels, and the model has outputs for 8 inputs" in refused.stderr
    refused = bench("--labels", "labels.json", "--task", "classify")
    assert refused.returncode == 1
    assert "the labels are boxes" in refused.stderr

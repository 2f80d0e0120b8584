"""A body and its head as one inference: by ONNX Runtime, and by TensorRT against stand-ins."""

import json
import random
from collections import Counter
from functools import partial
from pathlib import Path
from threading import Event

import numpy
import onnx
import pytest
from onnx import TensorProto, helper

from tegrascope.collectors.backends.base import make_varied
from tegrascope.collectors.backends.onnxruntime import OnnxRuntime
from tegrascope.collectors.models.files import read_graph_apart
from tegrascope.collectors.worker.outputs import compare_with_first_run
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.events import Declined, Inferences, Order
from tegrascope.workbench.inspect.cut import cut_model
from tegrascope.workbench.inspect.judge import inspect_graph
from tegrascope.workbench.inspect.rules import rules_of
from tests.fakes.structures import SIDE, fixed

from .test_tensorrt import Desk

pytest.importorskip("onnxruntime")
NETWORKS = ("yolov8", "ssd")


@pytest.fixture(scope="module", params=NETWORKS)
def parts(request, tmp_path_factory):
    """Return a folder with a detector, and the body and the head that it was cut into."""
    return cut(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def detector(tmp_path_factory):
    return cut("ssd", tmp_path_factory.mktemp("detector"))


def cut(name: str, folder: Path) -> Path:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"weights of seed {seed}")
    images = make_varied(numpy.zeros((8, 3, SIDE, SIDE), "f4"), 50)
    onnx.save(fixed(name, seed, images), folder / "model.onnx")
    rules = rules_of("10.3")
    judge = partial(inspect_graph, rules=rules, model="m", reason="", precision="fp16")
    cut_model(folder / "model.onnx", read_graph_apart(folder / "model.onnx"), judge, folder)
    return folder


@pytest.fixture
def desk(monkeypatch, tmp_path):
    made = Desk(monkeypatch, tmp_path)
    made.use("8.6.1", dla_cores=2)
    made.device.computes = True
    return made


def on_cpu(folder: Path, model: str, head: str | None = None) -> OnnxRuntime:
    order = Order(
        run_id="r",
        backend="onnxruntime",
        device="cpu",
        model=model,
        head=head and str(folder / head),
        model_directory=str(folder),
        threads=1,
        count=1,
    )
    backend = OnnxRuntime()
    backend.load(folder / model, order)
    backend.infer()
    return backend


def borders(folder: Path) -> set[str]:
    body, head = (onnx.load(folder / name).graph for name in ("body.onnx", "head.onnx"))
    return {value.name for value in body.output} & {value.name for value in head.input}


def agree(whole, pair) -> bool:
    """Return whether both give the same for the inputs that they have."""
    expected, given = whole.outputs(), pair.outputs()
    assert expected.keys() == given.keys()
    for name, want in expected.items():
        # Of the largest value: the same sums, in another order.
        if abs(want - given[name]).max() > 1e-5 * abs(want).max():
            return False
    return True


# --- on the CPU -----------------------------------------------------------------------------------


def test_a_pair_gives_what_the_whole_model_gives(parts):
    whole, pair = on_cpu(parts, "model.onnx"), on_cpu(parts, "body.onnx", "head.onnx")
    assert pair.input_shapes == whole.input_shapes
    usual = whole.inputs()
    for number in range(5):
        inputs = {name: make_varied(values, number) for name, values in usual.items()}
        for backend in (whole, pair):
            backend.feed(inputs)
            backend.infer()
        assert agree(whole, pair)
    whole.feed(usual)
    whole.infer()
    assert not agree(whole, pair), "other inputs give other outputs"


def test_body_and_head_have_a_time_each(parts):
    pair = on_cpu(parts, "body.onnx", "head.onnx")
    pair.infer_timed()
    assert pair.stages == ("body", "head")
    body_ns, head_ns = pair.stages_ns()
    assert min(body_ns, head_ns) > 0
    whole = on_cpu(parts, "model.onnx")
    whole.infer_timed()
    assert (whole.stages, whole.stages_ns()) == ((), ())


def write(path: Path, kind: int = TensorProto.FLOAT, **graph: dict[str, tuple[int, ...]]) -> Path:
    """Write an addition of its inputs for each of its outputs."""
    sides = {}
    for side in ("inputs", "outputs"):
        sides[side] = [
            helper.make_tensor_value_info(name, kind, shape) for name, shape in graph[side].items()
        ]
    first, *others = [value.name for value in sides["inputs"]]
    nodes = []
    for value in sides["outputs"]:
        operator = "Add" if others else "Relu"
        nodes.append(helper.make_node(operator, [first, *others[:1]], [value.name], value.name))
    made = helper.make_graph(nodes, "made", sides["inputs"], sides["outputs"])
    onnx.save(
        helper.make_model(made, ir_version=8, opset_imports=[helper.make_opsetid("", 13)]), path
    )
    return path


IMAGE = (1, 4)


@pytest.fixture
def chain(tmp_path):
    """A body that makes a border and an output, and a head that reads an input of its own."""
    write(tmp_path / "body.onnx", inputs={"x": IMAGE}, outputs={"border": IMAGE, "early": IMAGE})
    write(tmp_path / "head.onnx", inputs={"border": IMAGE, "extra": IMAGE}, outputs={"late": IMAGE})
    return tmp_path


def test_inputs_and_outputs_of_the_whole_are_those_of_both(chain, desk):
    for pair in (
        on_cpu(chain, "body.onnx", "head.onnx"),
        desk.make(chain / "body.onnx", head=str(chain / "head.onnx")),
    ):
        assert pair.input_shapes == {"x": IMAGE, "extra": IMAGE}
        pair.feed({"x": numpy.float32([[-1, 2, 3, 4]]), "extra": numpy.float32([[5, 5, 5, 5]])})
        pair.infer()
        found = {name: values.tolist() for name, values in pair.outputs().items()}
        assert found == {"early": [[0, 2, 3, 4]], "late": [[5, 7, 8, 9]]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": {"other": IMAGE}}, "the head reads other, and the body has x, border, early"),
        (
            {"inputs": {"border": IMAGE}, "kind": TensorProto.FLOAT16},
            "the body makes 'border' as .* and the head reads .*: take body and head of one",
        ),
    ],
)
def test_a_head_of_another_model_is_refused(chain, desk, changes, words):
    write(chain / "head.onnx", outputs={"late": IMAGE}, **changes)
    with pytest.raises(UserError, match=words):
        on_cpu(chain, "body.onnx", "head.onnx")
    with pytest.raises(UserError, match=words):
        desk.make(chain / "body.onnx", head=str(chain / "head.onnx"))


def test_a_missing_head_is_one_line(chain, desk):
    (chain / "head.onnx").unlink()
    for make in (
        lambda: on_cpu(chain, "body.onnx", "head.onnx"),
        lambda: desk.make(chain / "body.onnx", head=str(chain / "head.onnx")),
    ):
        with pytest.raises(UserError, match=r"there is no model file .*/head\.onnx"):
            make()


# --- by TensorRT ----------------------------------------------------------------------------------


def pair_of(desk: Desk, folder: Path, device: str = "dla0", **changes: object):
    return desk.make(folder / "body.onnx", device=device, head=str(folder / "head.onnx"), **changes)


@pytest.mark.parametrize("device", ["dla0", "dla1", "gpu"])
def test_two_engines_give_what_the_whole_model_gives(desk, parts, device):
    whole, pair = desk.make(parts / "model.onnx"), pair_of(desk, parts, device)
    assert pair.input_shapes == whole.input_shapes
    for number in range(3):
        inputs = {name: make_varied(values, number) for name, values in whole.inputs().items()}
        for backend in (whole, pair):
            backend.feed(inputs)
            backend.infer()
        assert agree(whole, pair)


def test_what_the_body_makes_is_read_where_it_lies(desk, detector):
    """No border goes over the host, and it has no buffer there."""
    pair = pair_of(desk, detector, streams=2)
    body_of, head_of = desk.device.contexts[-4::2], desk.device.contexts[-3::2]
    for body, head in zip(body_of, head_of, strict=True):
        for name in borders(detector):
            assert body.addresses[name] == head.addresses[name]
    first, second = ({one.addresses[name] for name in borders(detector)} for one in body_of)
    assert not first & second, "each stream has buffers of its own"
    desk.device.calls.clear()
    pair.infer()
    copies = 1 + len(pair.outputs())
    assert Counter(desk.device.calls) == {
        "cudaMemcpyAsync": copies,
        "execute": 2,
        "cudaStreamSynchronize": 1,
    }


def test_body_and_head_are_stages_of_the_device(desk, detector):
    pair = pair_of(desk, detector, streams=2)
    outputs = len(pair.outputs())
    assert pair.stages == ("h2d", "body", "head", "d2h")
    for slot in pair.slots:
        slot.submit_timed()
        slot.wait()
        assert slot.stages_ns() == [10_000, 300_000, 300_000, 10_000 * outputs]
    repeat = pair.repeat("head", 3)
    desk.device.calls.clear()
    repeat()
    assert Counter(desk.device.calls) == {"execute": 3, "cudaStreamSynchronize": 1}
    pair = pair_of(desk, detector, transfers=False)
    assert (pair.stages, pair.stages_ns()) == (("body", "head"), [300_000, 300_000])


def test_each_engine_is_found_again_by_a_key_of_its_own(desk, detector):
    first = pair_of(desk, detector).built
    assert (desk.builds, first.placement.verdict) == (2, "pure_dla")
    assert first.head_engine_key != first.engine_key
    plan = json.loads((desk.engines / f"{first.head_engine_key}.plan").read_bytes())
    assert "GPU_FALLBACK" not in plan["flags"], "the head is built for the GPU"
    second = pair_of(desk, detector, "dla1").built
    alone = desk.make(detector / "body.onnx", device="dla0").built
    assert desk.builds == 2
    assert second.head_engine_key == first.head_engine_key
    assert alone.engine_key == second.engine_key == first.engine_key
    assert alone.head_engine_key is None


def test_a_head_has_no_scales(desk, detector):
    desk.device.computes = False
    built = pair_of(desk, detector, precision="int8", layer_precisions={"*": "fp16"}).built
    flags = {}
    for key in (built.engine_key, built.head_engine_key):
        flags[key] = json.loads((desk.engines / f"{key}.plan").read_bytes())["flags"]
    assert "INT8" in flags[built.engine_key]
    assert flags[built.head_engine_key] == ["FP16"]


def test_first_outputs_are_of_a_body_with_its_head(desk, detector):
    """Another head, or none, is another workload, though the engine of the body is the same."""
    order = desk.order(detector / "body.onnx")
    found = []
    for _ in range(2):
        found.append(compare_with_first_run(pair_of(desk, detector), order).difference)
        alone = desk.make(detector / "body.onnx", device="dla0")
        found.append(compare_with_first_run(alone, order).difference)
    assert found == [None, None, 0.0, 0.0]


def test_a_graph_holds_each_part_on_the_gpu_and_none_of_a_dla(desk, detector):
    assert "DLA" in pair_of(desk, detector).built.why_no_graph
    pair = pair_of(desk, detector, "gpu")
    assert pair.built.has_cuda_graph
    desk.device.calls.clear()
    pair.infer_timed()
    assert Counter(desk.device.calls)["cudaGraphLaunch"] == 2
    assert pair.stages_ns()[1:3] == [300_000, 300_000]


def test_another_layout_of_a_border_is_one_line(desk, detector):
    """The head would read other numbers in its place."""
    name = min(borders(detector))
    answers = iter(["CHW16", "LINEAR"])

    class Changing(dict):
        def get(self, asked, usual):
            return next(answers) if asked == name else usual

    desk.device.layouts = Changing()
    with pytest.raises(UserError, match=f"makes '{name}' as FLOAT CHW16, .* reads FLOAT LINEAR"):
        pair_of(desk, detector)


def test_another_shape_of_a_border_is_one_line(chain, desk):
    write(chain / "head.onnx", inputs={"border": (1, 5)}, outputs={"late": (1, 5)})
    with pytest.raises(UserError, match=r"takes no \(1, 4\) for input 'border'"):
        desk.make(chain / "body.onnx", head=str(chain / "head.onnx"))


def test_layers_of_a_pair_are_not_timed(desk, detector):
    with pytest.raises(UserError, match="bench each by itself"):
        pair_of(desk, detector).profile(3)


def test_both_engines_are_given_back(desk, detector):
    for device in ("gpu", "dla0"):
        pair = pair_of(desk, detector, device, streams=2)
        pair.close()
        assert (desk.device.memory, desk.device.things) == ({}, set())


# --- by the worker --------------------------------------------------------------------------------


def test_a_worker_times_both_and_declines_a_changed_head(chain):
    """A process loads once: a body with another head is another load."""
    events: list[object] = []
    runner = Runner(lambda _: OnnxRuntime(), events.append, Event())
    order = Order(
        run_id="r",
        backend="onnxruntime",
        device="cpu",
        model=str(chain / "body.onnx"),
        head=str(chain / "head.onnx"),
        model_directory=str(chain),
        threads=1,
        count=3,
    )
    for _ in range(2):
        events.clear()
        runner.run(order)
        assert events[-1].outcome == "ok", events[-1].reason
        (chunk,) = (event for event in events if isinstance(event, Inferences))
        assert {stage for stage, times in chunk.stages_ns.items() if times} == {"body", "head"}
    write(chain / "head.onnx", inputs={"border": IMAGE}, outputs={"late": IMAGE})
    runner.run(order)
    assert isinstance(events[-1], Declined)

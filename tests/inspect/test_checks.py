"""Predictions compared with the builder and with engines, with a stand-in for TensorRT."""

import json

import pytest

from tegrascope.collectors.backends.engine_cache import BuiltEngine, EngineCache
from tegrascope.collectors.backends.tensorrt_probe import ask_layers
from tegrascope.daemon.measure.report import RunReport
from tegrascope.daemon.store.store import Store
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.placement import (
    Built,
    LayerAnswer,
    LayerAnswers,
    Placement,
    placement_of,
)
from tegrascope.parsers.onnx.graph import Graph, Node
from tegrascope.workbench.cli import main
from tegrascope.workbench.inspect.judge import check_builder, check_engine, find_evidence
from tegrascope.workbench.inspect.rules import Inspection, JudgedNode
from tests.fakes.shims import write_shims

onnx = pytest.importorskip("onnx")


def chain(*placements, names=None):
    """Return a chain of nodes n0, n1 … and a prediction of where each is."""
    names = names or [f"n{at}" for at in range(len(placements))]
    nodes = tuple(
        Node(index=at, name=name, op="Relu", inputs=(f"t{at}",), outputs=(f"t{at + 1}",))
        for at, name in enumerate(names)
    )
    judged = tuple(
        JudgedNode(index=node.index, name=node.name, op=node.op, placement=placement)
        for node, placement in zip(nodes, placements, strict=True)
    )
    found = Inspection(
        model="m",
        tensorrt="8.6",
        tensorrt_reason="asked for",
        precision="fp16",
        verdict="mixed",
        is_ready=False,
        loadable_limit=16,
        nodes=judged,
    )
    return Graph(inputs=("t0",), outputs=(f"t{len(nodes)}",), nodes=nodes), found


def answers(*layers, cores=2):
    return LayerAnswers(
        tensorrt="8.6.1",
        dla_cores=cores,
        layers=tuple(
            LayerAnswer(name=name, kind=kind, marks=marks, on_dla=on_dla)
            for name, kind, marks, on_dla in layers
        ),
    )


def places(check):
    return {one.name: (one.predicted, one.found) for one in check.differences}


def test_a_node_fits_if_each_of_its_layers_fits():
    graph, inspection = chain("dla", "dla", "gpu", "unknown", "folded")
    check = check_builder(
        graph,
        inspection,
        answers(
            ("n0", "ACTIVATION", "[ONNX Layer: n0]", True),
            ("n0_1", "ELEMENTWISE", "[ONNX Layer: n0]", False),
            ("w", "CONSTANT", "", False),
            ("n1", "ACTIVATION", "[ONNX Layer: n1]", True),
            ("n1_2", "CONSTANT", "[ONNX Layer: n1]", False),
            ("n2", "ACTIVATION", "[ONNX Layer: n2]", False),
            ("n3", "ACTIVATION", "[ONNX Layer: n3]", True),
            ("n4", "SHUFFLE", "[ONNX Layer: n4]", False),
        ),
    )
    assert (check.compared, check.agreed, check.answered) == (3, 2, 1)
    assert places(check) == {"n0": ("dla", "gpu"), "n3": ("unknown", "dla")}
    assert check.differences[0].layers == ("n0_1",)


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        ("n1", ""),
        ("n1_27", ""),
        ("node_of_t2", ""),
        ("fused", "[ONNX Layer: other]\x1e[ONNX Layer: n1]"),
        ("a]b_3", "[ONNX Layer: a]b]"),
    ],
)
def test_layers_are_found_by_name_and_by_mark(name, marks):
    graph, inspection = chain("dla", "dla", "dla", names=["n0", "n1", "a]b"])
    check = check_builder(graph, inspection, answers((name, "ACTIVATION", marks, False)))
    (found,) = check.differences
    assert found.name == ("a]b" if name.startswith("a]b") else "n1")


def test_without_a_dla_nothing_is_compared():
    graph, inspection = chain("dla")
    check = check_builder(graph, inspection, answers(("n0", "ACTIVATION", "", None), cores=0))
    assert "finds no DLA here" in check.problem
    assert not check.differences


def test_names_of_another_model_are_reported():
    graph, inspection = chain("dla")
    check = check_builder(graph, inspection, answers(("elsewhere", "ACTIVATION", "", True)))
    assert "no layer has the name of a node" in check.problem


def test_an_engine_is_compared_with_the_prediction():
    graph, inspection = chain("dla", "dla", "dla", "gpu", "gpu", "dla")
    placement = Placement(
        verdict="mixed",
        loadables=1,
        dla_layers=("{ForeignNode[n0...n3]}",),
        gpu_layers=("PWN(PWN(n1), n2)", "n4 + n5"),
    )
    check = check_engine(graph, inspection, placement, "run 1")
    assert (check.compared, check.agreed, check.loadables) == (6, 2, 1)
    assert places(check) == {
        "n1": ("dla", "gpu"),
        "n2": ("dla", "gpu"),
        "n3": ("gpu", "dla"),
        "n5": ("dla", "gpu"),
    }


def test_a_shuffle_that_the_gpu_runs_is_found_there():
    graph, inspection = chain("dla", "gpu", "dla", "dla", "dla", names=["a", "r", "q", "t", "c"])
    log = (
        "[DlaLayer] {ForeignNode[a...c]}",
        "[GpuLayer] SHUFFLE: r",
        "[GpuLayer] SHUFFLE: q + t",
        "[GpuLayer] COPY: a copy",
        "Reformatting CopyNode for Input Tensor 0 to x + c",
        "[GpuLayer] REFORMAT: Reformatting CopyNode for Input Tensor 0 to x + c",
    )
    check = check_engine(graph, inspection, placement_of(log, None, "dla0"), "build.log")
    assert (check.compared, check.agreed, check.is_refuted) == (5, 3, True)
    assert places(check) == {"q": ("dla", "gpu"), "t": ("dla", "gpu")}
    assert check.differences[0].layers == ("{ForeignNode[a...c]}", "q + t")


def test_a_shuffle_behind_a_product_does_not_move_the_product():
    graph, inspection = chain("dla", "dla")
    product = inspection.nodes[1].model_copy(update={"layer": "fully_connected"})
    inspection = inspection.model_copy(update={"nodes": (inspection.nodes[0], product)})
    log = ("[DlaLayer] {ForeignNode[n0...n1]}", "[GpuLayer] SHUFFLE: n1_7")
    check = check_engine(graph, inspection, placement_of(log, None, "dla0"), "build.log")
    assert (check.compared, check.agreed, check.differences) == (2, 2, ())


def test_two_subgraphs_that_contradict_each_other_are_not_compared():
    graph, inspection = chain("dla", "dla", "dla", "dla")
    placement = Placement(
        verdict="mixed",
        dla_layers=("{ForeignNode[n0...n2]}",),
        gpu_layers=("{ForeignNode[n1...n3]}",),
    )
    check = check_engine(graph, inspection, placement, "run 1")
    assert check.compared == 2
    assert places(check) == {"n3": ("dla", "gpu")}


def test_an_unknown_placement_is_not_compared():
    graph, inspection = chain("dla")
    check = check_engine(graph, inspection, Placement(), "engine 1")
    assert "the placement of its layers is unknown" in check.problem


@pytest.fixture
def model(tmp_path):
    """A convolution, a softmax along the channels, and an error function; half precision."""
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["a"], name="conv", kernel_shape=[1, 1]),
        onnx.helper.make_node("Softmax", ["a"], ["b"], name="softmax", axis=1),
        onnx.helper.make_node("Erf", ["b"], ["y"], name="erf"),
    ]
    half, shape = onnx.TensorProto.FLOAT16, [1, 16, 4, 4]
    weight = onnx.helper.make_tensor("w", half, [16, 16, 1, 1], b"\0" * 512, raw=True)
    given, made = (onnx.helper.make_tensor_value_info(name, half, shape) for name in "xy")
    inner = [onnx.helper.make_tensor_value_info(name, half, shape) for name in "ab"]
    graph = onnx.helper.make_graph(nodes, "g", [given], [made], [weight], value_info=inner)
    opset = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    def write(**changes):
        folder = tmp_path / "shims"
        folder.mkdir()
        monkeypatch.setenv("PYTHONPATH", write_shims(folder, **changes))

    return write


@pytest.fixture
def inspect(model, tmp_path, capsys):
    """Run the command; returns its status and what it printed, spaces made one."""

    def call(*arguments):
        state = ["--state-dir", str(tmp_path / "state")]
        status = main(["inspect", str(model), "--tensorrt", "8.6", *state, *arguments])
        captured = capsys.readouterr()
        return (
            status,
            captured.out if "--json" in arguments else " ".join(captured.out.split()),
            captured.err,
        )

    return call


def test_verify_shows_where_the_builder_differs(stand_in, inspect):
    stand_in(dla_cores=1)
    status, out, _ = inspect("--verify", "--json")
    assert status == 3
    (check,) = json.loads(out)["checks"]
    assert (check["source"], check["compared"]) == ("the builder of TensorRT 8.6.1", 3)
    found = {one["name"]: (one["predicted"], one["found"]) for one in check["differences"]}
    assert found == {"softmax": ("dla", "gpu"), "erf": ("gpu", "dla")}
    status, out, _ = inspect("--verify")
    assert "the builder of TensorRT 8.6.1: 1 of 3 nodes are as predicted" in out
    assert "Softmax softmax: predicted dla, found gpu" in out


@pytest.mark.parametrize("version", ["8.5.2", "10.3.0", "11.4.1"])
def test_each_version_is_asked(stand_in, model, version):
    stand_in(dla_cores=2, version=version)
    found = ask_layers(model, None, {})
    assert found.problem is None
    assert [(one.name, one.on_dla) for one in found.layers] == [
        ("conv", True),
        ("softmax", False),
        ("erf", True),
    ]
    assert any(one.marks for one in found.layers) is (version != "8.5.2")


def test_verify_without_a_dla_prints_one_line(stand_in, inspect):
    stand_in(dla_cores=0)
    status, out, err = inspect("--verify")
    assert status == 3
    assert "finds no DLA here" in out
    assert "as predicted" not in out
    assert err == ""


def test_verify_survives_a_library_that_kills_the_process(stand_in, inspect, tmp_path):
    stand_in(dla_cores=1)
    shim = tmp_path / "shims" / "tensorrt.py"
    shim.write_text(shim.read_text() + "import os\ndef Builder(_): os.kill(os.getpid(), 11)\n")
    status, out, _ = inspect("--verify")
    assert status == 3
    assert "ended the process that asked which layers the DLA takes, by signal 11" in out
    assert "on the DLA and the GPU" in out


def test_verify_without_tensorrt_names_the_package(monkeypatch, tmp_path, inspect):
    (tmp_path / "tensorrt.py").write_text("raise ModuleNotFoundError(name='tensorrt')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    _, out, _ = inspect("--verify")
    assert "! TensorRT: tensorrt is not installed: on a Jetson apt install" in out


MIXED = """[I] [TRT] ---------- Layers Running on DLA ----------
[I] [TRT] [DlaLayer] {ForeignNode[conv...conv]}
[I] [TRT] ---------- Layers Running on GPU ----------
[I] [TRT] [GpuLayer] SOFTMAX: softmax
[I] [TRT] [GpuLayer] UNARY: erf
"""
PLACED = Placement(
    verdict="mixed",
    loadables=1,
    dla_layers=("{ForeignNode[conv...conv]}",),
    gpu_layers=("softmax", "erf"),
)


def test_a_build_log_is_evidence(inspect, tmp_path):
    log = tmp_path / "build.log"
    log.write_text(MIXED)
    status, out, _ = inspect("--against", str(log))
    assert status == 3
    assert "build.log: 2 of 3 nodes are as predicted" in out
    assert "Softmax softmax: predicted dla, found gpu" in out


@pytest.mark.parametrize("depth", ["run", "result"])
def test_a_run_and_a_comparison_are_evidence(inspect, tmp_path, depth):
    built = {"placement": PLACED.model_dump(mode="json")}
    run = {"device": "dla0", "model_sha256": "0" * 64, "built": built}
    other = {"device": "gpu", "built": {"placement": {"verdict": "gpu_only"}}}
    document = run if depth == "run" else {"model_sha256": "0" * 64, "results": [other, run]}
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    status, out, _ = inspect("--against", str(path))
    assert status == 3
    assert "result.json, built from another file: 2 of 3 nodes are as predicted" in out


def test_an_engine_of_the_cache_is_evidence(inspect, tmp_path):
    cache, key = EngineCache(tmp_path / "state" / "engines"), "ab" * 32
    cache.write(key, BuiltEngine(b"plan", Built(placement=PLACED)), model="m.onnx", parts={})
    status, out, _ = inspect("--against", key[:12])
    assert status == 3
    assert f"engine {key[:12]} of m.onnx: 2 of 3 nodes are as predicted" in out
    assert "1 loadables" in out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no file, engine or run"),
        ("no log at all", "contains no placement of layers on a DLA"),
        (
            '{"device": "gpu", "built": {"placement": {}}}',
            "contains no placement of layers on a DLA",
        ),
        ("[1, 2]", "contains no placement of layers on a DLA"),
    ],
)
def test_a_file_without_a_placement_is_rejected(tmp_path, content, says):
    path = tmp_path / "given"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=says) as caught:
        find_evidence(str(path), tmp_path)
    assert "tegrascope engines list" in str(caught.value)


def test_list_of_tensorrt_7_is_named(tmp_path):
    """It stands in braces behind its heading, and its layers have other names."""
    path = tmp_path / "build.log"
    path.write_text(
        "INFO: [TRT]: --------------- Layers running on DLA: \n"
        "INFO: [TRT]: {conv1,bn1,relu1}, {conv2,relu2}, \n"
        "INFO: [TRT]: --------------- Layers running on GPU: \n"
        "INFO: [TRT]: (Unnamed Layer* 5) [Softmax], \n"
    )
    with pytest.raises(UserError, match=r"list of layers that TensorRT 7 prints.*8\.4 or newer"):
        find_evidence(str(path), tmp_path)


@pytest.fixture
def runs(tmp_path):
    """A store with a run on a DLA and one on a GPU."""
    store = Store(tmp_path / "state" / "tegrascope.db")
    for run_id, device, placement in (
        ("0193a1-first", "dla1", PLACED),
        ("0193a2-other", "gpu", Placement(verdict="gpu_only")),
    ):
        store.finish(
            RunReport(
                run_id=run_id,
                workload="w",
                backend="tensorrt",
                device=device,
                outcome="ok",
                started_wall_ns=1,
                started_ns=1,
                ended_ns=2,
                built=Built(placement=placement),
            )
        )
    store.close()


@pytest.mark.usefixtures("runs")
def test_a_run_of_the_store_is_evidence(inspect):
    status, out, _ = inspect("--against", "first")
    assert status == 3
    assert "run 0193a1-first on dla1: 2 of 3 nodes are as predicted" in out
    status, out, err = inspect("--against", "other")
    assert (status, out) == (1, "")
    assert "run other was not on a DLA" in err

"""Where an engine's layers went is read as reviewed, and never guessed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.inference.layers import is_constant, read_layers
from tegrascope.parsers.inference.placement import layer_types, placement_of, wide_layers
from tests.golden import PLACEMENTS, read_placement

REVIEWED = sorted(PLACEMENTS.glob("*.expected.json"))
RECORDED = Path(__file__).parents[3] / "shared/corpus/tensorrt/inspector_trt86_resnet50_b1.json"
SUBGRAPH = "{ForeignNode[a...b]}"

names = st.sampled_from(
    ["conv1 + relu1", "prob", "x copy", SUBGRAPH, "{ForeignNode[c]}", "image to nvm", "fc"]
)
kinds = st.sampled_from(
    [
        *("", "CONVOLUTION", "SHUFFLE", "COPY", "MYELIN", "PLUGIN_V2"),
        *("Reformat", "DLA", "NoOp", "Constant"),
    ]
)
lines = st.one_of(
    st.builds("[I] [TRT] [DlaLayer] {}".format, names),
    st.builds("[GpuLayer] {}: {}".format, kinds, names),
    st.builds("[GpuLayer] {}".format, names),
    st.builds("[V] Layer({}): {}, Tactic: 0x1, x (Half[1]) -> y (Half[1])".format, kinds, names),
    st.builds("[V] [TRT] {} successfully offloaded to DLA.".format, names),
    st.just("[I] ---------- Layers Running on DLA ----------"),
    st.text(),
)
layers = st.one_of(names, st.builds(lambda n, k: {"Name": n, "LayerType": k}, names, kinds))
inspectors = st.one_of(
    st.none(), st.text(), st.builds(lambda all_: json.dumps({"Layers": all_}), st.lists(layers))
)
devices = st.sampled_from(["gpu", "dla0", "dla1"])


@pytest.mark.parametrize("golden", REVIEWED, ids=lambda path: path.name)
def test_placement_reads_as_reviewed(golden):
    """Each form of a log or an inspector's text reads as it did when someone last looked."""
    expected = json.loads(golden.read_text(encoding="utf-8"))
    assert read_placement(golden, expected["device"]) == expected


def test_every_verdict_has_a_case():
    """The reviewed cases show each verdict once at least."""
    verdicts = {json.loads(path.read_text())["placement"]["verdict"] for path in REVIEWED}
    assert verdicts == {"pure_dla", "dla_plus_reformat", "mixed", "gpu_only", "unknown"}


def test_recorded_engine_of_86():
    """A ResNet-50 that TensorRT 8.6 built for a GPU: 59 layers, three of which compute nothing."""
    if not RECORDED.is_file():
        pytest.skip("no ../shared/corpus/tensorrt beside this checkout")
    text = RECORDED.read_text(encoding="utf-8")
    found = placement_of([], text, "gpu")
    assert (found.verdict, found.loadables, len(found.gpu_layers)) == ("gpu_only", 0, 56)
    assert len(found.reformat_layers) == 3
    assert layer_types(text) == {"fp16": 55, "fp32": 4}


def test_without_evidence_nothing_is_claimed():
    """No log and no inspector, or empty ones, or a list without an entry: unknown."""
    header = "---------- Layers Running on DLA ----------"
    for inspector in (None, "", "{}", '{"Layers": []}', '{"Layers": 7}', "[]", '{"Layers": [{}]}'):
        for log in ([], [header], ["[DlaLayer]", "[GpuLayer] "]):
            for device in ("gpu", "dla0"):
                found = placement_of(log, inspector, device)
                assert (found.verdict, found.loadables) == ("unknown", None)


def test_a_name_proves_no_dla():
    text = json.dumps({"Layers": [SUBGRAPH]})
    assert placement_of([], text, "dla0").verdict == "unknown"
    assert placement_of([], text, "gpu").verdict == "gpu_only"
    assert placement_of([f"[GpuLayer] MYELIN: {SUBGRAPH}"], text, "dla0").verdict == "gpu_only"
    assert placement_of([f"[DlaLayer] {SUBGRAPH}"], text, "dla0").verdict == "pure_dla"


def test_last_build_of_a_log_counts():
    header = "---------- Layers Running on DLA ----------"
    log = [header, f"[DlaLayer] {SUBGRAPH}", header, "[GpuLayer] CONVOLUTION: conv1"]
    assert placement_of(log, None, "dla0").dla_layers == ()


def test_fused_shuffle_computes():
    found = placement_of(["[GpuLayer] conv1 + (Unnamed Layer* 7) [Shuffle]"], None, "dla0")
    assert found.reformat_layers == ()
    assert found.gpu_layers == ("conv1 + (Unnamed Layer* 7) [Shuffle]",)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        ({"Format/Datatype": "Row major Int8 format"}, {"int8": 1}),
        ({"Format/Datatype": "Two wide channel vectorized row major FP16 format"}, {"fp16": 1}),
        ({"Format": "Row major linear (kLINEAR)", "DataType": "Half"}, {"fp16": 1}),
        ({"Format": "Row major linear", "Datatype": "Float"}, {"fp32": 1}),
        ({"Format": "Row major linear"}, {}),
        ({"Format/Datatype": 3}, {}),
    ],
)
def test_types_of_both_forms(tensor, expected):
    """Up to 10 format and type are one text; from 11 on they are two."""
    text = json.dumps({"Layers": [{"Name": "fc", "Outputs": [tensor]}, "name only"]})
    assert layer_types(text) == expected


@given(st.lists(lines), inspectors, devices)
def test_no_text_is_fatal(log, inspector, device):
    found = placement_of(log, inspector, device)
    dla, gpu, reformat = map(set, (found.dla_layers, found.gpu_layers, found.reformat_layers))
    assert not (dla & gpu or dla & reformat or gpu & reformat)
    assert [len(dla), len(gpu)] == [len(found.dla_layers), len(found.gpu_layers)]
    if found.verdict == "unknown":
        assert found.loadables is None
        return
    assert found.loadables == len(dla)
    verdict = {
        (False, False): "pure_dla",
        (False, True): "dla_plus_reformat",
    }.get((bool(gpu), bool(reformat)), "mixed")
    assert found.verdict == (verdict if dla else "gpu_only")
    assert dla or gpu or reformat


@given(st.lists(layers, min_size=1), devices)
def test_every_layer_of_the_engine_is_counted(told, device):
    """With a verdict, every layer of the inspector is in a list, but for constants."""
    found = placement_of([], json.dumps({"Layers": told}), device)
    listed = {*found.dla_layers, *found.gpu_layers, *found.reformat_layers}
    all_names = {layer.name for layer in read_layers(json.dumps({"Layers": told}))}
    running = {
        layer.name
        for layer in read_layers(json.dumps({"Layers": told}))
        if not is_constant(layer.name, layer.kind)
    }
    assert listed <= all_names
    assert found.verdict == "unknown" or listed == running


@given(inspectors)
def test_types_add_up(inspector):
    """No text is fatal, and no layer is counted twice."""
    counted = sum(layer_types(inspector).values())
    try:
        most = len(json.loads(inspector or "", strict=False)["Layers"])
    except (ValueError, TypeError, KeyError, IndexError):
        most = 0
    assert counted <= most


def inspected(*rows):
    """Return an inspector's text of layers: name, kind, type of its input and of its output."""
    layers = [
        {
            "Name": name,
            "LayerType": kind,
            "Inputs": [{"Name": "a", "Format/Datatype": f"Channel major {given} format"}],
            "Outputs": [{"Name": "b", "Format/Datatype": f"Channel major {made} format"}],
        }
        for name, kind, given, made in rows
    ]
    return json.dumps({"Layers": layers})


def test_constants_are_in_no_list_and_have_no_type():
    """Exports with an open batch have one for each weight, in the type of the model."""
    text = inspected(
        ("onnx::Conv_193", "Constant", "FP32", "FP32"),
        ("Reformatting CopyNode for onnx::Conv_193", "Reformat", "FP32", "FP16"),
        ("conv1 + relu1", "CaskConvolution", "FP16", "FP16"),
    )
    log = [
        "[V] Layer(Constant): onnx::Conv_193, Tactic: 0x0,  -> w (Float[64])",
        "[V] Layer(CaskConvolution): conv1 + relu1, Tactic: 0x1, x (Half[1]) -> y (Half[1])",
    ]
    for found in (placement_of([], text, "gpu"), placement_of([], text, "dla0")):
        assert found.gpu_layers == ("conv1 + relu1",)
        assert found.reformat_layers == ("Reformatting CopyNode for onnx::Conv_193",)
    listed = placement_of(["[GpuLayer] CONSTANT: onnx::Conv_193"], '{"Layers": ["fc"]}', "dla0")
    assert (listed.gpu_layers, listed.reformat_layers) == (("fc",), ())
    assert placement_of(log, None, "gpu").reformat_layers == ()
    assert layer_types(text) == {"fp16": 2}
    assert wide_layers(text) == ("conv1 + relu1",)
    only_constants = inspected(("w", "Constant", "FP32", "FP32"))
    assert placement_of([], only_constants, "gpu").verdict == "unknown"


def test_layers_without_a_tensor_in_int8_stay_in_floating_point():
    text = inspected(
        ("conv1 + relu1", "CaskConvolution", "Int8", "Int8"),
        ("head", "CaskConvolution", "Int8", "FP16"),
        ("first", "CaskConvolution", "FP32", "Int8"),
        ("pool", "CaskPooling", "FP16", "FP16"),
        ("prob", "SoftMax", "FP32", "FP32"),
        ("Reformatting CopyNode for Input 0", "Reformat", "FP32", "FP16"),
        (SUBGRAPH, "DLA", "FP16", "FP16"),
        ("index", "Gather", "Int32", "Int32"),
    )
    assert wide_layers(text) == ("pool", "prob")
    assert wide_layers(None) == wide_layers('{"Layers": ["conv1", {}, 3]}') == ()


@given(inspectors)
def test_no_text_stops_the_reading_of_types(text):
    assert all(isinstance(name, str) for name in wide_layers(text))

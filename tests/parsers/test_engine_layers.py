"""Layers of an engine, read from the inspector's JSON of either depth and of 8.5 to 11."""

import json
from pathlib import Path

import pytest

from tegrascope.parsers.inference.layers import (
    computes,
    is_constant,
    is_reformat,
    names_in,
    read_layers,
    short_format,
    uses_tensor_cores,
)

PLACEMENTS = Path(__file__).parents[1] / "placements"
RECORDED = Path(__file__).parents[3] / "shared/corpus/tensorrt/inspector_trt86_resnet50_b1.json"


def engine(*layers: object) -> str:
    return json.dumps({"Layers": layers})


def test_detail_of_86_is_read():
    """Its metadata is joined by a raw control character."""
    text = (PLACEMENTS / "gpu__86.inspector.json").read_text(encoding="utf-8")
    reformat, conv, subgraph, gemm, reshape = read_layers(text)
    assert (reformat.kind, reformat.nodes) == ("Reformat", ())
    assert (conv.nodes, conv.precision, conv.output_format) == (
        ("stem.conv", "stem.relu"),
        "fp16",
        "HWC8",
    )
    assert subgraph.nodes == ("stage1.norm", "stage1.scale")
    assert (gemm.output_type, gemm.output_format, gemm.tactic) == ("fp32", "LINEAR", None)
    assert is_reformat(reshape.name, reshape.kind)


def test_names_alone_of_86_are_layers():
    """The parts of a fused name are its nodes; a subgraph names only its ends."""
    text = (PLACEMENTS / "dla-unlogged__86.inspector.json").read_text(encoding="utf-8")
    copy, subgraph, pool = read_layers(text)
    assert [copy.nodes, subgraph.nodes, pool.nodes] == [(), (), ("pool1",)]
    assert (pool.kind, pool.precision, pool.uses_tensor_cores) == ("", None, None)
    assert read_layers(engine("conv1 + bn1 + PWN(clip1)"))[0].nodes == ("conv1", "bn1", "clip1")


def test_detail_of_11_is_read():
    """Format and type are two texts there."""
    text = (PLACEMENTS / "dla-inspected__11.inspector.json").read_text(encoding="utf-8")
    copy, subgraph = read_layers(text)
    assert (copy.input_format, copy.input_type) == ("LINEAR", "fp32")
    assert (copy.output_format, copy.output_type) == ("CHW16", "fp16")
    assert (subgraph.kind, subgraph.precision) == ("DLA", "fp16")


def test_recorded_engine_of_86_is_read():
    if not RECORDED.is_file():
        pytest.skip("no ../shared/corpus/tensorrt beside this checkout")
    layers = read_layers(RECORDED.read_text(encoding="utf-8"))
    assert len(layers) == 59
    assert {layer.precision for layer in layers} == {"fp16", "fp32"}
    assert sum(layer.uses_tensor_cores is True for layer in layers) == 53
    assert [layer.name for layer in layers if layer.uses_tensor_cores is None] == [
        layer.name for layer in layers if layer.tactic is None
    ]
    residual = next(layer for layer in layers if "layer1.0/Add" in layer.name)
    assert [node.rpartition("/")[2] for node in residual.nodes] == ["Conv", "Add", "Relu"]
    assert all(set(layer.nodes) >= set(names_in(layer.name)) for layer in layers if layer.nodes[1:])


def test_a_constant_is_no_reformat_and_computes_nothing():
    """A weight that is a layer of its own has its kind in detail, and its mark in a bare list."""
    constants = [("onnx::Conv_193", "Constant"), ("(Unnamed Layer* 3) [Constant]", "")]
    for name, kind in constants:
        assert is_constant(name, kind)
        assert not is_reformat(name, kind)
        assert not computes(name, kind)
    for name, kind in (("conv1 + (Unnamed Layer* 3) [Constant]", ""), ("[Constant]", "Shuffle")):
        assert not is_constant(name, kind)
    text = engine({"Name": "onnx::Conv_193", "LayerType": "Constant"})
    assert read_layers(text)[0].nodes == ()


def test_weights_decide_the_precision():
    """An int8 convolution may write half precision for the layer after it."""
    [layer] = read_layers(
        engine(
            {
                "Name": "conv",
                "Inputs": [{"Format/Datatype": "Row major linear FP32"}],
                "Weights": {"Type": "Int8", "Count": 9},
                "Outputs": [{"Format/Datatype": "Row major linear FP16 format"}],
            }
        )
    )
    assert (layer.precision, layer.input_type, layer.output_type) == ("int8", "fp32", "fp16")


@pytest.mark.parametrize(
    ("metadata", "nodes"),
    [
        ("[ONNX Layer: a]\x1f[ONNX Layer: b]\x1e[ONNX Layer: a]", ("a", "b")),
        ("[ONNX Layer: a][ONNX Layer: b[0]]", ("a", "b[0]")),
    ],
)
def test_nodes_are_those_of_the_metadata(metadata, nodes):
    [layer] = read_layers(engine({"Name": "__myl_0", "LayerType": "kgen", "Metadata": metadata}))
    assert layer.nodes == nodes


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64_tensor16x8x16", True),
        ("sm90_xmma_fprop_implicit_gemm_f16_warpgroupsize1x1x1_g1", True),
        ("trt_turing_h1688cudnn_256x64_ldg8_relu_exp_small_nhwc_tn_v1", True),
        ("ampere_int8_i8816cudnn_int8_256x128_ldg16_relu", True),
        ("trt_ampere_fp32_icudnn_int8x4_128x64_relu", False),
        ("volta_h884cudnn_256x64", True),
        ("ampere_scudnn_128x32_relu_small_nn_v1", False),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_ffma_aligna4", False),
        ("sm50_xmma_pooling_max_nhwc", False),
        ("cutlass_simt_sgemm_128x128", False),
        ("sm86_xmma_fprop_implicit_gemm_f16f16", None),
        ("generatedNativePointwise", None),
        ("", None),
    ],
)
def test_a_kernel_shows_tensor_cores_by_its_name(kernel, expected):
    """The library's own name, xmma, proves nothing."""
    assert uses_tensor_cores(kernel) is expected


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Row major linear FP32", "LINEAR"),
        ("Row major Int8 format", "LINEAR"),
        ("Channel major FP16 format where channel % 8 == 0", "HWC8"),
        ("Channel major FP16 format where channel % 8 == 0 with 3 spatial dimensions", "DHWC8"),
        ("Channel major INT8 format where column stride % 32 == 0", "HWC"),
        ("Two wide channel vectorized row major FP16 format", "CHW2"),
        ("Thirty-two wide channel vectorized row major Int8 format", "CHW32"),
        (
            "Thirty-two wide channel vectorized row major FP16 format with 3 spatial dimensions",
            "CDHW32",
        ),
        ("Row major linear FP32 format (kLINEAR)", "LINEAR"),
        ("N/A due to dynamic shapes", "N/A due to dynamic shapes"),
    ],
)
def test_formats_have_short_names(words, name):
    assert short_format(words) == name

"""A vision transformer as it comes out of torch's exporter: attention by matrix products.

It has the layers and the size of ViT-Tiny with patches of 16.

Source:
    Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020; the tiny width is that of Touvron
    et al., "Training data-efficient image transformers", 2020.
"""

import math

from tests.fakes.generated_models import ExportedGraph

SIDE = 224
_PATCH, _WIDTH, _HEADS, _BLOCKS = 16, 192, 3, 12
_PATCHES = (SIDE // _PATCH) ** 2
_TOKENS = _PATCHES + 1
_HEAD_WIDTH = _WIDTH // _HEADS


def add_vit(graph: ExportedGraph) -> None:
    """Add the transformer, from ``image`` to ``scores``."""
    last = _add_tokens(graph)
    for block in range(_BLOCKS):
        at = f"/blocks/blocks.{block}"
        normal = _normalise(graph, f"{at}/norm1", last)
        last = graph.add("Add", f"{at}/Add", [last, _attend(graph, f"{at}/attn", normal)])
        normal = _normalise(graph, f"{at}/norm2", last)
        last = graph.add("Add", f"{at}/Add_1", [last, _think(graph, f"{at}/mlp", normal)])
    last = _normalise(graph, "/norm", last)
    first = graph.index("/Gather.index", 0)
    last = graph.add("Gather", "/Gather", [last, first], axis=1)
    graph.scores("/head/Gemm", last, _WIDTH)


def _add_tokens(graph: ExportedGraph) -> str:
    """Add patches, the token of the class for each image of the batch, and positions."""
    name = "/patch_embed/proj/Conv"
    weights = graph.weight_and_bias(name, (_WIDTH, 3, _PATCH, _PATCH), 1.0)
    patches = graph.add(
        "Conv",
        name,
        ["image", *weights],
        kernel_shape=[_PATCH, _PATCH],
        strides=[_PATCH, _PATCH],
        pads=[0, 0, 0, 0],
        group=1,
    )
    target = graph.integers("/patch_embed/Reshape.shape", 0, _WIDTH, _PATCHES)
    patches = graph.add("Reshape", "/patch_embed/Reshape", [patches, target])
    patches = graph.add("Transpose", "/patch_embed/Transpose", [patches], perm=[0, 2, 1])
    # One token, repeated for each image: the exporter asks for the batch where it is left open.
    batch = graph.add("Shape", "/Shape", [patches])
    batch = graph.add("Gather", "/Gather_batch", [batch, graph.integers("/Gather_batch.at", 0)])
    rest = graph.integers("/Concat_shape.rest", 1, _WIDTH)
    target = graph.add("Concat", "/Concat_shape", [batch, rest], axis=0)
    token = graph.offsets("cls_token", 1, 1, _WIDTH)
    token = graph.add("Expand", "/Expand", [token, target])
    tokens = graph.add("Concat", "/Concat", [token, patches], axis=1)
    return graph.add("Add", "/Add", [tokens, graph.offsets("pos_embed", 1, _TOKENS, _WIDTH)])


def _normalise(graph: ExportedGraph, at: str, source: str) -> str:
    """Add a normalisation over the channels of each token."""
    gain = graph.constant(f"{at}.weight", [1.0] * _WIDTH)
    bias = graph.offsets(f"{at}.bias", _WIDTH)
    name = f"{at}/LayerNormalization"
    return graph.add("LayerNormalization", name, [source, gain, bias], axis=-1, epsilon=1e-6)


def _linear(graph: ExportedGraph, at: str, source: str, channels_in: int, channels_out: int) -> str:
    """Add a fully connected layer over tokens: a product and a sum, as the exporter has it."""
    weight = graph.matrix(f"{at}.weight", channels_in, channels_out)
    product = graph.add("MatMul", f"{at}/MatMul", [source, weight])
    return graph.add("Add", f"{at}/Add", [graph.offsets(f"{at}.bias", channels_out), product])


def _attend(graph: ExportedGraph, at: str, source: str) -> str:
    """Add the attention of every token to every other, head by head."""
    mixed = _linear(graph, f"{at}/qkv", source, _WIDTH, 3 * _WIDTH)
    shape = graph.integers(f"{at}/Reshape.shape", 0, _TOKENS, 3, _HEADS, _HEAD_WIDTH)
    mixed = graph.add("Reshape", f"{at}/Reshape", [mixed, shape])
    mixed = graph.add("Transpose", f"{at}/Transpose", [mixed], perm=[2, 0, 3, 1, 4])
    sizes = graph.integers(f"{at}/Split.sizes", 1, 1, 1)
    axes = graph.integers(f"{at}/Squeeze.axes", 0)
    parts = graph.divide("Split", f"{at}/Split", [mixed, sizes], parts=3, axis=0)
    query, key, value = (
        graph.add("Squeeze", f"{at}/Squeeze_{number}", [part, axes])
        for number, part in enumerate(parts)
    )
    scale = graph.constant(f"{at}/scale", _HEAD_WIDTH**-0.5)
    query = graph.add("Mul", f"{at}/Mul", [query, scale])
    key = graph.add("Transpose", f"{at}/Transpose_1", [key], perm=[0, 1, 3, 2])
    scores = graph.add("MatMul", f"{at}/MatMul", [query, key])
    weights = graph.add("Softmax", f"{at}/Softmax", [scores], axis=-1)
    found = graph.add("MatMul", f"{at}/MatMul_1", [weights, value])
    found = graph.add("Transpose", f"{at}/Transpose_2", [found], perm=[0, 2, 1, 3])
    shape = graph.integers(f"{at}/Reshape_1.shape", 0, _TOKENS, _WIDTH)
    found = graph.add("Reshape", f"{at}/Reshape_1", [found, shape])
    return _linear(graph, f"{at}/proj", found, _WIDTH, _WIDTH)


def _think(graph: ExportedGraph, at: str, source: str) -> str:
    """Add two fully connected layers with GELU between them, spelled out by the error function."""
    wide = _linear(graph, f"{at}/fc1", source, _WIDTH, 4 * _WIDTH)
    act = f"{at}/act"
    root = graph.constant(f"{act}/root", math.sqrt(2.0))
    last = graph.add("Div", f"{act}/Div", [wide, root])
    last = graph.add("Erf", f"{act}/Erf", [last])
    last = graph.add("Add", f"{act}/Add", [last, graph.constant(f"{act}/one", 1.0)])
    last = graph.add("Mul", f"{act}/Mul", [wide, last])
    last = graph.add("Mul", f"{act}/Mul_1", [last, graph.constant(f"{act}/half", 0.5)])
    return _linear(graph, f"{at}/fc2", last, 4 * _WIDTH, _WIDTH)

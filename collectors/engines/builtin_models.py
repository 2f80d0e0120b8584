"""The built-in models: well-known shapes with seeded weights. Nothing is downloaded.

They cost what the real ones cost, layer by layer, and recognise nothing. ``python -m
tegrascope.collectors.engines.builtin_models NAME DIRECTORY`` prints the path of the file.
"""

import argparse
import fcntl
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import onnx
from onnx import TensorProto, helper

from ..models import BUILTIN_MODELS, GENERATOR_VERSION, SEED, builtin_path
from . import builtin_vit, builtin_yolo
from .builtin_convnets import add_mobilenet, add_resnet50
from .builtin_graph import Graph

# The oldest pair that has everything needed, and that TensorRT 8.6 and ONNX Runtime 1.17 read.
_OPSET = 13
_IR_VERSION = 8
# The first with a layer for what a transformer normalises by; TensorRT 8.6 reads it too.
_OPSET_OF_TRANSFORMERS = 17


class _Builtin(NamedTuple):
    """How a built-in model is made.

    Attributes:
        side: Of the square image.
        add_layers: What adds them.
        output: Name and shape of the result; the batch is in front.
        dtype: Of every tensor. In half precision a model is what a strongly typed TensorRT and a
            DLA ask for.
        opset: Of its operations.
    """

    side: int
    add_layers: Callable[[Graph], None]
    output: tuple[str, tuple[int | str, ...]] = ("scores", (1000,))
    dtype: str = "<f4"
    opset: int = _OPSET


# The boxes of the detector: four numbers and the classes, for each place on the three maps.
_BOXES = ("boxes", (4 + builtin_yolo.CLASSES, builtin_yolo.PLACES))
_MODELS: Mapping[str, _Builtin] = MappingProxyType(
    {
        "mobilenet": _Builtin(160, partial(add_mobilenet, is_half=True)),
        "mobilenetv2": _Builtin(224, partial(add_mobilenet, is_half=False)),
        "resnet50": _Builtin(224, add_resnet50),
        "resnet50-fp16": _Builtin(224, add_resnet50, dtype="<f2"),
        "vit-tiny": _Builtin(builtin_vit.SIDE, builtin_vit.add_vit, opset=_OPSET_OF_TRANSFORMERS),
        "yololike": _Builtin(builtin_yolo.SIDE, builtin_yolo.add_yololike, _BOXES),
    }
)
_TYPES: Mapping[str, int] = MappingProxyType({"<f2": TensorProto.FLOAT16, "<f4": TensorProto.FLOAT})


def make_model(name: str, seed: int = SEED) -> onnx.ModelProto:
    """Return a built-in model with a dynamic batch, from ``image`` to ``scores`` or ``boxes``.

    Args:
        name: One of ``BUILTIN_MODELS``.
        seed: Of the weights; one seed gives one file, wherever it is made.
    """
    made = _MODELS[name]
    graph = Graph(seed, made.dtype)
    made.add_layers(graph)
    kind = _TYPES[made.dtype]
    image = helper.make_tensor_value_info("image", kind, ["batch", 3, made.side, made.side])
    output, shape = made.output
    found = helper.make_tensor_value_info(output, kind, ["batch", *shape])
    return helper.make_model(
        helper.make_graph(graph.nodes, name, [image], [found], graph.weights),
        producer_name="tegrascope",
        producer_version=str(GENERATOR_VERSION),
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", made.opset)],
    )


def ensure_model(name: str, directory: Path, seed: int = SEED) -> Path:
    """Return the cached file of a built-in model, after generating it where there is none.

    Whoever comes second waits for the first, and nobody ever sees half a file.

    Args:
        name: One of ``BUILTIN_MODELS``.
        directory: The cache; made where it does not exist.
        seed: Of the weights.
    """
    path = builtin_path(name, directory, seed)
    directory.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                file.write(make_model(name, seed).SerializeToString(deterministic=True))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    return path


def main(argv: list[str] | None = None) -> int:
    """Generate a built-in model and print the path of its file.

    Example: python -m tegrascope.collectors.engines.builtin_models resnet50 .
    """
    parser = argparse.ArgumentParser(
        description=main.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=BUILTIN_MODELS)
    parser.add_argument("directory", type=Path)
    args = parser.parse_args(argv)
    try:
        path = ensure_model(args.name, args.directory)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

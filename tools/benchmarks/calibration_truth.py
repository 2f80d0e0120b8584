"""Calibrated int8 on a real GPU, its outputs and layers read by plain TensorRT.

A convolutional network is fitted on synthetic images. In int8 with calibrated scales its top-1 has
to be within one point of fp32, and with made-up scales more than ten points below. Then an engine
with scales from the data is compared with one from the cache that was written: with one timing
cache in memory, types of layers and the bits of 100 outputs have to be equal. That cache is filled
first, by the same two builds. (TensorRT 8.6 does not read its timing cache back from a file on
every machine; then each build chooses kernels anew. At optimisation level 0 it takes the first
kernel that works and uses no timing cache at all, so no two builds are alike.)

Needs an NVIDIA GPU, TensorRT up to 10, cuda-python, onnx and onnxruntime. It takes three minutes:

    python -m tools.benchmarks.calibration_truth --state /tmp/state
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy

from tegrascope.collectors.backends import tensorrt
from tegrascope.collectors.backends.tensorrt_build import Builder
from tegrascope.parsers.inference.events import Order

from .plain_tensorrt import Plan, outputs_of

CLASSES, BATCH, LEVEL = 10, 25, 3
ACCEPTED_LOSS, LEAST_LOSS = 0.01, 0.10


def images(count: int, seed: int) -> tuple[Any, Any]:
    """Return images, shape (count, 3, 32, 32), and their classes: patterns with gain and noise."""
    patterns = numpy.random.RandomState(5).normal(size=(CLASSES, 3, 8, 8)).repeat(4, 2).repeat(4, 3)
    random = numpy.random.RandomState(seed)
    labels = random.randint(0, CLASSES, count)
    gain = random.uniform(0.5, 1.5, size=(count, 1, 1, 1))
    noise = random.normal(size=(count, 3, 32, 32)) * 115
    return (patterns[labels] * 25 * gain + noise).astype("f4"), labels


def write_network(path: Path) -> None:
    """Write three random convolutions and a last one that is fitted by ridge regression."""
    import onnxruntime

    random = numpy.random.RandomState(3)
    sizes, sigmas = (3, 32, 64, 128), (1e-4, 1.4, 1.4)
    weights, shifts = [], []
    for given, made, sigma in zip(sizes, sizes[1:], sigmas, strict=False):
        weight = random.normal(size=(made, given, 3, 3)) * sigma / numpy.sqrt(given * 9)
        weights.append(weight.astype("f4"))
    for made in sizes[1:]:
        shifts.append((random.normal(size=made) * 2e-3).astype("f4"))
    inputs, labels = images(6000, 2)
    session = onnxruntime.InferenceSession(network(weights, shifts))
    features = session.run(None, {"given": inputs})[0].reshape(len(inputs), -1)
    mean, scale = features.mean(0), features.std(0).mean()
    scaled = (features - mean) / scale
    wanted = numpy.eye(CLASSES)[labels] - 1 / CLASSES
    ridge = scaled.T @ scaled + 3000 * numpy.eye(scaled.shape[1])
    fitted = numpy.linalg.solve(ridge, scaled.T @ wanted) / scale
    weights.append(fitted.T.reshape(CLASSES, sizes[-1], 4, 4).astype("f4"))
    shifts.append((1 / CLASSES - mean @ fitted).astype("f4"))
    path.write_bytes(network(weights, shifts))


def network(weights: list[Any], shifts: list[Any]) -> bytes:
    """Return the convolutions as ONNX; those with a 3 x 3 kernel have a stride of 2 and a Relu."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, source = [], [], "given"
    for at, (weight, shift) in enumerate(zip(weights, shifts, strict=True)):
        names = [source, f"weight{at}", f"shift{at}"]
        side = weight.shape[2]
        how = {"strides": [2, 2], "pads": [1] * 4} if side == 3 else {}
        nodes.append(
            helper.make_node("Conv", names, [f"c{at}"], f"conv{at}", kernel_shape=[side] * 2, **how)
        )
        constants += [numpy_helper.from_array(weight, names[1])]
        constants += [numpy_helper.from_array(shift, names[2])]
        source = f"c{at}"
        if side == 3:
            nodes.append(helper.make_node("Relu", [source], [f"r{at}"], f"relu{at}"))
            source = f"r{at}"
    nodes.append(helper.make_node("Flatten", [source], ["made"], "flatten"))
    info = helper.make_tensor_value_info
    shapes = (
        info("given", TensorProto.FLOAT, ["N", 3, 32, 32]),
        info("made", TensorProto.FLOAT, None),
    )
    graph = helper.make_graph(nodes, "fitted", [shapes[0]], [shapes[1]], constants)
    opset = [helper.make_opsetid("", 13)]
    made: bytes = helper.make_model(graph, ir_version=8, opset_imports=opset).SerializeToString()
    return made


class OneTimingCache(Builder):
    """Uses one timing cache in memory for all builds of this process, in place of the file."""

    shared: dict[str, Any] = {}

    def _use_timing(self, path: Path, config: Any) -> None:  # noqa: ARG002
        if "cache" not in self.shared:
            self.shared["cache"] = config.create_timing_cache(b"")
        config.set_timing_cache(self.shared["cache"], False)

    def _keep_timing(self, path: Path, config: Any) -> None:  # noqa: ARG002
        # The cache belongs to the configuration that made it, so all of those are kept as well.
        self.shared.setdefault("owners", []).append((config, self.shared["cache"]))
        self.shared["cache"] = config.get_timing_cache()
        print(f"timing cache: {memoryview(self.shared['cache'].serialize()).nbytes} bytes")


def build(state: Path, name: str, precision: str, calibration: Path | None = None) -> Plan:
    """Build an engine with tegrascope, in a directory of its own, and read it with TensorRT."""
    directory = state / name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    backend, model = tensorrt.TensorRt(), state / "fitted.onnx"
    order = Order.model_validate(
        {
            "run_id": "truth",
            "backend": "tensorrt",
            "device": "gpu",
            "model": str(model),
            "model_directory": str(state),
            "engine_directory": str(directory.absolute()),
            "precision": precision,
            "batch": BATCH,
            "optimization_level": LEVEL,
            "count": 1,
            "calibration": None if calibration is None else str(calibration),
        }
    )
    backend.load(model, order)
    backend.build()
    assert backend.built is not None
    key, types = backend.built.engine_key, backend.built.layer_types
    backend.close()
    print(f"{name}: {types}")
    return Plan(directory / f"{key}.plan")


def main() -> int:
    """Return 1 if a figure is not as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="for models, data and engines")
    state: Path = parser.parse_args().state.absolute()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_network(state / "fitted.onnx")
    data, cache = state / "calibration.npz", state / "int8.cache"
    numpy.savez(data, images(512, 9)[0])
    command = (
        sys.executable,
        "-m",
        "tegrascope",
        "engines",
        "calibrate",
        str(state / "fitted.onnx"),
    )
    where = (
        "--data",
        str(data),
        "-o",
        str(cache),
        "--batch",
        str(BATCH),
        "--state-dir",
        str(state),
    )
    subprocess.run([*command, *where], check=True)
    inputs, labels = images(4000, 21)

    def top1(plan: Plan) -> float:
        return float((outputs_of(plan, inputs).argmax(axis=1) == labels).mean())

    tensorrt.Builder = OneTimingCache  # type: ignore[misc]
    exact = top1(build(state, "fp32", "fp32"))
    build(state, "first-from-data", "int8", data)
    build(state, "first-from-cache", "int8", cache)
    from_data = build(state, "from-data", "int8", data)
    from_cache = build(state, "from-cache", "int8", cache)
    from_cache_again = build(state, "from-cache-again", "int8", cache)
    calibrated, made_up = top1(from_cache), top1(build(state, "made-up", "int8"))
    print(f"top-1: fp32 {exact:.3f}, calibrated {calibrated:.3f}, made-up scales {made_up:.3f}")
    hundred = images(100, 77)[0]
    bits, is_equal = outputs_of(from_cache, hundred).tobytes(), {}
    for name, plan in (("data", from_data), ("the cache again", from_cache_again)):
        both = plan.kinds(), from_cache.kinds()
        layers_equal = both[0] == both[1]
        for number in (0, 1):
            for row in both[number]:
                if row not in both[1 - number]:
                    print(f"only {(name, 'the cache')[number]}: {row}")
        bits_equal = outputs_of(plan, hundred).tobytes() == bits
        is_equal[name] = layers_equal and bits_equal
        print(f"from {name}: layers and types equal {layers_equal}, bits equal {bits_equal}")
    is_right = calibrated >= exact - ACCEPTED_LOSS and made_up < exact - LEAST_LOSS
    return int(not (is_right and all(is_equal.values())))


if __name__ == "__main__":
    sys.exit(main())

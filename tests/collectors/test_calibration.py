"""Scales for int8: inputs, TensorRT's calibrators and caches, against a stand-in that uses both."""

import json
import threading
from zipfile import ZipFile

import numpy
import onnxruntime
import pytest

from tegrascope.collectors.backends.base import make_input
from tegrascope.collectors.backends.tensorrt import TensorRt
from tegrascope.collectors.backends.tensorrt_probe import look
from tegrascope.collectors.models.data_sets import DataSet, InputSpec, load_archive
from tegrascope.collectors.worker.run_loop import Runner
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.calibration import Preprocess, parse_calibration
from tegrascope.parsers.inference.events import Order, Progress
from tests.fakes.fake_cuda import install_cuda
from tests.fakes.fake_device import FakeDevice
from tests.fakes.fake_tensorrt import activations, install_tensorrt, make_tensorrt
from tests.fakes.models import labelled_data, simulated, write_chain, write_classifier

IMAGE = {"image": InputSpec("float32", (2, 3, 4, 6))}


@pytest.fixture
def device(monkeypatch):
    return use("8.6.1", monkeypatch)


def use(version, monkeypatch):
    device = FakeDevice(dla_cores=1)
    install_tensorrt(monkeypatch, make_tensorrt(version, device))
    install_cuda(monkeypatch, device)
    return device


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    return write_classifier(tmp_path_factory.mktemp("classifier") / "c.onnx")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "inputs.npz"
    numpy.savez(path, labelled_data(203, seed=9)[0])
    return path


@pytest.fixture
def build(tmp_path):
    """Return what builds a model; the lines that it says are in ``said``."""
    said: list[str] = []

    def make(model, **changes):
        asked = {
            "run_id": "r",
            "backend": "tensorrt",
            "device": "gpu",
            "model": str(model),
            "model_directory": str(tmp_path),
            "engine_directory": str(tmp_path / "engines"),
            "precision": "int8",
            "batch": 8,
            "count": 1,
        }
        backend = TensorRt(machine=tmp_path, ask=look)
        backend.progress = said.append
        try:
            backend.load(model, Order.model_validate({**asked, **changes}))
            backend.build()
            return backend.built
        finally:
            backend.close()

    make.said = said
    make.plan = lambda built: json.loads(
        (tmp_path / "engines" / f"{built.engine_key}.plan").read_bytes()
    )
    return make


def top1(model, *, seed=21):
    inputs, labels = labelled_data(2000, seed)
    (scores,) = onnxruntime.InferenceSession(model).run(None, {"given": inputs})
    return float((scores.argmax(axis=1) == labels).mean())


@pytest.mark.parametrize("method", ["entropy", "minmax"])
@pytest.mark.usefixtures("device")
def test_calibrated_scales_keep_the_answers_and_made_up_ones_do_not(
    build, classifier, data, tmp_path, method
):
    """The truth is ONNX Runtime's own int8, with the scales of the cache."""
    kept = tmp_path / "c.cache"
    changes = {"calibration": str(data), "calibration_file": str(kept)}
    built = build(classifier, calibration_method=method, **changes)
    assert (built.int8_scales, built.notes) == ("calibrated", ())
    cache = parse_calibration(kept.read_text())
    word = {"entropy": "EntropyCalibration2", "minmax": "MinMaxCalibration"}[method]
    assert (cache.version, cache.algorithm) == ("8.6.1", word)
    content = classifier.read_bytes()
    real = simulated(content, cache.scales)
    made = simulated(content, dict.fromkeys(cache.scales, 4 / 127))
    whole = top1(content)
    assert whole > 0.8
    assert top1(real) >= whole - 0.01
    assert top1(made) < whole - 0.1
    assert "calibrating with 203 inputs" in build.said


@pytest.mark.usefixtures("device")
def test_scales_are_those_of_all_inputs(build, classifier, data, tmp_path):
    kept = tmp_path / "c.cache"
    build(classifier, calibration=str(data), calibration_method="minmax",
          calibration_file=str(kept))  # fmt: skip
    found = parse_calibration(kept.read_text()).scales
    values = activations(str(classifier), {"given": numpy.load(data)["arr_0"]})
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert found[name] == pytest.approx(abs(value).max() / 127, rel=1e-6)


def test_a_cache_gives_the_same_scales_without_its_data(build, classifier, data, tmp_path, device):
    kept = tmp_path / "c.cache"
    build(classifier, calibration=str(data), calibration_file=str(kept))
    from_data = build(classifier, calibration=str(data))
    copies = device.calls.count("cudaMemcpy")
    from_cache = build(classifier, calibration=str(kept))
    assert device.calls.count("cudaMemcpy") == copies
    assert build.plan(from_cache) == build.plan(from_data)
    assert from_cache.layer_types == {"int8": 4}
    assert build(classifier, calibration=str(kept), device="dla0").int8_scales == "calibrated"


def test_engine_is_built_from_the_scales_and_not_while_they_are_found(
    build, classifier, data, device
):
    """The first build, at the lowest level, only finds them; the second has the level asked."""
    built = build(classifier, calibration=str(data), optimization_level=3)
    assert device.calls.count("build_serialized_network") == 2
    cache = next(data.parent.glob("engines/calibration-*.cache"))
    other = build(classifier, calibration=str(cache), optimization_level=3)
    assert build.plan(built) == build.plan(other)
    assert build.plan(built)["level"] == 3
    assert built.int8_scales == "calibrated"


def test_finished_calibration_is_used_for_other_engines_of_the_model(
    build, classifier, data, device
):
    first = build(classifier, calibration=str(data))
    copies = device.calls.count("cudaMemcpy")
    assert copies == 26  # 203 inputs in batches of 8
    assert not device.memory
    second = build(classifier, calibration=str(data), optimization_level=1, batch=4)
    assert device.calls.count("cudaMemcpy") == copies
    assert build.plan(second)["scales"] == build.plan(first)["scales"]
    assert build(classifier, calibration=str(data)).is_cached
    build(classifier, calibration=str(data), calibration_method="minmax")
    assert device.calls.count("cudaMemcpy") > copies


@pytest.mark.usefixtures("device")
def test_content_of_a_calibration_is_part_of_the_key(build, classifier, data, tmp_path):
    keys = [build(classifier).engine_key, build(classifier, calibration=str(data)).engine_key]
    kept = tmp_path / "c.cache"
    build(classifier, calibration=str(data), calibration_file=str(kept))
    keys.append(build(classifier, calibration=str(kept)).engine_key)
    renamed = kept.rename(tmp_path / "renamed.cache")
    assert build(classifier, calibration=str(renamed)).engine_key == keys[-1]
    renamed.write_text(renamed.read_text().replace("made: ", "other: "))
    keys.append(build(classifier, calibration=str(renamed)).engine_key)
    numpy.savez(data, labelled_data(100, seed=10)[0])
    keys.append(build(classifier, calibration=str(data)).engine_key)
    assert len(set(keys)) == 5


@pytest.mark.parametrize("algorithm", ["EntropyCalibration2", "MinMaxCalibration"])
@pytest.mark.parametrize("version", ["8.5.2", "8.6.1", "10.3.0"])
def test_cache_of_another_release_or_algorithm_is_used_and_said(
    build, monkeypatch, tmp_path, version, algorithm
):
    use(version, monkeypatch)
    model = write_chain(tmp_path / "m.onnx", "Conv", "Relu", shape=("N", 4))
    path = tmp_path / "c.cache"
    path.write_text(f"TRT-8601-{algorithm}\ngiven: 3c010a14\nt1: 3c010a14\nmade: 3c010a14\n")
    built = build(model, calibration=str(path))
    scales = build.plan(built)["scales"]
    assert scales == dict.fromkeys(("given", "t1", "made"), 0.007875937968492508)
    said = ["c.cache is of TensorRT 8.6.1, not of this one: its scales are used as they are"]
    assert list(built.notes) == ([] if version == "8.6.1" else said)


@pytest.mark.usefixtures("device")
def test_tensors_without_a_scale_are_named(build, tmp_path):
    model = write_chain(tmp_path / "m.onnx", "Conv", "Relu", "Conv", shape=("N", 4))
    path = tmp_path / "c.cache"
    path.write_text("TRT-8601-EntropyCalibration2\ngiven: 3c010a14\nt1: 3c010a14\nold: 0\n")
    built = build(model, calibration=str(path))
    assert built.layer_types == {"fp16": 2, "int8": 1}
    (note,) = built.notes
    assert "2 of 4 tensors have no scale" in note
    assert note.endswith(": t2, made")


@pytest.mark.parametrize(
    ("version", "operations", "changes", "problem"),
    [
        ("8.6.1", ("Conv",), {"precision": "fp16"}, "is for int8, and m.onnx is to run in fp16"),
        ("8.6.1", ("Conv",), {"precision": None}, "set precision: int8"),
        ("8.6.1", ("QuantizeLinear",), {}, "has scales of its own .*leave calibration out"),
        ("11.4.1", ("Conv",), {}, "TensorRT 11.4.1 has no calibration.*: put Q/DQ nodes"),
        ("8.6.1", ("Conv",), {"calibration": "none.cache"}, "none.cache: No such file"),
        ("8.6.1", ("Conv",), {"calibration": "none.npz"}, "there is no data at none.npz"),
        ("8.6.1", ("Conv",), {"calibration": "m.onnx"}, "not a calibration cache .*calibrate"),
        ("8.6.1", ("Conv",), {"calibration": "other.cache"}, "no scale for any tensor of m.onnx"),
        ("8.6.1", ("Conv",), {"calibration": "wide.npz"}, r"shape \(5, 9\) for 'given', which"),
        ("8.6.1", ("Conv",), {"calibration": "nan.npz"}, "NaN or infinity for 'given'"),
    ],
)
def test_calibration_that_cannot_apply_is_refused_in_one_line(
    build, monkeypatch, tmp_path, version, operations, changes, problem
):
    monkeypatch.chdir(tmp_path)
    device = use(version, monkeypatch)
    model = write_chain(tmp_path / "m.onnx", *operations, shape=("N", 4))
    (tmp_path / "good.cache").write_text("TRT-8601-EntropyCalibration2\ngiven: 3c010a14\n")
    (tmp_path / "other.cache").write_text("TRT-8601-EntropyCalibration2\ndata: 3c010a14\n")
    numpy.savez(tmp_path / "wide.npz", numpy.zeros((5, 9), "f4"))
    numpy.savez(tmp_path / "nan.npz", numpy.full((5, 4), numpy.nan, "f4"))
    before = set(device.memory)
    with pytest.raises(UserError, match=problem) as caught:
        build(model, **{"calibration": "good.cache", **changes})
    assert "\n" not in str(caught.value)
    assert set(device.memory) == before
    assert not list((tmp_path / "engines").glob("calibration-*"))


def batches(path, inputs, preprocess=None):
    data = DataSet(path, inputs, preprocess)
    return data.count, list(data.batches())


def test_last_batch_is_filled_and_counts_what_it_has(tmp_path):
    values = numpy.arange(20, dtype="f8").reshape(5, 4)
    numpy.save(tmp_path / "x.npy", values)
    count, found = batches(tmp_path / "x.npy", {"x": InputSpec("float32", (2, 4))})
    assert count == 5
    assert [k for _, k in found] == [2, 2, 1]
    assert found[0][0]["x"].dtype == numpy.float32
    assert (found[1][0]["x"] == values[2:4]).all()
    assert (found[2][0]["x"] == values[[4, 4]]).all()


def test_several_inputs_are_found_by_name_and_files_by_order(tmp_path):
    inputs = {"a": InputSpec("float32", (2, 3)), "n": InputSpec("int64", (2,))}
    for at, name in enumerate(("b", "a")):
        numpy.savez(tmp_path / f"{name}.npz", n=numpy.full(2, at), a=numpy.full((2, 3), float(at)))
    (tmp_path / "README.txt").write_text("not an input")
    _, found = batches(tmp_path, inputs)
    assert [one["n"].tolist() for one, _ in found] == [[1, 1], [0, 0]]
    numpy.savez(tmp_path / "c.npz", n=numpy.zeros(2), other=numpy.zeros((2, 3)))
    with pytest.raises(UserError, match=r"arrays for n, other, and the inputs are a, n"):
        batches(tmp_path, inputs)
    numpy.savez(tmp_path / "c.npz", n=numpy.zeros(2), a=numpy.zeros((2, 3)))
    with pytest.raises(UserError, match=r"has float64 for 'n', which is int64"):
        batches(tmp_path, inputs)
    numpy.savez(tmp_path / "c.npz", n=numpy.zeros(1, int), a=numpy.zeros((2, 3)))
    with pytest.raises(UserError, match=r"not the same number of each input"):
        batches(tmp_path, inputs)


def test_arrays_are_counted_before_they_are_unpacked(tmp_path):
    """Zeros of 80 MB are an archive of 80 kB."""
    path = tmp_path / "zeros.npz"
    numpy.savez_compressed(path, x=numpy.zeros(10_000_000))
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="its arrays have 76 MiB, and 1 MiB of memory"):
        load_archive(path, most_bytes=1 << 20)
    assert load_archive(path)["x"].shape == (10_000_000,)


@pytest.mark.parametrize(
    "header", ["(10000000000000000,)", "(4,)"], ids=["larger than memory", "larger than the file"]
)
def test_arrays_that_are_not_there_are_one_line(tmp_path, header):
    descriptor = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {header}}}"
    array = b"\x93NUMPY\x01\x00" + (len(descriptor) + 1).to_bytes(2, "little")
    with ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", array + descriptor.encode() + b"\n")
    (tmp_path / "b.npz").write_bytes(array + descriptor.encode() + b"\n" + bytes(32))
    for name in ("a.npz", "b.npz"):
        with pytest.raises(UserError, match="cannot be read as arrays"):
            batches(tmp_path / name, {"x": InputSpec("float64", (4,))})


def test_image_of_too_many_pixels_is_one_line(tmp_path):
    """An image of 30,000 x 30,000 pixels can be a file of 100 bytes."""
    pytest.importorskip("PIL.Image", reason="pip install pillow")
    path = tmp_path / "large.bmp"
    header = b"BM" + bytes(8) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
    size = (30_000).to_bytes(4, "little") * 2
    path.write_bytes(header + size + b"\1\0\x18\0" + bytes(24))
    with pytest.raises(UserError, match="cannot be read as an image"):
        batches(path.parent, {"x": InputSpec("float32", (1, 3, 8, 8))})


def write_image(path, pixels):
    image = pytest.importorskip("PIL.Image", reason="pip install pillow")
    image.fromarray(numpy.asarray(pixels, dtype="u1")).save(path)


def test_image_is_scaled_shifted_and_ordered(tmp_path):
    pixels = numpy.random.RandomState(4).randint(0, 256, (4, 6, 3))
    write_image(tmp_path / "a.png", pixels)
    how = {"scale": 1.0, "mean": (10.0, 20.0, 30.0), "std": (2.0, 4.0, 8.0)}
    wanted = (pixels - numpy.array(how["mean"])) / numpy.array(how["std"])
    _, [(found, count)] = batches(tmp_path, IMAGE, Preprocess(**how))
    assert (count, found["image"].shape) == (1, (2, 3, 4, 6))
    assert found["image"][0] == pytest.approx(wanted.transpose(2, 0, 1), abs=1e-4)
    last = {"image": InputSpec("float16", (1, 4, 6, 3))}
    how |= {"layout": "NHWC", "channels": "bgr"}
    wanted = (pixels[:, :, ::-1] - numpy.array(how["mean"])) / numpy.array(how["std"])
    _, [(found, _)] = batches(tmp_path, last, Preprocess(**how))
    assert found["image"][0] == pytest.approx(wanted, abs=0.2)
    assert batches(tmp_path, IMAGE)[1][0][0]["image"].max() <= 1.0


def test_image_is_cut_from_the_middle_or_stretched(tmp_path):
    pixels = numpy.zeros((12, 8, 3))
    pixels[4:8] = 255  # a third of its height
    write_image(tmp_path / "a.png", pixels)
    square = {"image": InputSpec("float32", (1, 3, 4, 4))}
    _, [(cut, _)] = batches(tmp_path, square, Preprocess(resize=8))
    assert (cut["image"] == 1).all()
    _, [(stretched, _)] = batches(tmp_path, square)
    assert 0.2 < stretched["image"].mean() < 0.5
    with pytest.raises(UserError, match=r"resize: 3 is less than the model's 4 x 4: set 4"):
        batches(tmp_path, square, Preprocess(resize=3))


def test_image_that_does_not_fit_is_refused(tmp_path):
    write_image(tmp_path / "a.png", numpy.zeros((4, 6, 3)))
    with pytest.raises(UserError, match=r"does not take an image of one channel as NCHW"):
        batches(tmp_path, IMAGE, Preprocess(channels="grey"))
    with pytest.raises(UserError, match=r"does not take an image of three channels as NHWC"):
        batches(tmp_path, IMAGE, Preprocess(layout="NHWC"))
    (tmp_path / "b.jpg").write_bytes(b"\xff\xd8no image")
    with pytest.raises(UserError, match=r"b\.jpg cannot be read as an image"):
        batches(tmp_path, IMAGE)
    numpy.save(tmp_path / "x.npy", numpy.zeros((3, 4, 6), "u1"))
    with pytest.raises(UserError, match=r"x\.npy has uint8 for 'image', which is float32"):
        batches(tmp_path / "x.npy", IMAGE)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match=r"empty has no inputs: give a \.npz"):
        batches(empty, IMAGE)


@pytest.mark.parametrize("transfers", [True, False])
def test_outputs_of_a_data_set_are_written_and_the_usual_inputs_come_back(
    device, tmp_path, transfers
):
    """The stand-in copies its input, so that each output shows which input was there."""
    model = write_chain(tmp_path / "m.onnx", "Conv", "Relu", shape=("N", 4))
    values = numpy.arange(44, dtype="f4").reshape(11, 4)
    numpy.save(tmp_path / "x.npy", values)
    order = Order(
        run_id="r",
        backend="tensorrt",
        device="gpu",
        model=str(model),
        model_directory=str(tmp_path),
        batch=3,
        transfers=transfers,
        inputs_file=str(tmp_path / "x.npy"),
        outputs_file=str(tmp_path / "y.npz"),
        warm_up_seconds=0,
        count=1,
    )
    backend, events = TensorRt(machine=tmp_path, ask=look), []
    runner = Runner(lambda _: backend, events.append, threading.Event())
    runner.run(order)
    assert events[-1].outcome == "ok"
    with numpy.load(tmp_path / "y.npz") as outputs:
        assert (outputs["arr_0"] == values).all()
    assert (backend.outputs()["made"] == make_input("given", "float32", (3, 4))).all()
    assert "running 11 inputs" in [one.doing for one in events if isinstance(one, Progress)]
    runner.close()
    assert not device.things

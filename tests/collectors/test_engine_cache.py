"""Built engines on disk: found by what they were made from, whole or not at all, and ours alone."""

import fcntl
import os
import time

import numpy
import onnx
import pytest

from tegrascope.collectors.backends.engine_cache import (
    LOG_LINES_KEPT,
    BuiltEngine,
    EngineCache,
    engine_key,
    machine_parts,
    model_digest,
)
from tegrascope.collectors.files import write_atomic
from tegrascope.collectors.models.files import external_files
from tegrascope.collectors.worker.outputs import compare_with_kept
from tegrascope.parsers.errors import UserError
from tegrascope.parsers.inference.placement import Built
from tests.fakes.models import write_chain

KEY = "a" * 64


@pytest.fixture
def cache(tmp_path):
    return EngineCache(tmp_path / "state" / "engines")


def put(
    cache: EngineCache, key: str = KEY, age_seconds: float = 0.0, plan: bytes = b"plan"
) -> None:
    cache.write(
        key, BuiltEngine(plan, Built(engine_bytes=4)), model="m.onnx", parts={"device": "gpu"}
    )
    then = time.time() - age_seconds
    os.utime(cache.plan_path(key), (then, then))


def test_what_is_written_is_read(cache):
    """The engine and all that is known of it."""
    put(cache)
    content, sidecar = cache.read(KEY)
    assert content == b"plan"
    assert (sidecar.model, sidecar.built.engine_bytes, sidecar.plan_bytes) == ("m.onnx", 4, 4)
    assert cache.read("b" * 64) is None


def test_the_directory_is_for_this_user_alone(cache):
    """It is made so, whatever the umask."""
    assert cache.directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722, 0o777])
def test_a_directory_that_others_may_write_is_refused(tmp_path, mode):
    """Whoever writes an engine runs a program as us."""
    tmp_path.chmod(mode)
    with pytest.raises(UserError, match=r"others may write to .*chmod go-w"):
        EngineCache(tmp_path)
    tmp_path.chmod(0o755)
    EngineCache(tmp_path)


def test_a_directory_of_another_user_is_refused(tmp_path, monkeypatch):
    """Even one that only its owner may write."""
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UserError, match=r"belongs to user \d+"):
        EngineCache(tmp_path)


def test_a_directory_that_cannot_be_made_is_told(tmp_path):
    """A file is in its place."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be kept in"):
        EngineCache(tmp_path / "file" / "engines")


def test_a_damaged_engine_is_set_aside(cache):
    put(cache)
    cache.plan_path(KEY).write_bytes(b"plam")
    assert cache.read(KEY) is None
    assert cache.plan_path(KEY).with_suffix(".plan.bad").read_bytes() == b"plam"
    assert cache.read(KEY) is None


@pytest.mark.parametrize("sidecar", [b"", b"{}", b'{"key": 1}'])
def test_an_engine_without_its_sidecar_is_none(cache, sidecar):
    """Its placement is in there and nowhere else."""
    put(cache)
    (cache.directory / f"{KEY}.json").write_bytes(sidecar)
    assert cache.read(KEY) is None
    assert cache.entries() == []


def test_an_engine_under_another_name_is_none(cache):
    put(cache)
    for suffix in ("plan", "json"):
        (cache.directory / f"{KEY}.{suffix}").rename(cache.directory / f"{'b' * 64}.{suffix}")
    assert cache.read("b" * 64) is None


def test_nothing_half_written_is_left(tmp_path, monkeypatch):
    """A write that fails leaves the old file, and no part of the new one."""
    path = tmp_path / "x.plan"
    write_atomic(path, b"old")

    def fail(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomic(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["x.plan"]
    assert path.read_bytes() == b"old"


def test_the_log_is_kept_to_its_end_and_for_its_layers(cache):
    """Placement can be read again from what is kept."""
    log = ("[I] [DlaLayer] {ForeignNode[a...b]}", *(f"[I] line {at}" for at in range(1000)))
    cache.write(KEY, BuiltEngine(b"plan", Built(), log), model="m", parts={})
    kept = cache.read(KEY)[1].log
    assert kept == (log[0], *log[-LOG_LINES_KEPT:])


def test_a_key_is_the_same_whatever_the_order():
    """Only what it was made from counts."""
    assert engine_key({"a": "1", "b": "2"}) == engine_key({"b": "2", "a": "1"})
    assert engine_key({"a": "1"}) != engine_key({"a": "2"})


def test_engines_are_listed_by_their_last_use(cache):
    """Reading one is using it."""
    put(cache, "a" * 64, age_seconds=50)
    put(cache, "b" * 64, age_seconds=20)
    assert [entry.sidecar.key[0] for entry in cache.entries()] == ["b", "a"]
    cache.read("a" * 64)
    assert [entry.sidecar.key[0] for entry in cache.entries()] == ["a", "b"]


def test_an_engine_in_use_is_not_removed(cache):
    """Whoever holds its lock may be about to load it."""
    put(cache)
    (entry,) = cache.entries()
    with cache.lock(KEY):
        assert cache.remove(entry) is None
    assert cache.remove(entry) > 4
    assert list(cache.directory.iterdir()) == []


def test_a_lock_that_was_pruned_away_is_taken_anew(cache, monkeypatch):
    """Two processes must never hold two files of one name."""
    real, taken = fcntl.flock, []

    def flock(file: object, how: int) -> None:
        real(file, how)
        if not taken:
            (cache.directory / f"{KEY}.lock").unlink()
        taken.append(how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with cache.lock(KEY):
        assert len(taken) == 2
        assert (cache.directory / f"{KEY}.lock").exists()


def test_sweeping_leaves_engines_and_what_is_in_use(cache):
    """Strays go: an engine without sidecar, one set aside, a part long abandoned."""
    put(cache)
    (cache.directory / "timing-x.cache").write_bytes(b"t")
    for stray in ("b.plan", "c.plan.bad", "d.lock"):
        (cache.directory / stray).write_bytes(b"")
    old, new = cache.directory / "e.plan.1.part", cache.directory / "f.plan.2.part"
    for part in (old, new):
        part.write_bytes(b"")
    os.utime(old, (1, 1))
    with cache.lock("g"):
        (cache.directory / "g.plan").write_bytes(b"")
        cache.sweep()
        left = {path.name for path in cache.directory.iterdir()}
    assert left == {
        *(f"{KEY}.plan", f"{KEY}.json", "timing-x.cache"),
        *("f.plan.2.part", "g.lock", "g.plan"),
    }


def external_model(folder):
    """Write a model whose weight is in another file."""
    weight = onnx.numpy_helper.from_array(numpy.arange(400, dtype="f4"), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["w"], ["made"])],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("made", onnx.TensorProto.FLOAT, [400])],
        [weight],
    )
    path = folder / "m.onnx"
    made = onnx.helper.make_model(graph)
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_weights_in_other_files_are_found(tmp_path):
    """Without the onnx package, which a board may lack."""
    model = external_model(tmp_path)
    assert external_files(model) == [tmp_path / "weights.bin"]
    assert external_files(write_chain(tmp_path / "n.onnx", "Relu")) == []


def test_weights_are_part_of_the_digest(tmp_path):
    """The same graph with other weights is another model."""
    model = external_model(tmp_path)
    before = model_digest(model)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"\1" + weights.read_bytes()[1:])
    assert model_digest(model) != before


def test_weights_inside_a_branch_are_found(tmp_path):
    """A tensor may be an attribute of a node, in a graph within a graph."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="deep.bin")
    inner = onnx.helper.make_graph(
        [onnx.helper.make_node("Constant", [], ["c"], value=tensor)], "inner", [], []
    )
    node = onnx.helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    model = tmp_path / "if.onnx"
    graph = onnx.helper.make_graph([node], "outer", [], [])
    model.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    (tmp_path / "deep.bin").write_bytes(b"")
    assert external_files(model) == [tmp_path / "deep.bin"]


def test_missing_weights_are_named(tmp_path):
    """A model copied without its weights is a common mistake."""
    model = external_model(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(UserError, match=r"keeps weights in .*weights\.bin, which is missing"):
        external_files(model)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("../../etc/passwd", "which is not in its directory; ONNX forbids that"),
        ("/etc/passwd", "which is not in its directory"),
        ("/proc/self/mem", "which is not in its directory"),
        ("a/../../w", "which is not in its directory"),
        ("w\0w", "which is not in its directory"),
        ("zero", "which is not a regular file"),
        (".", "which is not a regular file"),
        ("a\x1b[31m\u202eb", r"a\\x1b\[31m\\u202eb, which is missing"),
        ("m.onnx/w", "which is missing"),
    ],
)
def test_weights_are_regular_files_beside_the_model(tmp_path, location, words):
    """The name comes from the model's author, and the file is read with the user's rights."""
    model = external_model(tmp_path)
    made = onnx.load(model, load_external_data=False)
    made.graph.initializer[0].external_data[0].value = location
    model.write_bytes(made.SerializeToString())
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(UserError, match=words):
        external_files(model)


def test_weights_may_be_a_link_of_the_user(tmp_path):
    """Caches of downloaded models keep their files elsewhere."""
    (tmp_path / "models").mkdir()
    model = external_model(tmp_path / "models")
    weights = model.parent / "weights.bin"
    weights.rename(tmp_path / "blob")
    weights.symlink_to(tmp_path / "blob")
    assert external_files(model) == [weights]


@pytest.mark.parametrize("content", [b"", b"\x3a\xff\x01", b"\xff" * 40, b"<html>not a model"])
def test_what_is_no_model_is_told(tmp_path, content):
    """A web page saved as a model, or a part of one, ends in one line."""
    model = tmp_path / "x.onnx"
    model.write_bytes(content)
    with pytest.raises(UserError, match="export the model again"):
        external_files(model)


def test_the_machines_part_of_a_key(tmp_path):
    """Release and module count for all engines, the DLA's firmware for those on it."""
    files = {
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
        "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0",
        "sys/kernel/debug/nvdla0/firmware/version": "1.14.0\n",
    }
    assert machine_parts(is_dla=True, root=tmp_path) == {}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    of_gpu = {"machine_l4t": "36.4.3", "machine_module": "nvidia,p3737-0000+p3701-0005"}
    assert machine_parts(is_dla=False, root=tmp_path) == of_gpu
    assert machine_parts(is_dla=True, root=tmp_path) == {**of_gpu, "machine_dla_firmware": "1.14.0"}


def test_first_outputs_go_with_their_engine(cache):
    put(cache, "k")
    for key in ("k", "stray"):
        compare_with_kept(cache.outputs_path(key, "x"), {"y": numpy.ones(3)})
    cache.sweep()
    assert [path.name[:2] for path in cache.directory.glob("*.npz")] == ["k."]
    (entry,) = cache.entries()
    cache.remove(entry)
    assert list(cache.directory.glob("*.npz")) == []

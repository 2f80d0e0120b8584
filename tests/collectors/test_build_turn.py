"""One build at a time on a machine, whoever builds."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy
import onnx
import pytest

from tegrascope.collectors.backends.build_turn import LOCK_NAME, clocks_now, turn_to_build
from tegrascope.parsers.errors import UserError


@pytest.fixture
def root(tmp_path):
    """A machine with a directory for locks, and some files of the kernel."""
    for name in ("run/lock", "tmp", "proc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/loadavg").write_text("3.25 1.00 0.50 2/300 1234\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    return tmp_path


class Builder:
    """Another process that builds: it holds the lock until it is asked to end."""

    def __init__(self, path: Path) -> None:
        code = (
            "import fcntl, sys; file = open(sys.argv[1], 'ab'); fcntl.flock(file, fcntl.LOCK_EX);"
            " print('has it', flush=True); sys.stdin.read()"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "has it\n"

    def end(self) -> None:
        self.process.communicate("")

    def list_in(self, root: Path) -> None:
        """Write the kernel's list of locks."""
        inode = (root / "run/lock" / LOCK_NAME).stat().st_ino
        (root / "proc/locks").write_text(
            f"1: FLOCK  ADVISORY  WRITE {self.process.pid} fe:00:{inode} 0 EOF\n"
            f"1: -> FLOCK  ADVISORY  WRITE 99 fe:00:{inode} 0 EOF\n"
            f"2: FLOCK  ADVISORY  WRITE 98 fe:00:{inode}7 0 EOF\n"
        )


@pytest.fixture
def builder(root):
    found = Builder(root / "run/lock" / LOCK_NAME)
    found.list_in(root)
    yield found
    found.end()


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_lock_is_held_for_the_block_and_any_user_may_take_it(root):
    before = os.umask(0o077)
    try:
        with turn_to_build(10.0, pytest.fail, root) as found:
            assert is_locked(root / "run/lock" / LOCK_NAME)
    finally:
        os.umask(before)
    assert not is_locked(root / "run/lock" / LOCK_NAME)
    assert (root / "run/lock" / LOCK_NAME).stat().st_mode & 0o777 == 0o644
    assert (found.is_alone, found.waited_seconds, found.waited_for) == (True, 0.0, ())
    assert (found.load_average, found.free_memory_bytes) == (3.25, 2048 * 1024)


def model_of(folder: Path, weights_bytes: int) -> Path:
    """Write a model whose weights are in a file of their own."""
    weights = onnx.numpy_helper.from_array(numpy.ones(4, numpy.float32), "w")
    given, result = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"
    )
    add = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    made = onnx.helper.make_model(onnx.helper.make_graph([add], "g", [given], [result], [weights]))
    path = folder / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    os.truncate(folder / "weights.bin", weights_bytes)
    return path


@pytest.mark.parametrize(("free_kib", "is_scarce"), [(2_000_000, True), (4_400_000, False)])
def test_scarce_memory_is_a_warning_and_no_refusal(root, tmp_path, capsys, free_kib, is_scarce):
    """4 GiB, and four times the 30 MB of a model with its weights, are 4.1 GiB."""
    model = model_of(tmp_path, weights_bytes=30_000_000)
    (root / "proc/meminfo").write_text(f"MemAvailable: {free_kib} kB\n")
    with turn_to_build(10.0, pytest.fail, root, model) as found:
        assert found.is_alone
    assert found.wanted_memory_bytes == pytest.approx((4 << 30) + 120_000_000, rel=1e-3)
    words = "1.9 GiB of memory were free for a build of about 4.1 GiB"
    printed = capsys.readouterr().err
    assert (words in "".join(found.notes), words in printed) == (is_scarce, is_scarce), printed


def test_too_few_free_pages_of_an_early_thor_are_unknown(root):
    (root / "etc").mkdir()
    release = "# R38 (release), REVISION: 4.0, GCID: 1, BOARD: generic"
    (root / "etc/nv_tegra_release").write_text(release)
    with turn_to_build(10.0, pytest.fail, root) as found:
        assert found.free_memory_bytes is None


def test_unknown_memory_is_no_warning(root, tmp_path, capsys):
    (root / "proc/meminfo").unlink()
    with turn_to_build(10.0, pytest.fail, root, model_of(tmp_path, 1)) as found:
        assert found.notes == ()
    assert capsys.readouterr().err == ""


def test_lock_of_another_process_is_waited_for_and_named(root, builder):
    told = []

    def progress(doing: str) -> None:
        told.append(doing)
        builder.end()

    with turn_to_build(600.0, progress, root) as found:
        assert found.is_alone
    assert found.waited_for == (builder.process.pid,)
    assert found.waited_seconds > 0
    words = f"waits for process {builder.process.pid}, which builds an engine on this machine"
    assert told == [words]


def test_wait_has_a_limit_by_the_timeout_of_the_run(root, builder):
    told = []
    refusal = rf"process {builder.process.pid} builds an engine .* 0 s"
    with pytest.raises(UserError, match=refusal), turn_to_build(0.0, told.append, root):
        pytest.fail("it builds beside another")
    assert len(told) == 1


def test_lock_that_is_removed_while_it_is_waited_for_is_taken_anew(root, builder):
    path = root / "run/lock" / LOCK_NAME

    def progress(_: str) -> None:
        path.unlink()
        builder.end()

    with turn_to_build(600.0, progress, root):
        assert is_locked(path), "others find another file than the one that is locked"


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_trap_in_a_directory_for_all_is_not_used(root, tmp_path, kind):
    victim, trap = tmp_path / "victim", root / "run/lock" / LOCK_NAME
    victim.write_text("of another user")
    if kind == "link":
        trap.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(trap)
    else:
        trap.mkdir()
    with turn_to_build(10.0, pytest.fail, root) as found:
        assert is_locked(root / "tmp" / LOCK_NAME)
        assert not is_locked(victim)
    assert found.is_alone


def test_machine_without_a_place_for_the_lock_builds_and_says_so(tmp_path):
    with turn_to_build(10.0, pytest.fail, tmp_path) as found:
        assert not found.is_alone


def test_clocks_are_those_of_the_kernel(root):
    for name, hertz in (("17000000.gpu", 1_300_500_000), ("other", 5)):
        (root / "sys/class/devfreq" / name).mkdir(parents=True)
        (root / "sys/class/devfreq" / name / "cur_freq").write_text(f"{hertz}\n")
    assert clocks_now(root) == {"gpu.frequency_hertz.0": 1_300_500_000}
    assert clocks_now(root / "none", "0000:01:00.0") == {}

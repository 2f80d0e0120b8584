"""Files that commands write: whole or not at all, and checked before the work for them."""

import os
import pty
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tegrascope.daemon.outputs import check_output, open_output
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.cli import main

LOG = Path(__file__).parents[1] / "captures/agx-orin-64gb__r36.txt"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old\n")
    path.chmod(0o640)
    return path


@pytest.mark.parametrize("error", [UserError("no", "give another"), OSError(28, "full")])
def test_old_file_stays_if_the_new_one_is_not_finished(old, error):
    with pytest.raises(UserError), open_output(old) as output:
        output.write("new\n" * 100_000)
        raise error
    assert old.read_text() == "old\n"
    assert names(old.parent) == ["table.csv"]


def test_new_file_has_the_mode_of_the_old_one(old):
    with open_output(old) as output:
        output.write("new\n")
    assert old.read_text() == "new\n"
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_new_file_has_the_mode_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        with open_output(tmp_path / "new.csv") as output:
            output.write("new\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.csv").stat().st_mode) == 0o640


def test_link_stays_a_link(old):
    link = old.with_name("link.csv")
    link.symlink_to(old.name)
    with open_output(link) as output:
        output.write("new\n")
    assert link.is_symlink()
    assert old.read_text() == "new\n"


def test_longest_name_can_be_written(tmp_path):
    path = tmp_path / ("n" * 255)
    check_output(path)
    with open_output(path) as output:
        output.write("new\n")
    assert path.read_text() == "new\n"


def test_pipe_is_written_in_place(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    check_output(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with open_output(pipe) as output:
        output.write("new\n")
    reader.join()
    assert read == ["new\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_device_is_written_in_place():
    check_output(Path("/dev/null"))
    with open_output(Path("/dev/null")) as output:
        output.write("new\n")
    with pytest.raises(UserError, match="No space left"), open_output(Path("/dev/full")) as output:
        output.write("new\n")
    assert Path("/dev/null").is_char_device()
    assert Path("/dev/full").is_char_device()


def test_open_file_of_a_shell_is_written_in_place(tmp_path):
    code = (
        "from pathlib import Path; from tegrascope.daemon.outputs import open_output\n"
        "with open_output(Path('/dev/stdout')) as output: output.write('new')"
    )
    path = tmp_path / "all.txt"
    with path.open("w") as output:
        subprocess.run([sys.executable, "-c", code], stdout=output, check=True)
        opened = os.fstat(output.fileno())
    assert path.read_text() == "new"
    assert path.stat().st_ino == opened.st_ino


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_table_that_does_not_fit_leaves_the_old_one(old, kind):
    """The limit of the size of a file stands for a disk that is full; it would cut bytecode too."""
    log = old.with_name("long.log")
    log.write_text(LOG.read_text() * 400)
    command = f'ulimit -f 16; exec "$0" -B -m tegrascope parse {log} -f {kind} -o {old}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert old.read_text() == "old\n"
    assert names(old.parent) == ["long.log", "table.csv"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["parse", "missing.log", "-f", "jsonl", "-o"],
        ["parse", "missing.log", "-f", "csv", "-o"],
        ["parse", "missing.log", "-f", "parquet", "-o"],
        ["correlate", "--telemetry", "missing.log", "--runs", "missing.csv", "-o"],
        ["inspect", "missing.onnx", "--dot"],
        ["report", "--state-dir", "missing", "-o"],
        ["runs", "export", "--state-dir", "missing", "-o"],
        ["prove", "--no-sudo", "-o"],
        ["engines", "calibrate", "missing.onnx", "--data", str(LOG), "-o"],
        ["exec", "--workload", "w", "--telemetry", "simulator", "--json"],
    ],
    ids=lambda arguments: " ".join(arguments[:4]),
)
@pytest.mark.parametrize("place", ["missing/directory/file", "."])
def test_output_is_checked_before_anything_is_done(arguments, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    output = tmp_path / place
    program = ["--", "touch", "started"] if arguments[0] == "exec" else []
    if arguments[:2] == ["engines", "calibrate"]:
        arguments = [*arguments[:4], str(tmp_path / "inputs"), "-o"]
        (tmp_path / "inputs").mkdir()
        (tmp_path / "inputs/a.npy").touch()
    before = names(tmp_path)
    assert main([*arguments, str(output), *program]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tegrascope: {output}: ")
    assert "name a writable file with -" in line
    assert names(tmp_path) == before


def test_bench_checks_its_files_before_it_measures(tmp_path, capsys):
    (tmp_path / "result.json").mkdir()
    assert main(["bench", "resnet50", "--simulate", "-o", str(tmp_path)]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tegrascope: {tmp_path}/result.json: Is a directory: ")


SAYS = """
import os, sys
from tegrascope.daemon.terminal import open_standard_streams
open_standard_streams()
print("begins", file=sys.stderr, flush=True)
sys.stdin.readline()
for _ in range(3):
    print("words", file=sys.stderr, flush=True)
with open(sys.argv[1], "w") as file:
    file.write(f"measured {sys.stderr.isatty()}")
"""


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_work_goes_on_when_nobody_reads_its_words(tmp_path, kind):
    if kind == "pipe":
        reads, writes = os.pipe()
    else:
        reads, writes = pty.openpty()
    command = [sys.executable, "-c", SAYS, str(tmp_path / "result")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=writes, start_new_session=True
    ) as child:
        os.close(writes)
        assert os.read(reads, 6) == b"begins"
        os.close(reads)
        child.communicate(b"go\n", timeout=120)
    assert child.returncode == 0
    # The terminal is gone by then, and so no longer one.
    assert (tmp_path / "result").read_text() == "measured False"

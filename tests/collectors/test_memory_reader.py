"""Memory by process, from NvMap's list and proportional sizes to the columns of the daemon."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.collectors.gpu.nvmap import FRESH_SECONDS, MemoryCompanion
from tegrascope.collectors.processes.memory_reader import look, main
from tegrascope.collectors.processes.names import ProcessNames
from tegrascope.collectors.simulator.board import JumpClock
from tegrascope.parsers.nvmap import parse_nvmap_clients
from tegrascope.parsers.signals import PROCESS_GPU_MEMORY, PROCESS_PROPORTIONAL, by_name
from tests.fakes.memory_worlds import BOARDS, KERNEL, World, make_world, write_world
from tests.session.test_telemetry import Lines

SHOWN = [board for board in BOARDS if board.clients not in ("zero", None)]
# The list has whole kB, or two decimals of an M and three of a G.
PRINTED = 0.01


def by_id(board) -> str:
    return board.name


def told(root: Path) -> dict[str, object]:
    """Return a look at the files of a board."""
    return look(root, ProcessNames(root))


def companion(line: str, clock: JumpClock, top: int = 3, root: Path = Path("/none")):
    """Return what the daemon has after a line of the reader."""
    known = ProcessNames(root)
    made = MemoryCompanion(Lines([]), top=top, names=(), known=known, clock=clock)
    made.take(line, 0)
    return made


@pytest.mark.parametrize("board", SHOWN, ids=by_id)
def test_each_process_has_what_it_holds_of_nvmap(board, tmp_path):
    """Every form of the list; two clients have half a buffer each, kernel drivers are apart."""
    world = make_world(board, 1)
    write_world(world, tmp_path)
    found = told(tmp_path)["used_bytes"]
    truth = world.gpu_bytes()
    assert found.keys() == truth.keys()
    for pid, held in truth.items():
        assert found[pid] == pytest.approx(held, rel=PRINTED)
    total = world.truth()["gpu"]
    assert sum(found.values()) == pytest.approx(total, rel=PRINTED)


@pytest.mark.parametrize("board", BOARDS[-2:], ids=by_id)
def test_a_thor_lists_no_gpu_memory_and_no_zeros(board, tmp_path):
    write_world(make_world(board, 1), tmp_path)
    assert told(tmp_path)["used_bytes"] == {}


def test_proportional_sizes_are_those_of_the_kernel(tmp_path):
    """All add up to what is mapped, however many processes map it; resident sizes do not."""
    world = make_world(BOARDS[5], 1)
    write_world(world, tmp_path)
    found = told(tmp_path)
    sizes = {pid: int(world.proportional_kilobytes(pid)) * 1024 for pid in world.names}
    assert found["proportional_bytes"] == sizes
    mapped = sum(one.kilobytes for one in world.allocations if one.pids) * 1024
    assert sum(sizes.values()) == pytest.approx(mapped, rel=1e-3)
    assert sum(world.resident_kilobytes(pid) for pid in sizes) * 1024 > 1.5 * mapped
    assert set(found["names"].values()) >= {"kernel", "gst-launch-1.0"}


def test_kernels_without_the_file_give_no_proportional_size(tmp_path):
    world = make_world(BOARDS[0], 1)
    write_world(world, tmp_path)
    for pid in world.names:
        (tmp_path / f"proc/{pid}/smaps_rollup").unlink()
    assert told(tmp_path)["proportional_bytes"] == {}
    assert told(tmp_path)["used_bytes"]


def test_a_look_is_bounded_in_number_and_in_time(tmp_path):
    """Of hundreds of processes the largest are listed, and slow ones do not hold it up for long."""
    world = World(BOARDS[5])
    for pid in range(100, 400):
        world.names[pid] = f"p{pid}"
        world.allocations.append(
            make_world(BOARDS[5], 1)
            .allocations[0]
            ._replace(kilobytes=4 * pid, pids=(pid,), clients=(pid,), kind="gpu")
        )
    write_world(world, tmp_path)
    found = told(tmp_path)
    largest = set(range(336, 400))
    assert set(found["used_bytes"]) == set(found["proportional_bytes"]) == largest
    assert len(json.dumps(found)) < 64 * 1024
    ticks = iter(range(0, 10**12, 200_000_000))
    slow = look(tmp_path, ProcessNames(tmp_path), now_ns=lambda: next(ticks))
    assert len(slow["proportional_bytes"]) == 2


def test_processes_have_the_readers_names_and_the_rest_is_other(tmp_path):
    """The sandbox hides other users' processes from the daemon, so their names are sent."""
    clock = JumpClock()
    world = make_world(BOARDS[5], 1)
    write_world(world, tmp_path)
    line = json.dumps({**told(tmp_path), "at_ns": clock.monotonic_ns()})
    memory = companion(line, clock, top=2)
    shown = PROCESS_GPU_MEMORY.by_label(by_name(memory.columns()))
    assert sum(shown.values()) == pytest.approx(world.truth()["gpu"], rel=PRINTED)
    assert len(shown) <= 3
    proportional = PROCESS_PROPORTIONAL.by_label(by_name(memory.columns()))
    assert {"other", "tegrascope"} & proportional.keys()


def test_own_processes_are_named_so_and_an_old_look_is_gone():
    clock, own = JumpClock(), os.getpid()
    used = {own: 5, KERNEL: 7}
    made = {"event": "processes", "at_ns": clock.monotonic_ns(), "used_bytes": used}
    made |= {"proportional_bytes": {own: 9}, "names": {own: "python3 -c", KERNEL: "kernel"}}
    memory = companion(json.dumps(made), clock, root=Path("/"))
    assert by_name(memory.columns()) == {
        "process.gpu_memory_bytes.tegrascope": 5,
        "process.gpu_memory_bytes.kernel": 7,
        "process.proportional_bytes.tegrascope": 9,
    }
    clock.wait(threading.Event(), clock.monotonic_ns() + round((FRESH_SECONDS + 1) * 1e9))
    assert memory.columns() == {}


@pytest.mark.parametrize(
    "name", ["total", "a b", "x 1 9G", "a\nb 5 9G\nc", "4711 5K", "\n" * 15, "PID SIZE", "47 5K"]
)
def test_no_name_of_a_process_gives_another_one_its_memory(name):
    text = f"{'user':<18} {name:>18} {77:>8} {'12K':>11}\n"
    assert parse_nvmap_clients(text) == {77: 12 * 1024}


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text):
    assert all(size > 0 for size in parse_nvmap_clients(text).values())


def test_the_program_prints_looks_of_this_machine(tmp_path, capfd):
    write_world(make_world(BOARDS[5], 1), tmp_path)
    assert main(["--root", str(tmp_path), "--samples", "1"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line)["event"] == "processes"


def test_the_program_says_in_one_line_what_is_wrong(tmp_path, capfd):
    """No table of processes, or a file that is for root alone; the daemon is told, too."""
    assert main(["--root", str(tmp_path)]) == 3
    told = capfd.readouterr()
    assert told.err.count("\n") == 1
    made = companion(told.out.strip(), JumpClock())
    assert "the table of processes" in made.problem
    assert made.columns() == {}
    if os.geteuid() != 0:
        write_world(make_world(BOARDS[5], 1), tmp_path)
        (tmp_path / "sys/kernel/debug").chmod(0)
        assert main(["--root", str(tmp_path)]) == 3
        assert "systemctl enable --now tegrascope-memory.socket" in capfd.readouterr().err
        (tmp_path / "sys/kernel/debug").chmod(0o755)


def test_the_code_that_runs_as_root_is_small():
    """Root's program imports the standard library and few files of ours."""
    script = (
        "import sys, tegrascope.collectors.processes.memory_reader\n"
        "heavy = {'pydantic', 'msgspec', 'numpy', 'yaml'} & set(sys.modules)\n"
        "print(sorted(heavy), sum(n.startswith('tegrascope') for n in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    heavy, count = done.stdout.rsplit(maxsplit=1)
    assert heavy == "[]"
    assert int(count) <= 20

"""What this process can still take, by fake control groups."""

from pathlib import Path

import pytest

from tegrascope.collectors.board.memory import obtainable_memory

MIB = 1 << 20


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path):
    """Return a machine with 900 MiB free, and no control group."""
    write(tmp_path / "proc/meminfo", f"MemAvailable: {900 << 10} kB\n")
    return tmp_path


def limit_v1(root: Path, group: str, limit: int, used: int, cache: int) -> None:
    place = root / "sys/fs/cgroup/memory" / group
    write(place / "memory.limit_in_bytes", f"{limit}\n")
    write(place / "memory.usage_in_bytes", f"{used}\n")
    stat = f"inactive_file 0\nactive_file 0\ntotal_inactive_file {cache}\ntotal_active_file 4096\n"
    write(place / "memory.stat", stat)


def limit_v2(root: Path, group: str, limit: int | str, used: int, cache: int) -> None:
    place = root / "sys/fs/cgroup" / group
    write(place / "memory.max", f"{limit}\n")
    write(place / "memory.current", f"{used}\n")
    write(place / "memory.stat", f"anon 7\ninactive_file {cache}\nactive_file 4096\n")


def test_machine_without_groups_has_what_is_free(root):
    assert obtainable_memory(root) == 900 * MIB
    (root / "proc/meminfo").unlink()
    assert obtainable_memory(root) is None


def test_limit_of_a_service_counts_with_the_cache_that_the_kernel_drops(root):
    write(root / "proc/self/cgroup", "0::/system.slice/tegrascope.service\n")
    limit_v2(root, "system.slice/tegrascope.service", 300 * MIB, 250 * MIB, 100 * MIB)
    assert obtainable_memory(root) == 150 * MIB + 4096


def test_group_above_limits_those_below(root):
    write(root / "proc/self/cgroup", "0::/robot.slice/vision.service\n")
    limit_v2(root, "robot.slice/vision.service", "max", 10 * MIB, 0)
    limit_v2(root, "robot.slice", 200 * MIB, 180 * MIB, 0)
    assert obtainable_memory(root) == 20 * MIB + 4096


def test_container_of_version_1_sees_its_own_group_as_the_top(root):
    write(root / "proc/self/cgroup", "5:cpu,cpuacct:/docker/f00\n4:memory:/docker/f00\n0::/x\n")
    limit_v1(root, "", 100 * MIB, 40 * MIB, 10 * MIB)
    assert obtainable_memory(root) == 70 * MIB + 4096


def test_group_beyond_its_limit_leaves_nothing(root):
    write(root / "proc/self/cgroup", "4:memory:/a\n")
    limit_v1(root, "a", 100 * MIB, 120 * MIB, 10 * MIB)
    assert obtainable_memory(root) == 0


def test_thor_that_keeps_freed_pages_has_its_limits_only(root):
    write(root / "etc/nv_tegra_release", "# R38 (release), REVISION: 4.0, GCID: 1, BOARD: generic")
    assert obtainable_memory(root) is None
    write(root / "proc/self/cgroup", "0::/a\n")
    limit_v2(root, "a", 1000 * MIB, 0, 0)
    assert obtainable_memory(root) == 1000 * MIB + 4096


@pytest.mark.parametrize("text", ["", "nonsense\n", "0::\n", "4:memory\n", "0::/../../etc\n"])
def test_strange_groups_leave_the_figure_of_the_machine(root, text):
    write(root / "proc/self/cgroup", text)
    write(root / "sys/fs/cgroup/memory.max", "many\n")
    write(root / "sys/fs/cgroup/memory.current", "1\n")
    assert obtainable_memory(root) == 900 * MIB

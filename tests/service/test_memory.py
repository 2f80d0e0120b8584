"""Memory in the whole daemon: a tree of files stands for the kernel, all else is real."""

import re
import sys

import pytest

from tests.fakes.memory_worlds import (
    BOARDS,
    KERNEL,
    available_kilobytes,
    make_world,
    write_world,
)

CONFIG = """
telemetry:
  interval: 103ms
  tegrastats: {{command: [{python}, -m, tegrascope, simulate]}}
  sysfs: {root}
  memory:
    command: [{python}, -m, tegrascope.collectors.processes.memory_reader, --root, {root}]
workloads:
- {{name: ours, command: sleep 2, device: gpu, every: 8s}}
"""


def test_page_has_memory_by_owner_and_by_process(start, tmp_path):
    world = make_world(BOARDS[5], 1)
    write_world(world, tmp_path)
    daemon = start(CONFIG.format(python=sys.executable, root=tmp_path))
    by_process = 'tegra_process_gpu_memory_bytes{process="kernel"'
    daemon.wait_for(lambda: daemon.metric(by_process))
    assert daemon.metric(by_process) == pytest.approx(world.gpu_bytes()[KERNEL], rel=0.01)
    page, total = daemon.get("metrics"), sum(world.truth().values())
    for owner, owned_bytes in world.truth().items():
        shown = daemon.metric(f'tegra_memory_bytes{{owner="{owner}"', page)
        assert shown == pytest.approx(owned_bytes, abs=0.01 * total)
    name = r"^tegra_process_proportional_memory_bytes{.*} (\S+)$"
    sizes = [float(size) for size in re.findall(name, page, re.MULTILINE)]
    mapped = sum(one.kilobytes for one in world.allocations if one.pids) * 1024
    assert sum(sizes) == pytest.approx(mapped, rel=0.01)
    assert 'tegrascope_source_up{source="memory"} 1' in page
    (run, *_) = daemon.wait_for(lambda: daemon.runs(outcome="ok"))
    assert run["least_available_bytes"] == available_kilobytes(world) * 1024

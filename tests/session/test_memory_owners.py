"""Every byte of a board's memory has an owner: ten boards whose memory is known page by page."""

from pathlib import Path

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.board.sysfs import SysfsCompanion
from tegrascope.collectors.gpu.nvml import NvmlCompanion
from tegrascope.collectors.lines.collector import TegrastatsCollector
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.telemetry import TelemetryFeed
from tegrascope.parsers.signals import GPU_MEMORY_TOTAL, GPU_MEMORY_USED, MEMORY
from tests.fakes.memory_worlds import BOARDS, World, make_world, write_world
from tests.session.test_telemetry import Beside, Lines, S

MOST_WRONG, MOST_UNKNOWN = 0.01, 0.03
SEEDS = range(5)


def owners(root: Path, *others: object) -> dict[str, float]:
    """Return the memory by owner that a feed shows for the files of a board."""
    files = SysfsCompanion(root, timeout_seconds=30.0)
    collector = TegrastatsCollector(Lines([Stamped(S, S, "RAM 1/99MB")]))
    live = LiveState(Snapshot())
    feed = TelemetryFeed(
        collector,
        timeline=Timeline(),
        energy=EnergyCounters(),
        live=live,
        occupancy=lambda *_: {},
        companions=(files, *others),
    )
    files.start()
    for sample in collector.collect():
        feed.take(sample)
    files.stop()
    return MEMORY.by_label(live.snapshot.values)


def nvml_of(world: World) -> NvmlCompanion:
    """Return NVML of a Thor, which lists the memory of each process."""
    source = Lines([])
    source.interval_seconds = 1.0
    companion = NvmlCompanion(source, name_of=str)
    listed = {str(pid): int(held) for pid, held in world.gpu_bytes().items()}
    line = f'{{"event": "processes", "at_ns": {2**62}, "used_bytes": {listed}}}'
    companion.take(line.replace("'", '"'), 0)
    return companion


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_each_owner_has_its_memory_within_one_percent_of_all(board, tmp_path):
    for seed in SEEDS:
        world = make_world(board, seed)
        write_world(world, tmp_path / str(seed))
        beside = [] if board.clients not in ("zero", None) else [nvml_of(world)]
        shown, truth = owners(tmp_path / str(seed), *beside), world.truth()
        total = sum(truth.values())
        assert shown.keys() == truth.keys()
        wrong = {owner: abs(shown[owner] - truth[owner]) / total for owner in truth}
        print(
            f"{board.name} {seed}: at most {max(wrong.values()):.3%} wrong, "
            f"{shown['not_attributed'] / total:.2%} not attributed"
        )
        assert max(wrong.values()) <= MOST_WRONG, wrong
        assert shown["not_attributed"] / total <= MOST_UNKNOWN
        assert sum(shown.values()) == pytest.approx(total, rel=1e-6)


def test_gpu_that_nothing_counts_is_not_zero(tmp_path):
    """A Thor without NVML: what its GPU holds is not attributed, and has no series of its own."""
    world = make_world(BOARDS[-1], 1)
    write_world(world, tmp_path)
    shown, truth = owners(tmp_path), world.truth()
    assert "gpu" not in shown
    assert shown["not_attributed"] == truth["not_attributed"] + truth["gpu"]


def test_gpu_with_memory_of_its_own_holds_nothing_of_the_board(tmp_path):
    write_world(make_world(BOARDS[-1], 1), tmp_path)
    beside = Beside("nvml", {(GPU_MEMORY_USED, ""): 2.0**30, (GPU_MEMORY_TOTAL, ""): 2.0**33})
    assert "gpu" not in owners(tmp_path, beside)


@pytest.mark.parametrize("text", ["", "1 2\n", "1 2 x\n", "1 2 -5\n"])
def test_a_zram_that_cannot_be_read_leaves_its_memory_without_owner(text, tmp_path):
    world = make_world(BOARDS[5], 1)
    write_world(world, tmp_path)
    for file in tmp_path.glob("sys/block/zram*/mm_stat"):
        file.write_text(text)
    shown, truth = owners(tmp_path), world.truth()
    assert shown["zram"] == 0
    assert shown["not_attributed"] == truth["not_attributed"] + truth["zram"]


def test_kernel_that_says_too_little_has_no_owners(tmp_path):
    path = tmp_path / "proc/meminfo"
    path.parent.mkdir(parents=True)
    path.write_text("MemTotal: 4096 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n")
    assert owners(tmp_path) == {}

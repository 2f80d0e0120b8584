"""Boards whose memory is known page by page, and the kernel's files that show it.

Each world is a list of allocations. Every page of one has one owner, so the truth by owner is a
sum. The files are printed from the same list, each counter by its own rule, as the kernel keeps
them: a page of NvMap that a process maps is in the resident size of that process too, a library
that ten processes map is in ten resident sizes and once in the page cache. Nothing here comes from
the product.

Sources: fs/proc/meminfo.c and Documentation/filesystems/proc.rst of the kernels 4.9 (R32), 5.10
(R35), 5.15 (R36) and 6.8 (R38, R39); nvmap_dev.c and nvmap_debug.c of NVIDIA's kernels.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

KERNEL = 0
_MIB = 1024  # in kB
_GPU_COUNTERS = ("NvMapMemFree", "NvMapMemUsed")


class Board(NamedTuple):
    """A module with a release: how much memory Linux has, and which files there are.

    Attributes:
        clients: Form of NvMap's list: ``kernel`` (R32 to R36), ``units`` (sizes with M and G),
            ``pss`` (a further column), ``zero`` (Thor: all rows are 0K), or None (no file).
        zrams: Number of zram devices; NVIDIA's script makes one per core.
    """

    name: str
    kernel: tuple[int, int]
    total_mib: int
    clients: str | None
    zrams: int


BOARDS = (
    Board("nano-r32", (4, 9), 3956, "kernel", 4),
    Board("tx2-nx-r32", (4, 9), 3829, "units", 6),
    Board("xavier-nx-r32", (4, 9), 7773, "kernel", 6),
    Board("agx-xavier-r35", (5, 10), 30697, "kernel", 8),
    Board("orin-nano-r35", (5, 10), 6480, "pss", 6),
    Board("orin-nano-r36", (5, 15), 7620, "kernel", 6),
    Board("orin-nx-r36", (5, 15), 15656, "kernel", 8),
    Board("agx-orin-r36", (5, 15), 62841, "units", 0),
    Board("thor-r38", (6, 8), 125772, "zero", 0),
    Board("thor-r39", (6, 8), 125772, None, 0),
)


class Allocation(NamedTuple):
    """Memory of one kind in kB.

    Attributes:
        pids: Processes that map it.
        clients: Processes that hold a buffer of the GPU, mapped or not; 0 is a kernel driver.
    """

    kind: str
    kilobytes: int
    pids: tuple[int, ...] = ()
    clients: tuple[int, ...] = ()


# The owner of each kind of page: what would have to go for it to be free.
OWNER = {
    "anonymous": "processes",
    "shared": "processes",
    "file": "cache",
    "buffers": "cache",
    "reclaimable": "cache",
    "pool": "cache",
    "gpu": "gpu",
    "slab": "kernel",
    "stacks": "kernel",
    "vmalloc": "kernel",
    "tables": "kernel",
    "percpu": "kernel",
    "zram": "zram",
    "free": "free",
    "driver": "not_attributed",
}


@dataclass
class World:
    """One board at one moment."""

    board: Board
    names: dict[int, str] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)

    def total(self, *kinds: str) -> int:
        """Return the kB of all pages of some kinds."""
        return sum(one.kilobytes for one in self.allocations if one.kind in kinds)

    def truth(self) -> dict[str, int]:
        """Return the bytes of each owner."""
        owned = dict.fromkeys(OWNER.values(), 0)
        for one in self.allocations:
            owned[OWNER[one.kind]] += one.kilobytes * 1024
        return owned

    def gpu_bytes(self) -> dict[int, float]:
        """Return the bytes of GPU memory by process; what several hold counts in equal parts."""
        held: dict[int, float] = {}
        for one in self.allocations:
            for pid in one.clients:
                held[pid] = held.get(pid, 0) + one.kilobytes * 1024 / len(one.clients)
        return held

    def resident_kilobytes(self, pid: int) -> int:
        """Return what a process maps, whoever else maps it."""
        return sum(one.kilobytes for one in self.allocations if pid in one.pids)

    def proportional_kilobytes(self, pid: int) -> float:
        """Return what a process maps, each page divided by the number of processes that map it."""
        mapped = [one for one in self.allocations if pid in one.pids]
        return sum(one.kilobytes / len(one.pids) for one in mapped)


def make_world(board: Board, seed: int) -> World:
    """Return a board at work, filled at random."""
    rng = random.Random(f"{board.name} {seed}")
    world, total = World(board), board.total_mib * _MIB
    add = world.allocations.append

    def share(low: float, high: float) -> int:
        return round(total * rng.uniform(low, high)) // 4 * 4

    pids = [300 + 7 * i for i in range(40)]
    for pid in pids:
        world.names[pid] = rng.choice(("python3", "my app", "gst-launch-1.0", "total", "a) b 1K"))
        add(Allocation("anonymous", share(0.001, 0.006), (pid,)))
    for _ in range(12):  # libraries, and pages that forked processes still share
        some = tuple(rng.sample(pids, rng.randint(2, 20)))
        add(Allocation("file", share(0.001, 0.004), some))
        add(Allocation("anonymous", share(0.0005, 0.002), some))
    add(Allocation("shared", share(0.005, 0.03), tuple(pids[:5])))
    add(Allocation("file", share(0.05, 0.2)))
    add(Allocation("gpu", share(0.02, 0.1), clients=(pids[0],)))  # cudaMalloc: no process maps it
    add(Allocation("gpu", share(0.01, 0.05), (pids[1],), (pids[1],)))  # pinned: it is mapped
    add(Allocation("gpu", share(0.01, 0.03), tuple(pids[2:4]), tuple(pids[2:4])))  # a camera's
    add(Allocation("gpu", share(0.001, 0.01), clients=(KERNEL,)))
    add(Allocation("buffers", share(0.001, 0.01)))
    add(Allocation("reclaimable", share(0.005, 0.02)))
    add(Allocation("slab", share(0.005, 0.02)))
    add(Allocation("stacks", share(0.001, 0.003)))
    add(Allocation("tables", share(0.001, 0.005)))
    add(Allocation("driver", share(0.002, 0.02)))
    if board.kernel >= (4, 20):
        add(Allocation("percpu", share(0.0005, 0.002)))
        add(Allocation("vmalloc", share(0.001, 0.01)))
    if board.clients not in ("zero", None):
        add(Allocation("pool", share(0.001, 0.02)))
    for _ in range(board.zrams):
        add(Allocation("zram", share(0.001, 0.01)))
    add(Allocation("free", total - sum(one.kilobytes for one in world.allocations)))
    assert world.allocations[-1].kilobytes > 0
    return world


def available_kilobytes(world: World) -> int:
    """Return what the kernel estimates that programs can get."""
    return world.total("free", "file", "reclaimable", "pool")


def meminfo(world: World) -> str:
    """Return the text of ``/proc/meminfo`` in the kernel's order."""
    kernel, total = world.board.kernel, world.total
    mapped = [one for one in world.allocations if one.pids and one.kind != "anonymous"]
    has_nvmap = world.board.clients not in ("zero", None)
    # From 4.14 on stacks are allocated by vmalloc, whose sum 5.3 began to print.
    vmalloc = total("vmalloc", "stacks") if kernel >= (5, 3) else 0
    rows: list[tuple[str, int]] = [
        ("MemTotal", sum(one.kilobytes for one in world.allocations)),
        ("MemFree", total("free")),
        ("MemAvailable", available_kilobytes(world)),
        ("Buffers", total("buffers")),
        ("Cached", total("file", "shared")),
        ("SwapCached", 0),
        ("AnonPages", total("anonymous")),
        ("Mapped", sum(one.kilobytes for one in mapped)),
        ("Shmem", total("shared")),
        ("Slab", total("reclaimable", "slab")),
        ("SReclaimable", total("reclaimable")),
        ("SUnreclaim", total("slab")),
        ("KernelStack", total("stacks")),
        ("PageTables", total("tables")),
        ("VmallocTotal", 263061440),
        ("VmallocUsed", vmalloc),
        ("VmallocChunk", 0),
    ]
    if kernel >= (4, 20):
        rows.append(("Percpu", total("percpu")))
        rows.append(("KReclaimable", total("reclaimable", "pool")))
    if kernel >= (6, 1):
        rows.append(("SecPageTables", 0))
    if has_nvmap:
        rows += [("NvMapMemFree", total("pool")), ("NvMapMemUsed", total("gpu"))]
    rows += [("CmaTotal", 753664), ("CmaFree", 0), ("Hugetlb", 0)]
    text = "".join(f"{name + ':':<16}{size:>8} kB\n" for name, size in rows)
    return text + "HugePages_Total:       0\n"


def clients(world: World) -> str | None:
    """Return the text of NvMap's list of clients, or None where it has no file."""
    form = world.board.clients
    if form is None:
        return None
    columns = f"{'SIZE':>11}"
    if form == "pss":
        columns = f"{'PSS':>11} {columns}"
    text = f"{'CLIENT':<18} {'PROCESS':>18} {'PID':>8} {columns}\n"
    for pid, held in world.gpu_bytes().items():
        client, name = "user", world.names.get(pid, "")
        if pid == KERNEL:
            client, name = "nvhost-vic", "kernel"
        size = _printed(held, form)
        if form == "pss":
            size = f"{'4K':>11} {size}"
        text += f"{client:<18} {name[:15]:>18} {pid:>8} {size}\n"
    return text + f"{'total':<18} {'':>18} {'':>8} {_printed(world.total('gpu') * 1024, form)}\n"


def _printed(size: float, form: str) -> str:
    if form == "zero":
        return f"{'0K':>11}"
    if form == "units" and size >= 2**30:
        return f"{size / 2**30:.3f}G".rjust(11)
    if form == "units":
        return f"{size / 2**20:.2f}M".rjust(11)
    return f"{int(size) // 1024}K".rjust(11)


def write_world(world: World, root: Path) -> None:
    """Write the files of a board under a directory."""
    _write(root / "proc/meminfo", meminfo(world))
    zrams = [one for one in world.allocations if one.kind == "zram"]
    for number, one in enumerate(zrams):
        size = one.kilobytes * 1024
        text = f"{3 * size:>8} {size - 4096:>8} {size:>8} {0:>8} {size:>8} 12 0 0\n"
        _write(root / f"sys/block/zram{number}/mm_stat", text)
    listed = clients(world)
    if listed is not None:
        _write(root / "sys/kernel/debug/nvmap/iovmm/clients", listed)
    for pid, name in world.names.items():
        _write_process(world, pid, name, root / f"proc/{pid}")


def _write_process(world: World, pid: int, name: str, folder: Path) -> None:
    resident = world.resident_kilobytes(pid)
    proportional = int(world.proportional_kilobytes(pid))
    zeros = " ".join(["0"] * 14)
    _write(folder / "stat", f"{pid} ({name[:15]}) S 1 {zeros} 0 0 0 100 0 0\n")
    _write(folder / "statm", f"{2 * resident // 4} {resident // 4} 0 0 0 0 0\n")
    _write(folder / "cmdline", f"/usr/bin/{name}\0--fast\0")
    _write(folder / "cgroup", "0::/user.slice/session-1.scope\n")
    rows = f"Rss:{resident:>20} kB\nPss:{proportional:>20} kB\nPss_Anon:{0:>15} kB\n"
    _write(folder / "smaps_rollup", f"00400000-ffffd000 ---p 00000000 00:00 0    [rollup]\n{rows}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")

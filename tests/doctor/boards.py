"""Simulated boards: trees of files and a few scripts, in their documented forms."""

import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from tegrascope.collectors.backends.tensorrt_probe import Capabilities
from tegrascope.collectors.board.machine import Answer, HostMemory, Machine
from tegrascope.daemon.settings.config import Config
from tegrascope.workbench.doctor.findings import Context

ORIN = "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0"
NX = "nvidia,p3768-0000+p3767-0000\0nvidia,p3767-0000\0nvidia,tegra234\0"
NANO = "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0"
GIB = 1 << 30
MEMORY = HostMemory(64 * GIB, 48 * GIB, 32 * GIB)
NO_DAEMON, ONE_DEVICE = Answer(None, "", "refused"), Answer(0, "cuda 0 12060 1\n", "")
CONF = "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=2 NAME=MODE_30W >\n"
GOOD_TENSORRT = Capabilities(
    versions={"tensorrt": "10.3.0", "cuda-python": "12.6.0"}, device="Orin", dla_cores=2
)
NO_TENSORRT = Capabilities(problem="tensorrt is not installed", remedy="install it")


@dataclass(frozen=True)
class Played(Machine):
    """A machine under a directory; answers of the kernel are attributes."""

    packages: "tuple[tuple[str, str], ...]" = (("cuda-bindings", "12.9.1"),)
    libraries: "tuple[str, ...]" = ()
    records: "tuple[str, ...] | None" = ("6,1,2,-;nvdla 15880000.nvdla0: initialized",)
    synchronised: "bool | None" = True
    daemon: Answer = NO_DAEMON
    cuda: Answer = ONE_DEVICE
    host_memory: "HostMemory | None" = MEMORY
    shut: "tuple[str, ...]" = ()

    def library(self, name: str) -> "str | None":
        return f"lib{name}.so.1" if name in self.libraries else None

    def package(self, name: str) -> "str | None":
        return dict(self.packages).get(name)

    def memory(self) -> "HostMemory | None":
        return self.host_memory

    def kernel_log(self) -> "list[str] | None":
        return None if self.records is None else list(self.records)

    def is_synchronised(self) -> "bool | None":
        return self.synchronised

    def may(self, path: str, mode: int) -> bool:
        """Deny access to some paths: the tests may run as root."""
        return path not in self.shut and super().may(path, mode)

    def get(self, *_: object) -> Answer:
        return self.daemon

    def run(self, argv, seconds: float = 5.0) -> Answer:
        """Answer for the child that calls CUDA; run everything else."""
        return self.cuda if argv[:2] == (sys.executable, "-I") else super().run(argv, seconds)


class Tree:
    """A root directory in the making."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "usr/bin"
        self.bin.mkdir(parents=True)

    def write(self, path: str, text: str = "") -> "Tree":
        whole = self.root / path.lstrip("/")
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(text)
        return self

    def script(self, name: str, body: str) -> "Tree":
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return self

    def tegrastats(self, *options: str) -> "Tree":
        return self.script(
            "tegrastats", f"exec {sys.executable} -m tegrascope simulate {' '.join(options)} $@"
        )

    def machine(self, **changes: object) -> Played:
        environ = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        fixed = {"uid": 1000, "architecture": "x86_64"}
        return Played(root=self.root, environ=environ, **(fixed | changes))


def orin(root: Path) -> Tree:
    """Return an AGX Orin on Jetson Linux 36.4.3 with all that there can be, for root."""
    tree = Tree(root).tegrastats()
    tree.write("/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")
    tree.write("/proc/device-tree/compatible", ORIN)
    tree.write("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n")
    tree.write("/var/lib/nvpmodel/status", "pmode:0000").write("/etc/nvpmodel.conf", CONF)
    tree.write("/proc/mounts", "tracefs /sys/kernel/tracing tracefs")
    for core in (0, 1):
        tree.write(f"/dev/nvhost-ctrl-nvdla{core}")
        tree.write(
            f"/sys/devices/platform/bus@0/13e00000.host1x/{15880000 + core}.nvdla{core}"
            "/power/runtime_active_time",
            "12\n",
        )
    tree.write("/sys/kernel/tracing/events/nvdla_ftrace/job_timestamps/id", "1\n")
    tree.write("/sys/kernel/debug/nvdla0/firmware/utilization_rate", "0\n")
    (root / "var/lib/tegrascope").mkdir()
    return tree


def context(
    machine: Machine, tensorrt: Capabilities = GOOD_TENSORRT, **settings: object
) -> Context:
    """Return the context of an examination, with a configuration of these settings."""
    return Context(
        machine=machine,
        config=Config.model_validate(settings),
        config_path=Path("tegrascope.yaml") if settings else None,
        probe=lambda: tensorrt,
    )

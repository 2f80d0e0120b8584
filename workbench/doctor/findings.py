"""A finding and its builder, the board, and the context of an examination."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partialmethod
from pathlib import Path
from typing import Any, Literal

from ...collectors.backends.tensorrt_probe import Capabilities, probe
from ...collectors.board.boards import identify, l4t_of, read_device_tree
from ...collectors.board.machine import Machine
from ...collectors.catalog import find_backend
from ...collectors.gpu.nvml import NvmlSettings
from ...daemon.settings.config import Config, Workload
from ...parsers.records import Record

Level = Literal["good", "note", "missing", "broken"]
Fact = str | int | float | bool | None | list[str]

TENSORRT_SECONDS = 60.0


class Finding(Record):
    """The result of one check.

    Attributes:
        check: Name of the check. It does not change between releases.
        level: ``note`` needs no action, ``missing`` limits what can be seen or done, ``broken``
            exists and does not work.
        remedy: Command or configuration key.
        blocking: Whether it makes the main job impossible.
    """

    group: str = ""
    check: str
    level: Level
    message: str
    remedy: str | None = None
    blocking: bool = False
    facts: dict[str, Fact] = {}


class Check:
    """Builds the finding of one check from its name and facts, with a method for each level."""

    def __init__(self, name: str, /, **facts: Fact) -> None:
        self._about: dict[str, Any] = {"check": name, "facts": facts}

    def finding(
        self, level: Level, message: str, remedy: str | None = None, *, blocking: bool = False
    ) -> Finding:
        """Return the finding."""
        return Finding(
            level=level, message=message, remedy=remedy, blocking=blocking, **self._about
        )

    good = partialmethod(finding, "good")
    note = partialmethod(finding, "note")
    missing = partialmethod(finding, "missing")
    broken = partialmethod(finding, "broken")


_COMPOSE = {
    "-v": "volumes",
    "--group-add": "group_add",
    "--security-opt": "security_opt",
}


def docker(option: str, value: str) -> str:
    """Return the argument that gives something to a container, for Docker and for compose.

    >>> docker("-v", "/sys:/sys:ro")
    'docker run -v /sys:/sys:ro; in compose volumes: ["/sys:/sys:ro"]'
    """
    key = _COMPOSE.get(option)
    compose = f"{option[2:]}: {value}" if key is None else f'{key}: ["{value}"]'
    return f"docker run {option} {value}; in compose {compose}"


@dataclass(frozen=True)
class Board:
    """The board as its files describe it; an unknown value is ``None``.

    Attributes:
        may_be_jetson: Whether it is a Jetson, or a container that may hide that it is one.
        model: Text of the device tree.
        dla_cores: Cores of a module of this kind.
        container: Evidence of a container; ``None`` outside of one.
    """

    is_jetson: bool
    may_be_jetson: bool = True
    model: str | None = None
    module: str | None = None
    dla_cores: int | None = None
    l4t: str | None = None
    container: str | None = None


def is_orin_nx(module: str | None) -> bool:
    """Return whether a module is an Orin NX of any size."""
    return module is not None and module.startswith("Orin NX")


# Only the kernel of a Jetson makes them; a container may have them without any other trace.
_JETSON_NODES = ("/dev/nvmap", "/dev/nvhost-*")
_JETSON_ARCHITECTURE = "aarch64"


def read_board(machine: Machine) -> Board:
    """Return the board, by its device tree and release file."""
    model = read_device_tree(machine.root, "model")
    compatible = read_device_tree(machine.root, "compatible")
    l4t = l4t_of(machine.text("/etc/nv_tegra_release"))
    module, cores = identify(compatible, model)
    container = _container_of(machine)
    is_jetson = module is not None or l4t is not None or "nvidia,tegra" in compatible
    has_other_gpu = NvmlSettings.has_driver(machine.root)
    may_hide_one = container is not None and machine.architecture == _JETSON_ARCHITECTURE
    return Board(
        is_jetson=is_jetson,
        may_be_jetson=is_jetson
        or bool(machine.find(*_JETSON_NODES))
        or (may_hide_one and not has_other_gpu),
        model=model or None,
        module=module,
        dla_cores=cores,
        l4t=l4t,
        container=container,
    )


def _container_of(machine: Machine) -> str | None:
    """Return the evidence that this is a container, or None."""
    for marker in ("/.dockerenv", "/run/.containerenv"):
        if machine.there(marker) == "there":
            return marker
    # Every container of a pod has it: "Accessing the API from a Pod", Kubernetes documentation.
    is_pod = "KUBERNETES_SERVICE_HOST" in machine.environ
    return machine.environ.get("container") or ("Kubernetes" if is_pod else None)


def ends_within(seconds: float, name: str, work: Callable[[], None]) -> bool:
    """Run work that does not raise in a thread; return whether it ended in time."""
    # A daemon thread: a read that blocks in the kernel must not keep the process from ending.
    thread = threading.Thread(target=work, name=f"doctor-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


@dataclass
class Context:
    """The machine, its task, and answers that several checks share.

    Attributes:
        config_problems: Errors of the file, one per line.
        probe: Returns the capabilities of TensorRT, found in a child process.
        telemetry_seconds: Limit for the first lines of tegrastats.
    """

    machine: Machine
    config: Config = field(default_factory=Config)
    config_path: Path | None = None
    config_problems: tuple[str, ...] = ()
    state_dir: Path = Path("/var/lib/tegrascope")
    probe: Callable[[], Capabilities] = lambda: probe(seconds=TENSORRT_SECONDS)
    board_seconds: float = 5.0
    telemetry_seconds: float = 5.0

    @cached_property
    def board(self) -> Board:
        """The board; an unknown one if its files do not answer in time."""
        boards: list[Board] = []
        ends_within(self.board_seconds, "board", lambda: boards.append(read_board(self.machine)))
        return boards[0] if boards else Board(is_jetson=False)

    @cached_property
    def tensorrt(self) -> Capabilities:
        """Capabilities of TensorRT on this machine."""
        return self.probe()

    @property
    def needs_tensorrt(self) -> bool:
        """Whether inference with TensorRT is to be expected here."""
        return self.board.is_jetson or any(map(uses_tensorrt, self.config.workloads))


def uses_tensorrt(workload: Workload) -> bool:
    """Return whether a workload runs on TensorRT."""
    return not workload.is_window and find_backend(workload.backend_in_force).uses_tensorrt

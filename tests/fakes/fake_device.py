"""The device behind the fake CUDA and the fake TensorRT: memory, time and what fails."""

import ctypes
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeDevice:
    """One GPU, with or without DLA cores; its time passes only when it works.

    Attributes:
        now_ns: Its clock.
        compute_ns: What an inference takes.
        copy_ns: What a copy takes.
        dla_cores: How many.
        free_bytes: Of its memory.
        failing: Name of a CUDA call to the name of the error it answers from now on.
        refuses_capture: Whether work cannot be captured in a graph.
        refuses_enqueue: Whether TensorRT fails to enqueue.
        spoils: Whether an inference zeroes the first bytes of its outputs.
        computes: Whether an engine computes its outputs, in int8 by the scales that it was built
            with, instead of copying its input.
        is_blind: Whether the scores that it computes, behind the four of a box, are all 0.
        cuda_version: Of its runtime.
        is_integrated: Whether it shares one memory with the host.
        concurrent_managed_access: Whether the host may touch managed memory that is the device's.
        owners: Address of memory that host and device both see to who may touch it: ``both`` if it
            is mapped; ``device`` or ``host`` if it is managed.
        at_work: Such memory of work that nobody waited for: what it has then, and what until then.
        layouts: Layout of a tensor at the edge of an engine, if it is not linear.
        calls: Names of all calls that a test may want to count.
    """

    now_ns: int = 0
    compute_ns: int = 300_000
    copy_ns: int = 10_000
    dla_cores: int = 0
    free_bytes: int = 8_000_000_000
    failing: dict[str, str] = field(default_factory=dict)
    refuses_capture: bool = False
    refuses_enqueue: bool = False
    spoils: bool = False
    computes: bool = False
    is_blind: bool = False
    cuda_version: int = 12060
    is_integrated: bool = True
    concurrent_managed_access: bool = False
    owners: dict[int, str] = field(default_factory=dict)
    at_work: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    captured: "list[object] | None" = None
    last_error: str = "cudaSuccess"
    memory: dict[int, Any] = field(default_factory=dict)
    contexts: list[Any] = field(default_factory=list)
    things: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)

    def allocate(self, size: int, *, on_device: bool) -> int:
        """Return the address of memory of the host, whichever was asked for."""
        block = ctypes.create_string_buffer(size)
        address = ctypes.addressof(block)
        self.memory[address] = block
        if on_device:
            self.free_bytes -= size
        return address

    def release(self, address: int) -> None:
        """Forget memory; a KeyError where it was never given, or given back already."""
        del self.memory[address]
        self.owners.pop(address, None)

    def work_on(self, inputs: list[int], outputs: list[int]) -> None:
        """Hide from the host what work wrote until it waits, and spoil what the host owned."""
        for address in (*inputs, *outputs):
            if address in self.owners:
                left = content = self.memory[address].raw
                if address in outputs:
                    left = b"?" * len(content)
                if self.owners[address] == "host" and not self.concurrent_managed_access:
                    self.failing["cudaStreamSynchronize"] = "cudaErrorIllegalAddress"
                self.memory[address].raw = left
                self.at_work[address] = (content, left)

    def wait(self) -> None:
        """Show what the work wrote; fail from now on if the host wrote there meanwhile."""
        for address, (content, left) in self.at_work.items():
            if self.memory[address].raw != left:
                self.failing["cudaStreamSynchronize"] = "cudaErrorIllegalAddress"
            self.memory[address].raw = content
        self.at_work.clear()

    def move(self, to: int, source: int, size: int) -> None:
        """Copy, and take time for it."""
        ctypes.memmove(to, source, size)
        self.now_ns += self.copy_ns

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
    layouts: dict[str, str] = field(default_factory=dict)
    captured: "list[object] | None" = None
    last_error: str = "cudaSuccess"
    memory: dict[int, object] = field(default_factory=dict)
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

    def move(self, to: int, source: int, size: int) -> None:
        """Copy, and take time for it."""
        ctypes.memmove(to, source, size)
        self.now_ns += self.copy_ns

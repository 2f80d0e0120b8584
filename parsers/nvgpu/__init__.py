"""Entries of the ring in which the GPU's driver nvgpu notes context switches.

Only the standard library, because the privileged reader uses it too. The form is that of the
public header. No board has confirmed it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import UserError

RING_HEADER = struct.Struct("<8I")
ENTRY = struct.Struct("<BBHIQQ")
MAGIC = 0x7000FADE
VERSION = 0

CONTEXT_START = 0x05
ENGINE_RESET = 0xFE
# The old context has stopped: it acknowledged that in one of five ways, or is saved.
STOPS = frozenset((0x02, 0x03, 0x0A, 0x0B, 0x0C, 0x0D))
# A frame begins, the host asks for a switch, or the new context is being restored.
MOMENTS = frozenset((0x00, 0x01, 0x04))


class SwitchEntry(NamedTuple):
    """One entry of the ring.

    Attributes:
        vm: Virtual machine of the process; 0 on a board without them.
        number: Of the entry, modulo 65536. A lost entry has a number too.
        context: Identifier of the GPU context that stops or starts.
        process: Number of the process that owns it.
        at_ns: The GPU's own clock.
    """

    tag: int
    vm: int
    number: int
    context: int
    process: int
    at_ns: int


def check_header(data: bytes) -> int:
    """Return how many entries the driver has dropped, or raise ``UserError`` for another ring.

    Source:
        ``struct nvgpu_ctxsw_ring_header`` of ``include/uapi/linux/nvgpu.h``, L4T R28 to R36.
    """
    magic, version, _, entry_bytes, dropped, *_ = RING_HEADER.unpack(data)
    if (magic, version, entry_bytes) != (MAGIC, VERSION, ENTRY.size):
        what = f"magic {magic:#x}, version {version}, entries of {entry_bytes} bytes"
        raise UserError(
            f"the driver's ring of context switches has an unknown form: {what}",
            "remove telemetry.gpu_trace on this release, and report these numbers",
        )
    return int(dropped)


def parse_entries(data: bytes) -> Iterator[SwitchEntry]:
    """Yield the entries of a read; the driver returns whole ones.

    Source:
        ``struct nvgpu_ctxsw_trace_entry`` of the same header.

    >>> [entry] = parse_entries(ENTRY.pack(CONTEXT_START, 0, 7, 3, 4711, 1000))
    >>> entry.process, entry.at_ns
    (4711, 1000)
    """
    whole = len(data) - len(data) % ENTRY.size
    return map(SwitchEntry._make, ENTRY.iter_unpack(data[:whole]))

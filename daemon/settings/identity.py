"""Ids of runs and boots."""

import os
import time
import uuid
from pathlib import Path


def new_run_id() -> str:
    """Return a UUIDv7 (RFC 9562): its first 48 bits are the wall time in milliseconds.

    Ids sort by creation time as long as the wall clock does not step.
    """
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))


def boot_id(root: Path = Path("/proc")) -> str:
    """Return the kernel's id of this boot, or an empty string."""
    try:
        return (root / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""

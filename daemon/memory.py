"""Keeps the daemon small: what Python frees goes back to the system, not into a hoard.

The C library gives each thread a heap of its own and keeps what is freed in it. With a handful of
threads that mostly wait, that is a few MiB for nothing.
"""

import contextlib
import ctypes
import gc

_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Have all threads use one heap; call it before the first thread starts.

    Does nothing with a C library that knows no such thing (musl).
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return freed memory to the system."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)

"""What systemd is told between READY and STOPPING: that the daemon lives, and how it does.

A watchdog restarts. So it is fed for as long as a restart could mend nothing, and starved when it
could: when telemetry that this very process has had is gone, or when the store asks for it. A
board that never gave a sample is not restarted every minute for it; it says so in its status.
"""

import os
import socket
from collections.abc import Callable


def tell_systemd(*assignments: str) -> bool:
    """Send assignments such as ``READY=1`` or ``STATUS=…``.

    Returns:
        Whether systemd listens; without ``NOTIFY_SOCKET`` nothing is sent.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto("\n".join(assignments).encode(), address)
        except OSError:
            return False
    return True


def watchdog_seconds() -> float | None:
    """Return within what time systemd wants to hear of this process; ``None`` where it does not."""
    said, whose = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if whose not in (None, str(os.getpid())) or not said.isdecimal() or int(said) == 0:
        return None
    return int(said) / 1e6


class Watchdog:
    """Fed by the thread that keeps house, so that one that hangs feeds it no more."""

    def __init__(self, seconds: float | None, tell: Callable[..., object] = tell_systemd) -> None:
        """Prepare.

        Args:
            seconds: systemd's limit; ``None`` where it has none.
            tell: Where words go.
        """
        self._period_ns = None if seconds is None else round(seconds / 2 * 1e9)
        self._tell = tell
        self._fed_ns: int | None = None
        self._status = ""
        self._had_telemetry = False

    def look(
        self, now_ns: int, *, telemetry: str | None, store_wants_restart: bool, status: str
    ) -> None:
        """Feed it if it is time and if all is well; tell the status if it is another one.

        Args:
            now_ns: CLOCK_MONOTONIC.
            telemetry: Why there are no fresh samples of this machine; ``None`` where there are,
                or where the source may end by itself.
            store_wants_restart: Whether only a restart can make the store write again.
            status: For ``systemctl status``.
        """
        if telemetry is None:
            self._had_telemetry = True
        if status != self._status:
            self._status = status
            self._tell(f"STATUS={status}")
        if self._period_ns is None or store_wants_restart:
            return
        if telemetry is not None and self._had_telemetry:
            return
        if self._fed_ns is None or now_ns - self._fed_ns >= self._period_ns:
            self._fed_ns = now_ns
            self._tell("WATCHDOG=1")

"""Messages to systemd between READY and STOPPING: watchdog and status.

A missed watchdog restarts the daemon. So it is reset, except when a restart can help: if telemetry
that this process had has stopped, or if the store needs a restart. A board that never gave a sample
is not restarted every minute; the status reports it.
"""

import os
import socket
from collections.abc import Callable


def notify_systemd(*assignments: str) -> bool:
    """Send assignments such as ``READY=1``, and return whether systemd receives them."""
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
    """Return systemd's watchdog limit for this process, or ``None``."""
    limit, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if pid not in (None, str(os.getpid())) or not limit.isdecimal() or int(limit) == 0:
        return None
    return int(limit) / 1e6


class Watchdog:
    """Reset by the housekeeping thread, so that a hang of that thread is detected."""

    def __init__(self, seconds: float | None, send: Callable[..., object] = notify_systemd) -> None:
        """Prepare; ``seconds`` is systemd's limit, if it has one."""
        self._period_ns = None if seconds is None else round(seconds / 2 * 1e9)
        self._send = send
        self._fed_ns: int | None = None
        self._status = ""
        self._had_telemetry = False

    def look(
        self, now_ns: int, *, telemetry: str | None, store_wants_restart: bool, status: str
    ) -> None:
        """Reset the watchdog if it is time and all is well; send the status if it changed.

        Args:
            now_ns: CLOCK_MONOTONIC.
            telemetry: Why new samples of this machine are missing; ``None`` if they are not, or
                if the source may end by itself.
            store_wants_restart: Whether only a restart makes the store write again.
            status: For ``systemctl status``.
        """
        if telemetry is None:
            self._had_telemetry = True
        if status != self._status:
            self._status = status
            self._send(f"STATUS={status}")
        if self._period_ns is None or store_wants_restart:
            return
        if telemetry is not None and self._had_telemetry:
            return
        if self._fed_ns is None or now_ns - self._fed_ns >= self._period_ns:
            self._fed_ns = now_ns
            self._send("WATCHDOG=1")

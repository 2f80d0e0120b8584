"""Words to systemd, by the protocol of sd_notify(3)."""

import os
import socket


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

"""What the small programs of root have in common, which print lines for the daemon.

Only the standard library is used.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Callable, Collection

from ...parsers.errors import UserError
from .process import READ_SIZE

# Exit status: there is nothing to read on this machine, or this user may not.
UNAVAILABLE = 3
# Data this close to each other is read at once; this bounds its delay and our work.
GATHER_SECONDS = 0.02
# A client that takes nothing for so long loses its connection. The kernel's buffer is full sooner.
CLIENT_SECONDS = 10.0
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def run_reader(title: str, read: Callable[[int], None], refusal: Callable[[UserError], str]) -> int:
    """Let a reader print to standard output until it ends or is ended; return the exit status.

    Args:
        title: Begins the line in the journal that says why there is nothing to read.
        read: Prints to a descriptor that does not block, or raises ``UserError``.
        refusal: Returns the line for the daemon that says it.
    """
    for number in _ENDING:
        signal.signal(number, signal.default_int_handler)
    out = sys.stdout.fileno()
    was_blocking = os.get_blocking(out)
    os.set_blocking(out, False)
    try:
        read(out)
    except UserError as error:
        # The journal has it as well, and a client that does not read is not waited for again.
        with contextlib.suppress(OSError, UserError):
            print_lines(out, [refusal(error)], client_seconds=0.0)
        print(f"{title}: {error}", file=sys.stderr)
        return UNAVAILABLE
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        pass
    finally:
        with contextlib.suppress(OSError):  # the terminal's other programs share this setting
            os.set_blocking(out, was_blocking)
    return 0


def read_available(pipe: int) -> bytes:
    """Return all data that is available now, up to a bound; raise ``UserError`` at its end."""
    data = b""
    while len(data) < 4 * READ_SIZE:
        try:
            more = os.read(pipe, READ_SIZE)
        except BlockingIOError:
            return data
        if not more:
            if data:  # the next reading reports the end
                return data
            raise UserError("the trace has ended", "nothing: it is begun again")
        data += more
    return data


def print_lines(out: int, lines: Collection[str], client_seconds: float = CLIENT_SECONDS) -> None:
    """Print lines; a client that takes nothing for ``client_seconds`` is a ``UserError``."""
    rest = memoryview("".join(f"{line}\n" for line in lines).encode())
    writable = select.poll()
    writable.register(out, select.POLLOUT)
    while rest:
        try:
            rest = rest[os.write(out, rest) :]
        except BlockingIOError:
            # This program holds the only trace, so a client that hangs must not keep it.
            if not writable.poll(client_seconds * 1000):
                what = f"the client reads nothing for {client_seconds:g} s"
                raise UserError(
                    what, "nothing: it is disconnected, and can connect again"
                ) from None

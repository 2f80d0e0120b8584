"""Work that may never come back, given a time in which to do so."""

import threading
from collections.abc import Callable


def finishes(work: Callable[[], None], seconds: float, name: str) -> bool:
    """Do some work in a thread of its own; say whether it was done in time.

    Args:
        work: Must not raise.
        seconds: How long it is waited for.
        name: Of the thread.
    """
    # A daemon thread: what the kernel never gives back must not keep us from ending.
    thread = threading.Thread(target=work, name=f"doctor-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()

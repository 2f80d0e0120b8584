"""What TensorRT says while it works: the only place where it tells why it returned ``None``."""

import re
import sys
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

# A build says hundreds of lines; its last ones, and those about layers, are what is needed.
_LINES_AT_MOST = 4000
_LETTERS = {"INTERNAL_ERROR": "E", "ERROR": "E", "WARNING": "W", "INFO": "I", "VERBOSE": "V"}
# Of what it says when talkative, only the layers of the finished engine are of use.
_KEPT_OF_VERBOSE = "Layer("
_NOISE = re.compile(r"^\[E\] (?:\d+: )?|\(?\[?[\w./]+\.(?:cpp|h)::\S+::\d+\]\)? ?")


class LogLines:
    """Lines of the library, each with ``[E]``, ``[W]`` or ``[I]`` in front, as they come.

    The library may speak from threads of its own; appending to a deque is safe from any.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES_AT_MOST)

    def clear(self) -> None:
        """Forget all that was said."""
        self._lines.clear()

    def all(self) -> tuple[str, ...]:
        """Return what was said, in order."""
        return tuple(self._lines)

    def take(self, severity: str, message: str) -> None:
        """Keep one message; warnings and errors also go to standard error."""
        letter = _LETTERS.get(severity, "I")
        if letter == "V" and not message.startswith(_KEPT_OF_VERBOSE):
            return
        for line in message.splitlines():
            self._lines.append(f"[{letter}] {line}")
            if letter in "EW":
                print(f"TensorRT: [{letter}] {line}", file=sys.stderr)


@lru_cache(maxsize=4)
def logger_of(trt: Any) -> tuple[Any, LogLines]:
    """Return the one logger of this process for a TensorRT module, and what it collects.

    TensorRT keeps the first logger that it is given for as long as the process lives.
    """
    lines = LogLines()

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, message: str) -> None:
            try:
                lines.take(getattr(severity, "name", str(severity)), message)
            except Exception as error:  # it is called from C++, which an exception would end
                print(f"TensorRT: a line was lost ({error})", file=sys.stderr)

    return Logger(), lines


def reason_in(lines: Iterable[str]) -> str:
    """Return the last error that was said, without its place in the sources.

    >>> reason_in(["[I] begin", "[E] 4: [network.cpp::validate::3062] Error Code 4: No outputs."])
    'Error Code 4: No outputs.'
    """
    errors = [line for line in lines if line.startswith("[E]")]
    return _NOISE.sub("", errors[-1]).strip() if errors else "its log gives no reason"

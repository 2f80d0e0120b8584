"""Lines of a Unix socket that a unit answers, connected again for ever."""

from pathlib import Path

from .base import SYSTEM_CLOCK, Clock
from .line_socket import LineSocket
from .process import Quiet
from .process_source import Peer, ProcessSource


class SocketLines(ProcessSource):
    """What a privileged unit prints for each connection, with the pauses of ``ProcessSource``.

    Unlike ``SocketSource`` it has nothing to do without: where there is no socket, there are no
    lines, and ``problem`` says so.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        silence_seconds: float,
        clock: Clock = SYSTEM_CLOCK,
        backoff_seconds: tuple[float, float] = (0.5, 30.0),
    ) -> None:
        """Prepare; nothing is connected before ``lines``.

        Args:
            path: The socket; its unit is called ``tegrascope-`` and its name.
            name: Label value.
            silence_seconds: How long there may be no line.
            clock: Where stamps come from and pauses go to.
            backoff_seconds: First and longest pause before a connection.
        """
        super().__init__(
            (str(path),),
            interval_seconds=silence_seconds / 5,
            name=name,
            clock=clock,
            backoff_seconds=backoff_seconds,
            silence_seconds=silence_seconds,
        )
        self._path = path

    def _open(self) -> Peer:
        return LineSocket(self._path, clock=self._clock)

    def _obituary(self, why: Quiet, child: Peer) -> str:  # noqa: ARG002
        silent = f"gave nothing for {self._silence_seconds:g} s"
        found = silent if why is Quiet.TIMEOUT else "was closed by the other end"
        unit = f"journalctl -u 'tegrascope-{self._path.stem}@*' may say why"
        return f"{self._path} {found}: it is being connected again ({unit})"

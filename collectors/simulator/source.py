"""The simulated board as a source of lines, in the form in which tegrastats of R36 prints them."""

import random
import threading
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field, NonNegativeInt

from ...parsers.errors import Mendable
from ...parsers.tegrastats import render_line
from ..base import SYSTEM_CLOCK, Clock, Stamped
from ..lines.collector import Opening, SourceSettings, TegrastatsCollector
from .board import SimulatedBoard
from .load import LoadBoard, LoadChange
from .physics import board_model

READ_SECONDS = (0.006, 0.022)


class SimulatorSource:
    """Lines of a simulated board, at the times at which tegrastats would print them.

    As tegrastats does, it sleeps for an interval, reads the sensors and prints; so a line comes a
    reading's 6 to 22 ms after the interval, and describes the moment before the reading.
    """

    name = "simulator"
    is_live = False
    restarts = 0
    problem: str | None = None

    def __init__(
        self,
        board: str = "agx-orin-64gb",
        *,
        load: LoadBoard | None = None,
        interval_seconds: float = 1.009,
        privileged: bool = True,
        seed: int = 0,
        has_swap: bool = True,
        schedule: Sequence[LoadChange] = (),
        read_seconds: tuple[float, float] = READ_SECONDS,
        most_pieces: int = 65_536,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Switch the board on.

        Args:
            board: ``agx-orin-64gb``, ``orin-nx-16gb`` or ``orin-nano-8gb``.
            seed: The same seed, loads and clock give the same bytes.
            schedule: Loads that begin by themselves, from the first call of ``lines`` on.
            clock: The time; ``JumpClock`` for lines without waiting.

        Raises:
            Mendable: The board is unknown, or the schedule names a lane that it lacks.
        """
        model = board_model(board)
        for change in schedule:
            if change.lane not in model.lanes:
                raise Mendable(
                    f"{board} has no lane {change.lane!r}", f"use one of {', '.join(model.lanes)}"
                )
        self.interval_seconds: float | None = interval_seconds
        self._interval_ns = round(interval_seconds * 1e9)
        self._read_seconds = read_seconds
        self._schedule = schedule
        self._clock = clock
        self._chance = random.Random(f"{board} {seed} pace")
        self._stopping = threading.Event()
        self.board = SimulatedBoard(
            model,
            LoadBoard() if load is None else load,
            begin_ns=clock.monotonic_ns(),
            privileged=privileged,
            seed=seed,
            has_swap=has_swap,
            most_pieces=most_pieces,
        )

    def lines(self) -> Iterator[Stamped[str]]:
        """Yield a line per interval until ``stop``."""
        printed_ns = self._clock.monotonic_ns()
        for at_seconds, lane, ratio in self._schedule:
            self.board.load.set(lane, ratio, printed_ns + round(at_seconds * 1e9))
        self._schedule = ()
        while True:
            reading_ns = round(self._chance.uniform(*self._read_seconds) * 1e9)
            self._clock.wait(self._stopping, printed_ns + self._interval_ns + reading_ns)
            if self._stopping.is_set():
                return
            printed_ns, wall_ns = self._clock.monotonic_ns(), self._clock.wall_ns()
            sample = self.board.read(printed_ns - reading_ns, wall_ns - reading_ns)
            yield Stamped(printed_ns, wall_ns, render_line(sample))

    def stop(self) -> None:
        """End ``lines``; from another thread, and more than once."""
        self._stopping.set()


class JumpClock:
    """A clock that never waits: waiting until a time makes it that time.

    >>> source = SimulatorSource(clock=JumpClock(), interval_seconds=1.0)
    >>> lines = source.lines()
    >>> round((-next(lines).monotonic_ns + next(lines).monotonic_ns) / 1e9, 1)
    1.0
    """

    def __init__(self, monotonic_ns: int = 0, wall_ns: int = 1_767_225_600_000_000_000) -> None:
        self._now_ns = monotonic_ns
        self._wall_offset_ns = wall_ns - monotonic_ns

    def monotonic_ns(self) -> int:
        """Return the time of the last jump."""
        return self._now_ns

    def wall_ns(self) -> int:
        """Return the wall time of the last jump."""
        return self._now_ns + self._wall_offset_ns

    def boottime_ns(self) -> int:
        """Return the same as ``monotonic_ns``: there is no suspend."""
        return self._now_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        """Jump to that time."""
        self._now_ns = max(self._now_ns, until_ns)
        return event.is_set()


class SimulatorSettings(SourceSettings):
    """The simulated board."""

    is_simulated = True

    board: Literal["agx-orin-64gb", "orin-nx-16gb", "orin-nano-8gb"] = "agx-orin-64gb"
    privileged: bool = Field(True, description="print what tegrastats prints as root")
    seed: NonNegativeInt = 0

    @property
    def board_name(self) -> str:
        """The board."""
        return self.board

    def summary(self) -> str:
        """Return which board is simulated."""
        return f"simulated {self.board}"

    def open(self, opening: Opening) -> TegrastatsCollector:
        """Return the samples of the board under the load of ``opening``."""
        source = SimulatorSource(
            self.board,
            load=opening.load if isinstance(opening.load, LoadBoard) else None,
            interval_seconds=opening.interval_seconds,
            privileged=self.privileged,
            seed=self.seed,
            most_pieces=2,  # the daemon never reads the truth of the board
            clock=opening.clock,
        )
        return TegrastatsCollector(source)

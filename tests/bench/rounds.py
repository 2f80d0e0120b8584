"""Contenders run in turns, so that what slows the machine down slows all of them down."""

import gc
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass
class Contender:
    """A way to go through lines.

    Attributes:
        name: For the table.
        run: Goes through them once; gives back how many it understood.
        lines: How many there are.
        understood: What ``run`` must give back; a contender that leaves lines out is not timed.
        wall: Seconds of each round.
        cpu: Seconds of processor time of each round, of all threads and ended children.
    """

    name: str
    run: Callable[[], int]
    lines: int
    understood: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def rates(self, *, wall: bool = False) -> list[float]:
        """Return the lines a second of each round: of one core, or by the clock on the wall."""
        return [self.lines / seconds for seconds in (self.wall if wall else self.cpu)]


@dataclass(frozen=True)
class Ratio:
    """How two contenders compare, round by round.

    Attributes:
        middle: The median of the rounds.
        least: Of the worst round.
        most: Of the best round.
    """

    middle: float
    least: float
    most: float


class LeftOutError(Exception):
    """A contender understood too few lines, or too many."""


def play(contenders: Sequence[Contender], rounds: int) -> None:
    """Run all contenders so many times in turns: A B C, A B C."""
    for _ in range(rounds):
        for contender in contenders:
            # Garbage is collected while they run, as it would be; nobody pays for another's.
            gc.collect()
            wall, cpu = time.perf_counter(), _cpu_seconds()
            understood = contender.run()
            contender.cpu.append(_cpu_seconds() - cpu)
            contender.wall.append(time.perf_counter() - wall)
            if understood != contender.understood:
                raise LeftOutError(
                    f"{contender.name}: {understood} lines, not {contender.understood}"
                )


def ratio(one: Contender, other: Contender, *, wall: bool = False) -> Ratio:
    """Compare lines a second; each round with itself."""
    pairs = zip(one.rates(wall=wall), other.rates(wall=wall), strict=True)
    ratios = [mine / theirs for mine, theirs in pairs]
    return Ratio(median(ratios), min(ratios), max(ratios))


def _cpu_seconds() -> float:
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime

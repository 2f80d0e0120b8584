"""Busy time of the DLA by process, against traces whose owners are known."""

import random
from collections import Counter, deque
from collections.abc import Iterator
from math import fsum

import pytest

from tegrascope.collectors.dla.tasks import MOST_SUBMITTERS, DlaTasks
from tegrascope.parsers.dla import Ended, Submitted, parse_trace_line

HERTZ = 31_250_000
NANOSECOND = 1e-9
Line = tuple[str, "str | None", int]


def submit(task: int, core: int, at: float, thread: str, pid: int, group: str = "") -> str:
    return (
        f"{thread:>16}-{pid:<7} {group}[003] ..... {at:.6f}: job_submit: 15880000.nvdla{core} "
        f"class=f{3 + core} id={task} fences=1 ts={round((at - 10) * HERTZ)}"
    )


def end(task: int, begin: float, until: float) -> str:
    ticks = [round((one - 10) * HERTZ) for one in (begin, until)]
    return (
        f"   kworker/1:0-55      [001] ..... {until + 2e-5:.6f}: job_timestamps: job_id={task} "
        f"begin={ticks[0]} end={ticks[1]}"
    )


def world(seed: int, seconds: float, per_second: int) -> Iterator[Line]:
    """Yield lines with the true owner and busy ticks of each end, in the order of their times.

    The trace does not know the thread ``<...>``, so its tasks are those of ``other``.

    Each core takes its tasks one after the other, and numbers them by itself with few numbers, so
    that both cores often have a task of one number in flight.
    """
    draw = random.Random(seed)
    owners = ("detector", "segmenter", "weird name-12 [0]", "python3", "<...>")
    events: list[tuple[float, int, str, str | None, int]] = []
    for core in (0, 1):
        free_at, at, number = 10.0, 10.0, 0
        in_flight: deque[float] = deque()
        while at < 10.0 + seconds:
            at += draw.expovariate(per_second / 2)
            while in_flight and in_flight[0] < at:
                in_flight.popleft()
            if len(in_flight) == 8:
                continue
            owner, number = draw.choice(owners), (number + 1) % 16
            begin = max(at, free_at) + 3e-6
            until = free_at = begin + draw.uniform(1e-4, 1.2 / per_second)
            in_flight.append(until)
            at, begin, until = round(at, 6), round(begin, 6), round(until, 6)
            ticks = round((until - 10) * HERTZ) - round((begin - 10) * HERTZ)
            text = submit(number, core, at, owner, 100 + owners.index(owner))
            events.append((at, core, text, None, 0))
            known = "other" if owner == "<...>" else owner
            events.append((until + 2e-5, core, end(number, begin, until), known, ticks))
    for _, _, text, owner, ticks in sorted(events):
        yield text, owner, ticks


class Judge:
    """Takes a trace, and holds each task that it ends against its owner.

    Attributes:
        counted: Ticks by owner, of tasks that counted for the owner; ``other`` has the rest.
        truth: Ticks by owner, of all tasks that ended in the trace.
        wrong: Tasks of which a part counted for anybody else.
    """

    def __init__(self) -> None:
        self.tasks = DlaTasks(HERTZ)
        self.counted: Counter[str] = Counter()
        self.truth: Counter[str] = Counter()
        self.named = self.wrong = 0
        self._seen: Counter[str] = Counter()

    def take(self, text: str, owner: "str | None" = None, ticks: int = 0) -> None:
        """Take a line; one that ends a task has an owner."""
        self.tasks.take(parse_trace_line(text))
        if owner is None:
            return
        now: Counter[str] = Counter()
        for by_name in self.tasks.busy_seconds_by_submitter().values():
            now.update({name: round(seconds * HERTZ) for name, seconds in by_name.items()})
        grown = now - self._seen
        self.truth[owner] += ticks
        self.counted.update(grown)
        self.named += grown.keys() == {owner}
        self.wrong += bool(grown.keys() - {owner, "other"})
        self._seen = now

    def differences_seconds(self) -> list[float]:
        """Return for each core by how much its submitters differ from its busy time."""
        busy, by_core = self.tasks.busy_seconds(), self.tasks.busy_seconds_by_submitter()
        return [abs(fsum(by_core[core].values()) - busy[core]) for core in busy]


@pytest.mark.parametrize("seed", range(3))
def test_every_task_of_a_whole_trace_counts_for_its_submitter(seed):
    judge = Judge()
    for line in world(seed, seconds=5, per_second=2000):
        judge.take(*line)
    tasks, truth = judge.tasks, judge.truth
    assert judge.wrong == 0
    assert max(judge.differences_seconds()) < NANOSECOND / 2
    assert sum(tasks.tasks().values()) > 9000
    assert set(tasks.troubles) <= {"ambiguous"}
    assert tasks.troubles["ambiguous"] < 0.03 * sum(tasks.tasks().values())
    # An unknown owner is ``other``, and so is an ambiguous task.
    assert truth["other"] <= judge.counted["other"] < truth["other"] + 0.02 * truth.total()
    # An ambiguous task may hide time of the other core, and never adds any.
    assert truth.total() * 0.999 < judge.counted.total() <= truth.total()


@pytest.mark.parametrize("seed", range(6))
def test_task_after_lost_events_counts_for_its_submitter_or_for_other(seed):
    draw = random.Random(seed)
    judge = Judge()
    skip = 0
    for number, line in enumerate(world(100 + seed, seconds=6, per_second=2000)):
        if number % 4000 == 3999:
            skip = draw.randint(1, 60)
        if skip:
            skip -= 1
            if not skip:
                judge.take("CPU:3 [LOST 12 EVENTS]")
            continue
        judge.take(*line)
    assert judge.wrong == 0
    assert max(judge.differences_seconds()) < NANOSECOND / 2
    assert judge.named > 1500
    assert judge.tasks.troubles["lost"]


def test_process_of_a_thread_is_named_where_the_trace_has_it():
    text = submit(1, 0, 12.0, "TRT worker-1 [x]", 4711, group="(   4700) ")
    found = parse_trace_line(text)
    assert isinstance(found, Submitted)
    assert (found.thread, found.process) == ("TRT worker-1 [x]", 4700)
    unknown = parse_trace_line(submit(1, 0, 12.0, "<...>", 4711, group="(-------) "))
    assert isinstance(unknown, Submitted)
    assert (unknown.thread, unknown.process) == (None, 4711)


def test_submitters_beyond_the_limit_share_one_name():
    tasks = DlaTasks(HERTZ)
    for number in range(3 * MOST_SUBMITTERS):
        begin, until = (number + 1) * HERTZ, (number + 1) * HERTZ + 1000
        tasks.take(Submitted(number * 10**9, number, 0, begin - 10, f"program{number}", number))
        tasks.take(Ended(number * 10**9 + 5, number, begin, until))
    by_name = tasks.busy_seconds_by_submitter()[0]
    assert len(by_name) == MOST_SUBMITTERS + 1
    assert by_name["other"] == pytest.approx(2 * MOST_SUBMITTERS * 1000 / HERTZ)

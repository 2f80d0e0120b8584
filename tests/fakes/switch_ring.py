"""A GPU that processes share, with known owners of its time, and what its driver notes of that."""

import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tegrascope.collectors.gpu.switches import ContextTimes
from tegrascope.parsers.nvgpu import (
    CONTEXT_START,
    ENGINE_RESET,
    ENTRY,
    MAGIC,
    RING_HEADER,
    SwitchEntry,
)

REQUEST, SAVE_END, RESTORE_START = 0x01, 0x03, 0x04
WAYS_TO_STOP = (0x02, 0x0A, 0x0B, 0x0C, 0x0D)
S = 1_000_000_000
# The driver looks so often for what the GPU has noted.
_LOOK_NS = S // 60


def header(
    dropped: int = 0, *, magic: int = MAGIC, version: int = 0, entry_bytes: int = 24
) -> bytes:
    """Return the header of a ring of 8191 entries, as long as it is mapped."""
    fields = RING_HEADER.pack(magic, version, 8191, entry_bytes, dropped, 0, 0, 0)
    return fields.ljust(4096, b"\0")


def packed(*entries: SwitchEntry) -> bytes:
    """Return entries as a read of the ring gives them."""
    return b"".join(ENTRY.pack(*entry) for entry in entries)


class Stretch(NamedTuple):
    """A context that is on the GPU, by the GPU's clock."""

    process: int
    context: int
    begin_ns: int
    end_ns: int


@dataclass
class SharedGpu:
    """Processes take turns on a GPU; there are idle times, and switches that cost time.

    Attributes:
        truth_ns: How long each process was on the GPU.
        entries: What the driver notes, in order, each with its true time; a lost one is missing.
        dropped_at_ns: When an entry found no place.
    """

    seed: int
    seconds: float = 30.0
    loss: str | None = None
    processes: int = 4
    truth_ns: Counter[int] = field(default_factory=Counter)
    entries: list[tuple[int, SwitchEntry]] = field(default_factory=list)
    dropped_at_ns: list[int] = field(default_factory=list)
    losses: int = 0

    def __post_init__(self) -> None:
        """Play it."""
        self._dice = random.Random(self.seed)
        self.origin_ns = self._dice.randrange(10**15)
        # The number of the entries wraps within each of these worlds.
        self._number = 65_400 + self._dice.randrange(130)
        before: Stretch | None = None
        for stretch in self._stretches():
            self.truth_ns[stretch.process] += stretch.end_ns - stretch.begin_ns
            self._switch(before, stretch)
            before = stretch
        self._switch(before, None)

    def _stretches(self) -> Iterator[Stretch]:
        at_ns = self.origin_ns + 50_000_000
        until_ns = self.origin_ns + round(self.seconds * S)
        weights = [self._dice.random() + 0.1 for _ in range(self.processes)]
        while at_ns < until_ns:
            process = self._dice.choices(range(self.processes), weights)[0]
            longest_ns = self._dice.choice((500_000, 5_000_000, 80_000_000))
            end_ns = at_ns + self._dice.randrange(20_000, longest_ns)
            # One process may have two contexts.
            context = 100 + 2 * process + self._dice.randrange(2)
            yield Stretch(4700 + process, context, at_ns, min(end_ns, until_ns))
            at_ns = end_ns + self._dice.choice((30_000, 60_000, 4_000_000))

    def _switch(self, old: Stretch | None, new: Stretch | None) -> None:
        """Note a switch from one context to the next, which may be the same after an idle time.

        Nothing is noted for the side of a switch that has no context.
        """
        if self.loss == "record" and self._loses():
            return
        if old is not None:
            self._note(REQUEST, old, old.end_ns - 10_000)
            if self.loss == "unknown" and self._loses():
                self._note(0x7B, old, old.end_ns)
            else:
                self._note(self._dice.choice(WAYS_TO_STOP), old, old.end_ns)
            self._note(SAVE_END, old, old.end_ns + 8_000)
        if new is None:
            return
        if self.loss == "reset" and self._loses():
            reset = Stretch(new.process, 0, new.begin_ns, new.end_ns)
            self._note(ENGINE_RESET, reset, new.begin_ns - 5_000)
        self._note(RESTORE_START, new, new.begin_ns - 9_000)
        error_ns = 0
        if self.loss == "clock" and self._loses():
            error_ns = self._dice.choice((-3 * S, 30 * S))
        self._note(CONTEXT_START, new, new.begin_ns, error_ns)

    def _loses(self) -> bool:
        has_lost = self._dice.random() < 0.01
        self.losses += has_lost
        return has_lost

    def _note(self, tag: int, of: Stretch, at_ns: int, error_ns: int = 0) -> None:
        number, printed_ns = self._number % 65_536, at_ns + error_ns
        entry = SwitchEntry(tag, 0, number, of.context, of.process, printed_ns)
        self._number += 1
        # A ring that is full loses some entries in a row.
        burst = bool(self.dropped_at_ns) and self.dropped_at_ns[-1] + 20_000_000 > at_ns
        is_lost = self.loss == "drop" and (burst or self._loses())
        if is_lost and self._dice.random() < 0.95:
            self.dropped_at_ns.append(at_ns)
            return
        self.entries.append((at_ns, entry))


class Counted(NamedTuple):
    """What was counted of a world: nanoseconds by process, and troubles by reason."""

    process_ns: Counter[int]
    troubles: Counter[str]
    seconds: float


def count(gpu: SharedGpu) -> Counted:
    """Read a world as the reader does, in the time of the world."""
    our_origin_ns = 77 * S

    def gpu_time(now_ns: int) -> int:
        """Return the GPU's time; its clock and ours differ by 20 ppm."""
        return gpu.origin_ns + round((now_ns - our_origin_ns) * 1.00002)

    times = ContextTimes(our_origin_ns)
    process_ns: Counter[int] = Counter()
    troubles: Counter[str] = Counter()
    waiting = deque(gpu.entries)
    now_ns, due_ns, dropped = our_origin_ns, our_origin_ns, 0
    dice = random.Random(gpu.seed)
    end_ns = our_origin_ns + round((gpu.seconds + 1.1) * S)
    while now_ns < end_ns:
        now_ns += 20_000_000 + dice.randrange(8_000_000)
        is_due = now_ns >= due_ns
        seen_ns = gpu_time(now_ns)
        if not is_due:
            seen_ns -= seen_ns % _LOOK_NS
        while waiting and waiting[0][0] <= seen_ns:
            times.take(waiting.popleft()[1], now_ns)
        if not is_due:
            continue
        due_ns += 1_009_000_000
        lost = sum(at_ns <= seen_ns for at_ns in gpu.dropped_at_ns)
        if lost != dropped:
            dropped = lost
            times.doubt()
        process_ns.update(times.flush(now_ns)[1])
        troubles.update(times.troubles)
        times.troubles.clear()
    return Counted(process_ns, troubles, (now_ns - our_origin_ns) / 1e9)

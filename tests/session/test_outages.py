"""Faults that last: one bad item costs one row, and a problem that repeats is a few log lines."""

import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import tegrascope.collectors
import tegrascope.daemon.export
import tegrascope.daemon.session
from tegrascope.collectors.base import Companion, Stamped, SystemClock
from tegrascope.collectors.board.readers import KernelFile, Reading, Value
from tegrascope.collectors.board.sysfs import RailCompanion, SysfsCompanion
from tegrascope.collectors.dla.tasks import DlaTraceCompanion
from tegrascope.collectors.gpu.contexts import GpuTraceCompanion
from tegrascope.collectors.gpu.nvmap import MemoryCompanion
from tegrascope.collectors.gpu.nvml import NvmlCompanion
from tegrascope.collectors.lines.collector import LineCollector, TegrastatsCollector
from tegrascope.collectors.outages import OutageLog
from tegrascope.collectors.processes.names import ProcessNames
from tegrascope.collectors.processes.watch import ProcessWatch
from tegrascope.collectors.simulator.board import SimulatedKernel, SimulatorSource
from tegrascope.daemon.export.otlp import OtlpExport
from tegrascope.daemon.export.snapshot import LiveState, Snapshot
from tegrascope.daemon.measure.running_energy import EnergyCounters
from tegrascope.daemon.measure.timeline import Timeline
from tegrascope.daemon.session.telemetry import TelemetryFeed
from tegrascope.daemon.settings.config import Otlp
from tegrascope.parsers.records import Sample
from tegrascope.parsers.signals import DLA_TASKS, FAN_SPEED, Column
from tegrascope.parsers.tegrastats import parse_line
from tests.fakes.processes import PATIENCE_SECONDS, until

S = 1_000_000_000
TIMES = 100


class HandClock(SystemClock):
    """A clock that the test sets; a pause that is not over lasts until its event is set."""

    def __init__(self) -> None:
        self.now_ns = 1000 * S

    def monotonic_ns(self) -> int:
        return self.now_ns

    boottime_ns = wall_ns = monotonic_ns

    def wait(self, event: threading.Event, until_ns: int) -> bool:
        return event.wait(0 if until_ns <= self.now_ns else PATIENCE_SECONDS)


class Lines:
    """A source of given lines."""

    name, is_live, restarts, problem, interval_seconds = "given", True, 0, None, 1.0

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self._lines = lines

    def lines(self) -> Iterator[Stamped[str]]:
        for line in self._lines:
            yield Stamped(0, 0, line)

    def stop(self) -> None:
        pass


class Feed:
    """A session's feed with one companion, and a sample each ten seconds of its clock."""

    def __init__(self, companion: Companion, clock: HandClock) -> None:
        self.clock = clock
        self.live = LiveState(Snapshot())
        self.feed = TelemetryFeed(
            TegrastatsCollector(Lines()),
            timeline=Timeline(),
            energy=EnergyCounters(),
            live=self.live,
            occupancy=lambda *_: {},
            companions=(companion,),
            clock=clock,
        )

    def take(self) -> None:
        self.clock.now_ns += 10 * S
        line = parse_line("RAM 936/3964MB (lfb 366x4MB) GR3D_FREQ 99%@921")
        self.feed.take(Stamped(self.clock.now_ns, self.clock.now_ns, line))


Provoked = tuple[Companion, Callable[[], object]]
"""A companion, and what makes it fail once more."""


def without_processes(root: Path, clock: HandClock) -> Provoked:
    looks = threading.Semaphore(0)
    watch = ProcessWatch(
        known=ProcessNames(root, clock=clock), on_look=lambda _: looks.release(), clock=clock
    )

    def look_again() -> None:
        assert looks.acquire(timeout=PATIENCE_SECONDS)
        watch.look_soon()

    return watch, look_again


class OddText:
    """A file whose text nobody thought of."""

    def __init__(self, path: Path) -> None:
        self.file = KernelFile(path)

    def take(self, text: str, now_ns: int) -> Iterator[Value]:
        raise ArithmeticError(f"{text} at {now_ns}")


def odd_files(root: Path) -> Iterator[Reading]:
    yield OddText(root / "odd")
    raise LookupError("a name that nobody thought of")


def with_odd_files(root: Path, clock: HandClock) -> Provoked:
    (root / "odd").write_text("7\n")
    companion = SysfsCompanion(root, clock=clock, finders=(odd_files,), timeout_seconds=60.0)
    return companion, lambda: None


def without_rails(root: Path, clock: HandClock) -> Provoked:
    class OddRails(RailCompanion):
        def columns(self) -> Mapping[Column, float]:
            raise OSError(f"read failed at {clock.now_ns}")

    return OddRails(root, clock=clock), lambda: None


def with_an_odd_board(root: Path, clock: HandClock) -> Provoked:  # noqa: ARG001
    class OddKernel(SimulatedKernel):
        def columns(self) -> Mapping[Column, float]:
            raise OSError(f"read failed at {clock.now_ns}")

    return OddKernel(SimulatorSource(clock=clock).board), lambda: None


def with_odd_gpu_processes(root: Path, clock: HandClock) -> Provoked:  # noqa: ARG001
    def name_of(pid: int) -> str:
        raise RuntimeError(f"no name for {pid}")

    lines = (
        f'{{"event": "processes", "at_ns": 1, "used_bytes": {{"{pid}": 5}}}}'
        for pid in range(TIMES)
    )
    return NvmlCompanion(Lines(lines), name_of=name_of, clock=clock), lambda: None


def with_odd_submitters(root: Path, clock: HandClock) -> Provoked:  # noqa: ARG001
    def lines() -> Iterator[str]:
        yield "# tegrascope-dla hello cores=0"
        for number in range(TIMES):
            begin = 1000 + 100 * number
            yield (
                f" infer-{number} [001] .....  {number}.1: job_submit: "
                f"15880000.nvdla0 class=f3 id={number} fences=1 ts={begin}"
            )
            yield (
                f" irq-9 [001] .....  {number}.2: job_timestamps: "
                f"job_id={number} begin={begin + 10} end={begin + 50}"
            )

    def name_of(task: object) -> str:
        raise IndexError(f"no name for {task}")

    return DlaTraceCompanion(Lines(lines()), name_of=name_of, clock=clock), lambda: None


def with_odd_contexts(root: Path, clock: HandClock) -> Provoked:  # noqa: ARG001
    def name_of(pid: int) -> str:
        raise RuntimeError(f"no name for {pid}")

    lines = (f'{{"process_ns": {{"{pid}": 5}}}}' for pid in range(TIMES))
    return GpuTraceCompanion(Lines(lines), name_of=name_of, clock=clock), lambda: None


def with_odd_holders(root: Path, clock: HandClock) -> Provoked:
    lines = (f'{{"event": "processes", "at_ns": {at}}}' for at in range(TIMES))
    known = ProcessNames(root)
    memory = MemoryCompanion(Lines(lines), top=3, names=(), known=known, clock=clock)
    return memory, lambda: None


def without_receiver(root: Path, clock: HandClock) -> Provoked:  # noqa: ARG001
    export = OtlpExport(Otlp(endpoint="http://127.0.0.1:1"), lambda: LiveState(Snapshot()))

    def another_answer() -> None:
        export.problem = f"http://127.0.0.1:1 answers 500: request {clock.now_ns}"

    return export, another_answer


COMPANIONS = {
    ProcessWatch: without_processes,
    SysfsCompanion: with_odd_files,
    RailCompanion: without_rails,
    SimulatedKernel: with_an_odd_board,
    NvmlCompanion: with_odd_gpu_processes,
    DlaTraceCompanion: with_odd_submitters,
    GpuTraceCompanion: with_odd_contexts,
    MemoryCompanion: with_odd_holders,
    OtlpExport: without_receiver,
}


def is_companion(member: object) -> bool:
    parts = ("columns", "start", "stop")
    return (
        inspect.isclass(member)
        and all(callable(getattr(member, part, None)) for part in parts)
        and isinstance(getattr(member, "name", None), str)
    )


def test_each_companion_has_its_row():
    """A new companion needs its row in ``COMPANIONS``."""
    found: set[object] = set()
    for package in (tegrascope.collectors, tegrascope.daemon.export, tegrascope.daemon.session):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            # These programs end without their library, and hold no companion.
            if module.name.rpartition(".")[2] not in ("otlp_sender", "__main__"):
                members = inspect.getmembers(import_module(module.name), is_companion)
                found.update(member for _, member in members)
    assert found == set(COMPANIONS)


@pytest.mark.parametrize("provoke", COMPANIONS.values(), ids=lambda provoke: provoke.__name__)
def test_a_problem_that_repeats_is_a_few_lines_of_log(provoke, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    clock = HandClock()
    companion, fail_again = provoke(tmp_path, clock)
    feed = Feed(companion, clock)
    if not isinstance(companion, OtlpExport):  # each attempt of its child takes seconds
        companion.start()
    try:
        for _ in range(TIMES):
            fail_again()
            feed.take()
        assert until(lambda: caplog.records)
    finally:
        companion.stop()
    assert 1 <= len(caplog.records) <= 20  # up to three faults at a time
    for record in caplog.records:
        assert record.message.startswith(f"{companion.name}: ")
        assert "\n" not in record.message
        assert record.exc_info is None


def test_an_outage_is_logged_at_once_then_rarely_and_its_end_once(caplog):
    caplog.set_level(logging.INFO)
    clock = HandClock()
    outage = OutageLog("rails", clock, pauses_seconds=(60, 240))
    for _ in range(100):
        outage.note("the driver hangs")
        clock.now_ns += 10 * S
    for _ in range(20):
        outage.note(None)
        clock.now_ns += 10 * S
    assert caplog.messages == [
        "rails: the driver hangs",
        "rails: the driver hangs (5 more since the last line)",
        "rails: the driver hangs (11 more since the last line)",
        "rails: the driver hangs (23 more since the last line)",
        "rails: the driver hangs (23 more since the last line)",
        "rails: the driver hangs (23 more since the last line)",
        "rails: works again, after 990.0 s of failures",
    ]


def test_a_problem_that_comes_and_goes_is_one_outage(caplog):
    caplog.set_level(logging.INFO)
    clock = HandClock()
    outage = OutageLog("otlp", clock)
    for _ in range(100):
        outage.note("no answer")
        clock.now_ns += 5 * S
        outage.note(None)
        clock.now_ns += 5 * S
    assert len(caplog.messages) == 5
    assert not any("works again" in message for message in caplog.messages)


def test_texts_that_never_repeat_are_logged_rarely_too(caplog):
    clock = HandClock()
    outage = OutageLog("otlp", clock)
    for number in range(100):
        outage.note(f"request {number} was refused")
        clock.now_ns += 1 * S
    assert len(caplog.messages) == 5


def test_a_companion_that_raises_costs_its_own_values(tmp_path):
    class Odd(RailCompanion):
        def columns(self) -> Mapping[Column, float]:
            raise ZeroDivisionError("no rails")

    feed = Feed(Odd(tmp_path), HandClock())
    feed.take()
    assert feed.live.snapshot.companions_up == {"rails": False}
    assert feed.live.snapshot.values["ram.used_bytes"] == 936 << 20


def test_a_file_that_spoils_its_reading_costs_its_own_values(tmp_path):
    class Good(OddText):
        def take(self, text: str, now_ns: int) -> Iterator[Value]:  # noqa: ARG002
            yield (FAN_SPEED, "fan"), float(text)

    def good_files(root: Path) -> Iterator[Reading]:
        yield Good(root / "odd")

    (tmp_path / "odd").write_text("7\n")
    companion = SysfsCompanion(tmp_path, finders=(odd_files, good_files), timeout_seconds=60.0)
    companion.start()
    try:
        assert companion.columns() == {(FAN_SPEED, "fan"): 7.0}
    finally:
        companion.stop()


class OddCollector(LineCollector):
    """Cannot read a line that nobody thought of."""

    def _read(self, line: Stamped[str]) -> list[Stamped[Sample]]:
        if line.value == "odd":
            raise IndexError("list index out of range")
        return [Stamped(line.monotonic_ns, line.wall_ns, parse_line(line.value))]


def test_a_line_of_telemetry_that_fails_in_us_costs_itself_only(caplog):
    good = "RAM 936/3964MB (lfb 366x4MB)"
    collector = OddCollector(Lines([*["odd"] * TIMES, good, "odd", good]))
    assert len(list(collector.collect())) == 2
    assert (collector.lines, collector.unparsed) == (TIMES + 3, {"fault": TIMES + 1})
    assert len(caplog.messages) == 1


def test_a_line_that_cannot_be_taken_costs_itself_only():
    """The submitter's name fails for the first task, and the others count."""
    calls = iter([IndexError("no name"), *["infer"] * 10])

    def name_of(task: object) -> str:  # noqa: ARG001
        name = next(calls)
        if isinstance(name, Exception):
            raise name
        return name

    clock = HandClock()
    given, _ = with_odd_submitters(Path(), clock)
    assert given.source is not None
    first = [line.value for line in given.source.lines()][:21]
    companion = DlaTraceCompanion(Lines(iter(first)), name_of=name_of, clock=clock)
    clock.now_ns = 0
    companion.start()
    assert until(lambda: companion.columns().get((DLA_TASKS, "0")) == 10)
    companion.stop()

"""The companion: what the reader of context switches prints becomes columns."""

import json
from collections.abc import Iterator

import pytest

from tegrascope.collectors.base import Stamped
from tegrascope.collectors.gpu.contexts import GpuTraceCompanion
from tegrascope.parsers.signals import by_name

S = 1_000_000_000
NAMES = {4711: "detector", 4712: "detector", 4713: "tracker"}


class Clock:
    """Stands still until it is set."""

    now_ns = 100 * S

    def monotonic_ns(self) -> int:
        return self.now_ns


class Silent:
    """A source without a line."""

    problem: str | None = None

    def lines(self) -> Iterator[Stamped[str]]:
        return iter(())

    def stop(self) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trace(clock: Clock) -> GpuTraceCompanion:
    return GpuTraceCompanion(Silent(), name_of=NAMES.get, clock=clock)  # type: ignore[arg-type]


def line(process_ns: dict[int, int], **troubles: int) -> str:
    return json.dumps({"span_ns": S, "process_ns": process_ns, "troubles": troubles})


def test_processes_of_one_name_are_added_up(trace, clock):
    """Counts grow; an unknown process, and time that nobody is known to have had, are other."""
    assert trace.columns() == {}
    trace.take(line({4711: S // 4, 4712: S // 4, 9999: S // 8}, lost=3), clock.now_ns)
    trace.take(line({4713: S, 0: S // 8}, lost=1), clock.now_ns)
    assert by_name(trace.columns()) == {
        "gpu.context_seconds.detector": 0.5,
        "gpu.context_seconds.other": 0.25,
        "gpu.context_seconds.tracker": 1.0,
        "gpu.trace.lost": 4,
    }
    assert trace.problem is None


def test_silence_is_absence(trace, clock):
    trace.take(line({4711: S}), clock.now_ns)
    clock.now_ns += 6 * S
    assert trace.columns() == {}
    trace.take(line({}), clock.now_ns)
    assert by_name(trace.columns()) == {"gpu.context_seconds.detector": 1.0}


def test_a_reader_cannot_name_troubles_of_its_own(trace, clock):
    """Each would be a further series; only those that the reader has are taken."""
    with pytest.raises(ValueError, match="whatever"):
        trace.take(line({4711: S}, whatever=1), clock.now_ns)
    assert trace.columns() == {}


def test_reason_of_the_reader_is_the_problem(trace, clock):
    trace.take(json.dumps({"unavailable": "no ring: remove it"}), clock.now_ns)
    assert trace.problem == "no ring: remove it"
    assert trace.columns() == {}


def test_names_are_bounded(clock):
    source = Silent()
    trace = GpuTraceCompanion(source, name_of="p{}".format, clock=clock)  # type: ignore[arg-type]
    trace.take(line(dict.fromkeys(range(1, 501), S)), clock.now_ns)
    columns = by_name(trace.columns())
    assert len(columns) <= 18
    assert sum(columns.values()) == 500


@pytest.mark.parametrize(
    "text", ["", "used", '{"process_ns": {"x": 1}}', '{"process_ns": {"1": -1}}', '{"more": 1}']
)
def test_line_of_another_form_gives_nothing(trace, clock, text):
    with pytest.raises(ValueError, match="ContextUse"):
        trace.take(text, clock.now_ns)
    assert trace.columns() == {}

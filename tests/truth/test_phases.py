"""A small campaign of energy by phase; the large one is ``python -m tests.truth.phases``."""

import secrets
from array import array

import pytest

from tegrascope.collectors.board.boards import find_rail_rule
from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.daemon.measure.energy import Timing
from tegrascope.daemon.measure.phases import phase_energy
from tegrascope.daemon.measure.report import Span, WorkPhase

from .phases import judge, measure

RUNS = 6
RAIL = "VDD_IN"
RULE = find_rail_rule([RAIL, "VDD_CPU_GPU_CV", "VDD_SOC"])


@pytest.mark.parametrize(
    "name",
    (
        *("long", "long-agx", "long-uneven", "llm", "llm-heat", "llm-lag-varies", "llm-uneven"),
        *("llm-averaged-0.3s", "llm-lost", "unmarked", "short-agx", "three", "tiny"),
    ),
)
def test_interval_holds_the_energy_of_a_phase(name):
    seed = secrets.randbits(32)
    lines, missed = judge(name, [measure(name, seed, i) for i in range(RUNS)], 0.9999)
    assert not missed, f"seed {seed}: {lines}; {missed}"


def _found(watts_at, phases, seconds=60.0, step=0.1, **options):
    """Return the energies of phases with readings of ``watts_at(seconds)``, by name."""
    times = array("q", (round((i + 0.37) * step * 1e9) for i in range(int(seconds / step))))
    columns = {f"rails.{RAIL}.instant_watts": array("d", (watts_at(t / 1e9) for t in times))}
    spans = [
        WorkPhase(name=name, begin_ns=round(a * 1e9), end_ns=round(b * 1e9), units=units)
        for name, a, b, units in phases
    ]
    window = Span(begin_ns=0, end_ns=round(seconds * 1e9))
    samples = WindowSlice(times, times, columns)
    timing = options.pop("timing", Timing())
    found = phase_energy(samples, RULE, window, spans, timing, **options)
    return {one.name: one for one in found}


TURNS = [("a" if i % 2 == 0 else "b", i * 5.0, i * 5.0 + 5.0, 10.0) for i in range(12)]


def test_units_of_a_phase_give_its_energy_per_unit():
    found = _found(lambda at: 20.0 if at % 10 < 5 else 10.0, TURNS)
    a, b = found["a"], found["b"]
    assert (a.method, a.count, a.seconds, a.units) == ("cut", 6, 30.0, 60.0)
    assert a.gross_joules == pytest.approx(600, rel=0.01)
    assert a.joules_per_unit == a.gross_joules / 60
    assert a.joules_per_unit_interval.low == a.gross_interval.low / 60
    assert b.gross_joules == pytest.approx(300, rel=0.01)


def test_phases_of_a_withheld_run_have_the_reason():
    found = _found(lambda _: 10.0, TURNS, withheld="withheld: overlapped")
    assert {one.reason for one in found.values()} == {"withheld: overlapped"}
    assert all(one.gross_joules is one.method is None for one in found.values())
    assert found["a"].seconds == 30.0


def test_without_a_known_clock_there_is_no_energy():
    found = _found(lambda _: 10.0, TURNS, timing=Timing(clock=None))
    assert all(one.gross_joules is None and one.reason for one in found.values())


def test_phase_that_no_reading_met_is_absent_and_the_others_are_not():
    """Readings come at the same moment of each second; one phase lies between all of them."""
    phases = [
        phase
        for i in range(60)
        for phase in (("met", i, i + 0.6, None), ("missed", i + 0.6, i + 0.9, None))
    ]
    found = _found(lambda _: 12.0, phases, step=1.0)
    assert found["missed"].gross_joules is None
    assert "too short or too rare" in found["missed"].reason


def test_rare_phase_counts_as_time_without_a_mark():
    phases = [("often", i, i + 0.4, None) for i in range(60)] + [("rare", 60.0, 60.3, None)]
    found = _found(lambda at: 30.0 if at >= 60 else 20.0 if at % 1 < 0.4 else 10.0, phases, 61.0)
    assert found["rare"].gross_joules is None
    assert found["often"].method == "regression"
    assert found["often"].gross_interval.low < 24 * 20 < found["often"].gross_interval.high

"""Time by process out of planted owners: exact without losses, and bounded with them."""

import pytest

from tegrascope.collectors.gpu.switches import UNKNOWN, ContextTimes
from tegrascope.parsers.nvgpu import CONTEXT_START, ENGINE_RESET, SwitchEntry
from tests.fakes.switch_ring import SAVE_END, SharedGpu, count

MS = 1_000_000
LOSSES = ("drop", "unknown", "reset", "clock")


def test_time_of_each_process_is_right_without_losses():
    """Held against planted owners: within 1 % in each of 40 worlds."""
    worst = 0.0
    for seed in range(40):
        gpu = SharedGpu(seed)
        found = count(gpu)
        # Only the first period begins unknown.
        assert found.process_ns.pop(UNKNOWN, 0) < 1029 * MS
        assert found.process_ns.keys() == gpu.truth_ns.keys()
        for process, true_ns in gpu.truth_ns.items():
            worst = max(worst, abs(found.process_ns[process] / true_ns - 1))
        assert not found.troubles
    print(f"Held against 40 worlds without losses: at most {worst:.4%} beside the truth")
    assert worst < 0.01


@pytest.mark.parametrize("loss", LOSSES)
def test_bound_holds_with_losses(loss):
    """A process never has more than its time, and never less if the unknown is added."""
    worlds, losses, widths = 20, 0, list[float]()
    for seed in range(worlds):
        gpu = SharedGpu(seed, loss=loss)
        found = count(gpu)
        losses += len(gpu.dropped_at_ns) or gpu.losses
        unknown_ns = found.process_ns.pop(UNKNOWN, 0)
        widths.append(unknown_ns / 1e9 / found.seconds)
        assert found.process_ns.keys() <= gpu.truth_ns.keys()
        for process, true_ns in gpu.truth_ns.items():
            lower_ns = found.process_ns[process]
            # The clocks differ by 20 ppm, and the last entries are read some milliseconds late.
            assert lower_ns <= true_ns + 1 * MS
            assert true_ns <= lower_ns + unknown_ns + 25 * MS
        assert bool(found.troubles) == bool(gpu.losses)
    mean = sum(widths) / worlds
    print(f"Held against {worlds} worlds with {losses} of {loss}: {mean:.0%} of the time unknown")
    assert losses > worlds


def test_switch_that_the_driver_never_had_costs_at_most_a_period():
    """Such a record leaves no gap in the numbers; only starts and stops that do not fit show it."""
    worst = 0.0
    for seed in range(20):
        gpu = SharedGpu(seed, loss="record")
        found = count(gpu)
        assert found.troubles.keys() == {"unpaired"}
        unknown_ns = found.process_ns.pop(UNKNOWN)
        for process, true_ns in gpu.truth_ns.items():
            too_long_ns = found.process_ns[process] - true_ns
            too_short_ns = true_ns - found.process_ns[process] - unknown_ns
            error_ns = max(too_long_ns, too_short_ns, 0)
            worst = max(worst, error_ns / true_ns)
            assert error_ns <= gpu.losses * 1029 * MS
    print(f"Held against 20 worlds with switches that nobody noted: at most {worst:.1%} wrong")


def start(number: int, at_ns: int, process: int = 7) -> SwitchEntry:
    return SwitchEntry(CONTEXT_START, 0, number, 100 + process, process, at_ns)


def stop(number: int, at_ns: int, process: int = 7) -> SwitchEntry:
    return SwitchEntry(SAVE_END, 0, number, 100 + process, process, at_ns)


def counted(*entries: SwitchEntry) -> tuple[dict[int, int], dict[str, int]]:
    """Return what a second gives after an idle one that is known."""
    times = ContextTimes(0)
    times.take(start(65_534, 100), 100)
    times.take(stop(65_535, 200), 200)
    times.flush(1000 * MS)
    for entry in entries:
        times.take(entry, entry.at_ns)
    return times.flush(2000 * MS)[1], dict(times.troubles)


def test_context_that_stays_is_counted_up_to_now():
    """One program alone on the GPU is never switched, and its time comes nonetheless."""
    times = ContextTimes(0)
    times.take(start(0, 100 * MS), 100 * MS)
    assert times.flush(1000 * MS) == (1000 * MS, {7: 900 * MS, UNKNOWN: 100 * MS})
    assert times.flush(2000 * MS) == (1000 * MS, {7: 1000 * MS})
    times.take(stop(1, 2300 * MS), 2301 * MS)
    assert times.flush(3000 * MS) == (1000 * MS, {7: 300 * MS})
    assert times.flush(4000 * MS) == (1000 * MS, {})


def test_nothing_is_said_before_the_first_entry():
    assert ContextTimes(0).flush(1000) == (1000, {})


@pytest.mark.parametrize(
    ("entries", "known_ns", "troubles"),
    [
        ([start(0, 1100 * MS), stop(1, 1300 * MS)], 200 * MS, {}),
        ([start(0, 1100 * MS), stop(3, 1300 * MS)], 0, {"lost": 2}),
        ([start(0, 1100 * MS), start(1, 1300 * MS)], 700 * MS, {"unpaired": 1}),
        ([stop(0, 1300 * MS, process=8)], 0, {"unpaired": 1}),
        ([start(0, 1300 * MS), stop(1, 1100 * MS)], 0, {"clock": 1}),
        ([start(0, 1100 * MS), SwitchEntry(ENGINE_RESET, 0, 1, 0, 7, 1)], 0, {"reset": 1}),
        ([SwitchEntry(0x7B, 0, 0, 107, 7, 1300 * MS)], 0, {"unknown": 1}),
    ],
    ids=["good", "lost", "started twice", "stopped unseen", "clock", "reset", "unknown kind"],
)
def test_trouble_is_told_and_its_time_is_of_nobody(entries, known_ns, troubles):
    """All of a second in which something is wrong is known or unknown, and nothing is left over."""
    process_ns, told = counted(*entries)
    assert told == troubles
    assert process_ns.get(7, 0) == known_ns
    doubtful = bool(troubles) and "unknown" not in troubles
    assert process_ns.get(UNKNOWN, 0) == (1000 * MS - known_ns) * doubtful


def test_entry_from_the_future_is_no_time():
    times = ContextTimes(0)
    times.take(start(0, 0), 0)
    times.take(stop(1, 3_600_000 * MS), 500 * MS)
    assert times.flush(1000 * MS) == (1000 * MS, {UNKNOWN: 1000 * MS})
    assert times.troubles == {"clock": 1}

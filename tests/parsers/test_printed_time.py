"""Times of recorded logs: what each clock tells, and what happens where one was set."""

from calendar import timegm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tegrascope.parsers.errors import ParseError
from tegrascope.parsers.records import flatten
from tegrascope.parsers.tegrastats import parse_line
from tegrascope.parsers.tegrastats.prefix import read_prefix
from tegrascope.parsers.tegrastats.printed_time import ABSENT, RecordedClock, Restarts

SECOND = 1_000_000_000


def times(printed=None, received=None, restarted=None, *, size=None, interval=1.0):
    """Return elapsed seconds, errors and steps of a log that is fed in batches of a size."""
    count = len(printed if printed is not None else received)
    none = [ABSENT] * count
    columns = [
        np.array(none if column is None else column, np.int64) for column in (printed, received)
    ]
    anew = np.zeros(count, bool)
    anew[list(restarted or [])] = True
    clock = RecordedClock(interval)
    found = []
    for begin in range(0, count, size or count or 1):
        rows = slice(begin, begin + (size or count))
        found.append(clock.feed(columns[0][rows], columns[1][rows], anew[rows]))
    found.append(clock.finish())
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


def steps(found):
    """Return where the clock jumped, and by how much."""
    return {int(i): float(found[2][i]) for i in np.flatnonzero(~np.isnan(found[2]))}


def test_a_prefix_is_exact():
    """An epoch prefix is the time, to its last digit, and wins over the printed second."""
    start = 1_750_866_199 * SECOND
    received = [start, start + 348_800_000, start + 1_348_800_001]
    elapsed, error, step = times([5, 5, 9], received)
    assert elapsed.tolist() == [0, 0.3488, 1.348800001]
    assert error.tolist() == [0, 0, 0]
    assert np.isnan(step).all()


def test_one_record_a_second_sits_in_its_middle():
    """A record alone in its second may be anywhere in it; a second without one is no jump."""
    elapsed, error, step = times([10, 11, 12, 14, 15])
    assert elapsed.tolist() == [0, 1, 2, 4, 5]
    assert error.tolist() == [0.5] * 5
    assert np.isnan(step).all()


def test_records_of_one_second_are_spread_over_it():
    """Ten records of a second lie a tenth apart, half of that from its edges."""
    elapsed, error, _ = times([1] * 10 + [2] * 9 + [3] * 10)
    assert np.diff(elapsed[:10]) == pytest.approx(np.full(9, 0.1))
    assert elapsed[10] - elapsed[9] == pytest.approx(0.05 + 0.5 / 9)
    assert np.diff(elapsed[10:19]) == pytest.approx(np.full(8, 1 / 9))
    assert error[[0, 10]] == pytest.approx([0.05, 0.5 / 9])


def test_the_ends_of_a_log_are_not_stretched():
    """A log begins and ends within a second: the second beside tells how far apart records are."""
    elapsed, error, _ = times([1] * 3 + [2] * 10 + [3] * 10 + [4] * 4)
    assert np.diff(elapsed) == pytest.approx(np.full(26, 0.1))
    assert error == pytest.approx(np.full(27, 0.05))


def test_a_prefix_of_whole_seconds_is_spread_too():
    """A recorder that wrote no fraction is no more exact than a printed second."""
    received = [(1_750_000_000 + i // 5) * SECOND for i in range(60)]
    elapsed, error, _ = times(received=received)
    assert np.diff(elapsed) == pytest.approx(np.full(59, 0.2))
    assert error == pytest.approx(np.full(60, 0.1))


def test_without_a_clock_the_interval_is_assumed():
    """Records that tell no time follow at the nominal interval, with an error nobody knows."""
    elapsed, error, step = times([ABSENT] * 4, interval=0.5)
    assert elapsed.tolist() == [0, 0.5, 1, 1.5]
    assert np.isnan(error).all()
    assert np.isnan(step).all()


def test_one_record_without_a_time_moves_no_other():
    """A damaged timestamp is bridged by the usual interval; those after it are where they were."""
    printed = [*range(100, 140)]
    printed[20] = ABSENT
    elapsed, error, step = times(printed)
    assert elapsed.tolist() == [float(i) for i in range(40)]
    assert np.flatnonzero(np.isnan(error)).tolist() == [20]
    assert np.isnan(step).all()


@pytest.mark.parametrize("each", [1, 5])
def test_the_end_of_summer_time_is_a_step(each):
    """The clock goes back by an hour, time goes on, and what was expected is not in the step."""
    seconds = [*range(7000, 7060), *range(3460, 3520)]
    found = times([second for second in seconds for _ in range(each)])
    assert steps(found) == {60 * each: -3600.0}
    assert np.diff(found[0]) == pytest.approx(np.full(120 * each - 1, 1 / each))


def test_a_clock_that_was_set_forward_is_a_step():
    """From 1970 to today no time passed; up to ten seconds did."""
    found = times([*range(40, 80), *range(1_750_000_000, 1_750_000_040), 1_750_000_049])
    assert steps(found) == {40: 1_750_000_000 - 80}
    assert found[0][-1] - found[0][-2] == 10


def test_a_pause_of_tegrastats_is_time_that_passed():
    """Where tegrastats was started anew after a minute, the minute passed."""
    printed = [*range(100, 140), *range(200, 240)]
    found = times(printed, restarted=[40])
    assert steps(found) == {}
    assert found[0][-1] == 139
    assert steps(times(printed)) == {40: 60.0}


def test_a_restart_goes_back_only_with_its_clock():
    """Time never falls, not even where tegrastats was started anew after the clock was set."""
    found = times([*range(100, 140), *range(50, 90)], restarted=[40])
    assert steps(found) == {40: -90.0}
    assert np.all(np.diff(found[0]) > 0)


def test_a_step_of_the_prefix_is_exact():
    """A recorder's clock that was set jumps by what it was off, less the usual interval."""
    received = [SECOND * i // 2 for i in range(40)]
    received += [received[-1] + 100 * SECOND + SECOND * i // 2 for i in range(1, 40)]
    found = times(received=received)
    assert steps(found) == {40: 100.0}
    assert np.diff(found[0]) == pytest.approx(np.full(78, 0.5))


def test_a_slow_log_does_not_jump():
    """Where records are a minute apart from the first on, a minute is no jump."""
    found = times([60 * i for i in range(50)])
    assert steps(found) == {}
    assert found[0][-1] == 49 * 60


def test_a_prefix_that_comes_late_goes_on():
    """Where the clock that is read changes, time goes on by an interval and nothing jumped."""
    printed = [*range(100, 140), *[ABSENT] * 40]
    received = [*[ABSENT] * 40, *(1_750_000_000 * SECOND + i * SECOND for i in range(40))]
    found = times(printed, received)
    assert steps(found) == {}
    assert found[0].tolist() == [float(i) for i in range(80)]


def test_impossible_years_are_no_clock():
    """A damaged year overflows nothing."""
    found = times([100, 101, 200_000_000_000, 103])
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).tolist() == [False, False, True, False]


def test_an_empty_log_has_no_times():
    """Nothing fed is nothing found, as often as one asks."""
    assert [len(column) for column in times([])] == [0, 0, 0]


CLOCKS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 1, 2, 9, 11, -1, 4000, -3600, ABSENT]),
        st.sampled_from([ABSENT, ABSENT, 0, 1, 500_000_000, SECOND, 20 * SECOND, -SECOND]),
        st.booleans(),
    ),
    max_size=120,
)


@given(CLOCKS, st.integers(1, 50))
def test_batches_change_nothing(rows, size):
    """However a log is cut into batches its times are the same; they never fall, and start at 0."""
    printed, received, now, then = [], [], 1000, 10**18
    for ahead, prefix, _ in rows:
        now = now if ahead == ABSENT else max(now + ahead, 0)
        then = then if prefix == ABSENT else then + prefix
        printed.append(ABSENT if ahead == ABSENT else now)
        received.append(ABSENT if prefix == ABSENT else then)
    anew = [i for i, (_, _, restarted) in enumerate(rows) if restarted]
    whole = times(printed, received, anew)
    parts = times(printed, received, anew, size=size)
    for one, other in zip(whole, parts, strict=True):
        assert len(one) == len(rows)
        np.testing.assert_array_equal(one, other)
    assert np.all(np.diff(whole[0]) >= 0)
    assert not len(rows) or whole[0][0] == 0


def rails(*rows, maximum=False):
    """Return columns of one rail, of milliwatts now, mean and maximum."""
    watts = np.array(rows, float) / 1000
    names = ["instant_watts", "average_watts", "maximum_watts"][: watts.shape[1]]
    assert maximum == (len(names) == 3)
    return {f"rails.VDD_IN.{name}": watts[:, i] for i, name in enumerate(names)}


def means(*milliwatts):
    """Return readings with their mean, truncated as tegrastats prints it."""
    return [(now, sum(milliwatts[: i + 1]) // (i + 1)) for i, now in enumerate(milliwatts)]


def test_a_mean_that_begins_anew_is_a_restart():
    """The mean falls back to the reading: tegrastats has just begun."""
    columns = rails(*means(5000, 6000, 7000), *means(5500, 5600))
    restarted, known = Restarts().feed(columns, 5)
    assert restarted.tolist() == [False, False, False, True, False]
    assert known.all()


def test_a_steady_board_shows_no_restart():
    """Where the reading is the mean to a milliwatt or two, nothing is proven."""
    columns = rails(*means(5000, 5001, 5000), *means(5001, 5000))
    restarted, known = Restarts().feed(columns, 5)
    assert not restarted.any()
    assert known.all()


def test_a_maximum_that_falls_is_a_restart():
    """From R39 on a maximum since the start is printed; it cannot fall, across a gap neither."""
    nan = float("nan")
    columns = rails((5000, 5000, 5000), (nan, nan, nan), (4000, 4500, 4000), maximum=True)
    assert Restarts().feed(columns, 3)[0].tolist() == [False, False, True]
    zones = {"temperatures_max_celsius.tj": np.array([51.0, 52.0, 51.5])}
    assert Restarts().feed(zones, 3)[0].tolist() == [False, False, True]


def test_without_rails_nothing_tells():
    """A line without rails proves nothing; one after it may not either."""
    nan = float("nan")
    columns = rails((5000, 5000), (nan, nan), (7000, 7000), (8000, 7500))
    restarted, known = Restarts().feed(columns, 4)
    assert not restarted.any()
    assert known.tolist() == [True, False, False, True]
    assert Restarts().feed({}, 2)[1].tolist() == [False, False]


@given(
    st.lists(st.lists(st.integers(0, 60_000), min_size=1, max_size=20), min_size=1, max_size=5),
    st.integers(1, 30),
)
def test_no_restart_is_invented(runs, size):
    """Where tegrastats went on, whatever the readings, no restart is found, in any batches."""
    records = [record for run in runs for record in means(*run)]
    begins = {sum(map(len, runs[:i])) for i in range(len(runs))}
    columns = rails(*records)
    finder, found = Restarts(), []
    for begin in range(0, len(records), size):
        part = {name: column[begin : begin + size] for name, column in columns.items()}
        found.extend(finder.feed(part, len(records[begin : begin + size]))[0].tolist())
    assert {i for i, restarted in enumerate(found) if restarted} <= begins - {0}


def test_recorded_logs_restart_where_they_did(corpus):
    """In all collected logs two restarts are found, those that are known."""
    found = {}
    for log in sorted((corpus / "logs").rglob("*.log")):
        samples, printed, received = [], [], []
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                sample = parse_line(line)
            except ParseError:
                continue
            prefix = read_prefix(line).received_ns
            samples.append(flatten(sample))
            printed.append(ABSENT if sample.time is None else timegm(sample.time.timetuple()))
            received.append(ABSENT if prefix is None else prefix)
        names = {name for sample in samples for name in sample}
        columns = {
            name: np.array([sample.get(name, np.nan) for sample in samples]) for name in names
        }
        restarted, _ = Restarts().feed(columns, len(samples))
        if restarted.any():
            found[log.name] = (np.flatnonzero(restarted) + 1).tolist()
        elapsed, _, step = times(printed, received)
        assert np.all(np.diff(elapsed) > 0), log.name
        assert np.isnan(step).all(), log.name
    assert found == {"tx2-r28-nonroot-then-root.log": [28, 421]}

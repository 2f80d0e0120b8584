"""A bench that stops when its questions are answered: its plan, its looks, and their price."""

import pytest

from tegrascope.daemon.measure.figures import mean_of_rounds
from tegrascope.workbench.bench.run import RoundPlan
from tegrascope.workbench.results.bench_page import print_result
from tegrascope.workbench.results.records import BenchResult, GoalResult
from tegrascope.workbench.results.stopping import DOUBT, SPENDING, Watch, widening
from tegrascope.workbench.results.summary import Measured, Round, summarise

from .bench_fakes import FakeExecutors, Silence, make_bench, report, settings

PLAN = RoundPlan.of(6, may_stop=True)


def run(tmp_path, *lines, display=None, **changes):
    model = tmp_path / "net.onnx"
    model.write_text("\n".join(lines))
    asked = settings(str(model), rounds=6, until_ratio=0.03, **changes)
    bench, workers = make_bench(tmp_path, asked, FakeExecutors(tmp_path), display or Silence())
    if display is not None:
        display.workers = workers
    try:
        return bench.run(str(model)), asked
    finally:
        workers.close()


def passes(is_enough_after):
    done = 0
    while PLAN.goes_on(done, done >= is_enough_after):
        done += 1
    return done


@pytest.mark.parametrize(("answered", "ends"), [(0, 4), (4, 4), (5, 7), (7, 7), (8, 10), (99, 10)])
def test_bench_ends_only_after_a_look(answered, ends):
    assert passes(answered) == ends


def test_next_end_is_the_next_look():
    assert [PLAN.next_end(done) for done in range(10)] == [4] * 4 + [7] * 3 + [10] * 3
    fixed = RoundPlan.of(4)
    assert [fixed.next_end(done) for done in (0, 3, 4, 7)] == [4, 4, 8, 8]
    assert (fixed.doubt_after(4), fixed.counted) == (DOUBT, 4)


def test_looks_spend_the_chance_of_an_error_and_no_more():
    assert [PLAN.doubt_after(done) for done in (1, 4, 5, 7, 8, 10)] == [0.01] * 2 + [0.03] * 2 + [
        0.01
    ] * 2
    assert sum(SPENDING) == pytest.approx(DOUBT)


def test_clear_difference_ends_the_bench_after_the_short_rounds(tmp_path):
    result, _ = run(tmp_path, "gpu ms=3", "dla0 ms=17")
    assert result.order == ("gpu", "dla0", "dla0", "gpu") * 2
    assert {round(one.phases["steady"].seconds) for one in result.rounds} == {1}
    latency = next(goal for goal in result.goals if goal.goal == "latency")
    assert latency.winner == "gpu"
    assert (result.looks.planned, result.looks.taken, result.looks.is_early) == (3, 1, True)
    assert result.looks.rule == "alpha_spending"
    assert list(result.looks.answered_seconds) == ["latency"]
    assert "insufficient_samples" not in result.accelerators[0].flags


def test_equal_accelerators_end_the_bench_when_the_interval_is_narrow(tmp_path):
    result, _ = run(tmp_path, "gpu ms=5", "dla0 ms=5")
    latency = next(goal for goal in result.goals if goal.goal == "latency")
    assert latency.winner is None
    assert latency.precision_ratio <= 0.03
    assert result.looks.is_early


def test_single_accelerator_is_measured_to_the_precision(tmp_path):
    result, _ = run(tmp_path, "gpu ms=3", devices=("gpu",))
    assert result.looks.taken == 1
    assert len(result.rounds) == 4


def test_interrupted_bench_keeps_what_is_known(tmp_path):
    class Interrupt(Silence):
        def begin(self, title, _seconds_left):
            if title.startswith("round 3"):
                self.workers.cancel()

    result, asked = run(tmp_path, "gpu ms=3", "dla0 ms=17", display=Interrupt())
    assert (result.looks.taken, result.looks.is_early) == (0, False)
    assert result.looks.sentence.startswith("interrupted after 0 of 3 looks")
    assert [one.rounds for one in result.accelerators] == [2, 2]
    assert all(one.latency_seconds is not None for one in result.accelerators)
    assert asked.until_ratio == result.looks.until_ratio


def test_table_says_after_which_look_it_stopped(tmp_path, capsys):
    result, asked = run(tmp_path, "gpu ms=3", "dla0 ms=17")
    whole = BenchResult(
        tegrascope="0", started_wall_ns=0, ended_wall_ns=1, settings=asked, models=(result,)
    )
    print_result(whole)
    printed = " ".join(capsys.readouterr().out.split())
    assert "stopped after 1 of 3 looks at the rounds; latency answered after" in printed
    assert "each interval is one of 99 %" in printed


def test_intervals_of_a_look_are_wider_by_students_factor():
    rounds = {}
    for device, middle in (("gpu", 3.0), ("dla0", 3.5)):
        rounds[device] = []
        for number, change in enumerate((-0.1, 0.0, 0.1, 0.0)):
            one = report(device, middle + change, at=30 * number)
            rounds[device].append(Round(one))
    measured = [Measured(each[0].report, "ok", None, rounds=each) for each in rounds.values()]
    usual = summarise("net", measured, [])
    look = summarise("net", measured, [], 0.01)
    expected = mean_of_rounds([2.9, 3.0, 3.1, 3.0]).half / 1000
    assert usual.accelerators[0].latency_seconds.half == pytest.approx(expected)
    factor = widening(3, 0.01)
    assert factor == pytest.approx(5.8409 / 3.1824, rel=1e-3)
    assert look.accelerators[0].latency_seconds.half == pytest.approx(factor * expected)
    gaps = [next(g for g in one.goals if g.goal == "latency").interval for one in (usual, look)]
    widths = [gap.high - gap.low for gap in gaps]
    assert widths[1] == pytest.approx(factor * widths[0])


def test_goal_that_was_answered_may_become_open_again():
    watch = Watch(until_ratio=0.03)
    known = GoalResult(goal="latency", winner="gpu", sentence="")
    open_again = GoalResult(goal="latency", precision_ratio=0.2, sentence="")
    assert watch.look([known], 18.0)
    assert not watch.look([open_again], 118.0)
    assert watch.look([known], 220.0)
    looks = watch.record(0.01, was_cancelled=False)
    assert (looks.answered_seconds, looks.is_early) == ({"latency": 220.0}, False)
    said = "all 3 looks at the rounds were taken; latency answered after 3 min 40 s"
    assert looks.sentence.startswith(said)

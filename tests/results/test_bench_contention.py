"""Models together: every placement, in mirrored order, and its figures."""

import threading
from array import array
from itertools import combinations

import pytest

from tegrascope.collectors.simulator.physics import LoadBoard
from tegrascope.daemon.measure.quality import MINIMUM_SAMPLES
from tegrascope.daemon.measure.report import Energy, Interval, Span
from tegrascope.daemon.settings.config import Telemetry
from tegrascope.parsers.errors import UserError
from tegrascope.workbench.bench.run import foreseen, groups_on, placements
from tegrascope.workbench.bench.settings import INTERVALS, Asked, check_contention, check_names
from tegrascope.workbench.results.bench_page import placed_name, print_result
from tegrascope.workbench.results.contention import Joint, NotRun, joint_span, summarise_contention
from tegrascope.workbench.results.records import BenchResult, JointRound, Placed

from .bench_fakes import SECOND, FakeExecutors, Silence, make_bench, report, settings


@pytest.fixture
def together_of(tmp_path):
    """Bench models alone and together; a model is lines that say how an accelerator behaves."""
    made = []

    def bench(*models, on_begin=lambda *_: None, **changes):
        paths = []
        for number, lines in enumerate(models):
            path = tmp_path / f"{'abc'[number]}.onnx"
            path.write_text("\n".join(lines))
            paths.append(str(path))
        asked = settings(*paths, contention=True, **changes)
        executors = FakeExecutors(tmp_path)
        display = Silence(lambda title: on_begin(title, workers))
        run, workers = make_bench(tmp_path, asked, executors, display)
        made.append(workers)
        alone = [run.run(path) for path in paths]
        return run.run_together(alone), executors, workers

    yield bench
    for workers in made:
        workers.close()


def names(lanes):
    return tuple(placed_name(one) for one in lanes)


def test_each_runs_alone_and_in_every_placement_in_mirrored_order(together_of):
    found, executors, _ = together_of(["gpu ms=3", "dla0 ms=9"], ["gpu ms=4", "dla0 ms=8"])
    turns = [[names(one.lanes) for one in found.rounds if one.turn == turn] for turn in (0, 1)]
    assert len(turns[0]) == 8
    assert turns[1] == turns[0][::-1]
    assert [names(one.lanes) for one in found.together] == turns[0]
    pairs = {names(one.lanes) for one in found.together if len(one.lanes) == 2}
    assert pairs == {
        (f"a on {one}", f"b on {other}") for one in ("gpu", "dla0") for other in ("gpu", "dla0")
    }
    assert all((one.status, one.rounds) == ("ok", 2) for one in found.together)
    # Two that share an accelerator have a worker each, and both are at work at once.
    both = next(one for one in found.rounds if names(one.lanes) == ("a on gpu", "b on gpu"))
    assert both.window.seconds > 10
    assert len({one.run_id for one in both.runs}) == 2
    assert {name for name in executors.made if name.startswith("model")} == {"model0", "model1"}


def test_slowdown_is_against_the_same_model_alone(together_of):
    models = {0.003: ["gpu ms=3"], 0.004: ["gpu ms=4"], 0.006: ["gpu ms=6"]}
    found, *_ = together_of(*models.values(), devices=("gpu",))
    assert [len(one.lanes) for one in found.together] == [1, 1, 2, 1, 2, 2, 3]
    assert all(one.status == "ok" and one.flags == {} for one in found.together)
    for lane, seconds in zip(found.together[-1].lanes, models, strict=True):
        assert lane.slowdown.value == pytest.approx(1.0)
        assert lane.tail_slowdown == pytest.approx(1.0)
        assert lane.latency_seconds.value == pytest.approx(seconds)
        assert lane.throughput_ratio.value == pytest.approx(1.0, abs=0.02)
        # Without telemetry the energy is not known.
        assert lane.marginal_watts is None
    assert found.together[-1].net_joules is None


def test_model_that_fails_is_not_tried_in_company(together_of):
    lines = ["gpu ms=3", "dla0 ms=9 ending=unavailable"]
    found, *_ = together_of(lines, ["gpu ms=4", "dla0 ms=8"])
    assert not [one for one in found.together if "a on dla0" in names(one.lanes)]
    assert all(one.status == "ok" for one in found.together)


def test_one_that_breaks_while_measured_is_named_in_its_placements(capsys):
    a, b = Placed(model="a", device="gpu"), Placed(model="b", device="dla0")
    ways = [(a,), (b,), (a, b)]
    broken = NotRun("failed", "a-gpu: the driver is gone")
    rounds = [joint((b,), 0, 5.0), joint((b,), 1, 5.0)]
    found = summarise_contention(ways, rounds, {(a,): broken, (a, b): broken}, 2)
    assert [one.status for one in found.together] == ["failed", "ok", "failed"]
    assert found.together[2].reason == "a-gpu: the driver is gone"
    asked = settings("a", "b", contention=True)
    document = BenchResult(
        tegrascope="0", started_wall_ns=0, ended_wall_ns=1, settings=asked, contention=found
    )
    print_result(document)
    assert "a on gpu + b on dla0: failed, a-gpu: the driver is gone" in capsys.readouterr().out


def test_interrupt_keeps_the_finished_rounds(together_of):
    def interrupt(title, workers):
        if "+" in title:
            cancel = threading.Thread(target=workers.cancel)
            cancel.start()
            cancel.join()

    models = ["gpu ms=3"], ["gpu ms=4"]
    found, _, workers = together_of(*models, devices=("gpu",), on_begin=interrupt)
    assert workers.was_cancelled
    alone, pair = found.together[:2], found.together[2]
    assert [(one.status, one.rounds) for one in alone] == [("ok", 1), ("ok", 1)]
    assert (pair.status, pair.rounds) == ("cancelled", 0)
    assert len(found.rounds) == 2


# --- figures of made rounds -----------------------------------------------------------------------


def joint(on, turn, watts, factor=1.0, half=0.1):
    """Return a round of 10 s in which each lane takes 10 ms times a factor."""
    count = round(1000 / factor)
    seconds = 10.0
    energy = Energy(
        gross_joules=(watts + 7) * seconds,
        net_joules=watts * seconds,
        gross_interval=Interval(
            low=(watts + 7 - half) * seconds, high=(watts + 7 + half) * seconds
        ),
        net_interval=Interval(low=(watts - half) * seconds, high=(watts + half) * seconds),
    )
    record = JointRound(
        turn=turn,
        lanes=on,
        window=Span(begin_ns=0, end_ns=10 * SECOND),
        inferences=(count,) * len(on),
        energy=energy,
        runs=tuple(report(placed.device, 10.0 * factor) for placed in on),
    )
    latencies = tuple(array("q", [round(10_000_000 * factor)] * count) for _ in on)
    return Joint(record, latencies, (count / seconds,) * len(on))


def test_marginal_power_and_excess_are_differences_and_nothing_else():
    on = tuple(Placed(model=name, device="gpu") for name in "abc")
    alone = {"a": 5.0, "b": 3.0, "c": 2.0}
    drawn = {1: 0.0, 2: 1.0, 3: 4.0}  # beyond the sum, by how many are on
    ways = [part for size in (1, 2, 3) for part in combinations(on, size)]
    rounds = [
        joint(
            part,
            turn,
            sum(alone[one.model] for one in part) + drawn[len(part)],
            factor={1: 1.0, 2: 1.25, 3: 2.0}[len(part)],
        )
        for turn in (0, 1)
        for part in ways
    ]
    found = summarise_contention(ways, rounds, {}, 2)
    whole = found.together[-1]
    assert whole.net_watts.value == pytest.approx(14.0)
    assert whole.net_joules.value == pytest.approx(140.0)
    assert whole.gross_joules.value == pytest.approx(210.0)
    # Half as many inferences as alone: the same work would have cost half.
    assert whole.excess_watts.value == pytest.approx(14.0 - 10.0 / 2)
    for lane in whole.lanes:
        assert lane.slowdown.value == pytest.approx(2.0)
        assert lane.throughput_ratio.value == pytest.approx(0.5)
        # With it 14 W; without it what the two others draw, and the watt beyond.
        assert lane.marginal_watts.value == pytest.approx(14.0 - (10.0 - alone[lane.model] + 1.0))
        assert lane.marginal_joules_per_inference.value == pytest.approx(
            lane.marginal_watts.value / 50
        )
        # The rounds agree to the last digit, so what is left is what each of the two had.
        half = (lane.marginal_watts.high - lane.marginal_watts.low) / 2
        assert half == pytest.approx(0.1 * 2**0.5)


def test_aliased_run_withholds_the_energy_of_the_window():
    on = (Placed(model="a", device="gpu"), Placed(model="b", device="dla0"))
    good = joint(on, 0, 9.0)
    bad = Joint(good.record, good.latency_ns, good.throughput, ("aliased",))
    assert good.watts("net") is not None
    assert bad.watts("net") is None
    found = summarise_contention([on], [bad], {}, 2)
    assert found.together[0].net_watts is None
    assert found.together[0].flags == {"aliased": 1}


def test_windows_that_have_nothing_in_common_are_none():
    spans = [Span(begin_ns=0, end_ns=5), Span(begin_ns=5, end_ns=9)]
    assert joint_span(spans) is None
    assert joint_span(spans[:1]) == spans[0]


# --- what is ahead --------------------------------------------------------------------------------


def test_announced_duration_follows_from_the_placements():
    asked = settings("a", "b", "c", devices=("gpu", "dla0", "dla1"), baseline_seconds=8.0)
    runs_on = dict.fromkeys("abc", ("gpu", "dla0", "dla1"))
    count, ways, seconds = foreseen(asked, 4)
    assert count == len(list(placements(runs_on))) == 54
    assert ways == len(groups_on(runs_on)) == 63
    assert seconds == pytest.approx(4 * (63 * 28 + (9 + 27 * 2 + 27 * 3)))


def test_smaller_groups_run_before_those_that_hold_them():
    seen = []
    for on in groups_on(dict.fromkeys("abc", ("gpu", "dla0"))):
        assert all(part in seen for n in range(1, len(on)) for part in combinations(on, n))
        seen.append(on)
    assert len(seen) == len(set(seen)) == 6 + 12 + 8


@pytest.mark.parametrize(
    ("models", "changes", "said"),
    [
        (("a",), {}, "given 1 model"),
        (("a", "b", "c", "d"), {}, "given 4 model"),
        (("a", "a"), {}, "a model twice"),
        (("a", "b"), {"backend": "trtexec"}, "trtexec times itself"),
    ],
)
def test_impossible_contention_is_refused_before_measuring(models, changes, said):
    with pytest.raises(UserError, match=said):
        check_contention(settings(*models, **changes))


def test_two_files_of_one_name_are_refused_before_measuring():
    with pytest.raises(UserError, match=r"a/best\.onnx and b/best\.onnx have the same name, best"):
        check_names(["a/best.onnx", "x.onnx", "b/best.onnx"])
    check_names(["a/best.onnx", "a/best.onnx", "builtin:resnet50"])


@pytest.mark.parametrize(
    ("seconds", "interval", "needed", "remedy"),
    [(4.0, 0.103, "10.9 s", 15), (15.0, 1.0, "105 s", 130), (15.0, 0.103, None, None)],
)
def test_rounds_too_short_for_energy_are_named_at_the_start(seconds, interval, needed, remedy):
    asked = Asked(settings("a", duration_seconds=seconds), Telemetry(interval=interval))
    sentence = (
        f"rounds of {seconds:g} s give no energy per inference, it needs {needed}:"
        f" use --duration {remedy}"
    )
    assert asked.advice() == (needed and sentence)
    assert asked._replace(telemetry=None).advice() is None


@pytest.mark.parametrize(("seconds", "is_enough"), [(10.5, False), (11.0, False), (11.3, True)])
def test_advice_on_rounds_counts_with_the_longest_interval_of_the_passes(seconds, is_enough):
    """Each pass has another interval; a round of the slowest one must have enough samples too."""
    telemetry = Telemetry(interval=INTERVALS[0])
    asked = Asked(settings("a", duration_seconds=seconds), telemetry, varies_interval=True)
    advice = asked.advice()
    assert (advice is None) is is_enough
    if advice is not None:
        assert "it needs 11.3 s" in advice
    for interval in INTERVALS:
        assert not is_enough or seconds / interval > 1.04 * MINIMUM_SAMPLES


@pytest.mark.parametrize(("rounds", "is_few"), [(1, True), (2, True), (3, False), (4, False)])
def test_wide_intervals_of_two_rounds_are_named_at_the_start(rounds, is_few):
    advice = Asked(settings("a", rounds=rounds), None).rounds_advice()
    assert (advice is not None) is is_few
    if advice is not None:
        assert "--rounds 4" in advice


def test_simulated_board_feels_both_that_share_a_lane():
    board = LoadBoard()
    board.set("gpu", 1.0, 0, "model0")
    board.set("gpu", 0.5, 10, "model1")
    board.set("gpu", 0.0, 20, "model0")
    board.set("gpu", 0.0, 30, "model1")
    loads = [(one.begin_ns, one.ratios["gpu"]) for one in board.between(0, 40)]
    assert loads == [(0, 1.0), (10, 1.0), (20, 0.5), (30, 0.0)]

"""A sweep from its first look to its front, with a worker that simulates accelerators."""

import argparse
import io

import pytest

from tegrascope.daemon.measure.blocks import WindowSlice
from tegrascope.parsers.errors import UsageError, UserError
from tegrascope.workbench.bench.settings import check_sweep, read_settings
from tegrascope.workbench.bench.sweep import SweepRun, axis, candidates_of, look_phases
from tegrascope.workbench.cli import make_parser
from tegrascope.workbench.results.bench_page import print_result, report_page
from tegrascope.workbench.results.document import print_document
from tegrascope.workbench.results.records import BenchResult, variant_of
from tegrascope.workbench.results.sweep_page import sweep_blocks

from .bench_fakes import FakeExecutors, Silence, make_bench, settings


@pytest.fixture
def sweep_of(tmp_path):
    """Sweep a model of which each line says how an accelerator behaves."""
    made = []

    def sweep(*lines, modes=lambda _: None, **changes):
        model = tmp_path / "net.onnx"
        model.write_text("\n".join(lines))
        asked = settings(str(model), **changes)
        bench, workers = make_bench(tmp_path, asked, FakeExecutors(tmp_path), Silence())
        made.append(workers)
        result = SweepRun(bench, str(model), modes).run()
        titles = [f"{p.result.device} {variant_of(p.variant.settings(asked))}".strip()
                  for p in result.sweep.points]  # fmt: skip
        return result, dict(zip(titles, result.sweep.points, strict=True))

    yield sweep
    for workers in made:
        workers.close()


def test_sweep_drops_the_slower_and_measures_the_front(sweep_of):
    result, points = sweep_of("gpu ms=3", "dla0 ms=17", sweep={"batch": (1, 2)})
    # Its latency may be the better one, as far as two rounds can tell.
    assert {title: point.outcome for title, point in points.items()} == {
        "gpu": "front",
        "gpu batch 2": "front",
        "dla0": "dominated",
        "dla0 batch 2": "dominated",
    }
    assert result.sweep.goals == ("latency", "throughput", "gpu_freed")
    assert result.sweep.front == (0, 1)
    assert points["dla0"].dominated_by == 0
    assert points["dla0"].dropped_after == 0
    assert points["gpu batch 2"].result.rounds == 2
    assert points["gpu batch 2"].result.throughput_per_second.value == pytest.approx(2 / 0.003)
    assert len(result.counted) == 4
    # A look each, another one of those that were left, and rounds of the front.
    assert len(result.rounds) == 4 + 2 + 4
    assert result.sweep.exhaustive_seconds > 0


@pytest.mark.parametrize(
    ("duration", "baseline", "expected"),
    [(16.0, 8.0, (4.0, 2.0)), (12.0, 2.0, (3.0, 1.0)), (12.0, 0.4, (3.0, 0.4))],
)
def test_look_is_a_quarter_but_idles_for_a_second_if_rounds_do(duration, baseline, expected):
    assert look_phases(duration, baseline) == expected


def test_memory_is_an_axis_and_one_that_is_refused_is_reported(sweep_of):
    line = "gpu ms=3 mapped.ms=2 managed.ending=failed"
    memory = ("copy", "mapped", "managed")
    _, points = sweep_of(line, devices=("gpu",), sweep={"memory": memory})
    assert {title: point.outcome for title, point in points.items()} == {
        "gpu copy memory": "dominated",
        "gpu mapped memory": "front",
        "gpu managed memory": "not_measured",
    }
    assert points["gpu managed memory"].result.reason == "as asked"
    assert points["gpu mapped memory"].variant.memory == "mapped"


def test_memory_is_no_axis_where_the_back_end_has_buffers_of_its_own():
    asked = settings("net.onnx", backend=None, sweep={"memory": ("copy", "mapped")})
    assert [one.title for one in candidates_of(asked, "net.onnx", ("gpu", "cpu"))] == [
        "gpu copy memory",
        "gpu mapped memory",
    ]


def test_below_a_limit_the_best_throughput_is_named(sweep_of):
    _, points = sweep_of("gpu ms=30", "dla0 ms=17", sweep={"streams": (1, 2)},
                         latency_below_seconds=0.02)  # fmt: skip
    assert points["gpu"].outcome == points["gpu 2 streams"].outcome == "above_limit"
    result, _ = sweep_of("gpu ms=3", "dla0 ms=17", sweep={"batch": (1, 4)},
                         latency_below_seconds=0.02)  # fmt: skip
    assert result.sweep.goals == ("throughput", "gpu_freed")
    assert result.sweep.best == {"throughput": (1,)}


def test_missing_accelerator_and_wrong_outputs_are_reported_not_measured(sweep_of):
    result, points = sweep_of(
        "gpu ms=3 answer=1.5", "dla0 ending=unavailable", sweep={"batch": (1, 2)}
    )
    assert {point.outcome for point in points.values()} == {"not_measured"}
    assert points["gpu"].result.flags == {"wrong_outputs": 1}
    assert points["dla0 batch 2"].result.reason == "as asked"
    assert result.sweep.front == ()
    assert result.rounds == ()
    # The terminal has each reason, for all points that share it.
    stream = io.StringIO()
    print_document(
        sweep_blocks(result.sweep, settings("net.onnx", sweep={"batch": (1, 2)})), stream
    )
    words = " ".join(stream.getvalue().split())
    assert "! gpu, gpu batch 2: its outputs are wrong (" in words
    assert "relative error 0.5, limit " in words
    assert "! dla0, dla0 batch 2: as asked" in words


def test_candidate_that_fails_in_a_round_is_out(sweep_of):
    _, points = sweep_of("gpu ms=3 breaks=1", "dla0 ms=17", sweep={"batch": (1,)})
    assert (points["gpu"].outcome, points["gpu"].result.status) == ("not_measured", "failed")
    assert points["gpu"].result.reason == "the driver is gone"
    assert points["dla0"].outcome == "front"


def test_modes_are_entered_in_a_row_and_one_that_is_refused_is_reported(sweep_of):
    entered = []

    def enter(mode):
        entered.append(mode)
        if mode == "7W":
            raise UserError("power mode 7W needs a reboot", "leave it out")

    _, points = sweep_of("gpu ms=3", "dla0 ms=3", modes=enter, devices=("gpu",),
                         sweep={"power-mode": ("15W", "7W", "25W"), "batch": (1, 2)})  # fmt: skip
    assert "power mode 7W needs a reboot" in points["gpu mode 7W"].result.reason
    assert points["gpu mode 25W"].result.status == "ok"
    # Passes go there and back, so each needs one change.
    assert entered == ["15W", "7W", "25W", "15W", "25W", "15W"]


def test_page_and_terminal_have_the_front(sweep_of, capsys):
    model, _ = sweep_of("gpu ms=3", "dla0 ms=17", sweep={"batch": (1, 2)},
                        latency_below_seconds=0.02)  # fmt: skip
    result = BenchResult(
        tegrascope="1", started_wall_ns=0, ended_wall_ns=1, models=(model,),
        settings=settings("net.onnx", sweep={"batch": (1, 2)}, latency_below_seconds=0.02),
    )  # fmt: skip
    assert BenchResult.model_validate_json(result.model_dump_json()) == result
    print_result(result)
    told = capsys.readouterr().out
    assert "best throughput, 99th percentile below 20.0 ms: gpu batch 2 with 667" in told
    page = report_page(result, lambda *_: WindowSlice())
    assert '{"name":"Time per input","unit":"s","marks":[{"title":"gpu"' in page
    assert "worse than gpu" in page


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bach=1", "'bach' is not an axis of a sweep; use batch, streams"),
        ("net.onnx", "'net.onnx' is not an axis"),
        ("batch=0", "batch: '0' is not a value; use numbers from 1 to 65536"),
        ("batch=", "batch: '' is not a value"),
        ("mps=50", "'mps' is not an axis of a sweep"),
        ("precision=fp8", "use fp32, fp16 or int8"),
        ("memory=pinned", "use copy, mapped, managed or managed-anyway"),
        ("power-mode=,", "names or numbers of nvpmodel's modes"),
    ],
)
def test_unknown_axis_or_value_is_one_clear_line(text, problem):
    with pytest.raises(argparse.ArgumentTypeError) as told:
        axis(text)
    assert problem in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--latency-below", "20ms"), "--latency-below belongs to --sweep"),
        (("--sweep", "batch=1", "batch=2"), "--sweep was given batch twice"),
        (("--sweep", "batch=1", "--lock-in"), "--lock-in does not go with --sweep"),
        (("--simulate", "--sweep", "power-mode=15W"), "the simulated board has no power modes"),
        (("--simulate", "--sweep", "memory=copy,mapped"), "(on gpu it is simulated)"),
        (("--on", "cpu", "--sweep", "memory=copy"), "memory is for the back-end tensorrt"),
        (("--on", "gpu", "--backend", "trtexec", "--memory", "mapped"), "(on gpu it is trtexec)"),
        (("--no-transfers", "--sweep", "memory=copy,mapped"), "without transfers none is"),
        (("--sweep", "power-mode=15Q"), "/etc/nvpmodel.conf has no power mode 15Q"),
    ],
)
def test_contradictions_are_refused(arguments, problem):
    given = make_parser(["bench"]).parse_args(["bench", "builtin:mobilenet", *arguments])
    with pytest.raises(UsageError) as told:
        read_settings(given)
    assert problem in str(told.value)


def test_modes_are_checked_by_the_board_s_own_file(tmp_path):
    (tmp_path / "etc").mkdir()
    modes = "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >"
    (tmp_path / "etc/nvpmodel.conf").write_text(modes)
    asked = settings("net.onnx", sweep={"power-mode": ("MAXN_SUPER", "0")})
    named = check_sweep(asked, ["power-mode"], tmp_path)
    assert named.sweep == {"power-mode": ("MAXN_SUPER", "15W")}
    asked = settings("net.onnx", sweep={"power-mode": ("MAXN",)})
    with pytest.raises(UsageError) as told:
        check_sweep(asked, ["power-mode"], tmp_path)
    assert told.value.remedy == "use 15W (0), MAXN_SUPER (2)"

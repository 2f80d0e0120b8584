"""``tegrascope compare`` as a person runs it, on results whose difference is known."""

import random
from pathlib import Path

import pytest

from tegrascope.daemon.measure.report import Figure, ProcessShare
from tegrascope.daemon.store.store import Store
from tegrascope.workbench.cli import main
from tegrascope.workbench.compare.report import Comparison
from tegrascope.workbench.results.records import Sweep, SweepPoint, Variant

from .world import Place, draw_network, record

NET = draw_network(random.Random(1))
FAST = Place()


def bench(place=FAST, seed=1, *, stages=True, clocks=True, layers=False):
    return record(NET, place, random.Random(seed), stages=stages, clocks=clocks, layers=layers)


def changed(found, **changes):
    """Return a result of one accelerator with changes of that."""
    (model,) = found.models
    (one,) = model.accelerators
    one = one.model_copy(update=changes)
    model = model.model_copy(update={"accelerators": (one,)})
    return found.model_copy(update={"models": (model,)})


@pytest.fixture
def compare(tmp_path, capsys):
    """Run the command on two documents or names; return its status, output and errors."""

    def run(*found, options=("--json",)):
        names = []
        for number, one in enumerate(found):
            path = tmp_path / f"{number}.json"
            if not isinstance(one, str):
                path.write_text(one.model_dump_json(exclude_none=True))
            names.append(one if isinstance(one, str) else str(path))
        status = main(["compare", *names, *options])
        told = capsys.readouterr()
        return status, told.out, told.err

    return run


@pytest.fixture
def figures(compare):
    """Compare two results; return the figures of the only pair by name."""

    def run(*found, options=()):
        status, out, _ = compare(*found, options=("--json", *options))
        assert status == 0
        (pair,) = Comparison.model_validate_json(out).pairs
        return {one.figure: one for one in pair.figures}

    return run


def named(one):
    return [cause.name for cause in one.causes]


def test_a_lower_power_mode_is_the_cause_and_its_clocks_are_named(figures):
    slow = Place(power_mode="15W", gpu=0.65e9)
    latency = figures(bench(), bench(slow, 2))["latency"]
    assert latency.verdict == "worse"
    (cause,) = latency.causes
    assert (cause.name, cause.certainty) == ("power_mode", "known_direction")
    assert "15W in B, MAXN in A" in cause.sentence
    assert "gpu clock" in cause.sentence


def test_a_faster_result_is_explained_too(figures):
    latency = figures(bench(Place(graph=False, launch=3e-5)), bench(seed=2))["latency"]
    assert (latency.verdict, named(latency)) == ("better", ["cuda_graph"])
    assert "A launches layer by layer, B as a CUDA graph" in latency.causes[0].sentence


def test_copies_explain_what_does_without_them(figures):
    without = Place(transfers=False, batch=8)
    latency = figures(bench(without), bench(Place(batch=8), 2))["latency"]
    assert named(latency) == ["transfers"]


def test_a_larger_batch_explains_latency_and_a_smaller_one_throughput(figures):
    found = figures(bench(), bench(Place(batch=8), 2))
    assert (found["latency"].verdict, named(found["latency"])) == ("worse", ["batch"])
    assert (found["throughput"].verdict, named(found["throughput"])) == ("better", ["batch"])
    assert "batch 1 in A, 8 in B" in found["throughput"].causes[0].sentence
    assert named(found["net_energy"]) == ["batch"]
    assert found["net_energy"].causes[0].certainty == "known_direction"


def test_throttling_and_mode_are_both_named_with_the_lower_clocks(figures):
    slow = Place(power_mode="30W", gpu=0.9e9, dip=0.6, throttled=4)
    latency = figures(bench(stages=False), bench(slow, 2, stages=False))["latency"]
    assert named(latency) == ["power_mode", "throttling"]
    assert all("gpu clock" in cause.sentence for cause in latency.causes)
    assert figures(bench(), bench(Place(throttled=4, dip=0.6), 2))["latency"].causes[0].name == (
        "throttling"
    )


def test_a_clock_that_follows_the_load_is_only_possible(figures):
    slow = Place(graph=False, launch=6e-5, gpu=0.9e9, locked=False)
    latency = figures(bench(), bench(slow, 2))["latency"]
    assert named(latency) == ["cuda_graph", "clocks"]
    assert latency.causes[1].certainty == "possible"
    assert "may be a consequence" in latency.causes[1].sentence


def test_int8_that_is_slower_is_explained_by_what_it_adds(figures):
    slow = bench(Place(precision="int8", kernels=3.0), 2)
    found = figures(bench(), slow)["latency"]
    assert found.is_unexplained
    assert found.opposed == ("precision",)
    built = slow.models[0].accelerators[0].built
    built = built.model_copy(update={"wide_layers": ("a", "b")})
    (cause,) = figures(bench(), changed(slow, built=built))["latency"].causes
    assert cause.name == "precision"
    assert "2 layers in floating point" in cause.sentence


def test_a_difference_without_a_cause_is_stated(compare):
    status, out, _ = compare(bench(), bench(Place(kernels=1.5), 2), options=())
    assert status == 0
    assert "latency p50: no known difference explains it" in out


def test_causes_are_printed_in_their_order_with_the_reason(compare):
    slow = Place(gpu=0.65e9, locked=False, jetpack="5.1.2")
    _, out, _ = compare(bench(stages=False), bench(slow, 2, stages=False), options=())
    words = " ".join(out.split())
    assert "latency p50: " in words
    assert "more in B, because of 1. clocks: gpu clock 64" in words
    assert "2. versions (possibly): JetPack 5.1.2 in B, 6.0 in A" in words
    assert "throughput: " in words


def test_energy_has_causes_of_its_own(figures):
    hot = changed(bench(seed=2), hottest_celsius=90.0)
    (one,) = hot.models[0].accelerators
    hot = changed(hot, net_joules_per_inference=one.net_joules_per_inference.times(1.3))
    found = figures(bench(), hot)
    assert (found["latency"].causes, named(found["net_energy"])) == ((), ["heat"])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            bench().model_copy(
                update={
                    "models": (bench().models[0].model_copy(update={"model_sha256": "cd" * 32}),)
                }
            ),
            "different models: SHA-256 abab",
        ),
        (bench(Place(device="dla0")), "different accelerators: gpu and dla0 (--across"),
        (changed(bench(), flags={"wrong_outputs": 4}), "B: its outputs are wrong"),
        (changed(bench(), status="failed", reason="it broke"), "B: failed: it broke"),
        (changed(bench(), rounds=0), "B: it was not measured"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(compare, other, reason):
    status, out, err = compare(bench(), other)
    found = Comparison.model_validate_json(out)
    assert (status, found.pairs) == (1, ())
    assert found.refused[0].reason.startswith(reason)
    assert reason in err
    assert f"not compared: net on gpu: {reason}" in compare(bench(), other, options=())[1]


def with_round(found, **changes):
    model = found.models[0]
    rounds = tuple(one.model_copy(update=changes) for one in model.rounds)
    return found.model_copy(update={"models": (model.model_copy(update={"rounds": rounds}),)})


def test_other_shapes_and_a_simulated_board_are_refused(compare):
    larger = with_round(bench(), input_shapes={"image": (1, 3, 640, 640)})
    reason = "inputs of different shapes: image 3x224x224 and image 3x640x640"
    assert reason in compare(bench(), larger)[2]
    environment = bench().environment.model_copy(update={"simulated": True})
    assert "B is simulated" in compare(bench(), with_round(bench(), environment=environment))[2]


def test_other_accelerators_are_compared_if_asked(figures):
    found = figures(bench(), bench(Place(device="dla0"), 2), options=("--across",))
    assert named(found["latency"])[0] == "accelerator"


def test_the_gate_fails_only_where_the_whole_interval_is_worse(compare):
    fast, slow = bench(), bench(Place(kernels=1.5), 2)
    status, out, err = compare(fast, slow, options=("--json", "--fail-if-worse", "5%"))
    found = Comparison.model_validate_json(out)
    assert (status, found.limit) == (3, 0.05)
    assert [words.partition(" is worse")[0] for words in found.failures] == [
        "net on gpu: latency p50",
        "net on gpu: throughput",
        "net on gpu: energy per input, net",
        "net on gpu: energy per input, gross",
    ]
    assert found.failures[0] in err
    assert compare(slow, fast, options=("--fail-if-worse", "5%"))[0] == 0
    latency = found.pairs[0].figures[0].ratio
    above = 100 * (latency.value - 1)
    assert compare(fast, slow, options=("--fail-if-worse", f"{above:.2f}"))[0] == 0


TIMES = ("latency_seconds", "throughput_per_second")
ENERGIES = ("net_joules_per_inference", "gross_joules_per_inference")


def widened(result, *names, share=0.75):
    """Return a result in which figures have an interval of so large a share of their value."""
    (one,) = result.models[0].accelerators
    figures = {name: getattr(one, name) for name in names}
    wide = {
        name: type(figure).around(figure.value, share * figure.value)
        for name, figure in figures.items()
    }
    return changed(result, **wide)


def test_intervals_too_wide_for_the_gate_have_a_status_of_their_own(compare):
    slow = widened(bench(Place(kernels=1.5), 2), *TIMES, *ENERGIES)
    status, out, err = compare(bench(), slow, options=("--json", "--fail-if-worse", "5%"))
    found = Comparison.model_validate_json(out)
    assert (status, found.failures) == (4, ())
    assert [words.partition(" may be")[0] for words in found.too_wide] == [
        "net on gpu: latency p50",
        "net on gpu: throughput",
        "net on gpu: energy per input, net and energy per input, gross",
    ]
    assert all("too wide to see 5.0 %" in words for words in found.too_wide)
    assert found.too_wide[0] in err
    status, out, _ = compare(bench(), slow, options=("--fail-if-worse", "5%"))
    assert status == 4
    assert "? net on gpu: latency p50 may be worse by up to" in " ".join(out.split())


def test_a_figure_that_can_show_the_limit_is_enough_for_its_cost(compare):
    same = bench(seed=2)
    gate = ("--fail-if-worse", "20%")
    assert compare(bench(), widened(same, ENERGIES[0]), options=gate)[0] == 0
    assert compare(bench(), widened(same, *ENERGIES), options=gate)[0] == 4
    # What is surely better is not worse, however uncertain it is.
    fast = widened(bench(seed=2), *TIMES, *ENERGIES, share=0.3)
    assert compare(bench(Place(kernels=3.0)), fast, options=gate)[0] == 0


def test_a_figure_that_is_surely_worse_fails_beside_wide_ones(compare):
    slow = widened(bench(Place(kernels=1.5), 2), *ENERGIES)
    assert compare(bench(), slow, options=("--fail-if-worse", "5%"))[0] == 3


def test_runs_are_compared_by_id_and_by_file(compare, figures, tmp_path):
    fast, slow = bench(), bench(Place(batch=8), 2)
    runs = [one.models[0].rounds[0] for one in (fast, slow)]
    runs = [
        run.model_copy(
            update={"latency": found.models[0].accelerators[0].latency, "inferences": 5000}
        )
        for run, found in zip(runs, (fast, slow), strict=True)
    ]
    store = Store(tmp_path / "tegrascope.db")
    for run in runs:
        store.finish(run)
    store.flush()
    store.close()
    state = ("--state-dir", str(tmp_path))
    for a, b in ((runs[0].run_id, runs[1].run_id), runs):
        latency = figures(a, b, options=state)["latency"]
        assert (latency.verdict, named(latency)) == ("unclear", ["batch"])
        assert latency.difference.low is None
    status, _, err = compare(*runs, options=("--json", "--fail-if-worse", "5%"))
    assert status == 1
    assert "no figure has an interval" in err
    status, _, err = compare("absent", "absent", options=state)
    assert (status, "absent is neither a file nor the id of one run" in err) == (1, True)


def test_runs_of_exec_are_compared(figures):
    """No workload can have their back-end."""
    known = {"backend": "exec", "inferences": 5000, "throughput_per_second": 100.0}
    run = bench().models[0].rounds[0].model_copy(update=known)
    slow = run.model_copy(update={"throughput_per_second": 50.0})
    assert figures(run, slow)["throughput"].ratio.value == 0.5


def test_other_processes_of_the_rounds_are_contention(figures):
    used = (ProcessShare(name="robot", cpu_seconds=62.0), ProcessShare(name="dla"))
    slow = bench(Place(device="dla0", kernels=1.2), 2, stages=False)
    beside = with_round(slow, other_processes=used)
    [cause] = figures(bench(Place(device="dla0")), beside)["latency"].causes
    assert (cause.name, cause.sentence) == (
        "contention",
        "other processes used 2.0 cores during B",
    )


def test_points_of_a_sweep_are_paired_by_their_settings(compare):
    def sweep(seed, *batches):
        places = [Place(batch=batch) for batch in batches]
        points = tuple(
            SweepPoint(
                variant=Variant(batch=place.batch, precision="fp16"),
                result=bench(place, seed).models[0].accelerators[0],
                outcome="front",
            )
            for place in places
        )
        found = bench(seed=seed)
        goals = ("latency", "throughput")
        model = found.models[0].model_copy(
            update={"accelerators": (), "sweep": Sweep(goals=goals, points=points)}
        )
        return found.model_copy(update={"models": (model,)})

    _, out, _ = compare(sweep(1, 1, 4), sweep(2, 4, 8))
    found = Comparison.model_validate_json(out)
    assert [(one.variant_a, one.variant_b) for one in found.pairs] == [("fp16 batch 4",) * 2]
    # The rounds do not tell their point, so they are not those of this one.
    assert found.pairs[0].context_a.sample_shapes == {}
    assert [one.reason for one in found.refused] == ["only in A", "only in B"]


def test_results_of_several_models_are_paired_by_model_and_accelerator(compare):
    def two(seed):
        gpu, dla = bench(seed=seed), bench(Place(device="dla0"), seed)
        model = gpu.models[0].model_copy(
            update={
                "accelerators": (
                    *dla.models[0].accelerators,
                    *gpu.models[0].accelerators,
                )
            }
        )
        return gpu.model_copy(update={"models": (model,)})

    status, out, _ = compare(two(1), bench(seed=2))
    found = Comparison.model_validate_json(out)
    assert (status, [pair.device for pair in found.pairs]) == (0, ["gpu"])
    assert [(one.device, one.reason) for one in found.refused] == [("dla0", "only in A")]
    assert compare(two(1), bench(seed=2), options=("--fail-if-worse", "50%"))[0] == 1
    assert compare(two(1), two(2), options=("--fail-if-worse", "50%"))[0] == 0


def on_orin(model, batch, *size, board="NVIDIA Jetson AGX Orin Developer Kit", **place):
    """Return a bench of a model by the name of its file, with inputs of a size."""
    found = bench(Place(batch=batch, **place), seed=2)
    (one,) = found.models
    shapes = {"image": (batch, 3, *size)}
    environment = found.environment.model_copy(update={"board": board})
    changes = {"input_shapes": shapes, "environment": environment}
    rounds = tuple(run.model_copy(update=changes) for run in one.rounds)
    one = one.model_copy(update={"model": model, "rounds": rounds})
    return found.model_copy(update={"models": (one,), "environment": environment})


def test_one_dla_core_is_slower_than_two_published_ones(figures):
    own = on_orin("resnet34-backbone.onnx", 1, 768, 1280, device="dla0", precision="int8")
    own = changed(own, throughput_per_second=Figure(value=142.5, low=141, high=144))
    throughput = figures("published", own)["throughput"]
    assert (throughput.a.value, throughput.verdict) == (285, "unclear")
    assert named(throughput) == ["accelerator", "versions"]
    cause = throughput.causes[0]
    assert cause.certainty == "known_direction"
    assert cause.sentence == "DLA cores: 1 in B, 2 in A"


def test_a_published_result_has_the_same_causes_as_an_own_one(compare, figures):
    own = on_orin("resnet50.onnx", 1, 224, 224)
    own = changed(own, latency_seconds=Figure(value=0.006, low=0.0059, high=0.0061))
    latency = figures("published", own)["latency"]
    assert (latency.a.value, named(latency)) == (0.003, ["transfers"])
    assert "B copies" in latency.causes[0].sentence
    # From the other side it is the faster one.
    latency = figures(own, "published")["latency"]
    assert (latency.ratio.value, named(latency)) == (0.5, ["transfers"])
    out = compare("published", own, options=())[1]
    assert "A: The experiment that founded this project: resnet50-v2-7, https://" in out


def test_a_published_result_of_another_size_or_board_is_refused(compare, figures):
    larger = on_orin("resnet50.onnx", 1, 448, 448)
    assert "A: its input is 224x224, and that of B is 448x448" in compare("published", larger)[2]
    xavier = on_orin("ssd-resnet-34.onnx", 1, 1200, 1200, device="dla0", board="Jetson AGX Xavier")
    assert (
        "different boards: AGX Orin 64GB and Jetson AGX Xavier" in compare("published", xavier)[2]
    )
    assert figures("published", xavier, options=("--across",))
    server = on_orin("resnet50.onnx", 1, 224, 224, board="NVIDIA H100 80GB HBM3")
    reason = "published results are of Jetsons, and B is of NVIDIA H100 80GB HBM3"
    assert reason in compare("published", server)[2]


def test_nothing_published_is_one_line(compare):
    status, out, err = compare("published", bench())
    assert (status, out, "nothing is published of net on gpu" in err) == (1, "", True)
    status, out, err = compare("published", "published")
    assert (status, out, "both are published results" in err) == (1, "", True)


def test_a_missing_file_is_one_line(compare):
    status, out, err = compare("absent/result.json", "absent/result.json")
    assert (status, out) == (1, "")
    assert "absent/result.json: No such file" in err


def keys_of(schema):
    """Yield the name of every property of the records that compare itself declares."""
    foreign = {"Environment", "Process", "Circumstances", "Figure", "Built"}
    foreign |= {"HeldLayer", "Placement"}
    for name, one in (("", schema), *schema["$defs"].items()):
        if name not in foreign:
            yield from one.get("properties", {})


def test_every_key_and_every_cause_is_documented():
    page = (Path(__file__).parents[2] / "docs/compare.md").read_text(encoding="utf-8")
    schema = Comparison.model_json_schema()
    names = {*keys_of(schema), *schema["$defs"]["Cause"]["properties"]["name"]["enum"]}
    assert {"is_unexplained", "clocks_hertz", "build_circumstances"} <= names
    for name in names:
        assert f"`{name}`" in page, name
